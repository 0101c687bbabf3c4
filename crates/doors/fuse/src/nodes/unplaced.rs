//! Changes made through this mount whose answers came before that of what they follow.
//!
//! The kernel sends many pages of a mapping at once, and what comes of them is told in any order: each says which state it found and
//! which it left. Put in order they are this mount's own alone, or somebody else's came between.
//!
//! ```text
//!   known: 5   told: 6→7   under way: one   ─▶ it waits
//!              told: 5→6                    ─▶ known: 7, and nobody else's came between
//!              or none is under way any more ─▶ somebody else's did
//! ```
//!
//! Those of a share say what they found before they wrote, which several may do at once: what one found is older then than what is
//! known, and it is placed if all since is this mount's own. What somebody else changes between its looks nobody can tell from it, and
//! is found as any change of a share is. What found a state that others left behind since says nothing new, and goes with those that wait.
//! The last that is under way may fail and say nothing: that something is missing is seen by what is told next of the file.

use weft_core::attr::Attr;
use weft_core::limits;

/// Changes that wait for their place.
#[derive(Debug)]
pub(super) struct Unplaced {
    /// From which state on all that is known was made through this mount.
    ours_from: u64,
    /// The state that each found, and what it left.
    waiting: Vec<(u64, Attr)>,
}

/// How many wait at most: as many as the kernel sends of a mapping at once, and as many again.
const WAITING_MAX: usize = 2 * limits::MOUNT_BACKGROUND_MAX as usize;

impl Unplaced {
    /// Makes it, of a state that others made.
    pub(super) fn after(state: u64) -> Self {
        Self { ours_from: state, waiting: Vec::new() }
    }

    /// Notes that what is known came to a state that others may have made.
    pub(super) fn begin(&mut self, state: u64) {
        self.ours_from = state;
    }

    /// Adds one.
    pub(super) fn add(&mut self, found: u64, left: Attr) {
        self.waiting.push((found, left));
    }

    /// Takes one that follows what is known.
    pub(super) fn next(&mut self, known: u64) -> Option<Attr> {
        let ours = self.ours_from..=known;
        let place = self.waiting.iter().position(|(found, _)| ours.contains(found))?;
        Some(self.waiting.swap_remove(place).1)
    }

    /// Takes all if any waits for what no answer will say: there is none to come, or too many wait. Returns the newest.
    pub(super) fn cut_off(&mut self, more_come: bool) -> Option<Attr> {
        if more_come && self.waiting.len() <= WAITING_MAX {
            return None;
        }
        self.waiting.drain(..).map(|(_, left)| left).max_by_key(|left| left.change)
    }
}
