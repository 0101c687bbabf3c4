//! The decision, and the one function that makes it.

use std::net::IpAddr;

use super::{Acl, AclEntry, Circumstance, Constraint, Effect};
use crate::id::{ContainerId, ObjectId};
use crate::proof::{Caller, Objects};
use crate::rights::{RIGHTS_COUNT, Rights};
use crate::time::Moment;

/// What is asked of a container.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The container.
    pub container: ContainerId,
    /// The container's epoch: capabilities of an older one are dead.
    pub epoch: u64,
    /// The rights asked for.
    pub rights: Rights,
    /// The objects asked for.
    pub objects: Objects,
    /// When.
    pub now: Moment,
    /// From which address; none on a local socket.
    pub peer: Option<IpAddr>,
}

/// What settled one right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// No entry gives it.
    NoEntry,
    /// The entry with this index gives it.
    Allowed(u16),
    /// The entry with this index withholds it.
    Withheld(u16),
    /// The credential was narrowed and does not carry it.
    Narrowed,
    /// It was taken away after the ACL gave it: by the file's mode bits.
    Mode,
}

/// The outcome of [`decide`]. Its fields are private: only deciding makes one, so an
/// issuer that signs what it is shown can sign nothing that no ACL said.
#[derive(Clone, Debug)]
pub struct Decision {
    caller: Caller,
    container: ContainerId,
    epoch: u64,
    acl_version: u64,
    asked: Rights,
    allowed: Rights,
    objects: Objects,
    constraints: Vec<Constraint>,
    because: [Because; RIGHTS_COUNT],
    at: Circumstance,
}

impl Decision {
    /// Returns for whom it was decided.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the container.
    pub fn container(&self) -> ContainerId {
        self.container
    }

    /// Returns the container's epoch at the decision.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the version of the ACL that was read.
    pub fn acl_version(&self) -> u64 {
        self.acl_version
    }

    /// Returns the rights that were asked for.
    pub fn asked(&self) -> Rights {
        self.asked
    }

    /// Returns those of the asked rights that are allowed.
    pub fn allowed(&self) -> Rights {
        self.allowed
    }

    /// Returns whether everything asked for is allowed.
    pub fn is_allowed(&self) -> bool {
        self.allowed == self.asked
    }

    /// Returns the objects it speaks of.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the conditions it leaned on.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Returns when and from where it was asked.
    pub fn at(&self) -> &Circumstance {
        &self.at
    }

    /// Returns what settled one right (the lowest, if several are given).
    pub fn because(&self, right: Rights) -> Because {
        right.each().next().map_or(Because::NoEntry, |(bit, _)| self.because[bit])
    }

    /// Takes away what the file's mode bits do not leave (see [`super::narrow`]), and
    /// confines the decision to the file's objects, since its siblings' modes differ.
    #[must_use]
    pub fn narrowed(mut self, left: Rights, objects: Vec<ObjectId>) -> Self {
        for (bit, right) in (self.allowed - left).each() {
            self.because[bit] = Because::Mode;
            self.allowed = self.allowed - right;
        }
        self.objects = Objects::Only(objects);
        self
    }
}

/// Decides what of the asked rights a caller has in a container.
///
/// Pure: the same arguments always give the same answer, and nothing is recorded.
pub fn decide(acl: &Acl, caller: &Caller, ask: &Ask) -> Decision {
    let at = Circumstance { now: ask.now, peer: ask.peer };
    let mut tally =
        Tally { allowed: Rights::NONE, because: [Because::NoEntry; RIGHTS_COUNT], constraints: Vec::new() };
    let speaking = || {
        acl.entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.rights.intersects(ask.rights) && e.who.matches(caller))
    };
    for (index, entry) in speaking().filter(|(_, e)| e.effect == Effect::Allow) {
        tally.allow(index, entry, ask.rights, caller, &at);
    }
    for (index, entry) in speaking().filter(|(_, e)| e.effect == Effect::Deny) {
        tally.deny(index, entry, ask.rights, caller, &at);
    }
    tally.narrow(ask.rights - caller.rights_at(&at));
    tally.constraints.retain(|c| c.rights.intersects(tally.allowed));
    Decision {
        caller: caller.clone(),
        container: ask.container,
        epoch: ask.epoch,
        acl_version: acl.version,
        asked: ask.rights,
        allowed: tally.allowed,
        objects: ask.objects.clone(),
        constraints: tally.constraints,
        because: tally.because,
        at,
    }
}

struct Tally {
    allowed: Rights,
    because: [Because; RIGHTS_COUNT],
    constraints: Vec<Constraint>,
}

impl Tally {
    /// Unconditional entries free the rights they give from any constraint that an
    /// earlier, conditional one put on them.
    fn allow(&mut self, index: usize, entry: &AclEntry, asked: Rights, caller: &Caller, at: &Circumstance) {
        if !entry.when.iter().all(|c| c.holds(caller, at)) {
            return;
        }
        let given = entry.rights & asked;
        let fresh = given - self.allowed;
        for (bit, _) in fresh.each() {
            self.because[bit] = Because::Allowed(index as u16);
        }
        self.allowed |= given;
        if entry.when.is_empty() {
            for constraint in &mut self.constraints {
                constraint.rights = constraint.rights - given;
            }
            for (bit, _) in given.each() {
                if let Because::Allowed(by) = &mut self.because[bit] {
                    *by = index as u16;
                }
            }
        } else if !fresh.is_empty() {
            self.constraints.push(Constraint {
                rights: fresh,
                conditions: entry.when.clone(),
                must_hold: true,
            });
        }
    }

    fn deny(&mut self, index: usize, entry: &AclEntry, asked: Rights, caller: &Caller, at: &Circumstance) {
        let rights = entry.rights & asked;
        if entry.when.iter().all(|c| c.holds(caller, at)) {
            self.allowed = self.allowed - rights;
            for (bit, _) in rights.each() {
                self.because[bit] = Because::Withheld(index as u16);
            }
        } else {
            self.constraints.push(Constraint { rights, conditions: entry.when.clone(), must_hold: false });
        }
    }

    fn narrow(&mut self, lost: Rights) {
        for (bit, right) in (self.allowed & lost).each() {
            self.because[bit] = Because::Narrowed;
            self.allowed = self.allowed - right;
        }
    }
}
