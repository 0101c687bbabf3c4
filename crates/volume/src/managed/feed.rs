//! The change feed: notes of commits, once they are durable, in a bounded ring.
//!
//! The engine keeps a note until it is acknowledged, and this acknowledges only what
//! falls out of the ring: so a restart finds the ring's content again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use weft_core::acl::{Ask, decide};
use weft_core::form::{At, Change, ChangeSeq, Changes};
use weft_core::proof::Objects;
use weft_core::{ContainerId, Error, FileId, Result, Rights, limits};
use weft_kv::{Note, NotePosition};

use super::table::inodes;
use super::view::{Node, View};

/// A change as a commit notes it, with what filtering it needs once the place is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) change: Change,
    /// The inodes it happened at and below, sorted.
    pub(super) within: Vec<FileId>,
    /// The container of the place.
    pub(super) container: ContainerId,
}

/// The ring.
#[derive(Default)]
pub(super) struct Feed {
    ring: Mutex<Ring>,
    /// Wakes those who wait for a change.
    pub(super) more: Notify,
    waiting: AtomicUsize,
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
    /// The position of the last note that was taken in.
    last: u64,
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
                    ring.kept.push_back(noted);
                }
                Err(error) => {
                    tracing::error!(%error, position = note.position.0, "a change note is malformed")
                }
            }
        }
        let mut dropped = None;
        while ring.kept.len() > limits::CHANGES_KEPT {
            dropped = ring.kept.pop_front().map(|noted| NotePosition(noted.change.seq.0));
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
                if noted.within.binary_search(&top.id).is_ok() && self.may_see(noted)? {
                    page.changes.push(noted.change.clone());
                }
            }
        }
        Ok(Some(page))
    }

    /// A reader sees a change of what it may know of. Of what is gone, it may know if it
    /// may look into the directory it was in, or could by the container's ACL.
    fn may_see(&self, noted: &Noted) -> Result<bool> {
        if let Some(node) = self.still_there(noted.change.file)? {
            return self.may_know(&node);
        }
        let place = noted.change.place.as_ref().map(|(dir, _)| *dir);
        if let Some(dir) = place.map(|dir| self.still_there(dir)).transpose()?.flatten() {
            return self.sees_into(&dir);
        }
        Ok(self.call.caller.limits().paths.is_empty() && self.may_look(noted.container)?)
    }

    fn still_there(&self, id: FileId) -> Result<Option<Node>> {
        let inode = inodes::find(self.read, id.serial())?;
        Ok(inode.filter(|inode| inode.generation == id.generation()).map(|inode| Node { id, inode }))
    }

    fn may_look(&self, container: ContainerId) -> Result<bool> {
        if super::table::containers::find_head(self.read, container)?.is_none() {
            return Ok(false);
        }
        let governing = self.governing(container)?;
        let ask = Ask {
            container,
            epoch: governing.head.epoch,
            rights: Rights::LIST | Rights::TRAVERSE,
            objects: Objects::All,
            now: self.now,
            peer: self.call.from.peer,
        };
        Ok(!decide(&governing.rules.acl, &self.call.caller, &ask).allowed().is_empty())
    }
}
