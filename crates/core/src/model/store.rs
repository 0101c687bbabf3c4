//! The plain in-memory object store: every piece asks its proof.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::content::Content;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{
    Ack, Piece, Range, Seek, Shape, Source, Stopped, Verifier, WriteAt, digested_range, digests_of,
};
use crate::id::{ContainerId, ObjectId};
use crate::limits;
use crate::proof::Granted;
use crate::rights::Rights;
use crate::service::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, StoreSpace};
use crate::time::Clock;

/// Objects in memory.
pub struct ModelStore {
    clock: Arc<dyn Clock>,
    instance: u64,
    objects: Mutex<BTreeMap<ObjectId, Object>>,
}

struct Object {
    container: ContainerId,
    content: Content,
    writes: u64,
    sealed: bool,
}

impl Object {
    fn stat(&self, id: ObjectId) -> ObjectStat {
        ObjectStat {
            id,
            container: self.container,
            size: self.content.size(),
            used: self.content.used(),
            writes: self.writes,
            sealed: self.sealed,
        }
    }
}

impl ModelStore {
    /// Makes an empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let instance = clock.now().nanos() as u64;
        Arc::new(Self { clock, instance, objects: Mutex::default() })
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Object>> {
        // Each change is one step, so a panic elsewhere leaves the map whole.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at an object with proof of one of some rights on it, in its own container.
    fn with<T>(
        &self,
        granted: &Granted,
        any_of: &[Rights],
        id: ObjectId,
        look: impl FnOnce(&mut Object) -> Result<T>,
    ) -> Result<T> {
        self.allowed(granted, any_of, id)?;
        let mut objects = self.objects();
        let object =
            objects.get_mut(&id).ok_or_else(|| Error::not_found("there is no such object").about(id))?;
        if object.container != granted.claims().container {
            return Err(Error::denied("the proof is for another container"));
        }
        look(object)
    }

    fn allowed(&self, granted: &Granted, any_of: &[Rights], id: ObjectId) -> Result<()> {
        let now = self.clock.moment();
        let mut answer = Err(Error::denied("the proof gives no right"));
        for right in any_of {
            answer = granted.allows(*right, id, now);
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    /// Needs a right on the container, or `write` on exactly one object.
    fn whole_or_exactly(&self, granted: &Granted, right: Rights, id: ObjectId) -> Result<()> {
        let now = self.clock.moment();
        let exactly =
            matches!(&granted.claims().objects, crate::proof::Objects::Only(ids) if ids.contains(&id));
        if exactly {
            return granted.allows(Rights::WRITE, id, now);
        }
        granted.allows_container(right, now)
    }

    fn bytes_free(&self) -> u64 {
        let used: u64 = self.objects().values().map(|object| object.content.used()).sum();
        limits::MODEL_BYTES_MAX.saturating_sub(used)
    }

    fn room(&self, bytes: u64) -> Result<()> {
        if bytes > self.bytes_free() {
            return Err(Error::new(ErrorKind::NoSpace, "memory for objects is used up"));
        }
        Ok(())
    }

    fn put(&self, granted: &Granted, op: Rights, id: ObjectId, at: WriteAt, bytes: &[u8]) -> Result<u64> {
        self.room(bytes.len() as u64)?;
        self.with(granted, &[op], id, |object| {
            let at = match at {
                WriteAt::Offset(at) => at,
                WriteAt::End => object.content.size(),
            };
            object.content.write(at, bytes)?;
            object.writes += 1;
            object.sealed = false;
            Ok(at)
        })
    }
}

#[async_trait]
impl ObjectStore for ModelStore {
    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()> {
        self.whole_or_exactly(granted, Rights::INSERT, object)?;
        self.room(length.unwrap_or(0))?;
        let mut objects = self.objects();
        if objects.contains_key(&object) {
            return Err(Error::exists("there is such an object").about(object));
        }
        let container = granted.claims().container;
        objects.insert(object, Object { container, content: Content::default(), writes: 0, sealed: true });
        Ok(())
    }

    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>> {
        let content = self.with(granted, &[Rights::READ], object, |object| Ok(object.content.clone()))?;
        let (at, left) = range.within(content.size());
        let (clock, granted) = (self.clock.clone(), granted.clone());
        Ok(Box::new(ObjectSource { clock, granted, object, content, at, left }))
    }

    async fn digests(&self, granted: &Granted, object: ObjectId, block: u64) -> Result<Vec<[u8; 32]>> {
        digests_of(&mut *self.read(granted, object, digested_range(block)).await?).await
    }

    async fn write(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten> {
        let any_of: &[Rights] = match at {
            WriteAt::Offset(_) => &[Rights::WRITE],
            WriteAt::End => &[Rights::APPEND, Rights::WRITE],
        };
        let op = *any_of
            .iter()
            .find(|op| granted.claims().rights.contains(**op))
            .ok_or_else(|| Error::denied("the capability does not cover the operation"))?;
        let start = self.with(granted, &[op], object, |object| Ok(object.content.size()))?;
        let (mut bytes, mut whole) = (0, Vec::new());
        let mut first = match at {
            WriteAt::Offset(at) => at,
            WriteAt::End => start,
        };
        while let Some(piece) = data.next(limits::PIECE_BYTES_MAX).await? {
            let piece = piece.into_bytes()?;
            match at {
                WriteAt::Offset(at) => {
                    self.put(granted, op, object, WriteAt::Offset(at.saturating_add(bytes)), &piece)?;
                }
                // Kept until all is here: an append is one step.
                WriteAt::End => whole.extend_from_slice(&piece),
            }
            bytes += piece.len() as u64;
        }
        if !whole.is_empty() {
            first = self.put(granted, op, object, WriteAt::End, &whole)?;
        }
        let stat = self.with(granted, &[op], object, |held| Ok(held.stat(object)))?;
        Ok(ObjectWritten { at: first, bytes, stat, ack: Ack::Applied, verifier: self.verifier() })
    }

    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat> {
        if let Shape::Allocate { length, .. } = shape {
            self.room(length)?;
        }
        self.with(granted, &[Rights::WRITE], object, |held| {
            held.content.shape(shape)?;
            held.writes += 1;
            held.sealed = false;
            Ok(held.stat(object))
        })
    }

    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64> {
        self.with(granted, &[Rights::READ, Rights::WRITE], object, |object| object.content.seek(offset, what))
    }

    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64> {
        let content = self.with(from.0, &[Rights::READ], from.1, |object| Ok(object.content.clone()))?;
        let (at, length) = range.within(content.size());
        self.with(to.0, &[Rights::WRITE], to.1, |_| Ok(()))?;
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(limits::PIECE_BYTES_MAX as u64) as usize;
            let bytes = content.read(at + done, piece);
            self.allowed(from.0, &[Rights::READ], from.1)?;
            self.put(to.0, Rights::WRITE, to.1, WriteAt::Offset(offset.saturating_add(done)), &bytes)?;
            done += piece as u64;
        }
        Ok(done)
    }

    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        let any = [Rights::ATTR_READ, Rights::READ, Rights::WRITE];
        self.with(granted, &any, object, |held| Ok(held.stat(object)))
    }

    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier> {
        let any = [Rights::WRITE, Rights::APPEND, Rights::READ];
        self.with(granted, &any, object, |_| Ok(self.verifier()))
    }

    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        let any = [Rights::WRITE, Rights::APPEND];
        self.with(granted, &any, object, |held| {
            held.sealed = true;
            Ok(held.stat(object))
        })
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        self.whole_or_exactly(from, Rights::REMOVE, object)?;
        self.whole_or_exactly(to, Rights::INSERT, object)?;
        let mut objects = self.objects();
        let held = objects.get_mut(&object).ok_or_else(|| Error::not_found("there is no such object"))?;
        if held.container != from.claims().container {
            return Err(Error::denied("the proof is for another container"));
        }
        held.container = to.claims().container;
        Ok(())
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        self.whole_or_exactly(granted, Rights::REMOVE, object)?;
        let mut objects = self.objects();
        let held = objects.get(&object).ok_or_else(|| Error::not_found("there is no such object"))?;
        if held.container != granted.claims().container {
            return Err(Error::denied("the proof is for another container"));
        }
        objects.remove(&object);
        Ok(())
    }

    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        let now = self.clock.moment();
        granted
            .allows_container(Rights::LIST, now)
            .or_else(|_| granted.allows_container(Rights::MAINTAIN, now))?;
        let objects = self.objects();
        let container = granted.claims().container;
        let mut rest = objects
            .iter()
            .filter(|(id, held)| held.container == container && after.is_none_or(|after| **id > after));
        let page: Vec<ObjectStat> =
            rest.by_ref().take(limits::PAGE_ENTRIES_MAX as usize).map(|(id, held)| held.stat(*id)).collect();
        let next = rest.next().and(page.last()).map(|last| last.id);
        Ok(ObjectPage { objects: page, next })
    }

    fn space(&self) -> Result<StoreSpace> {
        Ok(StoreSpace { bytes_total: limits::MODEL_BYTES_MAX, bytes_free: self.bytes_free() })
    }

    fn verifier(&self) -> Verifier {
        Verifier(self.instance)
    }
}

/// Bytes of one read, as they were when it began.
struct ObjectSource {
    clock: Arc<dyn Clock>,
    granted: Granted,
    object: ObjectId,
    content: Content,
    at: u64,
    left: u64,
}

#[async_trait]
impl Source for ObjectSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.left == 0 {
            return Ok(None);
        }
        if let Err(e) = self.granted.allows(Rights::READ, self.object, self.clock.moment()) {
            self.left = 0;
            return Err(e.op("read"));
        }
        let length = max.min(limits::PIECE_BYTES_MAX).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let bytes = self.content.read(self.at, length);
        self.at += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        Some(self.left)
    }

    fn stopped(&self) -> Stopped {
        let withdrawn = self.granted.withdrawn(Rights::READ);
        Box::pin(async move {
            withdrawn.await;
            Error::new(ErrorKind::Revoked, "the right was withdrawn").op("read")
        })
    }
}
