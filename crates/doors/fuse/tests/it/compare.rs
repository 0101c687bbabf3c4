//! Random system calls on the mount and on a directory of the kernel's own tmpfs: the
//! same results, the same error numbers, the same tree at the end.
//!
//! Where the two may differ by design, the calls are chosen so that they do not: every
//! mode leaves the owner its rights (mode bits narrow for root too), and sizes of
//! directories are not compared.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::{Errno, ReadWriteFlags};

use crate::bed::{Bed, can_mount};

/// Files open at once in one run.
const SLOTS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Mkdir(Spot, u32),
    Rmdir(Spot),
    Open { spot: Spot, flags: u32, mode: u32, slot: usize },
    Close(usize),
    Write { slot: usize, at: u64, length: usize, byte: u8 },
    Append { slot: usize, length: usize, byte: u8 },
    Read { slot: usize, at: u64, length: usize },
    Truncate(Spot, u64),
    FileTruncate(usize, u64),
    Unlink(Spot),
    Rename(Spot, Spot, u32),
    Link(Spot, Spot),
    Symlink(&'static str, Spot),
    ReadLink(Spot),
    Stat(Spot, bool),
    FileStat(usize),
    Chmod(Spot, u32),
    FileChmod(usize, u32),
    SetTimes(Spot, i64, i64),
    List(Spot),
    Allocate { slot: usize, mode: u32, at: u64, length: u64 },
    Copy { from: usize, at: u64, to: usize, to_at: u64, length: usize },
    Access(Spot, u32),
    SetTag(Spot, &'static str, u8, u32),
    GetTag(Spot, &'static str),
    RemoveTag(Spot, &'static str),
    Fifo(Spot),
    Sync(usize),
}

/// A path below the directory under test.
type Spot = &'static str;

fn spot() -> impl Strategy<Value = Spot> {
    prop::sample::select(vec![
        "a",
        "b",
        "c",
        "d",
        "d/a",
        "d/b",
        "d/e",
        "d/e/a",
        "a/x",
        "b/",
        "d/",
        "d/.",
        "d/..",
        "d/../a",
        ".",
        "link",
        "link/a",
        "\u{fffd}\n ",
    ])
}

fn mode(base: u32) -> impl Strategy<Value = u32> {
    // Root may run what anybody may run; here the owner's bit says so.
    let run = |mode: u32| if mode & 0o11 != 0 { mode | 0o100 } else { mode };
    (0..0o100_u32).prop_map(move |low| run(base | low))
}

fn op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let at = || prop_oneof![0..200_u64, 4000..9000_u64, 120_000..140_000_u64];
    let length = || prop_oneof![0..300_usize, 4000..9000_usize, 60_000..140_000_usize];
    let flags = || {
        let flags = (0..3_u32, any::<[bool; 5]>());
        flags.prop_map(|(access, [create, exclusive, truncate, append, directory])| {
            let mut flags = OFlags::from_bits_retain(access);
            flags.set(OFlags::CREATE, create);
            flags.set(OFlags::EXCL, exclusive && create);
            flags.set(OFlags::TRUNC, truncate);
            flags.set(OFlags::APPEND, append);
            flags.set(OFlags::DIRECTORY, directory && !create && !truncate);
            flags.bits()
        })
    };
    let modes = || prop::sample::select(vec![0_u32, 1, 3, 2, 8]);
    let tag = || prop::sample::select(vec!["user.a", "user.b", "user.", "weft.a"]);
    prop_oneof![
        3 => (spot(), mode(0o700)).prop_map(|(s, m)| Op::Mkdir(s, m)),
        2 => spot().prop_map(Op::Rmdir),
        9 => (spot(), flags(), mode(0o600), slot()).prop_map(|(spot, flags, mode, slot)| Op::Open { spot, flags, mode, slot }),
        2 => slot().prop_map(Op::Close),
        6 => (slot(), at(), length(), any::<u8>()).prop_map(|(slot, at, length, byte)| Op::Write { slot, at, length, byte }),
        3 => (slot(), length(), any::<u8>()).prop_map(|(slot, length, byte)| Op::Append { slot, length, byte }),
        6 => (slot(), at(), length()).prop_map(|(slot, at, length)| Op::Read { slot, at, length }),
        2 => (spot(), at()).prop_map(|(s, at)| Op::Truncate(s, at)),
        3 => (slot(), at()).prop_map(|(s, at)| Op::FileTruncate(s, at)),
        4 => spot().prop_map(Op::Unlink),
        6 => (spot(), spot(), 0..4_u32).prop_map(|(a, b, f)| Op::Rename(a, b, f)),
        3 => (spot(), spot()).prop_map(|(a, b)| Op::Link(a, b)),
        2 => (prop::sample::select(vec!["d", "a", "nowhere", "../x", "link"]), spot()).prop_map(|(t, s)| Op::Symlink(t, s)),
        1 => spot().prop_map(Op::ReadLink),
        5 => (spot(), any::<bool>()).prop_map(|(s, follow)| Op::Stat(s, follow)),
        4 => slot().prop_map(Op::FileStat),
        2 => (spot(), mode(0o700)).prop_map(|(s, m)| Op::Chmod(s, m)),
        1 => (slot(), mode(0o600)).prop_map(|(s, m)| Op::FileChmod(s, m)),
        2 => (spot(), 0..2_000_000_000_i64, 0..1_000_000_000_i64).prop_map(|(s, a, b)| Op::SetTimes(s, a, b)),
        3 => spot().prop_map(Op::List),
        3 => (slot(), modes(), at(), 0..9000_u64).prop_map(|(slot, mode, at, length)| Op::Allocate { slot, mode, at, length }),
        2 => (slot(), at(), slot(), at(), length()).prop_map(|(from, at, to, to_at, length)| Op::Copy { from, at, to, to_at, length }),
        2 => (spot(), 0..8_u32).prop_map(|(s, m)| Op::Access(s, m)),
        3 => (spot(), tag(), any::<u8>(), 0..3_u32).prop_map(|(s, t, v, f)| Op::SetTag(s, t, v, f)),
        2 => (spot(), tag()).prop_map(|(s, t)| Op::GetTag(s, t)),
        1 => (spot(), tag()).prop_map(|(s, t)| Op::RemoveTag(s, t)),
        1 => spot().prop_map(Op::Fifo),
        1 => slot().prop_map(Op::Sync),
    ]
}

/// One of the two directories, and the files open in it.
struct Side {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
    tags: bool,
}

impl Side {
    fn new(root: PathBuf, tags: bool) -> Self {
        fs::create_dir(&root).expect("made");
        Self { root, slots: Default::default(), tags }
    }

    fn at(&self, spot: Spot) -> PathBuf {
        self.root.join(spot)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Makes one call. Returns what the program sees of it.
    fn apply(&mut self, op: &Op) -> Result<String, Errno> {
        match op.clone() {
            Op::Mkdir(s, mode) => said(rustix::fs::mkdir(self.at(s), Mode::from(mode))),
            Op::Rmdir(s) => said(rustix::fs::rmdir(self.at(s))),
            Op::Unlink(s) => said(rustix::fs::unlink(self.at(s))),
            Op::Link(a, b) => said(rustix::fs::linkat(CWD, self.at(a), CWD, self.at(b), AtFlags::empty())),
            Op::Symlink(target, s) => said(rustix::fs::symlink(target, self.at(s))),
            Op::Fifo(s) => {
                let kind = rustix::fs::FileType::Fifo;
                said(rustix::fs::mknodat(CWD, self.at(s), kind, Mode::from(0o600), 0))
            }
            Op::Rename(a, b, flags) => {
                let flags = RenameFlags::from_bits_retain(flags);
                said(rustix::fs::renameat_with(CWD, self.at(a), CWD, self.at(b), flags))
            }
            Op::ReadLink(s) => rustix::fs::readlink(self.at(s), Vec::new()).map(|text| format!("{text:?}")),
            Op::Chmod(s, mode) => said(rustix::fs::chmod(self.at(s), Mode::from(mode))),
            Op::Truncate(s, size) => {
                let file = fs::OpenOptions::new().write(true).custom_flags_none().open(self.at(s));
                let file = file.map_err(errno)?;
                said(rustix::fs::ftruncate(&file, size))
            }
            Op::Access(s, mask) => {
                let access = Access::from_bits_retain(mask);
                said(rustix::fs::accessat(CWD, self.at(s), access, AtFlags::empty()))
            }
            Op::Stat(s, follow) => {
                let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                rustix::fs::statat(CWD, self.at(s), flags).map(|stat| shown(&stat))
            }
            Op::SetTimes(s, seconds, nanos) => self.set_times(s, seconds, nanos),
            Op::List(s) => self.list(s),
            Op::SetTag(s, name, value, flags) if self.tags => {
                let flags = XattrFlags::from_bits_retain(flags);
                said(rustix::fs::setxattr(self.at(s), name, &vec![value; usize::from(value)], flags))
            }
            Op::GetTag(s, name) if self.tags => {
                let mut value = [0_u8; 300];
                let length = rustix::fs::getxattr(self.at(s), name, &mut value[..])?;
                Ok(format!("{:?}", &value[..length]))
            }
            Op::RemoveTag(s, name) if self.tags => said(rustix::fs::removexattr(self.at(s), name)),
            Op::SetTag(..) | Op::GetTag(..) | Op::RemoveTag(..) => Ok(String::new()),
            other => self.apply_open(other),
        }
    }

    /// Calls on open files.
    fn apply_open(&mut self, op: Op) -> Result<String, Errno> {
        match op {
            Op::Open { spot, flags, mode, slot } => {
                // A fifo would wait for its other end.
                let flags = OFlags::from_bits_retain(flags) | OFlags::NONBLOCK;
                self.slots[slot] = None;
                self.slots[slot] = Some(rustix::fs::open(self.at(spot), flags, Mode::from(mode))?);
                Ok("opened".into())
            }
            Op::Close(slot) => {
                self.slots[slot] = None;
                Ok(String::new())
            }
            Op::Write { slot, at, length, byte } => {
                let written = rustix::io::pwrite(self.slot(slot)?, &vec![byte; length], at);
                written.map(|n| n.to_string())
            }
            Op::Append { slot, length, byte } => {
                let bytes = vec![byte; length];
                let parts = [IoSlice::new(&bytes)];
                // At the end, whatever the file was opened with.
                let written =
                    rustix::io::pwritev2(self.slot(slot)?, &parts, u64::MAX, ReadWriteFlags::APPEND);
                written.map(|n| n.to_string())
            }
            Op::Read { slot, at, length } => {
                let mut bytes = vec![0; length];
                let n = rustix::io::pread(self.slot(slot)?, &mut bytes[..], at)?;
                Ok(format!("{n} {}", digest(&bytes[..n])))
            }
            Op::FileTruncate(slot, size) => said(rustix::fs::ftruncate(self.slot(slot)?, size)),
            Op::FileStat(slot) => rustix::fs::fstat(self.slot(slot)?).map(|stat| shown(&stat)),
            Op::FileChmod(slot, mode) => {
                let mode = if is_directory(self.slot(slot)?)? { mode | 0o100 } else { mode };
                said(rustix::fs::fchmod(self.slot(slot)?, Mode::from(mode)))
            }
            Op::Allocate { slot, mode, at, length } => {
                let mode = FallocateFlags::from_bits_retain(mode);
                said(rustix::fs::fallocate(self.slot(slot)?, mode, at, length))
            }
            Op::Copy { from, at, to, to_at, length } => self.copy(from, at, to, to_at, length),
            Op::Sync(slot) => said(rustix::fs::fsync(self.slot(slot)?)),
            other => unreachable!("{other:?} is on a name"),
        }
    }

    fn set_times(&self, spot: Spot, seconds: i64, nanos: i64) -> Result<String, Errno> {
        let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: nanos };
        let times = Timestamps { last_access: time(seconds / 2), last_modification: time(seconds) };
        rustix::fs::utimensat(CWD, self.at(spot), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        let stat = rustix::fs::statat(CWD, self.at(spot), AtFlags::SYMLINK_NOFOLLOW)?;
        let set = format!("{} {}", stat.st_mtime, stat.st_mtime_nsec);
        // The way there may lead through the link itself: then tmpfs says that it was read just now.
        let is_link = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink;
        Ok(if is_link { set } else { format!("{set} {} {}", stat.st_atime, stat.st_atime_nsec) })
    }

    fn list(&self, spot: Spot) -> Result<String, Errno> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(spot)).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            names.push((entry.file_name(), entry.file_type().map_err(errno)?));
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(format!("{names:?}"))
    }

    fn copy(&self, from: usize, at: u64, to: usize, to_at: u64, length: usize) -> Result<String, Errno> {
        let (mut at, mut to_at) = (at, to_at);
        let (from, to) = (self.slot(from)?, self.slot(to)?);
        let n = rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), length)?;
        Ok(n.to_string())
    }

    /// Everything there is: path to kind, mode, links, size and bytes.
    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut todo = vec![self.root.clone()];
        while let Some(directory) = todo.pop() {
            for entry in fs::read_dir(&directory).expect("listed") {
                let path = entry.expect("an entry").path();
                let stat = fs::symlink_metadata(&path).expect("there");
                let bytes =
                    if stat.is_file() { digest(&fs::read(&path).expect("read")) } else { String::new() };
                let size = if stat.is_dir() { 0 } else { stat.len() };
                let mode = stat.permissions().mode();
                let name = path.strip_prefix(&self.root).expect("it is below").to_owned();
                all.insert(name, format!("{mode:o} {} {size} {bytes}", stat.nlink()));
                if stat.is_dir() {
                    todo.push(path);
                }
            }
        }
        all
    }
}

/// What `truncate(2)` opens with: nothing beside.
trait NoFlags {
    fn custom_flags_none(&mut self) -> &mut Self;
}

impl NoFlags for fs::OpenOptions {
    fn custom_flags_none(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt;
        self.custom_flags(OFlags::NONBLOCK.bits() as i32)
    }
}

fn is_directory(file: &OwnedFd) -> Result<bool, Errno> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    Ok(kind == rustix::fs::FileType::Directory)
}

fn said<T>(answer: Result<T, Errno>) -> Result<String, Errno> {
    answer.map(|_| String::new())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn shown(stat: &rustix::fs::Stat) -> String {
    let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
    let size = if directory { 0 } else { stat.st_size };
    format!("{:o} {} {size} {}", stat.st_mode, stat.st_nlink, stat.st_uid)
}

/// Bytes in a form short enough to read: runs of equal bytes.
fn digest(bytes: &[u8]) -> String {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in bytes {
        match runs.last_mut() {
            Some((last, count)) if last == byte => *count += 1,
            _ => runs.push((*byte, 1)),
        }
    }
    format!("{runs:?}")
}

/// Returns whether a directory keeps user attributes.
fn keeps_tags(directory: &Path) -> bool {
    let file = directory.join("probe");
    fs::write(&file, "").expect("written");
    let kept = rustix::fs::setxattr(&file, "user.probe", b"x", XattrFlags::empty()).is_ok();
    fs::remove_file(&file).expect("removed");
    kept
}

#[test]
fn random_system_calls_answer_as_on_tmpfs() {
    if !can_mount("random_system_calls_answer_as_on_tmpfs") {
        return;
    }
    let bed = Bed::new();
    let tmpfs = tempfile::tempdir_in("/dev/shm").expect("a directory on tmpfs");
    let tags = keeps_tags(tmpfs.path());
    let cases = if weft_conformance::full() { 100_000 } else { 4_000 };
    let number = AtomicU32::new(0);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let run = runner.run(&prop::collection::vec(op(), 1..60), |ops| {
        let name = format!("case{}", number.fetch_add(1, Ordering::Relaxed));
        let mut real = Side::new(tmpfs.path().join(&name), tags);
        let mut ours = Side::new(bed.join(&name), tags);
        for (place, op) in ops.iter().enumerate() {
            let (expected, found) = (real.apply(op), ours.apply(op));
            prop_assert_eq!(expected, found, "call {}: {:?}", place, op);
        }
        prop_assert_eq!(real.tree(), ours.tree());
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}
