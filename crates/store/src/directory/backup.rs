//! A copy of every object, beside a copy of the records, while work goes on.
//!
//! ```text
//!   removed files stay ─┬─ records (before) ─ copy of the metadata ─ copy of the files ─ records (after)
//!                       └────────────── held until here ───────────────────────────────────┘
//! ```
//!
//! A file's number is never used twice and no file goes meanwhile, so every file that the copied
//! records name is among the copied ones. What was written in between is as it may be after a
//! crash: neither old nor new. Those objects are listed, and a restored store treats them as it
//! treats what was open at a crash: it seals them anew, of whatever is there, and says so.
//!
//! Every other object's copy is compared with its seals, while its bytes are still in memory. What
//! does not match is copied all the same, and said: a backup with all else in it is worth having.
//! So is one without the few pages that the disk no longer reads: they are holes there, and said.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_core::form::{Ack, Seek};
use weft_core::service::{Finding, Severity};
use weft_core::{Error, ErrorKind, ObjectId, Result, limits};
use weft_kv::{Commit, Engine, Order, Read, Space, prefix_end};
use weft_sys::disk::Entry;
use weft_sys::{Disk, DiskFile, FlushSite, Open};

use super::files::{OBJECTS_DIR, number_of, path};
use super::live::Aside;
use super::rows::{
    FILES, FileNumber, OBJECTS, ObjectRow, SCHEMA, SPACE, WRITING, object_at, object_key, seal_key,
};
use super::seals::{GROUP_BLOCKS, Group, block_of, blocks_in, extent, next_recorded};
use super::{Directory, Inner};

/// Where the list of objects that changed meanwhile lies in a backup.
const UNSETTLED: &str = "unsettled";
/// Bytes that are given up together where a disk does not read.
const PAGE_BYTES: usize = 4096;
/// Objects marked in one transaction of a restore.
const MARKS_AT_ONCE: usize = 4096;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files of objects.
    pub objects: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// What a backup came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// What was copied.
    pub copied: Copied,
    /// What is not in it as it was written: one finding for each object.
    pub damaged: Vec<Finding>,
}

/// What a restore made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// What was copied.
    pub copied: Copied,
    /// Objects that may have changed between the copy of the metadata and that of their files:
    /// what else the metadata says of their bytes may not be so.
    pub unsettled: Vec<ObjectId>,
}

impl Directory {
    /// Copies every object's file to the empty `into`, durably. `metadata` copies the engine that
    /// holds the records; it is awaited at the right moment. No file is removed meanwhile, so a
    /// long copy keeps the space of what is removed. Bytes that do not match their seals are copied
    /// as they are, and named.
    pub async fn backup(
        &self,
        metadata: impl Future<Output = Result<Commit>>,
        into: Arc<dyn Disk>,
    ) -> Result<BackedUp> {
        let (inner, _kept) = (&self.inner, self.inner.files.keep_removed().await);
        let before = Arc::new(inner.space.snapshot()?);
        metadata.await?;
        let (from, to, records) = (inner.files.shared_disk(), into.clone(), before.clone());
        let reading = inner.clone();
        let copy = move || {
            let (mut damage, mut unread) = (BTreeMap::new(), Vec::new());
            let aside = |number| reading.aside(number);
            let copied = copy_objects(&*from, &*to, &aside, &mut |number, copy, lost| {
                if let Some(lost) = lost.filter(|_| unread.len() < limits::STORE_FINDINGS_MAX) {
                    unread.push((number, lost));
                }
                if let Some((object, what)) = damage_in(&*records, number, copy)? {
                    note(&mut damage, object, what);
                }
                Ok(())
            })?;
            missing(&*records, &*to, &mut damage)?;
            Ok::<_, Error>((copied, damage, unread))
        };
        let (copied, mut damage, unread) = inner.sys.blocking(copy).await??;
        let after = inner.space.snapshot()?;
        let unsettled = unsettled(&*before, &after)?;
        write_list(&*into, &unsettled)?;
        // What changed meanwhile is sealed anew, of whatever is there.
        unsettled.iter().for_each(|object| drop(damage.remove(object)));
        // But what could not be read is lost there as well, whenever it was written.
        for (number, Unread { at, error }) in unread {
            let owner = match owner_of(&*before, number)? {
                None => owner_of(&after, number)?,
                known => known,
            };
            if let Some((object, _)) = owner {
                damage.insert(object, format!("the bytes from {at} on cannot be read: {error}"));
            }
        }
        Ok(BackedUp { copied, damaged: damage.into_iter().map(finding).collect() })
    }
}

impl Inner {
    /// Has nothing of a file believed that comes into memory while the answer is held. An object
    /// that nobody has in use is believed nothing of.
    fn aside(&self, number: FileNumber) -> Result<Option<Aside>> {
        let owner = self.space.snapshot()?.get(&number.key(FILES))?;
        let Some(Ok(object)) = owner.map(|owner| object_at(&owner, 0)) else { return Ok(None) };
        let live = self.table().get(&object).cloned();
        Ok(live.filter(|live| live.number == number).map(Aside::new))
    }
}

/// Makes a store's files on the empty `into` from the backup on `from`, and marks in `engine`,
/// which was restored from the metadata beside it, what must be sealed anew.
pub async fn restore(engine: Arc<dyn Engine>, from: &dyn Disk, into: &dyn Disk) -> Result<Restored> {
    let unsettled = read_list(from)?;
    let strictly: Each<'_> = &mut |_, _, lost| lost.map_or(Ok(()), |lost| Err(lost.error));
    let copied = copy_objects(from, into, &|_| Ok(None), strictly)?;
    let space = Space::open(engine, SPACE, &SCHEMA).await?;
    for some in unsettled.chunks(MARKS_AT_ONCE) {
        let some = some.to_vec();
        let mark = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            for object in &some {
                if ObjectRow::read(txn, *object)?.is_some() {
                    weft_kv::Txn::put(txn, &object_key(WRITING, *object), &[])?;
                }
            }
            Ok(())
        };
        space.write(Ack::Durable, mark).await?;
    }
    Ok(Restored { copied, unsettled })
}

/// Returns the objects whose records differ, or that were open for writing at either time.
fn unsettled<R: Read>(before: &R, after: &R) -> Result<Vec<ObjectId>> {
    let mut objects = BTreeSet::new();
    for (here, there) in [(before, after), (after, before)] {
        for row in here.scan(&[OBJECTS], &prefix_end(&[OBJECTS]), Order::Rising) {
            let (key, value) = row?;
            if there.get(&key)?.as_deref() != Some(&*value) {
                objects.insert(object_at(&key, 1)?);
            }
        }
    }
    for records in [before, after] {
        for row in records.scan(&[WRITING], &prefix_end(&[WRITING]), Order::Rising) {
            objects.insert(object_at(&row?.0, 1)?);
        }
    }
    Ok(objects.into_iter().collect())
}

/// What is wrong with objects' copies.
type Damage = BTreeMap<ObjectId, String>;

fn note(damage: &mut Damage, object: ObjectId, what: String) {
    if damage.len() < limits::STORE_FINDINGS_MAX {
        damage.entry(object).or_insert(what);
    }
}

fn finding((object, what): (ObjectId, String)) -> Finding {
    Finding {
        severity: Severity::Loss,
        structure: "object".to_owned(),
        detail: format!("{object}: {what}"),
        repair: "it is in the backup as it was found".to_owned(),
        object: Some(object),
    }
}

/// Returns the object whose bytes are in a file.
fn owner_of(records: &impl Read, number: FileNumber) -> Result<Option<(ObjectId, ObjectRow)>> {
    let Some(owner) = records.get(&number.key(FILES))? else { return Ok(None) };
    let Ok(object) = object_at(&owner, 0) else { return Ok(None) };
    let row = ObjectRow::read(records, object).unwrap_or_default();
    Ok(row.filter(|row| row.file == number).map(|row| (object, row)))
}

/// Compares the copy of a file with the seals of the object it is of, if it is any's.
fn damage_in(
    records: &impl Read,
    number: FileNumber,
    copy: &dyn DiskFile,
) -> Result<Option<(ObjectId, String)>> {
    let Some((object, row)) = owner_of(records, number)? else { return Ok(None) };
    let length = copy.len()?;
    if length < row.size {
        return Ok(Some((object, format!("the file has {length} bytes, the record says {}", row.size))));
    }
    Ok(damage_in_blocks(records, object, row.size, copy)?.map(|what| (object, what)))
}

/// Compares every block with its seal, but for holes that nothing else is said of.
fn damage_in_blocks(
    records: &impl Read,
    object: ObjectId,
    size: u64,
    copy: &dyn DiskFile,
) -> Result<Option<String>> {
    let mut bytes = vec![0; limits::SEAL_BLOCK_BYTES as usize];
    let (mut next, mut group_of, mut group) = (0, None, Group::default());
    loop {
        let data = copy.seek(extent(next, size).0, Seek::Data)?.map(block_of);
        let sealed = next_recorded(records, object, next)?;
        let block = data.into_iter().chain(sealed).min().unwrap_or(u64::MAX);
        if block >= blocks_in(size) {
            return Ok(None);
        }
        if group_of != Some(block / GROUP_BLOCKS) {
            let row = records.get(&seal_key(object, block / GROUP_BLOCKS))?;
            let Ok(read) = row.map_or(Ok(Group::default()), |row| Group::decode(&row)) else {
                return Ok(Some(format!("the checksums of block {block} cannot be read")));
            };
            (group_of, group) = (Some(block / GROUP_BLOCKS), read);
        }
        let (at, length) = extent(block, size);
        let found = &mut bytes[..length as usize];
        copy.read_exact_at(found, at)?;
        if !group.seal(block).matches(found) {
            return Ok(Some(format!("the bytes from {at} on do not match their checksum")));
        }
        next = block + 1;
    }
}

/// Looks for objects whose records cannot be read, or whose files were not there to be copied.
fn missing(records: &impl Read, copy: &dyn Disk, damage: &mut Damage) -> Result<()> {
    for row in records.scan(&[OBJECTS], &prefix_end(&[OBJECTS]), Order::Rising) {
        let (key, value) = row?;
        let Ok(object) = object_at(&key, 1) else { continue };
        match ObjectRow::decode(&value) {
            Err(error) => note(damage, object, error.to_string()),
            Ok(row) if copy.measure(&path(row.file)).is_err() => {
                note(damage, object, format!("its file {} is not there", path(row.file)));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// What of a file could not be read: the first such byte's place, within a page.
struct Unread {
    at: u64,
    error: Error,
}

/// Is shown the copy of a file, and what could not be read of it.
type Each<'a> = &'a mut dyn FnMut(FileNumber, &dyn DiskFile, Option<Unread>) -> Result<()>;

/// Shows each copy of an object's file to `each` when it is made. What `aside` makes for a file is
/// held while it is read.
fn copy_objects(
    from: &dyn Disk,
    into: &dyn Disk,
    aside: &dyn Fn(FileNumber) -> Result<Option<Aside>>,
    each: Each<'_>,
) -> Result<Copied> {
    let mut copied = Copied::default();
    make_dir(into, OBJECTS_DIR)?;
    for (fan, _) in entries(from, OBJECTS_DIR)?.into_iter().filter(|(_, entry)| *entry == Entry::Directory) {
        let dir = format!("{OBJECTS_DIR}/{fan}");
        make_dir(into, &dir)?;
        for (name, _) in entries(from, &dir)?.into_iter().filter(|(_, entry)| *entry == Entry::File) {
            let number = number_of(&fan, &name);
            let reading = number.map(aside).transpose()?;
            let (copy, bytes, lost) = copy_file(from, into, &format!("{dir}/{name}"))?;
            drop(reading);
            if let Some(number) = number {
                each(number, &*copy, lost)?;
            }
            copied.objects += u64::from(bytes > 0);
            copied.bytes += bytes;
        }
        into.sync_dir(&dir, FlushSite::StoreBackupDir)?;
    }
    into.sync_dir(OBJECTS_DIR, FlushSite::StoreBackupDir)?;
    into.sync_dir("", FlushSite::StoreBackupDir)?;
    Ok(copied)
}

fn copy_file(
    from: &dyn Disk,
    into: &dyn Disk,
    path: &str,
) -> Result<(Arc<dyn DiskFile>, u64, Option<Unread>)> {
    let (source, target) = (from.open(path, Open::Read)?, into.open(path, Open::Make)?);
    let (length, lost) = match target.copy_all_from(&*source) {
        Err(error) if is_of_the_disk(&error) => copy_readable(&*source, &*target)?,
        copied => (copied?, None),
    };
    target.sync(FlushSite::StoreBackup)?;
    Ok((target, length, lost))
}

/// Whether a disk failed, and not for want of room or leave.
fn is_of_the_disk(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable
}

/// Copies what can be read of a file: a hole is left for every page that cannot be.
fn copy_readable(source: &dyn DiskFile, target: &dyn DiskFile) -> Result<(u64, Option<Unread>)> {
    let (mut at, mut lost, length) = (0, None, source.len()?);
    target.set_len(0)?;
    let mut block = vec![0; limits::SEAL_BLOCK_BYTES as usize];
    while let Some(data) = source.seek(at, Seek::Data)?.filter(|data| *data < length) {
        let begin = block_of(data) * limits::SEAL_BLOCK_BYTES;
        if copy_part(source, target, begin, &mut block)?.is_some() {
            for (page, from) in block.chunks_mut(PAGE_BYTES).zip((begin..).step_by(PAGE_BYTES)) {
                lost = lost.or(copy_part(source, target, from, page)?);
            }
        }
        at = begin + limits::SEAL_BLOCK_BYTES;
    }
    let length = length.min(source.len()?);
    target.set_len(length)?;
    Ok((length, lost))
}

/// Copies one part by way of `buffer`, which is as long, if it can be read.
fn copy_part(
    source: &dyn DiskFile,
    target: &dyn DiskFile,
    at: u64,
    buffer: &mut [u8],
) -> Result<Option<Unread>> {
    match source.read(buffer, at) {
        Ok(read) => target.write_at(&buffer[..read], at).map(|()| None),
        Err(error) if is_of_the_disk(&error) => Ok(Some(Unread { at, error })),
        Err(error) => Err(error),
    }
}

fn entries(disk: &dyn Disk, dir: &str) -> Result<Vec<(String, Entry)>> {
    let mut found = Vec::new();
    disk.list(dir, &mut |name, entry| {
        found.push((name.to_owned(), entry));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn make_dir(disk: &dyn Disk, dir: &str) -> Result<()> {
    match disk.make_dir(dir) {
        Err(error) if error.kind() != ErrorKind::Exists => Err(error),
        _ => Ok(()),
    }
}

fn write_list(into: &dyn Disk, objects: &[ObjectId]) -> Result<()> {
    let bytes: Vec<u8> = objects.iter().flat_map(|object| object.0.to_be_bytes()).collect();
    let file = into.open(UNSETTLED, Open::Make)?;
    file.write_at(&bytes, 0)?;
    file.write_at(blake3::hash(&bytes).as_bytes(), bytes.len() as u64)?;
    file.sync(FlushSite::StoreBackup)?;
    into.sync_dir("", FlushSite::StoreBackupDir)
}

fn read_list(from: &dyn Disk) -> Result<Vec<ObjectId>> {
    let damaged = || Error::corrupt("the backup's list of changing objects is damaged").about(UNSETTLED);
    let file = from.open(UNSETTLED, Open::Read).map_err(|e| damaged().caused_by(e))?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read(&mut bytes, 0)?;
    let (ids, sum) = bytes.split_last_chunk::<32>().ok_or_else(damaged)?;
    if blake3::hash(ids).as_bytes() != sum || ids.len() % 16 != 0 {
        return Err(damaged());
    }
    ids.chunks_exact(16).map(|id| object_at(id, 0)).collect()
}
