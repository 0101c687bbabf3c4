//! Which keys may say what: certificates that domains' root keys signed.

use std::collections::HashMap;

use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};

use super::signed::{Purpose, Signed};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{DomainId, KeyId, VolumeId};
use crate::limits;
use crate::time::Time;

/// What a root key says of a signing key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateClaims {
    /// The public half of the key that is certified.
    pub key: [u8; 32],
    /// The one thing it may sign.
    pub purpose: Purpose,
    /// For [`Purpose::Capability`]: the volumes whose containers it may speak for.
    pub volumes: Vec<VolumeId>,
    /// From when it may be believed.
    pub from: Time,
    /// Until when it may be believed.
    pub until: Time,
}

/// A certificate: the domain's root public key, and its signed statement about another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCertificate {
    /// The public half of the root key: its hash is the domain's id.
    pub root: [u8; 32],
    /// The signed [`CertificateClaims`].
    pub statement: Signed,
}

impl KeyId {
    /// Returns the id of the key with this public half.
    pub fn of_public_key(key: &[u8; 32]) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(key).as_bytes()[..16]);
        Self(u128::from_be_bytes(id))
    }
}

#[derive(Clone, Debug)]
struct Certified {
    domain: DomainId,
    key: VerifyingKey,
    claims: CertificateClaims,
}

/// The keys this node believes, of its own domain and of partners. A plain value:
/// whoever changes it makes a new one.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    domains: Vec<DomainId>,
    keys: HashMap<KeyId, Certified>,
}

impl Trust {
    /// Returns trust in nobody.
    pub fn none() -> Self {
        Self::default()
    }

    /// Starts to believe what is certified by a domain's root key.
    pub fn add_domain(&mut self, domain: DomainId) {
        if !self.domains.contains(&domain) {
            self.domains.push(domain);
        }
    }

    /// Adds a certificate. Fails with `Unauthenticated` unless a trusted domain's root
    /// key signed it.
    pub fn add(&mut self, certificate: &KeyCertificate) -> Result<KeyId> {
        let bad = |detail: &'static str| Error::new(ErrorKind::Unauthenticated, detail);
        let domain = DomainId::of_root_key(&certificate.root);
        if !self.domains.contains(&domain) {
            return Err(bad("the certificate is of a domain that is not trusted"));
        }
        let root =
            VerifyingKey::from_bytes(&certificate.root).map_err(|e| bad("not a root key").caused_by(e))?;
        let claims: CertificateClaims = certificate.statement.open(Purpose::Certificate, &root)?;
        let key = VerifyingKey::from_bytes(&claims.key).map_err(|e| bad("not a public key").caused_by(e))?;
        let id = KeyId::of_public_key(&claims.key);
        self.keys.insert(id, Certified { domain, key, claims });
        Ok(id)
    }

    /// Stops believing a key.
    pub fn remove(&mut self, key: KeyId) {
        self.keys.remove(&key);
    }

    /// Verifies signed claims by a key certified for `purpose` and believed now.
    /// Returns them with the domain and the volumes the key may speak for.
    pub(super) fn open<T: serde::de::DeserializeOwned>(
        &self,
        signed: &Signed,
        purpose: Purpose,
        now: Time,
    ) -> Result<(T, DomainId, &[VolumeId])> {
        let certified = self.believed(signed.key(), purpose, now)?;
        Ok((signed.open(purpose, &certified.key)?, certified.domain, &certified.claims.volumes))
    }

    /// Verifies signed claims about no one's rights (audit heads). Same rules.
    pub fn verify<T: serde::de::DeserializeOwned>(
        &self,
        signed: &Signed,
        purpose: Purpose,
        now: Time,
    ) -> Result<T> {
        self.open(signed, purpose, now).map(|(claims, _, _)| claims)
    }

    fn believed(&self, key: KeyId, purpose: Purpose, now: Time) -> Result<&Certified> {
        let bad = |detail: &'static str| Error::new(ErrorKind::Unauthenticated, detail);
        let certified = self.keys.get(&key).ok_or_else(|| bad("signed by a key that is not trusted"))?;
        if certified.claims.purpose != purpose {
            return Err(bad("signed by a key that is certified for something else"));
        }
        if now.plus(limits::CLOCK_SKEW_MAX) < certified.claims.from {
            return Err(bad("signed by a key that is not yet to be believed"));
        }
        if now.is_past(certified.claims.until, limits::CLOCK_SKEW_MAX) {
            // Nobody is let in to say so by a command: only who has the node's directory can mend it.
            let hint = "put root.key back into auth/keys of the node's directory: new keys are made within ten minutes";
            return Err(
                Error::new(ErrorKind::Expired, "signed by a key whose certificate has run out").hint(hint)
            );
        }
        Ok(certified)
    }
}
