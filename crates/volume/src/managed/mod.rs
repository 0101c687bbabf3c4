//! A managed volume: names in the metadata engine, bytes in a store.
//!
//! **Problem.** Every request is a walk, a decision and an act that must be one step
//! for everybody else, survive any crash as a whole, and cost one message and, if it
//! must be durable, one flush.
//!
//! **Shape.** A request is one transaction over typed tables; reading requests use a
//! snapshot. Both look through the same [`view::View`], so what a walk shows and what
//! an act decides cannot differ.
//!
//! ```text
//!   FileSystem ─▶ file_system ─┬─ snapshot ─▶ View: locate · decide · list · why
//!                              └─ transaction ─▶ Act: make link rename remove set tag protect
//!                                                 │ one commit: rows, note, audit, replay
//!   bytes ─▶ OpenFile / Stage ─▶ lease ─▶ Granted ─┴▶ inline rows | ObjectStore
//!   in memory: opens, locks, writes under way, the ring of changes
//! ```
//!
//! **Where bytes are.** Up to [`limits::INLINE_BYTES_MAX`] beside the inode, else one
//! object. A write in place that grows past the bound moves them into an object first;
//! nothing moves them back unasked. Each touch of bytes, inline ones too, has a
//! [`Granted`](weft_core::proof::Granted) that the issuer made of a decision.
//!
//! **What survives a crash.** Rows in commit order. Objects are made and flushed before
//! a row refers to them, and removed after a row says that nothing does. An object
//! about to be written in place is marked first, durably: after a crash its size is
//! looked up and its version changes.
//!
//! **Ways to get it wrong.** Deciding outside the transaction that acts: rights change
//! in between. Waiting or asking the store inside one: every writer waits with you.
//! Reading all of a directory: one of 100 million entries must cost no more than one
//! of ten. Doing what must follow a commit in the caller's future, which may be
//! dropped: such acts run in tasks of their own ([`Volume::undropped`]).

mod act;
mod attributes;
mod behind;
mod below;
mod bytes;
mod check;
mod drop_box;
mod feed;
mod file;
mod file_system;
mod files;
mod full;
mod grants;
mod junctions;
mod landing;
mod lease;
mod left;
mod list;
mod locate;
mod locks_kept;
mod names;
mod numbers;
mod opens;
mod protect;
mod recall;
mod rename;
mod restored;
mod settle;
mod source;
mod split;
mod stage;
mod stages;
mod sweep;
mod table;
mod view;
mod why;
mod within;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::sync::Notify;
use weft_core::acl::{Acl, AclEntry, Modes, Who};
use weft_core::attr::Kind;
use weft_core::form::{Ack, At, Call, Verifier};
use weft_core::policy::AuditReads;
use weft_core::proof::Caller;
use weft_core::service::{AuditSubject, Issuer, Memberships, ObjectStore};
use weft_core::{
    CallerName, ContainerId, Error, FileId, ObjectId, Result, Rights, StageId, Tick, VolumeId, limits,
};
use weft_kv::{Engine, NoteKind, Schema, Space, SpaceId, SpaceTxn};
use weft_sys::{Sys, Task};

pub(crate) use self::act::words;
pub(crate) use self::source::{COPY_BYTES, advance, changed_while_read};
pub(crate) use self::table::row;

use self::act::Act;
use self::table::containers::{self, Head, Rules};
use self::table::{drops, inodes, unnamed, volume};
use self::view::View;
use crate::audited::Witness;
use crate::granted::Kept;

pub use self::check::{Junction, PathsOfObjects, check_at_rest, junctions_at_rest, mend, paths_at_rest};
pub use self::full::Unfinished;
pub use self::junctions::Across;
pub(crate) use self::junctions::unserved;
pub use self::restored::after_restore;
pub use self::sweep::Swept;

/// The feed of changes: one note with each, for the volume itself.
pub const CHANGES: NoteKind = NoteKind(1);
/// The audit of writes: one encoded [`AuditRecord`](weft_core::service::AuditRecord)
/// with each, for whoever keeps the audit log.
pub const AUDITS: NoteKind = NoteKind(2);

/// The schema of the volume's tables: what a tool needs to open their space.
pub const SCHEMA: Schema = Schema { version: 1, migrations: &[] };

/// Volumes opened so far.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// Directories on one way to the root; more means that a directory lies below itself.
const DEPTH_MAX: usize = limits::TREE_DEPTH_MAX;

/// What a managed volume works with.
#[derive(Clone)]
pub struct Config {
    /// Clock, randomness, tasks.
    pub sys: Sys,
    /// The engine its tables are in.
    pub engine: Arc<dyn Engine>,
    /// Its part of the engine.
    pub space: SpaceId,
    /// Who signs what it decides.
    pub issuer: Arc<dyn Issuer>,
    /// Who knows in which groups somebody is whom a policy is explained for.
    pub groups: Arc<dyn Memberships>,
    /// Where larger files' bytes are.
    pub store: Arc<dyn ObjectStore>,
    /// The volume's number; 0 is the root of the tree.
    pub volume: VolumeId,
    /// Returns the node as a caller: sweeps, seals and removals are its acts.
    pub node: Arc<dyn Fn() -> Caller + Send + Sync>,
    /// Whether somebody takes the notes of kind [`AUDITS`]. On a node: always. Notes
    /// that nobody takes would in the end stop all writing.
    pub audited: bool,
    /// How long flushes rest that are made because somebody waits to be told of changes, at least and at most:
    /// [`limits::WATCHED_FLUSH_REST`], where time passes by itself.
    pub watched_flush_rest: (Duration, Duration),
}

/// A file system over a metadata engine and an object store.
///
/// Cheap to clone. The background work of a volume ends with the last clone.
#[derive(Clone)]
pub struct Managed {
    volume: Arc<Volume>,
    /// What runs beside the calls ends when nobody can call any more.
    _work: Arc<Background>,
}

struct Background(Vec<Task<()>>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(Task::abort);
    }
}

/// The volume itself, shared by calls, open files and background work.
struct Volume {
    sys: Sys,
    space: Space,
    issuer: Arc<dyn Issuer>,
    groups: Arc<dyn Memberships>,
    store: Arc<dyn ObjectStore>,
    id: VolumeId,
    generation: u32,
    /// Tells it apart from every other volume that this process opens.
    instance: u64,
    node: Arc<dyn Fn() -> Caller + Send + Sync>,
    audited: bool,
    started: Tick,
    numbers: numbers::Numbers,
    policies: Cache<(ContainerId, Head), Arc<Rules>>,
    /// Whether any container is, or since the start was, a drop-box: where none is nobody looks.
    has_boxes: AtomicBool,
    granted: Kept<Head>,
    /// What is said of the entries that gave reads: composing it costs more than the read.
    told: Cache<why::Told, Arc<str>>,
    opens: opens::Opens,
    files: files::Files,
    locks: crate::locks::Locks,
    feed: feed::Feed,
    stagings: Arc<stages::Stagings>,
    /// Until when room was last made on a full disk. Held while it is.
    room_made: tokio::sync::Mutex<Tick>,
    /// Set when a write met a full disk: the worker gives up what rests.
    is_full: AtomicBool,
    /// Objects that are made and that no row refers to yet: not for the sweep.
    making: Mutex<HashMap<ObjectId, ContainerId>>,
    /// Rises with every change of policy or place: who holds a lease looks again.
    policy_changes: AtomicU64,
    policy_changed: Notify,
    /// Leases of credentials that are limited to paths: they look again when names change.
    confined: Arc<std::sync::atomic::AtomicUsize>,
    /// Held while a whole subtree is looked at.
    surveying: tokio::sync::Mutex<()>,
    /// Rises in each transaction that may give a file names in two places: who has looked through
    /// a subtree looks again.
    ties: AtomicU64,
    /// Sessions that took locks, before the last restart or since.
    lockers: locks_kept::Lockers,
    /// Wakes the worker that flushes what somebody waits to be told of.
    to_flush: Notify,
    watched_flush_rest: (Duration, Duration),
    /// Wakes the worker that moves members, labels and garbage.
    to_tidy: Notify,
    /// What that worker failed at.
    stuck: left::Stuck,
}

impl Managed {
    /// Makes a volume: an empty directory over which `administrators` (a group, or one
    /// caller) have every right and nobody else any. `Exists` if there is one.
    pub async fn create(config: Config, administrators: CallerName) -> Result<Self> {
        let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
        let (id, now) = (config.volume, config.sys.clock().now());
        let boot = space.boot().0;
        let act = move |txn: &mut SpaceTxn<'_>| {
            if volume::find(txn)?.is_some() {
                return Err(Error::exists("the volume is there already"));
            }
            let row = volume::Volume { id, generation: 0, administrators: administrators.clone() };
            volume::put(txn, &row)?;
            make_root(txn, id, &administrators, now, boot)
        };
        space.write(Ack::Durable, act).await.map_err(|e| e.op("make the volume"))?;
        Self::open(config).await
    }

    /// Opens a volume that was made before, and mends what a crash left half-done.
    /// `NotFound` if there is none.
    pub async fn open(config: Config) -> Result<Self> {
        let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
        let volume = Volume::assemble(config, space)?;
        volume.mend_after_crash().await?;
        let work =
            [volume.clone().follow_feed()?, volume.clone().flush_behind(), volume.clone().tidy_behind()];
        Ok(Self { volume, _work: Arc::new(Background(work.into())) })
    }
}

fn make_root(
    txn: &mut SpaceTxn<'_>,
    id: VolumeId,
    administrators: &CallerName,
    now: weft_core::Time,
    boot: u64,
) -> Result<()> {
    let serial = FileId::ROOT.serial();
    // Numbers up to the root's are taken.
    volume::lease_past(txn, serial + 1)?;
    let container = ContainerId::new(id, serial);
    let mut root = act::blank(Kind::Directory, container, now);
    (root.mode, root.owner, root.group, root.parent) =
        (0o755, administrators.id(), administrators.id(), serial);
    inodes::add(txn, serial, &root)?;
    inodes::begin_tally(txn, serial, now, now, boot)?;
    let rules = Rules {
        root: serial,
        acl: Acl::new(vec![AclEntry::allow(Who::Caller(administrators.clone()), Rights::ALL)]),
        modes: Modes::default(),
        bytes_max: None,
        audit_reads: AuditReads::default(),
    };
    containers::put(txn, container, Head { serial: 0, epoch: 0, leaving: false }, &rules)
}

impl Witness for Managed {
    fn are_recorded(&self, container: ContainerId) -> bool {
        let volume = &self.volume;
        let find = || {
            let snapshot = volume.space.snapshot()?;
            let head = containers::head(&snapshot, container)?;
            match volume.policies.get(&(container, head)) {
                Some(rules) => Ok(rules.audit_reads),
                None => containers::rules(&snapshot, container).map(|rules| rules.audit_reads),
            }
        };
        find().map_or(true, |reads: AuditReads| reads == AuditReads::All)
    }

    fn settled_by(&self, call: &Call, file: FileId) -> Option<String> {
        // A read that has ended is recorded, however late.
        self.volume.look_whenever(call, |view| view.read_settled_by(file)).ok()
    }

    fn container_of(&self, call: &Call, file: FileId) -> Option<ContainerId> {
        self.volume.look_whenever(call, |view| Ok(view.node(file)?.inode.container)).ok()
    }

    fn found(&self, call: &Call, at: &At) -> AuditSubject {
        let found = self.volume.look_whenever(call, |view| view.subject_at(at));
        let object = at.path.is_empty().then_some(at.base);
        found.unwrap_or_else(|_| AuditSubject { object, ..AuditSubject::default() })
    }

    fn meant_for(&self, call: &Call, stage: StageId) -> Option<At> {
        self.volume.look_whenever(call, |view| view.meant_for(stage)).ok().flatten()
    }
}

impl Volume {
    /// Puts together a volume that was made before. Nothing is read of it but what it is.
    fn assemble(config: Config, space: Space) -> Result<Arc<Self>> {
        let row = volume::find(&space.snapshot()?)?
            .ok_or_else(|| Error::not_found("there is no volume here").op("open the volume"))?;
        if row.id != config.volume {
            return Err(Error::invalid(format!("it is volume {}, not {}", row.id, config.volume))
                .op("open the volume"));
        }
        let lockers = locks_kept::Lockers::of(unnamed::lockers(&space.snapshot()?)?);
        let has_boxes = AtomicBool::new(drops::all(&space.snapshot()?).next().is_some());
        Ok(Arc::new(Self {
            started: config.sys.clock().tick(),
            sys: config.sys,
            space,
            issuer: config.issuer,
            groups: config.groups,
            store: Arc::new(below::Below(config.store)),
            id: row.id,
            generation: row.generation,
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            node: config.node,
            audited: config.audited,
            watched_flush_rest: config.watched_flush_rest,
            numbers: numbers::Numbers::default(),
            policies: Cache::new(limits::POLICIES_CACHED),
            has_boxes,
            granted: Kept::default(),
            told: Cache::new(limits::POLICIES_CACHED),
            opens: opens::Opens::default(),
            files: files::Files::default(),
            locks: crate::locks::Locks::default(),
            feed: feed::Feed::default(),
            stagings: Arc::default(),
            room_made: tokio::sync::Mutex::new(Tick(0)),
            is_full: AtomicBool::new(false),
            making: Mutex::default(),
            policy_changes: AtomicU64::new(0),
            policy_changed: Notify::new(),
            confined: Arc::default(),
            surveying: tokio::sync::Mutex::default(),
            ties: AtomicU64::new(0),
            lockers,
            to_flush: Notify::new(),
            to_tidy: Notify::new(),
            stuck: left::Stuck::default(),
        }))
    }

    /// Returns the name of the engine's present boot.
    fn boot(&self) -> u64 {
        self.space.boot().0
    }

    /// Returns what changes when unsynced bytes or commits may have been lost.
    fn verifier(&self) -> Verifier {
        let store = self.store.verifier().0;
        Verifier(self.boot().rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ store)
    }

    /// Begins a reading request: the caller's lease runs, the deadline has not passed.
    fn look<T>(&self, call: &Call, look: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        call.check(self.sys.clock())?;
        self.look_whenever(call, look)
    }

    /// Goes on with what outlives the deadline of the call that began it.
    fn look_whenever<T>(&self, call: &Call, look: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        let snapshot = self.space.snapshot()?;
        look(&View::committed(self, &snapshot, call))
    }

    /// Makes a change, in one transaction that answers as the call wants it.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        act: impl FnMut(&mut Act<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        call.check(self.sys.clock())?;
        self.sys.within(call.until, self.change_whenever(call, call.ack, act)).await
    }

    /// Makes a change that must be made whether or not somebody waits for it.
    async fn change_whenever<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        ack: Ack,
        mut act: impl FnMut(&mut Act<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (volume, call) = (self.clone(), call.clone());
        let write = self.space.write(ack, move |txn| {
            let (now, wall) = (volume.sys.clock().moment(), volume.sys.clock().now());
            act(&mut Act { volume: &volume, call: &call, now, wall, txn })
        });
        let value = write.await?.0;
        if ack == Ack::Applied && self.feed.is_awaited() {
            self.to_flush.notify_one();
        }
        Ok(value)
    }

    /// Runs work to its end even if whoever waits for it goes away.
    async fn undropped<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        call.check(self.sys.clock())?;
        let task = self.sys.spawn(work);
        self.sys.within(call.until, async { task.await? }).await
    }

    /// Returns a number never given before.
    async fn number(&self) -> Result<u64> {
        self.numbers.take(&self.space).await
    }

    /// Returns the id of an object never made before.
    async fn new_object(&self) -> Result<ObjectId> {
        Ok(ObjectId::of_file(FileId::new(self.id, self.number().await?, self.generation), 1))
    }

    /// Tells the issuer and all who hold leases that policy or place has changed. The
    /// change must be on disk.
    fn policy_has_changed(&self, epochs: &[(ContainerId, u64)]) {
        for (container, epoch) in epochs {
            self.issuer.begin_epoch(*container, *epoch);
        }
        self.policy_changes.fetch_add(1, Ordering::AcqRel);
        self.policy_changed.notify_waiters();
    }

    /// Tells those who hold leases that reach only some paths that names have changed.
    fn names_have_changed(&self) {
        if self.confined.load(Ordering::Acquire) > 0 {
            self.policy_has_changed(&[]);
        }
    }

    /// Keeps the sweep off an object until the guard is dropped.
    fn making(self: &Arc<Self>, object: ObjectId, label: ContainerId) -> Making {
        self.making.lock().unwrap_or_else(PoisonError::into_inner).insert(object, label);
        Making { volume: self.clone(), object }
    }
}

/// An object that no row refers to yet.
struct Making {
    volume: Arc<Volume>,
    object: ObjectId,
}

impl Drop for Making {
    fn drop(&mut self) {
        self.volume.making.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.object);
    }
}

#[cfg(test)]
mod tests;
