//! The door in a process of its own, where nothing but the door is counted or weighed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::house::House;

/// Set in that process.
const CHILD: &str = "WEFT_TEST_CHILD";

/// Not a test: what runs in that process. Serves until its input ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_until_told() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    weft_sys::net::raise_descriptor_limit();
    let house = House::open().await;
    house.put("public/1k", vec![b'x'; 1024]).await;
    println!("\nserving {}", house.address);
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.expect("it runs").expect("input ends");
}

pub struct Beside {
    child: Child,
    pub address: String,
}

impl Beside {
    /// Starts the door under `wrapper`, a program that runs the command it is given; itself if
    /// there is none.
    pub fn start(wrapper: &[&str]) -> Self {
        let own = std::env::current_exe().expect("this program");
        let own = own.to_str().expect("a plain path");
        let line: Vec<&str> =
            [wrapper, &[own, "--exact", "beside::serves_until_told", "--nocapture"]].concat();
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .env(CHILD, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be run: {error}", line[0]));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = lines.find_map(|line| line.expect("text").strip_prefix("serving ").map(str::to_owned));
        // What it says later is of no interest, but the pipe must stay open.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("it says where it serves") }
    }

    /// Returns the bytes of memory it holds.
    pub fn resident_bytes(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).expect("it runs");
        let pages: usize = statm.split(' ').nth(1).expect("resident pages").parse().expect("a number");
        pages * 4096
    }

    /// Ends it and waits until it has ended.
    pub fn stop(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
