//! The store that forgets: for scratch and tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{
    Ack, Piece, Range, Seek, Shape, Source, Stopped, Verifier, WriteAt, digested_range, digests_of,
};
use weft_core::limits::{CLOCK_SKEW_MAX, FILE_BYTES_MAX, PAGE_ENTRIES_MAX, PIECE_BYTES_MAX};
use weft_core::proof::Granted;
use weft_core::service::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, StoreSpace};
use weft_core::{Clock, ContainerId, Error, ErrorKind, ObjectId, Result, Rights};
use weft_sys::Sys;

use crate::proof::{self, Permit, absent};

/// Bytes that are kept or not as one.
const PAGE_BYTES: u64 = 64 << 10;

/// Objects in memory, gone with the process. Nothing is sealed: memory is trusted.
pub struct Memory {
    shared: Arc<Shared>,
    boot: u64,
}

struct Shared {
    sys: Sys,
    capacity: u64,
    used: AtomicU64,
    objects: Mutex<BTreeMap<ObjectId, Arc<Object>>>,
}

struct Object {
    id: ObjectId,
    /// Held by the append under way.
    tail: tokio::sync::Mutex<()>,
    content: Mutex<Content>,
    shared: Arc<Shared>,
}

struct Content {
    container: ContainerId,
    pages: BTreeMap<u64, Vec<u8>>,
    size: u64,
    writes: u64,
    sealed: bool,
}

impl Memory {
    /// Makes an empty store that keeps up to `capacity` bytes, counted in pages of 64 KiB.
    pub fn new(sys: Sys, capacity: u64) -> Self {
        let boot = sys.random().u64();
        let (used, objects) = (AtomicU64::new(0), Mutex::default());
        Self { shared: Arc::new(Shared { sys, capacity, used, objects }), boot }
    }

    fn clock(&self) -> &dyn Clock {
        self.shared.sys.clock()
    }

    /// Returns an object if the proof allows one of `rights` on it.
    fn permitted(
        &self,
        granted: &Granted,
        rights: &[Rights],
        object: ObjectId,
        op: &'static str,
    ) -> Result<Arc<Object>> {
        let allowed = proof::any(granted, rights, object, self.clock().moment());
        allowed.map_err(|error| error.op(op).about(object))?;
        let found = self.shared.table().get(&object).cloned();
        let found = found.filter(|found| found.content().container == granted.claims().container);
        found.ok_or_else(|| absent(object).op(op))
    }

    async fn pull(
        &self,
        object: &Arc<Object>,
        permit: &Permit,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<(u64, u64)> {
        let (at, _tail) = match at {
            WriteAt::Offset(at) => (at, None),
            WriteAt::End => {
                let tail = object.tail.lock().await;
                (object.content().size, Some(tail))
            }
        };
        let mut stop = stopped(&self.shared.sys, permit);
        let mut done = 0;
        loop {
            let piece = tokio::select! {
                biased;
                piece = data.next(PIECE_BYTES_MAX) => piece?,
                why = &mut stop => return Err(why),
            };
            let Some(piece) = piece else { return Ok((at, done)) };
            permit.check(object.content().container, self.clock())?;
            let bytes = piece.into_bytes()?;
            object.write(&bytes, at.saturating_add(done))?;
            done += bytes.len() as u64;
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Arc<Object>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes space for `pages`, or says that there is none.
    fn take(&self, pages: u64) -> Result<()> {
        let fits = |used: u64| used.checked_add(pages * PAGE_BYTES).filter(|used| *used <= self.capacity);
        let taken = self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| {
            Error::new(ErrorKind::NoSpace, "the memory store is full")
                .hint("remove something, or make it larger")
        })
    }

    fn give_back(&self, pages: usize) {
        self.used.fetch_sub(pages as u64 * PAGE_BYTES, Ordering::Relaxed);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let pages = self.content().pages.len();
        self.shared.give_back(pages);
    }
}

impl Object {
    fn content(&self) -> MutexGuard<'_, Content> {
        // Every change leaves the content whole.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stat(&self) -> ObjectStat {
        let content = self.content();
        ObjectStat {
            id: self.id,
            container: content.container,
            size: content.size,
            used: content.pages.len() as u64 * PAGE_BYTES,
            writes: content.writes,
            sealed: content.sealed,
        }
    }

    /// Makes the pages of a range, all or none.
    fn reserve(&self, content: &mut Content, at: u64, end: u64) -> Result<()> {
        let pages = at / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let held = content.pages.range(pages.clone()).count() as u64;
        self.shared.take(pages.end - pages.start - held)?;
        for page in pages {
            content.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        let end = end_of(at, bytes.len() as u64)?;
        let mut content = self.content();
        self.reserve(&mut content, at, end)?;
        let mut done = 0;
        while done < bytes.len() {
            let (page, within) = place(at + done as u64);
            let take = (PAGE_BYTES as usize - within).min(bytes.len() - done);
            let page = content.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
            page[within..within + take].copy_from_slice(&bytes[done..done + take]);
            done += take;
        }
        content.size = content.size.max(end);
        content.changed();
        Ok(())
    }

    fn shape(&self, shape: Shape) -> Result<()> {
        let mut content = self.content();
        match shape {
            Shape::Truncate(size) => self.truncate(&mut content, end_of(size, 0)?),
            Shape::Allocate { at, length, keep_size } => {
                let end = end_of(at, length)?;
                self.reserve(&mut content, at, end)?;
                content.grow(end, keep_size);
            }
            Shape::Punch { at, length } => {
                let end = end_of(at, length)?.min(content.size);
                self.zero(&mut content, at, end);
            }
            Shape::Zero { at, length, keep_size } => {
                let end = end_of(at, length)?;
                let inside = end.min(content.size);
                self.zero(&mut content, at, inside);
                content.grow(end, keep_size);
            }
        }
        content.changed();
        Ok(())
    }

    fn truncate(&self, content: &mut Content, size: u64) {
        if size < content.size {
            let end = content.pages.last_key_value().map_or(0, |(page, _)| (page + 1) * PAGE_BYTES);
            self.zero(content, size, end);
        }
        content.size = size;
    }

    /// Zeroes a range, giving whole pages back.
    fn zero(&self, content: &mut Content, at: u64, end: u64) {
        if end <= at {
            return;
        }
        let pages: Vec<u64> =
            content.pages.range(at / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|(page, _)| *page).collect();
        for page in pages {
            let start = page * PAGE_BYTES;
            let (from, to) = (at.max(start) - start, end.min(start + PAGE_BYTES) - start);
            if (from, to) == (0, PAGE_BYTES) {
                content.pages.remove(&page);
                self.shared.give_back(1);
            } else if let Some(bytes) = content.pages.get_mut(&page) {
                bytes[from as usize..to as usize].fill(0);
            }
        }
    }
}

impl Content {
    fn changed(&mut self) {
        self.writes += 1;
        self.sealed = false;
    }

    fn grow(&mut self, end: u64, keep_size: bool) {
        if !keep_size {
            self.size = self.size.max(end);
        }
    }

    fn read(&self, at: u64, length: usize) -> Bytes {
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            let (page, within) = place(at + done as u64);
            let take = (PAGE_BYTES as usize - within).min(length - done);
            if let Some(page) = self.pages.get(&page) {
                bytes[done..done + take].copy_from_slice(&page[within..within + take]);
            }
            done += take;
        }
        bytes.into()
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        if offset >= self.size {
            return Err(Error::not_found("the offset is at the end or beyond it"));
        }
        let page = offset / PAGE_BYTES;
        match what {
            Seek::Data => {
                let found = self.pages.range(page..).next().map(|(page, _)| (page * PAGE_BYTES).max(offset));
                let none = || Error::not_found("there is no data from there on");
                found.filter(|found| *found < self.size).ok_or_else(none)
            }
            Seek::Hole => {
                let mut hole = page;
                while self.pages.contains_key(&hole) {
                    hole += 1;
                }
                Ok((hole * PAGE_BYTES).max(offset).min(self.size))
            }
        }
    }
}

fn place(byte: u64) -> (u64, usize) {
    (byte / PAGE_BYTES, (byte % PAGE_BYTES) as usize)
}

fn end_of(at: u64, length: u64) -> Result<u64> {
    let end = at.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
    end.ok_or_else(|| Error::new(ErrorKind::TooLarge, "the object would be longer than it may be"))
}

fn stopped(sys: &Sys, permit: &Permit) -> Stopped {
    let granted = permit.granted();
    let withdrawn = granted.withdrawn(permit.watched());
    let ends = sys.clock().moment().tick_of(granted.claims().expires.plus(CLOCK_SKEW_MAX));
    let sys = sys.clone();
    Box::pin(async move {
        tokio::select! {
            () = withdrawn => Error::new(ErrorKind::Revoked, "the right was withdrawn"),
            () = sys.sleep_until(ends) => Error::new(ErrorKind::Expired, "the capability has run out"),
        }
    })
}

/// The bytes of a range of an object in memory.
struct MemorySource {
    object: Arc<Object>,
    permit: Permit,
    at: u64,
    end: u64,
}

#[async_trait]
impl Source for MemorySource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let content = self.object.content();
        let allowed = self.permit.check(content.container, self.object.shared.sys.clock());
        let cut = || Error::new(ErrorKind::Conflict, "the object was cut shorter while it was read");
        let allowed = allowed
            .and_then(|()| if self.at < self.end && content.size < self.end { Err(cut()) } else { Ok(()) });
        if let Err(error) = allowed {
            self.end = self.at;
            return Err(error.op("read").about(self.object.id));
        }
        let length = (self.end - self.at).min(max.clamp(1, PIECE_BYTES_MAX) as u64);
        if length == 0 {
            return Ok(None);
        }
        let piece = Piece::Bytes(content.read(self.at, length as usize));
        self.at += length;
        Ok(Some(piece))
    }

    fn length(&self) -> Option<u64> {
        Some(self.end - self.at)
    }

    fn stopped(&self) -> Stopped {
        stopped(&self.object.shared.sys, &self.permit)
    }
}

#[async_trait]
impl ObjectStore for Memory {
    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()> {
        proof::member(granted, Rights::INSERT, object, self.clock().moment())?;
        let container = granted.claims().container;
        let content = Content { container, pages: BTreeMap::new(), size: 0, writes: 0, sealed: false };
        let (tail, content, shared) =
            (tokio::sync::Mutex::default(), Mutex::new(content), self.shared.clone());
        let made = Object { id: object, tail, content, shared };
        made.reserve(&mut made.content(), 0, end_of(0, length.unwrap_or(0))?)?;
        let mut table = self.shared.table();
        if table.contains_key(&object) {
            return Err(Error::exists("the store has an object of this id").op("make").about(object));
        }
        table.insert(object, Arc::new(made));
        Ok(())
    }

    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>> {
        let found = self.permitted(granted, proof::READING, object, "read")?;
        let (at, length) = range.within(found.content().size);
        let permit = Permit::new(granted, proof::READING, object);
        Ok(Box::new(MemorySource { object: found, permit, at, end: at + length }))
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
        let rights = proof::writing(at);
        let found = self.permitted(granted, rights, object, "write")?;
        let permit = Permit::new(granted, rights, object);
        let pulled = self.pull(&found, &permit, at, data).await;
        let (at, bytes) = pulled.map_err(|error| error.op("write").about(object))?;
        Ok(ObjectWritten { at, bytes, stat: found.stat(), ack: Ack::Applied, verifier: self.verifier() })
    }

    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat> {
        let found = self.permitted(granted, proof::WRITING, object, "shape")?;
        found.shape(shape).map_err(|error| error.op("shape").about(object))?;
        Ok(found.stat())
    }

    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64> {
        let found = self.permitted(granted, proof::SEEKING, object, "seek in")?;
        let sought = found.content().seek(offset, what);
        sought.map_err(|error| error.op("seek in").about(object))
    }

    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64> {
        let source = self.permitted(from.0, proof::READING, from.1, "copy")?;
        let target = self.permitted(to.0, proof::WRITING, to.1, "copy to")?;
        let (at, length) = range.within(source.content().size);
        let overlap = at < offset.saturating_add(length) && offset < at.saturating_add(length);
        if from.1 == to.1 && overlap {
            return Err(Error::invalid("the two ranges of the object overlap").op("copy to").about(to.1));
        }
        let permit = Permit::new(from.0, proof::READING, from.1);
        let mut bytes = MemorySource { object: source, permit, at, end: at + length };
        let permit = Permit::new(to.0, proof::WRITING, to.1);
        let pulled = self.pull(&target, &permit, WriteAt::Offset(offset), &mut bytes).await;
        pulled.map(|(_, bytes)| bytes).map_err(|error| error.op("copy to").about(to.1))
    }

    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        Ok(self.permitted(granted, proof::SEEING, object, "stat")?.stat())
    }

    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier> {
        self.permitted(granted, proof::SYNCING, object, "sync")?;
        Ok(self.verifier())
    }

    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        let found = self.permitted(granted, proof::APPENDING, object, "seal")?;
        found.content().sealed = true;
        Ok(found.stat())
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        let now = self.clock().moment();
        proof::member(from, Rights::REMOVE, object, now)?;
        proof::member(to, Rights::INSERT, object, now)?;
        let table = self.shared.table();
        let found = table.get(&object).ok_or_else(|| absent(object))?;
        let mut content = found.content();
        if content.container != from.claims().container {
            return Err(absent(object));
        }
        content.container = to.claims().container;
        Ok(())
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        proof::member(granted, Rights::REMOVE, object, self.clock().moment())?;
        let mut table = self.shared.table();
        let container = table.get(&object).map(|found| found.content().container);
        if container != Some(granted.claims().container) {
            return Err(absent(object).op("remove"));
        }
        // Who reads it goes on with what it has.
        table.remove(&object);
        Ok(())
    }

    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        use std::ops::Bound::{Excluded, Unbounded};
        proof::listing(granted, self.clock().moment())?;
        let container = granted.claims().container;
        let table = self.shared.table();
        let after = (after.map_or(Unbounded, Excluded), Unbounded);
        let mut members =
            table.range(after).map(|(_, found)| found.stat()).filter(|stat| stat.container == container);
        let objects: Vec<_> = members.by_ref().take(PAGE_ENTRIES_MAX as usize).collect();
        let more = members.next().is_some();
        let next = objects.last().filter(|_| more).map(|last| last.id);
        Ok(ObjectPage { objects, next })
    }

    fn space(&self) -> Result<StoreSpace> {
        let used = self.shared.used.load(Ordering::Relaxed);
        Ok(StoreSpace {
            bytes_total: self.shared.capacity,
            bytes_free: self.shared.capacity.saturating_sub(used),
        })
    }

    fn verifier(&self) -> Verifier {
        Verifier(self.boot)
    }
}
