//! Everything the model holds, and the small steps that keep it whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::content::Content;
use super::lock::Locks;
use super::once::Ring;
use super::stage::Staged;
use super::watch::Record;
use crate::acl::{Acl, AclEntry, Modes, Who};
use crate::attr::{Attr, Before, Kind, TagName, Version, Wcc};
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::form::Reference;
use crate::id::{CallerId, ContainerId, FileId, ObjectId, SessionId, StageId, VolumeId};
use crate::limits;
use crate::name::Name;
use crate::policy::AuditReads;
use crate::rights::Rights;
use crate::time::Time;

/// The model's one volume.
pub(super) const VOLUME: VolumeId = VolumeId(0);

/// Everything there is.
pub(super) struct State {
    pub(super) inodes: BTreeMap<FileId, Inode>,
    pub(super) containers: BTreeMap<ContainerId, Container>,
    pub(super) stages: BTreeMap<StageId, Staged>,
    pub(super) opens: BTreeMap<u64, (SessionId, FileId)>,
    pub(super) rings: BTreeMap<SessionId, Ring>,
    pub(super) locks: Locks,
    pub(super) changes: VecDeque<Record>,
    pub(super) changes_made: u64,
    pub(super) sessions_ended: BTreeSet<SessionId>,
    /// Counts everything that is numbered: inodes, containers, stages, opens.
    pub(super) last_number: u64,
    /// This life of the model: part of versions, and the verifier.
    pub(super) instance: u64,
}

/// A file, directory or other inode.
pub(super) struct Inode {
    pub(super) id: FileId,
    pub(super) body: Body,
    pub(super) mode: u16,
    pub(super) owner: CallerId,
    pub(super) group: CallerId,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) btime: Time,
    pub(super) change: u64,
    /// Rises with every published content.
    pub(super) layout: u32,
    /// Rises with every change of bytes or entries.
    pub(super) writes: u64,
    pub(super) container: ContainerId,
    pub(super) tags: BTreeMap<TagName, Bytes>,
    /// Its names: back links to the directories that hold them.
    pub(super) names: BTreeSet<(FileId, Name)>,
    /// What the client that made it exclusively chose.
    pub(super) verifier: Option<[u8; 8]>,
    pub(super) opens: usize,
}

/// What an inode is made of.
pub(super) enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Bytes),
    Fifo,
    Reference(Reference),
}

/// The names in a directory, by name and in the order they were entered.
#[derive(Default)]
pub(super) struct Directory {
    pub(super) entries: BTreeMap<Name, Slot>,
    pub(super) order: BTreeMap<u64, Name>,
    last_cookie: u64,
    pub(super) directories: u32,
}

/// What a name leads to. The cookie is the name's: whatever replaces what it leads to
/// keeps it, so that a scan meets each name once.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) id: FileId,
    pub(super) cookie: u64,
}

/// A container: policy and account of its members.
pub(super) struct Container {
    pub(super) epoch: u64,
    pub(super) acl: Acl,
    pub(super) modes: Modes,
    pub(super) bytes_max: Option<u64>,
    pub(super) bytes_used: u64,
    pub(super) audit_reads: AuditReads,
    /// The place it was made for.
    pub(super) root: FileId,
    pub(super) members: u64,
}

impl Inode {
    pub(super) fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Fifo => Kind::Fifo,
            Body::Reference(_) => Kind::Reference,
        }
    }

    /// Returns the id its bytes are granted under.
    pub(super) fn object(&self) -> ObjectId {
        ObjectId::of_file(self.id, self.layout)
    }

    pub(super) fn version(&self, instance: u64) -> Version {
        let layout = u128::from(self.layout) << 96;
        Version(layout | u128::from(instance as u32) << 64 | u128::from(self.writes))
    }

    pub(super) fn used(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.used(),
            _ => 0,
        }
    }

    pub(super) fn attr(&self, instance: u64) -> Attr {
        let (size, links) = match &self.body {
            Body::File(content) => (content.size(), self.names.len() as u32),
            Body::Directory(directory) => (directory.entries.len() as u64, 2 + directory.directories),
            Body::Symlink(target) => (target.len() as u64, self.names.len() as u32),
            Body::Fifo | Body::Reference(_) => (0, self.names.len() as u32),
        };
        Attr {
            id: self.id,
            kind: self.kind(),
            mode: self.mode,
            links,
            owner: self.owner,
            group: self.group,
            size,
            used: self.used(),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            version: self.version(instance),
            change: self.change,
            container: self.container,
        }
    }

    /// Something of it changed.
    pub(super) fn touch(&mut self, now: Time) {
        self.ctime = now;
        self.change += 1;
    }

    /// Its bytes or entries changed.
    pub(super) fn touch_bytes(&mut self, now: Time) {
        self.mtime = now;
        self.writes += 1;
        self.touch(now);
    }
}

impl Directory {
    /// Enters a name that is not there.
    fn enter(&mut self, name: Name, id: FileId) {
        self.last_cookie += 1;
        self.order.insert(self.last_cookie, name.clone());
        self.entries.insert(name, Slot { id, cookie: self.last_cookie });
    }

    fn leave(&mut self, name: &Name) {
        if let Some(slot) = self.entries.remove(name) {
            self.order.remove(&slot.cookie);
        }
    }
}

impl State {
    /// Returns a tree of one empty directory that `owner` may do everything with.
    pub(super) fn new(owner: &CallerName, now: Time) -> Self {
        let container = ContainerId::new(VOLUME, 1);
        let root = Inode {
            id: FileId::ROOT,
            body: Body::Directory(Directory::default()),
            mode: 0o755,
            owner: owner.id(),
            group: owner.id(),
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: 1,
            layout: 0,
            writes: 0,
            container,
            tags: BTreeMap::new(),
            names: BTreeSet::new(),
            verifier: None,
            opens: 0,
        };
        let policy = Container {
            epoch: 0,
            acl: Acl::new(vec![AclEntry::allow(Who::Caller(owner.clone()), Rights::ALL)]),
            modes: Modes::default(),
            bytes_max: None,
            bytes_used: 0,
            audit_reads: AuditReads::default(),
            root: FileId::ROOT,
            members: 1,
        };
        Self {
            inodes: BTreeMap::from([(FileId::ROOT, root)]),
            containers: BTreeMap::from([(container, policy)]),
            stages: BTreeMap::new(),
            opens: BTreeMap::new(),
            rings: BTreeMap::new(),
            locks: Locks::default(),
            changes: VecDeque::new(),
            changes_made: 0,
            sessions_ended: BTreeSet::new(),
            last_number: 1,
            instance: now.nanos() as u64,
        }
    }

    /// Returns a number never given before.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Returns an inode; `Stale` if there is none with this serial and generation.
    pub(super) fn inode(&self, id: FileId) -> Result<&Inode> {
        self.inodes.get(&id).ok_or_else(|| Error::stale("the file is gone").about(id))
    }

    pub(super) fn inode_mut(&mut self, id: FileId) -> Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| Error::stale("the file is gone").about(id))
    }

    pub(super) fn directory(&self, id: FileId) -> Result<&Directory> {
        match &self.inode(id)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::new(ErrorKind::NotDirectory, "it is not a directory")),
        }
    }

    /// Returns a file's bytes; what else is there says so.
    pub(super) fn content(&self, id: FileId) -> Result<&Content> {
        match &self.inode(id)?.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Error::new(ErrorKind::IsDirectory, "it is a directory")),
            _ => Err(Error::invalid("it is not a file with bytes of its own")),
        }
    }

    pub(super) fn container(&self, id: ContainerId) -> Result<&Container> {
        self.containers.get(&id).ok_or_else(|| Error::stale("the container is gone").about(id))
    }

    pub(super) fn attr(&self, id: FileId) -> Result<Attr> {
        Ok(self.inode(id)?.attr(self.instance))
    }

    pub(super) fn before(&self, id: FileId) -> Option<Before> {
        self.inodes.get(&id).map(|inode| Before::from(&inode.attr(self.instance)))
    }

    /// Returns what a change left of an inode, beside what was before.
    pub(super) fn wcc(&self, id: FileId, before: Option<Before>) -> Wcc {
        Wcc { before, after: self.inodes.get(&id).map(|inode| inode.attr(self.instance)) }
    }

    /// Returns the one directory above a directory; the root is its own.
    pub(super) fn parent(&self, id: FileId) -> Result<FileId> {
        Ok(self.inode(id)?.names.first().map_or(id, |(parent, _)| *parent))
    }

    /// Returns the inode and every directory above it, root last.
    pub(super) fn lineage(&self, id: FileId) -> Vec<FileId> {
        let mut line = vec![id];
        let mut here = id;
        while let Ok(parent) = self.parent(here) {
            if parent == here {
                break;
            }
            line.push(parent);
            here = parent;
        }
        line
    }

    /// Enters a name for an inode into a directory that lacks it.
    pub(super) fn enter(&mut self, dir: FileId, name: &Name, id: FileId, now: Time) -> Result<()> {
        let inode = self.inode_mut(id)?;
        inode.names.insert((dir, name.clone()));
        let is_directory = inode.kind() == Kind::Directory;
        let above = self.inode_mut(dir)?;
        if let Body::Directory(directory) = &mut above.body {
            directory.enter(name.clone(), id);
            directory.directories += u32::from(is_directory);
        }
        above.touch_bytes(now);
        Ok(())
    }

    /// Takes a name out of its directory. Returns what it led to.
    pub(super) fn leave(&mut self, dir: FileId, name: &Name, now: Time) -> Result<FileId> {
        let id = self.lookup(dir, name)?.ok_or_else(|| Error::not_found("the name is not there"))?.id;
        let inode = self.inode_mut(id)?;
        inode.names.remove(&(dir, name.clone()));
        let is_directory = inode.kind() == Kind::Directory;
        let above = self.inode_mut(dir)?;
        if let Body::Directory(directory) = &mut above.body {
            directory.leave(name);
            directory.directories -= u32::from(is_directory);
        }
        above.touch_bytes(now);
        Ok(id)
    }

    /// Lets an existing name lead to another inode; its cookie stays. Returns what it
    /// led to before.
    pub(super) fn redirect(&mut self, dir: FileId, name: &Name, to: FileId, now: Time) -> Result<FileId> {
        let old = self.lookup(dir, name)?.ok_or_else(|| Error::not_found("the name is not there"))?.id;
        let inode = self.inode_mut(old)?;
        inode.names.remove(&(dir, name.clone()));
        let was = u32::from(inode.kind() == Kind::Directory);
        let inode = self.inode_mut(to)?;
        inode.names.insert((dir, name.clone()));
        let is = u32::from(inode.kind() == Kind::Directory);
        let above = self.inode_mut(dir)?;
        if let Body::Directory(directory) = &mut above.body {
            if let Some(slot) = directory.entries.get_mut(name) {
                slot.id = to;
            }
            directory.directories = directory.directories + is - was;
        }
        above.touch_bytes(now);
        Ok(old)
    }

    pub(super) fn lookup(&self, dir: FileId, name: &Name) -> Result<Option<Slot>> {
        Ok(self.directory(dir)?.entries.get(name).copied())
    }

    /// Ends an inode that has neither names nor opens.
    pub(super) fn sweep(&mut self, id: FileId) {
        let gone = self
            .inodes
            .get(&id)
            .is_some_and(|inode| inode.names.is_empty() && inode.opens == 0 && id != FileId::ROOT);
        if gone && let Some(inode) = self.inodes.remove(&id) {
            self.locks.forget(id);
            self.discharge(inode.container, inode.used());
        }
    }

    /// Takes one member and its bytes out of a container; an empty container ends.
    fn discharge(&mut self, container: ContainerId, used: u64) {
        if let Some(policy) = self.containers.get_mut(&container) {
            policy.members -= 1;
            policy.bytes_used -= used;
            if policy.members == 0 {
                self.containers.remove(&container);
            }
        }
    }

    /// Moves members, all of one container, to another, with their bytes.
    pub(super) fn rehome(&mut self, members: &[FileId], to: ContainerId) {
        for id in members {
            let Some(inode) = self.inodes.get_mut(id) else { continue };
            let from = std::mem::replace(&mut inode.container, to);
            let used = inode.used();
            if let Some(policy) = self.containers.get_mut(&to) {
                policy.members += 1;
                policy.bytes_used += used;
            }
            self.discharge(from, used);
        }
    }

    /// Checks that a container may take so many bytes more. `NoSpace` says which limit.
    pub(super) fn room(&self, container: ContainerId, more: u64) -> Result<()> {
        let policy = self.container(container)?;
        let after = policy.bytes_used.saturating_add(more);
        if let Some(max) = policy.bytes_max
            && after > max
        {
            let detail = format!(
                "the container's limit of {max} bytes leaves {}",
                max.saturating_sub(policy.bytes_used)
            );
            return Err(Error::new(ErrorKind::NoSpace, detail)
                .about(container)
                .hint("raise the limit or remove files"));
        }
        if self.used().saturating_add(more) > limits::MODEL_BYTES_MAX {
            return Err(Error::new(ErrorKind::NoSpace, "memory for files is used up"));
        }
        Ok(())
    }

    /// Returns the bytes all files take.
    pub(super) fn used(&self) -> u64 {
        self.containers.values().map(|policy| policy.bytes_used).sum()
    }

    /// Changes a file's bytes: all of the change or, for want of space, nothing.
    pub(super) fn change_bytes<T>(
        &mut self,
        id: FileId,
        now: Time,
        change: impl FnOnce(&mut Content) -> Result<T>,
    ) -> Result<T> {
        self.content(id)?;
        let container = self.inode(id)?.container;
        let limited =
            self.container(container)?.bytes_max.is_some() || self.used() > limits::MODEL_BYTES_MAX / 2;
        let inode = self.inode_mut(id)?;
        let was = inode.used();
        let Body::File(content) = &mut inode.body else { return Err(Error::internal("it was a file")) };
        // Only where a limit may undo the change is it worth a copy of the block map.
        let kept = limited.then(|| content.clone());
        let value = change(content)?;
        let is = inode.used();
        if let Err(full) = self.room(container, is.saturating_sub(was))
            && is > was
            && let (Some(kept), Ok(inode)) = (kept, self.inode_mut(id))
        {
            inode.body = Body::File(kept);
            return Err(full);
        }
        self.inode_mut(id)?.touch_bytes(now);
        if let Some(policy) = self.containers.get_mut(&container) {
            policy.bytes_used = policy.bytes_used + is - was;
        }
        Ok(value)
    }
}
