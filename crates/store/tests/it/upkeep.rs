//! The store's own work beside that of its callers: nobody stands in another's way for good, and
//! what was promised in time is done in time.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use weft_conformance::object_store::bench::{BLOCK, Bench, OBJECT, fed, pattern};
use weft_core::form::{BytesSource, Range, Shape, WriteAt};
use weft_core::service::Severity;
use weft_core::{Deadline, ErrorKind, ObjectId, Tick};
use weft_kv::Engine;
use weft_store::Options;
use weft_sys::{Disk, FlushSite, SimDisk, simulate};

use crate::faults::DEEP;
use crate::node::{self, Node};

/// Fails, instead of waiting for ever, if work comes to no end.
#[expect(
    clippy::disallowed_methods,
    reason = "threads of a runtime wait for each other: who watches is none"
)]
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(240)) {
        Err(RecvTimeoutError::Timeout) => panic!("threads wait for each other"),
        // What went wrong is told as itself.
        _ => worker.join().expect("the work is done"),
    }
}

#[test]
fn sealing_and_making_room_never_wait_for_each_other() {
    ends(|| {
        node::on_disk(async |node| {
            let bench = Bench::of(&node);
            // More at once than may be open for writing: each one made has another sealed.
            let makers: Vec<_> = (0..8_u128)
                .map(|maker| {
                    let (store, all) = (bench.store.clone(), bench.all.clone());
                    node.sys.spawn(async move {
                        for n in 0..600 {
                            let id = ObjectId(maker << 32 | n);
                            store.make(&all, id, None).await.expect("a fresh id");
                            if n % 3 == 0 {
                                store.seal(&all, id).await.expect("it can be sealed");
                            }
                        }
                    })
                })
                .collect();
            for maker in makers {
                maker.await.expect("it ends");
            }
        });
    });
}

#[test]
fn what_waits_for_its_flush_waits_for_no_backup() {
    node::simulated(11, Options::default(), async |node, disk| {
        let bench = Bench::with_object(&node).await;
        bench.store.make(&bench.all, ObjectId(9), None).await.expect("a fresh id");
        let (go_on, held) = tokio::sync::oneshot::channel::<()>();
        let (directory, engine) = (node.directory(), node.engine());
        let (kv, objects) = (SimDisk::new(), SimDisk::new());
        let backup = node.sys.spawn(async move {
            let metadata = async {
                held.await.expect("the test goes on");
                engine.backup(Arc::new(kv)).await
            };
            directory.backup(metadata, Arc::new(objects)).await
        });
        node.sys.sleep(Duration::from_millis(10)).await;
        // It waits until the backup has what it needs.
        bench.store.remove(&bench.all, ObjectId(9)).await.expect("it is there");
        let flushes = || disk.counts().flushes.get(&FlushSite::StoreObject).copied().unwrap_or(0);
        let before = flushes();
        for second in 0..20 {
            bench.write(second, "busy").await;
            node.sys.sleep(Duration::from_secs(1)).await;
        }
        assert!((3..=5).contains(&(flushes() - before)), "{}", flushes() - before);
        go_on.send(()).expect("it waits");
        backup.await.expect("it ends").expect("it is made");
        node.directory().settle().await.expect("it goes now");
    });
}

#[test]
fn a_directory_of_files_is_on_disk_before_the_files_in_it_are_used() {
    for seed in 0..20 {
        let disk = SimDisk::new();
        let first = disk.clone();
        simulate(seed, |sys| async move {
            let node =
                Node::start(&sys, Arc::new(first.clone()), Options::default()).await.expect("it starts");
            let fans = || first.counts().flushes[&FlushSite::StoreFanDir];
            let before = fans();
            // The next flush is that of the name of the first directory of files.
            first.set_faults(|faults| faults.fail_flush = Some(1));
            let bench = Bench::of(&node);
            assert!(bench.store.make(&bench.all, OBJECT, None).await.is_err() && fans() == before + 1);
            bench.store.make(&bench.all, OBJECT, None).await.expect("it is tried again");
            bench.write(0, "durable").await;
            bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
        });
        let disk = disk.crash(seed);
        simulate(seed, |sys| async move {
            let node = Node::start(&sys, Arc::new(disk), Options::default()).await.expect("it starts");
            Bench::of(&node).expect(b"durable").await;
        });
    }
}

#[test]
fn an_object_whose_maker_went_away_shares_its_file_with_nobody() {
    node::simulated(12, Options::default(), async |node, _| {
        let bench = Bench::of(&node);
        let gone = Deadline(Tick(0));
        for n in 1..20 {
            // The maker goes away while the record is on its way.
            let made = bench.store.make(&bench.all, ObjectId(n), None);
            let _ = node.sys.within(gone, made).await;
            bench.store.make(&bench.all, ObjectId(n << 32), None).await.expect("a fresh id");
            let mut bytes = BytesSource::new(pattern(n as u64, 10_000));
            bench
                .store
                .write(&bench.all, ObjectId(n << 32), WriteAt::Offset(0), &mut bytes)
                .await
                .expect("there is room");
        }
        for n in 1..20 {
            let removed = bench.store.remove(&bench.all, ObjectId(n)).await;
            assert!(removed.is_ok() || removed.is_err_and(|error| error.kind() == ErrorKind::NotFound));
        }
        node.directory().settle().await.expect("their files go");
        for n in 1..20 {
            let read = weft_conformance::object_store::bench::read(
                &*bench.store,
                &bench.all,
                ObjectId(n << 32),
                Range::ALL,
            );
            assert!(read.await.expect("it is there") == pattern(n as u64, 10_000), "{n}");
        }
        let found = node.directory().check(DEEP).await.expect("it can look").findings;
        assert!(found.iter().all(|finding| finding.severity == Severity::Note), "{found:?}");
    });
}

#[test]
fn a_hole_costs_a_look_however_large_it_is() {
    let (disk, size) = (SimDisk::new(), 1 << 60);
    let first = disk.clone();
    simulate(1, |sys| async move {
        let node = Node::start(&sys, Arc::new(first), Options::default()).await.expect("it starts");
        let bench = Bench::with_object(&node).await;
        bench.write(0, pattern(1, BLOCK as usize)).await;
        bench.write(70 * BLOCK, pattern(2, BLOCK as usize)).await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        bench.write(3 * BLOCK + 5, pattern(3, 100)).await;
        bench.store.shape(&bench.all, OBJECT, Shape::Truncate(size)).await.expect("it takes no room");
        let punch = Shape::Punch { at: 70 * BLOCK, length: BLOCK };
        bench.store.shape(&bench.all, OBJECT, punch).await.expect("it can be punched");
        bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
    });
    let disk = disk.kill();
    simulate(2, |sys| async move {
        let node = Node::start(&sys, Arc::new(disk.clone()), Options::default()).await.expect("it starts");
        let bench = Bench::of(&node);
        node.directory().settle().await.expect("it can look at it");
        let stat = bench.store.stat(&bench.all, OBJECT).await.expect("it is there");
        assert_eq!((stat.size, stat.sealed), (size, false), "one block was never sealed");
        assert!(bench.read(0, Some(BLOCK)).await == pattern(1, BLOCK as usize));
        assert!(bench.read(3 * BLOCK, Some(105)).await[5..] == pattern(3, 100));
        assert!(bench.read(70 * BLOCK, Some(BLOCK)).await.iter().all(|byte| *byte == 0));
        assert!(bench.read(size - 10, None).await[..] == [0; 10]);
        let found = node.directory().check(DEEP).await.expect("it can look").findings;
        assert!(found.iter().all(|finding| finding.severity == Severity::Note), "{found:?}");
        // Where bytes were sealed and a hole is now, the check looks all the same.
        let file = disk.open(crate::faults::FILE, weft_sys::Open::Write).expect("it is there");
        file.punch(0, BLOCK).expect("it can be punched");
        let found = node.directory().check(DEEP).await.expect("it can look").findings;
        assert!(found.iter().any(|finding| finding.severity == Severity::Loss), "{found:?}");
    });
}

#[test]
fn bytes_written_between_two_pieces_of_another_write_are_no_damage() {
    node::simulated(13, Options::default(), async |node, _| {
        let bench = Bench::with_object(&node).await;
        let half = BLOCK as usize / 2;
        let (pieces, mut source) = fed();
        let (store, all) = (bench.store.clone(), bench.all.clone());
        let long =
            node.sys.spawn(async move { store.write(&all, OBJECT, WriteAt::Offset(0), &mut source).await });
        pieces.send(Ok(pattern(1, half).into())).expect("it is pulled");
        node.sys.sleep(Duration::from_millis(10)).await;
        bench.write(0, pattern(2, 100)).await;
        pieces.send(Ok(pattern(3, half).into())).expect("it is pulled");
        drop(pieces);
        long.await.expect("it ends").expect("there is room");
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        let expected = [pattern(2, 100), pattern(1, half)[100..].to_vec(), pattern(3, half)].concat();
        bench.expect(&expected).await;
        assert!(node.directory().check(DEEP).await.expect("it can look").findings.is_empty());
    });
}
