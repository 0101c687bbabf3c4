//! Bad input at the doors of a real node: each gets a clear error, and nothing is changed.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weft_conformance::run::{have, not_run};
use weft_core::attr::SetAttr;
use weft_core::form::{Ack, At, Expect, Guard, New, OpenHow, Replace, Request, Want, Wire};
use weft_core::{ErrorReport, FileId, RelPath, TraceId};
use weft_rpc::{
    CallBody, CallHeader, Frame, FrameReader, ToClient, ToServer, VERSION, VERSION_OLDEST, encode,
};

use crate::http::{Http, answer};
use crate::node::{Node, noise, python};

#[test]
fn names_are_bytes_with_few_exceptions() {
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    let (most, more) = (format!("/{}", "n".repeat(255)), format!("/{}", "n".repeat(256)));
    for (target, expected) in [
        ("/a%00b", 400),
        ("/..", 400),
        ("/%2e%2e", 400),
        ("/d/../x", 400),
        ("/./x", 400),
        ("/a%2fb", 400),
        ("//x", 400),
        (most.as_str(), 201),
        (more.as_str(), 414),
        ("/%ff%fe", 201),
        ("/%e2%80%aeevil", 201),
        ("/CON", 201),
    ] {
        let got = http.put(target, b"x");
        assert_eq!(got.status, expected, "{target}: {}", got.text());
        if expected == 201 {
            assert_eq!(http.bytes(target), b"x");
        }
    }
    // Two names that look alike are two names.
    assert_eq!(http.put("/caf%c3%a9", b"1").status, 201);
    assert_eq!(http.put("/cafe%cc%81", b"2").status, 201);
    assert_eq!(http.bytes("/caf%c3%a9"), b"1");
    // The command line takes any bytes too.
    let odd = OsString::from_vec(b"/\xff\xfe".to_vec());
    assert_eq!(node.run(&[OsString::from("cat"), odd.clone()]).ok(), "x");
    node.run(&[OsString::from("rm"), odd]).ok();
    assert_eq!(http.get("/%ff%fe").status, 404);
    for path in ["/d/../x", "/./x", "//x"] {
        node.run(&["touch", path]).fails(1, &["error:"]);
    }
    node.run(&["touch", &more]).fails(1, &["error:"]);
    assert_eq!(http.names("/").len(), 5);
}

#[test]
fn a_path_of_64_kib_is_refused_at_each_door() {
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    let deep = "/a".repeat(32 << 10);
    let refused = http.get(&deep);
    assert!([400, 414, 431].contains(&refused.status), "{}", refused.text());
    node.run(&["ls", &deep]).fails(1, &["error:"]);
    node.run(&["mkdir", "-p", &deep]).fails(1, &["error:"]);
    assert!(http.names("/").is_empty(), "nothing of it was made");
    for said in framed(&node, deep.trim_start_matches('/')) {
        assert_eq!(said.kind, weft_core::ErrorKind::Invalid, "{said:?}");
    }
    assert!(http.names("/").is_empty(), "nothing of it was made");
}

/// Asks for a path in frames of our own making, each over a line of its own, which a client of ours
/// would refuse to send. Returns why each line was ended.
fn framed(node: &Node, path: &str) -> Vec<ErrorReport> {
    let header = CallHeader {
        credential: 0,
        session: 1,
        once: None,
        ack: Ack::Durable,
        wire: Wire::Private,
        trace: TraceId(1),
        left_ms: 10_000,
    };
    let (short, guard) = (At::root(RelPath::new("<here>").expect("a name")), Guard::NONE);
    let set = SetAttr::default();
    let requests = [
        Request::Walk { at: short.clone(), want: Want::default() },
        Request::Make { at: short.clone(), new: New::Directory, set },
        Request::Remove { at: short.clone(), kind: Expect::Any, guard },
        Request::Rename { from: short.clone(), to: At::id(FileId::ROOT), how: Replace::Any, guard },
    ];
    let bodies = requests.map(CallBody::Request).into_iter();
    let bodies = bodies.chain([CallBody::Open(short.clone(), OpenHow::default())]);
    bodies
        .map(|body| {
            refusal(node, &longer(&Frame::new(7, &ToServer::Call { header, body }, Bytes::new()), path))
        })
        .collect()
}

/// Returns a frame with a path in place of `<here>`.
fn longer(frame: &Frame, path: &str) -> Frame {
    let short = b"\x06<here>";
    let at = frame.body.windows(short.len()).position(|part| part == short).expect("it is there");
    let mut body = frame.body[..at].to_vec();
    // Its length goes before it, seven bits at a time.
    let mut length = path.len();
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend_from_slice(path.as_bytes());
    body.extend_from_slice(&frame.body[at + short.len()..]);
    Frame { body: body.into(), ..frame.clone() }
}

/// Sends one frame after a greeting, and returns why the node ended the line.
fn refusal(node: &Node, frame: &Frame) -> ErrorReport {
    let begin = ToServer::Begin { session: 1, credential: 0, resume: None };
    let hello = ToServer::Hello { oldest: VERSION_OLDEST, newest: VERSION };
    let mut line = UnixStream::connect(node.data().join("node.sock")).expect("the node listens");
    line.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    for frame in [&Frame::new(0, &hello, Bytes::new()), &Frame::new(0, &begin, Bytes::new()), frame] {
        line.write_all(&encode(frame)).expect("sent");
    }
    let mut heard = Vec::new();
    line.read_to_end(&mut heard).expect("the node ends the line");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let last = runtime.block_on(async {
        let (mut frames, mut last) = (FrameReader::new(&heard[..]), None);
        while let Some(frame) = frames.next().await.expect("whole frames") {
            last = Some(frame.message::<ToClient>().expect("the node speaks the protocol"));
        }
        last
    });
    match last {
        Some(ToClient::Refused(report)) => report,
        other => panic!("it was not refused: {other:?}"),
    }
}

/// Says what a path of 64 KiB is answered with, and how many directories fit into each other, one step
/// after the other, and why no more do.
const DEEP: &str = r#"
import errno, os, sys
os.chdir(sys.argv[1])
deep = "a/" * (32 << 10)
def refused(act, *paths):
    try:
        act(*paths)
    except OSError as e:
        return errno.errorcode[e.errno]
asked = [(os.stat, deep), (os.mkdir, deep), (os.mknod, deep), (os.rename, "f", deep), (os.link, "f", deep),
         (os.symlink, deep, "link")]
print(*(refused(act, *paths) for act, *paths in asked), end=" ")
made = 0
while not (why := refused(os.mkdir, "d" * 64)):
    os.chdir("d" * 64)
    made += 1
print(made, why)
"#;

/// Removes those directories, the deepest first, and says how many they were.
const UP: &str = r#"
import os, sys
os.chdir(sys.argv[1])
there = 0
while os.path.isdir("d" * 64):
    os.chdir("d" * 64)
    there += 1
for _ in range(there):
    os.chdir("..")
    os.rmdir("d" * 64)
print(there)
"#;

#[test]
fn a_path_of_64_kib_is_too_long_on_a_mount_whole_or_step_by_step() {
    if !have("input::mount", &["fusermount3", "python3"]) {
        return;
    }
    let mut node = Node::start();
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/f", b"x").status, 201);
    let at = node.mount("mnt");
    let run = |script| node.feed_command(node.as_user(python()).args(["-c", script]).arg(&at), b"").ok();
    assert_eq!(run(DEEP).trim(), format!("{}1024 ENAMETOOLONG", "ENAMETOOLONG ".repeat(6)));
    assert_eq!(http.bytes("/f"), b"x");
    // What lies deeper than a path reaches, commands refuse, and whoever goes by steps does not.
    node.run(&["rm", "-r", &format!("/{}", "d".repeat(64))]).fails(1, &["longer than its limit"]);
    assert_eq!(run(UP).trim(), "1024");
    assert_eq!(http.names("/"), ["f"], "and it goes again");
    node.unmount(&at);
    node.stop();
    node.run(&["fsck"]).ok();
}

#[test]
fn an_upload_that_breaks_off_is_never_seen() {
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/old", b"old").status, 201);
    let half = noise(1, 2 << 20);
    for target in ["/new", "/old"] {
        for fields in [&["Content-Length: 4194304"][..], &["Transfer-Encoding: chunked"]] {
            let mut socket = http.begin("PUT", target, fields);
            if fields[0].starts_with("Transfer") {
                socket.write_all(b"200000\r\n").expect("sent");
            }
            socket.write_all(&half).expect("sent");
            // The other end closes after this much: an answer, if any, is no success.
            socket.shutdown(std::net::Shutdown::Write).expect("closed");
            let answer = answer(socket);
            assert!(!(200..300).contains(&answer.status), "{target}: {}", answer.text());
            assert_eq!(http.get("/new").status, 404);
            assert_eq!(http.bytes("/old"), b"old");
        }
    }
    // Digests that are not those of the bytes.
    let wrong = format!("Repr-Digest: sha-256=:{}:", data_encoding::BASE64.encode(&[7; 32]));
    let answer = http.ask("PUT", "/new", &[&wrong], b"bytes");
    assert!((400..500).contains(&answer.status), "{}", answer.text());
    assert_eq!(http.names("/"), ["old"]);
}

#[test]
fn a_token_counts_only_whole_and_here() {
    let (node, other) = (Node::start(), Node::start());
    let token = node.token();
    node.http(Some(&token)).put("/f", b"x");
    let status = |token: &str| node.http(Some(token)).get("/f").status;
    assert_eq!(status(&token), 200);
    assert_eq!(status(&other.token()), 401, "another domain's");
    for bad in [
        "",
        "weft1.",
        "weft1.AAAA",
        "x",
        &token[..token.len() - 1],
        &format!("{token}A"),
        &"A".repeat(20_000),
    ] {
        assert!([400, 401, 431].contains(&status(bad)), "{bad}");
    }
    // One letter changed, anywhere.
    let mut through = Vec::new();
    for place in 0..token.len() {
        let mut letters = token.clone().into_bytes();
        letters[place] = if letters[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(letters).expect("ASCII");
        if changed != token && status(&changed) == 200 {
            through.push(place);
        }
    }
    assert!(through.is_empty(), "changed at {through:?} of {} it still counts", token.len());
    node.run_with(&other.token(), &["cat", "/f"]).fails(3, &["error:"]);
    node.run_with("nonsense", &["cat", "/f"]).fails(3, &["error:", "BEARER_TOKEN", "hint: weft login"]);
}

#[test]
fn a_hundred_wrong_passwords_at_once_do_not_keep_the_right_one_out() {
    let node = Node::start();
    node.add_user("alice", "wonder");
    node.run(&["acl", "grant", "/", "alice", "read", "--whole-container"]).ok();
    let address = node.address();
    let try_with = |user: &str, password: &str| Http::basic(address, user, password).get("/");
    let (unknown, wrong) = (try_with("nobody-here", "x"), try_with("alice", "x"));
    assert_eq!((unknown.status, wrong.status), (401, 401));
    let reason = |answer: &crate::http::Answer| {
        let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("problem+json");
        (body["title"].clone(), body["detail"].clone())
    };
    assert_eq!(reason(&unknown), reason(&wrong), "who exists is not told");
    let memory = resident_kib(node.pid());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..100)
            .map(|n| scope.spawn(move || Http::basic(address, "alice", &format!("wrong{n}")).get("/").status))
            .collect();
        for one in tries {
            let status = one.join().expect("it ends");
            assert!([401, 429, 503].contains(&status), "{status}");
        }
    });
    let (took, grown) = (start.elapsed(), resident_kib(node.pid()).saturating_sub(memory));
    let until = Instant::now() + Duration::from_secs(60);
    let mut waited = 0;
    while try_with("alice", "wonder").status != 200 {
        assert!(Instant::now() < until, "the right password is kept out");
        waited += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("100 wrong passwords: {took:?}, {grown} KiB more; the right one came in after {waited} tries");
    assert!(grown < 300 << 10, "{grown} KiB");
}

/// What a process has in memory.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("told");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_hold_nobody_up() {
    const COUNT: usize = 10_000;
    /// What one may cost, as documented for a door without TLS.
    const EACH_KIB_MAX: f64 = 6.0;
    // Other tests of this process need some descriptors too.
    if weft_sys::net::raise_descriptor_limit() < COUNT as u64 + 1_000 {
        return not_run("input::idle", "a process may not have 11 000 files open (ulimit -n)");
    }
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    http.put("/f", b"x");
    let before = resident_kib(node.pid());
    let open = || {
        let mut socket = TcpStream::connect(node.address()).expect("the node listens");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        socket.write_all(b"HEAD /f HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut head = [0; 1024];
        let read = socket.read(&mut head).expect("answered");
        assert!(head[..read].starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&head[..read]));
        socket
    };
    let start = Instant::now();
    let idle: Vec<_> = (0..COUNT).map(|_| open()).collect();
    let opened = start.elapsed();
    let each = (resident_kib(node.pid()).saturating_sub(before)) as f64 / COUNT as f64;
    let start = Instant::now();
    assert_eq!(http.bytes("/f"), b"x");
    let asked = start.elapsed();
    println!(
        "{COUNT} idle connections: {each:.2} KiB each, opened in {opened:?}, a request beside them {asked:?}"
    );
    assert!(each <= EACH_KIB_MAX, "{each} KiB each");
    assert!(asked < Duration::from_secs(2), "{asked:?}");
    drop(idle);
    assert_eq!(http.bytes("/f"), b"x");
}
