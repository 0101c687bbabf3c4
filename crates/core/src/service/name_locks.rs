//! Locks of names, which protocols that have no connection show by tokens.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::form::Call;
use crate::name::RelPath;
use crate::name_locks::{LockToken, NameLock, NameLockWanted, Permit, Touch};

/// Grants locks of names and checks them; see [`crate::name_locks`] for what they bind. What is
/// granted outlives a restart of the node.
#[async_trait]
pub trait NameLocks: Send + Sync {
    /// Takes a lock, durably. Needs `lock` on what has the name and a right to change it, or `insert` in
    /// its directory if nothing has. `Locked` if another stands in the way, or if changes of what it would cover are
    /// not through before the call's deadline; `Busy` beyond the bounds.
    async fn lock(&self, call: &Call, wanted: NameLockWanted) -> Result<NameLock>;

    /// Gives the first of these locks that covers the name and is the caller's another time of `lasts`
    /// from now on, durably. `Precondition` if there is none.
    async fn refresh(
        &self,
        call: &Call,
        path: &RelPath,
        shown: &[LockToken],
        lasts: Duration,
    ) -> Result<NameLock>;

    /// Ends a lock that covers the name. `Conflict` if there is no such lock, `Denied` if it is
    /// somebody else's and the caller has no `acl-write` where it lies.
    async fn unlock(&self, call: &Call, path: &RelPath, token: LockToken) -> Result<()>;

    /// Returns the locks that cover a name: to whoever may know of the name.
    fn covering(&self, path: &RelPath) -> Vec<NameLock>;

    /// Gives leave for a change, which is made while the permit is held. `Locked` where a lock stands in
    /// the way whose token the caller does not show; the error's subject is the name that is locked.
    fn permit(&self, call: &Call, touches: Vec<Touch>, shown: &[LockToken]) -> Result<Permit>;

    /// Ends the locks of a name that has gone, and of what was below it. If the node dies before that
    /// is durable, they end with their time.
    async fn gone(&self, path: &RelPath);
}
