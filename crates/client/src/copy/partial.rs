//! What a copy out of the tree fills beside its target, and what it notes of it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};

use weft_core::{Error, ErrorKind, Result, Time, limits};
use weft_sys::{Folder, fault};

use super::Progress;
use super::download::{Spot, system_time};

/// Bytes behind each of which their digest is noted: as many may have to be sent again.
const NOTED_BYTES: u64 = 8 << 20;
/// How many copies may end under one that begins, each just between its open and its lock.
const CLAIMED_AT_MOST: u32 = 8;

/// The hidden file that a copy fills and then renames to its target, and the one beside it that
/// holds a digest for each 8 MiB of the first. Nothing waits for either to be on disk: what is not
/// as its digest says is not kept.
pub struct Partial<'a> {
    to: Spot<'a>,
    name: OsString,
    file: File,
    notes_name: OsString,
    /// Made when there is something to note: most files are smaller.
    notes: Option<File>,
    /// Where it ends, and what was put there since the last note.
    at: u64,
    hasher: blake3::Hasher,
}

impl<'a> Partial<'a> {
    /// Opens what an earlier copy of a version left, or makes it. Fails with `Busy` if another
    /// copy is filling it.
    pub fn claim(to: Spot<'a>, version: u128) -> Result<Self> {
        let name = hidden_name(to.name, version, "weft-part");
        let notes_name = hidden_name(to.name, version, "weft-digests");
        let file = claim(to.folder, &name)?;
        let notes = match to.folder.look(&notes_name)? {
            Some(_) => Some(to.folder.write(&notes_name)?),
            None => None,
        };
        Ok(Self { to, name, file, notes_name, notes, at: 0, hasher: blake3::Hasher::new() })
    }

    /// Returns how many bytes of it are as they were noted: never more than `size`.
    pub async fn as_noted(&self, size: u64, progress: &Progress) -> Result<u64> {
        let Some(notes) = &self.notes else { return Ok(0) };
        let there = self.file.metadata().map_err(|e| self.failed(e))?.len();
        let (mut good, mut noted) = (0, [0; blake3::OUT_LEN]);
        while there <= size && good + NOTED_BYTES <= there {
            let read = notes.read_exact_at(&mut noted, good / NOTED_BYTES * blake3::OUT_LEN as u64);
            if read.is_err() || *self.digest(good)?.as_bytes() != noted {
                break;
            }
            good += NOTED_BYTES;
            progress.add_bytes(NOTED_BYTES)?;
            // Whoever waits for Ctrl-C has a turn.
            tokio::task::yield_now().await;
        }
        Ok(good)
    }

    fn digest(&self, at: u64) -> Result<blake3::Hash> {
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), vec![0; limits::PIECE_BYTES_MAX]);
        for piece in 0..NOTED_BYTES / bytes.len() as u64 {
            self.read(&mut bytes, at + piece * limits::PIECE_BYTES_MAX as u64)?;
            hasher.update(&bytes);
        }
        Ok(hasher.finalize())
    }

    /// Reads bytes that are there.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(|e| self.failed(e))
    }

    /// Keeps so many bytes, as many as [`Partial::as_noted`] found or none, and drops the rest.
    pub fn keep(&mut self, bytes: u64) -> Result<()> {
        self.at = bytes;
        self.file.set_len(bytes).map_err(|e| self.failed(e))?;
        let Some(notes) = &self.notes else { return Ok(()) };
        notes.set_len(bytes / NOTED_BYTES * blake3::OUT_LEN as u64).map_err(|e| self.failed(e))
    }

    /// Puts bytes at its end.
    pub fn add(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.at).map_err(|e| self.failed(e))?;
        while !bytes.is_empty() {
            let room = (NOTED_BYTES - self.at % NOTED_BYTES).min(bytes.len() as u64);
            let (now, rest) = bytes.split_at(room as usize);
            self.hasher.update(now);
            self.at += room;
            bytes = rest;
            if self.at.is_multiple_of(NOTED_BYTES) {
                self.note()?;
            }
        }
        Ok(())
    }

    fn note(&mut self) -> Result<()> {
        let digest = std::mem::take(&mut self.hasher).finalize();
        let notes = match self.notes.take() {
            Some(notes) => notes,
            None => self.to.folder.write(&self.notes_name)?,
        };
        let at = (self.at / NOTED_BYTES - 1) * blake3::OUT_LEN as u64;
        notes.write_all_at(digest.as_bytes(), at).map_err(|e| self.failed(e))?;
        self.notes = Some(notes);
        Ok(())
    }

    /// Returns where it ends.
    pub fn length(&self) -> u64 {
        self.at
    }

    /// Makes it the target, once it is on disk.
    pub fn finish(self, mode: u16, mtime: Time) -> Result<()> {
        self.file.set_permissions(Permissions::from_mode(u32::from(mode))).map_err(|e| self.failed(e))?;
        self.file.set_modified(system_time(mtime)).map_err(|e| self.failed(e))?;
        self.file.sync_all().map_err(|e| self.failed(e))?;
        // First, under the lock: behind the name another copy may have begun.
        if self.notes.is_some() {
            self.to.folder.remove(&self.notes_name)?;
        }
        self.to.folder.rename(&self.name, self.to.name)
    }

    fn failed(&self, error: io::Error) -> Error {
        fault::error(error, "write", self.to.folder.shown(&self.name).display())
    }
}

/// A hidden file beside the target, named after the version: another version's leftovers are
/// never gone on with. A name too long for that stands there as its digest.
fn hidden_name(name: &OsStr, version: u128, what: &str) -> OsString {
    let hidden = |name: &OsStr| {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{version:x}.{what}"));
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
    use super::*;

    #[test]
    fn a_hidden_name_is_never_too_long_and_belongs_to_one_name_and_version() {
        let (longest, other) = (OsString::from("a".repeat(255)), OsString::from("b".repeat(255)));
        for name in [OsStr::new("a"), &longest] {
            assert!(hidden_name(name, u128::MAX, "weft-digests").len() <= limits::NAME_BYTES_MAX);
            assert_eq!(hidden_name(name, 1, "weft-part"), hidden_name(name, 1, "weft-part"));
            assert_ne!(hidden_name(name, 1, "weft-part"), hidden_name(name, 2, "weft-part"));
            assert_ne!(hidden_name(name, 1, "weft-part"), hidden_name(&other, 1, "weft-part"));
        }
        assert_eq!(hidden_name(OsStr::new("a"), 10, "weft-part"), ".a.a.weft-part");
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
}
