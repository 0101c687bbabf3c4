//! The decision, and the one function that makes it.

use std::net::IpAddr;

use super::{Acl, Because, Circumstance, Constraint, Settled, explain};
use crate::id::{ContainerId, ObjectId};
use crate::proof::{Caller, Objects};
use crate::rights::Rights;
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

/// The outcome of [`decide`]. Its fields are private: only deciding makes one, so an
/// issuer that signs what it is shown can sign nothing that no ACL said.
#[derive(Clone, Debug)]
pub struct Decision {
    caller: Caller,
    container: ContainerId,
    epoch: u64,
    acl_version: u64,
    settled: Settled,
    objects: Objects,
    at: Circumstance,
}

/// What bytes at a store are to whoever was allowed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upon {
    /// A file's own bytes.
    File,
    /// Bytes the caller brings, on their way to becoming a file's, seen by nobody else.
    Staged,
}

impl Upon {
    /// Returns the store's operations that a right on a file comes down to. Executing is reading;
    /// an append is a write at an end that only who keeps the names knows; who may make a file or
    /// write it may handle the bytes that are to become it.
    pub fn carried_out_by(self, right: Rights) -> Rights {
        let mut by = Rights::NONE;
        for (_, right) in right.each() {
            by |= match (self, right) {
                (Self::File, Rights::READ | Rights::EXECUTE) => Rights::READ,
                (Self::File, Rights::WRITE | Rights::APPEND) => Rights::WRITE,
                (Self::Staged, Rights::WRITE | Rights::INSERT) => Rights::READ | Rights::WRITE,
                _ => Rights::NONE,
            };
        }
        by
    }
}

/// Where bytes lie at a store.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Their object.
    pub object: ObjectId,
    /// The container it is labelled with there: after a move the label follows behind.
    pub label: ContainerId,
    /// That container's epoch.
    pub epoch: u64,
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
        self.settled.asked()
    }

    /// Returns those of the asked rights that are allowed.
    pub fn allowed(&self) -> Rights {
        self.settled.allowed()
    }

    /// Returns whether everything asked for is allowed.
    pub fn is_allowed(&self) -> bool {
        self.allowed() == self.asked()
    }

    /// Returns the objects it speaks of.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the conditions it leaned on.
    pub fn constraints(&self) -> &[Constraint] {
        self.settled.constraints()
    }

    /// Returns when and from where it was asked.
    pub fn at(&self) -> &Circumstance {
        &self.at
    }

    /// Returns what settled one right (the lowest, if several are given).
    pub fn because(&self, right: Rights) -> Because {
        self.settled.because(right)
    }

    /// Returns what settled each right.
    pub fn settled(&self) -> &Settled {
        &self.settled
    }

    /// Takes away what the file's mode bits do not leave (see [`super::narrow`]), and
    /// confines the decision to the file's objects, since its siblings' modes differ.
    #[must_use]
    pub fn narrowed(mut self, left: Rights, objects: Vec<ObjectId>) -> Self {
        self.settled = self.settled.narrowed(left);
        self.objects = Objects::Only(objects);
        self
    }

    /// Leans on more conditions: those of another policy that binds as well.
    #[must_use]
    pub fn under(mut self, constraints: Vec<Constraint>) -> Self {
        self.settled = self.settled.under(constraints);
        self
    }

    /// Returns the decision as it is put to a store: about one object under the label it has
    /// there, with the operations that carry the decided right out. Every condition goes with it,
    /// and what was not allowed in full comes down to nothing. What is issued of it is more than
    /// its caller may do by itself: it is for whoever carries the right out, never to be given away.
    #[must_use]
    pub fn at_store(mut self, upon: Upon, stored: Stored) -> Self {
        let by = upon.carried_out_by(self.asked());
        self.settled = self.settled.carried_out(by);
        (self.container, self.epoch) = (stored.label, stored.epoch);
        self.objects = Objects::Only(vec![stored.object]);
        self
    }
}

/// Decides what of the asked rights a caller has in a container.
///
/// Pure: the same arguments always give the same answer, and nothing is recorded.
pub fn decide(acl: &Acl, caller: &Caller, ask: &Ask) -> Decision {
    let at = Circumstance { now: ask.now, peer: ask.peer };
    Decision {
        caller: caller.clone(),
        container: ask.container,
        epoch: ask.epoch,
        acl_version: acl.version,
        settled: explain(acl, &caller.subject(), ask.rights, &at),
        objects: ask.objects.clone(),
        at,
    }
}
