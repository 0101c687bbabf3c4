//! What monitors are told: numbers, each of the catalogue and none but those, whether the node lives and
//! whether it is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_core::metrics::{Entry, Metrics};

use crate::full::Small;
use crate::http::{Answer, Http, answer};
use crate::node::{Node, give, noise};

/// Where a node's monitors ask.
fn monitor(node: &Node) -> Http {
    let ready = node.ready();
    let url = ready["monitor"].as_str().and_then(|url| url.strip_prefix("http://")).expect("it is told");
    Http::new(url.parse().expect("an address"), None)
}

/// A sample: its name, and its labels as they are written.
pub type Samples = BTreeMap<(String, String), f64>;

/// Reads a text as the exposition format says it is (version 0.0.4), and fails at whatever is not in it.
#[track_caller]
fn read(text: &str) -> Samples {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.as_bytes()[0].is_ascii_digit()
    };
    assert!(text.ends_with('\n'), "the last line has no end");
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let (mut helped, mut family) = (String::new(), (String::new(), String::new()));
    for line in text.lines() {
        assert_eq!(line.trim(), line, "blanks around `{line}`");
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and a text");
            assert!(is_name(name) && !help.is_empty() && !help.contains('\\'), "{line}");
            helped = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a kind");
            assert_eq!(helped, name, "its help stands before it");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(families.insert(name.to_owned()), "{name} is there twice");
            family = (name.to_owned(), kind.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').expect("the labels end")),
                None => (series, ""),
            };
            assert_eq!(name, family.0, "a sample of another family");
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                let (label, value) = label.split_once("=\"").expect("a label and its value");
                let value = value.strip_suffix('"').expect("the value ends");
                assert!(is_name(label) && !label.starts_with("__") && !value.contains(['"', '\\']), "{line}");
            }
            let number: f64 = value.parse().expect("a number");
            assert!(number.is_finite() && number >= 0.0, "{line}");
            let before = samples.insert((name.to_owned(), labels.to_owned()), number);
            assert!(before.is_none(), "{series} is there twice");
        }
    }
    samples
}

#[track_caller]
pub fn samples(node: &Node) -> Samples {
    let told = monitor(node).get("/metrics");
    assert_eq!(told.status, 200);
    assert!(told.head.contains("Content-Type: text/plain; version=0.0.4"), "{}", told.head);
    read(std::str::from_utf8(&told.body).expect("text"))
}

/// What the samples of a name whose labels hold all these come to.
pub fn sum(samples: &Samples, name: &str, labels: &[&str]) -> f64 {
    let of = |(series, value): (&(String, String), &f64)| {
        (series.0 == name && labels.iter().all(|label| series.1.contains(label))).then_some(*value)
    };
    samples.iter().filter_map(of).sum()
}

/// Every source of the product but the catalogue itself.
fn sources() -> Vec<(PathBuf, String)> {
    fn below(at: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(at).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "tests" && name != "target") {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), fs::read_to_string(&path).expect("text")));
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies among the crates");
    let mut found = Vec::new();
    below(crates, &mut found);
    found.retain(|(path, _)| {
        !path.starts_with(crates.join("core/src/metrics")) && !path.ends_with("tests.rs")
    });
    found
}

#[test]
fn whatever_is_in_the_catalogue_is_counted_somewhere() {
    let sources = sources();
    assert!(sources.len() > 300, "those cannot be all: {}", sources.len());
    let acts = ["count(", "add(", "took(", "follow(", "enter(", "set("];
    let counts = |text: &str, field: &str| {
        let field = format!(".{field}");
        text.match_indices(&field).any(|(at, _)| {
            let after = text[at + field.len()..].trim_start();
            after.strip_prefix('.').is_some_and(|after| acts.iter().any(|act| after.starts_with(act)))
        })
    };
    for Entry { field, name, .. } in Metrics::CATALOGUE {
        assert!(sources.iter().any(|(_, text)| counts(text, field)), "nobody counts {name}");
    }
}

/// Does a little of everything that is counted.
fn life(node: &Node) {
    let alice = node.add_user("alice", "wonder");
    let admin = node.http(Some(&node.token()));
    assert_eq!(admin.put("/f", &noise(1, 300_000)).status, 201);
    assert_eq!(admin.bytes("/f").len(), 300_000);
    assert_eq!(admin.get("/none").status, 404);
    assert_eq!(Http::basic(node.address(), "alice", "wrong").get("/f").status, 401);
    node.run(&["acl", "grant", "/f", "alice", "read"]).ok();
    assert_eq!(node.http(Some(&alice)).bytes("/f").len(), 300_000);
    node.run(&["acl", "revoke", "/f", "alice"]).ok();
    node.run(&["ls", "/"]).ok();
    node.run(&["ls", "/none"]).fails(1, &["error:"]);
    node.run(&["revoke", "--caller", "alice"]).ok();
    // What comes is no handshake.
    let mut socket = TcpStream::connect(("127.0.0.1", node.https_port())).expect("it listens");
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it is sent");
    let _ = socket.read_to_end(&mut Vec::new());
}

#[test]
fn what_happens_is_counted_and_told_in_the_format_that_monitors_read() {
    let node = Node::start();
    let before = samples(&node);
    let names: BTreeSet<&str> = before.keys().map(|(name, _)| name.as_str()).collect();
    let catalogue: BTreeSet<&str> = Metrics::CATALOGUE.iter().map(|entry| entry.name).collect();
    assert_eq!(names, catalogue, "no more and no less is told than the catalogue names");
    life(&node);
    let after = samples(&node);
    assert!(before.keys().eq(after.keys()), "what happens makes no new series");
    let rose = |name: &str, labels: &[&str], least: f64| {
        let [before, after] = [&before, &after].map(|samples| sum(samples, name, labels));
        assert!(after - before >= least, "{name} {labels:?}: {before} {after}");
    };
    let http = "door=\"http\"";
    rose("weft_doors_requests_total", &[http, "work=\"write\"", "outcome=\"done\""], 1.0);
    rose("weft_doors_requests_total", &[http, "work=\"read\"", "outcome=\"done\""], 2.0);
    rose("weft_doors_requests_total", &[http, "work=\"read\"", "outcome=\"refused\""], 2.0);
    rose("weft_doors_requests_total", &["door=\"native\"", "work=\"rights\"", "outcome=\"done\""], 2.0);
    for labels in [[http, "work=\"write\""], ["door=\"native\"", "work=\"rights\""]] {
        rose("weft_doors_request_seconds_total", &labels, 1e-6);
        assert!(sum(&after, "weft_doors_request_seconds_total", &labels) < 600.0);
    }
    rose("weft_doors_errors_total", &[http, "kind=\"unauthenticated\""], 1.0);
    rose("weft_doors_errors_total", &["door=\"native\"", "kind=\"not-found\""], 1.0);
    rose("weft_doors_connections_opened_total", &[http], 5.0);
    rose("weft_doors_connections_opened_total", &["door=\"native\""], 5.0);
    rose("weft_doors_handshakes_failed_total", &[], 1.0);
    rose("weft_doors_moved_bytes_total", &[http, "flow=\"in\""], 300_000.0);
    rose("weft_doors_moved_bytes_total", &[http, "flow=\"out\""], 600_000.0);
    rose("weft_mover_moved_bytes_total", &["flow=\"in\""], 300_000.0);
    rose("weft_mover_moved_bytes_total", &["flow=\"out\""], 600_000.0);
    for name in ["commits_total", "log_bytes_total", "flushes_total", "flush_seconds_total"] {
        rose(&format!("weft_kv_{name}"), &[], f64::MIN_POSITIVE);
    }
    rose("weft_auth_logins_total", &["evidence=\"password\"", "outcome=\"refused\""], 1.0);
    rose("weft_auth_logins_total", &["evidence=\"password\"", "outcome=\"done\""], 1.0);
    rose("weft_auth_capabilities_total", &[], 2.0);
    rose("weft_auth_withdrawals_total", &["what=\"container\""], 1.0);
    rose("weft_auth_revocations_total", &[], 1.0);
    let is = |name: &str| sum(&after, name, &[]);
    assert_eq!((is("weft_node_ready"), is("weft_node_build_info")), (1.0, 1.0));
    assert_eq!((is("weft_auth_audit_lost_total"), is("weft_doors_turned_away_total")), (0.0, 0.0));
    assert!(is("weft_store_free_bytes") <= is("weft_store_size_bytes") && is("weft_store_free_bytes") > 0.0);
    assert!(is("weft_process_resident_bytes") > 1e6 && is("weft_process_descriptors") > 5.0);
    assert!(is("weft_process_descriptors") < is("weft_process_descriptors_max"));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    assert!((0.0..3600.0).contains(&(now - is("weft_node_start_seconds"))));
    // What was open is open no more.
    let until = Instant::now() + Duration::from_secs(30);
    while sum(&samples(&node), "weft_doors_connections", &[http])
        + sum(&samples(&node), "weft_volume_opens", &[])
        > 0.0
    {
        assert!(Instant::now() < until, "something is still open");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn monitors_ask_on_the_loopback_and_get_nothing_of_the_tree() {
    let mut node = Node::start();
    let http = monitor(&node);
    let told = |answer: Answer| (answer.status, String::from_utf8(answer.body).expect("text"));
    assert_eq!(told(http.get("/healthz")), (200, "alive\n".to_owned()));
    assert_eq!(told(http.get("/readyz")), (200, "ready\n".to_owned()));
    assert_eq!(node.http(Some(&node.token())).put("/metrics", b"mine").status, 201);
    assert!(http.get("/metrics").body.starts_with(b"# HELP"), "names of the tree are not in its way");
    assert_eq!(node.http(Some(&node.token())).bytes("/metrics"), b"mine");
    for (method, target, status) in [
        ("GET", "/f", 404),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("PUT", "/f", 405),
        ("DELETE", "/metrics", 405),
        ("GET", "http://elsewhere.example/metrics", 421),
    ] {
        assert_eq!(http.ask(method, target, &[], b"").status, status, "{method} {target}");
    }
    let head = http.ask("HEAD", "/healthz", &[], b"");
    assert!(
        head.status == 200 && head.body.is_empty() && head.head.contains("Content-Length: 6"),
        "{}",
        head.head
    );
    // What is no request is told so, and what says nothing keeps nobody else.
    let address = node.ready()["monitor"].as_str().expect("told")["http://".len()..].to_owned();
    let address: SocketAddr = address.parse().expect("an address");
    assert!(address.ip().is_loopback());
    let idle = TcpStream::connect(address).expect("it listens");
    let mut odd = TcpStream::connect(address).expect("it listens");
    odd.write_all(b"GET /metrics\nHost: x\n\n").expect("it is sent");
    assert_eq!(answer(odd).status, 400);
    assert_eq!(http.get("/healthz").status, 200);
    drop(idle);
    node.stop();
    // Wherever HTTP listens, and not at all if that is said.
    node.start_with(&["--http", "0.0.0.0:0", "--monitor", "off"]);
    assert!(node.run(&["config", "show", "--effective"]).ok().contains("monitor.listen"));
}

#[test]
fn a_node_with_a_full_disk_lives_and_is_not_ready() {
    const TEST: &str = "monitor::a_node_with_a_full_disk_lives_and_is_not_ready";
    let mut node = Node::unstarted();
    let Some(_small) = Small::mount(TEST, &node, "48m") else { return };
    node.allow("space");
    node.up();
    let ready = monitor(&node).get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("the disk is full"), "{}", ready.text());
    assert_eq!(monitor(&node).get("/healthz").status, 200);
    assert_eq!(sum(&samples(&node), "weft_node_ready", &[]), 0.0);
}

#[test]
fn a_node_that_stops_says_so_lets_nobody_in_and_ends_what_is_under_way() {
    let mut node = Node::start();
    let bytes = noise(5, 48 << 20);
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/big", &bytes).status, 201);
    let (address, told) = (node.address(), monitor(&node));
    let mut download = http.begin("GET", "/big", &[]);
    let mut first = [0; 4096];
    download.read_exact(&mut first).expect("it has begun");
    let begun = Instant::now();
    kill_process(Pid::from_raw(node.pid() as i32).expect("an id"), Signal::TERM).expect("it runs");
    let refused = || TcpStream::connect(address).is_err();
    while told.get("/readyz").status != 503 || !refused() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it lets others in");
        std::thread::sleep(Duration::from_millis(10));
    }
    let why = told.get("/readyz");
    assert!(why.text().contains("stopping"), "{}", why.text());
    assert_eq!((told.get("/healthz").status, sum(&samples(&node), "weft_node_ready", &[])), (200, 0.0));
    let mut rest = first.to_vec();
    download.read_to_end(&mut rest).expect("it comes to its end");
    let end = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert!(rest[end..] == bytes, "it is whole");
    drop(download);
    assert!(node.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(20), "the bound of the drain: {:?}", begun.elapsed());
    node.up();
    assert_eq!(monitor(&node).get("/readyz").status, 200);
}

/// Which files are ready at the same time is the machine's affair; of so many, most are.
#[test]
fn small_files_that_are_copied_together_share_messages_and_a_large_one_goes_alone() {
    let node = Node::start();
    let tree = node.make_dir("tree");
    let files = 300_u64;
    for n in 0..files {
        give(&node.write(&format!("tree/f{n}"), noise(n, 100)));
    }
    give(&node.write("tree/large", noise(9, 100_000)));
    give(&tree);
    let labels = ["door=\"native\"", "work=\"write\"", "outcome=\"done\""];
    let writes = || sum(&samples(&node), "weft_doors_requests_total", &labels) as u64;
    let before = writes();
    node.run(&["import", "tree", "/copy"]).ok();
    let messages = writes() - before;
    println!("{messages} messages for {files} files");
    assert!((1 + files.div_ceil(64)..files / 4).contains(&messages), "{messages} messages");
    let copied = node.run(&["find", "/copy"]).ok();
    assert_eq!(copied.lines().count() as u64, 2 + files);
}
