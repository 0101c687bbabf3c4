//! Every command once, as text and as JSON, with its exit code and its errors.

use crate::node::Node;

/// A node with a small tree: `/d/one` (3 bytes), `/d/two` (5), `/d/sub/three`, `/l` → `/d`.
fn furnished() -> Node {
    let node = Node::start();
    node.run(&["mkdir", "-p", "/d/sub"]).ok();
    for (path, text) in [("weft:/d/one", "one"), ("weft:/d/two", "two!\n"), ("weft:/d/sub/three", "3")] {
        node.feed(&["cp", "-", path], text.as_bytes()).ok();
    }
    node.run(&["ln", "-s", "/d", "/l"]).ok();
    node
}

#[test]
fn a_listing_has_every_name_once_and_in_order() {
    let node = furnished();
    assert_eq!(node.run(&["ls"]).ok(), "d/\nl\n");
    assert_eq!(node.run(&["ls", "/d"]).ok(), "one\nsub/\ntwo\n");
    assert_eq!(node.run(&["ls", "/l"]).ok(), "one\nsub/\ntwo\n", "a link is followed");
    assert_eq!(node.run(&["ls", "-R", "/d"]).ok(), "/d:\none\nsub/\ntwo\n/d/sub:\nthree\n");
    assert_eq!(node.run(&["ls", "-d", "/d"]).ok(), "/d/\n");
    let long = node.run(&["ls", "-l", "/d"]).ok();
    assert!(long.lines().next().expect("a line").starts_with("-rw-"), "{long}");
    assert!(long.contains("5 B") && long.contains(" one\n"), "{long}");
    let json = node.run(&["ls", "/d", "--json"]).json();
    let shown: Vec<_> = json.iter().map(|e| (e["path"].as_str(), e["kind"].as_str())).collect();
    let expected = [("/d/one", "file"), ("/d/sub", "directory"), ("/d/two", "file")];
    assert_eq!(shown, expected.map(|(path, kind)| (Some(path), Some(kind))));
    assert_eq!(json[2]["size"], 5);
    node.run(&["ls", "/none"]).fails(1, &["error: cannot list /none"]);
    node.run(&["ls", "relative"]).fails(1, &["error:", "starts with `/`"]);
}

#[test]
fn cat_writes_files_and_ranges_of_them() {
    let node = furnished();
    assert_eq!(node.run(&["cat", "/d/one", "/d/two"]).ok(), "onetwo!\n");
    for (range, expected) in [("1-2", "wo"), ("3-", "!\n"), ("-2", "!\n"), ("0-999", "two!\n"), ("4-4", "\n")]
    {
        assert_eq!(node.run(&["cat", "/d/two", "--range", range]).ok(), expected, "{range}");
    }
    node.run(&["cat", "/d/two", "--range", "2-1"]).fails(1, &["error:", "range"]);
    node.run(&["cat", "/d"]).fails(1, &["error: cannot read /d"]);
    node.run(&["cat", "/none"]).fails(1, &["error: cannot read /none"]);
    node.run::<&str>(&["cat"]).fails(2, &["Usage"]);
}

#[test]
fn files_are_made_moved_linked_and_removed() {
    let node = furnished();
    node.run(&["touch", "/new"]).ok();
    node.run(&["touch", "-c", "/not"]).ok();
    node.run(&["mv", "/new", "/d/one"]).ok();
    assert_eq!(node.run(&["cat", "/d/one"]).ok(), "");
    node.run(&["mv", "-n", "/d/one", "/d/two"]).fails(1, &["error: cannot rename /d/one"]);
    node.run(&["mv", "--exchange", "/d/one", "/d/two"]).ok();
    assert_eq!(node.run(&["cat", "/d/one"]).ok(), "two!\n");
    node.run(&["mv", "/d/one", "/d/two", "/d/sub"]).ok();
    assert_eq!(node.run(&["ls", "/d/sub"]).ok(), "one\nthree\ntwo\n");
    node.run(&["ln", "/d/sub/one", "/hard"]).ok();
    let stat = node.run(&["stat", "/hard", "--json"]).json();
    assert_eq!((stat[0]["links"].as_u64(), stat[0]["size"].as_u64()), (Some(2), Some(5)));
    assert!(stat[0]["rights"].as_str().is_some_and(|rights| rights.contains("acl-write")), "{stat:?}");
    let text = node.run(&["stat", "/l"]).ok();
    assert!(text.contains("symlink") && text.contains("leads to   /d"), "{text}");
    assert!(node.run(&["stat", "-L", "/l"]).ok().contains("directory"));
    node.run(&["rmdir", "/d"]).fails(1, &["error: cannot remove /d"]);
    node.run(&["rm", "/d"]).fails(1, &["error: cannot remove /d"]);
    let would = node.run(&["rm", "-r", "--dry-run", "/d"]).ok();
    assert_eq!(would, "/d/sub/one\n/d/sub/three\n/d/sub/two\n/d/sub\n/d\n");
    assert!(node.run(&["ls"]).ok().contains("d/"), "a dry run removes nothing");
    node.run(&["rm", "-r", "/d"]).ok();
    node.run(&["rm", "/none"]).fails(1, &["error: cannot remove /none"]);
    node.run(&["rm", "-f", "/none"]).ok();
    node.run(&["mkdir", "/e"]).ok();
    node.run(&["mkdir", "/e"]).fails(1, &["error: cannot make /e"]);
    node.run(&["mkdir", "/no/way"]).fails(1, &["error: cannot make /no/way"]);
    node.run(&["rmdir", "/e"]).ok();
    assert_eq!(node.run(&["ls"]).ok(), "hard\nl\n");
}

#[test]
fn find_and_du_walk_the_tree() {
    let node = furnished();
    assert_eq!(node.run(&["find", "/d", "--name", "t*"]).ok(), "/d/two\n/d/sub/three\n");
    assert_eq!(node.run(&["find", "--type", "d"]).ok(), "/\n/d\n/d/sub\n");
    assert_eq!(node.run(&["find", "/d", "--size", "+3", "--type", "f"]).ok(), "/d/two\n");
    let json = node.run(&["find", "/d", "--type", "f", "--json"]).json();
    assert_eq!(json.len(), 3);
    node.run(&["find", "/none"]).fails(1, &["error:", "/none"]);
    node.run(&["find", "--type", "x"]).fails(2, &["--type"]);
    let du = node.run(&["du", "/d", "--apparent-size", "--json"]).json();
    assert_eq!((du[0]["bytes"].as_u64(), du[0]["files"].as_u64()), (Some(9), Some(3)));
    assert!(node.run(&["du", "/d", "--apparent-size"]).ok().contains("9 B  3 files  /d"));
}

#[test]
fn the_node_tells_of_itself() {
    let node = furnished();
    let status = node.run(&["status"]).ok();
    let data = node.data().display().to_string();
    for word in ["domain", &data, "files    7", "door     http at http://127.0.0.1:"] {
        assert!(status.contains(word), "`{word}` is not in\n{status}");
    }
    let json = node.run(&["status", "--json"]).json();
    assert_eq!(json[0]["pid"].as_u64(), Some(u64::from(node.pid())));
    let me = node.run(&["whoami"]).ok();
    assert!(!me.trim().is_empty() && me.lines().count() == 1, "{me}");
    assert!(
        node.run(&["whoami", "--json"]).json()[0]["caller"].as_str().expect("a name").contains(me.trim())
    );
    node.run::<&str>(&[]).fails(2, &["Usage"]);
    node.run(&["frobnicate"]).fails(2, &["frobnicate"]);
    assert!(node.run(&["--version"]).ok().starts_with("weft "));
    assert!(node.run(&["--help"]).ok().contains("Commands:"));
}

#[test]
fn without_a_node_each_command_is_unavailable_and_says_where_it_looked() {
    let node = Node::unstarted();
    let data = node.data().display().to_string();
    for args in [&["ls"][..], &["cat", "/f"], &["status"], &["whoami"], &["login", "--print"], &["down"]] {
        node.run(args).fails(4, &["error:", &data, "hint:"]);
    }
    let said = node.run(&["ls", "--json"]).fails(4, &[]);
    let error: serde_json::Value = serde_json::from_str(said.err.trim()).expect("JSON");
    assert_eq!(error["error"], "unavailable");
}

#[test]
fn users_and_groups_are_made_changed_and_listed() {
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.run(&["user", "add", "bob", "--no-password", "--uid", "1001"]).ok();
    node.feed(&["user", "add", "alice", "--password-stdin"], b"x").fails(1, &["error:", "alice"]);
    node.feed(&["user", "add", "eve", "--password-stdin"], b"\n").fails(1, &["error:", "empty"]);
    let users = node.run(&["user", "ls", "--json"]).json();
    let named = |name: &str| users.iter().find(|u| u["name"].as_str().is_some_and(|n| n.contains(name)));
    assert_eq!(named("bob").expect("listed")["uid"], 1001);
    assert_eq!(named("alice").expect("listed")["has_password"], true);
    assert!(node.run(&["user", "ls"]).ok().lines().any(|line| line.starts_with("bob ")));
    node.run_with(&alice, &["user", "add", "eve", "--no-password"]).fails(3, &["error:"]);
    // Groups are anyone's to make; their names carry the maker's.
    assert_eq!(node.run_with(&alice, &["group", "make", "team"]).ok(), "group:alice/team\n");
    node.run_with(&alice, &["group", "add", "group:alice/team", "bob"]).ok();
    let groups = node.run_with(&alice, &["group", "ls", "--json"]).json();
    assert!(groups[0]["members"].to_string().contains("bob"), "{groups:?}");
    assert!(node.run_with(&alice, &["group", "ls"]).ok().contains("group:alice/team"));
    node.run_with(&alice, &["group", "remove", "group:alice/team", "bob"]).ok();
    node.run_with(&alice, &["group", "rm", "group:alice/team"]).ok();
    assert_eq!(node.run_with(&alice, &["group", "ls"]).ok(), "");
    // A new password ends the old one; a disabled user ends at once.
    node.feed(&["user", "passwd", "alice", "--password-stdin"], b"land").ok();
    node.feed(&["login", "alice", "--password-stdin", "--print"], b"wonder").fails(3, &["error:"]);
    let alice = node.login("alice", "land", &[]);
    assert_eq!(node.run_with(&alice, &["whoami"]).ok(), "alice\n");
    node.run(&["user", "disable", "alice"]).ok();
    node.run_with(&alice, &["whoami"]).fails(3, &["error:"]);
    node.feed(&["login", "alice", "--password-stdin", "--print"], b"land").fails(3, &["error:"]);
    node.run(&["user", "enable", "alice"]).ok();
    node.login("alice", "land", &[]);
    node.run(&["user", "uid", "bob", "1002"]).ok();
    assert!(node.run(&["user", "ls"]).ok().contains("1002"));
}

#[test]
fn acl_why_and_audit_tell_the_same_story() {
    let node = furnished();
    let alice = node.add_user("alice", "wonder");
    node.run_with(&alice, &["cat", "/d/one"]).fails(1, &["error: cannot read /d/one"]);
    let said = node.run(&["acl", "grant", "/d", "alice", "read"]);
    assert!(said.err.contains("container of its own") && said.err.contains("traverse"), "{}", said.err);
    assert_eq!(node.run_with(&alice, &["cat", "/d/one"]).ok(), "one");
    node.feed(&["cp", "-", "weft:/d/one"], b"ONE").ok();
    node.run_with(&alice, &["rm", "/d/one"]).fails(3, &["error: cannot remove /d/one"]);
    let shown = node.run(&["acl", "show", "/d"]).ok();
    assert!(shown.contains("allow alice") && shown.contains("read"), "{shown}");
    let json = node.run(&["acl", "show", "/d", "--json"]).json();
    assert!(json[0]["entries"].to_string().contains("alice"), "{json:?}");
    // `why` is computed by what decides, and scripts can ask it.
    let allowed = node.run_with(&alice, &["why", "/d/one"]).ok();
    assert!(allowed.starts_with("allowed: ") && allowed.contains("alice"), "{allowed}");
    let refused = node.run_with(&alice, &["why", "/d/one", "remove", "--json"]).fails(3, &[]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&refused.out).expect("JSON")["allowed"], false);
    // A negative entry wins; taking both away leaves nothing.
    node.run(&["acl", "grant", "/d", "alice", "read", "--deny"]).ok();
    assert_ne!(node.run_with(&alice, &["cat", "/d/one"]).code, 0);
    node.run(&["acl", "revoke", "/d", "alice", "all", "--deny"]).ok();
    node.run_with(&alice, &["cat", "/d/one"]).ok();
    node.run(&["acl", "revoke", "/d", "alice", "all"]).ok();
    assert_ne!(node.run_with(&alice, &["cat", "/d/one"]).code, 0);
    node.run(&["acl", "grant", "/d", "alice", "sing"]).fails(1, &["error:", "sing", "hint:"]);
    node.run(&["acl", "set", "/d", "--bytes-max", "1000000", "--audit-reads", "all"]).ok();
    assert!(node.run(&["acl", "show", "/d"]).ok().contains("audited reads all"));
    // The log has it all, in order, and is whole.
    // Records of writes are copied from their commits within a second.
    let told = || node.run(&["audit", "/d"]).ok();
    let log = wait_for(told, |log| log.contains("protect") && log.contains("gives acl-write"));
    assert!(log.contains("alice") && log.contains(" read "), "reads are recorded too: {log}");
    let records = wait_for(
        || node.run(&["audit", "--json"]).json(),
        |records| records.iter().any(|r| r["operation"] == "remove" && r["outcome"] == "denied"),
    );
    let by = |who: &str| records.iter().any(|r| r["caller"].as_str().is_some_and(|c| c.starts_with(who)));
    assert!(by("alice@") && by("admin@"), "{records:?}");
    assert!(records.windows(2).all(|two| two[0]["position"].as_u64() < two[1]["position"].as_u64()));
    node.run_with(&alice, &["audit"]).fails(3, &["error:", "hint:"]);
    assert!(node.run(&["audit", "--verify"]).ok().starts_with("the log is whole: "));
    assert_eq!(node.run(&["audit", "--verify", "--json"]).json()[0]["whole"], true);
}

#[test]
fn a_changed_audit_log_is_found_and_the_place_named() {
    let mut node = Node::start();
    node.run(&["mkdir", "/d"]).ok();
    node.stop();
    let mut logs: Vec<_> = walk(&node.data().join("auth/audit"));
    logs.sort();
    let log = logs.first().expect("there is one");
    let mut bytes = std::fs::read(log).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(log, bytes).expect("written");
    node.allow("audit");
    node.up();
    let said = node.run(&["audit", "--verify"]);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("was changed") && said.out.contains("at byte"), "{}", said.out);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.expect("read").path()).filter(|path| path.is_file()).collect()
}

/// Asks again until the answer is as it must become, for ten seconds.
fn wait_for<T: std::fmt::Debug>(ask: impl Fn() -> T, good: impl Fn(&T) -> bool) -> T {
    for _ in 0..200 {
        let answer = ask();
        if good(&answer) {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it never came to be: {:?}", ask())
}
