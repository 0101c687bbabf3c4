//! One call's look at the volume: what is where, and what the caller may do with it.
//!
//! A [`View`] reads a snapshot or a transaction under way; both give the same answers,
//! so an act decides inside its transaction by the same code as a walk.

use std::cell::RefCell;
use std::sync::Arc;

use weft_core::acl::{Ask, Circumstance, Decision, Owned, Settled, Subject, decide, explain, narrow};
use weft_core::attr::{Attr, Before, Wcc};
use weft_core::form::{Call, Guard};
use weft_core::proof::Objects;
use weft_core::{ContainerId, Error, ErrorKind, FileId, Moment, Name, ObjectId, Result, Rights};
use weft_kv::{Commit, Read, SpaceSnapshot};

use super::Volume;
use super::drop_box::as_when_made;
use super::recall::{self, Under};
use super::table::containers::{self, Head, Rules};
use super::table::entries;
use super::table::inodes::{self, Inode, Layout};
use super::table::splits::{self, Split};

/// A call's look at the volume at one moment.
pub(super) struct View<'a> {
    pub(super) volume: &'a Volume,
    pub(super) read: &'a dyn Read,
    pub(super) call: &'a Call,
    pub(super) now: Moment,
    /// The commit that is looked at; none in a transaction under way. What is committed may be
    /// remembered for others.
    commit: Option<Commit>,
    last: RefCell<Option<Governing>>,
}

/// A file that had a name, and this object, as of a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    commit: Commit,
    object: ObjectId,
}

/// A container and its policy as they are at the view's moment.
#[derive(Clone)]
pub(super) struct Governing {
    pub(super) container: ContainerId,
    pub(super) head: Head,
    pub(super) rules: Arc<Rules>,
}

impl Named {
    /// Returns whether it still is as it was: nothing was committed since.
    pub(super) fn is_still(&self, now: Commit, object: Option<ObjectId>) -> bool {
        self.commit == now && object.is_none_or(|object| object == self.object)
    }
}

/// An inode and its id.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: FileId,
    pub(super) inode: Inode,
}

/// Whether mode bits count: they do not on an open file that was opened before they
/// were changed, nor on one that the open itself made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    Count,
    WereCounted,
}

impl Node {
    pub(super) fn serial(&self) -> u64 {
        self.id.serial()
    }

    /// Returns the id under which the bytes are granted: that of their object, or one
    /// that says the same of inline bytes.
    pub(super) fn object(&self) -> ObjectId {
        match self.inode.layout {
            Layout::Whole { object, .. } => object,
            Layout::Inline => ObjectId::of_file(self.id, self.inode.layout_serial),
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn committed(volume: &'a Volume, snapshot: &'a SpaceSnapshot, call: &'a Call) -> Self {
        let (now, commit) = (volume.sys.clock().moment(), Some(snapshot.commit()));
        Self { volume, read: snapshot, call, now, commit, last: RefCell::new(None) }
    }

    pub(super) fn under_way(volume: &'a Volume, read: &'a dyn Read, call: &'a Call, now: Moment) -> Self {
        Self { volume, read, call, now, commit: None, last: RefCell::new(None) }
    }

    /// Returns that a file has a name, to compare at its close; nothing if it has none, or in a
    /// transaction.
    pub(super) fn named(&self, node: &Node) -> Option<Named> {
        let commit = self.commit.filter(|_| node.inode.links > 0)?;
        Some(Named { commit, object: node.object() })
    }

    /// Returns the commit that is looked at, for what is recalled under it.
    fn under(&self) -> Option<Under> {
        self.commit.map(|commit| Under { volume: self.volume.instance, commit })
    }

    fn inode(&self, serial: u64) -> Result<Option<Inode>> {
        let read = || inodes::find(self.read, serial);
        match self.under() {
            Some(under) => recall::inode(under, serial, read),
            None => read(),
        }
    }

    /// Returns an inode by id. `Stale` if it is gone.
    pub(super) fn node(&self, id: FileId) -> Result<Node> {
        let inode = inodes::by_id(self.volume.id, id, |serial| self.inode(serial))?;
        if inode.links == 0 && self.volume.opens.is_ending(id) {
            // Nobody has it open any more; its row goes in a moment.
            return Err(Error::stale("the file is gone").about(id));
        }
        Ok(Node { id, inode })
    }

    /// Returns an inode that some row leads to.
    pub(super) fn node_at(&self, serial: u64) -> Result<Node> {
        let inode = self.inode(serial)?.ok_or_else(|| inodes::missing(serial))?;
        Ok(self.node_of(serial, inode))
    }

    /// Returns an inode that was read, with its id.
    pub(super) fn node_of(&self, serial: u64, inode: Inode) -> Node {
        Node { id: FileId::new(self.volume.id, serial, inode.generation), inode }
    }

    /// Returns the directory that a directory is in; the root is its own.
    pub(super) fn parent(&self, dir: &Node) -> Result<Node> {
        self.node_at(dir.inode.parent)
    }

    /// Returns a directory and those above it, up to the root.
    pub(super) fn lineage(&self, dir: &Node) -> Result<Vec<Node>> {
        let mut line = vec![dir.clone()];
        while let Some(last) = line.last()
            && last.inode.parent != last.serial()
        {
            // A removed directory, held open by somebody, is in none.
            let Some(inode) = inodes::find(self.read, last.inode.parent)? else { break };
            let node = self.node_of(last.inode.parent, inode);
            if line.len() > super::DEPTH_MAX {
                let below = Error::corrupt("directories lie below each other");
                return Err(below.about(node.id).hint("weft fsck"));
            }
            line.push(node);
        }
        Ok(line)
    }

    /// Returns the directories that name an inode.
    pub(super) fn parents(&self, node: &Node) -> Result<Vec<Node>> {
        if node.inode.is_directory() {
            let own = node.inode.parent == node.serial() || node.inode.links == 0;
            return if own { Ok(Vec::new()) } else { Ok(vec![self.parent(node)?]) };
        }
        let mut parents: Vec<Node> = Vec::new();
        for name in entries::names_of(self.read, node.serial()) {
            let parent = name?.parent;
            if parents.iter().all(|known| known.serial() != parent) {
                parents.push(self.node_at(parent)?);
            }
        }
        Ok(parents)
    }

    /// Returns the attributes that the caller is shown.
    pub(super) fn attr(&self, node: &Node) -> Result<Attr> {
        let mut attr = inodes::attr(self.read, node.id, &node.inode)?;
        attr.version = self.volume.files.shown(attr.id.serial(), attr.version, attr.change);
        if self.drops_into(node)? {
            attr = as_when_made(attr);
        }
        Ok(attr)
    }

    pub(super) fn before(&self, node: &Node) -> Result<Before> {
        Ok(Before::from(&self.attr(node)?))
    }

    /// Returns how an inode is now, with how it was.
    pub(super) fn wcc(&self, id: FileId, before: Option<Before>) -> Result<Wcc> {
        let inode = inodes::find(self.read, id.serial())?;
        let after = inode.map(|inode| self.attr(&Node { id, inode })).transpose()?;
        Ok(Wcc { before, after })
    }

    /// Returns the policy of a container.
    pub(super) fn governing(&self, container: ContainerId) -> Result<Governing> {
        if let Some(last) = self.last.borrow().as_ref().filter(|last| last.container == container) {
            return Ok(last.clone());
        }
        let governing = match self.under() {
            Some(under) => recall::governing(under, container, || self.policy_of(container))?,
            None => self.policy_of(container)?,
        };
        *self.last.borrow_mut() = Some(governing.clone());
        Ok(governing)
    }

    fn policy_of(&self, container: ContainerId) -> Result<Governing> {
        let head = containers::head(self.read, container)?;
        let rules = match self.volume.policies.get(&(container, head)) {
            Some(rules) => rules,
            None => {
                let rules = Arc::new(containers::rules(self.read, container)?);
                // What a transaction has not committed may never come to be.
                if self.commit.is_some() {
                    self.volume.policies.insert((container, head), rules.clone());
                }
                rules
            }
        };
        Ok(Governing { container, head, rules })
    }

    /// Returns the container that is to govern what lies at a place: its own, or the
    /// one it is on its way to.
    pub(super) fn home(&self, node: &Node) -> Result<ContainerId> {
        Ok(self.going(node)?.map_or(node.inode.container, |split| split.into))
    }

    /// Returns the split by which an inode is still to be moved, if one is under way that
    /// it lies in: of several, one after the other, the last. Until it is moved, both
    /// policies bind it.
    pub(super) fn going(&self, node: &Node) -> Result<Option<Split>> {
        if !self.governing(node.inode.container)?.head.leaving {
            return Ok(None);
        }
        let first = if node.inode.is_directory() { vec![node.clone()] } else { self.parents(node)? };
        let mut above = vec![node.serial()];
        for dir in &first {
            above.extend(self.lineage(dir)?.iter().map(Node::serial));
        }
        let (mut container, mut last) = (node.inode.container, None);
        while self.governing(container)?.head.leaving {
            let under_way = splits::out_of(self.read, container)?;
            let Some(split) = under_way.into_iter().find(|split| above.contains(&split.root)) else { break };
            container = split.into;
            last = Some(split);
        }
        Ok(last)
    }

    pub(super) fn ask(&self, governing: &Governing, asked: Rights) -> Ask {
        Ask {
            container: governing.container,
            epoch: governing.head.epoch,
            rights: asked,
            objects: Objects::All,
            now: self.now,
            peer: self.call.from.peer,
        }
    }

    pub(super) fn left_by_modes(&self, node: &Node, rules: &Rules, bits: Bits, who: &Subject<'_>) -> Rights {
        let inode = &node.inode;
        if bits == Bits::WereCounted {
            return Rights::ALL;
        }
        let owned = Owned { kind: inode.kind, mode: inode.mode, owner: inode.owner, group: inode.group };
        narrow(rules.modes, &owned, who)
    }

    /// Returns what mode bits, the credential's paths and a split under way leave, and what the
    /// policy that the split leads to says, under whose conditions that is.
    fn left(
        &self,
        node: &Node,
        rules: &Rules,
        asked: Rights,
        bits: Bits,
        who: &Subject<'_>,
    ) -> Result<(Rights, Option<Settled>)> {
        let mut left = self.left_by_modes(node, rules, bits, who);
        if who.is_confined() && (bits == Bits::Count || node.inode.links > 0) {
            left = left & self.within(node, who)?;
        }
        let Some(split) = self.going(node)? else { return Ok((left, None)) };
        let settled = self.explain_by(&self.governing(split.into)?, asked, who);
        Ok((left & settled.allowed(), Some(settled)))
    }

    /// Says what an ACL gives somebody. Who is not asking comes from nowhere.
    pub(super) fn explain_by(&self, governing: &Governing, asked: Rights, who: &Subject<'_>) -> Settled {
        let peer = self.call.from.peer.filter(|_| who.name() == self.call.caller.name());
        explain(&governing.rules.acl, who, asked, &Circumstance { now: self.now, peer })
    }

    /// Says what [`View::decide`] would decide for somebody.
    pub(super) fn settle(&self, node: &Node, asked: Rights, who: &Subject<'_>) -> Result<Settled> {
        let governing = self.governing(node.inode.container)?;
        let (left, _) = self.left(node, &governing.rules, asked, Bits::Count, who)?;
        Ok(self.explain_by(&governing, asked, who).narrowed(left))
    }

    /// Decides over the ACL of an inode's container, then takes away what its mode bits
    /// and the credential's paths do not leave.
    pub(super) fn decide(&self, node: &Node, asked: Rights, bits: Bits) -> Result<Decision> {
        let governing = self.governing(node.inode.container)?;
        let decision = decide(&governing.rules.acl, &self.call.caller, &self.ask(&governing, asked));
        let (left, going) = self.left(node, &governing.rules, asked, bits, &self.call.caller.subject())?;
        let decision = decision.narrowed(left, vec![node.object()]);
        Ok(match going {
            Some(settled) => decision.under(settled.constraints().to_vec()),
            None => decision,
        })
    }

    /// Returns what of `asked` the caller may do with an inode: what [`View::decide`]
    /// says, without what a capability would need.
    pub(super) fn rights_of(&self, node: &Node, asked: Rights) -> Result<Rights> {
        let governing = self.governing(node.inode.container)?;
        let who = self.call.caller.subject();
        let allowed = self.explain_by(&governing, asked, &who).allowed();
        if allowed.is_empty() {
            return Ok(allowed);
        }
        Ok(allowed & self.left(node, &governing.rules, asked, Bits::Count, &who)?.0)
    }

    pub(super) fn rights(&self, node: &Node) -> Result<Rights> {
        let rights = self.rights_of(node, Rights::ALL)?;
        // Into a drop-box one inserts: that is nothing that one may do with what is in it.
        if rights == Rights::INSERT && self.is_in_box(node)? { Ok(Rights::NONE) } else { Ok(rights) }
    }

    pub(super) fn has(&self, node: &Node, rights: Rights) -> Result<bool> {
        Ok(self.rights_of(node, rights)? == rights)
    }

    /// Demands rights on an inode. `Denied`, or `NotFound` if the caller may not even
    /// know that it exists.
    pub(super) fn need(&self, node: &Node, rights: Rights) -> Result<()> {
        if self.has(node, rights)? { Ok(()) } else { Err(self.refusal(node, rights)) }
    }

    /// Demands any right at all.
    pub(super) fn need_any(&self, node: &Node) -> Result<()> {
        if self.rights(node)?.is_empty() { Err(self.refusal(node, Rights::ALL)) } else { Ok(()) }
    }

    pub(super) fn refusal(&self, node: &Node, asked: Rights) -> Error {
        self.decide(node, asked, Bits::Count)
            .map_or_else(|error| error, |decision| self.refusal_of(node, &decision))
    }

    /// Returns the refusal that a decision amounts to.
    pub(super) fn refusal_of(&self, node: &Node, decision: &Decision) -> Error {
        match self.may_know(node) {
            Err(error) => error,
            Ok(true) => self.denial(node, decision),
            Ok(false) => hidden().caused_by(self.denial(node, decision)),
        }
    }

    /// Refuses as if there were nothing. The reason is for logs and the audit; it is never shown.
    pub(super) fn veiled(&self, node: &Node, asked: Rights) -> Error {
        let decision = self.decide(node, asked, Bits::Count);
        hidden().caused_by(decision.map_or_else(|error| error, |decision| self.denial(node, &decision)))
    }

    fn denial(&self, node: &Node, decision: &Decision) -> Error {
        let missing = decision.asked() - decision.allowed();
        let inside = self.within_paths(node).is_ok_and(|left| left.contains(missing));
        let detail = decision.because(missing).refusal(missing, inside);
        Error::denied(detail).caller(self.call.caller.name())
    }

    /// Returns whether the caller may know of an inode: by some right on it, or by
    /// listing or traversing a directory that names it. That there is a root is no secret.
    pub(super) fn may_know(&self, node: &Node) -> Result<bool> {
        if node.id.serial() == FileId::ROOT.serial() || !self.rights(node)?.is_empty() {
            return Ok(true);
        }
        if self.within_paths(node)?.is_empty() {
            return Ok(false);
        }
        for dir in self.parents(node)? {
            if self.sees_into(&dir)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the caller may know what names a directory holds.
    pub(super) fn sees_into(&self, dir: &Node) -> Result<bool> {
        Ok(self.rights_of(dir, Rights::LIST | Rights::TRAVERSE)?.intersects(Rights::LIST | Rights::TRAVERSE))
    }

    /// Returns the paths from the root to an inode, one for each of its names.
    pub(super) fn paths_of(&self, node: &Node) -> Result<Vec<Vec<Name>>> {
        if node.serial() == FileId::ROOT.serial() {
            return Ok(vec![Vec::new()]);
        }
        let mut paths = Vec::new();
        for back in entries::names_of(self.read, node.serial()) {
            let back = back?;
            let mut path = vec![back.name];
            let above = self.lineage(&self.node_at(back.parent)?)?;
            for dir in above.iter().filter(|dir| dir.serial() != FileId::ROOT.serial()) {
                path.extend(entries::name_of(self.read, dir.serial())?.map(|back| back.name));
            }
            path.reverse();
            paths.push(path);
        }
        Ok(paths)
    }

    /// Returns whether the caller may do what is the owner's: it owns the inode, or may
    /// change the policy over it.
    pub(super) fn owns(&self, node: &Node) -> Result<bool> {
        Ok(self.call.caller.name().id() == node.inode.owner || self.has(node, Rights::ACL_WRITE)?)
    }

    /// Tests a guard against what is there.
    pub(super) fn guard(&self, guard: &Guard, node: Option<&Node>) -> Result<()> {
        if *guard == Guard::NONE {
            return Ok(());
        }
        guard.judge(node.map(|node| self.attr(node)).transpose()?.as_ref())
    }

    /// Checks that a container may take so many bytes more.
    pub(super) fn room(&self, container: ContainerId, more: u64) -> Result<()> {
        let Some(max) = self.governing(container)?.rules.bytes_max.filter(|_| more > 0) else {
            return Ok(());
        };
        let used = containers::used(self.read, container)?;
        if used.saturating_add(more) <= max {
            return Ok(());
        }
        let detail = format!("the container's limit of {max} bytes leaves {}", max.saturating_sub(used));
        Err(Error::new(ErrorKind::NoSpace, detail).about(container).hint("raise the limit or remove files"))
    }
}

/// Nothing there, or nothing this caller may know of.
pub(super) fn hidden() -> Error {
    Error::not_found("there is nothing, or nothing you may know of")
}
