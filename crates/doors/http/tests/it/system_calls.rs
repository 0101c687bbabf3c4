//! What a small GET and a large PUT cost the kernel: the figures that a noisy machine cannot touch.

use std::process::Command;

use weft_conformance::run::have;

use crate::beside::Beside;
use crate::house::PASSWORD;

/// System calls that one GET of 1 KiB on a kept connection may take.
const PER_GET_MAX: f64 = 6.0;

/// Calls on the network's side that one MiB of a large PUT may take: woken for every packet, it
/// takes 25 and more. (What the in-memory files cost is not the door's.)
const PER_PUT_MIB_MAX: f64 = 12.0;
const ON_THE_NETWORK: [&str; 3] = ["recvfrom", "epoll_wait", "setsockopt"];

#[test]
fn a_large_put_is_not_read_packet_by_packet() {
    if !have("system_calls::put", &["strace", "curl"]) {
        return;
    }
    const MIB: usize = 128;
    let dir = tempfile::tempdir().expect("a directory");
    let (table, large) = (dir.path().join("calls"), dir.path().join("large"));
    std::fs::write(&large, vec![7; MIB << 20]).expect("it is written");
    let beside = Beside::start(&["strace", "-f", "-c", "-o", table.to_str().expect("a plain path")]);
    let url = format!("http://{}/large", beside.address);
    let put = Command::new("curl")
        .args(["-sf", "-H", "Expect:", "-u", &format!("alice:{PASSWORD}"), "-T"])
        .arg(&large)
        .arg(&url)
        .status()
        .expect("it runs");
    beside.stop();
    assert!(put.success(), "{put}");
    let counted = std::fs::read_to_string(&table).expect("strace wrote its table");
    let calls = ON_THE_NETWORK.map(|name| calls_of(&counted, name)).iter().sum::<f64>() / MIB as f64;
    println!("{calls:.1} system calls for each MiB of a PUT");
    assert!(calls <= PER_PUT_MIB_MAX, "{counted}");
}

/// Returns how many calls of a name, or in `total`, strace counted.
fn calls_of(counted: &str, name: &str) -> f64 {
    let line = counted.lines().find(|line| line.split_whitespace().last() == Some(name));
    line.expect("a line of its own").split_whitespace().nth(3).expect("calls").parse().expect("a number")
}

#[test]
fn a_small_get_takes_few_system_calls() {
    if !have("system_calls::get", &["strace", "wrk"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let table = dir.path().join("calls");
    let beside = Beside::start(&["strace", "-f", "-c", "-o", table.to_str().expect("a plain path")]);
    let url = format!("http://{}/public/1k", beside.address);
    let wrk = Command::new("wrk").args(["-c16", "-t1", "-d2s", &url]).output().expect("it runs");
    beside.stop();
    let said = String::from_utf8(wrk.stdout).expect("text");
    let line = said.lines().find(|line| line.contains("requests in")).expect("a count");
    let requests: f64 = line.split_whitespace().next().expect("a number").parse().expect("a number");
    let counted = std::fs::read_to_string(&table).expect("strace wrote its table");
    let calls = calls_of(&counted, "total");
    println!("{:.2} system calls for each GET of 1 KiB ({requests} of them)", calls / requests);
    assert!(requests > 500.0, "{said}");
    assert!(calls / requests <= PER_GET_MAX, "{counted}");
}
