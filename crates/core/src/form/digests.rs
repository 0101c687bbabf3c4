//! Digests of a file's blocks: what a copy of it is compared with.

use std::sync::LazyLock;

use super::{Piece, Range, Source};
use crate::error::Result;
use crate::limits;

/// Of a whole block of zeros: there are many in a file with holes.
static OF_ZEROS: LazyLock<[u8; 32]> =
    LazyLock::new(|| *blake3::hash(&[0; limits::SEAL_BLOCK_BYTES as usize]).as_bytes());

/// Returns the digest of so many zeros, of one block at most.
pub fn digest_of_zeros(length: u64) -> [u8; 32] {
    if length >= limits::SEAL_BLOCK_BYTES {
        return *OF_ZEROS;
    }
    *blake3::hash(&vec![0; length as usize]).as_bytes()
}

/// Returns the range of bytes that are read for one answer to `digests`, where they must be.
pub fn digested_range(block: u64) -> Range {
    let length = limits::BLOCK_DIGESTS_MADE_MAX * limits::SEAL_BLOCK_BYTES;
    Range { at: block.saturating_mul(limits::SEAL_BLOCK_BYTES), length: Some(length) }
}

/// Returns the digest of each block of a source that begins with one.
pub async fn digests_of(source: &mut dyn Source) -> Result<Vec<[u8; 32]>> {
    let (mut digests, mut hasher, mut left) = (Vec::new(), blake3::Hasher::new(), limits::SEAL_BLOCK_BYTES);
    while let Some(piece) = source.next(left.min(limits::PIECE_BYTES_MAX as u64) as usize).await? {
        let bytes = Piece::into_bytes(piece)?;
        hasher.update(&bytes);
        left -= bytes.len() as u64;
        if left == 0 {
            digests.push(*std::mem::take(&mut hasher).finalize().as_bytes());
            left = limits::SEAL_BLOCK_BYTES;
        }
    }
    if left < limits::SEAL_BLOCK_BYTES {
        digests.push(*hasher.finalize().as_bytes());
    }
    Ok(digests)
}
