//! A disk in memory that loses, after a crash, whatever was not flushed, in every way a real one
//! may: sector by sector, in part, or not at all; names as well as bytes.
//!
//! Everything that happens is decided by the calls made and by the seed given to
//! [`SimDisk::crash`].

mod content;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use weft_core::form::{OpenedFile, Seek};
use weft_core::{Error, ErrorKind, Result};

use self::state::State;
use super::{Disk, DiskFile, DiskLock, DiskSpace, Entry, FileSize, FlushSite, Open};
use crate::fault;

/// What goes wrong, and when. "The nth from now" counts from 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Flushes that report success and do nothing.
    pub ignore: BTreeSet<FlushSite>,
    /// How many bytes of file content fit on the disk.
    pub capacity: Option<u64>,
    /// The nth read from now fails with an input/output error.
    pub fail_read: Option<u64>,
    /// The nth write from now fails with an input/output error; half of it may be on the disk.
    pub fail_write: Option<u64>,
    /// The nth flush from now fails with an input/output error, and what it should have flushed
    /// stays readable and unflushable.
    pub fail_flush: Option<u64>,
    /// The power goes off at the nth change (write, flush, name) from now: it and everything
    /// after it fails.
    pub halt: Option<u64>,
}

/// A change that is done or not done when the power goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Boundary {
    /// A change of bytes or of names, by what it does.
    Change(&'static str),
    /// A flush, of a file or of a directory.
    Flush(FlushSite),
}

/// What a disk has been asked to do so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// Reads of file content.
    pub reads: u64,
    /// Writes of file content.
    pub writes: u64,
    /// Bytes in those writes.
    pub bytes: u64,
    /// Bytes that were to be on their way to the disk, whether or not anything of them was left to write.
    pub sent: u64,
    /// Writes, flushes and changes of names: what [`Faults::halt`] counts.
    pub changes: u64,
    /// Flushes, of files and of directories, by place.
    pub flushes: BTreeMap<FlushSite, u64>,
}

/// A simulated disk, or the part of one below a directory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    root: u64,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// Makes an empty disk.
    pub fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State::new())), root: State::ROOT }
    }

    /// Cuts the power: returns the disk as a machine would find it afterwards. What was flushed
    /// is there; of the rest, `seed` decides. This disk and everything opened on it fail from
    /// now on.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        self.restarted(|state| state.after_power_cut(seed))
    }

    /// Returns the disk as [`SimDisk::crash`] would, and leaves this one running: to try many
    /// seeds at one moment.
    #[must_use]
    pub fn crashed_copy(&self, seed: u64) -> Self {
        let survived = self.lock_state().after_power_cut(seed);
        Self { state: Arc::new(Mutex::new(survived)), root: State::ROOT }
    }

    /// Ends the process but not the machine: returns the disk with everything written so far,
    /// flushed or not. This disk and everything opened on it fail from now on.
    #[must_use]
    pub fn kill(&self) -> Self {
        self.restarted(State::after_kill)
    }

    fn restarted(&self, survive: impl FnOnce(&State) -> State) -> Self {
        let mut state = self.lock_state();
        let survived = survive(&state);
        state.halted = true;
        Self { state: Arc::new(Mutex::new(survived)), root: State::ROOT }
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock_state().faults);
    }

    /// Returns what has been done so far.
    pub fn counts(&self) -> SimCounts {
        self.lock_state().counts.clone()
    }

    /// Returns the change that [`Faults::halt`] cut off, if it has.
    pub fn cut_at(&self) -> Option<Boundary> {
        self.lock_state().cut_at
    }

    /// Flips one bit of a file where it lies, behind everybody's back.
    pub fn flip_bit(&self, path: &str, byte: u64, bit: u8) -> Result<()> {
        let mut state = self.lock_state();
        let node = state.find(self.root, path).map_err(|errno| failed(errno, "damage", path))?;
        let content = state.content(node).map_err(|errno| failed(errno, "damage", path))?;
        content.flip(byte, bit);
        Ok(())
    }

    /// Makes every read of this byte of a file fail with an input/output error from now on.
    pub fn spoil(&self, path: &str, byte: u64) -> Result<()> {
        let mut state = self.lock_state();
        let node = state.find(self.root, path).map_err(|errno| failed(errno, "damage", path))?;
        state.unreadable.insert((node, byte));
        Ok(())
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        op: &'static str,
        path: &str,
        act: impl FnOnce(&mut State) -> rustix::io::Result<T>,
    ) -> Result<T> {
        self.change_at(Boundary::Change(op), act).map_err(|errno| failed(errno, op, path))
    }

    fn flush(
        &self,
        site: FlushSite,
        path: &str,
        act: impl FnOnce(&mut State) -> rustix::io::Result<()>,
    ) -> Result<()> {
        self.change_at(Boundary::Flush(site), act).map_err(|errno| failed(errno, "flush", path))
    }

    fn change_at<T>(
        &self,
        boundary: Boundary,
        act: impl FnOnce(&mut State) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let mut state = self.lock_state();
        state.begin_change(boundary)?;
        act(&mut state)
    }
}

fn failed(errno: Errno, op: &'static str, about: &str) -> Error {
    fault::error(errno.into(), op, about)
}

impl Disk for SimDisk {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.lock_state();
        let node = state.open(self.root, path, how).map_err(|errno| failed(errno, "open", path))?;
        Ok(Arc::new(SimFile { disk: self.clone(), node, path: path.to_owned(), writable: how != Open::Read }))
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        self.change("make", path, |state| state.make_dir(self.root, path))
    }

    fn list(&self, dir: &str, each: &mut dyn FnMut(&str, Entry) -> ControlFlow<()>) -> Result<()> {
        let entries = self.lock_state().list(self.root, dir).map_err(|errno| failed(errno, "list", dir))?;
        for (name, kind) in entries {
            if each(&name, kind).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn measure(&self, path: &str) -> Result<FileSize> {
        let mut state = self.lock_state();
        let node = state.find(self.root, path).map_err(|errno| failed(errno, "stat", path))?;
        state.content(node).map(|content| content.size()).map_err(|errno| failed(errno, "stat", path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.change("rename", from, |state| state.rename(self.root, from, to))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.change("link", to, |state| state.link(self.root, from, to))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.change("remove", path, |state| state.remove(self.root, path, false))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.change("remove", path, |state| state.remove(self.root, path, true))
    }

    fn sync_dir(&self, dir: &str, site: FlushSite) -> Result<()> {
        self.flush(site, dir, |state| {
            let node = state.find(self.root, dir)?;
            if state.begin_flush(site)? {
                state.sync_dir(node);
            }
            Ok(())
        })
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>> {
        let mut state = self.lock_state();
        let node = state.open(self.root, path, Open::Make).map_err(|errno| failed(errno, "lock", path))?;
        if !state.locks.insert(node) {
            return Err(Error::new(ErrorKind::Busy, "another process holds the lock").op("lock").about(path));
        }
        Ok(Box::new(SimLock { disk: self.clone(), node }))
    }

    fn is_private(&self, path: &str) -> Result<bool> {
        self.lock_state().find(self.root, path).map_err(|errno| failed(errno, "stat", path))?;
        Ok(true)
    }

    fn space(&self) -> Result<DiskSpace> {
        let state = self.lock_state();
        let total = state.faults.capacity.unwrap_or(1 << 40);
        Ok(DiskSpace { total, free: total.saturating_sub(state.used) })
    }

    fn beneath(&self, dir: &str) -> Result<Arc<dyn Disk>> {
        match self.make_dir(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Exists => {}
            Err(error) => return Err(error),
        }
        let root = self.lock_state().find(self.root, dir).map_err(|errno| failed(errno, "open", dir))?;
        Ok(Arc::new(Self { state: self.state.clone(), root }))
    }
}

struct SimLock {
    disk: SimDisk,
    node: u64,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.lock_state().locks.remove(&self.node);
    }
}

struct SimFile {
    disk: SimDisk,
    node: u64,
    path: String,
    writable: bool,
}

impl SimFile {
    fn change<T>(
        &self,
        op: &'static str,
        act: impl FnOnce(&mut State) -> rustix::io::Result<T>,
    ) -> Result<T> {
        if !self.writable {
            return Err(failed(Errno::BADF, op, &self.path));
        }
        self.disk.change(op, &self.path, act)
    }
}

impl DiskFile for SimFile {
    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        let read = self.disk.lock_state().read(self.node, bytes, at);
        read.map_err(|errno| failed(errno, "read", &self.path))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.change("write", |state| state.write(self.node, bytes, at))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change("resize", |state| state.set_len(self.node, len))
    }

    fn allocate(&self, at: u64, len: u64) -> Result<()> {
        self.change("reserve space for", |state| state.allocate(self.node, at, len))
    }

    fn reserve(&self, at: u64, len: u64) -> Result<()> {
        self.change("reserve space for", |state| state.reserve(self.node, at, len))
    }

    fn punch(&self, at: u64, len: u64) -> Result<()> {
        self.change("punch", |state| state.punch(self.node, at, len))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.measure()?.len)
    }

    fn measure(&self) -> Result<FileSize> {
        let mut state = self.disk.lock_state();
        state
            .alive()
            .and_then(|()| state.content(self.node))
            .map(|content| content.size())
            .map_err(|errno| failed(errno, "stat", &self.path))
    }

    fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        let mut state = self.disk.lock_state();
        state
            .alive()
            .and_then(|()| state.content(self.node))
            .map(|content| content.seek(at, what))
            .map_err(|errno| failed(errno, "look for holes in", &self.path))
    }

    fn resident(&self, _at: u64, _len: u64) -> bool {
        false
    }

    fn write_behind(&self, _at: u64, len: u64) {
        self.disk.lock_state().counts.sent += len;
    }

    fn sync(&self, site: FlushSite) -> Result<()> {
        // A read-only handle may flush too, as on Linux.
        self.disk.flush(site, &self.path, |state| {
            match state.begin_flush(site) {
                Ok(true) => state.content(self.node)?.flushed(),
                Ok(false) => {}
                Err(errno) => {
                    state.content(self.node)?.flush_failed();
                    return Err(errno);
                }
            }
            Ok(())
        })
    }
}

impl OpenedFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        Ok(self.disk.lock_state().read(self.node, buffer, at)?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests;
