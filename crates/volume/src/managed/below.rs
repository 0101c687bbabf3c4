//! The store below, whose failures are told without its words: a path of the machine and an
//! object's id stay with the cause, for the node's log, and whoever asked hears of containers and
//! files. This is the one way from a volume to its store.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::form::{Piece, Range, Seek, Shape, Source, Stopped, Verifier, WriteAt};
use weft_core::proof::Granted;
use weft_core::service::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, StoreSpace};
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result};

pub(super) struct Below(pub(super) Arc<dyn ObjectStore>);

/// Returns what a failure of the store is to those above. What the machine refused is logged here:
/// nobody above knows where that was.
fn told(error: Error, granted: &Granted) -> Error {
    told_in(error, granted.claims().container)
}

fn told_in(error: Error, container: ContainerId) -> Error {
    let of_machine = std::error::Error::source(&error).is_some_and(|cause| cause.is::<std::io::Error>());
    if of_machine && matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Unavailable | ErrorKind::Internal)
    {
        tracing::warn!(?error, %container, "the machine failed an object of the store");
    }
    let error = error.unplaced();
    // Where there is no room is a container's matter, not one file's.
    if error.kind() == ErrorKind::NoSpace { error.about(container) } else { error }
}

#[async_trait]
impl ObjectStore for Below {
    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()> {
        self.0.make(granted, object, length).await.map_err(|e| told(e, granted))
    }

    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>> {
        let source = self.0.read(granted, object, range).await.map_err(|e| told(e, granted))?;
        Ok(Box::new(BelowSource { source, container: granted.claims().container }))
    }

    async fn digests(&self, granted: &Granted, object: ObjectId, block: u64) -> Result<Vec<[u8; 32]>> {
        self.0.digests(granted, object, block).await.map_err(|e| told(e, granted))
    }

    async fn write(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten> {
        self.0.write(granted, object, at, data).await.map_err(|e| told(e, granted))
    }

    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat> {
        self.0.shape(granted, object, shape).await.map_err(|e| told(e, granted))
    }

    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64> {
        self.0.seek(granted, object, offset, what).await.map_err(|e| told(e, granted))
    }

    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64> {
        self.0.copy(from, range, to, offset).await.map_err(|e| told(e, to.0))
    }

    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        self.0.stat(granted, object).await.map_err(|e| told(e, granted))
    }

    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier> {
        self.0.sync(granted, object).await.map_err(|e| told(e, granted))
    }

    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        self.0.seal(granted, object).await.map_err(|e| told(e, granted))
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        self.0.relabel(from, to, object).await.map_err(|e| told(e, to))
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        self.0.remove(granted, object).await.map_err(|e| told(e, granted))
    }

    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        self.0.list(granted, after).await.map_err(|e| told(e, granted))
    }

    fn space(&self) -> Result<StoreSpace> {
        self.0.space().map_err(Error::unplaced)
    }

    fn verifier(&self) -> Verifier {
        self.0.verifier()
    }
}

struct BelowSource {
    source: Box<dyn Source>,
    container: ContainerId,
}

#[async_trait]
impl Source for BelowSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        self.source.next(max).await.map_err(|e| told_in(e, self.container))
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn stopped(&self) -> Stopped {
        self.source.stopped()
    }
}
