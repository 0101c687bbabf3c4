//! What is held while what is waited for.

use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_conformance::TestDomain;
use weft_conformance::object_store::bench::{HERE, OBJECT, VOLUME};
use weft_core::form::{BytesSource, OpenedFile, Range as Bytes, Shape, WriteAt, collect};
use weft_core::proof::Granted;
use weft_core::service::ObjectStore;
use weft_core::{Clock, Rights, Tick, Time};
use weft_kv::{Embedded, Engine, Options as KvOptions};
use weft_sys::disk::FileSize;
use weft_sys::{DiskFile, SimDisk, Sys};

use super::super::live::Was;
use super::*;
use crate::{Check, Directory, Options};

struct Real(Sys);

impl Clock for Real {
    fn now(&self) -> Time {
        self.0.clock().now()
    }

    fn tick(&self) -> Tick {
        self.0.clock().tick()
    }
}

const BLOCK: u64 = limits::SEAL_BLOCK_BYTES;
const PATIENCE: Duration = Duration::from_secs(60);

/// A call of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    SetLen,
    Punch,
    Sync,
}

/// A file that says when one kind of call begins, and goes on when it is told how.
struct Watched {
    file: Arc<dyn DiskFile>,
    at: Call,
    begun: Sender<()>,
    answers: Mutex<Receiver<Result<()>>>,
    /// Whether its bytes are in memory. Reading brings them there.
    resident: Arc<AtomicBool>,
}

/// The other end of a [`Watched`] file. Once it is dropped, calls go through.
struct Watch {
    begun: Receiver<()>,
    answers: Sender<Result<()>>,
    resident: Arc<AtomicBool>,
    /// What is on the disk.
    file: Arc<dyn DiskFile>,
}

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "it is a thread that is waited for")]
    fn wait(&self) {
        self.begun.recv_timeout(PATIENCE).expect("the call begins");
    }
}

impl Watched {
    fn new(file: Arc<dyn DiskFile>, at: Call) -> (Arc<Self>, Watch) {
        let ((begun, begins), (answers, answered)) = (channel(), channel());
        let (resident, answered) = (Arc::<AtomicBool>::default(), Mutex::new(answered));
        let watch = Watch { begun: begins, answers, resident: resident.clone(), file: file.clone() };
        (Arc::new(Self { file, at, begun, answers: answered, resident }), watch)
    }

    fn call(&self, call: Call) -> Result<()> {
        if call != self.at || self.begun.send(()).is_err() {
            return Ok(());
        }
        self.answers.lock().expect("no test panics in here").recv().unwrap_or(Ok(()))
    }
}

impl OpenedFile for Watched {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl DiskFile for Watched {
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        self.resident.store(true, Ordering::Release);
        self.file.read(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write_at(bytes, at)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.call(Call::SetLen)?;
        self.file.set_len(len)
    }

    fn allocate(&self, at: u64, len: u64) -> Result<()> {
        self.file.allocate(at, len)
    }

    fn reserve(&self, at: u64, len: u64) -> Result<()> {
        self.file.reserve(at, len)
    }

    fn punch(&self, at: u64, len: u64) -> Result<()> {
        self.call(Call::Punch)?;
        self.file.punch(at, len)
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn measure(&self) -> Result<FileSize> {
        self.file.measure()
    }

    fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        self.file.seek(at, what)
    }

    fn resident(&self, _at: u64, _len: u64) -> bool {
        self.resident.load(Ordering::Acquire)
    }

    fn sync(&self, site: FlushSite) -> Result<()> {
        self.call(Call::Sync)?;
        self.file.sync(site)
    }
}

/// A store on threads of its own, with one object that is open for writing.
struct Site {
    store: Directory,
    engine: Arc<Embedded>,
    all: Granted,
    live: Arc<Live>,
    watch: Watch,
}

impl Site {
    /// The object's bytes are written; `at` of its file is watched.
    async fn new(bytes: Vec<u8>, at: Call) -> Self {
        let sys = Sys::real();
        let engine = Embedded::open(sys.clone(), Arc::new(SimDisk::new()), KvOptions::default());
        let engine = Arc::new(engine.expect("it opens"));
        let disk = Arc::new(SimDisk::new());
        let store = Directory::open(sys.clone(), disk, engine.clone(), Options::default()).await;
        let store = store.expect("it opens");
        let domain = TestDomain::new(1, Arc::new(Real(sys)), &[VOLUME]);
        let all = domain.granted(&domain.caller("ada"), HERE, Rights::ALL);
        store.make(&all, OBJECT, None).await.expect("a fresh id");
        let inner = &store.inner;
        let made = inner.known(OBJECT).expect("it was just made");
        let row = ObjectRow::read(&inner.space.snapshot().expect("it reads"), OBJECT);
        let row = row.expect("it reads").expect("it was just made");
        let (file, watch) = Watched::new(made.file.clone(), at);
        let live = Arc::new(Live::new(OBJECT, &row, file, Was::MadeNow, inner.clock().tick()));
        inner.leave(OBJECT);
        // The store's own work does not meet it: only tests call.
        inner.table().insert(OBJECT, live.clone());
        let mut bytes = BytesSource::new(bytes);
        store.write(&all, OBJECT, WriteAt::Offset(0), &mut bytes).await.expect("there is room");
        Self { store, engine, all, live, watch }
    }

    async fn read(&self, range: Bytes) -> Result<Vec<u8>> {
        let mut source = self.store.read(&self.all, OBJECT, range).await?;
        Ok(collect(&mut *source, 64 * BLOCK as usize).await?.to_vec())
    }

    /// What a restart finds.
    async fn reopened(&self) -> Vec<u8> {
        self.store.inner.leave(OBJECT);
        self.read(Bytes::ALL).await.expect("it is sound")
    }
}

fn on_threads<T>(work: impl Future<Output = T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "what waits for what matters between threads only")]
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

#[test]
fn an_object_is_not_sealed_while_its_extent_changes() {
    let shapes = [
        (Shape::Truncate(10 * BLOCK), Call::SetLen),
        (Shape::Truncate(BLOCK / 2), Call::SetLen),
        (Shape::Allocate { at: 0, length: 10 * BLOCK, keep_size: false }, Call::SetLen),
        (Shape::Punch { at: BLOCK / 2, length: BLOCK }, Call::Punch),
        (Shape::Punch { at: 0, length: 2 * BLOCK }, Call::Punch),
    ];
    for (shape, at) in shapes {
        on_threads(async {
            let mut expected = vec![7; 2 * BLOCK as usize];
            let site = Site::new(expected.clone(), at).await;
            let (inner, live) = (site.store.inner.clone(), site.live.clone());
            let shaping = inner.sys.spawn({
                let (inner, live) = (inner.clone(), live.clone());
                async move { inner.shape(&live, shape).await }
            });
            site.watch.wait();
            let sealed = inner.seal(&live).await.expect("nothing is lost");
            site.watch.answers.send(Ok(())).expect("it waits");
            shaping.await.expect("it ends").expect("it can be shaped");
            assert!(!sealed, "{shape:?} was under way");
            assert!(inner.seal(&live).await.expect("nothing is lost"), "now nothing is in the way");
            match shape {
                Shape::Truncate(size) => expected.resize(size as usize, 0),
                Shape::Punch { at, length } => expected[at as usize..(at + length) as usize].fill(0),
                _ => expected.resize(10 * BLOCK as usize, 0),
            }
            assert!(site.reopened().await == expected, "{shape:?}");
        });
    }
}

#[test]
fn a_change_of_extent_that_no_flush_covered_is_not_recorded() {
    on_threads(async {
        let site = Site::new(vec![7; BLOCK as usize], Call::Sync).await;
        let (inner, live) = (site.store.inner.clone(), site.live.clone());
        let sealing = inner.sys.spawn({
            let (inner, live) = (inner.clone(), live.clone());
            async move { inner.seal(&live).await }
        });
        site.watch.wait();
        inner.shape(&live, Shape::Truncate(10 * BLOCK)).await.expect("it can be shaped");
        site.watch.answers.send(Ok(())).expect("it waits");
        assert!(!sealing.await.expect("it ends").expect("it is flushed"), "the new end is on no disk");
        site.watch.answers.send(Ok(())).expect("it is taken in time");
        assert!(inner.seal(&live).await.expect("it is flushed"));
    });
}

#[test]
fn who_waits_for_a_flush_that_fails_is_not_told_that_the_next_one_did_it() {
    on_threads(async {
        let site = Site::new(vec![7; 1000], Call::Sync).await;
        let (inner, live) = (site.store.inner.clone(), site.live.clone());
        let first = inner.sys.spawn({
            let (inner, live) = (inner.clone(), live.clone());
            async move { inner.sync(&live).await }
        });
        site.watch.wait();
        let mut second = pin!(inner.sync(&live));
        tokio::select! {
            biased;
            _ = &mut second => panic!("a flush is under way"),
            () = std::future::ready(()) => {}
        }
        let failed = Error::new(ErrorKind::Unavailable, "the disk is failing");
        site.watch.answers.send(Err(failed)).expect("it waits");
        // The machine tells of it once: a second flush would go well.
        site.watch.answers.send(Ok(())).expect("it is taken in time");
        assert!(first.await.expect("it ends").is_err());
        assert!(second.await.is_err(), "its bytes may be lost as well");
        assert!(inner.sync(&live).await.is_err() && inner.seal(&live).await.is_err());
    });
}

#[test]
fn who_reads_the_files_beside_readers_makes_nothing_of_them_servable() {
    for by_backup in [false, true] {
        on_threads(async {
            let site = Site::new(vec![7; 3 * BLOCK as usize], Call::Punch).await;
            let inner = &site.store.inner;
            assert!(inner.seal(&site.live).await.expect("nothing is lost"));
            site.read(Bytes::ALL).await.expect("it is sound");
            site.read(Bytes::ALL).await.expect("it is sound");
            let checked = site.store.counts().blocks_checked;
            site.read(Bytes::ALL).await.expect("it is sound");
            assert_eq!(site.store.counts().blocks_checked, checked, "what is in memory is believed");
            // It leaves the memory, and the disk rots.
            site.watch.file.write_at(b"rot", BLOCK + 100).expect("it can be written");
            site.watch.resident.store(false, Ordering::Release);
            if by_backup {
                let metadata = site.engine.backup(Arc::new(SimDisk::new()));
                let found = site.store.backup(metadata, Arc::new(SimDisk::new())).await;
                assert_eq!(found.expect("it is made").damaged.len(), 1);
            } else {
                let found = site.store.check(Check { repair: false, blocks: true }).await;
                assert_eq!(found.expect("it can look").findings.len(), 1);
            }
            site.watch.resident.store(true, Ordering::Release);
            let answer = site.read(Bytes { at: BLOCK, length: Some(1) }).await;
            assert_eq!(answer.expect_err("it is refused").kind(), ErrorKind::Corrupt, "{by_backup}");
            site.read(Bytes { at: 0, length: Some(BLOCK) }).await.expect("it is sound");
        });
    }
}

#[test]
fn what_rots_once_it_has_left_the_memory_is_not_served_because_it_is_back_there() {
    on_threads(async {
        let site = Site::new(vec![7; 2 * BLOCK as usize], Call::Punch).await;
        assert!(site.store.inner.seal(&site.live).await.expect("nothing is lost"));
        site.read(Bytes::ALL).await.expect("it is sound");
        site.watch.file.write_at(b"rot", 100).expect("it can be written");
        site.watch.resident.store(false, Ordering::Release);
        for _ in 0..3 {
            // The first look finds the mismatch, and brings the bytes into memory.
            let answer = site.read(Bytes { at: 0, length: Some(1) }).await;
            assert_eq!(answer.expect_err("it is refused").kind(), ErrorKind::Corrupt);
        }
    });
}

#[test]
fn what_is_being_made_zeros_is_not_called_damaged_meanwhile() {
    on_threads(async {
        let site = Site::new(vec![7; BLOCK as usize + 1000], Call::Punch).await;
        let (inner, live) = (site.store.inner.clone(), site.live.clone());
        assert!(inner.seal(&live).await.expect("nothing is lost"));
        // Small and in memory, so that it is read at once.
        site.watch.resident.store(true, Ordering::Release);
        let punching = inner.sys.spawn({
            let (inner, live) = (inner.clone(), live.clone());
            async move { inner.shape(&live, Shape::Punch { at: BLOCK, length: 1000 }).await }
        });
        site.watch.wait();
        let tail = Bytes { at: BLOCK, length: None };
        let mut reading = pin!(site.read(tail));
        tokio::select! {
            biased;
            read = &mut reading => panic!("neither the old bytes nor zeros: {read:?}"),
            () = std::future::ready(()) => {}
        }
        site.watch.answers.send(Ok(())).expect("it waits");
        punching.await.expect("it ends").expect("it can be punched");
        assert!(reading.await.expect("it is sound") == vec![0; 1000]);
        assert_eq!(site.store.counts().blocks_corrupt, 0);
    });
}

/// Threads that make room hold the table of what is open and look at each object in it: were an
/// object held by who waits for the table, neither would go on.
#[test]
#[expect(clippy::disallowed_methods, reason = "the order of locks matters between threads only")]
fn who_ends_a_seal_waits_for_the_table_with_no_object_held() {
    // More threads than the store has tasks of its own that wait for the table meanwhile.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(6).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (inner, live) = runtime.block_on(async {
        let sys = Sys::real();
        let engine = Embedded::open(sys.clone(), Arc::new(SimDisk::new()), KvOptions::default());
        let engine: Arc<dyn Engine> = Arc::new(engine.expect("it opens"));
        let store = Directory::open(sys.clone(), Arc::new(SimDisk::new()), engine, Options::default()).await;
        let store = store.expect("it opens");
        let domain = TestDomain::new(1, Arc::new(Real(sys.clone())), &[VOLUME]);
        let all = domain.granted(&domain.caller("ada"), HERE, Rights::ALL);
        store.make(&all, OBJECT, None).await.expect("a fresh id");
        let inner = store.inner.clone();
        let live = inner.known(OBJECT).expect("it was just made");
        // Dropping the store would stop what is to be watched.
        std::mem::forget(store);
        (inner, live)
    });
    let table = inner.writing_table();
    let (sealing, sealed) = (inner.clone(), live.clone());
    runtime.spawn(async move { sealing.seal(&sealed).await });
    let (said, hears) = channel();
    std::thread::spawn(move || {
        while live.state().phase != Phase::Sealed {
            std::thread::yield_now();
        }
        let _ = said.send(());
    });
    hears.recv_timeout(Duration::from_secs(60)).expect("the object is held by who waits for the table");
    drop(table);
}
