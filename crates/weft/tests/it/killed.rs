//! Kill -9 at random moments under load, through each way in: what was acknowledged is
//! there, and nothing half made is visible.
//!
//! The load maker is a process of its own that logs each acknowledgement after it
//! arrived (`python/load.py`); a script reads everything back over HTTP after the
//! restart (`python/readback.py`). Five rounds a way, 100 with `WEFT_TEST_FULL=1`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use weft_conformance::file_system::site::Dice;
use weft_conformance::run::{full, have, seed_or_fresh};

use crate::node::{Node, python, signal, wait, weft};

const LOAD: &str = include_str!("../python/load.py");
const READBACK: &str = include_str!("../python/readback.py");
const PLACE: &str = include_str!("../python/place.py");

/// What makes the load of a way, and what reads it back.
fn scripts(way: &str) -> (&'static str, &'static str) {
    if way == "place" { (PLACE, PLACE) } else { (LOAD, READBACK) }
}

/// A load maker, killed with its test.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        signal(&self.0, Signal::KILL);
        let _ = self.0.wait();
    }
}

fn rounds() -> u64 {
    if full() { 100 } else { 5 }
}

/// How long after its first acknowledgements a round's node is killed: within about half a second,
/// and another in each run.
fn moment(dice: &mut Dice) -> Duration {
    Duration::from_micros(100_000 + dice.roll(500_000))
}

fn load(node: &Node, way: &str, round: u64, target: &[&str]) -> Load {
    let script = node.write("load.py", scripts(way).0);
    let said = fs::File::options().create(true).append(true).open(node.path("load.err")).expect("opened");
    let mut command = node.as_user(python());
    command.arg(script).args([way]).arg(node.path("acks")).arg(round.to_string()).args(target);
    Load(command.stdout(Stdio::null()).stderr(said).spawn().expect("python starts"))
}

/// Waits until the log has grown, so that the node is killed under load.
fn wait_for_acknowledgements(log: &PathBuf, beyond: usize) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while acknowledgements(log) <= beyond + 3 {
        assert!(std::time::Instant::now() < until, "nothing was acknowledged");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn acknowledgements(log: &PathBuf) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().filter(|line| line.starts_with("done")).count())
}

/// Reads everything back; returns how many acknowledgements hold.
fn read_back(node: &Node, way: &str, round: u64) -> usize {
    let script = node.write("readback.py", scripts(way).1);
    let mut command = node.as_user(python());
    command.arg(script).arg(node.address().to_string()).arg(node.token()).arg(node.path("acks"));
    let output = command.output().expect("python starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "round {round}:\n{said}{errors}");
    said.split(' ').next().and_then(|count| count.parse().ok()).expect("a count")
}

fn rounds_through(way: &str, programs: &[&str]) {
    if !have(&format!("killed::{way}"), programs) {
        return;
    }
    let mut node = Node::start();
    // Of the load itself: its connections break when the node goes.
    node.allow("cut off");
    let log = node.write("acks", "");
    let scratch = node.make_dir("scratch").display().to_string();
    let (mut held, mut slowest) = (0, Duration::ZERO);
    // The moments are the seed's. What the load has come to by then is the machine's.
    let seed = seed_or_fresh();
    let mut dice = Dice::new(seed);
    println!("{way}: again at these moments with WEFT_SEED={seed}");
    for round in 0..rounds() {
        let before = acknowledgements(&log);
        let mount = matches!(way, "mount" | "place").then(|| node.mount(&format!("mnt{round}")));
        let (address, token) = (node.address().to_string(), node.token());
        let at = mount.as_ref().map(|m| m.display().to_string()).unwrap_or_default();
        let binary = weft().display().to_string();
        let target: &[&str] = match way {
            "http" => &[&address, &token],
            "cli" => &[&binary, &scratch],
            _ => &[&at],
        };
        let mut maker = load(&node, way, round, target);
        wait_for_acknowledgements(&log, before);
        let moment = moment(&mut dice);
        std::thread::sleep(moment);
        node.kill();
        let known = acknowledgements(&log);
        println!("{way}, round {round}: killed {moment:?} into the load, {known} acknowledgements known");
        if let Some(mount) = mount {
            // The mount would wait for the node to come back, and the load with it.
            signal(&maker.0, Signal::KILL);
            node.unmount(&mount);
        }
        wait(&mut maker.0);
        let start = std::time::Instant::now();
        node.up();
        slowest = slowest.max(start.elapsed());
        held = read_back(&node, way, round);
    }
    println!("{way}: {held} acknowledgements hold after {} kills; slowest start {slowest:?}", rounds());
}

#[test]
fn what_http_acknowledged_survives_kill_9() {
    rounds_through("http", &["python3"]);
}

#[test]
fn what_the_cli_acknowledged_survives_kill_9() {
    rounds_through("cli", &["python3"]);
}

#[test]
fn what_the_mount_acknowledged_survives_kill_9() {
    rounds_through("mount", &["python3", "fusermount3"]);
}

/// What was flushed is there; of what was not, each page is as it was or as it was to be.
#[test]
fn what_was_written_in_place_through_the_mount_survives_kill_9() {
    rounds_through("place", &["python3", "fusermount3"]);
}

#[test]
fn the_read_back_finds_what_is_wrong() {
    if !have("killed::readback", &["python3"]) {
        return;
    }
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    http.put("/a", b"right");
    let script = node.write("readback.py", READBACK);
    let check = |log: &str| {
        node.write("acks", log);
        let mut command = node.as_user(python());
        command.arg(&script).arg(node.address().to_string()).arg(node.token()).arg(node.path("acks"));
        let output = command.output().expect("python starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    const RIGHT: &str = "5:";
    let sum = check("done a x\n").1;
    let sum = sum.split_whitespace().find(|word| word.starts_with(RIGHT)).expect("the sum").to_owned();
    let sum = sum.trim_end_matches(',').to_owned();
    assert!(check(&format!("try a {sum}\ndone a {sum}\n")).0);
    assert!(check(&format!("done a 1:x\ntry a {sum}\n")).0, "an act without an answer may have happened");
    for (wrong, log) in [
        ("lost", format!("done a {sum}\ndone b {sum}\n")),
        ("old", format!("done a {sum}\ndone a 1:x\n")),
        ("not removed", format!("done a {sum}\ndone a gone\n")),
        ("made by nobody", String::new()),
    ] {
        assert!(!check(&log).0, "{wrong} is not found");
    }
}

#[test]
fn the_read_back_finds_pages_that_are_wrong() {
    if !have("killed::readback_pages", &["python3"]) {
        return;
    }
    let node = Node::start();
    let http = node.http(Some(&node.token()));
    let page = |number: u64, index: u64| [number.to_be_bytes(), index.to_be_bytes()].concat().repeat(256);
    let file =
        |numbers: &dyn Fn(u64) -> u64| -> Vec<u8> { (0..200).flat_map(|n| page(numbers(n), n)).collect() };
    let script = node.write("place.py", PLACE);
    let holds = |bytes: &[u8], log: &str| {
        http.put("/place-0", bytes);
        node.write("acks", log);
        let mut command = node.as_user(python());
        command.arg(&script).arg(node.address().to_string()).arg(node.token()).arg(node.path("acks"));
        command.output().expect("python starts").status.success()
    };
    let made = "try place-0 1 0 200\ndone place-0 1\n";
    let second = format!("{made}try place-0 2 3 5\n");
    let (first, half) = (file(&|_| 1), file(&|n| 1 + u64::from((3..6).contains(&n))));
    assert!(holds(&first, made) && holds(&first, &second), "nothing of it was there");
    assert!(holds(&half, &second), "some pages of a write that was not flushed");
    assert!(!holds(&half, made), "a page that nobody wrote");
    assert!(!holds(&half, &format!("{second}done place-0 2\n")), "a page that was flushed and is not there");
    assert!(!holds(&first[..4096 * 199], made), "a page is missing");
    let mut torn = half.clone();
    torn[4096 * 3 + 100] ^= 1;
    assert!(!holds(&torn, &second), "a page of no write");
}
