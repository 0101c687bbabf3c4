//! An engine whose transactions a test can make fail, as on a full disk, and whose notes, as after a
//! read that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;
use weft_core::form::Ack;
use weft_core::{Error, ErrorKind, Result};
use weft_kv::{Boot, Commit, Engine, Note, NoteKind, NotePosition, Notes, Snapshot, Supports, WriteFn};
use weft_sys::Disk;

pub struct UnsteadyEngine {
    pub inner: Arc<dyn Engine>,
    /// While this is set nothing can be written.
    pub full: Arc<AtomicBool>,
    /// So many of the next reads of notes fail.
    pub unreadable: Arc<AtomicU32>,
    pub gate: Arc<Gate>,
}

/// Holds the next durable transaction up.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    came: Notify,
    opened: Notify,
}

impl Gate {
    /// Holds the next one up.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Waits until it is there.
    pub async fn reached(&self) {
        self.came.notified().await;
    }

    /// Lets it go on.
    pub fn open(&self) {
        self.opened.notify_one();
    }

    async fn pass(&self) {
        if self.closed.swap(false, Ordering::AcqRel) {
            self.came.notify_one();
            self.opened.notified().await;
        }
    }
}

struct UnsteadyNotes {
    inner: Box<dyn Notes>,
    unreadable: Arc<AtomicU32>,
}

#[async_trait]
impl Notes for UnsteadyNotes {
    async fn next(&mut self) -> Result<Vec<Note>> {
        let less = |left: u32| left.checked_sub(1);
        if self.unreadable.try_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
            return Err(Error::new(ErrorKind::Unavailable, "the test lets nobody read it"));
        }
        self.inner.next().await
    }

    async fn ack(&mut self, position: NotePosition) -> Result<()> {
        self.inner.ack(position).await
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }
}

#[async_trait]
impl Engine for UnsteadyEngine {
    fn supports(&self) -> Supports {
        self.inner.supports()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.inner.snapshot()
    }

    async fn write(&self, ack: Ack, act: WriteFn) -> Result<Commit> {
        if self.full.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::NoSpace, "the test leaves no room"));
        }
        if ack == Ack::Durable {
            self.gate.pass().await;
        }
        self.inner.write(ack, act).await
    }

    async fn flush(&self) -> Result<Commit> {
        self.inner.flush().await
    }

    fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>> {
        let (inner, unreadable) = (self.inner.notes(kind)?, self.unreadable.clone());
        Ok(Box::new(UnsteadyNotes { inner, unreadable }))
    }

    fn last_note(&self, kind: NoteKind) -> Result<Option<NotePosition>> {
        self.inner.last_note(kind)
    }

    async fn backup(&self, into: Arc<dyn Disk>) -> Result<Commit> {
        self.inner.backup(into).await
    }

    fn boot(&self) -> Boot {
        self.inner.boot()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
