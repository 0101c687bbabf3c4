//! Attributes, the system's and the user's, and space.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::act::Act;
use super::names::{mode_of, not_yours};
use crate::attr::{Attr, Changed, SetAttr, SetTime, TagEdit, TagMust, TagName};
use crate::error::{Error, ErrorKind, Result};
use crate::form::{At, ChangeKind, Guard, Space, TagPage};
use crate::id::FileId;
use crate::limits;
use crate::rights::Rights;
use crate::time::Time;

impl Act<'_> {
    pub(super) fn set(&mut self, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let id = self.existing(at)?;
        let only_size = SetAttr { size: None, ..set.clone() }.is_empty() && set.size.is_some();
        let mut need = if only_size { Rights::NONE } else { Rights::ATTR_WRITE };
        if set.size.is_some() {
            need |= Rights::WRITE;
        }
        self.need(id, need)?;
        self.guard(guard, Some(id))?;
        self.may_set(id, set)?;
        let before = self.state.before(id);
        if let Some(size) = set.size {
            let now = self.now.wall;
            self.state.change_bytes(id, now, |content| content.truncate(size))?;
        }
        self.apply(id, set)?;
        let kind = if only_size { ChangeKind::Write } else { ChangeKind::Attr };
        self.record(kind, id, None, None);
        let file = self.state.wcc(id, before);
        Ok(Changed { value: self.state.attr(id)?, file, parents: [None, None] })
    }

    /// Checks everything about `set` but its size, so that nothing fails half-way.
    pub(super) fn may_set(&self, id: FileId, set: &SetAttr) -> Result<()> {
        let inode = self.state.inode(id)?;
        if let Some(mode) = set.mode {
            mode_of(mode)?;
        }
        if let Some(size) = set.size {
            self.state.content(id)?;
            if size > limits::FILE_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLarge, "a file has at most 2^62 bytes"));
            }
        }
        if set.owner.is_some_and(|owner| owner != inode.owner) && !self.has(id, Rights::ACL_WRITE)? {
            return Err(not_yours());
        }
        if let Some(group) = set.group
            && group != inode.group
        {
            let caller = &self.call.caller;
            let own = caller.name().id() == inode.owner && caller.is_or_is_in(group);
            if !own && !self.has(id, Rights::ACL_WRITE)? {
                return Err(not_yours());
            }
        }
        let modes = self.state.container(inode.container)?.modes;
        let (is_owners, need) =
            (modes.leave_to_owner(inode.mode, set), modes.need_of_others(inode.kind(), set));
        if (!is_owners && need.is_empty()) || self.owns(id)? {
            return Ok(());
        }
        if is_owners { Err(not_yours()) } else { self.need(id, need).map(drop) }
    }

    /// Sets everything but the size.
    pub(super) fn apply(&mut self, id: FileId, set: &SetAttr) -> Result<()> {
        let now = self.now.wall;
        let inode = self.state.inode_mut(id)?;
        let time = |set: Option<SetTime>, old: Time| set.map_or(old, |time| time.at(now));
        inode.mode = set.mode.unwrap_or(inode.mode);
        inode.owner = set.owner.unwrap_or(inode.owner);
        inode.group = set.group.unwrap_or(inode.group);
        inode.atime = time(set.atime, inode.atime);
        inode.mtime = time(set.mtime, inode.mtime);
        if !set.is_empty() {
            inode.touch(now);
        }
        Ok(())
    }

    pub(super) fn tags(&self, at: &At, from: Option<&TagName>) -> Result<TagPage> {
        let id = self.existing(at)?;
        self.need(id, Rights::ATTR_READ)?;
        let all = &self.state.inode(id)?.tags;
        let mut rest = all.iter().filter(|(name, _)| from.is_none_or(|from| *name > from));
        let tags: Vec<_> = rest
            .by_ref()
            .take(limits::PAGE_ENTRIES_MAX as usize)
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        let next = rest.next().and(tags.last()).map(|(name, _)| name.clone());
        Ok(TagPage { tags, next })
    }

    pub(super) fn tag(&mut self, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let id = self.existing(at)?;
        self.need(id, Rights::ATTR_WRITE)?;
        self.guard(guard, Some(id))?;
        let mut tags = self.state.inode(id)?.tags.clone();
        for edit in edits {
            edit_tag(&mut tags, edit)?;
        }
        let bytes: usize = tags.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum();
        if bytes > limits::TAGS_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "a file has at most 64 KiB of user attributes"));
        }
        let (before, now) = (self.state.before(id), self.now.wall);
        let inode = self.state.inode_mut(id)?;
        inode.tags = tags;
        inode.touch(now);
        self.record(ChangeKind::Attr, id, None, None);
        Ok(Changed { value: (), file: self.state.wcc(id, before), parents: [None, None] })
    }

    pub(super) fn space(&self, at: &At) -> Result<Space> {
        let id = self.existing(at)?;
        self.need_any(id)?;
        let policy = self.state.container(self.state.inode(id)?.container)?;
        let store = (limits::MODEL_BYTES_MAX, limits::MODEL_BYTES_MAX.saturating_sub(self.state.used()));
        let (bytes_total, bytes_free) = match policy.bytes_max {
            Some(max) if max < store.0 => (max, max.saturating_sub(policy.bytes_used).min(store.1)),
            _ => store,
        };
        Ok(Space { bytes_total, bytes_free, files: self.state.inodes.len() as u64 })
    }
}

fn edit_tag(tags: &mut BTreeMap<TagName, Bytes>, edit: &TagEdit) -> Result<()> {
    match edit {
        TagEdit::Put { name, value, must } => {
            if value.len() > limits::TAG_VALUE_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLarge, "a user attribute has at most 60 KiB"));
            }
            match (must, tags.contains_key(name)) {
                (TagMust::BeNew, true) => return Err(Error::exists("the user attribute is there already")),
                (TagMust::Exist, false) => return Err(no_attribute()),
                _ => tags.insert(name.clone(), value.clone()),
            };
        }
        TagEdit::Remove(name) => {
            tags.remove(name).ok_or_else(no_attribute)?;
        }
    }
    Ok(())
}

fn no_attribute() -> Error {
    Error::new(ErrorKind::NoAttribute, "there is no such user attribute")
}
