//! The engine that needs nothing installed: a log, an overlay in memory and a B-tree, in one
//! directory.
//!
//! ```text
//!   kv/lock        held while open
//!   kv/tree        everything up to some commit (redb)
//!   kv/log-0001 …  every commit after it, and some before
//! ```

mod backup;
mod batch;
mod company;
mod desk;
mod feed;
mod held;
mod log;
mod overlay;
mod queue;
mod record;
mod resident;
mod rows;
mod tree;
mod view;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use weft_core::form::Ack;
use weft_core::limits::{
    KV_COMPANY_WAIT, KV_FLUSH_ASIDE, KV_FLUSH_ASIDE_FROM, KV_FLUSH_AT_ONCE, KV_FOLD_BYTES,
    KV_LOG_SEGMENT_BYTES, KV_OVERLAY_BYTES_MAX, KV_TREE_CACHE_BYTES, KV_TREE_CACHE_BYTES_MAX,
    KV_TREE_CACHE_BYTES_MIN, KV_TREE_CACHE_SHARE,
};
use weft_core::{Error, Result};
use weft_sys::disk::DiskLock;
use weft_sys::{Disk, Sys, process};

use self::desk::{Desk, Wish, again};
use self::feed::{Feeds, Subscription, all_counts};
use self::held::Key;
use self::log::Log;
use self::overlay::Overlay;
use self::queue::Queue;
use self::tree::{Opened, Tree};
use self::view::{EmbeddedSnapshot, Published, View};
use self::writer::Writer;
use crate::engine::{
    Boot, Commit, Engine, NoteKind, NotePosition, Notes, Order, Snapshot, Supports, WriteFn,
};

/// The first byte of the engine's own keys.
const OWN: u8 = 0xff;
const LOCK: &str = "lock";

/// What the files begin with that the engine writes beside its tree: those of the log, and backups.
pub const FILE_FORMATS: [&[u8]; 2] = [record::SEGMENT_MAGIC, backup::MAGIC];
/// The format of the tree that it writes.
pub const TREE_FORMAT: u64 = tree::FORMAT_NOW;

/// Sizes of an embedded engine. The defaults are those of `weft_core::limits`; tests shrink them
/// so that every boundary is crossed often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes in a log segment.
    pub segment_bytes: u64,
    /// Bytes changed in memory after which they are folded into the tree.
    pub fold_bytes: usize,
    /// Bytes changed in memory after which writers wait for the fold.
    pub overlay_bytes_max: usize,
    /// Bytes of the tree, as rows and as pages, kept in memory.
    pub cache_bytes: usize,
    /// How long a durable transaction waits for others that came lately, to share its flush.
    pub company_wait: Duration,
    /// A caller that is alone flushes by itself while flushes take less than this; zero leaves
    /// everything to the writer.
    pub flush_at_once: Duration,
    /// A flush that so many wait for is made by another thread, while the writer goes on with what comes next.
    pub flush_aside: usize,
    /// So is any flush while they take this long.
    pub flush_aside_from: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: KV_LOG_SEGMENT_BYTES,
            fold_bytes: KV_FOLD_BYTES,
            overlay_bytes_max: KV_OVERLAY_BYTES_MAX,
            cache_bytes: KV_TREE_CACHE_BYTES,
            company_wait: KV_COMPANY_WAIT,
            flush_at_once: KV_FLUSH_AT_ONCE,
            flush_aside: KV_FLUSH_ASIDE,
            flush_aside_from: KV_FLUSH_ASIDE_FROM,
        }
    }
}

impl Options {
    /// Returns the defaults for the machine we are on: as much of the tree as fits into a share of the
    /// memory that this process may use is kept there.
    #[must_use]
    pub fn of_machine() -> Self {
        Self::within(process::memory())
    }

    fn within(memory: u64) -> Self {
        let cache = (memory / KV_TREE_CACHE_SHARE).clamp(KV_TREE_CACHE_BYTES_MIN, KV_TREE_CACHE_BYTES_MAX);
        Self { cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX), ..Self::default() }
    }
}

/// An engine in a directory of this node, open. Dropping it flushes soon; [`Engine::close`]
/// waits for that, and spares the next start the replay.
pub struct Embedded {
    sys: Sys,
    queue: Queue,
    published: Arc<Published>,
    feeds: Arc<Feeds>,
    boot: Arc<AtomicU64>,
    failed: Arc<OnceLock<Error>>,
}

impl Embedded {
    /// Opens the engine on `disk`, which is its alone, or makes a new one if that is empty.
    /// Blocks while the log is replayed, for well under a second.
    ///
    /// `Busy`: another process has it open. `Corrupt`: damage, and where. `Unsupported`: a newer
    /// program wrote it.
    ///
    /// # Panics
    /// In a simulation, if called outside a tokio runtime.
    pub fn open(sys: Sys, disk: Arc<dyn Disk>, options: Options) -> Result<Self> {
        let lock = disk.lock(LOCK)?;
        let opened = open_tree(&sys, &disk, options)?;
        let mut overlay = Overlay::default();
        let applied = opened.view.applied;
        let log = Log::open(
            disk.clone(),
            sys.clone(),
            opened.identity,
            applied,
            options.segment_bytes,
            &mut |commit, key, value| overlay.replay(commit, Key::new(&key), value),
        )?;
        let visible = log.flushed();
        let view = View { active: Arc::new(overlay), frozen: None, tree: Arc::new(opened.view) };
        let notes = all_counts(&view, visible)?;
        let feeds = Arc::new(Feeds::default());
        feeds.flushed(&notes);
        let published = Arc::new(Published::new(view, visible));
        let boot = Arc::new(AtomicU64::new(sys.random().u64()));
        let failed = Arc::<OnceLock<Error>>::default();
        let (queue, shared, messages) = Queue::new(Desk {
            sys: sys.clone(),
            options,
            log,
            published: published.clone(),
            feeds: feeds.clone(),
            boot: boot.clone(),
            failed: failed.clone(),
            notes,
            state: desk::State::default(),
            _lock: lock,
        });
        let tree = opened.tree;
        let (state, told) = (writer::State::default(), feeds.clone());
        let work = Writer { sys: sys.clone(), disk, tree, feeds: told, shared, messages, state };
        drop(sys.dedicated("weft-kv", work.run())?);
        Ok(Self { sys, queue, published, feeds, boot, failed })
    }

    /// Checks every byte that a closed engine on `disk` stands on: the pages of the tree against
    /// their checksums, each row, and the log. `Corrupt` says what was found first. Takes as long
    /// as reading it all.
    pub fn check(sys: &Sys, disk: &Arc<dyn Disk>, options: Options) -> Result<Commit> {
        let _lock: Box<dyn DiskLock> = disk.lock(LOCK)?;
        let opened = Tree::open(&**disk, options.cache_bytes)?
            .ok_or_else(|| Error::not_found("there is no metadata engine here"))?;
        // The check wants the tree for itself.
        drop(opened.view);
        opened.tree.check_pages()?;
        let view = opened.tree.view()?;
        let mut rows = view.cursor(&[], &[], Order::Rising);
        while let Some(row) = rows.next() {
            row?;
        }
        let (disk, sys) = (disk.clone(), sys.clone());
        let log =
            Log::open(disk, sys, opened.identity, view.applied, options.segment_bytes, &mut |_, _, _| {})?;
        Ok(Commit(log.appended()))
    }

    /// Makes an engine on the empty `into` from the backup on `from`. Every byte of the backup is
    /// checked; a crash or damage leaves no engine.
    pub fn restore(sys: &Sys, from: &dyn Disk, into: &Arc<dyn Disk>, options: Options) -> Result<Commit> {
        let _lock: Box<dyn DiskLock> = into.lock(LOCK)?;
        if Tree::open(&**into, options.cache_bytes)?.is_some() {
            return Err(Error::exists("there is an engine already").op("restore"));
        }
        backup::restore(sys, from, into, options)
    }
}

/// Opens the tree; where there is none, makes the log and then the tree: a tree without a log is
/// damage, never an engine that was not finished. (Opening the log flushes the tree's name.)
fn open_tree(sys: &Sys, disk: &Arc<dyn Disk>, options: Options) -> Result<Opened> {
    if let Some(opened) = Tree::open(&**disk, options.cache_bytes)? {
        return Ok(opened);
    }
    let identity = sys.random().u64();
    Log::make(disk.clone(), sys.clone(), identity, 1, options.segment_bytes)?;
    Tree::make(&**disk, options.cache_bytes, identity, |_| Ok(()))?;
    Tree::open(&**disk, options.cache_bytes)?
        .ok_or_else(|| Error::internal("a tree that was just made is gone"))
}

#[async_trait]
impl Engine for Embedded {
    fn supports(&self) -> Supports {
        Supports { shared: false, backup: true }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(EmbeddedSnapshot::take(&self.published)))
    }

    async fn write(&self, ack: Ack, act: WriteFn) -> Result<Commit> {
        self.queue.serve(Wish::Write { ack, act }).await
    }

    async fn flush(&self) -> Result<Commit> {
        self.queue.serve(Wish::Flush).await
    }

    fn notes(&self, kind: NoteKind) -> Result<Box<dyn Notes>> {
        let subscription =
            Subscription::begin(self.feeds.clone(), self.published.clone(), self.queue.clone(), kind)?;
        Ok(Box::new(subscription))
    }

    fn last_note(&self, kind: NoteKind) -> Result<Option<NotePosition>> {
        let counts = EmbeddedSnapshot::take(&self.published).note_counts(kind)?;
        Ok((counts.last > counts.acked).then_some(NotePosition(counts.last)))
    }

    async fn backup(&self, into: Arc<dyn Disk>) -> Result<Commit> {
        self.flush().await?;
        let snapshot = EmbeddedSnapshot::take(&self.published);
        self.sys.blocking(move || backup::write(&snapshot, &*into)).await?
    }

    fn boot(&self) -> Boot {
        Boot(self.boot.load(Ordering::SeqCst))
    }

    fn failed(&self) -> Option<Error> {
        self.failed.get().map(again)
    }

    async fn close(&self) -> Result<()> {
        self.queue.close().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_machine_keeps_more_of_the_tree_within_bounds() {
        let kept = |memory: u64| Options::within(memory).cache_bytes as u64;
        assert_eq!(kept(2 << 30), 128 << 20);
        assert_eq!(kept(32 << 30), 2 << 30);
        assert_eq!([kept(0), kept(256 << 20)], [KV_TREE_CACHE_BYTES_MIN; 2]);
        assert_eq!([kept(1 << 40), kept(u64::MAX)], [KV_TREE_CACHE_BYTES_MAX; 2]);
    }
}
