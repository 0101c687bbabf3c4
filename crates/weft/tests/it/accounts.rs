//! What is said of callers, credentials and entries that are not there, and of what stays behind.

use serde_json::Value;

use crate::node::{Node, Said};

/// A node with `/d/f` and `/d/sub/f`, and alice.
fn house() -> (Node, String) {
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.run(&["mkdir", "-p", "/d/sub"]).ok();
    for path in ["weft:/d/f", "weft:/d/sub/f"] {
        node.feed(&["cp", "-", path], b"bytes").ok();
    }
    (node, alice)
}

/// The one JSON object on stderr.
#[track_caller]
fn error(said: &Said) -> Value {
    serde_json::from_str(said.err.trim()).unwrap_or_else(|e| panic!("{e}: {}", said.err))
}

#[test]
fn revoking_what_is_not_there_fails_and_ends_nothing() {
    let (node, alice) = house();
    for caller in ["alicee", "bob", "group:alice/team", "node:elsewhere"] {
        let said = node.run(&["revoke", "--caller", caller]);
        said.fails(1, &["error: cannot revoke", caller, "hint: ", "--unknown"]);
    }
    // One digit of a credential of hers, and one of nobody's.
    let id = node.run_with(&alice, &["whoami", "--json"]).json()[0]["credential"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let (start, last) = id.split_at(id.len() - 1);
    let slip = format!("{start}{}", if last == "0" { "1" } else { "0" });
    for wrong in [slip.as_str(), "00000000000000000000000000000007"] {
        let said = node.run(&["revoke", "--credential", wrong]);
        said.fails(1, &["error: cannot revoke", wrong, "made no such credential", "--unknown"]);
        assert_eq!(error(&node.run(&["revoke", "--credential", wrong, "--json"]))["error"], "not-found");
        // Who may not revoke it learns nothing of it.
        node.run_with(&alice, &["revoke", "--credential", wrong]).fails(3, &["error:"]);
        node.run(&["revoke", "--credential", wrong, "--unknown"]).ok();
    }
    node.run_with(&alice, &["whoami"]).ok();
    node.run_with(&alice, &["revoke", "--caller", "alicee"]).fails(3, &["error:"]);
    node.run(&["revoke", "--caller", "bob", "--unknown"]).ok();
    node.run(&["revoke", "--container", "/d", "--unknown"]).fails(2, &["--unknown"]);
    node.run(&["revoke", "--unknown"]).fails(2, &["--caller"]);
    // What is there ends, by its id and once more; so does what was narrowed from it.
    let narrow = node.run_with(&alice, &["whoami"]).ok();
    assert_eq!(narrow, "alice\n");
    for _ in 0..2 {
        node.run(&["revoke", "--credential", &id]).ok();
        node.run_with(&alice, &["whoami"]).fails(3, &["error:", "revoked"]);
    }
    let log = node.run(&["audit"]).ok();
    assert!(log.contains("credential") && !log.contains("Credential("), "{log}");
}

#[test]
fn an_entry_is_made_for_whom_there_is_and_taken_from_whom_it_names() {
    let (node, alice) = house();
    node.run_with(&alice, &["group", "make", "team"]).ok();
    let before = node.run(&["acl", "show", "/d"]).ok();
    for (who, what) in [("alicee", "user"), ("group:alice/teem", "group"), ("group:bob/team", "group")] {
        for more in [&[][..], &["--deny"]] {
            let said = node.run(&[&["acl", "grant", "/d", who, "read"], more].concat());
            said.fails(
                1,
                &["error: cannot make an entry for", who, &format!("no such {what}"), "hint: weft"],
            );
        }
        node.run(&["why", "/d", "--for", who]).fails(1, &["error: cannot explain it for", who]);
        // Nobody is there to lose anything, and alice has nothing yet.
        for who in [who, "alice"] {
            let said = node.run(&["acl", "revoke", "/d", who, "all"]);
            said.fails(1, &["error: cannot change the ACL of /d", who, "hint: weft acl show /d"]);
        }
    }
    assert_eq!(node.run(&["acl", "show", "/d"]).ok(), before, "nor has /d become a container");
    // Those of another domain are not ours to know.
    let foreign = format!("alice@{}", "a".repeat(52));
    node.run(&["acl", "grant", "/d", &foreign, "read"]).ok();
    node.run(&["acl", "revoke", "/d", &foreign, "read"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "read"]).ok();
    node.run(&["acl", "revoke", "/d", "alice", "insert"]).fails(1, &["error:", "alice", "insert"]);
    node.run(&["acl", "revoke", "/d", "alice", "read", "--deny"]).fails(1, &["error:", "alice"]);
    node.run(&["acl", "revoke", "/d", "alice", "read"]).ok();
    node.run(&["acl", "revoke", "/d", "alice", "read"]).fails(1, &["error:", "alice"]);
    // An entry outlives its group, and can be taken away still.
    node.run(&["acl", "grant", "/d", "group:alice/team", "read"]).ok();
    node.run_with(&alice, &["group", "rm", "group:alice/team"]).ok();
    node.run(&["acl", "grant", "/d", "group:alice/team", "write"]).fails(1, &["no such group"]);
    node.run(&["acl", "revoke", "/d", "group:alice/team", "all"]).ok();
}

#[test]
fn an_entry_is_made_for_a_time_that_is_to_come() {
    let (node, _) = house();
    let grant = |more: &[&str]| node.run(&[&["acl", "grant", "/d", "alice", "read"], more].concat());
    for (more, word) in [
        (&["--until", "1"][..], "ended already"),
        (&["--until", "1970"], "ended already"),
        (&["--from", "4000000000", "--until", "3999999999"], "before it begins"),
        (&["--deny", "--until", "1"], "ended already"),
    ] {
        grant(more).fails(1, &["error: cannot make an entry for alice", word, "hint: ", "since 1970"]);
    }
    assert!(!node.run(&["acl", "show", "/d"]).ok().contains("alice"));
    grant(&["--from", "1", "--until", "4000000000"]).ok();
    // What has ended meanwhile, or never began, can still be taken away by its conditions.
    grant(&[]).ok();
    node.run(&["acl", "revoke", "/d", "alice", "read", "--until", "3000000000"]).fails(1, &["error:"]);
    node.run(&["acl", "revoke", "/d", "alice", "read", "--from", "1", "--until", "4000000000"]).ok();
    let shown = node.run(&["acl", "show", "/d"]).ok();
    assert_eq!(shown.matches("alice").count(), 1, "{shown}");
}

#[test]
fn a_way_that_stays_above_when_a_grant_is_taken_back_is_named() {
    let (node, alice) = house();
    let given = node.run(&["acl", "grant", "/d/sub", "alice", "read", "--json"]).json();
    assert_eq!(given[0]["made"], true);
    assert_eq!(given[0]["traverse_added"].as_array().map(Vec::len), Some(1), "{given:?}");
    node.run(&["acl", "grant", "/d", "alice", "read"]).ok();
    // Something is left there: the way is in use.
    node.run(&["acl", "grant", "/d/sub", "alice", "insert"]).ok();
    let said = node.run(&["acl", "revoke", "/d/sub", "alice", "read"]);
    assert!(said.code == 0 && said.err.is_empty(), "{}", said.err);
    node.run(&["acl", "revoke", "/d", "alice", "all"]).ok();
    let taken = node.run(&["acl", "revoke", "/d/sub", "alice", "all", "--json"]).json();
    assert_eq!(taken[0]["path"], "/d/sub");
    assert_eq!(taken[0]["traverse_left"], serde_json::json!(["/"]), "{taken:?}");
    node.run(&["acl", "grant", "/d/sub", "alice", "read"]).ok();
    let said = node.run(&["acl", "revoke", "/d/sub", "alice", "all"]);
    assert!(said.err.contains("`traverse`") && said.err.contains("an entry at /, /d;"), "{}", said.err);
    // It does let her pass, until it is taken away.
    for path in ["/", "/d"] {
        node.run(&["why", path, "traverse", "--for", "alice"]).ok();
        node.run(&["acl", "revoke", path, "alice", "traverse"]).ok();
        node.run(&["why", path, "traverse", "--for", "alice"]).fails(3, &[]);
    }
    node.run_with(&alice, &["ls", "/d/sub"]).fails(1, &["error: cannot list /d/sub"]);
}
