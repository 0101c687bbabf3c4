//! Seals: what says that a block is as it was written.

use weft_core::form::digest_of_zeros;
use weft_core::limits::SEAL_BLOCK_BYTES;
use weft_core::{Error, ObjectId, Result};
use weft_kv::{Order, Read, prefix_end};

use super::rows::{SEALS, number_at, object_key, seal_key};

/// Blocks whose seals share one record.
pub(super) const GROUP_BLOCKS: u64 = 64;

const HASH_BYTES: usize = 32;

/// What a block must look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seal {
    /// All zeros. Costs no record: what was never written is sealed so.
    #[default]
    Hole,
    /// Bytes with this BLAKE3.
    Hash {
        hash: [u8; HASH_BYTES],
        /// Made after a crash, of whatever was there.
        unverified: bool,
    },
}

impl Seal {
    /// Seals the bytes of one block.
    pub(super) fn of(bytes: &[u8]) -> Self {
        if is_zero(bytes) { Self::Hole } else { Self::of_hash(*blake3::hash(bytes).as_bytes()) }
    }

    pub(super) fn of_hash(hash: [u8; HASH_BYTES]) -> Self {
        Self::Hash { hash, unverified: false }
    }

    /// Returns whether these are the bytes it was made of.
    pub(super) fn matches(self, bytes: &[u8]) -> bool {
        match self {
            Self::Hole => is_zero(bytes),
            Self::Hash { hash, .. } => blake3::hash(bytes) == hash,
        }
    }

    /// Returns the digest of the bytes it was made of, which were so many.
    pub(super) fn digest(self, length: u64) -> [u8; HASH_BYTES] {
        match self {
            Self::Hole => digest_of_zeros(length),
            Self::Hash { hash, .. } => hash,
        }
    }

    /// Returns the seal for what was found after a crash, where `self` is what was recorded.
    pub(super) fn renewed(self, found: Self) -> Self {
        match (self, found) {
            (Self::Hash { hash: old, unverified }, Self::Hash { hash, .. }) if old == hash => {
                Self::Hash { hash, unverified }
            }
            (_, Self::Hash { hash, .. }) => Self::Hash { hash, unverified: true },
            (_, Self::Hole) => Self::Hole,
        }
    }

    pub(super) fn is_unverified(self) -> bool {
        matches!(self, Self::Hash { unverified: true, .. })
    }
}

/// Returns whether every byte is zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The block that holds a byte.
pub(super) fn block_of(byte: u64) -> u64 {
    byte / SEAL_BLOCK_BYTES
}

/// How many blocks an object of `size` bytes has.
pub(super) fn blocks_in(size: u64) -> u64 {
    size.div_ceil(SEAL_BLOCK_BYTES)
}

/// First byte and length of a block of an object of `size` bytes.
pub(super) fn extent(block: u64, size: u64) -> (u64, u64) {
    let start = block.saturating_mul(SEAL_BLOCK_BYTES);
    (start, size.saturating_sub(start).min(SEAL_BLOCK_BYTES))
}

/// The seals of 64 neighbouring blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    seals: [Seal; GROUP_BLOCKS as usize],
}

impl Default for Group {
    fn default() -> Self {
        Self { seals: [Seal::Hole; GROUP_BLOCKS as usize] }
    }
}

impl Group {
    pub(super) fn seal(&self, block: u64) -> Seal {
        self.seals[(block % GROUP_BLOCKS) as usize]
    }

    pub(super) fn set(&mut self, block: u64, seal: Seal) {
        self.seals[(block % GROUP_BLOCKS) as usize] = seal;
    }

    /// Returns whether nothing needs to be recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.seals.iter().all(|seal| *seal == Seal::Hole)
    }

    pub(super) fn unverified(&self) -> u64 {
        self.seals.iter().filter(|seal| seal.is_unverified()).count() as u64
    }

    /// Two bit maps (which blocks have a hash, which of those are unverified), then the hashes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (mut hashed, mut unsure, mut hashes) = (0_u64, 0_u64, Vec::new());
        for (place, seal) in self.seals.iter().enumerate() {
            if let Seal::Hash { hash, unverified } = seal {
                hashed |= 1 << place;
                unsure |= u64::from(*unverified) << place;
                hashes.extend_from_slice(hash);
            }
        }
        let mut bytes = Vec::with_capacity(16 + hashes.len());
        bytes.extend_from_slice(&hashed.to_be_bytes());
        bytes.extend_from_slice(&unsure.to_be_bytes());
        bytes.extend_from_slice(&hashes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let wrong = || Error::corrupt("a record of seals has the wrong length");
        let (hashed, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
        let (unsure, rest) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
        let (hashed, unsure) = (u64::from_be_bytes(*hashed), u64::from_be_bytes(*unsure));
        let (hashes, over) = rest.as_chunks::<HASH_BYTES>();
        if !over.is_empty() || hashes.len() != hashed.count_ones() as usize {
            return Err(wrong());
        }
        let mut group = Self::default();
        let mut hashes = hashes.iter();
        for place in (0..GROUP_BLOCKS).filter(|place| hashed >> place & 1 == 1) {
            let hash = *hashes.next().ok_or_else(wrong)?;
            group.set(place, Seal::Hash { hash, unverified: unsure >> place & 1 == 1 });
        }
        Ok(group)
    }
}

/// Returns the first block from `block` on that may have a seal of some bytes in the records: what
/// lies before it is sealed as a hole.
pub(super) fn next_recorded(records: &impl Read, object: ObjectId, block: u64) -> Result<Option<u64>> {
    let (from, to) = (seal_key(object, block / GROUP_BLOCKS), prefix_end(&object_key(SEALS, object)));
    for row in records.scan(&from, &to, Order::Rising) {
        // What is no group's key is found by itself.
        if let Ok(group) = number_at(&row?.0, 17) {
            return Ok(Some(group.saturating_mul(GROUP_BLOCKS).max(block)));
        }
    }
    Ok(None)
}

/// Hashes a block while it passes by, so that it need not be read back.
#[derive(Default)]
pub(super) struct Passing {
    /// Where it goes on, and the hash up to there.
    hashed: Option<(u64, Box<blake3::Hasher>)>,
    /// The stamp that the last write left.
    stamp: u64,
}

impl Passing {
    /// Forgets what passed, unless the block it ended in still is as the last write left it:
    /// `before` is the block's stamp. Else the hash would be of bytes that others have replaced.
    pub(super) fn go_on(&mut self, before: Option<u64>) {
        if before != Some(self.stamp) {
            self.hashed = None;
        }
    }

    /// Notes the stamp that a write left.
    pub(super) fn left(&mut self, stamp: u64) {
        self.stamp = stamp;
    }

    /// Takes note of bytes written at `at`, and returns for each block they touch its seal as far
    /// as it has passed: `Some` if everything from the block's start to the end of `bytes` in it
    /// went through here in order.
    pub(super) fn pass(&mut self, mut bytes: &[u8], mut at: u64) -> Vec<(u64, Option<Seal>)> {
        let mut seals = Vec::with_capacity(2);
        while !bytes.is_empty() {
            let block = block_of(at);
            let room = ((block + 1) * SEAL_BLOCK_BYTES - at) as usize;
            let (here, rest) = bytes.split_at(room.min(bytes.len()));
            seals.push((block, self.step(here, at)));
            at += here.len() as u64;
            bytes = rest;
        }
        seals
    }

    fn step(&mut self, bytes: &[u8], at: u64) -> Option<Seal> {
        let end = at + bytes.len() as u64;
        let hasher = match self.hashed.take() {
            Some((next, mut hasher)) if next == at && !at.is_multiple_of(SEAL_BLOCK_BYTES) => {
                hasher.update(bytes);
                hasher
            }
            _ if at.is_multiple_of(SEAL_BLOCK_BYTES) => {
                let mut hasher = Box::new(blake3::Hasher::new());
                hasher.update(bytes);
                hasher
            }
            _ => return None,
        };
        // Zeros are sealed by looking, so that a file of zeros costs no record.
        let seal = (!is_zero(bytes)).then(|| Seal::of_hash(*hasher.finalize().as_bytes()));
        self.hashed = Some((end, hasher));
        seal
    }
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    #[test]
    fn mutated_groups_are_refused_or_mean_what_is_written_of_them() {
        let make = |dice: &mut Dice| {
            let mut group = Group::default();
            for _ in 0..dice.roll(5) {
                let unverified = dice.roll(2) == 0;
                group.set(dice.roll(64), Seal::Hash { hash: [7; 32], unverified });
            }
            group.encode()
        };
        fuzz("seals", make, |bytes| {
            if let Ok(group) = Group::decode(bytes) {
                assert_eq!(Group::decode(&group.encode()).expect("it was just written"), group);
            }
        });
    }

    #[test]
    fn a_group_reads_back_as_written_and_refuses_any_cut() {
        let mut group = Group::default();
        group.set(3, Seal::of(b"three"));
        group.set(63, Seal::Hash { hash: [9; 32], unverified: true });
        let bytes = group.encode();
        assert_eq!(Group::decode(&bytes).expect("it was just made"), group);
        assert_eq!(group.unverified(), 1);
        for cut in 0..bytes.len() {
            assert!(Group::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(Group::decode(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn what_passes_in_order_from_a_blocks_start_is_sealed_as_if_read_back() {
        let bytes: Vec<u8> = (0..SEAL_BLOCK_BYTES * 2 + 100).map(|n| (n % 251 + 1) as u8).collect();
        let mut passing = Passing::default();
        let mut sealed = std::collections::BTreeMap::new();
        for (at, piece) in bytes.chunks(300_000).enumerate() {
            sealed.extend(passing.pass(piece, at as u64 * 300_000));
        }
        for block in 0..3 {
            let (start, length) = extent(block, bytes.len() as u64);
            let whole = &bytes[start as usize..(start + length) as usize];
            assert_eq!(sealed[&block], Some(Seal::of(whole)), "{block}");
        }
        assert_eq!(passing.pass(b"x", 7), [(0, None)], "not in order");
    }
}
