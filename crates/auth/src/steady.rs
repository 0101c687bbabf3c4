//! The clock that rights are judged by: a moment's wall time, which never goes back.

use std::sync::{Mutex, PoisonError};

use weft_core::{Clock, Moment, Tick, Time};
use weft_sys::Sys;

/// The wall time of the machine's moments, which runs on where the wall clock is set back, and
/// stamps that rise.
pub(crate) struct Steady {
    sys: Sys,
    stamped: Mutex<Time>,
}

impl Steady {
    /// Makes a clock that stamps nothing at or before `after`.
    pub(crate) fn new(sys: Sys, after: Time) -> Self {
        Self { sys, stamped: Mutex::new(after) }
    }

    /// Returns a time later than every one it has returned before: what is signed and what is
    /// revoked is put in order by it.
    pub(crate) fn stamp(&self) -> Time {
        let now = self.now();
        let mut stamped = self.stamped.lock().unwrap_or_else(PoisonError::into_inner);
        *stamped = now.max(Time::from_nanos(stamped.nanos().saturating_add(1)));
        *stamped
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
        self.sys.clock().moment()
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
