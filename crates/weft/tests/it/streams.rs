//! What becomes of a command whose output nobody takes.

use std::fs::File;
use std::process::Stdio;

use crate::node::{Node, weft};

/// Commands that print, each in both forms where there are two.
const PRINTING: [&[&str]; 17] = [
    &["ls", "-l", "/"],
    &["ls", "-R", "/", "--json"],
    &["cat", "/d/one"],
    &["find"],
    &["find", "--json"],
    &["du", "/d"],
    &["stat", "/d"],
    &["stat", "/d", "--json"],
    &["acl", "show", "/"],
    &["acl", "show", "/", "--json"],
    &["why", "/d", "read"],
    &["audit"],
    &["status"],
    &["whoami"],
    &["user", "ls"],
    &["rm", "-r", "--dry-run", "/d"],
    &["login", "--print"],
];

fn furnished() -> Node {
    let node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    node.feed(&["cp", "-", "weft:/d/one"], b"one").ok();
    node
}

fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("made");
    drop(reader);
    writer.into()
}

#[test]
fn a_command_whose_output_is_closed_ends_quietly() {
    let node = furnished();
    for args in PRINTING {
        let said = node.run_to(args, closed(), Stdio::piped());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{args:?}");
    }
    assert!(node.run(&["ls", "/d"]).ok().contains("one"), "nothing was changed");
}

#[test]
fn a_command_whose_output_cannot_be_written_says_so() {
    let node = furnished();
    for args in PRINTING {
        let full = File::options().write(true).open("/dev/full").expect("opened");
        let said = node.run_to(args, full.into(), Stdio::piped());
        assert!(said.err.contains("standard output"), "{args:?}: {}", said.err);
        assert_eq!(said.code, 1, "{args:?}");
    }
}

#[test]
fn a_command_whose_errors_nobody_takes_has_its_exit_code() {
    let node = furnished();
    let said = node.run_to(&["ls", "/none"], Stdio::piped(), closed());
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    // Something that was closed before the command began is as good.
    node.sh(&format!("! {} ls /none 2>&- >&-", weft().display()));
}
