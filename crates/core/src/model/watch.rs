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
    /// The container of the inode itself.
    container: ContainerId,
}

/// A name in a directory.
type Spot = Option<(FileId, Name)>;

impl Act<'_> {
    /// Writes a change down and wakes those who wait. Called while the names it
    /// speaks of can still be followed upwards. Those who watch any name of the file are told.
    pub(super) fn record(&mut self, kind: ChangeKind, file: FileId, place: Spot, to: Spot) {
        let names = self.state.inode(file).map(|inode| inode.names.iter().take(limits::NAMES_TOLD_MAX));
        let names: Vec<_> = names.into_iter().flatten().cloned().collect();
        let place = place.or(names.first().cloned());
        let mut within = vec![file];
        for (dir, _) in place.iter().chain(&to).chain(&names) {
            within.extend(self.state.lineage(*dir));
        }
        let Ok(container) = self.state.inode(file).map(|inode| inode.container) else { return };
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
        let from = self.state.changes.partition_point(|record| record.change.seq <= since);
        for record in self.state.changes.range(from..) {
            if page.changes.len() == limits::CHANGES_PAGE_MAX {
                page.next = page.changes.last().map_or(page.next, |change| change.seq);
                break;
            }
            if record.within.contains(&top) {
                page.changes.extend(self.shown(record, top));
            }
        }
        Ok(Some(page))
    }

    /// Returns what of a change a listing or a lookup would show its reader: names in
    /// directories that it may list, and what happened to things it knows and has a
    /// right on. It knows the place it watches, and what it may list.
    fn shown(&self, record: &Record, top: FileId) -> Option<Change> {
        let (file, there) = (record.change.file, self.state.inodes.get(&record.change.file));
        let listed = |spot: &Spot| spot.clone().filter(|(dir, _)| self.lists(*dir));
        let (place, to) = (listed(&record.change.place), listed(&record.change.to));
        let named = place.is_some() || to.is_some();
        let of_names = record.change.kind.is_of_names();
        if !(of_names && named) {
            let known = named
                || file == top
                || there.is_some_and(|inode| inode.names.iter().any(|(dir, _)| self.lists(*dir)));
            let has_right = match there {
                Some(_) => self.rights(file).is_ok_and(|rights| !rights.is_empty()),
                None => self.had_right(record.container),
            };
            if !known || !has_right {
                return None;
            }
        }
        // Of names that may not be listed, what is seen is the file's own change.
        let kind = if of_names && !named { ChangeKind::Attr } else { record.change.kind };
        Some(Change { kind, place, to, ..record.change.clone() })
    }

    fn lists(&self, dir: FileId) -> bool {
        self.has(dir, Rights::LIST).unwrap_or(false)
    }

    /// Returns whether the reader has a right on what was in a container and is gone.
    fn had_right(&self, container: ContainerId) -> bool {
        let Ok(policy) = self.state.container(container) else { return false };
        let ask = Ask {
            container,
            epoch: policy.epoch,
            rights: Rights::ALL,
            objects: Objects::All,
            now: self.now,
            peer: self.call.from.peer,
        };
        !decide(&policy.acl, &self.call.caller, &ask).allowed().is_empty()
    }
}
