//! The only door to the operating system, with a second one behind it that leads nowhere.
//!
//! **Problem.** What a storage system promises is only worth what its tests can break: power cut
//! between two writes, a clock that jumps, a disk that lies about a flush. None of that can be had
//! from a real machine on demand, twice the same way, a thousand times a minute.
//!
//! **Shape.** Everything that is not a pure function of its input comes from here, as a value:
//!
//! ```text
//!   Sys  ── clock()   wall time and ticks          RealClock | SimClock (stepped, jumps)
//!        ├─ random()  bytes                        OsRandom  | SeededRandom
//!        ├─ metrics() what is counted
//!        ├─ spawn · dedicated · blocking           tokio     | one thread, fixed order
//!        │  Pump    a task that whoever brings it work may drive
//!        └─ sleep_until · within                   timers    | time skips to the next timer
//!   net  ── sockets, with `sendfile`           tokio
//!   SharedBuffer ── memory that another process may be lent (real only)
//!   SharedWords ── numbers that outlive the process that wrote them (real only)
//!   Disk ── files and directories below one root   RealDisk  | SimDisk (crash, tear, fail, fill)
//!   Folder ── a directory of people: no link below it is followed (real only)
//!   Beneath ── one that is served in place: nothing leads out of it (real only)
//! ```
//!
//! A crate takes a [`Sys`] and, if it keeps anything, an `Arc<dyn Disk>` of its own
//! ([`Disk::beneath`]). Every flush names its [`FlushSite`]; a simulated disk can be told to
//! ignore one, and some test must then fail, or that flush is superstition.
//!
//! **Ways to get it wrong.** Reading a clock, spawning or opening a file past this crate (a lint
//! bans it in the crates that rule 6 of `docs/ARCHITECTURE.md` names). Forgetting that a new name needs [`Disk::sync_dir`]:
//! the simulator drops unsynced names. Trusting a file after a failed flush: the simulator keeps
//! such bytes readable and loses them at the next crash, as Linux does.

pub mod beneath;
pub mod clock;
pub mod disk;
pub mod fault;
pub mod folder;
pub mod handing;
pub mod local;
mod mapped;
pub mod memory;
pub mod mounts;
pub mod net;
pub mod process;
pub mod pump;
pub mod random;
pub mod shared_buffer;
pub mod shared_words;
pub mod task;
pub mod trace;
pub mod users;

use std::sync::Arc;

use weft_core::metrics::Metrics;
use weft_core::{Clock, Time};

pub use beneath::Beneath;
pub use clock::{RealClock, SimClock};
pub use disk::{Disk, DiskFile, FileSize, FlushSite, Open, RealDisk, ShadowDisk, SimDisk};
pub use folder::{Folder, Seen, Sort};
pub use pump::Pump;
pub use random::{OsRandom, Random, SeededRandom};
pub use shared_buffer::SharedBuffer;
pub use shared_words::SharedWords;
pub use task::{Task, simulate};

/// Clock, randomness, tasks and timers of one process, real or simulated. Cheap to clone.
#[derive(Clone)]
pub struct Sys {
    inner: Arc<Inner>,
}

struct Inner {
    kind: Kind,
    random: Box<dyn Random>,
    metrics: Arc<Metrics>,
}

enum Kind {
    Real(RealClock),
    Simulated(Arc<SimClock>),
}

impl Sys {
    /// Returns the machine.
    pub fn real() -> Self {
        let kind = Kind::Real(RealClock::new());
        Self::of(kind, Box::new(OsRandom))
    }

    /// Returns a simulated machine whose randomness `seed` decides and whose clock starts in
    /// 2026. Its tasks need a current-thread runtime: see [`simulate`].
    pub fn simulated(seed: u64) -> Self {
        let kind = Kind::Simulated(Arc::new(SimClock::new(Time::from_unix(1_767_225_600, 0))));
        Self::of(kind, Box::new(SeededRandom::new(seed)))
    }

    fn of(kind: Kind, random: Box<dyn Random>) -> Self {
        Self { inner: Arc::new(Inner { kind, random, metrics: Arc::default() }) }
    }

    /// Returns what is counted of all that works with this system: one node, as a rule.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// Returns the clock.
    pub fn clock(&self) -> &dyn Clock {
        match &self.inner.kind {
            Kind::Real(clock) => clock,
            Kind::Simulated(clock) => &**clock,
        }
    }

    /// Returns the source of randomness.
    pub fn random(&self) -> &dyn Random {
        &*self.inner.random
    }

    /// Returns whether this is a simulation.
    pub fn is_simulated(&self) -> bool {
        matches!(self.inner.kind, Kind::Simulated(_))
    }

    /// Returns the simulation's clock, to step it or make it jump; `None` on a real machine.
    pub fn sim_clock(&self) -> Option<&Arc<SimClock>> {
        match &self.inner.kind {
            Kind::Real(_) => None,
            Kind::Simulated(clock) => Some(clock),
        }
    }
}

/// So that a system can be handed on as the clock it has.
impl Clock for Sys {
    fn now(&self) -> Time {
        self.clock().now()
    }

    fn tick(&self) -> weft_core::Tick {
        self.clock().tick()
    }
}

impl weft_core::Timer for Sys {
    fn at(&self, tick: weft_core::Tick) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let sys = self.clone();
        Box::pin(async move { sys.sleep_until(tick).await })
    }
}
