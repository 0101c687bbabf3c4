//! What every engine promises, one law a test, through the trait alone except for opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::{Error, ErrorKind};
use weft_kv::{
    Embedded, Engine, Migration, NoteKind, Options, Order, Read, Schema, Space, SpaceId, SpaceTxn, Stepped,
    Txn, counter,
};
use weft_sys::{Disk, SimDisk, Sys, simulate};

/// Small sizes, so that segments roll and folds happen within a test.
pub const SMALL: Options = Options {
    segment_bytes: 8 << 10,
    fold_bytes: 8 << 10,
    overlay_bytes_max: 64 << 10,
    cache_bytes: 1 << 20,
    company_wait: weft_core::limits::KV_COMPANY_WAIT,
    flush_at_once: weft_core::limits::KV_FLUSH_AT_ONCE,
    flush_aside: 2,
    flush_aside_from: weft_core::limits::KV_FLUSH_ASIDE_FROM,
};

/// Everything goes through the queue, so that what waits together shares a batch.
pub const QUEUED: Options = Options { flush_at_once: Duration::ZERO, ..SMALL };

const SCHEMA: Schema = Schema { version: 1, migrations: &[] };

fn opened(sys: &Sys, disk: &SimDisk) -> Arc<dyn Engine> {
    opened_with(sys, disk, SMALL)
}

fn opened_with(sys: &Sys, disk: &SimDisk, options: Options) -> Arc<dyn Engine> {
    Arc::new(Embedded::open(sys.clone(), Arc::new(disk.clone()), options).expect("it opens"))
}

async fn space(sys: &Sys) -> Space {
    Space::open(opened(sys, &SimDisk::new()), SpaceId(1), &SCHEMA).await.expect("it opens")
}

fn kind_of<T>(done: weft_core::Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind())
}

fn keys(read: &impl Read, from: &[u8], to: &[u8], order: Order) -> Vec<String> {
    read.scan(from, to, order)
        .map(|row| String::from_utf8_lossy(&row.expect("a row").0).into_owned())
        .collect()
}

#[test]
fn a_transaction_sees_what_it_did_and_returns_what_it_computed() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        let act = |txn: &mut SpaceTxn<'_>| {
            txn.put(b"a", b"1")?;
            txn.put(b"b", b"2")?;
            txn.delete(b"a")?;
            Ok((txn.get(b"a")?, txn.get(b"b")?, keys(txn, b"", b"", Order::Rising)))
        };
        let (seen, commit) = space.write(Ack::Durable, act).await.expect("it commits");
        assert_eq!(seen, (None, Some("2".into()), vec!["b".to_owned()]));
        let snapshot = space.snapshot().expect("a snapshot");
        assert!(snapshot.commit() >= commit);
        assert_eq!(snapshot.get(b"b").expect("a read"), Some("2".into()));
    });
}

#[test]
fn a_closure_that_fails_or_panics_leaves_nothing_and_the_next_one_works() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        let fails = |txn: &mut SpaceTxn<'_>| {
            txn.put(b"a", b"1")?;
            txn.note(NoteKind(1), b"never")?;
            Err::<(), _>(Error::exists("on purpose"))
        };
        assert_eq!(kind_of(space.write(Ack::Durable, fails).await), Some(ErrorKind::Exists));
        let panics = |txn: &mut SpaceTxn<'_>| -> weft_core::Result<()> {
            txn.put(b"a", b"1")?;
            panic!("on purpose")
        };
        assert_eq!(kind_of(space.write(Ack::Durable, panics).await), Some(ErrorKind::Internal));
        let looks_away = |txn: &mut SpaceTxn<'_>| {
            txn.put(b"a", b"1")?;
            let _ = txn.put(b"b", &vec![0; 2 << 20]);
            Ok(())
        };
        assert_eq!(kind_of(space.write(Ack::Durable, looks_away).await), Some(ErrorKind::TooLarge));
        assert!(keys(&space.snapshot().expect("a snapshot"), b"", b"", Order::Rising).is_empty());
        space.write(Ack::Durable, |txn| txn.put(b"a", b"2")).await.expect("it commits");
    });
}

#[test]
fn a_closure_that_fails_leaves_nothing_to_those_it_shares_a_batch_with() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let space =
            Space::open(opened_with(&sys, &disk, QUEUED), SpaceId(1), &SCHEMA).await.expect("it opens");
        space.write(Ack::Durable, |txn| txn.put(b"kept", b"old")).await.expect("it commits");
        let before = disk.counts().changes;
        let first = space.write(Ack::Durable, |txn| txn.put(b"first", b""));
        let fails = space.write(Ack::Durable, |txn| {
            txn.put(b"kept", b"new")?;
            txn.delete(b"first")?;
            txn.put(b"added", b"")?;
            txn.note(NoteKind(1), b"never")?;
            Err::<(), _>(Error::exists("on purpose"))
        });
        let last = space.write(Ack::Durable, |txn| {
            txn.note(NoteKind(1), b"last")?;
            Ok((keys(txn, b"", b"", Order::Rising), txn.get(b"kept")?))
        });
        let (first, fails, last) = tokio::join!(first, fails, last);
        first.expect("it commits");
        assert_eq!(kind_of(fails), Some(ErrorKind::Exists));
        let expected = (vec!["first".to_owned(), "kept".to_owned()], Some("old".into()));
        assert_eq!(last.expect("it commits").0, expected);
        assert_eq!(disk.counts().changes - before, 2, "they shared one write and one flush");
        let read = |space: &Space| {
            let read = space.snapshot().expect("a snapshot");
            (keys(&read, b"", b"", Order::Rising), read.get(b"kept").expect("a read"))
        };
        assert_eq!(read(&space), expected);
        let notes = space.notes(NoteKind(1)).expect("a subscription").next().await.expect("notes");
        assert_eq!(
            notes.iter().map(|note| (note.position.0, &note.bytes[..])).collect::<Vec<_>>(),
            [(1, &b"last"[..])]
        );
        let after = Space::open(opened(&sys, &disk.crash(1)), SpaceId(1), &SCHEMA).await.expect("it opens");
        assert_eq!(read(&after), expected);
    });
}

#[test]
fn a_snapshot_stays_as_it_was_through_later_writes_and_folds() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        for row in 0..50_u8 {
            space.write(Ack::Applied, move |txn| txn.put(&[row], b"old")).await.expect("it commits");
        }
        let before = space.snapshot().expect("a snapshot");
        for round in 0..20_u8 {
            for row in 0..100_u8 {
                space
                    .write(Ack::Applied, move |txn| txn.put(&[row], &[round; 40]))
                    .await
                    .expect("it commits");
            }
        }
        let rows: Vec<_> = before.scan(b"", b"", Order::Rising).map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), 50);
        assert!(rows.iter().all(|(_, value)| value == "old"));
        assert_eq!(space.snapshot().expect("a snapshot").scan(b"", b"", Order::Rising).count(), 100);
    });
}

#[test]
fn scans_keep_their_bounds_and_run_both_ways() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        for key in ["a", "b", "c", "d"] {
            space.write(Ack::Applied, move |txn| txn.put(key.as_bytes(), b"")).await.expect("it commits");
        }
        let read = space.snapshot().expect("a snapshot");
        assert_eq!(keys(&read, b"b", b"d", Order::Rising), ["b", "c"]);
        assert_eq!(keys(&read, b"b", b"", Order::Falling), ["d", "c", "b"]);
        assert!(keys(&read, b"d", b"b", Order::Rising).is_empty());
        assert!(keys(&read, b"b", b"b", Order::Falling).is_empty());
    });
}

#[test]
fn bumps_add_up_and_refuse_to_overflow() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        for delta in [5, -7, 100] {
            space.write(Ack::Applied, move |txn| txn.bump(b"n", delta)).await.expect("it commits");
        }
        let value = space.snapshot().and_then(|read| read.get(b"n")).expect("a read").expect("a value");
        assert_eq!(counter(&value).expect("a counter"), 98);
        let over = space.write(Ack::Applied, |txn| txn.bump(b"n", i64::MAX)).await;
        assert_eq!(kind_of(over), Some(ErrorKind::Invalid));
    });
}

#[test]
fn spaces_do_not_see_each_other_and_own_keys_are_out_of_reach() {
    simulate(1, |sys| async move {
        let engine = opened(&sys, &SimDisk::new());
        let one = Space::open(engine.clone(), SpaceId(1), &SCHEMA).await.expect("it opens");
        let two = Space::open(engine.clone(), SpaceId(2), &SCHEMA).await.expect("it opens");
        one.write(Ack::Applied, |txn| txn.put(b"a", b"")).await.expect("it commits");
        assert!(keys(&two.snapshot().expect("a snapshot"), b"", b"", Order::Rising).is_empty());
        let own = engine.write(Ack::Applied, Box::new(|txn| txn.put(&[0xff, b'n'], b""))).await;
        assert_eq!(kind_of(own), Some(ErrorKind::Invalid));
        let empty = engine.write(Ack::Applied, Box::new(|txn| txn.put(b"", b""))).await;
        assert_eq!(kind_of(empty), Some(ErrorKind::Invalid));
        assert_eq!(kind_of(Space::open(engine, SpaceId(0), &SCHEMA).await), Some(ErrorKind::Invalid));
    });
}

#[test]
fn notes_come_once_durable_in_order_until_acknowledged() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        let mut notes = space.notes(NoteKind(7)).expect("the first subscriber");
        assert_eq!(kind_of(space.notes(NoteKind(7))), Some(ErrorKind::Busy));
        for at in 0..3_u8 {
            space.write(Ack::Applied, move |txn| txn.note(NoteKind(7), &[at])).await.expect("it commits");
        }
        let soon = sys.clock().tick().plus(Duration::from_secs(1));
        tokio::select! {
            biased;
            _ = notes.next() => panic!("nothing is flushed yet"),
            () = sys.sleep_until(soon) => {}
        }
        space.flush().await.expect("it flushes");
        let first = notes.next().await.expect("notes");
        let seen: Vec<_> = first.iter().map(|note| (note.position.0, note.bytes[0])).collect();
        assert_eq!(seen, [(1, 0), (2, 1), (3, 2)]);
        notes.ack(first[1].position).await.expect("it is noted");
        drop(notes);
        let mut again = space.notes(NoteKind(7)).expect("the first one is gone");
        let rest = again.next().await.expect("notes");
        assert_eq!(rest, first[2..]);
    });
}

#[test]
fn an_applied_commit_is_flushed_by_itself_within_five_seconds() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let space = Space::open(opened(&sys, &disk), SpaceId(1), &SCHEMA).await.expect("it opens");
        space.write(Ack::Applied, |txn| txn.put(b"a", b"1")).await.expect("it commits");
        sys.sleep(weft_core::limits::APPLIED_FLUSH_DELAY + Duration::from_millis(1)).await;
        for seed in 0..20 {
            let after = opened(&sys, &disk.crashed_copy(seed));
            let found = after.snapshot().and_then(|read| read.get(b"\x01a")).expect("a read");
            assert_eq!(found, Some("1".into()), "seed {seed}");
        }
    });
}

/// Polls once. Returns the answer if there is one.
async fn polled<T>(write: impl Future<Output = T> + Unpin) -> Option<T> {
    tokio::select! { biased; done = write => Some(done), () = std::future::ready(()) => None }
}

#[test]
fn who_is_alone_commits_on_its_own_thread() {
    simulate(1, |sys| async move {
        for (options, at_once) in [(SMALL, true), (QUEUED, false)] {
            let engine = opened_with(&sys, &SimDisk::new(), options);
            // The first flush is measured: a slow one is not for a caller's thread.
            let space = Space::open(engine, SpaceId(1), &SCHEMA).await.expect("it opens");
            let write = Box::pin(space.write(Ack::Durable, |txn| txn.put(b"a", b"1")));
            assert_eq!(polled(write).await.is_some_and(|done| done.is_ok()), at_once);
            assert_eq!(polled(Box::pin(space.flush())).await.is_some(), at_once);
        }
    });
}

#[test]
fn what_a_lone_caller_gathers_in_memory_is_folded_behind_it() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        // All of it goes into one segment: the writer is not needed for another.
        let engine = opened_with(&sys, &disk, Options { segment_bytes: 256 << 10, ..SMALL });
        let space = Space::open(engine, SpaceId(1), &SCHEMA).await.expect("it opens");
        let folds = |disk: &SimDisk| disk.counts().flushes[&weft_sys::FlushSite::KvTree];
        let before = folds(&disk);
        let mut written = 0;
        for row in 0.. {
            space.write(Ack::Applied, move |txn| txn.put(&[row], &[1; 200])).await.expect("it commits");
            written += 200 + 128;
            if folds(&disk) > before {
                break;
            }
            // The writer's turn.
            sys.sleep(Duration::from_micros(1)).await;
        }
        assert!(written < 2 * SMALL.fold_bytes, "{written}");
    });
}

#[test]
fn nobody_overtakes_those_that_queue() {
    simulate(1, |sys| async move {
        let engine = opened(&sys, &SimDisk::new());
        // Nothing is known of the disk yet, so that this is the writer's.
        let mut first = Box::pin(engine.write(Ack::Durable, Box::new(|txn| txn.put(b"a", b"1"))));
        assert!(polled(&mut first).await.is_none());
        let after =
            |txn: &mut dyn Txn| txn.get(b"a")?.map(drop).ok_or_else(|| Error::not_found("it is first"));
        let second = engine.write(Ack::Applied, Box::new(after));
        second.await.expect("the first was before it");
        first.await.expect("it commits");
    });
}

#[test]
fn a_write_whose_caller_left_happens_all_the_same() {
    simulate(1, |sys| async move {
        let space = space(&sys).await;
        {
            let write = space.write(Ack::Durable, |txn| txn.put(b"a", b"1"));
            tokio::pin!(write);
            // One poll queues it.
            tokio::select! { biased; _ = &mut write => {} () = std::future::ready(()) => {} }
        }
        space.flush().await.expect("it flushes");
        assert!(space.snapshot().and_then(|read| read.get(b"a")).expect("a read").is_some());
    });
}

#[test]
fn an_older_schema_is_migrated_and_a_newer_one_refused() {
    fn rename(txn: &mut SpaceTxn<'_>, _: &[u8]) -> weft_core::Result<Stepped> {
        txn.delete(b"old")?;
        txn.put(b"new", b"")?;
        Ok(Stepped::Done)
    }
    simulate(1, |sys| async move {
        let engine = opened(&sys, &SimDisk::new());
        let space = Space::open(engine.clone(), SpaceId(1), &SCHEMA).await.expect("it opens");
        space.write(Ack::Applied, |txn| txn.put(b"old", b"")).await.expect("it commits");
        let two = Schema { version: 2, migrations: &[Migration { from: 1, step: rename }] };
        let space = Space::open(engine.clone(), SpaceId(1), &two).await.expect("it migrates");
        assert_eq!(keys(&space.snapshot().expect("a snapshot"), b"", b"", Order::Rising), ["new"]);
        let newer = Space::open(engine, SpaceId(1), &SCHEMA).await.expect_err("it is newer");
        assert_eq!(newer.kind(), ErrorKind::Unsupported);
        assert!(newer.detail().contains("schema 2") && newer.advice().is_some(), "{newer:?}");
    });
}

#[test]
fn a_step_of_many_parts_that_is_cut_off_goes_on_where_it_was() {
    /// Fails the sixth part, once.
    static PARTS: AtomicUsize = AtomicUsize::new(0);
    /// Adds a mark to two rows.
    fn mark(txn: &mut SpaceTxn<'_>, from: &[u8]) -> weft_core::Result<Stepped> {
        if PARTS.fetch_add(1, Atomic::SeqCst) == 5 {
            return Err(Error::new(ErrorKind::Unavailable, "the power went"));
        }
        let rows: Vec<_> = txn.scan(from, b"", Order::Rising).take(2).collect::<weft_core::Result<_>>()?;
        for (key, value) in &rows {
            txn.put(key, &[value, &b"!"[..]].concat())?;
        }
        Ok(match rows.last().filter(|_| rows.len() == 2) {
            Some((last, _)) => Stepped::Until([last, &[0][..]].concat()),
            None => Stepped::Done,
        })
    }
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk);
        let space = Space::open(engine.clone(), SpaceId(1), &SCHEMA).await.expect("it opens");
        let fill = |txn: &mut SpaceTxn<'_>| (0..21_u8).try_for_each(|n| txn.put(&[b'k', n], b"value"));
        space.write(Ack::Durable, fill).await.expect("it commits");
        let two = Schema { version: 2, migrations: &[Migration { from: 1, step: mark }] };
        let cut = Space::open(engine.clone(), SpaceId(1), &two).await.expect_err("it is cut off");
        assert_eq!(cut.kind(), ErrorKind::Unavailable);
        drop((space, engine));
        let engine = opened(&sys, &disk.crash(1));
        let older = Space::open(engine.clone(), SpaceId(1), &Schema { version: 3, migrations: &[] }).await;
        assert_eq!(kind_of(older), Some(ErrorKind::Unsupported), "it is still of version 1");
        let space = Space::open(engine, SpaceId(1), &two).await.expect("it goes on");
        let rows = space.snapshot().expect("a snapshot");
        for row in rows.scan(b"", b"", Order::Rising) {
            assert_eq!(&row.expect("a row").1[..], b"value!", "once each");
        }
        assert_eq!(keys(&rows, b"", b"", Order::Rising).len(), 21);
    });
}

#[test]
fn one_directory_is_opened_once_at_a_time_and_keeps_everything_when_closed() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk);
        let second = Embedded::open(sys.clone(), Arc::new(disk.clone()), SMALL);
        assert_eq!(kind_of(second), Some(ErrorKind::Busy));
        let boot = engine.boot();
        engine.write(Ack::Applied, Box::new(|txn| txn.put(b"a", b"1"))).await.expect("it commits");
        engine.close().await.expect("it closes");
        assert_eq!(kind_of(engine.flush().await), Some(ErrorKind::Unavailable));
        let again = opened(&sys, &disk);
        assert_ne!(again.boot(), boot);
        assert_eq!(again.snapshot().and_then(|read| read.get(b"a")).expect("a read"), Some("1".into()));
    });
}

#[test]
fn one_transaction_may_be_larger_than_a_log_segment() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let space = Space::open(opened(&sys, &disk), SpaceId(1), &SCHEMA).await.expect("it opens");
        let split = |txn: &mut SpaceTxn<'_>| {
            (0..10_000_u32).try_for_each(|member| txn.put(&member.to_be_bytes(), &[3; 300]))
        };
        space.write(Ack::Durable, split).await.expect("it commits");
        let after = Space::open(opened(&sys, &disk.crash(5)), SpaceId(1), &SCHEMA).await.expect("it opens");
        let rows = after.snapshot().expect("a snapshot").scan(b"", b"", Order::Rising).count();
        assert_eq!(rows, 10_000);
    });
}

#[test]
fn an_engine_that_is_dropped_flushes_what_it_applied() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk);
        engine.write(Ack::Applied, Box::new(|txn| txn.put(b"a", b"1"))).await.expect("it commits");
        drop(engine);
        sys.sleep(Duration::from_millis(1)).await;
        for seed in 0..20 {
            let after = opened(&sys, &disk.crashed_copy(seed));
            assert!(
                after.snapshot().and_then(|read| read.get(b"a")).expect("a read").is_some(),
                "seed {seed}"
            );
        }
    });
}

#[test]
fn a_short_scan_in_a_huge_range_reads_a_few_pages() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk);
        for part in 0..50_u32 {
            let act = move |txn: &mut dyn Txn| {
                (0..1000).try_for_each(|row| txn.put(&(part * 1000 + row).to_be_bytes(), &[1; 50]))
            };
            engine.write(Ack::Applied, Box::new(act)).await.expect("it commits");
        }
        engine.close().await.expect("it closes");
        let engine = opened(&sys, &disk);
        let snapshot = engine.snapshot().expect("a snapshot");
        for (from, order) in [(0_u32, Order::Rising), (25_000, Order::Rising), (0, Order::Falling)] {
            let before = disk.counts().reads;
            let rows =
                snapshot.scan(&from.to_be_bytes(), &[1], order).take(10).filter(|row| row.is_ok()).count();
            let reads = disk.counts().reads - before;
            assert!(rows == 10 && reads < 12, "{reads} pages for {rows} rows");
        }
    });
}

#[test]
fn a_row_written_over_and_over_does_not_make_the_log_longer_and_longer() {
    simulate(1, |sys| async move {
        for options in [SMALL, QUEUED] {
            let disk = SimDisk::new();
            let space =
                Space::open(opened_with(&sys, &disk, options), SpaceId(1), &SCHEMA).await.expect("it opens");
            let mut most = 0;
            for _ in 0..5000 {
                space.write(Ack::Durable, |txn| txn.bump(b"entries", 1)).await.expect("it commits");
                let space = disk.space().expect("a simulated disk knows");
                most = most.max(space.total - space.free);
            }
            // A tree of a few pages; the log, as long as it may be without a fold; spares.
            assert!(most < 20 * options.fold_bytes as u64, "{most} bytes");
        }
    });
}

#[test]
fn a_row_written_over_and_over_takes_no_more_memory() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let space = Space::open(opened(&sys, &disk), SpaceId(1), &SCHEMA).await.expect("it opens");
        let folds = |disk: &SimDisk| disk.counts().flushes[&weft_sys::FlushSite::KvTree];
        let before = folds(&disk);
        for _ in 0..200 {
            space.write(Ack::Applied, |txn| txn.bump(b"entries", 1)).await.expect("it commits");
        }
        assert_eq!(folds(&disk), before, "nothing gathered that had to be folded");
    });
}
