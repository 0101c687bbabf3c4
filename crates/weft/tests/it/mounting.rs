//! Where something may be mounted, and what is said of what cannot be, or be taken away.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use weft_conformance::run::{have, not_run};

use crate::monitor::{samples, sum};
use crate::node::{Node, noise, python, signal, soon, stands, wait, weft};
use crate::taking_over::{kept_by, served_by};

const WRITERS: &str = include_str!("../python/writers.py");

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is text")
}

#[test]
fn a_mount_hides_nothing_and_is_never_on_top_of_another() {
    if !have("mounting::hides", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let full = node.make_dir("full");
    let letter = node.write("full/letter", "dear");
    let at = node.mount("a mount");
    for more in [&[][..], &["--daemon"]] {
        let mount = |dir: &Path| node.run(&[&["mount", "/", text(dir)], more].concat());
        mount(&full).fails(1, &["error:", "it is not empty", "letter", "empty directory"]);
        mount(&letter).fails(1, &["error:", "not a directory"]);
        mount(&node.path("nowhere")).fails(1, &["error:", "nowhere"]);
        mount(&at).fails(1, &["error:", "mounted there already"]);
    }
    assert!(letter.exists() && names_in_tmp(&node) == 1, "only the mount that stands has a log");
    node.unmount(&at);
    let until = Instant::now() + Duration::from_secs(60);
    while names_in_tmp(&node) > 0 {
        assert!(Instant::now() < until, "a mount that had nothing to say leaves no log");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn names_in_tmp(node: &Node) -> usize {
    fs::read_dir(node.path("tmp")).expect("read").count()
}

#[test]
fn a_mount_that_died_is_called_dead_and_taken_away_lazily() {
    if !have("mounting::dead", &["fusermount3"]) {
        return;
    }
    let node = Node::start();
    let at = node.make_dir("mnt");
    let mut mount = stands(node.command().args(["mount", "/"]).arg(&at));
    // Its keeper first, which would start another.
    let serves = served_by(mount.id()).expect("it is served");
    signal(&mount, rustix::process::Signal::KILL);
    wait(&mut mount);
    rustix::process::kill_process(serves, rustix::process::Signal::KILL).expect("it is ours");
    soon("it is dead", || node.run(&["status", text(&at)]).code == 1);
    let lazily = format!("weft umount --lazy {}", text(&at));
    node.run(&["mount", "/", text(&at)]).fails(1, &["error:", "a dead mount is there", &lazily]);
    node.run(&["umount", "--lazy", text(&at)]).ok();
    node.run(&["umount", "--lazy", text(&at)]).fails(1, &["error:", "not a mount of weft"]);
}

#[test]
fn a_mount_says_how_it_is_whatever_became_of_it_or_its_node() {
    if !have("mounting::status", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let at = node.mount("mnt");
    node.sh("mkdir mnt/d; echo x > mnt/d/f");
    node.run(&["status", "data"]).fails(1, &["error:", "in no mount of weft", "findmnt"]);
    let status = |place: &str, code: i32| {
        let said = node.run(&["--json", "status", place]);
        assert_eq!(said.code, code, "{}{}", said.out, said.err);
        serde_json::from_str::<serde_json::Value>(&said.out).expect("one object")
    };
    let well = status("mnt/d/f", 0);
    assert_eq!((&well["at"], &well["mount"]), (&text(&at).into(), &"served".into()), "{well}");
    assert_eq!(
        (&well["standing"]["node"], &well["failure"]),
        (&"answers".into(), &serde_json::Value::Null),
        "{well}"
    );
    // An owner's right to write is as its mode says.
    node.sh("chmod 0400 mnt/d/f; ! echo y 2>/dev/null > mnt/d/f");
    let failure = &status("mnt", 0)["failure"];
    assert_eq!((&failure["failed"], &failure["kind"]), (&"open".into(), &"denied".into()), "{failure}");
    assert!(node.run(&["status", "mnt"]).ok().contains("kind       denied"));
    let pid = well["standing"]["pid"].as_str().and_then(|pid| pid.parse().ok()).expect("a number");
    let mount = rustix::process::Pid::from_raw(pid).expect("a process");
    let tell = |signal| rustix::process::kill_process(mount, signal).expect("it is ours");

    tell(rustix::process::Signal::STOP);
    // A name that the machine has to ask the mount for.
    node.run(&["mkdir", "/new"]).ok();
    std::os::unix::fs::symlink(at.join("new"), node.path("link")).expect("made");
    assert_eq!(status("link", 1)["mount"], "silent");
    tell(rustix::process::Signal::CONT);
    assert_eq!(status("link", 0)["mount"], "served");

    let node_itself = rustix::process::Pid::from_raw(node.pid() as i32).expect("a process");
    let tell_node = |signal| rustix::process::kill_process(node_itself, signal).expect("it is ours");
    tell_node(rustix::process::Signal::STOP);
    assert_eq!(status("mnt", 1)["standing"]["node"], "does not answer", "a node that hangs");
    tell_node(rustix::process::Signal::CONT);
    soon("it goes on", || node.run(&["status", "mnt"]).code == 0);

    node.kill();
    let away = std::cell::RefCell::new(serde_json::Value::Null);
    let status = |place: &str| {
        let said = node.run(&["--json", "status", place]);
        (said.code, serde_json::from_str::<serde_json::Value>(&said.out).expect("one object"))
    };
    soon("the mount finds its node gone", || {
        let (code, said) = status("mnt");
        *away.borrow_mut() = said["standing"].clone();
        code == 1
    });
    let said = away.into_inner();
    assert_eq!(said["node"], "does not answer", "{said}");
    soon("it says what comes of dialling", || {
        status("mnt").1["standing"]["last-try"].as_str().is_some_and(|said| said.contains("node.sock"))
    });
    let since = said["away-since"].clone();
    assert_eq!((status("mnt").1["standing"]["away-since"].clone(), since.is_string()), (since, true));
    node.up();
    soon("the node is found again", || node.run(&["status", "mnt"]).code == 0);

    let keeper = kept_by(pid).expect("it is kept");
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).expect("it is ours");
    tell(rustix::process::Signal::KILL);
    soon("the mount is dead", || {
        let said = node.run(&["--json", "status", "mnt"]);
        said.code == 1 && said.out.contains(r#""mount":"dead""#)
    });
    assert!(node.run(&["status", "mnt"]).out.contains("weft umount --lazy"));
}

#[test]
fn only_a_mount_of_weft_is_unmounted_and_one_in_use_names_the_way_out() {
    if !have("mounting::busy", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let dir = node.make_dir("plain");
    for place in [&dir, &node.path("nowhere")] {
        node.run(&["umount", text(place)]).fails(1, &["error:", "not a mount of weft", text(place)]);
    }
    let at = node.mount("mnt");
    node.sh("echo x > mnt/f");
    let mut held = node.as_user("sh");
    let held = held.args(["-c", "exec < mnt/f; echo open; exec sleep 60"]);
    let mut held = held.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let out = held.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("text");
    node.run(&["umount", text(&at)]).fails(4, &["error:", "in use", "weft umount --lazy"]);
    signal(&held, rustix::process::Signal::KILL);
    wait(&mut held);
    node.unmount(&at);
}

/// Bytes of a file of several of a mount's windows, the last of them short.
const LARGE: usize = (9 << 20) + 12_345;

/// Bytes of a file that one answer has room for.
const MEDIUM: usize = 500_000;

/// A user who does not run the node, and has a name on every machine: `fusermount3` asks for that.
const OTHER: u32 = 1;

/// Returns how many bytes the node sends over its socket while something is done.
fn sent_for(node: &Node, act: impl FnOnce()) -> f64 {
    moved_for(node, "flow=\"out\"", act)
}

/// The same for either flow.
pub fn moved_for(node: &Node, flow: &str, act: impl FnOnce()) -> f64 {
    let moved = || sum(&samples(node), "weft_doors_moved_bytes_total", &["door=\"native\"", flow]);
    let before = moved();
    act();
    moved() - before
}

#[test]
fn bytes_of_large_files_cross_no_socket_to_the_nodes_own_uid_and_to_no_other_is_a_file_lent() {
    if !have("mounting::lent", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let mut bytes = noise(5, LARGE);
    node.write("large", &bytes);
    let at = node.mount("mnt").join("large");
    // Nobody but who mounted, root included, may look into a mount.
    let same = |mut cmp: std::process::Command, file: &Path, bytes: &[u8]| {
        let said = node.feed_command(cmp.arg("-").arg(file), bytes);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    };
    let questions =
        || sum(&samples(&node), "weft_doors_requests_total", &["door=\"native\"", "work=\"read\""]);
    // What is lent and not read soon, on a machine that is busy with other things, is lent again: the fewest count.
    let mut asked = f64::MAX;
    for name in ["large", "another", "a third"] {
        node.run(&["cp", "large", &format!("weft:/{name}")]).ok();
        let before = questions();
        let sent = sent_for(&node, || same(node.as_user("cmp"), &at.with_file_name(name), &bytes));
        assert!(sent < 200_000.0, "{sent} bytes were sent");
        asked = asked.min(questions() - before);
        if asked <= 12.0 {
            break;
        }
    }
    // Of ten stretches of a MiB several are lent at once; what crosses the edge of one is asked for alone, as are the ends.
    assert!(asked <= 12.0, "{asked} questions");
    let came = moved_for(&node, "flow=\"in\"", || {
        node.sh("dd if=large of=mnt/written bs=1M status=none");
    });
    assert!(came < 200_000.0, "{came} bytes came");
    node.sh("cmp large mnt/written");
    node.sh("printf new | dd of=mnt/large bs=1 seek=5000000 conv=notrunc status=none");
    bytes[5_000_000..5_000_003].copy_from_slice(b"new");
    same(node.as_user("cmp"), &at, &bytes);

    // Who reads one version has its bytes: by the time it read a file that was lent, that could be another.
    node.write("medium", noise(6, MEDIUM));
    node.run(&["cp", "medium", "weft:/medium"]).ok();
    let reads = format!("{} cat /medium | cmp - medium", weft().display());
    let sent = sent_for(&node, || assert_eq!(node.sh(&reads), ""));
    assert!(sent >= MEDIUM as f64, "only {sent} bytes were sent");
    if !rustix::process::geteuid().is_root() {
        return not_run("mounting::lent to others", "root is needed to be somebody else");
    }

    node.run(&["acl", "grant", "/", "anyone", "read"]).ok();
    let theirs = node.make_dir("theirs");
    chown(&theirs, Some(OTHER), Some(OTHER)).expect("we are root");
    let by_other = |program: &Path| {
        let mut command = node.as_user(program);
        command.uid(OTHER).gid(OTHER);
        command
    };
    let mut mount = by_other(weft()).args(["mount", "/"]).arg(&theirs).spawn().expect("it starts");
    let stands = |(at, _): &(_, _)| *at == theirs;
    soon("it stands", || weft_sys::mounts::all().expect("read").iter().any(stands));
    let sent = sent_for(&node, || same(by_other(Path::new("cmp")), &theirs.join("large"), &bytes));
    assert!(sent >= LARGE as f64, "only {sent} bytes were sent");
    signal(&mount, rustix::process::Signal::TERM);
    wait(&mut mount);
}

#[test]
fn what_was_read_ahead_of_a_file_that_is_open_and_not_read_any_more_keeps_no_descriptor() {
    if !have("mounting::idle", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    node.write("large", noise(7, LARGE));
    node.run(&["cp", "large", "weft:/large"]).ok();
    node.mount("mnt");
    let standing = node.run(&["--json", "status", "mnt"]).ok();
    let standing: serde_json::Value = serde_json::from_str(&standing).expect("one object");
    let pid = standing["standing"]["pid"].as_str().expect("a number");
    let objects = || {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
        let to = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        to.filter(|to| to.starts_with(node.path("data"))).count()
    };
    let mut reads = node.as_user("sh");
    let reads = reads.args(["-c", "exec < mnt/large; head -c 3000000 >/dev/null; echo read; exec sleep 600"]);
    let mut reads = reads.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let out = reads.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("text");
    assert!(objects() > 0, "it reads ahead");
    soon("they are dropped", || objects() == 0);
    signal(&reads, rustix::process::Signal::KILL);
    wait(&mut reads);
}

/// Returns how many MiB a process holds that lie in no file.
fn held(process: rustix::process::Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap_or_default();
    let kib = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("it is there, and told");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    (kib("RssAnon:") + kib("RssShmem:")) >> 10
}

/// Beside a node that does not answer, so that all of it is held at once.
#[test]
fn a_mount_holds_no_more_of_what_programs_write_than_it_was_told() {
    const GIVEN: u64 = 64;
    if !have("mounting::memory", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    node.run(&["mount", "/", "mnt", "--memory", "63"]).fails(2, &["63", "--memory"]);
    let (at, keeper) = node.mount_with("mnt", &["--memory", &GIVEN.to_string()]);
    let serves = served_by(keeper).expect("it is served");
    let before = held(serves);
    let script = node.write("writers.py", WRITERS);
    let mut writers = node.as_user(python());
    let writers = writers.arg(script).arg(&at).arg("150").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut writers = writers.spawn().expect("python starts");
    let mut said = BufReader::new(writers.stdout.take().expect("piped")).lines();
    let mut hear = || said.next().expect("it says something").expect("text");
    assert_eq!(hear(), "opened");
    let itself = rustix::process::Pid::from_raw(node.pid() as i32).expect("a process");
    let tell = |signal| rustix::process::kill_process(itself, signal).expect("it is ours");
    tell(rustix::process::Signal::STOP);
    writers.stdin.take().expect("piped").write_all(b"\n").expect("it listens");
    soon("it has taken much of what it may", || held(serves) >= before + GIVEN / 5);
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let holds = held(serves);
        assert!(holds <= before + GIVEN, "{holds} MiB, {before} before");
    }
    tell(rustix::process::Signal::CONT);
    assert_eq!(hear(), "written");
    assert!(wait(&mut writers).success());
    node.unmount(&at);
}
