//! A clock for tests of pure code: it stands still until it is moved.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use weft_core::{Clock, Tick, Time};

/// A clock that is moved by hand. The wall can be made to jump by itself.
pub struct HandClock {
    wall: AtomicI64,
    tick: AtomicU64,
}

impl Default for HandClock {
    fn default() -> Self {
        Self { wall: AtomicI64::new(1_700_000_000_000_000_000), tick: AtomicU64::new(1) }
    }
}

impl HandClock {
    /// Lets time pass on both clocks.
    pub fn pass(&self, span: Duration) {
        let nanos = span.as_nanos() as u64;
        self.wall.fetch_add(nanos as i64, Ordering::SeqCst);
        self.tick.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall clock, forwards or backwards; monotonic time does not move.
    pub fn jump(&self, to: Time) {
        self.wall.store(to.nanos(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.wall.load(Ordering::SeqCst))
    }

    fn tick(&self) -> Tick {
        Tick(self.tick.load(Ordering::SeqCst))
    }
}
