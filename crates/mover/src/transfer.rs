//! The list of transfers under way: how far each is, and how to end one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use weft_core::{Error, ErrorKind, Result, Tick, limits};

use crate::{Class, cancelled};

/// A transfer, as long as it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// Which way a transfer's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a source to a socket.
    Outbound,
    /// From a socket to whoever stores them.
    Inbound,
}

/// How a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferStatus {
    /// Which one.
    pub id: TransferId,
    /// Whose.
    pub class: Class,
    /// Which way.
    pub direction: Direction,
    /// Bytes it will move in all, if that is known.
    pub length: Option<u64>,
    /// Bytes moved so far.
    pub bytes: u64,
    /// When it began.
    pub begun: Tick,
}

pub(crate) struct Transfer {
    status: TransferStatus,
    bytes: AtomicU64,
    cancelled: AtomicBool,
    wake: Notify,
}

impl Transfer {
    /// Fails once the transfer was cancelled.
    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Acquire) { Err(cancelled()) } else { Ok(()) }
    }

    /// Ends once the transfer is cancelled. Only its own task may wait: `notify_one` keeps the
    /// message for it if it is not waiting yet.
    pub async fn cancelled(&self) {
        while self.check().is_ok() {
            self.wake.notified().await;
        }
    }

    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Transfers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    live: BTreeMap<TransferId, Arc<Transfer>>,
}

/// A transfer's place on the list, given back when it is dropped.
pub(crate) struct Listed<'a> {
    pub transfer: Arc<Transfer>,
    list: &'a Transfers,
}

impl Transfers {
    /// Lists a transfer. `Busy` if there are too many.
    pub fn enter(
        &self,
        class: Class,
        direction: Direction,
        length: Option<u64>,
        begun: Tick,
    ) -> Result<Listed<'_>> {
        let mut state = self.lock();
        if state.live.len() >= limits::TRANSFERS_MAX {
            return Err(Error::new(ErrorKind::Busy, "the node moves as many files as it can"));
        }
        state.next += 1;
        let id = TransferId(state.next);
        let status = TransferStatus { id, class, direction, length, bytes: 0, begun };
        let transfer = Arc::new(Transfer {
            status,
            bytes: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            wake: Notify::new(),
        });
        state.live.insert(id, transfer.clone());
        Ok(Listed { transfer, list: self })
    }

    pub fn list(&self) -> Vec<TransferStatus> {
        let state = self.lock();
        let status =
            |one: &Arc<Transfer>| TransferStatus { bytes: one.bytes.load(Ordering::Relaxed), ..one.status };
        state.live.values().map(status).collect()
    }

    pub fn cancel(&self, id: TransferId) -> Result<()> {
        let found = self.lock().live.get(&id).cloned();
        let transfer = found.ok_or_else(|| Error::not_found("the transfer has ended"))?;
        transfer.cancelled.store(true, Ordering::Release);
        transfer.wake.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.list.lock().live.remove(&self.transfer.status.id);
    }
}
