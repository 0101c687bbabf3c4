//! Names: by directory and name, by directory and cookie, and back from the inode.
//!
//! The three rows of one name are written and removed together, here only.

use serde::{Deserialize, Serialize};
use weft_core::attr::Kind;
use weft_core::{Error, Name, Result};
use weft_kv::{Order, Read, Txn};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, decode_bytes, encode, encode_bytes};

/// What a name in a directory leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) inode: u64,
    pub(crate) generation: u32,
    pub(crate) kind: Kind,
    /// Where a listing goes on after it; rises, never given twice.
    pub(crate) cookie: u64,
}

impl Row for Link {
    const WHAT: &'static str = "entry by name";
}

#[derive(Serialize, Deserialize)]
pub(super) struct Listed {
    name: Name,
    inode: u64,
    generation: u32,
    kind: Kind,
}

impl Row for Listed {
    const WHAT: &'static str = "entry by cookie";
}

/// One way from an inode up to a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackLink {
    pub(crate) parent: u64,
    pub(crate) cookie: u64,
    pub(crate) name: Name,
}

fn by_name(dir: u64, name: &[u8]) -> Key {
    Key::of(Table::Entry).u64(dir).bytes(name)
}

fn by_cookie(dir: u64, cookie: u64) -> Key {
    Key::of(Table::Cookie).u64(dir).u64(cookie)
}

fn back(inode: u64, dir: u64, cookie: u64) -> Key {
    Key::of(Table::BackLink).u64(inode).u64(dir).u64(cookie)
}

/// Looks one name up.
pub(crate) fn find(read: &dyn Read, dir: u64, name: &Name) -> Result<Option<Link>> {
    let key = by_name(dir, name.as_bytes());
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Adds a name. The directory's tally is the caller's to touch.
pub(crate) fn add(txn: &mut dyn Txn, dir: u64, name: &Name, link: &Link) -> Result<()> {
    let key = by_name(dir, name.as_bytes());
    txn.put(&key, &encode(&key, link)?)?;
    let key = by_cookie(dir, link.cookie);
    let listed =
        Listed { name: name.clone(), inode: link.inode, generation: link.generation, kind: link.kind };
    txn.put(&key, &encode(&key, &listed)?)?;
    let key = back(link.inode, dir, link.cookie);
    txn.put(&key, &encode_bytes(&key, name.as_bytes()))
}

/// Lets a name that [`find`] found lead to something else. Its cookie stays, so that a
/// scan meets each name once.
pub(crate) fn redirect(txn: &mut dyn Txn, dir: u64, name: &Name, old: &Link, new: &Link) -> Result<()> {
    txn.delete(&back(old.inode, dir, old.cookie))?;
    add(txn, dir, name, &Link { cookie: old.cookie, ..*new })
}

/// Removes a name that [`find`] found.
pub(crate) fn remove(txn: &mut dyn Txn, dir: u64, name: &Name, link: &Link) -> Result<()> {
    txn.delete(&by_name(dir, name.as_bytes()))?;
    txn.delete(&by_cookie(dir, link.cookie))?;
    txn.delete(&back(link.inode, dir, link.cookie))
}

/// Returns whether a directory has no names.
pub(crate) fn is_empty(read: &dyn Read, dir: u64) -> Result<bool> {
    let prefix = Key::of(Table::Entry).u64(dir);
    Ok(read.scan(&prefix, &prefix.end(), Order::Rising).next().transpose()?.is_none())
}

/// Names in stored order after a cookie, read as they are asked for.
pub(crate) fn after_cookie(
    read: &dyn Read,
    dir: u64,
    cookie: u64,
) -> impl Iterator<Item = Result<(Name, Link)>> + '_ {
    let prefix = Key::of(Table::Cookie).u64(dir);
    let from = by_cookie(dir, cookie).next();
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let Listed { name, inode, generation, kind } = decode(&key, &value)?;
        let mut fields = Fields::of(&key);
        let cookie = fields.u64().and_then(|_| fields.u64()).ok_or_else(|| odd_key("entry by cookie"))?;
        Ok((name, Link { inode, generation, kind, cookie }))
    })
}

/// Names in name order after one, or from the first.
pub(crate) fn after_name<'a>(
    read: &'a dyn Read,
    dir: u64,
    name: Option<&Name>,
) -> impl Iterator<Item = Result<(Name, Link)>> + 'a {
    let prefix = Key::of(Table::Entry).u64(dir);
    let from = name.map_or_else(|| prefix.to_vec(), |name| by_name(dir, name.as_bytes()).next());
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let link = decode(&key, &value)?;
        // The name is what follows the table's byte and the directory.
        let name = key.get(9..).map(|_| Name::new(key.slice(9..)));
        Ok((name.ok_or_else(|| odd_key("entry by name"))??, link))
    })
}

/// The names of an inode, and the directories they are in.
pub(crate) fn names_of(read: &dyn Read, inode: u64) -> impl Iterator<Item = Result<BackLink>> + '_ {
    let prefix = Key::of(Table::BackLink).u64(inode);
    read.scan(&prefix, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let name = Name::new(decode_bytes(&key, &value, "back link")?)?;
        let mut fields = Fields::of(&key);
        let ids = fields.u64().and_then(|_| Some((fields.u64()?, fields.u64()?)));
        let (parent, cookie) = ids.ok_or_else(|| odd_key("back link"))?;
        Ok(BackLink { parent, cookie, name })
    })
}

/// The one name of a directory; none for the root and for one that is removed.
pub(crate) fn name_of(read: &dyn Read, dir: u64) -> Result<Option<BackLink>> {
    names_of(read, dir).next().transpose()
}

/// The three rows of a name, as keys. For checks and repairs, as all below.
pub(crate) fn keys(dir: u64, name: &Name, link: &Link) -> [Key; 3] {
    [by_name(dir, name.as_bytes()), by_cookie(dir, link.cookie), back(link.inode, dir, link.cookie)]
}

/// The three rows of a name.
pub(crate) fn rows(dir: u64, name: &Name, link: &Link) -> Result<[(Vec<u8>, Vec<u8>); 3]> {
    let [entry, cookie, up] = keys(dir, name, link);
    let listed =
        Listed { name: name.clone(), inode: link.inode, generation: link.generation, kind: link.kind };
    Ok([
        (entry.to_vec(), encode(&entry, link)?),
        (cookie.to_vec(), encode(&cookie, &listed)?),
        (up.to_vec(), encode_bytes(&up, name.as_bytes())),
    ])
}

/// Returns the entry with a cookie.
pub(crate) fn listed(read: &dyn Read, dir: u64, cookie: u64) -> Result<Option<(Name, Link)>> {
    let key = by_cookie(dir, cookie);
    let Some(value) = read.get(&key)? else { return Ok(None) };
    let Listed { name, inode, generation, kind } = decode(&key, &value)?;
    Ok(Some((name, Link { inode, generation, kind, cookie })))
}

/// Returns the name that a back link says.
pub(crate) fn back_name(read: &dyn Read, inode: u64, dir: u64, cookie: u64) -> Result<Option<Name>> {
    let key = back(inode, dir, cookie);
    read.get(&key)?.map(|value| Name::new(decode_bytes(&key, &value, "back link")?)).transpose()
}

/// Every entry by name.
pub(crate) fn all(read: &dyn Read) -> impl Iterator<Item = Result<(u64, Name, Link)>> + '_ {
    let prefix = Key::of(Table::Entry);
    read.scan(&prefix, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let dir = Fields::of(&key).u64().ok_or_else(|| odd_key("entry by name"))?;
        Ok((dir, Name::new(key.slice(9..))?, decode(&key, &value)?))
    })
}

/// Every entry by cookie.
pub(crate) fn all_listed(read: &dyn Read) -> impl Iterator<Item = Result<(u64, Name, Link)>> + '_ {
    let prefix = Key::of(Table::Cookie);
    read.scan(&prefix, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let mut fields = Fields::of(&key);
        let ids = fields.u64().and_then(|dir| Some((dir, fields.u64()?)));
        let (dir, cookie) = ids.ok_or_else(|| odd_key("entry by cookie"))?;
        let Listed { name, inode, generation, kind } = decode(&key, &value)?;
        Ok((dir, name, Link { inode, generation, kind, cookie }))
    })
}

/// Every back link.
pub(crate) fn all_back_links(read: &dyn Read) -> impl Iterator<Item = Result<(u64, BackLink)>> + '_ {
    let prefix = Key::of(Table::BackLink);
    read.scan(&prefix, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let name = Name::new(decode_bytes(&key, &value, "back link")?)?;
        let mut fields = Fields::of(&key);
        let ids = fields.u64().and_then(|inode| Some((inode, fields.u64()?, fields.u64()?)));
        let (inode, parent, cookie) = ids.ok_or_else(|| odd_key("back link"))?;
        Ok((inode, BackLink { parent, cookie, name }))
    })
}

/// Returns whether a row by cookie is as it was written.
pub(crate) fn is_listed(key: &[u8], value: &[u8]) -> bool {
    decode::<Listed>(key, value).is_ok()
}

fn odd_key(what: &'static str) -> Error {
    Error::corrupt("a key of the volume's tables is malformed").about(what).hint("weft fsck")
}
