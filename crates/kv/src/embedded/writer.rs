//! The one writer: takes queued transactions, runs them in order, appends them with one write,
//! flushes them with one flush, answers, and folds behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use weft_core::form::Ack;
use weft_core::limits::{APPLIED_FLUSH_DELAY, KV_BATCH_BYTES, KV_BATCH_MAX, KV_FOLD_RETRY};
use weft_core::{Error, ErrorKind, Result, Tick};
use weft_sys::disk::DiskLock;
use weft_sys::{Disk, Sys, Task};

use super::Options;
use super::batch::Batch;
use super::company::Company;
use super::feed::{Counts, Feeds};
use super::log::{AppendError, Log};
use super::overlay::Overlay;
use super::tree::{Tree, TreeView};
use super::view::{Published, View};
use crate::engine::{Commit, NoteKind, NotePosition, WriteFn};

/// Where an answer goes. Nobody may be listening any more: the act stands all the same.
pub(super) type Reply = oneshot::Sender<Result<Commit>>;

/// What the writer is asked to do.
pub(super) enum Message {
    /// Run a transaction.
    Write { ack: Ack, act: WriteFn, reply: Reply },
    /// Forget notes.
    AckNotes { kind: NoteKind, position: NotePosition, reply: Reply },
    /// Make everything so far durable.
    Flush { reply: Reply },
    /// Finish and stop.
    Close { reply: Reply },
}

/// Everything the writer owns.
pub(super) struct Writer {
    pub(super) sys: Sys,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: Options,
    pub(super) log: Log,
    pub(super) tree: Arc<Tree>,
    pub(super) published: Arc<Published>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) boot: Arc<AtomicU64>,
    pub(super) queue: mpsc::Receiver<Message>,
    pub(super) notes: BTreeMap<NoteKind, Counts>,
    pub(super) state: State,
    /// Held until the writer ends.
    pub(super) _lock: Box<dyn DiskLock>,
}

/// What changes while it works.
#[derive(Default)]
pub(super) struct State {
    /// When applied commits must be flushed.
    flush_at: Option<Tick>,
    fold: Option<Fold>,
    /// Why the last fold failed, and when to try again.
    fold_failed: Option<(Error, Tick)>,
    /// The last commit in the frozen overlay.
    frozen_to: u64,
    /// Why nothing can be written until the engine is opened again.
    broken: Option<Error>,
    /// The last record's buffer, kept for the next.
    record: Vec<u8>,
    /// Answers that wait for the next flush.
    unflushed: Vec<Waiting>,
    company: Company,
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
    Timer,
    Abandoned,
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
        loop {
            match self.next_event().await {
                Event::Message(message) => {
                    if let Some(reply) = self.serve(message).await {
                        let done = self.finish().await;
                        let feeds = self.feeds.clone();
                        // The lock goes before the answer: who hears it may open again at once.
                        drop(self);
                        feeds.close();
                        answer(reply, done);
                        return;
                    }
                }
                Event::Folded(folded) => self.folded(folded),
                Event::Timer => self.timer(),
                Event::Abandoned => break,
            }
            self.fold_if_due();
        }
        if let Err(error) = self.flush() {
            tracing::error!(%error, "cannot flush the metadata log while closing");
        }
        self.feeds.close();
    }

    async fn next_event(&mut self) -> Event {
        let State { fold, flush_at, fold_failed, .. } = &mut self.state;
        let retry_at = fold_failed.as_ref().map(|(_, at)| *at);
        let timer = flush_at.iter().copied().chain(retry_at).min();
        let sys = self.sys.clone();
        tokio::select! {
            biased;
            folded = async { fold.as_mut().expect("guarded below").await }, if fold.is_some() => {
                *fold = None;
                Event::Folded(folded.and_then(|folded| folded))
            }
            () = async { sys.sleep_until(timer.expect("guarded below")).await }, if timer.is_some() => Event::Timer,
            message = self.queue.recv() => message.map_or(Event::Abandoned, Event::Message),
        }
    }

    /// Serves a message, those queued behind it, and those that are expected to come for the same
    /// flush. Returns where to answer once closed, if that was asked.
    async fn serve(&mut self, first: Message) -> Option<Reply> {
        let mut close = self.gather(first).await;
        let until = self.sys.clock().tick().plus(self.options.company_wait);
        let mut late = false;
        while close.is_none()
            && !late
            && self.has_room()
            && self.state.company.is_expected(self.state.unflushed.len())
        {
            let sys = self.sys.clone();
            tokio::select! {
                biased;
                message = self.queue.recv() => match message {
                    Some(message) => close = self.gather(message).await,
                    None => break,
                },
                () = sys.sleep_until(until) => late = true,
            }
        }
        self.answer_durable(late);
        close
    }

    /// Runs a message and those queued behind it as one batch, and answers those that want no
    /// flush. Returns where to answer once closed, if that was asked.
    async fn gather(&mut self, first: Message) -> Option<Reply> {
        if let Err(error) = self.await_room().await {
            return refuse(first, &error);
        }
        let base = self.log.appended();
        let record = std::mem::take(&mut self.state.record);
        let mut batch = Batch::new(self.published.view(), base, self.notes.clone(), record);
        let (mut waiting, mut close) = (Vec::new(), None);
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Write { ack, mut act, reply } => {
                    let done = batch.run(&mut act);
                    waiting.push(Waiting { ack, reply, done });
                }
                Message::AckNotes { kind, position, reply } => {
                    let done = batch.ack_notes(kind, position);
                    waiting.push(Waiting { ack: Ack::Applied, reply, done });
                }
                Message::Flush { reply } => {
                    let done = Ok(base + batch.commits());
                    waiting.push(Waiting { ack: Ack::Durable, reply, done });
                }
                Message::Close { reply } => {
                    close = Some(reply);
                    break;
                }
            }
            if waiting.len() < KV_BATCH_MAX && batch.bytes() < KV_BATCH_BYTES {
                next = self.queue.try_recv().ok();
            }
        }
        self.commit(batch, waiting);
        close
    }

    fn has_room(&self) -> bool {
        self.published.view().active.bytes() <= self.options.overlay_bytes_max
    }

    /// Waits until there is room in memory for more changes.
    async fn await_room(&mut self) -> Result<()> {
        if let Some(broken) = &self.state.broken {
            return Err(again(broken));
        }
        while !self.has_room() {
            match (&mut self.state.fold, &self.state.fold_failed) {
                (Some(fold), _) => {
                    let folded = fold.await.and_then(|folded| folded);
                    self.state.fold = None;
                    self.folded(folded);
                }
                (None, Some((error, at))) if self.sys.clock().tick() < *at => return Err(again(error)),
                (None, _) => {}
            }
            self.fold_if_due();
            if self.state.fold.is_none() && self.state.fold_failed.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Puts a batch into the log, shows it, and answers those that want no flush.
    fn commit(&mut self, batch: Batch, waiting: Vec<Waiting>) {
        if let Err(error) = self.append(batch) {
            waiting.into_iter().for_each(|waiting| answer(waiting.reply, Err(again(&error))));
            return;
        }
        for waiting in waiting {
            match waiting.ack == Ack::Durable && waiting.done.is_ok() {
                true => self.state.unflushed.push(waiting),
                false => answer(waiting.reply, waiting.done.map(Commit)),
            }
        }
    }

    /// Flushes the log if anybody waits for that, and answers.
    fn answer_durable(&mut self, late: bool) {
        let waiting = std::mem::take(&mut self.state.unflushed);
        if waiting.is_empty() {
            return;
        }
        let flushed = self.flush();
        self.state.company.flushed(waiting.len(), late);
        for waiting in waiting {
            let done = match &flushed {
                Ok(()) => waiting.done.map(Commit),
                Err(error) => Err(again(error)),
            };
            answer(waiting.reply, done);
        }
    }

    fn append(&mut self, batch: Batch) -> Result<()> {
        let commits = batch.commits();
        let (mut record, changes, notes) = batch.into_parts();
        if commits > 0 {
            match self.log.append(&mut record, commits) {
                Ok(()) => {}
                Err(AppendError::Clean(error)) => return Err(error.op("write").about("the metadata log")),
                Err(AppendError::Doubtful(error)) => return Err(self.break_off(error)),
            }
            self.published.show(changes, self.log.appended());
            self.notes = notes;
            let due = || self.sys.clock().tick().plus(APPLIED_FLUSH_DELAY);
            self.state.flush_at.get_or_insert_with(due);
        }
        record.shrink_to(2 * KV_BATCH_BYTES);
        self.state.record = record;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(broken) = &self.state.broken {
            return Err(again(broken));
        }
        if self.state.flush_at.take().is_some() {
            if let Err(error) = self.log.flush() {
                return Err(self.break_off(error));
            }
            self.feeds.flushed(&self.notes);
        }
        Ok(())
    }

    /// After a write or flush of the log failed nobody knows what is on the disk: says so to
    /// everybody from now on, and ends the boot.
    fn break_off(&mut self, cause: Error) -> Error {
        tracing::error!(error = ?cause, "the metadata log failed: nothing can be written until the node is started again");
        self.boot.store(self.sys.random().u64(), Ordering::SeqCst);
        // Nothing is left that a timer could do.
        (self.state.flush_at, self.state.fold_failed) = (None, None);
        let error = Error::new(
            ErrorKind::Unavailable,
            "the metadata log failed; nothing is written until it is opened again",
        )
        .hint("look at the disk, then start the node again");
        self.state.broken = Some(again(&error));
        error.caused_by(cause)
    }

    fn timer(&mut self) {
        let now = self.sys.clock().tick();
        if self.state.flush_at.is_some_and(|at| at <= now) {
            // It has been reported where it happened; whoever writes next hears of it.
            let _ = self.flush();
        }
    }

    /// Starts a fold if enough has gathered, or if the last one failed and has rested.
    fn fold_if_due(&mut self) {
        if self.state.fold.is_some() || self.state.broken.is_some() {
            return;
        }
        let view = self.published.view();
        match &self.state.fold_failed {
            Some((_, at)) if self.sys.clock().tick() < *at => {}
            Some(_) => self.start_fold(&view),
            None if view.active.bytes() >= self.options.fold_bytes => self.freeze_and_fold(),
            None => {}
        }
    }

    /// Freezes the active overlay. Its commits are flushed first: the tree is never ahead of the
    /// log.
    fn freeze_and_fold(&mut self) {
        if self.flush().is_err() {
            return;
        }
        let view = self.published.view();
        self.state.frozen_to = self.log.appended();
        let frozen = View {
            active: Arc::new(Overlay::default()),
            frozen: Some(view.active.clone()),
            tree: view.tree.clone(),
        };
        self.published.set_view(frozen.clone());
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
                // A tree that failed is closed, and the views of it with it.
                Err(error) => Ok(Folded { tree: tree.view()?, failed: Some(error) }),
            }
        }));
    }

    fn folded(&mut self, folded: Result<Folded>) {
        let view = self.published.view();
        let error = match folded {
            Ok(Folded { tree, failed: None }) => {
                let tree = Arc::new(tree);
                self.published.set_view(View { active: view.active.clone(), frozen: None, tree });
                if let Err(error) = self.log.release(self.state.frozen_to) {
                    tracing::warn!(%error, "cannot remove a metadata log segment that is done with");
                }
                return;
            }
            // The tree may show the fold although its last flush failed. It is folded again all
            // the same: only a flush that succeeded lets go of the log.
            Ok(Folded { tree, failed: Some(error) }) => {
                let (active, frozen) = (view.active.clone(), view.frozen.clone());
                self.published.set_view(View { active, frozen, tree: Arc::new(tree) });
                error
            }
            Err(error) => error,
        };
        tracing::warn!(error = ?error, "cannot fold metadata into its tree; it stays in memory and log");
        if self.state.broken.is_some() {
            return;
        }
        self.state.fold_failed = Some((error, self.sys.clock().tick().plus(KV_FOLD_RETRY)));
    }

    /// Flushes and folds everything, so that the next start has nothing to replay.
    async fn finish(&mut self) -> Result<Commit> {
        self.flush()?;
        for _ in 0..2 {
            if let Some(fold) = self.state.fold.take() {
                let folded = fold.await.and_then(|folded| folded);
                self.folded(folded);
            }
            if self.state.fold_failed.is_none() && self.published.view().active.bytes() > 0 {
                self.freeze_and_fold();
            }
        }
        Ok(Commit(self.log.appended()))
    }
}

/// Refuses a message. Returns where to answer if it was to close.
fn refuse(message: Message, error: &Error) -> Option<Reply> {
    match message {
        Message::Write { reply, .. } | Message::AckNotes { reply, .. } | Message::Flush { reply } => {
            answer(reply, Err(again(error)));
            None
        }
        Message::Close { reply } => Some(reply),
    }
}

fn answer(reply: Reply, done: Result<Commit>) {
    // Whoever asked may have gone: that abandons the answer, not the act.
    let _ = reply.send(done);
}

/// Returns the same error for somebody else.
fn again(error: &Error) -> Error {
    Error::from(weft_core::ErrorReport::from(error)).op(error.operation())
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
