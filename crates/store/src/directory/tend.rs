//! The store's own work: seals what rests, removes files, makes spares; and beside that, so that
//! none of it is waited for, flushes what waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_core::{ErrorKind, Result, Tick, limits};

use super::Inner;
use super::live::{Live, Phase, State};

/// Which part of the work.
#[derive(Clone, Copy)]
enum Work {
    Tending,
    Flushing,
}

/// Starts it. It ends when the store is dropped.
pub(super) fn start(inner: &Arc<Inner>) {
    for (work, wake) in [(Work::Tending, &inner.wake), (Work::Flushing, &inner.written)] {
        let (weak, wake, sys) = (Arc::downgrade(inner), wake.clone(), inner.sys.clone());
        // Nobody waits for it: it ends by itself.
        drop(inner.sys.spawn(async move {
            let mut next = Some(sys.clock().tick());
            loop {
                match next {
                    None => wake.notified().await,
                    Some(at) => {
                        tokio::select! {
                            () = wake.notified() => {}
                            () = sys.sleep_until(at) => {}
                        }
                    }
                }
                match done(work, &weak).await {
                    Some(due) => next = due,
                    None => return,
                }
            }
        }));
    }
}

/// Does what is due. Returns when to come again, if ever; `None` if the store is gone.
async fn done(work: Work, weak: &Weak<Inner>) -> Option<Option<Tick>> {
    let inner = weak.upgrade()?;
    if *inner.closing.borrow() {
        return None;
    }
    let due = match work {
        Work::Tending => tend(&inner).await,
        Work::Flushing => flush(&inner).await,
    };
    Some(due.0)
}

/// Brings to disk what was written and has waited long enough.
async fn flush(inner: &Arc<Inner>) -> Due {
    let mut due = Due::default();
    for live in inner.writing_now() {
        let done = inner.flush_in_time(&live, &mut due).await;
        inner.rest_after("flush an object", done, &mut due);
    }
    due
}

/// Does everything else.
async fn tend(inner: &Arc<Inner>) -> Due {
    let mut due = Due::default();
    for (what, done) in [
        ("seal what a crash left open", inner.tend_unsure().await),
        ("make spare files", inner.tend_spares().await),
        ("remove files", inner.tend_removed(&mut due).await),
    ] {
        inner.rest_after(what, done, &mut due);
    }
    for live in inner.writing_now() {
        let done = inner.tend_live(&live, &mut due).await;
        inner.rest_after("seal an object", done, &mut due);
    }
    due
}

/// The earliest time at which there is something to do.
#[derive(Default)]
struct Due(Option<Tick>);

impl Due {
    fn at(&mut self, tick: Tick) {
        self.0 = Some(self.0.map_or(tick, |earlier| earlier.min(tick)));
    }
}

/// Returns what an object's state says, if there is something to be done for it.
fn tended<T>(live: &Live, say: impl FnOnce(&State) -> T) -> Option<T> {
    let state = live.state();
    let done = state.phase == Phase::Sealed || state.removed || state.has_losses();
    (!done).then(|| say(&state))
}

impl Inner {
    /// Says that something failed and has it tried again later.
    fn rest_after(&self, what: &'static str, done: Result<()>, due: &mut Due) {
        if let Err(error) = done {
            if *self.closing.borrow() {
                // The engine closes while this runs; the next start does it.
                return;
            }
            tracing::warn!(op = "tend", what, error = ?error, "will be tried again");
            due.at(self.clock().tick().plus(limits::STORE_RETRY));
        }
    }

    async fn tend_unsure(&self) -> Result<()> {
        if !self.unsure_at_start.swap(false, std::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        self.seal_unsure().await
    }

    async fn tend_spares(&self) -> Result<()> {
        if self.files.is_low() {
            self.files.refill(&self.sys, &self.space, limits::STORE_SPARES_LOW).await?;
        }
        Ok(())
    }

    /// Removes files a while after the first of them was due, so that many go at once.
    async fn tend_removed(&self, due: &mut Due) -> Result<()> {
        let Some(since) = self.files.removed_since() else { return Ok(()) };
        let at = since.plus(limits::STORE_REAP_DELAY);
        if at > self.clock().tick() {
            due.at(at);
            return Ok(());
        }
        // A backup keeps them, for as long as it takes.
        let reaped = self.files.try_reap(&self.sys, &self.space).await?;
        if self.files.removed_since().is_some() {
            let rest = if reaped { Duration::ZERO } else { limits::STORE_RETRY };
            due.at(self.clock().tick().plus(rest));
        }
        Ok(())
    }

    /// Seals an object that rests.
    async fn tend_live(&self, live: &Arc<Live>, due: &mut Due) -> Result<()> {
        let Some(rests_at) = tended(live, |state| state.written_at.plus(limits::STORE_SEAL_IDLE)) else {
            return Ok(());
        };
        if rests_at > self.clock().tick() {
            due.at(rests_at);
            return Ok(());
        }
        match self.seal(live).await {
            Ok(true) => {}
            Ok(false) => due.at(self.clock().tick().plus(limits::STORE_SEAL_IDLE)),
            // Its record is gone, and whoever removes it is about to say so here.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tracing::debug!(op = "seal", id = %live.id, "it is being removed");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Flushes an object whose bytes have waited long enough.
    async fn flush_in_time(&self, live: &Arc<Live>, due: &mut Due) -> Result<()> {
        let Some(since) = tended(live, |state| state.unflushed_since) else { return Ok(()) };
        let now = self.clock().tick();
        // One that has nothing to flush may be written at any moment.
        let at = since.unwrap_or(now).plus(limits::APPLIED_FLUSH_DELAY);
        if at > now {
            due.at(at);
            return Ok(());
        }
        self.flush_bytes(live).await?;
        due.at(self.clock().tick().plus(limits::APPLIED_FLUSH_DELAY));
        Ok(())
    }
}
