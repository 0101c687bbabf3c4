//! The proof of who is asking.

use std::sync::{Arc, LazyLock};

use super::credential::{Attenuation, Confines, CredentialClaims, EvidenceKind, Within};
use super::lease::{Flag, Revocations, Withdrawn};
use super::signed::{Purpose, Signed};
use super::trust::Trust;
use crate::acl::{Circumstance, Subject};
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CallerId, CredentialId};
use crate::limits;
use crate::rights::Rights;
use crate::time::{Moment, Tick, Time};

/// Proof of who is asking: verified once, then a live lease. Cloning is cheap and
/// shares the lease.
#[derive(Clone)]
pub struct Caller(Arc<Verified>);

struct Verified {
    claims: CredentialClaims,
    signed: Option<Signed>,
    ends: Tick,
    flag: Arc<Flag>,
}

impl Caller {
    /// Verifies a credential: signed by a key its caller's own domain certified, not
    /// expired, not revoked. Pure but for registering the lease with `revocations`.
    ///
    /// Fails with `Unauthenticated`, `Expired` (also if it is from later than this clock) or `Revoked`;
    /// with `TooLarge` beyond what `limits` allows it to hold; with `Stale` if the caller's groups have
    /// changed since and the authority must be asked again.
    pub fn verify(
        credential: &Signed,
        trust: &Trust,
        revocations: &Revocations,
        now: Moment,
    ) -> Result<Self> {
        let (mut claims, domain, _) =
            trust.open::<CredentialClaims>(credential, Purpose::Credential, now.wall)?;
        if claims.caller.domain() != Some(domain) {
            return Err(Error::new(ErrorKind::Unauthenticated, "a domain vouches only for its own callers"));
        }
        if claims.groups.len() > limits::CALLER_GROUPS_MAX || claims.delegates.len() > limits::DELEGATES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the credential names too many groups or delegates"));
        }
        if claims.parents.len() >= limits::LINEAGE_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the credential has been narrowed too often"));
        }
        // One that a clock set far ahead stamped would outlive every revocation made by the right one.
        if claims.issued > now.wall.plus(limits::CLOCK_SKEW_MAX) {
            return Err(Error::new(
                ErrorKind::Expired,
                "the credential is from later than this node's clock",
            )
            .hint("log in again"));
        }
        claims.groups.sort_unstable();
        let flag = revocations.admit_credential(&claims)?;
        let ends = now.tick_of(claims.expires.plus(limits::CLOCK_SKEW_MAX));
        let caller = Self(Arc::new(Verified { claims, signed: Some(credential.clone()), ends, flag }));
        caller.live(now)?;
        Ok(caller)
    }

    /// Returns the caller that proved nothing.
    pub fn anyone() -> Self {
        static ANYONE: LazyLock<Caller> = LazyLock::new(|| {
            let claims = CredentialClaims {
                id: CredentialId(0),
                parents: Vec::new(),
                caller: CallerName::ANYONE,
                groups: Vec::new(),
                membership: 0,
                evidence: EvidenceKind::Credential,
                delegates: Vec::new(),
                attributes: Vec::new(),
                limits: Attenuation::default(),
                issued: Time::EPOCH,
                expires: Time::MAX,
                confines: Confines::Everywhere,
            };
            Caller(Arc::new(Verified { claims, signed: None, ends: Tick(u64::MAX), flag: Arc::default() }))
        });
        ANYONE.clone()
    }

    /// Checks that the lease still runs. Fails with `Expired` or `Revoked`.
    pub fn live(&self, now: Moment) -> Result<()> {
        if !self.0.flag.withdrawn().is_empty() {
            return Err(Error::new(ErrorKind::Revoked, "the credential was revoked").hint("weft login"));
        }
        if now.wall.is_past(self.0.claims.expires, limits::CLOCK_SKEW_MAX) || now.tick >= self.0.ends {
            return Err(Error::new(ErrorKind::Expired, "the credential has run out").hint("weft login"));
        }
        Ok(())
    }

    /// Returns a future that ends once the credential is revoked.
    pub fn withdrawn(&self) -> Withdrawn {
        Withdrawn::of(&self.0.flag, Rights::ALL)
    }

    /// Returns who it is.
    pub fn name(&self) -> &CallerName {
        &self.0.claims.caller
    }

    /// Returns whether this is the caller that proved nothing.
    pub fn is_anyone(&self) -> bool {
        self.0.claims.caller.is_anyone()
    }

    /// Returns what of the caller decides what a policy gives it: with the groups that it is in now.
    pub fn subject(&self) -> Subject<'_> {
        Subject::of(&self.0.claims, self.0.flag.changed_groups())
    }

    /// Returns whether the id is the caller's own or that of one of its groups.
    pub fn is_or_is_in(&self, id: CallerId) -> bool {
        self.subject().is_or_is_in(id)
    }

    /// Returns the credential that was verified; zero for `anyone`.
    pub fn credential(&self) -> CredentialId {
        self.0.claims.id
    }

    /// Returns the credential itself, to be shown to another node on the caller's own
    /// behalf; none for `anyone`.
    pub fn signed(&self) -> Option<&Signed> {
        self.0.signed.as_ref()
    }

    /// Returns everything the credential says.
    pub fn claims(&self) -> &CredentialClaims {
        &self.0.claims
    }

    /// Returns what the credential was narrowed to.
    pub fn limits(&self) -> &Attenuation {
        &self.0.claims.limits
    }

    /// Returns the one thing that the credential is confined to, if it is a link's.
    pub fn within(&self) -> Option<&Within> {
        self.subject().within()
    }

    /// Returns whether the credential reaches some places only: then what it is given speaks of single
    /// objects, and what it opened by an id is asked anew where it lies.
    pub fn is_confined(&self) -> bool {
        self.subject().is_confined()
    }

    /// Returns whether the credential carries less than its caller may do.
    pub fn is_narrowed(&self) -> bool {
        self.is_confined() || *self.limits() != Attenuation::NONE
    }

    /// Returns the rights the credential may carry in these circumstances: none from
    /// an address or at a time it was not made for.
    pub fn rights_at(&self, at: &Circumstance) -> Rights {
        self.subject().rights_at(at)
    }

    pub(super) fn flag(&self) -> &Arc<Flag> {
        &self.0.flag
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Caller({} by {})", self.name(), self.credential())
    }
}
