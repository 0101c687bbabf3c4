//! Mounts, each a process of its own, and system calls of the one user that may see it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, FlockOperation, Mode, Timespec, Timestamps, UTIME_NOW, access, flock,
    llistxattr, mknodat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Signal, Uid, geteuid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::world::Person;
use super::{Answers, Cell};
use crate::node::{NOBODY, Node, signal, wait};

/// Debian's `daemon`: a user that the node does not know, and `fusermount3` does.
const UNKNOWN: u32 = 1;

/// A mount in somebody's name.
pub struct Mount {
    at: PathBuf,
    user: u32,
    process: Child,
}

/// A mount, or the answer to everything where it is refused.
pub type Started = Result<Mount, String>;

impl Mount {
    /// Mounts the root; if that is refused, returns the answer to everything.
    pub fn start(node: &Node, who: &Person) -> Started {
        let at = node.make_dir(&format!("mount-{}", who.id));
        let mut command = node.command();
        command.args(["mount", "/"]).arg(&at).stdout(Stdio::piped());
        command.stderr(File::create(at.with_extension("log")).expect("a log"));
        let mut user = NOBODY;
        match &who.token {
            Some(token) => _ = command.env("BEARER_TOKEN", token),
            None => {
                use std::os::unix::process::CommandExt;
                user = UNKNOWN;
                chown(&at, Some(user), Some(user)).expect("the tests are root");
                command.uid(user).gid(user);
            }
        }
        let mut process = command.spawn().expect("it starts");
        let mut line = String::new();
        let out = process.stdout.take().expect("it is a pipe");
        BufReader::new(out).read_line(&mut line).expect("it can be read");
        if line == "ready\n" {
            return Ok(Self { at, user, process });
        }
        let log = fs::read_to_string(at.with_extension("log")).unwrap_or_default();
        match wait(&mut process).code() {
            // What the style page says of exit codes: 3 is denied.
            Some(3) if !log.contains("fusermount3") => Err("denied".to_owned()),
            code => Err(format!("mount-exit-{code:?}:{log}")),
        }
    }

    /// Asks things as the user whose mount it is.
    pub fn ask(&self, cells: &[Cell]) -> Answers {
        let ask = || {
            if geteuid().is_root() {
                let (uid, gid) = (Uid::from_raw(self.user), Gid::from_raw(self.user));
                set_thread_res_gid(gid, gid, gid).expect("root may");
                set_thread_res_uid(uid, uid, uid).expect("root may");
            }
            cells.iter().map(|cell| (*cell, answer(&self.at, cell))).collect()
        };
        std::thread::scope(|scope| scope.spawn(ask).join()).expect("it does not panic")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        signal(&self.process, Signal::TERM);
        wait(&mut self.process);
    }
}

/// Returns whether a mount can be had in the name of a caller: nobody's needs a user that the
/// node does not know.
pub fn can_be(cell: &Cell) -> bool {
    cell.caller != "anyone" || geteuid().is_root()
}

/// Returns whether some system call asks this.
pub fn offers(cell: &Cell) -> bool {
    // Below what is no directory nothing happens.
    act(Path::new("/dev/null"), cell).is_some()
}

fn answer(root: &Path, cell: &Cell) -> String {
    let Some(outcome) = act(root, cell) else { return "not-offered".to_owned() };
    let Err(error) = outcome else { return "allowed".to_owned() };
    match Errno::from_io_error(&error) {
        Some(Errno::ACCESS) => "denied".to_owned(),
        Some(Errno::NOENT) => "not-found".to_owned(),
        Some(Errno::KEYREVOKED) => "revoked".to_owned(),
        Some(Errno::KEYEXPIRED) => "expired".to_owned(),
        _ => error.to_string(),
    }
}

fn act(root: &Path, cell: &Cell) -> Option<io::Result<()>> {
    let below = |path: String| root.join(&path[1..]);
    let (thing, spare, new) = (below(cell.thing()), below(cell.spare()), below(cell.new_thing()));
    Some(match (cell.right, cell.kind) {
        ("read", "file" | "small" | "symlink") => {
            File::open(&thing).and_then(|mut file| file.read(&mut [0; 8]).map(drop))
        }
        ("write", "file" | "small" | "symlink") => write(File::options().write(true).open(&thing)),
        ("append", "file" | "small" | "symlink") => write(File::options().append(true).open(&thing)),
        ("execute", "file" | "small" | "symlink") => may(&thing, Access::EXEC_OK),
        ("read", "fifo") => may(&thing, Access::READ_OK),
        ("write", "fifo") => may(&thing, Access::WRITE_OK),
        ("list", "directory") => {
            fs::read_dir(&thing).and_then(|mut names| names.try_for_each(|name| name.map(drop)))
        }
        ("traverse", _) => fs::symlink_metadata(&thing).map(drop),
        ("insert", "file" | "small") => make(&new, FileType::RegularFile),
        ("insert", "fifo") => make(&new, FileType::Fifo),
        ("insert", "directory") => fs::create_dir(&new),
        ("insert", "symlink") => symlink("file", &new),
        ("remove", "directory") => fs::remove_dir(&spare),
        ("remove", _) => fs::remove_file(&spare),
        ("rename", _) => fs::rename(&spare, &new),
        ("lock", "file" | "small" | "symlink") => {
            File::open(&thing).and_then(|file| Ok(flock(file, FlockOperation::NonBlockingLockShared)?))
        }
        ("attr-read", _) => llistxattr(&thing, &mut [0; 256][..]).map(drop).map_err(Into::into),
        ("attr-write", _) => touch(&thing),
        _ => return None,
    })
}

fn write(file: io::Result<File>) -> io::Result<()> {
    file.and_then(|mut file| file.write_all(b"mount"))
}

fn may(path: &Path, how: Access) -> io::Result<()> {
    Ok(access(path, how)?)
}

fn make(path: &Path, kind: FileType) -> io::Result<()> {
    Ok(mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), 0)?)
}

/// Sets the times of the thing itself, also of a link.
fn touch(path: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
