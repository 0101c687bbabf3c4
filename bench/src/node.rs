//! Our side: a node of the binary beside this program, with one user.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine::Missing;
use crate::peer::Server;

/// How long a node may take to answer for the first time.
const READY_MAX: Duration = Duration::from_secs(60);
const PASSWORD: &str = "bench password";

/// A running node whose user `alice` may do everything under `/bench`.
pub struct Node {
    server: Server,
    folder: PathBuf,
    token: String,
}

impl Node {
    /// Makes a node below `place` and starts it.
    pub fn start(place: &Path) -> Result<Self> {
        let folder = place.join("node");
        let server = up(&folder)?;
        tell(&folder, &["user", "add", "alice", "--password-stdin"], PASSWORD)?;
        tell(&folder, &["mkdir", "/bench"], "")?;
        tell(&folder, &["acl", "grant", "/bench", "alice", "all"], "")?;
        let token = tell(&folder, &["login", "alice", "--password-stdin", "--print"], PASSWORD)?;
        Ok(Self { server, folder, token: token.trim().to_owned() })
    }

    /// Returns the port of its HTTP door.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Returns the port of HTTPS.
    pub fn https_port(&self) -> Result<u16> {
        https_port(&self.folder)
    }

    /// Returns its process's id.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Returns where it keeps everything.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the process alone, to be killed and started again.
    pub fn into_server(self) -> Server {
        self.server
    }

    /// Returns the header by which alice shows who she is.
    pub fn header(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }
}

/// Makes a directory of the tree.
pub fn make_directory(node: &Path, at: &str) -> Result<()> {
    tell(node, &["mkdir", at], "").map(drop)
}

/// Shares a directory of the machine at a path of the tree, where alice may do everything.
pub fn share(node: &Path, directory: &Path, at: &str) -> Result<()> {
    let directory = directory.canonicalize()?;
    let directory = directory.to_str().ok_or("a place of ours is text")?;
    tell(node, &["share", directory, at], "")?;
    tell(node, &["acl", "grant", at, "alice", "all"], "").map(drop)
}

/// Runs one command of the CLI against the node in `folder`; returns what it printed.
fn tell(folder: &Path, words: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(binary()?);
    command.args(words).env("WEFT_NODE", folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut said = command.stderr(Stdio::piped()).spawn()?;
    said.stdin.take().ok_or("the command has an input")?.write_all(input.as_bytes())?;
    let done = said.wait_with_output()?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => {
            Err(format!("weft {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim()).into())
        }
    }
}

/// Starts a node over `folder`, new or not, and waits until it answers.
pub fn up(folder: &Path) -> Result<Server> {
    let ready = folder.with_extension("ready");
    if ready.exists() {
        std::fs::remove_file(&ready)?;
    }
    let mut command = Command::new(binary()?);
    command.arg("up").arg(folder).args(["--http", "127.0.0.1:0", "--ready"]).arg(&ready);
    let mut server = Server::spawn(&mut command)?;
    let until = Instant::now() + READY_MAX;
    loop {
        if let Some(port) = port_in(&std::fs::read(&ready).unwrap_or_default(), "http") {
            server.port = port;
            return Ok(server);
        }
        if server.ended() || Instant::now() > until {
            return Err("the node did not come up".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the `weft` built with this program.
pub fn binary() -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("weft");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(Missing(format!("{} is not built", beside.display())).into()),
    }
}

/// Returns the port of HTTPS of the node in `folder`, which runs.
pub fn https_port(folder: &Path) -> Result<u16> {
    let ready = std::fs::read(folder.with_extension("ready"))?;
    port_in(&ready, "https").ok_or_else(|| "the node speaks no HTTPS".into())
}

/// Returns where the node in `folder` keeps its own certificate, and the key.
pub fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("tls/cert.pem"), folder.join("tls/key.pem"))
}

/// Reads the port of a door from what a node writes when it answers.
fn port_in(ready: &[u8], door: &str) -> Option<u16> {
    let value: serde_json::Value = serde_json::from_slice(ready).ok()?;
    value[door].as_str()?.trim_end_matches('/').rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_only_from_a_whole_answer() {
        assert_eq!(port_in(b"{\"http\": \"http://127.0.0.1:41234\"}", "http"), Some(41234));
        assert_eq!(port_in(b"{\"http\": \"http://127.0.0.1:41234\"}", "https"), None);
        assert_eq!(port_in(b"{\"http\": \"http://127.0", "http"), None);
        assert_eq!(port_in(b"", "http"), None);
    }
}
