//! A mount whose process is killed is served on by another, and programs on it notice nothing: under load, at random moments,
//! ten times over, 100 with `WEFT_TEST_FULL=1`. Where that cannot be, calls fail at once.
//!
//! The programs are those of `python/taking_over.py`: each looks at its own bytes, names and locks all the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_conformance::file_system::site::Dice;
use weft_conformance::run::{full, have, seed_or_fresh};
use weft_core::limits;

use crate::node::{Node, noise, soon};
use crate::under_load::Load;

const PROGRAMS: &str = include_str!("../python/taking_over.py");
const NAMES: [&str; 10] =
    ["reads", "makes", "appends", "cuts", "counts1", "counts2", "holds", "has-no-name", "maps", "lists"];

/// How long all may take to go on.
const GOES_ON: Duration = Duration::from_secs(60);

/// A mount, and its processes.
struct Kept {
    at: PathBuf,
    keeper: Pid,
}

impl Kept {
    fn mount(node: &Node, name: &str) -> Self {
        Self::mount_with(node, name, &[])
    }

    fn mount_with(node: &Node, name: &str, environment: &[(&str, &str)]) -> Self {
        let at = node.make_dir(name);
        let keeper = node.mount_at(&at, &[], environment);
        Self { at, keeper: Pid::from_raw(keeper as i32).expect("a process") }
    }

    /// Returns the process that serves it, if one does.
    fn serves(&self) -> Option<Pid> {
        served_by(self.keeper.as_raw_nonzero().get() as u32)
    }

    /// Kills the process that serves it. Returns which one that was.
    fn kill(&self) -> Pid {
        let serves = self.serves().expect("it is served");
        kill_process(serves, Signal::KILL).expect("it is ours");
        serves
    }

    /// Waits until another process than `before` serves it, and answers.
    fn is_taken_over(&self, node: &Node, before: Pid) -> serde_json::Value {
        let answers = |said: &serde_json::Value| {
            let pid = said["standing"]["pid"].as_str().and_then(|pid| pid.parse().ok());
            said["mount"] == "served" && pid.is_some_and(|pid: i32| pid != before.as_raw_nonzero().get())
        };
        let mut said = serde_json::Value::Null;
        soon("another process serves", || {
            let status = node.run(&["--json", "status", self.at.to_str().expect("text")]);
            said = serde_json::from_str(&status.out).unwrap_or_default();
            answers(&said)
        });
        said
    }

    /// Returns whether calls on it fail as on a mount that nobody serves.
    fn is_dead(&self, node: &Node) -> bool {
        let said = node.as_user("stat").arg(self.at.join("nothing of this name")).output().expect("it runs");
        String::from_utf8_lossy(&said.stderr).contains("Transport endpoint is not connected")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Nothing of it is left behind, whatever became of the test: first who would start another.
        let serves = self.serves();
        for pid in [Some(self.keeper), serves].into_iter().flatten() {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            // The number of a process comes again.
            if String::from_utf8_lossy(&line).contains(&*self.at.to_string_lossy()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = weft_sys::mounts::Served::at(&self.at).map(weft_sys::mounts::Served::abort);
        let _ = Command::new("fusermount3").arg("-uzq").arg(&self.at).stderr(Stdio::null()).status();
    }
}

/// Returns the process that serves a mount for its keeper: the last that it started.
pub fn served_by(keeper: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().last()?.parse().ok()?)
}

/// Returns the keeper of a mount that a process serves.
pub fn kept_by(serves: i32) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{serves}/status")).ok()?;
    let keeper = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(keeper.trim().parse().ok()?).filter(|keeper| !keeper.is_init())
}

fn is_there(pid: Pid) -> bool {
    // One that nobody has waited for yet has ended all the same.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Starts the programs on a mount.
fn load(node: &Node, at: &Path) -> Load {
    Load::start(node, "taking_over.py", PROGRAMS, &[at], &NAMES)
}

/// Puts a large file where the programs look for it.
fn large(node: &Node, tree: &str) {
    let bytes = noise(8, 9 << 20);
    node.write("large", &bytes);
    node.run(&["cp", "large", &format!("weft:/{tree}/large")]).ok();
    let scratch = node.make_dir("scratch");
    node.sh("sha256sum large | cut -d' ' -f1 > scratch/large.sum");
    assert!(scratch.join("large.sum").exists());
}

#[test]
fn programs_on_a_mount_notice_nothing_of_its_process_being_killed_again_and_again() {
    if have("taking_over::killed", &["python3", "fusermount3"]) {
        let node = Node::start();
        node.run(&["mkdir", "/managed"]).ok();
        killed_again_and_again(node, "managed", if full() { 100 } else { 10 });
    }
}

#[test]
fn nor_do_those_on_a_share() {
    if have("taking_over::share", &["python3", "fusermount3"]) {
        let node = Node::start();
        node.make_dir("shared");
        node.run(&["share", "shared", "/share"]).ok();
        killed_again_and_again(node, "share", if full() { 100 } else { 5 });
    }
}

/// Kills the process of a mount so many times under programs in a tree.
fn killed_again_and_again(mut node: Node, tree: &str, rounds: u32) {
    large(&node, tree);
    let mount = Kept::mount(&node, "mnt");
    let mut load = load(&node, &mount.at.join(tree));
    load.goes_on(GOES_ON);
    let seed = seed_or_fresh();
    let mut dice = Dice::new(seed);
    println!("again at these moments with WEFT_SEED={seed}");
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let moment = limits::MOUNT_SERVED_WELL + Duration::from_micros(dice.roll(400_000));
        std::thread::sleep(moment);
        let began = Instant::now();
        let before = mount.kill();
        soon("another begins", || mount.serves().is_some_and(|now| now != before));
        load.goes_on(GOES_ON);
        slowest = slowest.max(began.elapsed());
        println!("round {round}: killed {moment:?} after the last, {:?} until all went on", began.elapsed());
    }
    let said = mount.is_taken_over(&node, Pid::INIT);
    assert_eq!(said["standing"]["taken-over"], rounds.to_string(), "{said}");
    assert_eq!(said["standing"]["taken-over-because"], "was ended by signal 9", "{said}");
    load.end();
    println!("killed {rounds} times; at the slowest, all went on after {slowest:?}");
    let serves = mount.serves().expect("it is served");
    node.unmount(&mount.at);
    soon("nobody is left", || !is_there(serves) && !is_there(mount.keeper));
}

#[test]
fn a_mount_that_nobody_can_take_over_fails_at_once_and_leaves_nobody() {
    if !have("taking_over::fails", &["fusermount3", "prlimit"]) {
        return;
    }
    let mut node = Node::start();
    let mount = Kept::mount(&node, "mnt");
    assert!(!mount.is_dead(&node));
    // Its keeper may start no process.
    node.sh(&format!("prlimit --nofile=0:0 --pid {}", mount.keeper.as_raw_nonzero()));
    let began = Instant::now();
    mount.kill();
    soon("it fails", || mount.is_dead(&node));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    soon("nobody is left", || !is_there(mount.keeper));
    node.unmount(&mount.at);
}

#[test]
fn processes_that_die_one_upon_the_other_end_the_mount() {
    if !have("taking_over::deaths", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let mount = Kept::mount(&node, "mnt");
    soon("it is given up", || {
        if let Some(serves) = mount.serves() {
            let _ = kill_process(serves, Signal::KILL);
        }
        !is_there(mount.keeper)
    });
    assert!(mount.is_dead(&node));
    let tmp = fs::read_dir(node.path("tmp")).expect("read").flatten();
    let log: String = tmp.filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect();
    for said in ["another takes over", "so did those before it", "umount --lazy"] {
        assert!(log.contains(said), "{log}");
    }
    node.unmount(&mount.at);
}

/// By a service manager's patience of eight seconds, which the keeper is to forestall; without one it is half a minute.
#[test]
fn a_process_that_is_there_and_does_not_go_on_is_replaced() {
    if !have("taking_over::silent", &["fusermount3"]) {
        return;
    }
    let node = Node::start();
    node.write("letter", "dear");
    let kept = Kept::mount_with(&node, "mnt", &[("WATCHDOG_USEC", "8000000")]);
    node.sh("cp letter mnt/letter");
    let serves = kept.serves().expect("it is served");
    kill_process(serves, Signal::STOP).expect("it is ours");
    assert_eq!(node.sh("cat mnt/letter"), "dear", "whoever asks meanwhile waits, and no longer");
    let said = kept.is_taken_over(&node, serves);
    assert!(said.to_string().contains("did not go on and was killed"), "{said}");
    assert!(!is_there(serves));
    // Nor does it keep who asks for the end.
    let serves = kept.serves().expect("it is served");
    kill_process(serves, Signal::STOP).expect("it is ours");
    kill_process(kept.keeper, Signal::TERM).expect("it is ours");
    soon("the keeper ends", || !is_there(kept.keeper));
    assert!(!is_there(serves) && fs::read_dir(&kept.at).expect("empty").count() == 0);
}

#[test]
fn a_process_whose_keeper_was_killed_serves_on_and_ends_with_the_mount() {
    if !have("taking_over::keeper", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let mount = Kept::mount(&node, "mnt");
    let serves = mount.serves().expect("it is served");
    node.sh("echo before > mnt/f");
    kill_process(mount.keeper, Signal::KILL).expect("it is ours");
    soon("it is gone", || !is_there(mount.keeper));
    node.sh("test \"$(cat mnt/f)\" = before; echo after > mnt/f; test \"$(cat mnt/f)\" = after");
    node.unmount(&mount.at);
    soon("it ends with the mount", || !is_there(serves));
}

#[test]
fn a_mount_whose_process_and_node_both_were_killed_goes_on_once_the_node_is_back() {
    if !have("taking_over::node", &["fusermount3"]) {
        return;
    }
    let mut node = Node::start();
    let mount = Kept::mount(&node, "mnt");
    node.sh("echo before > mnt/f; sync mnt/f");
    let before = mount.serves().expect("it is served");
    node.kill();
    mount.kill();
    let reads = std::thread::scope(|scope| {
        let path = mount.at.join("f");
        let user = node.as_user("cat").arg(&path).stdout(Stdio::piped()).spawn().expect("it starts");
        let reads = scope.spawn(move || user.wait_with_output().expect("it ends"));
        node.up();
        reads.join().expect("it ends")
    });
    assert_eq!((reads.status.success(), &reads.stdout[..]), (true, &b"before\n"[..]));
    mount.is_taken_over(&node, before);
    node.unmount(&mount.at);
}

#[test]
fn a_signal_to_the_keeper_takes_the_mount_away() {
    if !have("taking_over::terminated", &["fusermount3"]) {
        return;
    }
    let node = Node::start();
    let mount = Kept::mount(&node, "mnt");
    let before = mount.kill();
    mount.is_taken_over(&node, before);
    let serves = mount.serves().expect("it is served");
    kill_process(mount.keeper, Signal::TERM).expect("it is ours");
    soon("both end", || !is_there(serves) && !is_there(mount.keeper));
    let stands = |(at, _): &(_, _)| *at == mount.at;
    assert!(!weft_sys::mounts::all().expect("read").iter().any(stands), "and the mount with them");
}
