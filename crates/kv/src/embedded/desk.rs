//! Where commits are made. Whoever holds the desk makes them: the writer, for all that queue, or a
//! caller that finds it free and does its own at once. Nothing here waits for anything but the disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::limits::{APPLIED_FLUSH_DELAY, KV_FOLD_LOG_SHARE};
use weft_core::{Error, ErrorKind, Result, Tick};
use weft_sys::disk::DiskLock;
use weft_sys::{DiskFile, Sys};

use super::Options;
use super::batch::{Batch, Buffers};
use super::company::Company;
use super::feed::{Counts, Feeds};
use super::log::{AppendError, Log};
use super::view::Published;
use crate::engine::{Commit, NoteKind, NotePosition, WriteFn};

/// What a caller wants done.
pub(super) enum Wish {
    /// Run a transaction.
    Write { ack: Ack, act: WriteFn },
    /// Forget notes.
    AckNotes { kind: NoteKind, position: NotePosition },
    /// Make everything so far durable.
    Flush,
}

impl Wish {
    /// Returns what has to be true before the answer.
    pub(super) fn ack(&self) -> Ack {
        match self {
            Self::Write { ack, .. } => *ack,
            Self::AckNotes { .. } => Ack::Applied,
            Self::Flush => Ack::Durable,
        }
    }
}

/// What making commits takes.
pub(super) struct Desk {
    pub(super) sys: Sys,
    pub(super) options: Options,
    pub(super) log: Log,
    pub(super) published: Arc<Published>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) boot: Arc<AtomicU64>,
    /// Told why nothing can be written any more, once that is so.
    pub(super) failed: Arc<OnceLock<Error>>,
    pub(super) notes: BTreeMap<NoteKind, Counts>,
    pub(super) state: State,
    /// Held until the desk is gone.
    pub(super) _lock: Box<dyn DiskLock>,
}

/// What changes with the commits made.
#[derive(Default)]
pub(super) struct State {
    /// When applied commits must be flushed.
    pub(super) flush_at: Option<Tick>,
    /// Why nothing can be written until the engine is opened again.
    pub(super) broken: Option<Error>,
    pub(super) company: Company,
    /// When the writer looks here by itself, at the latest.
    pub(super) looks_at: Option<Tick>,
    /// Whether the writer sees to a fold already.
    pub(super) folding: bool,
    /// Whether the log is being flushed aside: nobody else may flush it meanwhile, or begin another segment. Of two who
    /// flush one file, only one is told that it failed.
    pub(super) flushing: bool,
    /// The last batch's, kept for the next.
    buffers: Buffers,
}

/// What is durable once a flush is through.
pub(super) struct Flushing {
    upto: u64,
    notes: BTreeMap<NoteKind, Counts>,
}

impl Desk {
    /// Returns whether a caller that finds the desk free may do its own wish here, where it keeps
    /// a thread busy that others need: the flush is short, nobody comes to share it, and neither
    /// memory nor the log has to be made room in first.
    pub(super) fn serves_at_once(&self, wish: &Wish) -> bool {
        let (company, limit) = (&self.state.company, self.options.flush_at_once);
        let quick = match (wish, wish.ack()) {
            (Wish::Flush, _) if self.state.flush_at.is_none() => true,
            (_, Ack::Durable) => company.flushes_alone(limit),
            (_, Ack::Applied) => company.is_alone(),
        };
        quick
            && !limit.is_zero()
            && !self.state.flushing
            && self.state.broken.is_none()
            && self.has_room()
            && self.log.has_room()
    }

    /// Does a wish.
    pub(super) fn serve(&mut self, mut wish: Wish) -> Result<Commit> {
        let mut batch = self.begin();
        let done = batch.serve(&mut wish);
        self.append(batch)?;
        let commit = done?;
        if wish.ack() == Ack::Durable && self.state.flush_at.is_some() {
            self.flush()?;
            self.state.company.flushed_alone();
        }
        Ok(Commit(commit))
    }

    /// Returns whether the writer has something to do here that it does not know of.
    pub(super) fn wants_the_writer(&self) -> bool {
        let sooner = |at: Tick| self.state.looks_at.is_none_or(|looks| at < looks);
        (!self.state.flushing && self.state.flush_at.is_some_and(sooner))
            || (!self.state.folding && self.is_fold_due())
    }

    /// Returns whether enough has gathered for a fold, in memory or, where a few rows are written
    /// over and over, in the log.
    pub(super) fn is_fold_due(&self) -> bool {
        let bytes = self.published.view().active.bytes();
        let fold_bytes = self.options.fold_bytes;
        bytes >= fold_bytes || (bytes > 0 && self.log.full_bytes() >= KV_FOLD_LOG_SHARE * fold_bytes as u64)
    }

    /// Returns whether there is room in memory for more changes.
    pub(super) fn has_room(&self) -> bool {
        self.published.view().active.bytes() <= self.options.overlay_bytes_max
    }

    /// Begins a batch after everything so far.
    pub(super) fn begin(&mut self) -> Batch {
        let buffers = std::mem::take(&mut self.state.buffers);
        Batch::new(self.published.view(), self.log.appended(), self.notes.clone(), buffers)
    }

    /// Puts a batch into the log and shows it.
    pub(super) fn append(&mut self, batch: Batch) -> Result<()> {
        let commits = batch.commits();
        let (mut buffers, changes, notes) = batch.into_parts();
        if commits > 0 {
            // It may have broken while the batch waited for room.
            self.whole()?;
            match self.log.append(&mut buffers.record, commits) {
                Ok(()) => self.sys.metrics().kv_commits.add((), commits),
                Err(AppendError::Clean(error)) => {
                    return Err(error.unplaced().op("write").about("the metadata log"));
                }
                Err(AppendError::Doubtful(error)) => return Err(self.break_off(error)),
            }
            self.published.show(changes, self.log.appended());
            self.notes = notes;
            let due = || self.sys.clock().tick().plus(APPLIED_FLUSH_DELAY);
            self.state.flush_at.get_or_insert_with(due);
        }
        buffers.shrink();
        self.state.buffers = buffers;
        Ok(())
    }

    /// Makes everything so far durable, and tells of the notes in it.
    pub(super) fn flush(&mut self) -> Result<()> {
        debug_assert!(!self.state.flushing, "of two who flush one file, one may not hear that it failed");
        self.whole()?;
        if self.state.flush_at.take().is_some() {
            let before = self.sys.clock().tick();
            if let Err(error) = self.log.flush() {
                return Err(self.break_off(error));
            }
            self.has_flushed(self.sys.clock().tick().since(before));
            self.feeds.flushed(&self.notes);
        }
        Ok(())
    }

    /// Begins to make everything so far durable: the file that is to be flushed, if one is, and what then is durable.
    pub(super) fn begin_flush(&mut self) -> Result<Option<(Arc<dyn DiskFile>, Flushing)>> {
        self.whole()?;
        let Some(file) = self.log.unflushed() else { return Ok(None) };
        self.state.flush_at = None;
        self.state.flushing = true;
        Ok(Some((file, Flushing { upto: self.log.appended(), notes: self.notes.clone() })))
    }

    /// Learns how a flush ended that was begun, and how long it took.
    pub(super) fn end_flush(&mut self, flushing: &Flushing, took: Result<Duration>) -> Result<()> {
        self.state.flushing = false;
        let took = took.map_err(|error| self.break_off(error))?;
        self.log.flushed_to(flushing.upto);
        self.has_flushed(took);
        self.feeds.flushed(&flushing.notes);
        Ok(())
    }

    fn has_flushed(&mut self, took: Duration) {
        self.state.company.took(took);
        self.sys.metrics().kv_flushes.count(());
        self.sys.metrics().kv_flush.took((), took);
    }

    /// Returns why nothing can be written until the engine is opened again, if that is so.
    pub(super) fn whole(&self) -> Result<()> {
        self.state.broken.as_ref().map_or(Ok(()), |broken| Err(again(broken)))
    }

    /// After a write or flush of the log failed nobody knows what is on the disk: says so to
    /// everybody from now on, and ends the boot.
    fn break_off(&mut self, cause: Error) -> Error {
        tracing::error!(error = ?cause, "the metadata log failed: nothing can be written until the node is started again");
        self.boot.store(self.sys.random().u64(), Ordering::SeqCst);
        self.state.flush_at = None;
        let error = Error::new(
            ErrorKind::Unavailable,
            "the metadata log failed; nothing is written until it is opened again",
        )
        .hint("look at the disk, then start the node again");
        self.state.broken = Some(again(&error));
        let _ = self.failed.set(again(&error));
        error.caused_by(cause)
    }
}

/// Returns the same error for somebody else.
pub(super) fn again(error: &Error) -> Error {
    Error::from(weft_core::ErrorReport::from(error)).op(error.operation())
}
