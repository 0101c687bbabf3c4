//! The clock that the machine stamps files with.

use std::time::Duration;

use rustix::time::{ClockId, clock_getres, clock_gettime};
use weft_core::Time;

/// Returns the time that a file which is changed just now is stamped with, where stamps are not finer
/// ([`may_stamp_finely`](super::Beneath::may_stamp_finely)).
pub fn coarse_now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Time::from_unix(now.tv_sec, now.tv_nsec as u32)
}

/// Returns how much longer that clock stands still: milliseconds at most.
pub fn coarse_rest() -> Duration {
    let (tick, now) = (clock_getres(ClockId::RealtimeCoarse), clock_gettime(ClockId::Realtime));
    let tick = Duration::new(tick.tv_sec.max(0) as u64, tick.tv_nsec as u32);
    tick.saturating_sub(Time::from_unix(now.tv_sec, now.tv_nsec as u32).since(coarse_now()))
}
