//! What is known in memory of parts under way: who writes one, and its hash so far.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::{ContainerId, StageId, Tick, limits};

/// Parts under way.
#[derive(Default)]
pub(super) struct Stagings {
    tails: Mutex<HashMap<(StageId, u32), Known>>,
    /// Bytes that have come for a container and that no row counts yet.
    coming: Mutex<HashMap<ContainerId, u64>>,
}

/// Bytes of one part among those that are coming, until it is dropped.
pub(super) struct Coming {
    stagings: Arc<Stagings>,
    container: ContainerId,
    bytes: u64,
}

/// A part that is known here.
struct Known {
    tail: SharedTail,
    /// When somebody last began or ended to work on it.
    touched: Tick,
}

/// The end of a part, held by whoever adds to it.
type SharedTail = Arc<tokio::sync::Mutex<Tail>>;

/// The end of a part: whoever holds it goes on there.
#[derive(Default)]
pub(super) struct Tail {
    /// The hash of the part's first `bytes` bytes, if they came through here.
    pub(super) hasher: blake3::Hasher,
    pub(super) bytes: u64,
}

impl Stagings {
    /// Returns the tail of a part; a blank one if the part is not known here.
    pub(super) fn tail(&self, stage: StageId, number: u32, now: Tick) -> Arc<tokio::sync::Mutex<Tail>> {
        let mut parts = self.tails();
        if parts.len() >= limits::STAGE_TAILS_MAX {
            // Those that are dropped are hashed again from what is stored.
            parts.retain(|_, known| Arc::strong_count(&known.tail) > 1);
        }
        let blank = || Known { tail: SharedTail::default(), touched: now };
        let known = parts.entry((stage, number)).or_insert_with(blank);
        known.touched = now;
        known.tail.clone()
    }

    /// Notes that somebody worked on a part until now.
    pub(super) fn touch(&self, stage: StageId, number: u32, now: Tick) {
        if let Some(known) = self.tails().get_mut(&(stage, number)) {
            known.touched = now;
        }
    }

    /// Returns the stages that somebody works on, or did a while ago.
    pub(super) fn at_work(&self, now: Tick) -> HashSet<StageId> {
        let works = |known: &Known| {
            Arc::strong_count(&known.tail) > 1 || now.since(known.touched) < limits::FULL_STAGE_IDLE
        };
        self.tails().iter().filter(|(_, known)| works(known)).map(|((id, _), _)| *id).collect()
    }

    fn tails(&self) -> MutexGuard<'_, HashMap<(StageId, u32), Known>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a stage's parts.
    pub(super) fn forget(&self, stage: StageId) {
        self.tails().retain(|(id, _), _| *id != stage);
    }

    fn all_coming(&self) -> MutexGuard<'_, HashMap<ContainerId, u64>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coming {
    /// Begins to count what comes for a container.
    pub(super) fn new(stagings: &Arc<Stagings>, container: ContainerId) -> Self {
        Self { stagings: stagings.clone(), container, bytes: 0 }
    }

    /// Counts more bytes. Returns how many are coming for the container, of all parts.
    pub(super) fn add(&mut self, bytes: u64) -> u64 {
        self.bytes += bytes;
        let mut all = self.stagings.all_coming();
        let all = all.entry(self.container).or_default();
        *all += bytes;
        *all
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut all = self.stagings.all_coming();
        if let Some(left) = all.get_mut(&self.container) {
            *left -= self.bytes;
            if *left == 0 {
                all.remove(&self.container);
            }
        }
    }
}
