//! A byte that changed on disk: an error at each door, never the wrong bytes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weft_conformance::run::have;

use crate::node::{Node, noise, soon};

const BLOCK: usize = 1 << 20;

/// Returns the file below a directory that holds these bytes, and where in it.
pub fn find(dir: &Path, bytes: &[u8]) -> Option<(PathBuf, usize)> {
    for entry in fs::read_dir(dir).expect("read") {
        let path = entry.expect("read").path();
        if path.is_dir() {
            if let Some(found) = find(&path, bytes) {
                return Some(found);
            }
            continue;
        }
        let content = fs::read(&path).expect("read");
        if let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            return Some((path, at));
        }
    }
    None
}

#[test]
fn a_flipped_byte_is_an_error_at_each_door_and_never_wrong_bytes() {
    const TEST: &str = "corrupt::a_flipped_byte_is_an_error_at_each_door_and_never_wrong_bytes";
    if !have(TEST, &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    // A damaged block is for a person to look at.
    for text in ["corrupt", "damaged", "block", "verif", "do not match"] {
        node.allow(text);
    }
    let (hurt, whole) = (noise(1, 4 * BLOCK), noise(2, 4 * BLOCK));
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/hurt", &hurt).status, 201);
    assert_eq!(http.put("/whole", &whole).status, 201);
    node.stop();
    // In the second of four blocks, on a disk that says nothing.
    let place = BLOCK + 5000;
    let (path, at) = find(&node.data().join("objects"), &hurt[place..place + 32]).expect("it is there");
    let file = fs::File::options().write(true).open(path).expect("opened");
    file.write_all_at(&[hurt[place] ^ 0x10], at as u64).expect("written");
    drop(file);
    node.up();
    let http = node.http(Some(&node.token()));
    let answer = http.get("/hurt");
    assert!(answer.status == 500 || !answer.whole, "{}", answer.status);
    if answer.status == 200 {
        assert!(hurt.starts_with(&answer.body), "wrong bytes were served");
        assert!(answer.body.len() <= BLOCK, "bytes of the damaged block were served");
    }
    // Blocks beside it are fine, and so is everything else.
    let range =
        |from: usize, to: usize| http.ask("GET", "/hurt", &[&format!("Range: bytes={from}-{}", to - 1)], b"");
    for block in [0, 2, 3] {
        let answer = range(block * BLOCK, (block + 1) * BLOCK);
        assert_eq!(answer.status, 206);
        assert!(answer.whole && answer.body == hurt[block * BLOCK..(block + 1) * BLOCK], "block {block}");
    }
    let damaged = range(place - 10, place + 10);
    assert!(damaged.status == 500 || !damaged.whole, "{}", damaged.status);
    assert!(damaged.status != 500 || damaged.text().contains("/hurt"), "{}", damaged.text());
    assert!(http.bytes("/whole") == whole);
    // What a reader met, the scrubber looks at and tells.
    soon("it is told", || node.run(&["scrub", "status"]).out.contains("/hurt"));
    // The command line fails and leaves no file; nor does the mount make one up.
    let copy = node.path("copy");
    let said = node.run(&["cp", "weft:/hurt", copy.to_str().expect("a path")]);
    said.fails(1, &["error: cannot copy"]);
    assert!(!copy.exists());
    for to in ["weft:/copy", "weft:/whole"] {
        node.run(&["cp", "weft:/hurt", to]).fails(1, &["error: cannot copy /hurt"]);
    }
    assert_eq!(http.get("/copy").status, 404);
    assert!(http.bytes("/whole") == whole, "a copy that fails leaves what is there");
    node.run(&["cat", "/hurt"]).fails(1, &["error: cannot read /hurt:"]);
    let mnt = node.mount("mnt");
    let mut dd = node.as_user("dd");
    dd.args(["bs=64k", "status=none"]).arg(format!("if={}", mnt.join("hurt").display()));
    let read = dd.output().expect("dd runs");
    assert!(!read.status.success());
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(["Input/output error", "Bad message"].iter().any(|error| said.contains(error)), "{said}");
    assert!(hurt.starts_with(&read.stdout), "the mount gave wrong bytes");
    node.sh("cat mnt/whole > whole");
    assert!(fs::read(node.path("whole")).expect("read") == whole);
    // Written anew, it is whole again.
    assert_eq!(http.put("/hurt", &hurt).status, 204);
    assert!(http.bytes("/hurt") == hurt);
    node.unmount(&mnt);
}
