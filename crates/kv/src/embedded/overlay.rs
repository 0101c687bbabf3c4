//! What was committed and is not in the tree yet: an ordered map in memory that keeps, for each
//! key, the versions that some snapshot may still ask for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;

use super::feed::is_note_key;
use super::held::Key;
use super::rows::{Change, Changes};
use crate::engine::Order;

/// Bytes a version costs beside its key and value: map node, handles, counts.
const VERSION_BYTES: usize = 128;
/// Rows applied under one hold of the lock, so that a huge transaction keeps no reader waiting.
const APPLY_CHUNK: usize = 256;
/// Rows a cursor takes under one hold of the lock: few at first, for short scans.
const CURSOR_FIRST: usize = 8;
const CURSOR_MOST: usize = 256;

/// One stretch of commits in memory.
#[derive(Default)]
pub(super) struct Overlay {
    rows: RwLock<BTreeMap<Key, Versions>>,
    bytes: AtomicUsize,
}

struct Versions {
    newest: Version,
    /// Newest first.
    older: Vec<Version>,
    /// Whether nothing older than this overlay has the key: it is a note's, and those are new.
    is_new: bool,
}

struct Version {
    commit: u64,
    value: Option<Bytes>,
}

impl Version {
    /// Returns what it adds to the overlay's size, its key apart.
    fn bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len) + VERSION_BYTES
    }
}

impl Versions {
    fn of(key: &[u8], version: Version) -> Self {
        let is_new = version.value.is_some() && is_note_key(key);
        Self { newest: version, older: Vec::new(), is_new }
    }

    /// Returns whether the key came and went here.
    fn is_over(&self) -> bool {
        self.is_new && self.newest.value.is_none()
    }

    fn at(&self, commit: u64) -> Option<&Option<Bytes>> {
        std::iter::once(&self.newest)
            .chain(&self.older)
            .find(|version| version.commit <= commit)
            .map(|version| &version.value)
    }

    /// Adds a version and drops those nobody needs. Returns how many bytes that freed.
    fn push(&mut self, version: Version, needed: Needed) -> usize {
        let replaced = std::mem::replace(&mut self.newest, version);
        self.older.insert(0, replaced);
        let Needed::From(visible) = needed else { return 0 };
        // Whoever reads from now on sees `visible` at least.
        let kept = self.older.iter().position(|version| version.commit <= visible);
        let dropped = self.older.drain(kept.map_or(self.older.len(), |kept| kept + 1)..);
        dropped.map(|version| version.bytes()).sum()
    }
}

/// Which older versions somebody may still read.
#[derive(Clone, Copy)]
pub(super) enum Needed {
    /// All: there are snapshots, of any age.
    All,
    /// What a reader that starts now sees at this commit.
    From(u64),
}

impl Overlay {
    /// Adds changes made by `commit`, which is later than any before.
    pub(super) fn apply(&self, changes: Changes, commit: u64, needed: Needed) {
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            let (mut grown, mut freed) = (0, 0);
            for (key, value) in changes.by_ref().take(APPLY_CHUNK) {
                let version = Version { commit, value };
                grown += version.bytes();
                match rows.entry(key) {
                    Entry::Occupied(mut held) => freed += held.get_mut().push(version, needed),
                    Entry::Vacant(free) => {
                        grown += free.key().len();
                        let versions = Versions::of(free.key(), version);
                        free.insert(versions);
                    }
                }
            }
            // Only the writer changes it.
            self.bytes.store(self.bytes() + grown - freed, Ordering::Relaxed);
        }
    }

    /// Adds one change while nobody else has the overlay yet, at a start.
    pub(super) fn replay(&mut self, commit: u64, key: Key, value: Option<Bytes>) {
        let version = Version { commit, value };
        let bytes = self.bytes.get_mut();
        *bytes += version.bytes();
        match self.rows.get_mut().unwrap_or_else(PoisonError::into_inner).entry(key) {
            Entry::Occupied(mut held) => {
                *bytes -= held.get().newest.bytes();
                held.get_mut().newest = version;
            }
            Entry::Vacant(free) => {
                *bytes += free.key().len();
                let versions = Versions::of(free.key(), version);
                free.insert(versions);
            }
        }
    }

    /// Returns roughly how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns what `key` became by `commit`: `None` if nothing is known here.
    pub(super) fn get(&self, key: &[u8], commit: u64) -> Option<Option<Bytes>> {
        // Whoever may see a commit sees the bytes counted before that commit was shown.
        if self.bytes() == 0 {
            return None;
        }
        self.read().get(key)?.at(commit).cloned()
    }

    /// Calls `each` with every key's newest change, in order, and stops at its first error. Keys
    /// that came and went here are left out: nowhere is anything under them.
    pub(super) fn try_for_each<E>(
        &self,
        mut each: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Only frozen overlays are walked, so nobody waits for this lock to write.
        let rows = self.read();
        let mut changed = rows.iter().filter(|(_, versions)| !versions.is_over());
        changed.try_for_each(|(key, versions)| each(key, versions.newest.value.as_deref()))
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Key, Versions>> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Walks an overlay as it was at one commit, a chunk at a time.
pub(super) struct OverlayCursor {
    overlay: Arc<Overlay>,
    commit: u64,
    from: Bound<Key>,
    to: Bound<Key>,
    order: Order,
    chunk: VecDeque<Change>,
    want: usize,
    ended: bool,
}

impl OverlayCursor {
    /// Makes a cursor over `from..to`; an empty `to` is the end.
    pub(super) fn new(overlay: Arc<Overlay>, commit: u64, from: &[u8], to: &[u8], order: Order) -> Self {
        // `BTreeMap::range` panics on a range that runs backwards.
        let ended = !to.is_empty() && from >= to;
        let to = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(Key::new(to)) };
        let (from, chunk) = (Bound::Included(Key::new(from)), VecDeque::new());
        Self { overlay, commit, from, to, order, chunk, want: CURSOR_FIRST, ended }
    }

    pub(super) fn next(&mut self) -> Option<Change> {
        while self.chunk.is_empty() && !self.ended {
            self.fill();
        }
        self.chunk.pop_front()
    }

    fn fill(&mut self) {
        let rows = self.overlay.read();
        let bounds = (self.from.as_ref().map(|key| &**key), self.to.as_ref().map(|key| &**key));
        let mut range = rows.range::<[u8], _>(bounds);
        let mut reached = None;
        for _ in 0..self.want {
            let row = if self.order == Order::Rising { range.next() } else { range.next_back() };
            let Some((key, versions)) = row else {
                self.ended = true;
                break;
            };
            reached = Some(key);
            if let Some(value) = versions.at(self.commit) {
                self.chunk.push_back((key.clone(), value.clone()));
            }
        }
        match (reached, self.order) {
            (Some(key), Order::Rising) => self.from = Bound::Excluded(key.clone()),
            (Some(key), Order::Falling) => self.to = Bound::Excluded(key.clone()),
            (None, _) => {}
        }
        self.want = (self.want * 2).min(CURSOR_MOST);
        self.ended |= self.is_empty_range();
    }

    /// `from` and `to` both excluding the same key is a range that `BTreeMap` panics on.
    fn is_empty_range(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Excluded(from) | Bound::Included(from), Bound::Excluded(to)) => from >= to,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::note_key;
    use super::*;
    use crate::engine::NoteKind;

    #[test]
    fn of_a_note_that_came_and_went_nothing_is_folded_and_of_others_what_became_of_them() {
        let overlay = Overlay::default();
        let note = |position| Key::new(&note_key(NoteKind(1), position));
        let put = |key: &Key| Changes::from([(key.clone(), Some(Bytes::from_static(b"text")))]);
        let delete = |key: &Key| Changes::from([(key.clone(), None)]);
        let row = Key::new(b"row");
        let changes =
            [put(&note(2)), put(&row), put(&note(3)), delete(&note(1)), delete(&note(2)), delete(&row)];
        for (commit, changes) in (1..).zip(changes) {
            overlay.apply(changes, commit, Needed::All);
        }
        let mut seen = Vec::new();
        let Ok(()) = overlay.try_for_each(|key, value| {
            seen.push((Key::new(key), value.is_some()));
            Ok::<_, std::convert::Infallible>(())
        });
        // What the first note left is in the tree.
        assert_eq!(seen, [(row, false), (note(1), false), (note(3), true)]);
        assert_eq!(overlay.get(&note(2), 4), Some(Some(Bytes::from_static(b"text"))), "who reads it still");
    }
}
