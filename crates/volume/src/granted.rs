//! Proofs that were issued, kept while they are good: to sign one costs more than to use it.

use std::net::IpAddr;

use quick_cache::sync::Cache;
use weft_core::form::Call;
use weft_core::proof::Granted;
use weft_core::{CallerId, ContainerId, CredentialId, Moment, ObjectId, Result, Rights, limits};

/// What a kept proof is valid for: whom it was issued to, and over what, under `state` of the
/// container's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key<S> {
    caller: CallerId,
    credential: CredentialId,
    peer: Option<IpAddr>,
    container: ContainerId,
    state: S,
    op: Rights,
    /// The one object it is for; none if it is for all of the container's.
    object: Option<ObjectId>,
}

/// What proof is wanted of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<S> {
    pub(crate) container: ContainerId,
    /// What tells the policy of now from others it had.
    pub(crate) state: S,
    pub(crate) op: Rights,
    pub(crate) object: ObjectId,
    /// Whether the proof is for that object alone.
    pub(crate) only: bool,
}

/// Proofs that are kept.
pub(crate) struct Kept<S>(Cache<Key<S>, Granted>);

impl<S: Copy + Eq + std::hash::Hash> Default for Kept<S> {
    fn default() -> Self {
        Self(Cache::new(limits::CAPABILITIES_CACHED))
    }
}

impl<S: Copy + Eq + std::hash::Hash> Kept<S> {
    /// Returns a proof that is kept and still good, or makes one and keeps it.
    pub(crate) fn get(
        &self,
        call: &Call,
        wanted: &Wanted<S>,
        now: Moment,
        make: impl FnOnce() -> Result<Granted>,
    ) -> Result<Granted> {
        let Wanted { container, state, op, object, only } = *wanted;
        let key = Key {
            caller: call.caller.name().id(),
            credential: call.caller.credential(),
            peer: call.from.peer,
            container,
            state,
            op,
            object: only.then_some(object),
        };
        if let Some(granted) = self.0.get(&key) {
            if granted.allows(op, object, now).is_ok() {
                return Ok(granted);
            }
            self.0.remove(&key);
        }
        let granted = make()?;
        granted.allows(op, object, now)?;
        self.0.insert(key, granted.clone());
        Ok(granted)
    }
}
