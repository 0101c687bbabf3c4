//! Backup of a running node, and restore into an empty directory.
//!
//! ```text
//!   BACKUP/ meta/     the metadata, consistent      auth/keys/   the signing keys, not the root key
//!           objects/  the bytes                     auth/audit/  the log so far
//!           format    which program wrote it, and how
//!           complete  written last: every file above with its length and hash; without it
//!                     there is nothing to restore
//! ```
//!
//! A restore reads all of a backup before it makes anything: one that differs from its list
//! in a byte, lacks a file or has one more is refused, and the file is named.
//!
//! Files written in place while the backup runs are in it as they would be after a
//! crash; everything published, renamed or linked is there whole or not at all. A
//! restored node begins a new audit log; the one from the backup lies beside it. No id,
//! session or capability of the life that was lost is given or believed again. Uids and shares speak of the machine that the
//! backup is of, which may be another, or have the node still: see [`weft_auth::take_over`] and [`export::after_restore`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use weft_auth::TakenOver;
use weft_core::form::Seek;
use weft_core::service::BackupReport;
use weft_core::{Error, Result};
use weft_kv::{Commit, Embedded, Engine};
use weft_store::Directory;
use weft_sys::disk::Entry;
use weft_sys::{Disk, DiskFile, FlushSite, Open, RealDisk, Sys, fault};
use weft_volume::export::{self, Shared};
use weft_volume::managed;

use super::format::Format;
use super::{AUTH_SPACE, NodeDirectory, SHARES_SPACE, VOLUME_SPACE};

#[cfg(test)]
mod tests;

/// What says that a backup is whole, and which layout it has.
const COMPLETE: &str = "complete";
pub const LAYOUT: &str = "weft backup 3\n";
/// What the last line of the list begins with: the hash of all lines above it.
const LIST: &str = "list ";
/// Bytes of a backup that are read and hashed at once. It is part of the layout.
const BLOCK_BYTES: u64 = 1 << 20;

/// Writes a backup of a node's directory `data` to a new directory. `metadata` copies the engine.
pub async fn write<F: Future<Output = Result<Commit>>>(
    sys: &Sys,
    metadata: impl FnOnce(Arc<dyn Disk>) -> F,
    store: &Directory,
    data: &Path,
    into: &Path,
) -> Result<BackupReport> {
    let failed = |e| fault::error(e, "write a backup to", into.display());
    if is_below(into, data)? {
        return Err(Error::invalid("it lies in what would be copied")
            .op("write a backup to")
            .about(into.display()));
    }
    DirBuilder::new().mode(0o700).create(into).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            failed(e).hint("name a directory that is not there yet; what was never finished may be removed")
        }
        _ => failed(e),
    })?;
    let made = write_into(sys, metadata, store, data, into).await;
    if made.is_err() {
        // What lacks its list is no backup, and would be in the way of the next.
        if let Err(error) = std::fs::remove_dir_all(into) {
            tracing::warn!(%error, into = %into.display(), "an unfinished backup is left behind");
        }
    }
    made
}

async fn write_into<F: Future<Output = Result<Commit>>>(
    sys: &Sys,
    metadata: impl FnOnce(Arc<dyn Disk>) -> F,
    store: &Directory,
    data: &Path,
    into: &Path,
) -> Result<BackupReport> {
    let disk = Arc::new(RealDisk::open(into)?);
    let meta = disk.beneath("meta")?;
    // A key that is replaced meanwhile is gone: whichever the metadata names is in one of the
    // copies. A record leaves the metadata for the log, so the log is copied after it.
    copy_parts(sys, data, &disk, &[KEYS]).await?;
    let metadata = async {
        let commit = metadata(meta).await?;
        copy_parts(sys, data, &disk, &[KEYS, AUDIT]).await?;
        Ok(commit)
    };
    let made = store.backup(metadata, disk.beneath("objects")?).await?;
    Format::own().write(&*disk)?;
    let metadata_bytes = tree_bytes(&*disk, "meta")?;
    let copy = disk.clone();
    let list = sys.blocking(move || list_of(&*copy)).await??;
    let complete = disk.open(COMPLETE, Open::MakeNew)?;
    complete.write_at(list.as_bytes(), 0)?;
    complete.sync(FlushSite::BackupFile)?;
    disk.sync_dir("", FlushSite::BackupDir)?;
    sync_name_of(into)?;
    let path = into.display().to_string();
    let (objects, object_bytes) = (made.copied.objects, made.copied.bytes);
    Ok(BackupReport { path, metadata_bytes, objects, object_bytes, damaged: made.damaged })
}

/// Reads all of a backup. Fails with `Corrupt`, naming a file, if it is not what was
/// written; with `Invalid` if it was never finished or another version wrote it.
pub async fn verify(sys: &Sys, from: &Path) -> Result<()> {
    let unusable = |detail: &'static str| Error::invalid(detail).op("restore from").about(from.display());
    let no_backup = |e| unusable("it is no whole backup").caused_by(e);
    let disk = Arc::new(RealDisk::open(from).map_err(no_backup)?);
    let list = read(&*disk, COMPLETE).map_err(no_backup)?;
    Format::read(&*disk)?.check("restore from", from)?;
    let damaged = |file: &str| {
        Error::corrupt(format!("the backup is damaged: {file} is not what was written"))
            .op("restore from")
            .about(from.display())
            .hint("restore an older backup")
    };
    let list = String::from_utf8(list).map_err(|_| damaged(COMPLETE))?;
    let lines = list.rsplit_once(LIST).map(|(lines, _)| lines);
    if lines.map(with_sum).as_deref() != Some(&*list) {
        return Err(damaged(COMPLETE));
    }
    if !list.starts_with(LAYOUT) {
        return Err(unusable("it was written by another version"));
    }
    let found = sys.blocking(move || list_of(&*disk)).await??;
    match first_difference(&list, &found) {
        Some(file) => Err(damaged(file)),
        None => Ok(()),
    }
}

/// Returns the path in the first line that one list has and the other has not.
fn first_difference<'a>(one: &'a str, other: &'a str) -> Option<&'a str> {
    let (left, right): (BTreeSet<_>, BTreeSet<_>) = (one.lines().collect(), other.lines().collect());
    let line = left.symmetric_difference(&right).find(|line| !line.starts_with(LIST))?;
    line.splitn(3, ' ').nth(2)
}

/// Lists every file of a backup but the list itself: hash, length, path. The hash is of each block
/// that is not all zeros, behind its number: a file of holes costs no more than what is in it.
fn list_of(backup: &dyn Disk) -> Result<String> {
    let mut files = files_below(backup, "")?;
    files.sort();
    let mut list = String::from(LAYOUT);
    let mut buffer = vec![0; BLOCK_BYTES as usize];
    for path in files.iter().filter(|path| *path != COMPLETE) {
        let file = backup.open(path, Open::Read)?;
        let _ = writeln!(list, "{} {} {path}", hash_of(&*file, &mut buffer)?, file.len()?);
    }
    Ok(with_sum(&list))
}

fn hash_of(file: &dyn DiskFile, buffer: &mut [u8]) -> Result<blake3::Hash> {
    let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
    while let Some(data) = file.seek(at, Seek::Data)? {
        let block = data / BLOCK_BYTES;
        let read = file.read(buffer, block * BLOCK_BYTES)?;
        if buffer[..read].iter().any(|byte| *byte != 0) {
            hasher.update(&block.to_be_bytes()).update(&buffer[..read]);
        }
        at = (block + 1) * BLOCK_BYTES;
    }
    Ok(hasher.finalize())
}

fn read(disk: &dyn Disk, path: &str) -> Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn with_sum(lines: &str) -> String {
    format!("{lines}{LIST}{}\n", blake3::hash(lines.as_bytes()))
}

/// Returns the path of everything below a directory (`""` is the root) that is none itself.
fn files_below(disk: &dyn Disk, dir: &str) -> Result<Vec<String>> {
    let (mut files, mut waiting) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = waiting.pop() {
        disk.list(&dir, &mut |name, entry| {
            let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
            if entry == Entry::Directory {
                waiting.push(path)
            } else {
                files.push(path)
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(files)
}

/// Returns whether a path that is not there yet would lie in a directory.
fn is_below(path: &Path, dir: &Path) -> Result<bool> {
    let parent = path.parent().unwrap_or(path);
    let parent = parent.canonicalize().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("the directory it would lie in is not there")
            .op("write to")
            .about(path.display())
            .hint(format!("make {} first", parent.display())),
        _ => fault::error(e, "use", path.display()),
    })?;
    Ok(parent.starts_with(dir))
}

/// What a restore made.
pub struct Restored {
    /// What was copied.
    pub report: BackupReport,
    /// Who is whom by their uid on this machine.
    pub uids: TakenOver,
    /// What was shared, and is served once an administrator says so.
    pub detached: Vec<Shared>,
}

/// Makes a node's directory from a backup that was verified. Nothing may be there yet;
/// cut off, it leaves a directory that no node starts from. With `keep_uids`, the backup's uids are
/// the same people's on this machine.
pub async fn restore(sys: &Sys, from: &Path, directory: &NodeDirectory, keep_uids: bool) -> Result<Restored> {
    let source = RealDisk::open(from)?;
    let meta = directory.disk("meta")?;
    Embedded::restore(sys, &*source.beneath("meta")?, &meta, weft_kv::Options::of_machine())?;
    let engine: Arc<dyn Engine> =
        Arc::new(Embedded::open(sys.clone(), meta, weft_kv::Options::of_machine())?);
    let restored =
        weft_store::restore(engine.clone(), &*source.beneath("objects")?, &*directory.disk("objects")?)
            .await?;
    weft_auth::after_restore(sys, engine.clone(), AUTH_SPACE).await?;
    let uids = weft_auth::take_over(engine.clone(), AUTH_SPACE, directory.owner(), keep_uids).await?;
    managed::after_restore(sys, engine.clone(), VOLUME_SPACE, &restored.unsettled).await?;
    let detached = export::after_restore(engine.clone(), SHARES_SPACE).await?;
    engine.close().await?;
    let (kept, auth) = (source.beneath("auth")?, directory.disk("auth")?);
    copy_tree(&*kept.beneath("audit")?, &*auth.beneath("audit-before-restore")?, AUDIT.files)?;
    Format::own().write(&RealDisk::open(directory.path())?)?;
    // The keys come last: they make it a node that was founded.
    copy_tree(&*kept.beneath("keys")?, &*auth.beneath("keys")?, KEYS.files)?;
    auth.sync_dir("", FlushSite::BackupDir)?;
    let disk = RealDisk::open(directory.path())?;
    disk.sync_dir("", FlushSite::BackupDir)?;
    sync_name_of(directory.path())?;
    let path = directory.path().display().to_string();
    let metadata_bytes = tree_bytes(&disk, "meta")?;
    let (objects, object_bytes) = (restored.copied.objects, restored.copied.bytes);
    let report = BackupReport { path, metadata_bytes, objects, object_bytes, damaged: Vec::new() };
    Ok(Restored { report, uids, detached })
}

/// A directory of auth's that a backup holds, and which of its files.
struct Part {
    dir: &'static str,
    files: fn(&str) -> bool,
}

/// Those that sign: the root key is put away by hand, perhaps beside them under another name, and a node runs
/// without it.
const KEYS: Part = Part { dir: "keys", files: weft_auth::is_signing_key };
const AUDIT: Part = Part { dir: "audit", files: |_| true };

/// Copies parts of a node's directory.
async fn copy_parts(sys: &Sys, data: &Path, into: &RealDisk, parts: &'static [Part]) -> Result<()> {
    let (from, into) = (RealDisk::open(data)?.beneath("auth")?, into.beneath("auth")?);
    let copy = move || {
        parts.iter().try_for_each(|part| {
            copy_tree(&*from.beneath(part.dir)?, &*into.beneath(part.dir)?, part.files)
        })?;
        into.sync_dir("", FlushSite::BackupDir)
    };
    sys.blocking(copy).await?
}

/// Copies small files, those that are `wanted` by their names, and brings them to disk.
fn copy_tree(from: &dyn Disk, into: &dyn Disk, wanted: fn(&str) -> bool) -> Result<()> {
    let mut names = Vec::new();
    from.list("", &mut |name, entry| {
        if entry == Entry::File && wanted(name) {
            names.push(name.to_owned());
        }
        ControlFlow::Continue(())
    })?;
    for name in names {
        let (source, target) = (from.open(&name, Open::Read)?, into.open(&name, Open::Make)?);
        target.copy_all_from(&*source)?;
        target.sync(FlushSite::BackupFile)?;
    }
    into.sync_dir("", FlushSite::BackupDir)
}

/// Brings a directory's own name to disk: its parent says that it is there.
fn sync_name_of(dir: &Path) -> Result<()> {
    RealDisk::open(dir.parent().unwrap_or(dir))?.sync_dir("", FlushSite::BackupDir)
}

fn tree_bytes(disk: &dyn Disk, dir: &str) -> Result<u64> {
    files_below(disk, dir)?.iter().map(|path| Ok(disk.measure(path)?.len)).sum()
}
