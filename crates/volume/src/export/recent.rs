//! Files that were read a moment ago, open still: whoever reads one again finds it looked at, and not opened anew.
//!
//! What has a name is asked of the machine each time, name by name from the share's root down. What is kept counts
//! only if that is the very inode, and all that the machine stamps of it is as it was when it was opened: whatever
//! would have the machine refuse it now, or show other bytes, has changed its time of change.
//!
//! All of it is let go with the root, which is held for a second at a time, and nothing before: closing a file that
//! was removed meanwhile frees its bytes, however long that takes. So what is kept is bounded for each root, and for all.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weft_core::Time;
use weft_sys::beneath::{Facts, Held};
use weft_sys::disk::RealFile;
use weft_sys::folder::Sort;

use super::known::above;
use super::source::COPIED_BYTES_MAX;
use super::version::is_young_at;

/// Files and directories kept below one root: two descriptors each, and one.
const KEPT_MAX: usize = 128;

/// The same of all shares of this process.
static PLACES: Places = Places { left: AtomicUsize::new(512) };

/// As many of the last paths that were read are known by their hashes.
const ONCE_READ: usize = 256;

/// Longer files take longer to send than to open, and each reader has the machine read ahead for itself.
const BYTES_MAX: u64 = 1 << 20;

/// Each name on the way is a system call, and opening anew takes five.
const NAMES_MAX: usize = 4;

/// What was read below one held root.
pub(super) struct Recent {
    root: Arc<Held>,
    kept: Mutex<Kept>,
}

/// A file that is open for reading.
#[derive(Clone)]
pub(super) struct Read {
    pub(super) held: Arc<Held>,
    pub(super) facts: Facts,
    pub(super) file: Arc<RealFile>,
}

/// All that is kept open below one root.
#[derive(Default)]
pub(super) struct Kept {
    items: HashMap<Box<[u8]>, Item>,
    /// What is no longer at its path.
    gone: Vec<Item>,
    /// Hashes of paths that were read: what is read once a second is not worth its place.
    once: Vec<u64>,
    let_go: bool,
}

/// A file, or a directory on the way to one.
struct Item {
    held: Arc<Held>,
    facts: Facts,
    file: Option<Arc<RealFile>>,
    _place: Place,
}

/// How much may be kept at once.
struct Places {
    left: AtomicUsize,
}

/// One of them, until it is dropped.
struct Place(&'static Places);

impl Recent {
    pub(super) fn below(root: Held) -> Self {
        Self { root: Arc::new(root), kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Each change leaves it whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file that was read, if it was read before a moment ago. `clock` is the machine's before it was
    /// looked at: what was young then may change without a sign.
    pub(super) fn keep(&self, path: &[u8], read: &Read, clock: Time) {
        let facts = &read.facts;
        let names = path.split(|byte| *byte == b'/').count();
        let is_short = facts.size <= BYTES_MAX && facts.used <= 2 * BYTES_MAX;
        if names > NAMES_MAX || !is_short || is_young_at(facts.ctime, clock) {
            return;
        }
        let mut kept = self.lock();
        if kept.was_read(path) {
            kept.put(path, &read.held, facts, Some(&read.file));
        }
    }

    /// Returns the file that was read at a path, whatever is there now.
    pub(super) fn kept(&self, path: &[u8]) -> Option<Read> {
        let kept = self.lock();
        let Item { held, facts, file, .. } = kept.items.get(path)?;
        Some(Read { held: held.clone(), facts: *facts, file: file.clone()? })
    }

    /// Returns it with what the machine knows of it now, and its bytes if they are few, if it is at the path unchanged.
    pub(super) fn read(&self, path: &[u8], kept: Read) -> Option<(Read, Option<Bytes>)> {
        let few = usize::try_from(kept.facts.size).ok().filter(|size| *size <= COPIED_BYTES_MAX);
        // Before the look, which so says of which version they are.
        let bytes = few.and_then(|size| kept.file.read_at_once(0, size)).map(Bytes::from);
        let now = self.directory(above(path)?).and_then(|above| look(&above, path));
        match now.filter(|now| is_as_it_was(&kept.facts, now)) {
            Some(facts) => Some((Read { facts, ..kept }, bytes)),
            None => {
                self.lock().put_away(path, &kept.held);
                None
            }
        }
    }

    /// Returns the directory that is at a path now.
    fn directory(&self, path: &[u8]) -> Option<Arc<Held>> {
        let Some(up) = above(path) else { return Some(self.root.clone()) };
        let up = self.directory(up)?;
        let known = self.lock().items.get(path).map(|item| (item.held.clone(), item.facts));
        if let Some((held, then)) = known {
            if look(&up, path).is_some_and(|now| then.is_same_inode(&now) && !now.is_mount) {
                return Some(held);
            }
            self.lock().put_away(path, &held);
        }
        let held = Arc::new(up.inside(last(path)).ok()?);
        let facts = held.facts().ok()?;
        let is_kept = facts.sort == Sort::Directory && self.lock().put(path, &held, &facts, None);
        is_kept.then_some(held)
    }

    /// Keeps nothing from now on. Returns what was kept, to be dropped where that may take its time.
    pub(super) fn let_go(&self) -> Kept {
        std::mem::replace(&mut *self.lock(), Kept { let_go: true, ..Kept::default() })
    }
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.gone.is_empty()
    }

    /// Returns whether a path is one of the last that were read, as far as its hash tells; it is from now on.
    fn was_read(&mut self, path: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let hash = hasher.finish();
        self.once.resize(ONCE_READ, 0);
        let last = &mut self.once[hash as usize % ONCE_READ];
        std::mem::replace(last, hash) == hash
    }

    /// Keeps something, if there is room. Returns whether it is kept.
    fn put(&mut self, path: &[u8], held: &Arc<Held>, facts: &Facts, file: Option<&Arc<RealFile>>) -> bool {
        if self.let_go || self.items.contains_key(path) || self.items.len() + self.gone.len() >= KEPT_MAX {
            return false;
        }
        let Some(place) = PLACES.take() else { return false };
        let item = Item { held: held.clone(), facts: *facts, file: file.cloned(), _place: place };
        self.items.insert(path.into(), item);
        true
    }

    /// Has something not be found any more, unless something else is kept there by now.
    fn put_away(&mut self, path: &[u8], held: &Arc<Held>) {
        if self.items.get(path).is_some_and(|item| Arc::ptr_eq(&item.held, held)) {
            self.gone.extend(self.items.remove(path));
        }
    }
}

impl Places {
    fn take(&'static self) -> Option<Place> {
        let fewer = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).ok().map(|_| Place(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reading moves the time of reading, and bytes take their place on the disk after they are written.
fn is_as_it_was(then: &Facts, now: &Facts) -> bool {
    Facts { atime: then.atime, used: then.used, ..*now } == *then
}

/// Looks at what has the last name of a path in a directory; nothing of a network is ever kept.
fn look(above: &Held, path: &[u8]) -> Option<Facts> {
    above.look(last(path), false).ok()?
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "programs of the machine change what is kept")]
mod tests;
