//! What doors share: listening, how many connections there may be, when an idle one goes, and a
//! clean end.
//!
//! A door gives [`Listener::serve`] a function from a [`Guest`] (one connection) to a future; each
//! runs as a task of its own. When the node stops, nobody new is let in, idle guests leave at
//! once, those with a request under way finish it, and after the drain deadline the rest are cut
//! off.
//!
//! Rejected: refusing connections beyond the bound with an answer. They wait in the kernel's
//! queue; meanwhile idle guests are given a tenth of their time ([`Stay::idle`]).
//!
//! **Ways to get it wrong.** Waiting for a guest's next request without waiting for
//! [`Shutdown::wait`] as well: the drain then takes its whole deadline.

mod shutdown;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use weft_core::{Result, limits};
use weft_sys::Sys;
use weft_sys::net::Socket;

pub use shutdown::{Shutdown, Stopper, shutdown};

/// How long accepting rests after the machine refused it, so that a full table is no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The bounds of one door.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at the same time.
    pub connections: usize,
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
    guests: Arc<AtomicUsize>,
    bounds: Bounds,
}

impl Stay {
    fn enter(guests: &Arc<AtomicUsize>, bounds: Bounds) -> Self {
        guests.fetch_add(1, Ordering::Relaxed);
        Self { guests: guests.clone(), bounds }
    }

    /// Returns how long to wait for the next request: less when the door is crowded.
    pub fn idle(&self) -> Duration {
        let bounds = &self.bounds;
        let crowded = self.guests.load(Ordering::Relaxed) > bounds.connections / 4 * 3;
        if crowded { bounds.idle / 10 } else { bounds.idle }
    }

    /// Returns how long a request's head may take.
    pub fn head(&self) -> Duration {
        self.bounds.head
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.guests.fetch_sub(1, Ordering::Relaxed);
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
    /// there have left or the drain deadline has passed.
    pub async fn serve<F>(self, mut shutdown: Shutdown, welcome: impl Fn(Guest) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { sys, socket, bounds } = self;
        let present = Arc::new(AtomicUsize::new(0));
        let mut guests = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.wait() => break,
                Some(left) = guests.join_next(), if !guests.is_empty() => report(left),
                accepted = socket.accept(), if guests.len() < bounds.connections => match accepted {
                    Ok(socket) => {
                        let stay = Stay::enter(&present, bounds);
                        guests.spawn(welcome(Guest { socket, shutdown: shutdown.clone(), stay }));
                    }
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
