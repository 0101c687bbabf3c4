//! Where options may stand, and what names with a dash need.

use std::fs;

use crate::node::Node;

#[test]
fn options_are_options_wherever_they_stand() {
    let node = Node::start();
    node.write("a", "1");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["cp", "a", "--dry-run", "weft:/d"]).ok();
    assert_eq!(node.run(&["ls", "/d"]).ok(), "", "a dry run makes nothing");
    node.run(&["cp", "a", "weft:/d", "--force", "--json"]).ok();
    assert_eq!(node.run(&["ls", "/d"]).ok(), "a\n");
    node.run(&["mv", "/d/a", "--no-clobber", "/d/b"]).ok();
    node.run(&["mv", "/d/b", "/d/a", "-n"]).ok();
    assert_eq!(node.run(&["ls", "/d"]).ok(), "a\n");
    for args in [&["cp", "a"][..], &["mv", "/d/a", "-n"], &["cp", "--force", "a"]] {
        node.run(args).fails(2, &["a source and a target", "Usage: weft"]);
    }
    node.run(&["cp", "a", "--no-such", "weft:/d"]).fails(2, &["--no-such"]);
}

#[test]
fn a_name_that_begins_with_a_dash_is_a_name_after_two() {
    let node = Node::start();
    node.write("-x", "dash");
    node.run(&["cp", "-x", "weft:/x"]).fails(2, &["-x"]);
    node.run(&["cp", "--", "-x", "weft:/x"]).ok();
    node.run(&["cp", "./-x", "weft:/-x"]).ok();
    node.run(&["cp", "--force", "weft:/x", "--", "-y"]).ok();
    assert_eq!(fs::read(node.path("-y")).expect("it is there"), b"dash");
    node.feed(&["cp", "-", "weft:/in"], b"in").ok();
    assert_eq!(node.run(&["ls", "/"]).ok(), "-x\nin\nx\n");
}
