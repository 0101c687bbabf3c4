//! Programs that show one directory as another through FUSE, and our mount among them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine::{self, Missing};
use crate::node;

/// How long a mount may take to stand.
const READY_MAX: Duration = Duration::from_secs(20);

/// A directory in which something is mounted. Dropping it takes the mount away and ends its process.
pub struct Mounted {
    at: PathBuf,
    process: Child,
}

/// Mounts `/bench` of the node in `folder`.
pub fn weft(folder: &Path, at: PathBuf) -> Result<Mounted> {
    std::fs::create_dir_all(&at)?;
    let mut command = Command::new(node::binary()?);
    command.arg("mount").arg("/bench").arg(&at).env("WEFT_NODE", folder).stdout(Stdio::piped());
    let mut mounted = Mounted { process: command.spawn()?, at };
    let mut line = String::new();
    BufReader::new(mounted.process.stdout.take().ok_or("it prints")?).read_line(&mut line)?;
    if line == "ready\n" { Ok(mounted) } else { Err("the mount did not come to stand".into()) }
}

/// Shows `source` through libfuse's own example of a fast file system: what FUSE itself can do.
pub fn passthrough(source: &Path, at: PathBuf) -> Result<Mounted> {
    let mut command = Command::new(passthrough_hp()?);
    command.arg("--foreground").arg(source).arg(&at);
    Mounted::start(command, at)
}

/// Returns how many files a tree may have that [`passthrough`] is to show whole: it keeps one open for
/// each that the kernel knows, and this machine may set a limit to that.
pub fn files_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    limit.map_or(u64::MAX, |limit| limit / 4 * 3)
}

/// Shows `source` through bindfs.
pub fn bindfs(source: &Path, at: PathBuf) -> Result<Mounted> {
    let mut command = Command::new(machine::program("bindfs", "bindfs")?);
    command.arg("-f").arg(source).arg(&at);
    Mounted::start(command, at)
}

/// Shows `source` through rclone, with its cache for writing, without which most programs fail.
pub fn rclone(source: &Path, at: PathBuf, cache: &Path) -> Result<Mounted> {
    let mut command = Command::new(machine::program("rclone", "rclone")?);
    command.args(["--config", "/dev/null", "mount", "--vfs-cache-mode", "writes", "--cache-dir"]).arg(cache);
    command.arg(source).arg(&at);
    Mounted::start(command, at)
}

impl Mounted {
    fn start(mut command: Command, at: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&at)?;
        let below = device(at.parent().ok_or("a mount lies in a directory")?)?;
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut mounted = Self { at, process };
        let until = Instant::now() + READY_MAX;
        while device(&mounted.at)? == below {
            if mounted.process.try_wait()?.is_some() || Instant::now() > until {
                return Err(format!("{command:?} did not mount").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }

    /// Returns where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Returns its process's id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whatever of it fails has failed already.
        let _ = Command::new("fusermount3").arg("-uz").arg(&self.at).stderr(Stdio::null()).status();
        let until = Instant::now() + READY_MAX;
        while Instant::now() < until && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn device(path: &Path) -> Result<u64> {
    Ok(std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path)?))
}

/// Returns libfuse's example, built from the distribution's source of the library that is installed.
fn passthrough_hp() -> Result<PathBuf> {
    let folder = machine::root().join("target/bench/peers");
    let made = folder.join("passthrough_hp");
    if !made.is_file() {
        std::fs::create_dir_all(&folder)?;
        let script = machine::root().join("bench/peers/passthrough_hp.sh");
        let done = Command::new("bash").arg(script).arg(&made).output()?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let last = said.trim().lines().last().unwrap_or("it says nothing");
            return Err(Missing(format!("passthrough_hp cannot be built: {last}")).into());
        }
    }
    Ok(made)
}
