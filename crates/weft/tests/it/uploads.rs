//! Uploads over HTTP that go on where a line broke: over a real node, which is killed in the middle, and by tuspy.

use std::fs;
use std::io::Write;
use std::time::Duration;

use weft_conformance::file_system::site::Dice;
use weft_conformance::run::{python_with, seed_or_fresh};

use crate::http::{Answer, Http};
use crate::node::{Node, noise};

const TUSPY: &str = include_str!("../python/tus.py");
const TUS: &str = "Tus-Resumable: 1.0.0";

/// Begins an upload; returns its address.
#[track_caller]
fn begun(http: &Http, dir: &str, name: &str, length: usize) -> String {
    let name = data_encoding::BASE64.encode(name.as_bytes());
    let fields = [TUS, &format!("Upload-Length: {length}"), &format!("Upload-Metadata: filename {name}")];
    let made = http.ask("POST", dir, &fields, b"");
    assert_eq!(made.status, 201, "{}", made.text());
    field(&made, "Location").expect("an address")
}

fn field(answer: &Answer, name: &str) -> Option<String> {
    let line = answer.head.lines().find(|line| line.starts_with(&format!("{name}: ")))?;
    line.split_once(": ").map(|(_, value)| value.to_owned())
}

/// Returns how far an upload is; none if there is none.
fn offset(http: &Http, address: &str) -> Option<usize> {
    let told = http.ask("HEAD", address, &[TUS], b"");
    assert!(matches!(told.status, 200 | 404), "{}", told.head);
    field(&told, "Upload-Offset").map(|offset| offset.parse().expect("a number"))
}

fn patch(http: &Http, address: &str, at: usize, bytes: &[u8]) -> Answer {
    let at = format!("Upload-Offset: {at}");
    http.ask("PATCH", address, &[TUS, "Content-Type: application/offset+octet-stream", &at], bytes)
}

/// Begins to send more, and sends `sent` of it.
fn begin_patch(http: &Http, address: &str, at: usize, length: usize, sent: &[u8]) -> std::net::TcpStream {
    let (at, length) = (format!("Upload-Offset: {at}"), format!("Content-Length: {length}"));
    let fields = [TUS, "Content-Type: application/offset+octet-stream", &at, &length];
    let mut socket = http.begin("PATCH", address, &fields);
    // The node may be killed meanwhile.
    let _ = socket.write_all(sent);
    socket
}

/// More is sent than sockets hold, so the node has taken the first slice, which is on disk before it takes more.
#[test]
fn what_came_long_ago_survives_kill_9_and_the_rest_follows() {
    let mut node = Node::start();
    node.allow("broke off");
    let bytes = noise(5, 100 << 20);
    let address = begun(&node.http(Some(&node.token())), "/", "large", bytes.len());
    let http = node.http(Some(&node.token()));
    let broken = begin_patch(&http, &address, 0, bytes.len(), &bytes[..64 << 20]);
    node.kill();
    drop(broken);
    node.up();
    let http = node.http(Some(&node.token()));
    let kept = offset(&http, &address).expect("it is there");
    println!("{kept} bytes of {} were kept", 64 << 20);
    assert!((32 << 20..=64 << 20).contains(&kept), "{kept}");
    assert_eq!(http.get("/large").status, 404, "nothing is seen before all of it is");
    assert_eq!(offset(&http, &address.replace("/large?", "/other?")), None, "of another name");
    assert_eq!(patch(&http, &address, kept, &bytes[kept..]).status, 204);
    assert!(http.bytes("/large") == bytes);
}

#[test]
fn an_upload_that_is_broken_off_by_kill_9_again_and_again_comes_to_its_end() {
    let mut node = Node::start();
    node.allow("broke off");
    let seed = seed_or_fresh();
    println!("again with WEFT_SEED={seed}");
    let mut dice = Dice::new(seed);
    let bytes = noise(seed, 48 << 20);
    let address = begun(&node.http(Some(&node.token())), "/", "f", bytes.len());
    let mut at = 0;
    for round in 0..4 {
        // Each round ends one request well, and is killed in the middle of the next, or after it.
        let http = node.http(Some(&node.token()));
        let part = 1 + dice.roll(((bytes.len() - at) / 4) as u64) as usize;
        assert_eq!(patch(&http, &address, at, &bytes[at..at + part]).status, 204, "round {round}");
        at += part;
        let rest = &bytes[at..];
        let mut line = begin_patch(&http, &address, at, rest.len(), b"");
        std::thread::scope(|scope| {
            // The node is killed meanwhile.
            scope.spawn(|| drop(line.write_all(&rest[..rest.len() / 2])));
            std::thread::sleep(Duration::from_micros(dice.roll(60_000)));
            node.kill();
        });
        node.up();
        let kept = offset(&node.http(Some(&node.token())), &address).expect("it is there");
        assert!(kept >= at, "round {round}: what was acknowledged is there: {kept}, {at}");
        at = kept;
    }
    let http = node.http(Some(&node.token()));
    assert_eq!(patch(&http, &address, at, &bytes[at..]).status, 204);
    assert!(http.bytes("/f") == bytes);
    node.stop();
    node.run(&["fsck"]).ok();
}

#[test]
fn a_share_takes_an_upload_that_broke_off_and_forgets_it_with_the_process() {
    let mut node = Node::start();
    node.allow("broke off");
    let dir = node.make_dir("shared");
    node.run(&["share", &dir.display().to_string(), "/s"]).ok();
    let bytes = noise(6, 9 << 20);
    let http = node.http(Some(&node.token()));
    let address = begun(&http, "/s/", "f", bytes.len());
    drop(begin_patch(&http, &address, 0, bytes.len(), &bytes[..5 << 20]));
    let kept = offset(&http, &address).expect("it is there");
    assert!(kept <= 5 << 20, "{kept}");
    let again = patch(&http, &address, kept, &bytes[kept..]);
    assert_eq!(again.status, 204, "{}", again.text());
    assert!(fs::read(dir.join("f")).expect("it is there") == bytes);
    let address = begun(&http, "/s/", "g", bytes.len());
    assert_eq!(patch(&http, &address, 0, &bytes[..1 << 20]).status, 204);
    node.stop();
    node.up();
    let http = node.http(Some(&node.token()));
    assert_eq!(offset(&http, &address), None);
    assert_eq!(patch(&http, &address, 1 << 20, b"x").status, 404);
}

#[test]
fn who_may_only_insert_into_a_drop_box_drops_an_upload_and_sees_no_other() {
    let node = Node::start();
    let (alice, bob, carol) =
        (node.add_user("alice", "wonder"), node.add_user("bob", "builder"), node.add_user("carol", "singer"));
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    node.run_with(&alice, &["mkdir", "/d/box"]).ok();
    node.run(&["acl", "grant", "/", "anyone", "traverse", "--whole-container"]).ok();
    node.run_with(
        &alice,
        &["dropbox", "create", "/d/box", "--bytes", "1M", "--files", "4", "--rate", "10M/d"],
    )
    .ok();
    let (bob, carol, stranger) = (node.http(Some(&bob)), node.http(Some(&carol)), node.http(None));
    let address = begun(&bob, "/d/box/", "thesis.pdf", 100_000);
    let bytes = noise(7, 100_000);
    assert_eq!(patch(&bob, &address, 0, &bytes[..40_000]).status, 204);
    for (other, status) in [(&carol, 404), (&stranger, 401)] {
        for method in ["HEAD", "DELETE"] {
            assert_eq!(other.ask(method, &address, &[TUS], b"").status, status, "{method}");
        }
        assert_eq!(patch(other, &address, 40_000, b"x").status, status);
    }
    assert_eq!(offset(&bob, &address), Some(40_000));
    let last = patch(&bob, &address, 40_000, &bytes[40_000..]);
    assert_eq!(last.status, 204, "{}", last.text());
    assert!(!last.head.contains("ETag") && !last.head.contains("Last-Modified"), "nothing is told of it");
    let owner = node.http(Some(&alice));
    let names = owner.names("/d/box/");
    assert!(names.len() == 1 && names[0].starts_with("thesis-") && names[0].ends_with(".pdf"), "{names:?}");
    assert!(owner.bytes(&format!("/d/box/{}", names[0])) == bytes);
    let fields = [TUS, "Upload-Length: 5", "Upload-Metadata: filename YQ=="];
    assert_eq!(stranger.ask("POST", "/d/box/", &fields, b"").status, 401);
}

#[test]
fn tuspy_goes_on_where_its_line_broke_and_where_another_process_stopped() {
    let Some(python) = python_with("uploads::tuspy", "tusclient.client") else { return };
    let node = Node::start();
    let alice = node.add_user("alice", "wonder");
    node.run(&["mkdir", "/d"]).ok();
    node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
    let bytes = noise(8, 40 << 20);
    let file = node.write("big", &bytes);
    let url = format!("http://{}/d/", node.address());
    let said = node.as_user(python).args(["-c", TUSPY, &url, &alice]).arg(file).output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert_eq!(out.trim(), "good", "{err}");
    let http = node.http(Some(&alice));
    assert!(http.bytes("/d/broken") == bytes && http.bytes("/d/taken%20up") == bytes);
    assert!(http.get("/d/taken%20up").head.contains("Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT"));
}
