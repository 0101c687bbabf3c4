//! Rows of the tree that were asked for lately, in memory.
//!
//! The tree changes only with a fold, so a row in here stays right until a fold changes it, and no
//! commit has to look. Readers of an older tree go on beside those of the newer one: every row says
//! since which tree it has been as it is, and an older one passes it by.
//!
//! What costs is memory that the processor does not have at hand, so a row is found with as little
//! of it as can be: one line of an index, and the row itself, key and value together. Rows lie in
//! rings, one behind the other in the order they came, and what is new takes the place of what is
//! oldest; a row that is asked for when half of its ring has come after it begins anew.

use std::convert::Infallible;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::overlay::Overlay;

/// Readers of different rows seldom meet at one ring.
const RINGS: usize = 16;
/// Places in a bucket of the index: a line of the processor's cache. Rows that all want the same
/// bucket push each other out, whoever chose their keys.
const BUCKET_PLACES: usize = 8;
/// Bytes of a ring for each bucket, about: rows of the usual size fill half of its places.
const BUCKET_RING_BYTES: usize = 512;
const BUCKET_BYTES: usize = BUCKET_PLACES * size_of::<u64>();

/// Rows of one tree.
pub(super) struct Resident {
    rings: Vec<RwLock<Ring>>,
    /// The last commit of the newest tree. Whoever adds rows shares the lock, a fold has it alone.
    newest: RwLock<u64>,
}

/// Rows in the order they came, and where each is.
struct Ring {
    /// As far as they were ever written.
    bytes: Vec<u8>,
    /// How many bytes there may be.
    room: usize,
    /// How many buckets there may be: a power of two, so that each gets as many rows as the others.
    buckets_max: usize,
    /// How many bytes were ever written here: where the next row begins, and which are still there.
    written: u64,
    /// [`Place`]s, by the hash of the key. It grows with the bytes: hashes touch all of it, so that an
    /// index for many rows would take its memory at the first few.
    index: Vec<u64>,
}

/// Where a row is, in the index: bits of its key's hash, and the number of its first word, from 1
/// and never given twice. 0 is none.
#[derive(Clone, Copy)]
struct Place(u64);

/// A row in a ring.
struct Held<'a> {
    /// The last commit of the tree that it was read from.
    since: u64,
    key: &'a [u8],
    value: &'a [u8],
}

fn hash_of(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

impl Place {
    const WORD: u64 = 8;
    const WORD_BITS: u32 = 48;

    fn new(hash: u64, at: u64) -> Self {
        Self((hash << Self::WORD_BITS) | (at / Self::WORD + 1))
    }

    /// Returns where the row begins, if its key may have this hash.
    fn at(self, hash: u64) -> Option<u64> {
        let alike = (self.0 ^ (hash << Self::WORD_BITS)) >> Self::WORD_BITS == 0;
        self.begin().filter(|_| alike)
    }

    fn begin(self) -> Option<u64> {
        let word = self.0 & ((1 << Self::WORD_BITS) - 1);
        word.checked_sub(1).map(|word| word * Self::WORD)
    }
}

impl Ring {
    /// Of a row: since when it is so, how long are key and value.
    const HEAD: usize = 16;

    /// Makes a ring and its index, of so many bytes together.
    fn new(bytes: usize) -> Self {
        let bytes = bytes.max(BUCKET_RING_BYTES + BUCKET_BYTES).next_multiple_of(Place::WORD as usize);
        let buckets_max = (bytes / (BUCKET_RING_BYTES + BUCKET_BYTES)).next_power_of_two();
        let room = bytes - buckets_max * BUCKET_BYTES;
        // Memory that nothing was written to is none yet.
        let (bytes, mut index) = (Vec::with_capacity(room), Vec::with_capacity(buckets_max * BUCKET_PLACES));
        index.resize(BUCKET_PLACES, 0);
        Self { bytes, room, buckets_max, written: 0, index }
    }

    fn buckets(&self) -> usize {
        self.index.len() / BUCKET_PLACES
    }

    /// Returns where the bucket for a key begins in the index: that which as many bits of the hash
    /// name as the buckets need, or with one bit fewer where that is none yet (linear hashing).
    fn bucket(&self, hash: u64) -> usize {
        let (bits, most) = ((hash >> 32) as usize, self.buckets().next_power_of_two());
        let bucket = bits & (most - 1);
        (if bucket < self.buckets() { bucket } else { bucket - most / 2 }) * BUCKET_PLACES
    }

    /// Adds buckets as long as too many bytes share one, each of which takes from another the rows that
    /// have its bit. The last is there when half of the ring is full: until then some have twice the
    /// rows of others.
    fn grow(&mut self) {
        let bytes_of_one = self.room / self.buckets_max / 2;
        while self.buckets() < self.buckets_max && self.buckets() * bytes_of_one < self.bytes.len() {
            let new = self.index.len();
            let old = new - (self.buckets() + 1).next_power_of_two() / 2 * BUCKET_PLACES;
            self.index.resize(new + BUCKET_PLACES, 0);
            for slot in 0..BUCKET_PLACES {
                let place = Place(self.index[old + slot]).begin().filter(|at| self.is_there(*at));
                if place.is_some_and(|at| self.bucket(hash_of(self.read(at).key)) == new) {
                    self.index.swap(old + slot, new + slot);
                }
            }
        }
    }

    /// Returns the place in the index, the beginning and the content of the row under `key`.
    fn find(&self, key: &[u8], hash: u64) -> Option<(usize, u64, Held<'_>)> {
        let bucket = self.bucket(hash);
        (bucket..bucket + BUCKET_PLACES).find_map(|slot| {
            let at = Place(self.index[slot]).at(hash).filter(|at| self.is_there(*at))?;
            let held = self.read(at);
            (held.key == key).then_some((slot, at, held))
        })
    }

    /// Returns whether what began at `at` was not written over.
    fn is_there(&self, at: u64) -> bool {
        at + self.room as u64 >= self.written
    }

    /// Returns whether half of the ring was written since `at`.
    fn is_old(&self, at: u64) -> bool {
        at + self.room as u64 / 2 < self.written
    }

    fn read(&self, at: u64) -> Held<'_> {
        let row = &self.bytes[(at % self.room as u64) as usize..];
        let (head, row) = row.split_first_chunk::<{ Self::HEAD }>().expect("a row is written whole");
        let head = u128::from_le_bytes(*head);
        let (key_len, value_len) = ((head >> 64) as u32 as usize, (head >> 96) as usize);
        let (key, rest) = row.split_at(key_len);
        Held { since: head as u64, key, value: &rest[..value_len] }
    }

    /// Puts a row in, in the place of what was known under its key, unless it is too long for the
    /// ring.
    fn put(&mut self, hash: u64, held: &Held<'_>) {
        let bucket = self.bucket(hash);
        let known = self.find(held.key, hash).map(|(slot, ..)| slot);
        let age = |slot: &usize| Place(self.index[*slot]).begin().filter(|at| self.is_there(*at));
        // None comes before any: a place that is free, or else the oldest.
        let slot = known.or_else(|| (bucket..bucket + BUCKET_PLACES).min_by_key(age)).unwrap_or(bucket);
        self.index[slot] = self.append(held).map_or(0, |at| Place::new(hash, at).0);
        self.grow();
    }

    /// Writes a row behind the last one and returns where it begins.
    fn append(&mut self, held: &Held<'_>) -> Option<u64> {
        let Held { since, key, value } = held;
        let size = (Self::HEAD + key.len() + value.len()).next_multiple_of(Place::WORD as usize);
        if size > self.room / 2 {
            return None;
        }
        let mut begin = (self.written % self.room as u64) as usize;
        if begin + size > self.room {
            (self.written, begin) = (self.written.next_multiple_of(self.room as u64), 0);
        }
        if self.bytes.len() < begin + size {
            self.bytes.resize(begin + size, 0);
        }
        let head = u128::from(*since) | (key.len() as u128) << 64 | (value.len() as u128) << 96;
        let (head_part, row) = self.bytes[begin..begin + size].split_at_mut(Self::HEAD);
        head_part.copy_from_slice(&head.to_le_bytes());
        row[..key.len()].copy_from_slice(key);
        row[key.len()..key.len() + value.len()].copy_from_slice(value);
        let at = self.written;
        self.written += size as u64;
        Some(at)
    }

    /// Forgets everything.
    fn clear(&mut self) {
        let room = self.room as u64;
        self.written = (self.written + 1).next_multiple_of(room) + room;
    }
}

impl Resident {
    /// Makes room for so many bytes of rows.
    pub(super) fn new(bytes: u64) -> Self {
        let ring = usize::try_from(bytes).unwrap_or(usize::MAX) / RINGS;
        let rings = (0..RINGS).map(|_| RwLock::new(Ring::new(ring))).collect();
        Self { rings, newest: RwLock::new(0) }
    }

    fn ring(&self, hash: u64) -> &RwLock<Ring> {
        // Other bits than those that choose the bucket and those that the index keeps.
        &self.rings[(hash >> 16) as usize % RINGS]
    }

    fn read(&self, hash: u64) -> RwLockReadGuard<'_, Ring> {
        self.ring(hash).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, hash: u64) -> RwLockWriteGuard<'_, Ring> {
        self.ring(hash).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value under `key` in the tree that ends with commit `applied`, if it is here.
    pub(super) fn get(&self, key: &[u8], applied: u64) -> Option<Bytes> {
        let hash = hash_of(key);
        let ring = self.read(hash);
        let (_, at, held) = ring.find(key, hash).filter(|(.., held)| held.since <= applied)?;
        let (value, old) = (Bytes::copy_from_slice(held.value), ring.is_old(at));
        drop(ring);
        if old {
            self.renew(key, hash);
        }
        Some(value)
    }

    /// Begins a row anew that is asked for still.
    fn renew(&self, key: &[u8], hash: u64) {
        let mut ring = self.write(hash);
        if let Some((_, _, held)) = ring.find(key, hash) {
            let (since, value) = (held.since, held.value.to_vec());
            ring.put(hash, &Held { since, key, value: &value });
        }
    }

    /// Keeps a row that was read from the tree that ends with commit `applied`.
    pub(super) fn keep(&self, key: &[u8], value: &[u8], applied: u64) {
        // A fold that has the lock is about to make this tree an old one.
        if let Ok(newest) = self.newest.try_read()
            && *newest == applied
        {
            let hash = hash_of(key);
            let mut ring = self.write(hash);
            // What is here is as it is in the newest tree.
            if ring.find(key, hash).is_none() {
                ring.put(hash, &Held { since: applied, key, value });
            }
        }
    }

    /// Follows a fold of `overlay`, which has made the tree end with commit `applied`. To be called
    /// before anybody can read that tree.
    pub(super) fn follow(&self, overlay: &Overlay, applied: u64) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let Ok(()) = overlay.try_for_each(|key, value| {
            let hash = hash_of(key);
            let mut ring = self.write(hash);
            let slot = ring.find(key, hash).map(|(slot, ..)| slot);
            match (slot, value) {
                // What is here was asked for, and will be again.
                (Some(_), Some(value)) => ring.put(hash, &Held { since: applied, key, value }),
                (Some(slot), None) => ring.index[slot] = 0,
                (None, _) => {}
            }
            Ok::<_, Infallible>(())
        });
        *newest = applied;
    }

    /// Sees to it that the newest tree is the one that ends with commit `applied`. A tree that
    /// changed in another way than [`Resident::follow`] was told starts with nothing.
    pub(super) fn is_of(&self, applied: u64) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        if *newest != applied {
            for ring in &self.rings {
                ring.write().unwrap_or_else(PoisonError::into_inner).clear();
            }
            *newest = applied;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weft_conformance::file_system::site::Dice;

    use super::*;
    use crate::embedded::held::Key;
    use crate::embedded::overlay::Needed;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn changed(rows: &[(&str, Option<&str>)]) -> Overlay {
        let overlay = Overlay::default();
        let changes = rows.iter().map(|(key, value)| (Key::new(key.as_bytes()), value.map(bytes))).collect();
        overlay.apply(changes, 2, Needed::All);
        overlay
    }

    fn with(key: &str, value: &str) -> Resident {
        let resident = Resident::new(1 << 20);
        resident.is_of(1);
        resident.keep(key.as_bytes(), value.as_bytes(), 1);
        resident
    }

    #[test]
    fn a_row_that_no_fold_changed_is_kept_for_every_tree_since() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("b", Some("new"))]), 2);
        assert_eq!(resident.get(b"a", 1), Some(bytes("old")));
        assert_eq!(resident.get(b"a", 2), Some(bytes("old")));
    }

    #[test]
    fn a_row_that_a_fold_changed_is_shown_to_readers_of_the_new_tree_alone() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("a", Some("new"))]), 2);
        assert_eq!(resident.get(b"a", 1), None);
        assert_eq!(resident.get(b"a", 2), Some(bytes("new")));
    }

    #[test]
    fn a_row_that_a_fold_removed_is_gone() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("a", None)]), 2);
        assert_eq!(resident.get(b"a", 2), None);
    }

    #[test]
    fn a_reader_of_an_old_tree_adds_nothing() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("a", None)]), 2);
        resident.keep(b"a", b"old", 1);
        assert_eq!(resident.get(b"a", 2), None);
    }

    #[test]
    fn a_tree_that_changed_in_another_way_starts_with_nothing() {
        let resident = with("a", "old");
        resident.is_of(2);
        assert_eq!(resident.get(b"a", 2), None);
    }

    #[test]
    fn what_is_here_is_what_was_put_however_little_room_there_is() {
        let mut dice = Dice::new(7);
        for room in [0, 1 << 12, 1 << 14, 1 << 18] {
            let (resident, mut rows) = (Resident::new(room), BTreeMap::new());
            let mut found = 0;
            for tree in 1..40 {
                resident.is_of(tree);
                for _ in 0..200 {
                    let key = vec![b'k'; 1 + dice.roll(60) as usize];
                    let value = rows
                        .entry(key.clone())
                        .or_insert_with(|| Bytes::from(vec![dice.roll(256) as u8; dice.roll(300) as usize]));
                    resident.keep(&key, value, tree);
                    let held = resident.get(&key, tree);
                    assert!(held.is_none() || held.as_ref() == Some(value), "room for {room}");
                    found += usize::from(held.is_some());
                }
                rows.clear();
            }
            assert!(found > 3900 || room < 1 << 18, "{found} of 7800 with room for {room}");
        }
    }

    #[test]
    fn what_is_asked_for_stays_while_others_come_and_go() {
        let resident = with("a", "kept");
        for other in 0_u32..200_000 {
            resident.keep(&other.to_be_bytes(), &[1; 90], 1);
            if other % 500 == 0 {
                assert_eq!(resident.get(b"a", 1), Some(bytes("kept")), "after {other}");
            }
        }
        assert_eq!(resident.get(&0_u32.to_be_bytes(), 1), None, "the oldest gave room");
        assert!(resident.get(&199_999_u32.to_be_bytes(), 1).is_some());
    }

    #[test]
    fn an_index_grows_with_its_rows_and_loses_few_of_them() {
        let resident = Resident::new(1 << 30);
        let places = || -> usize { resident.rings.iter().map(|ring| ring.read().unwrap().index.len()).sum() };
        let key = |row: u32| [&b"the directory"[..], &row.to_be_bytes()].concat();
        let mut rows = 0_u32;
        for step in [100_u32, 900, 9_000, 90_000] {
            for row in rows..rows + step {
                resident.keep(&key(row), &row.to_le_bytes().repeat(15), 0);
            }
            rows += step;
            let found = (0..rows).filter(|row| {
                let held = resident.get(&key(*row), 0);
                assert!(held.as_ref().is_none_or(|held| **held == row.to_le_bytes().repeat(15)), "{row}");
                held.is_some()
            });
            let (found, most) = (found.count(), RINGS * BUCKET_PLACES + rows as usize * 6);
            assert!(found * 100 >= rows as usize * 98, "{found} of {rows} are there");
            assert!(places() <= most, "{} places for {rows} rows", places());
        }
    }

    #[test]
    fn a_row_longer_than_there_is_room_for_is_not_kept() {
        let resident = with("a", "kept");
        resident.keep(b"b", &vec![0; 1 << 20], 1);
        assert_eq!(resident.get(b"b", 1), None);
        assert_eq!(resident.get(b"a", 1), Some(bytes("kept")));
    }
}
