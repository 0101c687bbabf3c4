//! The change feed.

use super::act::Act;
use crate::acl::{Ask, decide};
use crate::error::{Error, Result};
use crate::form::{At, Change, ChangeKind, ChangeSeq, Changes};
use crate::id::{ContainerId, FileId};
use crate::limits;
use crate::name::Name;
use crate::proof::Objects;
use crate::rights::Rights;

/// A change, and what filtering it needs once the place is gone.
pub(super) struct Record {
    change: Change,
    /// The inodes it happened at and below.
    within: Vec<FileId>,
    /// The container of the place.
    container: ContainerId,
}

/// A name in a directory.
type Spot = Option<(FileId, Name)>;

impl Act<'_> {
    /// Writes a change down and wakes those who wait. Called while the names it
    /// speaks of can still be followed upwards.
    pub(super) fn record(&mut self, kind: ChangeKind, file: FileId, place: Spot, to: Spot) {
        let named = self.state.inode(file).ok().and_then(|inode| inode.names.first().cloned());
        let place = place.or(named);
        let mut within = vec![file];
        for (dir, _) in place.iter().chain(&to) {
            within.extend(self.state.lineage(*dir));
        }
        let at = place.as_ref().map_or(file, |(dir, _)| *dir);
        let Ok(container) = self.state.inode(at).map(|inode| inode.container) else { return };
        self.state.changes_made += 1;
        let seq = ChangeSeq(self.state.changes_made);
        let (caller, session) = (self.call.caller.name().id(), self.call.session);
        let change = Change { seq, kind, file, place, to, caller, session };
        if self.state.changes.len() == limits::CHANGES_KEPT {
            self.state.changes.pop_front();
        }
        self.state.changes.push_back(Record { change, within, container });
        self.model.changed.notify(usize::MAX);
    }

    /// Returns what was recorded after `since`; `None` if nothing was. A position that
    /// lies ahead is answered with the present one.
    pub(super) fn changes(&self, at: &At, since: ChangeSeq) -> Result<Option<Changes>> {
        let top = self.existing(at)?;
        self.need_any(top)?;
        let oldest = self.state.changes.front().map_or(self.state.changes_made + 1, |r| r.change.seq.0);
        if since.0 + 1 < oldest {
            return Err(Error::stale("changes since then are no longer kept").hint("scan the tree again"));
        }
        if since.0 == self.state.changes_made {
            return Ok(None);
        }
        let mut page = Changes { changes: Vec::new(), next: ChangeSeq(self.state.changes_made) };
        let records = self.state.changes.iter().filter(|record| record.change.seq > since);
        for record in records {
            if page.changes.len() == limits::CHANGES_PAGE_MAX {
                page.next = page.changes.last().map_or(page.next, |change| change.seq);
                break;
            }
            if record.within.contains(&top) && self.may_see(record) {
                page.changes.push(record.change.clone());
            }
        }
        Ok(Some(page))
    }

    /// A reader sees a change of what it may know of. Of what is gone, it may know if
    /// it may look into the directory it was in, or could by the container's ACL.
    fn may_see(&self, record: &Record) -> bool {
        let limited = !self.call.caller.limits().paths.is_empty();
        let knows = |id: FileId| self.may_know(id);
        if self.state.inodes.contains_key(&record.change.file) {
            return knows(record.change.file);
        }
        let place = record.change.place.as_ref().map(|(dir, _)| *dir);
        match place {
            Some(dir) if self.state.inodes.contains_key(&dir) => self.sees_into(dir),
            _ => !limited && self.may_look(record.container),
        }
    }

    fn may_look(&self, container: ContainerId) -> bool {
        let Ok(policy) = self.state.container(container) else { return false };
        let ask = Ask {
            container,
            epoch: policy.epoch,
            rights: Rights::LIST | Rights::TRAVERSE,
            objects: Objects::All,
            now: self.now,
            peer: self.call.from.peer,
        };
        !decide(&policy.acl, &self.call.caller, &ask).allowed().is_empty()
    }
}
