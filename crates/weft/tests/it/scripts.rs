//! `./run` where there is no network, and every script of the repository as a shell reads it.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Signal, geteuid};
use weft_conformance::run::{have, not_run};

use crate::node::{signal, wait};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Its scripts.
const SCRIPTS: &[&str] = &[
    "run",
    "test",
    ".ci/run",
    "crates/weft/tests/it/older/make.sh",
    "xtask/container-walk.sh",
    "xtask/first-steps.sh",
    "xtask/fresh.sh",
    "xtask/machine.sh",
    "xtask/package-mounts.sh",
    "xtask/package-walk.sh",
    "xtask/throwaway.sh",
];

#[test]
fn every_script_is_one() {
    for script in SCRIPTS {
        let read = Command::new("bash").arg("-n").arg(Path::new(ROOT).join(script)).output();
        let read = read.expect("there is a bash");
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success() && said.is_empty(), "{script}: {said}");
    }
}

/// In a network of its own that leads nowhere, but to itself.
const ALONE: &str = r#"
python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x41))'
# Who runs the tests in the background has Ctrl-C ignored, and so would all it starts.
exec env --default-signal=INT ./run
"#;

/// A copy of the repository's outside, with what `./run` would build in its place.
struct Copy(tempfile::TempDir);

impl Copy {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("weft-run-").tempdir().expect("a directory of its own");
        let place = |name: &str| {
            let place = dir.path().join(name);
            fs::create_dir_all(place.parent().expect("it has one")).expect("made");
            place
        };
        for name in ["run", "xtask/machine.sh", "Cargo.toml"] {
            fs::copy(Path::new(ROOT).join(name), place(name)).expect("copied");
        }
        fs::copy(env!("CARGO_BIN_EXE_weft"), place("target/release/weft")).expect("copied");
        // The real one ran before this test did.
        let cargo = place("bin/cargo");
        fs::write(&cargo, "#!/bin/sh\n").expect("written");
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self) -> Running {
        let log = fs::File::create(self.path("log")).expect("made");
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-euc", ALONE]).current_dir(self.0.path());
        command.env("CARGO_HOME", self.0.path()).env_remove("WEFT_NODE").env_remove("WEFT_HTTP_PORT");
        let mut script =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let out = BufReader::new(script.stdout.take().expect("piped")).lines();
        Running { script, out }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("it is there")
    }
}

struct Running {
    script: Child,
    out: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Returns the words of the line that begins with `word`.
    #[track_caller]
    fn line(&mut self, word: &str, copy: &Copy) -> Vec<String> {
        let lines = self.out.by_ref().map(|line| line.expect("text"));
        let mut words = lines.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let found = words.find(|words| words.first().is_some_and(|first| first == word));
        found.unwrap_or_else(|| panic!("no `{word}`:\n{}", copy.log()))
    }

    /// Runs a program where the script's node listens.
    fn beside(&self, program: &[&str]) -> String {
        let pid = self.script.id().to_string();
        let mut command = Command::new("nsenter");
        let output = command.args(["--net", "--target", &pid]).args(program).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Ends it as a person or a service manager does.
    fn stop(mut self, how: Signal) {
        signal(&self.script, how);
        assert!(wait(&mut self.script).success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.script.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(&self.script, Signal::TERM);
            let _ = self.script.wait();
        }
    }
}

#[test]
fn run_starts_a_node_over_made_up_files_where_there_is_no_network_and_stops_it_cleanly() {
    const TEST: &str = "scripts::run";
    if !geteuid().is_root() {
        return not_run(TEST, "only root can take the network away");
    }
    if !have(TEST, &["unshare", "nsenter", "curl", "python3", "bash"]) {
        return;
    }
    let copy = Copy::new();
    let mut running = copy.start();
    let login = running.line("Weft", &copy);
    let browse = running.line("browse", &copy);
    let fetch = running.line("fetch", &copy);
    running.line("stop", &copy);
    assert!(copy.log().contains("no package index within reach: making sample data"), "{}", copy.log());
    assert!(!copy.log().contains("WARNING"), "what cannot be had is no alarm: {}", copy.log());
    let user = format!("alice:{}", login.last().expect("a password"));
    let example = fetch.iter().find(|word| word.starts_with("http")).expect("an address");
    let got = running.beside(&["curl", "-sSf", "-u", &user, example]);
    let name = example.strip_prefix(browse[1].as_str()).expect("it lies there");
    let sample = copy.path("target/run/sample");
    assert_eq!(got, fs::read_to_string(sample.join(name)).expect("it is there"));
    let listing = running.beside(&["curl", "-sSf", "-u", &user, &format!("{}?format=json", browse[1])]);
    assert_eq!(listing.matches("\"kind\":\"file\"").count(), fs::read_dir(&sample).expect("made").count());
    // Ctrl-C.
    running.stop(Signal::INT);
    assert!(copy.log().contains("stopped; your files stay in"), "{}", copy.log());
    assert!(!copy.path("target/run/node/node.sock").exists());
    // What is there already is neither made nor copied again.
    let mut running = copy.start();
    let again = running.line("Weft", &copy);
    assert_eq!(again, login);
    running.line("stop", &copy);
    assert!(!copy.log().contains("copying") && !copy.log().contains("making"), "{}", copy.log());
    running.stop(Signal::TERM);
    assert!(!copy.path("target/run/node/node.sock").exists());
}
