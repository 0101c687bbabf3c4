//! Directories that are served in place, as commands speak of them, and commands in a tree of
//! several volumes.

use std::os::unix::ffi::OsStrExt;

use crate::node::Node;
use crate::shared_node::{AT, DIRECTORY, SharedNode};

/// A shared node with a file beside the share and some in it.
fn furnished() -> SharedNode {
    let node = SharedNode::start();
    for (path, text) in
        [("weft:/d/beside", "here"), ("weft:/d/share/one", "one"), ("weft:/d/share/two", "two!")]
    {
        node.place.feed(&["cp", "-", path], text.as_bytes()).ok();
    }
    node
}

#[test]
fn a_directory_is_shared_listed_and_unshared_and_each_says_what_it_did() {
    let node = SharedNode::start();
    let directory = node.place.make_dir("of mine").canonicalize().expect("it is there");
    let shown = directory.display().to_string();
    let said = node.place.run(&["share", "of mine/../of mine", "/d/of mine/"]);
    assert!(
        said.err.contains("only administrators") && said.err.contains("weft acl grant '/d/of mine' WHO read")
    );
    assert_eq!(said.ok(), format!("{shown} is shared at /d/of mine: its files are served where they are\n"));
    node.home.shares.lock().expect("whole")[0].away = Some("the directory\nis not there".into());
    let list = node.place.run(&["share"]).ok();
    let lines: Vec<Vec<_>> =
        list.lines().map(|line| line.split("  ").filter(|s| !s.is_empty()).collect()).collect();
    assert!(
        lines[0][0] == AT
            && lines[0][2].trim() == "alice"
            && lines[0][3].ends_with(r"away: the directory\x0ais not there"),
        "{list}"
    );
    assert!(lines[1][0] == "/d/of mine" && list.ends_with("served\n"), "{list}");
    let json = node.place.run(&["share", "--json"]).json();
    assert_eq!((&json[1]["directory"], &json[1]["volume"]), (&shown.clone().into(), &2.into()));
    assert_eq!((&json[0]["path"], json[1]["away"].is_null()), (&AT.into(), true));
    assert_eq!(
        node.place.run(&["unshare", "/d/of mine"]).ok(),
        format!("{shown} is not shared any more; nothing in it was touched\n")
    );
    node.place
        .run(&["unshare", "/d/of mine"])
        .fails(1, &["error: cannot unshare /d/of mine: nothing is there"]);
    let json = node.place.run(&["share", "--json", "of mine", "/e"]).json();
    assert_eq!(json[0]["path"], "/e");
    assert_eq!(node.place.run(&["unshare", "/e", "--json"]).json()[0]["directory"], shown);
}

#[test]
fn what_cannot_be_shared_is_refused_before_the_node_is_asked() {
    let place = Node::unstarted();
    place.write("file", "");
    place.run(&["share", "file", "/x"]).fails(1, &["error: cannot share file: only a directory"]);
    place.run(&["share", "none", "/x"]).fails(1, &["error: cannot share none"]);
    place.run(&["share", ".", "/"]).fails(1, &["error: cannot share at /: the root has no name"]);
    place.run(&["share", ".", "x"]).fails(1, &["error:", "starts with `/`"]);
    place.run(&["share", "."]).fails(2, &["Usage: weft share"]);
    place.run(&["unshare"]).fails(2, &["Usage: weft unshare"]);
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff");
    place.make_dir("odd");
    std::fs::rename(place.path("odd"), place.path(odd)).expect("renamed");
    place.run(&[std::ffi::OsStr::new("share"), odd, std::ffi::OsStr::new("/x")]).fails(1, &["not UTF-8"]);
}

#[test]
fn stat_says_who_keeps_a_file() {
    let node = furnished();
    let kept = |path: &str| {
        let text = node.place.run(&["stat", path]).ok();
        let line = text.lines().find_map(|line| line.strip_prefix("kept       ")).expect("a line").to_owned();
        (line, node.place.run(&["stat", path, "--json"]).json()[0]["kept"].to_string())
    };
    assert_eq!(kept("/d/beside"), ("managed".into(), r#"{"as":"managed"}"#.into()));
    let exported = format!(r#"{{"as":"exported","directory":"{DIRECTORY}"}}"#);
    for path in [AT, "/d/share/one"] {
        assert_eq!(kept(path), (format!("exported from {DIRECTORY}"), exported.clone()), "{path}");
    }
    node.home.shares.lock().expect("whole")[0].directory.clear();
    assert_eq!(kept(AT), ("exported".into(), r#"{"as":"exported","directory":null}"#.into()));
}

#[test]
fn a_share_is_listed_searched_added_up_and_copied_like_any_directory() {
    let node = furnished();
    let run = |args: &[&str]| node.place.run(args).ok();
    assert_eq!(run(&["ls", "-R", "/d"]), "/d:\nbeside\nshare/\n\n/d/share:\none\ntwo\n");
    assert_eq!(run(&["find", "/d", "--type", "f"]), "/d/beside\n/d/share/one\n/d/share/two\n");
    assert!(run(&["du", "/d", "--apparent-size"]).contains("11 B  3 files  /d"));
    run(&["cp", "-r", "weft:/d", "weft:/copy"]);
    assert_eq!(run(&["cat", "/copy/share/two", "/copy/beside"]), "two!here");
    run(&["cp", "weft:/d/beside", "weft:/d/share"]);
    assert_eq!(run(&["cat", "/d/share/beside"]), "here");
    node.place.run(&["cp", "-r", "weft:/d", "weft:/d/share"]).fails(1, &["cannot be copied into itself"]);
    run(&["cp", "-r", "weft:/d/share", "out"]);
    assert_eq!(std::fs::read(node.place.path("out/one")).expect("it is there"), b"one");
}

#[test]
fn a_rename_or_link_between_volumes_says_what_to_do_instead() {
    let node = furnished();
    let instead =
        "hint: copy it, then remove it: weft cp -r weft:/d/beside weft:/d/share/b && weft rm -r /d/beside";
    node.place
        .run(&["mv", "/d/beside", "/d/share/b"])
        .fails(1, &["error: cannot rename /d/beside: ", instead]);
    let symbolic = "hint: weft ln -s makes a symbolic link";
    node.place.run(&["ln", "/d/beside", "/d/share"]).fails(1, &["/d/share/beside: ", symbolic]);
    node.place.run(&["mv", "/d/share/one", "/d/share/eins"]).ok();
    assert_eq!(node.place.run(&["cat", "/d/share/eins"]).ok(), "one");
}

#[test]
fn rm_r_takes_nothing_out_of_a_directory_that_is_shared_below_it() {
    let node = furnished();
    let in_it = || node.place.run(&["ls", AT]).ok();
    let said = ["error: cannot remove /d/share: it is a share", "hint: weft unshare /d/share takes it out"];
    for args in
        [&["rm", "-r", "/d/share"][..], &["rm", "-rf", "/d/share/"], &["rm", "-r", "--dry-run", "/d/share"]]
    {
        assert_eq!(node.place.run(args).fails(3, &said).out, "");
        assert_eq!(in_it(), "one\ntwo\n", "{args:?}");
    }
    assert_eq!(node.place.run(&["rm", "-r", "--dry-run", "/d"]).fails(3, &said).out, "/d/beside\n");
    let refused = node.place.run(&["rm", "-r", "/d"]).fails(3, &said);
    assert_eq!(refused.err.lines().count(), 2, "what is above it stays without more words: {}", refused.err);
    assert_eq!((in_it(), node.place.run(&["ls", "/d"]).ok()), ("one\ntwo\n".into(), "share/\n".into()));
    node.place.run(&["mkdir", "/d/share/sub"]).ok();
    node.place.run(&["rm", "-r", "/d/share/sub", "/d/share/one"]).ok();
    assert_eq!(in_it(), "two\n", "within it, as anywhere");
}
