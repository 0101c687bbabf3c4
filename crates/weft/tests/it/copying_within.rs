//! `weft cp` from one place of the tree to another.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weft_conformance::run::have;

use crate::interrupts::unfinished;
use crate::node::{Node, Said, noise, signal};

const BYTES: usize = 96 << 20;

/// Starts a copy, and stops it when it has begun at the node: it runs a little at a time.
fn held(node: &Node, args: &[&str]) -> Child {
    let mut command = node.command();
    let mut child = command.args(args).stderr(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        signal(&child, Signal::STOP);
        if unfinished(node) == 1 {
            return child;
        }
        assert!(child.try_wait().expect("it is ours").is_none(), "it ended");
        assert!(Instant::now() < until, "it does not begin");
        signal(&child, Signal::CONT);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets it go on, and returns what came of it.
fn ended(child: Child, with: Option<Signal>) -> Said {
    if let Some(with) = with {
        signal(&child, with);
    }
    signal(&child, Signal::CONT);
    let output = child.wait_with_output().expect("it ends");
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::new(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_copy_within_the_tree_replaces_a_file_whole_or_not_at_all() {
    let mut node = Node::start();
    let http = node.http(Some(&node.token()));
    let new = noise(1, BYTES);
    assert_eq!(http.put("/new", &new).status, 201);
    assert_eq!(http.put("/target", b"old").status, 201);
    let id = |node: &Node| node.run(&["stat", "/target", "--json"]).json()[0]["id"].clone();
    let (before, copy) = (id(&node), ["cp", "--force", "weft:/new", "weft:/target"]);
    let child = held(&node, &copy);
    assert_eq!(http.bytes("/target"), b"old", "what is there is read meanwhile");
    ended(child, Some(Signal::INT)).fails(4, &["interrupted", "goes on"]);
    assert_eq!(http.bytes("/target"), b"old", "after Ctrl-C");
    node.run(&copy).ok();
    assert!(http.bytes("/target") == new, "gone on with");
    assert_eq!((id(&node), unfinished(&node)), (before, 0));
    // The node is killed while it is copied.
    assert_eq!(http.put("/target", b"old").status, 204);
    let child = held(&node, &copy);
    node.kill();
    ended(child, None).fails(4, &["error:"]);
    node.up();
    assert_eq!(node.run(&["cat", "/target"]).ok(), "old", "after kill -9 of the node");
}

#[test]
fn a_copy_within_the_tree_is_of_one_version_of_its_source() {
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    let bytes = noise(1, BYTES);
    assert_eq!(http.put("/new", &bytes).status, 201);
    let child = held(&node, &["cp", "weft:/new", "weft:/copy"]);
    assert_eq!(http.put("/new", b"other").status, 204);
    ended(child, None).ok();
    assert!(http.bytes("/copy") == bytes);
}

#[test]
fn a_source_that_is_changed_in_place_meanwhile_is_said_and_not_copied() {
    if !have("copying_within::changed", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/new", &noise(1, BYTES)).status, 201);
    assert_eq!(http.put("/target", b"old").status, 201);
    let at = node.mount("mnt");
    let child = held(&node, &["cp", "weft:/new", "weft:/target"]);
    node.sh("printf changed | dd of=mnt/new bs=1 conv=notrunc,fsync status=none");
    ended(child, None).fails(1, &["cannot copy /new", "source", "changed"]);
    assert_eq!(http.bytes("/target"), b"old");
    node.unmount(&at);
}

#[test]
fn a_directory_is_not_copied_into_itself_however_that_is_written() {
    let node = Node::start();
    node.run(&["mkdir", "-p", "/tr/a/b"]).ok();
    for name in ["/tr/1", "/tr/a/2", "/tr/a/b/3"] {
        node.feed(&["cp", "-", &format!("weft:{name}")], name.as_bytes()).ok();
    }
    node.run(&["ln", "-s", "tr/a", "/to"]).ok();
    node.run(&["ln", "-s", "/to/../a/b", "/dots"]).ok();
    let names = node.run(&["find", "/"]).ok();
    for (from, to) in [
        ("weft:/tr", "weft:/tr"),
        ("weft:/tr", "weft:/"),
        ("weft:/tr/a", "weft:/tr"),
        ("weft:/to", "weft:/tr/a"),
        ("weft:/tr", "weft:/tr/new"),
        ("weft:/tr", "weft:/tr/a/b"),
        ("weft:/tr", "weft:/tr/a/b/new"),
        ("weft:/tr/.", "weft:/tr"),
        ("weft:/tr/.", "weft:/tr/a/b"),
        ("weft:/tr/.", "weft:/tr/new"),
        ("weft:/tr", "weft:/to"),
        ("weft:/tr", "weft:/to/new"),
        ("weft:/tr", "weft:/dots/new"),
        ("weft:/to/.", "weft:/tr/a/b"),
        ("weft:/", "weft:/tr/new"),
    ] {
        for more in [&[][..], &["--dry-run"], &["--force"]] {
            let said = node.run(&[&["cp", "-r", from, to], more].concat()).fails(1, &["into itself"]);
            assert!(
                !said.err.contains("hint:") && said.out.is_empty(),
                "{from} {to}: {}{}",
                said.err,
                said.out
            );
            assert_eq!(node.run(&["find", "/"]).ok(), names, "{from} {to}");
        }
    }
    // Beside itself, and out of itself, there is nothing against it.
    node.run(&["cp", "-r", "weft:/tr/a", "weft:/tr/c"]).ok();
    node.run(&["cp", "-r", "weft:/tr/a/b", "weft:/tr"]).ok();
    assert_eq!(node.run(&["cat", "/tr/c/2", "/tr/b/3"]).ok(), "/tr/a/2/tr/a/b/3");
}

#[test]
fn holes_are_holes_in_copies_within_the_tree_and_into_a_share() {
    let node = Node::start();
    let directory = node.make_dir("of the machine");
    node.run(&["share", directory.to_str().expect("plain"), "/shared"]).ok();
    let sparse = File::create(node.path("sparse")).expect("made");
    sparse.set_len(256 << 20).expect("long");
    for (at, bytes) in [(0, noise(1, 5)), (100 << 20, noise(2, 3 << 20)), ((200 << 20) + 77, noise(3, 9))] {
        sparse.write_all_at(&bytes, at).expect("written");
    }
    crate::node::give(&node.path("sparse"));
    node.run(&["cp", "sparse", "weft:/one"]).ok();
    for (from, to) in [("/one", "/two"), ("/two", "/shared/three"), ("/shared/three", "/four")] {
        let said = node.run(&["cp", &format!("weft:{from}"), &format!("weft:{to}"), "--json"]).json();
        assert_eq!((&said[0]["copied"], &said[0]["bytes"]), (&1.into(), &(256 << 20).into()), "{said:?}");
        let attr = node.run(&["stat", to, "--json"]).json()[0].clone();
        assert!(attr["used"].as_u64().is_some_and(|used| used <= 8 << 20), "{to} was filled: {attr}");
    }
    let blocks = fs::metadata(directory.join("three")).expect("it is there").blocks();
    assert!(blocks * 512 <= 8 << 20, "it was filled on the machine: {blocks}");
    node.run(&["cp", "weft:/four", "back"]).ok();
    node.sh("cmp sparse back");
    let names = fs::read_dir(directory).expect("it can be listed").count();
    assert_eq!(
        (names, node.run(&["ls", "/"]).ok().split_whitespace().count()),
        (1, 4),
        "nothing else is left"
    );
}

#[test]
fn a_file_with_holes_takes_nothing_away_from_what_it_replaces_and_leaves_nothing_beside_it() {
    let node = Node::start();
    let sparse = File::create(node.path("sparse")).expect("made");
    sparse.set_len(8 << 20).expect("long");
    sparse.write_all_at(b"middle", 5 << 20).expect("written");
    crate::node::give(&node.path("sparse"));
    node.write("small", "x");
    let bob = node.add_user("bob", "b");
    node.run(&["cp", "sparse", "weft:/sparse"]).ok();
    node.run(&["cp", "small", "weft:/own"]).ok();
    node.run(&["acl", "grant", "/own", "bob", "read"]).ok();
    node.run(&["cp", "small", "weft:/one"]).ok();
    node.run(&["ln", "/one", "/other"]).ok();
    let told = |path: &str| {
        let attr = node.run(&["stat", path, "--json"]).json()[0].clone();
        (attr["id"].clone(), attr["container"].clone(), attr["links"].clone())
    };
    for to in ["/own", "/one"] {
        let before = told(to);
        for from in ["weft:/sparse", "sparse"] {
            node.run(&["cp", "--force", from, &format!("weft:{to}")]).ok();
            assert_eq!(told(to), before, "{from} to {to}");
        }
    }
    node.run(&["cp", "weft:/other", "back"]).ok();
    node.sh("cmp sparse back");
    // Who may do no more than put files there has it filled.
    node.run(&["mkdir", "/in"]).ok();
    node.run(&["acl", "grant", "/in", "bob", "list,traverse,insert,=read,=write,attr-read"]).ok();
    node.run(&["acl", "grant", "/sparse", "bob", "read,attr-read"]).ok();
    node.run_with(&bob, &["cp", "weft:/sparse", "weft:/in/sparse"]).ok();
    assert_eq!(node.run(&["ls", "/in", "--json"]).json().len(), 1, "nothing lies beside it");
}
