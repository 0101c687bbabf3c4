//! Containers: a small head that every access reads, the policy behind it, and the
//! bytes used. Changing a policy writes these rows alone, whatever the container holds.

use serde::{Deserialize, Serialize};
use weft_core::acl::{Acl, Modes};
use weft_core::policy::{AuditReads, Policy};
use weft_core::{ContainerId, Error, Result};
use weft_kv::{Order, Read, Txn};

use super::inodes::count_at;
use super::key::{Fields, Key, Table};
use super::row::{Row, decode, encode};

/// What tells whether a policy read before is still the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Rises with every change of the policy.
    pub(crate) serial: u64,
    /// Rises when capabilities issued so far must die.
    pub(crate) epoch: u64,
    /// Whether a subtree is on its way out of it, see [`super::splits`].
    pub(crate) leaving: bool,
}

impl Row for Head {
    const WHAT: &'static str = "container";
}

/// A container's policy as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// The inode that it was made for and that it governs with what lies below.
    pub(crate) root: u64,
    pub(crate) acl: Acl,
    pub(crate) modes: Modes,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) audit_reads: AuditReads,
}

impl Row for Rules {
    const WHAT: &'static str = "container policy";
}

fn key(table: Table, container: ContainerId) -> Key {
    Key::of(table).u64(container.0)
}

fn missing(container: ContainerId) -> Error {
    Error::corrupt("a container's policy is not there").about(container).hint("weft fsck")
}

/// Returns a container's head.
pub(crate) fn head(read: &dyn Read, container: ContainerId) -> Result<Head> {
    find_head(read, container)?.ok_or_else(|| missing(container))
}

/// Returns a container's head if there is such a container.
pub(crate) fn find_head(read: &dyn Read, container: ContainerId) -> Result<Option<Head>> {
    let key = key(Table::Head, container);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Returns a container's rules.
pub(crate) fn rules(read: &dyn Read, container: ContainerId) -> Result<Rules> {
    let key = key(Table::Policy, container);
    decode(&key, &read.get(&key)?.ok_or_else(|| missing(container))?)
}

/// Returns a container's rules if they are there.
pub(crate) fn find_rules(read: &dyn Read, container: ContainerId) -> Result<Option<Rules>> {
    let key = key(Table::Policy, container);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Returns the container that was made for an inode, if one was. For repairs: it goes
/// over all of them.
pub(crate) fn find_rules_of(read: &dyn Read, root: u64) -> Result<Option<ContainerId>> {
    for id in all(read) {
        let id = id?;
        if find_rules(read, id).ok().flatten().is_some_and(|rules| rules.root == root) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Writes a container.
pub(crate) fn put(txn: &mut dyn Txn, container: ContainerId, head: Head, rules: &Rules) -> Result<()> {
    let at = key(Table::Head, container);
    txn.put(&at, &encode(&at, &head)?)?;
    let at = key(Table::Policy, container);
    txn.put(&at, &encode(&at, rules)?)
}

/// Removes a container that governs nothing any more.
pub(crate) fn erase(txn: &mut dyn Txn, container: ContainerId) -> Result<()> {
    for table in [Table::Head, Table::Policy, Table::Used, Table::DropBox] {
        txn.delete(&key(table, container))?;
    }
    Ok(())
}

/// Every container, by id.
pub(crate) fn all(read: &dyn Read) -> impl Iterator<Item = Result<ContainerId>> + '_ {
    let prefix = Key::of(Table::Head);
    read.scan(&prefix, &prefix.end(), Order::Rising).map(|row| {
        let (key, _) = row?;
        let id = Fields::of(&key).u64().ok_or_else(|| Error::corrupt("a container's key is malformed"))?;
        Ok(ContainerId(id))
    })
}

/// Returns how many bytes a container's files take.
pub(crate) fn used(read: &dyn Read, container: ContainerId) -> Result<u64> {
    Ok(count_at(read, &key(Table::Used, container))?.max(0) as u64)
}

/// Counts bytes that came or went.
pub(crate) fn use_bytes(txn: &mut dyn Txn, container: ContainerId, delta: i64) -> Result<()> {
    if delta == 0 { Ok(()) } else { txn.bump(&key(Table::Used, container), delta) }
}

/// Returns the policy as doors see it.
pub(crate) fn policy(read: &dyn Read, container: ContainerId) -> Result<Policy> {
    let rules = rules(read, container)?;
    Ok(Policy {
        container,
        epoch: head(read, container)?.epoch,
        acl: rules.acl,
        modes: rules.modes,
        bytes_max: rules.bytes_max,
        bytes_used: used(read, container)?,
        audit_reads: rules.audit_reads,
    })
}
