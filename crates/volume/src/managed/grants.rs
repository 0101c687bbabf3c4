//! Proofs for bytes: what a decision allows, signed by the issuer, kept for reuse.
//!
//! Where mode bits, paths and splits leave a right whole, one proof serves for all of a
//! container's objects; otherwise it names the one object. It is asked for each piece,
//! whether it comes from here or from the issuer.

use std::net::IpAddr;

use weft_core::acl::{Acl, AclEntry, Ask, Decision, Who, decide};
use weft_core::proof::{Caller, Granted, Objects};
use weft_core::{CallerId, ContainerId, CredentialId, Error, Moment, ObjectId, Result, Rights};
use weft_kv::Read;

use super::Volume;
use super::table::containers::{self, Head};
use super::view::{Bits, Node, View};

/// What a kept proof is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GrantKey {
    caller: CallerId,
    credential: CredentialId,
    peer: Option<IpAddr>,
    container: ContainerId,
    head: Head,
    op: Rights,
    object: Option<ObjectId>,
}

impl View<'_> {
    /// Returns proof that the caller may do `op` (one right) with a file's bytes, under an
    /// id and label: those they have, or those that an open was pinned to. `Denied` or
    /// `NotFound` if it may not.
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
        if label != node.inode.container || object != node.object() || op == Rights::EXECUTE {
            // The same answer, for the label that the bytes still carry at the store.
            let op = if op == Rights::EXECUTE { Rights::READ } else { op };
            return self.volume.entrust(
                self.read,
                &self.call.caller,
                (label, object),
                op,
                self.call.from.peer,
            );
        }
        let whole = self.unconfined(node, op, bits)?;
        let governing = self.governing(label)?;
        let key = GrantKey {
            caller: self.call.caller.name().id(),
            credential: self.call.caller.credential(),
            peer: self.call.from.peer,
            container: label,
            head: governing.head,
            op,
            object: whole.is_none().then_some(object),
        };
        self.volume.kept(&key, op, object, self.now, || self.volume.issuer.issue(&whole.unwrap_or(decision)))
    }

    /// Returns the decision for the whole container, if nothing but its ACL says a word.
    fn unconfined(&self, node: &Node, op: Rights, bits: Bits) -> Result<Option<Decision>> {
        let governing = self.governing(node.inode.container)?;
        let paths = !self.call.caller.limits().paths.is_empty();
        if paths || governing.head.leaving || !self.left_by_modes(node, &governing.rules, bits).contains(op) {
            return Ok(None);
        }
        Ok(Some(decide(&governing.rules.acl, &self.call.caller, &self.ask(&governing, op))))
    }
}

impl Volume {
    /// Returns a proof that is kept and still good, or makes one and keeps it.
    fn kept(
        &self,
        key: &GrantKey,
        op: Rights,
        object: ObjectId,
        now: Moment,
        make: impl FnOnce() -> Result<Granted>,
    ) -> Result<Granted> {
        if let Some(granted) = self.granted.get(key) {
            if granted.allows(op, object, now).is_ok() {
                return Ok(granted);
            }
            self.granted.remove(key);
        }
        let granted = make()?;
        granted.allows(op, object, now)?;
        self.granted.insert(*key, granted.clone());
        Ok(granted)
    }

    /// Returns proof for one object that the volume itself answers for, after it has
    /// decided that the caller may do what this is a part of: the bytes of a file being
    /// made, of one that is executed, or of one whose label lags behind.
    pub(super) fn entrust(
        &self,
        read: &dyn Read,
        caller: &Caller,
        (label, object): (ContainerId, ObjectId),
        rights: Rights,
        peer: Option<IpAddr>,
    ) -> Result<Granted> {
        let who = if caller.is_anyone() { Who::Anyone } else { Who::Caller(caller.name().clone()) };
        let own = Own { caller, who, rights, peer };
        self.own_answer(read, own, label, Objects::Only(vec![object]))
    }

    /// Returns the node's own proof for the upkeep of a container's objects.
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
        let who = Who::Caller(node.name().clone());
        self.own_answer(read, Own { caller: &node, who, rights, peer: None }, label, objects)
    }

    fn own_answer(
        &self,
        read: &dyn Read,
        own: Own<'_>,
        label: ContainerId,
        objects: Objects,
    ) -> Result<Granted> {
        // Of a container that is gone, only bytes to remove are left.
        let epoch = containers::find_head(read, label)?.map_or(u64::MAX, |head| head.epoch);
        let now = self.sys.clock().moment();
        let Own { caller, who, rights, peer } = own;
        let ask = Ask { container: label, epoch, rights, objects: Objects::All, now, peer };
        let decision = decide(&Acl::new(vec![AclEntry::allow(who, rights)]), caller, &ask);
        let decision = match objects {
            Objects::Only(only) => decision.narrowed(Rights::ALL, only),
            Objects::All => decision,
        };
        self.issuer.issue(&decision)
    }
}

/// What the volume answers for by itself.
struct Own<'a> {
    caller: &'a Caller,
    who: Who,
    rights: Rights,
    peer: Option<IpAddr>,
}
