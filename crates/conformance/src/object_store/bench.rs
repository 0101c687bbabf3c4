//! What laws are written with: a store, proofs, and short ways to use them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{BytesSource, Piece, Range, Source, Stopped, WriteAt, collect, digests_of};
use weft_core::proof::{Granted, Objects};
use weft_core::service::{ObjectStore, ObjectWritten};
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result, Rights, VolumeId};

use super::Subject;

/// The container most laws work in.
pub const HERE: ContainerId = ContainerId(7);
/// Another one.
pub const THERE: ContainerId = ContainerId(8);
/// The volume of both.
pub const VOLUME: VolumeId = VolumeId(0);
/// An object.
pub const OBJECT: ObjectId = ObjectId(0x5eed);
/// Bytes in a block.
pub const BLOCK: u64 = weft_core::limits::SEAL_BLOCK_BYTES;

/// A subject's store with every right on [`HERE`].
pub struct Bench<'a> {
    /// The subject.
    pub subject: &'a dyn Subject,
    /// Its store.
    pub store: Arc<dyn ObjectStore>,
    /// Every right on [`HERE`].
    pub all: Granted,
}

impl<'a> Bench<'a> {
    /// Goes to work.
    pub fn of(subject: &'a dyn Subject) -> Self {
        Self { subject, store: subject.store(), all: proof(subject, HERE, Rights::ALL) }
    }

    /// Goes to work with [`OBJECT`] made.
    pub async fn with_object(subject: &'a dyn Subject) -> Self {
        let bench = Self::of(subject);
        bench.store.make(&bench.all, OBJECT, None).await.expect("a fresh id");
        bench
    }

    /// Returns proof of rights on [`HERE`].
    pub fn proof(&self, rights: Rights) -> Granted {
        proof(self.subject, HERE, rights)
    }

    /// Returns proof of rights on one object of [`HERE`].
    pub fn proof_on(&self, object: ObjectId, rights: Rights) -> Granted {
        let domain = self.subject.domain();
        domain.granted_on(&domain.caller("ada"), HERE, rights, Objects::Only(vec![object]))
    }

    /// Writes bytes to [`OBJECT`].
    pub async fn write(&self, at: u64, bytes: impl Into<Bytes>) -> ObjectWritten {
        self.try_write(WriteAt::Offset(at), bytes).await.expect("there is room")
    }

    /// Writes bytes to [`OBJECT`], which may fail.
    pub async fn try_write(&self, at: WriteAt, bytes: impl Into<Bytes>) -> Result<ObjectWritten> {
        self.store.write(&self.all, OBJECT, at, &mut BytesSource::new(bytes)).await
    }

    /// Reads a range of [`OBJECT`].
    pub async fn read(&self, at: u64, length: Option<u64>) -> Bytes {
        read(&*self.store, &self.all, OBJECT, Range { at, length }).await.expect("it can be read")
    }

    /// Checks that [`OBJECT`] is these bytes, whole.
    pub async fn expect(&self, bytes: &[u8]) {
        let found = self.read(0, None).await;
        assert_eq!(found.len(), bytes.len(), "the size");
        let differs = found.iter().zip(bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte that differs");
    }
}

impl Bench<'_> {
    /// Checks that the digests of [`OBJECT`] are those of these bytes.
    pub async fn expect_digests(&self, bytes: &[u8]) {
        let mut found: Vec<[u8; 32]> = Vec::new();
        loop {
            let more = self.store.digests(&self.all, OBJECT, found.len() as u64).await;
            let more = more.expect("it can be read");
            if more.is_empty() {
                break;
            }
            found.extend(more);
        }
        let mut source = BytesSource::new(Bytes::copy_from_slice(bytes));
        let expected = digests_of(&mut source).await.expect("they are there");
        assert_eq!(found.len(), expected.len(), "blocks");
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first block that differs");
    }
}

/// Returns proof of rights on a container.
pub fn proof(subject: &dyn Subject, container: ContainerId, rights: Rights) -> Granted {
    let domain = subject.domain();
    domain.granted(&domain.caller("ada"), container, rights)
}

/// Reads a range of an object.
pub async fn read(
    store: &dyn ObjectStore,
    granted: &Granted,
    object: ObjectId,
    range: Range,
) -> Result<Bytes> {
    let mut source = store.read(granted, object, range).await?;
    collect(&mut *source, 1 << 30).await
}

/// Returns bytes that differ from block to block and from seed to seed, none of them zero.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns the kind of a refusal.
pub fn refused<T>(answer: Result<T>) -> ErrorKind {
    answer.err().expect("it must be refused").kind()
}

/// A source that hands out pieces as a test sends them, and then ends as it says.
pub struct FedSource {
    /// The pieces to come; an error ends it.
    pub pieces: tokio::sync::mpsc::UnboundedReceiver<Result<Bytes>>,
}

/// Makes a source and the end that feeds it. Dropping that end ends the source.
pub fn fed() -> (tokio::sync::mpsc::UnboundedSender<Result<Bytes>>, FedSource) {
    let (feed, pieces) = tokio::sync::mpsc::unbounded_channel();
    (feed, FedSource { pieces })
}

#[async_trait]
impl Source for FedSource {
    async fn next(&mut self, _max: usize) -> Result<Option<Piece>> {
        self.pieces.recv().await.transpose().map(|piece| piece.map(Piece::Bytes))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending::<Error>())
    }
}
