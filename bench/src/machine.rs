//! What the run was made on, and what it needs of it.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::Result;

/// How long a server may take to listen.
const START_MAX: Duration = Duration::from_secs(20);

/// Returns the repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a package of the workspace lies below its root")
}

/// Returns what must be known to read a figure later.
pub fn describe() -> Value {
    let line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
        found.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    json!({
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": line("/proc/cpuinfo", "model name"),
        "memory": line("/proc/meminfo", "MemTotal"),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "load": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        "commit": said("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "release": !cfg!(debug_assertions),
        "run_by": if is_root() { "root" } else { "an ordinary user" },
    })
}

fn said(program: &str, words: &[&str]) -> String {
    let done = Command::new(program).current_dir(root()).args(words).output();
    done.map_or(String::new(), |done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// Returns the wall clock in whole seconds: names a report.
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Something a figure needs that is not on this machine.
#[derive(Debug)]
pub struct Missing(pub String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Returns the program called `name`, or says which package has it: [`Missing`].
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    program_by(name, &format!("apt-get install {package}"))
}

/// The same of one that no package has, which is had by a command.
pub fn program_by(name: &str, command: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")]);
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    Ok(found.ok_or_else(|| Missing(format!("{name} is not installed: {command}")))?)
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a loopback port that was free a moment ago, for servers that cannot pick one.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until somebody listens on the loopback `port`.
pub fn await_port(port: u16) -> Result<()> {
    let until = Instant::now() + START_MAX;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > until {
            return Err(format!("nothing listens on port {port} after {START_MAX:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
