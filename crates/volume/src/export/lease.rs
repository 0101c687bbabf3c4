//! The right to a file's bytes while they move: asked for each piece, decided anew whenever a policy
//! changes under it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use weft_core::form::Call;
use weft_core::proof::Granted;
use weft_core::{Error, ErrorKind, FileId, ObjectId, Result, Rights};

use super::Volume;
use super::view::{Node, View};

/// A right on one file's bytes.
pub(super) struct Lease {
    pub(super) volume: Arc<Volume>,
    pub(super) call: Call,
    pub(super) id: FileId,
    op: Rights,
    /// Whether more than one policy governs it, of which the grant knows one.
    is_nameless: bool,
    /// Whether reading may wait for a network or another program.
    pub(super) stalls: bool,
    held: Mutex<Held>,
}

struct Held {
    granted: Granted,
    /// The count of policy changes at the decision.
    seen: u64,
}

impl Lease {
    /// Decides, and takes up the first of some rights that the policy gives.
    pub(super) fn take(view: &View<'_>, node: &Node, any_of: &[Rights]) -> Result<Self> {
        let mut refused = None;
        for op in any_of {
            match view.grant(node, *op) {
                Ok(granted) => {
                    let held = Mutex::new(Held { granted, seen: view.seen });
                    let (volume, call) = (view.volume.clone(), view.call.clone());
                    let (is_nameless, stalls) = (node.nameless.is_some(), view.root.stalls);
                    return Ok(Self { volume, call, id: node.id, op: *op, is_nameless, stalls, held });
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::denied("the file was not opened for that")))
    }

    fn object(&self) -> ObjectId {
        ObjectId::of_file(self.id, 0)
    }

    pub(super) fn is_good(&self) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_nameless
            && held.seen == self.volume.policy_changes.load(Ordering::Acquire)
            && held.granted.allows(self.op, self.object(), self.volume.sys.clock().moment()).is_ok()
    }

    /// Checks the right for one piece. Fails with `Revoked` or `Expired`.
    pub(super) async fn check(&self) -> Result<()> {
        if self.is_good() { Ok(()) } else { self.renew().await }
    }

    /// Decides again: the right may have been withdrawn for somebody else only.
    async fn renew(&self) -> Result<()> {
        self.call.caller.live(self.volume.sys.clock().moment())?;
        let (id, op) = (self.id, self.op);
        let look = move |view: &View<'_>| Ok((view.grant(&view.node(id)?, op)?, view.seen));
        let renewed = self.volume.look_whenever(&self.call, look).await;
        let (granted, seen) =
            renewed.map_err(|e| Error::new(ErrorKind::Revoked, "the right was withdrawn").caused_by(e))?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Held { granted, seen };
        Ok(())
    }

    /// Waits until the right is gone for good, and returns why.
    pub(super) async fn stopped(self: Arc<Self>) -> Error {
        loop {
            let mut changed = std::pin::pin!(self.volume.policy_changed.notified());
            changed.as_mut().enable();
            // Only now: a change before this line is seen here, a later one wakes.
            if let Err(error) = self.check().await {
                return error;
            }
            let granted = self.held.lock().unwrap_or_else(PoisonError::into_inner).granted.clone();
            tokio::select! {
                () = granted.withdrawn(self.op) => {
                    if let Err(error) = self.renew().await {
                        return error;
                    }
                }
                () = changed => {}
            }
        }
    }
}
