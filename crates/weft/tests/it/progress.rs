//! How far something long has got: said on a terminal, to nobody else, and gone afterwards.
//!
//! A node that is stopped makes its commands as long as the test wants.

use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_conformance::run::have;

use crate::node::{Node, Said, noise, python, wait, weft};

/// Runs a command whose stderr is a terminal, and passes on what is drawn there.
const ON_A_TERMINAL: &str = r#"
import fcntl, os, pty, struct, subprocess, sys, termios
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
child = subprocess.Popen(sys.argv[1:], stderr=theirs, env={**os.environ, "TERM": "xterm"})
os.close(theirs)
sys.stdin.close()
os.close(0), os.close(1)
while True:
    try:
        drawn = os.read(ours, 4096)
    except OSError:
        break  # nobody has the other end any more
    os.write(2, drawn)
sys.exit(child.wait())
"#;

/// What clears a line.
const CLEARED: &str = "\u{1b}[2K";

/// A command under way.
struct Watched {
    child: Child,
    /// What it wrote to stderr so far.
    drawn: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

fn begin(command: &mut std::process::Command) -> Watched {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let (drawn, mut stderr) = (Arc::<Mutex<String>>::default(), child.stderr.take().expect("piped"));
    let kept = drawn.clone();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut bytes) {
            kept.lock().expect("nobody panics").push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    });
    Watched { child, drawn, reader }
}

fn on_terminal(node: &Node, args: &[&str]) -> Watched {
    begin(node.as_user(python()).args(["-c", ON_A_TERMINAL]).arg(weft()).args(args))
}

impl Watched {
    fn shows(&self, word: &str) -> bool {
        self.drawn.lock().expect("nobody panics").contains(word)
    }

    /// Waits until something stands on the terminal.
    #[track_caller]
    fn until(&mut self, word: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.shows(word) {
            let ended = self.child.try_wait().expect("it is ours");
            let drawn = self.drawn.lock().expect("nobody panics");
            assert!(ended.is_none() && Instant::now() < until, "no `{word}`: {ended:?}, {drawn}");
            drop(drawn);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn out(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("piped, and asked for once")
    }

    /// Lets it end. Returns what it said.
    fn end(mut self) -> Said {
        drop(self.child.stdin.take());
        let mut out = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut out).expect("text");
        }
        let code = wait(&mut self.child).code().unwrap_or(-1);
        self.reader.join().expect("it ends with the command");
        let err = self.drawn.lock().expect("nobody panics").clone();
        Said { code, out, err }
    }

    /// The same for one that succeeds: what was drawn last is that nothing stands there any more.
    #[track_caller]
    fn ends_clean(self, word: &str) {
        let said = self.end();
        assert_eq!(said.code, 0, "{}", said.err);
        let (_, last) =
            said.err.rsplit_once(CLEARED).unwrap_or_else(|| panic!("never cleared: {}", said.err));
        assert!(!last.contains(word) && !said.out.contains(word), "{:?} {:?}", said.err, said.out);
    }
}

/// Stops a node, and lets it go on when this is dropped.
struct Paused(Pid);

impl Paused {
    fn new(node: &Node) -> Self {
        let paused = Self(Pid::from_raw(node.pid() as i32).expect("a process id"));
        kill_process(paused.0, Signal::STOP).expect("it is ours");
        paused
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).expect("it is ours");
    }
}

#[test]
fn a_long_command_shows_how_far_it_is_and_leaves_the_terminal_clean() {
    if !have("progress::long", &["python3"]) {
        return;
    }
    let node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    node.feed(&["cp", "-", "weft:/d/f"], b"bytes").ok();
    let backup = node.path("backup").display().to_string();
    for (args, word) in [
        (&["find", "/"][..], "looked at"),
        (&["du", "/"], "added up"),
        (&["backup", &backup], "backing up"),
        (&["fsck", "--online"], "checking"),
        (&["audit", "--verify"], "verifying"),
        (&["acl", "set", "/d", "--modes", "classes"], "changing the ACL"),
        (&["acl", "grant", "/d", "anyone", "read"], "changing the ACL"),
        (&["acl", "revoke", "/d", "anyone", "read"], "changing the ACL"),
        (&["ls", "-R", "/"], "listed"),
        (&["mv", "/d", "/e"], "renamed"),
        (&["rm", "-r", "/e"], "removed"),
    ] {
        let paused = Paused::new(&node);
        let mut command = on_terminal(&node, args);
        command.until(word);
        drop(paused);
        command.ends_clean(word);
    }
}

#[test]
fn a_copy_shows_its_bytes_wherever_they_come_from_and_go() {
    if !have("progress::copy", &["python3"]) {
        return;
    }
    const BYTES: usize = 64 << 20;
    let node = Node::start();
    node.write("here", noise(1, BYTES));
    for args in
        [["cp", "here", "weft:/there"], ["cp", "weft:/there", "weft:/within"], ["cp", "weft:/there", "back"]]
    {
        let mut command = on_terminal(&node, &args);
        while !command.shows("/64.00 MiB") && command.child.try_wait().expect("it is ours").is_none() {
            let _paused = Paused::new(&node);
            std::thread::sleep(Duration::from_millis(20));
        }
        command.until("/64.00 MiB");
        command.ends_clean("/64.00 MiB");
    }
    assert!(std::fs::read(node.path("back")).expect("it is there") == noise(1, BYTES));
    // Whoever reads its output is slow.
    let mut command = on_terminal(&node, &["cat", "/there"]);
    command.until("/64.00 MiB");
    let mut out = Vec::new();
    command.out().read_to_end(&mut out).expect("it is read");
    command.ends_clean("/64.00 MiB");
    assert!(out == noise(1, BYTES), "what is shown is in no data");
    // Whoever writes its input is slow.
    let mut command = on_terminal(&node, &["cp", "-", "weft:/piped"]);
    command.child.stdin.as_mut().expect("piped").write_all(&[7; 1024]).expect("it is read");
    command.until("1.00 KiB");
    command.ends_clean("1.00 KiB");
}

/// In the background and in the foreground: until it stands.
#[test]
fn a_mount_that_is_slow_to_stand_shows_that_it_is_under_way() {
    if !have("progress::mount", &["python3", "fusermount3"]) {
        return;
    }
    let node = Node::start();
    let at = node.make_dir("mnt").display().to_string();
    for (more, word) in [(&["--daemon"][..], "starting"), (&[], "mounting")] {
        let paused = Paused::new(&node);
        let mut command = on_terminal(&node, &[&["mount", "/", &at], more].concat());
        command.until(word);
        drop(paused);
        if more.is_empty() {
            let mut ready = [0; 6];
            command.out().read_exact(&mut ready).expect("it says so");
            assert_eq!(&ready, b"ready\n");
            node.run(&["umount", &at]).ok();
        }
        command.ends_clean(word);
        if !more.is_empty() {
            node.run(&["umount", &at]).ok();
        }
    }
}

#[test]
fn what_could_not_be_removed_is_not_counted() {
    if !have("progress::count", &["python3"]) {
        return;
    }
    let node = Node::start();
    let names: Vec<String> = (0..2000).map(|number| format!("/none{number}")).collect();
    for command in ["rmdir", "rm"] {
        let paused = Paused::new(&node);
        let args: Vec<&str> = std::iter::once(command).chain(names.iter().map(String::as_str)).collect();
        let mut removing = on_terminal(&node, &args);
        removing.until("removed");
        drop(paused);
        let said = removing.end();
        assert_eq!(said.code, 1, "{}", said.err);
        for (shown, _) in said.err.match_indices(" removed") {
            assert!(said.err[..shown].ends_with(" 0"), "{command}: {}", &said.err[shown - 12..shown]);
        }
    }
}

/// A pipe where the holder of a node's directory is written down keeps whoever takes it waiting.
#[test]
fn what_works_on_a_directory_without_a_node_shows_that_it_works() {
    if !have("progress::alone", &["python3"]) {
        return;
    }
    let mut node = Node::start();
    let (data, backup) = (node.data().display().to_string(), node.path("backup").display().to_string());
    node.run(&["backup", &backup]).ok();
    node.stop();
    node.make_dir("restored");
    for (args, word, dir) in [
        (&["fsck", &data][..], "checking", "data"),
        (&["restore", "backup", "restored"], "restoring", "restored"),
    ] {
        node.sh(&format!("mkfifo {dir}/lock.holder"));
        let mut command = on_terminal(&node, args);
        command.until(word);
        let holder = std::fs::File::open(node.path(dir).join("lock.holder")).expect("it is a pipe");
        command.ends_clean(word);
        drop(holder);
    }
}

#[test]
fn a_node_that_is_slow_to_start_shows_that_it_is_under_way() {
    if !have("progress::up", &["python3"]) {
        return;
    }
    let mut node = Node::start();
    node.stop();
    let data = node.data();
    for more in [&["--daemon"][..], &[]] {
        node.sh("rm -f data/lock.holder; mkfifo data/lock.holder");
        let args = [&["up", "--http", "127.0.0.1:0"], more].concat();
        let mut command = on_terminal(&node, &args);
        command.until("starting");
        let holder = std::fs::File::open(data.join("lock.holder")).expect("it is a pipe");
        if more.is_empty() {
            command.until("native ");
            node.sh("rm data/lock.holder; echo > data/lock.holder");
            node.run(&["down"]).ok();
            command.ends_clean("starting");
        } else {
            command.ends_clean("starting");
            node.sh("rm data/lock.holder; echo > data/lock.holder");
            node.run(&["down"]).ok();
        }
        drop(holder);
    }
}

#[test]
fn without_a_terminal_and_in_json_nothing_is_shown() {
    if !have("progress::none", &["python3"]) {
        return;
    }
    let node = Node::start();
    let paused = Paused::new(&node);
    let json = on_terminal(&node, &["du", "--json"]);
    let piped = begin(node.command().arg("du"));
    // One that is shown was begun later than they, and another still later.
    let shown = [(); 2].map(|()| {
        let mut shown = on_terminal(&node, &["du"]);
        shown.until("added up");
        shown
    });
    drop(paused);
    for (said, begins) in [(json.end(), "{"), (piped.end(), " ")] {
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert!(said.out.starts_with(begins), "{}", said.out);
    }
    for one in shown {
        one.ends_clean("added up");
    }
}

#[test]
fn a_short_command_shows_nothing() {
    if !have("progress::short", &["python3"]) {
        return;
    }
    let node = Node::start();
    // On a busy machine the same command may be a long one: then it may be shown.
    for _ in 0..100 {
        let begun = Instant::now();
        let said = on_terminal(&node, &["du"]).end();
        let took = begun.elapsed();
        assert_eq!(said.code, 0, "{}", said.err);
        if took < Duration::from_millis(250) {
            assert_eq!(said.err, "", "after {took:?}");
            return;
        }
    }
    panic!("no command is short here");
}
