//! Backups: what is in them is what was there, and every flush of them is needed.

use std::sync::Arc;

use weft_conformance::ShownBy;
use weft_conformance::object_store::bench::{self, Bench, OBJECT, pattern};
use weft_core::form::{BytesSource, Range, Shape, WriteAt};
use weft_core::service::{ObjectStore, Severity};
use weft_core::{ObjectId, Result, limits};
use weft_kv::{Embedded, Engine};
use weft_store::{BackedUp, Options, restore};
use weft_sys::{Disk, FlushSite, Open, SimDisk, Sys};

use crate::faults::DEEP;
use crate::node::{Node, kv_options, simulated};

/// Backs a node up, metadata and objects beside each other; `between` happens between the two.
async fn back_up(node: &Node, into: &SimDisk, between: impl Future<Output = ()>) -> Result<BackedUp> {
    let (kv, objects) = (into.beneath("kv")?, into.beneath("store")?);
    into.sync_dir("", FlushSite::KvTreeDir)?;
    let engine = node.engine();
    let metadata = async {
        let commit = engine.backup(kv).await?;
        between.await;
        Ok(commit)
    };
    node.directory().backup(metadata, objects).await
}

/// Makes a node of a backup. It is not started.
async fn bring_back(sys: &Sys, from: &SimDisk, into: &SimDisk) -> Result<()> {
    let (kv, objects): (Arc<dyn Disk>, _) = (into.beneath("kv")?, into.beneath("store")?);
    into.sync_dir("", FlushSite::KvTreeDir)?;
    Embedded::restore(sys, &*from.beneath("kv")?, &kv, kv_options(sys))?;
    let engine: Arc<dyn Engine> = Arc::new(Embedded::open(sys.clone(), kv, kv_options(sys))?);
    restore(engine.clone(), &*from.beneath("store")?, &*objects).await?;
    engine.close().await
}

/// Backs up, cuts the power there, restores, cuts the power there and looks. `true` if all is well.
fn kept(seed: u64, ignored: Option<FlushSite>) -> bool {
    simulated(seed, Options::default(), async |node, _| {
        let bench = Bench::with_object(&node).await;
        let bytes = pattern(1, 300_000);
        bench.write(0, bytes.clone()).await;
        bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
        let (backup, restored) = (SimDisk::new(), SimDisk::new());
        for disk in [&backup, &restored] {
            disk.set_faults(|faults| faults.ignore.extend(ignored));
        }
        back_up(&node, &backup, async {}).await.expect("it is made");
        let sys = &node.sys;
        if bring_back(sys, &backup.crash(seed), &restored).await.is_err() {
            return false;
        }
        let Ok(again) = Node::start(sys, Arc::new(restored.crash(seed)), Options::default()).await else {
            return false;
        };
        let bench = Bench::of(&again);
        let there = bench::read(&*bench.store, &bench.all, OBJECT, Range::ALL);
        there.await.is_ok_and(|there| there == bytes)
    })
}

#[test]
fn a_backup_and_its_restoration_survive_a_crash_because_of_their_flushes() {
    assert!((0..20).all(|seed| kept(seed, None)));
    for site in ShownBy::StoreBackup.sites() {
        assert!((0..200).any(|seed| !kept(seed, Some(site))), "nothing is lost without {site:?}");
    }
}

/// What a backup's two halves see may differ: in between, objects are written and removed.
#[test]
fn what_changes_while_a_backup_runs_is_whole_or_sealed_anew_and_never_lost() {
    simulated(1, Options::default(), async |node, _| {
        let bench = Bench::with_object(&node).await;
        let gone = ObjectId(100);
        bench.store.make(&bench.all, gone, None).await.expect("a fresh id");
        let mut bytes = pattern(2, 200_000);
        bench.write(0, bytes.clone()).await;
        for object in [OBJECT, gone] {
            bench.store.seal(&bench.all, object).await.expect("it can be sealed");
            bench.store.sync(&bench.all, object).await.expect("it can be synced");
        }
        let backup = SimDisk::new();
        back_up(&node, &backup, async {
            bench.write(10, "changed").await;
            bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
            bench.store.remove(&bench.all, gone).await.expect("it is there");
            node.sys.sleep(limits::STORE_REAP_DELAY * 3).await;
        })
        .await
        .expect("it is made");
        let restored = SimDisk::new();
        bring_back(&node.sys, &backup, &restored).await.expect("it is whole");
        let again = Node::start(&node.sys, Arc::new(restored), Options::default()).await.expect("it starts");
        again.directory().settle().await.expect("it can look at it");
        bytes[10..17].copy_from_slice(b"changed");
        Bench::of(&again).expect(&bytes).await;
        let found = again.directory().check(DEEP).await.expect("it can look").findings;
        assert!(found.iter().all(|found| found.severity == Severity::Note), "{found:?}");
        assert!(
            again.directory().stat(&bench.all, gone).await.is_ok(),
            "the records were copied before it went"
        );
    });
}

/// Whoever may write can make a file of any length, and a disk has room for what is in it.
#[test]
fn holes_are_neither_copied_nor_read_and_what_should_not_be_in_one_is_named() {
    const SPARSE: u64 = 1 << 45;
    simulated(1, Options::default(), async |node, disk| {
        let bench = Bench::with_object(&node).await;
        bench.write(3 << 30, "amid").await;
        bench.write(SPARSE - 3, "end").await;
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        let (backup, restored) = (SimDisk::new(), SimDisk::new());
        let made = back_up(&node, &backup, async {}).await.expect("it is made");
        assert_eq!((made.copied.bytes, made.damaged.len()), (SPARSE, 0));
        bring_back(&node.sys, &backup, &restored).await.expect("it is whole");
        let path = path_of_longest(&*backup.beneath("store").expect("it is there"));
        for copy in [&backup, &restored] {
            let size = copy.measure(&format!("store/{path}")).expect("it is there");
            assert_eq!((size.len, size.used), (SPARSE, 1024));
        }
        disk.flip_bit(&format!("store/{path}"), 5 << 30, 1).expect("it is there");
        let made = back_up(&node, &SimDisk::new(), async {}).await.expect("it is made");
        assert!(made.damaged[0].detail.ends_with("the bytes from 5368709120 on do not match their checksum"));
        node.directory().settle().await.expect("it can look at it");
    });
}

/// A disk that does not read a page any more takes that page, and no backup.
#[test]
fn what_cannot_be_read_is_a_hole_in_the_backup_and_named_and_all_else_is_in_it() {
    const PAGE: usize = 4096;
    // Written and at rest; and open for writing, with nothing to compare it with.
    for open in [false, true] {
        simulated(1, Options::default(), async |node, disk| {
            let (bench, other) = (Bench::with_object(&node).await, ObjectId(100));
            let bytes = pattern(3, 3 << 20);
            let write = async |object| {
                let mut source = BytesSource::new(bytes.clone());
                let at = WriteAt::Offset(0);
                bench.store.write(&bench.all, object, at, &mut source).await.expect("it can be written");
            };
            bench.store.make(&bench.all, other, None).await.expect("a fresh id");
            write(other).await;
            bench.store.seal(&bench.all, other).await.expect("it can be sealed");
            bench.store.shape(&bench.all, OBJECT, Shape::Truncate(4 << 20)).await.expect("it grows");
            write(OBJECT).await;
            if !open {
                bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
            }
            let path = path_of_longest(&*disk.beneath("store").expect("it is there"));
            let spoiled = (1 << 20) + 5 * PAGE + 7;
            disk.spoil(&format!("store/{path}"), spoiled as u64).expect("it is there");
            let backup = SimDisk::new();
            let made = back_up(&node, &backup, async {}).await.expect("it is made");
            let [found] = &made.damaged[..] else { panic!("one object is damaged: {:?}", made.damaged) };
            assert_eq!(found.object, Some(OBJECT));
            let page = spoiled / PAGE * PAGE;
            assert!(found.detail.contains(&format!("the bytes from {page} on cannot be read")), "{found:?}");
            let copy = backup.open(&format!("store/{path}"), Open::Read).expect("it is there");
            let mut expected = bytes.to_vec();
            expected[page..page + PAGE].fill(0);
            expected.resize(4 << 20, 0);
            let mut there = vec![1; 4 << 20];
            copy.read_exact_at(&mut there, 0).expect("it is as long");
            assert!(there == expected, "one page is missing and nothing else");
            let restored = SimDisk::new();
            bring_back(&node.sys, &backup, &restored).await.expect("it is whole");
            let again =
                Node::start(&node.sys, Arc::new(restored), Options::default()).await.expect("it starts");
            again.directory().settle().await.expect("it can look at it");
            let store = again.directory();
            let read = |object| bench::read(&*store, &bench.all, object, Range::ALL);
            assert!(read(other).await.expect("it is whole") == bytes);
            assert_eq!(read(OBJECT).await.is_ok(), open, "what was sealed is never read as something else");
            // A backup whose own disk does not read is refused.
            backup.spoil(&format!("store/{path}"), 9).expect("it is there");
            bring_back(&node.sys, &backup, &SimDisk::new()).await.expect_err("it cannot be read");
        });
    }
}

/// Returns the path of the longest file of a store.
fn path_of_longest(store: &dyn Disk) -> String {
    let names = |dir: &str| {
        let mut names = Vec::new();
        let each = &mut |name: &str, _| {
            names.push(format!("{dir}/{name}"));
            std::ops::ControlFlow::Continue(())
        };
        store.list(dir, each).expect("it can be listed");
        names
    };
    let files = names("objects").into_iter().flat_map(|fan| names(&fan));
    files.max_by_key(|path| store.measure(path).expect("it is there").len).expect("there is one")
}
