//! What the node holds for the connections of one uid, in bytes: a client pays for what it brings
//! and for what it does not take, whoever it says it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weft_core::{Error, ErrorKind, Result, limits};

/// What is held for each uid that is connected.
#[derive(Default)]
pub struct Uids(Mutex<HashMap<u32, Weak<Held>>>);

/// What is held for one uid: room that is left.
pub(crate) struct Held {
    incoming: Arc<Semaphore>,
    outgoing: Arc<Semaphore>,
    opens: Arc<Semaphore>,
}

/// A part of it, given back when dropped.
pub(crate) type Part = OwnedSemaphorePermit;

/// One open, which outlives the connection it was made over: it keeps the count it is in.
pub(crate) struct OpenPart {
    _part: Part,
    _of: Arc<Held>,
}

impl Uids {
    /// Returns what all connections of a uid share.
    pub(crate) fn of(&self, uid: u32) -> Arc<Held> {
        // Every change leaves the map whole, so a panic elsewhere cannot spoil it.
        let mut uids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = uids.get(&uid).and_then(Weak::upgrade) {
            return held;
        }
        uids.retain(|_, held| held.strong_count() > 0);
        let room = |count| Arc::new(Semaphore::new(count));
        let held = Arc::new(Held {
            incoming: room(limits::RPC_UID_IN_BYTES),
            outgoing: room(limits::RPC_UID_OUT_BYTES),
            opens: room(limits::OPENS_PER_UID_MAX),
        });
        uids.insert(uid, Arc::downgrade(&held));
        held
    }
}

impl Held {
    /// Waits for room for bytes that are to come.
    pub(crate) async fn incoming(&self, bytes: usize) -> Result<Part> {
        take(&self.incoming, bytes).await
    }

    /// Waits for room for bytes that are to be sent.
    pub(crate) async fn outgoing(&self, bytes: usize) -> Result<Part> {
        take(&self.outgoing, bytes).await
    }

    /// Counts something that stays open.
    pub(crate) fn open(self: &Arc<Self>) -> Result<OpenPart> {
        let many = |_| Error::new(ErrorKind::Busy, "your uid has as many files open as it may");
        let part = self.opens.clone().try_acquire_owned().map_err(many)?;
        Ok(OpenPart { _part: part, _of: self.clone() })
    }
}

/// Says that there was no room in time.
pub(crate) fn busy(error: Error) -> Error {
    Error::new(ErrorKind::Busy, "your uid makes the node hold as much as it may").caused_by(error)
}

/// Waits for room in turn.
pub(crate) async fn take(room: &Arc<Semaphore>, bytes: usize) -> Result<Part> {
    let count = u32::try_from(bytes).map_err(|_| Error::internal("more than is ever held at once"))?;
    let closed = |_| Error::internal("room for bytes is never closed");
    room.clone().acquire_many_owned(count).await.map_err(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_has_so_many_files_open_over_all_its_connections_also_those_that_are_gone() {
        let uids = Uids::default();
        let kept: Vec<_> =
            (0..limits::OPENS_PER_UID_MAX).map(|_| uids.of(7).open().expect("there is room")).collect();
        // Every connection is gone; sessions, and what is open in them, outlive it.
        assert_eq!(uids.of(7).open().map(drop).expect_err("full").kind(), ErrorKind::Busy);
        uids.of(8).open().map(drop).expect("another uid has its own");
        drop(kept);
        uids.of(7).open().map(drop).expect("room again");
    }
}
