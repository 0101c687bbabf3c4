//! Laws of watches on a machine that is not well.

use std::sync::atomic::Ordering;

use weft_conformance::file_system::site::*;
use weft_core::form::ChangeSeq;
use weft_core::limits::KV_NOTES_RETRY;
use weft_sys::{SimDisk, simulate};

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
