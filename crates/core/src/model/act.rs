//! One call under way: the state, locked, and what accompanies the call; what the
//! caller may do; and where an address leads.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::MutexGuard;

use super::Model;
use super::tree::State;
use crate::acl::{Ask, Circumstance, Decision, Owned, Settled, Subject, decide, explain, narrow};
use crate::attr::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{At, Call, Follow, Guard};
use crate::id::FileId;
use crate::limits;
use crate::name::Name;
use crate::proof::{Objects, Within};
use crate::rights::Rights;
use crate::time::Moment;

/// A call being carried out: nobody else sees the state meanwhile.
pub(super) struct Act<'a> {
    pub(super) model: &'a Model,
    pub(super) call: &'a Call,
    pub(super) now: Moment,
    pub(super) state: MutexGuard<'a, State>,
}

/// Where an address led.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The directory and name it was found under; none for an id or the root.
    pub(super) name: Option<(FileId, Name)>,
    /// What is there.
    pub(super) id: Option<FileId>,
}

/// Whether mode bits count: they do not on an open file that was opened before they
/// were changed, nor on one that the open itself made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    Count,
    WereCounted,
}

/// Rights that let a caller know that something exists in a directory.
const SEES: [Rights; 2] = [Rights::LIST, Rights::TRAVERSE];

/// One step of a path or of a symbolic link's target.
enum Step {
    Into(Name),
    Up,
    Here,
}

impl Act<'_> {
    /// Decides over the ACL of an inode's container, then takes away what its mode
    /// bits and the credential's paths do not leave.
    pub(super) fn decide(&self, id: FileId, asked: Rights, bits: Bits) -> Result<Decision> {
        let inode = self.state.inode(id)?;
        let policy = self.state.container(inode.container)?;
        let ask = Ask {
            container: inode.container,
            epoch: policy.epoch,
            rights: asked,
            objects: Objects::All,
            now: self.now,
            peer: self.call.from.peer,
        };
        let left = self.left(id, bits, &self.call.caller.subject())?;
        Ok(decide(&policy.acl, &self.call.caller, &ask).narrowed(left, vec![inode.object()]))
    }

    /// Says what [`Act::decide`] would decide for somebody.
    pub(super) fn settle(&self, id: FileId, asked: Rights, who: &Subject<'_>) -> Result<Settled> {
        let policy = self.state.container(self.state.inode(id)?.container)?;
        let at = Circumstance { now: self.now, peer: self.peer_of(who) };
        Ok(explain(&policy.acl, who, asked, &at).narrowed(self.left(id, Bits::Count, who)?))
    }

    /// Somebody who is not asking comes from nowhere.
    fn peer_of(&self, who: &Subject<'_>) -> Option<IpAddr> {
        self.call.from.peer.filter(|_| who.name() == self.call.caller.name())
    }

    /// Returns what mode bits and a credential's paths leave.
    fn left(&self, id: FileId, bits: Bits, who: &Subject<'_>) -> Result<Rights> {
        let inode = self.state.inode(id)?;
        let modes = self.state.container(inode.container)?.modes;
        let owned = Owned { kind: inode.kind(), mode: inode.mode, owner: inode.owner, group: inode.group };
        let left = match bits {
            Bits::Count => narrow(modes, &owned, who),
            Bits::WereCounted => Rights::ALL,
        };
        let placed = bits == Bits::Count || !inode.names.is_empty();
        Ok(if placed { left & self.within(id, who) } else { left })
    }

    pub(super) fn within_paths(&self, id: FileId) -> Rights {
        self.within(id, &self.call.caller.subject())
    }

    /// Returns what a confined credential leaves: of paths everything at and below them and the way
    /// there, of one thing everything at and below it, nothing elsewhere.
    pub(super) fn within(&self, id: FileId, who: &Subject<'_>) -> Rights {
        match who.within() {
            Some(within) if !self.lies_within(id, within) => Rights::NONE,
            _ => self.within_paths_of(id, who),
        }
    }

    fn lies_within(&self, id: FileId, within: &Within) -> bool {
        let Ok(inode) = self.state.inode(id) else { return false };
        if id == within.root {
            let same = within.version.is_none_or(|version| inode.version(self.state.instance) == version);
            return same && (id == FileId::ROOT || !inode.names.is_empty());
        }
        inode.names.iter().any(|(dir, _)| *dir != id && self.lies_within(*dir, within))
    }

    fn within_paths_of(&self, id: FileId, who: &Subject<'_>) -> Rights {
        if !who.is_confined_by_path() {
            return Rights::ALL;
        }
        self.paths_of(id).iter().fold(Rights::NONE, |left, path| left | who.left_at(path))
    }

    /// Returns every path from the root to an inode, one for each of its names.
    /// Fails with `Denied` where somebody who is confined by path could do more with something if it had, or were at,
    /// another name.
    pub(super) fn must_gain_nothing(&self, id: FileId, (dir, name): (FileId, &Name)) -> Result<()> {
        let who = self.call.caller.subject();
        // Of many names that would be a long look.
        if !who.is_confined_by_path() {
            return Ok(());
        }
        let mut to = self.paths_of(dir);
        to.iter_mut().for_each(|path| path.push(name.clone()));
        who.must_gain_nothing(&self.paths_of(id), &to, self.is_directory(id))
    }

    pub(super) fn paths_of(&self, id: FileId) -> Vec<Vec<Name>> {
        if id == FileId::ROOT {
            return vec![Vec::new()];
        }
        let Ok(inode) = self.state.inode(id) else { return Vec::new() };
        let mut paths = Vec::new();
        for (dir, name) in &inode.names {
            for mut path in self.paths_of(*dir) {
                path.push(name.clone());
                paths.push(path);
            }
        }
        paths
    }

    /// Returns what the caller may do with an inode.
    pub(super) fn rights(&self, id: FileId) -> Result<Rights> {
        Ok(self.decide(id, Rights::ALL, Bits::Count)?.allowed())
    }

    pub(super) fn has(&self, id: FileId, rights: Rights) -> Result<bool> {
        Ok(self.decide(id, rights, Bits::Count)?.is_allowed())
    }

    /// Demands rights on an inode. `Denied`, or `NotFound` if the caller may not even
    /// know that it exists.
    pub(super) fn need(&self, id: FileId, rights: Rights) -> Result<Decision> {
        let decision = self.decide(id, rights, Bits::Count)?;
        if decision.is_allowed() { Ok(decision) } else { Err(self.refusal(id, &decision)) }
    }

    /// Demands any right at all.
    pub(super) fn need_any(&self, id: FileId) -> Result<()> {
        let decision = self.decide(id, Rights::ALL, Bits::Count)?;
        if decision.allowed().is_empty() { Err(self.refusal(id, &decision)) } else { Ok(()) }
    }

    pub(super) fn refusal(&self, id: FileId, decision: &Decision) -> Error {
        if !self.may_know(id) {
            return hidden();
        }
        let missing = decision.asked() - decision.allowed();
        let inside = self.within_paths(id).contains(missing);
        let detail = decision.because(missing).refusal(missing, inside);
        Error::denied(detail).caller(self.call.caller.name())
    }

    /// Returns whether the caller may know of an inode: by some right on it, or by
    /// listing or traversing a directory that names it. That there is a root is no secret.
    pub(super) fn may_know(&self, id: FileId) -> bool {
        let Ok(inode) = self.state.inode(id) else { return false };
        id == FileId::ROOT
            || self.rights(id).is_ok_and(|rights| !rights.is_empty())
            || (!self.within_paths(id).is_empty() && inode.names.iter().any(|(dir, _)| self.sees_into(*dir)))
    }

    pub(super) fn sees_into(&self, dir: FileId) -> bool {
        SEES.iter().any(|right| self.has(dir, *right).unwrap_or(false))
    }

    /// Finds where an address leads. Fails with `Stale` if its base is gone; what the
    /// path does not lead to is a place without an id, if its directory is there.
    pub(super) fn locate(&self, at: &At) -> Result<Place> {
        self.state.inode(at.base)?;
        let mut todo: VecDeque<Step> = at.path.names().map(Step::Into).collect();
        let mut place = Place { name: None, id: Some(at.base) };
        let mut links = 0;
        loop {
            if let Some(id) = place.id
                && (!todo.is_empty() || at.follow == Follow::Last)
                && let Some((start, steps)) = self.leads(id, place.name.as_ref())?
            {
                links += 1;
                if links > limits::LINK_STEPS_MAX {
                    return Err(Error::new(ErrorKind::Loop, "more than 40 symbolic links are in the way"));
                }
                for step in steps.into_iter().rev() {
                    todo.push_front(step);
                }
                place = Place { name: None, id: Some(start) };
                continue;
            }
            let Some(step) = todo.pop_front() else { return Ok(place) };
            let dir = place.id.ok_or_else(hidden)?;
            place = self.step(dir, step)?;
        }
    }

    fn step(&self, dir: FileId, step: Step) -> Result<Place> {
        if self.state.directory(dir).is_err() && !self.may_know(dir) {
            return Err(hidden());
        }
        self.state.directory(dir)?;
        let name = match step {
            Step::Into(name) => name,
            Step::Up => {
                self.need(dir, Rights::TRAVERSE)?;
                return Ok(Place { name: None, id: Some(self.state.parent(dir)?) });
            }
            Step::Here => return Ok(Place { name: None, id: Some(dir) }),
        };
        let found = self.state.lookup(dir, &name)?.map(|slot| slot.id);
        let decision = self.decide(dir, Rights::TRAVERSE, Bits::Count)?;
        if !decision.is_allowed() {
            let seen = self.has(dir, Rights::LIST)?
                || found.is_some_and(|id| self.rights(id).is_ok_and(|rights| !rights.is_empty()));
            return Err(if seen { self.refusal(dir, &decision) } else { hidden() });
        }
        if found.is_some_and(|id| self.within_paths(id).is_empty()) {
            return Err(hidden());
        }
        Ok(Place { name: Some((dir, name)), id: found })
    }

    /// Returns where a symbolic link leads: a directory and steps from there; `None`
    /// for anything else.
    fn leads(&self, id: FileId, name: Option<&(FileId, Name)>) -> Result<Option<(FileId, Vec<Step>)>> {
        let inode = self.state.inode(id)?;
        let super::tree::Body::Symlink(target) = &inode.body else { return Ok(None) };
        let above = name.or(inode.names.first()).map_or(FileId::ROOT, |(dir, _)| *dir);
        let start = if target.starts_with(b"/") { FileId::ROOT } else { above };
        let mut steps = Vec::new();
        for part in target.split(|b| *b == b'/').skip(usize::from(target.starts_with(b"/"))) {
            steps.push(match part {
                b"" | b"." => Step::Here,
                b".." => Step::Up,
                name => Step::Into(Name::new(target.slice_ref(name))?),
            });
        }
        Ok(Some((start, steps)))
    }

    /// Finds what is at an address; `NotFound` if nothing is.
    pub(super) fn existing(&self, at: &At) -> Result<FileId> {
        self.locate(at)?.id.ok_or_else(hidden)
    }

    /// Finds the directory and name an address stands for, whether anything is there
    /// or not. `Invalid` if it is an id alone.
    pub(super) fn named(&self, at: &At) -> Result<(FileId, Name, Option<FileId>)> {
        let place = self.locate(at)?;
        let (dir, name) = place.name.ok_or_else(|| Error::invalid("the address has no name to act on"))?;
        Ok((dir, name, place.id))
    }

    /// Tests a guard against what is there.
    pub(super) fn guard(&self, guard: &Guard, id: Option<FileId>) -> Result<()> {
        guard.judge(id.map(|id| self.state.attr(id)).transpose()?.as_ref())
    }

    /// Returns whether the caller may do what is the owner's: it owns the inode, or
    /// may change the policy over it.
    pub(super) fn owns(&self, id: FileId) -> Result<bool> {
        Ok(self.call.caller.name().id() == self.state.inode(id)?.owner || self.has(id, Rights::ACL_WRITE)?)
    }

    pub(super) fn is_directory(&self, id: FileId) -> bool {
        self.state.inode(id).is_ok_and(|inode| inode.kind() == Kind::Directory)
    }
}

/// Nothing there, or nothing this caller may know of.
pub(super) fn hidden() -> Error {
    Error::not_found("there is nothing, or nothing you may know of")
}
