//! A clock for tests of pure code: it stands still until it is moved.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use event_listener::Event;
use weft_core::{Clock, Tick, Time, Timer};

/// A clock that is moved by hand. The wall can be made to jump by itself. Waits for a
/// tick end when it is moved there.
pub struct HandClock {
    wall: AtomicI64,
    ticks: Arc<Ticks>,
}

struct Ticks {
    now: AtomicU64,
    moved: Event,
}

impl Default for HandClock {
    fn default() -> Self {
        let ticks = Arc::new(Ticks { now: AtomicU64::new(1), moved: Event::new() });
        Self { wall: AtomicI64::new(1_700_000_000_000_000_000), ticks }
    }
}

impl Timer for HandClock {
    fn at(&self, tick: Tick) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let ticks = self.ticks.clone();
        Box::pin(async move {
            loop {
                let moved = ticks.moved.listen();
                if ticks.now.load(Ordering::SeqCst) >= tick.0 {
                    return;
                }
                moved.await;
            }
        })
    }
}

impl HandClock {
    /// Lets time pass on both clocks.
    pub fn pass(&self, span: Duration) {
        let nanos = span.as_nanos() as u64;
        self.wall.fetch_add(nanos as i64, Ordering::SeqCst);
        self.ticks.now.fetch_add(nanos, Ordering::SeqCst);
        self.ticks.moved.notify(usize::MAX);
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
        Tick(self.ticks.now.load(Ordering::SeqCst))
    }
}
