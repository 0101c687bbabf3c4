//! Who is there, and from where.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft_core::form::one_machine;
use weft_core::limits;
use weft_core::metrics::{Metrics, Way};
use weft_sys::Sys;
use weft_sys::net::{Peer, Socket, Tls};

use crate::Bounds;

/// Whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Machine(IpAddr),
    Uid(u32),
}

/// The guests of one door.
#[derive(Default)]
pub(crate) struct Crowd {
    all: AtomicUsize,
    by_place: Mutex<HashMap<Place, usize>>,
    /// Where they are counted, and as what.
    counted: Option<(Arc<Metrics>, Way)>,
}

impl Crowd {
    pub(crate) fn new(counted: Option<(Arc<Metrics>, Way)>) -> Self {
        Self { counted, ..Self::default() }
    }

    /// Has the bytes of a guest counted, if guests are.
    pub(crate) fn counted(&self, socket: Socket) -> Socket {
        match &self.counted {
            Some((metrics, way)) => socket.counted(metrics.clone(), *way),
            None => socket,
        }
    }

    pub(crate) fn count_turned_away(&self) {
        if let Some((metrics, way)) = &self.counted {
            metrics.doors_turned_away.count((*way,));
        }
    }

    /// Counts a guest in; `None` if as many from there are in already as may be.
    pub(crate) fn enter(&self, peer: Peer, bounds: &Bounds) -> Option<Place> {
        let place = match peer {
            Peer::Address(address) => Place::Machine(one_machine(address.ip())),
            Peer::Uid(uid) => Place::Uid(uid),
        };
        let most = match place {
            Place::Machine(address) if address.is_loopback() => bounds.connections_loopback,
            Place::Machine(_) | Place::Uid(_) => bounds.connections_each,
        };
        let mut by_place = self.by_place();
        let count = by_place.entry(place).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        self.all.fetch_add(1, Ordering::Relaxed);
        if let Some((metrics, way)) = &self.counted {
            metrics.doors_connections.enter((*way,));
            metrics.doors_connections_opened.count((*way,));
        }
        Some(place)
    }

    pub(crate) fn leave(&self, place: Place) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        if let Some((metrics, way)) = &self.counted {
            metrics.doors_connections.leave((*way,));
        }
        let mut by_place = self.by_place();
        if let Some(count) = by_place.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                by_place.remove(&place);
            }
        }
    }

    /// How many are in.
    pub(crate) fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    fn by_place(&self) -> MutexGuard<'_, HashMap<Place, usize>> {
        // Every change leaves the counts right, so a panic elsewhere cannot spoil them.
        self.by_place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the answer, and reads what comes meanwhile so that the answer is not lost with a reset.
pub(crate) async fn turn_away(sys: Sys, socket: Socket, tls: Option<Arc<Tls>>, refusal: Bytes) {
    let answer = async {
        let secured = match tls {
            None => Ok(socket),
            Some(tls) => socket.secured(&tls).await,
        };
        let Ok(mut socket) = secured else { return };
        let sent = socket.write_all(&refusal).await;
        if sent.is_err() || socket.end_sending().await.is_err() {
            return;
        }
        let mut scratch = [0; 4096];
        while socket.read(&mut scratch).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        () = answer => {}
        () = sys.sleep(limits::TURNED_AWAY_LINGER) => {}
    }
}
