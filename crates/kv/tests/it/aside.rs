//! A flush that is made aside, and what comes meanwhile. No time passes in these simulations unless something waits for it,
//! so a flush that was begun does not end before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::limits::KV_FOLD_RETRY;
use weft_core::metrics::Outcome;
use weft_core::{Error, ErrorKind, Result};
use weft_kv::{Commit, Embedded, Engine, NoteKind, Options, Order, Txn, WriteFn};
use weft_sys::{FlushSite, SimDisk, Sys, Task, simulate};

/// Runs a test with flushes that happen at their beginning, and at their end.
fn each<F: Future<Output = ()>>(work: impl Fn(Sys) -> F) {
    (0..20).for_each(|seed| simulate(seed, &work));
}

const KIND: NoteKind = NoteKind(3);
/// How many flush aside.
const MANY: u32 = 4;

/// An engine on a simulated disk, with one row.
struct Scene {
    sys: Sys,
    disk: SimDisk,
    engine: Arc<Embedded>,
    answered: Arc<AtomicUsize>,
}

impl Scene {
    async fn open(sys: Sys, options: Options) -> Self {
        let disk = SimDisk::new();
        let options = Options { flush_aside: MANY as usize, ..options };
        let engine = Embedded::open(sys.clone(), Arc::new(disk.clone()), options).expect("it opens");
        let scene = Self { sys, disk, engine: Arc::new(engine), answered: Arc::default() };
        scene.engine.write(Ack::Durable, put(0, 20)).await.expect("it commits");
        scene
    }

    /// Begins a transaction. What it came to is counted once it is answered.
    fn begin(&self, ack: Ack, act: WriteFn) -> Task<Result<Commit>> {
        let (engine, answered) = (self.engine.clone(), self.answered.clone());
        self.sys.spawn(async move {
            let done = engine.write(ack, act).await;
            answered.fetch_add(1, Ordering::SeqCst);
            done
        })
    }

    /// Begins as many durable ones as have their flush made aside, and has all go on until nothing does without time.
    async fn begin_many(&self, from: u32) -> Vec<Task<Result<Commit>>> {
        let tasks = (from..from + MANY).map(|key| self.begin(Ack::Durable, put(key, 20))).collect();
        settle().await;
        tasks
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    fn flushes(&self, site: FlushSite) -> u64 {
        self.disk.counts().flushes.get(&site).copied().unwrap_or(0)
    }

    fn rows(&self) -> usize {
        let read = self.engine.snapshot().expect("a snapshot");
        read.scan(&[0], &[], Order::Rising).filter(|row| row.is_ok()).count()
    }
}

fn put(key: u32, bytes: usize) -> WriteFn {
    Box::new(move |txn: &mut dyn Txn| {
        txn.put(&key.to_be_bytes(), &vec![1; bytes])?;
        txn.note(KIND, &key.to_be_bytes())
    })
}

/// Lets all go on that can without time.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn all(tasks: Vec<Task<Result<Commit>>>) -> Vec<std::result::Result<Commit, ErrorKind>> {
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.expect("it ran").map_err(|error: Error| error.kind()));
    }
    done
}

/// Everything goes through the queue.
const QUEUED: fn() -> Options = || Options { flush_at_once: Duration::ZERO, ..Options::default() };

#[test]
fn what_comes_meanwhile_is_made_and_answered_after_the_next_flush() {
    each(|sys| async move {
        let scene = Scene::open(sys, QUEUED()).await;
        let (before, flushed) = (scene.disk.counts(), scene.flushes(FlushSite::KvLogAppend));
        let mut tasks = scene.begin_many(1).await;
        assert_eq!(scene.disk.counts().writes - before.writes, 1);
        tasks.extend(scene.begin_many(5).await);
        tasks.extend(scene.begin_many(9).await);
        assert_eq!(scene.disk.counts().writes - before.writes, 3, "they are made meanwhile");
        assert_eq!(scene.answered(), 0, "none is durable yet");
        assert!(all(tasks).await.iter().all(|done| done.is_ok()));
        assert_eq!(scene.flushes(FlushSite::KvLogAppend) - flushed, 2);
        assert_eq!(scene.rows(), 13);
    });
}

#[test]
fn one_that_takes_long_holds_nobody_up_who_wants_none() {
    each(|sys| async move {
        for (from, waits) in [(Duration::ZERO, true), (Duration::MAX, false)] {
            let options = Options { flush_aside_from: from, ..QUEUED() };
            let scene = Scene::open(sys.clone(), options).await;
            let durable = scene.begin(Ack::Durable, put(1, 20));
            settle().await;
            assert_eq!(scene.answered(), usize::from(!waits), "its flush is under way");
            let applied = scene.begin(Ack::Applied, put(2, 20));
            settle().await;
            assert_eq!(scene.answered(), 1 + usize::from(!waits), "that is made meanwhile");
            assert!(all(vec![durable, applied]).await.iter().all(|done| done.is_ok()));
        }
    });
}

#[test]
fn one_that_fails_refuses_those_it_was_for_and_those_that_came_meanwhile() {
    each(|sys| async move {
        let scene = Scene::open(sys, QUEUED()).await;
        scene.disk.set_faults(|faults| faults.fail_flush = Some(1));
        let mut tasks = scene.begin_many(1).await;
        tasks.extend(scene.begin_many(5).await);
        assert_eq!(all(tasks).await, [Err(ErrorKind::Unavailable); 8]);
    });
}

/// Of two who flush one file, only one is told that it failed.
#[test]
fn no_other_segment_is_begun_meanwhile() {
    each(|sys| async move {
        let scene = Scene::open(sys, Options { segment_bytes: 8 << 10, ..QUEUED() }).await;
        let sealed = scene.flushes(FlushSite::KvLogSeal);
        let mut tasks = scene.begin_many(1).await;
        tasks.push(scene.begin(Ack::Durable, put(9, 7 << 10)));
        settle().await;
        assert_eq!(scene.flushes(FlushSite::KvLogSeal), sealed);
        assert!(all(tasks).await.iter().all(|done| done.is_ok()));
        assert_eq!(scene.flushes(FlushSite::KvLogSeal), sealed + 1);
    });
}

#[test]
fn who_asks_for_a_flush_meanwhile_waits_for_it() {
    each(|sys| async move {
        let scene = Scene::open(sys, Options::default()).await;
        // Who is alone does it by itself, but now and then.
        scene.engine.write(Ack::Durable, put(9, 20)).await.expect("it commits");
        let tasks = scene.begin_many(1).await;
        let (engine, answered) = (scene.engine.clone(), scene.answered.clone());
        let flush = scene.sys.spawn(async move {
            let done = engine.flush().await.map(drop);
            answered.fetch_add(1, Ordering::SeqCst);
            done
        });
        settle().await;
        assert_eq!(scene.answered(), 0);
        flush.await.expect("it ran").expect("it is flushed");
        assert!(all(tasks).await.iter().all(|done| done.is_ok()));
    });
}

#[test]
fn notes_of_what_was_made_meanwhile_are_told_after_the_next_flush() {
    each(|sys| async move {
        let scene = Scene::open(sys, QUEUED()).await;
        let mut notes = scene.engine.notes(KIND).expect("nobody else reads them");
        let tasks = scene.begin_many(1).await;
        let applied = scene.begin(Ack::Applied, put(5, 20));
        settle().await;
        applied.await.expect("it ran").expect("it is applied");
        assert!(all(tasks).await.iter().all(|done| done.is_ok()));
        let (told, flushed) = (notes.next().await.expect("notes"), scene.flushes(FlushSite::KvLogAppend));
        assert_eq!(told.len(), 5, "the first row's and those of four");
        assert_eq!(notes.next().await.expect("notes").len(), 1);
        assert_eq!(scene.flushes(FlushSite::KvLogAppend), flushed + 1);
    });
}

#[test]
fn closing_answers_all_first() {
    each(|sys| async move {
        let scene = Scene::open(sys, QUEUED()).await;
        let mut tasks = scene.begin_many(1).await;
        tasks.extend(scene.begin_many(5).await);
        tasks.push(scene.begin(Ack::Durable, put(9, 20)));
        settle().await;
        scene.engine.close().await.expect("it closes");
        assert!(all(tasks).await.iter().all(|done| done.is_ok()));
    });
}

#[test]
fn a_fold_that_is_to_be_tried_again_waits_for_it() {
    for early in (0..500).step_by(50) {
        simulate(early, |sys| async move {
            let scene = Scene::open(sys.clone(), Options { fold_bytes: 1 << 10, ..QUEUED() }).await;
            // There is no room to fold, and a second later not either.
            scene.disk.set_faults(|faults| faults.capacity = Some(5 << 20));
            let failed = || sys.metrics().kv_folds.value((Outcome::Failed,));
            scene.engine.write(Ack::Durable, put(100, 2 << 10)).await.expect("it commits");
            settle().await;
            assert_eq!(failed(), 1);
            sys.sleep(KV_FOLD_RETRY.saturating_sub(Duration::from_micros(early))).await;
            let tasks = scene.begin_many(1).await;
            assert!(all(tasks).await.iter().all(|done| done.is_ok()));
            sys.sleep(Duration::from_millis(1)).await;
            assert_eq!(failed(), 2, "it was tried again");
        });
    }
}
