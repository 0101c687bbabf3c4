//! A store with everything around it, on a real machine or a simulated one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use weft_conformance::TestDomain;
use weft_conformance::object_store::bench::VOLUME;
use weft_conformance::object_store::{Law, Subject};
use weft_core::model::ModelStore;
use weft_core::service::ObjectStore;
use weft_core::{Clock, Result, Tick, Time};
use weft_kv::{Embedded, Engine};
use weft_store::{Directory, Memory, Options};
use weft_sys::{Disk, RealDisk, SimDisk, Sys, simulate};

/// A system's clock, as tests hand it to the domain.
pub struct SysClock(pub Sys);

impl Clock for SysClock {
    fn now(&self) -> Time {
        self.0.clock().now()
    }

    fn tick(&self) -> Tick {
        self.0.clock().tick()
    }
}

/// Makes the domain that a store on `sys` believes.
pub fn domain(sys: &Sys) -> Arc<TestDomain> {
    TestDomain::new(1, Arc::new(SysClock(sys.clone())), &[VOLUME])
}

/// A directory store over a disk, with its metadata engine beside it. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub sys: Sys,
    pub disk: Arc<dyn Disk>,
    pub domain: Arc<TestDomain>,
    running: Arc<Mutex<Option<Running>>>,
    options: Options,
}

#[derive(Clone)]
struct Running {
    engine: Arc<Embedded>,
    store: Arc<Directory>,
}

impl Node {
    pub async fn start(sys: &Sys, disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        let running = Arc::new(Mutex::new(Some(run(sys, &disk, options).await?)));
        Ok(Self { sys: sys.clone(), disk, domain: domain(sys), running, options })
    }

    pub fn directory(&self) -> Arc<Directory> {
        self.running().store
    }

    pub fn engine(&self) -> Arc<Embedded> {
        self.running().engine
    }

    fn running(&self) -> Running {
        self.running.lock().expect("no test panics in here").clone().expect("it is running")
    }

    /// Stops it cleanly.
    pub async fn stop(&self) {
        let running = self.running.lock().expect("no test panics in here").take().expect("it is running");
        running.store.close().await.expect("it can be closed");
        drop(running.store);
        running.engine.close().await.expect("it can be closed");
    }

    /// Starts it again.
    pub async fn start_again(&self) {
        let running = run(&self.sys, &self.disk, self.options).await.expect("it starts again");
        *self.running.lock().expect("no test panics in here") = Some(running);
    }
}

async fn run(sys: &Sys, disk: &Arc<dyn Disk>, options: Options) -> Result<Running> {
    let (kv, objects) = (disk.beneath("kv")?, disk.beneath("store")?);
    disk.sync_dir("", weft_sys::FlushSite::StoreFanDir)?;
    let engine = Arc::new(Embedded::open(sys.clone(), kv, kv_options(sys))?);
    let store = Directory::open(sys.clone(), objects, engine.clone(), options).await?;
    Ok(Running { engine, store: Arc::new(store) })
}

/// In simulations every boundary of the metadata engine is crossed often.
pub fn kv_options(sys: &Sys) -> weft_kv::Options {
    let tiny = weft_kv::Options {
        segment_bytes: 16 << 10,
        fold_bytes: 16 << 10,
        overlay_bytes_max: 128 << 10,
        cache_bytes: 1 << 20,
        company_wait: weft_core::limits::KV_COMPANY_WAIT,
        flush_at_once: weft_core::limits::KV_FLUSH_AT_ONCE,
        flush_aside: 2,
        flush_aside_from: weft_core::limits::KV_FLUSH_ASIDE_FROM,
    };
    if sys.is_simulated() { tiny } else { weft_kv::Options::default() }
}

#[async_trait]
impl Subject for Node {
    fn store(&self) -> Arc<dyn ObjectStore> {
        self.directory()
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.domain
    }

    async fn pass(&self, span: Duration) {
        let real = Duration::from_millis(5);
        self.sys.sleep(if self.sys.is_simulated() { span } else { span.min(real) }).await;
    }

    async fn restart(&self) -> bool {
        self.stop().await;
        self.start_again().await;
        true
    }
}

/// A store that keeps nothing.
struct Forgetful {
    sys: Sys,
    domain: Arc<TestDomain>,
    store: Arc<dyn ObjectStore>,
    /// Core's model keeps things plain: it tells a foreign object from a missing one, and waits
    /// for a source whatever happens.
    plain: bool,
}

#[async_trait]
impl Subject for Forgetful {
    fn store(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.domain
    }

    fn hides_existence(&self) -> bool {
        !self.plain
    }

    fn stops_waiting(&self) -> bool {
        !self.plain
    }

    async fn pass(&self, span: Duration) {
        self.sys.sleep(span).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where tests run on the machine itself")]
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Runs a test over the machine's own disk.
pub fn on_disk<T>(work: impl AsyncFnOnce(Node) -> T) -> T {
    let home = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(RealDisk::open(home.path()).expect("it opens"));
    runtime().block_on(async {
        let node = Node::start(&Sys::real(), disk, Options::default()).await.expect("it starts");
        work(node).await
    })
}

/// Runs a test over a simulated disk.
pub fn simulated<T>(seed: u64, options: Options, work: impl AsyncFnOnce(Node, SimDisk) -> T) -> T {
    simulate(seed, |sys| async move {
        let disk = SimDisk::new();
        let node = Node::start(&sys, Arc::new(disk.clone()), options).await.expect("it starts");
        work(node, disk).await
    })
}

/// Runs a law over the machine's own disk.
pub fn law_on_disk(law: Law) {
    on_disk(async |node| law(&node).await);
}

/// Runs a law over a simulated disk.
pub fn law_simulated(law: Law) {
    simulated(1, Options::default(), async |node, _| law(&node).await);
}

/// Runs a law over a simulated disk where every block is compared each time.
pub fn law_always_verified(law: Law) {
    let options = Options { verify_always: true, records_flushed_by_caller: true, ..Options::default() };
    simulated(2, options, async |node, _| law(&node).await);
}

/// Runs a test in memory.
pub fn in_memory<T>(work: impl AsyncFnOnce(&dyn Subject) -> T) -> T {
    simulate(3, |sys| async move {
        let store = Arc::new(Memory::new(sys.clone(), 1 << 30));
        work(&Forgetful { domain: domain(&sys), sys, store, plain: false }).await
    })
}

/// Runs a law in memory.
pub fn law_in_memory(law: Law) {
    in_memory(async |subject| law(subject).await);
}

/// Runs a law over core's model.
pub fn law_on_model(law: Law) {
    simulate(4, |sys| async move {
        let store = ModelStore::new(Arc::new(SysClock(sys.clone())));
        law(&Forgetful { domain: domain(&sys), sys, store, plain: true }).await;
    });
}
