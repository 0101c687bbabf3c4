//! Clients that are gone in the middle of a transfer: what they had open is closed, and so the bytes
//! of a file that was removed meanwhile leave the disk.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use weft_conformance::run::full;
use weft_core::limits;

use crate::node::{Node, noise};

const BYTES: usize = 32 << 20;

/// Waits until none of these bytes are left among a node's objects.
#[track_caller]
fn gone_within(node: &Node, bytes: &[u8], most: Duration) {
    let until = Instant::now() + most;
    while is_kept(node, bytes) {
        assert!(Instant::now() < until, "it is still there after {most:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns once what was removed until now has gone, if nobody has it open: a file removed later has.
fn removals_are_done(node: &Node) -> Vec<u8> {
    let other = noise(6, BYTES);
    node.feed(&["cp", "-", "weft:/other"], &other).ok();
    node.run(&["rm", "/other"]).ok();
    gone_within(node, &other[..64], Duration::from_secs(60));
    other
}

fn is_kept(node: &Node, bytes: &[u8]) -> bool {
    // Files may go while they are looked at.
    let files = node.sh("find data/objects -type f -size +1000k");
    files.lines().any(|file| {
        let mut begins = vec![0; bytes.len()];
        let read = fs::File::open(node.path(file)).and_then(|mut file| file.read_exact(&mut begins));
        read.is_ok() && begins == bytes
    })
}

#[test]
fn an_http_client_that_vanishes_keeps_neither_what_it_read_nor_what_it_wrote() {
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    let bytes = noise(5, BYTES);
    assert_eq!(http.put("/f", &bytes).status, 201);
    let reader = http.begin("GET", "/f", &[]);
    reader.peek(&mut [0]).expect("it is under way");
    assert_eq!(http.delete("/f").status, 204);
    let other = removals_are_done(&node);
    assert!(is_kept(&node, &bytes[..64]), "somebody reads it");
    drop(reader);
    gone_within(&node, &bytes[..64], Duration::from_secs(60));
    let mut writer = http.begin("PUT", "/f", &["Content-Length: 99999999"]);
    writer.write_all(&other).expect("sent");
    let until = Instant::now() + Duration::from_secs(60);
    while !is_kept(&node, &other[..64]) {
        assert!(Instant::now() < until, "it is never written");
    }
    drop(writer);
    gone_within(&node, &other[..64], Duration::from_secs(60));
}

/// Over the node's socket a client may come back for what it had open, as long as its session lives.
#[test]
fn a_command_that_is_killed_keeps_what_it_read_as_long_as_its_session_and_no_longer() {
    let node = Node::start();
    let bytes = noise(7, BYTES);
    node.feed(&["cp", "-", "weft:/f"], &bytes).ok();
    let mut reader = node.command().args(["cat", "/f"]).stdout(Stdio::piped()).spawn().expect("it starts");
    reader.stdout.as_mut().expect("piped").read_exact(&mut [0; 1]).expect("it is under way");
    node.run(&["rm", "/f"]).ok();
    reader.kill().expect("it is ours");
    reader.wait().expect("it is ours");
    removals_are_done(&node);
    assert!(is_kept(&node, &bytes[..64]), "it may come back");
    if full() {
        let most = limits::SESSION_IDLE + 2 * limits::SESSION_SWEEP + Duration::from_secs(30);
        gone_within(&node, &bytes[..64], most);
    }
}
