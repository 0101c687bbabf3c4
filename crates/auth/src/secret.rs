//! Secrets that are told once and kept nowhere: what is kept is an id, a part of the secret's hash. By that
//! a row is found, in a time that tells nothing of what others there are.

use weft_core::service::Secret;
use weft_sys::Random;

/// Bytes of a secret: 160 bits, as 32 letters and digits.
const SECRET_BYTES: usize = 20;

/// Returns a new secret and its id. `purpose` sets one sort of secrets apart from all others.
pub(crate) fn fresh(random: &dyn Random, purpose: &str) -> (u128, Secret) {
    let mut bytes = zeroize::Zeroizing::new([0; SECRET_BYTES]);
    random.fill(&mut *bytes);
    let text = data_encoding::BASE32_NOPAD.encode(&*bytes).to_ascii_lowercase();
    (id_of_bytes(&*bytes, purpose), Secret::new(text))
}

/// Returns the id of a secret; none for what cannot be one.
pub(crate) fn id_of(text: &str, purpose: &str) -> Option<u128> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'));
    let upper = is_plain.then(|| zeroize::Zeroizing::new(text.to_ascii_uppercase()))?;
    let bytes = zeroize::Zeroizing::new(data_encoding::BASE32_NOPAD.decode(upper.as_bytes()).ok()?);
    (bytes.len() == SECRET_BYTES).then(|| id_of_bytes(&bytes, purpose))
}

fn id_of_bytes(secret: &[u8], purpose: &str) -> u128 {
    let hash = blake3::derive_key(purpose, secret);
    let (id, _) = hash.split_first_chunk().expect("a hash has more than sixteen bytes");
    u128::from_be_bytes(*id)
}

/// Returns whether an id has no sixteen bytes of its secret, in whichever way they are read.
#[cfg(test)]
pub(crate) fn tells_nothing(id: u128, text: &str) -> bool {
    let bytes =
        data_encoding::BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).expect("it has an id");
    let holds = |of: &[u8]| of.windows(16).any(|part| part == id.to_be_bytes() || part == id.to_le_bytes());
    !holds(&bytes) && !holds(text.as_bytes())
}
