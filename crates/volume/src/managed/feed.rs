//! The change feed: notes of commits, once they are durable, in a bounded ring.
//!
//! The engine keeps a note until it is acknowledged, and this acknowledges only what
//! falls out of the ring: so a restart finds the ring's content again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use weft_core::form::{At, Change, ChangeKind, ChangeSeq, Changes};
use weft_core::{ContainerId, Error, ErrorReport, FileId, Name, Result, Rights, limits};
use weft_kv::{Note, NotePosition};

use super::table::{entries, inodes};
use super::view::{Node, View};

/// A change as a commit notes it, with what filtering it needs once the place is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) change: Change,
    /// The inodes it happened at and below, sorted.
    pub(super) within: Vec<FileId>,
    /// The container of the inode itself.
    pub(super) container: ContainerId,
}

/// The ring.
#[derive(Default)]
pub(super) struct Feed {
    ring: Mutex<Ring>,
    /// Wakes those who wait for a change.
    pub(super) more: Notify,
    waiting: AtomicUsize,
    /// Why the last flush that was to tell of changes failed, if it did.
    failure: Mutex<Option<ErrorReport>>,
}

/// Somebody who waits for a change, until it is dropped.
pub(super) struct Waits<'a>(&'a Feed);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Default)]
struct Ring {
    kept: VecDeque<Noted>,
    /// Bytes that these take, about.
    bytes: usize,
    /// The position of the last note that was taken in.
    last: u64,
}

impl Noted {
    /// Returns about how many bytes it takes in memory.
    fn weight(&self) -> usize {
        let names = [&self.change.place, &self.change.to].into_iter().flatten();
        let names: usize = names.map(|(_, name)| name.as_bytes().len()).sum();
        size_of::<Self>() + self.within.len() * size_of::<FileId>() + names
    }
}

impl Ring {
    fn keep(&mut self, noted: Noted) {
        self.bytes += noted.weight();
        self.kept.push_back(noted);
    }

    /// Lets go of the oldest change if there is too much. The newest always stays.
    fn let_go(&mut self) -> Option<Noted> {
        let many = self.kept.len() > limits::CHANGES_KEPT;
        let much = self.bytes > limits::CHANGES_BYTES_KEPT && self.kept.len() > 1;
        let oldest = if many || much { self.kept.pop_front() } else { None };
        self.bytes -= oldest.as_ref().map_or(0, Noted::weight);
        oldest
    }
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait.
    pub(super) fn wait(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waits(self)
    }

    /// Returns whether somebody waits for a change, so that it should be flushed soon.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Learns how a flush ended that was to tell of changes. Those who wait hear why it failed.
    pub(super) fn flushed(&self, failed: Option<Error>) {
        let has_failed = failed.is_some();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failed.as_ref().map(ErrorReport::from);
        if has_failed {
            self.more.notify_waiters();
        }
    }

    /// Returns why nothing can be told just now, if that is so.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone().map(Error::from)
    }

    /// Takes notes in. Returns the position up to which they need not be kept.
    pub(super) fn take(&self, notes: Vec<Note>) -> Option<NotePosition> {
        let mut ring = self.lock();
        for note in notes {
            if note.position.0 <= ring.last {
                continue;
            }
            ring.last = note.position.0;
            match postcard::from_bytes::<Noted>(&note.bytes) {
                Ok(mut noted) => {
                    noted.change.seq = ChangeSeq(note.position.0);
                    ring.keep(noted);
                }
                Err(error) => {
                    tracing::error!(%error, position = note.position.0, "a change note is malformed")
                }
            }
        }
        let mut dropped = None;
        while let Some(oldest) = ring.let_go() {
            dropped = Some(NotePosition(oldest.change.seq.0));
        }
        drop(ring);
        self.more.notify_waiters();
        dropped
    }

    /// Returns the number of the last change taken in.
    pub(super) fn last(&self) -> ChangeSeq {
        ChangeSeq(self.lock().last)
    }

    /// Returns up to `max` changes after `since`. `Stale` if some after it were dropped.
    fn after(&self, since: ChangeSeq, max: usize) -> Result<Vec<Noted>> {
        let ring = self.lock();
        let oldest = ring.kept.front().map_or(ring.last + 1, |noted| noted.change.seq.0);
        if since.0 + 1 < oldest {
            return Err(Error::stale("changes since then are no longer kept").hint("scan the tree again"));
        }
        let start = ring.kept.partition_point(|noted| noted.change.seq <= since);
        Ok(ring.kept.range(start..).take(max).cloned().collect())
    }
}

impl View<'_> {
    /// Returns the names of an inode with their directories: of many, the first few.
    pub(super) fn names_told(&self, node: &Node) -> Result<Vec<(Node, Name)>> {
        let most = if node.inode.links < 2 { 1 } else { limits::NAMES_TOLD_MAX };
        let names = entries::names_of(self.read, node.serial()).take(most);
        names.map(|back| back.and_then(|back| Ok((self.node_at(back.parent)?, back.name)))).collect()
    }

    /// Returns what happened at and below a place after `since`, as far as the caller
    /// may know of it; `None` if nothing happened anywhere.
    pub(super) fn changes(&self, at: &At, since: ChangeSeq) -> Result<Option<Changes>> {
        let top = self.existing(at)?;
        self.need_any(&top)?;
        let last = self.volume.feed.last();
        if since == last {
            return Ok(None);
        }
        let mut page = Changes { changes: Vec::new(), next: last.min(since) };
        if since > last {
            // A position that lies ahead, of a feed that lost it, is answered with the present one.
            return Ok(Some(Changes { changes: Vec::new(), next: last }));
        }
        while page.changes.len() < limits::CHANGES_PAGE_MAX {
            let noted = self.volume.feed.after(page.next, limits::CHANGES_PAGE_MAX - page.changes.len())?;
            let Some(newest) = noted.last() else { break };
            page.next = newest.change.seq;
            for noted in &noted {
                if noted.within.binary_search(&top.id).is_ok() {
                    page.changes.extend(self.shown(noted, top.id)?);
                }
            }
        }
        Ok(Some(page))
    }

    /// Returns what of a change a listing or a lookup would show its reader: names in
    /// directories that it may list, and what happened to things it knows and has a right
    /// on. It knows the place it watches, and what it may list.
    fn shown(&self, noted: &Noted, top: FileId) -> Result<Option<Change>> {
        let change = &noted.change;
        let (place, to) = (self.listed(&change.place)?, self.listed(&change.to)?);
        let named = place.is_some() || to.is_some();
        let of_names = change.kind.is_of_names();
        if !(of_names && named) {
            let known = named || change.file == top;
            if !self.sees(noted, known)? {
                return Ok(None);
            }
        }
        // Of names that may not be listed, what is seen is the file's own change.
        let kind = if of_names && !named { ChangeKind::Attr } else { change.kind };
        Ok(Some(Change { kind, place, to, ..change.clone() }))
    }

    /// Returns a name if the directory it was in may be listed.
    fn listed(&self, spot: &Option<(FileId, Name)>) -> Result<Option<(FileId, Name)>> {
        let Some((dir, _)) = spot else { return Ok(None) };
        let shown = match self.still_there(*dir)? {
            Some(dir) => self.has(&dir, Rights::LIST)?,
            None => false,
        };
        Ok(spot.clone().filter(|_| shown))
    }

    /// Returns whether the reader may see what happened to a file itself: it knows the
    /// file, by this change or by another name of it, and has some right on it. What is
    /// gone is judged by the ACL of its container.
    fn sees(&self, noted: &Noted, mut known: bool) -> Result<bool> {
        let Some(node) = self.still_there(noted.change.file)? else {
            return Ok(known && self.had_right(noted.container)?);
        };
        for dir in self.parents(&node)? {
            known = known || self.has(&dir, Rights::LIST)?;
        }
        Ok(known && !self.rights(&node)?.is_empty() && !self.drops_into(&node)?)
    }

    fn still_there(&self, id: FileId) -> Result<Option<Node>> {
        let inode = inodes::find(self.read, id.serial())?;
        Ok(inode.filter(|inode| inode.generation == id.generation()).map(|inode| Node { id, inode }))
    }

    fn had_right(&self, container: ContainerId) -> Result<bool> {
        if super::table::containers::find_head(self.read, container)?.is_none() {
            return Ok(false);
        }
        let settled = self.explain_by(&self.governing(container)?, Rights::ALL, &self.call.caller.subject());
        Ok(!settled.allowed().is_empty())
    }
}

#[cfg(test)]
mod tests;
