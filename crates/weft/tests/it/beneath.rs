//! A node that is killed and stopped under load beneath a mount that stands: its programs go on once it is there again, what
//! they were told is on the disk is there, and nothing is there twice. `python/beneath.py` looks.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_conformance::file_system::site::Dice;
use weft_conformance::run::{full, have, seed_or_fresh};

use crate::node::Node;
use crate::under_load::Load;

const PROGRAMS: &str = include_str!("../python/beneath.py");
const NAMES: [&str; 4] = ["replaces-managed", "appends-managed", "replaces-share", "appends-share"];

/// How long all may take to go on: a call waits for its node for half a minute at most, and may be begun anew once.
const GOES_ON: Duration = Duration::from_secs(90);

#[test]
fn programs_on_a_mount_whose_node_is_killed_and_stopped_go_on_and_lose_nothing_that_was_synced() {
    if !have("beneath::node", &["python3", "fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    node.make_dir("shared");
    node.run(&["share", "shared", "/share"]).ok();
    node.run(&["mkdir", "/managed"]).ok();
    let mount = node.mount("mnt");
    let mut load =
        Load::start(&node, "beneath.py", PROGRAMS, &[&mount.join("managed"), &mount.join("share")], &NAMES);
    load.goes_on(GOES_ON);
    let seed = seed_or_fresh();
    let mut dice = Dice::new(seed);
    println!("again at these moments with WEFT_SEED={seed}");
    for round in 0..if full() { 50 } else { 5 } {
        std::thread::sleep(Duration::from_micros(dice.roll(300_000)));
        let began = Instant::now();
        let is_stopped = round % 3 == 2;
        if is_stopped {
            let pid = Pid::from_raw(node.pid() as i32).expect("a process");
            kill_process(pid, Signal::STOP).expect("it is ours");
            std::thread::sleep(Duration::from_millis(200 + dice.roll(800)));
            kill_process(pid, Signal::CONT).expect("it is ours");
        } else {
            node.kill();
            node.up();
        }
        load.goes_on(GOES_ON);
        let what = if is_stopped { "stopped" } else { "killed" };
        println!("round {round}: {what}, {:?} until all went on: {:?}", began.elapsed(), load.rounds());
    }
    load.end();
}
