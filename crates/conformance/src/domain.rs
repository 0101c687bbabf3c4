//! The test domain: keys that sign for tests, since only a signature makes a proof.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ed25519_dalek::{Signer, SigningKey};
use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::acl::{Ask, Circumstance, Decision, decide};
use weft_core::form::{Ack, Call, Door, Origin, Wire};
use weft_core::proof::{
    Attenuation, Caller, CapabilityClaims, CertificateClaims, Confines, CredentialClaims, EvidenceKind,
    Granted, KeyCertificate, Objects, Purpose, Revocations, Signed, Trust,
};
use weft_core::service::{Issuer, Memberships};
use weft_core::{
    CallerId, CallerName, CapabilityId, Clock, ContainerId, CredentialId, Deadline, DomainId, Error, KeyId,
    Result, Rights, SessionId, Time, TraceId, VolumeId,
};

/// How long everything signed for tests lives.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// A domain made for one test: its keys come from `seed`, its time from the clock it is given.
pub struct TestDomain {
    root: SigningKey,
    credentials: SigningKey,
    capabilities: SigningKey,
    trust: Trust,
    revocations: Arc<Revocations>,
    clock: Arc<dyn Clock>,
    serial: AtomicU64,
    /// The groups that callers were last in.
    groups: Mutex<HashMap<CallerId, Vec<CallerId>>>,
}

impl TestDomain {
    /// Makes a domain whose capability key speaks for `volumes`.
    pub fn new(seed: u8, clock: Arc<dyn Clock>, volumes: &[VolumeId]) -> Arc<Self> {
        let key = |n: u8| SigningKey::from_bytes(&[seed ^ n; 32]);
        let (root, credentials, capabilities) = (key(0x10), key(0x20), key(0x40));
        let mut trust = Trust::none();
        trust.add_domain(DomainId::of_root_key(&root.verifying_key().to_bytes()));
        for (key, purpose) in [(&credentials, Purpose::Credential), (&capabilities, Purpose::Capability)] {
            let claims = CertificateClaims {
                key: key.verifying_key().to_bytes(),
                purpose,
                volumes: volumes.to_vec(),
                from: Time::EPOCH,
                until: Time::MAX,
            };
            let statement = sign(&root, Purpose::Certificate, &claims);
            let certificate = KeyCertificate { root: root.verifying_key().to_bytes(), statement };
            trust.add(&certificate).expect("the test domain trusts itself");
        }
        let revocations = Arc::new(Revocations::new());
        Arc::new(Self {
            root,
            credentials,
            capabilities,
            trust,
            revocations,
            clock,
            serial: AtomicU64::new(1),
            groups: Mutex::default(),
        })
    }

    /// Returns the domain's id.
    pub fn id(&self) -> DomainId {
        DomainId::of_root_key(&self.root.verifying_key().to_bytes())
    }

    /// Returns what the domain trusts: itself.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns what was revoked.
    pub fn revocations(&self) -> &Arc<Revocations> {
        &self.revocations
    }

    /// Returns the clock everything is judged by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the full name of a user of this domain.
    pub fn name(&self, text: &str) -> CallerName {
        CallerName::parse(text, self.id()).expect("tests use good names")
    }

    /// Returns claims of a fresh credential for a user, to be changed before signing.
    pub fn claims(&self, user: &str) -> CredentialClaims {
        let now = self.clock.now();
        CredentialClaims {
            id: CredentialId(u128::from(self.next_serial())),
            parents: Vec::new(),
            caller: self.name(user),
            groups: Vec::new(),
            membership: 0,
            evidence: EvidenceKind::Password,
            delegates: Vec::new(),
            attributes: Vec::new(),
            limits: Attenuation::default(),
            issued: now,
            expires: now.plus(LIFE),
            confines: Confines::Everywhere,
        }
    }

    /// Signs credential claims.
    pub fn credential(&self, claims: &CredentialClaims) -> Signed {
        sign(&self.credentials, Purpose::Credential, claims)
    }

    /// Signs capability claims, whatever they say.
    pub fn capability(&self, claims: &CapabilityClaims) -> Signed {
        sign(&self.capabilities, Purpose::Capability, claims)
    }

    /// Returns proof of being a user of this domain, with an unlimited credential.
    pub fn caller(&self, user: &str) -> Caller {
        self.caller_with(&self.claims(user))
    }

    /// Returns proof of being a user who is in groups.
    pub fn caller_in(&self, user: &str, groups: &[CallerId]) -> Caller {
        let mut claims = self.claims(user);
        claims.groups = groups.to_vec();
        self.caller_with(&claims)
    }

    /// Returns proof of what the claims say.
    pub fn caller_with(&self, claims: &CredentialClaims) -> Caller {
        if !claims.groups.is_empty() {
            let mut groups = claims.groups.clone();
            groups.sort_unstable();
            self.groups().insert(claims.caller.id(), groups);
        }
        Caller::verify(&self.credential(claims), &self.trust, &self.revocations, self.clock.moment())
            .expect("the test domain verifies what it signed")
    }

    /// Returns a call by a caller in a session, through no particular door, with a
    /// minute to go.
    pub fn call(&self, caller: &Caller, session: u128) -> Call {
        Call {
            caller: caller.clone(),
            session: SessionId(session),
            until: Deadline::within(&*self.clock, Duration::from_secs(60)),
            trace: TraceId(self.next_serial()),
            from: Origin { door: Door::Native, peer: None, uid: None },
            once: None,
            ack: Ack::Applied,
            wire: Wire::Private,
        }
    }

    /// Returns proof of rights on a whole container, through an ACL that gives them to
    /// the caller.
    pub fn granted(&self, caller: &Caller, container: ContainerId, rights: Rights) -> Granted {
        self.granted_on(caller, container, rights, Objects::All)
    }

    /// Returns proof of rights on some objects of a container.
    pub fn granted_on(
        &self,
        caller: &Caller,
        container: ContainerId,
        rights: Rights,
        objects: Objects,
    ) -> Granted {
        let who = if caller.is_anyone() { Who::Anyone } else { Who::Caller(caller.name().clone()) };
        let acl = Acl::new(vec![AclEntry::allow(who, rights)]);
        let ask = Ask { container, epoch: 0, rights, objects, now: self.clock.moment(), peer: None };
        self.issue(&decide(&acl, caller, &ask)).expect("the ACL gives what is asked")
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<CallerId, Vec<CallerId>>> {
        self.groups.lock().expect("nobody panics with it")
    }

    fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }
}

fn sign<T: serde::Serialize>(key: &SigningKey, purpose: Purpose, claims: &T) -> Signed {
    let claims = postcard::to_stdvec(claims).expect("plain data always encodes");
    let signature = key.sign(&purpose.message(&claims)).to_bytes();
    Signed::assemble(claims, KeyId::of_public_key(&key.verifying_key().to_bytes()), signature)
}

impl Memberships for TestDomain {
    fn groups_of(&self, name: &CallerName) -> Result<Vec<CallerId>> {
        Ok(self.groups().get(&name.id()).cloned().unwrap_or_default())
    }
}

impl Issuer for TestDomain {
    fn issue(&self, decision: &Decision) -> Result<Granted> {
        if !decision.is_allowed() {
            return Err(Error::denied("no entry of the ACL gives the right"));
        }
        if decision.epoch() > weft_core::limits::EPOCH_MAX {
            return Err(Error::internal("a container has begun more epochs than fit"));
        }
        let id = CapabilityId(u128::from(self.next_serial()));
        let claims = CapabilityClaims::of(decision, id, self.clock.now().plus(LIFE));
        let at = Circumstance { now: self.clock.moment(), peer: decision.at().peer };
        Granted::verify(&self.capability(&claims), &self.trust, &self.revocations, decision.caller(), &at)
    }

    fn begin_epoch(&self, container: ContainerId, epoch: u64) {
        self.revocations.begin_epoch(container, epoch);
    }

    fn withdraw(&self, granted: &Granted, rights: Rights) {
        self.revocations.withdraw(granted.claims().id, rights, granted.claims().expires);
    }
}
