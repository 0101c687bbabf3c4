//! Splits under way: a subtree too large for one transaction leaves its container.

use serde::{Deserialize, Serialize};
use weft_core::{ContainerId, Error, Result};
use weft_kv::{Order, Read, Txn};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, encode};

/// A subtree on its way from one container to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Split {
    /// The subtree's root.
    pub(crate) root: u64,
    /// Where its members go.
    pub(crate) into: ContainerId,
}

impl Row for Split {
    const WHAT: &'static str = "split";
}

/// How far a directory's entries have been moved.
#[derive(Serialize, Deserialize)]
pub(super) struct Moved(u64);

impl Row for Moved {
    const WHAT: &'static str = "split queue";
}

fn key(from: ContainerId, split: &Split) -> Key {
    Key::of(Table::Split).u64(from.0).u64(split.into.0)
}

fn queue_key(split: &Split, dir: u64) -> Key {
    Key::of(Table::SplitQueue).u64(split.into.0).u64(dir)
}

/// Splits under way out of a container.
pub(crate) fn out_of(read: &dyn Read, from: ContainerId) -> Result<Vec<Split>> {
    let prefix = Key::of(Table::Split).u64(from.0);
    read.scan(&prefix, &prefix.end(), Order::Rising)
        .map(|row| {
            let (key, value) = row?;
            decode(&key, &value)
        })
        .collect()
}

/// Every split under way, with the container it leaves.
pub(crate) fn all(read: &dyn Read) -> Result<Vec<(ContainerId, Split)>> {
    let prefix = Key::of(Table::Split);
    read.scan(&prefix, &prefix.end(), Order::Rising)
        .map(|row| {
            let (key, value) = row?;
            let from = Fields::of(&key).u64().ok_or_else(|| Error::corrupt("a split's key is malformed"))?;
            Ok((ContainerId(from), decode(&key, &value)?))
        })
        .collect()
}

/// A container, and those that splits into it, or into what is on its way to it, leave:
/// what lies below its root under their names is its own, and only lags behind.
pub(crate) fn with_lagging(read: &dyn Read, container: ContainerId) -> Result<Vec<ContainerId>> {
    let under_way = all(read)?;
    let mut line = vec![container];
    let mut last = container;
    while let Some((from, _)) =
        under_way.iter().find(|(from, split)| split.into == last && !line.contains(from))
    {
        line.push(*from);
        last = *from;
    }
    Ok(line)
}

/// Begins a split.
pub(crate) fn begin(txn: &mut dyn Txn, from: ContainerId, split: &Split) -> Result<()> {
    let key = key(from, split);
    txn.put(&key, &encode(&key, split)?)?;
    push(txn, split, split.root, 0)
}

/// Ends a split.
pub(crate) fn end(txn: &mut dyn Txn, from: ContainerId, split: &Split) -> Result<()> {
    txn.delete(&key(from, split))
}

/// Says that a directory's entries up to a cookie are moved, and later ones are not.
pub(crate) fn push(txn: &mut dyn Txn, split: &Split, dir: u64, cookie: u64) -> Result<()> {
    let key = queue_key(split, dir);
    txn.put(&key, &encode(&key, &Moved(cookie))?)
}

/// Says that all of a directory's entries are moved.
pub(crate) fn pop(txn: &mut dyn Txn, split: &Split, dir: u64) -> Result<()> {
    txn.delete(&queue_key(split, dir))
}

/// Returns a directory with entries still to move, and the cookie to go on after.
pub(crate) fn next(read: &dyn Read, split: &Split) -> Result<Option<(u64, u64)>> {
    let prefix = Key::of(Table::SplitQueue).u64(split.into.0);
    let Some(row) = read.scan(&prefix, &prefix.end(), Order::Rising).next() else { return Ok(None) };
    let (key, value) = row?;
    let mut fields = Fields::of(&key);
    let dir = fields.u64().and_then(|_| fields.u64());
    let dir = dir.ok_or_else(|| Error::corrupt("a split's key is malformed"))?;
    Ok(Some((dir, decode::<Moved>(&key, &value)?.0)))
}

/// Returns the cookie up to which a directory's entries have been moved; `None` if it is
/// not in the queue.
pub(crate) fn moved_in(read: &dyn Read, into: ContainerId, dir: u64) -> Result<Option<u64>> {
    let key = Key::of(Table::SplitQueue).u64(into.0).u64(dir);
    read.get(&key)?.map(|value| Ok(decode::<Moved>(&key, &value)?.0)).transpose()
}

/// Returns the row that says a split begins again at a directory. For repairs.
pub(crate) fn queued(split: &Split, dir: u64) -> Result<(Vec<u8>, Vec<u8>)> {
    let key = queue_key(split, dir);
    Ok((key.to_vec(), encode(&key, &Moved(0))?))
}

/// Returns whether a row of the queue is as it was written.
pub(crate) fn is_queued(key: &[u8], value: &[u8]) -> bool {
    decode::<Moved>(key, value).is_ok()
}
