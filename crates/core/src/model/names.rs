//! Making, linking, renaming and removing names, and listing them.

use std::collections::{BTreeMap, BTreeSet};

use super::act::{Act, hidden};
use super::content::Content;
use super::tree::{Body, Directory, Inode, VOLUME};
use crate::attr::{Before, Changed, Kind, SetAttr, SetTime, Wcc};
use crate::error::{Error, ErrorKind, Result};
use crate::form::{
    At, ChangeKind, Cursor, Entry, Expect, Guard, LinkTarget, New, Page, PageMax, Replace, Walked, Want,
};
use crate::id::{CallerId, ContainerId, FileId};
use crate::limits;
use crate::name::Name;
use crate::rights::Rights;

/// Where a rename takes something from or to.
struct Spot {
    dir: FileId,
    name: Name,
    id: Option<FileId>,
}

impl Act<'_> {
    pub(super) fn walk(&self, at: &At, want: Want) -> Result<Walked> {
        let place = self.locate(at)?;
        let id = place.id.ok_or_else(hidden)?;
        self.need_any(id)?;
        let rights = want.rights.then(|| self.rights(id)).transpose()?;
        Ok(Walked { attr: self.state.attr(id)?, rights, parent: place.name.map(|(dir, _)| dir) })
    }

    pub(super) fn list(&self, dir: &At, from: &Cursor, max: PageMax, want: Want) -> Result<Page> {
        let id = self.existing(dir)?;
        if !self.is_directory(id) {
            self.need_any(id)?;
        }
        let directory = self.state.directory(id)?;
        self.need(id, Rights::LIST)?;
        let after = |cookie: u64| directory.order.range(cookie + 1..).map(|(_, name)| name);
        let names: Vec<&Name> = match from {
            Cursor::Start => after(0).take(max.entries() + 1).collect(),
            Cursor::Cookie(u64::MAX) => Vec::new(),
            Cursor::Cookie(cookie) => after(*cookie).take(max.entries() + 1).collect(),
            Cursor::ByName => directory.entries.keys().take(max.entries() + 1).collect(),
            Cursor::After(last) => {
                directory.entries.keys().filter(|name| *name > last).take(max.entries() + 1).collect()
            }
        };
        let more = names.len() > max.entries();
        let mut entries = Vec::new();
        for name in names.into_iter().take(max.entries()) {
            let mut entry = self.entry(id, name)?;
            let shown = want.attr && self.has(entry.id, Rights::ATTR_READ)?;
            entry.attr = entry.attr.filter(|_| shown);
            entries.push(entry);
        }
        let next = entries.last().filter(|_| more).map(|last| match from {
            Cursor::Start | Cursor::Cookie(_) => Cursor::Cookie(last.cookie),
            Cursor::ByName | Cursor::After(_) => Cursor::After(last.name.clone()),
        });
        Ok(Page { entries, next, dir: self.state.attr(id)?, parent: self.state.parent(id)? })
    }

    pub(super) fn entry(&self, dir: FileId, name: &Name) -> Result<Entry> {
        let slot = self.state.lookup(dir, name)?.ok_or_else(hidden)?;
        let attr = self.state.attr(slot.id)?;
        Ok(Entry { name: name.clone(), id: slot.id, kind: attr.kind, cookie: slot.cookie, attr: Some(attr) })
    }

    pub(super) fn make(&mut self, at: &At, new: &New, set: &SetAttr) -> Result<Changed<Entry>> {
        new.check()?;
        let place = self.locate(at)?;
        let taken = || Error::exists("the name is taken");
        let (dir, name) = place.name.ok_or_else(taken)?;
        self.need(dir, Rights::INSERT)?;
        if let Some(there) = place.id {
            let before = self.state.before(there);
            let again = matches!(new, New::File { verifier: Some(mine) } if self.state.inode(there)?.verifier == Some(*mine));
            if !again {
                return Err(taken());
            }
            let file = self.state.wcc(there, before);
            let above = self.state.wcc(dir, self.state.before(dir));
            return Ok(Changed { value: self.entry(dir, &name)?, file, parents: [Some(above), None] });
        }
        let before = self.state.before(dir);
        let id = self.make_in(dir, &name, new, set)?;
        self.record(ChangeKind::Make, id, Some((dir, name.clone())), None);
        let file = self.state.wcc(id, None);
        Ok(Changed {
            value: self.entry(dir, &name)?,
            file,
            parents: [Some(self.state.wcc(dir, before)), None],
        })
    }

    /// Makes an inode under a name that is free. Rights were checked.
    pub(super) fn make_in(&mut self, dir: FileId, name: &Name, new: &New, set: &SetAttr) -> Result<FileId> {
        let now = self.now.wall;
        let above = self.state.inode(dir)?;
        let (container, group) = (above.container, above.group);
        let (body, mode, verifier) = body_of(new, set)?;
        self.may_give(set, group)?;
        let time = |set: Option<SetTime>| set.map_or(now, |time| time.at(now));
        let mode = mode_of(set.mode.unwrap_or(mode))?;
        let id = FileId::new(VOLUME, self.state.number(), 0);
        let inode = Inode {
            id,
            body,
            mode,
            owner: set.owner.unwrap_or(self.call.caller.name().id()),
            group: set.group.unwrap_or(group),
            atime: time(set.atime),
            mtime: time(set.mtime),
            ctime: now,
            btime: now,
            change: 1,
            layout: 0,
            writes: 0,
            container,
            tags: BTreeMap::new(),
            names: Default::default(),
            verifier,
            opens: 0,
        };
        self.state.inodes.insert(id, inode);
        if let Some(policy) = self.state.containers.get_mut(&container) {
            policy.members += 1;
        }
        self.state.enter(dir, name, id, now)?;
        Ok(id)
    }

    /// What is made belongs to its maker; only who may change the policy over the
    /// place may make it anyone else's.
    fn may_give(&self, set: &SetAttr, group: CallerId) -> Result<()> {
        let caller = &self.call.caller;
        let owner = set.owner.is_none_or(|owner| owner == caller.name().id());
        let group = set.group.is_none_or(|wanted| wanted == group || caller.is_or_is_in(wanted));
        if owner && group { Ok(()) } else { Err(not_yours()) }
    }

    pub(super) fn link(&mut self, file: &At, to: &At) -> Result<Changed<Entry>> {
        let id = self.existing(file)?;
        self.need(id, Rights::ATTR_WRITE)?;
        let place = self.locate(to)?;
        let (dir, name) = place.name.ok_or_else(|| Error::exists("the name is taken"))?;
        self.need(dir, Rights::INSERT)?;
        if self.is_directory(id) {
            return Err(Error::new(ErrorKind::IsDirectory, "a directory has one name"));
        }
        if place.id.is_some() {
            return Err(Error::exists("the name is taken"));
        }
        let inode = self.state.inode(id)?;
        if inode.container != self.state.inode(dir)?.container {
            return Err(Error::new(ErrorKind::CrossVolume, "hard links stay within a container"));
        }
        self.must_gain_nothing(id, (dir, &name))?;
        if inode.names.is_empty() {
            return Err(Error::not_found("the file has no name left"));
        }
        if inode.names.len() >= limits::LINKS_MAX as usize {
            return Err(Error::new(ErrorKind::TooManyLinks, "a file has at most 65000 names"));
        }
        let (file, above, now) = (self.state.before(id), self.state.before(dir), self.now.wall);
        self.state.enter(dir, &name, id, now)?;
        self.state.inode_mut(id)?.touch(now);
        self.record(ChangeKind::Link, id, Some((dir, name.clone())), None);
        Ok(Changed {
            value: self.entry(dir, &name)?,
            file: self.state.wcc(id, file),
            parents: [Some(self.state.wcc(dir, above)), None],
        })
    }

    pub(super) fn remove(&mut self, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        let (dir, name, id) = self.named(at)?;
        let id = id.ok_or_else(hidden)?;
        self.need(dir, Rights::REMOVE)?;
        self.guard(guard, Some(id))?;
        match (self.is_directory(id), kind) {
            (true, Expect::NotDirectory) => {
                return Err(Error::new(ErrorKind::IsDirectory, "it is a directory"));
            }
            (false, Expect::Directory) => {
                return Err(Error::new(ErrorKind::NotDirectory, "it is not a directory"));
            }
            _ => {}
        }
        self.must_be_empty(id)?;
        let (file, above, now) = (self.state.before(id), self.state.before(dir), self.now.wall);
        self.record(ChangeKind::Remove, id, Some((dir, name.clone())), None);
        self.state.leave(dir, &name, now)?;
        self.state.inode_mut(id)?.touch(now);
        self.state.sweep(id);
        Ok(Changed {
            value: (),
            file: self.state.wcc(id, file),
            parents: [Some(self.state.wcc(dir, above)), None],
        })
    }

    fn must_be_empty(&self, id: FileId) -> Result<()> {
        match self.state.directory(id) {
            Ok(directory) if !directory.entries.is_empty() => {
                Err(Error::new(ErrorKind::NotEmpty, "the directory has entries"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn rename(&mut self, from: &At, to: &At, how: Replace, guard: &Guard) -> Result<Changed<()>> {
        let (dir, name, id) = self.named(from)?;
        let moved = id.ok_or_else(hidden)?;
        let from = Spot { dir, name, id };
        let (dir, name, id) = self.named(to)?;
        let to = Spot { dir, name, id };
        self.may_rename(&from, &to, how)?;
        self.guard(guard, to.id)?;
        match (how, to.id) {
            (Replace::Never, Some(_)) => return Err(Error::exists("the name is taken")),
            (Replace::Exchange, None) => return Err(hidden()),
            (_, Some(there)) if there == moved => {
                let file = self.state.wcc(moved, self.state.before(moved));
                return Ok(Changed { value: (), file, parents: self.parents(&from, &to, None, None) });
            }
            _ => {}
        }
        self.must_gain_nothing(moved, (to.dir, &to.name))?;
        if let (Replace::Exchange, Some(there)) = (how, to.id) {
            self.must_gain_nothing(there, (from.dir, &from.name))?;
        }
        self.must_not_loop(moved, to.dir)?;
        let before = (self.state.before(moved), self.state.before(from.dir), self.state.before(to.dir));
        let place = Some((from.dir, from.name.clone()));
        match (how, to.id) {
            (Replace::Exchange, Some(there)) => self.exchange(&from, moved, &to, there)?,
            _ => self.move_over(&from, moved, &to)?,
        }
        self.record(ChangeKind::Rename, moved, place, Some((to.dir, to.name.clone())));
        if let Some(there) = to.id
            && self.state.inode(there).is_ok_and(|inode| !inode.names.is_empty())
        {
            self.record(ChangeKind::Attr, there, None, None);
        }
        Ok(Changed {
            value: (),
            file: self.state.wcc(moved, before.0),
            parents: self.parents(&from, &to, before.1, before.2),
        })
    }

    fn parents(&self, from: &Spot, to: &Spot, a: Option<Before>, b: Option<Before>) -> [Option<Wcc>; 2] {
        let a = a.or_else(|| self.state.before(from.dir));
        let b = b.or_else(|| self.state.before(to.dir));
        let second = (from.dir != to.dir).then(|| self.state.wcc(to.dir, b));
        [Some(self.state.wcc(from.dir, a)), second]
    }

    /// Within a container `rename` is enough; otherwise, or without it, `remove` there
    /// and `insert` here. What is replaced is removed from where it was.
    fn may_rename(&self, from: &Spot, to: &Spot, how: Replace) -> Result<()> {
        let same = self.state.inode(from.dir)?.container == self.state.inode(to.dir)?.container;
        let by_rename = same && self.has(from.dir, Rights::RENAME)? && self.has(to.dir, Rights::RENAME)?;
        if !by_rename {
            self.need(from.dir, Rights::REMOVE)?;
            self.need(to.dir, Rights::INSERT)?;
            if how == Replace::Exchange {
                self.need(from.dir, Rights::INSERT)?;
            }
        }
        if to.id.is_some() && how != Replace::Never && !(by_rename && how == Replace::Exchange) {
            self.need(to.dir, Rights::REMOVE)?;
        }
        Ok(())
    }

    fn must_not_loop(&self, moved: FileId, into: FileId) -> Result<()> {
        if self.is_directory(moved) && self.state.lineage(into).contains(&moved) {
            return Err(Error::new(ErrorKind::Loop, "a directory cannot come to lie below itself"));
        }
        Ok(())
    }

    fn move_over(&mut self, from: &Spot, moved: FileId, to: &Spot) -> Result<()> {
        if let Some(there) = to.id {
            match (self.is_directory(moved), self.is_directory(there)) {
                (true, false) => {
                    return Err(Error::new(ErrorKind::NotDirectory, "a directory replaces only a directory"));
                }
                (false, true) => {
                    return Err(Error::new(ErrorKind::IsDirectory, "a file does not replace a directory"));
                }
                _ => self.must_be_empty(there)?,
            }
        }
        let moves = self.moves(moved, from.dir, to.dir)?;
        let now = self.now.wall;
        match to.id {
            Some(there) => {
                self.state.leave(from.dir, &from.name, now)?;
                self.state.redirect(to.dir, &to.name, moved, now)?;
                self.state.inode_mut(there)?.touch(now);
                self.state.sweep(there);
            }
            None => {
                self.state.leave(from.dir, &from.name, now)?;
                self.state.enter(to.dir, &to.name, moved, now)?;
            }
        }
        self.state.inode_mut(moved)?.touch(now);
        self.rehome(moves);
        Ok(())
    }

    fn exchange(&mut self, from: &Spot, moved: FileId, to: &Spot, there: FileId) -> Result<()> {
        self.must_not_loop(there, from.dir)?;
        let moves = (self.moves(moved, from.dir, to.dir)?, self.moves(there, to.dir, from.dir)?);
        let now = self.now.wall;
        self.state.redirect(from.dir, &from.name, there, now)?;
        self.state.redirect(to.dir, &to.name, moved, now)?;
        self.state.inode_mut(moved)?.touch(now);
        self.state.inode_mut(there)?.touch(now);
        self.rehome(moves.0);
        self.rehome(moves.1);
        Ok(())
    }

    /// Returns the members that change container when something moves between
    /// directories, and the container they come to. `CrossVolume` if they are too many
    /// for one transaction or a hard link would be torn.
    fn moves(&self, moved: FileId, from: FileId, to: FileId) -> Result<Option<(Vec<FileId>, ContainerId)>> {
        let (old, new) = (self.state.inode(from)?.container, self.state.inode(to)?.container);
        if old == new || self.state.inode(moved)?.container != old {
            return Ok(None);
        }
        let members = self.members_below(moved)?;
        if members.len() > limits::SPLIT_MEMBERS_MAX {
            return Err(Error::new(ErrorKind::CrossVolume, "too much to move between containers at once")
                .hint("copy it and remove the original"));
        }
        let bytes = members.iter().filter_map(|id| self.state.inodes.get(id)).map(Inode::used).sum();
        self.state.room(new, bytes)?;
        Ok(Some((members, new)))
    }

    fn rehome(&mut self, moves: Option<(Vec<FileId>, ContainerId)>) {
        let Some((members, to)) = moves else { return };
        let from = members.first().and_then(|id| self.state.inodes.get(id)).map(|inode| inode.container);
        self.state.rehome(&members, to);
        if let Some(from) = from {
            self.begin_epoch(from);
        }
    }

    pub(super) fn target(&self, at: &At) -> Result<LinkTarget> {
        let id = self.existing(at)?;
        self.need_any(id)?;
        match &self.state.inode(id)?.body {
            Body::Symlink(target) => Ok(LinkTarget::Symlink(target.clone())),
            Body::Reference(reference) => Ok(LinkTarget::Reference(reference.clone())),
            _ => Err(Error::invalid("it is neither a symbolic link nor a reference")),
        }
    }
}

/// Returns what a new inode is made of, its mode unless another is given, and what
/// its maker chose to find it again by.
fn body_of(new: &New, set: &SetAttr) -> Result<(Body, u16, Option<[u8; 8]>)> {
    if set.size.is_some_and(|size| size != 0) && !matches!(new, New::File { .. }) {
        return Err(Error::invalid("only a file has a size to set"));
    }
    Ok(match new {
        New::File { verifier } => {
            let mut content = Content::default();
            content.truncate(set.size.unwrap_or(0))?;
            (Body::File(content), 0o644, *verifier)
        }
        New::Directory => (Body::Directory(Directory::default()), 0o755, None),
        New::Symlink(target) => {
            if target.len() > limits::LINK_TARGET_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLong, "a symbolic link has at most 4095 bytes"));
            }
            if target.is_empty() || target.contains(&0) {
                return Err(Error::invalid("a symbolic link is neither empty nor contains NUL"));
            }
            (Body::Symlink(target.clone()), 0o777, None)
        }
        New::Fifo => (Body::Fifo, 0o644, None),
        New::Reference(reference) => (Body::Reference(reference.clone()), 0o644, None),
    })
}

/// Checks mode bits: the lower 12.
pub(super) fn mode_of(mode: u16) -> Result<u16> {
    if mode & !0o7777 == 0 { Ok(mode) } else { Err(Error::invalid("a mode has 12 bits")) }
}

pub(super) fn not_yours() -> Error {
    Error::not_permitted("only the owner, or who may change the ACL, may do that")
}

impl Act<'_> {
    /// Returns the inode and everything below it of the same container. `CrossVolume`
    /// if one of them has a name elsewhere, with the names.
    pub(super) fn members_below(&self, top: FileId) -> Result<Vec<FileId>> {
        let container = self.state.inode(top)?.container;
        let mut members = BTreeSet::from([top]);
        let mut todo = vec![top];
        while let Some(id) = todo.pop() {
            let Ok(directory) = self.state.directory(id) else { continue };
            for slot in directory.entries.values() {
                if self.state.inode(slot.id)?.container == container && members.insert(slot.id) {
                    todo.push(slot.id);
                }
            }
        }
        self.no_links_outside(top, &members)?;
        Ok(members.into_iter().collect())
    }

    fn no_links_outside(&self, top: FileId, members: &BTreeSet<FileId>) -> Result<()> {
        let mut outside = Vec::new();
        for id in members {
            let inode = self.state.inode(*id)?;
            if inode.kind() == Kind::Directory {
                continue;
            }
            let away = inode.names.iter().filter(|(dir, _)| !members.contains(dir));
            // The top's own name may lie outside: it is the one that moves.
            outside.extend(away.skip(usize::from(*id == top)).map(|(_, name)| name.to_string()));
        }
        if outside.is_empty() {
            return Ok(());
        }
        outside.truncate(limits::REFUSAL_NAMES_MAX);
        let detail = format!("files have names outside what would be moved: {}", outside.join(", "));
        Err(Error::new(ErrorKind::CrossVolume, detail))
    }
}
