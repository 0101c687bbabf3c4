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

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_core::form::Ack;
use weft_core::{Error, ObjectId, Result};
use weft_kv::{Commit, Engine, Order, Read, Space, prefix_end};
use weft_sys::disk::Entry;
use weft_sys::{Disk, FlushSite, Open};

use super::Directory;
use super::files::OBJECTS_DIR;
use super::rows::{OBJECTS, ObjectRow, SCHEMA, SPACE, WRITING, object_at, object_key};

/// Where the list of objects that changed meanwhile lies in a backup.
const UNSETTLED: &str = "unsettled";
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
    /// long copy keeps the space of what is removed.
    pub async fn backup(
        &self,
        metadata: impl Future<Output = Result<Commit>>,
        into: Arc<dyn Disk>,
    ) -> Result<Copied> {
        let (inner, _kept) = (&self.inner, self.inner.files.keep_removed().await);
        let before = inner.space.snapshot()?;
        metadata.await?;
        let (from, to) = (inner.files.shared_disk(), into.clone());
        let copied = inner.sys.blocking(move || copy_objects(&*from, &*to)).await??;
        let unsettled = unsettled(&before, &inner.space.snapshot()?)?;
        write_list(&*into, &unsettled)?;
        Ok(copied)
    }
}

/// Makes a store's files on the empty `into` from the backup on `from`, and marks in `engine`,
/// which was restored from the metadata beside it, what must be sealed anew.
pub async fn restore(engine: Arc<dyn Engine>, from: &dyn Disk, into: &dyn Disk) -> Result<Restored> {
    let unsettled = read_list(from)?;
    let copied = copy_objects(from, into)?;
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

fn copy_objects(from: &dyn Disk, into: &dyn Disk) -> Result<Copied> {
    let mut copied = Copied::default();
    make_dir(into, OBJECTS_DIR)?;
    for (dir, _) in entries(from, OBJECTS_DIR)?.into_iter().filter(|(_, entry)| *entry == Entry::Directory) {
        let dir = format!("{OBJECTS_DIR}/{dir}");
        make_dir(into, &dir)?;
        for (name, _) in entries(from, &dir)?.into_iter().filter(|(_, entry)| *entry == Entry::File) {
            let bytes = copy_file(from, into, &format!("{dir}/{name}"))?;
            copied.objects += u64::from(bytes > 0);
            copied.bytes += bytes;
        }
        into.sync_dir(&dir, FlushSite::StoreBackupDir)?;
    }
    into.sync_dir(OBJECTS_DIR, FlushSite::StoreBackupDir)?;
    into.sync_dir("", FlushSite::StoreBackupDir)?;
    Ok(copied)
}

fn copy_file(from: &dyn Disk, into: &dyn Disk, path: &str) -> Result<u64> {
    let (source, target) = (from.open(path, Open::Read)?, into.open(path, Open::Make)?);
    let (mut at, length) = (0, source.len()?);
    while at < length {
        let copied = target.copy_from(&*source, at, at, length - at)?;
        if copied == 0 {
            break;
        }
        at += copied;
    }
    target.sync(FlushSite::StoreBackup)?;
    Ok(at)
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
        Err(error) if error.kind() != weft_core::ErrorKind::Exists => Err(error),
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
