//! An issuer of tokens, with keys of its own, for tests of those who take them.

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use serde_json::{Value, json};

/// A key that signs tokens.
pub struct TokenKey {
    id: String,
    pair: Pair,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Returns bytes as tokens have them.
pub fn coded(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

impl TokenKey {
    /// Makes a key for `ES256`, `ES384` or `EdDSA`.
    ///
    /// # Panics
    /// If the algorithm is another.
    pub fn new(algorithm: &str, id: &str) -> Self {
        let random = SystemRandom::new();
        let ecdsa = |which| {
            let document = EcdsaKeyPair::generate_pkcs8(which, &random).expect("randomness");
            EcdsaKeyPair::from_pkcs8(which, document.as_ref(), &random).expect("just made")
        };
        let pair = match algorithm {
            "ES256" => Pair::P256(ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING)),
            "ES384" => Pair::P384(ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING)),
            "EdDSA" => {
                let document = Ed25519KeyPair::generate_pkcs8(&random).expect("randomness");
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("just made"))
            }
            other => panic!("no test signs by {other}"),
        };
        Self { id: id.to_owned(), pair }
    }

    /// Returns how the key signs.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// Returns the public key's bytes.
    pub fn public(&self) -> &[u8] {
        match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        }
    }

    /// Returns the public key as issuers show it.
    pub fn shown(&self) -> Value {
        let point = |curve: &str| {
            let (x, y) = self.public()[1..].split_at((self.public().len() - 1) / 2);
            json!({"kty": "EC", "crv": curve, "kid": self.id, "use": "sig", "x": coded(x), "y": coded(y)})
        };
        match &self.pair {
            Pair::P256(_) => point("P-256"),
            Pair::P384(_) => point("P-384"),
            Pair::Ed25519(_) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": coded(self.public())})
            }
        }
    }

    /// Returns a token that says this, signed as it should be.
    pub fn token(&self, claims: &Value) -> String {
        self.token_of(&json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"}), &claims.to_string())
    }

    /// Returns a token of this head and of claims as they are written, signed.
    ///
    /// # Panics
    /// Never, but where there is no randomness.
    pub fn token_of(&self, header: &Value, claims: &str) -> String {
        let signed = format!("{}.{}", coded(header.to_string()), coded(claims));
        let message = signed.as_bytes();
        let signature = match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => {
                pair.sign(&SystemRandom::new(), message).expect("randomness").as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        };
        format!("{signed}.{}", coded(signature))
    }
}

/// Returns keys as an issuer shows them.
pub fn shown(keys: &[&TokenKey]) -> Value {
    json!({"keys": keys.iter().map(|key| key.shown()).collect::<Vec<_>>()})
}
