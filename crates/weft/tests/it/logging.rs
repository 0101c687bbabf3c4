//! The node's log: lines for people or programs, each with the request it is about, in files that are put
//! aside when they are full, and no secret in any.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::http::{Answer, Http};
use crate::node::Node;

/// A node that logs everything it can to a file of its own, and says so in its configuration.
fn talkative(more: &str) -> Node {
    let mut node = Node::unstarted();
    let log = node.path("node.log");
    let text = format!("log = \"trace\"\nlog_to = \"{}\"\n{more}", log.display());
    let file = node.write("weft.toml", text);
    node.start_with(&["--config", file.to_str().expect("plain")]);
    node.up();
    node
}

/// Waits until the log's file says something, and returns all of it.
fn said(path: &Path, text: &str) -> String {
    let begun = Instant::now();
    loop {
        let log = fs::read_to_string(path).unwrap_or_default();
        if log.contains(text) {
            return log;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "`{text}` is not in: {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The trace that an answer of a problem shows.
fn trace(answer: &Answer) -> String {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("a problem in JSON");
    body["trace"].as_str().expect("a trace").to_owned()
}

#[test]
fn lines_for_programs_are_one_object_each_with_the_trace_that_the_answer_shows() {
    let node = talkative("log_format = \"json\"\n");
    let trace = trace(&Http::basic(node.address(), "nobody", "wrong").get("/there/is/none"));
    let log = said(&node.path("node.log"), &trace);
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let of_request: Vec<_> = lines.iter().filter(|line| line["trace"] == trace.as_str()).collect();
    assert!(!of_request.is_empty(), "{log}");
    let request =
        of_request.iter().find(|line| line["message"] == "request").expect("the request has a line");
    for (field, value) in [("door", "http"), ("op", "GET"), ("path", "/there/is/none")] {
        assert_eq!(request[field], value, "{request}");
    }
    assert!(request["timestamp"].is_string() && request["level"] == "DEBUG", "{request}");
    let mode = fs::metadata(node.path("node.log")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
    assert!(!node.log().contains("DEBUG"), "it is not said twice");
}

#[test]
fn no_secret_is_in_any_line_however_it_came() {
    let mut node = talkative("");
    let token = node.add_user("alice", "correct-horse-battery");
    let admin = node.http(Some(&node.token()));
    assert_eq!(admin.put("/f", b"text").status, 201);
    let made = node.run(&["link", "create", "/f", "--json"]).json().remove(0);
    let url = made["url"].as_str().expect("an address").to_owned();
    let path = url.splitn(4, '/').nth(3).expect("a path").to_owned();
    let secret = path.split('/').nth(2).expect("a secret").to_owned();
    assert!(secret.len() > 10, "{url}");
    let asks = Http::new(node.address(), None);
    let targets = [
        format!("/{path}"),
        format!("/.weft/link/{secret}"),
        format!("/%2eweft/link/{secret}/f"),
        format!("/.weft/l%69nk/{secret}"),
        format!("/%252eweft/link/{secret}"),
        format!("//.weft/link/{secret}/f"),
        format!("/.weft/./link/{secret}"),
        format!("/x/../.weft/link/{secret}"),
        format!("/.WEFT/link/{secret}"),
    ];
    for target in &targets {
        for method in ["GET", "PUT", "DELETE", "PROPFIND"] {
            let answer = asks.ask(method, target, &[], b"");
            assert!(answer.status > 0, "{method} {target}");
        }
    }
    assert_eq!(asks.bytes(&format!("/%2eweft/link/{secret}/f")), b"text", "coded, it is the same link");
    Http::basic(node.address(), "alice", "correct-horse-battery").get("/f");
    Http::basic(node.address(), "alice", "wrong-horse-battery").get("/f");
    Http::new(node.address(), Some(&token)).get("/f");
    asks.ask("GET", "/f?password=correct-horse-battery", &["Cookie: weft=correct-horse-battery"], b"");
    node.run_with(&token, &["ls", "/"]);
    let marker = "/the/last/of/them";
    asks.get(marker);
    let log = said(&node.path("node.log"), marker);
    assert!(log.contains("/.weft/link/..."), "links are told of");
    // Whole, and the part of a token that opens it.
    let stderr = node.log();
    let token_tail = &token[token.len() - 24..];
    for (what, secret) in [
        ("a password", "correct-horse"),
        ("a wrong password", "wrong-horse"),
        ("a link", secret.as_str()),
        ("a token", token_tail),
    ] {
        let line = log.lines().chain(stderr.lines()).find(|line| line.contains(secret));
        assert_eq!(line, None, "{what} is in the log");
    }
    node.stop();
}

#[test]
fn full_files_are_put_aside_and_another_program_may_put_them_aside_too() {
    let node = talkative("log_bytes = \"64K\"\nlog_kept = \"2\"\n");
    let http = Http::new(node.address(), None);
    let log = node.path("node.log");
    let begun = Instant::now();
    while !node.path("node.log.2").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not put aside");
        http.get("/some/path/that/is/not/there");
    }
    for name in ["node.log.1", "node.log.2"] {
        let metadata = fs::metadata(node.path(name)).expect("it is there");
        assert!((32 << 10..=64 << 10).contains(&metadata.len()), "{name}: {}", metadata.len());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
    }
    // As logrotate does it.
    fs::rename(&log, node.path("moved")).expect("renamed");
    kill_process(Pid::from_raw(node.pid() as i32).expect("an id"), Signal::HUP).expect("it runs");
    said(&log, "the configuration was read again");
}

#[test]
fn a_log_that_cannot_be_written_fails_the_start_and_says_why() {
    let mut node = Node::unstarted();
    for (log_to, words) in [("/none/of/these/log", "/none/of/these/log"), ("/dev/null", "regular file")] {
        let file = node.write("weft.toml", format!("log_to = \"{log_to}\"\n"));
        node.start_with(&["--config", file.to_str().expect("plain")]);
        let said = node.try_up().expect_err("it cannot start");
        assert!(said.code != 0 && said.err.contains(words), "{}", said.err);
    }
}
