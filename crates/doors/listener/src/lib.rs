//! What doors share: listening, how many connections there may be, when an idle one goes, and a
//! clean end.
//!
//! A door gives [`Listener::serve`] a function from a [`Guest`] (one connection) to a future; each
//! runs as a task of its own. When the node stops, nobody new is let in, idle guests leave at
//! once, those with a request under way finish it, and after the drain deadline the rest are cut
//! off.
//!
//! One machine, or one uid of a local socket, may have so many connections; the next is turned
//! away at once with an answer that the door has ready. So nobody alone fills a door, and who
//! tries to is told.
//!
//! A listener that is given an [`Identity`] secures each connection before its door sees it: a guest
//! of such a listener speaks TLS, within a deadline, or is gone.
//!
//! Rejected: turning away connections beyond the bound of the whole door, too. They wait in the
//! kernel's queue; meanwhile idle guests are given a tenth of their time ([`Stay::idle`]).
//!
//! **Ways to get it wrong.** Waiting for a guest's next request without waiting for
//! [`Shutdown::wait`] as well: the drain then takes its whole deadline.

pub mod certificate;
mod crowd;
mod identity;
mod shutdown;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use weft_core::metrics::Way;
use weft_core::{Result, limits};
use weft_sys::Sys;
use weft_sys::net::{Peer, Socket, Tls};

use crowd::{Crowd, turn_away};

pub use identity::{Files, Identity};
pub use shutdown::{Shutdown, Stopper, shutdown};

/// How long accepting rests after the machine refused it, so that a full table is no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The bounds of one door.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at the same time.
    pub connections: usize,
    /// Those of them from one machine or one local uid.
    pub connections_each: usize,
    /// Those of them from one address of the loopback.
    pub connections_loopback: usize,
    /// How long a connection may bring nothing between requests.
    pub idle: Duration,
    /// How long the head of a request may take once it has begun.
    pub head: Duration,
    /// How long requests under way may take once the door closes.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_MAX,
            connections_each: limits::CONNECTIONS_PER_PEER_MAX,
            connections_loopback: limits::CONNECTIONS_PER_LOOPBACK_MAX,
            idle: limits::CONNECTION_IDLE,
            head: limits::HEAD_DEADLINE,
            drain: limits::DRAIN_DEADLINE,
        }
    }
}

/// A door's listening socket.
pub struct Listener {
    sys: Sys,
    socket: weft_sys::net::Listener,
    bounds: Bounds,
    identity: Option<Arc<Identity>>,
    /// As what its guests are counted, if they are.
    way: Option<Way>,
}

/// One connection, as a door gets it.
pub struct Guest {
    /// The connection.
    pub socket: Socket,
    /// Tells when the node stops.
    pub shutdown: Shutdown,
    /// How long it may stay. The guest counts as there until this is dropped.
    pub stay: Stay,
}

/// How long one guest may stay without asking for anything.
pub struct Stay {
    crowd: Arc<Crowd>,
    from: crowd::Place,
    bounds: Bounds,
}

impl Stay {
    /// Counts a guest in; `None` if there are as many from there as there may be.
    fn enter(crowd: &Arc<Crowd>, peer: Peer, bounds: Bounds) -> Option<Self> {
        let from = crowd.enter(peer, &bounds)?;
        Some(Self { crowd: crowd.clone(), from, bounds })
    }

    /// Returns how long to wait for the next request: less when the door is crowded.
    pub fn idle(&self) -> Duration {
        let bounds = &self.bounds;
        let crowded = self.crowd.count() > bounds.connections / 4 * 3;
        if crowded { bounds.idle / 10 } else { bounds.idle }
    }

    /// Returns how long a request's head may take.
    pub fn head(&self) -> Duration {
        self.bounds.head
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.crowd.leave(self.from);
    }
}

impl Listener {
    /// Listens on an address; port 0 lets the machine choose.
    pub async fn bind(sys: Sys, address: SocketAddr, bounds: Bounds) -> Result<Self> {
        let socket = weft_sys::net::Listener::bind(address).await?;
        Ok(Self { sys, socket, bounds, identity: None, way: None })
    }

    /// Listens on a local socket with these permission bits.
    pub fn bind_local(sys: Sys, path: &Path, mode: u32, bounds: Bounds) -> Result<Self> {
        let socket = weft_sys::net::Listener::bind_local(path, mode)?;
        Ok(Self { sys, socket, bounds, identity: None, way: None })
    }

    /// Has every connection secured by TLS from now on.
    pub fn secured(self, identity: Arc<Identity>) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Has its guests, and their bytes, counted as coming this way.
    pub fn counted(self, way: Way) -> Self {
        Self { way: Some(way), ..self }
    }

    /// Returns the address listened on; none for a local socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.address()
    }

    /// Lets guests in and runs `welcome` for each, until `shutdown` is requested and those that are
    /// there have left or the drain deadline has passed. Those of whose kind too many are there get
    /// `refusal` as their answer.
    pub async fn serve<F, W>(self, mut shutdown: Shutdown, refusal: Bytes, welcome: W)
    where
        F: Future<Output = ()> + Send + 'static,
        W: Fn(Guest) -> F + Send + Sync + 'static,
    {
        let Self { sys, socket, bounds, identity, way } = self;
        let present = Arc::new(Crowd::new(way.map(|way| (sys.metrics().clone(), way))));
        let welcome = Arc::new(welcome);
        let (mut guests, mut turned_away) = (JoinSet::new(), JoinSet::new());
        loop {
            tokio::select! {
                () = shutdown.wait() => break,
                Some(left) = guests.join_next(), if !guests.is_empty() => report(left),
                Some(left) = turned_away.join_next(), if !turned_away.is_empty() => report(left),
                accepted = socket.accept(), if guests.len() < bounds.connections => match accepted {
                    Ok(socket) => match Stay::enter(&present, socket.peer(), bounds) {
                        Some(stay) => {
                            let guest = Guest { socket: present.counted(socket), shutdown: shutdown.clone(), stay };
                            match &identity {
                                None => guests.spawn(welcome(guest)),
                                Some(identity) => {
                                    guests.spawn(let_in(sys.clone(), identity.now(), guest, welcome.clone()))
                                }
                            };
                        }
                        None if turned_away.len() < limits::TURNED_AWAY_MAX => {
                            present.count_turned_away();
                            let tls = identity.as_ref().map(|identity| identity.now());
                            turned_away.spawn(turn_away(sys.clone(), socket, tls, refusal.clone()));
                        }
                        None => present.count_turned_away(),
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        sys.sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(socket);
        drain(&sys, guests, bounds.drain).await;
    }
}

/// Welcomes a guest once the connection is secured.
async fn let_in<F: Future<Output = ()>>(
    sys: Sys,
    tls: Arc<Tls>,
    guest: Guest,
    welcome: Arc<impl Fn(Guest) -> F>,
) {
    let Guest { socket, shutdown, stay } = guest;
    let (peer, stopping) = (socket.peer(), shutdown.clone());
    // Boxed, so that what only the beginning needs is no part of a connection at rest.
    let own = sys.clone();
    let secured = Box::pin(async move {
        let mut shutdown = stopping;
        tokio::select! {
            biased;
            secured = socket.secured(&tls) => secured.map_err(|error| error.to_string()),
            () = shutdown.wait() => Err("the node stops".to_owned()),
            () = own.sleep(limits::TLS_HANDSHAKE_WITHIN) => Err("the handshake took too long".to_owned()),
        }
    });
    let secured = secured.await;
    match secured {
        Ok(socket) => welcome(Guest { socket, shutdown, stay }).await,
        Err(why) => {
            sys.metrics().doors_handshakes_failed.count(());
            tracing::debug!(?peer, why, "a connection was not secured");
        }
    }
}

/// Waits until all guests have left; after `patience` those that have not are cut off.
async fn drain(sys: &Sys, mut guests: JoinSet<()>, patience: Duration) {
    let everybody_leaves = async {
        while let Some(left) = guests.join_next().await {
            report(left);
        }
    };
    tokio::select! {
        biased;
        () = everybody_leaves => return,
        () = sys.sleep(patience) => {}
    }
    tracing::info!(connections = guests.len(), "cut off at the drain deadline");
    guests.shutdown().await;
}

fn report(left: std::result::Result<(), tokio::task::JoinError>) {
    if let Err(error) = left
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked: a defect");
    }
}
