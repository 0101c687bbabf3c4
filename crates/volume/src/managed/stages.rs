//! What is known in memory of parts under way: who writes one, and its hash so far.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use weft_core::{StageId, limits};

/// Parts under way.
#[derive(Default)]
pub(super) struct Stagings(Mutex<HashMap<(StageId, u32), SharedTail>>);

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
    pub(super) fn tail(&self, stage: StageId, number: u32) -> Arc<tokio::sync::Mutex<Tail>> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() >= limits::STAGE_TAILS_MAX {
            // Those that are dropped are hashed again from what is stored.
            parts.retain(|_, tail| Arc::strong_count(tail) > 1);
        }
        parts.entry((stage, number)).or_default().clone()
    }

    /// Forgets a stage's parts.
    pub(super) fn forget(&self, stage: StageId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _), _| *id != stage);
    }
}
