//! Who mounts: `fusermount3`, or a helper of mount(8), which is root and hands the mount over to a process
//! that is not.
//!
//! ```text
//!  helper (root)                          process (the mount's user)
//!        │◀──────────── a byte ──────────────│   all is ready but the mount
//!   mount(2)                                 │
//!        ├──────── the descriptor ──────────▶│   serves it
//! ```
//!
//! The process never looks at the mountpoint before something is mounted there: an automount would wait for the
//! mount, and the mount for the process. The helper may: it is of the group of processes that the automount lets through.

use std::ffi::{CString, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use weft_core::{Error, ErrorKind, Result};
use weft_sys::handing;

use crate::takeover::Taken;

/// Who mounts.
pub enum Mounter {
    /// `fusermount3`, for whoever runs this, at a directory of theirs.
    Fusermount(Without),
    /// Whoever is at the other end of this socket, by [`Handover`].
    Helper(UnixStream),
    /// Nobody any more: it stands, and the process that served it has died.
    Taken(Taken),
}

/// What nobody can do on a mount, whatever the tree would let them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Change anything.
    pub writing: bool,
    /// Run programs that lie there.
    pub programs: bool,
}

impl Without {
    /// Returns it as `fusermount3` is told.
    pub(crate) fn words(self) -> &'static str {
        match (self.writing, self.programs) {
            (false, false) => "",
            (true, false) => ",ro",
            (false, true) => ",noexec",
            (true, true) => ",ro,noexec",
        }
    }

    fn flags(self) -> MountFlags {
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        flags.set(MountFlags::RDONLY, self.writing);
        flags.set(MountFlags::NOEXEC, self.programs);
        flags
    }
}

/// A mount that root makes for somebody else, whose process serves it.
pub struct Handover {
    /// Where: an absolute path without links.
    pub mountpoint: PathBuf,
    /// What stands in the mount table's first column.
    pub source: OsString,
    /// Who serves it, and sees into it.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// What cannot be done there.
    pub without: Without,
    /// Whether other users see into it as well.
    pub shared: bool,
}

impl Handover {
    /// Waits until the process at the other end asks, mounts, and hands the mount over. Returns whether it
    /// asked: a process that ended before did not.
    ///
    /// `NotPermitted` for who is not root, `Unavailable` without `/dev/fuse`.
    pub fn serve(&self, mut process: &UnixStream) -> Result<bool> {
        if process.read(&mut [0]).map_err(|error| lost(error, "the process does not ask"))? == 0 {
            return Ok(false);
        }
        let failed = |error: Errno| {
            let kind = match error {
                Errno::PERM | Errno::ACCESS => ErrorKind::NotPermitted,
                Errno::NOENT => ErrorKind::NotFound,
                _ => ErrorKind::Unavailable,
            };
            Error::new(kind, "the kernel does not mount it").caused_by(error)
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "/dev/fuse cannot be opened").caused_by(error)
        })?;
        self.mount(&device).map_err(|error| failed(error).op("mount").about(self.mountpoint.display()))?;
        match handing::send(process, &[0], &[device.as_fd()]) {
            Ok(()) => Ok(true),
            Err(error) => self.take_back().and(Err(lost(error, "the process does not take it"))),
        }
    }

    fn mount(&self, device: &OwnedFd) -> std::result::Result<(), Errno> {
        use std::os::fd::AsRawFd;
        let (fd, uid, gid) = (device.as_raw_fd(), self.uid, self.gid);
        let others = if self.shared { ",allow_other" } else { "" };
        // The root's mode is a directory's, whatever else it comes to be.
        let words = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid}{others}");
        let words = CString::new(words).expect("numbers and words hold no NUL");
        rustix::mount::mount(
            &self.source,
            &self.mountpoint,
            "fuse.weft",
            self.without.flags(),
            words.as_c_str(),
        )
    }

    /// Takes the mount away again, of a process that did not get ready.
    pub fn take_back(&self) -> Result<()> {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(&self.mountpoint, flags).map_err(|error| {
            let error = Error::new(ErrorKind::Unavailable, "it stays").caused_by(error);
            error.op("unmount").about(self.mountpoint.display())
        })
    }
}

fn lost(error: std::io::Error, detail: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, detail).caused_by(error)
}

/// Asks whoever mounts for the mount.
pub(crate) fn ask(mut helper: &UnixStream, mountpoint: &Path) -> Result<OwnedFd> {
    let refused = || {
        let error = Error::new(ErrorKind::Unavailable, "who was to mount it did not");
        error.op("mount").about(mountpoint.display())
    };
    helper.write_all(&[0]).map_err(|error| refused().caused_by(error))?;
    receive(helper).ok_or_else(refused)
}

/// Takes the descriptor that whoever mounts sends once it has; `None` if it ended without.
pub(crate) fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    handing::receive(socket, &mut [0], false).ok()?.1.into_iter().next()
}
