//! Transactions that share a log record and a flush.
//!
//! Each closure writes its changes into one map, which the closures after it see, and into the
//! record that will be appended; an undo list takes both back if the closure fails. Nothing is
//! visible to readers, and nothing has to be undone there, until the record is in the log.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use weft_core::limits::{
    KV_BATCH_BYTES, KV_BATCH_MAX, KV_KEY_BYTES_MAX, KV_TXN_BYTES_MAX, KV_VALUE_BYTES_MAX,
};
use weft_core::{Error, ErrorKind, Result};

use super::OWN;
use super::desk::Wish;
use super::feed::{Counts, acked_key, note_key, note_row};
use super::held::{Key, Values};
use super::record::{HEAD_BYTES, begin_commit, encode_change, end_commit};
use super::rows::Changes;
use super::view::{View, before_own};
use crate::engine::{NoteKind, NotePosition, Order, Read, Rows, Txn, WriteFn, counter};

/// A batch being gathered.
pub(super) struct Batch {
    view: Arc<View>,
    /// The last commit before the batch.
    base: u64,
    commits: u64,
    changes: Changes,
    buffers: Buffers,
    /// Where the note counters stand after the batch so far.
    notes: BTreeMap<NoteKind, Counts>,
}

/// Memory that one batch leaves to the next.
#[derive(Default)]
pub(super) struct Buffers {
    /// The log record: room for its head, then the commits.
    pub(super) record: Vec<u8>,
    values: Values,
    under_way: UnderWay,
}

/// What the transaction under way has done.
#[derive(Default)]
struct UnderWay {
    /// Where its commit starts in the record.
    start: usize,
    /// What each changed key was in the batch before, oldest first.
    undo: Vec<(Key, Option<Option<Bytes>>)>,
    /// Where the counters that moved stood before.
    notes: Vec<(NoteKind, Option<Counts>)>,
    /// The first thing that failed. It decides, even if the closure looks away.
    failed: Option<Error>,
}

impl Buffers {
    /// Gives back what one large batch took.
    pub(super) fn shrink(&mut self) {
        self.record.shrink_to(2 * KV_BATCH_BYTES);
        self.under_way.begin(0);
        self.under_way.undo.shrink_to(KV_BATCH_MAX);
    }
}

impl UnderWay {
    fn begin(&mut self, start: usize) {
        self.start = start;
        self.undo.clear();
        self.notes.clear();
        self.failed = None;
    }
}

impl Batch {
    /// Starts a batch over `view` after commit `base`, where the note counters stand at `notes`.
    pub(super) fn new(
        view: Arc<View>,
        base: u64,
        notes: BTreeMap<NoteKind, Counts>,
        buffers: Buffers,
    ) -> Self {
        let mut batch = Self { view, base, commits: 0, changes: Changes::new(), buffers, notes };
        batch.buffers.record.clear();
        batch.buffers.record.resize(HEAD_BYTES, 0);
        batch
    }

    /// Does a wish, and returns its commit: that of the last one before it if it changed nothing.
    /// After an error nothing of it remains.
    pub(super) fn serve(&mut self, wish: &mut Wish) -> Result<u64> {
        match wish {
            Wish::Write { act, .. } => self.run(act),
            Wish::AckNotes { kind, position } => self.ack_notes(*kind, *position),
            Wish::Flush => Ok(self.base + self.commits),
        }
    }

    fn run(&mut self, act: &mut WriteFn) -> Result<u64> {
        self.attempt(|batch| match catch_unwind(AssertUnwindSafe(|| act(batch))) {
            Ok(done) => done,
            Err(_) => Err(Error::internal("a transaction panicked")),
        })
    }

    fn ack_notes(&mut self, kind: NoteKind, position: NotePosition) -> Result<u64> {
        self.attempt(|batch| {
            let counts = batch.counts(kind)?;
            let upto = position.0.min(counts.last);
            for gone in counts.acked + 1..=upto {
                batch.change(&note_key(kind, gone), None)?;
            }
            if upto > counts.acked {
                batch.change(&acked_key(kind), Some(&upto.to_be_bytes()))?;
                batch.set_counts(kind, Counts { acked: upto, ..counts });
            }
            Ok(())
        })
    }

    fn attempt(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<u64> {
        let start = begin_commit(&mut self.buffers.record);
        self.under_way().begin(start);
        let done = act(self);
        if let Err(error) = self.under_way().failed.take().map_or(done, Err) {
            self.take_back();
            return Err(error);
        }
        if self.under_way().undo.is_empty() {
            self.buffers.record.truncate(start);
        } else {
            end_commit(&mut self.buffers.record, start);
            self.commits += 1;
        }
        Ok(self.base + self.commits)
    }

    fn under_way(&mut self) -> &mut UnderWay {
        &mut self.buffers.under_way
    }

    /// Takes back what the transaction under way has done.
    fn take_back(&mut self) {
        let Buffers { record, under_way, .. } = &mut self.buffers;
        record.truncate(under_way.start);
        for (key, before) in under_way.undo.drain(..).rev() {
            match before {
                Some(change) => self.changes.insert(key, change),
                None => self.changes.remove(&*key),
            };
        }
        for (kind, before) in under_way.notes.drain(..).rev() {
            match before {
                Some(counts) => self.notes.insert(kind, counts),
                None => self.notes.remove(&kind),
            };
        }
    }

    /// Returns how many commits are in it.
    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns the bytes of its log record.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.record.len()
    }

    /// Returns the log record, the changes and the note counters after it.
    pub(super) fn into_parts(self) -> (Buffers, Changes, BTreeMap<NoteKind, Counts>) {
        (self.buffers, self.changes, self.notes)
    }

    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.check_sizes(key, value)?;
        encode_change(&mut self.buffers.record, key, value);
        let (key, value) = (Key::new(key), value.map(|value| self.buffers.values.hold(value)));
        let before = self.changes.insert(key.clone(), value);
        self.under_way().undo.push((key, before));
        Ok(())
    }

    fn check_sizes(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let too_large = |what| Err(Error::new(ErrorKind::TooLarge, what));
        let value_bytes = value.map_or(0, <[u8]>::len);
        if key.is_empty() {
            return Err(Error::invalid("a metadata key is empty"));
        }
        if key.len() > KV_KEY_BYTES_MAX {
            return too_large("the metadata key is longer than it may be");
        }
        if value_bytes > KV_VALUE_BYTES_MAX {
            return too_large("the metadata value is larger than it may be");
        }
        let so_far = self.buffers.record.len() - self.buffers.under_way.start;
        if so_far + key.len() + value_bytes + 16 > KV_TXN_BYTES_MAX {
            return too_large("the metadata transaction is larger than it may be");
        }
        Ok(())
    }

    /// Remembers a failure, so that the transaction cannot commit without what failed.
    fn sticky<T>(&mut self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| {
            let again = Error::new(error.kind(), error.detail().to_owned());
            self.under_way().failed.get_or_insert(again);
        })
    }

    fn counts(&mut self, kind: NoteKind) -> Result<Counts> {
        match self.notes.get(&kind) {
            Some(counts) => Ok(*counts),
            None => Counts::load(&self.view, self.base, kind),
        }
    }

    fn set_counts(&mut self, kind: NoteKind, counts: Counts) {
        let before = self.notes.insert(kind, counts);
        self.under_way().notes.push((kind, before));
    }

    fn note_changes(&mut self, kind: NoteKind, bytes: &[u8]) -> Result<()> {
        let counts = self.counts(kind)?;
        if counts.last - counts.acked >= weft_core::limits::KV_NOTES_KEPT_MAX {
            return Err(Error::new(ErrorKind::Busy, "whoever reads these notes is too far behind"));
        }
        let position = counts.last + 1;
        let row = note_row(self.base + self.commits + 1, bytes);
        self.change(&note_key(kind, position), Some(&row))?;
        self.set_counts(kind, Counts { last: position, ..counts });
        Ok(())
    }

    fn bump_change(&mut self, key: &[u8], delta: i64) -> Result<()> {
        let now = self.get(key)?.map_or(Ok(0), |value| counter(&value))?;
        let sum = now.checked_add(delta).ok_or_else(|| Error::invalid("a counter would overflow"))?;
        self.change(key, Some(&sum.to_be_bytes()))
    }
}

fn not_own(key: &[u8]) -> Result<()> {
    match key.first() {
        Some(&OWN) => Err(Error::invalid("the key is one of the engine's own")),
        _ => Ok(()),
    }
}

impl Read for Batch {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.view.get(key, self.base),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_> {
        self.view.scan(Some(&self.changes), self.base, from, before_own(to), order)
    }
}

impl Txn for Batch {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let done = not_own(key).and_then(|()| self.change(key, Some(value)));
        self.sticky(done)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let done = not_own(key).and_then(|()| self.change(key, None));
        self.sticky(done)
    }

    fn bump(&mut self, key: &[u8], delta: i64) -> Result<()> {
        let done = not_own(key).and_then(|()| self.bump_change(key, delta));
        self.sticky(done)
    }

    fn note(&mut self, kind: NoteKind, bytes: &[u8]) -> Result<()> {
        let done = self.note_changes(kind, bytes);
        self.sticky(done)
    }
}
