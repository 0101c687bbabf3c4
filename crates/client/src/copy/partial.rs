//! What a copy out of the tree fills beside its target.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};

use weft_core::{Error, ErrorKind, Result, Time, limits};
use weft_sys::{Folder, fault};

use super::Progress;
use super::download::{Spot, system_time};
use super::verified::{BLOCK_BYTES, Digests};

/// How many copies may end under one that begins, each just between its open and its lock.
const CLAIMED_AT_MOST: u32 = 8;

/// The hidden file that a copy fills and then renames to its target. Nothing waits for it to be on
/// disk: what is not as the node says is not kept.
pub struct Partial<'a> {
    to: Spot<'a>,
    name: OsString,
    file: File,
    at: u64,
}

impl<'a> Partial<'a> {
    /// Opens what an earlier copy of a version left, or makes it. Fails with `Busy` if another
    /// copy is filling it.
    pub fn claim(to: Spot<'a>, version: u128) -> Result<Self> {
        let name = hidden_name(to.name, version);
        let file = claim(to.folder, &name)?;
        Ok(Self { to, name, file, at: 0 })
    }

    /// Keeps the blocks at its beginning that are those of a file of `size` bytes, and drops the
    /// rest. Returns how many bytes are kept.
    pub(super) async fn keep(
        &mut self,
        digests: &mut Digests<'_>,
        size: u64,
        progress: &Progress,
    ) -> Result<u64> {
        let there = self.file.metadata().map_err(|e| self.failed(e))?.len();
        let mut block = vec![0; if there < BLOCK_BYTES { 0 } else { BLOCK_BYTES as usize }];
        while there <= size && self.at + BLOCK_BYTES <= there {
            self.file.read_exact_at(&mut block, self.at).map_err(|e| self.failed(e))?;
            if *blake3::hash(&block).as_bytes() != digests.of(self.at / BLOCK_BYTES).await? {
                break;
            }
            self.at += BLOCK_BYTES;
            progress.add_bytes(BLOCK_BYTES)?;
            // Whoever waits for Ctrl-C has a turn.
            tokio::task::yield_now().await;
        }
        self.file.set_len(self.at).map_err(|e| self.failed(e))?;
        Ok(self.at)
    }

    /// Puts bytes at its end.
    pub fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.at).map_err(|e| self.failed(e))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Goes on behind a hole.
    pub fn pass(&mut self, at: u64) {
        self.at = at;
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns where it ends.
    pub fn length(&self) -> u64 {
        self.at
    }

    /// Makes it the target, once it is on disk if it is to be `flushed`.
    pub fn finish(self, mode: u16, mtime: Time, flushed: bool) -> Result<()> {
        self.file.set_len(self.at).map_err(|e| self.failed(e))?;
        self.file.set_permissions(Permissions::from_mode(u32::from(mode))).map_err(|e| self.failed(e))?;
        self.file.set_modified(system_time(mtime)).map_err(|e| self.failed(e))?;
        if flushed {
            self.file.sync_all().map_err(|e| self.failed(e))?;
        }
        self.to.folder.rename(&self.name, self.to.name)
    }

    /// Takes it away.
    pub fn discard(self) -> Result<()> {
        self.to.folder.remove(&self.name)
    }

    fn failed(&self, error: io::Error) -> Error {
        fault::error(error, "write", self.to.folder.shown(&self.name).display())
    }
}

/// A hidden file beside the target, named after the version: another version's leftovers are
/// never gone on with. A name too long for that stands there as its digest.
fn hidden_name(name: &OsStr, version: u128) -> OsString {
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
    use super::*;

    #[test]
    fn a_hidden_name_is_never_too_long_and_belongs_to_one_name_and_version() {
        let (longest, other) = (OsString::from("a".repeat(255)), OsString::from("b".repeat(255)));
        for name in [OsStr::new("a"), &longest] {
            assert!(hidden_name(name, u128::MAX).len() <= limits::NAME_BYTES_MAX);
            assert_eq!(hidden_name(name, 1), hidden_name(name, 1));
            assert_ne!(hidden_name(name, 1), hidden_name(name, 2));
            assert_ne!(hidden_name(name, 1), hidden_name(&other, 1));
        }
        assert_eq!(hidden_name(OsStr::new("a"), 10), ".a.a.weft-part");
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
