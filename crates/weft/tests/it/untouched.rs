//! What is no node, and a start that cannot work: refused with the reason, before anything is
//! made, locked or closed to others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::node::{Node, give};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("read").file_name().into_string();
    let mut names: Vec<_> = fs::read_dir(dir).expect("read").map(|e| name(e).expect("text")).collect();
    names.sort();
    names
}

/// A directory as a person has one, with the mode that `/tmp` has.
fn of_a_person(node: &Node) -> std::path::PathBuf {
    let dir = node.make_dir("theirs");
    node.write("theirs/letter", "dear");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).expect("changed");
    dir
}

#[test]
fn what_is_no_node_is_left_as_it_was_by_whatever_looks_for_one() {
    let node = Node::unstarted();
    let dir = of_a_person(&node);
    let empty = node.make_dir("empty");
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o750)).expect("changed");
    let file = node.path("theirs/letter");
    for more in [&[][..], &["--dry-run"]] {
        for at in [&dir, &empty] {
            let args = [&["fsck", at.to_str().expect("text")], more].concat();
            node.run(&args).fails(1, &["error:", "there is no node", at.to_str().expect("text")]);
        }
        let args = [&["fsck", file.to_str().expect("text")], more].concat();
        node.run(&args).fails(1, &["error:", "not a directory", "letter"]);
    }
    for more in [&[][..], &["--daemon"]] {
        let args = [&["up", dir.to_str().expect("text"), "--http", "127.0.0.1:0"], more].concat();
        node.run(&args).fails(1, &["error:", "is no node's", "letter", "choose an empty directory"]);
        let args = [&["up", file.to_str().expect("text"), "--http", "127.0.0.1:0"], more].concat();
        node.run(&args).fails(1, &["error:", "not a directory"]);
    }
    assert_eq!((mode(&dir), names(&dir)), (0o1777, vec!["letter".to_owned()]));
    assert_eq!((mode(&empty), names(&empty)), (0o750, Vec::new()));
    assert_eq!(fs::read(&file).expect("read"), b"dear");
}

#[test]
fn what_a_first_start_that_was_cut_off_left_becomes_a_node_and_so_does_a_new_file_system() {
    let left: [&[&str]; 4] =
        [&["lock"], &["lock", "lock.holder", "meta/"], &["log", "lock", "meta/", "auth/"], &["lost+found/"]];
    for names in left {
        let mut node = Node::unstarted();
        node.make_dir("data");
        for name in names {
            match name.strip_suffix('/') {
                Some(dir) => drop(node.make_dir(&format!("data/{dir}"))),
                None => drop(node.write(&format!("data/{name}"), "")),
            }
        }
        node.up();
        node.run(&["status"]).ok();
    }
}

#[test]
fn a_start_that_cannot_have_its_address_makes_no_domain() {
    let mut node = Node::unstarted();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("it has one").to_string();
    for more in [&[][..], &["--daemon"]] {
        let args = [&["up", "--http", &taken], more].concat();
        node.run(&args).fails(4, &["error:", &taken, "the address is in use"]);
        assert!(!node.data().join("auth").exists() && !node.data().join("meta").exists());
    }
    // The first start that works is the first, and says where the root key is.
    node.up();
    assert!(node.log().contains("root key"), "{}", node.log());
}

#[test]
fn a_directory_whose_socket_nobody_could_name_is_refused_before_a_domain_is_made() {
    let node = Node::unstarted();
    let deep = node.path("d".repeat(100));
    let deep = deep.to_str().expect("text");
    for more in [&[][..], &["--daemon"]] {
        let args = [&["up", deep, "--http", "127.0.0.1:0"], more].concat();
        let said = node.run(&args).fails(1, &["error:", deep, "107", "hint:", "shorter"]);
        assert!(!said.err.contains("made a domain"), "{}", said.err);
        assert!(!Path::new(deep).join("auth").exists());
    }
}

#[test]
fn what_a_detached_start_failed_of_is_said_with_its_own_exit_code() {
    let mut node = Node::unstarted();
    node.up();
    let pid = format!("pid {}", node.pid());
    node.run(&["up", "--daemon", "--http", "127.0.0.1:0"]).fails(4, &["error:", &pid, "has it"]);
    node.stop();
    let damaged = node.data().join("meta").join("tree");
    fs::rename(&damaged, node.path("tree")).expect("it is there");
    node.run(&["up", "--daemon", "--http", "127.0.0.1:0"]).fails(1, &["error:", "meta/tree is not there"]);
    give(&node.path("tree"));
}
