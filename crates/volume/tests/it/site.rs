//! A managed volume with everything it needs, on a simulated machine.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use weft_conformance::TestDomain;
use weft_conformance::file_system::{ADMINISTRATOR, Subject};
use weft_core::form::FileSystem;
use weft_core::model::ModelStore;
use weft_core::service::{ObjectStore, SessionWatcher};
use weft_core::{Clock, FileId, SessionId, VolumeId};
use weft_kv::{Embedded, Engine, Options, SpaceId};
use weft_sys::{Disk, SimClock, SimDisk, Sys};
use weft_volume::managed::{Config, Managed};

use super::unsteady_engine::{Gate, UnsteadyEngine};

/// Small, so that the log is cut and folded often.
const OPTIONS: Options = Options {
    segment_bytes: 256 << 10,
    fold_bytes: 128 << 10,
    overlay_bytes_max: 1 << 20,
    cache_bytes: 1 << 20,
    // The suite moves the clock by hand: neither company nor a flush made aside can be waited for.
    company_wait: Duration::ZERO,
    flush_aside: usize::MAX,
    flush_aside_from: Duration::MAX,
    flush_at_once: weft_core::limits::KV_FLUSH_AT_ONCE,
};

/// A volume, its machine, and the domain that signs for it.
pub struct Volume {
    pub sys: Sys,
    pub clock: Arc<SimClock>,
    pub domain: Arc<TestDomain>,
    pub disk: Arc<dyn Disk>,
    pub store: Arc<dyn ObjectStore>,
    /// While this is set no transaction is carried out.
    pub full: Arc<AtomicBool>,
    /// So many of the next reads of notes fail.
    pub unreadable: Arc<AtomicU32>,
    pub gate: Arc<Gate>,
    pub number: VolumeId,
    watched_flush_rest: (Duration, Duration),
    running: Mutex<Option<Running>>,
}

#[derive(Clone)]
pub struct Running {
    pub managed: Managed,
    pub engine: Arc<dyn Engine>,
}

impl Volume {
    /// Makes a volume on a new disk.
    pub async fn fresh(seed: u64) -> Self {
        let sys = Sys::simulated(seed);
        let clock = sys.sim_clock().expect("it is simulated").clone();
        let domain = TestDomain::new(7, clock.clone(), &[VolumeId(0), VolumeId(1)]);
        let store = ModelStore::new(clock.clone() as Arc<dyn Clock>);
        let mut volume = Self::at_rest(sys, domain, Arc::new(SimDisk::new()), store);
        // Whoever moves the clock by hand does not rest.
        volume.watched_flush_rest = (Duration::ZERO, Duration::ZERO);
        volume.begin(true).await;
        volume
    }

    /// Makes another volume on the same machine, on a disk of its own: number 1.
    pub async fn beside(&self) -> Self {
        let store = ModelStore::new(self.clock.clone() as Arc<dyn Clock>);
        let (sys, domain) = (self.sys.clone(), self.domain.clone());
        let mut other = Self::at_rest(sys, domain, Arc::new(SimDisk::new()), store);
        (other.number, other.watched_flush_rest) = (VolumeId(1), self.watched_flush_rest);
        other.begin(true).await;
        other
    }

    /// Makes or opens a volume.
    pub async fn on_disk(
        sys: Sys,
        domain: Arc<TestDomain>,
        disk: Arc<dyn Disk>,
        store: Arc<dyn ObjectStore>,
        make: bool,
    ) -> Self {
        let volume = Self::at_rest(sys, domain, disk, store);
        volume.begin(make).await;
        volume
    }

    /// Returns a volume that does not run.
    pub fn at_rest(
        sys: Sys,
        domain: Arc<TestDomain>,
        disk: Arc<dyn Disk>,
        store: Arc<dyn ObjectStore>,
    ) -> Self {
        let clock = sys.sim_clock().expect("it is simulated").clone();
        Self {
            sys,
            clock,
            domain,
            disk,
            store,
            full: Arc::default(),
            unreadable: Arc::default(),
            gate: Arc::default(),
            number: FileId::ROOT.volume(),
            watched_flush_rest: weft_core::limits::WATCHED_FLUSH_REST,
            running: Mutex::new(None),
        }
    }

    /// Starts it, making it if `make` says so.
    pub async fn begin(&self, make: bool) {
        let running = self.start(make).await;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    async fn start(&self, make: bool) -> Running {
        let engine = self.engine();
        let config = self.config(engine.clone());
        let managed = if make {
            Managed::create(config, self.domain.name(ADMINISTRATOR)).await
        } else {
            Managed::open(config).await
        };
        Running { managed: managed.expect("the volume opens"), engine }
    }

    /// Opens the engine by itself, while the volume is stopped.
    pub fn engine(&self) -> Arc<dyn Engine> {
        let engine = Embedded::open(self.sys.clone(), self.disk.clone(), OPTIONS);
        let inner = Arc::new(engine.expect("the engine opens"));
        let (full, unreadable, gate) = (self.full.clone(), self.unreadable.clone(), self.gate.clone());
        Arc::new(UnsteadyEngine { inner, full, unreadable, gate })
    }

    /// Returns what the volume is made of.
    pub fn config(&self, engine: Arc<dyn Engine>) -> Config {
        let domain = self.domain.clone();
        Config {
            sys: self.sys.clone(),
            engine,
            space: SpaceId(1),
            issuer: self.domain.clone(),
            groups: self.domain.clone(),
            store: self.store.clone(),
            volume: self.number,
            node: Arc::new(move || domain.caller("node:n1")),
            audited: false,
            watched_flush_rest: self.watched_flush_rest,
        }
    }

    /// Returns the volume as it runs now.
    pub fn running(&self) -> Running {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.clone().expect("it was started")
    }

    /// Stops it cleanly.
    pub async fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Running { managed, engine } = running.expect("it was started");
        managed.close().await.expect("the volume settles");
        drop(managed);
        engine.close().await.expect("the engine closes");
    }

    /// Ends it as `kill -9` would, but for what it had written, and starts it again.
    pub async fn crash_in_place(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Running { managed, engine } = running.expect("it was started");
        drop(managed);
        engine.close().await.expect("the engine closes");
        drop(engine);
        self.begin(false).await;
    }

    /// Stops it and starts it again.
    pub async fn reopen(&self) {
        self.stop().await;
        self.begin(false).await;
    }
}

#[async_trait]
impl Subject for Volume {
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.running().managed)
    }

    fn domain(&self) -> &Arc<TestDomain> {
        &self.domain
    }

    fn end_session(&self, session: SessionId) {
        self.running().managed.ended(session);
    }

    async fn pass(&self, span: Duration) {
        self.clock.step(span);
        tokio::task::yield_now().await;
    }

    fn time_is_moved(&self) -> bool {
        true
    }

    async fn restart(&self) -> bool {
        self.reopen().await;
        true
    }
}
