//! An open file that records its reads when it goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use weft_core::attr::{Attr, Wcc};
use weft_core::form::{
    Call, OpenFile, Piece, Range, Seek, Shape, Source, Stopped, Verifier, WriteAt, Written,
};
use weft_core::{ContainerId, FileId, Result};

use super::{Inner, watched};

pub(super) struct AuditedFile {
    pub(super) inner: Arc<Inner>,
    pub(super) below: Arc<dyn OpenFile>,
    pub(super) container: ContainerId,
    /// In whose name it was opened: who reads is who opened.
    pub(super) call: Call,
    pub(super) tally: Arc<Tally>,
}

/// What was read through one open.
#[derive(Default)]
pub(super) struct Tally {
    touched: AtomicBool,
    bytes: AtomicU64,
}

impl AuditedFile {
    /// Returns the bytes read that are not recorded yet; `None` if nothing was read.
    fn take_tally(&self) -> Option<u64> {
        let read = self.tally.touched.swap(false, Ordering::AcqRel);
        read.then(|| self.tally.bytes.swap(0, Ordering::AcqRel))
    }
}

impl Drop for AuditedFile {
    fn drop(&mut self) {
        let Some(bytes) = self.take_tally().filter(|_| self.inner.reads.are_recorded(self.container)) else {
            return;
        };
        let (inner, call, container, file) =
            (self.inner.clone(), self.call.clone(), self.container, self.below.id());
        drop(self.inner.sys.spawn(async move { inner.read(&call, file, container, bytes).await }));
    }
}

#[async_trait]
impl OpenFile for AuditedFile {
    fn id(&self) -> FileId {
        self.below.id()
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        watched!(self.inner, call, "attr", Some(self.id()), self.below.attr(call))
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let below = watched!(self.inner, call, "read", Some(self.id()), self.below.read(call, range))?;
        self.tally.touched.store(true, Ordering::Release);
        Ok(Box::new(AuditedSource { below, tally: self.tally.clone() }))
    }

    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        watched!(self.inner, call, "write", Some(self.id()), self.below.write(call, at, data))
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        watched!(self.inner, call, "shape", Some(self.id()), self.below.shape(call, shape))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        watched!(self.inner, call, "seek", Some(self.id()), self.below.seek(call, offset, what))
    }

    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        self.below.sync(call, range).await
    }

    async fn close(&self, call: &Call) -> Result<()> {
        if let Some(bytes) = self.take_tally().filter(|_| self.inner.reads.are_recorded(self.container)) {
            self.inner.read(&self.call, self.id(), self.container, bytes).await;
        }
        self.below.close(call).await
    }
}

struct AuditedSource {
    below: Box<dyn Source>,
    tally: Arc<Tally>,
}

#[async_trait]
impl Source for AuditedSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = self.below.next(max).await?;
        if let Some(piece) = &piece {
            self.tally.bytes.fetch_add(piece.length() as u64, Ordering::AcqRel);
        }
        Ok(piece)
    }

    fn length(&self) -> Option<u64> {
        self.below.length()
    }

    fn stopped(&self) -> Stopped {
        self.below.stopped()
    }
}
