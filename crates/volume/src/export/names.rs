//! Making, linking and removing names.

use std::ops::ControlFlow;

use weft_core::attr::{Before, Changed, Kind, SetAttr, SetTime};
use weft_core::form::{At, Entry, Expect, Guard, LinkTarget, New, Reference};
use weft_core::{Error, ErrorKind, Name, Result, Rights, limits};
use weft_sys::beneath::{Facts, Fresh};

use super::audit::Deed;
use super::locate::not_directory;
use super::opens::LastName;
use super::stages::{is_reserved, is_staged_by};
use super::view::{Node, View, hidden, shown_kind};

/// Where a listing goes on after an entry that was made just now is not known: only the kernel gives
/// cookies out, while it lists.
const COOKIE_UNKNOWN: u64 = u64::MAX;

impl View<'_> {
    /// What is made belongs to the node's user: it cannot be given to anybody else.
    pub(super) fn may_give(&self, set: &SetAttr, dir: &Node) -> Result<()> {
        let shown = self.attr(dir);
        let caller = self.call.caller.name().id();
        let owner = set.owner.is_none_or(|owner| owner == self.volume.owner || owner == caller);
        let group = set.group.is_none_or(|group| group == self.volume.owner || group == shown.group);
        if owner && group { Ok(()) } else { Err(not_given()) }
    }

    pub(super) fn make(&self, at: &At, new: &New, set: &SetAttr) -> Result<(Changed<Entry>, Deed)> {
        new.check()?;
        let place = self.locate(at)?;
        let (dir, name) = place.above.ok_or_else(taken)?;
        self.need(&dir, Rights::INSERT)?;
        if let Some(there) = place.node {
            return self.made_before(new, &dir, &name, there);
        }
        let above = self.before(&dir);
        let node = self.make_in(&dir, &name, new, set)?;
        let deed = Deed::of(self, "make", &node, (&dir, Rights::INSERT)).at(&dir, &name).of_file(&node);
        let deed = deed.fresh(&node);
        Ok((self.entered(&dir, above, &name, &node, None), deed))
    }

    /// Repeating an exclusive creation finds what it made.
    fn made_before(&self, new: &New, dir: &Node, name: &Name, there: Node) -> Result<(Changed<Entry>, Deed)> {
        let mine = match new {
            New::File { verifier } => *verifier,
            _ => None,
        };
        if mine.is_none() || self.volume.verifiers.get(&there.id) != mine {
            return Err(taken());
        }
        let (file, above) = (self.before(&there), self.before(dir));
        let deed = Deed::of(self, "make", &there, (dir, Rights::INSERT)).at(dir, name);
        Ok((self.entered(dir, above, name, &there, Some(file)), deed))
    }

    /// Returns the answer to an act that left a name in a directory.
    pub(super) fn entered(
        &self,
        dir: &Node,
        above: Before,
        name: &Name,
        node: &Node,
        file: Option<Before>,
    ) -> Changed<Entry> {
        let attr = Some(self.attr(node));
        Changed {
            value: Entry { name: name.clone(), id: node.id, kind: node.kind, cookie: COOKIE_UNKNOWN, attr },
            file: self.wcc(node, file),
            parents: [Some(self.wcc(dir, Some(above))), None],
        }
    }

    /// Makes something under a name that is free. Rights were checked.
    pub(super) fn make_in(&self, dir: &Node, name: &Name, new: &New, set: &SetAttr) -> Result<Node> {
        must_be_free(name)?;
        self.may_give(set, dir)?;
        let (fresh, mode, verifier) = made_of(new, set)?;
        if dir.path.len() + name.as_bytes().len() >= limits::PATH_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "a path has at most 16 KiB"));
        }
        let mode = set.mode.unwrap_or(mode);
        let held = self.making(dir, || dir.held.make(name.as_bytes(), fresh, mode))?;
        let finish = || {
            let facts = held.facts()?;
            if shown_kind(facts.sort) == Some(Kind::Symlink) {
                return Ok(());
            }
            if let Some(mode) = set.mode.filter(|mode| *mode != facts.mode) {
                self.need_mode(&facts, mode)?;
                held.set_mode(mode)?;
            }
            if let Some(size) = set.size.filter(|size| *size > 0) {
                held.open(true)?.set_length(size)?;
            }
            set_times(&held, set, self)
        };
        if let Err(error) = finish() {
            // What nobody is told of is not left behind.
            let directory = matches!(fresh, Fresh::Directory);
            let left = dir.held.remove(name.as_bytes(), directory);
            return Err(left.err().map_or(error, |left| left));
        }
        let node = self.node_of(self.below(dir, name), held, &dir.bound)?.ok_or_else(hidden)?;
        if let Some(verifier) = verifier {
            self.volume.verifiers.insert(node.id, verifier);
        }
        Ok(node)
    }

    /// Demands that the user whose rights limit the share may give these mode bits.
    pub(super) fn need_mode(&self, facts: &Facts, mode: u16) -> Result<()> {
        if self.user.as_ref().is_none_or(|user| user.may_set_mode(facts, mode)) {
            return Ok(());
        }
        Err(Error::not_permitted("the user who shared the directory is not in the group that this is of"))
    }

    pub(super) fn link(&self, file: &At, to: &At) -> Result<(Changed<Entry>, Deed)> {
        let node = self.existing(file)?;
        self.need(&node, Rights::ATTR_WRITE)?;
        let place = self.locate(to)?;
        let (dir, name) = place.above.ok_or_else(taken)?;
        self.need(&dir, Rights::INSERT)?;
        if node.is_directory() {
            return Err(Error::new(ErrorKind::IsDirectory, "a directory has one name"));
        }
        if place.node.is_some() {
            return Err(taken());
        }
        must_be_free(&name)?;
        if node.bound.container != dir.bound.container {
            return Err(Error::new(ErrorKind::CrossVolume, "hard links stay within a container"));
        }
        self.must_gain_nothing(&node, &self.below(&dir, &name))?;
        let (before, above) = (self.before(&node), self.before(&dir));
        let (source, old) = self.name_of(&node)?;
        source.held.link(old.as_bytes(), &dir.held, name.as_bytes())?;
        let made = self.child(&dir, &name)?.ok_or_else(hidden)?;
        if made.id != node.id {
            // Its name was given to something else in between.
            dir.held.remove(name.as_bytes(), false)?;
            return Err(Error::new(ErrorKind::Busy, "the file's name changed meanwhile").hint("try again"));
        }
        let deed = Deed::of(self, "link", &made, (&dir, Rights::INSERT)).at(&dir, &name);
        Ok((self.entered(&dir, above, &name, &made, Some(before)), deed))
    }

    /// Returns the directory in which something was found, and its name there. `NotFound` if it has none
    /// left.
    pub(super) fn name_of(&self, node: &Node) -> Result<(Node, Name)> {
        if node.facts.links == 0 || node.is_root() {
            return Err(Error::not_found("the file has no name left"));
        }
        let name = node.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        Ok((self.parent(node)?, Name::new(name.to_vec())?))
    }

    pub(super) fn remove(&self, at: &At, kind: Expect, guard: &Guard) -> Result<(Changed<()>, Deed)> {
        let spot = self.spot(at)?;
        let node = spot.held.ok_or_else(hidden)?;
        let (dir, name) = (spot.dir, spot.name);
        self.need(&dir, Rights::REMOVE)?;
        self.need_unname(&dir, &node)?;
        self.guard(guard, Some(&node))?;
        match (node.is_directory(), kind) {
            (true, Expect::NotDirectory) => {
                return Err(Error::new(ErrorKind::IsDirectory, "it is a directory"));
            }
            (false, Expect::Directory) => return Err(not_directory()),
            _ => {}
        }
        let (before, above) = (self.before(&node), self.before(&dir));
        let deed = Deed::of(self, "remove", &node, (&dir, Rights::REMOVE)).at(&dir, &name);
        if let Err(error) = dir.held.remove(name.as_bytes(), node.is_directory()) {
            if error.kind() != ErrorKind::NotEmpty || !self.drop_staged(&node)? {
                return Err(error);
            }
            dir.held.remove(name.as_bytes(), true)?;
        }
        self.gone(&node);
        let changed = Changed {
            value: (),
            file: self.wcc(&node, Some(before)),
            parents: [Some(self.wcc(&dir, Some(above))), None],
        };
        Ok((changed, deed))
    }

    /// Takes away what this node staged in a directory that shows as empty: whoever stages there is told
    /// that it has gone. `false` if anything else is in it, whatever its name.
    fn drop_staged(&self, dir: &Node) -> Result<bool> {
        let mut staged = Vec::new();
        let mut others = false;
        dir.held.list(0, |listed| {
            let name = Name::new(listed.name().to_vec())?;
            others |= !is_staged_by(name.as_bytes(), self.volume.stage_owner);
            staged.push(name);
            Ok(if others { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if others {
            return Ok(false);
        }
        staged.iter().try_for_each(|name| dir.held.remove(name.as_bytes(), false))?;
        Ok(true)
    }

    /// Lets go of what is kept of something that has lost a name, if nobody has it open.
    pub(super) fn gone(&self, node: &Node) {
        let lives = node.held.facts().is_ok_and(|facts| !node.is_directory() && facts.links > 0);
        if lives {
            return;
        }
        let last = LastName { path: node.path.clone(), bound: node.bound.clone() };
        if !self.volume.opens.lost_last(node.id, last) {
            self.volume.locks.forget(node.id);
        }
    }

    pub(super) fn target(&self, at: &At) -> Result<LinkTarget> {
        let node = self.existing(at)?;
        self.need_any(&node)?;
        if node.kind != Kind::Symlink {
            return Err(Error::invalid("it is neither a symbolic link nor a reference"));
        }
        Ok(LinkTarget::Symlink(node.held.target()?.into()))
    }
}

pub(super) fn set_times(held: &weft_sys::beneath::Held, set: &SetAttr, view: &View<'_>) -> Result<()> {
    if set.atime.is_none() && set.mtime.is_none() {
        return Ok(());
    }
    let time = |set: Option<SetTime>| set.map(|time| time.at(view.volume.sys.clock().now()));
    held.set_times(time(set.atime), time(set.mtime))
}

/// Returns what is made, its mode unless another is given, and what its maker chose to find it by.
fn made_of<'a>(new: &'a New, set: &SetAttr) -> Result<(Fresh<'a>, u16, Option<[u8; 8]>)> {
    if set.size.is_some_and(|size| size != 0) && !matches!(new, New::File { .. }) {
        return Err(Error::invalid("only a file has a size to set"));
    }
    if let Some(mode) = set.mode {
        mode_of(if matches!(new, New::Directory) { Kind::Directory } else { Kind::File }, mode)?;
    }
    set.size.map_or(Ok(()), check_size)?;
    Ok(match new {
        New::File { verifier } => (Fresh::File, 0o644, *verifier),
        New::Directory => (Fresh::Directory, 0o755, None),
        New::Symlink(target) => {
            if target.len() > limits::LINK_TARGET_BYTES_MAX {
                return Err(Error::new(ErrorKind::TooLong, "a symbolic link has at most 4095 bytes"));
            }
            if target.is_empty() || target.contains(&0) {
                return Err(Error::invalid("a symbolic link is neither empty nor contains NUL"));
            }
            (Fresh::Symlink(target), 0o777, None)
        }
        New::Fifo => (Fresh::Fifo, 0o644, None),
        New::Reference(
            Reference::Node(_) | Reference::Group(_) | Reference::Container(_) | Reference::Volume(_),
        ) => {
            return Err(Error::new(ErrorKind::Unsupported, "a directory of the machine holds no references"));
        }
    })
}

/// Checks that a name is not one that staged bytes are kept under.
pub(super) fn must_be_free(name: &Name) -> Result<()> {
    if is_reserved(name) {
        return Err(Error::not_permitted("names of this form are kept for uploads under way"));
    }
    Ok(())
}

/// Checks mode bits: the lower 12. A file that runs as who it belongs to would run as the node's user,
/// with whatever bytes a caller put there.
pub(super) fn mode_of(kind: Kind, mode: u16) -> Result<u16> {
    if mode & !0o7777 != 0 {
        return Err(Error::invalid("a mode has 12 bits"));
    }
    if mode & SET_ID != 0 && kind != Kind::Directory {
        return Err(Error::not_permitted("a file of a share cannot be made to run as the node's user"));
    }
    Ok(mode)
}

/// Set-user-id and set-group-id.
pub(super) const SET_ID: u16 = 0o6000;

pub(super) fn not_given() -> Error {
    Error::not_permitted("files of a share belong to the node's user, and are given to nobody else")
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
