//! A store that a test can hold up, or make fail, at chosen operations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;
use weft_core::form::{BytesSource, Range, Seek, Shape, Source, Verifier, WriteAt};
use weft_core::proof::Granted;
use weft_core::service::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, StoreSpace};
use weft_core::{Error, ErrorKind, ObjectId, Result, limits};

/// An operation to interfere with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Read,
    Write,
    Shape,
    Stat,
    Sync,
    Seal,
    /// When the store has sealed it, and nobody was told.
    Sealed,
    Relabel,
    /// When the store has the new label, and nobody was told.
    Relabelled,
    Remove,
}

pub struct UnsteadyStore {
    inner: Arc<dyn ObjectStore>,
    held: Mutex<HashMap<Op, watch::Receiver<bool>>>,
    failing: Mutex<HashMap<(Op, ObjectId), ErrorKind>>,
    asked: Mutex<Vec<(Op, ObjectId)>>,
    /// Bytes free, if the test says how many.
    free: Mutex<Option<u64>>,
    /// How often bytes that were not synced may have been lost.
    losses: AtomicU64,
    /// Whether the next write meets a full disk in its middle.
    fills_up: AtomicBool,
}

impl UnsteadyStore {
    pub fn over(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        let (held, failing, asked) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self {
            inner,
            held,
            failing,
            asked,
            free: Mutex::default(),
            losses: AtomicU64::default(),
            fills_up: AtomicBool::default(),
        })
    }

    /// Says that bytes that were not synced may be lost, as after a flush that failed.
    pub fn lose(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Holds an operation up until the answer is dropped or told to go on.
    pub fn hold(&self, op: Op) -> watch::Sender<bool> {
        let (sender, receiver) = watch::channel(false);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(op, receiver);
        sender
    }

    /// Makes an operation on an object fail from now on.
    pub fn fail(&self, op: Op, object: ObjectId) {
        self.fail_as(op, object, ErrorKind::Corrupt);
    }

    /// The same, with an error of this kind.
    pub fn fail_as(&self, op: Op, object: ObjectId, kind: ErrorKind) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).insert((op, object), kind);
    }

    /// Lets every operation succeed again.
    pub fn recover(&self) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Says that so many bytes are free from now on. What is removed adds to them.
    pub fn leave_free(&self, bytes: u64) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
    }

    /// Has the next write meet a full disk after its first piece, with one on its way and one
    /// pulled already, as a store does that pulls ahead.
    pub fn fill_up(&self) {
        self.fills_up.store(true, Ordering::Release);
    }

    async fn write_first(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<()> {
        let first = data.next(limits::PIECE_BYTES_MAX).await?.expect("there is more than one");
        self.inner.write(granted, object, at, &mut BytesSource::new(first.into_bytes()?)).await?;
        for _ in 0..2 {
            data.next(limits::PIECE_BYTES_MAX).await?.expect("there are three pieces");
        }
        Err(Error::new(ErrorKind::NoSpace, "the test's disk is full"))
    }

    /// How often an operation was asked for on an object.
    pub fn asked(&self, op: Op, object: ObjectId) -> usize {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|known| **known == (op, object)).count()
    }

    /// Returns the object that an operation was last asked for on.
    pub fn last(&self, op: Op) -> ObjectId {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().rev().find(|known| known.0 == op).expect("it was asked for").1
    }

    async fn pass(&self, op: Op, object: ObjectId) -> Result<()> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((op, object));
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&op).cloned();
        if let Some(mut held) = held {
            // Whoever held it up is gone, or says go on.
            let _ = held.wait_for(|go| *go).await;
        }
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).get(&(op, object)).copied();
        match failing {
            Some(kind) => Err(Error::new(kind, "the test makes it fail").about(object)),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl ObjectStore for UnsteadyStore {
    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()> {
        self.inner.make(granted, object, length).await
    }

    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>> {
        self.pass(Op::Read, object).await?;
        self.inner.read(granted, object, range).await
    }

    async fn digests(&self, granted: &Granted, object: ObjectId, block: u64) -> Result<Vec<[u8; 32]>> {
        self.inner.digests(granted, object, block).await
    }

    async fn write(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten> {
        if self.fills_up.swap(false, Ordering::AcqRel) {
            self.write_first(granted, object, at, data).await?;
        }
        let written = self.inner.write(granted, object, at, data).await?;
        // Its bytes are there, and may be though it says that it failed.
        self.pass(Op::Write, object).await?;
        Ok(written)
    }

    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat> {
        let stat = self.inner.shape(granted, object, shape).await?;
        self.pass(Op::Shape, object).await?;
        Ok(stat)
    }

    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(granted, object, offset, what).await
    }

    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64> {
        self.inner.copy(from, range, to, offset).await
    }

    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        self.pass(Op::Stat, object).await?;
        self.inner.stat(granted, object).await
    }

    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier> {
        self.pass(Op::Sync, object).await?;
        self.inner.sync(granted, object).await
    }

    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        self.pass(Op::Seal, object).await?;
        let stat = self.inner.seal(granted, object).await?;
        self.pass(Op::Sealed, object).await?;
        Ok(stat)
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        self.pass(Op::Relabel, object).await?;
        self.inner.relabel(from, to, object).await?;
        self.pass(Op::Relabelled, object).await
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        self.pass(Op::Remove, object).await?;
        let size = self.inner.stat(granted, object).await.map_or(0, |stat| stat.size);
        self.inner.remove(granted, object).await?;
        if let Some(free) = &mut *self.free.lock().unwrap_or_else(PoisonError::into_inner) {
            *free += size;
        }
        Ok(())
    }

    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        self.inner.list(granted, after).await
    }

    fn space(&self) -> Result<StoreSpace> {
        let space = self.inner.space()?;
        let free = *self.free.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(StoreSpace { bytes_free: free.unwrap_or(space.bytes_free), ..space })
    }

    fn verifier(&self) -> Verifier {
        Verifier(self.inner.verifier().0 ^ self.losses.load(Ordering::Acquire))
    }
}
