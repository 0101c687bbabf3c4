//! What a command does with the paths it is given: all of them, each as it is written, and each
//! failure named.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::node::{Node, Said, noise, signal};

/// A node with a small tree: files `/d/one`, `/d/two` and `/d/sub/three`, links `/l` → `/d`,
/// `/lf` → `/d/one` and `/dangling` → `/none`.
fn furnished() -> Node {
    let node = Node::start();
    node.run(&["mkdir", "-p", "/d/sub"]).ok();
    for (path, text) in [("weft:/d/one", "one"), ("weft:/d/two", "two!\n"), ("weft:/d/sub/three", "3")] {
        node.feed(&["cp", "-", path], text.as_bytes()).ok();
    }
    for (target, link) in [("/d", "/l"), ("/d/one", "/lf"), ("/none", "/dangling")] {
        node.run(&["ln", "-s", target, link]).ok();
    }
    node
}

fn tree(node: &Node) -> String {
    node.run(&["find"]).ok()
}

/// What each JSON line on stderr says: the kind of error and what it is about.
fn errors(said: &Said) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = said
        .err
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")) });
    lines.map(|error| (word(&error["error"]), word(&error["about"]))).collect()
}

#[test]
fn the_root_is_never_removed_and_nothing_in_it_is() {
    let node = furnished();
    let before = tree(&node);
    for args in [&["rm", "-r", "/"][..], &["rm", "-rf", "/"], &["rm", "-r", "weft:/"], &["rm", "/"]] {
        let said = node.run(args).fails(1, &["error: cannot remove /: ", "hint: ", "weft rm -r /a /b"]);
        assert_eq!(said.err.lines().count(), 2, "{}", said.err);
        assert_eq!(tree(&node), before, "{args:?}");
    }
    for args in [&["rm", "-r", "--dry-run", "/"][..], &["rmdir", "/"]] {
        assert_eq!(node.run(args).fails(1, &["error: cannot remove /: "]).out, "");
    }
    // Nor is a link to it the way in.
    node.run(&["ln", "-s", "/", "/up"]).ok();
    node.run(&["rm", "-r", "/up/"]).fails(1, &["error: cannot remove /up: "]);
    node.run(&["rm", "-r", "/up"]).ok();
    assert_eq!(tree(&node), before);
}

#[test]
fn one_bad_operand_keeps_nothing_from_the_others() {
    let node = furnished();
    for (args, out) in [
        (&["ls", "/nope", "/d/one"][..], "/d/one\n"),
        (&["cat", "/nope", "/d", "/d/one", "/no/way", "/d/two"], "onetwo!\n"),
        (&["find", "/nope", "/d/sub"], "/d/sub\n/d/sub/three\n"),
        (&["du", "--apparent-size", "/nope", "/d/two"], "       5 B  1 files  /d/two\n"),
        (&["touch", "/nope/x", "/t"], ""),
        (&["mkdir", "/nope/x", "/m"], ""),
        (&["rmdir", "/nope", "/d", "/m"], ""),
        (&["rm", "/nope", "relative", "/d", "/t"], ""),
        (&["mv", "/nope", "/d/sub/three", "/d"], ""),
    ] {
        let said = node.run(args);
        assert_eq!((said.code, said.out.as_str()), (1, out), "{args:?}: {}", said.err);
        let failures = said.err.lines().filter(|line| line.starts_with("error: cannot ")).count();
        let bad = args.iter().filter(|a| a.starts_with("/no") || **a == "relative");
        assert!(failures >= bad.count(), "{args:?}: {}", said.err);
    }
    let left = tree(&node);
    assert!(!left.contains("/t\n") && !left.contains("/m\n") && left.contains("/d/three\n"), "{left}");
    let both = node.run(&["stat", "/nope", "/d/one"]);
    assert!(both.code == 1 && both.out.contains("/d/one") && both.err.contains("stat /nope"), "{}", both.err);
    // One JSON line for each, and the exit code of the first.
    let alice = node.add_user("alice", "wonder");
    node.run(&["acl", "grant", "/d", "alice", "list,traverse,attr-read,read"]).ok();
    let said = node.run_with(&alice, &["rm", "--json", "/d/one", "/nope", "/d/two"]).fails(3, &[]);
    let denied = |path: &str| (String::from("denied"), String::from(path));
    let nothing = (String::from("not-found"), String::from("/nope"));
    assert_eq!(errors(&said), [denied("/d/one"), nothing.clone(), denied("/d/two")]);
    let said = node.run_with(&alice, &["rm", "--json", "/nope", "/d/one"]).fails(1, &[]);
    assert_eq!(errors(&said), [nothing, denied("/d/one")]);
}

#[test]
fn a_tree_is_removed_but_for_what_may_not_be_and_what_is_above_it() {
    let node = furnished();
    let alice = node.add_user("alice", "wonder");
    node.run(&["mkdir", "-p", "/d/sub/free/deep"]).ok();
    for path in ["/d/sub/free/f", "/d/sub/free/deep/f"] {
        node.feed(&["cp", "-", &format!("weft:{path}")], b"x").ok();
    }
    node.run(&["acl", "grant", "/d", "alice", "list,traverse,attr-read,remove"]).ok();
    node.run(&["acl", "grant", "/d/sub", "alice", "remove", "--deny"]).ok();
    node.run(&["acl", "revoke", "/d/sub/free", "alice", "all", "--deny"]).ok();
    let would = node.run_with(&alice, &["rm", "-r", "--dry-run", "--json", "/d"]).fails(3, &[]);
    let gone: BTreeSet<String> = would
        .out
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["path"].as_str().expect("a path").into()
        })
        .collect();
    let before: BTreeSet<String> = tree(&node).lines().map(String::from).collect();
    let said = node.run_with(&alice, &["rm", "-r", "--json", "/d"]).fails(3, &[]);
    let left: BTreeSet<String> = tree(&node).lines().map(String::from).collect();
    assert_eq!(errors(&would), errors(&said), "a dry run says what would fail");
    let denied = |path: &str| (String::from("denied"), String::from(path));
    assert_eq!(errors(&said), [denied("/d/sub/three"), denied("/d/sub/free")]);
    assert_eq!(&before - &left, gone, "and what would go");
    for (path, there) in [("/d/one", false), ("/d/sub/free/deep", false), ("/d/sub/free", true), ("/d", true)]
    {
        assert_eq!(left.contains(path), there, "{path}");
    }
}

/// `-f` says nothing of what is not there to begin with. Of what was found, and is hidden now, it does.
#[test]
fn a_tree_that_is_hidden_while_it_is_removed_is_not_taken_for_gone() {
    const FILES: usize = 3000;
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.make_dir("d");
    for number in 0..FILES {
        node.write(&format!("d/{number:04}"), "x");
    }
    node.run(&["cp", "-r", "d", "weft:/"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "list,traverse,attr-read,remove"]).ok();
    let http = node.http(Some(&node.token()));
    let mut command = node.command();
    let removing = command.env("BEARER_TOKEN", &alice).args(["rm", "-rf", "/d"]).stderr(Stdio::piped());
    let removing = removing.spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(60);
    while http.get("/d/0000").status != 404 {
        assert!(Instant::now() < until, "nothing is removed");
    }
    signal(&removing, Signal::STOP);
    node.run(&["acl", "revoke", "/d", "alice", "all"]).ok();
    signal(&removing, Signal::CONT);
    let said = removing.wait_with_output().expect("it ends");
    let left = node.run(&["ls", "/d"]).ok().lines().count();
    assert!((1..FILES).contains(&left), "{left} are left: it was to be stopped on its way");
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(1) && err.contains("cannot remove /d/"), "{:?}: {err}", said.status);
    // What is not there for her to begin with is another matter.
    node.run_with(&alice, &["rm", "-rf", "/none"]).ok();
}

#[test]
fn a_dry_run_prints_one_json_object_a_line_and_fails_as_the_run_would() {
    let node = furnished();
    let json = node.run(&["rm", "--dry-run", "-r", "--json", "/d/sub", "/lf"]).json();
    let shown: Vec<_> = json.iter().map(|e| (e["path"].as_str(), e["kind"].as_str())).collect();
    let expected = [("/d/sub/three", "file"), ("/d/sub", "directory"), ("/lf", "symlink")];
    assert_eq!(shown, expected.map(|(path, kind)| (Some(path), Some(kind))));
    let said = node.run(&["rm", "--dry-run", "/d", "/d/one"]).fails(1, &["error: cannot remove /d: "]);
    assert_eq!(said.out, "/d/one\n");
    let alice = node.add_user("alice", "wonder");
    node.run(&["acl", "grant", "/d", "alice", "list,traverse,attr-read,read"]).ok();
    let said = node.run_with(&alice, &["rm", "--dry-run", "-r", "/d"]);
    let words = ["cannot remove /d/one: ", "cannot remove /d/sub/three: ", "hint: weft why /d/sub remove"];
    assert_eq!(said.fails(3, &words).out, "");
}

#[test]
fn a_node_that_goes_away_ends_a_command_at_once() {
    let mut node = furnished();
    node.feed(&["cp", "-", "weft:/big"], &noise(1, 8 << 20)).ok();
    let mut command = node.command();
    command.args(["cat", "/big", "/d/one", "/d/two"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut out = child.stdout.take().expect("piped");
    // It is in the middle of the first file, and waits for us.
    out.read_exact(&mut [0; 4096]).expect("it writes");
    node.kill();
    std::io::copy(&mut out, &mut std::io::sink()).expect("read");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(crate::node::wait(&mut child).code(), Some(4), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
}

#[test]
fn a_slash_at_the_end_means_a_directory_and_changes_nothing_else() {
    let node = furnished();
    let before = tree(&node);
    for (args, kind, about) in [
        (&["cat", "/d/one/"][..], "not-directory", "/d/one"),
        (&["cat", "/lf/"], "not-directory", "/lf"),
        (&["cat", "/d/"], "is-directory", "/d"),
        (&["touch", "/d/one/"], "not-directory", "/d/one"),
        (&["touch", "/new/"], "not-found", "/new"),
        (&["rm", "/d/one/"], "not-directory", "/d/one"),
        (&["rm", "-rf", "/d/one/"], "not-directory", "/d/one"),
        (&["rm", "/l/"], "not-directory", "/l"),
        (&["rm", "-r", "/l/"], "not-directory", "/l"),
        (&["rmdir", "/l/"], "not-directory", "/l"),
        (&["rmdir", "/d/one/"], "not-directory", "/d/one"),
        (&["mv", "/d/one/", "/x"], "not-directory", "/d/one"),
        (&["mv", "/l/", "/x"], "not-directory", "/l"),
        (&["mv", "/d/one", "/x/"], "not-directory", "/x"),
        (&["mv", "/d/two", "/d/one/"], "not-directory", "/d/one"),
        (&["mv", "/d/two", "/dangling/"], "not-directory", "/dangling"),
        (&["ln", "/d/one/", "/x"], "not-directory", "/d/one"),
        (&["ln", "/d/one", "/x/"], "not-found", "/x"),
        (&["ln", "-s", "/d", "/d/one/"], "not-directory", "/d/one"),
        (&["ls", "/d/one/"], "not-directory", "/d/one"),
        (&["ls", "-l", "/lf/"], "not-directory", "/lf"),
        (&["ls", "/dangling/"], "not-found", "/dangling"),
        (&["stat", "/d/one/"], "not-directory", "/d/one"),
        (&["find", "/d/one/"], "not-directory", "/d/one"),
        (&["du", "/lf/"], "not-directory", "/lf"),
        (&["acl", "show", "/d/one/"], "not-directory", "/d/one"),
        (&["acl", "set", "/lf/", "--bytes-max", "9"], "not-directory", "/lf"),
        (&["acl", "grant", "/d/one/", "anyone", "read"], "not-directory", "/d/one"),
        (&["acl", "revoke", "/d/one/", "anyone", "read"], "not-directory", "/d/one"),
        (&["why", "/d/one/"], "not-directory", "/d/one"),
        (&["audit", "/d/one/"], "not-directory", "/d/one"),
        (&["audit", "/d/one/", "--reads", "off"], "not-directory", "/d/one"),
        (&["revoke", "--container", "/lf/"], "not-directory", "/lf"),
        (&["mount", "/d/one/", "tmp"], "not-directory", "/d/one"),
        (&["mount", "/dangling/", "tmp"], "not-found", "/dangling"),
    ] {
        let said = node.run(&[args, &["--json"]].concat()).fails(1, &[]);
        assert_eq!(errors(&said), [(kind.to_owned(), about.to_owned())], "{args:?}");
        assert_eq!(tree(&node), before, "{args:?}");
    }
    for verb in [&["acl", "show", "/d/"][..], &["why", "/l/"], &["audit", "/d/"]] {
        node.run(verb).ok();
    }
    node.run(&["mkdir", "/new/"]).ok();
    node.run(&["mv", "/new/", "/newer/"]).ok();
    node.run(&["mkdir", "-p", "/newer/x/y/"]).ok();
    node.run(&["rm", "-r", "/newer/x/"]).ok();
    node.run(&["touch", "/l/", "/newer/"]).ok();
    node.run(&["rmdir", "/newer/"]).ok();
    assert_eq!(node.run(&["ls", "/l/"]).ok(), "one\nsub/\ntwo\n");
    assert_eq!(node.run(&["ls", "-d", "/l/"]).ok(), "/l/\n");
    assert_eq!(node.run(&["find", "/l/sub/"]).ok(), "/l/sub\n/l/sub/three\n");
    assert_eq!(node.run(&["stat", "--json", "/l/"]).json()[0]["kind"], "directory");
    assert_eq!(tree(&node), before);
}

#[test]
fn mkdir_with_parents_forgives_directories_and_nothing_else() {
    let node = furnished();
    for (path, about) in
        [("/d/one", "/d/one"), ("/d/one/x/y", "/d/one"), ("/lf/x", "/lf"), ("/dangling", "/dangling")]
    {
        let said = node.run(&["mkdir", "-p", "--json", path]).fails(1, &[]);
        assert_eq!(errors(&said), [(String::from("exists"), about.to_owned())], "{path}");
    }
    node.run(&["mkdir", "/"]).fails(1, &["error: cannot make /: "]);
    node.run(&["mkdir", "-p", "/", "/d/sub", "/l/in/deep"]).ok();
    // Whoever may not make anything above makes what is below all the same.
    let alice = node.add_user("alice", "wonder");
    node.run(&["acl", "grant", "/d/sub", "alice", "all"]).ok();
    node.run_with(&alice, &["mkdir", "-p", "/d/sub/a/b"]).ok();
    let made = tree(&node);
    assert!(made.contains("/d/in/deep\n") && made.contains("/d/sub/a/b\n"), "{made}");
}

#[test]
fn paths_with_dots_or_empty_names_are_refused_with_what_to_write() {
    let node = furnished();
    for path in ["/d/../x", "/./x", "/d/.", "/..", "//", "/d//one", "d", ""] {
        let said = node.run(&["stat", path]).fails(1, &["error: cannot use ", "hint: ", "from the root"]);
        assert_eq!(said.err.lines().count(), 2, "{}", said.err);
    }
}

#[test]
fn names_that_differ_are_shown_apart_as_text_and_as_json() {
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    for name in ["bad%ff", "bad%5Cxff", "two%0Alines", "%5C"] {
        assert_eq!(http.put(&format!("/{name}"), b"x").status, 201);
    }
    assert_eq!(node.run(&["ls"]).ok(), "\\\\\nbad\\\\xff\nbad\\xff\ntwo\\x0alines\n");
    assert_eq!(node.run(&["find", "--type", "f"]).ok(), "/\\\\\n/bad\\\\xff\n/bad\\xff\n/two\\x0alines\n");
    let json = node.run(&["ls", "--json"]).json();
    let shown: Vec<_> = json.iter().map(|e| e["path"].as_str().expect("a path")).collect();
    assert_eq!(shown, ["/\\\\", "/bad\\\\xff", "/bad\\xff", "/two\\x0alines"]);
    // And what a link leads to, and what an error is about.
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    node.run(&[odd(b"ln"), odd(b"-s"), odd(b"\xff\\\x1b[m"), odd(b"/link")]).ok();
    assert_eq!(node.run(&["stat", "--json", "/link"]).json()[0]["target"], "\\xff\\\\\\x1b[m");
    assert!(node.run(&["stat", "/link"]).ok().contains("leads to   \\xff\\\\\\x1b[m\n"));
    for path in [&b"/\xfe\x1b\\"[..], b"\xfe\x1b\\"] {
        node.run(&[odd(b"cat"), odd(path)]).fails(1, &["\\xfe\\x1b\\\\: "]);
    }
}

#[test]
fn a_listing_shows_links_the_root_and_directories_apart() {
    let node = furnished();
    assert_eq!(node.run(&["ls", "-d", "/"]).ok(), "/\n");
    assert_eq!(
        node.run(&["ls", "/d", "/lf", "/d/sub"]).ok(),
        "/lf\n\n/d:\none\nsub/\ntwo\n\n/d/sub:\nthree\n"
    );
    let long = node.run(&["ls", "-lR", "/d"]).ok();
    assert!(long.starts_with("/d:\n") && long.contains("\n\n/d/sub:\n"), "{long}");
    assert_eq!(node.run(&["ls", "-R", "--json", "/d"]).json().len(), 4);
    for (path, target) in [("/l", "/d"), ("/lf", "/d/one"), ("/dangling", "/none")] {
        let long = node.run(&["ls", "-l", path]).ok();
        assert!(long.starts_with('l') && long.ends_with(&format!(" {path} -> {target}\n")), "{long}");
        assert_eq!(node.run(&["ls", "-d", path]).ok(), format!("{path}\n"));
        let stat = node.run(&["stat", "--json", path]).json();
        assert_eq!((&stat[0]["kind"], &stat[0]["target"]), (&Value::from("symlink"), &Value::from(target)));
        assert_eq!(node.run(&["ls", "-l", "--json", path]).json()[0]["target"], target);
    }
    assert_eq!(node.run(&["ls", "/l"]).ok(), "one\nsub/\ntwo\n");
    assert_eq!(node.run(&["ls", "/dangling"]).ok(), "/dangling\n");
    assert!(node.run(&["stat", "--json", "/d/one"]).json()[0].get("target").is_none());
}

#[test]
fn of_two_names_the_one_that_fails_is_named() {
    let node = furnished();
    node.run(&["mkdir", "-p", "/e/e"]).ok();
    let before = tree(&node);
    for (args, kind, about) in [
        (&["ln", "/nope", "/x"][..], "not-found", "/nope"),
        (&["ln", "/d/one/x", "/x"], "not-directory", "/d/one/x"),
        (&["ln", "/d", "/x"], "is-directory", "/d"),
        (&["ln", "/d/one", "/nope/x"], "not-found", "/nope/x"),
        (&["ln", "/d/one", "/d/two"], "exists", "/d/two"),
        (&["ln", "/d/one", "/d"], "exists", "/d/one"),
        (&["ln", "-s", "/", "/d"], "invalid", "/d"),
        (&["mv", "/nope", "/x"], "not-found", "/nope"),
        (&["mv", "/d/one", "/nope/x"], "not-found", "/nope/x"),
        (&["mv", "/d/one", "/d/two/x"], "not-directory", "/d/two/x"),
        (&["mv", "/e", "/d/one"], "not-directory", "/d/one"),
        (&["mv", "/d/sub/three", "/e/e/x/y"], "not-found", "/e/e/x/y"),
        (&["mv", "-n", "/d/one", "/d/two"], "exists", "/d/two"),
        (&["mv", "/d/sub", "/"], "", ""),
        (&["mv", "/sub", "/d"], "", ""),
        (&["mv", "/e/e", "/d/one", "/e/e"], "loop", "/e/e"),
        (&["mv", "/", "/x"], "invalid", "/"),
    ] {
        let said = node.run(&[args, &["--json"]].concat());
        let expected = [(kind.to_owned(), about.to_owned())];
        let expected = if kind.is_empty() { &[][..] } else { &expected };
        assert_eq!(errors(&said), expected, "{args:?}");
        assert_eq!(said.code, i32::from(!kind.is_empty()), "{args:?}");
    }
    node.run(&["mv", "/e/e/one", "/d/one"]).ok();
    // What is renamed to itself stays as it is.
    for path in ["/e", "/e/", "/d/one", "/l"] {
        node.run(&["mv", path, path]).ok();
    }
    node.run(&["mv", "/e", "/e/e"]).fails(1, &["error: cannot rename /e: ", "below itself"]);
    assert_eq!(tree(&node), before);
}

#[test]
fn a_command_line_that_cannot_be_understood_is_said_in_json_too() {
    let node = Node::unstarted();
    for (args, word) in [
        (&["rm", "--json"][..], "PATHS"),
        (&["--json", "frobnicate"], "frobnicate"),
        (&["ls", "--frobnicate", "--json"], "--frobnicate"),
        (&["find", "--json", "--type", "x"], "--type"),
        (&["--json"], "subcommand"),
        (&["--json", "acl"], "no command"),
    ] {
        let said = node.run(args).fails(2, &[]);
        assert_eq!((said.out.as_str(), said.err.lines().count()), ("", 1), "{args:?}: {}", said.err);
        let error: Value = serde_json::from_str(&said.err).expect("JSON");
        assert_eq!(error["error"], "usage", "{args:?}");
        assert!(error["detail"].as_str().expect("text").contains(word), "{args:?}: {error}");
    }
    node.run(&["rm"]).fails(2, &["error: ", "Usage: "]);
    node.run(&["ls", "--frobnicate", "--", "--json"]).fails(2, &["error: ", "Usage: "]);
    assert!(node.run(&["--help", "--json"]).ok().contains("Commands:"));
    assert!(node.run(&["--version", "--json"]).ok().starts_with("weft "));
}

#[test]
fn a_node_that_is_named_by_nothing_is_not_named() {
    let mut node = Node::unstarted();
    let usual = node.path("home/.local/share/weft").display().to_string();
    let run = |node: &Node| node.feed_command(node.command().env("WEFT_NODE", "").args(["ls"]), b"");
    run(&node).fails(4, &["error: ", &usual]);
    node.up();
    node.run(&["ls"]).ok();
}
