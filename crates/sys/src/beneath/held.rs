//! Something that was found, held by a descriptor that opens nothing.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timespec,
    Timestamps, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;
use weft_core::{Error, ErrorKind, Result, Time};

use super::{generations, handle, refused};
use crate::disk::RealFile;
use crate::folder::Sort;

/// What a path led to.
pub struct Held(OwnedFd);

/// What the machine knows of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number.
    pub inode: u64,
    /// Tells it from earlier ones of that number.
    pub generation: u32,
    /// What it is.
    pub sort: Sort,
    /// Permission bits: 12.
    pub mode: u16,
    /// How many names it has.
    pub links: u32,
    /// Whose it is.
    pub uid: u32,
    /// And of which group.
    pub gid: u32,
    /// Bytes in it.
    pub size: u64,
    /// Bytes of the disk it takes.
    pub used: u64,
    /// When it was last read.
    pub atime: Time,
    /// When its bytes or names last changed.
    pub mtime: Time,
    /// When anything of it last changed.
    pub ctime: Time,
    /// When it was made, if the file system says.
    pub btime: Option<Time>,
    /// Whether something else is mounted over it.
    pub is_mount: bool,
}

/// As much of one extended attribute's value, or of the list of names, as the kernel has.
const TAG_BYTES_MAX: usize = 64 << 10;

impl Held {
    pub(super) fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// A path to this very inode, wherever its names lead by now.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Returns what the machine knows of it.
    pub fn facts(&self) -> Result<Facts> {
        facts(&self.0, c"", AtFlags::EMPTY_PATH).map_err(refused)
    }

    /// Opens a regular file, or `Invalid`: a device would act, and a pipe wait, when it is opened.
    pub fn open(&self, write: bool) -> Result<Arc<RealFile>> {
        let stat = fs::fstat(&self.0).map_err(refused)?;
        self.open_sort(Sort::of_mode(stat.st_mode), write)
    }

    /// Opens it likewise, once its facts are known: what an inode is never changes.
    pub fn open_known(&self, facts: &Facts, write: bool) -> Result<Arc<RealFile>> {
        self.open_sort(facts.sort, write)
    }

    fn open_sort(&self, sort: Sort, write: bool) -> Result<Arc<RealFile>> {
        match sort {
            Sort::File => {}
            Sort::Directory => return Err(Error::new(ErrorKind::IsDirectory, "it is a directory")),
            _ => return Err(Error::invalid("it has no bytes of its own")),
        }
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match fs::openat(CWD, self.path(), flags, Mode::empty()) {
            // Whoever may write may not read, sometimes: appending needs no reading.
            Err(Errno::ACCESS) if write => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                fs::openat(CWD, self.path(), flags, Mode::empty())
            }
            opened => opened,
        };
        Ok(Arc::new(RealFile::of(opened.map_err(refused)?)))
    }

    /// Opens a directory to list or flush it.
    pub(super) fn open_directory(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::openat(&self.0, ".", flags | OFlags::NOFOLLOW, Mode::empty()) {
            // Who may read a directory and not search it lists it all the same, and `.` is searched for.
            Err(Errno::ACCESS) => fs::openat(CWD, self.path(), flags, Mode::empty()),
            opened => opened,
        }
    }

    /// Brings a directory's names to disk.
    pub fn flush_names(&self) -> Result<()> {
        let opened = self.open_directory().map_err(refused)?;
        fs::fsync(&opened).map_err(refused)
    }

    /// Brings a regular file's bytes and attributes to disk; of other kinds there are none to bring.
    pub fn flush(&self) -> Result<()> {
        let stat = fs::fstat(&self.0).map_err(refused)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return self.flush_names(),
            _ => return Ok(()),
        }
        let file = match self.open(false) {
            Err(error) if error.kind() == ErrorKind::Denied => self.open(true)?,
            file => file?,
        };
        file.flush()
    }

    /// Brings everything of the file system to disk that a directory lies on.
    pub fn flush_all(&self) -> Result<()> {
        let stat = fs::fstat(&self.0).map_err(refused)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return self.flush();
        }
        fs::syncfs(self.open_directory().map_err(refused)?).map_err(refused)
    }

    /// Returns what the machine knows of what a name in a directory stands for; `None` if it is gone. Where looking
    /// `stalls` anyway ([`Beneath::may_stall`](super::Beneath::may_stall)) the file system is asked anew. Elsewhere
    /// nobody waits, for what is mounted on the name either: it may never answer.
    pub fn look(&self, name: &[u8], stalls: bool) -> Result<Option<Facts>> {
        let name = CString::new(name).map_err(|_| Error::invalid("a name contains NUL"))?;
        facts_of_name(&self.0, &name, stalls)
    }

    /// Returns where a symbolic link leads.
    pub fn target(&self) -> Result<Vec<u8>> {
        let target = fs::readlinkat(&self.0, c"", Vec::new()).map_err(refused)?;
        Ok(target.into_bytes())
    }

    /// Returns whether the process may read, write or search it, by what `access` (4, 2, 1) asks.
    pub fn may(&self, access: u16) -> bool {
        let access = fs::Access::from_bits_truncate(u32::from(access));
        fs::accessat(CWD, self.path(), access, AtFlags::EACCESS).is_ok()
    }

    /// Sets the permission bits. Not of a symbolic link, which has none: `Unsupported`.
    pub fn set_mode(&self, mode: u16) -> Result<()> {
        self.must_not_be_a_link()?;
        fs::chmodat(CWD, self.path(), Mode::from_raw_mode(u32::from(mode)), AtFlags::empty()).map_err(refused)
    }

    /// Gives it to a user and a group of the machine.
    pub fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
        fs::chownat(&self.0, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH).map_err(refused)
    }

    /// Returns where it lies below a directory now, as far as the machine says: to be looked at, not to
    /// be believed. None if it is not there, or has no name.
    pub fn path_below(&self, directory: &std::path::Path) -> Option<Vec<u8>> {
        let now = fs::readlinkat(CWD, self.path(), Vec::new()).ok()?.into_bytes();
        let rest = now.strip_prefix(directory.as_os_str().as_bytes())?;
        rest.strip_prefix(b"/").map(<[u8]>::to_vec)
    }

    /// Sets the time of last reading and of last change; what is `None` stays.
    pub fn set_times(&self, read: Option<Time>, changed: Option<Time>) -> Result<()> {
        let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let spec = |time: Option<Time>| {
            time.map_or(kept, |time| Timespec {
                tv_sec: time.seconds(),
                tv_nsec: i64::from(time.subsec_nanos()),
            })
        };
        let times = Timestamps { last_access: spec(read), last_modification: spec(changed) };
        fs::utimensat(&self.0, c"", &times, AtFlags::EMPTY_PATH).map_err(refused)
    }

    /// Returns the names of its extended attributes, sorted, once its facts are known. A file system without
    /// any has none.
    pub fn tags(&self, facts: &Facts) -> Result<Vec<Vec<u8>>> {
        if facts.sort == Sort::Symlink {
            return Err(followed());
        }
        // Nearly all that is asked has none, or few.
        let (path, mut few) = (self.path(), [0; 256]);
        let mut names = match fs::listxattr(&path, &mut few[..]) {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            Err(Errno::RANGE) => {
                let mut many = vec![0; TAG_BYTES_MAX];
                let length = fs::listxattr(&path, &mut many[..]).map_err(refused)?;
                names_in(&many[..length])
            }
            length => names_in(&few[..length.map_err(refused)?]),
        };
        names.sort_unstable();
        Ok(names)
    }

    /// Returns an extended attribute; `None` if there is none of that name.
    pub fn tag(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.must_not_be_a_link()?;
        let mut value = vec![0; TAG_BYTES_MAX];
        match fs::getxattr(self.path(), OsStr::from_bytes(name), &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                Ok(Some(value))
            }
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(refused(errno)),
        }
    }

    /// Returns whether more than mode bits say who may do what with it; also where that cannot be told.
    pub fn has_acl(&self) -> bool {
        const ACLS: [&str; 3] = ["system.posix_acl_access", "system.nfs4_acl", "system.richacl"];
        let path = self.path();
        let there = |name: &&str| match fs::getxattr(&path, *name, &mut [0_u8; 0][..]) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
            Ok(_) | Err(_) => true,
        };
        // A symbolic link has none, and would be followed.
        self.must_not_be_a_link().is_ok() && ACLS.iter().any(there)
    }

    /// Gives it an extended attribute, or takes one away. `NoAttribute` if that is not there.
    pub fn set_tag(&self, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.must_not_be_a_link()?;
        let name = OsStr::from_bytes(name);
        match value {
            Some(value) => fs::setxattr(self.path(), name, value, XattrFlags::empty()),
            None => fs::removexattr(self.path(), name),
        }
        .map_err(refused)
    }

    /// Through the path of a descriptor a symbolic link would be followed.
    fn must_not_be_a_link(&self) -> Result<()> {
        let stat = fs::fstat(&self.0).map_err(refused)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(followed());
        }
        Ok(())
    }
}

fn followed() -> Error {
    Error::new(ErrorKind::Unsupported, "a symbolic link of the machine has none of its own")
}

fn names_in(list: &[u8]) -> Vec<Vec<u8>> {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Looks at a name as [`Held::look`] does. Local file systems have in memory what there is to be told.
pub(super) fn facts_of_name(dir: impl AsFd, name: &CStr, stalls: bool) -> Result<Option<Facts>> {
    match facts(dir, name, if stalls { AtFlags::empty() } else { AtFlags::STATX_DONT_SYNC }) {
        Ok(facts) => Ok(Some(facts)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refused(errno)),
    }
}

fn facts(dir: impl AsFd, name: &CStr, flags: AtFlags) -> rustix::io::Result<Facts> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = fs::statx(&dir, name, flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, wanted)?;
    let has_btime = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let btime = has_btime.then_some(stat.stx_btime);
    // Its handle would be asked of what is mounted there.
    if flags.contains(AtFlags::STATX_DONT_SYNC) && stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(Facts::of(&stat, 0, btime));
    }
    let ask = || handle::generation(dir, name, stat.stx_ino, btime);
    let generation = generations::generation(&stat, btime, ask)?;
    Ok(Facts::of(&stat, generation, btime))
}

impl Facts {
    fn of(stat: &Statx, generation: u32, btime: Option<StatxTimestamp>) -> Self {
        let time = |time: StatxTimestamp| Time::from_unix(time.tv_sec, time.tv_nsec);
        Self {
            inode: stat.stx_ino,
            generation,
            sort: Sort::of_mode(u32::from(stat.stx_mode)),
            mode: stat.stx_mode & 0o7777,
            links: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            used: stat.stx_blocks.saturating_mul(512),
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            btime: btime.map(time),
            is_mount: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        }
    }

    /// Returns whether two looks saw the same inode.
    pub fn is_same_inode(&self, other: &Self) -> bool {
        (self.inode, self.generation) == (other.inode, other.generation)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.0.as_raw_fd())
    }
}
