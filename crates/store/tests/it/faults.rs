//! Damage, full disks, failing disks, and what the store's own work does in time.

use std::sync::Arc;
use std::time::Duration;

use weft_conformance::object_store::bench::{BLOCK, Bench, HERE, OBJECT, pattern, read, refused};
use weft_core::form::{BytesSource, Piece, Range, Shape, WriteAt};
use weft_core::service::Severity;
use weft_core::{ErrorKind, ObjectId, limits};
use weft_store::{Check, Options};
use weft_sys::{Disk, FlushSite, Open, SimDisk};

use crate::node::{self, Node};

/// Where the first object's file lies.
pub const FILE: &str = "store/objects/000000/000";

pub const DEEP: Check = Check { repair: false, blocks: true };

fn simulated<T>(work: impl AsyncFnOnce(Node, SimDisk) -> T) -> T {
    node::simulated(7, Options::default(), work)
}

async fn sealed(node: &Node, bytes: &[u8]) -> Bench<'static> {
    // Laws borrow the node; tests here start it again in between, so each has its own bench.
    let node: &'static Node = Box::leak(Box::new(node.clone()));
    let bench = Bench::with_object(node).await;
    bench.write(0, bytes.to_vec()).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
    bench
}

#[test]
fn a_flipped_bit_in_any_block_is_found_and_never_served() {
    simulated(async |node, disk| {
        let bytes = pattern(1, 3 * BLOCK as usize + 5000);
        let bench = sealed(&node, &bytes).await;
        for (block, bit) in (0..4_u64).zip([0, 3, 5, 7]) {
            let byte = (block * BLOCK + 4321).min(bytes.len() as u64 - 1);
            disk.flip_bit(FILE, byte, bit).expect("it is there");
            for at in [block * BLOCK, byte] {
                let range = Range { at, length: Some(1) };
                let answer = read(&*bench.store, &bench.all, OBJECT, range).await;
                assert_eq!(refused(answer), ErrorKind::Corrupt, "block {block} at {at}");
            }
            let found = node.directory().check(DEEP).await.expect("it can look");
            assert_eq!(found.findings.len(), 1, "{found:?}");
            assert_eq!(
                (found.findings[0].severity, &*found.findings[0].structure),
                (Severity::Loss, "object block")
            );
            let sound = bench.read((block + 1) % 4 * BLOCK, Some(5000)).await;
            assert!(sound == bytes[((block + 1) % 4 * BLOCK) as usize..][..5000], "other blocks are served");
            let partly = bench.try_write(WriteAt::Offset(byte), "x").await;
            assert_eq!(refused(partly), ErrorKind::Corrupt, "a part cannot be made good");
            disk.flip_bit(FILE, byte, bit).expect("it is there");
            bench.expect(&bytes).await;
        }
        assert!(node.directory().counts().blocks_corrupt >= 8);
    });
}

#[test]
fn an_object_that_grows_from_inside_a_damaged_block_does_not_make_it_good() {
    let far = 10 * BLOCK;
    let shapes = [
        Shape::Truncate(far),
        Shape::Allocate { at: 5 * BLOCK, length: BLOCK, keep_size: false },
        Shape::Zero { at: 5 * BLOCK, length: BLOCK, keep_size: false },
    ];
    for shape in shapes.into_iter().map(Some).chain([None]) {
        simulated(async |node, disk| {
            let bytes = pattern(1, 3 * BLOCK as usize / 2);
            let bench = sealed(&node, &bytes).await;
            disk.flip_bit(FILE, BLOCK + 77, 3).expect("it is there");
            let grown = match shape {
                Some(shape) => bench.store.shape(&bench.all, OBJECT, shape).await.map(drop),
                None => bench.try_write(WriteAt::Offset(far), "x").await.map(drop),
            };
            assert_eq!(grown.err().map(|error| error.kind()), Some(ErrorKind::Corrupt), "{shape:?}");
            bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
            let tail = Range { at: BLOCK, length: Some(100) };
            assert_eq!(refused(read(&*bench.store, &bench.all, OBJECT, tail).await), ErrorKind::Corrupt);
            // Sound again it grows, and reads as it was.
            disk.flip_bit(FILE, BLOCK + 77, 3).expect("it is there");
            bench.write(far, "x").await;
            bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
            assert!(bench.read(0, Some(bytes.len() as u64)).await == bytes);
        });
    }
}

#[test]
fn bytes_that_appeared_in_a_hole_are_not_made_good_by_writing_beside_them() {
    simulated(async |node, disk| {
        let bench = sealed(&node, &pattern(1, 100)).await;
        bench.store.shape(&bench.all, OBJECT, Shape::Truncate(3 * BLOCK)).await.expect("it takes no room");
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        let file = disk.open(FILE, Open::Write).expect("it is there");
        file.write_at(b"stray", BLOCK + 1000).expect("it can be written");
        let partly = bench.try_write(WriteAt::Offset(BLOCK + 5), "x").await;
        assert_eq!(refused(partly), ErrorKind::Corrupt);
        let cut = bench.store.shape(&bench.all, OBJECT, Shape::Truncate(BLOCK + 2000)).await;
        assert_eq!(refused(cut), ErrorKind::Corrupt);
        bench.write(2 * BLOCK + 5, "x").await;
        bench.write(BLOCK, pattern(2, BLOCK as usize)).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        assert!(bench.read(BLOCK, Some(BLOCK)).await == pattern(2, BLOCK as usize), "written whole");
    });
}

#[test]
fn nothing_is_kept_free_beyond_an_objects_end() {
    simulated(async |node, disk| {
        let bench = sealed(&node, &pattern(1, 10_000)).await;
        bench.store.shape(&bench.all, OBJECT, Shape::Truncate(3 * BLOCK)).await.expect("it takes no room");
        let keep = |at, length| Shape::Allocate { at, length, keep_size: true };
        bench.store.shape(&bench.all, OBJECT, keep(0, 2 * BLOCK)).await.expect("there is room");
        let stat = bench.store.shape(&bench.all, OBJECT, keep(2 * BLOCK, 64 * BLOCK)).await;
        let stat = stat.expect("there is room");
        assert_eq!((stat.size, stat.used), (3 * BLOCK, 3 * BLOCK));
        assert_eq!(disk.measure(FILE).expect("it is there").used, 3 * BLOCK);
    });
}

#[test]
fn a_damaged_block_is_made_good_by_writing_all_of_it() {
    simulated(async |node, disk| {
        let mut bytes = pattern(1, 2 * BLOCK as usize);
        let bench = sealed(&node, &bytes).await;
        disk.flip_bit(FILE, 77, 0).expect("it is there");
        bytes[..BLOCK as usize].copy_from_slice(&pattern(2, BLOCK as usize));
        bench.write(0, bytes[..BLOCK as usize].to_vec()).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        bench.expect(&bytes).await;
    });
}

#[test]
fn a_file_cut_short_is_damage() {
    simulated(async |node, disk| {
        let bytes = pattern(1, BLOCK as usize + 100);
        let bench = sealed(&node, &bytes).await;
        let file = disk.open(FILE, Open::Write).expect("it is there");
        file.set_len(BLOCK + 50).expect("it can be cut");
        let tail = Range { at: BLOCK, length: None };
        assert_eq!(refused(read(&*bench.store, &bench.all, OBJECT, tail).await), ErrorKind::Corrupt);
        bench.read(0, Some(BLOCK)).await;
    });
}

#[test]
fn what_changes_on_the_disk_is_found_after_a_restart() {
    node::on_disk(async |node| {
        let bytes = pattern(1, BLOCK as usize + 100);
        let bench = sealed(&node, &bytes).await;
        let (all, subject) = (bench.all.clone(), bench.subject);
        drop(bench);
        node.stop().await;
        let file = node.disk.open(FILE, Open::Write).expect("it is there");
        file.write_at(&[bytes[9] ^ 4], 9).expect("it can be written");
        node.start_again().await;
        let store = subject.store();
        assert_eq!(refused(read(&*store, &all, OBJECT, Range::ALL).await), ErrorKind::Corrupt);
        let tail = read(&*store, &all, OBJECT, Range { at: BLOCK, length: None }).await.expect("sound");
        assert!(tail == bytes[BLOCK as usize..]);
    });
}

#[test]
fn resident_and_checked_bytes_go_out_as_a_file() {
    node::on_disk(async |node| {
        let bytes = pattern(1, 2 * BLOCK as usize);
        sealed(&node, &bytes).await;
        node.stop().await;
        node.start_again().await;
        let bench = Bench::of(&node);
        let pieces = async || {
            let mut source = bench.store.read(&bench.all, OBJECT, Range::ALL).await.expect("a source");
            let mut files = 0;
            while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.expect("sound") {
                files +=
                    usize::from(matches!(&piece, Piece::File { file, .. } if file.descriptor().is_some()));
            }
            files
        };
        assert_eq!(pieces().await, 0, "the first time each block is read and compared");
        assert_eq!(node.directory().counts().blocks_checked, 2);
        assert_eq!(pieces().await, 2, "then the kernel may send it");
        assert_eq!(node.directory().counts().blocks_checked, 2);
    });
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing_half_visible() {
    simulated(async |node, disk| {
        let bytes = pattern(1, 100_000);
        let bench = sealed(&node, &bytes).await;
        let used = disk.space().expect("it knows");
        let full = used.total - used.free + 1_500_000;
        disk.set_faults(|faults| faults.capacity = Some(full));
        let answer = bench.try_write(WriteAt::Offset(100_000), pattern(2, 3_000_000)).await;
        let error = answer.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.advice().is_some() && error.to_string().contains("full"), "{error}");
        let stat = bench.store.stat(&bench.all, OBJECT).await.expect("it is there");
        assert_eq!((stat.size - 100_000) % limits::PIECE_BYTES_MAX as u64, 0, "whole pieces or nothing");
        assert_eq!(disk.measure(FILE).expect("it is there").len, stat.size);
        let found = bench.read(0, None).await;
        assert!(
            found[..100_000] == bytes && found[100_000..] == pattern(2, 3_000_000)[..found.len() - 100_000]
        );
        let reserve = bench.store.make(&bench.all, ObjectId(2), Some(10 * BLOCK)).await;
        assert_eq!(refused(reserve), ErrorKind::NoSpace);
        assert_eq!(refused(bench.store.stat(&bench.all, ObjectId(2)).await), ErrorKind::NotFound);
        disk.set_faults(|faults| faults.capacity = None);
        bench.try_write(WriteAt::Offset(100_000), pattern(2, 3_000_000)).await.expect("there is room again");
        bench.store.make(&bench.all, ObjectId(2), Some(10 * BLOCK)).await.expect("there is room again");
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        assert!(node.directory().check(DEEP).await.expect("it can look").findings.is_empty());
    });
}

#[test]
fn a_failed_flush_is_told_until_what_was_lost_is_written_again() {
    simulated(async |node, disk| {
        let bench = sealed(&node, &pattern(1, 10_000)).await;
        let before = bench.store.verifier();
        bench.write(100, pattern(2, 2000)).await;
        disk.set_faults(|faults| faults.fail_flush = Some(1));
        for _ in 0..3 {
            assert_eq!(refused(bench.store.sync(&bench.all, OBJECT).await), ErrorKind::Unavailable);
            assert_eq!(refused(bench.store.seal(&bench.all, OBJECT).await), ErrorKind::Unavailable);
        }
        assert_ne!(bench.store.verifier(), before, "who wrote must learn of it");
        bench.write(0, pattern(3, 4000)).await;
        assert!(bench.store.sync(&bench.all, OBJECT).await.is_err(), "a part is not all");
        bench.write(4000, pattern(4, 6000)).await;
        bench.store.sync(&bench.all, OBJECT).await.expect("all of it was written again");
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        let expected = [pattern(3, 4000), pattern(4, 6000)].concat();
        bench.expect(&expected).await;
    });
}

#[test]
fn a_read_that_fails_is_no_damage_and_a_write_that_fails_shows_nothing() {
    simulated(async |node, disk| {
        let bytes = pattern(1, 10_000);
        let bench = sealed(&node, &bytes).await;
        disk.set_faults(|faults| faults.fail_read = Some(1));
        let answer = read(&*bench.store, &bench.all, OBJECT, Range::ALL).await;
        assert_eq!(refused(answer), ErrorKind::Unavailable);
        bench.expect(&bytes).await;
        bench.store.shape(&bench.all, OBJECT, Shape::Truncate(10_000)).await.expect("it can be shaped");
        disk.set_faults(|faults| faults.fail_write = Some(1));
        let answer = bench.try_write(WriteAt::End, pattern(2, 5000)).await;
        assert_eq!(refused(answer), ErrorKind::Unavailable);
        bench.expect(&bytes).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        bench.expect(&bytes).await;
        assert!(node.directory().check(DEEP).await.expect("it can look").findings.is_empty());
    });
}

#[test]
fn what_was_open_at_a_kill_is_sealed_anew_as_unverified_and_said() {
    let disk = SimDisk::new();
    let first = disk.clone();
    weft_sys::simulate(1, |sys| async move {
        let node = Node::start(&sys, Arc::new(first), Options::default()).await.expect("it starts");
        let bench = sealed(&node, &pattern(1, 2 * BLOCK as usize)).await;
        bench.write(5, "changed").await;
        bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
    });
    let disk = disk.kill();
    weft_sys::simulate(2, |sys| async move {
        let node = Node::start(&sys, Arc::new(disk.clone()), Options::default()).await.expect("it starts");
        let bench = Bench::of(&node);
        node.directory().settle().await.expect("it can look at it");
        let mut expected = pattern(1, 2 * BLOCK as usize);
        expected[5..12].copy_from_slice(b"changed");
        bench.expect(&expected).await;
        let found = node.directory().check(DEEP).await.expect("it can look").findings;
        let notes: Vec<_> = found.iter().map(|finding| (finding.severity, &*finding.structure)).collect();
        assert_eq!(notes, [(Severity::Note, "seals")]);
        assert!(found[0].detail.contains(": 1 block"), "the other is as it was: {found:?}");
        assert!(!bench.store.stat(&bench.all, OBJECT).await.expect("it is there").sealed);
        disk.flip_bit(FILE, 1000, 1).expect("it is there");
        let answer = read(&*bench.store, &bench.all, OBJECT, Range::ALL).await;
        assert_eq!(refused(answer), ErrorKind::Corrupt, "from then on it is guarded like any other");
        bench.write(0, pattern(3, BLOCK as usize)).await;
        assert!(bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed").sealed, "made good");
        assert!(node.directory().check(DEEP).await.expect("it can look").findings.is_empty());
    });
}

#[test]
fn an_object_is_durable_for_one_flush_of_its_own() {
    simulated(async |node, disk| {
        let bench = Bench::of(&node);
        bench.store.make(&bench.all, ObjectId(1), None).await.expect("a fresh id");
        let before = disk.counts().flushes;
        let objects = 100;
        for id in 2..2 + objects {
            let (id, mut bytes) = (ObjectId(id), BytesSource::new(pattern(1, 20_000)));
            bench.store.make(&bench.all, id, Some(20_000)).await.expect("a fresh id");
            bench.store.write(&bench.all, id, WriteAt::Offset(0), &mut bytes).await.expect("there is room");
            bench.store.seal(&bench.all, id).await.expect("it can be sealed");
            bench.store.sync(&bench.all, id).await.expect("it can be synced");
        }
        let after = disk.counts().flushes;
        let made = |site| after.get(&site).unwrap_or(&0) - before.get(&site).unwrap_or(&0);
        assert_eq!(u128::from(made(FlushSite::StoreObject)), objects);
        assert!(made(FlushSite::StoreSpareDir) <= 2, "names are flushed 64 at a time");
        assert_eq!(made(FlushSite::StoreFanDir), 0);
        let records = made(FlushSite::KvLogAppend);
        assert!(u128::from(records) <= objects * 9 / 8, "one each, and a few for folding: {records}");
        let again = disk.counts().flushes[&FlushSite::KvLogAppend];
        for at in 0..10 {
            bench
                .store
                .write(&bench.all, ObjectId(5), WriteAt::Offset(at), &mut BytesSource::new("x"))
                .await
                .expect("room");
            bench.store.sync(&bench.all, ObjectId(5)).await.expect("it can be synced");
        }
        let marked = disk.counts().flushes[&FlushSite::KvLogAppend] - again;
        assert!(marked <= 2, "one record for each opening, none for each sync: {marked}");
    });
}

#[test]
fn each_stretch_goes_to_the_disk_whole_and_once_however_many_writes_it_came_by() {
    const STRETCH: u64 = limits::STORE_STRETCH_BYTES;
    for piece in [limits::STORE_INLINE_BYTES, 1 << 20, STRETCH, 2 * STRETCH] {
        simulated(async |node, disk| {
            let bench = Bench::with_object(&node).await;
            let sent = || disk.counts().sent;
            for at in (0..2 * STRETCH).step_by(piece as usize) {
                assert_eq!(sent(), at / STRETCH * STRETCH, "{piece}: before {at}");
                bench.write(at, pattern(1, piece as usize)).await;
            }
            assert_eq!(sent(), 2 * STRETCH, "{piece}");
            bench.write(2 * STRETCH, "some more").await;
            bench.write(STRETCH - 4096, pattern(2, 4096)).await;
            assert_eq!(sent(), 2 * STRETCH, "a little that is written over ends none");
        });
    }
}

#[test]
fn records_flushed_by_the_caller_cost_nothing_here() {
    let options = Options { records_flushed_by_caller: true, ..Options::default() };
    node::simulated(1, options, async |node, disk| {
        let bench = Bench::with_object(&node).await;
        let before = disk.counts().flushes.values().sum::<u64>();
        bench.write(0, "durable").await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
        assert_eq!(disk.counts().flushes.values().sum::<u64>() - before, 1);
    });
}

#[test]
fn an_object_that_rests_is_sealed_and_one_that_does_not_is_flushed_in_time() {
    simulated(async |node, disk| {
        let bench = Bench::with_object(&node).await;
        bench.write(0, "resting").await;
        node.sys.sleep(limits::STORE_SEAL_IDLE + Duration::from_secs(1)).await;
        assert!(bench.store.stat(&bench.all, OBJECT).await.expect("it is there").sealed);
        let flushes = || disk.counts().flushes.get(&FlushSite::StoreObject).copied().unwrap_or(0);
        let before = flushes();
        for second in 0..20 {
            bench.write(second, "busy").await;
            node.sys.sleep(Duration::from_secs(1)).await;
        }
        assert!(!bench.store.stat(&bench.all, OBJECT).await.expect("it is there").sealed);
        assert!((3..=5).contains(&(flushes() - before)), "{}", flushes() - before);
    });
}

#[test]
fn removed_objects_give_their_space_back_soon() {
    simulated(async |node, disk| {
        let bench = sealed(&node, &pattern(1, 1_000_000)).await;
        let free = disk.space().expect("it knows").free;
        bench.store.remove(&bench.all, OBJECT).await.expect("it is there");
        node.sys.sleep(limits::STORE_REAP_DELAY * 2).await;
        assert!(disk.space().expect("it knows").free > free + 900_000);
        assert!(disk.measure(FILE).is_err());
    });
}

#[test]
fn more_objects_than_files_may_be_open_are_all_served() {
    simulated(async |node, _| {
        let bench = Bench::of(&node);
        let count = limits::STORE_FILES_OPEN_MAX as u128 + limits::STORE_WRITING_MAX as u128 + 50;
        for id in 0..count {
            bench.store.make(&bench.all, ObjectId(id), None).await.expect("a fresh id");
            let mut bytes = BytesSource::new(id.to_be_bytes().to_vec());
            bench
                .store
                .write(&bench.all, ObjectId(id), WriteAt::End, &mut bytes)
                .await
                .expect("there is room");
        }
        for round in 0..2 {
            for id in 0..count {
                let found =
                    read(&*bench.store, &bench.all, ObjectId(id), Range::ALL).await.expect("it is there");
                assert_eq!(found[..], id.to_be_bytes(), "round {round}");
            }
        }
    });
}

#[test]
fn closing_ends_running_reads() {
    simulated(async |node, _| {
        let bench = sealed(&node, &pattern(1, 3 * BLOCK as usize)).await;
        let mut source = bench.store.read(&bench.all, OBJECT, Range::ALL).await.expect("a source");
        source.next(10).await.expect("it can be read");
        let stopped = source.stopped();
        node.directory().close().await.expect("it can be closed");
        assert_eq!(stopped.await.kind(), ErrorKind::Unavailable);
        assert_eq!(refused(source.next(10).await), ErrorKind::Unavailable);
        let _ = HERE;
    });
}

#[test]
fn many_threads_at_one_object_lose_nothing() {
    node::on_disk(async |node| {
        let bench = sealed(&node, &vec![0xff; 4 * BLOCK as usize]).await;
        let (store, all) = (bench.store.clone(), bench.all.clone());
        let tasks: Vec<_> = (0..8_u64)
            .map(|n| {
                let (store, all) = (store.clone(), all.clone());
                node.sys.spawn(async move {
                    for round in 0..20_u64 {
                        let at = n * BLOCK / 2 + round * 10_000;
                        let mut bytes = BytesSource::new(vec![n as u8; 10_000]);
                        store
                            .write(&all, OBJECT, WriteAt::Offset(at), &mut bytes)
                            .await
                            .expect("there is room");
                        match round % 5 {
                            1 => drop(store.seal(&all, OBJECT).await.expect("it can be sealed")),
                            3 => drop(store.sync(&all, OBJECT).await.expect("it can be synced")),
                            _ => drop(
                                read(&*store, &all, OBJECT, Range::ALL).await.expect("no damage is seen"),
                            ),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it ends");
        }
        store.seal(&all, OBJECT).await.expect("it can be sealed");
        let mut expected = vec![0xff; 4 * BLOCK as usize];
        for n in 0..8 {
            let at = n * BLOCK as usize / 2;
            expected[at..at + 200_000].fill(n as u8);
        }
        bench.expect(&expected).await;
        assert!(node.directory().check(DEEP).await.expect("it can look").findings.is_empty());
    });
}
