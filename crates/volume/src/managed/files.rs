//! What is known in memory of files whose objects are being written in place.
//!
//! Writers of one file share its gate, each for as long as one piece takes; whoever
//! changes the extent takes it alone. The first writer marks the file, durably, before a
//! byte of the object changes: a crash then leaves a row that says "look at the object",
//! and the version changes. The mark is the file's, whatever objects come and go under
//! it: only who settles the file takes it away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_core::Tick;
use weft_core::attr::{Attr, Version};

/// Files that are being written.
#[derive(Default)]
pub(super) struct Files {
    known: Mutex<HashMap<u64, Arc<Writing>>>,
    /// Writes under way, of any file.
    under_way: AtomicU64,
    /// Writes begun since the start: no two have the same number.
    begun: AtomicU64,
}

/// One file that is being written.
#[derive(Default)]
pub(super) struct Writing {
    pub(super) gate: tokio::sync::RwLock<()>,
    /// Held by whoever appends: two appends never mix.
    pub(super) tail: tokio::sync::Mutex<()>,
    /// Whether the row that says so is on disk.
    pub(super) marked: AtomicBool,
    /// When it was last written, as a tick.
    last: AtomicU64,
    under_way: AtomicU64,
    /// The number of the last write that was begun.
    begun: AtomicU64,
}

/// A write under way.
pub(super) struct Stroke<'a> {
    files: &'a Files,
    writing: Arc<Writing>,
}

impl Files {
    /// Returns what is known of a file; nothing yet, the first time.
    pub(super) fn of(&self, serial: u64) -> Arc<Writing> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(serial).or_default().clone()
    }

    /// Forgets a file that nobody is writing.
    pub(super) fn forget(&self, serial: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |writing: &Arc<Writing>| {
            Arc::strong_count(writing) == 1 && !writing.marked.load(Ordering::Acquire)
        };
        if known.get(&serial).is_some_and(idle) {
            known.remove(&serial);
        }
    }

    /// Begins a write: from now until its end the file has a version of its own, which
    /// nobody else ever sees again.
    pub(super) fn begin(&self, writing: &Arc<Writing>) -> Stroke<'_> {
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        writing.under_way.fetch_add(1, Ordering::AcqRel);
        writing.begun.store(number, Ordering::Release);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Stroke { files: self, writing: writing.clone() }
    }

    /// Returns the number of the last write to a file, and whether one is under way: a
    /// reader that must see one version compares them around each piece.
    pub(super) fn seen(&self, serial: u64) -> (u64, bool) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&serial).map_or((0, false), |writing| {
            (writing.begun.load(Ordering::Acquire), writing.under_way.load(Ordering::Acquire) > 0)
        })
    }

    /// Shows, of a file that is being written, a version that says so.
    pub(super) fn overlay(&self, attr: &mut Attr) {
        if self.under_way.load(Ordering::Acquire) == 0 {
            return;
        }
        if let (begun, true) = self.seen(attr.id.serial()) {
            attr.version = Version(1 << 127 | attr.version.0 & !u128::from(u64::MAX) | u128::from(begun));
        }
    }
}

impl Writing {
    pub(super) fn written(&self, now: Tick) {
        self.last.store(now.0, Ordering::Release);
    }

    pub(super) fn last_written(&self) -> Tick {
        Tick(self.last.load(Ordering::Acquire))
    }
}

impl Drop for Stroke<'_> {
    fn drop(&mut self) {
        self.writing.under_way.fetch_sub(1, Ordering::AcqRel);
        self.files.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}
