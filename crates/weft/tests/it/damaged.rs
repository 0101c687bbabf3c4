//! Each file of a node's directory × {missing, cut, a bit flipped, emptied, extra}: what `weft
//! fsck` says, what `weft up` says, and what is read afterwards: as it was, or not at all.
//!
//! `damaged.txt` is what is expected, cell by cell. A run writes what it found beside the tests'
//! other files and says where; whoever changes the table answers for each line of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use weft_conformance::tables;

use crate::node::{Node, give, noise};

const EXPECTED: &str = include_str!("damaged.txt");

const BLOCK: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Missing,
    Cut,
    Flipped,
    Emptied,
    Extra,
}

/// What the node holds: bytes beside the inode, an object of several blocks, one of a few bytes.
fn contents() -> [(&'static str, Vec<u8>); 3] {
    [("/small", noise(1, 100)), ("/large", noise(2, 3 * BLOCK)), ("/other", noise(3, 20_000))]
}

/// A node that was killed with a file in it that only its log knows, and a credential for it.
fn template() -> (Node, String) {
    let mut node = Node::start();
    let token = node.token();
    let http = node.http(Some(&token));
    for (path, bytes) in &contents()[..2] {
        assert_eq!(http.put(path, bytes).status, 201);
    }
    node.stop();
    node.up();
    let (path, bytes) = &contents()[2];
    assert_eq!(node.http(Some(&token)).put(path, bytes).status, 201);
    // The log of writes comes to the audit within a second.
    node.run(&["audit", "--json"]).ok();
    node.kill();
    (node, token)
}

/// The files of a directory and of those below it that the table is about: of many empty ones
/// of a kind, the first.
fn files(data: &Path) -> Vec<String> {
    let (mut todo, mut found) = (vec![data.to_owned()], BTreeSet::new());
    while let Some(dir) = todo.pop() {
        let mut empty = None;
        for entry in fs::read_dir(dir).expect("read") {
            let path = entry.expect("read").path();
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                todo.push(path);
            } else if about.is_file() && about.len() > 0 {
                found.insert(path);
            } else if about.is_file() {
                empty = Some(empty.map_or(path.clone(), |known: PathBuf| known.min(path)));
            }
        }
        found.extend(empty);
    }
    let below = |path: PathBuf| path.strip_prefix(data).expect("below").to_str().expect("UTF-8").to_owned();
    found.into_iter().map(below).collect()
}

fn damage(path: &Path, how: Damage) {
    let bytes = fs::read(path).expect("read");
    let file = |bytes: &[u8], path: &Path| {
        fs::write(path, bytes).expect("written");
        give(path);
    };
    match how {
        Damage::Missing => fs::remove_file(path).expect("removed"),
        Damage::Cut => file(&bytes[..bytes.len() / 2], path),
        Damage::Emptied => file(b"", path),
        Damage::Extra => {
            let mut name = path.file_name().expect("a name").to_owned();
            name.push(".extra");
            let copy = path.with_file_name(name);
            fs::copy(path, &copy).expect("copied");
            give(&copy);
        }
        Damage::Flipped if path.ends_with("meta/tree") => {
            // In a row that says what a small file holds, wherever the tree has it.
            let small = &contents()[0].1;
            let file = fs::File::options().write(true).open(path).expect("opened");
            let places: Vec<_> =
                (0..bytes.len() - small.len()).filter(|at| bytes[*at..].starts_with(small)).collect();
            assert!(!places.is_empty(), "the row is in the tree");
            for at in places {
                file.write_all_at(&[bytes[at + 50] ^ 4], at as u64 + 50).expect("written");
            }
        }
        Damage::Flipped => {
            // In the middle of what was written: room kept for later holds nothing.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if used > 0 {
                let file = fs::File::options().write(true).open(path).expect("opened");
                // An audit file's first batch, which says whose log it is: elsewhere a bit may be
                // one of a length, and be told of otherwise.
                let at = if path.extension().is_some_and(|name| name == "audit") { 64 } else { used / 2 };
                file.write_all_at(&[bytes[at] ^ 4], at as u64).expect("written");
            }
        }
    }
}

/// A text without what differs from run to run: places, ids, large numbers.
fn steady(text: &str, place: &Path) -> String {
    let text = text.replace(&place.join("data").display().to_string(), "DIR");
    let mut steady = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let digits = bare.bytes().filter(u8::is_ascii_digit).count();
        // Names of files begin with zeros.
        let is_name = bare.starts_with("000");
        let is_id = bare.len() >= 16 && bare.bytes().all(|byte| byte.is_ascii_hexdigit()) && !is_name;
        let is_number = digits >= 3 && digits == bare.len() && !is_name;
        steady += &if is_id || is_number { word.replace(bare, "#") } else { word.to_owned() };
    }
    steady
}

fn checked(node: &Node, how: &[&str]) -> (i32, Vec<String>) {
    let data = node.data();
    let said = node.run(&[&["fsck", data.to_str().expect("a path")], how].concat());
    let place = node.path("");
    let mut lines: Vec<_> = said.out.lines().map(|line| steady(line, &place)).collect();
    // The sum at the end says nothing that they do not.
    lines.pop();
    lines.extend(told(&said.err, &place));
    (said.code, lines)
}

/// What was said on stderr, but for what lies below an error. A library that gives up has its
/// words there, and prints nothing itself.
fn told(err: &str, place: &Path) -> Vec<String> {
    assert!(!err.contains("panicked at"), "{err}");
    let lines = err.lines().filter(|line| line.starts_with("error:") || line.starts_with("hint:"));
    lines.map(|line| steady(line, place)).collect()
}

/// Starts the node and reads everything; says what is not as before.
fn served(node: &mut Node, token: &str) -> String {
    if let Err(said) = node.try_up() {
        let place = node.path("");
        return told(&said.err, &place)
            .iter()
            .fold(String::new(), |text, line| text + "  up: " + line + "\n");
    }
    let http = node.http(Some(token));
    let mut text = String::new();
    for (path, bytes) in contents() {
        let got = http.get(path);
        let how = match got.status {
            200 if got.whole && got.body == bytes => continue,
            200 if bytes.starts_with(&got.body) && !got.whole => "cut off before what is damaged".to_owned(),
            200 => format!("OTHER BYTES, {} of {}", got.body.len(), bytes.len()),
            status => format!("refused with {status}"),
        };
        writeln!(text, "  {path}: {how}").expect("memory");
    }
    node.kill();
    let log = node.log();
    assert!(!log.contains("panicked at"), "{log}");
    text
}

fn cell(template: &Path, token: &str, file: &str, how: Damage) -> String {
    let mut node = Node::unstarted();
    // What is damaged is for a person to look at.
    node.allow("");
    node.sh(&format!("cp -a '{}' data", template.display()));
    damage(&node.data().join(file), how);
    let (code, lines) = checked(&node, &["--dry-run"]);
    let mut text = format!("  fsck: {code}\n");
    for line in &lines {
        writeln!(text, "  {line}").expect("memory");
    }
    let before = served(&mut node, token);
    text += &before;
    let (code, lines) = checked(&node, &[]);
    let after = served(&mut node, token);
    if code != 0 || after != before {
        writeln!(text, "  after a start, fsck: {code}, {} lines", lines.len()).expect("memory");
        text += &after;
    }
    text
}

#[test]
fn whatever_file_is_damaged_it_is_named_and_nothing_wrong_is_served() {
    let (node, token) = template();
    let data = node.data();
    let hows = [Damage::Missing, Damage::Cut, Damage::Flipped, Damage::Emptied, Damage::Extra];
    let cells: Vec<_> =
        files(&data).into_iter().flat_map(|file| hows.map(|how| (file.clone(), how))).collect();
    let (next, found) = (Mutex::new(0..cells.len()), Mutex::new(vec![String::new(); cells.len()]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(place) = next.lock().expect("no holder panics").next() else { break };
                    let (file, how) = &cells[place];
                    let cell = cell(&data, &token, file, *how);
                    let name = steady(file, Path::new("/nowhere"));
                    found.lock().expect("no holder panics")[place] = format!("{name}, {how:?}\n{cell}");
                }
            });
        }
    });
    let found = found.into_inner().expect("no holder panics").concat();
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/damaged.txt");
    tables::keep(&found, file);
    assert!(!found.contains("OTHER BYTES"), "all that was found: {file}");
    tables::must_be(EXPECTED, &found, file);
}
