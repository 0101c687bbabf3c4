//! `/dev/fuse`: the requests of one mount, and their answers.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes};
use rustix::io::Errno;
use weft_core::Result;

use crate::abi::{OUT_HEADER_BYTES, notify};
use crate::fusermount;
use crate::mounter::{self, Mounter};
use crate::pipes::Piped;

/// The kernel's end of one mount.
pub(crate) struct Device {
    fd: OwnedFd,
    mountpoint: PathBuf,
}

/// What came of waiting for a request.
pub(crate) enum Received {
    /// One request of so many bytes.
    Request(usize),
    /// The mount is gone.
    Ended,
}

impl Device {
    /// Mounts at a directory. `name` stands in the first column of the mount table, unless a helper has it
    /// say something else. A helper decides itself whether it is shared.
    ///
    /// Fails with `NotFound` or `NotDirectory` for the directory, `Unavailable` without
    /// `fusermount3`, or if the helper did not mount, `NotPermitted` where it is refused.
    pub(crate) fn mount(mountpoint: &Path, name: &str, mounter: Mounter, shared: bool) -> Result<Self> {
        match mounter {
            Mounter::Fusermount(without) => {
                let (fd, mountpoint) = fusermount::mount(mountpoint, name, without, shared)?;
                Ok(Self::of(fd, mountpoint))
            }
            Mounter::Helper(helper) => {
                let fd = mounter::ask(&helper, mountpoint)?;
                Ok(Self::of(fd, mountpoint.to_owned()))
            }
            Mounter::Taken(taken) => Ok(Self::of(taken.device, mountpoint.to_owned())),
        }
    }

    /// Takes up a mount that stands.
    pub(crate) fn of(fd: OwnedFd, mountpoint: PathBuf) -> Self {
        Self { fd, mountpoint }
    }

    /// Returns the kernel's end.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns where it is mounted.
    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Waits for the next request. `buffer` has room for the largest.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(size) => return Received::Request(size),
                // An interrupted wait, or a request that was given up before it was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Received::Ended,
                Err(error) => {
                    tracing::error!(op = "read /dev/fuse", %error, "the mount cannot be served any more");
                    return Received::Ended;
                }
            }
        }
    }

    /// Answers a request. Returns whether the kernel still waited for it.
    pub(crate) fn answer(&self, unique: u64, answer: std::result::Result<(&[u8], &[Bytes]), Errno>) -> bool {
        let (head, pieces, errno) = match answer {
            Ok((head, pieces)) => (head, pieces, 0),
            Err(errno) => (&[][..], &[][..], -errno.raw_os_error()),
        };
        let length = OUT_HEADER_BYTES + head.len() + pieces.iter().map(Bytes::len).sum::<usize>();
        let header = out_header(length, errno, unique);
        let mut parts = Vec::with_capacity(2 + pieces.len());
        parts.push(IoSlice::new(&header));
        parts.extend([head].into_iter().chain(pieces.iter().map(|piece| &piece[..])).map(IoSlice::new));
        let sent = self.send(&parts);
        self.is_taken(unique, sent)
    }

    /// Answers a request with what lies in a pipe. Returns whether the kernel still waited for it.
    pub(crate) fn answer_piped(&self, unique: u64, piped: Piped) -> bool {
        let sent = piped.send(self.fd.as_fd());
        self.is_taken(unique, sent)
    }

    fn is_taken(&self, unique: u64, sent: std::result::Result<(), Errno>) -> bool {
        match sent {
            Ok(()) => true,
            // Given up, or unmounted.
            Err(Errno::NOENT | Errno::NODEV) => false,
            Err(error) => {
                tracing::error!(op = "write /dev/fuse", %error, "the kernel did not take an answer");
                // Whoever asked waits for one.
                let header = out_header(OUT_HEADER_BYTES, -Errno::IO.raw_os_error(), unique);
                let _ = self.send(&[IoSlice::new(&header)]);
                false
            }
        }
    }

    /// Tells the kernel that attributes of a node and, from a byte on, its pages may
    /// differ from what it keeps; only the attributes if no byte is named. May wait for
    /// reads of the node that are under way. Returns whether it knows the node: one that it was not answered with yet, it does not.
    pub(crate) fn expire_node(&self, node: u64, pages_from: Option<u64>) -> bool {
        let mut body = Vec::with_capacity(24);
        body.put_u64_ne(node);
        body.put_i64_ne(pages_from.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX)));
        body.put_i64_ne(0);
        self.tell(notify::INVAL_INODE, &body)
    }

    /// Tells the kernel that a name may mean something else now. May wait for changes
    /// of the directory that are under way: never call it while answering one.
    pub(crate) fn expire_name(&self, directory: u64, name: &[u8]) {
        let mut body = Vec::with_capacity(17 + name.len());
        body.put_u64_ne(directory);
        body.put_u32_ne(name.len() as u32);
        body.put_u32_ne(0);
        body.put_slice(name);
        body.put_u8(0);
        self.tell(notify::INVAL_ENTRY, &body);
    }

    /// Has the kernel send again whatever was read and not answered. Nobody may be reading: what is being answered just now
    /// would be sent again as well. Returns whether it does: if not, those who asked would wait for ever.
    pub(crate) fn resend(&self) -> bool {
        let header = out_header(OUT_HEADER_BYTES, notify::RESEND, 0);
        match self.send(&[IoSlice::new(&header)]) {
            // Unmounted meanwhile: nobody waits.
            Ok(()) | Err(Errno::NODEV) => true,
            Err(error) => {
                tracing::error!(op = "notify", %error, "the kernel does not send again what was asked");
                false
            }
        }
    }

    /// Notifies the kernel. Returns whether it knows what it was told of.
    fn tell(&self, what: i32, body: &[u8]) -> bool {
        let header = out_header(OUT_HEADER_BYTES + body.len(), what, 0);
        let told = self.send(&[IoSlice::new(&header), IoSlice::new(body)]);
        // `ENOENT` says that the kernel keeps nothing of it, or does not yet.
        if let Err(error) = told
            && !matches!(error, Errno::NOENT | Errno::NODEV | Errno::NOTDIR)
        {
            tracing::warn!(op = "notify", what, %error, "the kernel did not take a notification");
        }
        told != Err(Errno::NOENT)
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> std::result::Result<(), Errno> {
        loop {
            match rustix::io::writev(&self.fd, parts) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }
}

/// Returns what an answer begins with: how long it is with this, what became of the request, and which it was.
pub(crate) fn out_header(length: usize, errno: i32, unique: u64) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&(length as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&errno.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}
