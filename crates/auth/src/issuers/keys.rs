//! An issuer's keys, as it publishes them (RFC 7517), and what is verified by them.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use weft_core::{Error, ErrorKind, Result, limits};

use super::jws::Token;

/// How a token may be signed: by nothing that is a secret shared with the issuer, and never not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm of that name, if it is taken.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// An issuer's keys.
pub(super) struct KeySet(Vec<Key>);

struct Key {
    id: Option<String>,
    /// The one algorithm that it is for, if the issuer says so.
    only: Option<Algorithm>,
    material: Material,
}

enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Published {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct PublishedKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads what an issuer publishes. Keys that are not known, cannot be read or are for something else are passed over
    /// (RFC 7517, 5). Fails with `Unavailable` where none is left.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let wrong = |detail: &'static str| Error::new(ErrorKind::Unavailable, detail);
        if bytes.len() > limits::ISSUER_DOCUMENT_BYTES_MAX {
            return Err(wrong("the issuer's keys are larger than they may be"));
        }
        let published: Published = serde_json::from_slice(bytes)
            .map_err(|error| wrong("the issuer's keys cannot be read").caused_by(error))?;
        if published.keys.len() > limits::ISSUER_KEYS_MAX {
            return Err(wrong("the issuer has more keys than it may have"));
        }
        let read = |one| serde_json::from_value(one).ok().and_then(Key::of);
        let keys: Vec<Key> = published.keys.into_iter().filter_map(read).collect();
        if keys.is_empty() {
            return Err(wrong("the issuer has no key that is taken here"));
        }
        Ok(Self(keys))
    }

    /// Returns whether there is a key that may have signed the token.
    pub(super) fn has_key_of(&self, token: &Token<'_>) -> bool {
        self.of(token).next().is_some()
    }

    /// Returns whether one of them signed the token.
    pub(super) fn verify(&self, token: &Token<'_>) -> bool {
        self.of(token).any(|key| key.verify(token))
    }

    /// Returns the keys that may have signed a token: those of the name that it gives, or if it gives none the one
    /// that there is.
    fn of<'s>(&'s self, token: &'s Token<'_>) -> impl Iterator<Item = &'s Key> {
        let suits = |key: &&Key| key.suits(token.algorithm);
        let only = self.0.iter().filter(suits).count() == 1;
        self.0.iter().filter(suits).filter(move |key| match &token.key {
            Some(name) => key.id.as_ref() == Some(name),
            None => only,
        })
    }
}

impl Key {
    /// Returns the key that was published, if it is one that may sign.
    fn of(published: PublishedKey) -> Option<Self> {
        let signs = published.purpose.as_deref().is_none_or(|purpose| purpose == "sig");
        let verifies = published.key_ops.as_ref().is_none_or(|all| all.iter().any(|one| one == "verify"));
        if !signs || !verifies {
            return None;
        }
        // One that is for an algorithm that is not taken is not for another either.
        let only = match &published.alg {
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        let material = Material::of(&published)?;
        Some(Self { id: published.kid, only, material })
    }

    fn suits(&self, algorithm: Algorithm) -> bool {
        self.only.is_none_or(|only| only == algorithm) && self.material.check(algorithm).is_some()
    }

    fn verify(&self, token: &Token<'_>) -> bool {
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        match (&self.material, self.material.check(token.algorithm)) {
            (Material::Rsa { n, e }, Some(Check::Rsa(check))) => {
                RsaPublicKeyComponents { n, e }.verify(check, message, signature).is_ok()
            }
            (
                Material::P256(key) | Material::P384(key) | Material::Ed25519(key),
                Some(Check::Point(check)),
            ) => UnparsedPublicKey::new(check, key).verify(message, signature).is_ok(),
            _ => false,
        }
    }
}

/// What checks a signature.
enum Check {
    Rsa(&'static RsaParameters),
    Point(&'static dyn VerificationAlgorithm),
}

impl Material {
    fn of(published: &PublishedKey) -> Option<Self> {
        let part = |text: &Option<String>| BASE64URL_NOPAD.decode(text.as_ref()?.as_bytes()).ok();
        let point = |bytes: usize| {
            let (x, y) = (part(&published.x)?, part(&published.y)?);
            (x.len() == bytes && y.len() == bytes).then(|| [&[4], &x[..], &y[..]].concat())
        };
        match (published.kty.as_str(), published.crv.as_deref()) {
            ("RSA", None) => {
                let number = |text| {
                    let bytes: Vec<u8> = part(text)?.into_iter().skip_while(|byte| *byte == 0).collect();
                    Some(bytes)
                };
                Some(Self::Rsa { n: number(&published.n)?, e: number(&published.e)? })
            }
            ("EC", Some("P-256")) => point(32).map(Self::P256),
            ("EC", Some("P-384")) => point(48).map(Self::P384),
            ("OKP", Some("Ed25519")) => part(&published.x).filter(|key| key.len() == 32).map(Self::Ed25519),
            _ => None,
        }
    }

    /// Returns what checks signatures of a key by an algorithm; none where it is not one of such keys. A key of RSA
    /// has 2048 to 8192 bits.
    fn check(&self, algorithm: Algorithm) -> Option<Check> {
        Some(match (self, algorithm) {
            (Self::Rsa { .. }, Algorithm::Rs256) => Check::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            (Self::Rsa { .. }, Algorithm::Rs384) => Check::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            (Self::Rsa { .. }, Algorithm::Rs512) => Check::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            (Self::P256(_), Algorithm::Es256) => Check::Point(&signature::ECDSA_P256_SHA256_FIXED),
            (Self::P384(_), Algorithm::Es384) => Check::Point(&signature::ECDSA_P384_SHA384_FIXED),
            (Self::Ed25519(_), Algorithm::EdDsa) => Check::Point(&signature::ED25519),
            _ => return None,
        })
    }
}
