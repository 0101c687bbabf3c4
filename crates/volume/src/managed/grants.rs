//! Proofs for bytes: what a decision allows, signed by the issuer, kept for reuse.
//!
//! Where mode bits, paths and splits leave a right whole, one proof serves for all of a
//! container's objects; otherwise it names the one object. It is asked for each piece,
//! whether it comes from here or from the issuer. Where a right is carried out by other
//! operations than its name (executing reads, an append writes at the end it finds, what is
//! staged is written and read again), the proof is made of the decision on that very right, for
//! that one object, with the conditions it leaned on; it stays with the volume.

use weft_core::acl::{Acl, AclEntry, Ask, Decision, Stored, Upon, Who, decide};
use weft_core::proof::{Granted, Objects};
use weft_core::{ContainerId, Error, ObjectId, Result, Rights, limits};
use weft_kv::Read;

use super::Volume;
use super::table::containers;
use super::view::{Bits, Node, View};
use crate::granted::Wanted;

impl View<'_> {
    /// Returns proof of what carries `op` (one right) out on a file's bytes, under an id and
    /// label: those they have, or those that an open was pinned to. `Denied` or `NotFound` if the
    /// caller may not do it.
    pub(super) fn grant_on(
        &self,
        node: &Node,
        op: Rights,
        bits: Bits,
        object: ObjectId,
        label: ContainerId,
    ) -> Result<Granted> {
        let decision = self.decide(node, op, bits)?;
        if !decision.is_allowed() {
            return Err(self.refusal_of(node, &decision));
        }
        let as_it_is = Upon::File.carried_out_by(op) == op;
        if label != node.inode.container || object != node.object() || !as_it_is {
            return self.carry_out(decision, Upon::File, object, label);
        }
        if self.going(node)?.is_some() {
            // Two policies decided it, and a key speaks of one.
            return self.volume.issuer.issue(&decision);
        }
        let whole = self.unconfined(node, op, bits)?;
        let (state, only) = (self.governing(label)?.head, whole.is_none());
        let wanted = Wanted { container: label, state, op, object, only };
        let make = || self.volume.issuer.issue(&whole.unwrap_or(decision));
        self.volume.granted.get(self.call, &wanted, self.now, make)
    }

    /// Returns proof for staged bytes: what publishing them needs must be allowed as the ACL and
    /// the credential are now. The bytes are under the label they were begun with.
    pub(super) fn grant_staged(
        &self,
        (node, op): (&Node, Rights),
        object: ObjectId,
        label: ContainerId,
    ) -> Result<Granted> {
        let decision = self.decide(node, op, Bits::Count)?;
        if !decision.is_allowed() {
            return Err(self.refusal_of(node, &decision));
        }
        self.carry_out(decision, Upon::Staged, object, label)
    }

    fn carry_out(
        &self,
        decision: Decision,
        upon: Upon,
        object: ObjectId,
        label: ContainerId,
    ) -> Result<Granted> {
        let epoch = epoch_of(self.read, label)?;
        self.volume.issuer.issue(&decision.at_store(upon, Stored { object, label, epoch }))
    }

    /// Returns the decision for the whole container, if nothing but its ACL says a word.
    fn unconfined(&self, node: &Node, op: Rights, bits: Bits) -> Result<Option<Decision>> {
        let governing = self.governing(node.inode.container)?;
        let who = self.call.caller.subject();
        let left = self.left_by_modes(node, &governing.rules, bits, &who);
        if who.is_confined() || governing.head.leaving || !left.contains(op) {
            return Ok(None);
        }
        Ok(Some(decide(&governing.rules.acl, &self.call.caller, &self.ask(&governing, op))))
    }
}

impl Volume {
    /// Returns the node's own proof for the upkeep of a container's objects: what nobody asked
    /// for, and nobody is answered with.
    pub(super) fn upkeep(
        &self,
        read: &dyn Read,
        label: ContainerId,
        objects: Objects,
        rights: Rights,
    ) -> Result<Granted> {
        let node = (self.node)();
        if node.is_anyone() {
            return Err(Error::internal("the node's own credential is missing"));
        }
        let acl = Acl::new(vec![AclEntry::allow(Who::Caller(node.name().clone()), rights)]);
        let (epoch, now) = (epoch_of(read, label)?, self.sys.clock().moment());
        let ask = Ask { container: label, epoch, rights, objects: Objects::All, now, peer: None };
        let decision = decide(&acl, &node, &ask);
        self.issuer.issue(&match objects {
            Objects::Only(only) => decision.narrowed(Rights::ALL, only),
            Objects::All => decision,
        })
    }
}

/// Returns a container's epoch. Of one that is gone, only bytes to remove are left.
fn epoch_of(read: &dyn Read, label: ContainerId) -> Result<u64> {
    Ok(containers::find_head(read, label)?.map_or(limits::EPOCH_MAX, |head| head.epoch))
}
