//! Who may do what, through the real doors: two users, narrowed credentials, what is
//! withdrawn, and what is read while it is.

mod matrix;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::http::Http;
use crate::node::{Node, noise};

/// A node with `/d/f` for alice to write and bob to read, and `/own/f` for neither.
struct House {
    node: Node,
    alice: String,
    bob: String,
}

fn house() -> House {
    let node = Node::start();
    let (alice, bob) = (node.add_user("alice", "wonder"), node.add_user("bob", "builder"));
    node.run(&["mkdir", "/d", "/own"]).ok();
    for path in ["weft:/d/f", "weft:/own/f"] {
        node.feed(&["cp", "-", path], b"bytes").ok();
    }
    node.run(&["acl", "grant", "/d", "alice", "read,write"]).ok();
    node.run(&["acl", "grant", "/d", "bob", "read"]).ok();
    House { node, alice, bob }
}

#[test]
fn two_users_with_different_rights_get_exactly_theirs_at_each_door() {
    let House { node, alice, bob } = house();
    let status = |token: Option<&str>, method: &str, path: &str| {
        let body: &[u8] = if method == "PUT" { b"bytes" } else { b"" };
        node.http(token).ask(method, path, &[], body).status
    };
    for (who, token, expected) in [
        // GET, PUT over, PUT new, GET of what is neither's: a grant below lets both pass
        // through the root, so that they know it is there.
        ("alice", Some(alice.as_str()), [200, 204, 201, 403]),
        ("bob", Some(&bob), [200, 403, 403, 403]),
        ("anyone", None, [401, 401, 401, 401]),
    ] {
        let new = format!("/d/{who}");
        let got = [("GET", "/d/f"), ("PUT", "/d/f"), ("PUT", &new), ("GET", "/own/f")];
        assert_eq!(got.map(|(method, path)| status(token, method, path)), expected, "{who}");
    }
    assert_eq!(node.run_with(&bob, &["cat", "/d/f"]).ok(), "bytes");
    node.run_with(&bob, &["touch", "/d/new"]).fails(3, &["error: cannot touch /d/new"]);
    node.run_with(&alice, &["touch", "/d/new"]).ok();
    node.run_with(&alice, &["acl", "grant", "/d", "bob", "all"]).fails(3, &["error:"]);
    node.run_with(&bob, &["ls", "/own"]).fails(3, &["error: cannot list"]);
    assert_eq!(node.run_with(&bob, &["whoami"]).ok(), "bob\n");
}

#[test]
fn why_answers_for_others_to_whoever_may_change_the_acl() {
    let House { node, alice, bob } = house();
    let said = node.run(&["why", "/d/f", "--for", "bob"]).ok();
    assert!(said.starts_with("allowed: =read for bob (by name"), "{said}");
    let refused = node.run(&["why", "/d/f", "=write", "--for", "bob", "--json"]).fails(3, &[]);
    let refused: serde_json::Value = serde_json::from_str(&refused.out).expect("JSON");
    assert_eq!(refused["allowed"], false);
    assert!(refused["caller"].as_str().is_some_and(|caller| caller.starts_with("bob")), "{refused}");
    let steps = refused["steps"].as_array().expect("steps");
    let last = steps.last().expect("a decision");
    assert_eq!((last["place"].as_str(), last["needed"].as_str()), (Some("/d/f"), Some("=write")));
    assert!(last["because"][0].as_str().expect("words").contains("no entry gives it"), "{refused}");
    // By a group she is in, once she is.
    node.run_with(&bob, &["group", "make", "team"]).ok();
    node.run(&["acl", "grant", "/own", "group:bob/team", "read"]).ok();
    node.run(&["why", "/own/f", "--for", "alice"]).fails(3, &[]);
    node.run_with(&bob, &["group", "add", "group:bob/team", "alice"]).ok();
    node.run(&["why", "/own/f", "--for", "alice"]).ok();
    // Who may not change the ACL is told about itself only.
    node.run_with(&alice, &["why", "/d/f"]).ok();
    node.run_with(&alice, &["why", "/d/f", "--for", "bob"]).fails(3, &["error: cannot explain"]);
}

#[test]
fn a_refusal_names_the_right_that_was_lacking_and_why_explains_that_one() {
    let House { node, bob, .. } = house();
    node.run(&["mkdir", "/d/closed"]).ok();
    node.run(&["acl", "grant", "/d/closed", "bob", "all", "--deny"]).ok();
    let at = node.make_dir("at").display().to_string();
    node.run_with(&bob, &["mount", "/d/closed", &at]).fails(3, &["error: cannot mount /d/closed", " list\n"]);
    // Of `/own` he has the right to pass, of `/d/closed` none at all.
    for path in ["/own", "/d/closed"] {
        for args in [
            &["ls", path][..],
            &["ls", &format!("{path}/")],
            &["ls", "-l", path],
            &["ls", "-R", path],
            &["find", path],
            &["find", &format!("{path}/")],
            &["du", path],
        ] {
            let said = node.run_with(&bob, args).fails(3, &["error: cannot ", " list\n"]);
            assert!(said.err.contains(&format!("hint: weft why {path} list")), "{args:?}: {}", said.err);
            assert!(!said.err.contains(" all\n"), "{args:?}: {}", said.err);
        }
        // Asked as the hint says, and of what is refused unasked.
        for args in [&["why", path, "list"][..], &["why", path]] {
            let said = node.run_with(&bob, args).fails(3, &[]);
            assert!(said.out.starts_with("refused: ") && said.out.contains("list: "), "{}", said.out);
        }
    }
    let said = node.run_with(&bob, &["ls", "-d", "/d/closed"]).fails(3, &["every right"]);
    assert!(!said.err.contains(" all\n"), "{}", said.err);
    // What is passed over on the way is named with the right that it wants.
    node.run_with(&bob, &["find", "/d"]).fails(3, &["/d/closed", "hint: weft why /d/closed list"]);
    assert!(node.run_with(&bob, &["why", "/d"]).ok().starts_with("allowed: list for bob"));
    assert!(node.run_with(&bob, &["why", "/d/f"]).ok().starts_with("allowed: =read for bob"));
}

#[test]
fn an_explanation_is_in_words() {
    let House { node, alice, bob } = house();
    node.run(&["acl", "grant", "/d", "anyone", "read", "--until", "4000000000"]).ok();
    for (token, more) in [(&alice, &[][..]), (&bob, &[]), (&node.token(), &["--for", "bob"])] {
        for args in [&["why", "/d/f"][..], &["why", "/d/f", "all"], &["why", "/d/f", "--json"]] {
            let said = node.run_with(token, &[args, more].concat()).out;
            for debug in ["Caller", "Password", "SocketUid", "Anyone", "Some", "Rights("] {
                assert!(!said.contains(debug), "{args:?}: {said}");
            }
        }
    }
    let said = node.run_with(&alice, &["why", "/d/f"]).ok();
    assert!(said.contains("for alice (password, credential "), "{said}");
    let said = node.run(&["why", "/d/f", "--for", "bob"]).ok();
    assert!(said.contains("(bob: read) gives it"), "{said}");
    let said = node.run(&["why", "/d/f", "--for", "bob", "--json"]).json();
    let last = said[0]["steps"].as_array().and_then(|steps| steps.last()).expect("a decision");
    assert!(last["because"][0].as_str().is_some_and(|words| words.contains("(bob@")), "{last}");
    assert_eq!(node.run_with(&bob, &["why", "/d/f", "--json"]).json()[0]["needed"], "=read");
}

#[test]
fn a_narrowed_credential_does_less_and_never_more() {
    let House { node, .. } = house();
    let login = |more: &[&str]| node.run(&[&["login", "--print"], more].concat()).ok().trim().to_owned();
    let reader = login(&["--rights", "read"]);
    assert_eq!(node.run_with(&reader, &["cat", "/own/f"]).ok(), "bytes");
    node.run_with(&reader, &["touch", "/own/f"]).fails(3, &["error:"]);
    assert_eq!(node.http(Some(&reader)).put("/own/f", b"x").status, 403);
    let below = login(&["--path", "/d"]);
    assert_eq!(node.run_with(&below, &["cat", "/d/f"]).ok(), "bytes");
    node.run_with(&below, &["touch", "/d/new"]).ok();
    assert_ne!(node.run_with(&below, &["cat", "/own/f"]).code, 0);
    assert!([403, 404].contains(&node.http(Some(&below)).get("/own/f").status));
    assert!([403, 409].contains(&node.http(Some(&below)).put("/own/g", b"x").status));
    let elsewhere = login(&["--host", "10.0.0.0/8"]);
    assert_ne!(node.http(Some(&elsewhere)).get("/d/f").status, 200);
    let here = login(&["--host", "127.0.0.0/8"]);
    assert_eq!(node.http(Some(&here)).get("/d/f").status, 200);
    node.run(&["login", "--rights", "sing"]).fails(1, &["error:", "hint:"]);
    node.run(&["login", "--host", "10.0.0.0/99"]).fails(2, &["--host"]);
}

#[test]
fn a_kept_credential_is_used_closed_to_others_and_forgotten() {
    let House { node, .. } = house();
    let said = node.feed(&["login", "alice", "--password-stdin"], b"wonder\n");
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    assert_eq!(node.run(&["whoami"]).ok(), "alice\n");
    let kept = said.err.trim().rsplit(' ').next().expect("a path").to_owned();
    let mode = |mode| fs::set_permissions(&kept, fs::Permissions::from_mode(mode)).expect("changed");
    assert_eq!(fs::metadata(&kept).expect("there").permissions().mode() & 0o777, 0o600);
    for open in [0o644, 0o660, 0o606] {
        mode(open);
        node.run(&["whoami"]).fails(3, &["error:", &kept, "hint: chmod 600"]);
    }
    mode(0o600);
    node.run(&["logout"]).ok();
    assert!(!fs::exists(&kept).expect("looked up"));
    assert_ne!(node.run(&["whoami"]).ok(), "alice\n");
    assert!(node.run(&["logout"]).err.contains("no credential"));
    node.feed(&["login", "alice", "--password-stdin"], b"wrong").fails(3, &["error:"]);
    node.feed(&["login", "nobody-here", "--password-stdin"], b"wrong").fails(3, &["error:"]);
}

#[test]
fn what_is_revoked_ends_at_each_door_and_the_rest_goes_on() {
    let House { node, alice, bob } = house();
    let may = |token: &str| node.http(Some(token)).get("/d/f").status;
    assert_eq!([&alice, &bob].map(|t| may(t)), [200; 2]);
    // One credential, by the id that the log has of it.
    let logins = node.run(&["audit", "--by", "bob", "--json"]).json();
    let id = logins.last().expect("he logged in")["credential"].as_str().expect("an id").to_owned();
    node.run(&["revoke", "--credential", &id]).ok();
    assert_eq!([&alice, &bob].map(|t| may(t)), [200, 401]);
    node.run_with(&bob, &["cat", "/d/f"]).fails(3, &["error:"]);
    let bob = node.login("bob", "builder", &[]);
    assert_eq!(may(&bob), 200, "he may come again");
    // All that one caller has.
    node.run(&["revoke", "--caller", "alice"]).ok();
    assert_eq!([&alice, &bob].map(|t| may(t)), [401, 200]);
    assert_eq!(may(&node.login("alice", "wonder", &[])), 200, "she may come again");
    // All capabilities of a container: those who still have the right get new ones.
    node.run(&["revoke", "--container", "/d"]).ok();
    assert_eq!(may(&bob), 200);
    node.run_with(&bob, &["revoke", "--caller", "alice"]).fails(3, &["error:"]);
    node.run(&["revoke"]).fails(2, &["--caller"]);
    node.run(&["revoke", "--caller", "alice", "--container", "/d"]).fails(2, &["--caller"]);
}

/// Waits until a connection on which nobody reads is reset; returns how long it took.
fn reset_after(socket: &std::net::TcpStream, start: Instant) -> Duration {
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    assert_eq!(poll(&mut fds, Some(&patience)).expect("polled"), 1, "it is not reset");
    start.elapsed()
}

#[test]
fn a_reader_that_has_stopped_is_cut_off_when_its_right_is_withdrawn() {
    /// Far more than sockets buffer.
    const BYTES: usize = 64 << 20;
    let House { node, alice, .. } = house();
    let bytes = noise(4, BYTES);
    assert_eq!(node.http(Some(&node.token())).put("/d/big", &bytes).status, 201);
    // (Revoking the container's capabilities alone does not: she has the right, and gets
    // another.)
    let ways: [(&str, &[&str]); 2] = [
        ("its entry is taken from the ACL", &["acl", "revoke", "/d", "alice", "all"]),
        ("its caller is revoked", &["revoke", "--caller", "alice"]),
    ];
    for (why, act) in ways {
        node.run(&["acl", "grant", "/d", "alice", "read"]).ok();
        let http: Http = node.http(Some(&alice));
        let mut socket = http.begin("GET", "/d/big", &[]);
        let mut first = vec![0; 64 << 10];
        socket.read_exact(&mut first).expect("the first bytes come");
        let start = Instant::now();
        node.run(act).ok();
        let told = start.elapsed();
        let after = reset_after(&socket, start);
        println!("{why}: reset {after:?} after the command began ({told:?} of it were the command's)");
        assert!(after < told + Duration::from_secs(1), "{why}: {after:?}");
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(first.len() + rest.len() < BYTES, "{why}: all of it came");
    }
}
