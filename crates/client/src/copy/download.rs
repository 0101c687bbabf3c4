//! One file out of the tree.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::{At, OpenFile, OpenHow, Piece, Pin, Range, collect};
use weft_core::{Error, ErrorKind, Result, Rights, Time, limits};
use weft_sys::{Folder, Sort, fault};

use super::{How, Outcome, Progress};
use crate::Client;

/// Bytes compared before an interrupted copy is trusted and gone on with.
const COMPARED_BYTES: u64 = limits::SEAL_BLOCK_BYTES;
/// How many copies may end under one that begins, each just between its open and its lock.
const CLAIMED_AT_MOST: u32 = 8;

/// A file of the tree, and what errors call it.
#[derive(Clone, Copy)]
pub struct From<'a> {
    /// Where it is.
    pub at: &'a At,
    /// Its path, as whoever asked wrote it.
    pub shown: &'a str,
}

/// A name in a directory of this machine.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    /// The directory.
    pub folder: &'a Folder,
    /// The name in it.
    pub name: &'a OsStr,
}

/// Copies a file to a name in a local directory. A regular file there, or a symbolic link, is
/// replaced whole once every byte is on disk; an interrupted copy of the same version is gone on
/// with. Fails with `Busy` while another copy of that version to that name is under way.
pub async fn download(
    client: &Client,
    from: From<'_>,
    to: Spot<'_>,
    how: How,
    progress: &Progress,
) -> Result<Outcome> {
    let open = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = client.fs().open(&client.call(), from.at, &open).await.map_err(|e| e.said_of(from.shown))?;
    let attr = opened.attr;
    let outcome = if !how.force && is_there(to, &attr)? {
        progress.add_bytes(attr.size)?;
        Outcome::Unchanged
    } else {
        refuse_what_is_kept(to)?;
        let mode = attr.mode & 0o777 & !how.umask;
        let receiving = Receiving { client, from, file: &*opened.file, attr: &attr, mode, progress };
        Outcome::Copied { bytes: attr.size, resumed: receiving.run(to).await? }
    };
    opened.file.close(&client.call()).await.map_err(|e| e.said_of(from.shown))?;
    progress.add_file();
    Ok(outcome)
}

/// Returns whether a regular file with a file's size and modification time stands at a name.
pub fn is_there(local: Spot<'_>, attr: &Attr) -> Result<bool> {
    let seen = local.folder.look(local.name)?;
    Ok(seen.is_some_and(|s| s.sort == Sort::File && s.size == attr.size && s.mtime == attr.mtime))
}

/// Fails where something stands that a file does not replace.
fn refuse_what_is_kept(to: Spot<'_>) -> Result<()> {
    let error = match to.folder.look(to.name)?.map(|seen| seen.sort) {
        None | Some(Sort::File | Sort::Symlink) => return Ok(()),
        Some(Sort::Directory) => Error::new(ErrorKind::IsDirectory, "it is a directory"),
        Some(Sort::Fifo | Sort::Other) => Error::exists("it is no regular file, and stays"),
    };
    Err(error.op("replace").about(to.folder.shown(to.name).display()))
}

/// Returns a time as the machine's files carry it. What they cannot carry is 1970.
fn system_time(time: Time) -> SystemTime {
    let (after, before) = (time.since(Time::EPOCH), Time::EPOCH.since(time));
    UNIX_EPOCH.checked_add(after).and_then(|at| at.checked_sub(before)).unwrap_or(UNIX_EPOCH)
}

struct Receiving<'a> {
    client: &'a Client,
    from: From<'a>,
    file: &'a dyn OpenFile,
    attr: &'a Attr,
    mode: u16,
    progress: &'a Progress,
}

impl Receiving<'_> {
    /// Returns how many bytes were there already.
    async fn run(&self, to: Spot<'_>) -> Result<u64> {
        let name = partial_name(to.name, self.attr.version.0);
        let local = claim(to.folder, &name)?;
        let partial = to.folder.shown(&name);
        let failed = |e: io::Error| fault::error(e, "write", partial.display());
        let resumed = self.trusted(&local).await?;
        local.set_len(resumed).map_err(failed)?;
        self.progress.add_bytes(resumed)?;
        self.receive(&local, resumed, &partial).await?;
        local.set_permissions(Permissions::from_mode(u32::from(self.mode))).map_err(failed)?;
        local.set_modified(system_time(self.attr.mtime)).map_err(failed)?;
        local.sync_all().map_err(failed)?;
        to.folder.rename(&name, to.name)?;
        Ok(resumed)
    }

    /// Returns how many bytes of an earlier attempt can be kept: all of them if the
    /// last block is what the file holds there, else none.
    async fn trusted(&self, local: &File) -> Result<u64> {
        let there = local.metadata().map_err(|e| fault::error(e, "look at", "the partial copy"))?.len();
        if there == 0 || there > self.attr.size {
            return Ok(0);
        }
        let at = there.saturating_sub(COMPARED_BYTES);
        let length = (there - at) as usize;
        let mut mine = vec![0; length];
        if local.read_exact_at(&mut mine, at).is_err() {
            return Ok(0);
        }
        let range = Range { at, length: Some(length as u64) };
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let mut source = self.file.read(&self.client.call(), range).await.map_err(unreadable)?;
        let theirs: Bytes = collect(&mut *source, length).await.map_err(unreadable)?;
        Ok(if theirs == mine { there } else { 0 })
    }

    async fn receive(&self, local: &File, mut at: u64, partial: &Path) -> Result<()> {
        let call = self.client.call_within(limits::TRANSFER_WITHIN);
        let unreadable = |e: Error| e.said_of(self.from.shown);
        let mut source = self.file.read(&call, Range { at, length: None }).await.map_err(unreadable)?;
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.map_err(unreadable)? {
            let bytes = Piece::into_bytes(piece)?;
            local.write_all_at(&bytes, at).map_err(|e| fault::error(e, "write", partial.display()))?;
            at += bytes.len() as u64;
            self.progress.add_bytes(bytes.len() as u64)?;
        }
        if at != self.attr.size {
            return Err(Error::new(ErrorKind::Conflict, "the file ended before its size"));
        }
        Ok(())
    }
}

/// The hidden file beside the target, named after the version: another version's leftovers are
/// never gone on with. A name too long for that stands there as its digest.
fn partial_name(name: &OsStr, version: u128) -> OsString {
    let hidden = |name: &OsStr| {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{version:x}.weft-part"));
        hidden
    };
    let whole = hidden(name);
    if whole.len() <= limits::NAME_BYTES_MAX {
        return whole;
    }
    hidden(OsStr::new(blake3::hash(name.as_bytes()).to_hex().as_str()))
}

/// Opens a hidden file and takes its lock, or fails with `Busy` if somebody has it.
fn claim(folder: &Folder, name: &OsStr) -> Result<File> {
    for _ in 0..CLAIMED_AT_MOST {
        let file = folder.write(name)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => break,
            // A file system without locks: then nobody else has one either.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => {
                return Err(fault::error(e, "lock", folder.shown(name).display()));
            }
        }
        // Whoever had it before may have renamed it into place meanwhile.
        if folder.holds(name, &file)? {
            return Ok(file);
        }
    }
    let busy = Error::new(ErrorKind::Busy, "another copy of it to this place is under way");
    Err(busy.op("write").about(folder.shown(name).display()).hint("wait for it, then copy again"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_hidden_name_is_never_too_long_and_belongs_to_one_name_and_version() {
        let (longest, other) = (OsString::from("a".repeat(255)), OsString::from("b".repeat(255)));
        for name in [OsStr::new("a"), &longest] {
            assert!(partial_name(name, u128::MAX).len() <= limits::NAME_BYTES_MAX);
            assert_eq!(partial_name(name, 1), partial_name(name, 1));
            assert_ne!(partial_name(name, 1), partial_name(name, 2));
            assert_ne!(partial_name(name, 1), partial_name(&other, 1));
        }
        assert_eq!(partial_name(OsStr::new("a"), 10), ".a.a.weft-part");
    }

    #[test]
    fn what_another_copy_writes_is_not_taken_over_and_what_it_left_is() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (folder, name) = (Folder::open(dir.path()).expect("it is there"), OsStr::new(".a"));
        let first = claim(&folder, name).expect("nobody has it");
        let refused = claim(&folder, name).expect_err("it is taken");
        assert_eq!(refused.kind(), ErrorKind::Busy);
        drop(first);
        claim(&folder, name).expect("nobody has it any more");
    }

    #[test]
    fn times_before_1970_are_kept_as_those_after_it() {
        let whole = |seconds| Duration::from_secs(seconds);
        for (time, expected) in [
            (Time::EPOCH, UNIX_EPOCH),
            (Time::from_unix(7, 5), UNIX_EPOCH + Duration::new(7, 5)),
            (Time::from_unix(-7, 0), UNIX_EPOCH - whole(7)),
            (Time::from_nanos(-1), UNIX_EPOCH - Duration::from_nanos(1)),
        ] {
            assert_eq!(system_time(time), expected);
        }
    }
}
