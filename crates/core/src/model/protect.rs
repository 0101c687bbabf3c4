//! Policy: showing it, editing it, and splitting a subtree off into a container of
//! its own.

use super::act::Act;
use super::tree::{Container, VOLUME};
use crate::acl::{Acl, AclEntry};
use crate::attr::Changed;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{At, ChangeKind, Protected, Scope};
use crate::id::{ContainerId, FileId};
use crate::limits;
use crate::policy::{Policy, PolicyEdit};
use crate::rights::Rights;

/// Containers above with their mended ACLs, and those that are not the caller's to change.
type Above = (Vec<(ContainerId, Acl)>, Vec<ContainerId>);

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
        let root = if made { id } else { self.root_of(enclosing, id)? };
        if !self.governs(root)? {
            let detail = "the container's policy reaches beyond the paths that the credential is limited to";
            return Err(Error::denied(detail).caller(self.call.caller.name()));
        }
        let members = if made { self.members_below(id)? } else { Vec::new() };
        let (traverse, untouched_above) = match &edit.acl {
            Some(acl) => {
                self.traverse_above(root, &acl.gained_over(&self.state.container(enclosing)?.acl))?
            }
            None => Default::default(),
        };
        if made && self.containers_above(id)?.len() >= limits::CONTAINER_DEPTH_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "at most 64 containers lie on one path"));
        }
        let before = self.state.before(id);
        let container = if made { self.split(id, enclosing, &members) } else { enclosing };
        self.edit(container, edit);
        for (above, acl) in &traverse {
            if let Some(policy) = self.state.containers.get_mut(above) {
                policy.acl = acl.clone();
            }
        }
        let now = self.now.wall;
        self.state.inode_mut(id)?.touch(now);
        self.record(ChangeKind::Policy, id, None, None);
        let traverse_added = traverse.into_iter().map(|(above, _)| above).collect();
        let value = Protected { container, made, members_left: 0, traverse_added, untouched_above };
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

    /// Returns the containers of the directories above a place, innermost first, each with
    /// one of those directories.
    fn containers_above(&self, place: FileId) -> Result<Vec<(ContainerId, FileId)>> {
        let mut above: Vec<(ContainerId, FileId)> = Vec::new();
        let inode = self.state.inode(place)?;
        let parents: Vec<FileId> = inode.names.iter().map(|(dir, _)| *dir).collect();
        for dir in parents.into_iter().flat_map(|dir| self.state.lineage(dir)) {
            let container = self.state.inode(dir)?.container;
            if above.iter().all(|(known, _)| *known != container) {
                above.push((container, dir));
            }
        }
        Ok(above)
    }

    /// Returns whether the caller may change a container's policy as it reaches: at its root, below
    /// which all its members lie. At a member alone a credential limited to paths may, too.
    fn governs(&self, root: FileId) -> Result<bool> {
        self.has(root, Rights::ACL_WRITE)
    }

    /// Returns the root of a container, or in its place a member that is left without.
    fn root_of(&self, container: ContainerId, member: FileId) -> Result<FileId> {
        let root = self.state.container(container)?.root;
        Ok(if self.state.inode(root).is_ok() { root } else { member })
    }

    /// Returns the ACLs of the containers above, mended so that whoever the entries give anything
    /// may pass there, as far as the caller may change them; and those that it may not.
    fn traverse_above(&self, root: FileId, gained: &[AclEntry]) -> Result<Above> {
        let (mut mended, mut untouched) = (Vec::new(), Vec::new());
        if gained.is_empty() {
            return Ok((mended, untouched));
        }
        for (container, dir) in self.containers_above(root)? {
            let governed = self.governs(self.root_of(container, dir)?)?;
            if !governed || !self.has(dir, Rights::ACL_WRITE)? {
                untouched.push(container);
            } else if let Some(new) = self.state.container(container)?.acl.with_way_to(gained)? {
                mended.push((container, new));
            }
        }
        Ok((mended, untouched))
    }
}
