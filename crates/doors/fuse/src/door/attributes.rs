//! Requests on attributes, rights and space.

use std::sync::Arc;

use rustix::io::Errno;
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, Shape, SyncScope, Want};
use weft_core::{CallerId, Error, ErrorKind, Rights, Time, limits};

use super::{Door, Outcome, done, permissions, refuse, without_set_id};
use crate::abi::request::SetAttrIn;
use crate::abi::{fattr, mode, reply};
use crate::ahead::Moving;
use crate::errno::Failure;

/// Bytes in one of the blocks that `statfs` counts.
const SPACE_BLOCK_BYTES: u32 = 4096;

impl Door {
    pub(super) async fn get_attr(self: &Arc<Self>, node: u64, handle: Option<u64>) -> Outcome {
        let attr = self.attr(node, handle).await?;
        let told = self.mounted.nodes.told(node, &attr);
        self.make_way(node, told).await;
        Ok(self.attributes(&attr))
    }

    /// Returns a node's attributes as they were told a moment ago, or asks for them: through the open file if one is
    /// named, since that one has not got to have a name any more.
    async fn attr(&self, node: u64, handle: Option<u64>) -> Result<Attr, Failure> {
        if let Some(attr) = self.just_told(node) {
            return Ok(attr);
        }
        if let Some(handle) = handle {
            return Ok(self.handles.find(handle)?.file.attr(&self.call()).await?);
        }
        match self.fs.walk(&self.call(), &self.at(node)?, Want::default()).await {
            Ok(walked) => Ok(walked.attr),
            // An open file or directory outlives its names.
            Err(error) if error.kind() == ErrorKind::Stale => match self.handles.of_node(node) {
                Some(handle) => Ok(handle.file.attr(&self.call()).await?),
                None => self.mounted.nodes.removed(node).ok_or(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn set_attr(self: &Arc<Self>, node: u64, asked: &SetAttrIn) -> Outcome {
        let at = self.at(node)?;
        let mut set = self.owners_asked(node, asked).await?;
        let _moving = set.size.map(|_| Moving::new(self.mounted.nodes.moves(node)));
        let mut attr = None;
        // An open file may be cut by whoever opened it, whatever its mode says now.
        if let (Some(size), Some(handle)) = (set.size, asked.handle) {
            let handle = self.handles.find(handle)?;
            let changing = self.mounted.fresh.change(node);
            let change = handle.file.shape(&self.change(), Shape::Truncate(size)).await?;
            self.changed(changing, node, &change);
            attr = change.after;
            set.size = None;
        }
        if !set.is_empty() {
            attr = Some(self.set(node, &at, &set).await?);
        }
        let attr = match attr {
            Some(attr) => attr,
            None => self.attr(node, asked.handle).await?,
        };
        if asked.valid & fattr::KILL_SUIDGID != 0 && asked.valid & fattr::MODE == 0 {
            let cleared = self.clear_set_id(node, &attr).await;
            return Ok(self.attributes(&cleared.unwrap_or(attr)));
        }
        Ok(self.attributes(&attr))
    }

    /// Sets attributes. What was removed while it is open has them in this mount alone.
    async fn set(self: &Arc<Self>, node: u64, at: &At, set: &SetAttr) -> Result<Attr, Failure> {
        let changing = self.mounted.fresh.change(node);
        match self.fs.set(&self.change(), at, set, &Guard::NONE).await {
            Ok(change) => {
                self.changed(changing, node, &change.file);
                if may_narrow(set, &change.value) {
                    self.doubt_passing([node]);
                }
                Ok(change.value)
            }
            // Whose it is, the node alone says.
            Err(error) if error.kind() == ErrorKind::Stale && set.owner.or(set.group).is_none() => {
                self.mounted.nodes.set_removed(node, set, self.mounted.clock.now()).ok_or(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what is to be set: no owner and no group where those shown are asked for. Others than who uses a
    /// shared mount are refused, and any of a mount that one user has (request-form law 17).
    async fn owners_asked(&self, node: u64, asked: &SetAttrIn) -> Result<SetAttr, Failure> {
        let set = wanted(asked);
        if asked.valid & (fattr::UID | fattr::GID) == 0 {
            return Ok(set);
        }
        let attr = self.attr(node, asked.handle).await?;
        let shown = self.attr_out(&attr);
        let other = |bit: u32, id: u32, shown: u32| (asked.valid & bit != 0 && id != shown).then_some(id);
        let owner = other(fattr::UID, asked.uid, shown.uid).map(|uid| self.user_of(uid)).transpose()?;
        let group = other(fattr::GID, asked.gid, shown.gid).map(|gid| self.group_of(gid)).transpose()?;
        // The kernel leaves it to the file system to take the set-id bits from what is given away.
        let given = (owner.is_some() || group.is_some()) && attr.kind != Kind::Directory;
        let mode = set.mode.or_else(|| without_set_id(attr.mode).filter(|_| given));
        Ok(SetAttr { owner, group, mode, ..set })
    }

    fn user_of(&self, uid: u32) -> Result<CallerId, Failure> {
        self.must_be_shared()?;
        let unknown = || Error::not_permitted("nobody uses this mount under that uid");
        Ok(self.mounted.owners.of_uid(uid).ok_or_else(|| unknown().hint("weft login --mount"))?)
    }

    fn group_of(&self, gid: u32) -> Result<CallerId, Failure> {
        self.must_be_shared()?;
        if gid == self.gid {
            return Ok(self.calls.who().0.name().id());
        }
        let unknown = || Error::not_permitted("nobody uses this mount under that gid, or more than one");
        Ok(self.mounted.owners.of_gid(gid).ok_or_else(unknown)?)
    }

    fn must_be_shared(&self) -> Result<(), Failure> {
        let refused = || Error::not_permitted("a mount of one user changes no owner and no group");
        if self.mounted.is_shared { Ok(()) } else { Err(refused().hint("weft mount --shared").into()) }
    }

    /// Clears set-id bits, as a write or a cut has to, and returns what came of it. Those who
    /// may write and not change attributes leave them, and that fails nothing: the bytes are
    /// changed already, and here the bits have no effect.
    pub(super) async fn clear_set_id(self: &Arc<Self>, node: u64, attr: &Attr) -> Option<Attr> {
        let set = SetAttr { mode: Some(without_set_id(attr.mode)?), ..SetAttr::default() };
        let changing = self.mounted.fresh.change(node);
        match self.fs.set(&self.change(), &At::id(attr.id), &set, &Guard::NONE).await {
            Ok(change) => {
                self.changed(changing, node, &change.file);
                Some(change.value)
            }
            Err(error) => {
                tracing::debug!(node, %error, "set-id bits stay");
                None
            }
        }
    }

    pub(super) async fn access(&self, node: u64, mask: u32) -> Outcome {
        let want = Want { attr: true, rights: true };
        let walked = self.fs.walk(&self.call(), &self.at(node)?, want).await?;
        let rights = walked.rights.unwrap_or(Rights::NONE);
        let needed = needed_for(mask, walked.attr.kind);
        // What cannot be run has no right to it either, only its mode's bit.
        let runs = walked.attr.kind != Kind::Fifo || mask & 1 == 0 || walked.attr.mode & 0o111 != 0;
        // Who only asks is told by the number: what failed before stays what failed last.
        if rights.contains(needed) && runs { done() } else { refuse(Errno::ACCESS) }
    }

    pub(super) async fn stat_fs(&self, node: u64) -> Outcome {
        let space = match self.fs.space(&self.call(), &self.at(node)?).await {
            Err(error) if self.is_removed(node, &error) => self.fs.space(&self.call(), &self.root()).await?,
            space => space?,
        };
        let blocks = |bytes: u64| bytes / u64::from(SPACE_BLOCK_BYTES);
        // Files are limited by their bytes alone; what is shown as free is that many.
        let files_free = blocks(space.bytes_free);
        Ok(reply::statfs(
            SPACE_BLOCK_BYTES,
            blocks(space.bytes_total),
            blocks(space.bytes_free),
            space.files.saturating_add(files_free),
            files_free,
            limits::NAME_BYTES_MAX as u32,
        )
        .into())
    }

    pub(super) async fn sync_directory(&self, node: u64) -> Outcome {
        match self.fs.sync(&self.durable(), &self.at(node)?, SyncScope::File).await {
            // What is left of it is that it was removed: the log says so, whatever is synced.
            Err(error) if self.is_removed(node, &error) => {
                self.fs.sync(&self.durable(), &self.root(), SyncScope::File).await?
            }
            synced => synced?,
        };
        done()
    }

    /// Returns whether what failed did so because a directory was removed while it is open.
    fn is_removed(&self, node: u64, error: &Error) -> bool {
        error.kind() == ErrorKind::Stale && self.mounted.nodes.removed(node).is_some()
    }
}

/// Returns whether what was set of something may be that fewer may pass it.
fn may_narrow(set: &SetAttr, attr: &Attr) -> bool {
    let mode = set.mode.map(u32::from);
    let searched = mode.is_some_and(|mode| mode & mode::SEARCH != mode::SEARCH);
    attr.kind == Kind::Directory && (searched || set.owner.is_some() || set.group.is_some())
}

/// Returns what the file system is to set.
fn wanted(asked: &SetAttrIn) -> SetAttr {
    let has = |bit: u32| asked.valid & bit != 0;
    let time = |given: u32, now: u32, (seconds, nanos): (u64, u32)| match (has(now), has(given)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::At(Time::from_unix(seconds as i64, nanos))),
        (false, false) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then(|| permissions(asked.mode)),
        size: has(fattr::SIZE).then_some(asked.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime),
        ..SetAttr::default()
    }
}

/// Returns the rights that `access(2)` asks for with a mask: read 4, write 2, execute 1.
fn needed_for(mask: u32, kind: Kind) -> Rights {
    let directory = kind == Kind::Directory;
    let bits = [
        (4, if directory { Rights::LIST } else { Rights::READ }),
        (2, if directory { Rights::INSERT } else { Rights::WRITE }),
        (1, if directory { Rights::TRAVERSE } else { Rights::EXECUTE }),
    ];
    let mut needed = Rights::NONE;
    for (bit, right) in bits {
        if mask & bit != 0 {
            needed |= right;
        }
    }
    needed
}
