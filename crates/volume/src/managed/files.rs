//! What is known in memory of files whose objects are being written in place.
//!
//! Writers of one file share its gate, each for as long as one piece takes; whoever
//! changes the extent takes it alone. The first writer marks the file, durably, before a
//! byte of the object changes: a crash then leaves a row that says "look at the object",
//! and the version changes. The mark is the file's, whatever objects come and go under
//! it: only who settles the file takes it away.
//!
//! Writes are counted by object: who is pinned to contents that were replaced is not told
//! of writes into those that came after.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weft_core::attr::Version;
use weft_core::{ObjectId, Tick};

/// Files that somebody holds on to: writers, pinned opens, whoever is to settle them.
type Known = Mutex<HashMap<u64, Weak<Writing>>>;

/// Files that are being written.
#[derive(Default)]
pub(super) struct Files {
    known: Arc<Known>,
    /// Writes under way, of any file.
    under_way: AtomicU64,
    /// Writes begun since the start: no two have the same number.
    begun: AtomicU64,
}

/// One file that is being written. Forgotten with the last who holds on to it.
pub(super) struct Writing {
    serial: u64,
    known: Arc<Known>,
    pub(super) gate: tokio::sync::RwLock<()>,
    /// Held by whoever appends: two appends never mix.
    pub(super) tail: Arc<tokio::sync::Mutex<()>>,
    /// Whether the row that says so is on disk.
    pub(super) marked: AtomicBool,
    /// When it was last written, as a tick.
    last: AtomicU64,
    under_way: AtomicU64,
    /// The number of the last write that was begun.
    begun: AtomicU64,
    /// Writes into each object that somebody writes or is pinned to.
    objects: Mutex<HashMap<ObjectId, Weak<Strokes>>>,
    /// Writes that changed bytes and that no row tells of: they go on until the file is settled.
    untold: Mutex<Vec<Arc<Strokes>>>,
}

/// Writes into one object.
#[derive(Default)]
struct Strokes {
    under_way: AtomicU64,
    begun: AtomicU64,
}

/// A write under way.
pub(super) struct Stroke<'a> {
    files: &'a Files,
    writing: Arc<Writing>,
    /// Gone once the write is to go on until the file is settled.
    strokes: Option<Arc<Strokes>>,
}

impl Files {
    /// Returns what is known of a file; nothing yet, the first time.
    pub(super) fn of(&self, serial: u64) -> Arc<Writing> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writing) = known.get(&serial).and_then(Weak::upgrade) {
            return writing;
        }
        let writing = Arc::new(Writing {
            serial,
            known: self.known.clone(),
            gate: tokio::sync::RwLock::default(),
            tail: Arc::default(),
            marked: AtomicBool::new(false),
            last: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            objects: Mutex::default(),
            untold: Mutex::default(),
        });
        known.insert(serial, Arc::downgrade(&writing));
        writing
    }

    /// Returns a file if somebody holds on to it.
    fn held(&self, serial: u64) -> Option<Arc<Writing>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&serial).and_then(Weak::upgrade)
    }

    /// Begins a write: from now until its end the file has a version of its own, which
    /// nobody else ever sees again.
    pub(super) fn begin(&self, writing: &Arc<Writing>, object: ObjectId) -> Stroke<'_> {
        let strokes = writing.strokes(object);
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        for (under_way, begun) in [(&writing.under_way, &writing.begun), (&strokes.under_way, &strokes.begun)]
        {
            under_way.fetch_add(1, Ordering::AcqRel);
            begun.store(number, Ordering::Release);
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Stroke { files: self, writing: writing.clone(), strokes: Some(strokes) }
    }

    /// Returns what a reader that must see one version compares around each piece; `None`
    /// while a write into the object is under way.
    pub(super) fn unwritten(&self, serial: u64, object: ObjectId) -> Option<Unwritten> {
        let writing = self.of(serial);
        let strokes = writing.strokes(object);
        let unwritten = Unwritten { begun: strokes.begun.load(Ordering::Acquire), strokes, writing };
        unwritten.still().then_some(unwritten)
    }

    /// Ends the writes that no row told of. Their file's version has become another.
    pub(super) fn told(&self, writing: &Writing) {
        let untold = std::mem::take(&mut *writing.untold.lock().unwrap_or_else(PoisonError::into_inner));
        for strokes in untold {
            self.end(writing, &strokes);
        }
    }

    fn end(&self, writing: &Writing, strokes: &Strokes) {
        for under_way in [&strokes.under_way, &writing.under_way, &self.under_way] {
            under_way.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns how many files are known.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns what a file's version is shown as: of one that is being written another, which says so, after each write that is begun,
    /// and once each of them is noted.
    pub(super) fn shown(&self, serial: u64, version: Version, change: u64) -> Version {
        if self.under_way.load(Ordering::Acquire) == 0 {
            return version;
        }
        let writing = self.held(serial);
        let Some(writing) = writing.filter(|writing| writing.under_way.load(Ordering::Acquire) > 0) else {
            return version;
        };
        // Both count up from little.
        let moment = writing.begun.load(Ordering::Acquire).rotate_left(32) ^ change;
        Version(1 << 127 | version.0 & !u128::from(u64::MAX) | u128::from(moment))
    }
}

impl Writing {
    fn strokes(&self, object: ObjectId) -> Arc<Strokes> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(strokes) = objects.get(&object).and_then(Weak::upgrade) {
            return strokes;
        }
        // Of objects that were replaced, those that nobody is at any more are forgotten.
        objects.retain(|_, strokes| strokes.strong_count() > 0);
        let strokes = Arc::<Strokes>::default();
        objects.insert(object, Arc::downgrade(&strokes));
        strokes
    }

    /// Whether bytes changed that no row tells of.
    pub(super) fn has_untold(&self) -> bool {
        !self.untold.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(super) fn written(&self, now: Tick) {
        self.last.store(now.0, Ordering::Release);
    }

    pub(super) fn last_written(&self) -> Tick {
        Tick(self.last.load(Ordering::Acquire))
    }
}

/// Says whether an object was written since somebody looked.
#[derive(Clone)]
pub(super) struct Unwritten {
    /// Held on to: if it were forgotten, writers would count anew.
    writing: Arc<Writing>,
    strokes: Arc<Strokes>,
    begun: u64,
}

impl Unwritten {
    pub(super) fn still(&self) -> bool {
        let begun = self.strokes.begun.load(Ordering::Acquire);
        begun == self.begun && self.strokes.under_way.load(Ordering::Acquire) == 0
    }

    /// Whether the file is written in place these seconds: it is marked, and not settled yet.
    pub(super) fn is_in_use(&self) -> bool {
        self.writing.marked.load(Ordering::Acquire)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have begun anew with the file since the last let go.
        if known.get(&self.serial).is_some_and(|known| known.strong_count() == 0) {
            known.remove(&self.serial);
        }
    }
}

impl Stroke<'_> {
    /// Goes on until the file is settled: bytes changed, and no row could be made to say so.
    pub(super) fn untold(mut self) {
        let strokes = self.strokes.take();
        self.writing.untold.lock().unwrap_or_else(PoisonError::into_inner).extend(strokes);
    }
}

impl Drop for Stroke<'_> {
    fn drop(&mut self) {
        if let Some(strokes) = self.strokes.take() {
            self.files.end(&self.writing, &strokes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ONE: ObjectId = ObjectId(1);
    const OTHER: ObjectId = ObjectId(2);

    #[test]
    fn a_file_is_known_as_long_as_somebody_holds_on_to_it() {
        let files = Files::default();
        let writer = files.of(7);
        let reader = files.unwritten(7, ONE).unwrap();
        drop(files.begin(&writer, ONE));
        drop(writer);
        assert!(!reader.still(), "what was written is not forgotten while somebody asks");
        assert_eq!(files.count(), 1);
        let again = files.of(7);
        drop(reader);
        assert_eq!(files.count(), 1);
        drop(again);
        assert_eq!(files.count(), 0);
    }

    #[test]
    fn nobody_is_pinned_to_what_is_being_written() {
        let files = Files::default();
        let writer = files.of(7);
        let stroke = files.begin(&writer, ONE);
        assert!(files.unwritten(7, ONE).is_none());
        drop(stroke);
        assert!(files.unwritten(7, ONE).unwrap().still());
    }

    #[test]
    fn what_is_being_written_has_another_version_after_each_write_that_is_begun_or_noted() {
        let files = Files::default();
        let writer = files.of(7);
        let version = |change| files.shown(7, Version(5 << 64 | u128::from(change)), change);
        let before = version(1);
        let first = files.begin(&writer, ONE);
        let begun = version(1);
        let second = files.begin(&writer, ONE);
        let both = version(1);
        drop(first);
        let noted = version(2);
        drop(second);
        assert_eq!(HashSet::from([before, begun, both, noted]).len(), 4);
        assert_eq!(version(1), before);
    }

    #[test]
    fn who_is_pinned_to_one_object_is_not_told_of_writes_into_another() {
        let files = Files::default();
        let writer = files.of(7);
        let reader = files.unwritten(7, ONE).unwrap();
        let stroke = files.begin(&writer, OTHER);
        assert!(reader.still() && files.unwritten(7, OTHER).is_none());
        drop(stroke);
        assert!(reader.still() && files.unwritten(7, OTHER).unwrap().still());
        drop(reader);
        for n in 0..100 {
            drop(files.begin(&writer, ObjectId(n)));
        }
        assert!(writer.objects.lock().unwrap().len() < 3, "objects that nobody is at are forgotten");
    }

    #[test]
    fn a_write_that_no_row_tells_of_goes_on_until_it_is_told() {
        let files = Files::default();
        let writer = files.of(7);
        files.begin(&writer, ONE).untold();
        assert!(files.unwritten(7, ONE).is_none() && writer.has_untold());
        files.told(&writer);
        assert!(files.unwritten(7, ONE).unwrap().still() && !writer.has_untold());
        assert_eq!(files.under_way.load(Ordering::Acquire), 0);
    }
}
