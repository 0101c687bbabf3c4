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
//! Rejected: turning away connections beyond the bound of the whole door, too. They wait in the
//! kernel's queue; meanwhile idle guests are given a tenth of their time ([`Stay::idle`]).
//!
//! **Ways to get it wrong.** Waiting for a guest's next request without waiting for
//! [`Shutdown::wait`] as well: the drain then takes its whole deadline.

mod crowd;
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
use weft_core::{Result, limits};
use weft_sys::Sys;
use weft_sys::net::{Peer, Socket};

use crowd::{Crowd, turn_away};

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
        Ok(Self { sys, socket, bounds })
    }

    /// Listens on a local socket with these permission bits.
    pub fn bind_local(sys: Sys, path: &Path, mode: u32, bounds: Bounds) -> Result<Self> {
        let socket = weft_sys::net::Listener::bind_local(path, mode)?;
        Ok(Self { sys, socket, bounds })
    }

    /// Returns the address listened on; none for a local socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.address()
    }

    /// Lets guests in and runs `welcome` for each, until `shutdown` is requested and those that are
    /// there have left or the drain deadline has passed. Those of whose kind too many are there get
    /// `refusal` as their answer.
    pub async fn serve<F>(self, mut shutdown: Shutdown, refusal: Bytes, welcome: impl Fn(Guest) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { sys, socket, bounds } = self;
        let present = Arc::<Crowd>::default();
        let (mut guests, mut turned_away) = (JoinSet::new(), JoinSet::new());
        loop {
            tokio::select! {
                () = shutdown.wait() => break,
                Some(left) = guests.join_next(), if !guests.is_empty() => report(left),
                Some(left) = turned_away.join_next(), if !turned_away.is_empty() => report(left),
                accepted = socket.accept(), if guests.len() < bounds.connections => match accepted {
                    Ok(socket) => match Stay::enter(&present, socket.peer(), bounds) {
                        Some(stay) => {
                            guests.spawn(welcome(Guest { socket, shutdown: shutdown.clone(), stay }));
                        }
                        None if turned_away.len() < limits::TURNED_AWAY_MAX => {
                            turned_away.spawn(turn_away(sys.clone(), socket, refusal.clone()));
                        }
                        None => {}
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
