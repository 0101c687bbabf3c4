//! What Ctrl-C, or a source that cannot be read to its end, leaves of `weft cp`.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::node::{Node, signal, wait};

/// How many uploads the node keeps unfinished.
pub fn unfinished(node: &Node) -> u64 {
    node.run(&["status", "--json"]).json()[0]["uploads"].as_u64().expect("a number")
}

/// Starts a copy, and waits until it has a stage and all the names are there.
fn streaming(node: &Node, args: &[&str], names: &[&str]) -> Child {
    let command = &mut node.command();
    let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let (http, until) = (node.http(Some(&node.token())), Instant::now() + Duration::from_secs(60));
    while names.iter().any(|name| http.get(name).status != 200) || unfinished(node) != 1 {
        assert!(child.try_wait().expect("it is ours").is_none(), "it ended");
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Ends a copy with Ctrl-C.
#[track_caller]
fn interrupt(node: &Node, mut child: Child) {
    signal(&child, Signal::INT);
    let code = wait(&mut child).code();
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(code == Some(4) && said.contains("interrupted"), "{code:?}: {said}");
    assert_eq!(unfinished(node), 0, "nobody can go on with it");
}

#[test]
fn standard_input_that_is_interrupted_leaves_nothing_at_the_node() {
    let node = Node::start();
    let mut child = streaming(&node, &["cp", "-", "weft:/in"], &[]);
    let input = child.stdin.take();
    interrupt(&node, child);
    drop(input);
    assert_eq!(node.http(Some(&node.token())).get("/in").status, 404);
}

#[test]
fn standard_input_that_cannot_be_read_leaves_nothing_at_the_node() {
    let node = Node::start();
    let mut command = node.command();
    let input = File::open(node.make_dir("dir")).expect("it is there");
    let child = command.args(["cp", "-", "weft:/in"]).stdin(input).stderr(Stdio::piped()).spawn();
    let said = child.and_then(Child::wait_with_output).expect("it starts");
    assert_eq!(said.status.code(), Some(1), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(unfinished(&node), 0, "nobody can go on with it");
}

#[test]
fn an_interrupt_is_heard_whichever_source_is_being_copied() {
    let node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    node.write("first", "first");
    node.write("third", "third");
    node.sh("mkfifo pipe");
    // Open both ways: the copy finds somebody who writes, and no end.
    let mut pipe = File::options().read(true).write(true).open(node.path("pipe")).expect("a pipe");
    pipe.write_all(b"some").expect("room");
    let child = streaming(&node, &["cp", "first", "pipe", "third", "weft:/d"], &["/d/first"]);
    interrupt(&node, child);
    assert_eq!(node.run(&["ls", "/d"]).ok(), "first\n");
}
