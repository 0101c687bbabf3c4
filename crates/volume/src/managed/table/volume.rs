//! What the volume itself is, and the numbers it has given away.

use serde::{Deserialize, Serialize};
use weft_core::{CallerName, Error, Result, VolumeId};
use weft_kv::{Read, Txn};

use super::inodes::count_at;
use super::key::{Key, Table};
use super::row::{Row, decode, encode};

/// What a volume was made as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// Its number.
    pub(crate) id: VolumeId,
    /// The generation that new inodes get: raised when an older state is restored, so
    /// that numbers given since then are not given to other files.
    pub(crate) generation: u32,
    /// Who was given every right at its root.
    pub(crate) administrators: CallerName,
}

impl Row for Volume {
    const WHAT: &'static str = "volume";
}

/// Returns what the volume is; `None` before it is made.
pub(crate) fn find(read: &dyn Read) -> Result<Option<Volume>> {
    let key = Key::of(Table::Volume);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Writes what the volume is.
pub(crate) fn put(txn: &mut dyn Txn, volume: &Volume) -> Result<()> {
    let key = Key::of(Table::Volume);
    txn.put(&key, &encode(&key, volume)?)
}

/// Leases `count` numbers and returns the first. None of them was leased before.
pub(crate) fn lease(txn: &mut dyn Txn, count: u32) -> Result<u64> {
    let key = Key::of(Table::Numbers);
    let first = leased(txn)?;
    txn.bump(&key, i64::from(count))?;
    Ok(first)
}

/// Returns the first number that was not leased yet.
pub(crate) fn leased(read: &dyn Read) -> Result<u64> {
    let end = count_at(read, &Key::of(Table::Numbers))?;
    u64::try_from(end).map_err(|_| Error::corrupt("the counter of numbers is negative").hint("weft fsck"))
}

/// Makes sure that no number below `end` is leased again. For repairs.
pub(crate) fn lease_past(txn: &mut dyn Txn, end: u64) -> Result<()> {
    let now = count_at(txn, &Key::of(Table::Numbers))?;
    txn.bump(&Key::of(Table::Numbers), (end as i64).saturating_sub(now).max(0))
}
