//! Laws of watches on a machine that is not well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_conformance::file_system::site::*;
use weft_core::attr::SetAttr;
use weft_core::form::{Ack, Call, ChangeSeq, New};
use weft_core::limits::{KV_NOTES_RETRY, WATCHED_FLUSH_REST};
use weft_core::{Deadline, ErrorKind};
use weft_sys::{FlushSite, SimDisk, simulate};

use super::crash::volume_on;

#[test]
fn a_watch_tells_what_happens_after_changes_could_not_be_read_for_a_while() {
    simulate(1, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let told = site.fs.watch(&site.call(), &at(""), ChangeSeq(0)).await.works().next;
        volume.unreadable.store(3, Ordering::Release);
        // Whoever waits for notes already gets these.
        site.file("f", b"").await;
        let told = site.fs.watch(&site.call(), &at(""), told).await.works().next;
        sys.sleep(KV_NOTES_RETRY / 2).await;
        assert_eq!(volume.unreadable.load(Ordering::Acquire), 2, "it rests before it tries again");
        let id = site.file("g", b"").await;
        sys.sleep(KV_NOTES_RETRY * 3).await;
        let changes = site.fs.watch(&site.call(), &at(""), told).await.works().changes;
        assert!(changes.iter().any(|change| change.file == id), "{changes:?}");
    });
}

#[test]
fn one_change_is_told_at_once_and_many_are_told_with_few_flushes() {
    const MANY: u32 = 100;
    simulate(2, |sys| async move {
        let disk = SimDisk::new();
        let (volume, _) = volume_on(&sys, &disk, 1, true).await;
        let site = Site::of(&volume);
        let flushes = || disk.counts().flushes.get(&FlushSite::KvLogAppend).copied().unwrap_or(0);
        let make = async |name: String| {
            let call = Call { ack: Ack::Applied, ..site.call() };
            site.fs.make(&call, &at(&name), New::File { verifier: None }, &SetAttr::default()).await.works();
        };
        let mut told = site.fs.watch(&site.call(), &at(""), ChangeSeq(0)).await.works().next;
        let (watching, call) = (site.fs.clone(), site.call());
        let mut since = told;
        // Somebody always waits to be told.
        let watcher = sys.spawn(async move {
            loop {
                since = watching.watch(&call, &at(""), since).await.works().next;
            }
        });
        sys.sleep(Duration::from_secs(1)).await;
        let begun = sys.clock().tick();
        make("alone".into()).await;
        let seen = site.fs.watch(&site.call(), &at(""), told).await.works();
        told = seen.next;
        assert!(sys.clock().tick().since(begun) < WATCHED_FLUSH_REST.0, "it waits for no rest");
        sys.sleep(Duration::from_secs(1)).await;
        let before = flushes();
        for n in 0..MANY {
            make(format!("f{n}")).await;
            sys.sleep(Duration::from_millis(1)).await;
        }
        let made = flushes() - before;
        assert!((5..=MANY as u64 / 5).contains(&made), "{made} flushes");
        sys.sleep(2 * WATCHED_FLUSH_REST.1).await;
        let mut seen = 0;
        while seen < MANY as usize {
            let page = site.fs.watch(&site.call(), &at(""), told).await.works();
            (seen, told) = (seen + page.changes.len(), page.next);
        }
        watcher.abort();
    });
}

#[test]
fn who_comes_back_for_more_changes_does_not_have_each_flushed_by_itself() {
    const MANY: u32 = 20;
    let rest = WATCHED_FLUSH_REST.0;
    simulate(3, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let mut told = site.fs.watch(&site.call(), &at(""), ChangeSeq(0)).await.works().next;
        let begun = sys.clock().tick();
        for n in 0..MANY {
            let call = Call { ack: Ack::Applied, ..site.call() };
            let (name, new) = (format!("f{n}"), New::File { verifier: None });
            site.fs.make(&call, &at(&name), new, &SetAttr::default()).await.works();
            let page = site.fs.watch(&site.call(), &at(""), told).await.works();
            assert_eq!(page.changes.len(), 1, "{page:?}");
            told = page.next;
        }
        let taken = sys.clock().tick().since(begun);
        assert!((rest * (MANY - 1)..rest * (MANY + 2)).contains(&taken), "{taken:?}");
    });
}

#[test]
fn who_waits_hears_that_nothing_can_be_told_any_more() {
    simulate(4, |sys| async move {
        let disk = SimDisk::new();
        let (volume, _) = volume_on(&sys, &disk, 1, true).await;
        let site = Site::of(&volume);
        let told = site.fs.watch(&site.call(), &at(""), ChangeSeq(0)).await.works().next;
        let call = Call { ack: Ack::Applied, ..site.call() };
        site.fs.make(&call, &at("f"), New::File { verifier: None }, &SetAttr::default()).await.works();
        disk.set_faults(|faults| faults.fail_flush = Some(1));
        let begun = sys.clock().tick();
        let mut call = site.call();
        assert_eq!(site.fs.watch(&call, &at(""), told).await.fails(), ErrorKind::Unavailable);
        assert!(sys.clock().tick().since(begun) < WATCHED_FLUSH_REST.1, "at once");
        // However short it waits: nothing is tried while flushes rest.
        call.until = Deadline::within(sys.clock(), WATCHED_FLUSH_REST.0 / 10);
        assert_eq!(site.fs.watch(&call, &at(""), told).await.fails(), ErrorKind::Unavailable);
    });
}
