//! A wall clock that jumps by a day, forward or back, while a node is at work.
//!
//! Goal: nothing is lost, nobody has a right for longer than it was given, and the audit stays
//! whole and in order. Method: a node without its doors on a simulated machine; what is to live
//! through the jump is begun before it: a read, an upload, a lock, what a restart has to give back.
//! On the same machine: how long a [link](ending) gives out bytes after its end.

mod ending;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use weft_core::acl::{AclEntry, Condition, Who};
use weft_core::attr::SetAttr;
use weft_core::form::{
    Ack, At, BytesSource, Call, Cursor, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New,
    OpenHow, PageMax, Range, Scope, Source, StageHint, Wait, Want, Wire, collect,
};
use weft_core::policy::PolicyEdit;
use weft_core::proof::{Attenuation, Caller};
use weft_core::service::{Evidence, NewUser, Secret, SessionGrant, Severity};
use weft_core::{Deadline, ErrorKind, RelPath, Result, Rights, SessionId, StageId, Time, TraceId, limits};
use weft_store::Check;
use weft_sys::{SimDisk, Sys, simulate};
use weft_volume::managed::Managed;

use crate::machine::{HERE, Machine, kind};
use crate::node::noise;

const HOUR: Duration = Duration::from_secs(3600);
/// How far the clock jumps, in nanoseconds.
const DAY: i64 = 24 * 3600 * 1_000_000_000;
const JUMPS: [i64; 2] = [DAY, -DAY];
/// Bytes of a file that is read in several pieces.
const LARGE: usize = 3 << 20;
/// Bytes of one that lies beside its inode.
const SMALL: usize = 100;

/// A node without its doors, and alice, who may read and write below `/d`, and for an hour below
/// `/hour`.
struct Node {
    sys: Sys,
    disk: SimDisk,
    machine: Machine,
    volume: Managed,
    traces: AtomicU64,
}

impl Node {
    async fn start(sys: &Sys, disk: SimDisk, make: bool) -> Self {
        let machine = Machine::start(sys, &disk).await;
        let (issuer, groups) = (machine.auth.issuer(), machine.auth.memberships());
        let auth = machine.auth.clone();
        let node = Arc::new(move || auth.node_caller().unwrap_or_else(|_| Caller::anyone()));
        let owner = make.then(|| machine.auth.administrators().clone());
        let volume = machine.volume(issuer, groups, node, owner).await;
        machine.auth.sessions().watch(Arc::new(volume.clone()));
        // Times of calls go on from start to start, as the audit's order does.
        let traces = AtomicU64::new(if make { 1 } else { 1000 });
        Self { sys: sys.clone(), disk, machine, volume, traces }
    }

    async fn furnish(&self) {
        let admin = self.machine.admin().await;
        let user = NewUser { name: "alice".into(), password: Some(Secret::new("wonder")), uid: None };
        let alice = self.machine.auth.accounts().add_user(&admin, &user).await.expect("it is new").name;
        let until = Condition::Until(self.sys.clock().now().plus(HOUR));
        for (name, when) in [("d", vec![]), ("hour", vec![until])] {
            let call = self.call(&admin, 1);
            let dir = at(name);
            self.volume.make(&call, &dir, New::Directory, &SetAttr::default()).await.expect("it is new");
            for (file, size) in [("large", LARGE), ("small", SMALL)] {
                self.publish(&admin, &format!("{name}/{file}"), size).await;
            }
            let mut acl = self.volume.policy(&self.call(&admin, 1), &dir).await.expect("it may").acl;
            let entry = AclEntry { when, ..AclEntry::allow(Who::Caller(alice.clone()), Rights::ALL) };
            acl.entries.push(entry);
            let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
            let call = self.call(&admin, 1);
            self.volume.protect(&call, &dir, Scope::Subtree, &edit).await.expect("it may");
        }
    }

    /// Logs alice in: what she holds then lives for twelve hours, as a login's does.
    async fn alice(&self) -> Caller {
        let authority = self.machine.auth.authority();
        let evidence = Evidence::Password { user: "alice".into(), password: Secret::new("wonder") };
        let alice = authority.authenticate(&evidence, HERE).await.expect("her password");
        let signed = authority.credential(&alice, &Attenuation::default(), limits::CREDENTIAL_LIFE).await;
        let token = Evidence::Token(Secret::new(signed.expect("it may").to_token()));
        authority.authenticate(&token, HERE).await.expect("it was signed just now")
    }

    fn session(&self, caller: &Caller) -> SessionGrant {
        self.machine.auth.sessions().begin(caller, HERE).expect("room")
    }

    fn call(&self, caller: &Caller, session: u128) -> Call {
        Call {
            caller: caller.clone(),
            session: SessionId(session),
            until: Deadline::within(self.sys.clock(), limits::CALL_DEADLINE),
            trace: TraceId(self.traces.fetch_add(1, Ordering::Relaxed)),
            from: HERE,
            once: None,
            ack: Ack::Durable,
            wire: Wire::Private,
        }
    }

    async fn publish(&self, caller: &Caller, path: &str, size: usize) {
        let stage = self.begin(caller, path, size).await;
        self.finish(caller, stage, size).await.expect("published");
    }

    /// Begins an upload and sends half of it.
    async fn begin(&self, caller: &Caller, path: &str, size: usize) -> StageId {
        let call = self.call(caller, 1);
        let stage = self.volume.stage(&call, &at(path), &StageHint::default()).await.expect("begun");
        let first = Bytes::from(noise(7, size)).slice(..size / 2);
        stage.put(&call, 1, 0, &mut BytesSource::new(first)).await.expect("put");
        stage.id()
    }

    async fn finish(&self, caller: &Caller, stage: StageId, size: usize) -> Result<()> {
        let call = self.call(caller, 1);
        let stage = self.volume.staged(&call, stage).await?;
        let rest = Bytes::from(noise(7, size)).slice(size / 2..);
        stage.put(&call, 2, 0, &mut BytesSource::new(rest)).await?;
        stage.publish(&call, &[], &SetAttr::default(), &Guard::NONE).await.map(drop)
    }

    /// Opens a file and returns a read of it that has not begun.
    async fn reading(&self, caller: &Caller, path: &str) -> Result<Box<dyn Source>> {
        self.reading_at(caller, &at(path)).await
    }

    async fn reading_at(&self, caller: &Caller, at: &At) -> Result<Box<dyn Source>> {
        let call = self.call(caller, 1);
        let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
        let opened = self.volume.open(&call, at, &how).await?;
        opened.file.read(&call, Range::ALL).await
    }

    async fn read(&self, caller: &Caller, path: &str) -> Result<Bytes> {
        collect(&mut *self.reading(caller, path).await?, LARGE).await
    }

    async fn lock(&self, caller: &Caller, session: u128) -> Result<()> {
        let owner = LockOwner(Bytes::from_static(b"clocks"));
        let lock = Lock { scope: LockScope::Whole, kind: LockKind::Exclusive, owner };
        self.volume.lock(&self.call(caller, session), &at("d/small"), &lock, Wait::No).await.map(drop)
    }

    fn jump(&self, nanos: i64) {
        self.sys.sim_clock().expect("simulated").jump(nanos);
    }

    /// Sweeps, and looks whether anything is to be mended or is not in the audit as it was made.
    async fn is_whole(&self) {
        let node = self.machine.auth.node_caller().expect("it has its own");
        self.volume.sweep(&self.call(&node, 0)).await.expect("a sweep runs");
        let report = self.volume.check(&self.call(&node, 0)).await.expect("a check runs");
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        let stored = self.machine.store.check(Check { repair: false, blocks: true }).await.expect("it runs");
        let wrong: Vec<_> = stored.findings.iter().filter(|f| f.severity != Severity::Note).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let records = self.machine.audited().await.unwrap_or_else(|verdict| panic!("{verdict:?}"));
        let order: Vec<u64> = records.iter().map(|record| record.trace.0).collect();
        assert!(order.is_sorted(), "the audit is not in the order of the changes: {order:?}");
    }

    /// Cuts the power and starts it again.
    async fn crash(self) -> Self {
        let Self { sys, disk, machine, volume, .. } = self;
        let disk = disk.crash(1);
        drop((volume, machine));
        Self::start(&sys, disk, false).await
    }
}

fn at(path: &str) -> At {
    At::root(RelPath::try_from(path).expect("a good path"))
}

fn on_a_node<F: Future<Output = ()>>(work: impl FnOnce(Node) -> F) {
    simulate(1, |sys| async move {
        let node = Node::start(&sys, SimDisk::new(), true).await;
        node.furnish().await;
        work(node).await;
    });
}

#[test]
fn a_running_read_ends_with_its_reader_whatever_the_clock_does() {
    for nanos in JUMPS {
        on_a_node(async |node| {
            let alice = node.alice().await;
            let mut whole = node.reading(&alice, "d/large").await.expect("she may");
            let mut late = node.reading(&alice, "d/large").await.expect("she may");
            for read in [&mut whole, &mut late] {
                read.next(limits::PIECE_BYTES_MAX).await.expect("she may").expect("there is more");
            }
            node.jump(nanos);
            if nanos > 0 {
                // Twelve hours are over, as far as anybody can tell.
                assert_eq!(kind(whole.next(limits::PIECE_BYTES_MAX).await), Some(ErrorKind::Expired));
            } else {
                let rest = collect(&mut *whole, LARGE).await.expect("nothing has ended");
                assert!(rest == noise(7, LARGE)[limits::PIECE_BYTES_MAX..], "other bytes");
                // The clock that went back gives her no more than the twelve hours, and what clocks may differ by.
                node.sys
                    .sleep(limits::CREDENTIAL_LIFE + limits::CLOCK_SKEW_MAX + Duration::from_secs(1))
                    .await;
                assert_eq!(kind(late.next(limits::PIECE_BYTES_MAX).await), Some(ErrorKind::Expired));
            }
            assert_eq!(kind(node.read(&alice, "d/small").await), Some(ErrorKind::Expired));
            let again = node.alice().await;
            assert_eq!(node.read(&again, "d/large").await.expect("she may"), noise(7, LARGE));
            node.is_whole().await;
        });
    }
}

/// Also of what lies beside its inode, and of names: no capability stands before those.
#[test]
fn a_right_that_was_given_until_a_time_ends_then_and_does_not_come_back() {
    for nanos in JUMPS {
        on_a_node(async |node| {
            let alice = node.alice().await;
            let mut running = node.reading(&alice, "hour/large").await.expect("within the hour");
            running.next(limits::PIECE_BYTES_MAX).await.expect("she may").expect("there is more");
            // Either the jump ends it, or what is left of the hour does.
            node.jump(nanos);
            if nanos < 0 {
                assert_eq!(node.read(&alice, "hour/small").await.expect("within the hour").len(), SMALL);
                node.sys.sleep(HOUR + limits::CLOCK_SKEW_MAX).await;
            }
            let alice = node.alice().await;
            for path in ["hour/large", "hour/small"] {
                assert!(node.read(&alice, path).await.is_err(), "{nanos}: {path} is read after its hour");
            }
            let (call, dir) = (node.call(&alice, 1), at("hour"));
            let names = node.volume.list(&call, &dir, Cursor::Start, PageMax::MAX, Want::default()).await;
            assert!(names.is_err(), "{nanos}: names are listed after their hour");
            assert!(running.next(limits::PIECE_BYTES_MAX).await.is_err(), "{nanos}: a read goes on");
            // What has ended once does not begin again when the clock is set back.
            node.jump(-DAY);
            assert!(node.read(&alice, "hour/small").await.is_err(), "{nanos}: the hour came back");
            assert!(node.read(&alice, "hour/large").await.is_err(), "{nanos}: the hour came back");
            node.is_whole().await;
        });
    }
}

#[test]
fn an_upload_that_is_open_is_gone_on_with_after_the_clock_has_jumped() {
    for nanos in JUMPS {
        on_a_node(async |node| {
            let stage = node.begin(&node.alice().await, "d/new", LARGE).await;
            node.jump(nanos);
            node.is_whole().await;
            let alice = node.alice().await;
            node.finish(&alice, stage, LARGE).await.expect("a day is less than an upload is kept");
            assert_eq!(node.read(&alice, "d/new").await.expect("she may"), noise(7, LARGE));
            node.is_whole().await;
        });
    }
}

#[test]
fn a_lock_stays_with_its_session_when_the_clock_jumps_also_through_a_restart() {
    for nanos in JUMPS {
        on_a_node(async |node| {
            let alice = node.alice().await;
            let (mine, other) = (node.session(&alice), node.session(&alice));
            node.lock(&alice, mine.id.0).await.expect("nobody has it");
            node.jump(nanos);
            let alice = node.alice().await;
            node.machine.auth.sessions().renew(mine.id).expect("a jump ends no session");
            assert_eq!(kind(node.lock(&alice, other.id.0).await), Some(ErrorKind::Locked), "{nanos}");
            let node = node.crash().await;
            let alice = node.alice().await;
            // Half way through the grace it jumps again.
            node.sys.sleep(limits::SESSION_GRACE / 2).await;
            node.jump(nanos);
            let alice = if nanos > 0 { node.alice().await } else { alice };
            let other = node.session(&alice);
            assert_eq!(kind(node.lock(&alice, other.id.0).await), Some(ErrorKind::Locked), "{nanos}");
            node.machine.auth.sessions().resume(&alice, &mine, HERE).expect("the grace is not over");
            node.lock(&alice, mine.id.0).await.expect("it was hers");
            node.sys.sleep(limits::SESSION_GRACE).await;
            assert_eq!(kind(node.lock(&alice, other.id.0).await), Some(ErrorKind::Locked), "{nanos}");
            node.machine.auth.sessions().end(mine.id);
            node.lock(&alice, other.id.0).await.expect("its session has ended");
            node.is_whole().await;
        });
    }
}

#[test]
fn the_grace_after_a_restart_is_as_long_as_it_is_whatever_the_clock_does() {
    for nanos in JUMPS {
        on_a_node(async |node| {
            let alice = node.alice().await;
            let mine = node.session(&alice);
            node.lock(&alice, mine.id.0).await.expect("nobody has it");
            let node = node.crash().await;
            node.jump(nanos);
            let alice = node.alice().await;
            let other = node.session(&alice);
            assert_eq!(kind(node.lock(&alice, other.id.0).await), Some(ErrorKind::Locked), "{nanos}");
            node.sys.sleep(limits::SESSION_GRACE).await;
            node.lock(&alice, other.id.0).await.expect("nobody came back for it");
            let late = node.machine.auth.sessions().resume(&alice, &mine, HERE);
            assert_eq!(kind(late), Some(ErrorKind::Stale));
            node.is_whole().await;
        });
    }
}

#[test]
fn the_audit_stays_whole_and_in_order_over_jumps_and_restarts_and_nothing_is_lost() {
    on_a_node(async |mut node| {
        for (round, nanos) in [DAY, -DAY, -DAY, DAY, 3 * DAY, -3 * DAY].into_iter().enumerate() {
            let before = node.machine.audited().await.expect("it is whole").len();
            for name in ["a", "b"] {
                // A credential of before may have run out.
                let call = node.call(&node.machine.admin().await, 1);
                let made = at(&format!("d/{name}{round}"));
                node.volume.make(&call, &made, New::Directory, &SetAttr::default()).await.expect("made");
                node.jump(if name == "a" { nanos } else { 0 });
            }
            let after = node.machine.audited().await.expect("it is whole").len();
            assert!(after >= before + 2, "{nanos}: what was made is not in the audit");
            node.is_whole().await;
            if round % 2 == 1 {
                let crashed = node.crash().await;
                crashed.traces.store(1000 * (round as u64 + 1), Ordering::Relaxed);
                node = crashed;
            }
        }
        let admin = node.machine.admin().await;
        for round in 0..6 {
            for name in ["a", "b"] {
                let call = node.call(&admin, 1);
                let made = at(&format!("d/{name}{round}"));
                node.volume.walk(&call, &made, Want::default()).await.expect("it is there");
            }
        }
        assert_eq!(node.read(&admin, "d/large").await.expect("it is there"), noise(7, LARGE));
        // No time that is shown lies where no clock was.
        let shown = node.volume.walk(&node.call(&admin, 1), &at("d/a0"), Want::default()).await;
        assert!(shown.expect("it is there").attr.mtime > Time::EPOCH);
    });
}
