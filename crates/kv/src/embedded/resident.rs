//! Rows of the tree that were asked for lately, in memory as they are handed out.
//!
//! The tree changes only with a fold, so a row in here stays right until a fold changes it, and no
//! commit has to look. Readers of an older tree go on beside those of the newer one: every row says
//! since which tree it has been as it is, and an older one passes it by.

use std::convert::Infallible;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::overlay::Overlay;

/// Bytes a row costs beside its key and value: places in the map and in the queue, counts.
const ROW_BYTES: u64 = 160;
/// Bytes of key and value that a row usually has, for the cache to lay out its tables.
const ROW_BYTES_USUAL: u64 = 100;

/// Rows of one tree.
pub(super) struct Resident {
    rows: Cache<Bytes, Held, Weight>,
    /// The last commit of the newest tree. Whoever adds rows shares the lock, a fold has it alone.
    newest: RwLock<u64>,
}

#[derive(Clone)]
struct Held {
    /// The last commit of the tree that it was read from.
    since: u64,
    value: Bytes,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Bytes, Held> for Weight {
    fn weight(&self, key: &Bytes, held: &Held) -> u64 {
        (key.len() + held.value.len()) as u64 + ROW_BYTES
    }
}

impl Resident {
    /// Makes room for so many bytes of rows.
    pub(super) fn new(bytes: u64) -> Self {
        let rows = usize::try_from(bytes / (ROW_BYTES + ROW_BYTES_USUAL)).unwrap_or(usize::MAX);
        Self { rows: Cache::with_weighter(rows, bytes, Weight), newest: RwLock::new(0) }
    }

    /// Returns the value under `key` in the tree that ends with commit `applied`, if it is here.
    pub(super) fn get(&self, key: &[u8], applied: u64) -> Option<Bytes> {
        self.rows.get(key).filter(|held| held.since <= applied).map(|held| held.value)
    }

    /// Keeps a row that was read from the tree that ends with commit `applied`.
    pub(super) fn keep(&self, key: Bytes, value: Bytes, applied: u64) {
        // A fold that has the lock is about to make this tree an old one.
        if let Ok(newest) = self.newest.try_read()
            && *newest == applied
        {
            self.rows.insert(key, Held { since: applied, value });
        }
    }

    /// Follows a fold of `overlay`, which has made the tree end with commit `applied`. To be called
    /// before anybody can read that tree.
    pub(super) fn follow(&self, overlay: &Overlay, applied: u64) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let Ok(()) = overlay.try_for_each(|key, value| {
            match value {
                // What is here was asked for, and will be again.
                Some(value) if self.rows.contains_key(key) => {
                    let (key, value) = row(key, value);
                    let _ = self.rows.replace(key, Held { since: applied, value }, false);
                }
                Some(_) => {}
                None => drop(self.rows.remove(key)),
            }
            Ok::<_, Infallible>(())
        });
        *newest = applied;
    }

    /// Sees to it that the newest tree is the one that ends with commit `applied`. A tree that
    /// changed in another way than [`Resident::follow`] was told starts with nothing.
    pub(super) fn is_of(&self, applied: u64) {
        let mut newest = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        if *newest != applied {
            self.rows.clear();
            *newest = applied;
        }
    }
}

/// Copies a row into one piece of memory.
pub(super) fn row(key: &[u8], value: &[u8]) -> (Bytes, Bytes) {
    let mut both = Vec::with_capacity(key.len() + value.len());
    both.extend_from_slice(key);
    both.extend_from_slice(value);
    let mut key_part = Bytes::from(both);
    let value = key_part.split_off(key.len());
    (key_part, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::held::Key;
    use crate::embedded::overlay::Needed;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn changed(rows: &[(&str, Option<&str>)]) -> Overlay {
        let overlay = Overlay::default();
        let changes = rows.iter().map(|(key, value)| (Key::new(key.as_bytes()), value.map(bytes))).collect();
        overlay.apply(changes, 2, Needed::All);
        overlay
    }

    fn with(key: &str, value: &str) -> Resident {
        let resident = Resident::new(1 << 20);
        resident.is_of(1);
        resident.keep(bytes(key), bytes(value), 1);
        resident
    }

    #[test]
    fn a_row_that_no_fold_changed_is_kept_for_every_tree_since() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("b", Some("new"))]), 2);
        assert_eq!(resident.get(b"a", 1), Some(bytes("old")));
        assert_eq!(resident.get(b"a", 2), Some(bytes("old")));
    }

    #[test]
    fn a_row_that_a_fold_changed_is_shown_to_readers_of_the_new_tree_alone() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("a", Some("new"))]), 2);
        assert_eq!(resident.get(b"a", 1), None);
        assert_eq!(resident.get(b"a", 2), Some(bytes("new")));
    }

    #[test]
    fn a_row_that_a_fold_removed_is_gone() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("a", None)]), 2);
        assert_eq!(resident.get(b"a", 2), None);
    }

    #[test]
    fn a_reader_of_an_old_tree_adds_nothing() {
        let resident = with("a", "old");
        resident.follow(&changed(&[("a", None)]), 2);
        resident.keep(bytes("a"), bytes("old"), 1);
        assert_eq!(resident.get(b"a", 2), None);
    }

    #[test]
    fn a_tree_that_changed_in_another_way_starts_with_nothing() {
        let resident = with("a", "old");
        resident.is_of(2);
        assert_eq!(resident.get(b"a", 2), None);
    }
}
