//! Rows: what is shared, and the policies over it. The files themselves know nothing of either.

use serde::{Deserialize, Serialize};
use weft_core::acl::Acl;
use weft_core::policy::AuditReads;
use weft_core::{CallerName, ContainerId, Error, ErrorKind, FileId, Result, Time, VolumeId, limits};
use weft_kv::{Order, Read, SpaceTxn, Txn, prefix_end};

use crate::managed::row::{Row, decode, encode};

/// The tables' keys begin with these bytes, which are on disk for good.
const SHARE: u8 = 0x01;
const LAST_VOLUME: u8 = 0x02;
const BOUND: u8 = 0x03;

/// The owner of what is staged through a share that came from a backup and is not served: nobody.
pub(super) const DETACHED: u64 = 0;

/// A directory of the machine that is shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShareRow {
    /// Its absolute path, no symbolic link in it.
    pub(super) directory: Vec<u8>,
    /// The inode that lay there: whatever else comes to lie there is not what was shared.
    pub(super) root: (u64, u32),
    /// Part of the names of staged bytes, by which a node knows its own; [`DETACHED`] if it is not served.
    pub(super) stage_owner: u64,
    /// Who shared it.
    pub(super) by: CallerName,
    /// When.
    pub(super) made: Time,
    /// The entry of the tree that leads to it; none until it was made.
    pub(super) junction: Option<FileId>,
    /// The user of the machine whose rights limit it: whose the directory was, if it was not shared by
    /// an administrator.
    pub(super) limited_to: Option<u32>,
}

impl Row for ShareRow {
    const WHAT: &'static str = "share";
}

/// A container of an export: a policy, and the place that it is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BoundRow {
    /// The path below the export's root.
    pub(super) path: Vec<u8>,
    /// Whether it guards that path still: it does not once another policy does.
    pub(super) guards: bool,
    /// The inode that it goes along with.
    pub(super) inode: FileId,
    /// Rises with every change.
    pub(super) serial: u64,
    /// Rises when capabilities issued so far must die.
    pub(super) epoch: u64,
    pub(super) acl: Acl,
    pub(super) audit_reads: AuditReads,
}

impl Row for BoundRow {
    const WHAT: &'static str = "policy of a share";
}

/// What a row is of, by its key.
pub(super) enum Key {
    Share(VolumeId),
    LastVolume,
    Bound(ContainerId),
}

/// Returns what a row is of; nothing for a key that is none.
pub(super) fn key_of(key: &[u8]) -> Option<Key> {
    let volume = |bytes: &[u8]| Some(VolumeId(u16::from_be_bytes(bytes.try_into().ok()?)));
    match key.split_first()? {
        (&SHARE, rest) => volume(rest).map(Key::Share),
        (&LAST_VOLUME, []) => Some(Key::LastVolume),
        (&BOUND, rest) => {
            let (above, id) = rest.split_first_chunk::<2>()?;
            let container = ContainerId(u64::from_be_bytes(id.try_into().ok()?));
            (volume(above)? == container.volume()).then_some(Key::Bound(container))
        }
        _ => None,
    }
}

/// Returns the row that says which volume number was given last.
pub(super) fn last_volume(volume: VolumeId) -> (Vec<u8>, Vec<u8>) {
    (vec![LAST_VOLUME], volume.0.to_be_bytes().to_vec())
}

pub(super) fn share_key(volume: VolumeId) -> Vec<u8> {
    [&[SHARE][..], &volume.0.to_be_bytes()].concat()
}

fn bound_prefix(volume: VolumeId) -> Vec<u8> {
    [&[BOUND][..], &volume.0.to_be_bytes()].concat()
}

pub(super) fn bound_key(container: ContainerId) -> Vec<u8> {
    let mut key = bound_prefix(container.volume());
    key.extend_from_slice(&container.0.to_be_bytes());
    key
}

/// Returns what is shared.
pub(super) fn shares(read: &dyn Read) -> Result<Vec<(VolumeId, ShareRow)>> {
    let prefix = [SHARE];
    let rows = read.scan(&prefix, &prefix_end(&prefix), Order::Rising);
    rows.map(|row| row.and_then(|(key, value)| share_of(&key, &value))).collect()
}

/// Returns what is shared, without what cannot be read.
pub(super) fn readable_shares(read: &dyn Read) -> Result<Vec<(VolumeId, ShareRow)>> {
    let prefix = [SHARE];
    let rows = read.scan(&prefix, &prefix_end(&prefix), Order::Rising);
    rows.filter_map(|row| row.map(|(key, value)| share_of(&key, &value).ok()).transpose()).collect()
}

fn share_of(key: &[u8], value: &[u8]) -> Result<(VolumeId, ShareRow)> {
    let volume = key.get(1..3).and_then(|bytes| bytes.try_into().ok());
    let volume = volume.ok_or_else(|| Error::corrupt("a share's key is malformed"))?;
    Ok((VolumeId(u16::from_be_bytes(volume)), decode(key, value)?))
}

pub(super) fn share(read: &dyn Read, volume: VolumeId) -> Result<Option<ShareRow>> {
    let key = share_key(volume);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

pub(super) fn put_share(txn: &mut SpaceTxn<'_>, volume: VolumeId, row: &ShareRow) -> Result<()> {
    let key = share_key(volume);
    txn.put(&key, &encode(&key, row)?)
}

/// Removes a share with its policies. Its number is given again only if nobody has `seen` it.
pub(super) fn erase(txn: &mut SpaceTxn<'_>, volume: VolumeId, seen: bool) -> Result<()> {
    if !seen
        && volume.0 > 0
        && txn.get(&[LAST_VOLUME])?.is_some_and(|last| last[..] == volume.0.to_be_bytes())
    {
        txn.put(&[LAST_VOLUME], &(volume.0 - 1).to_be_bytes())?;
    }
    let containers = bounds(txn, volume)?;
    for (container, _) in containers {
        txn.delete(&bound_key(container))?;
    }
    txn.delete(&share_key(volume))
}

/// Returns a volume number that was never given.
pub(super) fn next_volume(txn: &mut SpaceTxn<'_>, first: VolumeId) -> Result<VolumeId> {
    let next = match txn.get(&[LAST_VOLUME])? {
        Some(bytes) => {
            let bytes = bytes.as_ref().try_into();
            let last = bytes.map_err(|_| Error::corrupt("the last volume's number is malformed"))?;
            u16::from_be_bytes(last).checked_add(1).ok_or_else(all_given)?
        }
        None => first.0,
    };
    if next >= limits::NODE_VOLUMES {
        return Err(all_given());
    }
    txn.put(&[LAST_VOLUME], &next.to_be_bytes())?;
    Ok(VolumeId(next))
}

fn all_given() -> Error {
    Error::new(ErrorKind::NoQuota, "the node has given out all its volume numbers")
}

/// Returns the containers of an export.
pub(super) fn bounds(read: &dyn Read, volume: VolumeId) -> Result<Vec<(ContainerId, BoundRow)>> {
    let prefix = bound_prefix(volume);
    let rows = read.scan(&prefix, &prefix_end(&prefix), Order::Rising);
    rows.map(|row| {
        let (key, value) = row?;
        let id = key.get(3..).and_then(|bytes| bytes.try_into().ok());
        let id = id.ok_or_else(|| Error::corrupt("the key of a share's policy is malformed"))?;
        Ok((ContainerId(u64::from_be_bytes(id)), decode(&key, &value)?))
    })
    .collect()
}

pub(super) fn erase_bound(txn: &mut SpaceTxn<'_>, container: ContainerId) -> Result<()> {
    txn.delete(&bound_key(container))
}

pub(super) fn put_bound(txn: &mut SpaceTxn<'_>, container: ContainerId, row: &BoundRow) -> Result<()> {
    let key = bound_key(container);
    txn.put(&key, &encode(&key, row)?)
}
