//! Sessions: what opens, locks and replays belong to (request-form law 3).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::authority::Secret;
use crate::error::Result;
use crate::form::Origin;
use crate::id::SessionId;
use crate::proof::Caller;

/// What proves that a returning client is the one that began the session.
pub type SessionSecret = Secret;

/// A session that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGrant {
    /// Its id.
    pub id: SessionId,
    /// What to show when resuming it over another connection.
    pub secret: SessionSecret,
}

/// Is told when a session ends, so that its opens and locks end with it.
pub trait SessionWatcher: Send + Sync {
    /// The session has ended and its id will not come again.
    fn ended(&self, session: SessionId);
}

/// Begins, keeps and ends sessions. They live while they are used, and 120 s longer.
pub trait Sessions: Send + Sync {
    /// Begins a session for a caller. `Busy` if there are too many: of one caller, or, since anyone
    /// is many, of anyone at one place.
    fn begin(&self, caller: &Caller, from: Origin) -> Result<SessionGrant>;

    /// Takes up a session over another connection. `Stale` if it has ended; after a
    /// restart of the node it can be taken up within the grace of 30 s.
    fn resume(&self, caller: &Caller, grant: &SessionGrant, from: Origin) -> Result<()>;

    /// Keeps a session alive. `Stale` if it has ended.
    fn renew(&self, session: SessionId) -> Result<()>;

    /// Ends a session now. One that has ended already is no error.
    fn end(&self, session: SessionId);

    /// Adds one who is told of every end from now on.
    fn watch(&self, watcher: Arc<dyn SessionWatcher>);
}
