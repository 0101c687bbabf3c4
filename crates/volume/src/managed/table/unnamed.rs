//! What is kept without a name, and why: orphans for those who have them open, objects
//! to remove, objects to label anew, objects being written, sessions with locks.

use serde::{Deserialize, Serialize};
use weft_core::{ContainerId, Error, ObjectId, Result, SessionId};
use weft_kv::{Order, Read, Txn};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, encode};

/// A row that says only that it is there.
#[derive(Serialize, Deserialize)]
pub(super) struct Present;

impl Row for Present {
    const WHAT: &'static str = "mark";
}

#[derive(Serialize, Deserialize)]
pub(super) struct Labelled(ContainerId);

impl Row for Labelled {
    const WHAT: &'static str = "object to remove";
}

/// Marks of one kind, under one id each.
#[derive(Clone, Copy)]
pub(crate) struct Marks(Table);

/// Inodes without names that somebody has, or had, open.
pub(crate) const ORPHANS: Marks = Marks(Table::Orphan);
/// Inodes whose objects are to be labelled with their container.
pub(crate) const RELABELS: Marks = Marks(Table::Relabel);
/// Inodes whose objects are being written in place.
pub(crate) const WRITING: Marks = Marks(Table::Writing);

impl Marks {
    fn key(self, inode: u64) -> Key {
        Key::of(self.0).u64(inode)
    }

    pub(crate) fn has(self, read: &dyn Read, inode: u64) -> Result<bool> {
        Ok(read.get(&self.key(inode))?.is_some())
    }

    pub(crate) fn add(self, txn: &mut dyn Txn, inode: u64) -> Result<()> {
        let key = self.key(inode);
        txn.put(&key, &encode(&key, &Present)?)
    }

    pub(crate) fn remove(self, txn: &mut dyn Txn, inode: u64) -> Result<()> {
        txn.delete(&self.key(inode))
    }

    /// Returns the mark itself. For repairs.
    pub(crate) fn row(self, inode: u64) -> Result<(Vec<u8>, Vec<u8>)> {
        let key = self.key(inode);
        Ok((key.to_vec(), encode(&key, &Present)?))
    }

    /// The first `max` after `after`.
    pub(crate) fn some(self, read: &dyn Read, after: Option<u64>, max: usize) -> Result<Vec<u64>> {
        let prefix = Key::of(self.0);
        let from = after.map_or_else(|| prefix.to_vec(), |inode| self.key(inode).next());
        read.scan(&from, &prefix.end(), Order::Rising)
            .take(max)
            .map(|row| Fields::of(&row?.0).u64().ok_or_else(odd_key))
            .collect()
    }
}

fn garbage_key(object: ObjectId) -> Key {
    Key::of(Table::Garbage).u128(object.0)
}

/// Puts an object among those to remove.
pub(crate) fn add_garbage(txn: &mut dyn Txn, object: ObjectId, label: ContainerId) -> Result<()> {
    let key = garbage_key(object);
    txn.put(&key, &encode(&key, &Labelled(label))?)
}

/// Forgets an object that is removed.
pub(crate) fn remove_garbage(txn: &mut dyn Txn, object: ObjectId) -> Result<()> {
    txn.delete(&garbage_key(object))
}

/// Returns the label of an object that is among those to remove.
pub(crate) fn garbage_label(read: &dyn Read, object: ObjectId) -> Result<Option<ContainerId>> {
    let key = garbage_key(object);
    read.get(&key)?.map(|value| Ok(decode::<Labelled>(&key, &value)?.0)).transpose()
}

/// Returns whether an object is among those to remove.
pub(crate) fn is_garbage(read: &dyn Read, object: ObjectId) -> Result<bool> {
    Ok(read.get(&garbage_key(object))?.is_some())
}

/// Objects to remove: the first `max` after `after`.
pub(crate) fn garbage(
    read: &dyn Read,
    after: Option<ObjectId>,
    max: usize,
) -> Result<Vec<(ObjectId, ContainerId)>> {
    all_garbage(read, after).take(max).collect()
}

/// Objects to remove and the labels they carry, after one or from the first.
pub(crate) fn all_garbage(
    read: &dyn Read,
    after: Option<ObjectId>,
) -> impl Iterator<Item = Result<(ObjectId, ContainerId)>> + '_ {
    let prefix = Key::of(Table::Garbage);
    let from = after.map_or_else(|| prefix.to_vec(), |object| garbage_key(object).next());
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let object = ObjectId(Fields::of(&key).u128().ok_or_else(odd_key)?);
        Ok((object, decode::<Labelled>(&key, &value)?.0))
    })
}

/// Notes that a session takes locks, so that it may reclaim them after a restart.
pub(crate) fn add_locker(txn: &mut dyn Txn, session: SessionId) -> Result<()> {
    let key = Key::of(Table::Locker).u128(session.0);
    txn.put(&key, &encode(&key, &Present)?)
}

/// Forgets that a session takes locks.
pub(crate) fn remove_locker(txn: &mut dyn Txn, session: SessionId) -> Result<()> {
    txn.delete(&Key::of(Table::Locker).u128(session.0))
}

/// Sessions that took locks before a restart; bounded by the sessions there may be.
pub(crate) fn lockers(read: &dyn Read) -> Result<Vec<SessionId>> {
    let prefix = Key::of(Table::Locker);
    read.scan(&prefix, &prefix.end(), Order::Rising)
        .map(|row| Ok(SessionId(Fields::of(&row?.0).u128().ok_or_else(odd_key)?)))
        .collect()
}

/// Returns whether a mark is as it was written.
pub(crate) fn is_mark(key: &[u8], value: &[u8]) -> bool {
    decode::<Present>(key, value).is_ok()
}

/// Returns whether an object's row is as it was written.
pub(crate) fn is_garbage_row(key: &[u8], value: &[u8]) -> bool {
    decode::<Labelled>(key, value).is_ok()
}

fn odd_key() -> Error {
    Error::corrupt("a key of the volume's tables is malformed").about("mark").hint("weft fsck")
}
