//! The store's own work: seals what rests, flushes what waits, removes files, makes spares.

use std::sync::{Arc, Weak};

use weft_core::{Result, Tick, limits};

use super::Inner;
use super::live::{Live, Phase};

/// Starts it. It ends when the store is dropped.
pub(super) fn start(inner: &Arc<Inner>) -> Result<()> {
    let (weak, wake, sys) = (Arc::downgrade(inner), inner.wake.clone(), inner.sys.clone());
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
            match tend(&weak).await {
                Some(due) => next = due,
                None => return,
            }
        }
    }));
    Ok(())
}

/// Does what is due. Returns when to come again, if ever; `None` if the store is gone.
async fn tend(weak: &Weak<Inner>) -> Option<Option<Tick>> {
    let inner = weak.upgrade()?;
    if *inner.closing.borrow() {
        return None;
    }
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
    Some(due.0)
}

/// The earliest time at which there is something to do.
#[derive(Default)]
struct Due(Option<Tick>);

impl Due {
    fn at(&mut self, tick: Tick) {
        self.0 = Some(self.0.map_or(tick, |earlier| earlier.min(tick)));
    }
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
        self.files.reap(&self.sys, &self.space).await?;
        if self.files.removed_since().is_some() {
            due.at(self.clock().tick());
        }
        Ok(())
    }

    /// Seals an object that rests; flushes one that does not and has waited long enough.
    async fn tend_live(&self, live: &Arc<Live>, due: &mut Due) -> Result<()> {
        let (rests_at, flush_at) = {
            let state = live.state();
            if state.phase == Phase::Sealed || state.removed || state.has_losses() {
                return Ok(());
            }
            let flush = state.unflushed_since.map(|since| since.plus(limits::APPLIED_FLUSH_DELAY));
            (state.written_at.plus(limits::STORE_SEAL_IDLE), flush)
        };
        let now = self.clock().tick();
        if rests_at <= now {
            if !self.seal(live).await? {
                due.at(self.clock().tick().plus(limits::STORE_SEAL_IDLE));
            }
            return Ok(());
        }
        due.at(rests_at);
        match flush_at {
            Some(at) if at <= now => self.flush_bytes(live).await?,
            Some(at) => due.at(at),
            None => {}
        }
        Ok(())
    }
}
