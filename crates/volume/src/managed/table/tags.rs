//! User attributes: one row each, so that a large value costs nobody who does not ask.

use bytes::Bytes;
use weft_core::attr::TagName;
use weft_core::{Error, Result};
use weft_kv::{Order, Read, Txn};

use super::key::{Key, Table};
use super::row::{decode_bytes, encode_bytes};

fn key(inode: u64, name: &TagName) -> Key {
    Key::of(Table::Tag).u64(inode).bytes(name.as_bytes())
}

/// Returns one attribute's value.
pub(crate) fn find(read: &dyn Read, inode: u64, name: &TagName) -> Result<Option<Bytes>> {
    let key = key(inode, name);
    read.get(&key)?.map(|value| decode_bytes(&key, &value, "user attribute")).transpose()
}

/// Attributes in name order after one, or from the first.
pub(crate) fn after<'a>(
    read: &'a dyn Read,
    inode: u64,
    name: Option<&TagName>,
) -> impl Iterator<Item = Result<(TagName, Bytes)>> + 'a {
    let prefix = Key::of(Table::Tag).u64(inode);
    let from = name.map_or_else(|| prefix.to_vec(), |name| key(inode, name).next());
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let broken = || Error::corrupt("a user attribute's key is malformed").hint("weft fsck");
        let name = key.get(9..).map(|_| TagName::new(key.slice(9..))).ok_or_else(broken)??;
        Ok((name, decode_bytes(&key, &value, "user attribute")?))
    })
}

/// Writes one attribute.
pub(crate) fn put(txn: &mut dyn Txn, inode: u64, name: &TagName, value: &[u8]) -> Result<()> {
    let key = key(inode, name);
    txn.put(&key, &encode_bytes(&key, value))
}

/// Removes one attribute.
pub(crate) fn remove(txn: &mut dyn Txn, inode: u64, name: &TagName) -> Result<()> {
    txn.delete(&key(inode, name))
}

/// Removes all of an inode's attributes; their bytes in all are bounded.
pub(crate) fn erase(txn: &mut dyn Txn, inode: u64) -> Result<()> {
    let prefix = Key::of(Table::Tag).u64(inode);
    let keys: Vec<Bytes> = txn
        .scan(&prefix, &prefix.end(), Order::Rising)
        .map(|row| row.map(|(key, _)| key))
        .collect::<Result<_>>()?;
    keys.iter().try_for_each(|key| txn.delete(key))
}
