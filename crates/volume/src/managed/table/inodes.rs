//! Inodes, and for directories what changes with every name in them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weft_core::attr::{Attr, Kind, Version};
use weft_core::form::LinkTarget;
use weft_core::{CallerId, ContainerId, Error, FileId, ObjectId, Result, Time, VolumeId};
use weft_kv::{Order, Read, Rows, Txn, counter};

use super::key::{Fields, Key, Table};
use super::row::{Row, decode, decode_bytes, encode, encode_bytes};

/// Where a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Layout {
    /// They are beside the inode, as far as they go; up to the file's size zeros follow.
    Inline,
    /// They are one object.
    Whole {
        /// The object.
        object: ObjectId,
        /// The container it is labelled with at the store; follows the inode's own.
        label: ContainerId,
    },
}

/// What makes a version unlike every other of the same layout (request-form law 15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// The boot in which the bytes were last changed.
    pub(crate) boot: u64,
    /// How often in that boot.
    pub(crate) writes: u64,
}

impl Stamp {
    /// Returns the stamp of the next change in this boot.
    pub(crate) fn next(self, boot: u64) -> Self {
        if self.boot == boot { Self { boot, writes: self.writes + 1 } } else { Self { boot, writes: 1 } }
    }
}

/// An inode as it is stored. Of a directory, times and the change counter are in its
/// [`Tally`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inode {
    pub(crate) generation: u32,
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) links: u32,
    pub(crate) owner: CallerId,
    pub(crate) group: CallerId,
    pub(crate) size: u64,
    pub(crate) used: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    pub(crate) change: u64,
    pub(crate) container: ContainerId,
    pub(crate) layout: Layout,
    /// Rises whenever the layout is swapped.
    pub(crate) layout_serial: u32,
    pub(crate) stamp: Stamp,
    /// Of an exclusive creation, so that its repetition finds it.
    pub(crate) verifier: Option<[u8; 8]>,
    /// Of a directory, the one it is in; the root is its own. 0 for other kinds, which
    /// have back links only.
    pub(crate) parent: u64,
}

impl Row for Inode {
    const WHAT: &'static str = "inode";
}

impl Inode {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Returns whether its bytes are all in an object, and in this one.
    pub(crate) fn is_in(&self, object: ObjectId) -> bool {
        matches!(self.layout, Layout::Whole { object: own, .. } if own == object)
    }

    /// Returns the version of the bytes: equal only if the bytes are.
    pub(crate) fn version(&self) -> Version {
        version(self.layout_serial, self.stamp)
    }

    /// Marks that something of the inode changed. For directories see [`touch`].
    pub(crate) fn changed(&mut self, now: Time) {
        self.ctime = now;
        self.change += 1;
    }

    /// Marks that the bytes changed.
    pub(crate) fn rewritten(&mut self, now: Time, boot: u64) {
        self.mtime = now;
        self.stamp = self.stamp.next(boot);
        self.changed(now);
    }
}

/// 32 bits of layout, 48 of boot, 48 of writes.
pub(crate) fn version(layout_serial: u32, stamp: Stamp) -> Version {
    const LOW_48: u64 = (1 << 48) - 1;
    Version(
        u128::from(layout_serial) << 96
            | u128::from(stamp.boot & LOW_48) << 48
            | u128::from(stamp.writes & LOW_48),
    )
}

fn key(serial: u64) -> Key {
    Key::of(Table::Inode).u64(serial)
}

/// Returns an inode by serial.
pub(crate) fn find(read: &dyn Read, serial: u64) -> Result<Option<Inode>> {
    let key = key(serial);
    read.get(&key)?.map(|value| decode(&key, &value)).transpose()
}

/// Returns an inode that some row says is there.
pub(crate) fn load(read: &dyn Read, serial: u64) -> Result<Inode> {
    find(read, serial)?.ok_or_else(|| missing(serial))
}

/// Returns what is wrong when a row leads to an inode that is not there.
pub(crate) fn missing(serial: u64) -> Error {
    Error::corrupt("a name leads to an inode that is not there")
        .about(format!("inode {serial:x}"))
        .hint("weft fsck")
}

/// Inodes asked for one after the other, as a listing does. Files that were made one after the
/// other lie so too: then they are read in one sweep, which costs a third of finding each.
pub(crate) struct Sweep<'a> {
    read: &'a dyn Read,
    last: u64,
    /// How many in a row followed the one before.
    run: u32,
    rows: Option<Rows<'a>>,
}

impl<'a> Sweep<'a> {
    /// Followers after which a sweep is begun: it costs more to begin than a few finds.
    const RUN: u32 = 4;

    pub(crate) fn over(read: &'a dyn Read) -> Self {
        Self { read, last: 0, run: 0, rows: None }
    }

    /// As [`load`].
    pub(crate) fn load(&mut self, serial: u64) -> Result<Inode> {
        self.run = if serial == self.last.wrapping_add(1) { self.run.saturating_add(1) } else { 0 };
        self.last = serial;
        if self.run < Self::RUN {
            self.rows = None;
            return load(self.read, serial);
        }
        let key = key(serial);
        let rows = self
            .rows
            .get_or_insert_with(|| self.read.scan(&key, &Key::of(Table::Inode).end(), Order::Rising));
        match rows.next().transpose()? {
            Some((found, value)) if *found == *key => decode(&key, &value),
            _ => Err(missing(serial)),
        }
    }
}

/// Returns what was found of an inode by its serial, if it is the one of this id. `Stale` if that
/// is gone.
pub(crate) fn by_id(
    volume: VolumeId,
    id: FileId,
    find: impl FnOnce(u64) -> Result<Option<Inode>>,
) -> Result<Inode> {
    let gone = || Error::stale("the file is gone").about(id);
    if id.volume() != volume {
        return Err(Error::stale("the file is of a volume that is not here").about(id));
    }
    find(id.serial())?.filter(|inode| inode.generation == id.generation()).ok_or_else(gone)
}

/// Writes an inode.
pub(crate) fn put(txn: &mut dyn Txn, serial: u64, inode: &Inode) -> Result<()> {
    let key = key(serial);
    txn.put(&key, &encode(&key, inode)?)
}

/// Adds a new inode.
pub(crate) fn add(txn: &mut dyn Txn, serial: u64, inode: &Inode) -> Result<()> {
    put(txn, serial, inode)?;
    txn.bump(&Key::of(Table::Files), 1)
}

/// Removes an inode with everything that hangs on it alone. Its object, if it has one,
/// is the caller's to put among the garbage.
pub(crate) fn erase(txn: &mut dyn Txn, serial: u64, inode: &Inode) -> Result<()> {
    txn.delete(&key(serial))?;
    txn.bump(&Key::of(Table::Files), -1)?;
    match inode.kind {
        Kind::Directory => erase_tally(txn, serial)?,
        Kind::File => txn.delete(&Key::of(Table::Inline).u64(serial))?,
        Kind::Symlink | Kind::Reference => txn.delete(&Key::of(Table::Target).u64(serial))?,
        Kind::Fifo => {}
    }
    super::tags::erase(txn, serial)
}

/// Every inode, by serial.
pub(crate) fn all(read: &dyn Read) -> impl Iterator<Item = Result<(u64, Inode)>> + '_ {
    after(read, None)
}

/// Inodes by serial, after one or from the first.
pub(crate) fn after(read: &dyn Read, serial: Option<u64>) -> impl Iterator<Item = Result<(u64, Inode)>> + '_ {
    let prefix = Key::of(Table::Inode);
    let from = serial.map_or_else(|| prefix.to_vec(), |serial| key(serial).next());
    read.scan(&from, &prefix.end(), Order::Rising).map(|row| {
        let (key, value) = row?;
        let serial = Fields::of(&key).u64();
        let serial = serial.ok_or_else(|| Error::corrupt("an inode's key is malformed").hint("weft fsck"))?;
        Ok((serial, decode(&key, &value)?))
    })
}

/// Returns how many inodes there are.
pub(crate) fn count(read: &dyn Read) -> Result<u64> {
    Ok(count_at(read, &Key::of(Table::Files))?.max(0) as u64)
}

pub(crate) fn count_at(read: &dyn Read, key: &Key) -> Result<i64> {
    read.get(key)?.map_or(Ok(0), |value| counter(&value))
}

/// The fields of a directory's tally. All but `Times` are counters that are bumped, so
/// that any number of creators in one directory never conflict.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Field {
    /// Changes of anything.
    Change = 0,
    /// Names there are.
    Entries = 1,
    /// Those of them that are directories.
    Directories = 2,
    /// Changes of names.
    Renewed = 3,
    /// See [`Times`]: written, not read, with each change of names.
    Times = 4,
}

/// What of a directory changes with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) change: u64,
    pub(crate) entries: u64,
    pub(crate) directories: u32,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// The boot in which its names last changed, and how often they have.
    pub(crate) stamp: Stamp,
}

fn field(dir: u64, field: Field) -> Key {
    Key::of(Table::Tally).u64(dir).u8(field as u8)
}

#[derive(Serialize, Deserialize)]
pub(super) struct Times {
    mtime: Time,
    ctime: Time,
    boot: u64,
}

impl Row for Times {
    const WHAT: &'static str = "directory times";
}

/// Returns a directory's tally.
pub(crate) fn tally(read: &dyn Read, dir: u64) -> Result<Tally> {
    let count = |which| Ok::<_, Error>(count_at(read, &field(dir, which))?.max(0) as u64);
    let key = field(dir, Field::Times);
    let times = read.get(&key)?.ok_or_else(|| {
        Error::corrupt("a directory has no times").about(format!("inode {dir:x}")).hint("weft fsck")
    })?;
    let Times { mtime, ctime, boot } = decode(&key, &times)?;
    Ok(Tally {
        change: count(Field::Change)?,
        entries: count(Field::Entries)?,
        directories: u32::try_from(count(Field::Directories)?).unwrap_or(u32::MAX),
        mtime,
        ctime,
        stamp: Stamp { boot, writes: count(Field::Renewed)? },
    })
}

/// Says that names of a directory changed: by so many entries, so many of them directories.
pub(crate) fn touch(
    txn: &mut dyn Txn,
    dir: u64,
    (entries, directories): (i64, i64),
    now: Time,
    boot: u64,
) -> Result<()> {
    txn.bump(&field(dir, Field::Change), 1)?;
    txn.bump(&field(dir, Field::Renewed), 1)?;
    for (which, delta) in [(Field::Entries, entries), (Field::Directories, directories)] {
        if delta != 0 {
            txn.bump(&field(dir, which), delta)?;
        }
    }
    put_times(txn, dir, &Times { mtime: now, ctime: now, boot })
}

/// Begins the tally of a new directory.
pub(crate) fn begin_tally(txn: &mut dyn Txn, dir: u64, mtime: Time, ctime: Time, boot: u64) -> Result<()> {
    txn.bump(&field(dir, Field::Change), 1)?;
    put_times(txn, dir, &Times { mtime, ctime, boot })
}

/// Says that something else of a directory changed; its names did at `mtime`.
pub(crate) fn touch_attributes(txn: &mut dyn Txn, dir: u64, tally: &Tally) -> Result<()> {
    txn.bump(&field(dir, Field::Change), 1)?;
    put_times(txn, dir, &Times { mtime: tally.mtime, ctime: tally.ctime, boot: tally.stamp.boot })
}

fn put_times(txn: &mut dyn Txn, dir: u64, times: &Times) -> Result<()> {
    let key = field(dir, Field::Times);
    txn.put(&key, &encode(&key, times)?)
}

/// Returns whether a directory's times are there.
pub(crate) fn has_times(read: &dyn Read, dir: u64) -> bool {
    let key = field(dir, Field::Times);
    matches!(read.get(&key), Ok(Some(_)))
}

/// Returns the row that says a directory was last changed now. For repairs.
pub(crate) fn times_row(dir: u64, now: Time) -> Result<(Vec<u8>, Vec<u8>)> {
    let key = field(dir, Field::Times);
    Ok((key.to_vec(), encode(&key, &Times { mtime: now, ctime: now, boot: 0 })?))
}

/// Returns the counters of a directory as they stand, negative ones too.
pub(crate) fn raw_counts(read: &dyn Read, dir: u64) -> Result<(i64, i64)> {
    Ok((count_at(read, &field(dir, Field::Entries))?, count_at(read, &field(dir, Field::Directories))?))
}

/// Returns the bumps that correct a directory's counters.
pub(crate) fn tally_bumps(dir: u64, entries: i64, directories: i64) -> [(Vec<u8>, i64); 2] {
    [(field(dir, Field::Entries).to_vec(), entries), (field(dir, Field::Directories).to_vec(), directories)]
}

/// Returns whether a row of a tally is as it was written.
pub(crate) fn is_tally(key: &[u8], value: &Bytes) -> bool {
    match key.last() {
        Some(last) if *last == Field::Times as u8 => decode::<Times>(key, value).is_ok(),
        _ => counter(value).is_ok(),
    }
}

/// Returns whether a target's row is as it was written.
pub(crate) fn is_target(key: &[u8], value: &Bytes) -> bool {
    decode::<Target>(key, value).is_ok()
}

fn erase_tally(txn: &mut dyn Txn, dir: u64) -> Result<()> {
    for which in [Field::Change, Field::Entries, Field::Directories, Field::Renewed, Field::Times] {
        txn.delete(&field(dir, which))?;
    }
    Ok(())
}

/// Returns the attributes of an inode as doors see them.
pub(crate) fn attr(read: &dyn Read, id: FileId, inode: &Inode) -> Result<Attr> {
    let mut attr = Attr {
        id,
        kind: inode.kind,
        mode: inode.mode,
        links: inode.links,
        owner: inode.owner,
        group: inode.group,
        size: inode.size,
        used: inode.used,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
        version: inode.version(),
        change: inode.change,
        container: inode.container,
    };
    if inode.is_directory() {
        let tally = tally(read, id.serial())?;
        attr.links = if inode.links == 0 { 0 } else { tally.directories.saturating_add(2) };
        attr.size = tally.entries;
        (attr.mtime, attr.ctime) = (tally.mtime, tally.ctime);
        attr.change = tally.change;
        attr.version = version(0, tally.stamp);
    }
    Ok(attr)
}

/// Returns the bytes of an inline file; none if it is empty.
pub(crate) fn inline(read: &dyn Read, serial: u64) -> Result<Bytes> {
    let key = Key::of(Table::Inline).u64(serial);
    read.get(&key)?.map_or(Ok(Bytes::new()), |value| decode_bytes(&key, &value, "inline bytes"))
}

/// Replaces the bytes of an inline file.
pub(crate) fn put_inline(txn: &mut dyn Txn, serial: u64, bytes: &[u8]) -> Result<()> {
    let key = Key::of(Table::Inline).u64(serial);
    if bytes.is_empty() { txn.delete(&key) } else { txn.put(&key, &encode_bytes(&key, bytes)) }
}

/// Where a symbolic link or a reference leads, as a row.
#[derive(Serialize, Deserialize)]
pub(super) struct Target(LinkTarget);

impl Row for Target {
    const WHAT: &'static str = "link target";
}

/// Returns where a symbolic link or a reference leads.
pub(crate) fn target(read: &dyn Read, serial: u64) -> Result<LinkTarget> {
    let key = Key::of(Table::Target).u64(serial);
    let value = read.get(&key)?.ok_or_else(|| {
        Error::corrupt("a link has no target").about(format!("inode {serial:x}")).hint("weft fsck")
    })?;
    Ok(decode::<Target>(&key, &value)?.0)
}

/// Writes where a symbolic link or a reference leads.
pub(crate) fn put_target(txn: &mut dyn Txn, serial: u64, target: LinkTarget) -> Result<()> {
    let key = Key::of(Table::Target).u64(serial);
    txn.put(&key, &encode(&key, &Target(target))?)
}
