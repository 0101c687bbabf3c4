//! Wall time, monotonic time and deadlines, and the clock they come from.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point of wall-clock time: nanoseconds since 1970-01-01 UTC, leap seconds not
/// counted. Range: the years 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(i64);

impl Time {
    /// 1970-01-01 00:00:00 UTC.
    pub const EPOCH: Self = Self(0);
    /// The last time there is: "never expires".
    pub const MAX: Self = Self(i64::MAX);

    /// Makes a time from nanoseconds since 1970.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Makes a time from whole seconds since 1970 and nanoseconds (0 to 999 999 999)
    /// after them; out of range saturates.
    pub const fn from_unix(seconds: i64, nanos: u32) -> Self {
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos as i64))
    }

    /// Returns nanoseconds since 1970.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns whole seconds since 1970, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Returns the nanoseconds after [`Time::seconds`].
    pub const fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// Returns this time and `span` after it, saturating.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Returns whether something that ends at `end` is over now, allowing for clocks
    /// that differ by `skew`. What ends at [`Time::MAX`] never is.
    pub fn is_past(self, end: Self, skew: Duration) -> bool {
        end != Self::MAX && self >= end.plus(skew)
    }

    /// Returns how long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A point on the monotonic clock of one process: nanoseconds since an arbitrary
/// start. Never stored, never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// Returns this tick and `span` after it, saturating.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns how long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// When a call must have been answered. Monotonic, so that a clock jump neither
/// hurries nor delays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Tick);

impl Deadline {
    /// Returns the deadline `span` from now.
    pub fn within(clock: &dyn Clock, span: Duration) -> Self {
        Self(clock.tick().plus(span))
    }

    /// Returns what is left; zero once it has passed.
    pub fn left(self, clock: &dyn Clock) -> Duration {
        self.0.since(clock.tick())
    }

    /// Returns whether it has passed.
    pub fn passed(self, clock: &dyn Clock) -> bool {
        clock.tick() >= self.0
    }
}

/// Where time comes from. The real one and the simulated one live in `sys`.
pub trait Clock: Send + Sync {
    /// Returns wall-clock time. It may jump, forwards or backwards.
    fn now(&self) -> Time;

    /// Returns monotonic time. It never goes backwards.
    fn tick(&self) -> Tick;

    /// Returns both.
    fn moment(&self) -> Moment {
        Moment { wall: self.now(), tick: self.tick() }
    }
}

/// What ends waits: the other half of a [`Clock`]. The real one and the simulated one
/// live in `sys`.
pub trait Timer: Send + Sync {
    /// Returns a future that ends once the clock shows `tick`.
    fn at(&self, tick: Tick) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Now, on both clocks: what is signed expires by the wall, what was verified here
/// ends by the monotonic clock too, so that a wall clock set back extends no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Wall-clock time.
    pub wall: Time,
    /// Monotonic time.
    pub tick: Tick,
}

impl Moment {
    /// Returns the tick at which `expires` comes, if the wall clock runs on evenly.
    pub fn tick_of(self, expires: Time) -> Tick {
        self.tick.plus(expires.since(self.wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_split_into_seconds_and_nanos_that_add_up() {
        let time = Time::from_nanos(-1);
        assert_eq!((time.seconds(), time.subsec_nanos()), (-1, 999_999_999));
        assert_eq!(Time::from_unix(time.seconds(), time.subsec_nanos()), time);
    }
}
