//! HTTP/1.1 over the request form.
//!
//! **Problem.** curl, browsers, grid tools and everybody's scripts speak HTTP. They get the same
//! files with the same rights as through any other door, as fast as from a server that does
//! nothing else, and nothing they send may confuse, exhaust or stop the node.
//!
//! **Shape.** The connection loop is ours, since a library that hides the socket cannot send a
//! file without copying it:
//!
//! ```text
//!  socket ─▶ codec::head ─▶ Exchange ─┬─ identity: Authorization ─▶ Authority ─▶ Caller
//!     ▲      (pure)                   ├─ get · list: open ─▶ conditions, ranges ─▶ mover.outbound
//!     │                               ├─ webdav: properties, copies, locks
//!     │                               ├─ third_party: copies from and to other servers ◀─▶ remote
//!     │                               ├─ page: what people see: listings, a login
//!     │                               ├─ tus: uploads that go on where a line broke
//!     │                               ├─ put: stage ◀─ mover.inbound ◀─ body ─▶ publish under guard
//!     └──────── answer ◀──────────────┴─ map: the one table from errors to statuses
//! ```
//!
//! `codec` is bytes to messages and nothing else; `map` the table; a request lives in an
//! [`exchange`] that is boxed, so that an idle connection costs a socket, a small task and no
//! buffer. A file is opened pinned: one answer never mixes two versions. A PUT is staged, checked
//! against the digests it came with, and published under its conditions in one step.
//!
//! Rejected: hyper (hides the socket); normalising paths (two names for one file are two chances
//! to get a rule wrong): what is not a plain path is refused.
//!
//! **Ways to get it wrong.** Answering before the body is read and then reading the rest of the
//! body as the next request: whatever leaves bytes of a body unread closes the connection or
//! drains them, in one place ([`connection`]). Ending a body that broke off cleanly: the
//! connection is reset. Telling anyone apart from nobody: whoever has not said who they are is
//! asked to, before they learn whether there is anything.

mod answer;
mod body;
pub mod codec;
mod connection;
mod exchange;
mod get;
mod http2;
mod identity;
pub mod link;
mod list;
pub mod map;
pub mod notices;
mod page;
mod places;
mod put;
mod remove;
mod small_body;
pub mod status;
mod stream;
mod sums;
mod third_party;
mod tus;
mod webdav;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use weft_core::form::FileSystem;
use weft_core::service::{Authority, Links, NameLocks, Sessions};
use weft_core::{CallerId, TraceId, limits};
use weft_doors_listener::{Listener, Shutdown};
use weft_mover::Mover;
use weft_remote::{Remote, Url};
use weft_sys::Sys;

use codec::host::Hosts;
use places::Places;
use sums::Sums;
use tus::Uploads;

/// Returns what the door speaks over TLS, by the registered names, the best first.
pub const fn protocols(http2: bool) -> &'static [&'static [u8]] {
    match http2 {
        true => &[b"h2", b"http/1.1"],
        false => &[b"http/1.1"],
    }
}

/// What an operator may choose.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Host names that requests may name, without ports; `*` is any. Names of the loopback and the
    /// address a connection came to always may.
    pub hosts: Vec<String>,
    /// The address that people reach the door at, where a server stands in front of it.
    pub public: Option<Url>,
}

/// What the door works with.
pub struct Services {
    /// Clock, randomness, tasks.
    pub sys: Sys,
    /// Says who asks.
    pub authority: Arc<dyn Authority>,
    /// Keeps sessions: one for each connection and caller.
    pub sessions: Arc<dyn Sessions>,
    /// The files.
    pub fs: Arc<dyn FileSystem>,
    /// Locks of their names.
    pub locks: Arc<dyn NameLocks>,
    /// Links, if people may make some on the page.
    pub links: Option<Arc<dyn Links>>,
    /// Moves the bytes.
    pub mover: Arc<Mover>,
    /// Speaks to other servers, if callers may have files copied from and to them.
    pub remote: Option<Remote>,
}

/// The door.
pub struct Http {
    services: Services,
    hosts: Hosts,
    public: Option<Url>,
    sums: Sums,
    /// For how many uploads there is room to read much at once.
    room: Arc<Semaphore>,
    /// For how many streams of HTTP/2 there is room.
    streams: Places<Option<IpAddr>>,
    /// Uploads that are gone on with.
    uploads: Arc<Uploads>,
    /// Third-party copies under way.
    third_party: Places<CallerId>,
    /// Where traces start, and how many there were: random to others, unique here.
    trace_key: u64,
    traces: AtomicU64,
    /// Separates the parts of multipart answers; no file can be made to hold it beforehand.
    boundary: String,
}

impl Http {
    /// Makes the door.
    pub fn new(settings: &Settings, services: Services) -> Arc<Self> {
        let random = services.sys.random();
        let boundary = format!("weft-{:016x}{:016x}", random.u64(), random.u64());
        let trace_key = random.u64();
        let uploads = Uploads::new(random);
        let hosts = Hosts::new(&settings.hosts);
        let sums = Sums::new(limits::DIGESTS_KEPT, limits::DIGESTS_AT_ONCE);
        let room = Arc::new(Semaphore::new(limits::INBOUND_BUFFERED_MAX));
        let third_party = Places::new(limits::THIRD_PARTY_MAX, limits::THIRD_PARTY_PER_CALLER_MAX);
        let streams = Places::new(limits::HTTP2_STREAMS_ALL_MAX, limits::HTTP2_STREAMS_PER_PEER_MAX);
        let traces = AtomicU64::new(0);
        Arc::new(Self {
            services,
            hosts,
            public: settings.public.clone(),
            sums,
            room,
            streams,
            uploads,
            third_party,
            trace_key,
            traces,
            boundary,
        })
    }

    /// Serves connections until `shutdown` is requested and they have ended.
    pub async fn serve(self: Arc<Self>, listener: Listener, shutdown: Shutdown) {
        let refusal = answer::too_many_connections();
        listener.serve(shutdown, refusal, move |guest| connection::run(self.clone(), guest)).await;
    }

    /// Returns a trace that nobody had before. Not a secret: it is shown to whoever asked.
    fn next_trace(&self) -> TraceId {
        let mut mixed = self.trace_key.wrapping_add(self.traces.fetch_add(1, Ordering::Relaxed));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        TraceId(mixed ^ (mixed >> 31))
    }
}
