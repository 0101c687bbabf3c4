//! Where something may be mounted, and what is said of what cannot be, or be taken away.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_conformance::run::have;

use crate::node::{Node, signal, wait};

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
    let mut mount = node.command();
    let mount = mount.args(["mount", "/"]).arg(&at).stdout(std::process::Stdio::piped());
    let mut mount = mount.spawn().expect("it starts");
    let mut line = String::new();
    let out = mount.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("text");
    assert_eq!(line, "ready\n");
    signal(&mount, rustix::process::Signal::KILL);
    wait(&mut mount);
    let lazily = format!("weft umount --lazy {}", text(&at));
    node.run(&["mount", "/", text(&at)]).fails(1, &["error:", "a dead mount is there", &lazily]);
    node.run(&["umount", "--lazy", text(&at)]).ok();
    node.run(&["umount", "--lazy", text(&at)]).fails(1, &["error:", "not a mount of weft"]);
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
    let mut held = held.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let out = held.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("text");
    node.run(&["umount", text(&at)]).fails(4, &["error:", "in use", "weft umount --lazy"]);
    signal(&held, rustix::process::Signal::KILL);
    wait(&mut held);
    node.unmount(&at);
}
