//! Decisions in, capabilities out.
//!
//! A capability's id is the issuer's *instance* (the count of the node's starts) and a serial.
//! What happens to capabilities:
//!
//! | When | Then |
//! |---|---|
//! | the node is restarted | every capability of an earlier instance is dead: checkers were told the new instance ([`Revocations::begin_instance`]), so withdrawals need no row on disk |
//! | the issuing key is rotated | old ones stay good until they run out (at most an hour); new ones carry the new key: they roll |
//! | the old key is ended | every live proof ends; those of other keys can be verified again, those of that key cannot |
//! | a container begins an epoch | its earlier capabilities are dead |
//! | an administrator revokes a container | the same, above every epoch the container will name |
//!
//! What was signed is remembered, so that the same decision a moment later neither signs nor
//! verifies; what is remembered is asked for its lease each time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use weft_core::acl::{Circumstance, Constraint, Decision};
use weft_core::metrics::{Metrics, Withdrawn};
use weft_core::proof::{CapabilityClaims, Granted, Objects, Purpose, Revocations};
use weft_core::service::Issuer;
use weft_core::{
    CapabilityId, Clock, ContainerId, CredentialId, Error, ErrorKind, Moment, ObjectId, Result, Rights,
    limits,
};

use crate::keys::KeyRing;
use crate::steady::Steady;

/// A container's own epochs take this many bits; how often an administrator revoked the container
/// stands above them.
const EPOCH_BITS: u32 = limits::EPOCH_MAX.count_ones();

/// Everything that a capability's claims follow from, but for the time.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    credential: CredentialId,
    container: ContainerId,
    epoch: u64,
    acl_version: u64,
    rights: Rights,
    objects: Option<Vec<ObjectId>>,
    /// What it leans on: the same operation may carry out rights that rest on other entries.
    constraints: Vec<Constraint>,
    /// The address it was asked from, where conditions may depend on it.
    peer: Option<Option<IpAddr>>,
}

/// Signs capabilities with this node's key.
pub(crate) struct SigningIssuer {
    keys: Arc<KeyRing>,
    steady: Arc<Steady>,
    revocations: Arc<Revocations>,
    metrics: Arc<Metrics>,
    instance: u64,
    serial: AtomicU64,
    issued: Cache<Key, Granted>,
    /// How often each container was revoked by an administrator since the start.
    revoked: Mutex<HashMap<ContainerId, u64>>,
}

impl SigningIssuer {
    /// Makes an issuer of instance `instance`, which no earlier start may have had, and ends the
    /// capabilities of those before it.
    pub(crate) fn new(
        keys: Arc<KeyRing>,
        steady: Arc<Steady>,
        revocations: Arc<Revocations>,
        metrics: Arc<Metrics>,
        instance: u64,
    ) -> Self {
        keys.volumes().iter().for_each(|volume| revocations.begin_instance(*volume, instance));
        Self {
            keys,
            steady,
            revocations,
            metrics,
            instance,
            serial: AtomicU64::new(1),
            issued: Cache::new(limits::CAPABILITIES_CACHED_MAX),
            revoked: Mutex::default(),
        }
    }

    /// Returns the epoch to sign, or to begin, for a container's own epoch.
    fn epoch(&self, container: ContainerId, own: u64) -> Result<u64> {
        if own >> EPOCH_BITS != 0 {
            return Err(Error::internal("a container has begun more epochs than fit"));
        }
        Ok(self.revoked().get(&container).copied().unwrap_or(0) << EPOCH_BITS | own)
    }

    fn revoked(&self) -> MutexGuard<'_, HashMap<ContainerId, u64>> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every capability of a container issued so far.
    pub(crate) fn end_container(&self, container: ContainerId) {
        let times = {
            let mut revoked = self.revoked();
            let times = revoked.entry(container).or_insert(0);
            *times += 1;
            *times
        };
        self.metrics.auth_withdrawals.count((Withdrawn::Container,));
        self.revocations.begin_epoch(container, times << EPOCH_BITS);
    }

    /// Withdraws rights from a capability of which only the id is known.
    pub(crate) fn withdraw_by_id(&self, id: CapabilityId, rights: Rights) {
        self.metrics.auth_withdrawals.count((Withdrawn::Capability,));
        self.issued.retain(|_, granted| granted.claims().id != id);
        let until = self.steady.now().plus(limits::CAPABILITY_LIFE).plus(limits::CLOCK_SKEW_MAX);
        self.revocations.withdraw(id, rights, until);
    }

    fn sign(&self, decision: &Decision, epoch: u64, now: Moment) -> Result<Granted> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let id = CapabilityId(u128::from(self.instance) << 64 | u128::from(serial));
        let caller = decision.caller();
        let mut claims = CapabilityClaims::of(decision, id, now.wall.plus(limits::CAPABILITY_LIFE));
        claims.epoch = epoch;
        // A wall clock set back must not date it before the credential it rests on, which is on
        // the right side of every revocation.
        claims.issued = claims.issued.max(caller.claims().issued);
        let capability = self.keys.sign(Purpose::Capability, &claims)?;
        let at = Circumstance { now, peer: decision.at().peer };
        Granted::verify(&capability, &self.keys.trust(), &self.revocations, caller, &at)
    }
}

/// Returns whether a remembered proof still holds for all it was made for, and for a while yet.
fn still_good(granted: &Granted, now: Moment) -> bool {
    let claims = granted.claims();
    let life = claims.expires.since(claims.issued);
    let held = match &claims.objects {
        Objects::All => granted.allows_container(claims.rights, now),
        Objects::Only(ids) => match ids.first() {
            Some(first) => granted.allows(claims.rights, *first, now),
            None => return false,
        },
    };
    held.is_ok() && claims.expires.since(now.wall) > life / 2
}

impl Issuer for SigningIssuer {
    fn issue(&self, decision: &Decision) -> Result<Granted> {
        if !decision.is_allowed() {
            return Err(Error::denied("not everything that was asked for is allowed"));
        }
        let now = self.steady.moment();
        let caller = decision.caller();
        caller.live(now)?;
        let container = decision.container();
        if !self.keys.volumes().contains(&container.volume()) {
            return Err(Error::new(ErrorKind::NotPermitted, "this node does not speak for the volume")
                .about(container));
        }
        let epoch = self.epoch(container, decision.epoch())?;
        let key = Key {
            credential: caller.credential(),
            container,
            epoch,
            acl_version: decision.acl_version(),
            rights: decision.allowed(),
            objects: match decision.objects() {
                Objects::All => None,
                Objects::Only(ids) => Some(ids.clone()),
            },
            constraints: decision.constraints().to_vec(),
            peer: (!decision.constraints().is_empty()).then_some(decision.at().peer),
        };
        if let Some(granted) = self.issued.get(&key)
            && still_good(&granted, now)
        {
            return Ok(granted);
        }
        let granted = self.sign(decision, epoch, now)?;
        self.metrics.auth_capabilities.count(());
        self.issued.insert(key, granted.clone());
        Ok(granted)
    }

    fn begin_epoch(&self, container: ContainerId, epoch: u64) {
        match self.epoch(container, epoch) {
            Ok(epoch) => {
                self.metrics.auth_withdrawals.count((Withdrawn::Container,));
                self.revocations.begin_epoch(container, epoch);
            }
            // Nothing can be issued for it either.
            Err(_) => self.end_container(container),
        }
    }

    fn withdraw(&self, granted: &Granted, rights: Rights) {
        let claims = granted.claims();
        self.metrics.auth_withdrawals.count((Withdrawn::Capability,));
        self.issued.retain(|_, kept| kept.claims().id != claims.id);
        let until = claims.expires.plus(limits::CLOCK_SKEW_MAX);
        self.revocations.withdraw(claims.id, rights, until);
    }
}
