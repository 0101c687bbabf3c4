//! What a small GET costs the kernel: the one figure that a noisy machine cannot touch.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::house::House;

/// System calls that one GET of 1 KiB on a kept connection may take.
const PER_GET_MAX: f64 = 6.0;

/// Not a test: the other half of the one below, in a process of its own so that nothing else is
/// counted. Serves until its input ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other half of a_small_get_takes_few_system_calls"]
async fn serves_until_told() {
    let house = House::open().await;
    house.put("public/1k", vec![b'x'; 1024]).await;
    println!("\nserving {}", house.url("/public/1k"));
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.expect("it runs").expect("input ends");
}

#[test]
fn a_small_get_takes_few_system_calls() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = dir.path().join("calls");
    let mut served = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(&table)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "system_calls::serves_until_told", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("strace is installed (./test installs it)");
    let mut lines = BufReader::new(served.stdout.take().expect("piped")).lines();
    let url = lines.find_map(|line| line.expect("text").strip_prefix("serving ").map(str::to_owned));
    let url = url.expect("it says where it serves");
    let wrk = Command::new("wrk").args(["-c16", "-t1", "-d2s", &url]).output().expect("wrk is installed");
    drop(served.stdin.take());
    served.wait().expect("it ends");
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
