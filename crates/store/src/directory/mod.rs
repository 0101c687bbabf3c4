//! The default store: one plain file per object.

mod backup;
mod check;
mod digests;
mod files;
mod live;
mod read;
mod rows;
mod scrub;
mod seal;
mod seals;
mod shape;
mod tend;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use weft_core::form::{Ack, Range, Seek, Shape, Source, Verifier, WriteAt};
use weft_core::proof::Granted;
use weft_core::service::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, Scrub, StoreSpace};
use weft_core::{Clock, ContainerId, Error, ErrorKind, ObjectId, Result, Rights, limits};
use weft_kv::{Engine, Order, Read, Space, Txn, prefix_end};
use weft_sys::{Disk, FileSize, Sys};

use self::files::Files;
use self::live::{Live, Phase, Was};
use self::rows::{FILES, FileNumber, OBJECTS, ObjectRow, REMOVED, SEALS, SPARES, WRITING};
use self::rows::{member_key, object_at, object_key};
use self::scrub::Scrubber;
use crate::proof::{self, Permit, absent};

pub use self::backup::{BackedUp, Copied, Restored, restore};
pub use self::check::Check;
pub use self::rows::{SCHEMA, SPACE};

/// How a directory store behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Compare every sealed block with its seal each time it is served, not only when it comes
    /// from the disk.
    pub verify_always: bool,
    /// The caller commits durably to the same metadata engine after each `sync` and tells nobody
    /// before: `sync` then flushes only the bytes, and that commit brings the store's records
    /// along, since the engine's log is in order. One flush less for each durable object.
    pub records_flushed_by_caller: bool,
    /// Bytes that the scrubber reads in a second at most; 0 has it rest.
    pub scrub_bytes_per_second: u64,
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks compared with their seals.
    pub blocks_checked: u64,
    /// Blocks that did not match, each time one was asked for.
    pub blocks_corrupt: u64,
    /// Objects sealed.
    pub seals: u64,
    /// Flushes of objects' bytes.
    pub flushes: u64,
    /// Flushes that failed.
    pub flushes_failed: u64,
}

#[derive(Default)]
struct Counters {
    blocks_checked: AtomicU64,
    blocks_corrupt: AtomicU64,
    seals: AtomicU64,
    flushes: AtomicU64,
    flushes_failed: AtomicU64,
}

/// Objects as files of one directory. Dropping it abandons what is under way; [`Directory::close`]
/// seals what is open first, so that the next start has nothing to look at again.
pub struct Directory {
    inner: Arc<Inner>,
}

/// Locks over objects while they are taken up, made or removed: by id, modulo this.
const SHARDS: usize = 64;

struct Inner {
    sys: Sys,
    space: Space,
    files: Files,
    options: Options,
    /// Random: no two starts have the same.
    boot: u64,
    counters: Counters,
    lookups: AtomicU64,
    /// Pieces of objects that were read or written for others.
    pieces: AtomicU64,
    live: Mutex<HashMap<ObjectId, Arc<Live>>>,
    /// Objects that are open for writing: kept in memory until they are sealed.
    writing: Mutex<BTreeMap<ObjectId, Arc<Live>>>,
    shards: [tokio::sync::Mutex<()>; SHARDS],
    /// Blocks that are hashed at once for whoever asks for digests.
    digesting: Arc<tokio::sync::Semaphore>,
    wake: Arc<tokio::sync::Notify>,
    /// Wakes whoever flushes what is written.
    written: Arc<tokio::sync::Notify>,
    /// Whether objects that were open when the node stopped are still to be looked at.
    unsure_at_start: AtomicBool,
    closing: tokio::sync::watch::Sender<bool>,
    scrubber: Scrubber,
}

impl Directory {
    /// Opens the store below `disk`, with its records in `engine`. Objects that were open for
    /// writing when the node stopped are served at once and sealed anew in the background.
    ///
    /// `disk` is the store's own; the name of its directory must be on disk already.
    pub async fn open(
        sys: Sys,
        disk: Arc<dyn Disk>,
        engine: Arc<dyn Engine>,
        options: Options,
    ) -> Result<Self> {
        let space = Space::open(engine, SPACE, &SCHEMA).await?;
        let files = Files::open(disk, &space, sys.clock().tick()).await?;
        let boot = sys.random().u64();
        let scrubber = Scrubber::open(&space, options.scrub_bytes_per_second, sys.clock().tick())?;
        let inner = Arc::new(Inner {
            sys,
            space,
            files,
            options,
            boot,
            counters: Counters::default(),
            lookups: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            live: Mutex::default(),
            writing: Mutex::default(),
            shards: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            digesting: Arc::new(tokio::sync::Semaphore::new(limits::BLOCK_DIGESTS_AT_ONCE)),
            wake: Arc::default(),
            written: Arc::default(),
            unsure_at_start: AtomicBool::new(true),
            closing: tokio::sync::watch::Sender::new(false),
            scrubber,
        });
        tend::start(&inner);
        scrub::start(&inner);
        Ok(Self { inner })
    }

    /// Seals everything that is open and lets go. Running reads end with `Unavailable`.
    pub async fn close(&self) -> Result<()> {
        self.inner.closing.send_replace(true);
        let mut failed = self.inner.seal_unsure().await.err();
        for live in self.inner.writing_now() {
            failed = self.inner.seal(&live).await.err().or(failed);
        }
        self.inner.wake_all();
        failed = self.inner.note_round().await.err().or(failed);
        self.inner.space.flush().await?;
        failed.map_or(Ok(()), Err)
    }

    /// Waits until no object is left that was open for writing when the node stopped, and no file
    /// of a removed object. For tests, and before a backup.
    pub async fn settle(&self) -> Result<()> {
        self.inner.seal_unsure().await?;
        while self.inner.files.removed_since().is_some() {
            self.inner.files.reap(&self.inner.sys, &self.inner.space).await?;
        }
        Ok(())
    }

    /// Looks at every structure: records, files and, if asked, every block.
    pub async fn check(&self, how: Check) -> Result<weft_core::service::CheckReport> {
        check::check(&self.inner, how).await
    }

    /// Returns how far the scrubber is, and what it found damaged.
    pub fn scrub(&self) -> Result<Scrub> {
        self.inner.scrubbed()
    }

    /// Has the scrubber begin a round, after the one that is under way if one is. `Conflict` if it is switched off.
    pub fn scrub_now(&self) -> Result<()> {
        self.inner.scrubber.ask()
    }

    /// Sets how many bytes the scrubber reads in a second at most; 0 has it rest.
    pub fn set_scrub_rate(&self, bytes_per_second: u64) {
        self.inner.scrubber.set_rate(bytes_per_second);
    }

    /// Returns what was done since the start.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Counts {
            blocks_checked: read(&counters.blocks_checked),
            blocks_corrupt: read(&counters.blocks_corrupt),
            seals: read(&counters.seals),
            flushes: read(&counters.flushes),
            flushes_failed: read(&counters.flushes_failed),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.inner.closing.send_replace(true);
        self.inner.wake_all();
    }
}

impl Inner {
    fn clock(&self) -> &dyn Clock {
        self.sys.clock()
    }

    /// Wakes all who do the store's own work.
    fn wake_all(&self) {
        self.wake.notify_one();
        self.written.notify_one();
        self.scrubber.wake();
    }

    fn shard(&self, object: ObjectId) -> &tokio::sync::Mutex<()> {
        let mixed = (object.0 ^ object.0 >> 64) as u64;
        &self.shards[(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS]
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ObjectId, Arc<Live>>> {
        // Every change leaves the table whole.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing_table(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Arc<Live>>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing_now(&self) -> Vec<Arc<Live>> {
        self.writing_table().values().cloned().collect()
    }

    fn known(&self, object: ObjectId) -> Option<Arc<Live>> {
        let live = self.table().get(&object).cloned()?;
        live.used.store(self.lookups.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(live)
    }

    /// Returns an object that the proof speaks of, taking it up if it is not in use.
    async fn object(&self, granted: &Granted, object: ObjectId) -> Result<Arc<Live>> {
        let live = match self.known(object) {
            Some(live) => live,
            None => self.take_up(object).await.inspect_err(|error| {
                if error.kind() != ErrorKind::NotFound {
                    self.scrubber.suspect(object, 0);
                }
            })?,
        };
        if live.label() == granted.claims().container { Ok(live) } else { Err(absent(object)) }
    }

    async fn take_up(&self, object: ObjectId) -> Result<Arc<Live>> {
        let _shard = self.shard(object).lock().await;
        if let Some(live) = self.known(object) {
            return Ok(live);
        }
        let (row, writing) = {
            let records = self.space.snapshot()?;
            let row = ObjectRow::read(&records, object)?.ok_or_else(|| absent(object))?;
            (row, records.get(&object_key(WRITING, object))?.is_some())
        };
        let row = ObjectRow { writes: if row.boot == self.boot { row.writes } else { 0 }, ..row };
        let file = self.files.open_object(row.file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => lost_file(object, row.file).caused_by(error),
            _ => error,
        })?;
        let was = if writing { Was::Writing { size: file.len()? } } else { Was::Sealed };
        let live = Arc::new(Live::new(object, &row, file, was, self.clock().tick()));
        self.enter(&live);
        Ok(live)
    }

    /// Puts an object among those in use. The caller holds its shard.
    fn enter(&self, live: &Arc<Live>) {
        live.used.store(self.lookups.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if live.state().phase == Phase::Writing {
            self.writing_table().insert(live.id, live.clone());
            self.wake_all();
        }
        let mut table = self.table();
        table.insert(live.id, live.clone());
        if table.len() > limits::STORE_FILES_OPEN_MAX {
            evict(&mut table);
        }
    }

    /// Takes an object out of use. The caller holds its shard.
    fn leave(&self, object: ObjectId) {
        self.writing_table().remove(&object);
        self.table().remove(&object);
    }

    fn verifier(&self) -> Verifier {
        let failed = self.counters.flushes_failed.load(Ordering::Acquire);
        let records = self.space.boot().0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Verifier(self.boot.wrapping_add(failed) ^ records)
    }

    fn stat(&self, live: &Live) -> Result<ObjectStat> {
        let used = live.file.measure()?.used;
        let state = live.state();
        Ok(ObjectStat {
            id: live.id,
            container: live.label(),
            size: state.size,
            used,
            writes: state.writes,
            sealed: state.phase == Phase::Sealed && state.unverified == 0,
        })
    }

    /// Records a new object with a spare file as its own.
    async fn record_new(&self, row: ObjectRow, object: ObjectId) -> Result<()> {
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            if txn.get(&object_key(OBJECTS, object))?.is_some() {
                return Err(Error::exists("the store has an object of this id").about(object));
            }
            txn.put(&object_key(OBJECTS, object), &row.encode())?;
            txn.put(&member_key(row.container, object), &[])?;
            txn.put(&object_key(WRITING, object), &[])?;
            txn.put(&row.file.key(FILES), &object.0.to_be_bytes())?;
            txn.delete(&row.file.key(SPARES))
        };
        self.space.write(Ack::Applied, act).await.map(|_| ())
    }

    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()> {
        proof::member(granted, Rights::INSERT, object, self.clock().moment())?;
        if length.is_some_and(|length| length > limits::FILE_BYTES_MAX) {
            return Err(Error::new(ErrorKind::TooLarge, "an object cannot be that long").about(object));
        }
        self.make_room_for_writer().await?;
        let _shard = self.shard(object).lock().await;
        let spare = self.files.take_spare(&self.sys, &self.space, &self.wake).await?;
        let container = granted.claims().container;
        let row =
            ObjectRow { container, file: spare.number(), size: 0, unverified: 0, writes: 0, boot: self.boot };
        let file = spare.open(length)?;
        let number = spare.used();
        self.record_new(row, object).await.inspect_err(|_| self.files.unused(number))?;
        let live = Arc::new(Live::new(object, &row, file, Was::MadeNow, self.clock().tick()));
        self.enter(&live);
        Ok(())
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        proof::member(granted, Rights::REMOVE, object, self.clock().moment())?;
        let _shard = self.shard(object).lock().await;
        let label = granted.claims().container;
        // Its record is enough: what is lost or damaged of an object keeps nobody from removing the rest.
        let (number, _) =
            self.space.write(Ack::Applied, move |txn| delete_object(txn, object, label)).await?;
        let live = self.table().get(&object).cloned();
        live.inspect(|live| live.state().removed = true);
        self.leave(object);
        self.files.removed(number, self.clock().tick());
        self.wake.notify_one();
        Ok(())
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        let now = self.clock().moment();
        proof::member(from, Rights::REMOVE, object, now)?;
        proof::member(to, Rights::INSERT, object, now)?;
        let live = self.object(from, object).await?;
        let _shard = self.shard(object).lock().await;
        let (old, new) = (from.claims().container, to.claims().container);
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            let row = ObjectRow::read(txn, object)?.filter(|row| row.container == old);
            let row = row.ok_or_else(|| absent(object))?;
            txn.delete(&member_key(old, object))?;
            txn.put(&member_key(new, object), &[])?;
            txn.put(&object_key(OBJECTS, object), &ObjectRow { container: new, ..row }.encode())
        };
        self.space.write(Ack::Applied, act).await?;
        live.set_label(new);
        live.state().recorded = false;
        Ok(())
    }

    fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        proof::listing(granted, self.clock().moment())?;
        let container = granted.claims().container;
        let records = self.space.snapshot()?;
        let all = member_key(container, ObjectId(0));
        let from = after.map_or(all.to_vec(), |after| [&member_key(container, after)[..], &[0]].concat());
        let mut objects = Vec::new();
        for row in records.scan(&from, &prefix_end(&all[..9]), Order::Rising) {
            let object = object_at(&row?.0, 9)?;
            if objects.len() == limits::PAGE_ENTRIES_MAX as usize {
                let next = objects.last().map(|last: &ObjectStat| last.id);
                return Ok(ObjectPage { objects, next });
            }
            if let Some(row) = ObjectRow::read(&records, object)? {
                let writing = records.get(&object_key(WRITING, object))?.is_some();
                objects.extend(self.stat_listed(object, &row, writing)?);
            }
        }
        Ok(ObjectPage { objects, next: None })
    }

    /// Returns what is known of an object without taking it up; `None` if it is gone meanwhile. One whose file is
    /// lost, or is no file, is an object all the same: of no use, but nobody could remove what is not told.
    fn stat_listed(&self, object: ObjectId, row: &ObjectRow, writing: bool) -> Result<Option<ObjectStat>> {
        let live = self.table().get(&object).cloned();
        if let Some(live) = live {
            return self.stat(&live).map(|stat| (stat.container == row.container).then_some(stat));
        }
        let size = match self.files.measure(row.file) {
            Ok(size) => size,
            Err(_) if ObjectRow::read(&self.space.snapshot()?, object)?.is_none() => return Ok(None),
            Err(_) => FileSize { len: 0, used: 0 },
        };
        Ok(Some(ObjectStat {
            id: object,
            container: row.container,
            size: if writing { size.len } else { row.size },
            used: size.used,
            writes: if row.boot == self.boot { row.writes } else { 0 },
            sealed: !writing && row.unverified == 0,
        }))
    }
}

/// Forgets the objects longest unused, an eighth of all, that nobody holds.
fn evict(table: &mut HashMap<ObjectId, Arc<Live>>) {
    let idle = table.values().filter(|live| Arc::strong_count(live) == 1);
    let mut idle: Vec<_> = idle.map(|live| (live.used.load(Ordering::Relaxed), live.id)).collect();
    let count = (limits::STORE_FILES_OPEN_MAX / 8).min(idle.len());
    idle.sort_unstable();
    for (_, object) in &idle[..count] {
        table.remove(object);
    }
}

/// Takes every record of an object away and leaves one of its file, to be removed. Returns which that is.
fn delete_object(
    txn: &mut weft_kv::SpaceTxn<'_>,
    object: ObjectId,
    label: ContainerId,
) -> Result<FileNumber> {
    let row = ObjectRow::read(txn, object)?.filter(|row| row.container == label);
    let row = row.ok_or_else(|| absent(object))?;
    let seals = object_key(SEALS, object);
    let seals: Result<Vec<_>> =
        txn.scan(&seals, &prefix_end(&seals), Order::Rising).map(|row| row.map(|(key, _)| key)).collect();
    for key in seals? {
        txn.delete(&key)?;
    }
    txn.delete(&object_key(OBJECTS, object))?;
    txn.delete(&object_key(WRITING, object))?;
    txn.delete(&member_key(row.container, object))?;
    txn.delete(&row.file.key(FILES))?;
    txn.put(&row.file.key(REMOVED), &[])?;
    Ok(row.file)
}

fn lost_file(object: ObjectId, number: FileNumber) -> Error {
    Error::corrupt(format!("the object's file {} is missing", files::path(number)))
        .about(object)
        .hint("weft fsck; restore the object from a backup")
}

#[async_trait]
impl ObjectStore for Directory {
    async fn make(&self, granted: &Granted, object: ObjectId, length: Option<u64>) -> Result<()> {
        self.inner.make(granted, object, length).await.map_err(|error| error.op("make").about(object))
    }

    async fn read(&self, granted: &Granted, object: ObjectId, range: Range) -> Result<Box<dyn Source>> {
        let live = self.permitted(granted, proof::READING, object, "read").await?;
        let permit = Permit::new(granted, proof::READING, object);
        Ok(Box::new(read::ObjectSource::new(&self.inner, live, permit, range)))
    }

    async fn digests(&self, granted: &Granted, object: ObjectId, block: u64) -> Result<Vec<[u8; 32]>> {
        let live = self.permitted(granted, proof::READING, object, "read").await?;
        let permit = Permit::new(granted, proof::READING, object);
        let digests = self.inner.digests(&live, &permit, block).await;
        digests.map_err(|error| error.op("read").about(object))
    }

    async fn write(
        &self,
        granted: &Granted,
        object: ObjectId,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<ObjectWritten> {
        let rights = proof::writing(at);
        let live = self.permitted(granted, rights, object, "write").await?;
        let permit = Permit::new(granted, rights, object);
        let pulled = self.inner.pull(&live, &permit, at, data).await;
        pulled.map_err(|error| error.op("write").about(object))
    }

    async fn shape(&self, granted: &Granted, object: ObjectId, shape: Shape) -> Result<ObjectStat> {
        let live = self.permitted(granted, proof::WRITING, object, "shape").await?;
        self.inner.shape(&live, shape).await.map_err(|error| error.op("shape").about(object))?;
        self.inner.stat(&live)
    }

    async fn seek(&self, granted: &Granted, object: ObjectId, offset: u64, what: Seek) -> Result<u64> {
        let live = self.permitted(granted, proof::SEEKING, object, "seek in").await?;
        shape::seek(&live, offset, what).map_err(|error| error.op("seek in").about(object))
    }

    async fn copy(
        &self,
        from: (&Granted, ObjectId),
        range: Range,
        to: (&Granted, ObjectId),
        offset: u64,
    ) -> Result<u64> {
        let source = self.permitted(from.0, proof::READING, from.1, "copy").await?;
        let target = self.permitted(to.0, proof::WRITING, to.1, "copy to").await?;
        let permits = (Permit::new(from.0, proof::READING, from.1), Permit::new(to.0, proof::WRITING, to.1));
        let copied = self.inner.copy((source, permits.0), range, (&target, &permits.1), offset).await;
        copied.map_err(|error| error.op("copy to").about(to.1))
    }

    async fn stat(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        let live = self.permitted(granted, proof::SEEING, object, "stat").await?;
        self.inner.stat(&live)
    }

    async fn sync(&self, granted: &Granted, object: ObjectId) -> Result<Verifier> {
        let live = self.permitted(granted, proof::SYNCING, object, "sync").await?;
        self.inner.sync(&live).await.map_err(|error| error.op("sync").about(object))
    }

    async fn seal(&self, granted: &Granted, object: ObjectId) -> Result<ObjectStat> {
        let live = self.permitted(granted, proof::APPENDING, object, "seal").await?;
        self.inner.seal(&live).await.map_err(|error| error.op("seal").about(object))?;
        self.inner.stat(&live)
    }

    async fn relabel(&self, from: &Granted, to: &Granted, object: ObjectId) -> Result<()> {
        let (inner, from, to) = (self.inner.clone(), from.clone(), to.clone());
        // What follows the commit is done whoever goes away meanwhile; below too.
        let task = self.inner.sys.spawn(async move { inner.relabel(&from, &to, object).await });
        task.await.and_then(|done| done).map_err(|error| error.op("relabel").about(object))
    }

    async fn remove(&self, granted: &Granted, object: ObjectId) -> Result<()> {
        let (inner, granted) = (self.inner.clone(), granted.clone());
        let task = self.inner.sys.spawn(async move { inner.remove(&granted, object).await });
        task.await.and_then(|done| done).map_err(|error| error.op("remove").about(object))
    }

    async fn list(&self, granted: &Granted, after: Option<ObjectId>) -> Result<ObjectPage> {
        self.inner.list(granted, after).map_err(|error| error.op("list"))
    }

    fn space(&self) -> Result<StoreSpace> {
        let space = self.inner.files.space()?;
        Ok(StoreSpace { bytes_total: space.total, bytes_free: space.free })
    }

    fn verifier(&self) -> Verifier {
        self.inner.verifier()
    }
}

impl Directory {
    /// Returns the object, if the proof allows one of `rights` on it.
    async fn permitted(
        &self,
        granted: &Granted,
        rights: &[Rights],
        object: ObjectId,
        op: &'static str,
    ) -> Result<Arc<Live>> {
        let allowed = proof::any(granted, rights, object, self.inner.clock().moment());
        allowed.map_err(|error| error.op(op).about(object))?;
        self.inner.object(granted, object).await.map_err(|error| error.op(op))
    }
}
