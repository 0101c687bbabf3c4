//! The few system calls that need `unsafe`, and children that run a part of a test.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// How long anything here may take before it counts as hanging.
pub const SOON: Duration = Duration::from_secs(10);

/// A kind of `fcntl` lock.
#[derive(Clone, Copy)]
pub enum Kind {
    Read,
    Write,
    None,
}

/// Sets a lock on a range of bytes; `length` 0 is all the rest.
pub fn lock(file: &File, kind: Kind, start: i64, length: i64, wait: bool) -> Result<()> {
    let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
    let lock = flock_of(kind, start, length);
    // SAFETY: the descriptor is open and the structure outlives the call.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) };
    if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Takes an open file description lock on all of a file, if it is free.
pub fn lock_description(file: &File, kind: Kind) -> Result<()> {
    let lock = flock_of(kind, 0, 0);
    // SAFETY: the descriptor is open and the structure outlives the call.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Returns what stands in the way of a lock: first byte, length and process.
pub fn in_the_way(file: &File, kind: Kind, start: i64, length: i64) -> Option<(i64, i64, i32)> {
    let mut lock = flock_of(kind, start, length);
    // SAFETY: the descriptor is open and the structure outlives the call.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) };
    assert_eq!(answer, 0, "{}", Error::last_os_error());
    (i32::from(lock.l_type) != libc::F_UNLCK).then_some((lock.l_start, lock.l_len, lock.l_pid))
}

fn flock_of(kind: Kind, start: i64, length: i64) -> libc::flock {
    // SAFETY: all zeros is a value of this plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    let kind = match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
        Kind::None => libc::F_UNLCK,
    };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (start, length);
    lock
}

/// A mapping of a whole file.
pub struct Mapping {
    start: *mut u8,
    length: usize,
}

// SAFETY: what it points to is there until it goes, and is used by atomic steps alone, on whatever thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// One that is shared: what is written there, others see.
    pub fn new(file: &File, writable: bool) -> Self {
        Self::with(file, writable, rustix::mm::MapFlags::SHARED).expect("mapped")
    }

    /// One as programs are mapped, to be read.
    pub fn private(file: &File) -> Self {
        Self::with(file, false, rustix::mm::MapFlags::PRIVATE).expect("mapped")
    }

    pub fn with(file: &File, writable: bool, flags: rustix::mm::MapFlags) -> rustix::io::Result<Self> {
        use rustix::mm::{ProtFlags, mmap};
        let length = file.metadata().expect("there").len() as usize;
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: the kernel chooses the place, and it is unmapped only when this goes.
        let start = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ | write, flags, file, 0) };
        Ok(Self { start: start?.cast(), length })
    }

    pub fn read(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: within the mapping; atomic because others write it.
        unsafe { AtomicU8::from_ptr(self.start.add(at)) }.load(Ordering::Relaxed)
    }

    pub fn write(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: within the mapping, which its maker asked to be writable.
        unsafe { AtomicU8::from_ptr(self.start.add(at)) }.store(byte, Ordering::Relaxed);
    }

    pub fn sync(&self) {
        // SAFETY: the range is this mapping.
        let synced =
            unsafe { rustix::mm::msync(self.start.cast(), self.length, rustix::mm::MsyncFlags::SYNC) };
        synced.expect("synced");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping and nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
    }
}

/// Has `SIGUSR1` interrupt calls instead of ending the process.
pub fn be_interrupted() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing, and no flag asks for calls to be restarted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// In a child that runs `part`, returns the path it was given.
pub fn is_child(part: &str) -> Option<PathBuf> {
    let given = std::env::var_os("WEFT_TEST_CHILD")?;
    let (name, path) = given.to_str()?.split_once(' ')?;
    (name == part).then(|| path.into())
}

/// Says a line to the parent, at once.
pub fn say(word: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{word}").and_then(|()| out.flush()).expect("the parent listens");
}

/// A child that runs one test of this binary again, as `part`.
pub struct Part {
    pub child: Child,
    out: BufReader<ChildStdout>,
}

/// Starts a child.
pub fn start(test: &str, part: &str, path: &Path) -> Part {
    let mut child = command(test, part, path).stdout(Stdio::piped()).spawn().expect("started");
    let out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    Part { child, out }
}

/// Returns the command that runs a child.
pub fn command(test: &str, part: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("WEFT_TEST_CHILD", format!("{part} {}", path.display()));
    command
}

impl Part {
    /// Waits until the child says a line that ends with this.
    pub fn hear(&mut self, word: &str) {
        let mut line = String::new();
        while self.out.read_line(&mut line).expect("it speaks") > 0 {
            if line.trim_end().ends_with(word) {
                return;
            }
            line.clear();
        }
        panic!("the child ended without saying {word}");
    }

    /// Waits until a thread of the child waits in this system call. Returns the thread.
    pub fn waits_in(&self, number: i64) -> i32 {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut found = None;
        until("the child waits", || {
            let mut tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
            let waiting = tasks.find(|task| is_task_in(&task.path(), number));
            found = waiting.and_then(|task| task.file_name().to_str()?.parse().ok());
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Sends a signal to one thread of the child.
    pub fn signal(&self, thread: i32, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        // SAFETY: the child was not waited for yet, so the numbers are still its own.
        assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, signal) }, 0);
    }

    /// Kills the child.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
    }

    /// Waits for the child's end, which must come soon.
    pub fn end(&mut self) -> ExitStatus {
        self.end_within(SOON)
    }

    /// The same, for an end that takes its time.
    pub fn end_within(&mut self, patience: Duration) -> ExitStatus {
        let mut status = None;
        until_within(patience, "the child ends", || {
            status = self.child.try_wait().expect("it is a child");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a thread of this process is in a system call.
pub fn is_in(thread: Pid, call: i64) -> bool {
    is_task_in(Path::new(&format!("/proc/self/task/{}", thread.as_raw_nonzero())), call)
}

fn is_task_in(task: &Path, call: i64) -> bool {
    let said = std::fs::read_to_string(task.join("syscall")).unwrap_or_default();
    said.starts_with(&format!("{call} "))
}

/// Waits until something is so, which must be soon.
pub fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(SOON, what, so);
}

/// Waits until something is so, for no longer than this.
pub fn until_within(patience: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < patience, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
