//! Decisions in, proofs out.

use crate::acl::Decision;
use crate::error::Result;
use crate::id::ContainerId;
use crate::proof::Granted;
use crate::rights::Rights;

/// Signs capabilities for containers whose policy this node holds.
pub trait Issuer: Send + Sync {
    /// Returns proof of what the decision allows: signed, then verified like anyone
    /// else's. `Denied` if it does not allow everything that was asked; `Internal` if the
    /// container's epoch is beyond [`EPOCH_MAX`](crate::limits::EPOCH_MAX).
    fn issue(&self, decision: &Decision) -> Result<Granted>;

    /// Ends every capability of a container from an earlier epoch. Called after the
    /// new epoch is on disk.
    fn begin_epoch(&self, container: ContainerId, epoch: u64);

    /// Withdraws rights from one capability that was issued for a container.
    fn withdraw(&self, granted: &Granted, rights: Rights);
}
