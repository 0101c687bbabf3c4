//! Trees of real files over a real node's mount, and the same trees over HTTP.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_conformance::run::{full, have};

use crate::http::Http;
use crate::node::{Node, give};
use crate::programs::GIT;

/// Copies regular files of this machine below a directory, so many at most, for who
/// runs the node: the Rust toolchain's first, then what Debian installs. Returns how
/// many, and their bytes.
pub fn gather(into: &Path, most: usize) -> (usize, u64) {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let places = [
        if full() { sysroot } else { format!("{sysroot}/share/doc") },
        "/usr/include".into(),
        "/usr/share/doc".into(),
        "/usr/lib/python3".into(),
    ];
    let (mut files, mut bytes) = (0, 0);
    for (number, place) in places.iter().enumerate() {
        let mut waiting = vec![(PathBuf::from(place), into.join(format!("from{number}")))];
        while let Some((from, to)) = waiting.pop() {
            let Ok(entries) = fs::read_dir(&from) else { continue };
            if files >= most {
                return (files, bytes);
            }
            fs::create_dir_all(&to).expect("made");
            give(&to);
            let mut entries: Vec<_> = entries.flatten().collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let (kind, target) = (entry.file_type().expect("told"), to.join(entry.file_name()));
                if kind.is_dir() {
                    waiting.push((entry.path(), target));
                } else if kind.is_file() && files < most {
                    bytes += fs::copy(entry.path(), &target).expect("copied");
                    give(&target);
                    files += 1;
                }
            }
        }
    }
    assert!(files >= most / 4, "this machine has only {files} files to try with");
    (files, bytes)
}

/// Fails unless a tree over HTTP has the names and bytes of one on disk. Returns how
/// many files it compared.
fn assert_same_over_http(http: &Http, target: &str, dir: &Path) -> usize {
    let mut here = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("read") {
        let entry = entry.expect("read");
        let name = entry.file_name().into_string().expect("these names are UTF-8");
        here.insert(name, entry);
    }
    let there = http.names(target);
    assert!(there.iter().map(String::as_str).eq(here.keys().map(String::as_str)), "{target} has other names");
    let mut compared = 0;
    for (name, entry) in here {
        let encoded: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
        let target = format!("{}/{encoded}", target.trim_end_matches('/'));
        if entry.file_type().expect("told").is_dir() {
            compared += assert_same_over_http(http, &format!("{target}/"), &entry.path());
        } else {
            assert!(http.bytes(&target) == fs::read(entry.path()).expect("read"), "{name} differs");
            compared += 1;
        }
    }
    compared
}

#[test]
fn a_tree_written_through_the_mount_is_the_same_over_http() {
    if !have("trees::http", &["fusermount3", "tar", "rsync"]) {
        return;
    }
    let mut node = Node::start();
    let tree = node.make_dir("tree");
    let (files, bytes) = gather(&tree, if full() { 50_000 } else { 1_000 });
    let mnt = node.mount("mnt");
    let start = std::time::Instant::now();
    // `tar` in, and what `tar -d` finds of it.
    node.sh("tar -cf tree.tar -C tree . && mkdir mnt/tree && tar -xpf tree.tar -C mnt/tree && tar -df tree.tar -C mnt/tree");
    let took = start.elapsed();
    let said = node.sh("rsync -aic tree/ mnt/tree/");
    assert_eq!(said, "", "nothing is left to copy");
    node.sh("cp -a mnt/tree again && diff -r tree again");
    let start = std::time::Instant::now();
    assert_eq!(assert_same_over_http(&node.http(Some(&node.token())), "/tree/", &tree), files);
    println!("{files} files, {bytes} bytes: tar in {took:?}, read over HTTP in {:?}", start.elapsed());
    node.sh("rm -rf mnt/tree");
    assert_eq!(node.run(&["ls"]).ok(), "");
    node.unmount(&mnt);
}

#[test]
fn trees_that_rsync_and_git_write_through_the_mount_are_the_same_over_http() {
    if !have("trees::rsync", &["fusermount3", "rsync", "git"]) {
        return;
    }
    let mut node = Node::start();
    let tree = node.make_dir("tree");
    let (files, bytes) = gather(&tree, if full() { 50_000 } else { 500 });
    let mnt = node.mount("mnt");
    let start = std::time::Instant::now();
    node.sh("rsync -a tree/ mnt/rsync/");
    let took = start.elapsed();
    let http = node.http(Some(&node.token()));
    assert_eq!(assert_same_over_http(&http, "/rsync/", &tree), files);
    println!("{files} files, {bytes} bytes: rsync in {took:?}");
    // git keeps no directory that holds no file.
    node.sh(&format!(
        "{GIT}
         rm -rf mnt/rsync
         git init -q -b main tree; git -C tree add -Af; git -C tree commit -qm all
         git clone -q file://$PWD/tree mnt/clone
         rm -rf mnt/clone/.git tree/.git; find tree -type d -empty -delete"
    ));
    assert_eq!(assert_same_over_http(&http, "/clone/", &tree), files);
    node.unmount(&mnt);
}

#[test]
fn one_byte_one_name_and_one_file_that_differ_over_http_are_found() {
    let node = Node::start();
    let (tree, http) = (node.make_dir("tree"), node.http(Some(&node.token())));
    for name in ["a", "b"] {
        fs::write(tree.join(name), "bytes").expect("written");
        http.put(&format!("/{name}"), b"bytes");
    }
    let same = || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| assert_same_over_http(&http, "/", &tree)))
    };
    assert_eq!(same().ok(), Some(2));
    http.put("/b", b"bytez");
    assert!(same().is_err(), "one byte differs");
    http.put("/b", b"bytes");
    http.put("/c", b"bytes");
    assert!(same().is_err(), "a file too many");
    http.delete("/c");
    http.delete("/b");
    assert!(same().is_err(), "a file is missing");
}
