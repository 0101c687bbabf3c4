//! Which request the work on this thread is for: so that each line of the log can say it, whoever wrote
//! it, however deep below the door.
//!
//! It goes along with a future, wherever that is polled, and with what the future spawns. That costs two
//! stores for each poll: a span of `tracing` costs an allocation or two for each request, and is only there
//! if the log's filter lets it be.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;

use weft_core::TraceId;

thread_local! {
    static CURRENT: Cell<TraceId> = const { Cell::new(NOBODY) };
}

const NOBODY: TraceId = TraceId(0);

/// Returns the request that this thread works for now, if it works for one.
pub fn current() -> Option<TraceId> {
    Some(CURRENT.get()).filter(|trace| *trace != NOBODY)
}

/// Until it is dropped, this thread works for a request.
pub(crate) struct Held(TraceId);

impl Held {
    pub(crate) fn take(trace: TraceId) -> Self {
        Self(CURRENT.replace(trace))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Does work for a request.
pub async fn traced<T>(trace: TraceId, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _held = Held::take(trace);
        work.as_mut().poll(context)
    })
    .await
}

/// Returns what [`traced`] is to be told so that work goes on for whom this thread works now.
pub(crate) fn inherited() -> TraceId {
    CURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sys;

    #[tokio::test]
    async fn work_is_for_its_request_wherever_it_goes_on_and_nothing_else_is() {
        let sys = Sys::real();
        let (one, other) = (TraceId(1), TraceId(2));
        let work = |trace: TraceId| {
            let sys = sys.clone();
            async move {
                for _ in 0..3 {
                    assert_eq!(current(), Some(trace));
                    tokio::task::yield_now().await;
                }
                let spawned = sys.spawn(async {
                    tokio::task::yield_now().await;
                    current()
                });
                assert_eq!(spawned.await.expect("it ends"), Some(trace));
                assert_eq!(sys.blocking(current).await.expect("it ends"), Some(trace));
            }
        };
        tokio::join!(traced(one, work(one)), traced(other, work(other)));
        assert_eq!(current(), None);
        assert_eq!(sys.spawn(async { current() }).await.expect("it ends"), None);
    }
}
