//! `weft fsck`: what is wrong on disk is found, named as people know it, and mended if
//! nothing is lost by that.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::corrupt::find;
use crate::node::{Node, noise};

const BLOCK: usize = 1 << 20;

/// A node that has stopped, with two files of several blocks.
fn stopped() -> Node {
    let mut node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/d/hurt", &noise(1, 3 * BLOCK)).status, 201);
    assert_eq!(http.put("/d/whole", &noise(2, 3 * BLOCK)).status, 201);
    node.stop();
    node
}

/// The file that holds the second block of `/d/hurt`, and where in it that begins.
fn place_of_hurt(node: &Node) -> (PathBuf, u64) {
    let (path, at) =
        find(&node.data().join("objects"), &noise(1, 3 * BLOCK)[BLOCK..BLOCK + 64]).expect("it is there");
    (path, at as u64)
}

fn fsck(node: &Node, more: &[&str]) -> (i32, Vec<serde_json::Value>) {
    let data = node.data();
    let args = [&["fsck", data.to_str().expect("a path"), "--json"], more].concat();
    let said = node.run(&args);
    let lines = said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (said.code, lines)
}

#[test]
fn a_flipped_byte_is_found_and_named_by_the_path_and_new_contents_mend_it() {
    let mut node = stopped();
    for text in ["corrupt", "damaged", "block", "verif"] {
        node.allow(text);
    }
    let (code, lines) = fsck(&node, &[]);
    assert_eq!((code, lines.len()), (0, 1), "{lines:?}");
    assert_eq!((lines[0]["wrong"].as_u64(), lines[0]["objects"].as_u64()), (Some(0), Some(2)), "{lines:?}");
    let (path, at) = place_of_hurt(&node);
    let file = fs::File::options().read(true).write(true).open(path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
    for how in [&["--dry-run"][..], &[], &[]] {
        let (code, lines) = fsck(&node, how);
        assert_eq!((code, lines.len()), (1, 2), "{how:?}: {lines:?}");
        assert_eq!(lines[0]["severity"], "LOST");
        let detail = lines[0]["detail"].as_str().expect("a text");
        assert!(detail.contains("/d/hurt") && detail.contains(&BLOCK.to_string()), "{detail}");
        assert_eq!(lines[1]["wrong"], 1);
    }
    let text = node.run(&["fsck", node.data().to_str().expect("a path")]);
    assert_eq!(text.code, 1, "{}{}", text.out, text.err);
    assert!(text.out.contains("LOST") && text.out.contains("/d/hurt"), "{}", text.out);
    assert!(text.out.ends_with("1 thing wrong\n"), "{}", text.out);
    // A node that runs says the same of itself, and changes nothing.
    node.up();
    let said = node.run(&["fsck", "--online"]);
    assert!(said.code == 1 && said.out.contains("/d/hurt"), "{}{}", said.out, said.err);
    // What is written anew is whole again.
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/d/hurt", &noise(3, 2 * BLOCK)).status, 204);
    assert!(http.bytes("/d/hurt") == noise(3, 2 * BLOCK) && http.bytes("/d/whole") == noise(2, 3 * BLOCK));
    node.stop();
    let (code, lines) = fsck(&node, &[]);
    assert_eq!((code, lines.len()), (0, 1), "{lines:?}");
}

#[test]
fn what_can_be_mended_is_said_by_a_dry_run_left_by_it_and_mended_by_the_next() {
    let mut node = stopped();
    let (path, _) = place_of_hurt(&node);
    let file = fs::File::options().append(true).open(&path).expect("opened");
    std::io::Write::write_all(&mut &file, b"a tail that nobody wrote").expect("written");
    let stray = path.with_file_name("not-a-name");
    fs::write(&stray, "x").expect("written");
    crate::node::give(&stray);
    for _ in 0..2 {
        let (code, lines) = fsck(&node, &["--dry-run"]);
        assert_eq!((code, lines.len()), (1, 3), "{lines:?}");
        for line in &lines[..2] {
            assert_eq!(line["severity"], "wrong", "{line}");
            assert!(line["repair"].as_str().is_some_and(|repair| repair.starts_with("would be:")), "{line}");
        }
        assert!(lines.iter().any(|line| line["detail"].to_string().contains("not-a-name")), "{lines:?}");
        assert!(lines.iter().any(|line| line["detail"].to_string().contains("/d/hurt")), "{lines:?}");
        assert!(stray.exists());
    }
    let (code, lines) = fsck(&node, &[]);
    assert_eq!((code, lines.last().expect("a summary")["wrong"].as_u64()), (0, Some(2)), "{lines:?}");
    assert!(!stray.exists());
    let (code, lines) = fsck(&node, &[]);
    assert_eq!(code, 0, "{lines:?}");
    assert_eq!(lines.last().expect("a summary")["wrong"], 0, "{lines:?}");
    node.up();
    let http = node.http(Some(&node.token()));
    assert!(http.bytes("/d/hurt") == noise(1, 3 * BLOCK) && http.bytes("/d/whole") == noise(2, 3 * BLOCK));
}

#[test]
fn a_node_that_runs_is_not_checked_from_beside_and_whoever_has_it_is_named() {
    let node = Node::start();
    let data = node.data();
    let data = data.to_str().expect("a path");
    let pid = format!("pid {}", node.pid());
    for args in [&["fsck", data][..], &["fsck", data, "--dry-run"], &["fsck"]] {
        node.run(args).fails(4, &["error:", data, &pid, "has it", "hint:"]);
    }
    let said = node.run(&["fsck", data, "--json"]).fails(4, &[]);
    let error: serde_json::Value = serde_json::from_str(said.err.trim()).expect("JSON");
    assert_eq!(error["error"], "busy");
    node.run(&["fsck", "--online"]).ok();
    let eve = node.add_user("eve", "apple");
    node.run_with(&eve, &["fsck", "--online"]).fails(3, &["error:"]);
    node.run(&["fsck", "/nowhere/at/all"]).fails(1, &["error:", "/nowhere/at/all"]);
    let empty = node.make_dir("empty");
    node.run(&["fsck", empty.to_str().expect("a path")]).fails(1, &["error:", "no node"]);
    node.run(&["fsck", data, "--online"]).fails(2, &["--online"]);
}

#[test]
fn a_file_whose_number_was_never_given_out_is_named_and_put_aside() {
    let mut node = stopped();
    let objects = node.data().join("objects");
    let stray = objects.join("objects").join("000000").join("aff");
    fs::write(&stray, vec![0; BLOCK]).expect("written");
    crate::node::give(&stray);
    let (code, lines) = fsck(&node, &["--dry-run"]);
    assert_eq!((code, lines.len()), (0, 2), "{lines:?}");
    assert_eq!(lines[0]["severity"], "note");
    assert_eq!(lines[0]["repair"], "would be: moved to orphans");
    assert!(lines[0]["detail"].to_string().contains("000000/aff has 1048576 bytes"), "{lines:?}");
    assert!(stray.exists());
    let (code, lines) = fsck(&node, &[]);
    assert_eq!((code, lines.len()), (0, 2), "{lines:?}");
    assert!(!stray.exists() && objects.join("orphans").join("000000-aff").exists());
    // Running or not, the same objects are counted.
    node.up();
    let online = node.run(&["fsck", "--online", "--json"]).json();
    assert_eq!(online.last().expect("a summary")["objects"], lines[1]["objects"]);
}

/// Every file below a directory, with its bytes, but what says who has it.
fn all(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("read") {
            let path = entry.expect("read").path();
            match path.is_dir() {
                true => dirs.push(path),
                false
                    if path.file_name().is_some_and(|name| name == "lock.holder" || name == "node.sock") => {}
                false => drop(found.insert(path.clone(), fs::read(&path).expect("read"))),
            }
        }
    }
    found
}

/// Fails if two directories' files differ, and says which.
fn expect_same(before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>, when: &str) {
    let differ = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let changed: Vec<_> = before.keys().chain(after.keys()).filter(differ).collect();
    assert!(changed.is_empty(), "{when}: {changed:?}");
}

#[test]
fn a_dry_run_leaves_every_byte_of_a_node_as_it_was_however_that_ended() {
    let mut node = stopped();
    let ends: [fn(&mut Node); 2] = [|_| {}, Node::kill];
    for (number, end) in ends.iter().enumerate() {
        if number > 0 {
            node.up();
            let http = node.http(Some(&node.token()));
            assert_eq!(http.put("/late", &noise(7, BLOCK)).status, 201);
            node.run(&["cp", "weft:/late", "weft:/later"]).ok();
        }
        end(&mut node);
        let before = all(&node.data());
        for _ in 0..2 {
            let (code, lines) = fsck(&node, &["--dry-run"]);
            assert_eq!((code, &lines.last().expect("a summary")["wrong"]), (0, &0.into()), "{lines:?}");
            expect_same(&before, &all(&node.data()), "a dry run");
        }
    }
    node.up();
    let http = node.http(Some(&node.token()));
    assert!(http.bytes("/later") == noise(7, BLOCK) && http.bytes("/d/whole") == noise(2, 3 * BLOCK));
}

#[test]
fn a_key_that_is_not_there_is_found_until_a_start_makes_another() {
    let mut node = stopped();
    let auth = node.data().join("auth");
    let of_purpose = |purpose: &str| {
        let entries = fs::read_dir(auth.join("keys")).expect("read").map(|entry| entry.expect("read").path());
        let is_it =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(purpose));
        entries.into_iter().find(is_it).expect("it is there")
    };
    let purposes = ["audit", "capability", "credential"];
    purposes.iter().for_each(|purpose| fs::remove_file(of_purpose(purpose)).expect("it is there"));
    let before = all(&auth);
    for how in [&["--dry-run"][..], &["--dry-run"], &[], &["--dry-run"]] {
        let (code, lines) = fsck(&node, how);
        assert_eq!((code, lines.len()), (0, 4), "{how:?}: {lines:?}");
        for line in &lines[..3] {
            assert_eq!(line["repair"], "the next start makes a new one", "{how:?}: {line}");
        }
        expect_same(&before, &all(&auth), &format!("{how:?}"));
    }
    node.up();
    assert!(node.http(Some(&node.token())).bytes("/d/whole") == noise(2, 3 * BLOCK));
    node.stop();
    purposes.iter().for_each(|purpose| assert!(of_purpose(purpose).exists()));
    let (code, lines) = fsck(&node, &["--dry-run"]);
    assert_eq!((code, lines.len()), (0, 1), "{lines:?}");
}
