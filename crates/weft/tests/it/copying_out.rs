//! `weft cp` out of the tree: what stands at the target, and what leads elsewhere.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::copying::bytes_moved;
use crate::node::{Node, give, noise, signal, wait};

/// A node whose tree has the file `/a`.
fn with_a(bytes: &[u8]) -> Node {
    let node = Node::start();
    node.feed(&["cp", "-", "weft:/a"], bytes).ok();
    node
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .expect("it is there")
        .map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_pipe_given_as_target_is_written_to_and_stays_a_pipe() {
    let bytes = noise(7, 3_000_000);
    let node = with_a(&bytes);
    node.sh("mkfifo out");
    let out = node.path("out");
    let (reader, at) = (std::thread::spawn, out.clone());
    let reader = reader(move || {
        let mut read = Vec::new();
        fs::File::open(at).expect("opened").read_to_end(&mut read).expect("read");
        read
    });
    node.run(&["cp", "weft:/a", "out"]).ok();
    assert!(fs::symlink_metadata(&out).expect("it is there").file_type().is_fifo(), "it was replaced");
    assert!(reader.join().expect("it reads") == bytes);
    // A tree does not go there, and below a directory none is replaced or waited for.
    node.run(&["mkdir", "/d"]).ok();
    node.feed(&["cp", "-", "weft:/d/out"], b"bytes").ok();
    node.run(&["cp", "-r", "weft:/d", "out"]).fails(1, &["not a directory"]);
    node.run(&["cp", "-r", "weft:/d/.", "."]).fails(1, &["no regular file"]);
    assert!(fs::symlink_metadata(&out).expect("it is there").file_type().is_fifo(), "it was replaced");
}

#[test]
fn a_link_given_as_target_is_followed_to_what_it_names() {
    let node = with_a(b"new");
    node.make_dir("far");
    node.write("far/file", "old");
    for (link, to) in [("link", "far/file"), ("chain", "link"), ("dangling", "far/made")] {
        symlink(to, node.path(link)).expect("made");
    }
    for (link, file) in [("link", "far/file"), ("chain", "far/file"), ("dangling", "far/made")] {
        fs::write(node.path("far/file"), "old").expect("written");
        node.run(&["cp", "--force", "weft:/a", link]).ok();
        assert!(node.path(link).is_symlink(), "{link} was replaced");
        assert_eq!(fs::read(node.path(file)).expect("it is there"), b"new", "{link}");
    }
    assert_eq!(names(&node.path("far")), ["file", "made"], "nothing half made is left");
    symlink("round", node.path("round")).expect("made");
    node.run(&["cp", "weft:/a", "round"]).fails(1, &["symbolic links"]);
}

#[test]
fn a_name_with_other_links_gets_a_file_of_its_own() {
    let node = with_a(b"new");
    node.write("one", "old");
    fs::hard_link(node.path("one"), node.path("two")).expect("linked");
    node.run(&["cp", "weft:/a", "one"]).ok();
    assert_eq!(fs::read(node.path("one")).expect("read"), b"new");
    assert_eq!(fs::read(node.path("two")).expect("read"), b"old");
    assert!(node.run(&["cp", "--help"]).ok().contains("hard links"), "it is said");
}

/// Whoever may write in the tree must not write elsewhere as the person who copies it.
#[test]
fn below_the_directory_that_is_copied_into_no_link_is_followed() {
    let node = Node::start();
    let (victim, out) = (node.make_dir("victim"), node.make_dir("out"));
    node.write("victim/kept", "kept");
    node.run(&["mkdir", "/t"]).ok();
    node.run(&["ln", "-s", victim.to_str().expect("ours"), "/t/d"]).ok();
    node.run(&["cp", "-r", "weft:/t", "out"]).ok();
    assert!(out.join("t/d").is_symlink());
    node.run(&["rm", "/t/d"]).ok();
    node.run(&["mkdir", "-p", "/t/d/deep"]).ok();
    for path in ["weft:/t/d/evil", "weft:/t/d/deep/evil", "weft:/t/good"] {
        node.feed(&["cp", "-", path], b"evil").ok();
    }
    for again in [&["cp", "-r", "weft:/t", "out"][..], &["cp", "-r", "weft:/t/.", "out/t"]] {
        node.run(again).fails(1, &["out/t/d", "symbolic link"]);
        assert_eq!(names(&victim), ["kept"], "a link was followed");
        assert_eq!(fs::read(out.join("t/good")).expect("the rest is copied"), b"evil");
    }
    // The top below what was typed is no exception, and a link to a file is replaced, not followed.
    node.run(&["rm", "-r", "/t/d"]).ok();
    symlink(&victim, out.join("top")).expect("made");
    node.run(&["mkdir", "/top"]).ok();
    node.feed(&["cp", "-", "weft:/top/evil"], b"evil").ok();
    node.run(&["cp", "-r", "weft:/top", "out"]).fails(1, &["out/top", "symbolic link"]);
    fs::remove_file(out.join("t/good")).expect("removed");
    symlink(victim.join("kept"), out.join("t/good")).expect("made");
    node.run(&["cp", "-r", "weft:/t/.", "out/t"]).ok();
    assert_eq!(fs::read(out.join("t/good")).expect("read"), b"evil");
    assert_eq!(fs::read(victim.join("kept")).expect("read"), b"kept");
    assert_eq!(names(&victim), ["kept"], "a link was followed");
    // What was typed may be one.
    symlink("out", node.path("typed")).expect("made");
    node.run(&["cp", "-r", "weft:/t/.", "typed"]).ok();
    assert!(out.join("good").is_file());
}

/// The same the other way: who may write in a directory must not have others' files copied.
#[test]
fn below_the_directory_that_is_copied_up_no_link_is_followed() {
    let node = Node::start();
    let tree = node.make_dir("tree/in");
    node.write("secret", "secret");
    symlink(node.path("secret"), tree.join("link")).expect("made");
    symlink("tree", node.path("typed")).expect("made");
    node.run(&["cp", "-r", "typed", "weft:/t"]).ok();
    let listed = node.run(&["ls", "-R", "/t", "--json"]).json();
    let link = listed.iter().find(|e| e["path"] == "/t/in/link").expect("listed");
    assert_eq!(link["kind"], "symlink");
}

#[test]
fn a_name_of_any_length_is_copied_out_and_gone_on_with() {
    let node = Node::start();
    let name = "n".repeat(255);
    let bytes = noise(1, 100 << 20);
    let big = node.write(&name, &bytes);
    node.run(&["cp", big.to_str().expect("ours"), "weft:/"]).ok();
    fs::remove_file(&big).expect("removed");
    let copy = ["cp", &format!("weft:/{name}"), "."];
    let mut child = node.command().args(copy).stderr(Stdio::null()).spawn().expect("it starts");
    while bytes_moved(&child) < 50 << 20 {
        assert!(child.try_wait().expect("it is ours").is_none(), "it ended too soon");
    }
    signal(&child, Signal::KILL);
    wait(&mut child);
    assert!(!big.exists(), "an unfinished copy is visible");
    let said = node.run(&copy);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("did not have to be sent again"), "{}", said.err);
    assert!(fs::read(&big).expect("it is there") == bytes);
}

#[test]
fn new_local_files_and_directories_have_the_source_s_mode_within_the_umask() {
    let node = Node::start();
    node.make_dir("t");
    node.make_dir("t/d");
    for (name, mode) in [("t/f", 0o664), ("t/x", 0o755), ("t/r", 0o400)] {
        let path = node.write(name, name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    for (name, mode, at) in [("t/d", 0o2750, "2001-02-03 04:05:06"), ("t", 0o777, "2002-03-04 05:06:07")] {
        fs::set_permissions(node.path(name), fs::Permissions::from_mode(mode)).expect("ours");
        node.sh(&format!("TZ=UTC touch -d '{at}' {name}"));
    }
    node.run(&["cp", "-r", "t", "weft:/t"]).ok();
    let shown = |path: &str| node.run(&["stat", path, "--json"]).json().remove(0);
    assert_eq!(shown("/t/d")["mode"], shown_mode(0o2750), "{}", shown("/t/d"));
    for (umask, f, x, r, d, t) in
        [("022", 0o644, 0o755, 0o400, 0o750, 0o755), ("077", 0o600, 0o700, 0o400, 0o700, 0o700)]
    {
        node.sh(&format!("umask {umask}; {} cp -r weft:/t back{umask}", crate::node::weft().display()));
        for (name, mode) in [("t/f", f), ("t/x", x), ("t/r", r), ("t/d", d), ("t", t)] {
            let back = node.path(name.replacen('t', &format!("back{umask}"), 1));
            let (back, source) =
                (fs::metadata(back).expect("there"), fs::metadata(node.path(name)).expect("there"));
            assert_eq!(back.mode() & 0o7777, mode, "{name} with umask {umask}");
            assert_eq!(back.modified().expect("kept"), source.modified().expect("kept"), "{name}");
        }
        // A directory that was there keeps its own.
        fs::set_permissions(node.path(format!("back{umask}/d")), fs::Permissions::from_mode(0o711))
            .expect("ours");
        node.run(&["cp", "-r", "weft:/t/.", &format!("back{umask}")]).ok();
        let kept = fs::metadata(node.path(format!("back{umask}/d"))).expect("there");
        assert_eq!(kept.mode() & 0o777, 0o711);
    }
}

fn shown_mode(mode: u32) -> serde_json::Value {
    format!("{mode:04o}").into()
}

#[test]
fn a_copy_to_where_another_is_under_way_says_so_and_spoils_nothing() {
    let node = Node::start();
    let bytes = noise(1, 100 << 20);
    node.write("big", &bytes);
    node.run(&["cp", "big", "weft:/big"]).ok();
    let copy = ["cp", "weft:/big", "back"];
    let mut first = node.command().args(copy).stderr(Stdio::null()).spawn().expect("it starts");
    while bytes_moved(&first) < 10 << 20 {
        assert!(first.try_wait().expect("it is ours").is_none(), "it ended too soon");
    }
    signal(&first, Signal::STOP);
    node.run(&copy).fails(4, &["another copy", "under way"]);
    signal(&first, Signal::CONT);
    assert!(wait(&mut first).success());
    assert!(fs::read(node.path("back")).expect("it is there") == bytes);
    give(&node.path("back"));
}

#[test]
fn of_two_copies_to_one_name_of_the_tree_both_end_well_and_the_last_wins() {
    let node = Node::start();
    // What is left of it when it is stopped takes longer than the look that finds it far enough.
    let (one, two) = (noise(1, 300 << 20), noise(2, 70 << 20));
    node.write("one", &one);
    node.write("two", &two);
    let http = node.http(Some(&node.token()));
    let mut first =
        node.command().args(["cp", "one", "weft:/big"]).stderr(Stdio::piped()).spawn().expect("it starts");
    while bytes_moved(&first) < 66 << 20 {
        assert!(first.try_wait().expect("it is ours").is_none(), "it ended too soon");
    }
    signal(&first, Signal::STOP);
    node.run(&["cp", "two", "weft:/big"]).ok();
    signal(&first, Signal::CONT);
    let ended = wait(&mut first);
    let mut said = String::new();
    first.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(ended.success(), "{said}");
    assert!(http.bytes("/big") == one, "the last wins");
}
