//! A node under test: the real binary in a directory of its own, as an ordinary user,
//! and every way to speak to it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use weft_conformance::run::full;

use crate::http::Http;

/// Debian's `nobody`: whoever the node is when the tests are root.
pub const NOBODY: u32 = 65534;
/// More than any start, stop or single command may take, on a machine that does other
/// things too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for a program, which has more to do with the long counts.
fn patience_with_programs() -> Duration {
    if full() { Duration::from_secs(3600) } else { 2 * PATIENCE }
}

/// What a command said.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails unless the command succeeded; returns what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// Fails unless the command ended with `code` and named each of `words` on stderr.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
        self
    }

    /// Fails unless it succeeded with one JSON document a line; returns them.
    #[track_caller]
    pub fn json(self) -> Vec<serde_json::Value> {
        let out = self.ok();
        out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }
}

/// A node and its place on disk. Everything it started ends with it.
pub struct Node {
    place: PathBuf,
    process: Option<Child>,
    http: Option<SocketAddr>,
    options: Vec<OsString>,
    mounts: Vec<PathBuf>,
    allowed: Vec<&'static str>,
    /// Who runs it, where the tests are root.
    user: u32,
    _dir: TempDir,
}

impl Node {
    /// Starts a node in a directory of its own.
    pub fn start() -> Self {
        let mut node = Self::unstarted();
        node.up();
        node
    }

    /// Makes the place for a node: `data` is its directory, `home` that of who runs it.
    pub fn unstarted() -> Self {
        let dir = tempfile::Builder::new().prefix("weft-it-").tempdir().expect("a directory of its own");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let place = dir.path().canonicalize().expect("it is there");
        let node = Self {
            place,
            process: None,
            http: None,
            options: Vec::new(),
            mounts: Vec::new(),
            allowed: Vec::new(),
            user: NOBODY,
            _dir: dir,
        };
        give(&node.place);
        for name in ["home", "tmp"] {
            node.make_dir(name);
        }
        node
    }

    /// Has another user run it, whose everything below its place becomes. For root's tests.
    pub fn run_by(mut self, uid: u32) -> Self {
        let given = Command::new("chown").args(["-R", &format!("{uid}:{uid}")]).arg(&self.place).status();
        assert!(given.expect("it runs").success());
        self.user = uid;
        self
    }

    /// Returns a path beside the node's directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join(name)
    }

    /// Returns the node's directory.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Makes a directory that belongs to who runs the node.
    pub fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("made");
        give(&path);
        path
    }

    /// Writes a file that belongs to who runs the node.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("written");
        give(&path);
        path
    }

    /// Says that a line of the log with this text is no surprise here.
    pub fn allow(&mut self, text: &'static str) {
        self.allowed.push(text);
    }

    /// Has the node be started with these as well.
    pub fn start_with<A: AsRef<OsStr>>(&mut self, options: &[A]) {
        self.options = options.iter().map(|option| option.as_ref().to_owned()).collect();
    }

    /// Starts the node, and returns once it answers.
    pub fn up(&mut self) {
        if let Err(said) = self.try_up() {
            panic!("the node did not start: {}{}", said.out, self.log());
        }
    }

    /// Starts the node. Returns once it answers, or what it said when it ended instead.
    pub fn try_up(&mut self) -> Result<(), Said> {
        let before = self.log().len();
        let log = fs::File::options().create(true).append(true).open(self.path("log")).expect("opened");
        let mut command = self.command();
        command
            .args(["up", "--http", "127.0.0.1:0"])
            .arg("--ready")
            .arg(self.path("ready"))
            .args(&self.options);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let out = child.stdout.take().expect("it is a pipe");
        self.process = Some(child);
        let (says, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(out).read_line(&mut line);
            // Nobody listens any more after the patience has ended.
            let _ = says.send(read.map(|_| line));
        });
        let line = heard.recv_timeout(PATIENCE).expect("the node answers in time").expect("it can be read");
        if line != "ready\n" {
            let code = self.wait().code().unwrap_or(-1);
            return Err(Said { code, out: line, err: self.log()[before..].to_owned() });
        }
        self.http = Some(self.read_ready());
        Ok(())
    }

    fn read_ready(&self) -> SocketAddr {
        let ready = self.ready();
        assert_eq!(ready["native"], self.data().join("node.sock").display().to_string());
        let address = ready["http"].as_str().and_then(|url| url.strip_prefix("http://")).expect("an address");
        address.parse().expect("an address and a port")
    }

    /// Returns what the node said of where it listens.
    pub fn ready(&self) -> serde_json::Value {
        let ready = fs::read_to_string(self.path("ready")).expect("it was written before the node said so");
        serde_json::from_str(&ready).expect("one JSON object")
    }

    /// Returns the port of HTTPS.
    pub fn https_port(&self) -> u16 {
        let ready = self.ready();
        let port = ready["https"].as_str().and_then(|url| url.rsplit(':').next()).expect("it speaks HTTPS");
        port.parse().expect("a port")
    }

    /// Returns the process id of the node.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Returns what the node wrote to stderr so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Asks the node to stop, and waits until it has.
    pub fn stop(&mut self) {
        signal(self.process.as_ref().expect("it runs"), Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Kills the node as a power switch would, for it.
    pub fn kill(&mut self) {
        signal(self.process.as_ref().expect("it runs"), Signal::KILL);
        self.wait();
    }

    /// Waits until the node has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.http = None;
        wait(&mut self.process.take().expect("it runs"))
    }

    /// Returns `weft` for this node, as who runs it, away from this machine's settings.
    pub fn command(&self) -> Command {
        self.as_user(weft())
    }

    /// Returns a program run as who runs the node.
    pub fn as_user(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.place).stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env("WEFT_NODE", self.data());
        if geteuid().is_root() {
            command.uid(self.user).gid(self.user);
        }
        command
    }

    /// Runs a command of `weft`.
    pub fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Said {
        Said::of(output(self.command().args(args), b""))
    }

    /// Runs a command of `weft` with something on standard input.
    pub fn feed<A: AsRef<OsStr>>(&self, args: &[A], input: &[u8]) -> Said {
        Said::of(output(self.command().args(args), input))
    }

    /// Runs a command that was made ready, with something on standard input.
    pub fn feed_command(&self, command: &mut Command, input: &[u8]) -> Said {
        Said::of(output(command, input))
    }

    /// Runs a command of `weft` whose output and errors go elsewhere.
    pub fn run_to<A: AsRef<OsStr>>(&self, args: &[A], out: Stdio, err: Stdio) -> Said {
        Said::of(output_to(self.command().args(args).stdout(out).stderr(err), b""))
    }

    /// Runs a command of `weft` with a credential.
    pub fn run_with<A: AsRef<OsStr>>(&self, token: &str, args: &[A]) -> Said {
        Said::of(output(self.command().env("BEARER_TOKEN", token).args(args), b""))
    }

    /// Runs a shell script as who runs the node; fails unless it succeeds.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        Said::of(output(self.as_user("sh").args(["-euc", script]), b"")).ok()
    }

    /// Adds a user, and returns a credential of theirs.
    pub fn add_user(&self, name: &str, password: &str) -> String {
        self.feed(&["user", "add", name, "--password-stdin"], password.as_bytes()).ok();
        self.login(name, password, &[])
    }

    /// Returns a credential, narrowed by what `more` says.
    pub fn login(&self, name: &str, password: &str, more: &[&str]) -> String {
        let args = [&["login", name, "--password-stdin", "--print"], more].concat();
        self.feed(&args, password.as_bytes()).ok().trim().to_owned()
    }

    /// Returns a credential of the administrator.
    pub fn token(&self) -> String {
        self.run(&["login", "--print"]).ok().trim().to_owned()
    }

    /// Returns HTTP to this node, as somebody or as nobody.
    pub fn http(&self, token: Option<&str>) -> Http {
        Http::new(self.address(), token)
    }

    /// Returns where HTTP listens.
    pub fn address(&self) -> SocketAddr {
        self.http.expect("it runs")
    }

    /// Mounts the root.
    pub fn mount(&mut self, name: &str) -> PathBuf {
        self.mount_with(name, &[]).0
    }

    /// Mounts the root with more options. Returns the mount's keeper, too.
    pub fn mount_with(&mut self, name: &str, options: &[&str]) -> (PathBuf, u32) {
        let at = self.make_dir(name);
        let keeper = self.mount_at(&at, options, &[]);
        self.mounts.push(at.clone());
        (at, keeper)
    }

    /// Mounts the root at a directory, from where somebody else takes it away. Returns the mount's keeper.
    pub fn mount_at(&self, at: &Path, options: &[&str], environment: &[(&str, &str)]) -> u32 {
        let mut mount = self.command();
        mount.args(["--json", "mount", "/"]).arg(at).arg("--daemon").args(options);
        let said = self.feed_command(mount.envs(environment.iter().copied()), b"").json();
        said[0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a number")
    }

    /// Takes a mount away, whatever uses it.
    pub fn unmount(&mut self, at: &Path) {
        self.mounts.retain(|mount| mount != at);
        self.run(&[OsStr::new("umount"), OsStr::new("--lazy"), at.as_os_str()]).ok();
    }

    /// Fails if the log holds a warning or an error that nobody expects.
    fn check_log(&self) {
        let log = self.log();
        let surprises: Vec<_> = log
            .lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR ") || line.contains("panicked"))
            .filter(|line| !self.allowed.iter().any(|text| line.contains(text)))
            .collect();
        assert!(surprises.is_empty(), "the node's log:\n{}", surprises.join("\n"));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for at in std::mem::take(&mut self.mounts) {
            let _ = self.as_user("fusermount3").arg("-uz").arg(at).status();
        }
        if let Some(child) = &mut self.process {
            signal(child, Signal::KILL);
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<_> = log.lines().rev().take(30).collect();
            eprintln!("the node's log ends:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        } else {
            self.check_log();
        }
    }
}

/// Gives a path to who runs the node.
pub fn give(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("given");
    }
}

/// Sends a signal to a process of ours.
pub fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// Waits until something is so.
#[track_caller]
pub fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a mount in the foreground, and returns it once it stands.
pub fn stands(mount: &mut Command) -> Child {
    let mut mount = mount.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(mount.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    assert_eq!(line, "ready\n");
    mount
}

/// Waits until a process has ended, and kills it if that takes too long.
pub fn wait(child: &mut Child) -> ExitStatus {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status;
        }
        if std::time::Instant::now() > until {
            signal(child, Signal::KILL);
            panic!("it did not end in time: {:?}", child.wait());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command to its end, with `input` on its standard input.
fn output(command: &mut Command, input: &[u8]) -> Output {
    output_to(command.stdout(Stdio::piped()).stderr(Stdio::piped()), input)
}

/// The same, and what is not piped goes where `command` says.
fn output_to(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pid = Pid::from_raw(child.id() as i32).expect("a process id");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let (done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may end without reading all of it.
            let _ = stdin.write_all(input);
        });
        scope.spawn(move || {
            if ended.recv_timeout(patience_with_programs()) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = child.wait_with_output().expect("it can be waited for");
        drop(done);
        output
    })
}

/// Returns the binary, where an ordinary user can run it.
pub fn weft() -> &'static Path {
    static WEFT: OnceLock<PathBuf> = OnceLock::new();
    WEFT.get_or_init(|| for_anybody(env!("CARGO_BIN_EXE_weft").into(), "weft"))
}

/// Returns these tests, where an ordinary user can run them.
pub fn these_tests() -> &'static Path {
    static TESTS: OnceLock<PathBuf> = OnceLock::new();
    TESTS.get_or_init(|| for_anybody(std::env::current_exe().expect("this binary"), "it"))
}

/// Returns a program that was built, or a copy of it by that name if others may not reach it.
fn for_anybody(built: PathBuf, name: &str) -> PathBuf {
    let closed = |dir: &Path| fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 0o001 == 0);
    if !geteuid().is_root() || !built.ancestors().skip(1).any(closed) {
        return built;
    }
    let dir = std::env::temp_dir().join(format!("weft-it-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("made");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let copy = dir.join(name);
    fs::copy(built, &copy).expect("copied");
    copy
}

/// Returns a Python that ordinary users can run: the system's, if it has one.
pub fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

/// Returns bytes that no two seeds share and that compress badly.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
