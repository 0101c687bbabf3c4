//! The object files: spares made ready in batches, and the files of removed objects.
//!
//! A new name costs a flush of its directory. So names are made 64 at a time, flushed once, and
//! recorded as spares; making an object takes one. A file's number is never used twice.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::form::Ack;
use weft_core::{Error, ErrorKind, Result, Tick, limits};
use weft_kv::{Order, Read, Space, Txn, prefix_end};
use weft_sys::disk::DiskSpace;
use weft_sys::{Disk, DiskFile, FileSize, FlushSite, Open, Sys};

use super::rows::{FILES, FileNumber, NEXT_FILE, REMOVED, SPARES, number_at};

/// Where object files lie.
pub(super) const OBJECTS_DIR: &str = "objects";
/// Where files go that no object owns.
pub(super) const ORPHANS_DIR: &str = "orphans";

/// Returns a file's path: its directory holds 4096 files.
pub(super) fn path(number: FileNumber) -> String {
    format!("{}/{:03x}", dir_path(number), number.0 % limits::STORE_DIR_FILES)
}

fn dir_path(number: FileNumber) -> String {
    format!("{OBJECTS_DIR}/{:06x}", number.0 / limits::STORE_DIR_FILES)
}

/// Reads what [`path`] wrote; `None` if these are no names of ours.
pub(super) fn number_of(dir: &str, name: &str) -> Option<FileNumber> {
    let (high, low) = (u64::from_str_radix(dir, 16).ok()?, u64::from_str_radix(name, 16).ok()?);
    let number = FileNumber(high.checked_mul(limits::STORE_DIR_FILES)?.checked_add(low)?);
    (path(number) == format!("{OBJECTS_DIR}/{dir}/{name}")).then_some(number)
}

/// The files of one store.
pub(super) struct Files {
    disk: Arc<dyn Disk>,
    ready: Mutex<Vec<FileNumber>>,
    /// Files to be removed, each with when its object was.
    removed: Mutex<VecDeque<(Tick, FileNumber)>>,
    /// Held while spares are made.
    refilling: tokio::sync::Mutex<()>,
    /// Held while files are removed.
    reaping: tokio::sync::Mutex<()>,
}

/// A spare file that was taken; it goes back unless it is [`Spare::used`].
pub(super) struct Spare<'a> {
    files: &'a Files,
    number: FileNumber,
    used: bool,
}

impl Spare<'_> {
    pub(super) fn number(&self) -> FileNumber {
        self.number
    }

    /// Opens it, with room for `length` bytes.
    pub(super) fn open(&self, length: Option<u64>) -> Result<Arc<dyn DiskFile>> {
        let file = self.files.disk.open(&path(self.number), Open::Write)?;
        let Some(length) = length.filter(|length| *length > 0) else { return Ok(file) };
        match file.reserve(0, length) {
            Ok(()) => Ok(file),
            // Reserving is a promise about space that not every file system can make.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(file),
            Err(error) => {
                file.set_len(0)?;
                Err(error)
            }
        }
    }

    /// Takes it for good, before its record is made: that may come to be though nobody waits for
    /// it any more, and a file of two objects would be a loss. One that is forgotten then is a
    /// spare again after the next start.
    pub(super) fn used(mut self) -> FileNumber {
        self.used = true;
        self.number
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        if !self.used {
            lock(&self.files.ready).push(self.number);
        }
    }
}

impl Files {
    /// Opens the files below `disk` and mends what a crash left of spares.
    pub(super) async fn open(disk: Arc<dyn Disk>, space: &Space, now: Tick) -> Result<Self> {
        make_dir(&*disk, OBJECTS_DIR)?;
        make_dir(&*disk, ORPHANS_DIR)?;
        disk.sync_dir("", FlushSite::StoreFanDir)?;
        // Directories made just before the last end may be there without being on disk.
        disk.sync_dir(OBJECTS_DIR, FlushSite::StoreFanDir)?;
        let (ready, removed) = {
            let records = space.snapshot()?;
            (believed(&records, SPARES)?, believed(&records, REMOVED)?)
        };
        empty_out(&*disk, &ready)?;
        Ok(Self {
            disk,
            ready: Mutex::new(ready),
            removed: Mutex::new(removed.into_iter().map(|number| (now, number)).collect()),
            refilling: tokio::sync::Mutex::default(),
            reaping: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(super) fn shared_disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }

    /// Keeps the files of removed objects for as long as the answer is held.
    pub(super) async fn keep_removed(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.reaping.lock().await
    }

    /// Has no spares made for as long as the answer is held.
    pub(super) async fn make_no_spares(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.refilling.lock().await
    }

    pub(super) fn space(&self) -> Result<DiskSpace> {
        self.disk.space()
    }

    pub(super) fn measure(&self, number: FileNumber) -> Result<FileSize> {
        self.disk.measure(&path(number))
    }

    pub(super) fn open_object(&self, number: FileNumber) -> Result<Arc<dyn DiskFile>> {
        self.disk.open(&path(number), Open::Write)
    }

    /// Takes a spare, making more if there is none. Wakes whoever makes more ahead of need.
    pub(super) async fn take_spare(
        &self,
        sys: &Sys,
        space: &Space,
        wake: &tokio::sync::Notify,
    ) -> Result<Spare<'_>> {
        loop {
            let (number, left) = {
                let mut ready = lock(&self.ready);
                (ready.pop(), ready.len())
            };
            if left < limits::STORE_SPARES_LOW {
                wake.notify_one();
            }
            if let Some(number) = number {
                return Ok(Spare { files: self, number, used: false });
            }
            self.refill(sys, space, 1).await?;
        }
    }

    pub(super) fn is_low(&self) -> bool {
        lock(&self.ready).len() < limits::STORE_SPARES_LOW
    }

    /// Makes more spares if there are fewer than `least`: their names are on disk before they
    /// are recorded, and recorded before they are used.
    pub(super) async fn refill(&self, sys: &Sys, space: &Space, least: usize) -> Result<()> {
        let _alone = self.refilling.lock().await;
        if lock(&self.ready).len() >= least {
            return Ok(());
        }
        let first = next_file(&space.snapshot()?)?;
        let numbers: Vec<_> = (first..first + limits::STORE_SPARES).map(FileNumber).collect();
        let disk = self.disk.clone();
        let making = numbers.clone();
        sys.blocking(move || make_spares(&*disk, &making)).await??;
        let recorded = numbers.clone();
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            for number in &recorded {
                txn.put(&number.key(SPARES), &[])?;
            }
            txn.put(NEXT_FILE, &(first + limits::STORE_SPARES).to_be_bytes())
        };
        space.write(Ack::Applied, act).await?;
        lock(&self.ready).extend(numbers.into_iter().rev());
        Ok(())
    }

    /// Gives a spare back whose record was refused.
    pub(super) fn unused(&self, number: FileNumber) {
        lock(&self.ready).push(number);
    }

    /// Notes that a file's object was removed.
    pub(super) fn removed(&self, number: FileNumber, now: Tick) {
        lock(&self.removed).push_back((now, number));
    }

    /// Returns since when files wait to be removed.
    pub(super) fn removed_since(&self) -> Option<Tick> {
        lock(&self.removed).front().map(|(since, _)| *since)
    }

    /// Removes files of removed objects, once the removal of those objects is on disk. Their
    /// records go only when the files' names are gone from the disk.
    pub(super) async fn reap(&self, sys: &Sys, space: &Space) -> Result<()> {
        let _alone = self.reaping.lock().await;
        self.reap_some(sys, space).await
    }

    /// The same, unless the files are to be kept just now: `false` then.
    pub(super) async fn try_reap(&self, sys: &Sys, space: &Space) -> Result<bool> {
        let Ok(_alone) = self.reaping.try_lock() else { return Ok(false) };
        self.reap_some(sys, space).await.map(|()| true)
    }

    async fn reap_some(&self, sys: &Sys, space: &Space) -> Result<()> {
        let batch = {
            let mut removed = lock(&self.removed);
            let count = removed.len().min(limits::STORE_REAP_MAX);
            removed.drain(..count).collect::<Vec<_>>()
        };
        if batch.is_empty() {
            return Ok(());
        }
        let numbers: Vec<_> = batch.iter().map(|(_, number)| *number).collect();
        let reaped = self.reap_batch(sys, space, &numbers).await;
        if reaped.is_err() {
            lock(&self.removed).extend(batch);
        }
        reaped
    }

    async fn reap_batch(&self, sys: &Sys, space: &Space, batch: &[FileNumber]) -> Result<()> {
        space.flush().await?;
        let (disk, numbers) = (self.disk.clone(), batch.to_vec());
        sys.blocking(move || remove_files(&*disk, &numbers)).await??;
        let numbers = batch.to_vec();
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            numbers.iter().try_for_each(|number| txn.delete(&number.key(REMOVED)))
        };
        space.write(Ack::Applied, act).await.map(|_| ())
    }
}

/// The files that a table names, without those that something else speaks for: to empty or
/// remove an object's file because of one wrong row would be a loss. `check` finds such rows.
fn believed(records: &impl Read, table: u8) -> Result<Vec<FileNumber>> {
    let mut believed = Vec::new();
    for row in records.scan(&[table], &prefix_end(&[table]), Order::Falling) {
        let Ok(number) = FileNumber::from_key(&row?.0) else { continue };
        if spoken_for(records, table, number)?.is_none() {
            believed.push(number);
        }
    }
    Ok(believed)
}

/// Says what a file is, if that is not what a row of `table` says.
pub(super) fn spoken_for(records: &impl Read, table: u8, number: FileNumber) -> Result<Option<&'static str>> {
    if records.get(&number.key(FILES))?.is_some() {
        return Ok(Some("belongs to an object"));
    }
    let is_spare = table == REMOVED && records.get(&number.key(SPARES))?.is_some();
    Ok(is_spare.then_some("is a spare"))
}

/// Returns the number of the next file: as it is recorded, and beyond every file there is
/// whatever is recorded, for making a file empties it.
fn next_file(records: &impl Read) -> Result<u64> {
    Ok(recorded_next(records)?.unwrap_or(0).max(least_next(records, |_| true)?))
}

/// Returns the number of the next file as it is recorded; `None` if it is not, or not readably.
pub(super) fn recorded_next(records: &impl Read) -> Result<Option<u64>> {
    Ok(records.get(NEXT_FILE)?.filter(|next| next.len() == 8).and_then(|next| number_at(&next, 0).ok()))
}

/// Returns the number after the last of those that a table speaks of, in a row that counts.
pub(super) fn least_next(records: &impl Read, counts: impl Fn(&[u8]) -> bool) -> Result<u64> {
    let mut least = 0;
    for table in [FILES, SPARES, REMOVED] {
        let mut rows = records.scan(&[table], &prefix_end(&[table]), Order::Falling);
        let number = |row: weft_kv::Row| FileNumber::from_key(&row.0).ok().filter(|_| counts(&row.0));
        let last = rows.find_map(|row| row.map(number).transpose());
        least = least.max(last.transpose()?.map_or(0, |last| last.0.saturating_add(1)));
    }
    Ok(least)
}

/// Makes a directory unless it is there. Returns whether it was made.
fn make_dir(disk: &dyn Disk, dir: &str) -> Result<bool> {
    match disk.make_dir(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Exists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes empty files and flushes their names. Numbers that a crash kept from being recorded are
/// made again.
fn make_spares(disk: &dyn Disk, numbers: &[FileNumber]) -> Result<()> {
    // Whoever asks for a directory's first file may ask again, because the flush of its name failed.
    let begun = numbers.iter().filter(|number| number.0.is_multiple_of(limits::STORE_DIR_FILES));
    let begun: BTreeSet<String> = begun.map(|number| dir_path(*number)).collect();
    for dir in dirs_of(numbers) {
        if make_dir(disk, &dir)? || begun.contains(&dir) {
            disk.sync_dir(OBJECTS_DIR, FlushSite::StoreFanDir)?;
        }
    }
    for number in numbers {
        make_empty(disk, *number)?;
    }
    dirs_of(numbers).iter().try_for_each(|dir| disk.sync_dir(dir, FlushSite::StoreSpareDir))
}

/// Makes sure that recorded spares are there and empty: one whose object was lost with a crash
/// may hold its bytes.
fn empty_out(disk: &dyn Disk, numbers: &[FileNumber]) -> Result<()> {
    let is_empty = |number: &&FileNumber| {
        disk.measure(&path(**number)).is_ok_and(|size| size == FileSize { len: 0, used: 0 })
    };
    let spoiled: Vec<_> = numbers.iter().filter(|number| !is_empty(number)).copied().collect();
    if spoiled.is_empty() { Ok(()) } else { make_spares(disk, &spoiled) }
}

/// Makes one empty file. One that holds bytes is replaced, not cut: a cut could be lost with the
/// next crash and show one object's bytes in another.
fn make_empty(disk: &dyn Disk, number: FileNumber) -> Result<()> {
    let path = path(number);
    match disk.open(&path, Open::MakeNew) {
        Err(error) if error.kind() == ErrorKind::Exists => {}
        made => return made.map(drop),
    }
    let size = disk.measure(&path)?;
    if size.len == 0 && size.used == 0 {
        return Ok(());
    }
    disk.remove(&path)?;
    disk.open(&path, Open::MakeNew).map(drop)
}

fn remove_files(disk: &dyn Disk, numbers: &[FileNumber]) -> Result<()> {
    for number in numbers {
        match disk.remove(&path(*number)) {
            // A directory that somebody put in its place is none of the store's: a check puts it aside.
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsDirectory) => {
                return Err(error);
            }
            _ => {}
        }
    }
    dirs_of(numbers).iter().try_for_each(|dir| disk.sync_dir(dir, FlushSite::StoreRemoveDir))
}

fn dirs_of(numbers: &[FileNumber]) -> BTreeSet<String> {
    numbers.iter().map(|number| dir_path(*number)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of a list leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error for a request that cannot be: positions beyond what an object may hold.
pub(super) fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "the object would be longer than it may be")
}
