//! Who moves a piece now: a bounded number of slots, handed out in order of asking.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Leave to move one piece, or one small transfer. Dropping it lets the next one go.
pub struct Permit<'a>(#[expect(dead_code, reason = "held for its drop")] SemaphorePermit<'a>);

pub(crate) struct Turns {
    slots: Semaphore,
    inline: Semaphore,
    waiting: AtomicUsize,
}

/// Counts itself among those who wait.
struct Waiter<'a>(&'a AtomicUsize);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    pub fn new(slots: usize, inline: usize) -> Self {
        Self { slots: Semaphore::new(slots), inline: Semaphore::new(inline), waiting: AtomicUsize::new(0) }
    }

    /// Returns leave for a small transfer if there is any left.
    pub fn inline(&self) -> Option<Permit<'_>> {
        self.inline.try_acquire().ok().map(Permit)
    }

    /// Waits for a slot: first come, first served. The wait is short and bounded by whoever asks:
    /// nobody who holds a slot waits for a socket.
    pub async fn slot(&self) -> Permit<'_> {
        if let Ok(permit) = self.slots.try_acquire() {
            return Permit(permit);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiter = Waiter(&self.waiting);
        Permit(self.slots.acquire().await.expect("the slots are never closed"))
    }

    /// Returns how many wait for a slot.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
