//! Signed bytes: what a credential, a capability and a key certificate have in common.

use bytes::Bytes;
use ed25519_dalek::{Signature, VerifyingKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::id::KeyId;
use crate::limits;

/// What a key is certified to sign. The purpose is part of the signed message, so a
/// signature given for one is worth nothing for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Purpose {
    /// Key certificates: the root key's only use.
    Certificate,
    /// Credentials.
    Credential,
    /// Capabilities.
    Capability,
    /// Heads of audit logs.
    Audit,
}

impl Purpose {
    fn context(self) -> &'static [u8] {
        match self {
            Self::Certificate => b"weft certificate v1\0",
            Self::Credential => b"weft credential v1\0",
            Self::Capability => b"weft capability v1\0",
            Self::Audit => b"weft audit head v1\0",
        }
    }

    /// Returns the exact bytes that are signed for this purpose.
    pub fn message(self, claims: &[u8]) -> Vec<u8> {
        [self.context(), claims].concat()
    }
}

/// Encoded claims with a signature over them. Nothing is believed of the claims until
/// the signature has been verified against a trusted key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    #[serde(deserialize_with = "claims_bytes")]
    claims: Bytes,
    key: KeyId,
    #[serde(with = "signature_bytes")]
    signature: [u8; 64],
}

impl Signed {
    /// Puts the three parts together; whoever reads them checks them.
    pub fn assemble(claims: impl Into<Bytes>, key: KeyId, signature: [u8; 64]) -> Self {
        Self { claims: claims.into(), key, signature }
    }

    /// Returns the id of the key that is said to have signed.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Returns the encoded claims, unverified.
    pub fn claims(&self) -> &[u8] {
        &self.claims
    }

    /// Verifies the signature and decodes the claims. Fails with `Unauthenticated`.
    pub(super) fn open<T: DeserializeOwned>(&self, purpose: Purpose, key: &VerifyingKey) -> Result<T> {
        let bad = |detail: &'static str| Error::new(ErrorKind::Unauthenticated, detail);
        if self.claims.len() > limits::PROOF_BYTES_MAX {
            return Err(bad("the proof is larger than a proof may be"));
        }
        key.verify_strict(&purpose.message(&self.claims), &Signature::from_bytes(&self.signature))
            .map_err(|e| bad("the signature does not match").caused_by(e))?;
        postcard::from_bytes(&self.claims).map_err(|e| bad("the signed claims are malformed").caused_by(e))
    }

    /// Returns the text form that clients carry: URL-safe, without padding.
    pub fn to_token(&self) -> String {
        let bytes = postcard::to_stdvec(self).expect("plain data always encodes");
        format!("{TOKEN_PREFIX}{}", data_encoding::BASE64URL_NOPAD.encode(&bytes))
    }

    /// Reads the text form. Fails with `Unauthenticated` if it is not one of ours.
    pub fn from_token(token: &str) -> Result<Self> {
        let bad = || Error::new(ErrorKind::Unauthenticated, "the token is malformed");
        let text = token.strip_prefix(TOKEN_PREFIX).ok_or_else(bad)?;
        if text.len() > limits::PROOF_BYTES_MAX * 2 {
            return Err(bad());
        }
        let bytes = data_encoding::BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|e| bad().caused_by(e))?;
        let (signed, rest) = postcard::take_from_bytes(&bytes).map_err(|e| bad().caused_by(e))?;
        if rest.is_empty() { Ok(signed) } else { Err(bad()) }
    }
}

/// How a token starts, so that a leaked one can be recognised for what it is.
const TOKEN_PREFIX: &str = "weft1.";

/// Reads claims; what is larger than a proof may be is no proof, and not kept.
fn claims_bytes<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Bytes, D::Error> {
    let claims = <&[u8]>::deserialize(from)?;
    if claims.len() > limits::PROOF_BYTES_MAX {
        return Err(serde::de::Error::invalid_length(claims.len(), &"the bytes of a proof"));
    }
    Ok(Bytes::copy_from_slice(claims))
}

mod signature_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 64], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 64], D::Error> {
        let bytes = <&[u8]>::deserialize(from)?;
        bytes.try_into().map_err(|_| serde::de::Error::invalid_length(bytes.len(), &"64 bytes"))
    }
}
