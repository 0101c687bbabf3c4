//! A line between a command and its node that changes a byte: never does a copy that is not the
//! file's come to stand under its name, whichever way it went.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::node::{Node, Said, give, noise};

const MIB: usize = 1 << 20;
/// What marks bytes that may be changed: a file's, and nothing of the protocol.
const MARK: [u8; 32] = [0xa5; 32];

/// Bytes that may be changed on the way, anywhere.
fn marked(length: usize) -> Vec<u8> {
    let mut bytes = noise(9, length);
    for chunk in bytes.chunks_mut(1024) {
        let marked = chunk.len().min(512);
        chunk[..marked].fill(MARK[0]);
    }
    bytes
}

/// How many bytes the line has yet to change, each way.
#[derive(Default)]
struct Faults {
    up: AtomicUsize,
    down: AtomicUsize,
}

/// A node's socket, with a line behind it that changes bytes.
struct Line {
    faults: Arc<Faults>,
}

impl Line {
    /// Stands in the node's place at `line/node.sock`.
    fn of(node: &Node) -> Self {
        let (dir, to) = (node.make_dir("line"), node.data().join("node.sock"));
        let listener = UnixListener::bind(dir.join("node.sock")).expect("bound");
        give(&dir.join("node.sock"));
        let faults = Arc::<Faults>::default();
        let here = faults.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(node)) = (client, UnixStream::connect(&to)) else { return };
                let (from, into) = (client.try_clone().expect("copied"), node.try_clone().expect("copied"));
                let faults = here.clone();
                std::thread::spawn(move || pass(from, into, &faults.up));
                let faults = here.clone();
                std::thread::spawn(move || pass(node, client, &faults.down));
            }
        });
        Self { faults }
    }

    fn command(&self, node: &Node) -> Command {
        let mut command = node.command();
        // Over the line the node takes us for who runs this test.
        command.env("WEFT_NODE", node.path("line")).env("BEARER_TOKEN", node.token());
        command
    }

    fn run(&self, node: &Node, args: &[&str]) -> Said {
        self.feed(node, args, b"")
    }

    fn feed(&self, node: &Node, args: &[&str], input: &[u8]) -> Said {
        node.feed_command(self.command(node).args(args), input)
    }
}

/// Passes bytes on, changing one behind a mark now and then until all faults are made.
fn pass(mut from: UnixStream, mut to: UnixStream, faults: &AtomicUsize) {
    let mut bytes = vec![0; 256 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let came = &mut bytes[..read];
        let left = |left: usize| left.checked_sub(1);
        if let Some(place) = came.windows(MARK.len()).position(|window| window == MARK)
            && faults.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
        {
            came[place + MARK.len() / 2] ^= 1;
        }
        if to.write_all(came).is_err() {
            break;
        }
    }
    // One end is gone; the other hears of it.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it is there");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("read").file_name();
    entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect()
}

#[test]
fn a_byte_changed_on_the_way_out_is_caught_and_nothing_of_it_is_left() {
    let node = Node::start();
    let line = Line::of(&node);
    let bytes = marked(5 * MIB + 11);
    node.write("large", &bytes);
    node.write("small", &bytes[..700]);
    node.write("plain", noise(1, 700));
    node.run(&["mkdir", "/t"]).ok();
    node.run(&["cp", "large", "small", "plain", "weft:/t"]).ok();
    let dir = node.make_dir("out");
    let out = |name: &str| dir.join(name).display().to_string();
    for name in ["large", "small"] {
        let copy = ["cp", &format!("weft:/t/{name}"), &out(name)];
        // However often it comes.
        line.faults.down.store(usize::MAX, Ordering::Release);
        line.run(&node, &copy).fails(1, &["error: cannot copy", "checksum", "hint:"]);
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
        // Once is mended by asking for it again.
        line.faults.down.store(1, Ordering::Release);
        line.run(&node, &copy).ok();
        assert_eq!(line.faults.down.load(Ordering::Acquire), 0, "the line changed nothing");
        assert!(fs::read(dir.join(name)).expect("it is there") == fs::read(node.path(name)).expect("read"));
        fs::remove_file(dir.join(name)).expect("removed");
    }
    // Of a tree all else is copied.
    line.faults.down.store(usize::MAX, Ordering::Release);
    line.run(&node, &["cp", "-r", "weft:/t/.", &out("")]).fails(1, &["/t/large", "checksum"]);
    // One byte of whatever comes together is changed: the small one may have come behind it.
    let mut there = names(&dir);
    there.retain(|name| name != "small");
    assert_eq!(there, ["plain"]);
    line.faults.down.store(0, Ordering::Release);
    line.run(&node, &["cp", "-r", "weft:/t/.", &out("")]).ok();
    node.sh("cmp large out/large; cmp small out/small; cmp plain out/plain");
    // A pipe gets nothing that was not compared before.
    node.sh("mkfifo pipe");
    let pipe = node.path("pipe");
    let reader = std::thread::spawn(move || fs::read(pipe).expect("read"));
    line.faults.down.store(usize::MAX, Ordering::Release);
    line.run(&node, &["cp", "weft:/t/large", "pipe"]).fails(1, &["checksum"]);
    let got = reader.join().expect("it reads");
    assert!(bytes.starts_with(&got) && got.len() < bytes.len());
}

#[test]
fn a_byte_changed_on_the_way_in_is_never_published() {
    let node = Node::start();
    let line = Line::of(&node);
    let http = node.http(Some(&node.token()));
    let bytes = marked(5 * MIB + 11);
    node.write("large", &bytes);
    node.write("small", &bytes[..700]);
    for name in ["large", "small"] {
        let (copy, path) = (["cp", name, &format!("weft:/{name}")], format!("/{name}"));
        // However often it is sent.
        line.faults.up.store(usize::MAX, Ordering::Release);
        line.run(&node, &copy).fails(1, &["error: cannot copy", "checksum", "hint:"]);
        assert_eq!(http.get(&path).status, 404, "{name}");
        // Once is mended by sending it again.
        line.faults.up.store(1, Ordering::Release);
        line.run(&node, &copy).ok();
        assert!(http.bytes(&path) == fs::read(node.path(name)).expect("read"), "{name}");
    }
    line.faults.up.store(1, Ordering::Release);
    line.feed(&node, &["cp", "-", "weft:/piped"], &bytes).fails(1, &["checksum", "hint:"]);
    assert_eq!(http.get("/piped").status, 404);
    line.feed(&node, &["cp", "-", "weft:/piped"], &bytes).ok();
    assert!(http.bytes("/piped") == bytes);
    // Within the tree bytes come and go.
    for (fault, name) in [(&line.faults.down, "/came"), (&line.faults.up, "/went")] {
        fault.store(usize::MAX, Ordering::Release);
        line.run(&node, &["cp", "weft:/large", &format!("weft:{name}")]).fails(1, &["checksum", "hint:"]);
        assert_eq!(http.get(name).status, 404);
        fault.store(0, Ordering::Release);
        line.run(&node, &["cp", "weft:/large", &format!("weft:{name}")]).ok();
        assert!(http.bytes(name) == bytes, "{name}");
    }
    let status = node.run(&["status", "--json"]).json().remove(0);
    assert_eq!(status["uploads"], 0, "what was given up is gone: {status}");
}
