//! Passwords: kept as argon2id, checked a few at a time, remembered for a while.

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use weft_core::service::Secret;
use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::Random;
use zeroize::Zeroizing;

/// A password as it is kept: the hash and what it takes to make it again, so that the cost can
/// be raised for new passwords without losing old ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    salt: [u8; 16],
    hash: [u8; 32],
}

impl PasswordHash {
    /// Hashes a new password. Takes as long as checking it. `TooLong`, or `Invalid` if empty.
    pub(crate) fn make(password: &Secret, random: &dyn Random) -> Result<Self> {
        let bytes = password.expose().len();
        if bytes == 0 {
            return Err(Error::invalid("a password has at least one character"));
        }
        if bytes > limits::PASSWORD_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "a password has at most 1 024 bytes"));
        }
        let mut made = Self::nobodys(random);
        made.hash = *made.run(password)?;
        Ok(made)
    }

    /// Returns a hash that no password has, and that costs what a real one does to find that out.
    pub(crate) fn nobodys(random: &dyn Random) -> Self {
        let (mut salt, mut hash) = ([0; 16], [0; 32]);
        random.fill(&mut salt);
        random.fill(&mut hash);
        Self { memory_kib: limits::PASSWORD_MEMORY_KIB, passes: limits::PASSWORD_PASSES, salt, hash }
    }

    /// Returns whether this is the password. Slow on purpose; takes
    /// [`limits::PASSWORD_MEMORY_KIB`] of memory.
    pub(crate) fn is(&self, password: &Secret) -> Result<bool> {
        if password.expose().len() > limits::PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        Ok(self.run(password)?.ct_eq(&self.hash).into())
    }

    /// Returns what no other password has, nor the same one set again.
    pub(crate) fn salt(&self) -> &[u8] {
        &self.salt
    }

    fn run(&self, password: &Secret) -> Result<Zeroizing<[u8; 32]>> {
        let (memory_max, passes_max) = limits::PASSWORD_COST_MAX;
        if self.memory_kib > memory_max || self.passes > passes_max {
            return Err(Error::corrupt("a stored password asks for more memory than any may"));
        }
        let failed = |error: argon2::Error| {
            Error::internal("a password cannot be hashed").caused_by(error.to_string())
        };
        let params = Params::new(self.memory_kib, self.passes, 1, Some(32)).map_err(failed)?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut hash = Zeroizing::new([0; 32]);
        argon.hash_password_into(password.expose().as_bytes(), &self.salt, &mut *hash).map_err(failed)?;
        Ok(hash)
    }
}

/// Returns a password of 100 random bits, easy to type: `k3fa-…`.
pub(crate) fn random_password(random: &dyn Random) -> Secret {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = Zeroizing::new([0; 20]);
    random.fill(&mut *bytes);
    let mut text = String::with_capacity(24);
    for (place, byte) in bytes.iter().enumerate() {
        if place > 0 && place % 5 == 0 {
            text.push('-');
        }
        text.push(char::from(LETTERS[usize::from(byte % 32)]));
    }
    Secret::new(text)
}

#[cfg(test)]
mod tests {
    use weft_sys::SeededRandom;

    use super::*;

    #[test]
    fn only_the_password_itself_is_right() {
        let random = SeededRandom::new(1);
        let hash = PasswordHash::make(&Secret::new("open sesame"), &random).expect("a good password");
        assert!(hash.is(&Secret::new("open sesame")).expect("it can be checked"));
        for wrong in ["", "open sesam", "open sesame ", "Open sesame"] {
            assert!(!hash.is(&Secret::new(wrong)).expect("it can be checked"), "{wrong}");
        }
        let nobody = PasswordHash::nobodys(&random);
        assert!(!nobody.is(&Secret::new("open sesame")).expect("it can be checked"));
    }

    #[test]
    fn empty_and_endless_passwords_are_refused_and_a_cost_beyond_bounds_is_corrupt() {
        let random = SeededRandom::new(1);
        assert!(PasswordHash::make(&Secret::new(""), &random).is_err());
        assert!(PasswordHash::make(&Secret::new("x".repeat(1025)), &random).is_err());
        let mut hash = PasswordHash::nobodys(&random);
        hash.memory_kib = u32::MAX;
        let error = hash.is(&Secret::new("x")).expect_err("it would take 4 TiB");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}
