//! An engine whose transactions a test can make fail, as on a full disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use weft_core::form::Ack;
use weft_core::{Error, ErrorKind, Result};
use weft_kv::{Boot, Commit, Engine, NoteKind, NotePosition, Notes, Snapshot, Supports, WriteFn};
use weft_sys::Disk;

pub struct UnsteadyEngine {
    pub inner: Arc<dyn Engine>,
    /// While this is set nothing can be written.
    pub full: Arc<AtomicBool>,
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
        self.inner.write(ack, act).await
    }

    async fn flush(&self) -> Result<Commit> {
        self.inner.flush().await
    }

    fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>> {
        self.inner.notes(kind)
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
