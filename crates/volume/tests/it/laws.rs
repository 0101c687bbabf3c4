//! What a managed volume promises beyond the form: flushes, grace, sweeps, large splits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_conformance::file_system::site::*;
use weft_core::attr::SetAttr;
use weft_core::form::{
    Ack, At, BytesSource, Call, Expect, Lock, LockKind, LockOwner, LockScope, OpenHow, StageHint, Wait, Want,
    WriteAt,
};
use weft_core::service::SessionWatcher;
use weft_core::{ErrorKind, RequestId, Rights, SessionId, limits};
use weft_sys::{FlushSite, SimDisk, Sys, simulate};

use super::crash::volume_on;
use super::in_place::{published, unsteady_on};
use super::site::Volume;
use super::slow::{rest, slow};
use super::unsteady_store::Op;

fn lock() -> Lock {
    Lock {
        scope: LockScope::Whole,
        kind: LockKind::Exclusive,
        owner: LockOwner(bytes::Bytes::from_static(b"owner")),
    }
}

pub async fn simulated(sys: &Sys) -> (SimDisk, Volume) {
    let disk = SimDisk::new();
    let (volume, _) = volume_on(sys, &disk, 1, true).await;
    (disk, volume)
}

#[test]
fn a_durable_create_costs_exactly_one_flush_and_an_applied_one_none() {
    simulate(1, |sys| async move {
        let (disk, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        // The first takes a lease of numbers.
        site.file("warm", b"").await;
        volume.running().engine.flush().await.works();
        let flushes = || disk.counts().flushes.values().sum::<u64>();
        let none = SetAttr::default();
        for n in 0..20 {
            let before = flushes();
            let made = site.fs.make(&site.call().durable(), &at(&format!("f{n}")), new_file(), &none).await;
            made.works();
            assert_eq!(flushes() - before, 1, "create {n}");
        }
        let before = flushes();
        site.fs.make(&site.call(), &at("applied"), new_file(), &none).await.works();
        assert_eq!(flushes() - before, 0);
    });
}

#[test]
fn the_end_of_a_session_costs_a_commit_only_if_it_left_something() {
    simulate(9, |sys| async move {
        let (_disk, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        site.file("f", b"bytes").await;
        let commit = || volume.running().engine.snapshot().works().commit();
        let ended = async |session| {
            let before = commit();
            volume.running().managed.ended(session);
            sys.sleep(Duration::from_millis(1)).await;
            commit() != before
        };
        // Reads leave nothing; nor do changes that nobody can ask for again.
        let reads = Call { session: SessionId(71), ..site.call() };
        site.fs.walk(&reads, &at("f"), Want::default()).await.works();
        site.fs.make(&reads, &at("g"), new_file(), &SetAttr::default()).await.works();
        assert!(!ended(SessionId(71)).await, "it only read");
        let writes = Call { session: SessionId(72), once: Some(RequestId(1)), ..site.call() };
        site.fs.make(&writes, &at("h"), new_file(), &SetAttr::default()).await.works();
        assert!(ended(SessionId(72)).await, "its answers are forgotten");
        assert!(!ended(SessionId(72)).await, "and nothing more is left of it");
        let locks = Call { session: SessionId(73), ..site.call() };
        site.fs.lock(&locks, &at("f"), &lock(), Wait::No).await.works();
        assert!(ended(SessionId(73)).await, "nobody waits for its locks after a restart");
    });
}

#[test]
fn many_durable_creates_at_once_share_flushes() {
    simulate(2, |sys| async move {
        let (disk, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        site.file("warm", b"").await;
        let before = disk.counts().flushes.values().sum::<u64>();
        let creates = (0..64).map(|n| {
            let (fs, call) = (site.fs.clone(), site.call().durable());
            sys.spawn(async move {
                fs.make(&call, &at(&format!("f{n}")), new_file(), &SetAttr::default()).await.works();
            })
        });
        for create in creates.collect::<Vec<_>>() {
            create.await.works();
        }
        let flushes = disk.counts().flushes.values().sum::<u64>() - before;
        assert!(flushes <= 8, "64 creates took {flushes} flushes");
    });
}

/// A durable upload is lost if either of its two flushes is a lie.
#[test]
fn each_flush_of_an_upload_is_needed() {
    let survives = |ignore: Option<FlushSite>, seed: u64| {
        simulate(seed, |sys| async move {
            let (disk, volume) = simulated(&sys).await;
            disk.set_faults(|faults| faults.ignore.extend(ignore));
            let bytes = pattern(200_000, 9);
            {
                let site = Site::of(&volume);
                let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
                stage.put(&site.call(), 1, 0, &mut BytesSource::new(bytes.clone())).await.works();
                stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
            }
            drop(volume);
            let (volume, _) = volume_on(&sys, &disk.crash(seed), 2, false).await;
            let site = Site::of(&volume);
            let Ok(id) = site.find("f").await else { return false };
            let file = site.fs.file(&site.call(), id, Rights::READ).await.works();
            let read = read_of(&*file, &site.call(), weft_core::form::Range::ALL).await;
            read.is_ok_and(|read| read[..] == bytes[..])
        })
    };
    for seed in 0..20 {
        assert!(survives(None, seed), "seed {seed}");
    }
    for site in [FlushSite::KvLogAppend, FlushSite::StoreObject] {
        assert!((0..40).any(|seed| !survives(Some(site), seed)), "{site:?} could be left out");
    }
}

#[test]
fn after_a_restart_only_former_holders_lock_until_the_grace_is_over() {
    simulate(3, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        site.file("f", b"").await;
        let (old, new) = (site.call_of(&site.admin, 11), site.call_of(&site.admin, 12));
        site.fs.lock(&old, &at("f"), &lock(), Wait::No).await.works();
        drop(site);
        volume.reopen().await;
        let site = Site::of(&volume);
        let early = site.fs.lock(&new, &at("f"), &lock(), Wait::No).await;
        assert_eq!(early.fails(), ErrorKind::Locked, "the former holder may still come back");
        site.fs.lock(&old, &at("f"), &lock(), Wait::No).await.works();
        site.fs.unlock(&old, &at("f"), &lock()).await.works();
        sys.sleep(limits::SESSION_GRACE).await;
        site.fs.lock(&new, &at("f"), &lock(), Wait::No).await.works();
    });
}

#[test]
fn a_session_that_did_not_come_back_for_its_locks_is_waited_for_at_one_start_only() {
    simulate(9, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        site.file("f", b"").await;
        site.file("g", b"").await;
        let [gone, back, new] = [11, 12, 13].map(|session| site.call_of(&site.admin, session));
        site.fs.lock(&gone, &at("f"), &lock(), Wait::No).await.works();
        site.fs.lock(&back, &at("g"), &lock(), Wait::No).await.works();
        drop(site);
        volume.reopen().await;
        let site = Site::of(&volume);
        site.fs.lock(&back, &at("g"), &lock(), Wait::No).await.works();
        sys.sleep(limits::SESSION_GRACE + Duration::from_secs(1)).await;
        drop(site);
        volume.crash_in_place().await;
        let site = Site::of(&volume);
        let early = site.fs.lock(&new, &at("f"), &lock(), Wait::No).await;
        assert_eq!(early.fails(), ErrorKind::Locked, "who came back is waited for again");
        for ended in [&new, &back] {
            volume.running().managed.ended(ended.session);
        }
        sys.sleep(Duration::from_secs(10)).await;
        drop(site);
        volume.crash_in_place().await;
        let site = Site::of(&volume);
        site.fs.lock(&new, &at("f"), &lock(), Wait::No).await.works();
    });
}

#[test]
fn a_lock_on_a_file_without_names_holds_while_somebody_has_it_open() {
    simulate(5, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        // Before that nothing without a name is swept.
        sys.sleep(limits::SESSION_GRACE * 2).await;
        let id = site.file("f", b"").await;
        let (one, other) = (site.call_of(&site.admin, 11), site.call_of(&site.admin, 12));
        let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
        let open = site.fs.open(&one, &at("f"), &how).await.works();
        site.fs.lock(&one, &At::id(id), &lock(), Wait::No).await.works();
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
        let node = site.call_of(&volume.domain.caller("node:n1"), 9);
        volume.running().managed.sweep(&node).await.works();
        let second = site.fs.lock(&other, &At::id(id), &lock(), Wait::No).await;
        assert_eq!(second.fails(), ErrorKind::Locked);
        drop(open);
    });
}

#[test]
fn a_lock_that_a_full_disk_kept_from_being_noted_is_noted_with_the_next() {
    simulate(6, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        site.file("f", b"").await;
        let (old, new) = (site.call_of(&site.admin, 11), site.call_of(&site.admin, 12));
        volume.full.store(true, Ordering::Release);
        assert_eq!(site.fs.lock(&old, &at("f"), &lock(), Wait::No).await.fails(), ErrorKind::NoSpace);
        volume.full.store(false, Ordering::Release);
        site.fs.lock(&old, &at("f"), &lock(), Wait::No).await.works();
        drop(site);
        volume.reopen().await;
        let site = Site::of(&volume);
        let early = site.fs.lock(&new, &at("f"), &lock(), Wait::No).await;
        assert_eq!(early.fails(), ErrorKind::Locked, "the former holder may still come back");
    });
}

#[test]
fn what_is_removed_while_a_node_is_checked_is_not_called_lost() {
    simulate(8, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        published(&site, "f", &pattern(20_000, 1)).await;
        let go_on = store.hold(Op::Stat);
        let (managed, node) = (volume.running().managed, volume.domain.caller("node:n1"));
        let call = site.call_of(&node, 9);
        let checking = sys.spawn(async move { managed.check(&call).await });
        rest().await;
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
        sys.sleep(Duration::from_secs(1)).await;
        drop(go_on);
        let report = checking.await.works().works();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    });
}

#[test]
fn a_file_that_was_emptied_and_removed_leaves_no_mark_that_it_is_written() {
    simulate(7, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        let id = site.file("f", &pattern(20_000, 1)).await;
        let file = site.fs.file(&site.call(), id, Rights::WRITE).await.works();
        file.write(&site.call(), WriteAt::Offset(0), &mut BytesSource::new(pattern(20_000, 2))).await.works();
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        site.fs.set(&site.call(), &at("f"), &empty, &free()).await.works();
        drop(file);
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
        let node = site.call_of(&volume.domain.caller("node:n1"), 9);
        let report = volume.running().managed.check(&node).await.works();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    });
}

#[test]
fn an_orphan_is_there_for_reclaiming_through_the_grace_and_swept_after_it() {
    simulate(4, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        let (kept, left) = (site.file("kept", b"reclaimed").await, site.file("left", b"gone").await);
        let opens = [site.open("kept", Rights::READ).await, site.open("left", Rights::READ).await];
        for path in ["kept", "left"] {
            site.fs.remove(&site.call(), &at(path), Expect::Any, &free()).await.works();
        }
        // The process goes without closing them.
        std::mem::forget(opens);
        drop(site);
        volume.crash_in_place().await;
        let site = Site::of(&volume);
        let again = site.fs.open(&site.call(), &At::id(kept), &how(Rights::READ)).await.works().file;
        sys.sleep(limits::SESSION_GRACE + Duration::from_secs(1)).await;
        assert_eq!(
            read_of(&*again, &site.call(), weft_core::form::Range::ALL).await.works(),
            &b"reclaimed"[..]
        );
        assert_eq!(
            site.fs.walk(&site.call(), &At::id(left), Want::default()).await.fails(),
            ErrorKind::Stale
        );
        volume.running().managed.ended(site.call().session);
        sys.sleep(Duration::from_secs(1)).await;
        assert_eq!(
            site.fs.walk(&site.call(), &At::id(kept), Want::default()).await.fails(),
            ErrorKind::Stale
        );
    });
}

/// Changing the policy of many members writes as much as changing that of few.
#[test]
fn an_acl_edit_costs_the_same_whatever_the_container_holds() {
    simulate(6, |sys| async move {
        let (disk, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        let mut written = Vec::new();
        for (dir, members) in [("few", 10), ("many", 5_000)] {
            site.dir(dir).await;
            site.seal(dir).await;
            for file in 0..members {
                site.file(&format!("{dir}/{file}"), b"").await;
            }
            volume.running().engine.flush().await.works();
            let before = disk.counts().bytes;
            site.edit(dir, weft_core::form::Scope::Container, |all| {
                all.push(weft_core::acl::AclEntry::allow(who(&site.user("alice")), Rights::READING));
            })
            .await;
            written.push(disk.counts().bytes - before);
        }
        assert!(written[1] <= written[0] * 2, "{written:?}");
    });
}

#[test]
fn a_sweep_takes_what_nothing_refers_to_and_nothing_else() {
    simulate(7, |sys| async move {
        let disk = SimDisk::new();
        let (volume, store) = volume_on(&sys, &disk, 1, true).await;
        let site = Site::of(&volume);
        for path in ["kept", "removed"] {
            let stage = site.fs.stage(&site.call(), &at(path), &StageHint::default()).await.works();
            stage.put(&site.call(), 1, 0, &mut BytesSource::new(pattern(40_000, 1))).await.works();
            stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
        }
        let stage = site.fs.stage(&site.call(), &at("later"), &StageHint::default()).await.works();
        stage.put(&site.call(), 1, 0, &mut BytesSource::new(pattern(40_000, 2))).await.works();
        // An object that no row knows, as a crash between two rows may leave one.
        let stray = weft_core::ObjectId(77);
        let root = site.attr(weft_core::FileId::ROOT).await.container;
        let granted = volume.domain.granted(&site.admin, root, Rights::ALL);
        weft_core::service::ObjectStore::make(&*store, &granted, stray, None).await.works();
        site.fs.remove(&site.call(), &at("removed"), Expect::Any, &free()).await.works();
        let node = volume.domain.caller("node:n1");
        let swept = volume.running().managed.sweep(&site.call_of(&node, 0)).await.works();
        assert_eq!(swept.objects, 1, "the stray one");
        assert_eq!(store.objects().len(), 2, "the file's and the stage's");
        let refused = volume.running().managed.sweep(&site.call_of(&site.user("alice"), 1)).await;
        assert_eq!(refused.fails(), ErrorKind::Denied, "that there is a root is no secret");
    });
}

#[test]
fn an_acknowledged_durable_write_in_place_survives_and_a_torn_one_has_a_version_of_its_own() {
    for seed in 0..10 {
        simulate(seed, |sys| async move {
            let (disk, volume) = simulated(&sys).await;
            let (id, version) = {
                let site = Site::of(&volume);
                let id = site.file("f", &pattern(100_000, 1)).await;
                let file = site.fs.file(&site.call(), id, Rights::WRITE).await.works();
                let mut bytes = BytesSource::new(pattern(50_000, 2));
                let call = site.call().durable();
                file.write(&call, WriteAt::Offset(10_000), &mut bytes).await.works();
                let version = site.attr(id).await.version;
                let mut more = BytesSource::new(pattern(50_000, 3));
                let call = Call { ack: Ack::Applied, ..call };
                file.write(&call, WriteAt::Offset(60_000), &mut more).await.works();
                (id, version)
            };
            drop(volume);
            let (volume, _) = volume_on(&sys, &disk.crash(seed), 2, false).await;
            let site = Site::of(&volume);
            let read = site.read(id).await;
            assert!(read[10_000..60_000] == pattern(50_000, 2)[..], "seed {seed}");
            assert_ne!(site.attr(id).await.version, version, "its bytes may be others");
        });
    }
}

/// Bytes of an object change under one version only if a crash can tell that they were
/// being written.
#[test]
fn no_version_is_shown_again_over_other_bytes_after_a_crash() {
    let mut changed = 0;
    for seed in 0..40 {
        changed += simulate(seed, |sys| async move {
            let (disk, volume) = simulated(&sys).await;
            let bytes = pattern(100_000, 1);
            let (id, version) = {
                let site = Site::of(&volume);
                let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
                stage.put(&site.call(), 1, 0, &mut BytesSource::new(bytes.clone())).await.works();
                stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
                let id = site.find("f").await.works();
                let version = site.attr(id).await.version;
                site.write(id, 0, &pattern(60_000, 2)).await;
                (id, version)
            };
            drop(volume);
            let (volume, _) = volume_on(&sys, &disk.crash(seed), 2, false).await;
            let site = Site::of(&volume);
            let differs = site.read(id).await[..] != bytes[..];
            assert!(!differs || site.attr(id).await.version != version, "seed {seed}");
            usize::from(differs)
        });
    }
    assert!(changed > 0, "the disk kept none of what was written: nothing was tried");
}

/// A part goes on from what was kept of it, though a put was given up in the middle.
#[test]
fn a_part_whose_put_was_dropped_is_gone_on_with() {
    simulate(11, |sys| async move {
        let (_, volume) = simulated(&sys).await;
        let site = Site::of(&volume);
        let call = site.call();
        let bytes = pattern(400_000, 1);
        let stage = async |name| site.fs.stage(&call, &at(name), &StageHint::default()).await.works();
        let part = stage("f").await;
        part.put(&call, 1, 0, &mut BytesSource::new(bytes[..300_000].to_vec())).await.works();
        {
            let (pieces, mut source) = slow();
            pieces.send(vec![9; 50_000]).expect("it is pulled");
            let mut dropped = part.put(&call, 1, 300_000, &mut source);
            tokio::select! {
                biased;
                _ = &mut dropped => panic!("more was to come"),
                () = rest() => {}
            }
        }
        let on = part.put(&call, 1, 300_000, &mut BytesSource::new(bytes[300_000..].to_vec())).await.works();
        let whole = stage("g").await.put(&call, 1, 0, &mut BytesSource::new(bytes)).await.works();
        assert_eq!(on, whole);
    });
}
