//! Values: a version byte, a checksum over key and content, the content.
//!
//! The checksum finds a row that was cut, flipped or put under another key; `check`
//! names it and the readers refuse it with `Corrupt` instead of acting on it.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_core::{Error, Result};

/// A structure that is stored as one row.
pub(crate) trait Row: Serialize + DeserializeOwned {
    /// What people call it.
    const WHAT: &'static str;
    /// The version of its encoding.
    const VERSION: u8 = 1;
}

const HEADER: usize = 5;

/// Returns the stored form of a row.
pub(crate) fn encode<R: Row>(key: &[u8], row: &R) -> Result<Vec<u8>> {
    let mut value = vec![0; HEADER];
    value = postcard::to_extend(row, value)
        .map_err(|e| Error::internal("a row cannot be encoded").about(R::WHAT).caused_by(e))?;
    seal(key, &mut value, R::VERSION);
    Ok(value)
}

/// Reads a row back. `Corrupt` if it is not as it was written.
pub(crate) fn decode<R: Row>(key: &[u8], value: &[u8]) -> Result<R> {
    let content = open(key, value, R::VERSION, R::WHAT)?;
    match postcard::take_from_bytes(content) {
        Ok((row, [])) => Ok(row),
        Ok(_) => Err(broken(R::WHAT)),
        Err(e) => Err(broken(R::WHAT).caused_by(e)),
    }
}

/// Returns the stored form of plain bytes.
pub(crate) fn encode_bytes(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER + bytes.len());
    value.resize(HEADER, 0);
    value.extend_from_slice(bytes);
    seal(key, &mut value, 1);
    value
}

/// Reads plain bytes back without copying them.
pub(crate) fn decode_bytes(key: &[u8], value: &Bytes, what: &'static str) -> Result<Bytes> {
    open(key, value, 1, what)?;
    Ok(value.slice(HEADER..))
}

fn seal(key: &[u8], value: &mut [u8], version: u8) {
    value[0] = version;
    let sum = checksum(key, &value[HEADER..]);
    value[1..HEADER].copy_from_slice(&sum.to_be_bytes());
}

fn open<'a>(key: &[u8], value: &'a [u8], version: u8, what: &'static str) -> Result<&'a [u8]> {
    let (header, content) = value.split_at_checked(HEADER).ok_or_else(|| broken(what))?;
    if header[0] != version || header[1..] != checksum(key, content).to_be_bytes() {
        return Err(broken(what));
    }
    Ok(content)
}

fn broken(what: &'static str) -> Error {
    Error::corrupt("a row of the volume's tables is not as it was written").about(what).hint("weft fsck")
}

/// Every step is a bijection of the state, so a single flipped bit always changes it.
fn checksum(key: &[u8], content: &[u8]) -> u32 {
    let mut sum = (key.len() as u64) << 32 ^ content.len() as u64;
    for part in [key, content] {
        let (words, rest) = part.as_chunks::<8>();
        for word in words {
            sum = mixed(sum, u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            sum = mixed(sum, u64::from_le_bytes(word));
        }
    }
    (sum ^ sum >> 32) as u32
}

fn mixed(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ sum >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_that_rows_on_disk_have() {
        assert_eq!(checksum(b"", b""), 0);
        assert_eq!(checksum(b"key", b""), 0x61d4_fa52);
        assert_eq!(checksum(b"key", b"some content that matters"), 0x2b52_5a2a);
        assert_eq!(checksum(b"a key with 20 bytes.", b"16 bytes of rows"), 0x5ab7_aec7);
    }

    #[test]
    fn every_flipped_bit_every_cut_and_every_other_key_is_noticed() {
        let value = encode_bytes(b"key", b"some content that matters");
        let read = |key: &[u8], value: &[u8]| decode_bytes(key, &Bytes::copy_from_slice(value), "a test");
        assert_eq!(read(b"key", &value).unwrap(), b"some content that matters"[..]);
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(b"key", &flipped).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(read(b"key", &value[..length]).is_err(), "cut to {length}");
        }
        assert!(read(b"kez", &value).is_err());
    }
}
