//! The machine's file system below one directory.

use std::ffi::CStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use weft_core::form::{OpenedFile, Seek};
use weft_core::{Error, ErrorKind, Result, Time};

use super::{Disk, DiskFile, DiskLock, DiskSpace, Entry, FileSize, FlushSite, Open, residency};
use crate::fault;

/// A directory of the machine. Everything is opened relative to its descriptor, so that renaming
/// the directory harms nobody. Files are made with mode 0600, directories with 0700.
#[derive(Debug)]
pub struct RealDisk {
    root: OwnedFd,
    /// For error texts only.
    shown: String,
}

impl RealDisk {
    /// Opens the directory at `path`, which must exist.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno, "open", &shown))?;
        Ok(Self { root, shown })
    }

    fn shown(&self, path: &str) -> String {
        if path.is_empty() { self.shown.clone() } else { format!("{}/{path}", self.shown) }
    }

    fn at(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let name = if path.is_empty() { "." } else { path };
        fs::openat(&self.root, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| failed(errno, "open", self.shown(path)))
    }

    /// Whether a path leads to an open file still.
    fn is_at(&self, file: &OwnedFd, path: &str) -> Result<bool> {
        let failed = |errno| failed(errno, "stat", self.shown(path));
        let open = fs::fstat(file).map_err(failed)?;
        match fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (open.st_dev, open.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn failed(errno: Errno, op: &'static str, about: impl std::fmt::Display) -> Error {
    fault::error(errno.into(), op, about)
}

impl Disk for RealDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>> {
        let flags = match how {
            Open::Read => OFlags::RDONLY,
            Open::Write => OFlags::RDWR,
            Open::Make => OFlags::RDWR | OFlags::CREATE,
            Open::MakeNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let file = self.at(path, flags | OFlags::NOFOLLOW)?;
        Ok(Arc::new(RealFile { file, shown: self.shown(path) }))
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        fs::mkdirat(&self.root, path, Mode::RWXU).map_err(|errno| failed(errno, "make", self.shown(path)))
    }

    fn list(&self, dir: &str, each: &mut dyn FnMut(&str, Entry) -> ControlFlow<()>) -> Result<()> {
        let opened = self.at(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let failed = |errno| failed(errno, "list", self.shown(dir));
        for entry in fs::Dir::read_from(&opened).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Names that are not UTF-8 are nothing of ours.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => looked_up(opened.as_fd(), entry.file_name()).map_err(failed)?,
                known => known,
            };
            if each(name, entry_kind(kind)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn measure(&self, path: &str) -> Result<FileSize> {
        fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| file_size(&stat))
            .map_err(|errno| failed(errno, "stat", self.shown(path)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::renameat(&self.root, from, &self.root, to)
            .map_err(|errno| failed(errno, "rename", self.shown(from)))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        fs::linkat(&self.root, from, &self.root, to, AtFlags::empty())
            .map_err(|errno| failed(errno, "link", self.shown(to)))
    }

    fn remove(&self, path: &str) -> Result<()> {
        fs::unlinkat(&self.root, path, AtFlags::empty())
            .map_err(|errno| failed(errno, "remove", self.shown(path)))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        fs::unlinkat(&self.root, path, AtFlags::REMOVEDIR)
            .map_err(|errno| failed(errno, "remove", self.shown(path)))
    }

    fn sync_dir(&self, dir: &str, _site: FlushSite) -> Result<()> {
        let opened = self.at(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        fs::fsync(&opened).map_err(|errno| failed(errno, "flush", self.shown(dir)))
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>> {
        loop {
            let file = self.at(path, OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW)?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Who had it may have taken it away after we opened it: another is there now, or none.
                Ok(()) if !self.is_at(&file, path)? => {}
                Ok(()) => return Ok(Box::new(RealLock { file })),
                Err(Errno::AGAIN) => {
                    return Err(Error::new(ErrorKind::Busy, "another process holds the lock")
                        .op("lock")
                        .about(self.shown(path)));
                }
                Err(errno) => return Err(failed(errno, "lock", self.shown(path))),
            }
        }
    }

    fn is_private(&self, path: &str) -> Result<bool> {
        let name = if path.is_empty() { "." } else { path };
        let stat = fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| failed(errno, "stat", self.shown(path)))?;
        let open = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
        Ok(open.is_empty() && stat.st_uid == rustix::process::geteuid().as_raw())
    }

    fn space(&self) -> Result<DiskSpace> {
        let space = fs::fstatvfs(&self.root).map_err(|errno| failed(errno, "measure", &self.shown))?;
        Ok(DiskSpace { total: space.f_blocks * space.f_frsize, free: space.f_bavail * space.f_frsize })
    }

    fn beneath(&self, dir: &str) -> Result<Arc<dyn Disk>> {
        match self.make_dir(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Exists => {}
            Err(error) => return Err(error),
        }
        let root = self.at(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        Ok(Arc::new(Self { root, shown: self.shown(dir) }))
    }
}

/// Asks for the kind of an entry on file systems whose listings do not say.
fn looked_up(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<FileType> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn length_of(stat: &fs::Stat) -> Result<u64> {
    u64::try_from(stat.st_size).map_err(|_| Error::internal("the machine gave a negative length"))
}

/// The kernel never gives negative sizes; `st_blocks` counts 512 bytes whatever the disk has.
fn file_size(stat: &fs::Stat) -> FileSize {
    let whole = |value| u64::try_from(value).unwrap_or(0);
    FileSize { len: whole(stat.st_size), used: whole(stat.st_blocks) * 512 }
}

fn entry_kind(kind: FileType) -> Entry {
    match kind {
        FileType::RegularFile => Entry::File,
        FileType::Directory => Entry::Directory,
        _ => Entry::Other,
    }
}

struct RealLock {
    /// The kernel drops the lock with the last copy of this descriptor.
    file: OwnedFd,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    /// Lets go of it whoever has copies: a process that is being started has one of everything
    /// until it runs its program.
    fn drop(&mut self) {
        // What cannot be unlocked goes with its last copy.
        let _ = fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// A regular file of the machine.
#[derive(Debug)]
pub struct RealFile {
    file: OwnedFd,
    /// For error texts only; may be empty.
    shown: String,
}

/// Which file was opened, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedAs {
    disk: u64,
    inode: u64,
    access: u32,
}

impl RealFile {
    /// Takes a file that was opened elsewhere, and which errors shall not name.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self { file, shown: String::new() }
    }

    /// Brings bytes and attributes to disk: for who flushes files of people, at no site of the node's own.
    pub fn flush(&self) -> Result<()> {
        fs::fsync(&self.file).map_err(|errno| self.failed(errno, "flush"))
    }

    /// Sets the permission bits.
    pub fn set_mode(&self, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(u32::from(mode));
        fs::fchmod(&self.file, mode).map_err(|errno| self.failed(errno, "set the mode of"))
    }

    /// Returns which file of which disk it is, and whether it was opened to read, to write or for both.
    pub fn opened_as(&self) -> Result<OpenedAs> {
        let (stat, flags) = fs::fstat(&self.file)
            .and_then(|stat| Ok((stat, fs::fcntl_getfl(&self.file)?)))
            .map_err(|errno| self.failed(errno, "stat"))?;
        Ok(OpenedAs { disk: stat.st_dev, inode: stat.st_ino, access: (flags & OFlags::RWMODE).bits() })
    }

    /// Cuts or extends with zeroes.
    pub fn set_length(&self, length: u64) -> Result<()> {
        self.set_len(length)
    }

    /// Writes at the end, wherever that is by then. Returns where the bytes went, if nobody else wrote
    /// there meanwhile.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = [io::IoSlice::new(&bytes[done..])];
            match rustix::io::pwritev2(&self.file, &rest, 0, rustix::io::ReadWriteFlags::APPEND) {
                Ok(0) => return Err(self.failed(Errno::IO, "append to")),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno, "append to")),
            }
        }
        Ok(self.len()?.saturating_sub(bytes.len() as u64))
    }

    /// Returns its length, and when its bytes last changed.
    pub fn stamp(&self) -> Result<(u64, Time)> {
        let stat = fs::fstat(&self.file).map_err(|errno| self.failed(errno, "stat"))?;
        Ok((length_of(&stat)?, Time::from_unix(stat.st_mtime, stat.st_mtime_nsec as u32)))
    }

    /// Reads a range if all of it is there, and in memory; nothing if it is not, or nobody can tell.
    pub fn read_at_once(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        let into = &mut [io::IoSliceMut::new(&mut bytes)];
        let read = rustix::io::preadv2(&self.file, into, at, rustix::io::ReadWriteFlags::NOWAIT);
        read.is_ok_and(|read| read == length).then_some(bytes)
    }

    /// Makes zeros of a range, as far as the file reaches.
    pub fn punch_within(&self, at: u64, length: u64) -> Result<()> {
        let length = length.min(self.len()?.saturating_sub(at));
        if length == 0 { Ok(()) } else { self.punch(at, length) }
    }

    fn failed(&self, errno: Errno, op: &'static str) -> Error {
        failed(errno, op, &self.shown)
    }

    fn pread(&self, bytes: &mut [u8], at: u64) -> rustix::io::Result<usize> {
        read_full(self.file.as_fd(), bytes, at)
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full(file: BorrowedFd<'_>, bytes: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

impl DiskFile for RealFile {
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        self.pread(bytes, at).map_err(|errno| self.failed(errno, "read"))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[done..], at + done as u64) {
                Ok(0) => return Err(self.failed(Errno::IO, "write")),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno, "write")),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        fs::ftruncate(&self.file, len).map_err(|errno| self.failed(errno, "resize"))
    }

    fn allocate(&self, at: u64, len: u64) -> Result<()> {
        fs::fallocate(&self.file, FallocateFlags::empty(), at, len)
            .map_err(|errno| self.failed(errno, "reserve space for"))
    }

    fn reserve(&self, at: u64, len: u64) -> Result<()> {
        fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at, len)
            .map_err(|errno| self.failed(errno, "reserve space for"))
    }

    fn punch(&self, at: u64, len: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fs::fallocate(&self.file, flags, at, len).map_err(|errno| self.failed(errno, "punch"))
    }

    fn len(&self) -> Result<u64> {
        length_of(&fs::fstat(&self.file).map_err(|errno| self.failed(errno, "stat"))?)
    }

    fn measure(&self) -> Result<FileSize> {
        fs::fstat(&self.file).map(|stat| file_size(&stat)).map_err(|errno| self.failed(errno, "stat"))
    }

    fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        let from = match what {
            Seek::Data => fs::SeekFrom::Data(at),
            Seek::Hole => fs::SeekFrom::Hole(at),
        };
        match fs::seek(&self.file, from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(self.failed(errno, "look for holes in")),
        }
    }

    fn resident(&self, at: u64, len: u64) -> bool {
        residency::resident(self.file.as_fd(), at, len)
    }

    fn copy_from(&self, from: &dyn OpenedFile, from_at: u64, at: u64, len: u64) -> Result<u64> {
        let Some(source) = from.descriptor() else { return self.copy_bytes_from(from, from_at, at, len) };
        let (mut read_at, mut write_at, mut done) = (from_at, at, 0);
        while done < len {
            let take = usize::try_from(len - done).unwrap_or(usize::MAX);
            match fs::copy_file_range(source, Some(&mut read_at), &self.file, Some(&mut write_at), take) {
                Ok(0) => break,
                Ok(copied) => done += copied as u64,
                Err(Errno::INTR) => {}
                // Two file systems, or one that leaves it to us.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    return Ok(done + self.copy_bytes_from(from, read_at, write_at, len - done)?);
                }
                Err(errno) => return Err(self.failed(errno, "copy to")),
            }
        }
        Ok(done)
    }

    fn write_behind(&self, at: u64, len: u64) {
        begin_writing(self.file.as_fd(), at, len);
    }

    fn forget(&self, at: u64, len: u64) {
        // Of a length of none the machine would take all that follows.
        if let Some(len) = std::num::NonZeroU64::new(len) {
            // It is a wish.
            let _ = fs::fadvise(&self.file, at, Some(len), fs::Advice::DontNeed);
        }
    }

    fn sync(&self, _site: FlushSite) -> Result<()> {
        fs::fdatasync(&self.file).map_err(|errno| self.failed(errno, "flush"))
    }
}

/// What fails here fails again in the flush, which tells: every error of writing is kept for the
/// next flush of a file that was open then.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no library offers this system call yet")]
fn begin_writing(file: BorrowedFd<'_>, at: u64, len: u64) {
    let (Ok(at), Ok(len)) = (i64::try_from(at), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is borrowed for the whole call, which takes numbers only.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), at, len, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
fn begin_writing(_: BorrowedFd<'_>, _: u64, _: u64) {}

impl OpenedFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.pread(buffer, at)?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd};

    use super::*;

    #[test]
    fn files_live_below_the_root_and_a_second_lock_is_refused() {
        let home = tempfile::tempdir().expect("a directory");
        let disk = RealDisk::open(home.path()).expect("it opens");
        let below = disk.beneath("kv").expect("a directory is made");
        let file = below.open("a", Open::MakeNew).expect("a file is made");
        file.write_at(b"hello", 3).expect("room");
        file.allocate(0, 4096).expect("room");
        file.punch(0, 4).expect("it can");
        file.sync(FlushSite::KvLogAppend).expect("it can");
        below.rename("a", "b").expect("it is there");
        below.sync_dir("", FlushSite::KvLogDir).expect("it can");
        let mut bytes = [9; 8];
        disk.open("kv/b", Open::Read).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("bytes");
        assert_eq!(&bytes, b"\0\0\0\0ello");

        let lock = below.lock("lock").expect("free");
        let again = RealDisk::open(home.path()).and_then(|disk| disk.lock("kv/lock"));
        assert_eq!(again.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Busy));
        drop(lock);
        below.lock("lock").expect("free again");
        let file = below.open("b", Open::Write).expect("it is there");
        let copy = below.open("c", Open::Make).expect("a file is made");
        assert_eq!(copy.copy_from(&*file, 3, 1, 5).expect("room"), 5);
        assert_eq!(copy.copy_from(&*file, 4094, 6, 100).expect("room"), 2, "up to the end");
        copy.read_exact_at(&mut bytes[..6], 0).expect("bytes");
        assert_eq!(&bytes[..6], b"\0\0ello");
        copy.reserve(0, 65_536).expect("room");
        let size = below.measure("c").expect("it is there");
        assert_eq!((size.len, size.used >= 65_536), (8, true), "reserving keeps the length");
        copy.set_len(1 << 20).expect("it can");
        assert_eq!(copy.seek(1 << 20, Seek::Data).expect("it can"), None, "nothing at the end");
        below.remove("c").expect("it is there");

        let mut names = Vec::new();
        below
            .list("", &mut |name, kind| {
                names.push((name.to_owned(), kind));
                ControlFlow::Continue(())
            })
            .expect("it can be listed");
        names.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(names, [("b".to_owned(), Entry::File), ("lock".to_owned(), Entry::File)]);
    }

    #[test]
    fn what_is_forgotten_left_the_memory_and_not_the_disk() {
        let home = tempfile::tempdir().expect("a directory");
        let disk = RealDisk::open(home.path()).expect("it opens");
        let file = disk.open("a", Open::MakeNew).expect("a file is made");
        file.write_at(&vec![7; 3 << 20], 0).expect("room");
        file.sync(FlushSite::StoreObject).expect("it can");
        file.forget(0, 0);
        assert!(file.resident(0, 3 << 20), "nothing is nothing");
        // Not of a part: what was written at once may be in memory as one page of any size.
        file.forget(0, 3 << 20);
        assert!(!file.resident(1 << 20, 1 << 20));
        let mut bytes = vec![0; 1 << 20];
        file.read_exact_at(&mut bytes, 1 << 20).expect("bytes");
        assert!(bytes.iter().all(|byte| *byte == 7));
    }

    /// A restore that failed takes its lock's file away again.
    #[test]
    fn a_lock_whose_file_is_taken_away_is_never_two_holders() {
        let home = tempfile::tempdir().expect("a directory");
        let (holders, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let disk = RealDisk::open(home.path()).expect("it opens");
                    while taken.load(Ordering::Relaxed) < 500 {
                        let Ok(lock) = disk.lock("lock") else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::AcqRel), 0, "two have it");
                        taken.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::AcqRel);
                        disk.remove("lock").expect("it is ours");
                        drop(lock);
                    }
                });
            }
        });
    }

    #[test]
    fn a_lock_that_is_given_up_is_free_though_a_process_that_starts_has_its_descriptor() {
        let home = tempfile::tempdir().expect("a directory");
        let disk = RealDisk::open(home.path()).expect("it opens");
        let lock = disk.lock("lock").expect("free");
        // A child has copies of all descriptors from its beginning until it runs its program.
        let ours = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
        let of_lock = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|to| to == home.path().join("lock"))
        };
        let number = ours.into_iter().find(of_lock).expect("it is open").file_name();
        let number = number.to_str().expect("a number").parse().expect("a number");
        let this = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("ours");
        let copy = pidfd_getfd(this, number, PidfdGetfdFlags::empty()).expect("ours");
        assert_eq!(disk.lock("lock").map(drop).map_err(|error| error.kind()), Err(ErrorKind::Busy));
        drop(lock);
        disk.lock("lock").expect("free");
        drop(copy);
    }
}
