//! Objects: bytes under an id, labelled with a container, without names.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::form::{Ack, Range, Seek, Shape, Source, Verifier, WriteAt};
use crate::id::{ContainerId, ObjectId};
use crate::proof::Granted;

/// What a store knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStat {
    /// Which object.
    pub id: ObjectId,
    /// The container it is labelled with.
    pub container: ContainerId,
    /// Bytes in it.
    pub size: u64,
    /// Bytes of storage it takes.
    pub used: u64,
    /// Counts writes while it is open; starts anew with each boot.
    pub writes: u64,
    /// Whether every block's checksum matches what is on disk: false while it is
    /// being written and, as `unverified`, after a crash during that.
    pub sealed: bool,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectWritten {
    /// Where the bytes went.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// The object afterwards.
    pub stat: ObjectStat,
    /// How safe they are.
    pub ack: Ack,
    /// Changes if unsynced bytes may have been lost.
    pub verifier: Verifier,
}

/// A page of a container's objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPage {
    /// The objects, in id order.
    pub objects: Vec<ObjectStat>,
    /// The last id of the page if there are more.
    pub next: Option<ObjectId>,
}

/// Space at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSpace {
    /// Bytes there are.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
}

/// Keeps objects. Every method demands proof for the object's own container, and
/// checks it again for every piece. Knows nothing of names.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Makes an empty object in the proof's container. Needs `insert` on the container
    /// (or `write` on exactly this object). `length` reserves space. `Exists`.
    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()>;

    /// Returns a source of bytes, verified against their seals. Needs `read`.
    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>>;

    /// Returns the BLAKE3 of each block of [`limits::SEAL_BLOCK_BYTES`](crate::limits::SEAL_BLOCK_BYTES)
    /// from the block numbered `block` on, as [`OpenFile::digests`](crate::form::OpenFile::digests)
    /// says. Needs `read`.
    async fn digests(&self, granted: &Granted, object: ObjectId, block: u64) -> Result<Vec<[u8; 32]>>;

    /// Pulls a source into the object. Needs `write`, or `append` at the end.
    async fn write(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten>;

    /// Changes the extent. Needs `write`.
    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat>;

    /// Finds data or a hole. Needs `read` or `write`.
    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64>;

    /// Copies bytes from one object to another of this store. Needs `read` there and
    /// `write` here. Returns the bytes copied.
    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64>;

    /// Returns what is known of the object. Needs `attr-read`, `read` or `write`.
    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat>;

    /// Brings the object's bytes, size and existence to disk. Needs `write`, `append` or `read`.
    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier>;

    /// Ends a run of writes: checksums of what changed are made and recorded.
    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat>;

    /// Labels the object with another container. Needs `remove` there and `insert` here.
    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()>;

    /// Removes the object. Needs `remove` on the container (or `write` on exactly this
    /// object). Running reads go on.
    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()>;

    /// Returns a page of the container's objects after `after`. Needs `list` or `maintain` on
    /// the container.
    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage>;

    /// Returns the space there is.
    fn space(&self) -> Result<StoreSpace>;

    /// Returns the verifier of this boot.
    fn verifier(&self) -> Verifier;
}
