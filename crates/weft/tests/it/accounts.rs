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
    for path in ["/d", "/"] {
        node.run(&["why", path, "traverse", "--for", "alice"]).ok();
        node.run(&["acl", "revoke", path, "alice", "traverse"]).ok();
        node.run(&["why", path, "traverse", "--for", "alice"]).fails(3, &[]);
    }
    node.run_with(&alice, &["ls", "/d/sub"]).fails(1, &["error: cannot list /d/sub"]);
}

#[test]
fn a_login_says_when_its_credential_ends_sooner_than_was_asked() {
    let (node, _) = house();
    let login =
        |more: &[&str]| node.feed(&[&["login", "alice", "--password-stdin"], more].concat(), b"wonder\n");
    let said = login(&["--life", "9999999999"]);
    assert!(
        said.code == 0 && said.err.contains("it ends at 2") && said.err.contains("at most"),
        "{}",
        said.err
    );
    let said = login(&["--life", "60"]);
    assert!(said.code == 0 && !said.err.contains("ends at"), "{}", said.err);
    let until = node.run(&["whoami"]).ok();
    assert!(until.starts_with("alice\n  until 2") && until.ends_with(" UTC\n"), "{until}");
    let said = login(&["--life", "9999999999", "--json"]).json();
    assert_eq!((&said[0]["shortened"], &said[0]["token"]), (&Value::from(true), &Value::Null));
    let kept = said[0]["path"].as_str().expect("a path");
    assert!(std::path::Path::new(kept).is_file(), "{said:?}");
    let me = node.run(&["whoami", "--json"]).json();
    for field in ["caller", "credential", "expires"] {
        assert_eq!(said[0][field], me[0][field], "{field}");
    }
    for forgotten in [true, false] {
        assert_eq!(node.run(&["logout", "--json"]).json()[0]["forgotten"], forgotten);
    }
    let said = login(&["--print", "--json"]).json();
    assert_eq!((&said[0]["shortened"], &said[0]["path"]), (&Value::from(false), &Value::Null));
    let token = said[0]["token"].as_str().expect("a token");
    assert_eq!(node.run_with(token, &["whoami"]).ok(), "alice\n");
}

#[test]
fn whoami_shows_what_a_credential_was_narrowed_to() {
    let (node, alice) = house();
    let me = node.run_with(&alice, &["whoami", "--json"]).json();
    assert_eq!((&me[0]["rights"], &me[0]["paths"]), (&Value::from("all"), &serde_json::json!([])));
    let narrow =
        ["--rights", "read", "--path", "/d", "--path", "/e", "--host", "127.0.0.0/8", "--life", "60"];
    let token = node.login("alice", "wonder", &narrow);
    // On the node's own socket there is no address, but it may be asked who one is.
    let text = node.run_with(&token, &["whoami"]).ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..4],
        ["alice", "  only these rights: read", "  only below /d, /e", "  only from 127.0.0.0/8"]
    );
    assert!(lines.len() == 5 && lines[4].starts_with("  until 2"), "{text}");
    let me = node.run_with(&token, &["whoami", "--json"]).json();
    assert_eq!(me[0]["rights"], "read");
    assert_eq!(me[0]["paths"], serde_json::json!(["/d", "/e"]));
    assert_eq!(me[0]["hosts"], serde_json::json!(["127.0.0.0/8"]));
    let span = me[0]["expires"].as_i64().zip(me[0]["issued"].as_i64()).map(|(end, start)| end - start);
    assert_eq!(span, Some(60));
}

#[test]
fn who_cannot_log_in_is_not_told_to_log_in() {
    let (node, _) = house();
    let wrong = node.feed(&["login", "alice", "--password-stdin"], b"wrong\n");
    let wrong = wrong.fails(3, &["error: cannot ", "hint: ", "weft user passwd alice"]);
    assert!(!wrong.err.contains("weft login"), "{}", wrong.err);
    // Nobody's uid.
    node.run(&["user", "add", "bob", "--no-password"]).ok();
    let admin = node.token();
    node.run_with(&admin, &["user", "uid", "admin"]).ok();
    let nobody =
        node.run(&["login"]).fails(3, &["error: cannot ", "no user has this uid", "`weft login USER`"]);
    assert!(!nobody.err.contains("hint: weft login\n"), "{}", nobody.err);
}

#[test]
fn a_plain_name_is_that_of_a_group_of_ones_own_and_what_is_wrong_with_one_is_said() {
    let (node, alice) = house();
    let made = node.run_with(&alice, &["group", "make", "team", "--json"]).json();
    assert_eq!(made[0]["members"], serde_json::json!([]));
    assert!(made[0]["name"].as_str().is_some_and(|name| name.starts_with("group:alice/team@")), "{made:?}");
    node.run_with(&alice, &["group", "add", "team", "alice"]).ok();
    assert_eq!(
        node.run_with(&alice, &["group", "ls"]).ok().trim_end(),
        "group:alice/team               alice"
    );
    // It is not somebody else's, whoever may change that.
    node.run(&["group", "add", "team", "alice"]).fails(1, &["error:", "no such group"]);
    node.run(&["group", "remove", "group:alice/team", "alice"]).ok();
    for wrong in ["alice/team", "group:team", "node:team", "a b", "alice@x"] {
        let said = node.run_with(&alice, &["group", "add", wrong, "alice"]);
        said.fails(1, &["error: ", wrong, "hint: a group is `group:MAKER/NAME`"]);
    }
    node.run_with(&alice, &["group", "make", "a b"]).fails(1, &["error: ", "a b", "hint: "]);
    node.run_with(&alice, &["group", "rm", "team"]).ok();
    for args in [&["group", "--help"][..], &["group", "add", "--help"]] {
        let help = node.run(args).ok();
        assert!(help.contains("group:"), "{help}");
    }
}
