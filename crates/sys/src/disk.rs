//! Files and directories below one root, real and simulated.
//!
//! Paths are relative, `/`-separated, without `.` and `..`. Nothing below is asynchronous: who
//! must not block calls from a thread of its own or through `Sys::blocking`.

mod real;
mod residency;
mod shadow;
mod sim;

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_core::form::{OpenedFile, Seek};
use weft_core::{Error, ErrorKind, Result};

pub(crate) use real::read_full;
pub use real::{OpenedAs, RealDisk, RealFile};
pub use shadow::ShadowDisk;
pub use sim::{Boundary, Faults, SimCounts, SimDisk};

/// Makes the sites and the list of all of them from one, so that the list lacks none.
macro_rules! flush_sites {
    ($($(#[$what:meta])* $site:ident,)*) => {
        /// Every place in the product that makes something durable. A test goes over all variants,
        /// tells the simulated disk to ignore that one, and must fail: `weft_conformance::flushes`
        /// says which test.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FlushSite {
            $($(#[$what])* $site,)*
        }

        impl FlushSite {
            /// Every variant: tests and counters go over this.
            pub const ALL: &[Self] = &[$(Self::$site),*];
        }
    };
}

flush_sites! {
    /// A batch of commits in the metadata log.
    KvLogAppend,
    /// A new log segment's zeroes, length and header, before it is entered.
    KvLogMake,
    /// The name of a new log segment.
    KvLogDir,
    /// The record that says a log segment continues in the next.
    KvLogSeal,
    /// What was replayed at a start, and the names it was found by, before anybody relies on them.
    KvLogRecover,
    /// A checkpoint of the metadata tree.
    KvTree,
    /// The name of a restored metadata tree's file.
    KvTreeDir,
    /// A metadata backup's bytes.
    KvBackup,
    /// A metadata backup's name.
    KvBackupDir,
    /// A new signing key's file.
    AuthKey,
    /// The name of a new signing key's file.
    AuthKeyDir,
    /// The going of the file of a key that was replaced.
    AuthKeyRemove,
    /// A batch of audit records.
    AuditBatch,
    /// The name of a new audit file.
    AuditDir,
    /// An object's bytes and length.
    StoreObject,
    /// The names of files made ready for objects.
    StoreSpareDir,
    /// The name of a directory for object files.
    StoreFanDir,
    /// The going of removed objects' files.
    StoreRemoveDir,
    /// A copied object, before its backup or restore is said to be done.
    StoreBackup,
    /// The names of copied objects.
    StoreBackupDir,
    /// A copied key or audit file, or the list of what a backup holds.
    BackupFile,
    /// The names of a backup's or a restored node's parts, and its own name.
    BackupDir,
    /// The file that says in which format a node's directory is.
    NodeFormat,
    /// The name of that file.
    NodeFormatDir,
    /// A file of the node's own certificate.
    NodeCertificate,
    /// The names of those files, and of their directory.
    NodeCertificateDir,
}

/// Bytes copied at once where the machine cannot copy by itself.
const COPY_BUFFER_BYTES: u64 = 1 << 20;

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// To read and write; made empty if it is not there.
    Make,
    /// To read and write; made now, `Exists` if it is there.
    MakeNew,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// How much a disk holds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// All there is.
    pub total: u64,
    /// What the node's user may still fill.
    pub free: u64,
}

/// How large a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    /// Bytes in it.
    pub len: u64,
    /// Bytes of the disk it takes: fewer than `len` with holes, more with space reserved.
    pub used: u64,
}

/// A lock held on a file until it is dropped, or the process ends.
pub trait DiskLock: Send + Sync {}

/// A directory tree that one part of the node owns.
///
/// Names made, renamed or removed are durable only after [`Disk::sync_dir`] of their directory;
/// bytes and lengths only after [`DiskFile::sync`]. A rename is atomic: after a crash the target
/// is the old file or the new one.
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>>;

    /// Makes a directory; `Exists` if the name is taken.
    fn make_dir(&self, path: &str) -> Result<()>;

    /// Calls `each` with every entry of a directory (`""` is the root), in no order, until it
    /// breaks. Entries that come or go meanwhile may be missed.
    fn list(&self, dir: &str, each: &mut dyn FnMut(&str, Entry) -> ControlFlow<()>) -> Result<()>;

    /// Returns how large a file is without opening it.
    fn measure(&self, path: &str) -> Result<FileSize>;

    /// Gives the file a new name, replacing what has it.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives the file a second name; `Exists` if that is taken.
    fn link(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file's name. Bytes stay while the file is open.
    fn remove(&self, path: &str) -> Result<()>;

    /// Writes a small file anew, whole or not at all: until the next [`sync_dir`](Disk::sync_dir) a crash may leave
    /// the old one. What is begun is called `PATH.new`.
    fn replace(&self, path: &str, bytes: &[u8], site: FlushSite) -> Result<()> {
        let making = format!("{path}.new");
        match self.remove(&making) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.open(&making, Open::MakeNew)?;
        file.write_at(bytes, 0)?;
        file.sync(site)?;
        self.rename(&making, path)
    }

    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> Result<()>;

    /// Makes every change of the directory's names so far durable.
    fn sync_dir(&self, dir: &str, site: FlushSite) -> Result<()>;

    /// Takes an exclusive lock on a file, which is made if need be; `Busy` if another process,
    /// or another part of this one, holds it.
    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>>;

    /// Returns whether a file or directory (`""` is the root) belongs to the node's user and is
    /// closed to everybody else.
    fn is_private(&self, path: &str) -> Result<bool>;

    /// Returns how full the file system is.
    fn space(&self) -> Result<DiskSpace>;

    /// Returns the part below directory `dir`, which is made if need be (its name durable only
    /// after the next `sync_dir("")` here).
    fn beneath(&self, dir: &str) -> Result<Arc<dyn Disk>>;
}

/// An open file. Reads and writes go to absolute places and may run on many threads at once.
///
/// As an [`OpenedFile`] it can be the file of a transfer's pieces; there is a descriptor if it is
/// a real one.
pub trait DiskFile: OpenedFile {
    /// Reads up to `bytes.len()` bytes at `at`; fewer only at the end of the file.
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize>;

    /// Writes all of `bytes` at `at`, extending the file if need be.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()>;

    /// Cuts or extends with zeroes.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Reserves space for a range, extending the file to its end if need be. `NoSpace` leaves
    /// the file usable; `Unsupported` where the file system cannot.
    fn allocate(&self, at: u64, len: u64) -> Result<()>;

    /// Reserves space for a range, which may lie beyond the end, without changing the length.
    /// Fails like [`DiskFile::allocate`].
    fn reserve(&self, at: u64, len: u64) -> Result<()>;

    /// Makes a range read as zeroes and gives its space back where the file system can.
    fn punch(&self, at: u64, len: u64) -> Result<()>;

    /// Returns the length in bytes.
    fn len(&self) -> Result<u64>;

    /// Returns whether there is nothing in it.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns how large it is.
    fn measure(&self) -> Result<FileSize>;

    /// Returns the next byte from `at` on that is data, or in a hole; the end counts as a hole.
    /// `None` if there is no data up to the end, or `at` is at the end or beyond.
    fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>>;

    /// Returns whether all of a range (none of it beyond the end) is in the machine's memory, so
    /// that reading it does not touch the disk. False where the machine cannot tell, and in
    /// simulations.
    fn resident(&self, at: u64, len: u64) -> bool;

    /// Copies up to `len` bytes from `from_at` of another file to `at`, inside the machine where
    /// it can. Returns how many: fewer only at the other file's end.
    fn copy_from(&self, from: &dyn OpenedFile, from_at: u64, at: u64, len: u64) -> Result<u64> {
        self.copy_bytes_from(from, from_at, at, len)
    }

    /// Does what [`DiskFile::copy_from`] does, through a buffer.
    fn copy_bytes_from(&self, from: &dyn OpenedFile, from_at: u64, at: u64, len: u64) -> Result<u64> {
        let mut buffer = vec![0; len.min(COPY_BUFFER_BYTES) as usize];
        let mut done = 0;
        while done < len {
            let take = (len - done).min(COPY_BUFFER_BYTES) as usize;
            let read = from
                .read_at(&mut buffer[..take], from_at + done)
                .map_err(|cause| crate::fault::error(cause, "copy", "a file"))?;
            self.write_at(&buffer[..read], at + done)?;
            done += read as u64;
            if read < take {
                break;
            }
        }
        Ok(done)
    }

    /// Makes this file, which is empty, what another is: its bytes, its length, and holes where it
    /// has some. Returns the length. What is cut off the other meanwhile is left out.
    fn copy_all_from(&self, from: &dyn DiskFile) -> Result<u64> {
        let (mut at, length) = (0, from.len()?);
        while let Some(data) = from.seek(at, Seek::Data)?.filter(|data| *data < length) {
            let hole = from.seek(data, Seek::Hole)?.map_or(length, |hole| hole.min(length));
            if self.copy_from(from, data, data, hole.saturating_sub(data))? == 0 {
                break;
            }
            at = hole;
        }
        let length = length.min(from.len()?);
        self.set_len(length)?;
        Ok(length)
    }

    /// Has the machine begin to write what was changed in a range to the disk, without waiting for
    /// it: so a later [`DiskFile::sync`] finds less left to do. A wish; it makes nothing durable.
    fn write_behind(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Has the machine give up what it keeps in memory of a range, as far as that is on the disk already:
    /// for who reads much once, and leaves to others what they had there. A wish.
    fn forget(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Makes every write so far durable, with what is needed to read it back (`fdatasync`).
    /// After an error the unflushed bytes may be lost though they can still be read, and a later
    /// success does not bring them back.
    fn sync(&self, site: FlushSite) -> Result<()>;

    /// Fills `bytes` from `at`; `Corrupt` if the file ends before.
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        match self.read(bytes, at)? {
            read if read == bytes.len() => Ok(()),
            read => Err(Error::corrupt(format!(
                "the file ends at byte {} where {} were expected",
                at + read as u64,
                bytes.len()
            ))),
        }
    }
}
