//! Flushes of what was committed while nobody waited for that: changes are told once they are
//! durable, and somebody waits to be told.

use std::sync::Arc;
use std::time::Duration;

use weft_core::ErrorKind;
use weft_core::limits::WATCHED_FLUSH_SHARE;
use weft_sys::Task;

use super::Volume;

impl Volume {
    /// Brings to disk what was committed, each time `to_flush` says so: the first for a while at once, of many
    /// changes after each other few. A flush for each would take longer than the changes.
    pub(super) fn flush_behind(self: Arc<Self>) -> Task<()> {
        let sys = self.sys.clone();
        sys.spawn(async move {
            loop {
                self.to_flush.notified().await;
                let begun = self.sys.clock().tick();
                let flushed = self.space.flush().await;
                match &flushed {
                    Ok(_) => {}
                    // It is closed, or does not take anything for a while: the next change tries again.
                    Err(error) if error.kind() == ErrorKind::Unavailable => {
                        tracing::debug!(%error, "nothing is told")
                    }
                    Err(error) => tracing::warn!(%error, "watchers are told later"),
                }
                self.feed.flushed(flushed.err());
                let took = self.sys.clock().tick().since(begun);
                self.sys.sleep(rest_after(took, self.watched_flush_rest)).await;
            }
        })
    }
}

/// Returns how long to rest after a flush that took so long.
fn rest_after(took: Duration, (least, most): (Duration, Duration)) -> Duration {
    took.saturating_mul(WATCHED_FLUSH_SHARE).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use weft_core::limits::WATCHED_FLUSH_REST;

    use super::*;

    #[test]
    fn the_slower_a_flush_the_longer_the_rest_but_nobody_waits_long_to_be_told() {
        let took = Duration::from_millis(1);
        let rest = |took| rest_after(took, WATCHED_FLUSH_REST);
        assert_eq!(rest(Duration::ZERO), WATCHED_FLUSH_REST.0);
        assert_eq!(rest(took), took * WATCHED_FLUSH_SHARE);
        assert_eq!(rest(Duration::MAX), WATCHED_FLUSH_REST.1);
    }
}
