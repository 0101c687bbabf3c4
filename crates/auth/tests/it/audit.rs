//! The audit log: what is recorded, found, verified, and left after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weft_conformance::ShownBy;
use weft_core::form::{Door, Origin};
use weft_core::proof::{Caller, Purpose};
use weft_core::service::{
    AuditFilter, AuditOutcome, AuditRecord, AuditSubject, AuditVerdict, Evidence, GroupEdit, NewUser, Revoke,
    Secret, UserEdit,
};
use weft_core::{
    CallerName, ContainerId, CredentialId, ErrorKind, FileId, Name, Result, TraceId, VolumeId, limits,
};
use weft_kv::{Ack, Engine, NoteKind, Schema, Space, SpaceId, Txn};
use weft_sys::{Disk, Open, SimDisk, simulate};

use crate::scene::{SOCKET, Scene, scene};

pub const NOTES: NoteKind = NoteKind(9);

pub fn record(node: &Scene, serial: u64, container: u64) -> AuditRecord {
    AuditRecord {
        at: node.sys.clock().now(),
        caller: CallerName::ANYONE,
        credential: CredentialId(0),
        delegates: Vec::new(),
        from: Origin { door: Door::Http, peer: None, uid: None },
        trace: TraceId(serial),
        operation: "read".to_owned(),
        about: AuditSubject {
            object: Some(FileId::new(VolumeId(0), serial, 0)),
            container: Some(ContainerId(container)),
            ..AuditSubject::default()
        },
        outcome: AuditOutcome::Done,
        because: "entry 3".to_owned(),
        bytes: serial,
    }
}

/// Returns every record that the filter wants, page by page.
async fn all(node: &Scene, filter: AuditFilter) -> Vec<(u64, AuditRecord)> {
    let admin = node.admin().await;
    let (mut found, mut filter) = (Vec::new(), filter);
    loop {
        let page = node.auth.audit().records(&admin, &filter).await.expect("it may");
        found.extend(page.records);
        match page.next {
            Some(next) => filter.after = next,
            None => return found,
        }
    }
}

/// Returns the traces of the reads recorded.
pub async fn traces(node: &Scene) -> Vec<u64> {
    let reads = all(node, AuditFilter::default()).await;
    reads.into_iter().filter(|(_, r)| r.operation == "read").map(|(_, r)| r.trace.0).collect()
}

pub async fn verdict(node: &Scene) -> AuditVerdict {
    node.auth.audit().verify(&node.admin().await).await.expect("it may")
}

pub fn is_whole(verdict: &AuditVerdict) -> bool {
    matches!(verdict, AuditVerdict::Whole { .. })
}

/// Returns the names of the log's files, in order.
pub fn files(disk: &SimDisk) -> Vec<String> {
    let mut names = Vec::new();
    disk.list("auth/audit", &mut |name, _| {
        names.push(format!("auth/audit/{name}"));
        std::ops::ControlFlow::Continue(())
    })
    .expect("a directory");
    names.sort();
    names
}

pub fn bytes_of(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::Read).expect("it is there");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("bytes");
    bytes
}

/// Returns where the frames of a file start.
pub fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut at = 16;
    let mut starts = vec![0];
    while at < bytes.len() {
        starts.push(at);
        let part = |from: usize| {
            let bytes: [u8; 4] = bytes[from..from + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes) as usize
        };
        at += 8 + part(at) + part(at + 4) + 32;
    }
    starts
}

#[test]
fn records_are_on_disk_within_a_second_and_found_by_what_they_are_about() {
    scene(71, |node| async move {
        let audit = node.auth.audit();
        let before = bytes_of(&node.disk, &files(&node.disk)[0]).len();
        for serial in 1..=5 {
            audit.record(record(&node, serial, serial % 2)).await;
        }
        node.sys.sleep(Duration::from_secs(1)).await;
        let after = bytes_of(&node.disk, &files(&node.disk)[0]).len();
        assert!(after > before, "within a second");
        let of_container = AuditFilter { container: Some(ContainerId(1)), ..Default::default() };
        let found: Vec<_> = all(&node, of_container).await.into_iter().map(|(_, r)| r.trace.0).collect();
        assert_eq!(found, [1, 3, 5]);
        let of_object = AuditFilter { object: Some(FileId::new(VolumeId(0), 4, 0)), ..Default::default() };
        assert_eq!(all(&node, of_object).await.len(), 1);
        let admin = node.admin().await;
        let by_caller = AuditFilter { caller: Some(admin.name().clone()), ..Default::default() };
        assert!(all(&node, by_caller).await.iter().any(|(_, r)| r.operation == "login"));
        let now = node.sys.clock().now();
        let later = AuditFilter { from: Some(now.plus(Duration::from_secs(1))), ..Default::default() };
        assert!(all(&node, later).await.is_empty());
        let earlier = AuditFilter { until: Some(now.plus(Duration::from_secs(1))), ..Default::default() };
        assert!(all(&node, earlier).await.len() >= 5);
        let anyone = Caller::anyone();
        let container = AuditFilter { container: Some(ContainerId(0)), ..Default::default() };
        let page = audit.records(&anyone, &container).await.expect("of one container, whoever its owner let");
        assert_eq!(page.records.len(), 2);
        let refused = audit.records(&anyone, &AuditFilter::default()).await.expect_err("of all");
        assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
        assert!(audit.verify(&anyone).await.is_err());
    });
}

#[test]
fn logins_refusals_and_changes_of_identities_are_recorded_without_secrets() {
    scene(72, |node| async move {
        node.add_user("alice", "pa55word").await;
        node.login("alice", "wr0ng").await.expect_err("wrong");
        node.login("alice", "pa55word").await.expect("right");
        node.auth.rotate(&node.admin().await, Purpose::Audit).await.expect("the root key is here");
        let told: Vec<_> = all(&node, AuditFilter::default())
            .await
            .into_iter()
            .map(|(_, r)| (r.operation, r.outcome == AuditOutcome::Done, r.because))
            .collect();
        for (operation, done) in [("login", true), ("login", false), ("add-user", true), ("rotate-key", true)]
        {
            assert!(
                told.iter().any(|(o, d, _)| o == operation && *d == done),
                "{operation} {done}: {told:?}"
            );
        }
        for name in files(&node.disk) {
            let bytes = bytes_of(&node.disk, &name);
            for secret in [&b"pa55word"[..], b"wr0ng"] {
                assert!(!bytes.windows(secret.len()).any(|window| window == secret));
            }
        }
        assert!(is_whole(&verdict(&node).await), "two keys signed it");
    });
}

#[test]
fn what_a_caller_writes_into_a_record_never_makes_a_second_line() {
    scene(84, |node| async move {
        let forged = "eve\n2026-01-01 admin node here login done \u{1b}[2J\\x0a";
        let shown = r"eve\x0a2026-01-01 admin node here login done \x1b[2J\\x0a";
        let (anyone, accounts) = (Caller::anyone(), node.auth.accounts());
        let user = NewUser { name: forged.to_owned(), password: None, uid: None };
        accounts.add_user(&anyone, &user).await.expect_err("not anyone's");
        accounts.add_group(&anyone, forged).await.expect_err("not anyone's");
        node.login(forged, "x").await.expect_err("nobody");
        let other = AuditRecord { because: forged.to_owned(), ..record(&node, 1, 0) };
        node.auth.audit().record(AuditRecord { operation: "a\nb".to_owned(), ..other }).await;
        let found = all(&node, AuditFilter::default()).await;
        for (_, record) in &found {
            assert!(!record.because.contains(char::is_control), "{record:?}");
            assert!(!record.operation.contains(char::is_control), "{record:?}");
        }
        for operation in ["add-user", "make-group"] {
            let told = found.iter().any(|(_, r)| r.operation == operation && r.because == shown);
            assert!(told, "{operation}: {found:?}");
        }
    });
}

#[test]
fn a_change_of_identities_is_in_the_log_once_it_is_answered_whatever_happens_then() {
    const CHANGES: [&str; 8] = [
        "add-user",
        "change-user",
        "make-group",
        "change-group",
        "remove-group",
        "login",
        "revoke",
        "rotate-key",
    ];
    scene(85, |mut node| async move {
        for change in CHANGES {
            let count =
                |found: &[(u64, AuditRecord)]| found.iter().filter(|(_, r)| r.operation == change).count();
            let before = count(&all(&node, AuditFilter::default()).await);
            make_change(&node, change).await.expect(change);
            node = node.restart_uncleanly().await;
            let after = count(&all(&node, AuditFilter::default()).await);
            assert!(after > before, "{change} is not in the log");
        }
    });
}

async fn make_change(node: &Scene, change: &str) -> Result<()> {
    let (admin, accounts) = (node.admin().await, node.auth.accounts());
    let (alice, team) = (node.name("alice"), node.name("group:admin/team"));
    match change {
        "add-user" => {
            let user = NewUser { name: "alice".to_owned(), password: None, uid: None };
            accounts.add_user(&admin, &user).await.map(drop)
        }
        "change-user" => {
            let edit = UserEdit::Password { new: Secret::new("x"), old: None };
            accounts.edit_user(&admin, &alice, &edit).await.map(drop)
        }
        "make-group" => accounts.add_group(&admin, "team").await.map(drop),
        "change-group" => accounts.edit_group(&admin, &team, &GroupEdit::Add(alice)).await.map(drop),
        "remove-group" => accounts.remove_group(&admin, &team).await,
        "login" => {
            let evidence = Evidence::Password { user: "alice".to_owned(), password: Secret::new("x") };
            let life = Duration::from_secs(3600);
            node.auth.authority().login(&evidence, &Default::default(), life, SOCKET).await.map(drop)
        }
        "revoke" => node.auth.authority().revoke(&admin, &Revoke::Caller(alice)).await,
        _ => node.auth.rotate(&admin, Purpose::Audit).await.map(drop),
    }
}

#[test]
fn every_proof_that_is_refused_is_recorded_tokens_and_tries_too_soon_among_them() {
    scene(86, |node| async move {
        let name = node.add_user("alice", "secret").await;
        let token = node.token_of(&node.login("alice", "secret").await.expect("right")).await;
        node.auth.authority().revoke(&node.admin().await, &Revoke::Caller(name)).await.expect("it may");
        node.token(&token).await.expect_err("it was revoked");
        node.token("weft1.none").await.expect_err("it is none");
        let node = Arc::new(node);
        for _ in 0..=limits::PASSWORD_FAILURES_FREE {
            node.login("alice", "wrong").await.expect_err("wrong");
        }
        let soon: Vec<_> = (0..=limits::PASSWORD_TRIES_WAITING_MAX)
            .map(|_| {
                let known = node.clone();
                node.sys.spawn(async move { known.login("alice", "wrong").await.expect_err("wrong").kind() })
            })
            .collect();
        for attempt in soon {
            attempt.await.expect("it answers");
        }
        let found = all(&node, AuditFilter::default()).await;
        let refused = |kind, of: &str| {
            let is_one =
                |r: &AuditRecord| r.outcome == AuditOutcome::Failed(kind) && r.because.starts_with(of);
            found.iter().filter(|(_, r)| r.operation == "login" && is_one(r)).count()
        };
        assert_eq!(refused(ErrorKind::Revoked, "token"), 1, "{found:?}");
        assert_eq!(refused(ErrorKind::Unauthenticated, "token"), 1, "{found:?}");
        assert_eq!(refused(ErrorKind::Busy, "password for `alice`"), 1, "{found:?}");
    });
}

#[test]
fn a_long_log_is_read_page_by_page_and_positions_have_no_gaps() {
    scene(73, |node| async move {
        let reads = limits::AUDIT_PAGE_MAX as u64 * 2 + 7;
        for serial in 1..=reads {
            node.auth.audit().record(record(&node, serial, 1)).await;
        }
        let found = all(&node, AuditFilter::default()).await;
        let positions: Vec<u64> = found.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, (1..=found.len() as u64).collect::<Vec<_>>());
        assert_eq!(traces(&node).await, (1..=reads).collect::<Vec<_>>());
        let node = node.restart().await;
        node.auth.audit().record(record(&node, reads + 1, 1)).await;
        assert_eq!(traces(&node).await, (1..=reads + 1).collect::<Vec<_>>());
    });
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_its_file_and_batch_are_named() {
    scene(74, |node| async move {
        for serial in 1..=3 {
            node.auth.audit().record(record(&node, serial, 1)).await;
            node.auth.audit_log().flush().await.expect("it can");
        }
        let admin = node.admin().await;
        assert!(is_whole(&verdict(&node).await));
        let name = &files(&node.disk)[0];
        let bytes = bytes_of(&node.disk, name);
        let starts = frames(&bytes);
        for byte in 0..bytes.len() {
            let bit = (byte % 8) as u8;
            node.disk.flip_bit(name, byte as u64, bit).expect("it is there");
            let found = node.auth.audit().verify(&admin).await.expect("it may");
            node.disk.flip_bit(name, byte as u64, bit).expect("it is there");
            let AuditVerdict::Broken { file, offset, detail } = found else { panic!("byte {byte} is free") };
            let batch = *starts.iter().rfind(|start| **start <= byte).expect("the file starts at 0");
            assert!(name.ends_with(&file), "{file}");
            assert_eq!(offset, batch as u64, "byte {byte}: {detail}");
        }
        assert!(is_whole(&verdict(&node).await));
    });
}

#[test]
fn a_batch_forged_with_all_its_hashes_but_no_key_is_found() {
    let foreign = scene(75, |node| async move {
        node.auth.audit().record(record(&node, 1, 1)).await;
        node.auth.close().await.expect("it closes");
        let name = files(&node.disk).remove(0);
        bytes_of(&node.disk, &name)
    });
    scene(76, |node| async move {
        node.auth.close().await.expect("it closes");
        let name = files(&node.disk).remove(0);
        let file = node.disk.open(&name, Open::Write).expect("it is there");
        file.set_len(0).and_then(|()| file.write_at(&foreign, 0)).expect("room");
        let found = node.auth.audit().verify(&node.admin().await).await.expect("it may");
        assert!(!is_whole(&found), "another domain's log is not ours");
    });
}

#[test]
fn a_log_that_was_cut_or_lost_a_file_is_broken_and_goes_on() {
    scene(77, |node| async move {
        // So that looking at the log below adds nothing to it.
        node.admin().await;
        for serial in 1..=3 {
            node.auth.audit().record(record(&node, serial, 1)).await;
            node.auth.audit_log().flush().await.expect("it can");
        }
        let name = files(&node.disk).remove(0);
        let starts = frames(&bytes_of(&node.disk, &name));
        let file = node.disk.open(&name, Open::Write).expect("it is there");
        let cut = *starts.last().expect("there are batches") as u64;
        file.set_len(cut).expect("it is cut between two batches");
        let named = |verdict| match verdict {
            AuditVerdict::Broken { file, offset, .. } => name.ends_with(&file) && offset == cut,
            AuditVerdict::Whole { .. } => false,
        };
        assert!(named(verdict(&node).await), "nobody noticed while the node ran");
        let node = node.restart_uncleanly().await;
        assert!(named(verdict(&node).await), "nobody noticed after a restart");
        node.auth.audit().record(record(&node, 9, 1)).await;
        assert_eq!(traces(&node).await, [1, 2, 9], "it goes on in a new file");
        node.disk.remove(&name).expect("it is there");
        let AuditVerdict::Broken { file, detail, .. } = verdict(&node).await else {
            panic!("nobody noticed")
        };
        assert!(name.ends_with(&file) && detail.contains("missing"), "{file}: {detail}");
    });
}

#[test]
fn a_log_that_begins_as_another_versions_is_left_as_it_is_and_goes_on_in_a_new_file() {
    scene(92, |node| async move {
        node.auth.audit().record(record(&node, 1, 1)).await;
        node.auth.close().await.expect("it closes");
        let Scene { sys, disk, engine, auth, .. } = node;
        drop(auth);
        engine.close().await.expect("it closes");
        drop(engine);
        let name = files(&disk).remove(0);
        let file = disk.open(&name, Open::Write).expect("it is there");
        file.write_at(b"weft audit log 1", 0).expect("room");
        let was = bytes_of(&disk, &name);
        let node = Scene::start(&sys, disk.kill()).await;
        node.auth.audit().record(record(&node, 2, 2)).await;
        assert_eq!(traces(&node).await, [2], "it goes on");
        assert!(!is_whole(&verdict(&node).await));
        assert_eq!(files(&node.disk).len(), 2);
        assert_eq!(bytes_of(&node.disk, &name), was, "what it was may still be looked into");
    });
}

#[test]
fn a_record_is_found_by_each_thing_and_container_that_it_is_about() {
    scene(93, |node| async move {
        let about = AuditSubject {
            other: Some(FileId::new(VolumeId(0), 70, 0)),
            also: (100..300).map(ContainerId).collect(),
            ..record(&node, 1, 1).about
        };
        node.auth.audit().record(AuditRecord { about, ..record(&node, 1, 1) }).await;
        let of =
            |container: u64| AuditFilter { container: Some(ContainerId(container)), ..Default::default() };
        for container in [1, 100, 99 + limits::AUDIT_CONTAINERS_MAX as u64] {
            assert_eq!(all(&node, of(container)).await.len(), 1, "{container}");
        }
        assert_eq!(all(&node, of(100 + limits::AUDIT_CONTAINERS_MAX as u64)).await, [], "it has a bound");
        for serial in [1, 70] {
            let object = Some(FileId::new(VolumeId(0), serial, 0));
            assert_eq!(all(&node, AuditFilter { object, ..Default::default() }).await.len(), 1, "{serial}");
        }
    });
}

#[test]
fn a_page_of_long_records_ends_before_it_is_too_large_to_send() {
    scene(94, |node| async move {
        let (long, name) = ("x".repeat(limits::AUDIT_TEXT_BYTES_MAX), "y".repeat(limits::NAME_BYTES_MAX));
        let spot = Some((FileId::ROOT, Name::try_from(name.as_str()).expect("a name")));
        for serial in 1..=limits::AUDIT_PAGE_MAX as u64 {
            let mut long = AuditRecord { because: long.clone(), ..record(&node, serial, 1) };
            (long.about.place, long.about.to) = (spot.clone(), spot.clone());
            node.auth.audit().record(long).await;
        }
        let admin = node.admin().await;
        let page = node.auth.audit().records(&admin, &AuditFilter::default()).await.expect("it may");
        let bytes = postcard::to_stdvec(&page).expect("plain data").len();
        assert!(page.next.is_some() && bytes < limits::AUDIT_PAGE_BYTES + (64 << 10), "{bytes}");
        let found = traces(&node).await;
        assert_eq!(found, (1..=limits::AUDIT_PAGE_MAX as u64).collect::<Vec<_>>());
    });
}

#[test]
fn a_full_file_is_followed_by_the_next_and_the_chain_runs_on() {
    scene(78, |node| async move {
        let long = "x".repeat(limits::AUDIT_TEXT_BYTES_MAX * 2);
        let wanted = limits::AUDIT_FILE_BYTES / limits::AUDIT_TEXT_BYTES_MAX as u64;
        for serial in 1..=wanted {
            let record = AuditRecord { because: long.clone(), ..record(&node, serial, 1) };
            node.auth.audit().record(record).await;
        }
        node.auth.close().await.expect("it closes");
        let names = files(&node.disk);
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(is_whole(&verdict(&node).await));
        let node = node.restart().await;
        assert!(is_whole(&verdict(&node).await));
        let last = AuditFilter { object: Some(FileId::new(VolumeId(0), wanted, 0)), ..Default::default() };
        let found = all(&node, last).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1.because.len(), limits::AUDIT_TEXT_BYTES_MAX, "a text is cut to its bound");
        node.disk.flip_bit(&names[0], 1_000_000, 0).expect("it is there");
        let AuditVerdict::Broken { file, offset, .. } = verdict(&node).await else {
            panic!("nobody noticed")
        };
        assert!(names[0].ends_with(&file) && offset <= 1_000_000 && offset > 0);
    });
}

#[test]
fn a_disk_that_fails_a_write_or_a_flush_loses_no_record() {
    scene(79, |node| async move {
        node.auth.audit().record(record(&node, 1, 1)).await;
        node.auth.audit_log().flush().await.expect("it can");
        for (serial, fail) in [(2, "write"), (3, "flush")] {
            // The log's own write is the next one: nothing else is under way.
            node.sys.sleep(limits::APPLIED_FLUSH_DELAY * 2).await;
            node.disk.set_faults(|faults| match fail {
                "write" => faults.fail_write = Some(1),
                _ => faults.fail_flush = Some(1),
            });
            node.auth.audit().record(record(&node, serial, 1)).await;
            node.auth.audit_log().flush().await.expect("at the second try");
        }
        // At once: what was said to be on disk is there.
        let node = node.crash(1).await;
        assert_eq!(traces(&node).await, [1, 2, 3]);
        assert!(is_whole(&verdict(&node).await));
    });
}

#[test]
fn a_disk_that_takes_nothing_makes_callers_wait_and_then_says_how_much_was_lost() {
    scene(80, |node| async move {
        node.auth.close().await.expect("it closes");
        node.sys.sleep(limits::APPLIED_FLUSH_DELAY * 2).await;
        node.disk.set_faults(|faults| faults.capacity = Some(0));
        let before = node.sys.clock().tick();
        let batch = limits::AUDIT_BATCH_MAX as u64;
        let most = limits::AUDIT_QUEUE_MAX as u64 + 2 * batch;
        let mut waited = 0;
        for serial in 1..=most {
            node.auth.audit().record(record(&node, serial, 1)).await;
            if node.sys.clock().tick().since(before) >= limits::AUDIT_WAIT {
                waited = serial;
                break;
            }
        }
        assert!(waited > limits::AUDIT_QUEUE_MAX as u64, "a full queue makes its caller wait");
        node.disk.set_faults(|faults| faults.capacity = None);
        node.auth.audit_log().flush().await.expect("there is space again");
        assert_eq!(traces(&node).await.len() as u64, waited - 1);
        let lost = all(&node, AuditFilter::default()).await;
        assert!(lost.iter().any(|(_, r)| r.operation == "audit-lost" && r.because == "1 records"));
    });
}

pub struct Volume {
    pub space: Space,
}

impl Volume {
    pub async fn open(node: &Scene) -> Self {
        let schema = Schema { version: 1, migrations: &[] };
        let space = Space::open(node.engine.clone(), SpaceId(3), &schema).await.expect("it opens");
        Self { space }
    }

    /// Commits a write with its record.
    pub async fn write(&self, record: &AuditRecord, ack: Ack) -> Result<()> {
        let (row, note) = (record.trace.0.to_be_bytes(), postcard::to_stdvec(record).expect("plain data"));
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            txn.put(&row, &[])?;
            txn.note(NOTES, &note)
        };
        self.space.write(ack, act).await.map(drop)
    }

    /// Returns the writes that are there.
    fn rows(&self) -> Vec<u64> {
        let snapshot = self.space.snapshot().expect("a snapshot");
        let rows = weft_kv::Read::scan(&snapshot, &[], &[], weft_kv::Order::Rising);
        rows.map(|row| {
            let (key, _) = row.expect("a row");
            u64::from_be_bytes(key.as_ref().try_into().expect("eight bytes"))
        })
        .collect()
    }
}

pub fn follow(node: &Scene) -> weft_sys::Task<Result<()>> {
    let (log, notes) = (node.auth.audit_log(), node.engine.notes(NOTES));
    let notes = notes.expect("the one subscriber");
    node.sys.spawn(async move { log.follow(notes).await })
}

/// Power is cut at random changes of the disk, while writes, their notes and reads go on.
#[test]
fn every_write_that_survives_a_crash_is_in_the_log_exactly_once_in_commit_order() {
    let (mut crashes, mut survived) = (0, 0);
    for seed in 0..60 {
        simulate(seed, |sys| async move {
            let mut node = Scene::start(&sys, SimDisk::new()).await;
            let mut serial = 0;
            for round in 0..4 {
                let (volume, following) = (Volume::open(&node).await, follow(&node));
                node.disk.set_faults(|faults| faults.halt = Some(1 + sys.random().below(60)));
                for _ in 0..40 {
                    serial += 1;
                    let ack = if serial % 3 == 0 { Ack::Durable } else { Ack::Applied };
                    if volume.write(&record(&node, serial, 1), ack).await.is_err() {
                        break;
                    }
                    sys.sleep(Duration::from_millis(sys.random().below(400))).await;
                }
                following.abort();
                drop(volume);
                node = node.crash(seed * 10 + round).await;
                let rows = Volume::open(&node).await.rows();
                let following = follow(&node);
                node.sys.sleep(Duration::from_secs(3)).await;
                let copied = traces(&node).await;
                assert_eq!(copied, rows, "seed {seed}, round {round}");
                assert!(is_whole(&verdict(&node).await), "seed {seed}, round {round}");
                following.abort();
                let _ = following.await;
            }
        });
        crashes += 4;
        survived += 1;
    }
    println!("{crashes} crashes over {survived} seeds");
}

#[test]
fn a_note_that_is_no_record_is_recorded_as_that_and_the_feed_goes_on() {
    scene(81, |node| async move {
        let (volume, following) = (Volume::open(&node).await, follow(&node));
        let act = |txn: &mut weft_kv::SpaceTxn<'_>| txn.note(NOTES, b"\xff\xff\xff");
        volume.space.write(Ack::Durable, act).await.expect("room");
        volume.write(&record(&node, 1, 1), Ack::Durable).await.expect("room");
        node.sys.sleep(Duration::from_secs(2)).await;
        let found = all(&node, AuditFilter::default()).await;
        assert!(found.iter().any(|(_, r)| r.operation == "audit-note"));
        assert_eq!(traces(&node).await, [1]);
        following.abort();
    });
}

#[test]
fn many_notes_are_copied_faster_than_a_page_each_half_second() {
    scene(82, |node| async move {
        let (volume, following) = (Volume::open(&node).await, follow(&node));
        let writes = 5000;
        for serial in 1..=writes {
            volume.write(&record(&node, serial, 1), Ack::Applied).await.expect("room");
        }
        node.engine.flush().await.expect("it can");
        node.sys.sleep(Duration::from_secs(1)).await;
        assert_eq!(traces(&node).await.len() as u64, writes);
        following.abort();
    });
}

#[test]
fn each_flush_of_the_log_is_needed() {
    for site in ShownBy::AuthAudit.sites() {
        let run = |seed, ignored: bool| {
            simulate(seed, |sys| async move {
                let disk = SimDisk::new();
                if ignored {
                    disk.set_faults(|faults| faults.ignore = [site].into());
                }
                let node = Scene::start(&sys, disk).await;
                node.auth.audit().record(record(&node, 1, 1)).await;
                node.auth.audit_log().flush().await.expect("it can");
                let node = node.crash(seed).await;
                traces(&node).await == [1] && is_whole(&verdict(&node).await)
            })
        };
        assert!((0..10).all(|seed| run(seed, false)), "{site:?}");
        assert!(!(0..10).all(|seed| run(seed, true)), "{site:?} was skipped and nobody noticed");
    }
}

#[test]
fn records_of_many_tasks_are_all_there() {
    scene(83, |node| async move {
        let node = Arc::new(node);
        let mut tasks = BTreeMap::new();
        for task in 0..20_u64 {
            let inner = node.clone();
            let work = async move {
                for n in 0..100 {
                    inner.auth.audit().record(record(&inner, task * 100 + n, 1)).await;
                }
            };
            tasks.insert(task, node.sys.spawn(work));
        }
        for task in tasks.into_values() {
            task.await.expect("it ends");
        }
        let mut found = traces(&node).await;
        found.sort_unstable();
        assert_eq!(found, (0..2000).collect::<Vec<_>>());
    });
}
