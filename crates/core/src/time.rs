//! Wall time, monotonic time and deadlines, and the clock they come from.

use std::fmt;
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

    /// Returns the date and the time of day, in UTC.
    pub const fn civil(self) -> Civil {
        let (days, second) = (self.seconds().div_euclid(86_400), self.seconds().rem_euclid(86_400));
        // Counted in eras of 400 years that start in March, so that leap days come last.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Civil {
            year: year_of_era + era * 400 + (month <= 2) as i64,
            month: month as u8,
            day: day as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }
}

/// A date of the proleptic Gregorian calendar and a time of day, as people write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// The month, from 1.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute.
    pub minute: u8,
    /// The second, 0 to 59: leap seconds are not counted.
    pub second: u8,
}

/// To the second, as people read it: `2026-11-26 12:00:01`.
impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
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

    /// Returns both, as rights are judged by: while a process runs, the wall time of its moments
    /// never goes back (those of the clocks of `sys`: a wall clock set back extends no right). One
    /// that was set forward ends rights early until the restart.
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

    #[test]
    fn dates_are_right_around_leap_days_and_before_1970() {
        for (seconds, date) in [
            (0, [1970, 1, 1, 0, 0, 0]),
            (-1, [1969, 12, 31, 23, 59, 59]),
            (-5_822_236_800, [1785, 7, 2, 0, 0, 0]),
            (951_782_400, [2000, 2, 29, 0, 0, 0]),
            (1_709_251_199, [2024, 2, 29, 23, 59, 59]),
            (1_767_225_599, [2025, 12, 31, 23, 59, 59]),
            (4_107_542_400, [2100, 3, 1, 0, 0, 0]),
        ] {
            let civil = Time::from_unix(seconds, 999_999_999).civil();
            let found = [civil.month, civil.day, civil.hour, civil.minute, civil.second].map(i64::from);
            assert_eq!([&[civil.year], &found[..]].concat(), date, "{seconds}");
        }
        assert_eq!(Time::from_unix(-1, 0).civil().to_string(), "1969-12-31 23:59:59");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = Time::from_unix(-86_400 * 100_000, 0).civil();
        for day in -99_999..100_000 {
            let next = Time::from_unix(86_400 * day, 0).civil();
            let follows = (next.year, next.month, next.day) == (before.year, before.month, before.day + 1)
                || (next.day == 1
                    && before.day >= 28
                    && (next.year, next.month) == (before.year, before.month + 1))
                || ((next.month, next.day, before.month, before.day) == (1, 1, 12, 31)
                    && next.year == before.year + 1);
            assert!(follows, "{before:?} {next:?}");
            before = next;
        }
    }
}
