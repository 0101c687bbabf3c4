//! The rows that auth keeps: one letter per table, then the key, `postcard` values.
//!
//! | Table | Key | Value |
//! |---|---|---|
//! | `m` | name | [`Domain`], and the count of the node's starts |
//! | `k` | key id | [`KeyRow`] |
//! | `u` | local name | [`UserRow`] |
//! | `i` | uid | local name |
//! | `g` | `maker/name` | the owner's name |
//! | `e` | group id, member id | the member's name |
//! | `r` | member id, group id | nothing |
//! | `s` | group id | how many members it has |
//! | `n` | caller id | the caller's name |
//! | `l` | caller id | [`Line`] |
//! | `c` | credential id | until when its withdrawal is remembered |
//! | `a` | – | the audit log's last head |

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_core::proof::{KeyCertificate, Purpose};
use weft_core::{CallerId, CallerName, CredentialId, DomainId, Error, KeyId, Result, Time};
use weft_kv::{Order, Read, Schema, Txn, prefix_end};

use crate::password::PasswordHash;

/// How the tables look.
pub(crate) static SCHEMA: Schema = Schema { version: 1, migrations: &[] };

/// The domain this node speaks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Domain {
    /// Its id.
    pub(crate) id: DomainId,
    /// Whoever made it.
    pub(crate) founder: CallerName,
    /// Its members are the administrators.
    pub(crate) administrators: CallerName,
    /// Marks credentials and session secrets as this domain's; see `mint` and `sessions`.
    pub(crate) mark: [u8; 32],
}

/// What the domain says of one of its signing keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeyRow {
    /// What it signs.
    pub(crate) purpose: Purpose,
    /// The root key's word for it.
    pub(crate) certificate: KeyCertificate,
    /// Whether it is the one that signs now.
    pub(crate) current: bool,
    /// Whether it is no longer believed.
    pub(crate) ended: bool,
    /// When it was made.
    pub(crate) made: Time,
}

/// A user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UserRow {
    /// The password, if there is one.
    pub(crate) password: Option<PasswordHash>,
    /// The uid on the node's own socket.
    pub(crate) uid: Option<u32>,
    /// Whether it may log in.
    pub(crate) enabled: bool,
    /// When it was added.
    pub(crate) added: Time,
}

/// The line a caller's credentials must be on the right side of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Those made at or before this time are over.
    pub(crate) revoked: Option<Time>,
    /// Those with an older membership must be made afresh.
    pub(crate) membership: u64,
}

/// A row's key: the table's letter and what follows.
pub(crate) fn key(table: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![table];
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

pub(crate) fn domain_key() -> Vec<u8> {
    key(b'm', &[b"domain"])
}

pub(crate) fn starts_key() -> Vec<u8> {
    key(b'm', &[b"starts"])
}

pub(crate) fn key_key(id: KeyId) -> Vec<u8> {
    key(b'k', &[&id.0.to_be_bytes()])
}

pub(crate) fn user_key(local: &str) -> Vec<u8> {
    key(b'u', &[local.as_bytes()])
}

pub(crate) fn uid_key(uid: u32) -> Vec<u8> {
    key(b'i', &[&uid.to_be_bytes()])
}

pub(crate) fn group_key(local: &str) -> Vec<u8> {
    key(b'g', &[local.as_bytes()])
}

pub(crate) fn member_key(group: CallerId, member: CallerId) -> Vec<u8> {
    key(b'e', &[&group.0.to_be_bytes(), &member.0.to_be_bytes()])
}

pub(crate) fn group_of_key(member: CallerId, group: CallerId) -> Vec<u8> {
    key(b'r', &[&member.0.to_be_bytes(), &group.0.to_be_bytes()])
}

pub(crate) fn name_key(id: CallerId) -> Vec<u8> {
    key(b'n', &[&id.0.to_be_bytes()])
}

pub(crate) fn line_key(id: CallerId) -> Vec<u8> {
    key(b'l', &[&id.0.to_be_bytes()])
}

pub(crate) fn credential_key(id: CredentialId) -> Vec<u8> {
    key(b'c', &[&id.0.to_be_bytes()])
}

pub(crate) fn audit_head_key() -> Vec<u8> {
    key(b'a', &[])
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| Error::internal("a row cannot be encoded").caused_by(error))
}

/// Decodes a value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| Error::corrupt("a row of auth is malformed").caused_by(error))
}

/// Returns the value under a key.
pub(crate) fn read<T: DeserializeOwned>(rows: &(impl Read + ?Sized), key: &[u8]) -> Result<Option<T>> {
    rows.get(key)?.map(|bytes| decode(&bytes)).transpose()
}

/// Sets the value under a key.
pub(crate) fn write<T: Serialize>(txn: &mut (impl Txn + ?Sized), key: &[u8], value: &T) -> Result<()> {
    txn.put(key, &encode(value)?)
}

/// Calls `each` with every row whose key starts with `prefix`, in order, and the key's rest; stops
/// once it returns `false`.
pub(crate) fn each_below(
    rows: &(impl Read + ?Sized),
    prefix: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<bool>,
) -> Result<()> {
    for row in rows.scan(prefix, &prefix_end(prefix), Order::Rising) {
        let (key, value) = row?;
        if !each(&key[prefix.len()..], &value)? {
            break;
        }
    }
    Ok(())
}

/// Reads an id out of a key's 16 bytes.
pub(crate) fn id_of(bytes: &[u8]) -> Result<u128> {
    let bytes = bytes.try_into().map_err(|_| Error::corrupt("a key of auth is not an id"))?;
    Ok(u128::from_be_bytes(bytes))
}

/// Returns the ids of the groups a caller is in.
pub(crate) fn groups_of(rows: &(impl Read + ?Sized), member: CallerId) -> Result<Vec<CallerId>> {
    let mut groups = Vec::new();
    each_below(rows, &key(b'r', &[&member.0.to_be_bytes()]), |rest, _| {
        groups.push(CallerId(id_of(rest)?));
        Ok(true)
    })?;
    Ok(groups)
}
