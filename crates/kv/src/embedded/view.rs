//! What readers see: overlays over the tree, and how far they may look.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use weft_core::Result;

use super::OWN;
use super::feed::Counts;
use super::overlay::{Needed, Overlay, OverlayCursor};
use super::rows::{Changes, Merged, Source};
use super::tree::TreeView;
use crate::engine::{Commit, NoteKind, Order, Read, Rows, Snapshot};

/// The places that rows lie in, newest first.
#[derive(Clone)]
pub(super) struct View {
    pub(super) active: Arc<Overlay>,
    /// What is being folded.
    pub(super) frozen: Option<Arc<Overlay>>,
    pub(super) tree: Arc<TreeView>,
}

impl View {
    /// Returns the value under `key` as of `commit`.
    pub(super) fn get(&self, key: &[u8], commit: u64) -> Result<Option<Bytes>> {
        if let Some(change) = self.active.get(key, commit) {
            return Ok(change);
        }
        if let Some(change) = self.frozen.as_ref().and_then(|frozen| frozen.get(key, commit)) {
            return Ok(change);
        }
        self.tree.get(key)
    }

    /// Returns the rows as of `commit`, under what `pending` changes.
    pub(super) fn scan<'a>(
        &self,
        pending: Option<&'a Changes>,
        commit: u64,
        from: &[u8],
        to: &[u8],
        order: Order,
    ) -> Rows<'a> {
        if !to.is_empty() && from >= to {
            return Box::new(std::iter::empty());
        }
        let overlay = |overlay: &Arc<Overlay>| {
            Source::Overlay(OverlayCursor::new(overlay.clone(), commit, from, to, order))
        };
        let mut sources = Vec::with_capacity(4);
        sources.extend(pending.map(|pending| {
            let to = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
            Source::Pending(pending.range::<[u8], _>((Bound::Included(from), to)))
        }));
        sources.push(overlay(&self.active));
        sources.extend(self.frozen.as_ref().map(overlay));
        sources.push(Source::Tree(self.tree.cursor(from, to, order)));
        Box::new(Merged::new(sources, order))
    }
}

/// Returns where a scan up to `to` ends: before the engine's own keys at the latest.
pub(super) fn before_own(to: &[u8]) -> &[u8] {
    const BEFORE: &[u8] = &[OWN];
    if to.is_empty() || to > BEFORE { BEFORE } else { to }
}

/// Where the writer puts what readers take.
pub(super) struct Published {
    view: ArcSwap<View>,
    /// The last commit that readers may see.
    visible: AtomicU64,
    readers: Readers,
}

/// How many snapshots are alive, counted in several places: readers on different processors would
/// otherwise take the count from each other all the time.
#[derive(Default)]
struct Readers([Count; Readers::PLACES]);

/// Alone in what processors take from each other.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Readers {
    const PLACES: usize = 8;

    /// Returns the place where this thread counts.
    fn place() -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static PLACE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % Readers::PLACES);
        PLACE.with(|place| *place)
    }

    /// Counts one, and returns where.
    fn enter(&self) -> usize {
        let place = Self::place();
        self.0[place].0.fetch_add(1, Ordering::SeqCst);
        place
    }

    fn leave(&self, place: usize) {
        self.0[place].0.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|count| count.0.load(Ordering::SeqCst) == 0)
    }
}

impl Published {
    pub(super) fn new(view: View, visible: u64) -> Self {
        Self { view: ArcSwap::from_pointee(view), visible: visible.into(), readers: Readers::default() }
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces the places that rows lie in by others that hold the same rows.
    pub(super) fn set_view(&self, view: View) {
        self.view.store(Arc::new(view));
    }

    pub(super) fn visible(&self) -> u64 {
        self.visible.load(Ordering::SeqCst)
    }

    /// Shows a batch that ends with `commit`.
    pub(super) fn show(&self, changes: Changes, commit: u64) {
        // A reader counts itself before it looks how far it may see; so one that is not counted
        // here will see what is visible now, or more.
        let needed = match self.readers.is_empty() {
            true => Needed::From(self.visible()),
            false => Needed::All,
        };
        self.view.load().active.apply(changes, commit, needed);
        self.visible.store(commit, Ordering::SeqCst);
    }
}

/// The engine at one moment.
pub(super) struct EmbeddedSnapshot {
    published: Arc<Published>,
    view: Guard<Arc<View>>,
    commit: u64,
    /// Where it is counted.
    place: usize,
}

impl EmbeddedSnapshot {
    /// Takes a snapshot. What may be seen is read before the view: a view that is newer has
    /// everything up to it, an older one might not. A tree that ends after it makes the snapshot
    /// later, for the overlays too: a fold whose last flush failed leaves its rows in both.
    pub(super) fn take(published: &Arc<Published>) -> Self {
        let place = published.readers.enter();
        let visible = published.visible();
        let view = published.view.load();
        let commit = visible.max(view.tree.applied);
        Self { published: published.clone(), view, commit, place }
    }
}

impl EmbeddedSnapshot {
    /// Returns how many notes of a kind there are.
    pub(super) fn note_counts(&self, kind: NoteKind) -> Result<Counts> {
        Counts::load(&self.view, self.commit, kind)
    }

    /// Returns rows of the engine's own, or everybody's, from `from` to `to`.
    pub(super) fn own_rows(&self, from: &[u8], to: &[u8]) -> Rows<'_> {
        self.view.scan(None, self.commit, from, to, Order::Rising)
    }
}

impl Drop for EmbeddedSnapshot {
    fn drop(&mut self) {
        self.published.readers.leave(self.place);
    }
}

impl Read for EmbeddedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.view.get(key, self.commit)
    }

    fn scan(&self, from: &[u8], to: &[u8], order: Order) -> Rows<'_> {
        self.view.scan(None, self.commit, from, before_own(to), order)
    }
}

impl Snapshot for EmbeddedSnapshot {
    fn commit(&self) -> Commit {
        Commit(self.commit)
    }
}

#[cfg(test)]
mod tests {
    use weft_sys::SimDisk;

    use super::*;
    use crate::embedded::held::Key;
    use crate::embedded::tree::Tree;

    #[test]
    fn a_snapshot_is_of_one_moment_although_a_fold_failed_at_its_end() {
        let rows = |value: &'static str| ["a", "b"].map(|key| (Bytes::from(key), Bytes::from(value)));
        let change = |rows: &[(Bytes, Bytes)]| -> Changes {
            rows.iter().map(|(key, value)| (Key::new(key), Some(value.clone()))).collect()
        };
        // Commit 1 makes one row, commit 2 changes it and makes another. Both are in the tree, and in
        // the overlay still; a reader that is slow saw commit 1 alone.
        let disk = SimDisk::new();
        Tree::make(&disk, 1 << 20, 7, |tree| tree.fill(&rows("new"), 2)).expect("it is made");
        let tree = Tree::open(&disk, 1 << 20).expect("it opens").expect("it is there").view;
        let frozen = Overlay::default();
        frozen.apply(change(&rows("old")[..1]), 1, Needed::All);
        frozen.apply(change(&rows("new")), 2, Needed::All);
        let view = View { active: Arc::default(), frozen: Some(Arc::new(frozen)), tree: Arc::new(tree) };
        let snapshot = EmbeddedSnapshot::take(&Arc::new(Published::new(view, 1)));
        for key in [b"a", b"b"] {
            assert_eq!(snapshot.get(key).expect("it is whole").as_deref(), Some(&b"new"[..]));
        }
        assert_eq!(snapshot.commit(), Commit(2));
    }
}
