//! Laws of writing in place: a slow writer keeps nobody waiting, and whatever is
//! interrupted, bytes never change under a version that was shown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use weft_conformance::file_system::Subject;
use weft_conformance::file_system::site::*;
use weft_core::attr::{SetAttr, Version};
use weft_core::form::{
    At, BytesSource, Call, Expect, Guard, OpenFile, Range, Replace, Shape, Source, StageHint, WriteAt,
    Written,
};
use weft_core::{Deadline, ErrorKind, FileId, Result, Rights, limits};
use weft_sys::{Disk, SimDisk, Sys, Task, simulate};

use super::crash::volume_on;
use super::disk_store::DiskStore;
use super::site::Volume;
use super::slow::{rest, slow};
use super::unsteady_store::{Op, UnsteadyStore};
use weft_conformance::file_system::workload::domain;

pub async fn unsteady_on(sys: &Sys, disk: &SimDisk) -> (Volume, Arc<UnsteadyStore>) {
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let store = UnsteadyStore::over(DiskStore::open(disk, clock.clone(), 1));
    let below = disk.beneath("kv").expect("a directory can be made");
    let _ = disk.sync_dir("", weft_sys::FlushSite::StoreObject);
    (Volume::on_disk(sys.clone(), domain(clock), below, store.clone(), true).await, store)
}

/// Waits for something that must not wait for anybody slow.
pub async fn soon<T>(sys: &Sys, what: &str, work: impl Future<Output = T>) -> T {
    let deadline = Deadline::within(sys.clock(), Duration::from_secs(20));
    let done = sys.within(deadline, async { Ok(work.await) }).await;
    done.unwrap_or_else(|_| panic!("{what} waits for somebody slow"))
}

fn writes(
    site: &Site<'_>,
    sys: &Sys,
    id: FileId,
    at: WriteAt,
    mut source: impl Source + 'static,
) -> Task<Result<Written>> {
    let (fs, call) = (site.fs.clone(), site.call());
    sys.spawn(async move {
        let need = if at == WriteAt::End { Rights::APPEND } else { Rights::WRITE };
        fs.file(&call, id, need).await?.write(&call, at, &mut source).await
    })
}

pub async fn published(site: &Site<'_>, path: &str, bytes: &[u8]) -> FileId {
    let call = site.call().durable();
    let stage = site.fs.stage(&call, &at(path), &StageHint::default()).await.works();
    stage.put(&call, 1, 0, &mut BytesSource::new(bytes.to_vec())).await.works();
    stage.publish(&call, &[], &SetAttr::default(), &free()).await.works().value.id
}

#[test]
fn a_writer_whose_bytes_are_slow_keeps_nobody_waiting() {
    for slow_at in [WriteAt::Offset(10), WriteAt::End] {
        simulate(1, |sys| async move {
            let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
            let site = Site::of(&volume);
            site.dir("d").await;
            site.seal("d").await;
            let id = site.file("f", &pattern(100_000, 1)).await;
            let (pieces, source) = slow();
            let write = writes(&site, &sys, id, slow_at, source);
            pieces.send(pattern(50_000, 2)).expect("it is pulled");
            rest().await;
            soon(&sys, "a write", site.write(id, 0, b"others")).await;
            let more = BytesSource::new(pattern(5_000, 3));
            soon(&sys, "an append", writes(&site, &sys, id, WriteAt::End, more)).await.works().works();
            let file = site.fs.file(&site.call(), id, Rights::WRITE).await.works();
            soon(&sys, "a cut", file.shape(&site.call(), Shape::Truncate(90_000))).await.works();
            // Into another container: its object gets another label.
            let (call, from, to) = (site.call(), at("f"), at("d/f"));
            let moved = site.fs.rename(&call, &from, &to, Replace::Never, &Guard::NONE);
            soon(&sys, "a rename", moved).await.works();
            let node = site.call_of(&volume.domain().caller("node:n1"), 9);
            soon(&sys, "a sweep", volume.running().managed.sweep(&node)).await.works();
            let report = soon(&sys, "a check", volume.running().managed.check(&node)).await.works();
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
            soon(&sys, "a clean stop", volume.running().managed.close()).await.works();
            pieces.send(pattern(50_000, 2)).expect("it is pulled");
            drop(pieces);
            let written = write.await.works().works();
            assert_eq!(written.bytes, 100_000);
            let read = site.read(id).await;
            let start = written.at as usize + 50_000;
            assert!(read[start..start + 50_000] == pattern(50_000, 2)[..], "what came late is there");
        });
    }
}

#[test]
fn appends_never_mix_however_long_and_slow_they_are() {
    simulate(2, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let id = site.file("f", &pattern(100_000, 1)).await;
        let mut long = Vec::new();
        for _ in 0..3 {
            let (pieces, source) = slow();
            long.push((pieces, writes(&site, &sys, id, WriteAt::End, source)));
        }
        for round in 0..6 {
            for (n, (pieces, _)) in long.iter().enumerate() {
                pieces.send(vec![n as u8 + 1; 100_000]).expect("it is pulled");
            }
            let short = BytesSource::new(vec![round + 10; 3_000]);
            drop(writes(&site, &sys, id, WriteAt::End, short));
            rest().await;
        }
        for (pieces, write) in long {
            drop(pieces);
            assert_eq!(write.await.works().works().bytes, 600_000);
        }
        rest().await;
        let read = site.read(id).await;
        let runs: Vec<(u8, usize)> =
            read[100_000..].chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs.len(), 9, "an append was torn: {runs:?}");
        assert!(
            runs.iter().all(|(by, length)| *length == if *by < 10 { 600_000 } else { 3_000 }),
            "{runs:?}"
        );
    });
}

/// An append that keeps others from the end must bring its bytes.
#[test]
fn a_long_append_that_brings_nothing_gives_up_the_end() {
    simulate(3, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let id = site.file("f", &pattern(100_000, 1)).await;
        let (pieces, source) = slow();
        let long = writes(&site, &sys, id, WriteAt::End, source);
        pieces.send(vec![1; limits::APPEND_HELD_BYTES + 1]).expect("it is pulled");
        rest().await;
        let short = writes(&site, &sys, id, WriteAt::End, BytesSource::new(vec![2; 10]));
        let refused = long.await.works();
        assert_eq!(refused.fails(), ErrorKind::Deadline);
        let at = short.await.works().works().at;
        assert_eq!(at, 100_000 + limits::APPEND_HELD_BYTES as u64 + 1, "what came is kept");
        drop(pieces);
    });
}

/// How a file looked: never again over other bytes.
struct Look {
    id: FileId,
    version: Version,
    bytes: Vec<u8>,
}

impl Look {
    async fn at(site: &Site<'_>, id: FileId) -> Self {
        let version = site.attr(id).await.version;
        Self { id, version, bytes: site.read(id).await.to_vec() }
    }

    /// Returns whether the bytes are others now; then the version must be, too.
    async fn has_changed(&self, site: &Site<'_>, when: &str) -> bool {
        let now = Self::at(site, self.id).await;
        let differs = now.bytes != self.bytes;
        assert!(!differs || now.version != self.version, "{when}: other bytes under the same version");
        assert_eq!(site.attr(self.id).await.size, now.bytes.len() as u64, "{when}");
        differs
    }
}

/// Tries a scenario that ends in a power cut with many seeds: what was looked at before
/// the last change is never there again with other bytes.
fn no_cut_hides<F>(scenario: impl Fn(Sys, Arc<Volume>, Arc<UnsteadyStore>) -> F)
where
    F: Future<Output = Look>,
{
    let (mut changed, scenario) = (0, &scenario);
    for seed in 0..40 {
        changed += simulate(seed, |sys| async move {
            let disk = SimDisk::new();
            let (volume, store) = unsteady_on(&sys, &disk).await;
            let look = scenario(sys.clone(), Arc::new(volume), store).await;
            let (volume, _) = volume_on(&sys, &disk.crash(seed), 2, false).await;
            usize::from(look.has_changed(&Site::of(&volume), &format!("seed {seed}")).await)
        });
    }
    assert!(changed > 0, "the disk kept none of what was written: nothing was tried");
}

#[test]
fn a_write_that_waited_while_its_file_was_settled_is_marked_all_the_same() {
    no_cut_hides(|sys, volume, store| async move {
        let site = Site::of(&*volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        site.write(id, 0, b"marked").await;
        let go_on = store.hold(Op::Seal);
        sys.sleep(limits::OBJECT_IDLE * 2).await;
        // It is being settled, and looks as it will then.
        let bytes = BytesSource::new(pattern(60_000, 2));
        let write = writes(&site, &sys, id, WriteAt::Offset(0), bytes);
        rest().await;
        let look = Look::at(&site, id).await;
        // The power goes when its bytes are at the store and nothing more is.
        let _stuck = store.hold(Op::Write);
        go_on.send(true).expect("it waits");
        rest().await;
        volume.running().engine.flush().await.works();
        write.abort();
        look
    });
}

#[test]
fn a_file_that_was_published_over_while_it_was_marked_is_marked_again() {
    no_cut_hides(|_, volume, _| async move {
        let site = Site::of(&*volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        site.write(id, 0, b"marked").await;
        assert_eq!(published(&site, "f", &pattern(100_000, 2)).await, id);
        let look = Look::at(&site, id).await;
        site.write(id, 0, &pattern(60_000, 3)).await;
        look
    });
}

#[test]
fn a_file_that_was_emptied_while_it_was_marked_is_marked_again() {
    no_cut_hides(|_, volume, _| async move {
        let site = Site::of(&*volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        site.write(id, 0, b"marked").await;
        let none = SetAttr { size: Some(0), ..SetAttr::default() };
        site.fs.set(&site.call(), &At::id(id), &none, &free()).await.works();
        published(&site, "f", &pattern(100_000, 2)).await;
        let look = Look::at(&site, id).await;
        site.write(id, 0, &pattern(60_000, 3)).await;
        look
    });
}

#[test]
fn what_a_writer_that_went_away_wrote_counts() {
    simulate(5, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        for place in [WriteAt::Offset(90_000), WriteAt::End] {
            let id = published(&site, "f", &pattern(100_000, 1)).await;
            let look = Look::at(&site, id).await;
            let (pieces, source) = slow();
            let write = writes(&site, &sys, id, place, source);
            pieces.send(pattern(limits::APPEND_HELD_BYTES + 1, 2)).expect("it is pulled");
            rest().await;
            write.abort();
            rest().await;
            look.has_changed(&site, "at once").await;
            sys.sleep(limits::OBJECT_IDLE * 3).await;
            assert!(look.has_changed(&site, "settled").await, "nothing was written");
            let node = volume.domain().call(&volume.domain().caller("node:n1"), 0);
            let report = volume.running().managed.check(&node).await.works();
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
        }
    });
}

#[test]
fn what_a_write_or_a_cut_that_failed_did_counts() {
    simulate(6, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        site.write(id, 0, b"its object is known").await;
        let object = store.last(Op::Write);
        let file = site.fs.file(&site.call(), id, Rights::WRITE).await.works();
        let look = Look::at(&site, id).await;
        store.fail(Op::Write, object);
        let mut bytes = BytesSource::new(pattern(50_000, 2));
        file.write(&site.call(), WriteAt::Offset(80_000), &mut bytes).await.fails();
        assert!(look.has_changed(&site, "a write").await);
        let look = Look::at(&site, id).await;
        store.fail(Op::Shape, object);
        file.shape(&site.call(), Shape::Truncate(20_000)).await.fails();
        assert!(look.has_changed(&site, "a cut").await);
    });
}

#[test]
fn a_writer_whose_right_ends_stops_though_its_bytes_do_not_come() {
    simulate(7, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let alice = site.user("alice");
        site.allow("", &alice, Rights::READING | Rights::WRITE).await;
        let id = site.file("f", &pattern(100_000, 1)).await;
        let (pieces, mut source) = slow();
        let (fs, call) = (site.fs.clone(), site.call_of(&alice, 2));
        let write: Task<Result<Written>> = sys.spawn(async move {
            fs.file(&call, id, Rights::WRITE).await?.write(&call, WriteAt::Offset(0), &mut source).await
        });
        pieces.send(pattern(10, 2)).expect("it is pulled");
        rest().await;
        site.forbid("", &alice).await;
        let refused = soon(&sys, "a writer without a right", write).await.works();
        assert_eq!(refused.fails(), ErrorKind::Revoked);
        drop(pieces);
    });
}

/// A file that others empty again and again can be written all the same.
#[test]
fn a_write_beside_others_that_empty_the_file_is_not_refused() {
    simulate(8, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let id = site.file("f", &pattern(100_000, 1)).await;
        let mut tasks = Vec::new();
        for n in 0..4_u8 {
            let (fs, call): (_, Call) = (site.fs.clone(), site.call_of(&site.admin, u128::from(n) + 2));
            tasks.push(sys.spawn(async move {
                let file = fs.file(&call, id, Rights::WRITE).await?;
                for round in 0..30_u64 {
                    if n == 0 {
                        let none = SetAttr { size: Some(0), ..SetAttr::default() };
                        fs.set(&call, &At::id(id), &none, &free()).await?;
                    } else {
                        let mut bytes = BytesSource::new(vec![n; 20_000]);
                        file.write(&call, WriteAt::Offset(round * 1_000), &mut bytes).await?;
                    }
                }
                Ok(())
            }));
        }
        for task in tasks {
            let done: Result<()> = task.await.works();
            done.works();
        }
        let file = site.fs.file(&site.call(), id, Rights::READ).await.works();
        let read = read_of(&*file, &site.call(), Range::ALL).await.works();
        assert_eq!(site.attr(id).await.size, read.len() as u64);
    });
}

/// The end of a file is an append's until its piece has landed, though its caller went away.
#[test]
fn an_append_whose_caller_is_gone_keeps_the_end_until_it_has_landed() {
    simulate(9, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let id = site.file("f", &pattern(100_000, 1)).await;
        let file = site.fs.file(&site.call(), id, Rights::APPEND).await.works();
        let go_on = store.hold(Op::Write);
        {
            let (call, mut bytes) = (site.call(), BytesSource::new(vec![1; 50_000]));
            let mut gone = file.write(&call, WriteAt::End, &mut bytes);
            tokio::select! {
                biased;
                _ = &mut gone => panic!("it was held up"),
                () = rest() => {}
            }
        }
        let until = Deadline::within(sys.clock(), Duration::from_secs(1));
        let (call, mut bytes) = (Call { until, ..site.call() }, BytesSource::new(vec![2; 3_000]));
        let next = soon(&sys, "an append", file.write(&call, WriteAt::End, &mut bytes)).await;
        assert_eq!(next.fails(), ErrorKind::Deadline);
        drop(go_on);
        rest().await;
        let last = write_to(&*file, &site.call(), WriteAt::End, &[3; 3_000]).await.works();
        assert_eq!(last.at, 150_000);
    });
}

/// The bytes of a small file are copied into an object while others may change it.
#[test]
fn a_size_that_is_set_while_a_file_becomes_an_object_is_kept() {
    for (was, is) in [(None, 1 << 20), (Some(1 << 20), 200_000), (Some(1 << 20), 1 << 21)] {
        simulate(12, |sys| async move {
            let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
            let site = Site::of(&volume);
            let id = site.file("f", b"abc").await;
            let file = site.fs.file(&site.call(), id, Rights::WRITE).await.works();
            if let Some(size) = was {
                file.shape(&site.call(), Shape::Truncate(size)).await.works();
            }
            // A write at its front that is too large to be a row.
            let go_on = store.hold(Op::Sync);
            let write = writes(&site, &sys, id, WriteAt::Offset(0), BytesSource::new(pattern(100_000, 1)));
            rest().await;
            let call = site.call();
            soon(&sys, "a size", file.shape(&call, Shape::Truncate(is))).await.works();
            assert_eq!(site.attr(id).await.size, is, "it was acknowledged");
            drop(go_on);
            write.await.works().works();
            let mut expected = pattern(100_000, 1);
            expected.resize(is as usize, 0);
            for when in ["at once", "settled"] {
                assert_eq!(site.attr(id).await.size, is, "{when}");
                assert!(site.read(id).await[..] == expected[..], "{when}");
                sys.sleep(limits::OBJECT_IDLE * 3).await;
            }
            let node = site.call_of(&volume.domain().caller("node:n1"), 9);
            let report = volume.running().managed.check(&node).await.works();
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
        });
    }
}

/// Whoever removes a file that is being settled does not wait for that.
#[test]
fn a_file_that_goes_while_it_is_settled_is_no_failure_to_settle() {
    simulate(14, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        site.write(id, 0, b"again").await;
        let go_on = store.hold(Op::Seal);
        let managed = volume.running().managed.clone();
        let close = sys.spawn(async move { managed.close().await });
        rest().await;
        let object = store.last(Op::Seal);
        site.fs.remove(&site.call(), &at("f"), Expect::Any, &free()).await.works();
        rest().await;
        assert!(store.asked(Op::Remove, object) > 0, "it is to be gone by then");
        drop(go_on);
        close.await.works().works();
    });
}

/// What a copy answers is how much of the source there was.
#[test]
fn a_copy_whose_source_is_cut_meanwhile_counts_what_it_copied() {
    let piece = limits::PIECE_BYTES_MAX;
    simulate(13, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let bytes = pattern(3 * piece, 1);
        let from = published(&site, "from", &bytes).await;
        let to = published(&site, "to", &pattern(20_000, 2)).await;
        for left in [piece + piece / 2, piece, 4] {
            let source = site.fs.file(&site.call(), from, Rights::WRITE).await.works();
            write_to(&*source, &site.call(), WriteAt::Offset(0), &bytes).await.works();
            let target = site.fs.file(&site.call(), to, Rights::WRITE).await.works();
            target.shape(&site.call(), Shape::Truncate(10)).await.works();
            let go_on = store.hold(Op::Write);
            let (fs, call) = (site.fs.clone(), site.call());
            let copy =
                sys.spawn(async move { fs.copy(&call, &At::id(from), Range::ALL, &At::id(to), 10).await });
            rest().await;
            source.shape(&site.call(), Shape::Truncate(left as u64)).await.works();
            drop(go_on);
            let copied = copy.await.works().works();
            // Its first piece was read before the cut.
            let there = left.max(piece);
            assert_eq!(copied.bytes, there as u64, "cut to {left}");
            assert!(site.read(to).await[10..] == bytes[..there], "cut to {left}");
        }
    });
}

/// Bytes that changed while no row could say so have a version of their own at once, and keep
/// one when they are settled: nobody is shown them under the old one, pinned or not.
#[test]
fn what_no_row_could_be_made_to_tell_of_is_never_shown_under_the_old_version() {
    type Change = fn(Arc<dyn OpenFile>, Call) -> BoxFuture<'static, Result<()>>;
    let write: Change = |file, call| {
        Box::pin(async move {
            let mut bytes = BytesSource::new(pattern(50_000, 2));
            file.write(&call, WriteAt::Offset(20_000), &mut bytes).await.map(drop)
        })
    };
    let punch: Change = |file, call| {
        let shape = Shape::Punch { at: 20_000, length: 30_000 };
        Box::pin(async move { file.shape(&call, shape).await.map(drop) })
    };
    for change in [write, punch] {
        simulate(10, |sys| async move {
            let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
            let site = Site::of(&volume);
            let id = published(&site, "f", &pattern(100_000, 1)).await;
            // Its mark is on disk: the next write has one transaction, which tells of it.
            site.write(id, 0, b"marked").await;
            let look = Look::at(&site, id).await;
            let file = site.fs.file(&site.call(), id, Rights::WRITE).await.works();
            volume.full.store(true, std::sync::atomic::Ordering::Release);
            assert_eq!(change(file, site.call()).await.fails(), ErrorKind::NoSpace);
            volume.full.store(false, std::sync::atomic::Ordering::Release);
            assert!(look.has_changed(&site, "at once").await, "its bytes are others");
            let open = site.fs.open(&site.call(), &at("f"), &pinned()).await;
            assert_eq!(open.map(drop).fails(), ErrorKind::Conflict);
            sys.sleep(limits::OBJECT_IDLE * 3).await;
            assert!(look.has_changed(&site, "settled").await);
            let settled = Look::at(&site, id).await;
            let open = site.fs.open(&site.call(), &at("f"), &pinned()).await.works();
            assert_eq!(open.attr.version, settled.version);
            let read = read_of(&*open.file, &site.call(), Range::ALL).await.works();
            assert!(read[..] == settled.bytes[..]);
            let node = site.call_of(&volume.domain().caller("node:n1"), 9);
            let report = volume.running().managed.check(&node).await.works();
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
        });
    }
}

/// Who reads contents that were replaced is not told of what is written into the new ones.
#[test]
fn a_reader_pinned_to_replaced_contents_reads_them_whatever_is_written_into_the_new_ones() {
    simulate(11, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let old = pattern(100_000, 1);
        let id = published(&site, "f", &old).await;
        let open = site.fs.open(&site.call(), &at("f"), &pinned()).await.works().file;
        let mut source = open.read(&site.call(), Range::ALL).await.works();
        let first = source.next(10_000).await.works().expect("there is more").into_bytes().works();
        published(&site, "f", &pattern(100_000, 2)).await;
        site.write(id, 0, &pattern(60_000, 3)).await;
        // And while one is under way.
        let go_on = store.hold(Op::Write);
        let write = writes(&site, &sys, id, WriteAt::Offset(0), BytesSource::new(pattern(60_000, 4)));
        rest().await;
        let more = weft_core::form::collect(&mut *source, 1 << 20).await.works();
        assert!([&first[..], &more].concat() == old);
        assert!(read_of(&*open, &site.call(), Range::ALL).await.works()[..] == old[..]);
        drop(go_on);
        write.await.works().works();
        // Written in place, the new contents are not what somebody is pinned to before that.
        let open = site.fs.open(&site.call(), &at("f"), &pinned()).await.works().file;
        site.write(id, 0, b"others").await;
        assert_eq!(read_of(&*open, &site.call(), Range::ALL).await.map(drop).fails(), ErrorKind::Conflict);
    });
}

/// People know files and containers; what lies below them is for the node's log.
#[test]
fn what_the_store_fails_at_is_said_of_a_file_or_its_container_and_not_in_the_stores_words() {
    simulate(1, |sys| async move {
        let (volume, store) = unsteady_on(&sys, &SimDisk::new()).await;
        let site = Site::of(&volume);
        let id = published(&site, "f", &pattern(100_000, 1)).await;
        let object = store.last(Op::Seal);
        let container = site.attr(id).await.container;
        let call = site.call();
        let file = site.fs.file(&call, id, Rights::READ | Rights::WRITE).await.works();
        for kind in [ErrorKind::NoSpace, ErrorKind::Unavailable, ErrorKind::Corrupt, ErrorKind::Internal] {
            for op in [Op::Read, Op::Write, Op::Shape] {
                store.fail_as(op, object, kind);
                let mut bytes = BytesSource::new(pattern(100, 2));
                let failed = match op {
                    Op::Read => file.read(&call, Range::ALL).await.err(),
                    Op::Write => file.write(&call, WriteAt::Offset(0), &mut bytes).await.err(),
                    _ => file.shape(&call, Shape::Truncate(90_000)).await.err(),
                };
                let error = failed.expect("the store refuses it");
                let about = match kind {
                    ErrorKind::NoSpace => container.to_string(),
                    _ => id.to_string(),
                };
                assert_eq!((error.kind(), error.subject()), (kind, Some(&*about)), "{op:?}: {error:?}");
                assert!(!error.to_string().contains(&object.to_string()), "{error}");
                // Where it was is not lost.
                assert!(format!("{error:?}").contains(&object.to_string()), "{error:?}");
                store.recover();
            }
        }
    });
}

#[test]
fn what_was_pulled_of_one_version_of_a_file_that_is_being_written_is_a_copy_of_it() {
    simulate(1, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let site = Site::of(&volume);
        let id = published(&site, "f", &pattern(1_000_000, 1)).await;
        let pulled = async || {
            let opened = site.fs.open(&site.call(), &at("f"), &pinned()).await.works();
            let mut source = opened.file.read(&site.call(), Range::ALL).await.works();
            source.next(limits::PIECE_BYTES_MAX).await.works().expect("there is more")
        };
        site.write(id, 300_000, b"first").await;
        for at in [0, 100_000] {
            let (piece, length) = (pulled().await, 5);
            assert!(piece.length() <= 256 << 10, "copies are made by small pieces");
            let was = piece.clone().into_bytes().works();
            site.write(id, at, b"later").await;
            let place = at as usize..at as usize + length;
            let now = piece.into_bytes().works();
            assert!(now == was && now[place] != *b"later", "it is on its way already");
        }
    });
}
