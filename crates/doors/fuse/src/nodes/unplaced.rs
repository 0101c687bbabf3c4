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
//! Those of a share may say that they found one and the same state, since a program of the machine may write at any time and nothing
//! is held there between the looks and the write: what they found is then older than what is known, and they are placed.

use weft_core::attr::Attr;

/// Changes that wait for their place: the state that each found, and what it left.
#[derive(Debug, Default)]
pub(super) struct Unplaced(Vec<(u64, Attr)>);

/// How many wait at most: all that the kernel sends of a mapping at once, and as many again.
const UNPLACED_MAX: usize = 2 * weft_core::limits::MOUNT_BACKGROUND_MAX as usize;

impl Unplaced {
    /// Adds one.
    pub(super) fn add(&mut self, found: u64, left: Attr) {
        self.0.push((found, left));
    }

    /// Takes one that follows a state.
    pub(super) fn next(&mut self, known: u64) -> Option<Attr> {
        let place = self.0.iter().position(|(found, _)| *found <= known)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Returns whether any waits for what no answer will say: there is none to come, or too many wait.
    pub(super) fn is_cut_off(&self, more_come: bool) -> bool {
        !self.0.is_empty() && (!more_come || self.0.len() > UNPLACED_MAX)
    }

    /// Takes all. Returns the newest.
    pub(super) fn take_newest(&mut self) -> Option<Attr> {
        self.0.drain(..).map(|(_, left)| left).max_by_key(|left| left.change)
    }
}
