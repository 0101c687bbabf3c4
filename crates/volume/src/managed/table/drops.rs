//! Drop-boxes: which containers are some, what they take, and how much was dropped lately.

use serde::{Deserialize, Serialize};
use weft_core::drop_box::{DropLimits, Fill};
use weft_core::{ContainerId, Error, Result};
use weft_kv::{Order, Read, Txn};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, encode};

/// A container that is a drop-box. Its limit on bytes is the container's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DropRow {
    pub(crate) limits: DropLimits,
    pub(crate) fill: Fill,
}

impl Row for DropRow {
    const WHAT: &'static str = "drop-box";
}

fn key(container: ContainerId) -> Key {
    Key::of(Table::DropBox).u64(container.0)
}

/// Returns what a container takes as a drop-box, if it is one.
pub(crate) fn find(read: &dyn Read, container: ContainerId) -> Result<Option<DropRow>> {
    let key = key(container);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Makes a container a drop-box, or says how full it is.
pub(crate) fn put(txn: &mut dyn Txn, container: ContainerId, row: &DropRow) -> Result<()> {
    let key = key(container);
    txn.put(&key, &encode(&key, row)?)
}

/// A container is no drop-box any more.
pub(crate) fn erase(txn: &mut dyn Txn, container: ContainerId) -> Result<()> {
    txn.delete(&key(container))
}

/// Every drop-box.
pub(crate) fn all(read: &dyn Read) -> impl Iterator<Item = Result<ContainerId>> + '_ {
    let prefix = Key::of(Table::DropBox);
    read.scan(&prefix, &prefix.end(), Order::Rising).map(|row| {
        let (key, _) = row?;
        let id = Fields::of(&key).u64();
        id.map(ContainerId).ok_or_else(|| Error::corrupt("a drop-box's key is malformed"))
    })
}
