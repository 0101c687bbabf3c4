//! This process: as whom it runs, how much memory it may use, what it may read of its user's
//! secrets, and the terminal it talks to.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use weft_core::{Error, Result};

use crate::fault;

/// Asks a process that this one started, and has not seen end, to end.
pub fn ask_to_end(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Returns how a process has ended that this one started and of which no more is left than threads that wait in the kernel for
/// something that no signal ends. `None` while others run, and for one that is not ending, or can be waited for.
pub fn lingers(child: &Child) -> Option<ExitStatus> {
    let place = format!("/proc/{}", child.id());
    let stat = std::fs::read_to_string(format!("{place}/stat")).ok()?;
    let fields = fields_of(&stat);
    if fields.first() != Some(&"Z") {
        return None;
    }
    let threads = std::fs::read_dir(format!("{place}/task")).ok()?.flatten();
    let states: Vec<char> = threads
        .filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
            fields_of(&stat).first()?.chars().next()
        })
        .collect();
    // The first field is the third of proc(5), the last the fifty-second.
    let code = fields.get(52 - 3)?.parse().ok()?;
    (states.contains(&'D') && states.iter().all(|state| matches!(state, 'Z' | 'X' | 'D')))
        .then(|| ExitStatus::from_raw(code))
}

/// Returns the fields of a line of `/proc/PID/stat` behind the command's name, which may hold anything.
fn fields_of(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map_or("", |(_, behind)| behind).split_whitespace().collect()
}

/// Returns the uid this process acts as.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the gid this process acts as.
pub fn gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns the name of this machine, as it calls itself; none if that is no text.
pub fn host_name() -> Option<String> {
    Some(rustix::system::uname().nodename().to_str().ok()?.to_owned()).filter(|name| !name.is_empty())
}

/// Returns the permission bits that new files of this process do not get.
pub fn umask() -> u16 {
    use rustix::fs::Mode;
    // It can only be told by setting it: meanwhile, files that another thread makes are this user's alone.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    (umask.bits() & 0o777) as u16
}

/// Opens a file that is open already once more, to be read and not written.
pub fn opened_to_read(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?)
}

/// Returns how many bytes of memory this process may use: as many as the machine has, or fewer where
/// its own limits or the control groups around it say so.
pub fn memory() -> u64 {
    use rustix::process::{Resource, getrlimit};
    let machine = rustix::system::sysinfo();
    let all = machine.totalram.saturating_mul(u64::from(machine.mem_unit)).min(usize::MAX as u64);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = allowed_by_groups(Path::new("/sys/fs/cgroup"), &groups);
    [getrlimit(Resource::As).current, getrlimit(Resource::Data).current, groups]
        .into_iter()
        .flatten()
        .fold(all, u64::min)
}

/// What this process uses of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of memory that it has.
    pub resident_bytes: u64,
    /// Time of processors that it took.
    pub cpu: Duration,
    /// Its threads.
    pub threads: u64,
    /// Its open files and sockets.
    pub descriptors: u64,
    /// How many of those it may have.
    pub descriptors_max: u64,
}

/// Returns what this process uses. Reads as much of `/proc` as there are descriptors.
pub fn usage() -> Usage {
    use rustix::process::{Resource, getrlimit};
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (page, ticks) = (rustix::param::page_size() as u64, rustix::param::clock_ticks_per_second());
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    Usage {
        // The one that looks is among them.
        descriptors: descriptors.saturating_sub(1),
        descriptors_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        ..usage_of(&stat, page, ticks)
    }
}

/// Returns how many files and sockets this process may come to have open, if it asks for it.
pub fn descriptors_allowed() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Reads a line of `/proc/PID/stat`.
fn usage_of(stat: &str, page: u64, ticks: u64) -> Usage {
    let fields: Vec<u64> = fields_of(stat).iter().map(|field| field.parse().unwrap_or(0)).collect();
    // The first of them is the third of proc(5).
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let millis = (field(14) + field(15)).saturating_mul(1000) / ticks.max(1);
    Usage {
        resident_bytes: field(24).saturating_mul(page),
        cpu: Duration::from_millis(millis),
        threads: field(20),
        ..Usage::default()
    }
}

/// Returns what the control groups that `/proc/self/cgroup` tells of, and all above them, allow; none if
/// no number is said below `root`, where they are mounted. Inside a container the names may be those
/// outside.
fn allowed_by_groups(root: &Path, groups: &str) -> Option<u64> {
    let allowed = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        // Version 2 has one hierarchy for all, version 1 one that is named after what it controls.
        let (root, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let own = root.join(group.trim_start_matches('/'));
        let groups = own.ancestors().take_while(|group| group.starts_with(&root));
        groups.filter_map(|group| std::fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()).min()
    });
    allowed.min()
}

/// Has the memory of large blocks go back to the machine as soon as they are freed. The C
/// library would keep them, and on some versions never find room for an aligned block in what
/// it kept: a hundred checks of passwords, a few at a time, then hold a gigabyte.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "no library offers this call")]
    {
        const LARGE_BYTES: libc::c_int = 4 << 20;
        // SAFETY: it only sets a number of the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    }
}

/// Reads a file that holds a secret: regular, of this process's own user, and closed to
/// everybody else. `None` if there is none; at most `max` bytes are read.
///
/// Fails with `NotPermitted` if others could have read or replaced it. All of it is
/// checked through the open file, so that nobody can swap it in between.
pub fn read_private(path: &Path, max: u64) -> Result<Option<String>> {
    let Some(file) = open_private(path)? else { return Ok(None) };
    let mut text = String::new();
    file.take(max)
        .read_to_string(&mut text)
        .map_err(|error| fault::error(error, READ_SECRET, path.display()))?;
    Ok(Some(text))
}

/// Reads the beginning of such a file into `bytes`, which the caller wipes. Returns how many there were.
pub fn read_private_into(path: &Path, bytes: &mut [u8]) -> Result<Option<usize>> {
    let Some(mut file) = open_private(path)? else { return Ok(None) };
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fault::error(error, READ_SECRET, path.display())),
        }
    }
    Ok(Some(filled))
}

const READ_SECRET: &str = "read the secret in";

fn open_private(path: &Path) -> Result<Option<std::fs::File>> {
    let refuse = |detail: &'static str| {
        Err(Error::not_permitted(detail)
            .op(READ_SECRET)
            .about(path.display())
            .hint("chmod 600 it, or remove it"))
    };
    let failed = |error| fault::error(error, READ_SECRET, path.display());
    // A pipe put there must not make us wait.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return refuse("it is a symbolic link");
        }
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return refuse("it is not a regular file");
    }
    if metadata.uid() != uid() {
        return refuse("it belongs to somebody else");
    }
    if metadata.mode() & 0o077 != 0 {
        return refuse("others can read or replace it");
    }
    Ok(Some(file))
}

/// Opens a file at its end, made if it is not there, for this process alone to write: through no link,
/// regular, closed to everybody else from then on.
pub fn append_private(path: &Path) -> io::Result<std::fs::File> {
    // A pipe put there must not make us wait.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

/// Reads a line from the terminal on standard input without showing it.
pub fn read_hidden_line() -> io::Result<String> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    read?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use weft_core::ErrorKind;

    use super::*;

    #[test]
    fn memory_is_what_the_least_of_the_groups_around_allows() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let says = |file: &str, most: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a group lies in one")).expect("it can be filled");
            std::fs::write(path, most).expect("it can be written");
        };
        let allowed = |groups| allowed_by_groups(root.path(), groups);
        assert_eq!(allowed("0::/a/b\n"), None, "nobody says anything");
        says("a/b/memory.max", "max\n");
        assert_eq!(allowed("0::/a/b\n"), None);
        says("a/memory.max", "4096\n");
        assert_eq!(allowed("0::/a/b\n"), Some(4096), "what is around counts");
        says("a/b/memory.max", "1024\n");
        assert_eq!(allowed("0::/a/b\n"), Some(1024));
        assert_eq!(allowed("0::/a\n"), Some(4096));
        says("memory.max", "512\n");
        assert_eq!(allowed("0::/a\n"), Some(512), "the least counts");
        assert_eq!(allowed("0::/of/somewhere/else\n"), Some(512), "names that are none here are passed over");
        assert_eq!(allowed(""), None);
        // Version 1, alone or beside the other.
        says("memory/c/memory.limit_in_bytes", "256\n");
        assert_eq!(allowed("9:name=systemd:/c\n4:memory:/c/d\n1:cpu:/\n"), Some(256));
        assert_eq!(allowed("4:memory:/c\n0::/\n"), Some(256));
        assert_eq!(allowed("1:cpu:/c\n"), None, "what limits something else is none of it");
    }

    #[test]
    fn a_process_may_use_no_more_memory_than_its_own_limit() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let (before, all) = (getrlimit(Resource::Data), memory());
        assert!(all >= 64 << 20, "{all}");
        let less = all - 1;
        setrlimit(Resource::Data, Rlimit { current: Some(less), ..before }).expect("it can be lowered");
        assert_eq!(memory(), less);
        setrlimit(Resource::Data, before).expect("it can be raised again");
    }

    #[test]
    fn what_a_process_uses_is_read_past_any_name_it_gives_itself() {
        let stat = "7 (a) 1 (b) R 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 9 0 100 4096 12 0";
        let read = usage_of(stat, 4096, 100);
        assert_eq!((read.cpu, read.threads), (Duration::from_secs(3), 9));
        assert_eq!(read.resident_bytes, 12 * 4096);
        for odd in ["", "7 (a", "7 (a) R", "x (y) z 18446744073709551615 -1"] {
            assert_eq!(usage_of(odd, 4096, 0).threads, 0, "{odd}");
        }
        let own = usage();
        assert!(own.resident_bytes > 1 << 20 && own.threads > 0 && own.descriptors > 2, "{own:?}");
        assert!(own.descriptors_max >= own.descriptors, "{own:?}");
    }

    #[test]
    fn a_process_that_runs_and_one_that_can_be_waited_for_do_not_linger() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        assert_eq!(lingers(&child), None);
        child.kill().expect("it is ours");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(lingers(&child), None);
        child.wait().expect("it ended");
        assert_eq!(lingers(&child), None);
    }

    fn secret(dir: &Path, mode: u32) -> PathBuf {
        let path = dir.join("token");
        std::fs::write(&path, "secret").expect("a temporary directory can be written");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        path
    }

    #[test]
    fn a_file_that_others_can_read_or_replace_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for mode in [0o644, 0o640, 0o620, 0o602, 0o601] {
            let refused = read_private(&secret(dir.path(), mode), 100).expect_err("it must be refused");
            assert_eq!(refused.kind(), ErrorKind::NotPermitted, "{mode:o}");
        }
        let read = read_private(&secret(dir.path(), 0o600), 100).expect("it is closed");
        assert_eq!(read.as_deref(), Some("secret"));
        for (room, expected) in [(4, &b"secr"[..]), (9, b"secret")] {
            let mut bytes = vec![0; room];
            let read = read_private_into(&dir.path().join("token"), &mut bytes).expect("it is closed");
            assert_eq!(&bytes[..read.expect("it is there")], expected);
        }
    }

    #[test]
    fn a_link_a_directory_and_a_pipe_are_refused_and_nothing_is_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (link, pipe) = (dir.path().join("link"), dir.path().join("pipe"));
        symlink(secret(dir.path(), 0o600), &link).expect("a link can be made");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe can be made");
        for path in [link.as_path(), dir.path(), &pipe] {
            let refused = read_private(path, 100).expect_err("it must be refused");
            assert_eq!(refused.kind(), ErrorKind::NotPermitted, "{}", path.display());
            let refused = read_private_into(path, &mut [0; 9]).expect_err("it must be refused");
            assert_eq!(refused.kind(), ErrorKind::NotPermitted, "{}", path.display());
        }
        assert!(read_private(&dir.path().join("absent"), 100).expect("absence is no error").is_none());
    }
}
