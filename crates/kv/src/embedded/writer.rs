//! The one writer: takes what queues, does it in order at the desk as one batch, flushes that with
//! one flush, answers, and folds behind. A flush that many wait for, or that takes long, is made aside, and
//! meanwhile the next batch:
//!
//! ```text
//!   batch 1 │ batch 2 │ batch 3 │
//!           │ flush 1     │ flush 2+3 │
//!                         └ answers 1
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weft_core::form::Ack;
use weft_core::limits::{KV_BATCH_BYTES, KV_BATCH_MAX, KV_FOLD_RETRY};
use weft_core::metrics::Outcome;
use weft_core::{Error, ErrorKind, Result, Tick};
use weft_sys::{Disk, FlushSite, Sys, Task};

use super::desk::{Desk, Flushing, again};
use super::feed::Feeds;
use super::overlay::Overlay;
use super::queue::{Message, Reply, Shared};
use super::tree::{Tree, TreeView};
use super::view::View;
use crate::engine::Commit;

/// Everything the writer owns.
pub(super) struct Writer {
    pub(super) sys: Sys,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) tree: Arc<Tree>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) shared: Arc<Shared>,
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) state: State,
}

/// What changes while it works.
#[derive(Default)]
pub(super) struct State {
    fold: Option<Fold>,
    /// Why the last fold failed, and when to try again.
    fold_failed: Option<(Error, Tick)>,
    /// The last commit in the frozen overlay.
    frozen_to: u64,
    /// Answers that wait for the next flush.
    unflushed: Vec<Waiting>,
    /// The flush that is made aside.
    flush: Option<Aside>,
}

/// A flush that is made aside.
struct Aside {
    /// How it ended, and how long it took.
    done: Task<(Result<()>, Duration)>,
    flushing: Flushing,
    waiting: Vec<Waiting>,
}

type Fold = Task<Result<Folded>>;

/// What a fold left: the tree as it is now, and what went wrong.
struct Folded {
    tree: TreeView,
    failed: Option<Error>,
}

enum Event {
    Message(Message),
    Folded(Result<Folded>),
    Flushed(Result<(Result<()>, Duration)>),
    /// A timer, or something that a caller left.
    Look,
    Abandoned,
}

/// How long a batch still waits for company.
struct Patience {
    until: Tick,
    ended: bool,
}

/// An answer that waits for its batch.
struct Waiting {
    ack: Ack,
    reply: Reply,
    done: Result<u64>,
}

impl Writer {
    /// Works until it is told to close or everybody who could tell it is gone.
    pub(super) async fn run(mut self) {
        let (shared, feeds) = (self.shared.clone(), self.feeds.clone());
        let mut looks_at = None;
        let (desk, closed) = loop {
            let event = self.next_event(looks_at).await;
            let mut held = shared.desk.lock().await;
            // It comes back only if nothing panics: after that it would be in doubt.
            let Some(mut desk) = held.take() else { break (None, None) };
            match event {
                Event::Message(message) => {
                    if let Some(reply) = self.serve(&mut desk, message).await {
                        self.answer_all_durable(&mut desk).await;
                        let done = self.finish(&mut desk).await;
                        break (Some(desk), Some((reply, done)));
                    }
                }
                Event::Folded(folded) => self.folded(&mut desk, folded),
                Event::Flushed(done) => self.flushed(&mut desk, done),
                Event::Look => flush_if_due(&mut desk),
                Event::Abandoned => {
                    self.answer_all_durable(&mut desk).await;
                    if let Err(error) = desk.flush() {
                        tracing::error!(%error, "cannot flush the metadata log while closing");
                    }
                    break (Some(desk), None);
                }
            }
            self.fold_if_due(&mut desk);
            self.answer_durable(&mut desk, false);
            looks_at = self.next_look(&mut desk);
            *held = Some(desk);
        };
        // The tree goes before the lock, which goes with the desk, and both before the answer: who
        // hears it may open again at once.
        self.tree.close();
        drop(self);
        drop(desk);
        feeds.close();
        if let Some((reply, done)) = closed {
            answer(reply, done);
        }
    }

    /// Notes at the desk when it will be looked at again, and returns that.
    fn next_look(&self, desk: &mut Desk) -> Option<Tick> {
        let retry_at = self.state.fold_failed.as_ref().map(|(_, at)| *at);
        desk.state.folding = self.state.fold.is_some() || retry_at.is_some();
        // While the log is flushed aside nothing can be done at either: both are looked at when that is through.
        let timers = desk.state.flush_at.into_iter().chain(retry_at);
        desk.state.looks_at = timers.min().filter(|_| !desk.state.flushing);
        desk.state.looks_at
    }

    async fn next_event(&mut self, looks_at: Option<Tick>) -> Event {
        let (fold, flush) = (&mut self.state.fold, &mut self.state.flush);
        let sys = self.sys.clone();
        tokio::select! {
            biased;
            folded = async { fold.as_mut().expect("guarded below").await }, if fold.is_some() => {
                *fold = None;
                Event::Folded(folded.and_then(|folded| folded))
            }
            done = async { (&mut flush.as_mut().expect("guarded below").done).await }, if flush.is_some() => {
                Event::Flushed(done)
            }
            () = async { sys.sleep_until(looks_at.expect("guarded below")).await }, if looks_at.is_some() => Event::Look,
            message = self.messages.recv() => message.map_or(Event::Abandoned, Event::Message),
            () = self.shared.wanted.notified() => Event::Look,
        }
    }

    /// Serves a message, those queued behind it, and those that are expected to come for the same
    /// flush. Returns where to answer once closed, if that was asked.
    async fn serve(&mut self, desk: &mut Desk, first: Message) -> Option<Reply> {
        let mut patience =
            Patience { until: self.sys.clock().tick().plus(desk.options.company_wait), ended: false };
        let mut close = None;
        let mut next = Some(first);
        while let Some(message) = next.take() {
            close = self.gather(desk, message, &mut patience).await;
            if close.is_none() && desk.has_room() && self.expects_more(desk, 0) {
                next = self.await_company(&mut patience).await;
            }
        }
        self.answer_durable(desk, patience.ended);
        close
    }

    /// Returns whether more should come before the flush, if it is to make durable what waits for
    /// it and `more`.
    fn expects_more(&self, desk: &Desk, more: usize) -> bool {
        // While the log is flushed aside there is time for them anyway.
        !desk.state.flushing && desk.state.company.is_expected(self.state.unflushed.len() + more)
    }

    /// Waits for a message as long as there is patience.
    async fn await_company(&mut self, patience: &mut Patience) -> Option<Message> {
        if patience.ended {
            return None;
        }
        tokio::select! {
            biased;
            message = self.messages.recv() => message,
            () = self.sys.sleep_until(patience.until) => {
                patience.ended = true;
                None
            }
        }
    }

    /// Runs a message and those that come behind it as one batch, and answers those that want no
    /// flush. Returns where to answer once closed, if that was asked.
    async fn gather(&mut self, desk: &mut Desk, first: Message, patience: &mut Patience) -> Option<Reply> {
        if let Err(error) = self.await_room(desk).await {
            return refuse(first, &error);
        }
        let mut batch = desk.begin();
        let (mut waiting, mut close, mut durable) = (Vec::new(), None, 0);
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Serve { mut wish, reply } => {
                    let done = batch.serve(&mut wish);
                    let ack = wish.ack();
                    durable += usize::from(ack == Ack::Durable && done.is_ok());
                    waiting.push(Waiting { ack, reply, done });
                }
                Message::Close { reply } => {
                    close = Some(reply);
                    break;
                }
            }
            if waiting.len() == KV_BATCH_MAX || batch.bytes() >= KV_BATCH_BYTES {
                break;
            }
            next = self.messages.try_recv().ok();
            // Whoever wants no flush does not wait for others' company.
            if next.is_none() && durable == waiting.len() && self.expects_more(desk, durable) {
                next = self.await_company(patience).await;
            }
        }
        if !desk.log.fits(batch.bytes()) {
            self.await_flush(desk).await;
        }
        match desk.append(batch) {
            Ok(()) => self.appended(waiting),
            Err(error) => waiting.into_iter().for_each(|waiting| answer(waiting.reply, Err(again(&error)))),
        }
        close
    }

    /// Waits until there is room in memory for more changes.
    async fn await_room(&mut self, desk: &mut Desk) -> Result<()> {
        desk.whole()?;
        if !desk.has_room() {
            // Nobody waits for a fold who needs no more than a flush.
            self.answer_all_durable(desk).await;
        }
        while !desk.has_room() {
            match (&mut self.state.fold, &self.state.fold_failed) {
                (Some(fold), _) => {
                    let folded = fold.await.and_then(|folded| folded);
                    self.state.fold = None;
                    self.folded(desk, folded);
                }
                (None, Some((error, at))) if self.sys.clock().tick() < *at => return Err(again(error)),
                (None, _) => {}
            }
            self.fold_if_due(desk);
            if self.state.fold.is_none() && self.state.fold_failed.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Answers those of a batch that want no flush; the others wait for it.
    fn appended(&mut self, waiting: Vec<Waiting>) {
        for waiting in waiting {
            match waiting.ack == Ack::Durable && waiting.done.is_ok() {
                true => self.state.unflushed.push(waiting),
                false => answer(waiting.reply, waiting.done.map(Commit)),
            }
        }
    }

    /// Flushes the log if anybody waits for that, and answers; or has it flushed aside, if many do or it takes long. Those
    /// that come while that is under way are answered after the next.
    fn answer_durable(&mut self, desk: &mut Desk, late: bool) {
        if self.state.unflushed.is_empty() || self.state.flush.is_some() {
            return;
        }
        let waiting = std::mem::take(&mut self.state.unflushed);
        desk.state.company.flushed(waiting.len(), late);
        let is_long = desk.state.company.flushes_for(desk.options.flush_aside_from);
        if waiting.len() < desk.options.flush_aside && !is_long {
            return answer_all(waiting, &desk.flush());
        }
        match desk.begin_flush() {
            Ok(Some((file, flushing))) => {
                let sys = self.sys.clone();
                let done = self.sys.aside(move || {
                    let begun = sys.clock().tick();
                    let done = file.sync(FlushSite::KvLogAppend);
                    (done, sys.clock().tick().since(begun))
                });
                self.state.flush = Some(Aside { done, flushing, waiting });
            }
            Ok(None) => answer_all(waiting, &desk.flush()),
            Err(error) => answer_all(waiting, &Err(error)),
        }
    }

    /// Flushes the log until nobody waits for that any more.
    async fn answer_all_durable(&mut self, desk: &mut Desk) {
        self.await_flush(desk).await;
        self.answer_durable(desk, false);
        self.await_flush(desk).await;
    }

    /// Waits until the log is not flushed aside any more.
    async fn await_flush(&mut self, desk: &mut Desk) {
        if let Some(flush) = &mut self.state.flush {
            let done = (&mut flush.done).await;
            self.flushed(desk, done);
        }
    }

    /// Answers those that waited for a flush that was made aside.
    fn flushed(&mut self, desk: &mut Desk, done: Result<(Result<()>, Duration)>) {
        if let Some(Aside { flushing, waiting, .. }) = self.state.flush.take() {
            let took = done.and_then(|(done, took)| done.map(|()| took));
            answer_all(waiting, &desk.end_flush(&flushing, took));
        }
    }

    /// Starts a fold if enough has gathered, or if the last one failed and has rested.
    fn fold_if_due(&mut self, desk: &mut Desk) {
        if desk.state.broken.is_some() {
            // Nothing is left that a timer could do.
            self.state.fold_failed = None;
            return;
        }
        if self.state.fold.is_some() || self.state.flush.is_some() {
            return;
        }
        match &self.state.fold_failed {
            Some((_, at)) if self.sys.clock().tick() < *at => {}
            Some(_) => self.start_fold(&desk.published.view()),
            None if desk.is_fold_due() => self.freeze_and_fold(desk),
            None => {}
        }
    }

    /// Freezes the active overlay. Its commits are flushed first: the tree is never ahead of the
    /// log.
    fn freeze_and_fold(&mut self, desk: &mut Desk) {
        if desk.flush().is_err() {
            return;
        }
        let view = desk.published.view();
        self.state.frozen_to = desk.log.appended();
        let frozen = View {
            active: Arc::new(Overlay::default()),
            frozen: Some(view.active.clone()),
            tree: view.tree.clone(),
        };
        desk.published.set_view(frozen.clone());
        self.start_fold(&frozen);
    }

    fn start_fold(&mut self, view: &View) {
        let Some(frozen) = view.frozen.clone() else { return };
        self.state.fold_failed = None;
        let (tree, disk, upto) = (self.tree.clone(), self.disk.clone(), self.state.frozen_to);
        self.state.fold = Some(self.sys.blocking(move || {
            let folded = enough_space(&*disk, frozen.bytes()).and_then(|()| tree.fold(&frozen, upto));
            match folded {
                Ok(tree) => Ok(Folded { tree, failed: None }),
                Err(error) => Ok(Folded { tree: tree.view()?, failed: Some(error) }),
            }
        }));
    }

    fn folded(&mut self, desk: &mut Desk, folded: Result<Folded>) {
        let view = desk.published.view();
        let error = match folded {
            Ok(Folded { tree, failed: None }) => {
                self.sys.metrics().kv_folds.count((Outcome::Done,));
                let tree = Arc::new(tree);
                desk.published.set_view(View { active: view.active.clone(), frozen: None, tree });
                if let Err(error) = desk.log.release(self.state.frozen_to) {
                    tracing::warn!(%error, "cannot remove a metadata log segment that is done with");
                }
                return;
            }
            // The tree may show the fold although its last flush failed. It is folded again all
            // the same: only a flush that succeeded lets go of the log.
            Ok(Folded { tree, failed: Some(error) }) => {
                let (active, frozen) = (view.active.clone(), view.frozen.clone());
                desk.published.set_view(View { active, frozen, tree: Arc::new(tree) });
                error
            }
            Err(error) => error,
        };
        self.sys.metrics().kv_folds.count((Outcome::Failed,));
        tracing::warn!(error = ?error, "cannot fold metadata into its tree; it stays in memory and log");
        if desk.state.broken.is_some() {
            return;
        }
        let error = error.unplaced().about("the metadata tree");
        self.state.fold_failed = Some((error, self.sys.clock().tick().plus(KV_FOLD_RETRY)));
    }

    /// Flushes and folds everything, so that the next start has nothing to replay.
    async fn finish(&mut self, desk: &mut Desk) -> Result<Commit> {
        desk.flush()?;
        for _ in 0..2 {
            if let Some(fold) = self.state.fold.take() {
                let folded = fold.await.and_then(|folded| folded);
                self.folded(desk, folded);
            }
            if self.state.fold_failed.is_none() && desk.published.view().active.bytes() > 0 {
                self.freeze_and_fold(desk);
            }
        }
        Ok(Commit(desk.log.appended()))
    }
}

/// Flushes applied commits that have waited long enough.
fn flush_if_due(desk: &mut Desk) {
    let is_due = |at| at <= desk.sys.clock().tick();
    if !desk.state.flushing && desk.state.flush_at.is_some_and(is_due) {
        // It has been reported where it happened; whoever writes next hears of it.
        let _ = desk.flush();
    }
}

/// Refuses a message. Returns where to answer if it was to close.
fn refuse(message: Message, error: &Error) -> Option<Reply> {
    match message {
        Message::Serve { reply, .. } => {
            answer(reply, Err(again(error)));
            None
        }
        Message::Close { reply } => Some(reply),
    }
}

/// Answers those that waited for a flush, given how it ended.
fn answer_all(waiting: Vec<Waiting>, flushed: &Result<()>) {
    for waiting in waiting {
        let done = match flushed {
            Ok(()) => waiting.done.map(Commit),
            Err(error) => Err(again(error)),
        };
        answer(waiting.reply, done);
    }
}

fn answer(reply: Reply, done: Result<Commit>) {
    // Whoever asked may have gone: that abandons the answer, not the act.
    let _ = reply.send(done);
}

/// Looks before a fold whether the disk has room for it: the tree takes a full disk badly.
fn enough_space(disk: &dyn Disk, bytes: usize) -> Result<()> {
    const SPARE_BYTES: u64 = 1 << 20;
    let free = disk.space()?.free;
    if free < 2 * bytes as u64 + SPARE_BYTES {
        return Err(Error::new(ErrorKind::NoSpace, "the disk is too full to fold metadata into its tree")
            .hint("free space on this disk"));
    }
    Ok(())
}
