//! The real clock, and one that only moves when it is told to.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weft_core::{Clock, Moment, Tick, Time};

/// The machine's clocks.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
    steady: Steady,
}

/// By how much the wall clock was ahead of the monotonic one at the most, in nanoseconds: what makes
/// a moment's wall time run on where the wall clock is set back.
#[derive(Debug)]
struct Steady(AtomicI64);

impl Steady {
    fn new() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }

    fn moment(&self, wall: Time, tick: Tick) -> Moment {
        let since_start = i64::try_from(tick.0).unwrap_or(i64::MAX);
        let ahead = wall.nanos().saturating_sub(since_start);
        let most = self.0.fetch_max(ahead, Ordering::Relaxed).max(ahead);
        Moment { wall: Time::from_nanos(most.saturating_add(since_start)), tick }
    }
}

impl RealClock {
    /// Makes a clock whose ticks count from now.
    pub fn new() -> Self {
        Self { start: Instant::now(), steady: Steady::new() }
    }

    /// Returns the instant at which the monotonic clock shows `tick`.
    pub(crate) fn instant(&self, tick: Tick) -> Instant {
        // A century is as good as never, and keeps `Instant` from overflowing.
        const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        self.start + Duration::from_nanos(tick.0).min(FAR)
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Time {
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
        };
        Time::from_nanos(nanos)
    }

    fn tick(&self) -> Tick {
        Tick(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn moment(&self) -> Moment {
        self.steady.moment(self.now(), self.tick())
    }
}

/// A clock for the simulator. Monotonic time moves by [`SimClock::step`] only (or, inside
/// [`crate::simulate`], to the next timer whenever every task waits); the wall clock follows it
/// and may be made to jump.
#[derive(Debug)]
pub struct SimClock {
    state: Mutex<SimTime>,
    steady: Steady,
}

#[derive(Debug)]
struct SimTime {
    tick: u64,
    wall: i64,
    next_timer: u64,
    timers: BTreeMap<(u64, u64), Waker>,
}

impl SimClock {
    /// Makes a clock that shows `wall`.
    pub fn new(wall: Time) -> Self {
        let state = SimTime { tick: 0, wall: wall.nanos(), next_timer: 0, timers: BTreeMap::new() };
        Self { state: Mutex::new(state), steady: Steady::new() }
    }

    /// Moves both clocks on by `span` and wakes every timer that is then due.
    pub fn step(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let due = {
            let mut state = self.lock();
            state.tick = state.tick.saturating_add(nanos);
            state.wall = state.wall.saturating_add(i64::try_from(nanos).unwrap_or(i64::MAX));
            state.take_due()
        };
        due.into_iter().for_each(Waker::wake);
    }

    /// Makes the wall clock jump by `nanos`, backwards if negative. Ticks do not notice.
    pub fn jump(&self, nanos: i64) {
        let mut state = self.lock();
        state.wall = state.wall.saturating_add(nanos);
    }

    /// Moves on to the next timer. Returns whether there was one.
    pub(crate) fn skip_to_timer(&self) -> bool {
        let span = {
            let state = self.lock();
            let Some(((at, _), _)) = state.timers.first_key_value() else { return false };
            at.saturating_sub(state.tick)
        };
        self.step(Duration::from_nanos(span));
        true
    }

    /// Returns a future that is ready once the monotonic clock shows `at`.
    pub(crate) fn sleep_until(self: &Arc<Self>, at: Tick) -> SimSleep {
        SimSleep { clock: self.clone(), at, timer: None }
    }

    fn lock(&self) -> MutexGuard<'_, SimTime> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimTime {
    fn take_due(&mut self) -> Vec<Waker> {
        let later = self.timers.split_off(&(self.tick.saturating_add(1), 0));
        std::mem::replace(&mut self.timers, later).into_values().collect()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.lock().wall)
    }

    fn tick(&self) -> Tick {
        Tick(self.lock().tick)
    }

    fn moment(&self) -> Moment {
        let (wall, tick) = {
            let state = self.lock();
            (Time::from_nanos(state.wall), Tick(state.tick))
        };
        self.steady.moment(wall, tick)
    }
}

/// A wait on a [`SimClock`]. Dropping it takes its timer back.
pub(crate) struct SimSleep {
    clock: Arc<SimClock>,
    at: Tick,
    timer: Option<u64>,
}

impl Future for SimSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.lock();
        if state.tick >= self.at.0 {
            return Poll::Ready(());
        }
        let id = *self.timer.get_or_insert_with(|| {
            state.next_timer += 1;
            state.next_timer
        });
        state.timers.insert((self.at.0, id), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for SimSleep {
    fn drop(&mut self) {
        if let Some(id) = self.timer {
            self.clock.lock().timers.remove(&(self.at.0, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_jump_moves_no_tick() {
        let clock = SimClock::new(Time::from_unix(1_000, 0));
        clock.step(Duration::from_secs(2));
        clock.jump(-5_000_000_000);
        assert_eq!((clock.now(), clock.tick()), (Time::from_unix(997, 0), Tick(2_000_000_000)));
    }

    #[test]
    fn moments_go_on_where_the_wall_clock_is_set_back_and_with_it_where_it_is_set_forward() {
        let clock = SimClock::new(Time::from_unix(1_000, 0));
        let wall = || clock.moment().wall;
        assert_eq!(wall(), Time::from_unix(1_000, 0));
        clock.jump(-500_000_000_000);
        clock.step(Duration::from_secs(5));
        assert_eq!((wall(), clock.now()), (Time::from_unix(1_005, 0), Time::from_unix(505, 0)));
        clock.jump(800_000_000_000);
        assert_eq!(wall(), Time::from_unix(1_305, 0));
        clock.jump(-100_000_000_000);
        assert_eq!(clock.moment(), Moment { wall: Time::from_unix(1_305, 0), tick: clock.tick() });
    }

    #[test]
    fn the_real_monotonic_clock_never_goes_back() {
        let clock = RealClock::new();
        let mut last = clock.tick();
        for _ in 0..1000 {
            let next = clock.tick();
            assert!(next >= last);
            last = next;
        }
    }
}
