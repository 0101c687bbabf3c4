//! A directory of people's own, and everything beneath it: what an export serves in place.
//!
//! Others change it at any moment: names become symbolic links, directories move away, devices and
//! pipes appear where files were. So a path is never walked by hand: the kernel resolves it in one
//! step, following no link and crossing no mount, or refuses (`openat2`). What was found is held by
//! a descriptor that opens nothing ([`Held`]); only after it has shown itself to be a regular file
//! or a directory is that same inode opened, so that no device is ever touched and no pipe waited for.
//!
//! Errors say what the machine answered and no path: whoever asks knows the place by another name.

mod clock;
mod generations;
mod handle;
mod held;
mod listing;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use weft_core::{Error, ErrorKind, Result};

use crate::disk::RealFile;
use crate::{fault, mounts};

pub use clock::{coarse_now, coarse_rest};
pub use held::{Facts, Held};
pub use listing::Listed;

/// A directory, and what lies beneath it.
pub struct Beneath {
    root: OwnedFd,
}

/// How much a file system holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes that the node's user may still fill.
    pub bytes_free: u64,
    /// Files there are, as far as the file system counts them.
    pub files: u64,
}

/// What a new name is to stand for.
#[derive(Clone, Copy, Debug)]
pub enum Fresh<'a> {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to these bytes.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
}

/// What a rename does to what has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// Nothing: `Exists`.
    Nothing,
    /// Replaces it, as POSIX says.
    Anything,
    /// Swaps the two.
    Exchange,
}

const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns what the machine's answer means.
pub(crate) fn refused(errno: Errno) -> Error {
    let cause = io::Error::from(errno);
    let (kind, detail) = match errno {
        // What is mounted below is somebody else's: it is not there.
        Errno::XDEV => (ErrorKind::NotFound, "what is mounted there does not belong to the share"),
        _ => fault::meaning(&cause),
    };
    Error::new(kind, detail).caused_by(cause)
}

impl Beneath {
    /// Opens a directory by an absolute path that no symbolic link is part of. `Loop` if one is.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        Ok(Self { root: root.map_err(refused)? })
    }

    /// Opens it likewise, step by step from the root of the machine, and has `pass` look at each directory
    /// that the path leads through. Fails as `pass` does.
    pub fn open_through(path: &Path, mut pass: impl FnMut(&Held) -> Result<()>) -> Result<Self> {
        let flags = HELD | OFlags::DIRECTORY;
        let mut here = Held::of(fs::open("/", flags, Mode::empty()).map_err(refused)?);
        for name in path.components() {
            let Component::Normal(name) = name else { continue };
            pass(&here)?;
            here = Held::of(fs::openat(here.fd(), name, flags, Mode::empty()).map_err(refused)?);
        }
        Ok(Self { root: here.into_fd() })
    }

    /// Holds the directory itself.
    pub fn itself(&self) -> Result<Held> {
        Ok(Held::of(duplicate(&self.root)?))
    }

    /// Returns the user of the machine whose it is.
    pub fn owner(&self) -> Result<u32> {
        Ok(fs::fstat(&self.root).map_err(refused)?.st_uid)
    }

    /// Finds what is at a path: names, with a slash between two; empty means the directory itself.
    /// A symbolic link at the end is what is found; one before it is `Loop`.
    pub fn find(&self, path: &[u8]) -> Result<Held> {
        if path.is_empty() {
            return self.itself();
        }
        let found = again(|| fs::openat2(&self.root, OsStr::from_bytes(path), HELD, Mode::empty(), WITHIN));
        found.map(Held::of).map_err(refused)
    }

    /// Holds what has an inode's number and generation, wherever on the file system it is: to be asked where it
    /// lies, and looked for there. None where nothing has, the file system's handles tell more than these
    /// two, or the process may not open by handle (`CAP_DAC_READ_SEARCH`).
    pub fn by_handle(&self, inode: u64, generation: u32) -> Result<Option<Held>> {
        let top = self.itself()?;
        let find = || {
            let Some(shape) = handle::shape(&self.root, fs::fstat(&self.root)?.st_ino)? else {
                return Ok(None);
            };
            handle::find(top.open_directory()?, shape, inode, generation)
        };
        Ok(find().map_err(refused)?.map(Held::of))
    }

    /// Returns how much the file system holds.
    pub fn holds(&self) -> Result<Holds> {
        let space = fs::fstatvfs(&self.root).map_err(refused)?;
        Ok(Holds {
            bytes_total: space.f_blocks.saturating_mul(space.f_frsize),
            bytes_free: space.f_bavail.saturating_mul(space.f_frsize),
            files: space.f_files.saturating_sub(space.f_ffree),
        })
    }

    /// Returns whether looking at names in it may wait for a network or for another program: on
    /// such file systems nothing may be done where others wait behind it.
    pub fn may_stall(&self) -> bool {
        const ALWAYS_HERE: [u64; 6] = [
            0xef53,      /* ext4 */
            0x5846_5342, /* XFS */
            0x9123_683e, /* btrfs */
            0x0102_1994, /* tmpfs */
            0xf2f5_2010,
            0x2fc1_2fc1, /* ZFS */
        ];
        fs::fstatfs(&self.root).map_or(true, |stat| !ALWAYS_HERE.contains(&(stat.f_type as u64)))
    }

    /// Returns whether its file system is of those that stamp a file which was looked at since its last change
    /// finer than the machine's clock ticks, where the machine can (Linux 6.13): such stamps are ahead of [`coarse_now`].
    /// So may others be, for none is earlier than one that was given before: they do not tell.
    pub fn may_stamp_finely(&self) -> bool {
        // By name: ext2 and ext3 look like ext4 in all else.
        const FINELY: [&[u8]; 4] = [b"ext4", b"xfs", b"btrfs", b"tmpfs"];
        mounts::file_system(&self.root).is_some_and(|name| FINELY.contains(&&name[..]))
    }
}

/// What is done to the names in a directory that is held.
impl Held {
    /// Makes something under a free name. The process's own mask takes bits of `mode`.
    pub fn make(&self, name: &[u8], new: Fresh<'_>, mode: u16) -> Result<Self> {
        let (bits, path) = (Mode::from_raw_mode(u32::from(mode)), OsStr::from_bytes(name));
        match new {
            Fresh::File => return self.make_file(path, bits).map(Self::of),
            Fresh::Directory => fs::mkdirat(self.fd(), path, bits),
            Fresh::Symlink(target) => fs::symlinkat(OsStr::from_bytes(target), self.fd(), path),
            Fresh::Fifo => fs::mknodat(self.fd(), path, FileType::Fifo, bits, 0),
        }
        .map_err(refused)?;
        self.inside(name)
    }

    /// Makes a file under a free name, and has it open.
    pub fn make_open(&self, name: &[u8], mode: u16) -> Result<(Self, Arc<RealFile>)> {
        let made = self.make_file(OsStr::from_bytes(name), Mode::from_raw_mode(u32::from(mode)))?;
        let open = duplicate(&made)?;
        Ok((Self::of(made), Arc::new(RealFile::of(open))))
    }

    fn make_file(&self, name: &OsStr, mode: Mode) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(self.fd(), name, flags, mode).map_err(refused)
    }

    /// Finds one name in it.
    pub fn inside(&self, name: &[u8]) -> Result<Self> {
        let path = OsStr::from_bytes(name);
        let found = again(|| fs::openat2(self.fd(), path, HELD, Mode::empty(), WITHIN));
        found.map(Self::of).map_err(refused)
    }

    /// Gives what a name stands for a second name in another directory; `Exists` if that is taken.
    pub fn link(&self, name: &[u8], to: &Self, new: &[u8]) -> Result<()> {
        let (name, new) = (OsStr::from_bytes(name), OsStr::from_bytes(new));
        fs::linkat(self.fd(), name, to.fd(), new, AtFlags::empty()).map_err(crossed)
    }

    /// Renames into another directory.
    pub fn rename(&self, name: &[u8], to: &Self, new: &[u8], onto: Onto) -> Result<()> {
        let flags = match onto {
            Onto::Nothing => RenameFlags::NOREPLACE,
            Onto::Anything => RenameFlags::empty(),
            Onto::Exchange => RenameFlags::EXCHANGE,
        };
        let (name, new) = (OsStr::from_bytes(name), OsStr::from_bytes(new));
        fs::renameat_with(self.fd(), name, to.fd(), new, flags).map_err(crossed)
    }

    /// Removes a name; of a directory, which must be empty, if `directory` says so.
    pub fn remove(&self, name: &[u8], directory: bool) -> Result<()> {
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        fs::unlinkat(self.fd(), OsStr::from_bytes(name), flags).map_err(refused)
    }
}

/// Returns another descriptor of the same.
fn duplicate(fd: &OwnedFd) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(refused)
}

/// Two names that one file system cannot join, or a directory that would lie below itself.
fn crossed(errno: Errno) -> Error {
    match errno {
        Errno::XDEV => Error::new(ErrorKind::CrossVolume, "the two names are on different file systems"),
        Errno::INVAL => Error::new(ErrorKind::Loop, "a directory cannot come to lie below itself"),
        errno => refused(errno),
    }
}

/// Names that others change while the kernel looks may have to be looked up again.
const LOOKS_MAX: usize = 16;

fn again<T>(mut look: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 1..LOOKS_MAX {
        match look() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return done,
        }
    }
    look()
}

impl AsFd for Beneath {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.root.as_fd()
    }
}

#[cfg(test)]
mod tests;
