//! Programs that show one directory as another through FUSE, and our mount among them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine::{self, Missing};
use crate::node;
use crate::peer::{Server, apache, minio};

/// How long a mount may take to stand.
const READY_MAX: Duration = Duration::from_secs(20);

/// A directory in which something is mounted. Dropping it takes the mount away and ends its process.
pub struct Mounted {
    at: PathBuf,
    server: Server,
    /// Where it has its files from, if that is another process.
    _behind: Option<Server>,
}

/// Mounts `/bench` of the node in `folder`.
pub fn weft(folder: &Path, at: PathBuf) -> Result<Mounted> {
    let mut command = Command::new(node::binary()?);
    command.arg("mount").arg("/bench").arg(&at).env("WEFT_NODE", folder);
    Mounted::start(command, at)
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

/// Shows `source` through mergerfs, with its own defaults.
pub fn mergerfs(source: &Path, at: PathBuf) -> Result<Mounted> {
    let mut command = Command::new(machine::program("mergerfs", "mergerfs")?);
    command.arg("-f").arg(source).arg(&at);
    Mounted::start(command, at)
}

/// Shows `source` through sshfs and OpenSSH's file server, which speak through a pipe: no encryption, no network.
pub fn sshfs(source: &Path, at: PathBuf, place: &Path) -> Result<Mounted> {
    const SERVER: &str = "/usr/lib/openssh/sftp-server";
    if !Path::new(SERVER).is_file() {
        return Err(Missing(format!("{SERVER} is missing: apt-get install openssh-sftp-server")).into());
    }
    let connect = place.join("sftp");
    std::fs::write(&connect, format!("#!/bin/sh\nexec {SERVER}\n"))?;
    std::fs::set_permissions(&connect, Permissions::from_mode(0o755))?;
    let mut command = Command::new(machine::program("sshfs", "sshfs")?);
    command.args(["-f", "-o", &format!("ssh_command={}", connect.display())]);
    command.arg(format!("here:{}", source.display())).arg(&at);
    Mounted::start(command, at)
}

/// Shows `source` through davfs2 and Apache, with room in its cache for what a figure takes. It wants to be root's, and takes
/// what it reads a directory into for too small on newer kernels unless it is told how much that is.
pub fn davfs2(source: &Path, at: PathBuf, place: &Path) -> Result<Mounted> {
    let program = machine::program("mount.davfs", "davfs2")?;
    if !machine::is_root() {
        return Err(Missing("davfs2 lets only root say where its settings are".into()).into());
    }
    // Apache is nobody.
    std::fs::set_permissions(source, Permissions::from_mode(0o777))?;
    let behind = apache::start(place, source)?;
    let (cache, conf) = (place.join("davfs-cache"), place.join("davfs.conf"));
    // Its own group's, or it does not start.
    let made = Command::new("install").args(["-d", "-g", "davfs2", "-m", "775"]).arg(&cache).status()?;
    if !made.success() {
        return Err(Missing(format!("no {} for the group davfs2", cache.display())).into());
    }
    let settings = format!(
        "ask_auth 0\nuse_locks 0\ndelay_upload 0\ncache_dir {}\ncache_size 4000\nbuf_size 256\n",
        cache.display()
    );
    std::fs::write(&conf, settings)?;
    std::fs::set_permissions(&conf, Permissions::from_mode(0o600))?;
    // It leaves the process that was started here, and ends once it is unmounted.
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" -o \"$1\" \"$2\" \"$3\" && exec sleep infinity"]).arg(program);
    command.arg(format!("conf={},uid=0,gid=0", conf.display()));
    command.arg(format!("http://127.0.0.1:{}/", behind.port)).arg(&at);
    Mounted::over(command, at, Some(behind))
}

/// Shows a bucket of MinIO, which keeps it below `source`, through s3fs.
pub fn s3fs(source: &Path, at: PathBuf, place: &Path) -> Result<Mounted> {
    let program = machine::program("s3fs", "s3fs")?;
    let behind = minio::start(source)?;
    let keys = place.join("s3fs-keys");
    std::fs::write(&keys, format!("{}:{}\n", minio::USER, minio::PASSWORD))?;
    std::fs::set_permissions(&keys, Permissions::from_mode(0o600))?;
    let mut command = Command::new(program);
    command.arg(minio::BUCKET).arg(&at).args(["-f", "-o"]);
    command.arg(format!(
        "url=http://127.0.0.1:{},use_path_request_style,passwd_file={}",
        behind.port,
        keys.display()
    ));
    Mounted::over(command, at, Some(behind))
}

impl Mounted {
    fn start(command: Command, at: PathBuf) -> Result<Self> {
        Self::over(command, at, None)
    }

    fn over(mut command: Command, at: PathBuf, behind: Option<Server>) -> Result<Self> {
        std::fs::create_dir_all(&at)?;
        let below = device(&at)?;
        let mut mounted = Self { server: Server::spawn(command.stderr(Stdio::null()))?, at, _behind: behind };
        let until = Instant::now() + READY_MAX;
        while device(&mounted.at)? == below {
            if mounted.server.ended() || Instant::now() > until {
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
        self.server.pid()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A mount that is gone already is as good.
        let _ = Command::new("fusermount3").arg("-uz").arg(&self.at).stderr(Stdio::null()).status();
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
