//! Live leases: what revocation reaches.
//!
//! Every verified proof shares a [`Flag`] with [`Revocations`], which finds the flags
//! by credential, caller, capability and container. A flag holds the rights that were
//! withdrawn and wakes whoever waits, so a running transfer ends without polling. That of a
//! credential holds its caller's groups as well, where they changed since it was made: what is
//! under way is decided again with the new ones, and ends only if they no longer give the right.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use event_listener::{Event, EventListener};

use super::capability::CapabilityClaims;
use super::credential::CredentialClaims;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CallerId, CapabilityId, ContainerId, CredentialId, VolumeId};
use crate::rights::Rights;
use crate::time::Time;

/// The shared end of a lease: which rights were withdrawn so far.
#[derive(Default)]
pub(super) struct Flag {
    withdrawn: AtomicU32,
    changed: Event,
    /// Of a credential's lease: its caller's groups.
    groups: Option<LiveGroups>,
}

/// The groups of a caller, where they are others than its credential says.
struct LiveGroups {
    changed: AtomicBool,
    /// The groups in rising order, and the count of changes that they are as of.
    now: Mutex<(u64, Arc<[CallerId]>)>,
}

impl LiveGroups {
    fn as_of(membership: u64) -> Self {
        Self { changed: AtomicBool::new(false), now: Mutex::new((membership, Arc::default())) }
    }

    fn change(&self, membership: u64, groups: &Arc<[CallerId]>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.0 < membership {
            *now = (membership, groups.clone());
            self.changed.store(true, Ordering::Release);
        }
    }
}

impl Flag {
    /// A credential's, which says its caller's groups as of a count of changes.
    fn of_credential(membership: u64) -> Self {
        Self { groups: Some(LiveGroups::as_of(membership)), ..Self::default() }
    }

    /// Returns the caller's groups in rising order, if they changed since the credential was made.
    pub(super) fn changed_groups(&self) -> Option<Arc<[CallerId]>> {
        let groups = self.groups.as_ref().filter(|groups| groups.changed.load(Ordering::Acquire))?;
        Some(groups.now.lock().unwrap_or_else(PoisonError::into_inner).1.clone())
    }

    pub(super) fn withdrawn(&self) -> Rights {
        Rights::from_bits(self.withdrawn.load(Ordering::Acquire))
    }

    fn withdraw(&self, rights: Rights) {
        self.withdrawn.fetch_or(rights.bits(), Ordering::AcqRel);
        self.changed.notify(usize::MAX);
    }
}

/// A future that ends once any of the rights it watches is withdrawn from a proof.
pub struct Withdrawn {
    flags: Vec<(Arc<Flag>, EventListener)>,
    rights: Rights,
}

impl Withdrawn {
    pub(super) fn of(flag: &Arc<Flag>, rights: Rights) -> Self {
        Self { flags: vec![(flag.clone(), flag.changed.listen())], rights }
    }

    pub(super) fn and(mut self, flag: &Arc<Flag>) -> Self {
        self.flags.push((flag.clone(), flag.changed.listen()));
        self
    }
}

impl Future for Withdrawn {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let rights = self.rights;
        for (flag, listener) in &mut self.flags {
            loop {
                if flag.withdrawn().intersects(rights) {
                    return Poll::Ready(());
                }
                match Pin::new(&mut *listener).poll(context) {
                    // Something else was withdrawn: listen again, then look again.
                    Poll::Ready(()) => *listener = flag.changed.listen(),
                    Poll::Pending => break,
                }
            }
        }
        Poll::Pending
    }
}

/// Everything withdrawn that some proof still out there might claim, and the live
/// leases to tell. One per node; shared by reference.
#[derive(Default)]
pub struct Revocations(Mutex<State>);

#[derive(Default)]
struct State {
    credentials: HashMap<CredentialId, Time>,
    callers: HashMap<CallerId, CallerLine>,
    capabilities: HashMap<CapabilityId, (Rights, Time)>,
    containers: HashMap<ContainerId, u64>,
    instances: HashMap<VolumeId, u64>,
    by_credential: Leases<CredentialId>,
    by_caller: Leases<CallerId>,
    by_capability: Leases<CapabilityId>,
    by_container: Leases<ContainerId>,
}

/// The line a caller's credentials must be on the right side of.
#[derive(Clone, Copy)]
struct CallerLine {
    issued_after: Time,
    membership: u64,
}

impl Default for CallerLine {
    fn default() -> Self {
        Self { issued_after: Time::from_nanos(i64::MIN), membership: 0 }
    }
}

impl Revocations {
    /// Returns a register with nothing withdrawn.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends one credential and everything derived from it. `until` is when the
    /// credential would have run out: after that nothing needs remembering.
    pub fn end_credential(&self, id: CredentialId, until: Time) {
        let mut state = self.state();
        state.credentials.insert(id, until);
        state.by_credential.withdraw(&id, Rights::ALL);
    }

    /// Ends the live proofs of a credential and of everything derived from it. Nothing is remembered: whoever still
    /// has evidence may show it again.
    pub fn end_leases_of(&self, id: CredentialId) {
        self.state().by_credential.withdraw(&id, Rights::ALL);
    }

    /// Ends every credential of a caller made at or before `at`: all of them, now.
    pub fn end_caller(&self, id: CallerId, at: Time) {
        let mut state = self.state();
        let line = state.callers.entry(id).or_default();
        line.issued_after = line.issued_after.max(at);
        state.by_caller.withdraw(&id, Rights::ALL);
    }

    /// Says that a caller's groups have changed, for the `membership`th time. Its live credentials go on with those
    /// that `groups` returns, and its capabilities end: what is under way is decided again. Credentials that carry
    /// an older count must be presented afresh. Where the groups cannot be told, all of its proofs end.
    pub fn change_membership(
        &self,
        id: CallerId,
        membership: u64,
        groups: impl FnOnce() -> Result<Vec<CallerId>>,
    ) {
        let live = {
            let mut state = self.state();
            let line = state.callers.entry(id).or_default();
            line.membership = line.membership.max(membership);
            state.by_caller.live(&id)
        };
        // Whoever is admitted from here on brings the new ones.
        if live.is_empty() {
            return;
        }
        let groups = groups().map(|mut groups| {
            groups.sort_unstable();
            Arc::<[CallerId]>::from(groups)
        });
        // Whoever hears that a capability has ended is to find the new groups.
        let (credentials, capabilities): (Vec<_>, Vec<_>) =
            live.into_iter().partition(|flag| flag.groups.is_some());
        for flag in credentials {
            match (&flag.groups, &groups) {
                (Some(known), Ok(groups)) => known.change(membership, groups),
                _ => flag.withdraw(Rights::ALL),
            }
        }
        capabilities.iter().for_each(|flag| flag.withdraw(Rights::ALL));
    }

    /// Withdraws some or all rights of one capability until it would have run out.
    pub fn withdraw(&self, id: CapabilityId, rights: Rights, until: Time) {
        let mut state = self.state();
        let line = state.capabilities.entry(id).or_insert((Rights::NONE, until));
        line.0 |= rights;
        state.by_capability.withdraw(&id, rights);
    }

    /// Ends every capability of a container from an epoch before `epoch`. Returns
    /// without effect if the container is there already.
    pub fn begin_epoch(&self, container: ContainerId, epoch: u64) {
        let mut state = self.state();
        let known = state.containers.entry(container).or_insert(0);
        if *known < epoch {
            *known = epoch;
            state.by_container.withdraw(&container, Rights::ALL);
        }
    }

    /// Says that the issuer of a volume's capabilities is another instance now: those of
    /// instances before `instance` are no longer admitted. Called before anything is verified.
    pub fn begin_instance(&self, volume: VolumeId, instance: u64) {
        let mut state = self.state();
        let known = state.instances.entry(volume).or_insert(0);
        *known = instance.max(*known);
    }

    /// Ends every lease there is, without withdrawing anything: what is still good can be
    /// verified again. Called when a key is no longer believed.
    pub fn end_leases(&self) {
        let state = self.state();
        // Every proof, capability or credential, is registered under its caller.
        for flag in state.by_caller.flags.values().flatten().filter_map(Weak::upgrade) {
            flag.withdraw(Rights::ALL);
        }
    }

    /// Forgets what has run out by itself. Called now and then; skipping it costs
    /// memory only.
    pub fn forget_before(&self, now: Time) {
        let mut state = self.state();
        state.credentials.retain(|_, until| *until > now);
        state.capabilities.retain(|_, (_, until)| *until > now);
    }

    /// Checks that a credential is not withdrawn, and takes up its lease.
    pub(super) fn admit_credential(&self, claims: &CredentialClaims) -> Result<Arc<Flag>> {
        let mut state = self.state();
        let revoked = || Error::new(ErrorKind::Revoked, "the credential was revoked").hint("weft login");
        if claims.lineage().any(|id| state.credentials.contains_key(&id)) {
            return Err(revoked());
        }
        let line = state.callers.get(&claims.caller.id()).copied().unwrap_or_default();
        if claims.issued <= line.issued_after {
            return Err(revoked());
        }
        if claims.membership < line.membership {
            return Err(Error::stale("the caller's groups have changed since the credential was made"));
        }
        let flag = Arc::new(Flag::of_credential(claims.membership));
        for id in claims.lineage() {
            state.by_credential.add(id, &flag);
        }
        state.by_caller.add(claims.caller.id(), &flag);
        Ok(flag)
    }

    /// Checks that a capability is not withdrawn as a whole, and takes up its lease.
    pub(super) fn admit_capability(&self, claims: &CapabilityClaims) -> Result<Arc<Flag>> {
        let mut state = self.state();
        let revoked = |detail: &'static str| Error::new(ErrorKind::Revoked, detail);
        if state.containers.get(&claims.container).is_some_and(|epoch| claims.epoch < *epoch) {
            return Err(revoked("the container has ended its earlier capabilities"));
        }
        let instance = (claims.id.0 >> 64) as u64;
        if state.instances.get(&claims.container.volume()).is_some_and(|least| instance < *least) {
            return Err(revoked("the capability was made before its issuer was restarted"));
        }
        if claims.lineage.iter().any(|id| state.credentials.contains_key(id)) {
            return Err(revoked("the credential behind the capability was revoked"));
        }
        let line = state.callers.get(&claims.caller).copied().unwrap_or_default();
        if claims.issued <= line.issued_after {
            return Err(revoked("the caller's rights were revoked"));
        }
        let flag = Arc::<Flag>::default();
        if let Some((rights, _)) = state.capabilities.get(&claims.id) {
            if rights.contains(claims.rights) {
                return Err(revoked("the capability was revoked"));
            }
            flag.withdraw(*rights);
        }
        state.by_capability.add(claims.id, &flag);
        state.by_container.add(claims.container, &flag);
        state.by_caller.add(claims.caller, &flag);
        for credential in &claims.lineage {
            state.by_credential.add(*credential, &flag);
        }
        Ok(flag)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole, so a panic elsewhere cannot spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flags of live proofs by some key. Dead ones are dropped when the list has doubled,
/// so the cost of adding is constant and memory follows what is alive.
struct Leases<K> {
    flags: HashMap<K, Vec<Weak<Flag>>>,
    added: usize,
    purge_at: usize,
}

impl<K> Default for Leases<K> {
    fn default() -> Self {
        Self { flags: HashMap::new(), added: 0, purge_at: LEASES_PURGE_MIN }
    }
}

/// Below this many flags, dead ones are not worth looking for.
const LEASES_PURGE_MIN: usize = 1024;

impl<K: Eq + Hash> Leases<K> {
    fn add(&mut self, key: K, flag: &Arc<Flag>) {
        if self.added >= self.purge_at {
            self.purge();
        }
        self.flags.entry(key).or_default().push(Arc::downgrade(flag));
        self.added += 1;
    }

    fn live(&self, key: &K) -> Vec<Arc<Flag>> {
        self.flags.get(key).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    fn withdraw(&mut self, key: &K, rights: Rights) {
        for flag in self.flags.get(key).into_iter().flatten().filter_map(Weak::upgrade) {
            flag.withdraw(rights);
        }
    }

    fn purge(&mut self) {
        self.flags.retain(|_, flags| {
            flags.retain(|flag| flag.strong_count() > 0);
            !flags.is_empty()
        });
        self.added = self.flags.values().map(Vec::len).sum();
        self.purge_at = (self.added * 2).max(LEASES_PURGE_MIN);
    }
}
