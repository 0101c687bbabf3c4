//! Drop-boxes, as strangers and their owner meet them.

use crate::http::Http;
use crate::node::{Node, noise};

/// A node where alice may do all below `/d`, and `/d/box` is a drop-box of 64 KiB and four files.
fn scene() -> (Node, String) {
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/d", "/d/box"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    let said = node.run_with(
        &alice,
        &["dropbox", "create", "/d/box", "--bytes", "1K", "--files", "1", "--rate", "1K/d"],
    );
    assert!(said.err.contains("`traverse`") && said.err.contains("--drop"), "{}", said.err);
    said.ok();
    node.run(&["acl", "grant", "/", "anyone", "traverse", "--whole-container"]).ok();
    create(&node, &alice, &["--bytes", "64K", "--files", "4", "--rate", "1M/d"]);
    (node, alice)
}

fn create(node: &Node, token: &str, limits: &[&str]) {
    let args = [&["dropbox", "create", "/d/box", "--json"], limits].concat();
    let made = node.run_with(token, &args).json().remove(0);
    assert_eq!(made["path"], "/d/box");
}

fn names(node: &Node, token: &str) -> Vec<String> {
    node.http(Some(token)).names("/d/box/")
}

/// What a stranger may be told of a file that they drop: always the same.
#[track_caller]
fn dropped(http: &Http, target: &str, bytes: &[u8]) -> u16 {
    let answer = http.put(target, bytes);
    if answer.status == 201 {
        assert!(!answer.head.contains("ETag") && !answer.head.contains("Last-Modified"), "{}", answer.head);
        assert!(answer.body.is_empty());
    }
    answer.status
}

#[test]
fn a_stranger_drops_files_and_learns_nothing_of_what_is_there() {
    let (node, alice) = scene();
    let (stranger, owner) = (node.http(None), node.http(Some(&alice)));
    assert_eq!(owner.put("/d/box/known.txt", b"the owner's").status, 201);
    for name in ["known.txt", "new.txt"] {
        assert_eq!(dropped(&stranger, &format!("/d/box/{name}"), b"a stranger's"), 201, "{name}");
    }
    let there = names(&node, &alice);
    assert_eq!(there.len(), 3, "{there:?}");
    assert_eq!(owner.bytes("/d/box/known.txt"), b"the owner's", "nothing was replaced");
    let stored =
        there.iter().find(|name| name.starts_with("new-") && name.ends_with(".txt")).expect("it is there");
    assert_eq!(owner.bytes(&format!("/d/box/{stored}")), b"a stranger's");
    let attr = node.run_with(&alice, &["stat", "--json", &format!("/d/box/{stored}")]).json().remove(0);
    assert!(!attr.to_string().contains("anyone"), "it is the box's owner's: {attr}");
    for (method, target) in [
        ("GET", "/d/box/".to_owned()),
        ("GET", "/d/box/known.txt".to_owned()),
        ("GET", format!("/d/box/{stored}")),
        ("HEAD", format!("/d/box/{stored}")),
        ("DELETE", format!("/d/box/{stored}")),
        ("MKCOL", "/d/box/dir".to_owned()),
        ("DELETE", "/d/box/none".to_owned()),
    ] {
        let known = stranger.ask(method, &target, &[], b"");
        assert_eq!(known.status, 401, "{method} {target}: {}", known.text());
    }
    for depth in ["Depth: 0", "Depth: 1"] {
        let told = stranger.ask("PROPFIND", "/d/box/", &[depth], b"").text();
        assert!(!told.contains("known") && !told.contains("new-"), "{told}");
    }
    create(&node, &alice, &["--bytes", "64K", "--files", "20", "--rate", "1M/d"]);
    let conditions = ["If-None-Match: *", "If-Match: *"].map(|field| {
        ["known.txt", "none.txt"]
            .map(|name| stranger.ask("PUT", &format!("/d/box/{name}"), &[field], b"x").status)
    });
    assert!(conditions.iter().all(|[known, none]| known == none), "{conditions:?}");
    assert_eq!(stranger.put("/d/elsewhere.txt", b"x").status, 401);
}

#[test]
fn a_full_box_refuses_and_what_its_owner_removes_makes_room() {
    let (mut node, alice) = scene();
    let stranger = node.http(None);
    assert_eq!(dropped(&stranger, "/d/box/large", &noise(1, 65 << 10)), 507);
    assert_eq!(dropped(&stranger, "/d/box/large", &noise(1, 60 << 10)), 201);
    let more = stranger.put("/d/box/more", &noise(2, 8 << 10));
    assert_eq!(more.status, 507);
    assert!(
        !more.text().contains("65536") && more.text().contains("the drop-box is full"),
        "{}",
        more.text()
    );
    node.stop();
    node.up();
    let stranger = node.http(None);
    assert_eq!(dropped(&stranger, "/d/box/more", &noise(2, 8 << 10)), 507, "after a restart too");
    for name in names(&node, &alice) {
        node.run_with(&alice, &["rm", &format!("/d/box/{name}")]).ok();
    }
    for n in 0..4 {
        assert_eq!(dropped(&stranger, "/d/box/small", b"x"), 201, "{n}");
    }
    assert_eq!(dropped(&stranger, "/d/box/small", b"x"), 507, "four files");
    let first = names(&node, &alice).remove(0);
    node.run_with(&alice, &["mv", &format!("/d/box/{first}"), "/d/taken"]).ok();
    assert_eq!(dropped(&stranger, "/d/box/small", b"x"), 201);
    let known = node.run_with(&alice, &["dropbox", "ls", "--json"]).json().remove(0);
    assert_eq!(
        (&known["files"], &known["files_max"], &known["bytes_max"]),
        (&4.into(), &4.into(), &65_536.into())
    );
}

#[test]
fn uploads_at_once_do_not_exceed_the_limits_together() {
    let (node, alice) = scene();
    for (limits, size, fit) in [
        (["--bytes", "1M", "--files", "3", "--rate", "1G/d"], 10_usize, 3_usize),
        (["--bytes", "100K", "--files", "100", "--rate", "1G/d"], 30 << 10, 3),
        (["--bytes", "1G", "--files", "100", "--rate", "100K/d"], 30 << 10, 3),
    ] {
        node.run_with(&alice, &["dropbox", "end", "/d/box"]).ok();
        create(&node, &alice, &limits);
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let at_once: Vec<_> = (0..12)
                .map(|n| {
                    let http = node.http(None);
                    scope.spawn(move || dropped(&http, "/d/box/file", &noise(n, size)))
                })
                .collect();
            at_once.into_iter().map(|one| one.join().expect("it ends")).collect()
        });
        let taken = statuses.iter().filter(|status| **status == 201).count();
        assert!(taken <= fit && taken > 0, "{limits:?}: {statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 201 | 507)), "{limits:?}: {statuses:?}");
        assert_eq!(names(&node, &alice).len(), taken);
        for name in names(&node, &alice) {
            node.run_with(&alice, &["rm", &format!("/d/box/{name}")]).ok();
        }
    }
}

#[test]
fn what_comes_too_fast_is_refused_even_if_it_is_taken_away_at_once() {
    let (node, alice) = scene();
    create(&node, &alice, &["--bytes", "1G", "--files", "100", "--rate", "50K/d"]);
    assert_eq!(dropped(&node.http(None), "/d/box/a", &noise(1, 40 << 10)), 201);
    for name in names(&node, &alice) {
        node.run_with(&alice, &["rm", &format!("/d/box/{name}")]).ok();
    }
    assert_eq!(dropped(&node.http(None), "/d/box/a", &noise(1, 40 << 10)), 507);
    assert_eq!(dropped(&node.http(None), "/d/box/a", &noise(1, 9 << 10)), 201);
}

#[test]
fn nobody_lets_strangers_write_without_a_box_or_more_than_insert_into_one() {
    let (node, alice) = scene();
    for rights in
        ["insert", "write", "=write", "append", "remove", "rename", "attr-write", "acl-write", "all"]
    {
        let refused = node.run_with(&alice, &["acl", "grant", "/d", "anyone", rights]);
        refused.fails(1, &["anyone may put files into a drop-box", "hint: weft dropbox create"]);
    }
    for rights in ["read", "list", "traverse", "write"] {
        let refused = node.run_with(&alice, &["acl", "grant", "/d/box", "anyone", rights]);
        refused.fails(1, &["in a drop-box anyone may insert, and no more"]);
    }
    node.run_with(&alice, &["acl", "grant", "/d", "anyone", "read"]).ok();
    let lifted = node.run_with(&alice, &["acl", "set", "/d/box", "--bytes-max", "none"]);
    lifted.fails(1, &["a drop-box has a limit on bytes"]);
    for limits in [
        &["--files", "4", "--rate", "1M/d"][..],
        &["--bytes", "1M", "--rate", "1M/d"],
        &["--bytes", "1M", "--files", "1"],
    ] {
        node.run_with(&alice, &[&["dropbox", "create", "/d/box"], limits].concat()).fails(2, &["required"]);
    }
    let bob = node.add_user("bob", "builder");
    let limits = ["--bytes", "1M", "--files", "1", "--rate", "1M/d"];
    node.run_with(&bob, &[&["dropbox", "create", "/d/box"], &limits[..]].concat())
        .fails(3, &["cannot make a drop-box of /d/box"]);
    node.run_with(&alice, &["dropbox", "end", "/d/box"]).ok();
    assert_eq!(node.http(None).put("/d/box/x", b"x").status, 401);
    node.run_with(&alice, &["dropbox", "end", "/d/box"]).fails(1, &["it is no drop-box"]);
}

#[test]
fn a_link_to_a_drop_box_takes_files_and_shows_none() {
    let (node, alice) = scene();
    node.run_with(&alice, &["link", "create", "/d", "--drop"]).fails(1, &["it is no drop-box"]);
    let made = node.run_with(&alice, &["link", "create", "/d/box", "--drop", "--json"]).json().remove(0);
    assert_eq!(made["gives"], "insert");
    let (link, stranger) = (made["target"].as_str().expect("text").to_owned(), node.http(None));
    for _ in 0..2 {
        assert_eq!(dropped(&stranger, &format!("{link}thesis.pdf"), b"written"), 201);
    }
    let there = names(&node, &alice);
    assert_eq!(there.len(), 2);
    assert!(there.iter().all(|name| name.starts_with("thesis-") && name.ends_with(".pdf")), "{there:?}");
    for target in [format!("{link}{}", there[0]), format!("{link}thesis.pdf")] {
        assert_eq!(stranger.get(&target).status, 404, "{target}");
    }
    let page = stranger.get(&link).text();
    assert!(
        page.contains("Drop files") && !page.contains("thesis"),
        "where to put files, and nothing of those: {page}"
    );
    assert_eq!(stranger.put(&link, b"x").status, 404, "no name");
    assert_eq!(stranger.put(&format!("{link}a/b"), b"x").status, 404, "no directory");
    node.run_with(&alice, &["link", "revoke", made["id"].as_str().expect("text")]).ok();
    assert_eq!(stranger.put(&format!("{link}late.pdf"), b"x").status, 410);
    let reading = node.run_with(&alice, &["link", "create", "/d/box", "--json"]).json().remove(0);
    let reading = reading["target"].as_str().expect("text").to_owned();
    assert_eq!(stranger.put(&format!("{reading}x"), b"x").status, 404, "a link to read takes nothing");
    assert_eq!(stranger.names(&reading).len(), 2);
}
