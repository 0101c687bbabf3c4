//! The clock that rights are judged by: the wall's, but never going back.

use std::sync::{Mutex, PoisonError};

use weft_core::{Clock, Moment, Tick, Time};
use weft_sys::Sys;

/// Wall time that runs at least as fast as the monotonic clock, within one run of the node: a
/// wall clock set back extends no right. (One set forward ends rights early until the restart;
/// new ones are made in the same time and hold.)
pub(crate) struct Steady {
    sys: Sys,
    seen: Mutex<Seen>,
}

struct Seen {
    tick: Tick,
    wall: Time,
    stamped: Time,
}

impl Steady {
    /// Makes a clock that stamps nothing at or before `after`.
    pub(crate) fn new(sys: Sys, after: Time) -> Self {
        let now = sys.clock().moment();
        Self { sys, seen: Mutex::new(Seen { tick: now.tick, wall: now.wall, stamped: after }) }
    }

    /// Returns a time later than every one it has returned before: what is signed and what is
    /// revoked is put in order by it.
    pub(crate) fn stamp(&self) -> Time {
        let now = self.now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.stamped = now.max(Time::from_nanos(seen.stamped.nanos().saturating_add(1)));
        seen.stamped
    }
}

impl Clock for Steady {
    fn now(&self) -> Time {
        self.moment().wall
    }

    fn tick(&self) -> Tick {
        self.sys.clock().tick()
    }

    fn moment(&self) -> Moment {
        let now = self.sys.clock().moment();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let least = seen.wall.plus(now.tick.since(seen.tick));
        seen.wall = now.wall.max(least);
        seen.tick = seen.tick.max(now.tick);
        Moment { wall: seen.wall, tick: now.tick }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wall_clock_set_back_goes_on_from_where_it_was() {
        let sys = Sys::simulated(1);
        let sim = sys.sim_clock().expect("it is simulated").clone();
        let steady = Steady::new(sys, Time::EPOCH);
        let start = steady.now();
        sim.jump(-3_600_000_000_000);
        sim.step(Duration::from_secs(5));
        assert_eq!(steady.now(), start.plus(Duration::from_secs(5)));
        sim.jump(7_200_000_000_000);
        assert_eq!(steady.now(), start.plus(Duration::from_secs(3605)));
    }

    #[test]
    fn stamps_rise_though_the_clock_stands_still() {
        let sys = Sys::simulated(1);
        let later = sys.clock().now().plus(Duration::from_secs(9));
        let steady = Steady::new(sys, later);
        let first = steady.stamp();
        assert!(first > later && steady.stamp() > first);
    }
}
