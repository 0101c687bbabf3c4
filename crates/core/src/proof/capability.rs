//! Capabilities, and the proof that one was verified.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::lease::{Flag, Revocations, Withdrawn};
use super::signed::{Purpose, Signed};
use super::trust::Trust;
use crate::acl::{Circumstance, Constraint, Decision};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CallerId, CapabilityId, ContainerId, CredentialId, ObjectId};
use crate::limits;
use crate::rights::Rights;
use crate::time::{Moment, Tick, Time};

/// Which objects of a container a capability speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Objects {
    /// All of them.
    All,
    /// Only these; at most 64.
    Only(Vec<ObjectId>),
}

impl Objects {
    /// Returns whether the object is among them.
    pub fn contain(&self, object: ObjectId) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.contains(&object),
        }
    }
}

/// What a capability says. Signed by a key certified for the container's volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityClaims {
    /// Its id: issuer instance and serial.
    pub id: CapabilityId,
    /// The container it speaks of.
    pub container: ContainerId,
    /// The container's epoch when it was made.
    pub epoch: u64,
    /// The objects it speaks of.
    pub objects: Objects,
    /// The operations it allows.
    pub rights: Rights,
    /// What must hold of whoever presents it.
    pub constraints: Vec<Constraint>,
    /// For whom it was made: revoking that caller ends it.
    pub caller: CallerId,
    /// The credential it was asked for with and all that one came from: revoking any of them
    /// ends it, whoever shows it. None if it was made for `anyone`.
    pub lineage: Vec<CredentialId>,
    /// When it was made.
    pub issued: Time,
    /// When it ends.
    pub expires: Time,
}

impl CapabilityClaims {
    /// Returns the claims that a decision supports, and no more. It ends with the
    /// caller's credential if that is sooner than `expires`.
    pub fn of(decision: &Decision, id: CapabilityId, expires: Time) -> Self {
        let caller = decision.caller();
        Self {
            id,
            container: decision.container(),
            epoch: decision.epoch(),
            objects: decision.objects().clone(),
            rights: decision.allowed(),
            constraints: decision.constraints().to_vec(),
            caller: caller.name().id(),
            lineage: caller.claims().lineage().collect(),
            issued: decision.at().now.wall,
            expires: expires.min(caller.claims().expires),
        }
    }
}

/// Proof that its holder may do named operations on a container or some of its
/// objects: verified once, then a live lease. Cloning is cheap and shares the lease.
#[derive(Clone)]
pub struct Granted(Arc<Verified>);

struct Verified {
    claims: CapabilityClaims,
    capability: Signed,
    presenter: Caller,
    peer: Option<std::net::IpAddr>,
    ends: Tick,
    flag: Arc<Flag>,
}

impl Granted {
    /// Verifies a capability shown by `presenter` from `at.peer`: signed by a key
    /// certified for its container's volume, not expired, not revoked, its
    /// constraints met. Pure but for registering the lease with `revocations`.
    ///
    /// Fails with `Unauthenticated`, `Expired`, `Revoked` or `Denied`; with `TooLarge` beyond what
    /// `limits` allows it to hold.
    pub fn verify(
        capability: &Signed,
        trust: &Trust,
        revocations: &Revocations,
        presenter: &Caller,
        at: &Circumstance,
    ) -> Result<Self> {
        let (claims, _, volumes) =
            trust.open::<CapabilityClaims>(capability, Purpose::Capability, at.now.wall)?;
        if !volumes.contains(&claims.container.volume()) {
            let detail = "signed by a key that does not speak for the container's volume";
            return Err(Error::new(ErrorKind::Unauthenticated, detail));
        }
        if matches!(&claims.objects, Objects::Only(ids) if ids.len() > limits::CAPABILITY_OBJECTS_MAX) {
            return Err(Error::new(ErrorKind::TooLarge, "the capability names too many objects"));
        }
        if claims.lineage.len() > limits::LINEAGE_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the capability's credential has come too far"));
        }
        let flag = revocations.admit_capability(&claims)?;
        let (capability, presenter) = (capability.clone(), presenter.clone());
        let ends = at.now.tick_of(claims.expires.plus(limits::CLOCK_SKEW_MAX));
        let granted = Self(Arc::new(Verified { claims, capability, presenter, peer: at.peer, ends, flag }));
        granted.running(at.now)?;
        Ok(granted)
    }

    /// Checks that `op` on `object` is allowed now. Called for every piece.
    ///
    /// Fails with `Denied`, `Expired` or `Revoked`.
    pub fn allows(&self, op: Rights, object: ObjectId, now: Moment) -> Result<()> {
        let claims = &self.0.claims;
        if !claims.rights.contains(op) || !claims.objects.contain(object) {
            return Err(Error::denied("the capability does not cover the operation"));
        }
        self.allows_anywhere(op, now)
    }

    /// Checks that `op` is allowed now on the container as a whole: making an object,
    /// listing them.
    pub fn allows_container(&self, op: Rights, now: Moment) -> Result<()> {
        let claims = &self.0.claims;
        if !claims.rights.contains(op) || claims.objects != Objects::All {
            return Err(Error::denied("the capability does not cover the operation"));
        }
        self.allows_anywhere(op, now)
    }

    fn allows_anywhere(&self, op: Rights, now: Moment) -> Result<()> {
        if self.0.flag.withdrawn().intersects(op) || !self.0.presenter.flag().withdrawn().is_empty() {
            return Err(Error::new(ErrorKind::Revoked, "the right was withdrawn"));
        }
        self.running(now)?;
        let at = Circumstance { now, peer: self.0.peer };
        let met = |c: &Constraint| !c.rights.intersects(op) || c.met(&self.0.presenter.subject(), &at);
        if !self.0.claims.constraints.iter().all(met) {
            return Err(Error::denied("a condition on the right no longer holds"));
        }
        Ok(())
    }

    fn running(&self, now: Moment) -> Result<()> {
        if now.wall.is_past(self.0.claims.expires, limits::CLOCK_SKEW_MAX) || now.tick >= self.0.ends {
            return Err(Error::new(ErrorKind::Expired, "the capability has run out"));
        }
        Ok(())
    }

    /// Returns a future that ends once `op` is withdrawn from the capability or its
    /// presenter's credential is revoked.
    pub fn withdrawn(&self, op: Rights) -> Withdrawn {
        Withdrawn::of(&self.0.flag, op).and(self.0.presenter.flag())
    }

    /// Returns what the capability says.
    pub fn claims(&self) -> &CapabilityClaims {
        &self.0.claims
    }

    /// Returns the capability itself, to be shown to another node.
    pub fn capability(&self) -> &Signed {
        &self.0.capability
    }
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Granted({} on {} until {})",
            self.0.claims.rights,
            self.0.claims.container,
            self.0.claims.expires.seconds()
        )
    }
}
