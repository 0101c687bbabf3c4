//! `weft head tail tree df attr resolve completion`, and what `find` looks for in attributes.

use serde_json::json;

use crate::node::Node;

#[test]
fn the_ends_of_files_are_those_that_head_and_tail_print() {
    let node = Node::start();
    let long: String = (0..30_000).map(|n| format!("line {n}\n")).collect();
    for (name, bytes) in
        [("long", long.as_str()), ("short", "a\nb\nno end"), ("empty", ""), ("blank", "\n\n\n")]
    {
        node.write(name, bytes);
        node.run(&["cp", name, &format!("weft:/{name}")]).ok();
        for command in ["head", "tail"] {
            for option in [
                &[][..],
                &["-n", "0"],
                &["-n", "1"],
                &["-n", "2"],
                &["-n", "20000"],
                &["-c", "7"],
                &["-c", "0"],
            ] {
                let path = format!("/{name}");
                let ours = node.run(&[&[command], option, &[path.as_str()]].concat()).ok();
                let theirs = node.sh(&format!("{command} {} {name}", option.join(" ")));
                assert_eq!(ours, theirs, "{command} {option:?} {name}");
            }
        }
    }
    let ours = node.run(&["head", "-n1", "/long", "/short"]).ok();
    assert_eq!(ours, "==> /long <==\nline 0\n\n==> /short <==\na\n");
    node.run(&["tail", "/none", "/short"]).fails(1, &["/none"]);
}

#[test]
fn a_tree_is_drawn_whole_or_as_deep_as_is_asked() {
    let node = Node::start();
    for dir in ["/t", "/t/a", "/t/a/deep", "/t/z"] {
        node.run(&["mkdir", dir]).ok();
    }
    for file in ["/t/a/deep/f", "/t/a/g", "/t/m"] {
        node.feed(&["cp", "-", &format!("weft:{file}")], b"x").ok();
    }
    let whole =
        "/t\n├── a/\n│   ├── deep/\n│   │   └── f\n│   └── g\n├── m\n└── z/\n\n3 directories, 3 files\n";
    assert_eq!(node.run(&["tree", "/t"]).ok(), whole);
    assert_eq!(node.run(&["tree", "-L1", "-d", "/t"]).ok(), "/t\n├── a/\n└── z/\n\n2 directories, 0 files\n");
    let lines = node.run(&["tree", "/t", "--json"]).json();
    assert_eq!(lines[3], json!({ "path": "/t/a/deep/f", "kind": "file", "depth": 3 }), "{lines:?}");
    // What may not be listed is said, and the rest is drawn.
    node.add_user("bob", "bob's password");
    node.run(&["acl", "grant", "/t", "bob", "read"]).ok();
    node.run(&["acl", "grant", "--deny", "/t/a", "bob", "list"]).ok();
    let token = node.login("bob", "bob's password", &[]);
    let said = node.run_with(token.trim(), &["tree", "/t"]).fails(3, &["/t/a"]);
    assert!(said.out.contains("└── z/") && !said.out.contains("deep"), "{}", said.out);
}

#[test]
fn user_attributes_are_set_read_listed_found_and_removed() {
    let node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    for file in ["/d/a", "/d/b", "/d/c"] {
        node.feed(&["cp", "-", &format!("weft:{file}")], b"x").ok();
    }
    node.run(&["attr", "set", "/d/a", "colour", "blue"]).ok();
    node.run(&["attr", "set", "/d/b", "colour", "-5"]).ok();
    node.feed(&["attr", "set", "/d/b", "note", "-"], b"two\nlines").ok();
    node.run(&["attr", "set", "/d", "colour", "blue"]).ok();
    assert_eq!(node.run(&["attr", "get", "/d/a", "colour"]).ok(), "blue\n");
    assert_eq!(node.run(&["attr", "ls", "/d/b"]).ok(), "colour=-5\nnote=two\\x0alines\n");
    let listed = node.run(&["attr", "ls", "/d/a", "--json"]).json();
    assert_eq!(listed, [json!({ "path": "/d/a", "name": "colour", "value": "blue" })]);
    assert_eq!(node.run(&["find", "/d", "--attr", "colour"]).ok(), "/d\n/d/a\n/d/b\n");
    assert_eq!(node.run(&["find", "/d", "--attr", "colour=blue", "--type", "f"]).ok(), "/d/a\n");
    assert_eq!(node.run(&["find", "/d", "--attr", "colour", "--attr", "note"]).ok(), "/d/b\n");
    assert_eq!(node.run(&["find", "/d", "--attr", "colour="]).ok(), "");
    node.run(&["attr", "rm", "/d/a", "colour"]).ok();
    node.run(&["attr", "get", "/d/a", "colour"]).fails(1, &["has no attribute colour"]);
    node.run(&["attr", "rm", "/d/a", "colour"]).fails(1, &["/d/a"]);
    node.run(&["attr", "set", "/none", "a", "b"]).fails(1, &["/none"]);
    node.run(&["find", "/d", "--attr", ""]).fails(1, &["name"]);
}

#[test]
fn what_a_path_leads_to_and_how_much_room_there_is_are_told() {
    let node = Node::start();
    node.feed(&["cp", "-", "weft:/f"], b"x").ok();
    node.run(&["ln", "-s", "/f", "/l"]).ok();
    let stat = node.run(&["stat", "/f", "--json"]).json();
    let resolved = node.run(&["resolve", "/l", "--json"]).json();
    assert_eq!(resolved[0]["id"], stat[0]["id"], "{resolved:?}");
    assert_eq!(
        (&resolved[0]["volume"], &resolved[0]["kept"]["as"]),
        (&0.into(), &"managed".into()),
        "{resolved:?}"
    );
    let said = node.run(&["resolve", "/f"]).ok();
    assert!(said.starts_with("/f: file ") && said.ends_with(", managed\n"), "{said}");
    node.run(&["resolve", "/none", "/f"]).fails(1, &["/none"]);
    let space = node.run(&["df", "--json"]).json();
    let number = |of: &str| space[0][of].as_u64().expect("a number");
    assert_eq!(number("bytes_total"), number("bytes_used") + number("bytes_free"));
    assert!(number("files") >= 2);
    assert_eq!(node.run(&["df", "/", "/f"]).ok().lines().count(), 3);
}

/// Each shell takes the script, where it is there to be asked; bash completes with it.
#[test]
fn completions_are_scripts_that_the_shells_take() {
    let node = Node::unstarted();
    for shell in ["bash", "zsh", "fish"] {
        let script = node.run(&["completion", shell]).ok();
        assert!(script.contains("import") && script.contains("--exclude-from") || shell == "fish", "{shell}");
        node.write(shell, &script);
    }
    let script =
        "source ./bash; COMP_WORDS=(weft exp); COMP_CWORD=1; _weft weft exp weft; echo ${COMPREPLY[@]}";
    let mut bash = node.as_user("bash");
    let completed = node.feed_command(bash.args(["-c", script]), b"").ok();
    assert_eq!(completed, "export\n");
    node.run(&["completion", "tcsh"]).fails(2, &["tcsh"]);
}
