//! The log's bytes: segment headers, records, commits. No I/O.
//!
//! ```text
//!   segment   header (512 bytes: number, salt, first commit, identity, checksum)
//!             record · record · … · seal            each starts at a multiple of 8
//!   record    magic kind length | first commit, count, flushed | previous check | check | payload
//!   payload   per commit: length, then its changes
//! ```
//!
//! A check is a hash over the segment's salt, the record's head (with the previous check) and its
//! payload. So bytes left over from a segment's former use, or from before a torn tail, never
//! pass for records, and no record can be lost between two others.

use bytes::Bytes;
use weft_core::{Error, Result};

pub(super) const HEADER_BYTES: usize = 512;
pub(super) const HEAD_BYTES: usize = 72;
/// Records start at multiples of this.
pub(super) const ALIGN: u64 = 8;
const CHECK_BYTES: usize = 16;

pub(super) const SEGMENT_MAGIC: &[u8; 8] = b"WEFTKV01";
const RECORD_MAGIC: u32 = 0x4b56_6c67;

pub(super) type Check = [u8; CHECK_BYTES];

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Counts up, never reused.
    pub(super) number: u64,
    /// Random for each use of the file.
    pub(super) salt: Check,
    /// The first commit that can be in it.
    pub(super) first: u64,
    /// The engine it belongs to.
    pub(super) identity: u64,
    /// How long it is, header included.
    pub(super) bytes: u64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.salt);
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.identity.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.bytes.to_le_bytes());
        let check = hash(&[&bytes[..56]]);
        bytes[56..72].copy_from_slice(&check);
        bytes
    }

    /// Returns the header in `bytes`, unless they are none or damaged.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        if &bytes[..8] != SEGMENT_MAGIC || bytes[56..72] != hash(&[&bytes[..56]]) {
            return None;
        }
        let mut salt = [0; CHECK_BYTES];
        salt.copy_from_slice(&bytes[16..32]);
        Some(Self {
            number: word(bytes, 8),
            salt,
            first: word(bytes, 32),
            identity: word(bytes, 40),
            bytes: word(bytes, 48),
        })
    }
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// Commits.
    Group,
    /// Nothing: the log goes on in the next segment.
    Seal,
}

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: RecordKind,
    /// Bytes of payload.
    pub(super) len: u32,
    /// Its first commit.
    pub(super) first: u64,
    /// How many commits.
    pub(super) count: u64,
    /// The last commit known to be flushed when it was written.
    pub(super) flushed: u64,
    /// The check of the record before.
    pub(super) previous: Check,
}

impl Head {
    /// Encodes the head in front of `payload` and returns the record's check.
    pub(super) fn encode(&self, salt: &Check, into: &mut [u8; HEAD_BYTES], payload: &[u8]) -> Check {
        into[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        let kind: u32 = if self.kind == RecordKind::Group { 1 } else { 2 };
        into[4..8].copy_from_slice(&kind.to_le_bytes());
        into[8..16].copy_from_slice(&u64::from(self.len).to_le_bytes());
        into[16..24].copy_from_slice(&self.first.to_le_bytes());
        into[24..32].copy_from_slice(&self.count.to_le_bytes());
        into[32..40].copy_from_slice(&self.flushed.to_le_bytes());
        into[40..56].copy_from_slice(&self.previous);
        let check = hash(&[salt, &into[..56], payload]);
        into[56..72].copy_from_slice(&check);
        check
    }

    /// Returns the record at the start of `bytes`, with its check and how many bytes it takes, if
    /// a whole one written in this use of the segment is there.
    pub(super) fn decode<'a>(salt: &Check, bytes: &'a [u8]) -> Option<(Self, Check, &'a [u8])> {
        let head = bytes.get(..HEAD_BYTES)?;
        if word32(head, 0) != RECORD_MAGIC {
            return None;
        }
        let kind = match word32(head, 4) {
            1 => RecordKind::Group,
            2 => RecordKind::Seal,
            _ => return None,
        };
        let len = u32::try_from(word(head, 8)).ok()?;
        let payload = bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(len as usize)?)?;
        let mut check = [0; CHECK_BYTES];
        check.copy_from_slice(&head[56..72]);
        if check != hash(&[salt, &head[..56], payload]) {
            return None;
        }
        let mut previous = [0; CHECK_BYTES];
        previous.copy_from_slice(&head[40..56]);
        let (first, count, flushed) = (word(head, 16), word(head, 24), word(head, 32));
        Some((Self { kind, len, first, count, flushed, previous }, check, payload))
    }

    /// Returns how far the next record is from the start of this one.
    pub(super) fn span(&self) -> u64 {
        (HEAD_BYTES as u64 + u64::from(self.len)).next_multiple_of(ALIGN)
    }
}

fn hash(parts: &[&[u8]]) -> Check {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK_BYTES]);
    check
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// Bytes of the length in front of each commit.
pub(super) const COMMIT_HEAD_BYTES: usize = 4;

/// Appends a change to a commit under way.
pub(super) fn encode_change(into: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    into.push(if value.is_some() { PUT } else { DELETE });
    encode_part(into, key);
    if let Some(value) = value {
        encode_part(into, value);
    }
}

fn encode_part(into: &mut Vec<u8>, part: &[u8]) {
    into.extend_from_slice(&(part.len() as u32).to_le_bytes());
    into.extend_from_slice(part);
}

/// Starts a commit in a payload and returns where; [`end_commit`] sets its length.
pub(super) fn begin_commit(into: &mut Vec<u8>) -> usize {
    let start = into.len();
    into.extend_from_slice(&[0; COMMIT_HEAD_BYTES]);
    start
}

/// Ends the commit that starts at `start`.
pub(super) fn end_commit(into: &mut [u8], start: usize) {
    let len = (into.len() - start - COMMIT_HEAD_BYTES) as u32;
    into[start..start + COMMIT_HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
}

/// Calls `each` with every change of every commit in a payload: which of them it belongs to,
/// from 0, the key and the value.
pub(super) fn decode_changes(
    payload: &Bytes,
    count: u64,
    mut each: impl FnMut(u64, Bytes, Option<Bytes>),
) -> Result<()> {
    let mut rest = payload.clone();
    for commit in 0..count {
        let mut changes = take_part(&mut rest)?;
        while !changes.is_empty() {
            let tag = changes.split_to(1)[0];
            let key = take_part(&mut changes)?;
            match tag {
                PUT => each(commit, key, Some(take_part(&mut changes)?)),
                DELETE => each(commit, key, None),
                _ => return Err(malformed()),
            }
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(malformed()) }
}

fn take_part(from: &mut Bytes) -> Result<Bytes> {
    if from.len() < 4 {
        return Err(malformed());
    }
    let len = word32(&from.split_to(4), 0) as usize;
    if from.len() < len {
        return Err(malformed());
    }
    Ok(from.split_to(len))
}

fn malformed() -> Error {
    Error::corrupt("a record of the metadata log passes its checksum and makes no sense")
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    type Change = (u64, Bytes, Option<Bytes>);

    fn changes_of(payload: &Bytes, count: u64) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        decode_changes(payload, count, |commit, key, value| changes.push((commit, key, value)))?;
        Ok(changes)
    }

    fn payload_of(changes: &[Change], count: u64) -> Vec<u8> {
        let mut payload = Vec::new();
        for commit in 0..count {
            let start = begin_commit(&mut payload);
            for (_, key, value) in changes.iter().filter(|change| change.0 == commit) {
                encode_change(&mut payload, key, value.as_deref());
            }
            end_commit(&mut payload, start);
        }
        payload
    }

    #[test]
    fn mutated_commits_are_refused_or_mean_what_is_written_of_them() {
        let make = |dice: &mut Dice| {
            let text = |dice: &mut Dice| Bytes::from(vec![b'k'; dice.roll(9) as usize]);
            let count = dice.roll(4);
            let changes: Vec<Change> = (0..count)
                .flat_map(|commit| {
                    let some = dice.roll(4);
                    (0..some)
                        .map(|_| (commit, text(dice), (dice.roll(3) > 0).then(|| text(dice))))
                        .collect::<Vec<_>>()
                })
                .collect();
            [&[count as u8][..], &payload_of(&changes, count)].concat()
        };
        fuzz("commits", make, |bytes| {
            let Some((count, payload)) = bytes.split_first() else { return };
            let payload = Bytes::copy_from_slice(payload);
            if let Ok(changes) = changes_of(&payload, (*count).into()) {
                assert_eq!(payload_of(&changes, (*count).into()), payload);
            }
        });
    }

    fn encoded(salt: &Check, payload: &[u8]) -> Vec<u8> {
        let head = Head {
            kind: RecordKind::Group,
            len: payload.len() as u32,
            first: 7,
            count: 1,
            flushed: 6,
            previous: [3; 16],
        };
        let mut bytes = [0; HEAD_BYTES];
        head.encode(salt, &mut bytes, payload);
        [&bytes[..], payload].concat()
    }

    #[test]
    fn a_record_with_any_bit_flipped_is_none() {
        let salt = [9; 16];
        let mut bytes = encoded(&salt, b"hello");
        assert!(Head::decode(&salt, &bytes).is_some());
        assert!(Head::decode(&[8; 16], &bytes).is_none(), "another use of the segment");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&salt, &bytes).is_none(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn changes_come_back_as_they_went_in_and_damage_is_an_error_not_a_panic() {
        let mut payload = Vec::new();
        for (key, value) in [(b"a", Some(&b"1"[..])), (b"b", None)] {
            let start = begin_commit(&mut payload);
            encode_change(&mut payload, key, value);
            end_commit(&mut payload, start);
        }
        let mut seen = Vec::new();
        let whole = Bytes::from(payload.clone());
        decode_changes(&whole, 2, |commit, key, value| seen.push((commit, key, value))).expect("whole");
        assert_eq!(seen, [(0, "a".into(), Some("1".into())), (1, "b".into(), None)]);
        for cut in 0..payload.len() {
            assert!(decode_changes(&whole.slice(..cut), 2, |_, _, _| {}).is_err(), "cut at {cut}");
        }
        for byte in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[byte] ^= 0x80;
            let _ = decode_changes(&damaged.into(), 2, |_, _, _| {});
        }
    }
}
