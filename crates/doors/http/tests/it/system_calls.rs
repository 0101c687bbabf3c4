//! What a small GET costs the kernel: the one figure that a noisy machine cannot touch.

use std::process::Command;

use crate::beside::Beside;

/// System calls that one GET of 1 KiB on a kept connection may take.
const PER_GET_MAX: f64 = 6.0;

#[test]
fn a_small_get_takes_few_system_calls() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = dir.path().join("calls");
    let beside = Beside::start(&["strace", "-f", "-c", "-o", table.to_str().expect("a plain path")]);
    let url = format!("http://{}/public/1k", beside.address);
    let wrk = Command::new("wrk")
        .args(["-c16", "-t1", "-d2s", &url])
        .output()
        .expect("wrk is installed (./test installs it)");
    beside.stop();
    let said = String::from_utf8(wrk.stdout).expect("text");
    let line = said.lines().find(|line| line.contains("requests in")).expect("a count");
    let requests: f64 = line.split_whitespace().next().expect("a number").parse().expect("a number");
    let counted = std::fs::read_to_string(&table).expect("strace wrote its table");
    let total = counted.lines().find(|line| line.trim_end().ends_with("total")).expect("a total");
    let calls: f64 = total.split_whitespace().nth(3).expect("calls").parse().expect("a number");
    println!("{:.2} system calls for each GET of 1 KiB ({requests} of them)", calls / requests);
    assert!(requests > 500.0, "{said}");
    assert!(calls / requests <= PER_GET_MAX, "{counted}");
}
