//! A right that is withdrawn on a real node ends what is open: of files that Weft keeps, and of a share.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use weft_conformance::run::have;
use weft_core::limits;

use crate::node::{Node, noise, python};
use crate::other_doors::{Eyes, at_once, mount_as};
use crate::raw::until_within;

/// Bytes of a file of several of a mount's windows.
const LARGE: usize = 9 << 20;
/// How far apart places are that are looked at: one in each piece in which it is read ahead.
const STEP: usize = 256 << 10;

/// A file in `/d`, which bob may read, and has mounted.
struct Scene {
    node: Node,
    mount: PathBuf,
}

impl Scene {
    /// Makes it of files that Weft keeps, or of a share.
    fn make(test: &str, is_share: bool) -> Option<Self> {
        Self::make_for(test, is_share, "bob")
    }

    /// The same of one that bob may read as somebody.
    fn make_for(test: &str, is_share: bool, who: &str) -> Option<Self> {
        if !have(test, &["fusermount3", python()]) {
            return None;
        }
        let mut node = Node::start();
        node.add_user("bob", "builder");
        match is_share {
            true => node.run(&["share", &node.make_dir("shared").display().to_string(), "/d"]).ok(),
            false => node.run(&["mkdir", "/d"]).ok(),
        };
        node.feed(&["cp", "-", "weft:/d/f"], &noise(9, LARGE)).ok();
        node.run(&["group", "make", "readers"]).ok();
        node.run(&["group", "add", "readers", "bob"]).ok();
        node.run(&["acl", "grant", "/d", who, "read"]).ok();
        let mount = mount_as(&mut node, "bob", "builder");
        Some(Self { node, mount })
    }

    /// Returns a program that has the file open and mapped, and its bytes by `word` in the kernel.
    fn eyes(&self, word: &str) -> Eyes {
        let mut eyes = Eyes::at(&self.node, &self.mount);
        assert_eq!(eyes.ask("hold d/f"), "held");
        for at in places() {
            eyes.ask(&format!("{word} d/f {at}"));
        }
        eyes
    }
}

fn places() -> impl Iterator<Item = usize> {
    (0..LARGE).step_by(STEP)
}

/// Withdraws rights, and fails unless that ends what is open and is told why. What is read of it then fails with
/// `number`; on the way to it whoever opens it may be refused before, and is told as little of what is there.
fn ends(scene: &Scene, rights: &str, number: &str) {
    let (mut reads, mut maps) = (scene.eyes("read"), scene.eyes("touch"));
    scene.node.run(&["acl", "revoke", "/d", "bob", rights]).ok();
    for at in places() {
        at_once("a read of the open file", || match reads.ask(&format!("read d/f {at}")) {
            said if said == number => Ok(()),
            said => Err(format!("{said} at {at}")),
        });
    }
    let (why, opened) = (reads.ask("why"), reads.ask("open d/f"));
    assert!(opened == number || opened == "EACCES", "{opened}");
    for at in places() {
        at_once("the mapping", || match maps.ask(&format!("child d/f {at}")) {
            said if said == "SIGBUS" => Ok(()),
            said => Err(format!("{said} at {at}")),
        });
    }
    assert!(maps.ask_for_life("touch d/f 0").is_none());
    assert_eq!(maps.end().signal(), Some(Signal::BUS.as_raw()));
    let told = why.as_str().is_some_and(|why| why.starts_with("failed: read\n"));
    assert!(told, "{why}");
}

#[test]
fn a_file_of_wefts_that_may_not_be_read_any_more_ends_where_it_is_open_and_mapped() {
    if let Some(scene) = Scene::make("withdrawn::managed", false) {
        ends(&scene, "r", "EACCES");
    }
}

#[test]
fn a_file_of_a_share_that_may_not_be_read_any_more_ends_where_it_is_open_and_mapped() {
    if let Some(scene) = Scene::make("withdrawn::share", true) {
        ends(&scene, "r", "EACCES");
    }
}

#[test]
fn a_file_of_wefts_that_may_not_be_seen_any_more_ends_where_it_is_open_and_mapped() {
    if let Some(scene) = Scene::make("withdrawn::managed all", false) {
        ends(&scene, "read", "ENOENT");
    }
}

#[test]
fn a_file_of_a_share_that_may_not_be_seen_any_more_ends_where_it_is_open_and_mapped() {
    if let Some(scene) = Scene::make("withdrawn::share all", true) {
        ends(&scene, "read", "ENOENT");
    }
}

/// Has bob write to what he has open, withdraws that right alone, and fails unless the next write is refused, for whoever asks
/// afterwards, and reading is not.
fn writing_ends(scene: &Scene) {
    scene.node.run(&["acl", "grant", "/d", "bob", "write"]).ok();
    let mut eyes = Eyes::at(&scene.node, &scene.mount);
    assert_eq!(eyes.ask("edit d/f"), "edited");
    assert_eq!(eyes.ask("write d/f 5"), "1");
    scene.node.run(&["acl", "revoke", "/d", "bob", "w"]).ok();
    assert_eq!(eyes.ask("write d/f 6"), "EACCES");
    let why = eyes.ask("why");
    assert!(why.as_str().is_some_and(|why| why.starts_with("failed: write\n")), "{why}");
    assert_eq!(eyes.ask("read d/f 5"), "1");
    scene.node.run(&["cp", "weft:/d/f", "out"]).ok();
    let stored = std::fs::read(scene.node.path("out")).expect("it came");
    assert_eq!(stored[5..7], [b'!', noise(9, LARGE)[6]]);
}

#[test]
fn who_may_write_no_more_is_refused_the_next_write_to_a_file_of_wefts_that_is_open() {
    if let Some(scene) = Scene::make("withdrawn::write", false) {
        writing_ends(&scene);
    }
}

#[test]
fn who_may_write_no_more_is_refused_the_next_write_to_a_file_of_a_share_that_is_open() {
    if let Some(scene) = Scene::make("withdrawn::write share", true) {
        writing_ends(&scene);
    }
}

/// Nobody tells a mount of groups: it looks by itself.
#[test]
fn a_file_that_a_group_may_read_ends_for_who_leaves_the_group_where_it_is_open_and_mapped() {
    let Some(scene) = Scene::make_for("withdrawn::group", false, "group:admin/readers") else { return };
    let (mut reads, mut maps) = (scene.eyes("read"), scene.eyes("touch"));
    scene.node.run(&["group", "remove", "readers", "bob"]).ok();
    let within = limits::MOUNT_LISTING_KEPT + Duration::from_secs(20);
    until_within(within, "what was read is shown no more", || {
        places().all(|at| reads.ask(&format!("read d/f {at}")) == "ENOENT")
    });
    until_within(within, "the mapping faults", || {
        places().all(|at| maps.ask(&format!("child d/f {at}")) == "SIGBUS")
    });
    assert!(maps.ask_for_life("touch d/f 0").is_none());
    assert_eq!(maps.end().signal(), Some(Signal::BUS.as_raw()));
}
