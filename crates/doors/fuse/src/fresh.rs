//! What the kernel asks for although it was just told, or could have been.
//!
//! Of a name that is not there it asks twice where a program makes it exclusively, and after a write it asks for the
//! attributes, which the answer to that write has no room for. A directory it opens, lists, and asks whether there is more. What
//! it asks last was in the node's answer to what it asked first, so that each call that is saved here shows what the kernel would
//! show by itself, had it kept it: for a moment ([`limits::MOUNT_ASKED_AGAIN_WITHIN`]), only where changes by others are told
//! of, and never in a shared mount.
//!
//! ```text
//!   node: no such name ─▶ kept ─▶ given once
//!   node: it is so now ─▶ kept ─▶ given until anything is known to have changed since
//!   node: a page       ─▶ kept ─▶ given until anything anywhere is
//! ```
//!
//! **Ways to get it wrong.** To keep an answer that was overtaken: by a change that was told of, or made here, between the
//! question and its answer ([`Asking`]). To forget a way by which what is kept changes: a removal changes the
//! attributes of files that it does not name, so that whatever changes names here drops all; a page shows files that
//! the kernel has not heard of, so that it goes with any change of any file, by whomever.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weft_core::attr::Attr;
use weft_core::form::Page;
use weft_core::{Tick, limits};

/// Names and attributes that are kept, at most: a few programs at once, each of which asks right after it was answered.
const KEPT_MAX: usize = 32;
/// The same of pages of directories.
const PAGES_MAX: usize = 4;

/// What was answered a moment ago.
#[derive(Default)]
pub(crate) struct Fresh(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// How often something may have changed that is kept, or asked for just now.
    moves: u64,
    /// How often a file was changed here.
    made: u64,
    /// A directory's node, and a name that is not there.
    missing: VecDeque<(u64, Bytes, Tick)>,
    /// A node, and its attributes as they were told with a change that was made here, or with a listing.
    attrs: VecDeque<(u64, Attr, Tick)>,
    /// A directory's node, and a page of it.
    listed: VecDeque<(u64, Listed, Tick)>,
}

/// A page of a directory.
#[derive(Clone)]
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

/// A question that the node is asked: its answer is kept if nothing moved meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    moves: u64,
    made: u64,
}

/// Drops everything once what may change it is over, however that ends.
pub(crate) struct Unsettled<'a>(&'a Fresh);

impl Fresh {
    /// Says that the node is about to be asked.
    pub(crate) fn ask(&self) -> Asking {
        let kept = self.lock();
        Asking { moves: kept.moves, made: kept.made }
    }

    /// Keeps that a name is not there.
    pub(crate) fn is_missing(&self, asking: Asking, (directory, name): (u64, Bytes), now: Tick) {
        let mut kept = self.lock();
        if kept.moves == asking.moves {
            keep(&mut kept.missing, KEPT_MAX, (directory, name, now));
        }
    }

    /// Returns whether a name was not there a moment ago: the first who asks is told.
    pub(crate) fn was_missing(&self, directory: u64, name: &[u8], now: Tick) -> bool {
        let mut kept = self.lock();
        let place = kept.missing.iter().position(|(node, other, _)| *node == directory && other == name);
        let found = place.and_then(|place| kept.missing.remove(place));
        found.is_some_and(|(.., since)| is_fresh(since, now))
    }

    /// Keeps what a node came to by a change that was made here; `None` if its answer did not say, or was overtaken.
    pub(crate) fn changed(&self, asking: Asking, node: u64, attr: Option<&Attr>, now: Tick) {
        let mut kept = self.lock();
        kept.made += 1;
        kept.listed.clear();
        kept.attrs.retain(|(other, ..)| *other != node);
        if let Some(attr) = attr.filter(|_| kept.moves == asking.moves) {
            keep(&mut kept.attrs, KEPT_MAX, (node, *attr, now));
        }
    }

    /// Returns what a node was a moment ago.
    pub(crate) fn attr(&self, node: u64, now: Tick) -> Option<Attr> {
        let kept = self.lock();
        let (_, attr, since) = kept.attrs.iter().find(|(other, ..)| *other == node)?;
        is_fresh(*since, now).then_some(*attr)
    }

    /// Keeps a page of a directory, and the directory's own attributes, which the kernel takes for old once it was read.
    pub(crate) fn is_listed(&self, asking: Asking, directory: u64, listed: Listed, now: Tick) {
        let mut kept = self.lock();
        if (kept.moves, kept.made) == (asking.moves, asking.made) {
            kept.attrs.retain(|(other, ..)| *other != directory);
            keep(&mut kept.attrs, KEPT_MAX, (directory, listed.page.dir, now));
            keep(&mut kept.listed, PAGES_MAX, (directory, listed, now));
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
        kept.listed.iter().rev().find_map(|(node, listed, since)| {
            let told = *node == directory && (listed.attributes || !attributes) && is_fresh(*since, now);
            Some((listed.page.clone(), listed.place(after).filter(|_| told)?))
        })
    }

    /// Drops what is kept of a node, and all that may show files that nobody here knows.
    pub(crate) fn drop_node(&self, node: u64) {
        let mut kept = self.lock();
        kept.moves += 1;
        kept.listed.clear();
        kept.attrs.retain(|(other, ..)| *other != node);
    }

    /// Drops that a name is missing.
    pub(crate) fn drop_name(&self, directory: u64, name: &[u8]) {
        let mut kept = self.lock();
        kept.moves += 1;
        kept.listed.clear();
        kept.missing.retain(|(node, other, _)| *node != directory || other != name);
    }

    /// Says that a request of this mount is about to change names, or more of files than its answer says.
    pub(crate) fn unsettle(&self) -> Unsettled<'_> {
        Unsettled(self)
    }

    /// Drops what shows files that nobody here may know: something was told of some file.
    pub(crate) fn drop_listed(&self) {
        let mut kept = self.lock();
        kept.moves += 1;
        kept.listed.clear();
    }

    /// Drops everything.
    pub(crate) fn drop_all(&self) {
        let mut kept = self.lock();
        *kept = Kept { moves: kept.moves + 1, made: kept.made, ..Kept::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.0.drop_all();
    }
}

fn keep<T>(kept: &mut VecDeque<T>, max: usize, what: T) {
    if kept.len() == max {
        kept.pop_front();
    }
    kept.push_back(what);
}

fn is_fresh(since: Tick, now: Tick) -> bool {
    now.since(since) <= limits::MOUNT_ASKED_AGAIN_WITHIN
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_core::Name;
    use weft_core::attr::Kind;
    use weft_core::form::{Cursor, Entry};

    use super::*;
    use crate::nodes::tests::attr;

    const NOW: Tick = Tick(1 << 40);

    fn missing(fresh: &Fresh, name: &'static str) {
        fresh.is_missing(fresh.ask(), (1, Bytes::from_static(name.as_bytes())), NOW);
    }

    fn changed(fresh: &Fresh, node: u64, change: u64) {
        fresh.changed(fresh.ask(), node, Some(&attr(node, change, 0)), NOW);
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

    #[test]
    fn a_page_goes_with_any_change_of_any_file_and_one_that_a_change_came_before_is_not_kept() {
        let comes: [fn(&Fresh); 6] = [
            |fresh| changed(fresh, 9, 1),
            |fresh| fresh.drop_node(9),
            |fresh| fresh.drop_name(9, b"z"),
            |fresh| drop(fresh.unsettle()),
            Fresh::drop_listed,
            Fresh::drop_all,
        ];
        for (number, come) in comes.into_iter().enumerate() {
            let fresh = Fresh::default();
            page(&fresh, fresh.ask(), 0, &[3], None);
            assert!(listed(&fresh, 0).is_some());
            let asking = fresh.ask();
            come(&fresh);
            assert!(listed(&fresh, 0).is_none(), "{number}");
            page(&fresh, asking, 0, &[3], None);
            assert!(listed(&fresh, 0).is_none(), "{number}");
        }
    }

    #[test]
    fn an_answer_that_something_came_before_is_not_kept() {
        let comes: [fn(&Fresh); 4] = [
            |fresh| fresh.drop_node(9),
            |fresh| fresh.drop_name(9, b"z"),
            |fresh| drop(fresh.unsettle()),
            Fresh::drop_all,
        ];
        for come in comes {
            let fresh = Fresh::default();
            let asking = fresh.ask();
            come(&fresh);
            fresh.is_missing(asking, (1, Bytes::from_static(b"a")), NOW);
            fresh.changed(asking, 2, Some(&attr(2, 1, 0)), NOW);
            assert!(!fresh.was_missing(1, b"a", NOW) && fresh.attr(2, NOW).is_none());
        }
    }

    #[test]
    fn what_is_told_of_drops_its_own_and_a_change_of_names_here_drops_all_once_it_is_over() {
        let fresh = Fresh::default();
        let keep = || {
            ["a", "b"].into_iter().for_each(|name| missing(&fresh, name));
            [2, 3].into_iter().for_each(|node| changed(&fresh, node, 1));
        };
        keep();
        fresh.drop_node(2);
        fresh.drop_name(1, b"a");
        assert!(fresh.attr(2, NOW).is_none() && fresh.attr(3, NOW).is_some());
        assert!(!fresh.was_missing(1, b"a", NOW) && fresh.was_missing(1, b"b", NOW));
        let unsettled = fresh.unsettle();
        keep();
        drop(unsettled);
        assert!(fresh.attr(3, NOW).is_none() && !fresh.was_missing(1, b"b", NOW));
    }

    #[test]
    fn of_a_node_the_last_is_kept_or_nothing_and_of_many_the_last() {
        let fresh = Fresh::default();
        changed(&fresh, 2, 1);
        changed(&fresh, 2, 2);
        assert_eq!(fresh.attr(2, NOW).map(|attr| attr.change), Some(2));
        fresh.changed(fresh.ask(), 2, None, NOW);
        assert!(fresh.attr(2, NOW).is_none(), "its answer did not say");
        (0..=KEPT_MAX as u64).for_each(|node| changed(&fresh, node, 1));
        assert!(fresh.attr(0, NOW).is_none() && fresh.attr(1, NOW).is_some());
    }
}
