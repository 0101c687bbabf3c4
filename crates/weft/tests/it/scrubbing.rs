//! The scrubber of a node that runs: what it finds is told to whoever asks how the node is.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::corrupt::find;
use crate::http::Http;
use crate::node::{Node, Said, noise, soon};

const BLOCK: usize = 1 << 20;

#[track_caller]
fn document(said: &Said) -> Value {
    serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {}{}", said.out, said.err))
}

/// Flips a byte of a stopped node's file, where it lies.
fn flip(node: &Node, bytes: &[u8], place: usize) {
    let (path, at) = find(&node.data().join("objects"), &bytes[place..place + 32]).expect("it is there");
    let file = fs::File::options().write(true).open(path).expect("opened");
    file.write_all_at(&[bytes[place] ^ 0x10], at as u64).expect("written");
}

fn metrics(node: &Node) -> String {
    let url = node.ready()["monitor"].as_str().expect("it is told").to_owned();
    let address = url.trim_start_matches("http://").parse().expect("an address");
    Http::new(address, None).get("/metrics").text()
}

#[test]
fn a_byte_that_changed_on_disk_is_told_by_status_doctor_and_monitors_until_it_is_replaced() {
    let mut node = Node::start();
    for text in ["stored bytes", "damaged", "at /hurt"] {
        node.allow(text);
    }
    let (hurt, whole) = (noise(1, 4 * BLOCK), noise(2, 3 * BLOCK));
    let http = node.http(Some(&node.token()));
    assert_eq!((http.put("/hurt", &hurt).status, http.put("/whole", &whole).status), (201, 201));
    let said = node.run(&["scrub", "--wait"]).ok();
    assert!(said.starts_with("at rest; last to its end: 2") && !said.contains("damaged"), "{said}");
    node.run(&["status"]).ok();
    node.stop();
    flip(&node, &hurt, BLOCK + 5000);
    node.up();
    node.run(&["status"]).ok();
    let said = node.run(&["scrub", "--wait"]);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    let what = format!("/hurt: bytes {BLOCK} to {} do not match their checksum (found 2", 2 * BLOCK);
    assert!(said.out.contains(&format!("damaged  {what}")), "{}", said.out);
    // It is remembered over a restart, and logged once.
    let logged = node.log().matches("stored bytes do not match").count();
    node.stop();
    node.up();
    for round in 0..2 {
        let said = node.run(&["status"]);
        assert_eq!(said.code, 1, "{}", said.out);
        assert!(said.out.contains(&format!("degraded {what}")), "{}", said.out);
        if round == 0 {
            assert_eq!(node.run(&["scrub", "--wait"]).code, 1);
        }
    }
    assert_eq!((logged, node.log().matches("stored bytes do not match").count()), (1, 1));
    let told = &document(&node.run(&["status", "--json"]))["scrub"];
    let damaged = &told["damaged"][0];
    assert_eq!((&damaged["files"], &damaged["from"]), (&json!(["/hurt"]), &json!(BLOCK)), "{told}");
    assert!(told["ended"].is_i64() && told["bytes_per_second"] == 8 << 20, "{told}");
    assert_eq!(document(&node.run(&["scrub", "status", "--json"])), *told);
    assert!(node.run(&["doctor"]).out.contains(&format!("doubtful: {what}")));
    assert!(metrics(&node).contains("\nweft_store_damaged 1\n"));
    // Nobody else may ask, nor learn of it.
    let token = node.add_user("alice", "wonder");
    node.run_with(&token, &["scrub"]).fails(3, &["error:"]);
    assert_eq!(document(&node.run_with(&token, &["status", "--json"]))["scrub"], Value::Null);
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/hurt", &hurt).status, 204);
    soon("it is whole", || node.run(&["status"]).code == 0);
    assert!(!node.run(&["scrub", "--wait"]).ok().contains("damaged"));
}

#[test]
fn the_scrubber_is_switched_off_and_on_while_the_node_runs() {
    let mut node = Node::start();
    let file = node.data().join("weft.toml");
    let say = |node: &Node, text: &str| {
        fs::write(&file, text).expect("written");
        crate::node::give(&file);
        let before = node.log().matches("was read again").count();
        kill_process(Pid::from_raw(node.pid() as i32).expect("an id"), Signal::HUP).expect("it runs");
        soon("it was read", || node.log().matches("was read again").count() > before);
    };
    say(&node, "scrub = \"off\"\n");
    node.run(&["scrub"]).fails(1, &["error: the scrubber is switched off", "hint: set `scrub`"]);
    assert!(node.run(&["scrub", "status"]).ok().starts_with("switched off; last to its end: never"));
    say(&node, "scrub = \"64M\"\n");
    assert_eq!(document(&node.run(&["scrub", "status", "--json"]))["bytes_per_second"], 64 << 20);
    node.run(&["scrub", "--wait"]).ok();
    // Whoever waits for a round is told that it does not come to its end.
    let http = node.http(Some(&node.token()));
    assert_eq!(http.put("/large", &noise(3, 20 * BLOCK)).status, 201);
    say(&node, "scrub = \"64K\"\n");
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| node.run(&["scrub", "--wait"]));
        soon("it has begun", || document(&node.run(&["scrub", "status", "--json"]))["began"].is_i64());
        say(&node, "scrub = \"off\"\n");
        let said = waiting.join().expect("no panic");
        said.fails(1, &["error: cannot wait for the scrubber: it was switched off", "hint: set `scrub`"]);
    });
    // Another that is asked for meanwhile comes after, and is what is waited for.
    say(&node, "scrub = \"1M\"\n");
    let rounds = || document(&node.run(&["scrub", "status", "--json"]))["rounds"].as_u64().expect("a number");
    let before = rounds();
    assert!(node.run(&["scrub"]).ok().contains(", and another after that; last"));
    say(&node, "scrub = \"1G\"\n");
    node.run(&["scrub", "--wait"]).ok();
    // The round under way, and that which was asked for, may have ended before the wait asked for one of its own.
    assert!((before + 1..=before + 3).contains(&rounds()), "{before}, {}", rounds());
    for wrong in ["0", "10", "fast"] {
        let file = node.write("other.toml", format!("scrub = \"{wrong}\"\n"));
        let said = node.run(&["config", "check", "--config", file.to_str().expect("plain")]);
        assert!(said.code == 1 && said.out.contains("other.toml:1"), "{wrong}: {}", said.out);
    }
    node.allow("could not");
}
