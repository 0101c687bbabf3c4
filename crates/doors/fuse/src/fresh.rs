//! What the kernel asks for although it was just told, or could have been.
//!
//! Of a name that is not there it asks twice where a program makes it exclusively, and after a write it asks for the
//! attributes, which the answer to that write has no room for. A directory it opens, lists, and asks whether there is more. What
//! it asks last was in the node's answer to what it asked first, and is given from there for a moment
//! ([`limits::MOUNT_ASKED_AGAIN_WITHIN`]): only where changes by others are told of, and never in a shared mount.
//!
//! ```text
//!   node: no such name ─▶ kept ─▶ given once
//!   node: it is so now ─▶ kept ─▶ given until that node is known to have changed
//!   node: a page       ─▶ kept ─▶ given until any file is
//! ```
//!
//! Whatever others change drops everything, and so does whatever changes names here. What changes one file here drops what is
//! kept of that one, and all pages: they show files that the kernel has not heard of.
//!
//! **Ways to get it wrong.** To keep an answer that was overtaken by a change between the question and its answer ([`Asking`]), or
//! to have the kernel believe one that others' changes overtook ([`Others`]).
//! To give what is kept while a change is under way: the node may have made it ([`Unsettled`], [`Changing`]). To take a change
//! that failed for none: a copy that fails has copied a part.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::{Change, Page};
use weft_core::{FileId, Tick, limits};

use crate::others::{Others, Then};

/// Names and attributes that are kept, at most: a few programs at once, each of which asks right after it was answered.
const KEPT_MAX: usize = 32;
/// The same of pages of directories.
const PAGES_MAX: usize = 4;

/// What was answered a moment ago.
#[derive(Default)]
pub(crate) struct Fresh(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// How often something may have changed, or begun to change, that is kept or asked for just now.
    moves: u64,
    /// What of that was by others.
    others: Others,
    /// How many changes of names, or of more of files than their answers say, are under way here.
    unsettled: usize,
    /// The nodes that changes are under way of here.
    changing: Vec<u64>,
    /// A directory's node, and a name that is not there.
    missing: VecDeque<((u64, Bytes), Tick)>,
    /// A node, and its attributes as they were told with a change that was made here, or with a listing.
    attrs: VecDeque<((u64, Attr), Tick)>,
    /// A directory's node, and a page of it.
    listed: VecDeque<((u64, Listed), Tick)>,
}

/// A page of a directory.
pub(crate) struct Listed {
    /// The page.
    pub page: Arc<Page>,
    /// The cookie it goes on after; 0 at the start.
    pub after: u64,
    /// Whether attributes were asked for.
    pub attributes: bool,
}

impl Listed {
    /// Returns how many of its entries come before what goes on after a cookie; `None` if that is not here.
    fn place(&self, after: u64) -> Option<usize> {
        if after == self.after {
            return Some(0);
        }
        let place = 1 + self.page.entries.iter().position(|entry| entry.cookie == after)?;
        // Nothing after it is the end to the kernel.
        (place < self.page.entries.len() || self.page.next.is_none()).then_some(place)
    }
}

/// A question that the node is asked: its answer is kept if nothing moved meanwhile, and believed if others changed nothing of what
/// it is of.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    moves: u64,
    others: Then,
}

/// A change of names, or of more of files than its answer says. Everything is dropped as it begins and once it is over, however
/// that ends.
pub(crate) struct Unsettled<'a>(&'a Fresh);

/// A change of one file. What is kept of it is dropped as it begins, and nothing is kept of it until it is over, however that
/// ends.
pub(crate) struct Changing<'a> {
    fresh: &'a Fresh,
    node: u64,
    since: u64,
    answer: Option<(Attr, Tick)>,
}

impl Fresh {
    /// Says that the node is about to be asked.
    pub(crate) fn ask(&self) -> Asking {
        let kept = self.lock();
        Asking { moves: kept.moves, others: kept.others.now() }
    }

    /// Returns whether others may have changed a file since it was asked for, and whether they may have had its name mean something
    /// else: the kernel was told of it, or is about to be, and keeps an older answer that comes after.
    pub(crate) fn is_overtaken(
        &self,
        asking: Asking,
        file: FileId,
        (directory, name): (FileId, &[u8]),
    ) -> (bool, bool) {
        let kept = self.lock();
        let (others, then) = (&kept.others, asking.others);
        (others.touched_file(then, file), others.touched_name(then, directory, name))
    }

    /// Keeps that a name is not there.
    pub(crate) fn is_missing(&self, asking: Asking, (directory, name): (u64, Bytes), now: Tick) {
        let mut kept = self.lock();
        if kept.moves == asking.moves && kept.unsettled == 0 {
            keep(&mut kept.missing, KEPT_MAX, (directory, name), now);
        }
    }

    /// Returns whether a name was not there a moment ago: the first who asks is told.
    pub(crate) fn was_missing(&self, directory: u64, name: &[u8], now: Tick) -> bool {
        let mut kept = self.lock();
        let place = kept.missing.iter().position(|((node, other), _)| *node == directory && other == name);
        let found = place.and_then(|place| kept.missing.remove(place));
        found.is_some_and(|(_, since)| is_fresh(since, now))
    }

    /// Returns what a node was a moment ago.
    pub(crate) fn attr(&self, node: u64, now: Tick) -> Option<Attr> {
        let kept = self.lock();
        let ((_, attr), since) = kept.attrs.iter().find(|((other, _), _)| *other == node)?;
        is_fresh(*since, now).then_some(*attr)
    }

    /// Keeps a page of a directory, and the directory's own attributes, which the kernel takes for old once it was read.
    pub(crate) fn is_listed(&self, asking: Asking, directory: u64, listed: Listed, now: Tick) {
        let mut kept = self.lock();
        if kept.moves == asking.moves && kept.unsettled == 0 && kept.changing.is_empty() {
            kept.attrs.retain(|((other, _), _)| *other != directory);
            keep(&mut kept.attrs, KEPT_MAX, (directory, listed.page.dir), now);
            keep(&mut kept.listed, PAGES_MAX, (directory, listed), now);
        }
    }

    /// Returns a page of a directory that was asked for a moment ago and has what goes on after a cookie, and how many of its
    /// entries come before that.
    pub(crate) fn listed(
        &self,
        directory: u64,
        after: u64,
        attributes: bool,
        now: Tick,
    ) -> Option<(Arc<Page>, usize)> {
        let kept = self.lock();
        let pages = kept.listed.iter().rev().filter(|((node, listed), since)| {
            *node == directory && (listed.attributes || !attributes) && is_fresh(*since, now)
        });
        pages
            .map(|((_, listed), _)| listed)
            .find_map(|listed| Some((listed.page.clone(), listed.place(after)?)))
    }

    /// Says that a request of this mount is about to change names, or more of files than its answer says.
    pub(crate) fn unsettle(&self) -> Unsettled<'_> {
        let mut kept = self.lock();
        kept.unsettled += 1;
        kept.drop_all();
        Unsettled(self)
    }

    /// Says that a request of this mount is about to change a file.
    pub(crate) fn change(&self, node: u64) -> Changing<'_> {
        let mut kept = self.lock();
        kept.changing.push(node);
        kept.drop_node(node);
        Changing { fresh: self, node, since: kept.moves, answer: None }
    }

    /// Returns whether requests of this mount that change a file are under way.
    pub(crate) fn is_changing(&self, node: u64) -> bool {
        self.lock().changing.contains(&node)
    }

    /// Drops everything: somebody else may have changed anything, or nobody would tell.
    pub(crate) fn drop_all(&self) {
        let mut kept = self.lock();
        kept.others.anything();
        kept.drop_all();
    }

    /// The same where it is known what somebody else changed.
    pub(crate) fn changed_elsewhere(&self, changes: &[Change]) {
        let mut kept = self.lock();
        if changes.iter().any(Change::hides_names) {
            kept.others.anything();
        } else {
            kept.others.changed(changes);
        }
        kept.drop_all();
    }

    /// Drops what is kept of a node, and all pages.
    pub(crate) fn drop_node(&self, node: u64) {
        self.lock().drop_node(node);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn drop_all(&mut self) {
        self.moves += 1;
        self.missing.clear();
        self.attrs.clear();
        self.listed.clear();
    }

    fn drop_node(&mut self, node: u64) {
        self.moves += 1;
        self.attrs.retain(|((other, _), _)| *other != node);
        self.listed.clear();
    }
}

impl Changing<'_> {
    /// Ends it with the attributes that the file has by it, which are kept if nothing else moves; `None` if its answer did not
    /// say.
    pub(crate) fn came_to(mut self, attr: Option<&Attr>, now: Tick) {
        self.answer = attr.map(|attr| (*attr, now));
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut kept = self.fresh.lock();
        if let Some(place) = kept.changing.iter().position(|node| *node == self.node) {
            kept.changing.swap_remove(place);
        }
        let alone = kept.moves == self.since && kept.unsettled == 0 && !kept.changing.contains(&self.node);
        kept.drop_node(self.node);
        if let Some((attr, now)) = self.answer.filter(|_| alone) {
            keep(&mut kept.attrs, KEPT_MAX, (self.node, attr), now);
        }
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        let mut kept = self.0.lock();
        kept.unsettled -= 1;
        kept.drop_all();
    }
}

/// Keeps what was answered, in the place of what is old, or of the oldest.
fn keep<T>(kept: &mut VecDeque<(T, Tick)>, max: usize, what: T, now: Tick) {
    kept.retain(|(_, since)| is_fresh(*since, now));
    if kept.len() == max {
        kept.pop_front();
    }
    kept.push_back((what, now));
}

fn is_fresh(since: Tick, now: Tick) -> bool {
    now.since(since) <= limits::MOUNT_ASKED_AGAIN_WITHIN
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_core::Name;
    use weft_core::attr::Kind;
    use weft_core::form::{ChangeKind, Cursor, Entry};

    use super::*;
    use crate::nodes::tests::{attr, change};

    const NOW: Tick = Tick(1 << 40);

    fn missing(fresh: &Fresh, name: &'static str) {
        fresh.is_missing(fresh.ask(), (1, Bytes::from_static(name.as_bytes())), NOW);
    }

    fn changed(fresh: &Fresh, node: u64, change: u64) {
        fresh.change(node).came_to(Some(&attr(node, change, 0)), NOW);
    }

    #[test]
    fn a_name_that_was_missing_is_said_once_and_attributes_each_time_for_a_moment() {
        let fresh = Fresh::default();
        let late = NOW.plus(limits::MOUNT_ASKED_AGAIN_WITHIN + Duration::from_nanos(1));
        missing(&fresh, "a");
        changed(&fresh, 2, 1);
        assert!(!fresh.was_missing(1, b"b", NOW) && !fresh.was_missing(2, b"a", NOW), "another name");
        assert!(fresh.was_missing(1, b"a", NOW) && !fresh.was_missing(1, b"a", NOW));
        assert_eq!(fresh.attr(2, NOW), fresh.attr(2, NOW));
        assert!(fresh.attr(2, NOW).is_some() && fresh.attr(3, NOW).is_none());
        missing(&fresh, "a");
        assert!(fresh.attr(2, late).is_none() && !fresh.was_missing(1, b"a", late));
    }

    fn page(fresh: &Fresh, asking: Asking, after: u64, cookies: &[u64], next: Option<u64>) {
        let entry = |cookie: &u64| Entry {
            name: Name::new(Bytes::from(cookie.to_string())).expect("a name"),
            id: attr(*cookie, 0, 0).id,
            kind: Kind::File,
            cookie: *cookie,
            attr: None,
        };
        let page = Page {
            entries: cookies.iter().map(entry).collect(),
            next: next.map(Cursor::Cookie),
            dir: attr(1, 0, 0),
            parent: attr(1, 0, 0).id,
        };
        fresh.is_listed(asking, 1, Listed { page: Arc::new(page), after, attributes: false }, NOW);
    }

    /// Returns the cookies of what goes on after one.
    fn listed(fresh: &Fresh, after: u64) -> Option<Vec<u64>> {
        let (page, place) = fresh.listed(1, after, false, NOW)?;
        Some(page.entries[place..].iter().map(|entry| entry.cookie).collect())
    }

    #[test]
    fn a_page_is_given_from_any_of_its_entries_on_and_its_end_only_where_nothing_follows() {
        let fresh = Fresh::default();
        assert_eq!(listed(&fresh, 0), None);
        page(&fresh, fresh.ask(), 0, &[3, 5], Some(5));
        assert_eq!(listed(&fresh, 0), Some(vec![3, 5]));
        assert_eq!(listed(&fresh, 3), Some(vec![5]));
        assert_eq!((listed(&fresh, 5), listed(&fresh, 4)), (None, None), "more follows; nobody's place");
        page(&fresh, fresh.ask(), 5, &[7], None);
        assert_eq!((listed(&fresh, 5), listed(&fresh, 7)), (Some(vec![7]), Some(vec![])));
        assert!(fresh.listed(2, 0, false, NOW).is_none(), "another directory");
        assert_eq!(fresh.attr(1, NOW), Some(attr(1, 0, 0)), "the directory's own");
        assert!(fresh.listed(1, 0, true, NOW).is_none(), "its attributes were not asked for");
        assert!(fresh.listed(1, 0, false, NOW.plus(2 * limits::MOUNT_ASKED_AGAIN_WITHIN)).is_none());
    }

    /// What may come between a question and its answer.
    const COMES: [fn(&Fresh); 6] = [
        |fresh| changed(fresh, 9, 1),
        |fresh| drop(fresh.change(9)),
        |fresh| fresh.drop_node(9),
        |fresh| drop(fresh.unsettle()),
        Fresh::drop_all,
        |fresh| fresh.changed_elsewhere(&[change(ChangeKind::Write, 9)]),
    ];

    #[test]
    fn a_page_goes_with_any_change_of_any_file_and_no_answer_is_kept_that_one_came_before() {
        for (number, come) in COMES.into_iter().enumerate() {
            let fresh = Fresh::default();
            page(&fresh, fresh.ask(), 0, &[3], None);
            assert!(listed(&fresh, 0).is_some());
            let (asking, changing) = (fresh.ask(), fresh.change(2));
            page(&fresh, fresh.ask(), 0, &[3], None);
            assert!(listed(&fresh, 0).is_none(), "{number}: while a file is changed");
            come(&fresh);
            fresh.is_missing(asking, (1, Bytes::from_static(b"a")), NOW);
            changing.came_to(Some(&attr(2, 1, 0)), NOW);
            page(&fresh, asking, 0, &[3], None);
            assert!(listed(&fresh, 0).is_none(), "{number}");
            assert!(!fresh.was_missing(1, b"a", NOW) && fresh.attr(2, NOW).is_none(), "{number}");
        }
    }

    #[test]
    fn a_change_drops_its_own_as_it_begins_however_it_ends_and_one_of_names_drops_all() {
        let fresh = Fresh::default();
        let keep = || {
            missing(&fresh, "a");
            [2, 3].into_iter().for_each(|node| changed(&fresh, node, 1));
        };
        keep();
        let failed = fresh.change(2);
        assert!(fresh.attr(2, NOW).is_none() && fresh.attr(3, NOW).is_some());
        drop(failed);
        assert!(fresh.attr(2, NOW).is_none() && fresh.was_missing(1, b"a", NOW));
        let (first, second) = (fresh.change(2), fresh.change(2));
        second.came_to(Some(&attr(2, 2, 0)), NOW);
        assert!(fresh.attr(2, NOW).is_none(), "the first may be made by now");
        first.came_to(Some(&attr(2, 1, 0)), NOW);
        assert!(fresh.attr(2, NOW).is_none(), "or may have been before the second");
        keep();
        let unsettled = fresh.unsettle();
        assert!(fresh.attr(3, NOW).is_none() && !fresh.was_missing(1, b"a", NOW));
        keep();
        page(&fresh, fresh.ask(), 0, &[3], None);
        assert!(
            fresh.attr(3, NOW).is_none() && !fresh.was_missing(1, b"a", NOW) && listed(&fresh, 0).is_none()
        );
        drop(unsettled);
        keep();
        assert!(fresh.attr(3, NOW).is_some());
    }

    #[test]
    fn of_a_node_the_last_is_kept_or_nothing_and_of_many_the_last() {
        let fresh = Fresh::default();
        changed(&fresh, 2, 1);
        changed(&fresh, 2, 2);
        assert_eq!(fresh.attr(2, NOW).map(|attr| attr.change), Some(2));
        fresh.change(2).came_to(None, NOW);
        assert!(fresh.attr(2, NOW).is_none(), "its answer did not say");
        (0..=KEPT_MAX as u64).for_each(|node| changed(&fresh, node, 1));
        assert!(fresh.attr(0, NOW).is_none() && fresh.attr(1, NOW).is_some());
    }
}
