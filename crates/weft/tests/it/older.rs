//! The directories of nodes that old programs wrote, taken up by this one.
//!
//! Goal: people find what they had, who may do what is as it was, and nothing of that depends on where a start is cut
//! off. Method: `older/COMMIT.tar.gz` is what the program of that commit left when it was killed in the midst of an
//! upload, and beside it what its mount showed and its door answered (`older/make.sh`). This program takes it up:
//! whole; killed by `strace` before each of its flushes; and its parts on a simulated disk, whose power goes off at each change.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use weft_conformance::run::{full, have};
use weft_core::form::{Ack, At, Call, FileSystem, OpenHow, Range, Wire, collect};
use weft_core::proof::Caller;
use weft_core::service::{AuditVerdict, Evidence, Secret, Severity};
use weft_core::{Deadline, RelPath, Result, Rights, SessionId, Time, TraceId, limits};
use weft_store::Check;
use weft_sys::{Disk, FlushSite, Open, SimDisk, Sys, simulate};
use weft_volume::managed::Managed;

use crate::machine::{HERE, Machine};
use crate::node::{Node, wait, weft};

/// What an old program left.
struct Old {
    bytes: &'static [u8],
    /// The schema of its users and groups.
    schema: u32,
}

/// Its users and groups had no checksums, and nothing said its format.
const FIRST: Old = Old { bytes: include_bytes!("older/9e81ce3.tar.gz"), schema: 1 };
/// When they were made, and a little more.
const SINCE: Time = Time::from_unix(1_795_500_000, 0);

impl Old {
    /// Returns a node that is to be started over it.
    fn unpacked(&self) -> Node {
        let node = Node::unstarted();
        let mut tar = node.as_user("tar");
        node.feed_command(tar.args(["-xzpf", "-"]), self.bytes).ok();
        node
    }

    /// Returns its parts on a simulated disk, all of it flushed.
    fn on_a_simulated_disk(&self) -> SimDisk {
        let (node, disk) = (self.unpacked(), SimDisk::new());
        load(&disk, &node.data());
        disk
    }
}

/// Copies a directory of this machine.
fn load(disk: &dyn Disk, from: &Path) {
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is read");
        let name = entry.file_name().into_string().expect("a plain name");
        if entry.file_type().expect("it has one").is_dir() {
            load(&*disk.beneath(&name).expect("made"), &entry.path());
            continue;
        }
        let (bytes, file) = (fs::read(entry.path()).expect("read"), disk.open(&name, Open::MakeNew));
        let file = file.expect("it is new");
        file.set_len(bytes.len() as u64).expect("room");
        for (at, piece) in bytes.chunks(64 << 10).enumerate() {
            // Most of a log is room for what comes.
            if piece.iter().any(|byte| *byte != 0) {
                file.write_at(piece, at as u64 * (64 << 10)).expect("room");
            }
        }
        file.sync(FlushSite::BackupFile).expect("the disk is on");
    }
    disk.sync_dir("", FlushSite::BackupDir).expect("the disk is on");
}

/// Looks whether people get in, and at what they got at. Returns a credential of an administrator's.
fn agrees(node: &Node) -> String {
    let answers = fs::read_to_string(node.path("answers")).expect("it came with it");
    let mut admin = String::new();
    for who in ["alice", "bob", "dave"] {
        let token = node.login(who, &format!("word of {who}"), &[]);
        let http = node.http(Some(&token));
        let now: Vec<String> = answers
            .lines()
            .filter_map(|line| line.strip_prefix(who)?.trim().split_once(' '))
            .map(|(path, _)| format!("{who} {path} {}", http.get(path).status))
            .collect();
        let before: Vec<&str> = answers.lines().filter(|line| line.starts_with(who)).collect();
        assert_eq!(now, before);
        admin = if who == "alice" { token } else { admin };
    }
    node.feed(&["login", "carol", "--password-stdin", "--print"], b"word of carol").fails(3, &["error:"]);
    let http = node.http(Some(&admin));
    assert!(http.bytes("/tree/put") == http.bytes("/tree/large"), "other bytes");
    admin
}

/// Looks at the whole tree as the old program's mount showed it.
fn shows_the_same(node: &mut Node) {
    let at = node.mount("mount");
    let mut look = node.as_user("sh");
    let now = node.feed_command(look.arg("-s").arg(&at), include_bytes!("older/look.sh")).ok();
    node.unmount(&at);
    let before = fs::read_to_string(node.path("seen")).expect("it came with it");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (now, before) = (lines(&now), lines(&before));
    let only = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
    };
    assert_eq!((only(&before, &now), only(&now, &before)), (Vec::new(), Vec::new()));
}

/// Stops it, and looks for anything to mend.
fn is_clean(node: &mut Node) {
    node.stop();
    node.run(&["fsck", "--dry-run"]).ok();
}

fn is_taken_up(old: &Old) -> Option<(Node, String)> {
    if !have("older", &["fusermount3", "tar", "gzip", "python3"]) {
        return None;
    }
    let mut node = old.unpacked();
    node.up();
    assert!(node.log().contains("the node's directory is upgraded"), "{}", node.log());
    let admin = agrees(&node);
    shows_the_same(&mut node);
    node.run_with(&admin, &["audit", "--verify"]).ok();
    is_clean(&mut node);
    node.up();
    let admin = agrees(&node);
    assert_eq!(node.log().matches("is upgraded").count(), 1);
    Some((node, admin))
}

#[test]
fn what_a_node_from_before_rows_were_sealed_had_is_there() {
    if let Some((mut node, admin)) = is_taken_up(&FIRST) {
        let users = node.run_with(&admin, &["user", "ls"]).ok();
        assert!(["alice", "bob", "carol", "dave"].iter().all(|name| users.contains(name)), "{users}");
        is_clean(&mut node);
    }
}

/// Starts the node, and has it killed before its flush number `nth`, counted by thread. Returns whether it was: it may
/// be ready before.
fn is_killed(node: &Node, nth: u32) -> bool {
    let log = fs::File::options().create(true).append(true).open(node.path("log.killed")).expect("opened");
    let inject = format!("inject=fsync,fdatasync:signal=KILL:when={nth}");
    let mut command = node.as_user("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", &inject]);
    command.arg(weft()).args(["up", "--http", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let is_ready = said.next().is_some_and(|line| line.expect("read") == "ready");
    if is_ready {
        node.run(&["down"]).ok();
    }
    wait(&mut child);
    !is_ready
}

#[test]
fn an_old_node_that_is_killed_before_any_flush_of_being_taken_up_is_taken_up_by_the_next_start() {
    if !have("older", &["strace", "tar", "gzip"]) {
        return;
    }
    let mut nth = 1;
    loop {
        let mut node = FIRST.unpacked();
        let killed = is_killed(&node, nth);
        node.up();
        agrees(&node);
        is_clean(&mut node);
        if !killed {
            break;
        }
        nth += 1;
    }
    println!("killed before each of {} flushes", nth - 1);
    assert!(nth > 3, "it flushes hardly anything: {nth}");
}

/// The parts of a node that were taken up.
struct TakenUp {
    sys: Sys,
    machine: Machine,
    volume: Managed,
}

impl TakenUp {
    async fn start(sys: &Sys, disk: &SimDisk) -> Result<Self> {
        let machine = Machine::try_start(sys, disk).await?;
        let volume = Managed::open(machine.own_config()).await?;
        Ok(Self { sys: sys.clone(), machine, volume })
    }

    fn call(&self, caller: &Caller) -> Call {
        Call {
            caller: caller.clone(),
            session: SessionId(1),
            until: Deadline::within(self.sys.clock(), limits::CALL_DEADLINE),
            trace: TraceId(1),
            from: HERE,
            once: None,
            ack: Ack::Durable,
            wire: Wire::Private,
        }
    }

    /// Looks at what it has, and whether anything is to be mended.
    async fn is_whole(&self, what: &str) {
        let login = async |user: &str| {
            let password = Secret::new(format!("word of {user}"));
            let evidence = Evidence::Password { user: user.to_owned(), password };
            self.machine.auth.authority().authenticate(&evidence, HERE).await
        };
        let alice = login("alice").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(login("carol").await.is_err(), "{what}");
        let [small, put, large] = ["tree/small", "tree/put", "tree/large"];
        assert_eq!(self.read(&alice, small).await, b"small\n"[..], "{what}");
        assert!(self.read(&alice, put).await == self.read(&alice, large).await, "{what}: other bytes");
        let node = self.machine.auth.node_caller().expect("it has its own");
        let report = self.volume.check(&self.call(&node)).await.expect("a check runs");
        assert!(report.findings.is_empty(), "{what}: {:#?}", report.findings);
        let stored = self.machine.store.check(Check { repair: false, blocks: true }).await.expect("it runs");
        let wrong: Vec<_> = stored.findings.iter().filter(|one| one.severity != Severity::Note).collect();
        assert!(wrong.is_empty(), "{what}: {wrong:#?}");
        let verdict = self.machine.auth.audit().verify(&alice).await.expect("she may");
        assert!(matches!(verdict, AuditVerdict::Whole { .. }), "{what}: {verdict:?}");
    }

    async fn read(&self, caller: &Caller, path: &str) -> Bytes {
        let at = At::root(RelPath::try_from(path).expect("a good path"));
        let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
        let opened = self.volume.open(&self.call(caller), &at, &how).await.expect("it is there");
        let mut source = opened.file.read(&self.call(caller), Range::ALL).await.expect("it is read");
        collect(&mut *source, 8 << 20).await.expect("it is whole")
    }
}

/// Takes it up on a disk whose power goes off at change number `halt`, or not at all. Returns how many there were.
fn cut_off(disk: &SimDisk, halt: Option<u64>) -> u64 {
    simulate(halt.unwrap_or(0), |sys| async move {
        let clock = sys.sim_clock().expect("simulated");
        clock.jump(SINCE.nanos() - sys.clock().now().nanos());
        let disk = disk.crashed_copy(0);
        let before = disk.counts().changes;
        disk.set_faults(|faults| faults.halt = halt);
        let taken = TakenUp::start(&sys, &disk).await;
        let changes = disk.counts().changes - before;
        let what = format!("cut off at change {halt:?}, {:?}", disk.cut_at());
        let survived = disk.crash(halt.unwrap_or(0));
        drop(taken);
        let again = TakenUp::start(&sys, &survived).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        again.is_whole(&what).await;
        changes
    })
}

#[test]
fn an_old_node_whose_power_goes_off_at_any_change_of_being_taken_up_is_taken_up_by_the_next_start() {
    for old in [&FIRST] {
        let disk = old.on_a_simulated_disk();
        let changes = cut_off(&disk, None);
        println!("schema {}: {changes} changes", old.schema);
        let step = if full() { 1 } else { changes.div_ceil(60) };
        for halt in (1..=changes).step_by(usize::try_from(step).expect("few")) {
            cut_off(&disk, Some(halt));
        }
    }
}
