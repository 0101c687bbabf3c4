//! What happens when the disk fails, fills up or rots.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use weft_conformance::fuzz::fuzz_within;
use weft_core::form::Ack;
use weft_core::limits::KV_NOTES_RETRY;
use weft_core::{Deadline, Error, ErrorKind, Result};
use weft_kv::{Commit, Embedded, Engine, Following, NoteKind, Options, Order, Txn, WriteFn};
use weft_sys::memory::most_taken;
use weft_sys::{Disk, FlushSite, Open, SimDisk, Sys, simulate};

use crate::contract::SMALL;

fn opened(sys: &Sys, disk: &SimDisk) -> Result<Embedded> {
    Embedded::open(sys.clone(), Arc::new(disk.clone()), SMALL)
}

fn put(key: u32, value: Vec<u8>) -> WriteFn {
    Box::new(move |txn: &mut dyn Txn| txn.put(&key.to_be_bytes(), &value))
}

fn count(engine: &Embedded) -> usize {
    let read = engine.snapshot().expect("a snapshot");
    read.scan(&[0], &[], Order::Rising).filter(|row| row.is_ok()).count()
}

async fn durable(engine: &Embedded, key: u32, value: Vec<u8>) -> Result<Commit> {
    engine.write(Ack::Durable, put(key, value)).await
}

#[test]
fn one_durable_commit_is_one_write_and_one_flush() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk).expect("it opens");
        durable(&engine, 1, vec![0; 100]).await.expect("it commits");
        let before = disk.counts();
        durable(&engine, 2, vec![0; 100]).await.expect("it commits");
        let after = disk.counts();
        assert_eq!((after.writes - before.writes, after.changes - before.changes), (1, 2));
        let flushes = |counts: &weft_sys::disk::SimCounts| counts.flushes[&FlushSite::KvLogAppend];
        assert_eq!(flushes(&after) - flushes(&before), 1);
    });
}

#[test]
fn commits_that_wait_together_share_one_write_and_one_flush() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let options = Options { flush_at_once: Duration::ZERO, ..Options::default() };
        let engine = Embedded::open(sys.clone(), Arc::new(disk.clone()), options).expect("it opens");
        let engine = Arc::new(engine);
        durable(&engine, 0, vec![]).await.expect("it commits");
        let before = disk.counts();
        let tasks: Vec<_> = (1..=64)
            .map(|key| {
                let engine = engine.clone();
                sys.spawn(async move { durable(&engine, key, vec![1; 20]).await })
            })
            .collect();
        for task in tasks {
            task.await.expect("it ran").expect("it commits");
        }
        assert_eq!(disk.counts().changes - before.changes, 2);
        assert_eq!(count(&engine), 65);
    });
}

#[test]
fn a_full_disk_refuses_whole_transactions_and_takes_them_again_once_there_is_room() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        disk.set_faults(|faults| faults.capacity = Some(4 << 20));
        let engine = opened(&sys, &disk).expect("it opens");
        let mut made = 0;
        let refused = loop {
            match durable(&engine, made, vec![made as u8; 5000]).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 4000, "the disk never filled");
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        assert!(refused.advice().is_some(), "{refused:?}");
        assert_eq!(count(&engine), made as usize, "what was refused left nothing, what was not is there");
        let boot = engine.boot();

        let full = opened(&sys, &disk.crashed_copy(3)).expect("it opens on the full disk");
        assert_eq!(count(&full), made as usize);

        disk.set_faults(|faults| faults.capacity = None);
        sys.sleep(Duration::from_secs(2)).await;
        for key in made..made + 100 {
            durable(&engine, key, vec![1; 5000]).await.expect("there is room again");
        }
        assert_eq!(engine.boot(), boot, "nothing was lost");
        engine.close().await.expect("it closes");
        assert_eq!(count(&opened(&sys, &disk).expect("it opens")), made as usize + 100);
    });
}

#[test]
fn after_a_failed_flush_the_boot_is_another_and_nothing_is_written_until_it_is_opened_again() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk).expect("it opens");
        durable(&engine, 1, vec![1]).await.expect("it commits");
        let boot = engine.boot();
        disk.set_faults(|faults| faults.fail_flush = Some(1));
        let kind = |done: Result<Commit>| done.map_err(|error: Error| error.kind());
        assert_eq!(kind(durable(&engine, 2, vec![2]).await), Err(ErrorKind::Unavailable));
        assert_ne!(engine.boot(), boot);
        assert_eq!(kind(durable(&engine, 3, vec![3]).await), Err(ErrorKind::Unavailable));
        assert_eq!(kind(engine.write(Ack::Applied, put(3, vec![])).await), Err(ErrorKind::Unavailable));
        assert_eq!(kind(engine.flush().await), Err(ErrorKind::Unavailable));
        assert_eq!(count(&engine), 2, "reading goes on");

        // The machine still shows the bytes; opening must put them on the disk, not trust it.
        let disk = disk.kill();
        let engine = opened(&sys, &disk).expect("it opens");
        let found = count(&engine);
        durable(&engine, 4, vec![4]).await.expect("it commits again");
        for seed in 0..50 {
            let after = opened(&sys, &disk.crashed_copy(seed)).expect("it opens");
            assert_eq!(count(&after), found + 1, "seed {seed}");
        }
    });
}

/// Returns what of `keys` cannot be read one by one, each having the value of its number.
fn unreadable(engine: &Embedded, keys: std::ops::Range<u32>) -> Vec<ErrorKind> {
    let read = engine.snapshot().expect("a snapshot");
    let failed = |key: u32| match read.get(&key.to_be_bytes()) {
        Ok(found) => {
            assert_eq!(found.as_deref(), Some(&[key as u8; 100][..]), "{key}");
            None
        }
        Err(error) => Some(error.kind()),
    };
    keys.filter_map(failed).collect()
}

#[test]
fn a_read_that_fails_is_told_to_who_asked_and_stops_no_other() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk).expect("it opens");
        for key in 0..2000 {
            durable(&engine, key, vec![key as u8; 100]).await.expect("it commits");
        }
        engine.close().await.expect("it closes");
        let (mut told, mut behind) = (0, 0);
        for nth in 1..12 {
            // Nothing is in memory; the nth read fails, in the way to a row or behind it.
            let engine = opened(&sys, &disk).expect("it opens");
            disk.set_faults(|faults| faults.fail_read = Some(nth));
            // Where a page ends is met in the way to a row, or behind one.
            let failed = unreadable(&engine, nth as u32 % 5..2000);
            told += failed.len();
            behind += usize::from(failed.is_empty());
            assert!(matches!(failed[..], [] | [ErrorKind::Unavailable]), "{nth}: {} failed", failed.len());
            assert_eq!(count(&engine), 2000, "{nth}: a walk");
            assert_eq!(unreadable(&engine, 0..2000), [], "{nth}");
            durable(&engine, 2000, vec![]).await.expect("it commits");
            engine
                .write(Ack::Durable, Box::new(|txn: &mut dyn Txn| txn.delete(&2000_u32.to_be_bytes())))
                .await
                .expect("it commits");
            engine.close().await.expect("it folds and closes");
        }
        assert!(told > 0 && behind > 0, "{told} told, {behind} behind what was asked for");
    });
}

/// Folds at its end only, and is killed at the `nth` change of that; opens, fills the log's segments
/// anew, and loses its power. Returns whether everything is there.
async fn kept_after_a_fold_cut_off(sys: Sys, nth: u64, ignored: Option<FlushSite>) -> bool {
    let options = Options { fold_bytes: 1 << 20, overlay_bytes_max: 2 << 20, ..SMALL };
    let open = |disk: &SimDisk| Embedded::open(sys.clone(), Arc::new(disk.clone()), options);
    let disk = SimDisk::new();
    let engine = open(&disk).expect("it opens");
    for key in 0..200 {
        durable(&engine, key, vec![1; 100]).await.expect("it commits");
    }
    disk.set_faults(|faults| faults.halt = Some(nth));
    // It hears of a failure or not; what it holds stays in the log in any case.
    let _ = engine.close().await;
    let disk = disk.kill();
    disk.set_faults(|faults| faults.ignore.extend(ignored));
    let engine = open(&disk).expect("it opens");
    for key in 200..400 {
        durable(&engine, key, vec![1; 100]).await.expect("it commits");
    }
    (0..20).all(|seed| {
        let found = open(&disk.crashed_copy(seed)).map(|engine| count(&engine));
        found.is_ok_and(|found| found == 400)
    })
}

#[test]
fn a_fold_that_was_cut_off_is_on_the_disk_or_not_there_once_the_engine_was_opened_again() {
    for (ignored, kept) in [(None, true), (Some(FlushSite::KvTree), false)] {
        let all = (1..60).all(|nth| simulate(nth, |sys| kept_after_a_fold_cut_off(sys, nth, ignored)));
        assert_eq!(all, kept, "ignoring {ignored:?}");
    }
}

#[test]
fn notes_come_in_order_and_once_although_a_read_of_the_disk_failed() {
    const KIND: NoteKind = NoteKind(3);
    const NOTES: u64 = 2000;
    let mut failed = 0;
    for nth in 1..60 {
        failed += simulate(nth, |sys| async move {
            let disk = SimDisk::new();
            let engine = opened(&sys, &disk).expect("it opens");
            for _ in 0..NOTES / 100 {
                let act = |txn: &mut dyn Txn| (0..100).try_for_each(|_| txn.note(KIND, &[7; 100]));
                engine.write(Ack::Durable, Box::new(act)).await.expect("it commits");
            }
            engine.close().await.expect("it closes");
            drop(engine);
            let disk = disk.kill();
            let engine = opened(&sys, &disk).expect("it opens");
            let mut notes = Following::new(sys.clone(), engine.notes(KIND).expect("the one subscriber"));
            disk.set_faults(|faults| faults.fail_read = Some(nth));
            let mut seen = 0;
            while seen < NOTES {
                let deadline = Deadline::within(sys.clock(), KV_NOTES_RETRY * 4);
                let page = sys.within(deadline, async { Ok(notes.next().await.expect("it is open")) }).await;
                for note in page.unwrap_or_else(|_| panic!("read {nth}: none came any more after {seen}")) {
                    seen += 1;
                    assert_eq!(note.position.0, seen, "read {nth}");
                }
            }
            let mut left = None;
            disk.set_faults(|faults| left = faults.fail_read);
            u32::from(left.is_none())
        });
    }
    assert!(failed > 10, "{failed} reads failed");
}

/// Leaves a disk as a dead process would, with `commits` transactions in its log.
async fn left_by_a_dead_process(sys: &Sys, commits: u32) -> SimDisk {
    let disk = SimDisk::new();
    let engine = opened(sys, &disk).expect("it opens");
    for key in 0..commits {
        durable(&engine, key, vec![key as u8; 100]).await.expect("it commits");
    }
    disk.kill()
}

#[test]
fn what_lay_behind_a_torn_record_never_comes_back() {
    // Records of one size: where the second is torn and written anew, the third, whole and left
    // over, lies exactly where the log goes on.
    let mut torn = 0;
    for seed in 0..200 {
        simulate(seed, |sys| async move {
            let disk = SimDisk::new();
            let engine = opened(&sys, &disk).expect("it opens");
            durable(&engine, 1, vec![1; 600]).await.expect("it commits");
            for key in [2, 3] {
                engine.write(Ack::Applied, put(key, vec![1; 600])).await.expect("it commits");
            }
            let disk = disk.crash(seed);
            let engine = opened(&sys, &disk).expect("it opens");
            if count(&engine) > 1 {
                return false;
            }
            durable(&engine, 12, vec![2; 600]).await.expect("it commits");
            let engine = opened(&sys, &disk.kill()).expect("it opens");
            assert_eq!(count(&engine), 2, "seed {seed}");
            true
        })
        .then(|| torn += 1);
    }
    assert!(torn > 20, "{torn}");
}

#[test]
fn a_flipped_bit_in_the_log_is_named_and_never_cuts_it_short() {
    simulate(1, |sys| async move {
        let disk = left_by_a_dead_process(&sys, 10).await;
        let record = 72 + 4 + 5 + 4 + 4 + 100_u64;
        let record = record.next_multiple_of(8);
        let mut named = 0;
        // Every record but the last, whose loss a torn write would look like.
        for byte in (512..512 + 9 * record).step_by(7) {
            let damaged = disk.crashed_copy(0);
            damaged.flip_bit("log-0001", byte, 3).expect("it is there");
            match opened(&sys, &damaged) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {byte}: {error:?}");
                    assert!(error.subject().is_some_and(|about| about.contains("log-0001")), "{error:?}");
                    named += 1;
                }
                Ok(engine) => assert_eq!(count(&engine), 10, "byte {byte} was padding"),
            }
        }
        assert!(named > 200, "{named}");
        for byte in 0..72 {
            let damaged = disk.crashed_copy(0);
            damaged.flip_bit("log-0001", byte, 3).expect("it is there");
            let error = opened(&sys, &damaged).map(drop).expect_err("the header is damaged");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {byte}: {error:?}");
        }
    });
}

/// Whatever a log's file holds, it opens to what some first commits made, or not at all.
#[test]
fn a_mutated_log_opens_to_a_prefix_or_is_refused() {
    let (opened_ones, refused) = (Cell::new(0), Cell::new(0));
    let disk = simulate(1, |sys| async move { left_by_a_dead_process(&sys, 10).await });
    let file = disk.open("log-0001", Open::Read).expect("it is there");
    let mut valid = vec![0; file.len().expect("a length") as usize];
    file.read_exact_at(&mut valid, 0).expect("bytes");
    let opens = |bytes: &[u8]| {
        // Each of its commits was durable.
        let disk = disk.crashed_copy(0);
        let file = disk.open("log-0001", Open::Write).expect("it is there");
        file.set_len(0).and_then(|()| file.write_at(bytes, 0)).expect("room");
        simulate(1, |sys| async move {
            match opened(&sys, &disk) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                    false
                }
                Ok(engine) => {
                    let read = engine.snapshot().expect("a snapshot");
                    for (place, row) in read.scan(&[0], &[], Order::Rising).enumerate() {
                        let (key, value) = row.expect("a row");
                        assert_eq!(
                            (&key[..], &value[..]),
                            (&(place as u32).to_be_bytes()[..], &[place as u8; 100][..])
                        );
                    }
                    true
                }
            }
        })
    };
    // What an engine takes anyway: its tree, its cache, the disk itself.
    let (whole, usual) = most_taken(|| opens(&valid));
    assert!(whole);
    fuzz_within(
        (usual + (256 << 10), 64),
        "log",
        |_| valid.clone(),
        |bytes| {
            let counter = if opens(bytes) { &opened_ones } else { &refused };
            counter.set(counter.get() + 1);
        },
    );
    println!("{} opened, {} were refused; opening takes {usual} bytes", opened_ones.get(), refused.get());
}

#[test]
fn a_flipped_bit_in_the_tree_is_never_served_as_a_value() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk).expect("it opens");
        for key in 0..400_u32 {
            durable(&engine, key, vec![key as u8; 100]).await.expect("it commits");
        }
        engine.close().await.expect("it closes");
        let len = disk.open("tree", Open::Read).and_then(|file| file.len()).expect("a length");
        let mut caught = 0;
        for place in 0..300 {
            let damaged = disk.crashed_copy(0);
            damaged.flip_bit("tree", place * len / 300, 5).expect("it is there");
            let Ok(engine) = opened(&sys, &damaged) else {
                caught += 1;
                continue;
            };
            let read = engine.snapshot().expect("a snapshot");
            for key in 0..400_u32 {
                match read.get(&key.to_be_bytes()) {
                    Ok(Some(value)) => assert_eq!(value, vec![key as u8; 100], "byte {}", place * len / 300),
                    Ok(None) => {}
                    Err(error) => {
                        // What leads past the end of the file closes the tree for the rest.
                        let known = [ErrorKind::Corrupt, ErrorKind::Unavailable];
                        assert!(known.contains(&error.kind()), "{error:?}");
                        caught += 1;
                    }
                }
            }
            drop(read);
            engine.close().await.expect("it closes");
            let _ = Embedded::check(&sys, &(Arc::new(damaged) as Arc<dyn Disk>), SMALL);
        }
        assert!(caught > 5, "{caught}");
    });
}

#[test]
fn damage_anywhere_in_the_tree_is_found_by_a_check() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = opened(&sys, &disk).expect("it opens");
        for key in 0..400_u32 {
            durable(&engine, key, vec![key as u8; 100]).await.expect("it commits");
        }
        let rows = count(&engine);
        engine.close().await.expect("it closes");
        Embedded::check(&sys, &(Arc::new(disk.crashed_copy(0)) as Arc<dyn Disk>), SMALL)
            .expect("it is whole");
        let len = disk.open("tree", Open::Read).and_then(|file| file.len()).expect("a length");
        for place in 0..300 {
            let damaged = disk.crashed_copy(0);
            damaged.flip_bit("tree", place * len / 300 + 17, 2).expect("it is there");
            let readable = opened(&sys, &damaged.crashed_copy(0)).ok().map(|engine| {
                let read = engine.snapshot().expect("a snapshot");
                read.scan(&[0], &[], Order::Rising).take_while(Result::is_ok).count()
            });
            let checked = Embedded::check(&sys, &(Arc::new(damaged) as Arc<dyn Disk>), SMALL);
            if readable != Some(rows) {
                let kind = checked.map_err(|error| error.kind());
                assert_eq!(kind, Err(ErrorKind::Corrupt), "byte {}", place * len / 300 + 17);
            }
        }
    });
}

#[test]
fn a_backup_taken_under_writes_restores_to_one_moment_and_a_damaged_one_to_nothing() {
    simulate(1, |sys| async move {
        let disk = SimDisk::new();
        let engine = Arc::new(opened(&sys, &disk).expect("it opens"));
        for key in 0..300 {
            durable(&engine, key, vec![1; 100]).await.expect("it commits");
        }
        let kept = SimDisk::new();
        let commit = engine.backup(Arc::new(kept.clone())).await.expect("it is written");
        durable(&engine, 1000, vec![2]).await.expect("it commits");

        let target: Arc<dyn Disk> = Arc::new(SimDisk::new());
        assert_eq!(Embedded::restore(&sys, &kept, &target, SMALL).expect("it is restored"), commit);
        let again = Embedded::restore(&sys, &kept, &target, SMALL);
        assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::Exists));
        let restored = Embedded::open(sys.clone(), target, SMALL).expect("it opens");
        assert_eq!(count(&restored), 300);
        assert!(durable(&restored, 5000, vec![3]).await.expect("it commits") > commit);

        let len = kept.open("weft-kv.backup", Open::Read).and_then(|file| file.len()).expect("a length");
        for byte in (0..len).step_by(211) {
            let damaged = kept.crashed_copy(0);
            damaged.flip_bit("weft-kv.backup", byte, 1).expect("it is there");
            let target: Arc<dyn Disk> = Arc::new(SimDisk::new());
            assert!(Embedded::restore(&sys, &damaged, &target, SMALL).is_err(), "byte {byte}");
            assert!(target.open("tree", Open::Read).is_err(), "nothing is left of it");
        }
    });
}

#[test]
fn a_log_that_is_gone_or_another_trees_is_refused() {
    simulate(1, |sys| async move {
        let disk = left_by_a_dead_process(&sys, 1).await;
        let foreign = left_by_a_dead_process(&sys, 1).await;
        disk.remove("log-0001").expect("it is there");
        let copy = |from: &SimDisk, to: &SimDisk, name: &str| {
            let file = from.open(name, Open::Read).expect("it is there");
            let mut bytes = vec![0; file.len().expect("a length") as usize];
            file.read_exact_at(&mut bytes, 0).expect("its bytes");
            to.open(name, Open::Make).and_then(|file| file.write_at(&bytes, 0)).expect("room");
        };
        let missing = opened(&sys, &disk.crashed_copy(1)).map(drop).expect_err("its log is gone");
        assert_eq!(missing.kind(), ErrorKind::Corrupt);
        copy(&foreign, &disk, "log-0001");
        let swapped = opened(&sys, &disk).map(drop).expect_err("the log is another's");
        assert!(swapped.detail().contains("another tree"), "{swapped:?}");
    });
}
