//! Laws of the node's own work: what fails keeps nothing else from being done, and
//! nobody meets it at work.

use std::time::Duration;

use weft_conformance::file_system::Subject;
use weft_conformance::file_system::site::*;
use weft_core::form::{
    Expect, Lock, LockKind, LockOwner, LockScope, Range, Replace, Seek, SyncScope, Wait, Want,
};
use weft_core::{ErrorKind, Rights, limits};
use weft_sys::{SimDisk, simulate};

use super::crash::volume_on;
use super::in_place::{published, soon, unsteady_on};
use super::slow::rest;
use super::unsteady_store::Op;

#[test]
fn an_object_that_cannot_be_removed_keeps_no_other_and_is_tried_again_now_and_then() {
    simulate(1, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let mut objects = Vec::new();
        for n in 0..40 {
            published(&site, &format!("f{n}"), &pattern(20_000, n)).await;
            objects.push(store.last(Op::Sync));
        }
        store.fail(Op::Remove, objects[0]);
        for n in 0..40 {
            site.fs.remove(&site.call(), &at(&format!("f{n}")), Expect::Any, &free()).await.works();
            sys.sleep(Duration::from_secs(10)).await;
        }
        for object in &objects[1..] {
            assert_eq!(store.asked(Op::Remove, *object), 1, "it is removed");
        }
        let tries = store.asked(Op::Remove, objects[0]);
        assert!((2..20).contains(&tries), "{tries} tries in 400 seconds");
        let node = site.call_of(&volume.domain().caller("node:n1"), 9);
        assert_eq!(volume.running().managed.sweep(&node).await.works().left, 1);
        store.recover();
        sys.sleep(limits::TIDY_RETRY_MAX * 2).await;
        let node = site.call_of(&volume.domain().caller("node:n1"), 9);
        assert_eq!(volume.running().managed.sweep(&node).await.works().left, 0);
        let report = volume.running().managed.check(&node).await.works();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    });
}

#[test]
fn an_object_that_cannot_be_labelled_keeps_no_other() {
    simulate(2, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        site.dir("d").await;
        site.seal("d").await;
        let mut objects = Vec::new();
        for n in 0..5 {
            published(&site, &format!("f{n}"), &pattern(20_000, n)).await;
            objects.push(store.last(Op::Sync));
        }
        store.fail(Op::Relabel, objects[0]);
        for n in 0..5 {
            let (from, to) = (format!("f{n}"), format!("d/f{n}"));
            site.fs.rename(&site.call(), &at(&from), &at(&to), Replace::Never, &free()).await.works();
        }
        rest().await;
        for object in &objects[1..] {
            assert_eq!(store.asked(Op::Relabelled, *object), 1);
        }
        store.recover();
        sys.sleep(limits::TIDY_RETRY * 2).await;
        assert_eq!(store.asked(Op::Relabelled, objects[0]), 1, "it is labelled once it can be");
    });
}

/// A container that is gone still names the epoch of what is to be removed from it.
#[test]
fn what_somebody_read_longer_than_its_container_lived_is_removed() {
    simulate(3, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        site.dir("d").await;
        site.seal("d").await;
        published(&site, "d/f", &pattern(20_000, 1)).await;
        let object = store.last(Op::Sync);
        let open = site.fs.open(&site.call(), &at("d/f"), &pinned()).await.works();
        published(&site, "d/f", &pattern(20_000, 2)).await;
        for path in ["d/f", "d"] {
            site.fs.remove(&site.call(), &at(path), Expect::Any, &free()).await.works();
        }
        let node = site.call_of(&volume.domain().caller("node:n1"), 9);
        volume.running().managed.sweep(&node).await.works();
        drop(open);
        sys.sleep(Duration::from_secs(1)).await;
        assert_eq!(store.asked(Op::Remove, object), 1);
        let swept = volume.running().managed.sweep(&node).await.works();
        assert_eq!((swept.left, swept.containers), (0, 1));
    });
}

/// A file whose object cannot be looked at after a crash stops nobody else: the volume
/// opens, and it is settled once it can be.
#[test]
fn a_volume_opens_though_one_object_cannot_be_mended() {
    simulate(4, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let (ids, object) = {
            let site = Site::of(&volume);
            let mut ids = Vec::new();
            for path in ["f", "g"] {
                ids.push(published(&site, path, &pattern(20_000, 1)).await);
            }
            site.write(ids[0], 15_000, &pattern(20_000, 2)).await;
            let object = store.last(Op::Write);
            site.write(ids[1], 15_000, &pattern(20_000, 2)).await;
            (ids, object)
        };
        let before = Site::of(&volume).attr(ids[0]).await.version;
        store.fail(Op::Sync, object);
        volume.crash_in_place().await;
        let site = Site::of(&volume);
        assert_eq!(site.read(ids[1]).await.len(), 35_000);
        assert_ne!(site.attr(ids[0]).await.version, before, "its bytes may be others");
        store.recover();
        sys.sleep(limits::OBJECT_IDLE * 10).await;
        assert_eq!(site.read(ids[0]).await.len(), 35_000);
        let node = site.call_of(&volume.domain().caller("node:n1"), 9);
        let report = volume.running().managed.check(&node).await.works();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    });
}

/// The store has an object's new label before the rows have: who comes in between waits
/// for a moment and is not refused.
#[test]
fn nobody_is_refused_while_a_file_gets_another_label() {
    simulate(5, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        site.dir("d").await;
        site.seal("d").await;
        let bytes = pattern(200_000, 1);
        let id = published(&site, "f", &bytes).await;
        let open = site.fs.open(&site.call(), &at("f"), &pinned()).await.works().file;
        let plain = site.open("f", Rights::READ).await.file;
        let go_on = store.hold(Op::Relabelled);
        site.fs.rename(&site.call(), &at("f"), &at("d/f"), Replace::Never, &free()).await.works();
        rest().await;
        assert_eq!(store.asked(Op::Relabelled, store.last(Op::Relabelled)), 1, "it is at it");
        let mut reads = Vec::new();
        for file in [&open, &plain] {
            let (file, call) = (file.clone(), site.call());
            reads.push(sys.spawn(async move { read_of(&*file, &call, Range::ALL).await }));
        }
        let (fs, call) = (site.fs.clone(), site.call());
        let synced =
            sys.spawn(async move { fs.sync(&call, &weft_core::form::At::id(id), SyncScope::File).await });
        let (file, call) = (plain.clone(), site.call());
        let sought = sys.spawn(async move { file.seek(&call, 10, Seek::Data).await });
        rest().await;
        go_on.send(true).expect("it waits");
        for read in reads {
            assert!(soon(&sys, "a read", read).await.works().works()[..] == bytes[..]);
        }
        soon(&sys, "a flush", synced).await.works().works();
        assert_eq!(soon(&sys, "a search", sought).await.works().works(), 10);
        // And afterwards, for who opened it before.
        for file in [&open, &plain] {
            assert!(read_of(&**file, &site.call(), Range::ALL).await.works()[..] == bytes[..]);
        }
    });
}

#[test]
fn who_waits_for_a_lock_on_a_file_that_goes_is_told() {
    simulate(6, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let id = site.file("f", b"").await;
        let lock = Lock {
            scope: LockScope::Whole,
            kind: LockKind::Exclusive,
            owner: LockOwner(bytes::Bytes::from_static(b"owner")),
        };
        site.fs.lock(&site.call(), &weft_core::form::At::id(id), &lock, Wait::No).await.works();
        let (fs, call) = (site.fs.clone(), site.call_of(&site.admin, 12));
        let began = volume.clock.clone();
        let waits = sys.spawn(async move {
            let until = Wait::Until(call.until);
            fs.lock(&call, &weft_core::form::At::id(id), &lock, until).await
        });
        rest().await;
        let start = weft_core::Clock::tick(&*began);
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
        assert_eq!(waits.await.works().fails(), ErrorKind::Stale);
        let waited = weft_core::Clock::tick(&*began).since(start);
        assert!(waited < Duration::from_secs(1), "{waited:?}");
    });
}

/// What was closed a moment before a clean stop does not come back for those who may
/// reclaim.
#[test]
fn what_a_session_let_go_of_before_a_clean_stop_is_gone_after_it() {
    simulate(7, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let id = site.file("f", b"bytes").await;
        let open = site.open("f", Rights::READ).await;
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
        drop(open);
        drop(site);
        volume.reopen().await;
        let site = Site::of(&volume);
        let walked = site.fs.walk(&site.call(), &weft_core::form::At::id(id), Want::default()).await;
        assert_eq!(walked.fails(), ErrorKind::Stale);
    });
}
