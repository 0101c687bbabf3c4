//! Policy: showing it, editing it, and splitting a subtree off into a container of
//! its own.

use super::act::Act;
use super::tree::{Container, VOLUME};
use crate::acl::{Acl, AclEntry, Effect};
use crate::attr::Changed;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{At, ChangeKind, Protected, Scope};
use crate::id::{ContainerId, FileId};
use crate::limits;
use crate::policy::{Policy, PolicyEdit};
use crate::rights::Rights;

impl Act<'_> {
    pub(super) fn policy(&self, at: &At) -> Result<Policy> {
        let id = self.existing(at)?;
        self.need(id, Rights::ACL_READ)?;
        let container = self.state.inode(id)?.container;
        let policy = self.state.container(container)?;
        Ok(Policy {
            container,
            epoch: policy.epoch,
            acl: policy.acl.clone(),
            modes: policy.modes,
            bytes_max: policy.bytes_max,
            bytes_used: policy.bytes_used,
            audit_reads: policy.audit_reads,
        })
    }

    pub(super) fn protect(&mut self, at: &At, scope: Scope, edit: &PolicyEdit) -> Result<Changed<Protected>> {
        let id = self.existing(at)?;
        self.need(id, Rights::ACL_WRITE)?;
        let enclosing = self.state.inode(id)?.container;
        let policy = self.state.container(enclosing)?;
        if let Some(acl) = &edit.acl {
            if acl.version != policy.acl.version {
                return Err(Error::new(ErrorKind::Conflict, "the ACL was changed since it was read"));
            }
            acl.check()?;
        }
        let made = scope == Scope::Subtree && policy.root != id;
        let root = if made { id } else { policy.root };
        let members = if made { self.members_below(id)? } else { Vec::new() };
        let traverse = edit.acl.as_ref().map(|acl| self.traverse_above(root, acl)).transpose()?;
        if made && self.containers_above(id)?.len() >= limits::CONTAINER_DEPTH_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "at most 64 containers lie on one path"));
        }
        let before = self.state.before(id);
        let container = if made { self.split(id, enclosing, &members) } else { enclosing };
        self.edit(container, edit);
        for (above, acl) in traverse.iter().flatten() {
            if let Some(policy) = self.state.containers.get_mut(above) {
                policy.acl = acl.clone();
            }
        }
        let now = self.now.wall;
        self.state.inode_mut(id)?.touch(now);
        self.record(ChangeKind::Policy, id, None, None);
        let traverse_added = traverse.into_iter().flatten().map(|(above, _)| above).collect();
        let value = Protected { container, made, members_left: 0, traverse_added };
        Ok(Changed { value, file: self.state.wcc(id, before), parents: [None, None] })
    }

    /// Makes a container with the enclosing one's policy and moves members into it.
    fn split(&mut self, root: FileId, enclosing: ContainerId, members: &[FileId]) -> ContainerId {
        let container = ContainerId::new(VOLUME, self.state.number());
        if let Some(old) = self.state.containers.get(&enclosing) {
            let made = Container {
                epoch: 0,
                acl: old.acl.clone(),
                modes: old.modes,
                bytes_max: old.bytes_max,
                bytes_used: 0,
                audit_reads: old.audit_reads,
                root,
                members: 0,
            };
            self.state.containers.insert(container, made);
        }
        self.state.rehome(members, container);
        // What was issued for the members under the old policy must not outlive it.
        self.begin_epoch(enclosing);
        container
    }

    fn edit(&mut self, container: ContainerId, edit: &PolicyEdit) {
        let Some(policy) = self.state.containers.get_mut(&container) else { return };
        if let Some(acl) = &edit.acl {
            policy.acl = Acl { version: policy.acl.version + 1, entries: acl.entries.clone() };
        }
        policy.modes = edit.modes.unwrap_or(policy.modes);
        policy.bytes_max = edit.bytes_max.unwrap_or(policy.bytes_max);
        policy.audit_reads = edit.audit_reads.unwrap_or(policy.audit_reads);
        if edit.acl.is_some() || edit.modes.is_some() {
            self.begin_epoch(container);
        }
    }

    /// Ends the capabilities issued for a container so far. Whoever still has the
    /// right is given a new one when it next asks.
    pub(super) fn begin_epoch(&mut self, container: ContainerId) {
        if let Some(policy) = self.state.containers.get_mut(&container) {
            policy.epoch += 1;
            self.model.issuer.begin_epoch(container, policy.epoch);
        }
    }

    /// Returns the containers of the directories above a place, innermost first.
    fn containers_above(&self, place: FileId) -> Result<Vec<ContainerId>> {
        let mut above = Vec::new();
        let inode = self.state.inode(place)?;
        let parents: Vec<FileId> = inode.names.iter().map(|(dir, _)| *dir).collect();
        for dir in parents.into_iter().flat_map(|dir| self.state.lineage(dir)) {
            let container = self.state.inode(dir)?.container;
            if !above.contains(&container) {
                above.push(container);
            }
        }
        Ok(above)
    }

    /// Returns the containers above in which those whom `acl` gives anything lack
    /// `traverse`, with their ACLs mended.
    fn traverse_above(&self, root: FileId, acl: &Acl) -> Result<Vec<(ContainerId, Acl)>> {
        let mut mended = Vec::new();
        for container in self.containers_above(root)? {
            let old = &self.state.container(container)?.acl;
            let lacking: Vec<AclEntry> = acl
                .entries
                .iter()
                .filter(|entry| entry.effect == Effect::Allow && !entry.rights.is_empty())
                .filter(|entry| !old.entries.iter().any(|there| gives_way(there, entry)))
                .map(|entry| AclEntry { rights: Rights::TRAVERSE, ..entry.clone() })
                .collect();
            if lacking.is_empty() {
                continue;
            }
            let mut new = Acl { version: old.version + 1, entries: old.entries.clone() };
            for entry in lacking {
                if !new.entries.contains(&entry) {
                    new.entries.push(entry);
                }
            }
            new.check()?;
            mended.push((container, new));
        }
        Ok(mended)
    }
}

/// Returns whether an entry already lets those of another pass.
fn gives_way(there: &AclEntry, entry: &AclEntry) -> bool {
    there.effect == Effect::Allow
        && there.who == entry.who
        && there.rights.contains(Rights::TRAVERSE)
        && (there.when.is_empty() || there.when == entry.when)
}
