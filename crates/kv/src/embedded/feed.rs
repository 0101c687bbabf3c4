//! Notes: rows of the engine's own, numbered per kind, and who waits for them.
//!
//! ```text
//!   ff 'n' kind position  →  commit (8 bytes), bytes          until acknowledged
//!   ff 'a' kind           →  last position acknowledged
//! ```
//!
//! As rows they share the commit, the log, recovery and the tree with everything else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;
use weft_core::limits::KV_NOTES_PAGE_MAX;
use weft_core::{Error, ErrorKind, Result};

use super::OWN;
use super::desk::Wish;
use super::queue::Queue;
use super::view::{EmbeddedSnapshot, Published, View};
use crate::engine::{Commit, Note, NoteKind, NotePosition, Notes, Order, Row, prefix_end};

/// How many notes of a kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The last one made.
    pub(super) last: u64,
    /// The last one acknowledged.
    pub(super) acked: u64,
}

impl Counts {
    /// Counts the rows of a kind as of `commit`.
    pub(super) fn load(view: &View, commit: u64, kind: NoteKind) -> Result<Self> {
        let acked = view.get(&acked_key(kind), commit)?.map_or(Ok(0), |row| position_of(&row))?;
        let (from, to) = (note_key(kind, acked + 1), note_key(kind, u64::MAX));
        let last = match view.scan(None, commit, &from, &to, Order::Falling).next() {
            Some(row) => position_of(&row?.0[3..])?,
            None => acked,
        };
        Ok(Self { last, acked })
    }
}

const NOTE: [u8; 2] = [OWN, b'n'];

/// Returns the key of a note. It is put once: numbers are not given again.
pub(super) fn note_key(kind: NoteKind, position: u64) -> [u8; 11] {
    let mut key = [NOTE[0], NOTE[1], kind.0, 0, 0, 0, 0, 0, 0, 0, 0];
    key[3..].copy_from_slice(&position.to_be_bytes());
    key
}

pub(super) fn is_note_key(key: &[u8]) -> bool {
    key.starts_with(&NOTE)
}

pub(super) fn acked_key(kind: NoteKind) -> [u8; 3] {
    [OWN, b'a', kind.0]
}

pub(super) fn note_row(commit: u64, bytes: &[u8]) -> Vec<u8> {
    [&commit.to_be_bytes(), bytes].concat()
}

fn position_of(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes.try_into().map_err(|_| Error::corrupt("a note's number is not eight bytes"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn note_of((key, mut row): Row) -> Result<Note> {
    if key.len() != 11 || row.len() < 8 {
        return Err(Error::corrupt("a note's row makes no sense"));
    }
    let position = NotePosition(position_of(&key[3..])?);
    let commit = Commit(position_of(&row.split_to(8))?);
    Ok(Note { position, commit, bytes: row })
}

/// Who waits for notes, and how far they may read.
#[derive(Default)]
pub(super) struct Feeds {
    state: Mutex<FeedState>,
    changed: Notify,
}

#[derive(Default)]
struct FeedState {
    kinds: BTreeMap<NoteKind, Feed>,
    closed: bool,
}

#[derive(Default)]
struct Feed {
    /// The last note whose commit is on the disk.
    durable: u64,
    subscribed: bool,
}

impl Feeds {
    /// Lets subscribers read the notes counted in `counts`, whose commits are on the disk now.
    pub(super) fn flushed(&self, counts: &BTreeMap<NoteKind, Counts>) {
        let mut news = false;
        let mut state = self.lock();
        for (kind, counts) in counts {
            let feed = state.kinds.entry(*kind).or_default();
            news |= feed.subscribed && counts.last > feed.durable;
            feed.durable = feed.durable.max(counts.last);
        }
        drop(state);
        if news {
            self.changed.notify_waiters();
        }
    }

    /// Sends every subscriber away.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn durable(&self, kind: NoteKind) -> Result<u64> {
        let state = self.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Unavailable, "the metadata engine is closed"));
        }
        Ok(state.kinds.get(&kind).map_or(0, |feed| feed.durable))
    }
}

/// The subscription to one kind.
pub(super) struct Subscription {
    feeds: Arc<Feeds>,
    published: Arc<Published>,
    queue: Queue,
    kind: NoteKind,
    /// The last note handed over.
    seen: u64,
}

impl Subscription {
    /// Subscribes; `Busy` if somebody has.
    pub(super) fn begin(
        feeds: Arc<Feeds>,
        published: Arc<Published>,
        queue: Queue,
        kind: NoteKind,
    ) -> Result<Self> {
        let counts = EmbeddedSnapshot::take(&published).note_counts(kind)?;
        let mut state = feeds.lock();
        let feed = state.kinds.entry(kind).or_default();
        if std::mem::replace(&mut feed.subscribed, true) {
            return Err(Error::new(ErrorKind::Busy, "somebody reads these notes already"));
        }
        drop(state);
        Ok(Self { feeds, published, queue, kind, seen: counts.acked })
    }

    fn read(&self, durable: u64) -> Result<Vec<Note>> {
        let (from, to) = (note_key(self.kind, self.seen + 1), note_key(self.kind, durable + 1));
        EmbeddedSnapshot::take(&self.published)
            .own_rows(&from, &to)
            .take(KV_NOTES_PAGE_MAX)
            .map(|row| row.and_then(note_of))
            .collect()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(feed) = self.feeds.lock().kinds.get_mut(&self.kind) {
            feed.subscribed = false;
        }
    }
}

#[async_trait]
impl Notes for Subscription {
    async fn next(&mut self) -> Result<Vec<Note>> {
        let feeds = self.feeds.clone();
        loop {
            let changed = feeds.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let durable = feeds.durable(self.kind)?;
            if durable > self.seen {
                let notes = self.read(durable)?;
                if let Some(last) = notes.last() {
                    self.seen = last.position.0;
                    return Ok(notes);
                }
            }
            changed.await;
        }
    }

    async fn ack(&mut self, position: NotePosition) -> Result<()> {
        let position = NotePosition(position.0.min(self.seen));
        self.queue.serve(Wish::AckNotes { kind: self.kind, position }).await?;
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.feeds.is_closed()
    }
}

/// Returns the kinds that have notes as of `commit`, with their counts.
pub(super) fn all_counts(view: &View, commit: u64) -> Result<BTreeMap<NoteKind, Counts>> {
    let mut counts = BTreeMap::new();
    let mut from = vec![OWN, b'n'];
    while let Some(row) = view.scan(None, commit, &from, &[OWN, b'n' + 1], Order::Rising).next() {
        let kind = NoteKind(row?.0[2]);
        counts.insert(kind, Counts::load(view, commit, kind)?);
        from = prefix_end(&[OWN, b'n', kind.0]);
    }
    Ok(counts)
}
