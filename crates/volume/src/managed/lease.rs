//! The right to a file's bytes while they move: asked for each piece, decided anew
//! whenever policy changes under it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_core::acl::Upon;
use weft_core::form::Call;
use weft_core::proof::Granted;
use weft_core::{ContainerId, Error, ErrorKind, FileId, ObjectId, Result, Rights};

use super::Volume;
use super::table::inodes::Layout;
use super::table::unnamed;
use super::view::{Bits, Node, View};

/// A right on one file's bytes.
pub(super) struct Lease {
    pub(super) volume: Arc<Volume>,
    _confined: Confined,
    pub(super) call: Call,
    pub(super) id: FileId,
    /// The right that is decided.
    pub(super) op: Rights,
    pub(super) bits: Bits,
    /// The object, and the label it is granted under; of pinned bytes for good, of
    /// others as they were when the lease began.
    pub(super) object: ObjectId,
    pub(super) label: ContainerId,
    held: Mutex<Held>,
}

/// A moment before a look: of what changes after it, the lease that comes of the look is told.
pub(super) struct Since {
    seen: u64,
    confined: Confined,
}

impl Since {
    pub(super) fn now(volume: &Volume, call: &Call) -> Self {
        let counts = call.caller.is_confined();
        let count = counts.then(|| volume.confined.clone());
        count.iter().for_each(|count| _ = count.fetch_add(1, Ordering::AcqRel));
        Self { seen: volume.policy_changes.load(Ordering::Acquire), confined: Confined(count) }
    }
}

/// A lease counted among those that end when their file leaves some paths, if it is one.
struct Confined(Option<Arc<AtomicUsize>>);

impl Drop for Confined {
    fn drop(&mut self) {
        self.0.iter().for_each(|count| _ = count.fetch_sub(1, Ordering::AcqRel));
    }
}

struct Held {
    granted: Granted,
    /// The count of policy changes at the decision.
    seen: u64,
}

/// Where a file's bytes are granted: the object and its label.
pub(super) fn place_of(node: &Node) -> (ObjectId, ContainerId) {
    match node.inode.layout {
        Layout::Whole { object, label } => (object, label),
        Layout::Inline => (node.object(), node.inode.container),
    }
}

/// Whether a store's refusal may come of an object having been replaced, or labelled
/// anew, since the rows were looked at: what is decided, is decided before it is asked.
pub(super) fn is_of_another_moment(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied)
}

impl View<'_> {
    /// Returns the label that an object carries now: the file's own, or one that it had
    /// and that somebody still reads.
    pub(super) fn label_of(&self, node: &Node, object: ObjectId, known: ContainerId) -> Result<ContainerId> {
        let (now, label) = place_of(node);
        if now == object {
            return Ok(label);
        }
        Ok(unnamed::garbage_label(self.read, object)?.unwrap_or(known))
    }

    /// Decides once more, in the transaction that acts: the right may have been withdrawn since
    /// the lease was taken. `Revoked` then.
    pub(super) fn still_may(&self, node: &Node, op: Rights, bits: Bits) -> Result<()> {
        self.call.caller.live(self.now)?;
        let decision = self.decide(node, op, bits)?;
        if decision.is_allowed() {
            return Ok(());
        }
        let refusal = self.refusal_of(node, &decision);
        Err(Error::new(ErrorKind::Revoked, "the right was withdrawn").caused_by(refusal))
    }
}

impl Volume {
    /// Waits until nobody is giving a file's object another label: the store has it before
    /// the rows do.
    pub(super) async fn label_is_through(&self, file: FileId) {
        drop(self.files.of(file.serial()).gate.read().await);
    }
}

impl Lease {
    /// Decides, and takes up the right.
    pub(super) fn take(
        volume: &Arc<Volume>,
        call: &Call,
        node: &Node,
        (op, bits): (Rights, Bits),
        (object, label): (ObjectId, ContainerId),
    ) -> Result<Self> {
        let since = Since::now(volume, call);
        let granted = volume.look_whenever(call, |view| view.grant_on(node, op, bits, object, label))?;
        Ok(Self::of(volume, call, node.id, (op, bits), (object, label), (granted, since)))
    }

    /// Takes up a right that was decided in a look which was begun after `since`.
    pub(super) fn of(
        volume: &Arc<Volume>,
        call: &Call,
        id: FileId,
        (op, bits): (Rights, Bits),
        (object, label): (ObjectId, ContainerId),
        (granted, since): (Granted, Since),
    ) -> Self {
        let Since { seen, confined } = since;
        let held = Mutex::new(Held { granted, seen });
        let (volume, call) = (volume.clone(), call.clone());
        Self { volume, _confined: confined, call, id, op, bits, object, label, held }
    }

    /// Returns what is shown to a store: the right that reading or executing, writing
    /// or appending comes down to there.
    pub(super) fn granted(&self) -> Granted {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).granted.clone()
    }

    /// Returns what is shown to a store for other bytes than those the lease began with: some that
    /// have just become an object, or have another label by now.
    pub(super) fn granted_on(&self, object: ObjectId, label: ContainerId) -> Result<Granted> {
        let held = self.granted();
        if self.object == object && held.claims().container == label {
            return Ok(held);
        }
        self.volume.look_whenever(&self.call, |view| {
            view.grant_on(&view.node(self.id)?, self.op, self.bits, object, label)
        })
    }

    /// The operation that the proof carries the right out by.
    fn carried(&self) -> Rights {
        Upon::File.carried_out_by(self.op)
    }

    /// Checks the right for one piece. Returns whether the proof is another one than
    /// before. Fails with `Revoked` or `Expired`.
    pub(super) fn check(&self) -> Result<bool> {
        let (granted, seen) = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            (held.granted.clone(), held.seen)
        };
        let current = seen == self.volume.policy_changes.load(Ordering::Acquire);
        let now = self.volume.sys.clock().moment();
        if current && granted.allows(self.carried(), self.object, now).is_ok() {
            return Ok(false);
        }
        self.renew().map(|()| true)
    }

    /// Decides again: the right may have been withdrawn for somebody else only.
    pub(super) fn renew(&self) -> Result<()> {
        self.call.caller.live(self.volume.sys.clock().moment())?;
        let seen = self.volume.policy_changes.load(Ordering::Acquire);
        let granted = self.volume.look_whenever(&self.call, |view| {
            let node = view.node(self.id)?;
            let label = view.label_of(&node, self.object, self.label)?;
            view.grant_on(&node, self.op, self.bits, self.object, label)
        });
        let granted =
            granted.map_err(|e| Error::new(ErrorKind::Revoked, "the right was withdrawn").caused_by(e))?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Held { granted, seen };
        Ok(())
    }

    /// Waits until the right is gone for good, and returns why.
    pub(super) async fn stopped(self: Arc<Self>) -> Error {
        loop {
            let mut changed = std::pin::pin!(self.volume.policy_changed.notified());
            changed.as_mut().enable();
            // Only now: a change before this line is seen here, a later one wakes.
            if let Err(error) = self.check() {
                return error;
            }
            let withdrawn = self.granted().withdrawn(self.carried());
            tokio::select! {
                () = withdrawn => {
                    if let Err(error) = self.renew() {
                        return error;
                    }
                }
                () = changed => {}
            }
        }
    }
}
