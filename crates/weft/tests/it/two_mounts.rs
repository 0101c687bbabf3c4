//! The mount's tester of consistency over two mounts of a real node, of managed files and of a share: here files are lent
//! by descriptor, writes as memory, and all else crosses the native wire.

use weft_conformance::run::{full, have};

use crate::consistency::{
    By, Mounts, Passed, a_counter_stays_right, appends_come_whole, counts, what_is_closed_is_what_is_opened,
};
use crate::mounting::moved_for;
use crate::node::{Node, these_tests};
use crate::raw::{command, is_child};

/// The trees the tester is run on, by their paths in a mount.
const TREES: [&str; 2] = ["managed", "share"];

/// A node that serves both trees, mounted twice.
fn scene() -> Node {
    let mut node = Node::start();
    node.make_dir("shared");
    node.run(&["share", "shared", "/share"]).ok();
    node.run(&["mkdir", "/managed"]).ok();
    for mount in ["one", "other"] {
        node.mount(mount);
    }
    node
}

/// In the child that [`tested`] starts, returns the tree as the two mounts show it.
fn given() -> Option<Mounts> {
    let tree = is_child("mounts")?;
    let (place, name) = (tree.parent()?, tree.file_name()?);
    Some(["one", "other"].map(|mount| place.join(mount).join(name)))
}

/// Has a test of this binary look at a tree as who runs the node, since nobody else may look into its mounts. Returns
/// what it printed.
fn tested(node: &Node, test: &str, tree: &str) -> String {
    let same = command(&format!("two_mounts::{test}"), "mounts", &node.path(tree));
    let mut child = node.as_user(these_tests());
    child.args(same.get_args());
    for (name, value) in same.get_envs() {
        child.env(name, value.expect("it is set"));
    }
    for name in ["WEFT_SEED", "WEFT_TEST_FULL"] {
        if let Some(value) = std::env::var_os(name) {
            child.env(name, value);
        }
    }
    let said = node.feed_command(&mut child, b"").ok();
    println!("{tree}: {said}");
    said
}

/// Looks at both trees, and at what crossed the node's socket meanwhile: less than half of what was written and of what
/// had to be read anew, or nothing was lent and this is no test of it.
fn look_at_both(test: &str, look: impl Fn(&Mounts) -> Passed) {
    if let Some(mounts) = given() {
        let passed = look(&mounts);
        return println!("passed {} {}", passed.written.into_inner(), passed.read.into_inner());
    }
    if !have(&format!("two_mounts::{test}"), &["fusermount3"]) {
        return;
    }
    let node = scene();
    for tree in TREES {
        let mut said = String::new();
        let mut came = 0.0;
        let sent = moved_for(&node, "flow=\"out\"", || {
            came = moved_for(&node, "flow=\"in\"", || said = tested(&node, test, tree));
        });
        let passed = said.lines().find_map(|line| line.strip_prefix("passed ")?.split_once(' '));
        let (written, read) = passed.expect("it says what passed");
        let bytes = |text: &str| text.parse::<f64>().expect("a number");
        println!("{tree}: {came} bytes came of {written}, {sent} were sent of {read}");
        assert!(came < bytes(written) / 2.0, "{tree}: {came} bytes came of {written}");
        assert!(sent < bytes(read) / 2.0, "{tree}: {sent} bytes were sent of {read}");
    }
}

#[test]
fn what_is_closed_in_one_mount_of_a_node_is_what_the_other_opens() {
    look_at_both("what_is_closed_in_one_mount_of_a_node_is_what_the_other_opens", |mounts| {
        what_is_closed_is_what_is_opened(mounts, if full() { 5_000 } else { 60 })
    });
}

#[test]
fn appends_of_any_length_from_two_mounts_of_a_node_come_whole_while_both_read() {
    look_at_both("appends_of_any_length_from_two_mounts_of_a_node_come_whole_while_both_read", |mounts| {
        appends_come_whole(mounts, if full() { 2_000 } else { 60 })
    });
}

/// Counts under locks in both trees.
fn count_under(test: &str, by: By) {
    if counts() {
        return;
    }
    if let Some(mounts) = given() {
        return a_counter_stays_right(&mounts, &format!("two_mounts::{test}"), by);
    }
    if have(&format!("two_mounts::{test}"), &["fusermount3"]) {
        let node = scene();
        for tree in TREES {
            tested(&node, test, tree);
        }
    }
}

#[test]
fn range_locks_from_two_mounts_of_a_node_keep_a_counter_right() {
    count_under("range_locks_from_two_mounts_of_a_node_keep_a_counter_right", By::Range);
}

#[test]
fn whole_file_locks_from_two_mounts_of_a_node_keep_a_counter_right() {
    count_under("whole_file_locks_from_two_mounts_of_a_node_keep_a_counter_right", By::Whole);
}
