//! `weft cp`: where things go, what is said of them, and what goes on when some of them fail.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use serde_json::json;

use crate::node::{Node, noise};

#[test]
fn a_slash_at_the_end_means_a_directory() {
    let node = Node::start();
    node.write("a", "new");
    node.write("file", "old");
    node.make_dir("dir");
    node.feed(&["cp", "-", "weft:/file"], b"old").ok();
    node.run(&["mkdir", "/dir"]).ok();
    for (args, words) in [
        (["cp", "a", "weft:/file/"], "not a directory"),
        (["cp", "a", "weft:/none/"], "no such directory"),
        (["cp", "weft:/file", "file/"], "not a directory"),
        (["cp", "weft:/file", "none/"], "no such directory"),
        (["cp", "weft:/file/", "x"], "not a directory"),
        (["cp", "weft:/file/.", "x"], "not a directory"),
        (["cp", "weft:/file/", "weft:/x"], "not a directory"),
        (["cp", "a/", "weft:/x"], "not a directory"),
        (["cp", "a/.", "weft:/x"], "not a directory"),
        (["cp", "-", "weft:/none/"], "no such directory"),
    ] {
        node.run(&args).fails(1, &["error:", words]);
    }
    assert_eq!(node.run(&["ls", "/"]).ok(), "dir/\nfile\n", "nothing was made");
    assert_eq!(node.run(&["cat", "/file"]).ok(), "old");
    assert_eq!(fs::read(node.path("file")).expect("read"), b"old");
    assert!(!node.path("none").exists() && !node.path("x").exists());
    node.run(&["cp", "a", "weft:/dir/"]).ok();
    node.run(&["cp", "weft:/file", "dir/"]).ok();
    node.run(&["cp", "-r", "dir/", "weft:/dir/"]).ok();
    assert_eq!(node.run(&["ls", "-R", "/dir", "--json"]).json().len(), 3);
    assert!(node.path("dir/file").is_file());
}

#[test]
fn a_link_of_the_tree_given_as_target_is_followed_and_one_below_it_is_not() {
    let node = Node::start();
    node.make_dir("d");
    node.write("d/a", "new");
    node.run(&["mkdir", "/d"]).ok();
    node.feed(&["cp", "-", "weft:/real"], b"old").ok();
    for (to, link) in [("/real", "/d/a"), ("b", "/d/relative"), ("/d/relative", "/chain")] {
        node.run(&["ln", "-s", to, link]).ok();
    }
    node.run(&["cp", "-r", "d/.", "weft:/d"]).fails(1, &["d/a"]);
    assert_eq!(node.run(&["cat", "/real"]).ok(), "old");
    node.run(&["cp", "d/a", "weft:/d/a"]).ok();
    assert_eq!(node.run(&["cat", "/real"]).ok(), "new");
    node.run(&["cp", "d/a", "weft:/chain"]).ok();
    node.feed(&["cp", "-", "weft:/chain"], b"input").ok();
    assert_eq!(node.run(&["cat", "/d/b"]).ok(), "input");
}

#[test]
fn what_is_in_a_directory_can_be_meant_on_every_way() {
    let node = Node::start();
    node.make_dir("t");
    node.make_dir("t/in");
    node.write("t/in/f", "f");
    for (from, to) in [("t/.", "weft:/up"), ("weft:/up/.", "weft:/within"), ("weft:/within/.", "down")] {
        // The first makes the target, and the second goes into it as well.
        for _ in 0..2 {
            node.run(&["cp", "-r", from, to]).ok();
        }
    }
    node.sh("diff -r t down");
    node.run(&["cp", "-r", "weft:/.", "whole"]).ok();
    node.sh("diff -r t whole/up && diff -r t whole/within");
    let mut there = node.command();
    there.current_dir(node.path("t")).args(["cp", "-r", ".", "weft:/here"]);
    node.feed_command(&mut there, b"").ok();
    assert_eq!(node.run(&["cat", "/here/in/f"]).ok(), "f");
    node.run(&["cp", "-r", "weft:/up", "weft:/up/in"]).fails(1, &["into itself"]);
}

#[test]
fn what_fails_is_said_and_the_rest_is_copied() {
    let node = Node::start();
    node.make_dir("t");
    node.make_dir("t/closed");
    for name in ["a", "closed/in", "hidden", "z"] {
        node.write(&format!("t/{name}"), name);
    }
    node.make_dir("t/ok");
    node.write("t/ok/in", "in");
    for closed in ["t/closed", "t/hidden"] {
        fs::set_permissions(node.path(closed), fs::Permissions::from_mode(0o000)).expect("ours");
    }
    let said = node.run(&["cp", "-r", "t", "weft:/t"]).fails(3, &["t/closed", "t/hidden", "; 2 failed"]);
    assert!(said.err.contains("hint: weft cp -r t/. weft:/t goes on"), "{}", said.err);
    assert_eq!(said.err.matches("error:").count(), 2, "{}", said.err);
    assert_eq!(node.run(&["cat", "/t/a", "/t/z", "/t/ok/in"]).ok(), "azin");
    // In JSON each failure is a line, and what it came to a document.
    let said = node.run(&["cp", "-r", "t/.", "weft:/t", "--json"]).fails(3, &["t/closed", "t/hidden"]);
    for line in said.err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["error"], "denied", "{line}");
    }
    let tally: serde_json::Value = serde_json::from_str(&said.out).expect("one document");
    let expected = json!({ "copied": 0, "bytes": 0, "resumed_bytes": 0, "unchanged": 3, "failed": 2 });
    assert_eq!(tally, expected);
    for closed in ["t/closed", "t/hidden"] {
        fs::set_permissions(node.path(closed), fs::Permissions::from_mode(0o755)).expect("ours");
    }
    node.run(&["cp", "-r", "t/.", "weft:/t"]).ok();
    // Out of the tree, and of several sources.
    for dir in ["back", "back/a", "back/ok", "back/ok/in"] {
        node.make_dir(dir);
    }
    node.run(&["cp", "-r", "weft:/t/.", "back"]).fails(1, &["back/a", "back/ok/in", "; 2 failed"]);
    assert_eq!(fs::read(node.path("back/closed/in")).expect("copied"), b"closed/in");
    node.run(&["cp", "weft:/none", "weft:/t/z", "back"]).fails(1, &["/none", "; 1 failed"]);
    // Within it, where a directory stands in the way of a file.
    node.run(&["mkdir", "-p", "/w/t/a"]).ok();
    node.run(&["cp", "-r", "weft:/t", "weft:/w"]).fails(1, &["/t/a", "; 1 failed"]);
    assert_eq!(node.run(&["cat", "/w/t/z"]).ok(), "z");
}

#[test]
fn a_copy_that_cannot_go_on_ends_at_once() {
    let mut node = Node::start();
    node.make_dir("t");
    for number in 0..40 {
        node.write(&format!("t/{number}"), noise(number, 1 << 20));
    }
    node.run(&["cp", "-r", "t", "weft:/t"]).ok();
    let closed = {
        let (reader, writer) = std::io::pipe().expect("made");
        drop(reader);
        std::process::Stdio::from(writer)
    };
    let said =
        node.run_to(&["cp", "-r", "--dry-run", "t", "weft:/other"], closed, std::process::Stdio::piped());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    node.stop();
    let said = node.run(&["cp", "-r", "t", "weft:/t"]).fails(4, &["error:"]);
    assert_eq!(said.err.matches("error:").count(), 1, "{}", said.err);
}

#[test]
fn pipes_are_copied_as_pipes_and_what_the_tree_has_no_kind_for_is_said() {
    let node = Node::start();
    node.make_dir("t");
    node.write("t/f", "f");
    node.sh("mkfifo -m 640 t/pipe");
    node.run(&["cp", "-r", "t", "weft:/t"]).ok();
    for _ in 0..2 {
        node.run(&["cp", "-r", "weft:/t/.", "weft:/w"]).ok();
        node.run(&["cp", "-r", "weft:/w/.", "back"]).ok();
        node.run(&["cp", "-r", "t/.", "weft:/t"]).ok();
    }
    let back = fs::symlink_metadata(node.path("back/pipe")).expect("it is there");
    assert!(back.file_type().is_fifo());
    assert_eq!(back.permissions().mode() & 0o777, 0o640);
    node.run(&["cp", "-r", "t/pipe", "weft:/pipe"]).ok();
    assert_eq!(node.run(&["stat", "/pipe", "--json"]).json()[0]["kind"], "fifo");
    // Without `-r`, what a pipe gives is taken.
    node.sh(&format!(
        "(printf given > t/pipe) & {} cp t/pipe weft:/given; wait",
        crate::node::weft().display()
    ));
    assert_eq!(node.run(&["cat", "/given"]).ok(), "given");
    let _socket = UnixListener::bind(node.path("t/socket")).expect("bound");
    node.run(&["cp", "-r", "t/.", "weft:/t"]).fails(1, &["t/socket", "passed over"]);
    assert_eq!(node.run(&["ls", "/t"]).ok(), "f\npipe\n");
}

#[test]
fn a_dry_run_names_what_would_be_copied_and_nothing_else() {
    let node = Node::start();
    node.make_dir("t");
    node.make_dir("t/old");
    node.write("t/old/same", "same");
    symlink("old", node.path("t/link")).expect("made");
    node.run(&["cp", "-r", "t", "weft:/t"]).ok();
    node.run(&["cp", "-r", "weft:/t", "back"]).ok();
    for (from, to) in [("t/.", "weft:/t"), ("weft:/t/.", "back"), ("weft:/t/.", "weft:/t2")] {
        if to == "weft:/t2" {
            node.run(&["cp", "-r", from, to]).ok();
        }
        let said = node.run(&["cp", "-r", "--dry-run", from, to]);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", ""), "{from} {to}");
    }
    node.make_dir("t/new");
    node.write("t/new/f", "f");
    let would = node.run(&["cp", "-r", "--dry-run", "t/.", "weft:/t"]).ok();
    assert_eq!(would, "/t/new/\n/t/new/f\n");
    node.run(&["cp", "-r", "t/.", "weft:/t"]).ok();
    for (to, shown) in [("back", "back"), ("weft:/t2", "/t2")] {
        let would = node.run(&["cp", "-r", "--dry-run", "weft:/t/.", to]).ok();
        assert_eq!(would, format!("{shown}/new/\n{shown}/new/f\n"), "{to}");
    }
    let would = node.run(&["cp", "-r", "--dry-run", "--json", "weft:/t/.", "back"]).json();
    assert_eq!(would, [json!({ "would_copy": "back/new/" }), json!({ "would_copy": "back/new/f" })]);
    assert!(!node.path("back/new").exists());
    let would = node.run(&["cp", "-r", "--dry-run", "--force", "weft:/t/.", "back"]).ok();
    assert!(would.contains("back/old/same\n"), "{would}");
}

#[test]
fn a_dry_run_shows_where_things_would_go_and_no_two_names_alike() {
    let node = Node::start();
    node.make_dir("d");
    for name in [b"\xfe", b"\xff", b"\x1b", b"\\"] {
        fs::write(node.path(OsStr::from_bytes(&[b"d/", &name[..]].concat())), "").expect("written");
    }
    symlink("away", node.path("d/link")).expect("made");
    node.sh("mkfifo d/pipe pipe");
    let lines = |args: &[&str]| {
        let mut lines: Vec<_> = node.run(args).ok().lines().map(str::to_owned).collect();
        lines.sort();
        let documents = node.run(&[args, &["--json"]].concat()).json();
        let mut coded: Vec<_> =
            documents.iter().map(|line| line["would_copy"].as_str().expect("text").to_owned()).collect();
        coded.sort();
        assert_eq!(lines, coded, "as text and in JSON");
        lines
    };
    let below = |top: &str| {
        ["", r"\x1b", r"\\", r"\xfe", r"\xff", "link", "pipe"].map(|name| format!("{top}/{name}")).to_vec()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let dry = |from: &str, to: &str| lines(&["cp", "-r", "--dry-run", from, to]);
    for from in ["d", "d/", "d/."] {
        assert_eq!(dry(from, "weft:/new"), sorted(below("/new")), "{from}");
    }
    assert_eq!(dry("d/", "weft:/"), sorted(below("/d")));
    assert_eq!(dry("d/.", "weft:/"), sorted(below("/")[1..].iter().map(|n| n.replace("//", "/")).collect()));
    node.run(&["cp", "-r", "d", "weft:/d"]).ok();
    for from in ["weft:/d", "weft:/d/", "weft:/d/."] {
        assert_eq!(dry(from, "weft:/new"), sorted(below("/new")), "{from}");
        assert_eq!(dry(from, "new"), sorted(below("new")), "{from}");
    }
    node.make_dir("into");
    assert_eq!(dry("weft:/d", "into/"), sorted(below("into/d")));
    // What is copied by itself, and streams.
    node.run(&["mkdir", "/into"]).ok();
    for (args, shown) in [
        (["d/link", "weft:/into"], "/into/link"),
        (["d/\\", "weft:/into"], r"/into/\\"),
        (["d/\\", "weft:/as"], "/as"),
        (["pipe", "weft:/into"], "/into/pipe"),
        (["-", "weft:/in"], "/in"),
        (["weft:/d/\\", "into"], r"into/\\"),
        (["weft:/d/\\", "."], r"\\"),
        (["weft:/d/\\", "weft:/into"], r"/into/\\"),
        (["weft:/d/\\", "pipe"], "pipe"),
    ] {
        fs::write(node.path("d/away"), "").expect("written");
        assert_eq!(lines(&[&["cp", "--dry-run"][..], &args].concat()), [shown], "{args:?}");
    }
}

#[test]
fn what_a_copy_came_to_is_said_in_bytes_that_were_copied() {
    let node = Node::start();
    node.make_dir("t");
    node.write("t/a", noise(1, 2 << 20));
    let said = node.run(&["cp", "-r", "t", "weft:/t"]);
    assert!(said.err.contains("copied 1 files, 2.00 MiB"), "{}", said.err);
    node.write("t/b", noise(2, 1 << 20));
    let said = node.run(&["cp", "-r", "t/.", "weft:/t"]);
    assert_eq!(said.err, "copied 1 files, 1.00 MiB; 1 were there already\n");
    let said = node.run(&["cp", "-r", "t/.", "weft:/t"]);
    assert_eq!(said.err, "copied 0 files, 0 B; 2 were there already\n");
    let said = node.run(&["cp", "-r", "weft:/t", "back", "--json"]);
    assert_eq!(said.err, "");
    let expected = json!({ "copied": 2, "bytes": 3 << 20, "resumed_bytes": 0, "unchanged": 0, "failed": 0 });
    assert_eq!(said.json(), [expected]);
    for args in [["cp", "--json", "-", "weft:/in"], ["cp", "--json", "weft:/t/a", "weft:/copy"]] {
        assert_eq!(node.feed(&args, b"in").json()[0]["copied"], 1, "{args:?}");
    }
}

/// The second time the target is there, and what is copied by its name would go into it.
#[test]
fn an_interrupted_copy_says_which_command_goes_on() {
    let node = Node::start();
    node.make_dir("a tree/in");
    for number in 0..8 {
        node.write(&format!("a tree/in/{number}"), noise(number, 20 << 20));
    }
    let said = crate::copying::cut_off(
        &node,
        &["cp", "-r", "a tree", "weft:/new"],
        40 << 20,
        rustix::process::Signal::INT,
    );
    let hint = said.fails(4, &["interrupted"]).err;
    let hint = hint.lines().find_map(|line| line.strip_prefix("hint: ")).expect("a hint").to_owned();
    let command = hint.strip_suffix(" goes on where it stopped").expect("it says so");
    assert_eq!(command, "weft cp -r 'a tree/.' weft:/new");
    let rest = command.strip_prefix("weft ").expect("the binary's name");
    node.sh(&format!("{} {rest}", crate::node::weft().display()));
    node.run(&["cp", "-r", "weft:/new", "back"]).ok();
    node.sh("diff -r 'a tree' back");
    // To a directory that was there, the same command does.
    let copy = ["cp", "-r", "a tree", "weft:/"];
    let said = crate::copying::cut_off(&node, &copy, 40 << 20, rustix::process::Signal::INT);
    said.fails(4, &["interrupted", "hint: the same command goes on"]);
    node.run(&copy).ok();
    assert_eq!(node.run(&["ls", "/a tree"]).ok(), "in/\n");
}

#[test]
fn a_copy_can_be_repeated_where_links_are_and_follows_their_changes() {
    let node = Node::start();
    node.make_dir("t");
    symlink("v1", node.path("t/current")).expect("made");
    let again = [["t/.", "weft:/t"], ["weft:/t/.", "weft:/w"], ["weft:/w/.", "back"]];
    for target in ["v1", "v1", "v2"] {
        fs::remove_file(node.path("t/current")).expect("removed");
        symlink(target, node.path("t/current")).expect("made");
        for [from, to] in again {
            node.run(&["cp", "-r", from, to]).ok();
        }
        assert_eq!(fs::read_link(node.path("back/current")).expect("a link").to_str(), Some(target));
    }
    // What is no link is not replaced by one.
    fs::remove_file(node.path("back/current")).expect("removed");
    node.write("back/current", "mine");
    node.run(&["cp", "-r", "weft:/w/.", "back"]).fails(1, &["back/current", "taken"]);
    assert_eq!(fs::read(node.path("back/current")).expect("read"), b"mine");
}
