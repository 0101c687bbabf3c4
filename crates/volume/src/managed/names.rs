//! Making, linking and removing names.

use std::sync::atomic::Ordering;

use weft_core::attr::{Before, Changed, Kind, SetAttr, SetTime};
use weft_core::form::{At, ChangeKind, Entry, Expect, Guard, LinkTarget, New};
use weft_core::{CallerId, Error, ErrorKind, FileId, Name, Result, Rights, limits};

use super::act::{Act, Deed, blank};
use super::table::entries::{self, Link};
use super::table::inodes;
use super::view::{Node, View, hidden};

impl View<'_> {
    /// Returns an entry as listings and changes show it.
    pub(super) fn entry(&self, name: &Name, link: &Link, node: &Node) -> Result<Entry> {
        Ok(Entry {
            name: name.clone(),
            id: node.id,
            kind: link.kind,
            cookie: link.cookie,
            attr: Some(self.attr(node)?),
        })
    }

    /// What is made belongs to its maker; only to a group of its own can it be given.
    fn may_give(&self, set: &SetAttr, group: CallerId) -> Result<()> {
        let caller = &self.call.caller;
        let owner = set.owner.is_none_or(|owner| owner == caller.name().id());
        let group = set.group.is_none_or(|wanted| wanted == group || caller.is_or_is_in(wanted));
        if owner && group { Ok(()) } else { Err(not_yours()) }
    }
}

impl Act<'_, '_> {
    pub(super) fn make(&mut self, at: &At, new: &New, set: &SetAttr, number: u64) -> Result<Changed<Entry>> {
        new.check()?;
        self.make_any(at, new, set, number)
    }

    /// Makes anything, a junction too.
    pub(super) fn make_any(
        &mut self,
        at: &At,
        new: &New,
        set: &SetAttr,
        number: u64,
    ) -> Result<Changed<Entry>> {
        let place = self.view().locate(at)?;
        let (dir, name) = place.above.ok_or_else(taken)?;
        self.view().need(&dir, Rights::INSERT)?;
        if let Some((there, link)) = place.node.zip(place.link) {
            return self.made_before(new, &dir, &name, &there, &link);
        }
        let above = self.before(&dir)?;
        let (node, link) = self.make_in(&dir, &name, new, set, number)?;
        self.record(&Deed {
            place: Some((&dir, &name)),
            ..Deed::of(ChangeKind::Make, "make", &node, (&dir, Rights::INSERT))
        })?;
        self.entered(&dir, above, &name, &link, &node, None)
    }

    /// Repeating an exclusive creation finds what it made.
    fn made_before(
        &mut self,
        new: &New,
        dir: &Node,
        name: &Name,
        there: &Node,
        link: &Link,
    ) -> Result<Changed<Entry>> {
        let again = matches!(new, New::File { verifier: Some(mine) } if there.inode.verifier == Some(*mine));
        if !again {
            return Err(taken());
        }
        let (file, above) = (self.before(there)?, self.before(dir)?);
        self.entered(dir, above, name, link, there, file)
    }

    /// Returns the answer to an act that left a name in a directory.
    pub(super) fn entered(
        &self,
        dir: &Node,
        above: Option<Before>,
        name: &Name,
        link: &Link,
        node: &Node,
        file: Option<Before>,
    ) -> Result<Changed<Entry>> {
        Ok(Changed {
            value: self.view().entry(name, link, node)?,
            file: self.wcc(node.id, file)?,
            parents: [Some(self.wcc(dir.id, above)?), None],
        })
    }

    /// Makes an inode under a name that is free. Rights were checked.
    pub(super) fn make_in(
        &mut self,
        dir: &Node,
        name: &Name,
        new: &New,
        set: &SetAttr,
        number: u64,
    ) -> Result<(Node, Link)> {
        let mut node = self.inode_for(dir, new, set, number)?;
        self.fill(&mut node, new, set)?;
        let link = self.add_to(dir, name, &node)?;
        Ok((node, link))
    }

    /// Returns an inode that may be made in a directory, of which no row says anything yet.
    pub(super) fn inode_for(&self, dir: &Node, new: &New, set: &SetAttr, number: u64) -> Result<Node> {
        let now = self.wall;
        let (kind, mode, verifier) = made_of(new, set)?;
        let view = self.view();
        view.may_give(set, dir.inode.group)?;
        let time = |set: Option<SetTime>| set.map_or(now, |time| time.at(now));
        if kind == Kind::Directory {
            view.must_not_be_too_deep(dir)?;
        }
        let mut inode = blank(kind, view.home(dir)?, now);
        inode.generation = self.volume.generation;
        inode.mode = mode_of(set.mode.unwrap_or(mode))?;
        inode.owner = set.owner.unwrap_or(self.call.caller.name().id());
        inode.group = set.group.unwrap_or(dir.inode.group);
        (inode.atime, inode.mtime) = (time(set.atime), time(set.mtime));
        inode.verifier = verifier;
        inode.parent = if kind == Kind::Directory { dir.serial() } else { 0 };
        Ok(Node { id: FileId::new(self.volume.id, number, inode.generation), inode })
    }

    /// Writes a new inode, and its name.
    pub(super) fn add_to(&mut self, dir: &Node, name: &Name, node: &Node) -> Result<Link> {
        let Node { id, inode } = node;
        inodes::add(self.txn, id.serial(), inode)?;
        let link =
            Link { inode: id.serial(), generation: inode.generation, kind: inode.kind, cookie: id.serial() };
        entries::add(self.txn, dir.serial(), name, &link)?;
        self.touch_names(dir, 1, i64::from(inode.is_directory()))?;
        Ok(link)
    }

    /// Writes what a new inode holds.
    fn fill(&mut self, node: &mut Node, new: &New, set: &SetAttr) -> Result<()> {
        let serial = node.serial();
        match new {
            New::File { .. } => {
                // Without bytes it takes no space, whatever its size: the rest is zeros.
                node.inode.size = set.size.unwrap_or(0);
                check_size(node.inode.size)
            }
            New::Directory => {
                let (boot, now) = (self.volume.boot(), self.wall);
                inodes::begin_tally(self.txn, serial, node.inode.mtime, now, boot)
            }
            New::Symlink(target) => {
                node.inode.size = target.len() as u64;
                inodes::put_target(self.txn, serial, LinkTarget::Symlink(target.clone()))
            }
            New::Reference(to) => inodes::put_target(self.txn, serial, LinkTarget::Reference(to.clone())),
            New::Fifo => Ok(()),
        }
    }

    pub(super) fn link(&mut self, file: &At, to: &At, cookie: u64) -> Result<Changed<Entry>> {
        let view = self.view();
        let mut node = view.existing(file)?;
        view.need(&node, Rights::ATTR_WRITE)?;
        let place = view.locate(to)?;
        let (dir, name) = place.above.ok_or_else(taken)?;
        view.need(&dir, Rights::INSERT)?;
        if node.inode.is_directory() {
            return Err(Error::new(ErrorKind::IsDirectory, "a directory has one name"));
        }
        if place.node.is_some() {
            return Err(taken());
        }
        if view.home(&node)? != view.home(&dir)? {
            return Err(Error::new(ErrorKind::CrossVolume, "hard links stay within a container"));
        }
        view.must_gain_nothing(&node, (&dir, &name))?;
        if node.inode.links == 0 {
            return Err(Error::not_found("the file has no name left"));
        }
        if node.inode.links >= limits::LINKS_MAX {
            return Err(Error::new(ErrorKind::TooManyLinks, "a file has at most 65000 names"));
        }
        let (before, above) = (self.before(&node)?, self.before(&dir)?);
        self.catch_up(&mut node)?;
        self.volume.ties.fetch_add(1, Ordering::AcqRel);
        let (generation, kind) = (node.inode.generation, node.inode.kind);
        let link = Link { inode: node.serial(), generation, kind, cookie };
        entries::add(self.txn, dir.serial(), &name, &link)?;
        self.touch_names(&dir, 1, 0)?;
        node.inode.links += 1;
        self.touch(&mut node)?;
        self.record(&Deed {
            place: Some((&dir, &name)),
            ..Deed::of(ChangeKind::Link, "link", &node, (&dir, Rights::INSERT))
        })?;
        self.entered(&dir, above, &name, &link, &node, before)
    }

    pub(super) fn remove(&mut self, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        let view = self.view();
        let spot = view.spot(at)?;
        let (node, link) = spot.held.ok_or_else(hidden)?;
        let (dir, name) = (spot.dir, spot.name);
        view.need(&dir, Rights::REMOVE)?;
        view.must_not_end(&node)?;
        view.guard(guard, Some(&node))?;
        match (node.inode.is_directory(), kind) {
            (true, Expect::NotDirectory) => {
                return Err(Error::new(ErrorKind::IsDirectory, "it is a directory"));
            }
            (false, Expect::Directory) => return Err(super::locate::not_directory()),
            _ => {}
        }
        view.must_be_empty(&node)?;
        self.remove_name((&dir, &name), node, &link, None)
    }

    /// Removes a name. Rights were checked; `because` says what allowed it, if no entry did.
    pub(super) fn remove_name(
        &mut self,
        (dir, name): (&Node, &Name),
        mut node: Node,
        link: &Link,
        because: Option<&'static str>,
    ) -> Result<Changed<()>> {
        let (before, above) = (self.before(&node)?, self.before(dir)?);
        self.catch_up(&mut node)?;
        self.record(&Deed {
            place: Some((dir, name)),
            because,
            ..Deed::of(ChangeKind::Remove, "remove", &node, (dir, Rights::REMOVE))
        })?;
        entries::remove(self.txn, dir.serial(), name, link)?;
        self.touch_names(dir, -1, -i64::from(node.inode.is_directory()))?;
        self.lose_name(&mut node)?;
        Ok(Changed {
            value: (),
            file: self.wcc(node.id, before)?,
            parents: [Some(self.wcc(dir.id, above)?), None],
        })
    }

    /// Says that an inode has one name less, and lets go of it if that was the last.
    pub(super) fn lose_name(&mut self, node: &mut Node) -> Result<()> {
        node.inode.links = node.inode.links.saturating_sub(1);
        if node.inode.links == 0 { self.release(node) } else { self.touch(node) }
    }
}

impl View<'_> {
    /// Checks that a directory may come to lie in another: what a path cannot lead to is of no
    /// use, and every change is told with all that lies above it.
    pub(super) fn must_not_be_too_deep(&self, into: &Node) -> Result<()> {
        if self.lineage(into)?.len() <= limits::PATH_DEPTH_MAX {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TooLong, "directories lie at most 1024 deep"))
    }

    pub(super) fn must_be_empty(&self, node: &Node) -> Result<()> {
        if !node.inode.is_directory() || entries::is_empty(self.read, node.serial())? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotEmpty, "the directory has entries"))
    }
}

/// Returns what a new inode is, its mode unless another is given, and what its maker
/// chose to find it again by.
fn made_of(new: &New, set: &SetAttr) -> Result<(Kind, u16, Option<[u8; 8]>)> {
    if set.size.is_some_and(|size| size != 0) && !matches!(new, New::File { .. }) {
        return Err(Error::invalid("only a file has a size to set"));
    }
    Ok(match new {
        New::File { verifier } => (Kind::File, 0o644, *verifier),
        New::Directory => (Kind::Directory, 0o755, None),
        New::Symlink(target) => {
            if target.len() > limits::LINK_TARGET_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLong, "a symbolic link has at most 4095 bytes"));
            }
            if target.is_empty() || target.contains(&0) {
                return Err(Error::invalid("a symbolic link is neither empty nor contains NUL"));
            }
            (Kind::Symlink, 0o777, None)
        }
        New::Fifo => (Kind::Fifo, 0o644, None),
        New::Reference(_) => (Kind::Reference, 0o644, None),
    })
}

/// Checks mode bits: the lower 12.
pub(super) fn mode_of(mode: u16) -> Result<u16> {
    if mode & !0o7777 == 0 { Ok(mode) } else { Err(Error::invalid("a mode has 12 bits")) }
}

pub(super) fn not_yours() -> Error {
    Error::not_permitted("only the owner, or who may change the ACL, may do that")
}

pub(super) fn taken() -> Error {
    Error::exists("the name is taken")
}

/// Checks that a file may be this large.
pub(super) fn check_size(size: u64) -> Result<()> {
    if size <= limits::FILE_BYTES_MAX { Ok(()) } else { Err(too_large()) }
}

pub(super) fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "a file has at most 2^62 bytes")
}
