//! Directories of this machine, held open, and what is done to the names in them.
//!
//! Whoever copies a tree that others write must not be led elsewhere by a symbolic link that they
//! made: an earlier copy's, or one put there this moment. So below a [`Folder`] none is followed,
//! and each step starts at a descriptor, never at a path that could mean something else by now.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;
use weft_core::{Error, ErrorKind, Result, Time};

use crate::fault;
use crate::local::{self, Tags};

/// An open directory.
pub struct Folder {
    fd: OwnedFd,
    /// As errors call it.
    path: PathBuf,
}

/// What a name stands for: the link itself where it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub sort: Sort,
    /// Permission bits.
    pub mode: u16,
    /// Bytes in it.
    pub size: u64,
    /// When its bytes last changed.
    pub mtime: Time,
    /// Names that it has.
    pub links: u64,
    /// Which file of the machine it is: device and inode.
    pub inode: (u64, u64),
}

/// Sorts of files that a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Bytes.
    File,
    /// Names.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A device or a socket.
    Other,
}

impl Sort {
    pub(crate) fn of_mode(mode: u32) -> Self {
        Self::known(FileType::from_raw_mode(mode)).unwrap_or(Self::Other)
    }

    /// Returns what a kind of file is; `None` if the kernel does not say which it is.
    pub(crate) fn known(kind: FileType) -> Option<Self> {
        Some(match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Unknown => return None,
            _ => Self::Other,
        })
    }
}

impl Folder {
    /// Opens a directory, symbolic links followed: the path is whoever's who typed it.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = rustix::fs::openat(CWD, path, LOOKED_THROUGH, Mode::empty());
        let fd = fd.map_err(|e| fault::error(e.into(), "open", path.display()))?;
        Ok(Self { fd, path: path.to_path_buf() })
    }

    /// Returns the path of a name in it, for people.
    pub fn shown(&self, name: &OsStr) -> PathBuf {
        if self.path == Path::new(".") { PathBuf::from(name) } else { self.path.join(name) }
    }

    /// Opens a directory in it.
    pub fn inside(&self, name: &OsStr) -> Result<Self> {
        let fd = rustix::fs::openat(&self.fd, name, LOOKED_THROUGH | OFlags::NOFOLLOW, Mode::empty());
        let fd = fd.map_err(|e| self.refused(e, "open", name))?;
        Ok(Self { fd, path: self.shown(name) })
    }

    /// Opens a directory some names below.
    pub fn below(&self, names: &Path) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|e| fault::error(e, "open", self.path.display()))?;
        names.iter().try_fold(Self { fd, path: self.path.clone() }, |above, name| above.inside(name))
    }

    /// Makes a directory in it. Returns whether there was none.
    pub fn make(&self, name: &OsStr, mode: u16) -> Result<bool> {
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(u32::from(mode))) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(self.refused(e, "write", name)),
        }
    }

    /// Says what a name stands for; `None` if there is no such name.
    pub fn look(&self, name: &OsStr) -> Result<Option<Seen>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Seen::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.refused(e, "read", name)),
        }
    }

    /// Says what the directory itself is.
    pub fn itself(&self) -> Result<Seen> {
        let stat = rustix::fs::fstat(&self.fd);
        stat.map(|stat| Seen::of(&stat)).map_err(|e| fault::error(e.into(), "read", self.path.display()))
    }

    /// Returns the names in it, in order.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let unreadable = |e: Errno| fault::error(e.into(), "read", self.path.display());
        let fd = self.listed()?;
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_os_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens a regular file to read it. Whatever is put in its place, nobody waits for it.
    pub fn read(&self, name: &OsStr) -> Result<File> {
        let file = self.file(name, OFlags::RDONLY | OFlags::NONBLOCK, "read")?;
        self.regular(file, name, "read")
    }

    /// Opens a regular file to read and write it, and makes it for this user alone if it is not
    /// there.
    pub fn write(&self, name: &OsStr) -> Result<File> {
        let file = self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK, "write")?;
        self.regular(file, name, "write")
    }

    /// Returns whether a name still stands for an open file.
    pub fn holds(&self, name: &OsStr, file: &File) -> Result<bool> {
        let open = file.metadata().map_err(|e| fault::error(e, "look at", self.shown(name).display()))?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok((stat.st_dev, stat.st_ino) == (open.dev(), open.ino())),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.refused(e, "look at", name)),
        }
    }

    /// Returns where a symbolic link leads.
    pub fn target(&self, name: &OsStr) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new());
        target.map(std::ffi::CString::into_bytes).map_err(|e| self.refused(e, "read", name))
    }

    /// Makes a symbolic link. Fails with `Exists` if the name is taken.
    pub fn make_symlink(&self, name: &OsStr, target: &[u8]) -> Result<()> {
        let made = rustix::fs::symlinkat(OsStr::from_bytes(target), &self.fd, name);
        made.map_err(|e| self.refused(e, "write", name))
    }

    /// Puts a symbolic link in the place of another. Fails with `Exists` if something other than a
    /// link has the name by now: that stays. Where the file system cannot exchange two names, one
    /// that takes the name in the moment between a look and the removal does not.
    pub fn replace_symlink(&self, name: &OsStr, target: &[u8]) -> Result<()> {
        let beside = self.symlink_beside(target)?;
        let exchange = || rustix::fs::renameat_with(&self.fd, &beside, &self.fd, name, RenameFlags::EXCHANGE);
        let replaced = match exchange() {
            // What had the name is beside it now, and nobody else knows it there.
            Ok(()) if self.is_symlink(&beside) => Ok(()),
            Ok(()) => exchange()
                .map_err(|e| self.refused(e, "put back", name).hint(self.shown(&beside).display()))
                .and(Err(self.taken(name))),
            Err(Errno::NOENT) => self.make_symlink(name, target),
            Err(Errno::INVAL | Errno::NOSYS) if self.is_symlink(name) => {
                self.remove(name).and_then(|()| self.make_symlink(name, target))
            }
            Err(Errno::INVAL | Errno::NOSYS) => Err(self.taken(name)),
            Err(e) => Err(self.refused(e, "replace", name)),
        };
        // Never anything but a link: what cannot be put back stays where it is.
        if self.is_symlink(&beside) {
            self.remove(&beside)?;
        }
        replaced
    }

    /// Makes a symbolic link under a name that nothing has. Returns the name.
    fn symlink_beside(&self, target: &[u8]) -> Result<OsString> {
        let mut number = 0;
        loop {
            let name = OsString::from(format!(".{}.{number}.weft-link", std::process::id()));
            match self.make_symlink(&name, target) {
                Err(e) if e.kind() == ErrorKind::Exists && number < LINKS_BESIDE_MAX => number += 1,
                made => return made.map(|()| name),
            }
        }
    }

    fn is_symlink(&self, name: &OsStr) -> bool {
        self.look(name).is_ok_and(|seen| seen.is_some_and(|seen| seen.sort == Sort::Symlink))
    }

    fn taken(&self, name: &OsStr) -> Error {
        let error = Error::new(ErrorKind::Exists, "it was a symbolic link, and is none any more");
        error.op("replace").about(self.shown(name).display())
    }

    /// Makes a named pipe. Fails with `Exists` if the name is taken.
    pub fn make_fifo(&self, name: &OsStr, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(u32::from(mode));
        let made = rustix::fs::mknodat(&self.fd, name, FileType::Fifo, mode, 0);
        made.map_err(|e| self.refused(e, "write", name))
    }

    /// Renames within it; what had the new name is replaced.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        let renamed = rustix::fs::renameat(&self.fd, from, &self.fd, to);
        renamed.map_err(|e| self.refused(e, "replace", to))
    }

    /// Removes a name of something other than a directory.
    pub fn remove(&self, name: &OsStr) -> Result<()> {
        let removed = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        removed.map_err(|e| self.refused(e, "remove", name))
    }

    /// Removes a name of an empty directory.
    pub fn remove_directory(&self, name: &OsStr) -> Result<()> {
        let removed = rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
        removed.map_err(|e| self.refused(e, "remove", name))
    }

    /// Gives a file in another directory, or this one, a name here. Fails with `Exists` if it is taken.
    pub fn link(&self, from: &Self, own: &OsStr, name: &OsStr) -> Result<()> {
        let linked = rustix::fs::linkat(&from.fd, own, &self.fd, name, AtFlags::empty());
        linked.map_err(|e| self.refused(e, "write", name))
    }

    /// Brings everything of the file system that it lies in to disk.
    pub fn flush_all(&self) -> Result<()> {
        let flushed = rustix::fs::syncfs(&self.listed()?);
        flushed.map_err(|e| fault::error(e.into(), "flush", self.path.display()))
    }

    /// Returns the directory's own user attributes.
    pub fn tags(&self) -> Result<Tags> {
        local::tags(self.listed()?)
    }

    /// Gives the directory a user attribute, or takes it away.
    pub fn set_tag(&self, own: &[u8], value: Option<&[u8]>) -> Result<()> {
        local::set_tag(self.listed()?, own, value)
    }

    /// Opens it for more than passing through.
    fn listed(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, ".", flags, Mode::empty());
        fd.map_err(|e| fault::error(e.into(), "read", self.path.display()))
    }

    /// Sets the time of what has a name, the link itself where it is one.
    pub fn set_time(&self, name: &OsStr, mtime: Time) -> Result<()> {
        let set = rustix::fs::utimensat(&self.fd, name, &modified(mtime), AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|e| self.refused(e, "write", name))
    }

    /// Sets the directory's own mode and time.
    pub fn set(&self, mode: u16, mtime: Time) -> Result<()> {
        let failed = |e: Errno| fault::error(e.into(), "write", self.path.display());
        rustix::fs::utimensat(&self.fd, ".", &modified(mtime), AtFlags::empty()).map_err(failed)?;
        let mode = Mode::from_raw_mode(u32::from(mode));
        rustix::fs::chmodat(&self.fd, ".", mode, AtFlags::empty()).map_err(failed)
    }

    fn file(&self, name: &OsStr, flags: OFlags, op: &'static str) -> Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.fd.as_fd(), name, flags, Mode::from_raw_mode(0o600));
        opened.map(File::from).map_err(|e| self.refused(e, op, name))
    }

    fn regular(&self, file: File, name: &OsStr, op: &'static str) -> Result<File> {
        let shown = self.shown(name);
        let metadata = file.metadata().map_err(|e| fault::error(e, op, shown.display()))?;
        if metadata.is_file() {
            return Ok(file);
        }
        Err(Error::invalid("it is no regular file").op(op).about(shown.display()))
    }

    /// Says why something was refused: a link on the way by its own name.
    fn refused(&self, errno: Errno, op: &'static str, name: &OsStr) -> Error {
        let shown = self.shown(name);
        let stat = || rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link = || stat().is_ok_and(|stat| Seen::of(&stat).sort == Sort::Symlink);
        if matches!(errno, Errno::LOOP | Errno::NOTDIR) && is_link() {
            let error =
                Error::new(ErrorKind::NotDirectory, "it is a symbolic link, and none is followed there");
            return error.op(op).about(shown.display()).hint("look at where it leads, and remove it");
        }
        fault::error(io::Error::from(errno), op, shown.display())
    }
}

/// Returns a time of change to set, and none of reading.
fn modified(mtime: Time) -> Timestamps {
    let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let mtime = Timespec { tv_sec: mtime.seconds(), tv_nsec: i64::from(mtime.subsec_nanos()) };
    Timestamps { last_access: kept, last_modification: mtime }
}

/// Links left by copies that were killed which a name beside another passes by.
const LINKS_BESIDE_MAX: u32 = 1000;

/// No right to list it is needed for what is only passed through.
const LOOKED_THROUGH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Seen {
    fn of(stat: &Stat) -> Self {
        let sort = Sort::of_mode(stat.st_mode);
        let mtime = Time::from_unix(stat.st_mtime, stat.st_mtime_nsec as u32);
        let (mode, size) = ((stat.st_mode & 0o7777) as u16, stat.st_size as u64);
        #[allow(clippy::useless_conversion, reason = "narrower on some machines")]
        let links = u64::from(stat.st_nlink);
        Self { sort, mode, size, mtime, links, inode: (stat.st_dev, stat.st_ino) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn below_a_folder_no_link_is_followed_and_the_error_names_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (top, away) = (dir.path().join("top"), dir.path().join("away"));
        for made in [&top, &away] {
            std::fs::create_dir(made).expect("made");
        }
        std::fs::write(away.join("secret"), "secret").expect("written");
        symlink(&away, top.join("link")).expect("made");
        symlink(away.join("secret"), top.join("file")).expect("made");
        let folder = Folder::open(&top).expect("it is there");
        for refused in [
            folder.inside(name("link")).map(drop),
            folder.below(Path::new("link/deeper")).map(drop),
            folder.read(name("file")).map(drop),
            folder.write(name("file")).map(drop),
        ] {
            let error = refused.expect_err("a link was followed");
            let text = error.to_string();
            assert!(text.contains("symbolic link") && text.contains("/top/"), "{text}");
        }
        assert_eq!(folder.look(name("link")).expect("seen").map(|seen| seen.sort), Some(Sort::Symlink));
        // What was typed may be one.
        symlink(&top, dir.path().join("typed")).expect("made");
        let typed = Folder::open(&dir.path().join("typed")).expect("it is there");
        assert_eq!(typed.names().expect("listed"), ["file", "link"]);
    }

    #[test]
    fn a_pipe_where_a_file_was_is_refused_and_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::open(dir.path()).expect("it is there");
        folder.make_fifo(name("pipe"), 0o600).expect("made");
        assert!(folder.read(name("pipe")).is_err() && folder.write(name("pipe")).is_err());
        assert_eq!(folder.make_fifo(name("pipe"), 0o600).expect_err("taken").kind(), ErrorKind::Exists);
    }

    #[test]
    fn a_name_that_was_given_to_another_file_no_longer_holds_the_first() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::open(dir.path()).expect("it is there");
        let first = folder.write(name("a")).expect("made");
        assert!(folder.holds(name("a"), &first).expect("seen"));
        folder.rename(name("a"), name("b")).expect("renamed");
        assert!(!folder.holds(name("a"), &first).expect("seen"));
        folder.write(name("a")).expect("made");
        assert!(!folder.holds(name("a"), &first).expect("seen"));
    }

    #[test]
    fn a_link_takes_the_place_of_a_link_and_of_nothing_that_came_there_meanwhile() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::open(dir.path()).expect("it is there");
        folder.make_symlink(name("link"), b"old").expect("made");
        folder.replace_symlink(name("link"), b"new").expect("replaced");
        assert_eq!(folder.target(name("link")).expect("a link"), b"new");
        std::fs::write(dir.path().join("file"), "theirs").expect("written");
        folder.make(name("dir"), 0o700).expect("made");
        folder.make_fifo(name("pipe"), 0o600).expect("made");
        for taken in ["file", "dir", "pipe"] {
            let before = folder.look(name(taken)).expect("seen");
            let refused = folder.replace_symlink(name(taken), b"new");
            assert_eq!(refused.expect_err("it is no link").kind(), ErrorKind::Exists);
            assert_eq!(folder.look(name(taken)).expect("seen"), before);
        }
        assert_eq!(std::fs::read(dir.path().join("file")).expect("it is there"), b"theirs");
        folder.replace_symlink(name("gone"), b"new").expect("made");
        assert_eq!(folder.names().expect("listed"), ["dir", "file", "gone", "link", "pipe"]);
    }

    #[test]
    fn a_folders_own_mode_and_time_are_set_below_a_millisecond_and_before_1970() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::open(dir.path()).expect("it is there");
        assert!(folder.make(name("d"), 0o700).expect("made"));
        assert!(!folder.make(name("d"), 0o700).expect("there"));
        let inside = folder.inside(name("d")).expect("opened");
        for time in [Time::from_unix(7, 5), Time::from_unix(-7, 5)] {
            inside.set(0o750, time).expect("set");
            let seen = inside.itself().expect("seen");
            assert_eq!((seen.sort, seen.mode, seen.mtime), (Sort::Directory, 0o750, time));
        }
    }
}
