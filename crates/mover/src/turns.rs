//! Who moves a piece now: a bounded number of slots, handed out in order of asking.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Leave to move one piece, or one small transfer. Dropping it lets the next one go.
pub struct Permit<'a>(#[expect(dead_code, reason = "held for its drop")] SemaphorePermit<'a>);

pub(crate) struct Turns {
    slots: Semaphore,
    inline: Semaphore,
}

impl Turns {
    pub fn new(slots: usize, inline: usize) -> Self {
        Self { slots: Semaphore::new(slots), inline: Semaphore::new(inline) }
    }

    /// Returns leave for a small transfer if there is any left.
    pub fn inline(&self) -> Option<Permit<'_>> {
        self.inline.try_acquire().ok().map(Permit)
    }

    /// Waits for a slot: first come, first served. The wait is short and bounded by whoever asks:
    /// nobody who holds a slot waits for a socket.
    pub async fn slot(&self) -> Permit<'_> {
        Permit(self.slots.acquire().await.expect("the slots are never closed"))
    }
}
