//! Attributes, the system's and the user's, links' targets, and space.

use bytes::Bytes;
use weft_core::attr::{Attr, Changed, Kind, SetAttr, SetTime, TagEdit, TagMust, TagName};
use weft_core::form::{At, ChangeKind, Guard, LinkTarget, Space, TagPage};
use weft_core::{Error, ErrorKind, Result, Rights, Time, limits};

use super::act::{Act, Deed};
use super::names::{check_size, mode_of, not_yours};
use super::table::inodes::{self, Layout};
use super::table::{containers, tags};
use super::view::{Node, View};

impl View<'_> {
    /// Checks everything about `set` for an existing inode, so that nothing fails half-way.
    pub(super) fn may_set(&self, node: &Node, set: &SetAttr) -> Result<()> {
        let only_size = set.size.is_some() && SetAttr { size: None, ..set.clone() }.is_empty();
        let mut need = if only_size { Rights::NONE } else { Rights::ATTR_WRITE };
        if set.size.is_some() {
            need |= Rights::WRITE;
        }
        self.need(node, need)
    }

    pub(super) fn may_change(&self, node: &Node, set: &SetAttr) -> Result<()> {
        if let Some(mode) = set.mode {
            mode_of(mode)?;
        }
        if let Some(size) = set.size {
            must_have_bytes(node)?;
            check_size(size)?;
        }
        let inode = &node.inode;
        if set.owner.is_some_and(|owner| owner != inode.owner) && !self.has(node, Rights::ACL_WRITE)? {
            return Err(not_yours());
        }
        if let Some(group) = set.group
            && group != inode.group
        {
            let caller = &self.call.caller;
            let own = caller.name().id() == inode.owner && caller.is_or_is_in(group);
            if !own && !self.has(node, Rights::ACL_WRITE)? {
                return Err(not_yours());
            }
        }
        let modes = self.governing(inode.container)?.rules.modes;
        let (is_owners, need) =
            (modes.leave_to_owner(inode.mode, set), modes.need_of_others(inode.kind, set));
        if (!is_owners && need.is_empty()) || self.owns(node)? {
            return Ok(());
        }
        if is_owners { Err(not_yours()) } else { self.need(node, need) }
    }

    pub(super) fn tags(&self, at: &At, from: Option<&TagName>) -> Result<TagPage> {
        let node = self.existing(at)?;
        self.need(&node, Rights::ATTR_READ)?;
        let mut rest = tags::after(self.read, node.serial(), from);
        let tags: Vec<(TagName, Bytes)> =
            rest.by_ref().take(limits::PAGE_ENTRIES_MAX as usize).collect::<Result<_>>()?;
        let more = rest.next().transpose()?.is_some();
        let next = tags.last().filter(|_| more).map(|(name, _)| name.clone());
        Ok(TagPage { tags, next })
    }

    pub(super) fn target(&self, at: &At) -> Result<LinkTarget> {
        let node = self.existing(at)?;
        self.need_any(&node)?;
        match node.inode.kind {
            Kind::Symlink | Kind::Reference => inodes::target(self.read, node.serial()),
            _ => Err(Error::invalid("it is neither a symbolic link nor a reference")),
        }
    }

    pub(super) fn space(&self, at: &At) -> Result<Space> {
        let node = self.existing(at)?;
        self.need_any(&node)?;
        let container = self.home(&node)?;
        let max = self.governing(container)?.rules.bytes_max;
        if self.drops_into(&node)? {
            let bytes = max.unwrap_or(0);
            return Ok(Space { bytes_total: bytes, bytes_free: bytes, files: 0 });
        }
        let store = self.volume.store.space()?;
        let files = inodes::count(self.read)?;
        let max = max.filter(|max| *max < store.bytes_total);
        let Some(max) = max else {
            return Ok(Space { bytes_total: store.bytes_total, bytes_free: store.bytes_free, files });
        };
        let left = max.saturating_sub(containers::used(self.read, container)?);
        Ok(Space { bytes_total: max, bytes_free: left.min(store.bytes_free), files })
    }
}

impl Act<'_, '_> {
    /// Sets attributes, and the size of a file whose bytes are not an object, or nothing.
    pub(super) fn set(&mut self, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let view = self.view();
        let mut node = view.existing(at)?;
        view.may_set(&node, set)?;
        view.guard(guard, Some(&node))?;
        view.may_change(&node, set)?;
        let before = self.before(&node)?;
        match set.size {
            Some(0) => self.empty(&mut node)?,
            Some(size) => self.resize_inline(&mut node, size)?,
            None => {}
        }
        self.apply(&mut node, set)?;
        self.finish_set(&node, set, before)
    }

    /// Records that attributes were set, and returns the answer.
    pub(super) fn finish_set(
        &mut self,
        node: &Node,
        set: &SetAttr,
        before: Option<weft_core::attr::Before>,
    ) -> Result<Changed<Attr>> {
        let only_size = SetAttr { size: None, ..set.clone() }.is_empty() && set.size.is_some();
        let (kind, right) = if only_size {
            (ChangeKind::Write, Rights::WRITE)
        } else {
            (ChangeKind::Attr, Rights::ATTR_WRITE)
        };
        self.record(&Deed::of(kind, "set", node, (node, right)))?;
        let file = self.wcc(node.id, before)?;
        Ok(Changed { value: self.attr(node)?, file, parents: [None, None] })
    }

    /// Cuts or extends an inline file.
    pub(super) fn resize_inline(&mut self, node: &mut Node, size: u64) -> Result<()> {
        if node.inode.layout != Layout::Inline {
            return Err(Error::new(ErrorKind::Conflict, "the file has become a large one meanwhile"));
        }
        let bytes = inodes::inline(self.txn, node.serial())?;
        if size < bytes.len() as u64 {
            inodes::put_inline(self.txn, node.serial(), &bytes[..size as usize])?;
            self.use_bytes(node.inode.container, node.inode.used, size)?;
            node.inode.used = size;
        }
        node.inode.size = size;
        node.inode.rewritten(self.wall, self.volume.boot());
        self.put(node)
    }

    /// Sets everything but the size.
    pub(super) fn apply(&mut self, node: &mut Node, set: &SetAttr) -> Result<()> {
        if (SetAttr { size: None, ..set.clone() }).is_empty() {
            return Ok(());
        }
        let now = self.wall;
        let time = |set: Option<SetTime>, old: Time| set.map_or(old, |time| time.at(now));
        let inode = &mut node.inode;
        inode.mode = set.mode.unwrap_or(inode.mode);
        inode.owner = set.owner.unwrap_or(inode.owner);
        inode.group = set.group.unwrap_or(inode.group);
        inode.atime = time(set.atime, inode.atime);
        if !inode.is_directory() {
            inode.mtime = time(set.mtime, inode.mtime);
            return self.touch(node);
        }
        let mut tally = inodes::tally(self.txn, node.serial())?;
        (tally.mtime, tally.ctime) = (time(set.mtime, tally.mtime), now);
        inodes::touch_attributes(self.txn, node.serial(), &tally)?;
        self.put(node)
    }

    pub(super) fn tag(&mut self, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let view = self.view();
        let mut node = view.existing(at)?;
        view.need(&node, Rights::ATTR_WRITE)?;
        view.guard(guard, Some(&node))?;
        let before = self.before(&node)?;
        for edit in edits {
            self.edit_tag(node.serial(), edit)?;
        }
        let mut bytes = 0;
        for tag in tags::after(self.txn, node.serial(), None) {
            let (name, value) = tag?;
            bytes += name.as_bytes().len() + value.len();
        }
        if bytes > limits::TAGS_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "a file has at most 64 KiB of user attributes"));
        }
        self.touch(&mut node)?;
        self.record(&Deed {
            bytes: bytes as u64,
            ..Deed::of(ChangeKind::Attr, "tag", &node, (&node, Rights::ATTR_WRITE))
        })?;
        Ok(Changed { value: (), file: self.wcc(node.id, before)?, parents: [None, None] })
    }

    fn edit_tag(&mut self, inode: u64, edit: &TagEdit) -> Result<()> {
        let no_attribute = || Error::new(ErrorKind::NoAttribute, "there is no such user attribute");
        match edit {
            TagEdit::Put { name, value, must } => {
                if value.len() > limits::TAG_VALUE_BYTES_MAX {
                    return Err(Error::new(ErrorKind::TooLarge, "a user attribute has at most 60 KiB"));
                }
                match (must, tags::find(self.txn, inode, name)?.is_some()) {
                    (TagMust::BeNew, true) => Err(Error::exists("the user attribute is there already")),
                    (TagMust::Exist, false) => Err(no_attribute()),
                    _ => tags::put(self.txn, inode, name, value),
                }
            }
            TagEdit::Remove(name) => {
                tags::find(self.txn, inode, name)?.ok_or_else(no_attribute)?;
                tags::remove(self.txn, inode, name)
            }
        }
    }
}

/// Checks that an inode is a file with bytes.
pub(super) fn must_have_bytes(node: &Node) -> Result<()> {
    match node.inode.kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::new(ErrorKind::IsDirectory, "it is a directory")),
        _ => Err(Error::invalid("it is not a file with bytes of its own")),
    }
}
