//! Every command once, as text and as JSON, with its exit code and its errors.

use std::collections::BTreeSet;

use weft_conformance::run::have;

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
    assert_eq!(node.run(&["ls", "-R", "/d"]).ok(), "/d:\none\nsub/\ntwo\n\n/d/sub:\nthree\n");
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
    let said = node.run(&["cp", "/no\u{1b}[31m\nsuch", "weft:/d"]).fails(1, &[r"/no\x1b[31m\x0asuch"]);
    assert!(!said.err.contains('\u{1b}'), "what a terminal obeys is not printed as it is");
}

#[test]
fn cat_writes_files_and_ranges_of_them() {
    let node = furnished();
    assert_eq!(node.run(&["cat", "/d/one", "/d/two"]).ok(), "onetwo!\n");
    for (range, expected) in [("1-2", "wo"), ("3-", "!\n"), ("-2", "!\n"), ("0-999", "two!\n"), ("4-4", "\n")]
    {
        assert_eq!(node.run(&["cat", "/d/two", "--range", range]).ok(), expected, "{range}");
    }
    node.run(&["cat", "/d/two", "--range", "2-1"]).fails(2, &["error:", "range"]);
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
    node.run(&["mv", "-n", "/d/one", "/d/two"]).fails(1, &["error: cannot rename to /d/two"]);
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
    node.run(&["find", "/d", "--size", "3X"]).fails(2, &["error:", "size"]);
    node.run(&["acl", "set", "/d", "--bytes-max", "3X"]).fails(2, &["error:", "limit"]);
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
    let log = node.run(&["audit", "/d"]).ok();
    assert!(log.contains("protect") && log.contains("gives acl-write"), "{log}");
    assert!(log.contains("alice") && log.contains(" read "), "reads are recorded too: {log}");
    let records = node.run(&["audit", "--json"]).json();
    let refused = |r: &serde_json::Value| r["operation"] == "remove" && r["outcome"] == "denied";
    assert!(records.iter().any(refused), "{records:?}");
    let by = |who: &str| records.iter().any(|r| r["caller"].as_str().is_some_and(|c| c.starts_with(who)));
    assert!(by("alice@") && by("admin@"), "{records:?}");
    assert!(records.windows(2).all(|two| two[0]["position"].as_u64() < two[1]["position"].as_u64()));
    node.run_with(&alice, &["audit"]).fails(3, &["error:", "hint:"]);
    assert!(node.run(&["audit", "--verify"]).ok().starts_with("the log is whole: "));
    assert_eq!(node.run(&["audit", "--verify", "--json"]).json()[0]["whole"], true);
}

#[test]
fn an_owner_says_which_reads_of_hers_are_recorded_and_sees_them_without_being_administrator() {
    let node = furnished();
    let (alice, bob) = (node.add_user("alice", "her pass word"), node.add_user("bob", "his pass word"));
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.run(&["acl", "grant", "/d", "bob", "read"]).ok();
    let reads = || {
        let records = node.run_with(&alice, &["audit", "/d", "--json"]).json();
        records.iter().filter(|record| record["operation"] == "read").count()
    };
    let (mut before, http) = (reads(), node.http(Some(&bob)));
    for (which, more) in [("off", 0), ("all", 1), ("off", 0)] {
        node.run_with(&alice, &["audit", "/d", "--reads", which]).ok();
        assert_eq!(http.bytes("/d/one"), b"one");
        assert_eq!(reads(), before + more, "{which}");
        before += more;
    }
    node.run_with(&bob, &["audit", "/d", "--reads", "off"]).fails(3, &["error:"]);
    node.run_with(&bob, &["audit", "/d"]).fails(3, &["error:"]);
}

#[test]
fn who_is_told_a_digest_that_another_had_computed_has_read_the_file() {
    let node = furnished();
    let (alice, bob) = (node.add_user("alice", "her pass word"), node.add_user("bob", "his pass word"));
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.run(&["acl", "grant", "/d", "bob", "read"]).ok();
    for token in [&alice, &bob] {
        let head = node.http(Some(token)).ask("HEAD", "/d/one", &["Want-Digest: md5"], b"");
        assert!(head.head.contains("Digest: md5="), "{}", head.head);
    }
    let records = node.run_with(&alice, &["audit", "/d", "--json"]).json();
    for who in ["alice@", "bob@"] {
        let reads = |r: &&serde_json::Value| {
            r["operation"] == "read" && r["caller"].as_str().is_some_and(|caller| caller.starts_with(who))
        };
        assert_eq!(records.iter().filter(reads).count(), 1, "{who}: {records:?}");
    }
}

#[test]
fn an_owner_sees_all_that_others_did_and_were_refused_in_her_container() {
    let node = furnished();
    let (alice, bob) = (node.add_user("alice", "her pass word"), node.add_user("bob", "his pass word"));
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.run_with(&alice, &["audit", "/d", "--reads", "off"]).ok();
    node.run_with(&bob, &["cat", "/d/one"]).fails(1, &["error:"]);
    node.run_with(&bob, &["cat", "/d/none"]).fails(1, &["error:"]);
    node.run_with(&bob, &["rm", "/d/one"]).fails(1, &["error:"]);
    node.run(&["acl", "grant", "/d", "bob", "traverse,attr-read,insert,=write"]).ok();
    let mut copy = node.command();
    node.feed_command(copy.env("BEARER_TOKEN", &bob).args(["cp", "-", "weft:/d/his"]), b"his").ok();
    node.run_with(&bob, &["rm", "/d/one"]).fails(3, &["error:"]);
    node.run_with(&bob, &["cat", "/d/one"]).fails(3, &["error:"]);
    let records = node.run_with(&alice, &["audit", "/d", "--json"]).json();
    let containers: BTreeSet<String> = records.iter().map(|record| record["container"].to_string()).collect();
    assert_eq!(containers.len(), 1, "{records:?}");
    let of = |who: &str, outcome: &str| -> BTreeSet<&str> {
        let his = records.iter().filter(|r| r["caller"].as_str().is_some_and(|c| c.starts_with(who)));
        his.filter(|r| r["outcome"] == outcome).filter_map(|r| r["operation"].as_str()).collect()
    };
    assert!(of("alice@", "done").contains("protect"), "{records:?}");
    assert!(of("bob@", "done").contains("publish"), "{records:?}");
    assert!(of("bob@", "denied").contains("remove"), "{records:?}");
    let refused = of("bob@", "denied");
    assert!(refused.contains("open") || refused.contains("walk"), "{records:?}");
    node.run_with(&bob, &["audit", "/d"]).fails(3, &["error:"]);
    assert!(node.run_with(&alice, &["audit", "/d"]).ok().contains("needs `audit-read`"));
}

#[test]
fn what_moves_between_containers_is_in_the_audit_of_both_under_its_names() {
    let node = furnished();
    let (alice, bob) = (node.add_user("alice", "her pass word"), node.add_user("bob", "his pass word"));
    node.run(&["mkdir", "/e"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.run(&["acl", "grant", "/e", "bob", "all"]).ok();
    node.run(&["mv", "/d/one", "/e/uno"]).ok();
    let replaced = node.run(&["stat", "/e/uno", "--json"]).json()[0]["id"].clone();
    node.run(&["mv", "/d/two", "/e/uno"]).ok();
    node.run_with(&alice, &["mv", "/d/sub/three", "/e/tre"]).fails(3, &["error:"]);
    node.run(&["rm", "/d/sub/three"]).ok();
    node.run(&["mkdir", "/d/a\nb\u{1b}"]).ok();
    let moved = |records: &[serde_json::Value], outcome: &str| -> Vec<(String, String)> {
        let of = |r: &serde_json::Value, place: &str| r[place]["name"].as_str().unwrap_or("-").to_owned();
        let renames = records.iter().filter(|r| r["operation"] == "rename" && r["outcome"] == outcome);
        renames.map(|r| (of(r, "place"), of(r, "to"))).collect()
    };
    for (who, path, own) in [(&alice, "/d", "three"), (&bob, "/e", "tre")] {
        let records = node.run_with(who, &["audit", path, "--json"]).json();
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(moved(&records, "done"), [pair("one", "uno"), pair("two", "uno")], "{path}: {records:?}");
        // What was refused: its own side alone.
        assert_eq!(moved(&records, "denied"), [pair(own, "-")], "{path}: {records:?}");
        assert_eq!(records.iter().filter(|r| r["other"] == replaced).count(), 1, "{path}: {records:?}");
        let both = records.iter().find(|r| r["operation"] == "rename").expect("one moved");
        assert_eq!(both["containers"].as_array().map(Vec::len), Some(2), "{both}");
    }
    let records = node.run_with(&alice, &["audit", "/d", "--json"]).json();
    let named = |operation: &str, name: &str| {
        records.iter().any(|r| r["operation"] == operation && r["place"]["name"] == name)
    };
    assert!(named("remove", "three") && named("make", r"a\x0ab\x1b"), "{records:?}");
    let text = node.run_with(&alice, &["audit", "/d"]).ok();
    assert!(text.contains("/one -> ") && text.contains("/uno ") && text.contains(r"/a\x0ab\x1b "), "{text}");
}

#[test]
fn a_policy_edit_is_in_the_audit_of_every_container_that_it_changed() {
    let node = furnished();
    let alice = node.add_user("alice", "her pass word");
    node.add_user("bob", "his pass word");
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.run(&["acl", "grant", "/d/sub", "bob", "read"]).ok();
    let records = node.run_with(&alice, &["audit", "/d", "--json"]).json();
    let edits = records.iter().filter(|r| r["operation"] == "protect" && r["place"]["name"] == "sub");
    assert_eq!(edits.count(), 1, "what was split off was hers: {records:?}");
}

#[test]
fn a_credential_of_some_paths_reads_the_audit_of_one_of_them_at_a_time() {
    let node = furnished();
    node.add_user("alice", "her pass word");
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    let narrow = node.login("alice", "her pass word", &["--path", "/d/one"]);
    node.run(&["cat", "/d/one"]).ok();
    node.run(&["cat", "/d/two"]).ok();
    // It was elsewhere for a while, which is not within the path.
    node.run(&["mv", "/d/one", "/d/zwei"]).ok();
    let bob = node.add_user("bob", "his pass word");
    node.run(&["acl", "grant", "/d", "bob", "traverse,attr-read"]).ok();
    node.run_with(&bob, &["cat", "/d/zwei"]).fails(3, &["error:"]);
    node.run(&["mv", "/d/zwei", "/d/one"]).ok();
    node.run_with(&narrow, &["audit", "/d/one"]).fails(3, &["error:", "--only"]);
    let records = node.run_with(&narrow, &["audit", "/d/one", "--only", "--json"]).json();
    let objects: BTreeSet<String> = records.iter().map(|record| record["object"].to_string()).collect();
    assert_eq!(objects.len(), 1, "{records:?}");
    let renames = records.iter().filter(|record| record["operation"] == "rename");
    assert_eq!(renames.count(), 2, "{records:?}");
    assert!(records.iter().any(|record| record["outcome"] == "denied"), "{records:?}");
    assert!(!records.iter().any(|record| record.to_string().contains("zwei")), "{records:?}");
    let all = node.run(&["audit", "/d", "--json"]).json();
    assert!(all.iter().any(|record| record.to_string().contains("zwei")), "{all:?}");
    let refused = all.iter().filter(|record| record["operation"] == "audit");
    assert_eq!(refused.count(), 1, "what was refused is in the owner's: {all:?}");
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

#[test]
fn the_audit_shows_a_write_as_soon_as_the_writer_was_answered() {
    const TEST: &str = "commands::the_audit_shows_a_write_as_soon_as_the_writer_was_answered";
    if !have(TEST, &["fusermount3"]) {
        return;
    }
    let mut node = furnished();
    let shows = |node: &Node, operation: &str, by: usize| {
        let records = node.run(&["audit", "--json"]).json();
        let found = records.iter().filter(|record| record["operation"] == operation).count();
        assert_eq!(found, by, "{records:?}");
    };
    shows(&node, "link", 0);
    for done in 1..=3 {
        node.run(&["ln", "/d/one", &format!("/d/link{done}")]).ok();
        shows(&node, "link", done);
    }
    let http = node.http(Some(&node.token()));
    for name in ["/d/link1", "/d/link2"] {
        assert_eq!(http.delete(name).status, 204);
    }
    shows(&node, "remove", 2);
    assert!(node.run(&["audit", "/d"]).ok().contains("remove"));
    // A mount is answered before the write is on disk.
    let mnt = node.mount("mnt");
    for done in 3..=5 {
        node.sh(&format!("rm mnt/d/{}", ["link3", "one", "two"][done - 3]));
        shows(&node, "remove", done);
    }
    node.unmount(&mnt);
}

#[test]
fn a_listing_names_owners_and_asks_for_them_a_page_at_a_time() {
    let node = furnished();
    for name in ["alice", "bob", "carol"] {
        let token = node.add_user(name, name);
        node.run(&["acl", "grant", "/d", name, "all"]).ok();
        node.run_with(&token, &["touch", &format!("/d/of-{name}")]).ok();
    }
    let owner_of = |path: &str, listed: &[serde_json::Value]| {
        let entry = listed.iter().find(|entry| entry["path"] == path).expect("listed");
        entry["owner"].as_str().expect("a name").to_owned()
    };
    let alice = node.login("alice", "alice", &[]);
    for args in [&["ls", "/d", "--json"][..], &["ls", "-R", "/d", "--json"], &["find", "/d", "--json"]] {
        // She who may read none of them knows the names of their owners all the same.
        let listed = node.run_with(&alice, args).json();
        for name in ["alice", "bob", "carol"] {
            assert_eq!(owner_of(&format!("/d/of-{name}"), &listed), name, "{args:?}");
        }
        assert_eq!(owner_of("/d/one", &listed), "admin", "{args:?}");
    }
    let long = node.run_with(&alice, &["ls", "-l", "/d"]).ok();
    assert!(long.lines().any(|line| line.contains(" bob ") && line.ends_with(" of-bob")), "{long}");
}

#[test]
fn what_is_refused_is_named_by_the_path_that_was_asked_for_and_never_by_an_id() {
    let node = furnished();
    let alice = node.add_user("alice", "wonder");
    node.run(&["mkdir", "-p", "/d/closed/in"]).ok();
    node.feed(&["cp", "-", "weft:/d/closed/file"], b"bytes").ok();
    node.run(&["acl", "grant", "/d", "alice", "list,traverse,read,attr-read,remove,insert"]).ok();
    node.run(&["acl", "grant", "/d/closed", "alice", "traverse,attr-read"]).ok();
    node.run(&["acl", "grant", "/d/closed", "alice", "list,=read,remove,insert", "--deny"]).ok();
    let id = node.run(&["stat", "/d/closed", "--json"]).json()[0]["id"].as_str().expect("an id").to_owned();
    let local = node.write("local", "bytes");
    let (local, out) = (local.display().to_string(), node.path("out").display().to_string());
    for (args, named) in [
        (&["ls", "/d/closed"][..], "/d/closed"),
        (&["ls", "-R", "/d"], "/d/closed"),
        (&["ls", "-l", "/d/closed/"], "/d/closed"),
        (&["find", "/d"], "/d/closed"),
        (&["find", "/d/closed"], "/d/closed"),
        (&["du", "/d"], "/d/closed"),
        (&["rm", "-r", "/d"], "/d/closed"),
        (&["rmdir", "/d/closed/in"], "/d/closed/in"),
        (&["cat", "/d/closed/file"], "/d/closed/file"),
        (&["touch", "/d/closed/new"], "/d/closed/new"),
        (&["mkdir", "/d/closed/new"], "/d/closed/new"),
        (&["mv", "/d/one", "/d/closed/one"], "/d/one"),
        (&["cp", "-r", "weft:/d/closed", &out], "/d/closed"),
        (&["cp", "-r", "weft:/d", &out], "/d/closed"),
        (&["cp", "weft:/d/closed/file", &out], "/d/closed/file"),
        (&["cp", &local, "weft:/d/closed/new"], &local),
        (&["cp", &local, "weft:/d/closed"], &local),
        (&["cp", "-r", "weft:/d/closed", "weft:/d/copy"], "/d/closed"),
        (&["cp", "weft:/d/one", "weft:/d/closed/one"], "/d/one"),
    ] {
        let said = node.run_with(&alice, args);
        assert!([1, 3].contains(&said.code), "{args:?}: {} {}{}", said.code, said.out, said.err);
        let error = said.err.lines().find(|line| line.starts_with("error:")).expect("it says why").to_owned();
        assert!(error.contains(&format!(" {named}: ")), "{args:?}: {error}");
        assert!(!said.err.contains(&id), "{args:?} shows an id: {}", said.err);
    }
}

#[test]
fn each_login_has_a_credential_of_its_own_that_whoami_shows_and_the_log_has() {
    let node = Node::start();
    node.feed(&["user", "add", "alice", "--password-stdin"], b"wonder").ok();
    let here = || node.run(&["login", "--print"]).ok().trim().to_owned();
    let hers = || node.login("alice", "wonder", &[]);
    for (name, logins) in [("alice", [hers(), hers(), hers()]), ("admin", [here(), here(), here()])] {
        let ids: Vec<String> = logins
            .iter()
            .map(|token| {
                let me = node.run_with(token, &["whoami", "--json"]).json().remove(0);
                assert!(me["caller"].as_str().expect("a name").starts_with(name), "{me}");
                assert!(me["expires"].as_i64() > Some(1_700_000_000), "{me}");
                me["credential"].as_str().expect("an id").to_owned()
            })
            .collect();
        let log = node.run(&["audit", "--json"]).json();
        let login = |id: &String| {
            log.iter().any(|record| record["operation"] == "login" && record["credential"] == id.as_str())
        };
        assert!(ids.iter().all(login), "{ids:?} are not all in {log:?}");
        node.run_with(&logins[0], &["revoke", "--credential", &ids[0]]).ok();
        node.run_with(&logins[0], &["whoami"]).fails(3, &["error:", "hint: weft login"]);
        for token in &logins[1..] {
            node.run_with(token, &["whoami"]).ok();
        }
    }
    // Over the socket, the connection's own is shown.
    let me = node.run(&["whoami", "--json"]).json().remove(0);
    assert!(me["credential"].is_string() && me["expires"].is_i64(), "{me}");
    // To HTTP a password is a password, whatever became of other logins.
    let http = crate::http::Http::basic(node.address(), "alice", "wonder");
    assert_ne!(http.get("/").status, 401);
}

#[test]
fn ones_own_password_is_changed_by_who_knows_it() {
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    let change = |input: &[u8]| {
        let mut command = node.command();
        command.env("BEARER_TOKEN", &alice).args(["user", "passwd", "--password-stdin"]);
        node.feed_command(&mut command, input)
    };
    change(b"land\n").fails(3, &["error:", "present one", "hint:"]);
    change(b"guess\nland\n").fails(3, &["error:", "present password is wrong"]);
    node.login("alice", "wonder", &[]);
    change(b"wonder\nland\n").ok();
    node.login("alice", "land", &[]);
    // The administrator needs none for others, and none at first for herself.
    node.feed(&["user", "passwd", "alice", "--password-stdin"], b"reset\n").ok();
    node.login("alice", "reset", &[]);
    node.feed(&["user", "passwd", "--password-stdin"], b"mine\n").ok();
    node.login("admin", "mine", &[]);
    node.feed(&["user", "passwd", "--password-stdin"], b"other\n").fails(3, &["error:", "present one"]);
    node.feed(&["user", "passwd", "admin", "--password-stdin"], b"mine\nother\n").ok();
    node.login("admin", "other", &[]);
}

#[test]
fn what_one_may_not_see_is_said_and_never_left_out_in_silence() {
    let node = Node::start();
    let alice = node.add_user("alice", "her pass word");
    node.run(&["mkdir", "-p", "/d/open", "/d/closed"]).ok();
    for path in ["/d/open/f", "/d/closed/f"] {
        node.feed(&["cp", "-", &format!("weft:{path}")], b"bytes").ok();
    }
    node.run(&["acl", "grant", "/d", "alice", "read"]).ok();
    node.run(&["acl", "grant", "/d/closed", "alice", "all", "--deny"]).ok();
    let as_alice = |args: &[&str]| node.run_with(&alice, args);
    let back = node.path("back");
    let words = ["/d/closed", "passed over", "hint: weft why /d/closed"];
    as_alice(&["cp", "-r", "weft:/d", back.to_str().expect("ours")]).fails(3, &words);
    assert!(back.join("open/f").is_file() && !back.join("closed").exists(), "the rest was copied");
    let found = as_alice(&["find", "/d"]).fails(3, &words);
    assert_eq!(found.out, "/d\n/d/open\n/d/open/f\n");
    for args in [&["du", "/d"][..], &["ls", "-R", "/d"]] {
        assert!(!as_alice(args).fails(3, &words).out.is_empty());
    }
    as_alice(&["ls", "/d"]).ok();
}
