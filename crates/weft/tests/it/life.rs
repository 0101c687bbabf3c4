//! Starting and stopping: who has the directory, what lies in it, and for whom.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::Signal;
use weft_conformance::run::have;

use crate::node::{Node, python, signal, soon, stands, wait};

/// Every path below a directory, itself included, with its mode and whether it is a
/// directory.
fn below(path: &Path, found: &mut Vec<(String, u32, bool)>) {
    let metadata = fs::symlink_metadata(path).expect("it is there");
    found.push((path.display().to_string(), metadata.mode() & 0o7777, metadata.is_dir()));
    if metadata.is_dir() {
        for entry in fs::read_dir(path).expect("read") {
            below(&entry.expect("read").path(), found);
        }
    }
}

/// Fails if anything of a node but its directory and its socket is open to others.
#[track_caller]
fn assert_closed(data: &Path) {
    let mut found = Vec::new();
    below(data, &mut found);
    let root = data.display().to_string();
    for (path, mode, is_dir) in &found {
        let expected = match path.strip_prefix(&root).expect("it is below") {
            "" => 0o711,
            "/node.sock" => 0o666,
            _ if *is_dir => 0o700,
            _ => 0o600,
        };
        assert_eq!(format!("{mode:o}"), format!("{expected:o}"), "{path}");
    }
    assert!(found.len() > 8, "that cannot be all of a node: {found:?}");
}

#[test]
fn a_start_that_hangs_ends_at_once_when_it_is_told_to() {
    let mut node = Node::start();
    node.stop();
    // What it reads on its way is a pipe, and whoever holds that says nothing.
    let (pipe, kept) = (node.data().join("tls/cert.pem"), node.path("kept"));
    fs::rename(&pipe, &kept).expect("moved away");
    assert!(node.as_user("mkfifo").arg(&pipe).status().expect("it runs").success());
    for (told, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let mut command = node.command();
        command.args(["up", "--http", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut start = command.spawn().expect("it starts");
        let mut held = None;
        soon("the start comes to what hangs", || {
            let mut how = fs::File::options();
            held = how.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&pipe).ok();
            held.is_some()
        });
        signal(&start, told);
        let begun = Instant::now();
        let status = wait(&mut start);
        let (took, mut said) = (begun.elapsed(), String::new());
        start.stderr.take().expect("it is a pipe").read_to_string(&mut said).expect("text");
        assert!(status.success() && took < Duration::from_secs(5), "{status} after {took:?}: {said}");
        assert!(said.contains(&format!("stopped by {name} before it was ready")), "{said}");
    }
    fs::rename(&kept, &pipe).expect("moved back");
    node.up();
}

#[test]
fn everything_of_a_node_but_its_socket_is_closed_to_others() {
    let mut node = Node::start();
    node.add_user("alice", "secret");
    node.http(Some(&node.token())).put("/f", &vec![1; 300_000]);
    assert_closed(&node.data());
    node.stop();
    node.up();
    assert_closed(&node.data());
    node.stop();
    // A directory that was made beforehand, and more open, is closed.
    let mut node = Node::unstarted();
    node.make_dir("data");
    fs::set_permissions(node.data(), fs::Permissions::from_mode(0o777)).expect("changed");
    node.up();
    assert_closed(&node.data());
    // One that others may not even pass stays so.
    node.stop();
    fs::set_permissions(node.data(), fs::Permissions::from_mode(0o700)).expect("changed");
    node.up();
    assert_eq!(fs::metadata(node.data()).expect("it is there").mode() & 0o7777, 0o700);
}

#[test]
fn a_second_node_on_the_same_directory_is_told_who_has_it() {
    let mut node = Node::start();
    let pid = format!("pid {}", node.pid());
    let second = ["up", "--http", "127.0.0.1:0"];
    node.run(&second).fails(4, &["error:", &pid, "has it", "hint:"]);
    // After kill -9 nobody has it, whatever lies there.
    node.kill();
    node.up();
    node.run(&["status"]).ok();
}

#[test]
fn what_was_made_is_there_after_each_kind_of_stop() {
    let mut node = Node::start();
    let put = |node: &Node, name: &str| {
        assert_eq!(node.http(Some(&node.token())).put(name, name.as_bytes()).status, 201);
    };
    put(&node, "/before-term");
    node.stop();
    node.up();
    put(&node, "/before-kill");
    node.kill();
    node.up();
    put(&node, "/before-down");
    node.run(&["down"]).ok();
    assert!(node.wait().success());
    assert!(!node.data().join("node.sock").exists() && !node.data().join("lock.holder").exists());
    node.up();
    let http = node.http(Some(&node.token()));
    for name in ["/before-term", "/before-kill", "/before-down"] {
        assert_eq!(http.bytes(name), name.as_bytes());
    }
}

/// Fails unless a first start said where the data and the keys lie, and they do.
#[track_caller]
fn assert_says_where(node: &Node, said: &str) {
    let words: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    let data = node.data().display().to_string();
    assert!(words.iter().any(|line| *line == ["data", &data]), "{said}");
    let root_key = words.iter().find(|line| line.starts_with(&["root", "key"])).expect("it is named");
    let root_key = Path::new(root_key[2].trim_end_matches(':'));
    assert!(root_key.starts_with(&data) && root_key.is_file(), "{said}");
    let below = |dir: &str| fs::read_dir(node.data().join(dir)).expect("it is there").count();
    assert!(below("auth/keys") > 1 && below("meta") > 0 && below("objects") > 0);
}

#[test]
fn a_first_start_says_where_data_and_keys_lie_and_a_later_one_where_the_data_do() {
    let mut node = Node::start();
    assert_says_where(&node, &node.log());
    let before = node.log().len();
    node.stop();
    node.up();
    let said = &node.log()[before..];
    assert!(said.contains(&node.data().display().to_string()) && !said.contains("root key"), "{said}");
}

#[test]
fn a_detached_node_answers_when_up_returns_and_is_gone_when_down_does() {
    let node = Node::unstarted();
    let ready = node.path("ready");
    let up = ["up", "--daemon", "--http", "127.0.0.1:0", "--ready", ready.to_str().expect("a path")];
    let said = node.run(&up);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("log in"), "{}", said.err);
    assert_says_where(&node, &said.err);
    let status = node.run(&["status", "--json"]).json();
    let process = format!("/proc/{}/stat", status[0]["pid"]);
    // A zombie has ended: whoever inherited it has not looked yet.
    let runs = || fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(runs());
    assert!(ready.exists());
    assert_closed(&node.data());
    // A second one fails at once, and says who was first.
    node.run(&up).fails(4, &["error:"]);
    node.run(&["down"]).ok();
    let until = Instant::now() + Duration::from_secs(5);
    while runs() {
        assert!(Instant::now() < until, "the process stays after it has given the directory back");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.run(&["status"]).fails(4, &["error:", "hint:"]);
    let said = node.run(&[&up[..], &["--json"]].concat()).json();
    assert_eq!(said[0]["pid"], node.run(&["status", "--json"]).json()[0]["pid"]);
    assert!(said[0]["log"].as_str().is_some_and(|log| Path::new(log).is_file()), "{said:?}");
    node.run(&["down"]).ok();
    node.run(&["down"]).fails(4, &["error:"]);
}

#[test]
fn a_start_that_cannot_work_says_why() {
    let node = Node::unstarted();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("it has one").to_string();
    node.run(&["up", "--http", &taken]).fails(4, &["error:", &taken]);
    node.run(&["up", "--http", "nowhere"]).fails(2, &["--http"]);
    node.write("file", "");
    node.run(&["up", "file", "--http", "127.0.0.1:0"]).fails(1, &["error:", "file"]);
    if rustix::process::geteuid().is_root() {
        node.run(&["up", "/not-ours/x", "--http", "127.0.0.1:0"]).fails(3, &["error:", "/not-ours"]);
        node.run(&["up", "/", "--http", "127.0.0.1:0"]).fails(3, &["error:", "somebody else"]);
    }
}

#[test]
fn a_mount_that_is_told_to_end_as_soon_as_it_is_ready_leaves_nothing_mounted() {
    if !have("life::ended", &["fusermount3"]) {
        return;
    }
    let node = Node::start();
    let at = node.make_dir("mnt");
    for _ in 0..20 {
        let mut mount = stands(node.command().args(["mount", "/"]).arg(&at));
        signal(&mount, Signal::TERM);
        assert!(wait(&mut mount).success());
        let mounts = fs::read_to_string("/proc/mounts").expect("read");
        assert!(!mounts.contains(at.to_str().expect("ours")), "the mount is left behind");
    }
}

#[test]
fn a_mount_that_ends_with_its_service_is_taken_away_although_the_signal_reached_what_does_that() {
    if !have("life::service", &["fusermount3"]) {
        return;
    }
    let node = Node::start();
    let (at, first) = (node.make_dir("mnt"), node.make_dir("first"));
    let path = std::env::var("PATH").expect("there is one");
    // As systemd does to all that a service runs, until it finds nothing more to end.
    let ended = format!(
        r#"#!/bin/sh
case $1 in -u) for time in 1 2; do mkdir "$0.$time" 2>/dev/null && kill $$; done ;; esac
PATH='{path}' exec fusermount3 "$@"
"#
    );
    node.write("first/fusermount3", ended);
    node.sh("chmod +x first/fusermount3");
    let mut command = node.command();
    command.args(["mount", "/"]).arg(&at).env("PATH", format!("{}:{path}", first.display()));
    let mut mount = stands(&mut command);
    signal(&mount, Signal::TERM);
    assert!(wait(&mut mount).success());
    assert!(first.join("fusermount3.2").exists(), "it was not ended twice");
    let mounts = fs::read_to_string("/proc/mounts").expect("read");
    assert!(!mounts.contains(at.to_str().expect("ours")), "the mount is left behind");
}

#[test]
fn a_mount_that_another_namespace_has_a_copy_of_ends_when_it_is_told_to() {
    if !have("life::copied", &["fusermount3", "unshare"]) {
        return;
    }
    let node = Node::start();
    let at = node.make_dir("mnt");
    let mut mount = stands(node.command().args(["mount", "/"]).arg(&at));
    let mut holder = Command::new("unshare");
    let mut holder = holder
        .args(["--mount", "--propagation", "private", "sh", "-c", "cat /proc/self/mounts; echo; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let copies = BufReader::new(holder.stdout.take().expect("piped")).lines();
    let copies: Vec<_> = copies.map(|line| line.expect("text")).take_while(|line| !line.is_empty()).collect();
    let name = at.to_str().expect("ours");
    assert!(copies.iter().any(|line| line.contains(name)), "the other namespace has no copy");
    signal(&mount, Signal::TERM);
    let ended = wait(&mut mount);
    drop(holder.stdin.take());
    assert!(wait(&mut holder).success());
    assert!(ended.success());
    let mounts = fs::read_to_string("/proc/mounts").expect("read");
    assert!(!mounts.contains(name), "the mount is left behind");
}

/// Holds a file open and locked, and says and does what it is told, a line at a time. Two more
/// are open and not used till the end; one of them has no name from the beginning.
const HOLDER: &str = r#"
import fcntl, os, sys
held = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(held, fcntl.LOCK_EX)
idle = [os.open(sys.argv[1] + name, os.O_RDWR | os.O_CREAT) for name in (".orphan", ".named")]
for file in idle:
    os.write(file, b"idle")
    os.fsync(file)
os.unlink(sys.argv[1] + ".orphan")
print("held", flush=True)
sys.stdin.readline()
os.pwrite(held, b"after", 6)
os.fsync(held)
print(os.pread(held, 100, 0).decode(), flush=True)
sys.stdin.readline()
print(*(os.pread(file, 100, 0).decode() for file in idle), flush=True)
sys.stdin.readline()
"#;

/// Tries to lock what another process holds.
const RIVAL: &str = r#"
import fcntl, os, sys
try:
    fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked")
except BlockingIOError:
    print("refused")
"#;

#[test]
fn a_mount_goes_on_after_kill_9_of_its_node_with_files_open_and_locks_held() {
    if !have("life::mount", &["fusermount3", "python3"]) {
        return;
    }
    let mut node = Node::start();
    let mnt = node.mount("mnt");
    let file = mnt.join("f");
    node.sh("printf before > mnt/f; sync mnt/f; touch mnt/g");
    let mut holder = node.as_user(python());
    let mut holder = holder
        .args(["-c", HOLDER, file.to_str().expect("ours")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut told, said) = (holder.stdin.take().expect("piped"), holder.stdout.take().expect("piped"));
    let mut said = BufReader::new(said).lines().map(|line| line.expect("text"));
    assert_eq!(said.next().as_deref(), Some("held"));
    node.kill();
    node.up();
    told.write_all(b"\n").expect("it waits");
    assert_eq!(said.next().as_deref(), Some("beforeafter"));
    // A mount of its own asks the node, not the kernel, who holds the lock.
    let other = node.mount("other");
    let rival = |file: &Path| {
        let said = node.as_user(python()).args(["-c", RIVAL, file.to_str().expect("ours")]).output();
        String::from_utf8(said.expect("it runs").stdout).expect("text")
    };
    let locked_within = |name: &str, most: u64| {
        let until = Instant::now() + Duration::from_secs(most);
        while rival(&other.join(name)) != "locked\n" {
            assert!(Instant::now() < until, "{name} cannot be locked");
        }
    };
    // For 30 s after its start a node gives locks back and gives no others. What is refused
    // after that is held.
    locked_within("g", 60);
    assert_eq!(rival(&other.join("f")), "refused\n");
    // What has no name any more goes when nobody has it open, and here somebody has.
    node.sh("rm other/f.named");
    told.write_all(b"\n").expect("it waits");
    assert_eq!(said.next().as_deref(), Some("idle idle"));
    told.write_all(b"\n").expect("it waits");
    assert!(wait(&mut holder).success());
    // The kernel tells a mount of a close after the process has gone.
    locked_within("f", 10);
    for mount in [mnt, other] {
        node.unmount(&mount);
    }
}
