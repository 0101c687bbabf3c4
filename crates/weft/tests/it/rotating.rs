//! The domain's keys: replaced under load, by a root key that was put away, by no other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::Value;

use crate::node::{Node, Said, give};

#[track_caller]
fn document(said: &Said) -> Value {
    serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {}{}", said.out, said.err))
}

/// The ids of the keys in a state, in the order in which they are told.
fn keys(told: &Value, state: &str) -> Vec<String> {
    let all = told["keys"].as_array().expect("a list").iter().filter(|key| key["state"] == state);
    all.map(|key| key["id"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn keys_are_replaced_under_load_and_nobody_is_refused() {
    let node = Node::start();
    let token = node.token();
    assert_eq!(node.http(Some(&token)).put("/file", b"bytes").status, 201);
    let before = document(&node.run(&["key", "ls", "--json"]));
    assert_eq!((keys(&before, "signs").len(), keys(&before, "old").len()), (3, 0));
    let (stop, asked) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|threads| {
        for worker in 0..3 {
            let (node, token, stop, asked) = (&node, &token, &stop, &asked);
            threads.spawn(move || {
                let http = node.http(Some(token));
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(http.bytes("/file"), b"bytes");
                    assert!(http.put(&format!("/new-{worker}"), b"more").status < 300);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=3 {
            let seen = asked.load(Ordering::Relaxed);
            let told = document(&node.run(&["key", "rotate", "--json"]));
            assert_eq!((keys(&told, "signs").len(), keys(&told, "old").len()), (3, 3 * round));
            crate::node::soon("work goes on", || asked.load(Ordering::Relaxed) > seen + 10);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let after = document(&node.run(&["key", "ls", "--json"]));
    assert!(keys(&before, "signs").iter().all(|key| keys(&after, "old").contains(key)), "{after}");
    // What was signed before is good, and so is what is signed now: by a client that connects now.
    assert_eq!(node.http(Some(&token)).bytes("/file"), b"bytes");
    let alice = node.add_user("alice", "wonder");
    node.run_with(&alice, &["whoami"]).ok();
    // Until it is ended.
    let told = document(&node.run(&["key", "rotate", "--revoke-old", "--json"]));
    assert_eq!((keys(&told, "signs").len(), keys(&told, "ended").len()), (3, 8), "{told}");
    assert_eq!(node.http(Some(&token)).get("/file").status, 401);
    assert_eq!(node.http(Some(&node.token())).bytes("/file"), b"bytes");
    node.run(&["audit", "--verify"]).ok();
}

#[test]
fn a_root_key_that_was_put_away_is_used_from_there_and_no_other_is() {
    let mut node = Node::start();
    let said = node.run(&["key", "ls"]).ok();
    let root = node.data().join("auth/keys/root.key");
    assert!(said.contains(&format!("root        {}: move it", root.display())), "{said}");
    node.stop();
    let safe = node.make_dir("safe").join("my.key");
    fs::rename(&root, &safe).expect("moved");
    node.up();
    assert!(node.run(&["key", "ls"]).ok().contains("root        put away;"));
    let told = document(&node.run(&["key", "ls", "--json"]));
    assert_eq!(told["root"], Value::Null);
    node.run(&["key", "rotate"])
        .fails(4, &["error:", "root key is not here", "hint: weft key rotate --root-key"]);
    let by =
        |path: &std::path::Path| node.run(&["key", "rotate", "--root-key", path.to_str().expect("plain")]);
    by(&node.path("safe/none.key")).fails(4, &["error:", "none.key"]);
    by(&node.path("nowhere/my.key")).fails(4, &["error:", "nowhere/my.key"]);
    // One that others can read may be known to them.
    fs::set_permissions(&safe, fs::Permissions::from_mode(0o644)).expect("ours");
    by(&safe).fails(3, &["error:", "others can read", "hint: copy it to a file of the node's user"]);
    fs::set_permissions(&safe, fs::Permissions::from_mode(0o600)).expect("ours");
    // A pipe that nobody writes to, which holds nobody up.
    let pipe = node.path("safe/pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(&pipe)
            .status()
            .expect("it runs")
            .success()
    );
    give(&pipe);
    by(&pipe).fails(3, &["error:", "not a regular file"]);
    node.run(&["status"]).ok();
    // Another domain's.
    let other = Node::start();
    let wrong = node.path("safe/wrong.key");
    fs::copy(other.data().join("auth/keys/root.key"), &wrong).expect("copied");
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).expect("ours");
    give(&wrong);
    by(&wrong).fails(1, &["error:", "another domain's"]);
    // And a file that is no key.
    fs::write(&wrong, "nonsense").expect("written");
    by(&wrong).fails(1, &["error:", "not a key's file"]);
    assert_eq!(document(&node.run(&["key", "ls", "--json"])), told, "nothing was changed by any of them");
    // Others may look into its directory.
    fs::set_permissions(safe.parent().expect("it has one"), fs::Permissions::from_mode(0o711)).expect("ours");
    by(&safe).ok();
    assert!(!root.exists() && safe.exists(), "it stays where it is");
    assert_eq!(keys(&document(&node.run(&["key", "ls", "--json"])), "old").len(), 3);
    let alice = node.add_user("alice", "wonder");
    node.run_with(&alice, &["key", "ls"]).fails(3, &["error:"]);
    node.run_with(&alice, &["key", "rotate"]).fails(3, &["error:"]);
    node.stop();
    node.up();
    node.run(&["status"]).ok();
}
