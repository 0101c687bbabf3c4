//! Which policy governs what, in a tree whose files know nothing of it.
//!
//! A container is bound to a place: a path, and the inode that lay there. Both hold. Whatever lies
//! at the path is governed by it, so that a file which an editor replaced, or a directory made anew,
//! is no more open than the one before. And the inode is, wherever its names lead by now, so that
//! what somebody moved on the machine keeps its policy. Where the two disagree the path decides: who
//! moves something onto a place that has a policy of its own means that place.
//!
//! All of an export's policies are in memory, as one value that is never changed: a call takes it
//! once and decides everything by it.

use std::collections::HashMap;
use std::sync::Arc;

use weft_core::acl::{Acl, Modes};
use weft_core::policy::{AuditReads, Policy};
use weft_core::{ContainerId, Error, FileId, Result, VolumeId};

use super::known::above;
use super::table::BoundRow;

/// The policies of one export, as they are at one moment.
#[derive(Clone, Debug)]
pub(super) struct Policies {
    containers: HashMap<ContainerId, Arc<Bound>>,
    paths: HashMap<Vec<u8>, ContainerId>,
    inodes: HashMap<FileId, ContainerId>,
    /// The container of the root, which governs whatever nothing else does.
    root: ContainerId,
}

/// One container.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) container: ContainerId,
    pub(super) row: BoundRow,
}

/// What tells the policy that a container has from others it had.
pub(super) type Stand = (u64, u64);

impl Bound {
    pub(super) fn stand(&self) -> Stand {
        (self.row.serial, self.row.epoch)
    }

    pub(super) fn acl(&self) -> &Acl {
        &self.row.acl
    }

    /// Returns the policy as doors see it. Bytes are counted and limited by the machine, not here.
    pub(super) fn policy(&self) -> Policy {
        Policy {
            container: self.container,
            epoch: self.row.epoch,
            acl: self.row.acl.clone(),
            modes: Modes::default(),
            bytes_max: None,
            bytes_used: 0,
            audit_reads: self.row.audit_reads,
        }
    }

    pub(super) fn are_reads_recorded(&self) -> bool {
        self.row.audit_reads == AuditReads::All
    }
}

impl Policies {
    /// Returns the container of an export's root.
    pub(super) fn root_of(volume: VolumeId) -> ContainerId {
        ContainerId::new(volume, FileId::root_of(volume).serial())
    }

    /// Puts together what was read. `Corrupt` if the root has no policy.
    pub(super) fn of(volume: VolumeId, rows: Vec<(ContainerId, BoundRow)>) -> Result<Self> {
        let root = Self::root_of(volume);
        let mut policies =
            Self { containers: HashMap::new(), paths: HashMap::new(), inodes: HashMap::new(), root };
        for (container, row) in rows {
            policies.put(container, row);
        }
        if policies.containers.contains_key(&root) {
            return Ok(policies);
        }
        Err(Error::corrupt("the policy of the share's root is not there").about(root).hint("weft unshare"))
    }

    /// Adds a container, or puts a newer policy in its place.
    pub(super) fn put(&mut self, container: ContainerId, row: BoundRow) {
        self.let_go(container);
        if row.guards {
            self.paths.insert(row.path.clone(), container);
        }
        if container != self.root {
            self.inodes.insert(row.inode, container);
        }
        self.containers.insert(container, Arc::new(Bound { container, row }));
    }

    /// Removes a container.
    pub(super) fn remove(&mut self, container: ContainerId) {
        self.let_go(container);
        self.containers.remove(&container);
    }

    /// Unbinds a container from its place and inode.
    fn let_go(&mut self, container: ContainerId) {
        let Some(old) = self.containers.get(&container) else { return };
        if self.paths.get(&old.row.path) == Some(&container) {
            self.paths.remove(&old.row.path);
        }
        if self.inodes.get(&old.row.inode) == Some(&container) {
            self.inodes.remove(&old.row.inode);
        }
    }

    /// Returns the containers whose places others come to: those others are bound there from now on.
    pub(super) fn ousted_by(&self, rows: &[(ContainerId, BoundRow)]) -> Vec<ContainerId> {
        let at = |row: &BoundRow| self.paths.get(&row.path).copied().filter(|_| row.guards);
        let there = rows.iter().filter_map(|(_, row)| at(row));
        there.filter(|there| rows.iter().all(|(moved, _)| moved != there)).collect()
    }

    /// Returns a number that no container of the export has.
    pub(super) fn free_number(&self, volume: VolumeId) -> Result<ContainerId> {
        let last = self.containers.keys().map(|container| container.0).max().unwrap_or(self.root.0);
        let next = ContainerId(last + 1);
        if next.volume() == volume {
            return Ok(next);
        }
        Err(Error::new(weft_core::ErrorKind::NoQuota, "the share has given out all its container numbers"))
    }

    /// Returns whether one policy governs everything, so that nobody has to look which.
    pub(super) fn is_one(&self) -> bool {
        self.containers.len() == 1
    }

    pub(super) fn count(&self) -> usize {
        self.containers.len()
    }

    /// Returns the policy of the root.
    pub(super) fn root(&self) -> &Arc<Bound> {
        // Whoever made this value saw it.
        &self.containers[&self.root]
    }

    /// Returns a container; the root's for one that is gone.
    pub(super) fn by_id(&self, container: ContainerId) -> &Arc<Bound> {
        self.containers.get(&container).unwrap_or_else(|| self.root())
    }

    /// Returns a container as it is now; as it was if it is gone, and its number perhaps another's.
    pub(super) fn now<'a>(&'a self, was: &'a Arc<Bound>) -> &'a Arc<Bound> {
        let now = self.containers.get(&was.container);
        now.filter(|now| now.row.inode == was.row.inode).unwrap_or(was)
    }

    /// Returns the container that was made for a place itself, whatever lies above.
    pub(super) fn at(&self, path: &[u8], inode: Option<FileId>) -> Option<&Arc<Bound>> {
        let found = self.paths.get(path).or_else(|| self.inodes.get(&inode?));
        found.and_then(|container| self.containers.get(container))
    }

    /// Returns what governs a place, as far as paths tell: inodes that were moved are not looked at.
    pub(super) fn governing_path(&self, path: &[u8]) -> &Arc<Bound> {
        let places = std::iter::successors(Some(path), |path| above(path));
        let mut found = places.filter_map(|place| self.at(place, None));
        found.next().unwrap_or_else(|| self.root())
    }

    /// Returns the containers bound to places at or below a path, but for the root's.
    pub(super) fn bound_below<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = &'a Arc<Bound>> + 'a {
        let below =
            move |bound: &&Arc<Bound>| bound.container != self.root && is_within(&bound.row.path, path);
        self.containers.values().filter(below)
    }
}

/// Returns whether a path is another or lies below it.
pub(super) fn is_within(path: &[u8], above: &[u8]) -> bool {
    above.is_empty()
        || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, inode: u64) -> BoundRow {
        let inode = FileId::new(VolumeId(1), inode, 7);
        let audit_reads = AuditReads::default();
        BoundRow {
            path: path.into(),
            guards: true,
            inode,
            serial: 0,
            epoch: 0,
            acl: Acl::default(),
            audit_reads,
        }
    }

    #[test]
    fn a_policy_guards_its_path_and_goes_along_with_its_inode() {
        let (volume, root) = (VolumeId(1), Policies::root_of(VolumeId(1)));
        let (private, public) = (ContainerId::new(volume, 8), ContainerId::new(volume, 9));
        let rows = vec![(root, row("", 1)), (private, row("a/private", 20)), (public, row("public", 30))];
        let policies = Policies::of(volume, rows).expect("there is a root");
        let at = |path: &str, inode| {
            let inode = FileId::new(volume, inode, 7);
            policies.at(path.as_bytes(), Some(inode)).map(|bound| bound.container)
        };
        assert_eq!(at("a/private", 20), Some(private));
        assert_eq!(at("a/private", 99), Some(private), "what took its place is guarded");
        assert_eq!(at("moved", 20), Some(private), "what was moved keeps its policy");
        assert_eq!(at("public", 20), Some(public), "what is put onto a place is under that place's");
        assert_eq!(at("a/private/deeper", 99), None);
    }

    #[test]
    fn a_path_is_within_another_name_by_name() {
        assert!(is_within(b"a/b", b"a") && is_within(b"a", b"a") && is_within(b"a", b""));
        assert!(!is_within(b"ab", b"a") && !is_within(b"a", b"a/b"));
    }
}
