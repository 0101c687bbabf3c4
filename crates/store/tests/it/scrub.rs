//! The scrubber: what rots is found within a round and told once; nothing is told of what is whole; it is
//! as slow as it is told to be, and goes on where it was.

use std::sync::Arc;
use std::time::Duration;

use weft_conformance::object_store::bench::{BLOCK, Bench, OBJECT, pattern};
use weft_core::form::{BytesSource, Piece, Shape, WriteAt};
use weft_core::service::{ObjectStore, Scrub, Severity};
use weft_core::{ErrorKind, ObjectId, limits};
use weft_store::{Check, Options};
use weft_sys::{Disk, Random, SeededRandom, SimDisk, Sys, simulate};

use crate::faults::FILE;
use crate::node::{self, Node};

const MIB: u64 = 1 << 20;
/// Workloads that are looked at.
const SEEDS: u64 = 12;

/// A store whose scrubber reads so many bytes in a second.
fn scrubbing(rate: u64) -> Options {
    Options { scrub_bytes_per_second: rate, ..Options::default() }
}

fn simulated<T>(rate: u64, work: impl AsyncFnOnce(Node, SimDisk) -> T) -> T {
    node::simulated(17, scrubbing(rate), work)
}

/// Makes a sealed object.
async fn make(bench: &Bench<'_>, object: ObjectId, bytes: &[u8]) {
    bench.store.make(&bench.all, object, None).await.expect("a fresh id");
    let mut source = BytesSource::new(bytes.to_vec());
    bench.store.write(&bench.all, object, WriteAt::Offset(0), &mut source).await.expect("there is room");
    bench.store.seal(&bench.all, object).await.expect("it can be sealed");
    bench.store.sync(&bench.all, object).await.expect("it can be synced");
}

/// Waits for the end of the round under way; returns what it came to, and how long that took.
async fn rest_of_round(node: &Node) -> (Scrub, Duration) {
    let begun = node.sys.clock().tick();
    loop {
        let scrub = node.directory().scrub().expect("it can tell");
        if scrub.rounds > 0 && scrub.began.is_none() && scrub.ended.is_some() {
            return (scrub, node.sys.clock().tick().since(begun));
        }
        node.sys.sleep(Duration::from_millis(100)).await;
    }
}

/// Has a whole round made.
async fn round(node: &Node) -> (Scrub, Duration) {
    let before = node.directory().scrub().expect("it can tell");
    assert_eq!(before.began, None, "none is under way");
    let begun = node.sys.clock().tick();
    node.directory().scrub_now().expect("it is switched on");
    loop {
        let scrub = node.directory().scrub().expect("it can tell");
        if scrub.ended > before.ended {
            return (scrub, node.sys.clock().tick().since(begun));
        }
        node.sys.sleep(Duration::from_millis(10)).await;
    }
}

/// Which blocks are damaged: object, first byte, end, how many.
fn told(scrub: &Scrub) -> Vec<(u128, u64, u64, u64)> {
    scrub.damaged.iter().map(|it| (it.object.0, it.from, it.to, it.blocks)).collect()
}

fn metric(node: &Node) -> (u64, u64, u64) {
    let metrics = node.sys.metrics();
    let (bytes, damaged) = (metrics.store_scrubbed_bytes.value(()), metrics.store_damaged.value(()));
    (metrics.store_scrubbed.value(()), bytes, damaged)
}

#[test]
fn a_flipped_bit_is_found_within_one_round_and_over_when_it_is_whole_again() {
    simulated(64 * MIB, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 3 * BLOCK as usize + 5000)).await;
        make(&bench, ObjectId(9), &pattern(2, 7000)).await;
        let whole = round(&node).await.0;
        assert_eq!((whole.objects, told(&whole)), (2, vec![]));
        assert_eq!(metric(&node), (2, 3 * BLOCK + 12_000, 0));
        assert_eq!(whole.bytes, 3 * BLOCK + 12_000);
        for (block, bit) in [(1, 3), (3, 7)] {
            disk.flip_bit(FILE, block * BLOCK + 4321, bit).expect("it is there");
        }
        node.sys.sleep(Duration::from_secs(5)).await;
        let found = round(&node).await.0;
        assert_eq!(told(&found), [(OBJECT.0, BLOCK, 3 * BLOCK + 5000, 2)]);
        assert!(!found.damaged[0].unread && found.damaged[0].since > whole.ended.expect("it ended"));
        assert_eq!(metric(&node).2, 1);
        // It stays, with the time when it was found, over rounds and restarts, and follows what is there.
        disk.flip_bit(FILE, 3 * BLOCK + 4321, 7).expect("it is there");
        let again = round(&node).await.0;
        assert_eq!(told(&again), [(OBJECT.0, BLOCK, 2 * BLOCK, 1)]);
        assert_eq!(again.damaged[0].since, found.damaged[0].since);
        node.stop().await;
        node.start_again().await;
        assert_eq!(node.directory().scrub().expect("it can tell").damaged, again.damaged);
        disk.flip_bit(FILE, BLOCK + 4321, 3).expect("it is there");
        assert_eq!(told(&round(&node).await.0), []);
        assert_eq!(metric(&node).2, 0);
    });
}

#[test]
fn what_a_disk_does_not_give_and_what_is_not_there_is_damage_too() {
    simulated(64 * MIB, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 2 * BLOCK as usize)).await;
        make(&bench, ObjectId(9), &pattern(2, 2 * BLOCK as usize)).await;
        make(&bench, ObjectId(OBJECT.0 + 1), &pattern(3, 2 * BLOCK as usize)).await;
        node.stop().await;
        disk.spoil(FILE, BLOCK + 5).expect("it is there");
        disk.remove("store/objects/000000/001").expect("it is there");
        let cut = disk.open("store/objects/000000/002", weft_sys::Open::Write).expect("it is there");
        cut.set_len(BLOCK + 1).expect("it can be cut");
        node.start_again().await;
        let found = round(&node).await.0;
        let expected = [(9, 0, 0, 1), (OBJECT.0, BLOCK, 2 * BLOCK, 1), (OBJECT.0 + 1, BLOCK, 2 * BLOCK, 1)];
        assert_eq!(told(&found), expected);
        assert_eq!(found.damaged.iter().map(|it| it.unread).collect::<Vec<_>>(), [true, true, false]);
    });
}

#[test]
fn damage_that_was_removed_or_written_anew_is_over_without_another_round() {
    simulated(64 * MIB, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 3 * BLOCK as usize)).await;
        make(&bench, ObjectId(OBJECT.0 + 1), &pattern(2, 2 * BLOCK as usize)).await;
        for (file, byte) in [(FILE, BLOCK + 5), (FILE, 2 * BLOCK + 5), ("store/objects/000000/001", 5)] {
            disk.flip_bit(file, byte, 1).expect("it is there");
        }
        let found = round(&node).await.0;
        assert_eq!(told(&found), [(OBJECT.0, BLOCK, 3 * BLOCK, 2), (OBJECT.0 + 1, 0, BLOCK, 1)]);
        // Gone at once for whoever asks; for monitors soon.
        bench.store.remove(&bench.all, ObjectId(OBJECT.0 + 1)).await.expect("it is there");
        assert_eq!(told(&node.directory().scrub().expect("it can tell")).len(), 1);
        // One block written anew, the other not.
        bench.write(BLOCK, pattern(3, BLOCK as usize)).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        node.sys.sleep(limits::SCRUB_REST * 2).await;
        assert_eq!(metric(&node).2, 1);
        let left = node.directory().scrub().expect("it can tell");
        assert_eq!(told(&left), [(OBJECT.0, 2 * BLOCK, 3 * BLOCK, 1)]);
        bench.store.shape(&bench.all, OBJECT, Shape::Truncate(0)).await.expect("it can be cut");
        bench.write(0, pattern(4, 100)).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        node.sys.sleep(limits::SCRUB_REST * 2).await;
        let left = node.directory().scrub().expect("it can tell");
        assert_eq!((told(&left), left.rounds, metric(&node).2), (vec![], 1, 0));
    });
}

#[test]
fn an_object_that_the_machine_will_not_open_is_damage_and_the_round_goes_on() {
    simulated(64 * MIB, async |node, disk| {
        let bench = Bench::of(&node);
        for (id, seed) in [(OBJECT, 1), (ObjectId(OBJECT.0 + 1), 2), (ObjectId(OBJECT.0 + 2), 3)] {
            make(&bench, id, &pattern(seed, 2 * BLOCK as usize)).await;
        }
        node.stop().await;
        // What answers neither that it is there nor that it is not.
        disk.rename(FILE, "store/away").expect("it is there");
        disk.make_dir(FILE).expect("the name is free");
        disk.flip_bit("store/objects/000000/002", 7, 1).expect("it is there");
        node.start_again().await;
        let found = round(&node).await.0;
        assert_eq!(told(&found), [(OBJECT.0, 0, 0, 1), (OBJECT.0 + 2, 0, BLOCK, 1)]);
        assert_eq!((found.damaged[0].unread, metric(&node).2), (true, 2));
        // It is tried again now and then: a disk may come back.
        disk.remove_dir(FILE).expect("it is empty");
        disk.rename("store/away", FILE).expect("the name is free");
        node.sys.sleep(limits::SCRUB_REST * 2).await;
        let left = node.directory().scrub().expect("it can tell");
        assert_eq!((told(&left), left.rounds), (vec![(OBJECT.0 + 2, 0, BLOCK, 1)], 1));
    });
}

#[test]
fn an_object_whose_file_is_lost_or_replaced_is_told_and_can_be_removed() {
    simulated(64 * MIB, async |node, disk| {
        let bench = Bench::of(&node);
        let lost = ObjectId(OBJECT.0 + 1);
        for (id, seed) in [(OBJECT, 1), (lost, 2)] {
            make(&bench, id, &pattern(seed, 2 * BLOCK as usize)).await;
        }
        node.stop().await;
        disk.remove(FILE).expect("it is there");
        disk.make_dir(FILE).expect("the name is free");
        disk.remove("store/objects/000000/001").expect("it is there");
        node.start_again().await;
        assert_eq!(round(&node).await.0.damaged.len(), 2);
        let bench = Bench::of(&node);
        // Who looks for what nothing refers to finds them.
        let listed = bench.store.list(&bench.all, None).await.expect("it can be listed").objects;
        assert_eq!(listed.iter().map(|stat| stat.id).collect::<Vec<_>>(), [OBJECT, lost]);
        for id in [OBJECT, lost] {
            bench.store.remove(&bench.all, id).await.expect("its record is there");
            let again = bench.store.remove(&bench.all, id).await.expect_err("it is gone");
            assert_eq!(again.kind(), ErrorKind::NotFound);
        }
        node.directory().settle().await.expect("what cannot be removed keeps nothing up");
        node.sys.sleep(limits::SCRUB_REST * 2).await;
        let left = node.directory().scrub().expect("it can tell");
        assert_eq!((told(&left), metric(&node).2), (vec![], 0));
        let report = node.directory().check(Check::default()).await.expect("it can be checked");
        assert!(report.findings.iter().all(|finding| finding.severity != Severity::Loss), "{report:?}");
    });
}

#[test]
fn damage_that_is_known_stays_known_until_a_round_has_looked_at_it() {
    simulated(64 * MIB, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 40 * BLOCK as usize)).await;
        let flip = |block: u64| disk.flip_bit(FILE, block * BLOCK + 9, 1).expect("it is there");
        [2, 20, 30].into_iter().for_each(flip);
        let all = [(OBJECT.0, 2 * BLOCK, 31 * BLOCK, 3)];
        assert_eq!(told(&round(&node).await.0), all);
        flip(30);
        node.directory().set_scrub_rate(MIB);
        node.directory().scrub_now().expect("it is switched on");
        node.sys.sleep(Duration::from_secs(10)).await;
        let now = || told(&node.directory().scrub().expect("it can tell"));
        assert_eq!(now(), all, "it is past the first");
        node.stop().await;
        node.start_again().await;
        let now_again = || told(&node.directory().scrub().expect("it can tell"));
        assert_eq!(now_again(), all);
        let ended = rest_of_round(&node).await.0;
        assert_eq!(told(&ended), [(OBJECT.0, 2 * BLOCK, 21 * BLOCK, 2)]);
        // A hole that was damaged is looked at though there is nothing in it.
        let punch = Shape::Punch { at: 2 * BLOCK, length: BLOCK };
        bench_of(&node).store.shape(&bench_of(&node).all, OBJECT, punch).await.expect("it can be punched");
        bench_of(&node).store.seal(&bench_of(&node).all, OBJECT).await.expect("it can be sealed");
        node.directory().set_scrub_rate(64 * MIB);
        assert_eq!(told(&round(&node).await.0), [(OBJECT.0, 20 * BLOCK, 21 * BLOCK, 1)]);
    });
}

/// A bench of the store as it runs now.
fn bench_of(node: &Node) -> Bench<'_> {
    Bench::of(node)
}

#[test]
fn what_is_looked_at_again_leaves_the_round_its_steps_and_keeps_to_the_rate() {
    simulated(1 << 40, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 60 * BLOCK as usize)).await;
        make(&bench, ObjectId(OBJECT.0 + 1), &pattern(2, 60 * BLOCK as usize)).await;
        (0..60).for_each(|block| disk.flip_bit(FILE, block * BLOCK + 9, 1).expect("it is there"));
        assert_eq!(told(&round(&node).await.0), [(OBJECT.0, 0, 60 * BLOCK, 60)]);
        // Written, and as damaged as before.
        bench.write(60 * BLOCK, b"more".to_vec()).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        node.directory().set_scrub_rate(MIB);
        node.directory().scrub_now().expect("it is switched on");
        let read = metric(&node).1;
        node.sys.sleep(Duration::from_secs(90)).await;
        let (read, scrub) = (metric(&node).1 - read, node.directory().scrub().expect("it can tell"));
        // From half a minute on, when what was found is looked after, one of two blocks is the round's.
        assert!(read < 92 * BLOCK, "{} MiB in 90 s", read / MIB);
        assert!((45..75).contains(&(scrub.bytes / MIB)), "{} MiB of the round", scrub.bytes / MIB);
        let ended = rest_of_round(&node).await.0;
        assert_eq!(told(&ended), [(OBJECT.0, 0, 60 * BLOCK, 60)]);
    });
}

#[test]
fn a_round_that_is_asked_for_during_another_follows_it() {
    simulated(MIB, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 20 * BLOCK as usize)).await;
        node.directory().scrub_now().expect("it is switched on");
        node.sys.sleep(Duration::from_secs(10)).await;
        // Where this one has been.
        disk.flip_bit(FILE, 2 * BLOCK, 1).expect("it is there");
        node.directory().scrub_now().expect("it is switched on");
        let asked = node.directory().scrub().expect("it can tell");
        assert!(asked.asked && asked.began.is_some() && asked.rounds == 1, "{asked:?}");
        let first = loop {
            let scrub = node.directory().scrub().expect("it can tell");
            if scrub.ended.is_some() {
                break scrub;
            }
            node.sys.sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(told(&first), []);
        let (second, _) = rest_of_round(&node).await;
        assert_eq!((second.rounds, second.asked), (2, false));
        assert_eq!(told(&second), [(OBJECT.0, 2 * BLOCK, 3 * BLOCK, 1)]);
        node.sys.sleep(limits::SCRUB_REST * 3).await;
        assert_eq!(node.directory().scrub().expect("it can tell").rounds, 2, "one, however often");
    });
}

#[test]
fn another_rate_counts_at_once_and_while_it_is_off_what_was_removed_is_over() {
    simulated(limits::SCRUB_BYTES_PER_SECOND_MIN, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 20 * BLOCK as usize)).await;
        disk.flip_bit(FILE, 2 * BLOCK, 1).expect("it is there");
        node.directory().scrub_now().expect("it is switched on");
        node.sys.sleep(Duration::from_secs(1)).await;
        node.directory().set_scrub_rate(64 * MIB);
        let (found, took) = rest_of_round(&node).await;
        assert!(took < Duration::from_secs(3), "{took:?} at 64 MiB a second");
        assert_eq!((told(&found).len(), metric(&node).2), (1, 1));
        node.directory().set_scrub_rate(0);
        node.sys.sleep(limits::SCRUB_REST * 2).await;
        assert_eq!(metric(&node).2, 1);
        bench.store.remove(&bench.all, OBJECT).await.expect("it is there");
        node.sys.sleep(limits::SCRUB_REST * 2).await;
        assert_eq!(metric(&node).2, 0);
    });
}

#[test]
fn damage_that_a_reader_meets_is_known_at_once_without_a_round() {
    simulated(MIB, async |node, disk| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 3 * BLOCK as usize)).await;
        make(&bench, ObjectId(OBJECT.0 + 1), &pattern(2, 100)).await;
        node.stop().await;
        disk.flip_bit(FILE, BLOCK + 5, 1).expect("it is there");
        disk.remove("store/objects/000000/001").expect("it is there");
        node.start_again().await;
        let bench = bench_of(&node);
        let range = weft_core::form::Range { at: BLOCK, length: Some(100) };
        for id in [OBJECT, ObjectId(OBJECT.0 + 1)] {
            let answer =
                weft_conformance::object_store::bench::read(&*bench.store, &bench.all, id, range).await;
            assert_eq!(answer.map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
        }
        // Long before the first round begins.
        node.sys.sleep(limits::SCRUB_AFTER_START / 4).await;
        let scrub = node.directory().scrub().expect("it can tell");
        let expected = vec![(OBJECT.0, BLOCK, 2 * BLOCK, 1), (OBJECT.0 + 1, 0, 0, 1)];
        assert_eq!((told(&scrub), scrub.rounds, metric(&node).2), (expected, 0, 2));
    });
}

/// Works as users do, for a while.
async fn work(sys: &Sys, store: &dyn ObjectStore, bench: &Bench<'_>, random: &SeededRandom) {
    let mut there: Vec<ObjectId> = Vec::new();
    let mut next = 1;
    for _ in 0..120 {
        let some = (!there.is_empty()).then(|| there[random.below(there.len() as u64) as usize]);
        let length = [10, 5000, BLOCK, 2 * BLOCK + 77][random.below(4) as usize];
        match (random.below(8), some) {
            (0..=1, _) | (_, None) => {
                there.push(ObjectId(next));
                make(bench, ObjectId(next), &pattern(random.u64(), length as usize)).await;
                next += 1 + u128::from(random.below(3));
            }
            (2, Some(id)) => {
                store.remove(&bench.all, id).await.expect("it is there");
                there.retain(|other| *other != id);
            }
            (3, Some(id)) => {
                let at = [Shape::Truncate(length), Shape::Punch { at: length / 2, length }];
                store.shape(&bench.all, id, at[random.below(2) as usize]).await.expect("it can be shaped");
            }
            (4, Some(id)) => drop(store.seal(&bench.all, id).await.expect("it can be sealed")),
            (_, Some(id)) => {
                let mut source = BytesSource::new(pattern(random.u64(), length as usize / 2 + 1));
                let at = WriteAt::Offset(random.below(2 * BLOCK));
                store.write(&bench.all, id, at, &mut source).await.expect("there is room");
            }
        }
        sys.sleep(Duration::from_millis(random.below(300))).await;
    }
}

#[test]
fn nothing_is_told_of_a_whole_store_while_it_is_written_removed_and_replaced() {
    for seed in 0..SEEDS {
        let options = scrubbing(1 << 40);
        let (rounds, bytes) = node::simulated(seed, options, async |node, disk| {
            let bench = Bench::of(&node);
            let (sys, directory) = (node.sys.clone(), node.directory());
            let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
            // One round after the other, as fast as it goes.
            let scrubbing = node.sys.spawn(async move {
                while matches!(stopped.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Empty)) {
                    directory.scrub_now().expect("it is switched on");
                    sys.sleep(Duration::from_millis(200)).await;
                }
            });
            work(&node.sys, &*node.directory(), &bench, &SeededRandom::new(seed)).await;
            drop(stop);
            scrubbing.await.expect("it ends");
            let scrub = node.directory().scrub().expect("it can tell");
            assert_eq!((told(&scrub), metric(&node).2), (vec![], 0), "seed {seed}");
            drop(disk);
            (scrub.rounds, metric(&node).1)
        });
        assert!(rounds > 20 && bytes > 0, "seed {seed}: {rounds} rounds of {bytes} bytes");
    }
}

#[test]
fn it_reads_no_faster_than_it_is_told_and_slower_where_somebody_uses_the_store() {
    simulated(MIB, async |node, _| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 40 * BLOCK as usize)).await;
        let quiet = round(&node).await.1;
        // It was in use before the first step.
        assert!((40..45).contains(&quiet.as_secs()), "{quiet:?} for 40 MiB");
        node.directory().set_scrub_rate(4 * MIB);
        let faster = round(&node).await.1;
        assert!((10..12).contains(&faster.as_secs()), "{faster:?} for 40 MiB");
        // Somebody who looks at something all the time.
        let (store, all, sys) = (bench.store.clone(), bench.all.clone(), node.sys.clone());
        let user = node.sys.spawn(async move {
            loop {
                store.stat(&all, OBJECT).await.expect("it is there");
                sys.sleep(Duration::from_millis(50)).await;
            }
        });
        let in_use = round(&node).await.1;
        user.abort();
        assert!((38..46).contains(&in_use.as_secs()), "{in_use:?} for 40 MiB");
        // Somebody who opened it long ago and reads on.
        let (store, all, sys) = (bench.store.clone(), bench.all.clone(), node.sys.clone());
        let reader = node.sys.spawn(async move {
            let all_of_it = weft_core::form::Range { at: 0, length: None };
            let mut source = store.read(&all, OBJECT, all_of_it).await.expect("it is there");
            loop {
                source.next(20_000).await.expect("it is whole");
                sys.sleep(Duration::from_millis(50)).await;
            }
        });
        let in_use = round(&node).await.1;
        reader.abort();
        assert!((38..46).contains(&in_use.as_secs()), "{in_use:?} for 40 MiB");
        // Many small ones cost more than their bytes.
        for n in 0..64 {
            make(&bench, ObjectId(n), b"small").await;
        }
        let small = round(&node).await.1;
        assert!((11..13).contains(&small.as_secs()), "{small:?} for 40 MiB and 64 objects");
        // Switched off in the middle it rests, and goes on.
        node.directory().scrub_now().expect("it is switched on");
        node.sys.sleep(Duration::from_secs(4)).await;
        node.directory().set_scrub_rate(0);
        node.sys.sleep(Duration::from_secs(2)).await;
        let before = metric(&node);
        node.sys.sleep(Duration::from_secs(3600)).await;
        assert_eq!(metric(&node), before);
        assert_eq!(node.directory().scrub_now().map_err(|e| e.kind()), Err(ErrorKind::Conflict));
        node.directory().set_scrub_rate(4 * MIB);
        let rest = rest_of_round(&node).await.1;
        assert!((5..9).contains(&rest.as_secs()), "{rest:?} for the rest");
    });
}

#[test]
fn a_round_that_was_killed_goes_on_where_it_was() {
    let disk = SimDisk::new();
    let first = disk.clone();
    simulate(5, |sys| async move {
        let node = Node::start(&sys, Arc::new(first.clone()), scrubbing(MIB)).await.expect("it starts");
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 100 * BLOCK as usize)).await;
        make(&bench, ObjectId(OBJECT.0 + 1), &pattern(2, 20 * BLOCK as usize)).await;
        first.flip_bit(FILE, 3 * BLOCK + 5, 1).expect("it is there");
        node.directory().scrub_now().expect("it is switched on");
        node.sys.sleep(Duration::from_secs(80)).await;
        assert!(metric(&node).1 > 70 * BLOCK);
    });
    let disk = disk.kill();
    let second = disk.clone();
    simulate(6, |sys| async move {
        let node = Node::start(&sys, Arc::new(second.clone()), scrubbing(MIB)).await.expect("it starts");
        let scrub = node.directory().scrub().expect("it can tell");
        assert!(scrub.began.is_some() && scrub.rounds == 1, "{scrub:?}");
        assert_eq!(told(&scrub), [(OBJECT.0, 3 * BLOCK, 4 * BLOCK, 1)]);
        assert_eq!(metric(&node).2, 1);
        second.flip_bit("store/objects/000000/001", 5, 1).expect("it is there");
        let (scrub, took) = rest_of_round(&node).await;
        let read = metric(&node).1;
        // Half a minute is done again at most; and it waits a minute first.
        assert!((39 * BLOCK..81 * BLOCK).contains(&read), "{read}");
        assert!(took > limits::SCRUB_AFTER_START, "{took:?}");
        assert_eq!((scrub.rounds, scrub.objects), (1, 2));
        // What it found in the part that it did not look at again stays.
        assert_eq!(told(&scrub), [(OBJECT.0, 3 * BLOCK, 4 * BLOCK, 1), (OBJECT.0 + 1, 0, BLOCK, 1)]);
        node.stop().await;
    });
}

#[test]
fn a_round_begins_a_week_after_the_last_and_none_before() {
    simulated(64 * MIB, async |node, _| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, b"something").await;
        let (first, took) = rest_of_round(&node).await;
        assert!(took >= limits::SCRUB_AFTER_START && first.rounds == 1, "{took:?}");
        node.sys.sleep(limits::SCRUB_EVERY - Duration::from_secs(300)).await;
        assert_eq!(node.directory().scrub().expect("it can tell").rounds, 1);
        // A restart changes nothing of that.
        node.stop().await;
        node.start_again().await;
        node.sys.sleep(Duration::from_secs(120)).await;
        assert_eq!(node.directory().scrub().expect("it can tell").rounds, 1);
        node.sys.sleep(Duration::from_secs(300)).await;
        assert_eq!(node.directory().scrub().expect("it can tell").rounds, 2);
    });
}

#[test]
fn readers_are_served_no_bytes_that_the_scrubber_brought_into_memory_unseen() {
    node::on_disk(async |node| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, 14 * BLOCK as usize)).await;
        bench.expect(&pattern(1, 14 * BLOCK as usize)).await;
        let file = node.disk.open(FILE, weft_sys::Open::Write).expect("it is there");
        // Out of memory, and damaged on the disk.
        file.write_at(b"x", 2 * BLOCK + 7).expect("it can be written");
        file.sync(weft_sys::FlushSite::StoreObject).expect("it can be synced");
        file.forget(0, 14 * BLOCK);
        node.directory().set_scrub_rate(1 << 40);
        let found = round(&node).await.0;
        assert_eq!(told(&found), [(OBJECT.0, 2 * BLOCK, 3 * BLOCK, 1)]);
        let kept: Vec<_> = (0..14).map(|block| file.resident(block * BLOCK, BLOCK)).collect();
        assert_eq!(kept, [false; 14], "it keeps nothing in memory that was not there");
        let answer = weft_conformance::object_store::bench::read(
            &*bench.store,
            &bench.all,
            OBJECT,
            weft_core::form::Range { at: 2 * BLOCK, length: Some(100) },
        );
        assert_eq!(answer.await.map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
    });
}

#[test]
fn what_readers_use_stays_as_it_was_checked_while_the_scrubber_goes_over_it() {
    const BLOCKS: u64 = 16;
    node::on_disk(async |node| {
        let bench = Bench::of(&node);
        make(&bench, OBJECT, &pattern(1, (BLOCKS * BLOCK) as usize)).await;
        let sent_from_the_file = async || {
            let everything = weft_core::form::Range::ALL;
            let mut source = bench.store.read(&bench.all, OBJECT, everything).await.expect("a source");
            let mut files = 0;
            while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.expect("sound") {
                files += u64::from(matches!(piece, Piece::File { .. }));
            }
            files
        };
        sent_from_the_file().await;
        assert_eq!(sent_from_the_file().await, BLOCKS, "all of it was checked");
        node.directory().set_scrub_rate(16 * MIB);
        node.directory().scrub_now().expect("it is switched on");
        let scrub = || node.directory().scrub().expect("it can tell");
        let mut seen = std::collections::BTreeSet::new();
        while scrub().ended.is_none() {
            let sent = sent_from_the_file().await;
            // But for the block that it looks at just now.
            assert!(sent + 1 >= BLOCKS, "{sent} blocks of {BLOCKS} after {} bytes", scrub().bytes);
            seen.insert(scrub().bytes);
            node.sys.sleep(Duration::from_millis(20)).await;
        }
        assert!(seen.len() > 4, "it was read between the scrubber's steps: {seen:?}");
        assert_eq!(told(&scrub()), []);
    });
}
