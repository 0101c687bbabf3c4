//! An open file whose reads are counted, and recorded.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Attr, Wcc};
use weft_core::form::{
    Call, OpenFile, Piece, Range, Seek, Shape, Source, Stopped, Verifier, WriteAt, Written,
};
use weft_core::{ContainerId, FileId, Result};

use super::reads::{Reader, Tally};
use super::{About, Inner, watched};

pub(super) struct AuditedFile {
    below: Arc<dyn OpenFile>,
    tally: Arc<Tally>,
}

impl AuditedFile {
    pub(super) fn new(
        inner: &Arc<Inner>,
        call: &Call,
        container: Option<ContainerId>,
        below: Arc<dyn OpenFile>,
    ) -> Self {
        let reader = Reader { call: call.clone(), file: below.id(), container };
        Self { below, tally: Tally::new(inner.clone(), reader) }
    }

    async fn counted(&self, below: Box<dyn Source>) -> Box<dyn Source> {
        if self.tally.begin() {
            self.tally.inner.record_reads().await;
        }
        Box::new(AuditedSource { below, tally: self.tally.clone() })
    }

    fn about(&self) -> About<'_> {
        About::Open(&self.tally.reader)
    }
}

#[async_trait]
impl OpenFile for AuditedFile {
    fn id(&self) -> FileId {
        self.below.id()
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        watched!(self.tally.inner, call, "attr", self.about(), self.below.attr(call))
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let below = watched!(self.tally.inner, call, "read", self.about(), self.below.read(call, range))?;
        Ok(self.counted(below).await)
    }

    async fn lend(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let below = watched!(self.tally.inner, call, "read", self.about(), self.below.lend(call, range))?;
        Ok(self.counted(below).await)
    }

    /// Who has the digests of bytes can tell whether they are what one thinks: that is a read.
    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        let below = self.below.digests(call, block);
        let digests = watched!(self.tally.inner, call, "read", self.about(), below)?;
        if self.tally.count(0) {
            self.tally.inner.record_reads().await;
        }
        Ok(digests)
    }

    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        watched!(self.tally.inner, call, "write", self.about(), self.below.write(call, at, data))
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        watched!(self.tally.inner, call, "shape", self.about(), self.below.shape(call, shape))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        watched!(self.tally.inner, call, "seek", self.about(), self.below.seek(call, offset, what))
    }

    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        watched!(self.tally.inner, call, "sync", self.about(), self.below.sync(call, range))
    }

    async fn close(&self, call: &Call) -> Result<()> {
        self.tally.record().await;
        self.below.close(call).await
    }
}

struct AuditedSource {
    below: Box<dyn Source>,
    tally: Arc<Tally>,
}

impl AuditedSource {
    async fn counted(&mut self, piece: Result<Option<Piece>>) -> Result<Option<Piece>> {
        match &piece {
            Ok(Some(piece)) => _ = self.tally.count(piece.length() as u64),
            Ok(None) => {}
            Err(error) => self.tally.cut_off(error).await,
        }
        piece
    }
}

#[async_trait]
impl Source for AuditedSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = self.below.next(max).await;
        self.counted(piece).await
    }

    async fn next_to_send(&mut self, max: usize, unread: u64) -> Result<Option<Piece>> {
        let piece = self.below.next_to_send(max, unread).await;
        self.counted(piece).await
    }

    fn length(&self) -> Option<u64> {
        self.below.length()
    }

    fn stopped(&self) -> Stopped {
        let (tally, stopped) = (self.tally.clone(), self.below.stopped());
        Box::pin(async move {
            let error = stopped.await;
            tally.cut_off(&error).await;
            error
        })
    }
}
