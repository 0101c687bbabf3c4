//! A directory that a newer program wrote, and one that an older one did.

use std::fs;
use std::process::Command;

use crate::node::{Node, give};

/// Says of a node that weft 9.9.9 wrote it.
fn mark_newer(file: &std::path::Path) {
    fs::write(file, "weft format 99\nwritten by weft 9.9.9\n").expect("written");
    give(file);
}

/// Everything below a directory, with what a change of it would change.
fn all_of(dir: &std::path::Path) -> String {
    let mut find = Command::new("find");
    find.arg(dir).args(["!", "-type", "s", "-printf", "%P %s %m %T@ %C@\n"]);
    let mut lines: Vec<_> = String::from_utf8(find.output().expect("find runs").stdout)
        .expect("plain names")
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn what_a_newer_program_wrote_is_refused_and_left_as_it_is() {
    let mut node = Node::start();
    let backup = node.path("backup");
    node.run(&["backup", backup.to_str().expect("plain")]).ok();
    node.stop();
    mark_newer(&node.data().join("format"));
    let before = all_of(&node.data());
    let data = node.data();
    let data = data.to_str().expect("plain");
    let own = env!("CARGO_PKG_VERSION");
    let this = format!("this is weft {own}");
    let words = ["error:", "written by weft 9.9.9 in format 99", &this, "hint: use weft 9.9.9"];
    for command in [
        &["up", data, "--http", "127.0.0.1:0"][..],
        &["up", data, "--http", "127.0.0.1:0", "--daemon"],
        &["fsck", data],
        &["fsck", data, "--dry-run"],
    ] {
        let said = node.run(command);
        assert_ne!(said.code, 0, "{command:?}");
        assert!(words.iter().all(|word| said.err.contains(word)), "{command:?}: {}", said.err);
        assert_eq!(all_of(&node.data()), before, "{command:?} changed something");
    }
    let said = node.run(&["doctor", data]);
    assert!(said.code == 1 && said.out.contains("written by weft 9.9.9"), "{}", said.out);
    // A backup of a newer program, too; nothing is made of it.
    mark_newer(&backup.join("format"));
    let other = node.path("other");
    let said = node.run(&["restore", backup.to_str().expect("plain"), other.to_str().expect("plain")]);
    assert!(said.code != 0 && words.iter().all(|word| said.err.contains(word)), "{}", said.err);
    assert!(!other.exists());
    // What cannot be understood is not guessed at.
    fs::write(node.data().join("format"), "weft").expect("written");
    node.run(&["fsck", data]).fails(1, &["error:", "does not say which program"]);
}

#[test]
fn a_directory_of_an_older_program_is_taken_up_and_says_so_once() {
    let mut node = Node::start();
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/kept", b"bytes").status, 201);
    node.stop();
    // As before there was such a file.
    let file = node.data().join("format");
    fs::remove_file(&file).expect("it is there");
    node.up();
    assert!(node.log().contains("the node's directory is upgraded"), "{}", node.log());
    assert!(fs::read_to_string(&file).expect("it is there").starts_with("weft format 2\nwritten by weft "));
    assert_eq!(node.http(Some(&node.token())).bytes("/kept"), b"bytes");
    node.stop();
    node.up();
    assert_eq!(node.log().matches("is upgraded").count(), 1);
}
