//! A node, wired out of the crates: which parts stand on which, and in what order they
//! start and stop. Nothing here decides anything.
//!
//! ```text
//!   DIR/ meta/     the metadata engine          DIR/ auth/    keys, audit log
//!        objects/  one file an object                lock     held while a process has DIR
//!        node.sock the native door                   log      of a node that runs detached
//!        tls/      the certificate of its own
//!
//!   engine ─▶ auth ─▶ store ─▶ volume ─▶ tree ─▶ audited ─▶ doors: native, http
//!                              shares ──┘
//! ```

mod audit;
pub mod backup;
pub mod check;
mod clients;
mod directory;
mod format;
mod https;
mod issuers;
mod keys;
mod links;
mod monitor;
mod operator;
mod ready;
mod scrub;
mod shares;
mod upkeep;
mod vouching;

use std::net::SocketAddr;
use std::sync::Arc;

use weft_auth::{Auth, Founded, Settings as AuthSettings};
use weft_core::form::{Ack, Call, Door, FileSystem, Origin, Wire};
use weft_core::metrics::{Outcome, Way};
use weft_core::proof::Caller;
use weft_core::service::{Links, Node, ObjectStore};
use weft_core::{Clock, Deadline, Error, ErrorKind, Result, SessionId, TraceId, VolumeId, limits};
use weft_doors_http::{Http, Services as HttpServices, Settings as HttpSettings, notices};
use weft_doors_listener::{Bounds, Guest, Listener, Stopper, shutdown};
use weft_doors_native::{Certificates, OpenTables, Services as NativeServices};
use weft_kv::{Engine, SpaceId};
use weft_mover::Mover;
use weft_remote::{Reach, Remote, Roots, Url};
use weft_store::Directory;
use weft_sys::net::{Peer, Socket};
use weft_sys::{Sys, Task};
use weft_volume::audited::Audited;
use weft_volume::managed::{self, Config, Managed};
use weft_volume::name_locks::KeptNameLocks;

use crate::config::{ClientAuthority, Issuer, ThirdParty};
use clients::Clients;
pub use directory::NodeDirectory;
pub use format::Format;
use https::Shown;
pub use https::{HttpsSettings, is_name};
use links::NodeLinks;
use monitor::Monitor;
use operator::Operator;
pub use ready::write_ready;
use shares::NodeShares;
pub use upkeep::{Chore, Upkeep};

/// Each crate's own range of the engine's keys; the store's is its own constant.
const AUTH_SPACE: SpaceId = SpaceId(b'a');
const VOLUME_SPACE: SpaceId = SpaceId(b'v');
const SHARES_SPACE: SpaceId = SpaceId(b'x');
const NAME_LOCKS_SPACE: SpaceId = SpaceId(b'n');
/// The root of the tree. What is shared has volumes of its own below it.
const VOLUME: VolumeId = VolumeId(0);

/// Returns what speaks to other servers: for callers of the node, and to issuers.
fn remote(sys: &Sys, settings: &ThirdParty) -> Result<Remote> {
    let roots = Roots { also: settings.authorities.clone() };
    Remote::new(sys.clone(), Reach::public(settings.to.clone()), &roots)
}

/// How to run a node.
pub struct NodeSettings {
    /// Where HTTP listens.
    pub http: SocketAddr,
    /// Where and how HTTPS is spoken, if it is.
    pub https: Option<HttpsSettings>,
    /// Where monitors ask, if they may.
    pub monitor: Option<SocketAddr>,
    /// Host names that HTTP requests may use besides those of the loopback.
    pub hosts: Vec<String>,
    /// The address that people reach it at, where a server stands in front of it.
    pub public: Option<Url>,
    /// How third-party copies are made.
    pub third_party: ThirdParty,
    /// Issuers whose tokens are taken.
    pub issuers: Vec<Issuer>,
    /// Authorities whose certificates are taken of clients.
    pub client_authorities: Vec<ClientAuthority>,
    /// Bytes that the scrubber reads in a second at most; 0 if it is off.
    pub scrub: u64,
}

/// A node that runs.
pub struct Running {
    directory: NodeDirectory,
    engine: Arc<dyn Engine>,
    auth: Arc<Auth>,
    store: Arc<Directory>,
    volume: Managed,
    shares: Arc<NodeShares>,
    mover: Arc<Mover>,
    /// The tree of all that, as the doors have it.
    audited: Audited,
    stopper: Stopper,
    doors: Vec<Task<()>>,
    /// Copies audit records of writes into the log.
    follower: Task<()>,
    sweeper: Task<()>,
    /// The certificate, and who keeps it up to date.
    shown: Option<(Arc<Shown>, Task<()>)>,
    /// What tokens of issuers call the node, unless the issuer's settings say.
    audiences: Vec<String>,
    /// The authorities of clients, and who keeps them up to date.
    clients: (Arc<Clients>, Task<()>),
    monitor: Arc<Monitor>,
    upkeep: Arc<Upkeep>,
    /// Where monitors ask, if they may; it stops last.
    monitored: Option<Monitored>,
    addresses: Vec<(String, String)>,
    /// What others call the machine, if somebody said.
    host: Option<String>,
    stop_asked: Arc<tokio::sync::Notify>,
}

/// The listener of monitors.
struct Monitored {
    stopper: Stopper,
    serving: Task<()>,
}

/// The listeners of a node, bound before it has made anything.
struct Listeners {
    http: Vec<(&'static str, Listener)>,
    shown: Option<Arc<Shown>>,
    monitor: Option<Listener>,
}

impl Running {
    /// Starts a node over a directory that nobody else has, making what is not there yet. Tells
    /// `founding` what was made if this is the first start, whatever becomes of the rest.
    pub async fn start(
        sys: &Sys,
        directory: NodeDirectory,
        settings: &NodeSettings,
        founding: impl FnOnce(&Founded),
    ) -> Result<Self> {
        weft_sys::net::raise_descriptor_limit();
        weft_sys::process::give_back_large_blocks();
        // An address that cannot be had fails the start before it has made anything.
        let audiences = issuers::audiences(settings);
        let issuers = issuers::read(&settings.issuers, &audiences)?;
        let client_authorities = clients::read(&settings.client_authorities)?;
        let remote = remote(sys, &settings.third_party)?;
        let Listeners { http, shown, monitor: monitoring } = listeners(sys, &directory, settings).await?;
        // Before anything is changed that an older program would not understand.
        directory.upgrade()?;
        let engine = directory.engine(sys)?;
        let auth_settings = AuthSettings {
            founder_uid: Some(directory.owner()),
            // What is shared later needs no root key then.
            volumes: (0..limits::NODE_VOLUMES).map(VolumeId).collect(),
            issuers,
            documents: Some(issuers::fetcher(remote.clone())),
            client_authorities,
            ..AuthSettings::default()
        };
        let (auth, founded) =
            Auth::open(sys.clone(), engine.clone(), AUTH_SPACE, directory.disk("auth")?, auth_settings)
                .await?;
        if let Some(founded) = &founded {
            founding(founded);
        }
        let auth = Arc::new(auth);
        let identity = shown.as_ref().map(|shown| shown.identity());
        let clients = Clients::open(sys, &auth, identity, settings.client_authorities.clone())?;
        let options = weft_store::Options {
            records_flushed_by_caller: true,
            scrub_bytes_per_second: settings.scrub,
            ..weft_store::Options::default()
        };
        let store = Arc::new(
            Directory::open(sys.clone(), directory.disk("objects")?, engine.clone(), options).await?,
        );
        let volume = open_volume(sys, &engine, &auth, store.clone()).await?;
        let shares = Arc::new(NodeShares::open(sys, &engine, &auth, &volume, directory.path()).await?);
        let tree = shares.tree().clone();
        auth.sessions().watch(tree.clone());
        let follower = follow_audits(sys, &auth, &engine)?;
        let upkeep = Arc::new(Upkeep::open(directory.path()));
        let sweeper = sweep_behind(sys, &auth, &volume, &shares, &upkeep);
        let mover = Arc::new(Mover::new(sys.clone()));
        let monitor = Arc::new(Monitor::new(sys, &engine, &auth, &store, &mover));
        let audited = Audited::new(sys.clone(), tree.clone(), auth.audit(), tree);
        let fs: Arc<dyn FileSystem> = Arc::new(audited.clone());
        let (stopper, stopping) = shutdown();
        let mut running = Self {
            directory,
            engine,
            auth,
            store,
            volume,
            shares,
            mover,
            monitor,
            upkeep,
            audited,
            stopper,
            doors: Vec::new(),
            follower,
            sweeper,
            shown: shown.map(|shown| (shown.clone(), shown.watch())),
            clients: (clients.clone(), clients.watch()),
            audiences,
            monitored: None,
            addresses: Vec::new(),
            host: settings.hosts.iter().find(|host| is_name(host)).cloned(),
            stop_asked: Arc::default(),
        };
        running.open_http(sys, &fs, http, remote, settings, &stopping).await?;
        if let Some(listener) = monitoring {
            running.open_monitor(sys, listener, &settings.hosts)?;
        }
        running.open_native(sys, &fs, stopping)?;
        Ok(running)
    }

    fn links(&self, sys: &Sys) -> Arc<dyn Links> {
        let (audited, volume) = (self.audited.clone(), self.volume.clone());
        Arc::new(NodeLinks::new(sys.clone(), self.auth.clone(), audited, volume))
    }

    async fn open_http(
        &mut self,
        sys: &Sys,
        fs: &Arc<dyn FileSystem>,
        listeners: Vec<(&str, Listener)>,
        remote: Remote,
        settings: &NodeSettings,
        stopping: &weft_doors_listener::Shutdown,
    ) -> Result<()> {
        let locks =
            KeptNameLocks::open(sys.clone(), fs.clone(), self.engine.clone(), NAME_LOCKS_SPACE).await?;
        let services = HttpServices {
            sys: sys.clone(),
            authority: self.auth.authority(),
            sessions: self.auth.sessions(),
            fs: fs.clone(),
            locks: Arc::new(locks),
            links: Some(self.links(sys)),
            mover: self.mover.clone(),
            remote: Some(remote),
        };
        let http = Http::new(
            &HttpSettings { hosts: settings.hosts.clone(), public: settings.public.clone() },
            services,
        );
        self.addresses.extend(settings.public.iter().map(|public| ("public".into(), public.origin())));
        for (scheme, listener) in listeners {
            let address =
                listener.address().ok_or_else(|| Error::internal("a TCP listener has an address"))?;
            self.addresses.push((scheme.into(), format!("{scheme}://{address}")));
            self.doors.push(sys.spawn(http.clone().serve(listener, stopping.clone())));
        }
        Ok(())
    }

    fn open_native(
        &mut self,
        sys: &Sys,
        fs: &Arc<dyn FileSystem>,
        stopping: weft_doors_listener::Shutdown,
    ) -> Result<()> {
        let socket = self.directory.fresh_socket()?;
        // Everybody on the machine may knock: who they are decides what they may do.
        let bounds = Bounds { connections_each: limits::CONNECTIONS_PER_UID_MAX, ..Bounds::default() };
        let listener = Listener::bind_local(sys.clone(), &socket, 0o666, bounds)?.counted(Way::Native);
        self.addresses.push(("native".into(), socket.display().to_string()));
        let opens = Arc::<OpenTables>::default();
        self.auth.sessions().watch(opens.clone());
        let operator = Operator::new(sys, self);
        let (auth, engine) = (self.auth.clone(), self.engine.clone());
        let audit = audit::Guarded::new(sys.clone(), auth, engine, self.audited.clone());
        let services = Arc::new(NativeServices {
            sys: sys.clone(),
            fs: fs.clone(),
            authority: self.auth.authority(),
            accounts: self.auth.accounts(),
            sessions: self.auth.sessions(),
            audit: Arc::new(audit),
            node: Arc::new(operator) as Arc<dyn Node>,
            links: self.links(sys),
            tokens: self.auth.tokens(),
            domain: self.auth.domain(),
            certificates: certificates(&self.auth),
            opens,
            uids: weft_doors_native::Uids::default(),
        });
        let welcome = move |guest: Guest| greet(services.clone(), guest);
        let refusal = weft_doors_native::too_many_connections();
        self.doors.push(sys.spawn(listener.serve(stopping, refusal, welcome)));
        Ok(())
    }

    fn open_monitor(&mut self, sys: &Sys, listener: Listener, hosts: &[String]) -> Result<()> {
        let address = listener.address().ok_or_else(|| Error::internal("a TCP listener has an address"))?;
        self.addresses.push(("monitor".into(), format!("http://{address}")));
        let (stopper, stopping) = shutdown();
        let (own, told, hosts) = (sys.clone(), self.monitor.clone(), hosts.to_vec());
        let serving = sys.spawn(async move { notices::serve(own, told, &hosts, listener, stopping).await });
        self.monitored = Some(Monitored { stopper, serving });
        Ok(())
    }

    /// Returns every door's name and address, and where monitors ask.
    pub fn addresses(&self) -> &[(String, String)] {
        &self.addresses
    }

    /// Returns the certificate that HTTPS shows, if it is spoken.
    pub fn shown(&self) -> Option<&Shown> {
        self.shown.as_ref().map(|(shown, _)| &**shown)
    }

    fn set_scrub_rate(&self, bytes_per_second: u64) {
        self.store.set_scrub_rate(bytes_per_second);
    }

    /// Reads again what may change while the node runs; of the settings, if there are others, what takes effect without
    /// a restart.
    pub async fn reload(&self, new: Option<&NodeSettings>) {
        if let Some(new) = new {
            self.set_scrub_rate(new.scrub);
            issuers::change(&self.auth, &new.issuers, &self.audiences).await;
        }
        if let Some(shown) = self.shown() {
            shown.refresh(true);
        }
        self.clients.0.change(new.map(|new| new.client_authorities.clone())).await;
    }

    /// Waits until an administrator asks the node to stop.
    pub async fn stop_asked(&self) {
        self.stop_asked.notified().await;
    }

    /// Stops: nobody new is let in, what is under way ends, and everything is on disk.
    pub async fn stop(self, sys: &Sys) -> Result<()> {
        self.monitor.stop();
        self.stopper.stop();
        for door in self.doors {
            let last = Deadline::within(sys.clock(), limits::DRAIN_DEADLINE * 2);
            if let Err(error) = sys.within(last, door).await {
                tracing::warn!(%error, "a door did not close in time");
            }
        }
        self.audited.record_reads().await;
        drop(self.audited);
        drop(self.shares);
        // Each is closed whatever became of the others; the first failure is told.
        let mut outcomes = vec![self.volume.close().await];
        drop(self.volume);
        self.sweeper.abort();
        if let Some((_, watcher)) = self.shown {
            watcher.abort();
        }
        self.clients.1.abort();
        // What it has not copied yet stays in the engine, for the next start.
        self.follower.abort();
        outcomes.push(self.store.close().await);
        outcomes.push(self.auth.close().await);
        outcomes.push(self.engine.close().await);
        if let Some(Monitored { stopper, serving }) = self.monitored {
            stopper.stop();
            serving.abort();
        }
        outcomes.into_iter().collect::<Result<()>>()?;
        self.directory.release()
    }
}

/// Returns where HTTP listens, by scheme, the certificate if one is shown, and where monitors ask. Addresses that cannot be
/// had, and a certificate that cannot be used, fail a start before it has made anything else.
async fn listeners(sys: &Sys, directory: &NodeDirectory, settings: &NodeSettings) -> Result<Listeners> {
    let plain = Listener::bind(sys.clone(), settings.http, Bounds::default()).await?.counted(Way::Http);
    let monitor = match settings.monitor {
        Some(address) => Some(Listener::bind(sys.clone(), address, monitor::bounds()).await?),
        None => None,
    };
    let Some(https) = &settings.https else {
        directory.check_metadata()?;
        return Ok(Listeners { http: vec![("http", plain)], shown: None, monitor });
    };
    let secured = Listener::bind(sys.clone(), https.address, Bounds::default()).await?.counted(Way::Https);
    directory.check_metadata()?;
    let shown = Shown::open(sys, directory, https, &settings.hosts)?;
    let secured = secured.secured(shown.identity());
    Ok(Listeners { http: vec![("http", plain), ("https", secured)], shown: Some(shown), monitor })
}

/// Returns what tells which keys vouch for the domain's credentials.
fn certificates(auth: &Arc<Auth>) -> Certificates {
    let auth = Arc::downgrade(auth);
    Arc::new(move || match auth.upgrade() {
        Some(auth) => auth.certificates(),
        None => Err(Error::new(ErrorKind::Unavailable, "the node is stopping")),
    })
}

/// Copies the audit records of writes from the commits they came with into the log.
fn follow_audits(sys: &Sys, auth: &Auth, engine: &Arc<dyn Engine>) -> Result<Task<()>> {
    let (log, notes) = (auth.audit_log(), engine.notes(managed::AUDITS)?);
    Ok(sys.spawn(async move {
        if let Err(error) = log.follow(notes).await {
            tracing::error!(%error, "the audit of writes ends");
        }
    }))
}

/// Takes away, now and then, what crashes and abandoned uploads left behind.
fn sweep_behind(
    sys: &Sys,
    auth: &Arc<Auth>,
    volume: &Managed,
    shares: &Arc<NodeShares>,
    upkeep: &Arc<Upkeep>,
) -> Task<()> {
    let (own, auth, volume, shares) = (sys.clone(), auth.clone(), volume.clone(), shares.clone());
    let upkeep = upkeep.clone();
    sys.spawn(async move {
        loop {
            own.sleep(limits::SWEEP_EVERY).await;
            shares.sweep();
            let swept = async {
                let call = call_of(&own, &auth.node_caller()?);
                volume.sweep(&call).await
            };
            match swept.await {
                Ok(swept) => {
                    own.metrics().volume_sweeps.count((Outcome::Done,));
                    upkeep.did(Chore::Sweep, own.now());
                    tracing::debug!(?swept, "swept");
                }
                Err(error) => {
                    own.metrics().volume_sweeps.count((Outcome::Failed,));
                    tracing::warn!(%error, "the sweep did not come to its end");
                }
            }
        }
    })
}

/// Serves a native client. One of the node's own uid could open the node's files itself: they are lent to it.
async fn native(services: Arc<NativeServices>, socket: Socket, uid: u32) -> Result<()> {
    if uid == weft_sys::process::uid() {
        return weft_doors_native::serve_own(services, socket, uid).await;
    }
    weft_doors_native::serve(services, socket, uid).await
}

async fn greet(services: Arc<NativeServices>, guest: Guest) {
    let Guest { socket, mut shutdown, stay } = guest;
    let Peer::Uid(uid) = socket.peer() else { return };
    tokio::select! {
        outcome = native(services, socket, uid) => {
            if let Err(error) = outcome {
                tracing::debug!(uid, %error, "a native client was cut off");
            }
        }
        () = shutdown.wait() => {}
    }
    drop(stay);
}

/// A call of a service's own, for a caller it was handed.
fn call_of(sys: &Sys, caller: &Caller) -> Call {
    Call {
        caller: caller.clone(),
        session: SessionId(0),
        until: Deadline::within(sys.clock(), limits::CALL_DEADLINE),
        trace: TraceId(0),
        from: Origin { door: Door::Native, peer: None, uid: None },
        once: None,
        ack: Ack::Applied,
        wire: Wire::Private,
    }
}

/// What the one volume of a node works with.
fn volume_config(
    sys: &Sys,
    engine: &Arc<dyn Engine>,
    auth: &Arc<Auth>,
    store: Arc<dyn ObjectStore>,
) -> Config {
    let for_node = auth.clone();
    Config {
        sys: sys.clone(),
        engine: engine.clone(),
        space: VOLUME_SPACE,
        issuer: auth.issuer(),
        groups: auth.memberships(),
        store,
        volume: VOLUME,
        node: Arc::new(move || for_node.node_caller().unwrap_or_else(|_| Caller::anyone())),
        audited: true,
        watched_flush_rest: limits::WATCHED_FLUSH_REST,
    }
}

async fn open_volume(
    sys: &Sys,
    engine: &Arc<dyn Engine>,
    auth: &Arc<Auth>,
    store: Arc<dyn ObjectStore>,
) -> Result<Managed> {
    let config = volume_config(sys, engine, auth, store);
    match Managed::open(config.clone()).await {
        // A first start, or one that was cut off, has a domain and no volume yet.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Managed::create(config, auth.administrators().clone()).await
        }
        outcome => outcome,
    }
}
