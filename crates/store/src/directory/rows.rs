//! What the store records in the metadata engine, key by key.
//!
//! ```text
//!   o object             → label, file, size, unverified blocks, write counter and its boot
//!   c container, object  → nothing: the container's objects in id order
//!   f file               → object that owns the file
//!   s file               → nothing: a spare, empty and its name on disk
//!   d file               → nothing: to be removed
//!   w object             → nothing: open for writing, its seals are not to be trusted
//!   b object, group      → seals of 64 blocks
//!   n                    → number of the next file
//!   r                    → the scrubber's round: its number, when it began, where it is
//!   x object             → what the scrubber found wrong with it; may be left of one that is gone
//! ```

use weft_core::{ContainerId, Error, ObjectId, Result};
use weft_kv::{Migration, Read, Schema, SpaceId};

/// The store's part of the metadata engine.
pub const SPACE: SpaceId = SpaceId(b'o');

/// How the store's records look.
pub const SCHEMA: Schema = Schema { version: 1, migrations: MIGRATIONS };
const MIGRATIONS: &[Migration] = &[];

pub(super) const NEXT_FILE: &[u8] = b"n";
pub(super) const ROUND: &[u8] = b"r";
pub(super) const DAMAGED: u8 = b'x';
pub(super) const OBJECTS: u8 = b'o';
pub(super) const MEMBERS: u8 = b'c';
pub(super) const FILES: u8 = b'f';
pub(super) const SPARES: u8 = b's';
pub(super) const REMOVED: u8 = b'd';
pub(super) const WRITING: u8 = b'w';
pub(super) const SEALS: u8 = b'b';

/// The number of an object's file; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileNumber(pub(super) u64);

impl FileNumber {
    pub(super) fn key(self, table: u8) -> [u8; 9] {
        let mut key = [table; 9];
        key[1..].copy_from_slice(&self.0.to_be_bytes());
        key
    }

    pub(super) fn from_key(key: &[u8]) -> Result<Self> {
        let number = key.get(1..).and_then(|rest| rest.try_into().ok());
        number.map(|bytes| Self(u64::from_be_bytes(bytes))).ok_or_else(|| wrong("a file's number"))
    }
}

pub(super) fn object_key(table: u8, object: ObjectId) -> [u8; 17] {
    let mut key = [table; 17];
    key[1..].copy_from_slice(&object.0.to_be_bytes());
    key
}

pub(super) fn member_key(container: ContainerId, object: ObjectId) -> [u8; 25] {
    let mut key = [MEMBERS; 25];
    key[1..9].copy_from_slice(&container.0.to_be_bytes());
    key[9..].copy_from_slice(&object.0.to_be_bytes());
    key
}

pub(super) fn seal_key(object: ObjectId, group: u64) -> [u8; 25] {
    let mut key = [SEALS; 25];
    key[1..17].copy_from_slice(&object.0.to_be_bytes());
    key[17..].copy_from_slice(&group.to_be_bytes());
    key
}

/// Reads the object id that a key or value ends with.
pub(super) fn object_at(bytes: &[u8], at: usize) -> Result<ObjectId> {
    let id = bytes.get(at..at + 16).and_then(|id| id.try_into().ok());
    id.map(|id| ObjectId(u128::from_be_bytes(id))).ok_or_else(|| wrong("an object's id"))
}

pub(super) fn number_at(bytes: &[u8], at: usize) -> Result<u64> {
    let number = bytes.get(at..at + 8).and_then(|number| number.try_into().ok());
    number.map(u64::from_be_bytes).ok_or_else(|| wrong("a number"))
}

fn wrong(what: &'static str) -> Error {
    Error::corrupt(format!("a record of the store is too short for {what}"))
}

/// What is recorded of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectRow {
    pub(super) container: ContainerId,
    pub(super) file: FileNumber,
    /// Bytes when it was last sealed.
    pub(super) size: u64,
    /// Blocks sealed after a crash, of whatever was there.
    pub(super) unverified: u64,
    /// Writes counted, in boot `boot`.
    pub(super) writes: u64,
    pub(super) boot: u64,
}

const ROW_VERSION: u8 = 1;

impl ObjectRow {
    pub(super) fn encode(&self) -> [u8; 49] {
        let mut bytes = [ROW_VERSION; 49];
        let fields = [self.container.0, self.file.0, self.size, self.unverified, self.writes, self.boot];
        for (place, field) in bytes[1..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.first() != Some(&ROW_VERSION) || bytes.len() != 49 {
            return Err(wrong("an object"));
        }
        let field = |place: usize| number_at(bytes, 1 + place * 8);
        Ok(Self {
            container: ContainerId(field(0)?),
            file: FileNumber(field(1)?),
            size: field(2)?,
            unverified: field(3)?,
            writes: field(4)?,
            boot: field(5)?,
        })
    }

    /// Changes the number of unverified blocks.
    pub(super) fn count_unverified(&mut self, change: i64) {
        self.unverified = self.unverified.saturating_add_signed(change);
    }

    pub(super) fn read(from: &(impl Read + ?Sized), object: ObjectId) -> Result<Option<Self>> {
        from.get(&object_key(OBJECTS, object))?.map(|bytes| Self::decode(&bytes)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    #[test]
    fn mutated_records_are_refused_or_mean_what_is_written_in_them() {
        let make = |dice: &mut Dice| {
            let mut number = || dice.roll(1 << 40);
            let (container, file) = (ContainerId(number()), FileNumber(number()));
            let (size, unverified, writes, boot) = (number(), number(), number(), number());
            ObjectRow { container, file, size, unverified, writes, boot }.encode().to_vec()
        };
        fuzz("object record", make, |bytes| match ObjectRow::decode(bytes) {
            Ok(row) => assert_eq!(row.encode(), bytes),
            Err(error) => assert_eq!(error.kind(), weft_core::ErrorKind::Corrupt),
        });
    }

    #[test]
    fn mutated_keys_are_refused_or_lead_to_what_they_name() {
        let make = |dice: &mut Dice| {
            let (object, number) = (ObjectId(dice.roll(1 << 60).into()), dice.roll(1 << 60));
            match dice.roll(4) {
                0 => FileNumber(number).key(FILES).to_vec(),
                1 => object_key(OBJECTS, object).to_vec(),
                2 => member_key(ContainerId(number), object).to_vec(),
                _ => seal_key(object, number).to_vec(),
            }
        };
        fuzz("key of the store", make, |bytes| {
            let table = bytes.first().copied().unwrap_or(0);
            if let Ok(file) = FileNumber::from_key(bytes) {
                assert_eq!(file.key(table), bytes);
            }
            for at in [1, 9] {
                if let Ok(object) = object_at(bytes, at) {
                    assert_eq!(object.0.to_be_bytes(), bytes[at..at + 16]);
                }
                if let Ok(number) = number_at(bytes, at) {
                    assert_eq!(number.to_be_bytes(), bytes[at..at + 8]);
                }
            }
        });
    }
}
