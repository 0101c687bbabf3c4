//! What copies the audit records of writes goes on past whatever fails for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::service::AuditRecord;
use weft_core::{Deadline, Error, ErrorKind, Result, limits};
use weft_kv::{Engine, Note, NotePosition, Notes, Options, SpaceTxn, Txn};
use weft_sys::{Disk, SimDisk, Task, simulate};

use crate::audit::{NOTES, Volume, follow, is_whole, record, traces, verdict};
use crate::scene::{Scene, scene, settings};

/// Metadata that soon has to be folded, and on a full disk soon cannot be.
const SMALL: Options = Options {
    segment_bytes: 64 << 10,
    fold_bytes: 16 << 10,
    overlay_bytes_max: 64 << 10,
    cache_bytes: 1 << 20,
    company_wait: limits::KV_COMPANY_WAIT,
    flush_at_once: limits::KV_FLUSH_AT_ONCE,
    flush_aside: 2,
    flush_aside_from: limits::KV_FLUSH_ASIDE_FROM,
};

/// Leaves `left` bytes free on the disk.
fn leave_free(disk: &SimDisk, left: u64) {
    let space = disk.space().expect("a simulated disk knows");
    disk.set_faults(|faults| faults.capacity = Some(space.total - space.free + left));
}

/// Makes changes until the metadata takes no more.
async fn fill(volume: &Volume) {
    for key in 0..10_000_u64 {
        let act = move |txn: &mut SpaceTxn<'_>| txn.put(&(key << 32).to_be_bytes(), &[0; 1000]);
        if let Err(error) = volume.space.write(Ack::Durable, act).await {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
            return;
        }
    }
    panic!("the disk never filled");
}

/// Returns whether the log has every write that was answered, as `weft audit` asks it.
async fn has_all(node: &Scene) -> bool {
    node.engine.flush().await.expect("room");
    let last = node.engine.last_note(NOTES).expect("it can be read").unwrap_or(NotePosition(0));
    node.auth.audit_log().copied(last).await.is_ok()
}

#[test]
fn a_disk_that_is_full_for_a_while_ends_no_copying_and_each_write_is_recorded_once() {
    // So little is left that the record goes to the disk but its note cannot be let go of; or that
    // nothing goes.
    for (seed, left) in [(87, 900_000), (88, 0)] {
        simulate(seed, |sys| async move {
            let node = Scene::start_with(&sys, SimDisk::new(), settings(), SMALL).await.expect("it starts");
            let (volume, _following) = (Volume::open(&node).await, follow(&node));
            sys.sleep(Duration::from_secs(2)).await;
            for serial in [1, 2] {
                // More than fits behind what is there where the disk has no block left.
                let because = "x".repeat(limits::AUDIT_TEXT_BYTES_MAX);
                let first = AuditRecord { because, ..record(&node, serial, 1) };
                volume.write(&first, Ack::Durable).await.expect("room");
                leave_free(&node.disk, left);
                fill(&volume).await;
                sys.sleep(Duration::from_secs(3)).await;
                let kept = node
                    .engine
                    .last_note(NOTES)
                    .expect("it can be read")
                    .unwrap_or_else(|| panic!("{left} bytes left, {serial}: it was let go of"));
                let copied = node.auth.audit_log().copied(kept).await;
                assert_eq!(copied.is_ok(), left > 0, "the disk is as full as the test wants it: {copied:?}");
                node.disk.set_faults(|faults| faults.capacity = None);
                // A fold that was refused rests first.
                sys.sleep(limits::KV_FOLD_RETRY * 2).await;
                volume.write(&record(&node, serial + 10, 1), Ack::Durable).await.expect("room again");
                assert!(has_all(&node).await, "{left} bytes left: the copying has ended");
                sys.sleep(Duration::from_secs(1)).await;
                let kept = node.engine.last_note(NOTES).expect("it can be read");
                assert_eq!(kept, None, "{left} bytes left: nothing is let go of any more");
            }
            assert_eq!(traces(&node).await, [1, 11, 2, 12], "{left} bytes left");
            assert!(is_whole(&verdict(&node).await));
            drop(volume);
            let node = node.restart_uncleanly().await;
            let _following = follow(&node);
            sys.sleep(Duration::from_secs(2)).await;
            assert_eq!(traces(&node).await, [1, 11, 2, 12], "{left} bytes left, after a restart");
        });
    }
}

/// Notes of which so many reads fail.
struct Unsteady {
    inner: Box<dyn Notes>,
    failures: Arc<AtomicU32>,
}

#[async_trait::async_trait]
impl Notes for Unsteady {
    async fn next(&mut self) -> Result<Vec<Note>> {
        let less = |left: u32| left.checked_sub(1);
        if self.failures.try_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
            return Err(Error::new(ErrorKind::Unavailable, "the metadata tree failed before"));
        }
        self.inner.next().await
    }

    async fn ack(&mut self, position: NotePosition) -> Result<()> {
        self.inner.ack(position).await
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }
}

fn follow_unsteadily(node: &Scene, failures: &Arc<AtomicU32>) -> Task<Result<()>> {
    let inner = node.engine.notes(NOTES).expect("the one subscriber");
    let (log, notes) = (node.auth.audit_log(), Unsteady { inner, failures: failures.clone() });
    node.sys.spawn(async move { log.follow(Box::new(notes)).await })
}

#[test]
fn a_read_that_fails_ends_no_copying_and_each_write_is_recorded_once() {
    scene(89, |node| async move {
        let failures = Arc::new(AtomicU32::new(1));
        let (volume, _following) = (Volume::open(&node).await, follow_unsteadily(&node, &failures));
        for serial in 1..=5 {
            volume.write(&record(&node, serial, 1), Ack::Durable).await.expect("room");
            assert!(has_all(&node).await, "the copying has ended before write {serial}");
            failures.store(serial as u32, Ordering::Release);
        }
        assert_eq!(traces(&node).await, [1, 2, 3, 4, 5]);
    });
}

#[test]
fn the_copying_ends_with_the_engine_even_while_nothing_can_be_read() {
    for failures in [0, u32::MAX] {
        scene(90, |node| async move {
            let following = follow_unsteadily(&node, &Arc::new(AtomicU32::new(failures)));
            node.sys.sleep(Duration::from_secs(5)).await;
            node.engine.close().await.expect("it closes");
            let soon = Deadline::within(node.sys.clock(), limits::KV_NOTES_RETRY * 2);
            node.sys.within(soon, following).await.expect("soon").expect("that is no failure");
        });
    }
}
