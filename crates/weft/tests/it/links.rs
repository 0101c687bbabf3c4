//! Links for people without an account, as strangers, makers and administrators meet them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weft_conformance::run::{have, python_with};

use crate::http::{Answer, Http, answer};
use crate::node::{Node, noise, soon};

/// A node where alice may do all below `/d`, with a small file, a large one, and a directory in it.
struct Scene {
    node: Node,
    alice: String,
}

/// A link that was made.
struct Made {
    id: String,
    target: String,
}

impl Scene {
    fn new() -> Self {
        Self::of(Node::start())
    }

    fn of(node: Node) -> Self {
        let alice = node.add_user("alice", "wonder");
        node.run(&["mkdir", "/d"]).ok();
        node.run(&["acl", "grant", "/d", "alice", "all"]).ok();
        let http = node.http(Some(&alice));
        for (path, bytes) in [("f.txt", &b"small"[..]), ("g.txt", b"beside")] {
            assert_eq!(http.put(&format!("/d/{path}"), bytes).status, 201);
        }
        node.run_with(&alice, &["mkdir", "/d/in", "/d/in/deep"]).ok();
        assert_eq!(http.put("/d/in/deep/x.html", b"<p>deep</p>").status, 201);
        Self { node, alice }
    }

    fn make(&self, path: &str, more: &[&str]) -> Made {
        self.make_as(&self.alice, path, more)
    }

    #[track_caller]
    fn make_as(&self, token: &str, path: &str, more: &[&str]) -> Made {
        let args = [&["link", "create", path, "--json"], more].concat();
        let made = self.node.run_with(token, &args).json().remove(0);
        let text = |field: &str| made[field].as_str().expect("text").to_owned();
        assert!(text("url").ends_with(&text("target")), "{made}");
        Made { id: text("id"), target: text("target") }
    }

    fn stranger(&self) -> Http {
        self.node.http(None)
    }

    fn get(&self, made: &Made) -> Answer {
        self.stranger().get(&made.target)
    }

    /// What alice's list says of a link.
    fn listed(&self, made: &Made) -> serde_json::Value {
        let list = self.node.run_with(&self.alice, &["link", "ls", "--json"]).json();
        list.into_iter().find(|link| link["id"] == made.id.as_str()).expect("it is listed")
    }
}

#[test]
fn a_link_gives_a_stranger_one_file_wherever_it_goes_and_nothing_beside_it() {
    let scene = Scene::new();
    let (node, stranger) = (&scene.node, scene.stranger());
    assert_eq!(stranger.get("/d/f.txt").status, 401);
    let made = scene.make("/d/f.txt", &[]);
    assert!(made.target.starts_with("/.weft/link/") && made.target.ends_with("/f.txt"), "{}", made.target);
    let got = scene.get(&made);
    assert_eq!((got.status, &got.body[..]), (200, &b"small"[..]));
    for field in ["Referrer-Policy: no-referrer", "Content-Type: text/plain", "Cache-Control: private"] {
        assert!(got.head.contains(field), "{field}: {}", got.head);
    }
    let link = made.target.strip_suffix("/f.txt").expect("its name");
    assert_eq!(stranger.bytes(link), b"small", "without the name");
    assert_eq!(stranger.ask("GET", &made.target, &["Range: bytes=1-3"], b"").body, b"mal");
    let head = stranger.ask("HEAD", &made.target, &[], b"");
    assert!(head.status == 200 && head.head.contains("Content-Length: 5") && head.body.is_empty());
    for other in ["/g.txt", "/f.txt/", "/f.txt/x", "/x.html", "/../g.txt", "/%2e%2e/g.txt", "/d/f.txt"] {
        let status = stranger.get(&format!("{link}{other}")).status;
        assert!(matches!(status, 400 | 404), "{other}: {status}");
    }
    assert_eq!(stranger.put(&made.target, b"x").status, 404, "nothing is dropped by a link to read");
    for method in ["DELETE", "PROPFIND", "MKCOL", "MOVE", "LOCK"] {
        assert_eq!(stranger.ask(method, &made.target, &[], b"").status, 405, "{method}");
    }
    node.run_with(&scene.alice, &["mv", "/d/f.txt", "/d/in/other name"]).ok();
    assert_eq!(scene.get(&made).body, b"small", "it is the file's link, not the name's");
    assert_eq!(node.http(Some(&scene.alice)).put("/d/in/other%20name", b"newer").status, 204);
    assert_eq!(scene.get(&made).body, b"newer", "what the file holds now");
    node.run_with(&scene.alice, &["rm", "/d/in/other name"]).ok();
    assert_eq!(scene.get(&made).status, 404, "the file is gone");
    assert_eq!(node.http(Some(&scene.alice)).put("/d/f.txt", b"another").status, 201);
    assert_eq!(scene.get(&made).status, 404, "another file has its name");
}

#[test]
fn a_pinned_link_ends_with_the_version_it_was_made_for() {
    let scene = Scene::new();
    let made = scene.make("/d/f.txt", &["--pin"]);
    scene.node.run_with(&scene.alice, &["mv", "/d/f.txt", "/d/h.txt"]).ok();
    assert_eq!(scene.get(&made).body, b"small");
    assert_eq!(scene.node.http(Some(&scene.alice)).put("/d/h.txt", b"newer").status, 204);
    assert_eq!(scene.get(&made).status, 404);
    scene.node.run_with(&scene.alice, &["link", "create", "/d/in", "--pin"]).fails(1, &["no version"]);
}

#[test]
fn a_directory_link_shows_all_below_it_and_nothing_above_or_beside_it() {
    let scene = Scene::new();
    let (node, stranger) = (&scene.node, scene.stranger());
    for (target, name) in [("../f.txt", "out"), ("/d/f.txt", "far"), ("deep/x.html", "inward")] {
        node.run_with(&scene.alice, &["ln", "-s", target, &format!("/d/in/{name}")]).ok();
    }
    let made = scene.make("/d/in", &[]);
    assert!(made.target.ends_with('/'), "{}", made.target);
    assert_eq!(stranger.names(&made.target), ["deep", "far", "inward", "out"]);
    let page = scene.get(&made);
    let html = String::from_utf8(page.body).expect("text");
    assert!(html.contains("href=\"./deep/\"") && !html.contains("../"), "nothing leads above: {html}");
    assert!(page.head.contains("Referrer-Policy: no-referrer"));
    let link = made.target.trim_end_matches('/');
    assert_eq!(stranger.bytes(&format!("{link}/deep/x.html")), b"<p>deep</p>");
    assert_eq!(stranger.bytes(&format!("{link}/inward")), b"<p>deep</p>");
    for (target, location) in [(link.to_owned(), "/"), (format!("{link}/deep"), "/deep/")] {
        let moved = stranger.get(&target);
        assert_eq!(moved.status, 301);
        assert!(moved.head.contains(&format!("Location: {link}{location}\r\n")), "{}", moved.head);
    }
    for other in ["/out", "/far", "/../f.txt", "/none", "/deep/none/"] {
        let status = stranger.get(&format!("{link}{other}")).status;
        assert!(matches!(status, 400 | 404), "{other}: {status}");
    }
    node.run_with(&scene.alice, &["mv", "/d/in/deep", "/d/deep"]).ok();
    assert_eq!(stranger.get(&format!("{link}/deep/x.html")).status, 404, "it has left");
    node.run_with(&scene.alice, &["mv", "/d/deep", "/d/in/back"]).ok();
    assert_eq!(stranger.bytes(&format!("{link}/back/x.html")), b"<p>deep</p>");
}

#[test]
fn uses_are_counted_before_the_bytes_go_and_outlive_a_kill() {
    let mut scene = Scene::new();
    let made = scene.make("/d/f.txt", &["--count", "2"]);
    let stranger = scene.stranger();
    let part = |range: &str| stranger.ask("GET", &made.target, &[&format!("Range: bytes={range}")], b"");
    assert_eq!(stranger.ask("HEAD", &made.target, &[], b"").status, 200);
    let tag = "If-None-Match: *";
    assert_eq!(stranger.ask("GET", &made.target, &[tag], b"").status, 304);
    assert_eq!(scene.listed(&made)["used"], 0, "neither sends bytes of the file");
    assert_eq!(part("3-").status, 206);
    assert_eq!(scene.listed(&made)["used"], 1, "a download begins, wherever it begins");
    assert_eq!((part("4-").status, scene.listed(&made)["used"].clone()), (206, 1.into()), "it goes on");
    assert_eq!((part("0-1").status, scene.listed(&made)["used"].clone()), (206, 2.into()), "from the start");
    assert_eq!(part("0-1").status, 410);
    assert_eq!(scene.get(&made).status, 410);
    assert_eq!(part("2-").status, 206, "what was begun is brought to its end");
    let listed = scene.listed(&made);
    assert_eq!(
        (&listed["used"], &listed["ended"]),
        (&2.into(), &"the link was used as often as it may be".into())
    );
    scene.node.kill();
    scene.node.up();
    assert_eq!(scene.listed(&made)["used"], 2);
    assert_eq!(scene.get(&made).status, 410);
}

#[test]
fn of_two_at_once_only_one_has_the_last_use() {
    let scene = Scene::new();
    for _ in 0..8 {
        let made = scene.make("/d/f.txt", &["--count", "1"]);
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| scene.get(&made).status)).collect();
            asked.into_iter().map(|asked| asked.join().expect("it ends")).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 410).count(), 3, "{statuses:?}");
    }
}

/// A file that no socket's buffers hold, and a download of it by a link of which little was read.
fn begun(scene: &Scene, made: &Made) -> TcpStream {
    let mut socket = scene.stranger().begin("GET", &made.target, &[]);
    let mut first = [0; 64 << 10];
    socket.read_exact(&mut first).expect("it begins");
    assert!(first.starts_with(b"HTTP/1.1 200"));
    socket
}

const LARGE: usize = 64 << 20;

/// What ends a link in mid-download: the words of the command, and what a later request is told.
fn ends_in_mid_download(ending: impl FnOnce(&Scene, &Made), later: u16) {
    let scene = Scene::new();
    let put = scene.node.http(Some(&scene.alice)).put("/d/large", &noise(5, LARGE));
    assert_eq!(put.status, 201);
    let made = scene.make("/d/large", &[]);
    let (stalled, slow) = (begun(&scene, &made), begun(&scene, &made));
    ending(&scene, &made);
    let since = Instant::now();
    // Who has stopped reading is cut off as well: what comes is at most what was under way.
    for socket in [slow, stalled] {
        let mut rest = Vec::new();
        let mut socket = socket;
        let ended = socket.read_to_end(&mut rest);
        assert!(ended.is_err() || rest.len() < LARGE / 2, "{} bytes came after the end", rest.len());
    }
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    assert_eq!(scene.get(&made).status, later);
}

#[test]
fn a_revoked_link_ends_the_downloads_by_it() {
    ends_in_mid_download(
        |scene, made| drop(scene.node.run_with(&scene.alice, &["link", "revoke", &made.id]).ok()),
        410,
    );
}

#[test]
fn a_link_ends_with_its_makers_right() {
    ends_in_mid_download(|scene, _| drop(scene.node.run(&["acl", "revoke", "/d", "alice"]).ok()), 404);
}

#[test]
fn a_link_ends_with_its_makers_account() {
    ends_in_mid_download(|scene, _| drop(scene.node.run(&["user", "disable", "alice"]).ok()), 410);
}

#[test]
fn a_link_whose_maker_was_ended_stays_ended() {
    let scene = Scene::new();
    let [one, other] = [(); 2].map(|()| scene.make("/d/f.txt", &[]));
    scene.node.run(&["user", "disable", "alice"]).ok();
    scene.node.run(&["user", "enable", "alice"]).ok();
    assert_eq!(scene.get(&one).status, 410);
    let alice = scene.node.login("alice", "wonder", &[]);
    let again = scene.make_as(&alice, "/d/f.txt", &[]);
    assert_eq!(scene.get(&again).status, 200);
    scene.node.run(&["revoke", "--caller", "alice"]).ok();
    for ended in [&again, &other] {
        assert_eq!(scene.get(ended).status, 410);
    }
}

#[test]
fn a_link_runs_out_when_it_was_said_to() {
    let scene = Scene::new();
    let made = scene.make("/d/f.txt", &["--for", "2s"]);
    assert_eq!(scene.get(&made).status, 200);
    soon("it runs out", || scene.get(&made).status == 410);
    assert_eq!(scene.listed(&made)["ended"], "the link has run out");
    for (span, words) in [("0s", "some time"), ("367d", "366 days")] {
        scene.node.run(&["link", "create", "/d/f.txt", "--for", span]).fails(1, &[words]);
    }
    scene.node.run(&["link", "create", "/d/f.txt", "--for", "7"]).fails(2, &["a number and a unit"]);
    scene.node.run(&["link", "create", "/d/f.txt", "--count", "0"]).fails(2, &["0 is not in"]);
}

#[test]
fn nobody_gives_away_what_they_do_not_hold_or_sees_and_ends_links_of_others() {
    let scene = Scene::new();
    let node = &scene.node;
    let bob = node.add_user("bob", "builder");
    let made = scene.make("/d/f.txt", &[]);
    node.run_with(&bob, &["link", "create", "/d/f.txt"])
        .fails(1, &["there is nothing, or nothing you may know of"]);
    node.run(&["acl", "grant", "/d", "bob", "list,traverse,attr-read"]).ok();
    let refused = node.run_with(&bob, &["link", "create", "/d/f.txt"]);
    refused.fails(3, &["gives no more than its maker has", "=read is missing"]);
    node.run_with(&bob, &["link", "create", "/d/in"]).fails(3, &["=read is missing"]);
    assert!(node.run_with(&bob, &["link", "ls", "--json"]).json().is_empty());
    node.run_with(&bob, &["link", "revoke", &made.id]).fails(1, &["no such link"]);
    node.run_with(&bob, &["link", "ls", "--all"]).fails(3, &["administrators"]);
    let narrowed = node.login("alice", "wonder", &["--rights", "read"]);
    node.run_with(&narrowed, &["link", "create", "/d/f.txt"]).fails(3, &["not narrowed"]);
    node.run_with("", &["link", "ls", "--all"]).ok();
    let all = node.run(&["link", "ls", "--all", "--json"]).json();
    assert_eq!((all.len(), all[0]["by"].as_str().expect("a name").starts_with("alice@")), (1, true));
    assert_eq!(scene.get(&made).status, 200);
    node.run(&["link", "revoke", &made.id]).ok();
    assert_eq!(scene.get(&made).status, 410);
}

#[test]
fn links_and_their_counts_outlive_a_restart_and_a_restore() {
    let mut scene = Scene::new();
    let (file, directory) = (scene.make("/d/f.txt", &["--count", "2"]), scene.make("/d/in", &[]));
    let ended = scene.make("/d/g.txt", &[]);
    scene.node.run_with(&scene.alice, &["link", "revoke", &ended.id]).ok();
    assert_eq!(scene.get(&file).status, 200);
    scene.node.stop();
    scene.node.up();
    assert_eq!(scene.stranger().names(&directory.target), ["deep"]);
    assert_eq!((scene.get(&ended).status, scene.listed(&file)["used"].clone()), (410, 1.into()));
    scene.node.run(&["backup", "copy"]).ok();
    scene.node.stop();
    std::fs::rename(scene.node.data(), scene.node.path("before")).expect("renamed");
    scene.node.run(&["restore", "copy", "data"]).ok();
    scene.node.up();
    assert_eq!((scene.get(&file).status, scene.get(&file).status), (200, 410));
    assert_eq!(scene.stranger().names(&directory.target), ["deep"]);
    assert_eq!(scene.get(&ended).status, 410);
    scene.node.stop();
    let found = scene.node.run(&["fsck", "--json"]).json();
    assert!(found.iter().all(|finding| finding["severity"].is_null()), "{found:?}");
}

#[test]
fn what_is_read_by_a_link_stands_in_the_audit_as_the_links_and_its_makers() {
    let scene = Scene::new();
    let made = scene.make("/d/f.txt", &[]);
    assert_eq!(scene.get(&made).status, 200);
    let records = scene.node.run(&["audit", "--json"]).json();
    let of = |operation: &str| {
        let found = records.iter().filter(|record| record["operation"] == operation);
        found.cloned().collect::<Vec<_>>()
    };
    let link = format!("link:{}@", made.id);
    let is_by_link = |record: &serde_json::Value| {
        let said = record.to_string();
        said.contains(&link) && record["caller"].as_str().is_some_and(|name| name.starts_with("alice@"))
    };
    assert!(of("read").iter().any(is_by_link), "{:?}", of("read"));
    assert!(of("make-link").iter().any(|record| record.to_string().contains(&made.id)));
    assert!(of("login").iter().any(is_by_link), "{:?}", of("login"));
    let secret = made.target.split('/').nth(3).expect("it is there");
    let all = serde_json::to_string(&records).expect("JSON");
    assert!(!all.contains(secret) && !scene.node.log().contains(secret), "the secret is nowhere");
}

#[test]
fn who_guesses_waits_and_who_knows_does_not() {
    let scene = Scene::new();
    let made = scene.make("/d/f.txt", &[]);
    let guess = |number: usize| {
        let secret: String =
            (0..32).map(|at| char::from(b'a' + ((number * 7 + at * number) % 26) as u8)).collect();
        scene.stranger().get(&format!("/.weft/link/{secret}/f.txt")).status
    };
    // Nine that waited a second each would take longer on any machine.
    let begun = Instant::now();
    assert!((0..9).all(|number| guess(number) == 404));
    assert!(begun.elapsed() < Duration::from_secs(9), "a slip of the pen costs nothing");
    let begun = Instant::now();
    assert!((10..12).all(|number| guess(number) == 404));
    assert!(begun.elapsed() >= Duration::from_secs(2), "guesses wait: {:?}", begun.elapsed());
    let guessed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 20..24 {
            let (guess, guessed) = (&guess, &guessed);
            scope.spawn(move || {
                guess(number);
                guessed.fetch_add(1, Ordering::SeqCst);
            });
        }
        assert_eq!(scene.get(&made).status, 200);
        assert!(guessed.load(Ordering::SeqCst) < 4, "who knows it does not wait behind them");
    });
    for secret in ["", "x", "AAAABBBBCCCCDDDDAAAABBBBCCCCDDDD", "%61", "....", "\u{e9}"] {
        assert_eq!(scene.stranger().get(&format!("/.weft/link/{secret}/f.txt")).status, 404, "{secret}");
    }
}

#[test]
fn a_link_is_no_login() {
    let scene = Scene::new();
    let made = scene.make("/d", &[]);
    let secret = made.target.split('/').nth(3).expect("it is there").to_owned();
    for field in [
        format!("Bearer {secret}"),
        format!("Basic {}", data_encoding::BASE64.encode(format!("alice:{secret}").as_bytes())),
    ] {
        let field = format!("Authorization: {field}");
        assert_eq!(scene.stranger().ask("GET", "/d/f.txt", &[&field], b"").status, 401);
    }
    // And what else was proved on the connection does not lengthen its reach.
    let link = made.target.trim_end_matches('/');
    let admin = scene.node.http(Some(&scene.node.token()));
    assert_eq!(admin.get(&format!("{link}/../")).status, 400);
    assert_eq!(admin.put(&format!("{link}/new"), b"x").status, 404);
}

#[test]
fn links_into_a_shared_directory_work_by_what_is_there_and_outlive_a_restart() {
    let mut scene = Scene::new();
    let shared = scene.node.make_dir("shared");
    for dir in ["sub", "sub/below"] {
        scene.node.make_dir(&format!("shared/{dir}"));
    }
    for file in ["one.txt", "sub/two.txt", "sub/below/three.txt"] {
        scene.node.write(&format!("shared/{file}"), file);
    }
    scene.node.run(&["share", "shared", "/d/share"]).ok();
    scene.node.run(&["acl", "grant", "/d/share", "alice", "read"]).ok();
    let file = scene.make("/d/share/sub/two.txt", &[]);
    let directory = scene.make("/d/share/sub", &[]);
    let above = scene.make("/d", &[]);
    let check = |scene: &Scene| {
        let stranger = scene.stranger();
        assert_eq!(scene.get(&file).body, b"sub/two.txt");
        assert_eq!(stranger.names(&directory.target), ["below", "two.txt"]);
        assert_eq!(stranger.bytes(&format!("{}below/three.txt", directory.target)), b"sub/below/three.txt");
        assert_eq!(stranger.bytes(&format!("{}share/one.txt", above.target)), b"one.txt");
        assert_eq!(stranger.names(&format!("{}share/", above.target)), ["one.txt", "sub"]);
        assert_eq!(stranger.get(&format!("{}one.txt", directory.target)).status, 404);
    };
    check(&scene);
    scene.node.stop();
    scene.node.up();
    check(&scene);
    std::fs::rename(shared.join("sub/two.txt"), shared.join("two.txt")).expect("renamed");
    assert_eq!(scene.stranger().get(&format!("{}two.txt", directory.target)).status, 404);
    scene.node.write("shared/sub/two.txt", "another file");
    assert_ne!(scene.get(&file).body, b"another file", "the link is for what was there");
    scene.node.run(&["unshare", "/d/share"]).ok();
    assert_eq!(scene.get(&directory).status, 404);
}

#[test]
fn curl_wget_and_python_follow_links_as_they_are() {
    if !have("links::programs", &["curl", "wget", "cmp"]) {
        return;
    }
    let scene = Scene::new();
    let bytes = noise(9, 3 << 20);
    assert_eq!(scene.node.http(Some(&scene.alice)).put("/d/in/big.bin", &bytes).status, 201);
    scene.node.write("big", &bytes);
    let (file, directory) = (scene.make("/d/in/big.bin", &[]), scene.make("/d/in", &[]));
    let address = scene.node.address();
    scene.node.sh(&format!(
        r#"U=http://{address}
        mkdir c w; cd c
        curl -sSfO "$U{file}"; cmp big.bin ../big
        head -c 1000000 ../big > big.bin; curl -sSf -C - -O "$U{file}"; cmp big.bin ../big
        cd ../w
        wget -q -r -np -nH --cut-dirs=3 -e robots=off "$U{directory}"
        cmp big.bin ../big; test "$(cat deep/x.html)" = '<p>deep</p>'"#,
        file = file.target,
        directory = directory.target
    ));
    if let Some(python) = python_with("links::python", "requests") {
        let script = format!(
            "import requests\nu='http://{address}'\ns=requests.Session()\n\
             r=s.get(u+'{file}'); assert r.content==open('big','rb').read()\n\
             r=s.get(u+'{link}'); assert r.status_code==200 and r.history[0].status_code==301 and 'deep' in r.text\n",
            file = file.target,
            link = directory.target.trim_end_matches('/'),
        );
        scene.node.write("script.py", script);
        scene.node.sh(&format!("{python} script.py"));
    }
}

#[test]
fn an_answer_over_the_nodes_own_socket_says_where_it_went() {
    let scene = Scene::new();
    let said = scene.node.run_with(&scene.alice, &["link", "create", "/d/f.txt", "--count", "3"]);
    assert!(
        said.err.contains("3 times")
            && said.err.contains("hint: this is the node's address on its own machine")
    );
    let url = said.ok();
    assert!(url.starts_with("http") && url.trim_end().ends_with("/f.txt"), "{url}");
    let list = scene.node.run_with(&scene.alice, &["link", "ls"]).ok();
    assert!(list.contains("read") && list.contains("0/3") && list.contains("/d/f.txt"), "{list}");
}

/// Reads the rest of an answer; kept for what reads slowly.
#[test]
fn a_slow_reader_of_a_link_that_stands_gets_all_of_it() {
    let scene = Scene::new();
    let bytes = noise(5, 8 << 20);
    assert_eq!(scene.node.http(Some(&scene.alice)).put("/d/large", &bytes).status, 201);
    let made = scene.make("/d/large", &["--for", "1h"]);
    let got = answer(scene.stranger().begin("GET", &made.target, &[]));
    assert!(got.whole && got.body == bytes);
}

/// What a server in front of the node asks it, plainly, by the host that it was asked for itself.
fn passed_on(scene: &Scene, request: &str, host: &str, fields: &str, body: &str) -> Answer {
    let mut socket = TcpStream::connect(scene.node.address()).expect("it listens");
    let (form, length) = ("application/x-www-form-urlencoded", body.len());
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: {form}\r\n{fields}"
    );
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).expect("sent");
    answer(socket)
}

/// Logs alice in on the page, and has a link to a file made there. Returns the cookies as they were set, and
/// the page that shows the link.
fn link_of_page(scene: &Scene, host: &str) -> (Vec<String>, String) {
    let login = passed_on(scene, "POST /?page=login", host, "", "user=alice&password=wonder");
    assert_eq!(login.status, 303, "{}", login.text());
    let set = login.head.lines().filter_map(|line| line.strip_prefix("Set-Cookie: ")).map(str::to_owned);
    let set: Vec<String> = set.filter(|cookie| !cookie.contains("Max-Age=0")).collect();
    let pairs: Vec<_> = set.iter().filter_map(|cookie| cookie.split(';').next()).collect();
    let cookie = format!("Cookie: {}\r\n", pairs.join("; "));
    let page = passed_on(scene, "GET /d/", host, &format!("{cookie}Accept: text/html\r\n"), "").text();
    let guard = page.split("data-guard=\"").nth(1).and_then(|rest| rest.split('"').next());
    let body = format!("days=1&guard={}", guard.expect("the page has a guard"));
    (set, passed_on(scene, "POST /d/f.txt?page=link", host, &cookie, &body).text())
}

#[test]
fn behind_a_server_that_ends_tls_links_begin_with_the_public_address_and_cookies_keep_to_it() {
    let mut node = Node::unstarted();
    node.start_with(&["--public", "https://Files.example.org:8443/"]);
    node.up();
    let public = "https://files.example.org:8443";
    assert_eq!(node.ready()["public"], public);
    assert!(node.log().contains(&format!("public   {public}\n")), "{}", node.log());
    assert!(node.run(&["status"]).ok().contains(public));
    let scene = Scene::of(node);
    let said = scene.node.run_with(&scene.alice, &["link", "create", "/d/f.txt"]).ok();
    assert!(said.starts_with(&format!("{public}/.weft/link/")), "{said}");
    let alice = format!("Authorization: Bearer {}\r\n", scene.alice);
    for (host, status) in [("files.example.org:8443", 200), ("files.example.org", 200), ("evil.example", 421)]
    {
        assert_eq!(passed_on(&scene, "GET /d/f.txt", host, &alice, "").status, status, "{host}");
    }
    // Also where that server does not pass on by which name it was asked.
    for host in ["files.example.org:8443", &scene.node.address().to_string()] {
        let (cookies, page) = link_of_page(&scene, host);
        assert!(!cookies.is_empty() && cookies.iter().all(|set| set.ends_with("; Secure")), "{cookies:?}");
        assert!(page.contains(&format!("value=\"{public}/.weft/link/")), "{host}: {page}");
    }
}

#[test]
fn without_a_public_address_a_plain_login_is_a_plain_cookie_and_a_link_leads_where_it_was_asked_for() {
    let (cookies, page) = link_of_page(&Scene::new(), "localhost:1");
    assert!(!cookies.is_empty() && !cookies.iter().any(|set| set.contains("Secure")), "{cookies:?}");
    assert!(page.contains("value=\"http://localhost:1/.weft/link/"), "{page}");
}
