//! The B-tree (redb) that the overlay is folded into, on a disk of `sys`.
//!
//! It is only ever committed by a fold, durably and in two phases, with its allocator's state
//! beside it ("quick repair"): so a start after a crash reads a few pages, whatever the size, and
//! the log replays the rest. Each row carries a checksum of its own, because the tree checks its
//! pages only when it is asked to.

mod quiet;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use twox_hash::XxHash3_64;
use weft_core::limits::KV_ROWS_AHEAD;
use weft_core::{Error, ErrorKind, Result};
use weft_sys::{Disk, DiskFile, FlushSite, Open};

use super::held::Key;
use super::overlay::Overlay;
use super::resident::Resident;
use crate::engine::{Order, Row};
use quiet::quietly;

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
const FACTS: TableDefinition<'static, &str, u64> = TableDefinition::new("facts");
const APPLIED: &str = "applied";
const FORMAT: &str = "format";
const IDENTITY: &str = "identity";

/// The layout of tree and log that this code reads and writes.
pub(super) const FORMAT_NOW: u64 = 2;
const NAME: &str = "tree";
const NAME_UNFINISHED: &str = "tree.new";
const CHECK_BYTES: usize = 4;
/// Rows that a cursor reads at once: few at first, for short scans.
const CURSOR_FIRST: usize = 2;
const CURSOR_MOST: usize = 64;
/// Bytes of a chunk, but for its last row.
const CURSOR_BYTES: usize = 16 << 10;

/// The tree, and the file it lies in.
pub(super) struct Tree {
    file: Arc<dyn DiskFile>,
    cache_bytes: usize,
    resident: Arc<Resident>,
    opened: Mutex<OpenedFile>,
}

/// The tree's file as it is open now.
#[derive(Default)]
struct OpenedFile {
    /// `None` after something failed and until the tree has been opened anew.
    database: Option<Database>,
    /// How often it was opened.
    times: u64,
    /// Nobody is to open it again.
    closed: bool,
}

/// The tree as a fold left it.
pub(super) struct TreeView {
    table: ArcSwap<Table>,
    /// Where the table comes from. A view keeps nothing open: the tree goes before its lock does.
    tree: Weak<Tree>,
    resident: Arc<Resident>,
    /// The last commit folded into it.
    pub(super) applied: u64,
}

/// The rows, and since which opening of the file they are read.
struct Table {
    rows: ReadOnlyTable<&'static [u8], &'static [u8]>,
    times: u64,
    /// A walk met an error: what is read from the disk is refused from now on, and only what is in
    /// memory hides that.
    failed: Arc<AtomicBool>,
}

/// What a tree says about itself.
pub(super) struct Opened {
    pub(super) tree: Arc<Tree>,
    pub(super) view: TreeView,
    /// Ties the log to the tree.
    pub(super) identity: u64,
}

impl Tree {
    /// Opens the tree, if the disk has one. That takes no new space of a disk that is full: redb
    /// writes its header once more and flushes it. What it shows is then on the disk for good: had
    /// the last process ended because the flush of a commit's header failed, the machine might show
    /// a commit that is not on the disk, and the log would be let go of by it.
    pub(super) fn open(disk: &dyn Disk, cache_bytes: usize) -> Result<Option<Opened>> {
        let tree = match disk.open(NAME, Open::Write) {
            Ok(file) => Self::over(file, cache_bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let identity = tree.read_identity()?;
        let view = tree.view()?;
        Ok(Some(Opened { tree, view, identity }))
    }

    fn over(file: Arc<dyn DiskFile>, cache_bytes: usize) -> Arc<Self> {
        // What is asked for by key is served by rows; pages serve scans, folds and the rest.
        let pages = cache_bytes / 2;
        let resident = Arc::new(Resident::new((cache_bytes - pages) as u64));
        Arc::new(Self { file, cache_bytes: pages, resident, opened: Mutex::default() })
    }

    /// Makes a tree that calls itself `identity`, puts into it what `fill` does, and then gives it
    /// its name, which the caller has to flush: a crash leaves none or a whole one.
    pub(super) fn make(
        disk: &dyn Disk,
        cache_bytes: usize,
        identity: u64,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        match disk.remove(NAME_UNFINISHED) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let tree = Self::over(disk.open(NAME_UNFINISHED, Open::MakeNew)?, cache_bytes);
        tree.commit(|write| {
            write.open_table(ROWS)?;
            let mut facts = write.open_table(FACTS)?;
            facts.insert(FORMAT, FORMAT_NOW)?;
            facts.insert(IDENTITY, identity)?;
            facts.insert(APPLIED, 0)?;
            Ok(())
        })?;
        fill(&tree)?;
        drop(tree);
        disk.rename(NAME_UNFINISHED, NAME)
    }

    fn read_identity(&self) -> Result<u64> {
        self.with_database(|database, _| {
            let facts = database.begin_read()?.open_table(FACTS)?;
            let format = facts.get(FORMAT)?.map_or(0, |format| format.value());
            let (age, advice) = match format.cmp(&FORMAT_NOW) {
                Ordering::Equal => return Ok(facts.get(IDENTITY)?.map_or(0, |identity| identity.value())),
                Ordering::Greater => {
                    ("a newer", "start the newer version again, or restore a backup made before it")
                }
                Ordering::Less => {
                    ("an older", "make a backup with the older version and restore it with this one")
                }
            };
            let detail = format!(
                "the metadata was written by {age} Weft: format {format}, this one knows {FORMAT_NOW}"
            );
            Err(Failure::Ours(Error::unsupported(detail).hint(advice)))
        })
    }

    /// Returns the tree as the last fold left it.
    pub(super) fn view(self: &Arc<Self>) -> Result<TreeView> {
        let (table, applied) = self.table()?;
        let table = ArcSwap::from_pointee(table);
        Ok(TreeView { table, tree: Arc::downgrade(self), resident: self.resident.clone(), applied })
    }

    /// Returns the rows, and the last commit folded into them.
    fn table(&self) -> Result<(Table, u64)> {
        self.with_database(|database, times| {
            let read = database.begin_read()?;
            let applied = read.open_table(FACTS)?.get(APPLIED)?.map_or(0, |applied| applied.value());
            self.resident.is_of(applied);
            Ok((Table { rows: read.open_table(ROWS)?, times, failed: Arc::default() }, applied))
        })
    }

    /// Returns the rows anew to who found that nothing can be read any more of what was opened the
    /// `times`th time.
    fn table_after(&self, times: u64) -> Result<(Table, u64)> {
        let mut opened = self.opened();
        if opened.times == times {
            opened.shut();
        }
        drop(opened);
        self.table()
    }

    /// Closes the tree for good, behind whoever is at it now.
    pub(super) fn close(&self) {
        let mut opened = self.opened();
        opened.shut();
        opened.closed = true;
    }

    fn opened(&self) -> MutexGuard<'_, OpenedFile> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folds an overlay that ends with commit `applied` into the tree, durably, and returns the
    /// tree with it. After an error the tree is as it was.
    pub(super) fn fold(self: &Arc<Self>, overlay: &Overlay, applied: u64) -> Result<TreeView> {
        self.fold_in(overlay, applied)?;
        self.view()
    }

    fn fold_in(&self, overlay: &Overlay, applied: u64) -> Result<()> {
        self.commit(|write| {
            let mut rows = write.open_table(ROWS)?;
            let mut row = Vec::new();
            overlay.try_for_each(|key, value| match value {
                Some(value) => {
                    row.clear();
                    row.extend_from_slice(value);
                    row.extend_from_slice(&check(key, value));
                    rows.insert(key, &row[..]).map(drop)
                }
                None => rows.remove(key).map(drop),
            })?;
            write.open_table(FACTS)?.insert(APPLIED, applied)?;
            Ok(())
        })?;
        self.resident.follow(overlay, applied);
        Ok(())
    }

    /// Reads every page and compares it with its checksum.
    pub(super) fn check_pages(&self) -> Result<()> {
        let mut opened = self.opened();
        let Some(database) = opened.database.as_mut() else {
            return Err(Error::internal("the metadata tree is checked before it is open"));
        };
        if guarded(|| Ok(database.check_integrity()?))? {
            return Ok(());
        }
        Err(Error::corrupt("a page of the metadata tree does not match its checksum")
            .hint("restore the metadata from a backup"))
    }

    /// Adds rows to a tree that is being restored.
    pub(super) fn fill(&self, rows: &[Row], applied: u64) -> Result<()> {
        let overlay = Overlay::default();
        let changes = rows.iter().map(|(key, value)| (Key::new(key), Some(value.clone()))).collect();
        overlay.apply(changes, 1, super::overlay::Needed::All);
        self.fold_in(&overlay, applied)
    }

    fn commit(
        &self,
        act: impl FnOnce(&redb::WriteTransaction) -> std::result::Result<(), redb::Error>,
    ) -> Result<()> {
        self.with_database(|database, _| {
            let mut write = database.begin_write()?;
            write.set_quick_repair(true);
            act(&write)?;
            write.commit()?;
            Ok(())
        })
    }

    /// Runs `act`, opening the database first if it is not open. redb refuses to go on after an
    /// error of its file, and may panic on pages that make no sense: then it is closed here, and
    /// the next call opens it again as the last fold left it.
    fn with_database<T>(
        &self,
        act: impl FnOnce(&Database, u64) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        let mut opened = self.opened();
        if opened.closed {
            return Err(Error::new(ErrorKind::Unavailable, "the metadata tree was closed"));
        }
        let done = guarded(|| {
            if opened.database.is_none() {
                let backend = Backend { file: self.file.clone() };
                let builder = &mut Database::builder();
                opened.database =
                    Some(builder.set_cache_size(self.cache_bytes).create_with_backend(backend)?);
                opened.times += 1;
            }
            act(opened.database.as_ref().expect("it was opened above"), opened.times)
        });
        if done.is_err() {
            opened.shut();
        }
        done
    }
}

impl OpenedFile {
    /// Closes the file. That may panic for the reason that made it be closed, which says more.
    fn shut(&mut self) {
        let database = self.database.take();
        let _ = quietly(|| drop(database));
    }
}

impl TreeView {
    /// Returns the value under `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = self.resident.get(key, self.applied) {
            return Ok(Some(value));
        }
        self.read(|table| {
            let mut rows = table.rows.range::<&[u8]>(key..)?;
            let Some((found, row)) = rows.next().transpose()?.filter(|(found, _)| found.value() == key)
            else {
                return Ok(None);
            };
            let value = checked(found.value(), row.value())?;
            self.resident.keep(key, value, self.applied);
            self.keep_ahead(rows);
            Ok(Some(Bytes::copy_from_slice(value)))
        })
    }

    /// Runs `act` on the rows. After a read that failed redb refuses every other, whoever asks for
    /// what: then the tree is opened again, and only who asks for what cannot be read hears of it.
    fn read<T>(&self, act: impl Fn(&Table) -> std::result::Result<T, Failure>) -> Result<T> {
        let table = self.table.load();
        let done = match table.failed.load(Relaxed) {
            true => Err(Failure::Redb(redb::Error::PreviousIo)),
            false => attempt(|| act(&table)),
        };
        match done {
            Err(error) if error.is_of_an_earlier_one() => {
                let tree = self.tree.upgrade().ok_or(error)?;
                let (anew, applied) = tree.table_after(table.times)?;
                if applied != self.applied {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "the metadata tree has changed meanwhile",
                    ));
                }
                let anew = Arc::new(anew);
                self.table.store(anew.clone());
                guarded(|| act(&anew))
            }
            done => done.map_err(Error::from),
        }
    }

    /// Keeps the rows behind one that was asked for: finding that one was most of the work, and what
    /// was made together is asked for together. Whether they can be read is for whoever asks for them.
    fn keep_ahead(&self, mut rows: redb::Range<'_, &'static [u8], &'static [u8]>) {
        let _ = guarded(|| {
            for _ in 0..KV_ROWS_AHEAD {
                let Some((key, row)) = rows.next().transpose()? else { break };
                self.resident.keep(key.value(), checked(key.value(), row.value())?, self.applied);
            }
            Ok(())
        });
    }

    /// Returns a cursor over `from..to`; an empty `to` is the end.
    pub(super) fn cursor(&self, from: &[u8], to: &[u8], order: Order) -> TreeCursor {
        let rows = if !to.is_empty() && from >= to {
            Ok(None)
        } else if to.is_empty() {
            self.read(|table| Ok(Some(table.rows.range::<&[u8]>(from..)?)))
        } else {
            self.read(|table| Ok(Some(table.rows.range::<&[u8]>(from..to)?)))
        };
        let failed = self.table.load().failed.clone();
        TreeCursor { rows, failed, order, chunk: VecDeque::new(), want: CURSOR_FIRST }
    }
}

/// Walks a tree's rows lazily, a chunk at a time: its rows share a piece of memory.
pub(super) struct TreeCursor {
    rows: Result<Option<redb::Range<'static, &'static [u8], &'static [u8]>>>,
    /// Told to who reads after an error.
    failed: Arc<AtomicBool>,
    order: Order,
    chunk: VecDeque<Row>,
    /// Rows in the next chunk.
    want: usize,
}

impl TreeCursor {
    pub(super) fn next(&mut self) -> Option<Result<Row>> {
        if self.chunk.is_empty() {
            self.fill();
        }
        match self.chunk.pop_front() {
            Some(row) => Some(Ok(row)),
            None => std::mem::replace(&mut self.rows, Ok(None)).err().map(Err),
        }
    }

    /// Reads a chunk. What fails in it comes after the rows before it.
    fn fill(&mut self) {
        let Ok(Some(rows)) = &mut self.rows else { return };
        let (mut piece, mut ends) = (Vec::new(), Vec::with_capacity(self.want));
        let filled = attempt(|| {
            while ends.len() < self.want && piece.len() < CURSOR_BYTES {
                let row = if self.order == Order::Rising { rows.next() } else { rows.next_back() };
                let Some((key, row)) = row.transpose()? else { return Ok(false) };
                let (key, value) = (key.value(), checked(key.value(), row.value())?);
                if ends.is_empty() {
                    piece.reserve((self.want * (key.len() + value.len()) * 5 / 4).min(CURSOR_BYTES * 5 / 4));
                }
                piece.extend_from_slice(key);
                let middle = piece.len();
                piece.extend_from_slice(value);
                ends.push((middle, piece.len()));
            }
            Ok(true)
        });
        let (piece, mut start) = (Bytes::from(piece), 0);
        self.chunk.extend(ends.into_iter().map(|(middle, end)| {
            let row = (piece.slice(start..middle), piece.slice(middle..end));
            start = end;
            row
        }));
        match filled {
            Ok(true) => {}
            Ok(false) => self.rows = Ok(None),
            Err(failure) => {
                self.failed.fetch_or(matches!(failure, Failure::Redb(_)), Relaxed);
                self.rows = Err(failure.into());
            }
        }
        self.want = (self.want * 2).min(CURSOR_MOST);
    }
}

fn check(key: &[u8], value: &[u8]) -> [u8; CHECK_BYTES] {
    // Which part ends where is part of what is checked.
    let sum = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(key.len() as u64, key), value);
    (sum as u32).to_le_bytes()
}

/// Returns the value of a row as it was put, if its checksum holds.
fn checked<'a>(key: &[u8], row: &'a [u8]) -> Result<&'a [u8]> {
    let whole = row.split_last_chunk::<CHECK_BYTES>().filter(|(value, held)| check(key, value) == **held);
    whole.map(|(value, _)| value).ok_or_else(|| {
        Error::corrupt("a row of the metadata tree does not match its checksum")
            .about(format!("key {}", key.escape_ascii()))
            .hint("restore the metadata from a backup")
    })
}

/// What went wrong with the tree: an error of redb's, or one of ours that came up through it.
enum Failure {
    Ours(Error),
    Redb(redb::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

macro_rules! from_redb {
    ($($error:ident),*) => {
        $(impl From<redb::$error> for Failure {
            fn from(error: redb::$error) -> Self {
                Self::Redb(error.into())
            }
        })*
    };
}

from_redb!(Error, StorageError, TableError, TransactionError, CommitError, DatabaseError);

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Ours(error) => error,
            Failure::Redb(redb::Error::Io(error)) => match error.downcast::<Self>() {
                Ok(ours) => ours.unplaced().about("the metadata tree"),
                Err(error) => weft_sys::fault::error(error, "use", NAME),
            },
            Failure::Redb(redb::Error::Corrupted(what)) => {
                Self::corrupt(format!("the metadata tree makes no sense: {what}"))
                    .hint("restore the metadata from a backup")
            }
            Failure::Redb(error @ (redb::Error::PreviousIo | redb::Error::DatabaseClosed)) => {
                Self::new(ErrorKind::Unavailable, "the metadata tree failed before and is being opened again")
                    .caused_by(error)
            }
            Failure::Redb(error) => {
                Self::internal("the metadata tree gave an unexpected answer").caused_by(error)
            }
        }
    }
}

impl Failure {
    /// Returns whether nothing failed just now: something did before, and redb refuses to go on.
    fn is_of_an_earlier_one(&self) -> bool {
        matches!(self, Self::Redb(redb::Error::PreviousIo | redb::Error::DatabaseClosed))
    }
}

fn guarded<T>(act: impl FnOnce() -> std::result::Result<T, Failure>) -> Result<T> {
    attempt(act).map_err(Error::from)
}

/// Runs `act`; a panic of redb's is a page that makes no sense.
fn attempt<T>(act: impl FnOnce() -> std::result::Result<T, Failure>) -> std::result::Result<T, Failure> {
    quietly(act).unwrap_or_else(|said| {
        let error = Error::corrupt("the metadata tree makes no sense");
        Err(Failure::Ours(error.hint("restore the metadata from a backup").caused_by(said)))
    })
}

/// redb's file, on a disk of `sys`.
struct Backend {
    file: Arc<dyn DiskFile>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len().map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset).map_err(io::Error::other)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(io::Error::other)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync(FlushSite::KvTree).map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(data, offset).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_another_format_is_refused_for_what_it_is() {
        for (format, word) in [(FORMAT_NOW - 1, "older"), (FORMAT_NOW + 1, "newer")] {
            let disk = weft_sys::SimDisk::new();
            Tree::make(&disk, 1 << 20, 7, |tree| {
                tree.commit(|write| {
                    write.open_table(FACTS)?.insert(FORMAT, format)?;
                    Ok(())
                })
            })
            .expect("it is made");
            let error = Tree::open(&disk, 1 << 20).err().expect("it is refused");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.detail().contains(word) && error.advice().is_some(), "{error:?}");
        }
    }

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// A tree of `rows` numbered rows, the one numbered `damaged` not as it was put.
    fn tree_of(rows: u32, damaged: u32) -> Opened {
        let disk = weft_sys::SimDisk::new();
        Tree::make(&disk, 1 << 20, 7, |tree| {
            tree.commit(|write| {
                let mut table = write.open_table(ROWS)?;
                for number in 0..rows {
                    let sum = check(&key(number), if number == damaged { b"another" } else { b"value" });
                    table.insert(&key(number)[..], &[&b"value"[..], &sum].concat()[..])?;
                }
                Ok(())
            })
        })
        .expect("it is made");
        Tree::open(&disk, 1 << 20).expect("it opens").expect("it is there")
    }

    #[test]
    fn what_lies_behind_a_row_that_was_read_is_in_memory_and_its_damage_is_its_own() {
        let Opened { tree: _open, view, .. } = tree_of(1000, 502);
        assert_eq!(view.get(&key(500)).expect("it is whole").as_deref(), Some(&b"value"[..]));
        assert!(view.resident.get(&key(501), 0).is_some());
        assert!(view.resident.get(&key(502), 0).is_none());
        assert_eq!(view.get(&key(502)).expect_err("it is damaged").kind(), ErrorKind::Corrupt);
        assert_eq!(view.get(b"no such key").expect("there is none"), None);
    }

    #[test]
    fn a_walk_gives_every_row_once_in_either_order_and_stops_where_damage_is() {
        let Opened { tree: _open, view, .. } = tree_of(1000, 1000);
        for order in [Order::Rising, Order::Falling] {
            let mut rows = view.cursor(&key(7), &key(990), order);
            let mut seen: Vec<_> = std::iter::from_fn(|| rows.next())
                .map(|row| row.expect("it is whole"))
                .inspect(|(_, value)| assert_eq!(value, "value"))
                .map(|(key, _)| key)
                .collect();
            if order == Order::Falling {
                seen.reverse();
            }
            assert_eq!(seen, (7..990).map(|number| key(number).to_vec()).collect::<Vec<_>>());
        }
        let Opened { tree: _open, view, .. } = tree_of(1000, 40);
        let mut rows = view.cursor(&key(0), &[], Order::Rising);
        for number in 0..40 {
            let (found, _) = rows.next().expect("it is there").expect("it is whole");
            assert_eq!(found, key(number)[..]);
        }
        let error = rows.next().expect("it is there").expect_err("it is damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(rows.next().is_none());
    }
}
