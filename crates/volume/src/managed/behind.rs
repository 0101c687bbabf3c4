//! Flushes of what was committed while nobody waited for that: changes are told once they are
//! durable, and somebody waits to be told.

use std::sync::Arc;

use weft_core::ErrorKind;
use weft_core::limits::WATCHED_FLUSH_REST;
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
                match self.space.flush().await {
                    Ok(_) => {}
                    // It is closed, or does not take anything for a while: the next change tries again.
                    Err(error) if error.kind() == ErrorKind::Unavailable => {
                        tracing::debug!(%error, "nothing is told")
                    }
                    Err(error) => tracing::warn!(%error, "watchers are told later"),
                }
                self.sys.sleep(WATCHED_FLUSH_REST).await;
            }
        })
    }
}
