//! What the kernel knows: its nodes, how often it looked each up, and which state of a
//! file its cached attributes and pages show.
//!
//! A node's number is the door's own and never used twice, so that a file that comes to
//! an old inode number is another node. The state says when cached pages may be kept:
//!
//! ```text
//!   told attributes, version as before ──▶ pages still good
//!   own write, nothing between  ─────────▶ pages good for the new version (the kernel has them)
//!   one state, another version  ─────────▶ pages still good, until an open or a look
//!   anything else  ──────────────────────▶ pages must go before the answer does
//! ```
//!
//! While they go, an open that comes in between is told to keep none, and nobody is told of other bytes: the page that was the last
//! shows zeros to its end to who is told that the file is longer. Of directories it keeps listings ([`listings`]), and by which
//! names it came to them is kept for when they may not be passed any more ([`ways`]).

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use tokio::sync::Notify;
use weft_core::attr::{Attr, Kind, SetAttr, SetTime, Version, Wcc};
use weft_core::{ContainerId, FileId, Time};

use crate::abi::ROOT_NODE;
use crate::ahead::Moves;
use crate::handles::Written;
use crate::remembered::{Fields, Head, Noted, Part, Remembered, file_of, numbers_of};
use listings::Listing;
use unplaced::Unplaced;
pub(crate) use ways::Way;
use ways::Ways;

mod listings;
mod unplaced;
mod ways;

/// The nodes of one mount.
pub(crate) struct Nodes {
    table: Mutex<Table>,
    remembered: Arc<Remembered>,
    /// Wakes those who wait for pages to go.
    went: Notify,
}

/// Which field of a node's place holds its lookups; before it are the file's two numbers, after it
/// [`Written`]'s.
const LOOKUPS: usize = 3;

struct Table {
    nodes: HashMap<u64, Node>,
    by_file: HashMap<FileId, u64>,
    next: u64,
    /// How often what the kernel keeps of listings became old, of all directories at once.
    listing_turns: u64,
    ways: Ways,
    /// Nodes that the kernel was told of and did not know: it is about to be answered with them, or has forgotten them.
    unheard_of: HashSet<u64>,
}

struct Node {
    file: FileId,
    /// `None` until it is learnt.
    kind: Option<Kind>,
    lookups: u64,
    /// `None` until it is learnt.
    container: Option<ContainerId>,
    /// The state the kernel's attributes are of, and how long the file is by them.
    change: u64,
    size: u64,
    /// The version its pages are of, or an older one if they were dropped since, or another of the same state; `None`
    /// while it was never opened and so has none.
    pages: Option<Version>,
    /// How often pages of it became older than what the kernel is to show, and up to which of those times they have gone: while
    /// there is a difference, its pages are not of the version.
    stale: u64,
    gone: u64,
    /// Whether the kernel was told of a state since it was told that it changed elsewhere.
    heard: bool,
    /// Changes made through this mount that do not follow the state above.
    unplaced: Unplaced,
    /// What was written to it through this mount.
    written: Arc<Written>,
    /// How often its bytes may have changed.
    moves: Arc<Moves>,
    /// For an open directory: how often it is open, and what it was then. Fifos, whose
    /// opens the kernel keeps to itself, count as open.
    held: Option<Box<(u64, Attr)>>,
    /// What is noted of what the kernel keeps of its listing, of a directory.
    listing: Listing,
    /// Where it is remembered, but for the root.
    noted: Noted,
}

/// What an open means for what the kernel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The pages are those of the version that was opened.
    pub pages: bool,
    /// There may be pages, of another version: they are to be dropped.
    pub stale: bool,
    /// Older pages are being dropped for somebody else, up to this time of theirs.
    pub going: Option<u64>,
    /// The attributes are those of the file that was opened.
    pub attributes: bool,
}

/// What it means for the pages that the kernel keeps that it is told of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// They are of that state, as far as anybody can say, or there are none.
    Shown,
    /// They are of another version: they are to be dropped before it is told.
    Stale,
    /// Older ones are being dropped for somebody else, up to this time of theirs: that is to be waited for.
    Going(u64),
}

impl Nodes {
    /// Makes the table of a mount whose root is this, with what is remembered of its nodes. Which state of them the
    /// kernel shows nobody knows then: each counts as being dropped, until it was.
    pub(crate) fn new(root: &Attr, remembered: &Arc<Remembered>) -> Self {
        let [inode, generation] = numbers_of(root.id);
        remembered.set(Head::Root, inode);
        remembered.set(Head::RootGeneration, generation);
        let last = remembered.head(Head::LastNode).max(ROOT_NODE);
        let (nodes, by_file) = (HashMap::new(), HashMap::new());
        let ways = Ways::default();
        let mut table =
            Table { nodes, by_file, next: last + 1, listing_turns: 0, ways, unheard_of: HashSet::new() };
        for (place, fields) in remembered.each(Part::Nodes) {
            let node = Node::remembered(&fields, Noted::at(remembered, Some(place)));
            table.by_file.insert(node.file, fields[0]);
            table.nodes.insert(fields[0], node);
        }
        // The kernel never looks the root up and never forgets it.
        table.by_file.insert(root.id, ROOT_NODE);
        table.nodes.insert(ROOT_NODE, Node::new(root, u64::MAX, Noted::default()));
        Self { table: Mutex::new(table), remembered: remembered.clone(), went: Notify::new() }
    }

    /// Returns which file a node is. `ESTALE` for one the kernel was not told of.
    pub(crate) fn file(&self, node: u64) -> Result<FileId, Errno> {
        self.lock().nodes.get(&node).map(|node| node.file).ok_or(Errno::STALE)
    }

    /// Returns which node a file is, if the kernel knows it.
    pub(crate) fn node(&self, file: FileId) -> Option<u64> {
        self.lock().by_file.get(&file).copied()
    }

    /// Counts a lookup of a file. Returns its node, and what that means for pages of it.
    pub(crate) fn found(&self, attr: &Attr) -> (u64, Told) {
        let mut table = self.lock();
        if let Some(number) = table.by_file.get(&attr.id).copied()
            && let Some(node) = table.nodes.get_mut(&number)
        {
            node.count(node.lookups.saturating_add(1));
            return (number, node.told(attr));
        }
        let number = table.next;
        table.next += 1;
        self.remembered.set(Head::LastNode, number);
        let [inode, generation] = numbers_of(attr.id);
        let place = self.remembered.keep(Part::Nodes, [number, inode, generation, 1, 0, 0, 0, 0]);
        table.nodes.insert(number, Node::new(attr, 1, Noted::at(&self.remembered, place)));
        table.by_file.insert(attr.id, number);
        (number, Told::Shown)
    }

    /// Notes what the kernel is told of a node. Returns what that means for its pages.
    pub(crate) fn told(&self, number: u64, attr: &Attr) -> Told {
        self.lock().nodes.get_mut(&number).map_or(Told::Shown, |node| node.told(attr))
    }

    /// Notes a change made through this mount, whose bytes the kernel has as well. `end` ends it, and says whether more of them are
    /// under way: one after the other, or each of the last two would wait for the other. Returns whether somebody else's change came
    /// between, so that its pages must go.
    pub(crate) fn changed(&self, number: u64, change: &Wcc, end: impl FnOnce() -> bool) -> bool {
        let mut table = self.lock();
        let more_come = end();
        let Some(node) = table.nodes.get_mut(&number) else { return false };
        node.moves.count();
        let Some(after) = change.after else { return false };
        node.unplaced.add(change.before.map_or(u64::MAX, |before| before.change), after);
        while let Some(left) = node.unplaced.next(node.change) {
            node.place(&left);
        }
        node.unplaced.cut_off(more_come).is_some_and(|newest| node.told(&newest) == Told::Stale)
    }

    /// Notes that pages became old for another reason. Returns which time of theirs that is.
    pub(crate) fn becomes_stale(&self, number: u64) -> u64 {
        let mut table = self.lock();
        let Some(node) = table.nodes.get_mut(&number) else { return 0 };
        node.stale += 1;
        node.stale
    }

    /// Returns how often pages of a node became old: up to which time of theirs they will have gone once the kernel has dropped all of
    /// them from now on.
    pub(crate) fn stale_up_to(&self, number: u64) -> u64 {
        self.lock().nodes.get(&number).map_or(0, |node| node.stale)
    }

    /// Notes that the kernel is being told that a node has changed: it has heard of no state since.
    pub(crate) fn changed_elsewhere(&self, number: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&number) {
            node.heard = false;
        }
    }

    /// Notes that the kernel has dropped all that were old by then. Until it has an open may keep none: what it would keep is what is
    /// being dropped.
    pub(crate) fn dropped(&self, number: u64, up_to: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&number) {
            node.gone = node.gone.max(up_to);
        }
        self.went.notify_waiters();
    }

    /// Notes that the kernel has dropped the pages that became old at one time, and no others.
    pub(crate) fn dropped_some(&self, number: u64, time: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&number)
            && node.gone + 1 == time
        {
            node.gone = time;
        }
        self.went.notify_waiters();
    }

    /// Waits until old pages of a node have gone, up to a time of theirs.
    pub(crate) async fn wait_until_gone(&self, number: u64, up_to: u64) {
        loop {
            let mut went = pin!(self.went.notified());
            went.as_mut().enable();
            if self.lock().nodes.get(&number).is_none_or(|node| node.gone >= up_to) {
                return;
            }
            went.await;
        }
    }

    /// Notes that a node's bytes, or the right to them, may be others than before: nothing that was read of it
    /// ahead is to be shown.
    pub(crate) fn moved(&self, number: u64) {
        if let Some(node) = self.lock().nodes.get(&number) {
            node.moves.count();
        }
    }

    /// Returns how often a node's bytes may have changed.
    pub(crate) fn moves(&self, number: u64) -> Arc<Moves> {
        self.lock().nodes.get(&number).map(|node| node.moves.clone()).unwrap_or_default()
    }

    /// Returns what was written to a node's file through this mount.
    pub(crate) fn written(&self, number: u64) -> Arc<Written> {
        self.lock().nodes.get(&number).map(|node| node.written.clone()).unwrap_or_default()
    }

    /// Notes an open.
    pub(crate) fn opened(&self, number: u64, attr: &Attr) -> Kept {
        let mut table = self.lock();
        let Some(node) = table.nodes.get_mut(&number) else {
            return Kept { pages: false, stale: false, going: None, attributes: true };
        };
        let kept = Kept {
            pages: node.pages == Some(attr.version) && node.going().is_none(),
            stale: node.pages.is_some_and(|version| version != attr.version),
            going: node.going(),
            attributes: node.change == attr.change,
        };
        node.pages = Some(attr.version);
        node.stale += u64::from(kept.stale);
        node.heard = true;
        node.is_shown(attr);
        kept
    }

    /// Notes that a directory was opened.
    pub(crate) fn opened_directory(&self, number: u64, attr: &Attr) {
        if let Some(node) = self.lock().nodes.get_mut(&number) {
            let held = node.held.get_or_insert_with(|| Box::new((0, *attr)));
            **held = (held.0 + 1, *attr);
        }
    }

    /// Notes that a directory is listed: it is open, though it may be the process before this one that opened it.
    pub(crate) fn lists_directory(&self, number: u64, attr: &Attr) {
        if let Some(node) = self.lock().nodes.get_mut(&number) {
            node.held.get_or_insert_with(|| Box::new((1, *attr)));
        }
    }

    /// Notes that an open directory was closed.
    pub(crate) fn closed_directory(&self, number: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&number) {
            node.held = node.held.take().filter(|held| held.0 > 1).map(|held| Box::new((held.0 - 1, held.1)));
        }
    }

    /// Returns what a directory or fifo that was removed while it is open still shows.
    pub(crate) fn removed(&self, number: u64) -> Option<Attr> {
        let table = self.lock();
        let (_, attr) = &**table.nodes.get(&number)?.held.as_ref()?;
        Some(without_names(attr))
    }

    /// Sets attributes of what [`Nodes::removed`] shows, and returns them: nobody but those
    /// who have it open here can see it any more.
    pub(crate) fn set_removed(&self, number: u64, set: &SetAttr, now: Time) -> Option<Attr> {
        let mut table = self.lock();
        let (_, attr) = &mut **table.nodes.get_mut(&number)?.held.as_mut()?;
        let time = |set: Option<SetTime>, old: Time| set.map_or(old, |time| time.at(now));
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.atime = time(set.atime, attr.atime);
        attr.mtime = time(set.mtime, attr.mtime);
        attr.ctime = now;
        Some(without_names(attr))
    }

    /// Takes back lookups.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut table = self.lock();
        let Some(node) = table.nodes.get_mut(&number) else { return };
        if number == ROOT_NODE {
            return;
        }
        node.count(node.lookups.saturating_sub(lookups));
        if node.lookups == 0 {
            let file = node.file;
            if let Some(mut node) = table.nodes.remove(&number) {
                // Who has it open still writes there.
                node.written.is_forgotten();
                node.noted.end();
            }
            table.by_file.remove(&file);
            table.ways.forget(number);
        }
    }

    /// Notes that the kernel did not know a node that it was told of, though it was looked up.
    pub(crate) fn is_unheard_of(&self, number: u64) {
        let mut table = self.lock();
        if table.nodes.contains_key(&number) {
            table.unheard_of.insert(number);
        }
    }

    /// Returns the nodes that the kernel did not know when it was told of them, and that are nodes still.
    pub(crate) fn take_unheard_of(&self) -> Vec<u64> {
        let table = &mut *self.lock();
        table.unheard_of.drain().filter(|number| table.nodes.contains_key(number)).collect()
    }

    /// Returns every node, or those of one container.
    pub(crate) fn all(&self, container: Option<ContainerId>) -> Vec<u64> {
        let table = self.lock();
        let here =
            |node: &Node| container.is_none_or(|container| node.container.is_none_or(|own| own == container));
        table.nodes.iter().filter(|(_, node)| here(node)).map(|(number, _)| *number).collect()
    }

    /// Returns whether a node is known to have come to nothing since it was of this state.
    pub(crate) fn is_still(&self, number: u64, attr: &Attr) -> bool {
        self.lock().nodes.get(&number).is_some_and(|node| node.change == attr.change)
    }

    /// Returns whether a node is a file that was opened, so that the kernel may keep pages of it, and whose state it has heard of
    /// since it was told that it changed elsewhere.
    pub(crate) fn may_be_shown(&self, number: u64) -> bool {
        self.lock().nodes.get(&number).is_some_and(|node| node.pages.is_some() && node.heard)
    }

    /// Returns whether a file is known to have come to more since it was of this state.
    pub(crate) fn is_past(&self, attr: &Attr) -> bool {
        let table = self.lock();
        let node = table.by_file.get(&attr.id).and_then(|number| table.nodes.get(number));
        node.is_some_and(|node| node.change > attr.change)
    }

    /// Returns whether a node may be a directory: of what another process learnt nobody knows.
    pub(crate) fn may_be_directory(&self, number: u64) -> bool {
        let table = self.lock();
        table.nodes.get(&number).is_some_and(|node| node.kind.is_none_or(|kind| kind == Kind::Directory))
    }

    /// Returns the container a node was last seen in.
    pub(crate) fn container(&self, number: u64) -> Option<ContainerId> {
        self.lock().nodes.get(&number)?.container
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    fn new(attr: &Attr, lookups: u64, noted: Noted) -> Self {
        let Attr { id: file, kind, container, change, size, .. } = *attr;
        let written = Arc::new(Written::noted_at(noted.clone()));
        let mut node = Self {
            file,
            kind: Some(kind),
            lookups,
            container: Some(container),
            change,
            size,
            unplaced: Unplaced::after(change),
            pages: None,
            stale: 0,
            gone: 0,
            heard: false,
            written,
            moves: Arc::default(),
            held: None,
            listing: Listing::default(),
            noted,
        };
        node.hold_fifo(attr);
        node
    }

    fn remembered(fields: &Fields, noted: Noted) -> Self {
        let [_, inode, generation, lookups, written @ ..] = *fields;
        Self {
            file: file_of(inode, generation),
            kind: None,
            lookups,
            container: None,
            change: 0,
            size: 0,
            pages: None,
            stale: 1,
            gone: 0,
            heard: false,
            unplaced: Unplaced::after(0),
            written: Arc::new(Written::remembered(written, noted.clone())),
            moves: Arc::default(),
            held: None,
            listing: Listing::default(),
            noted,
        }
    }

    fn count(&mut self, lookups: u64) {
        self.lookups = lookups;
        self.noted.set(LOOKUPS, lookups);
    }

    fn is_open_directory(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.1.kind == Kind::Directory)
    }

    /// The kernel keeps opens of fifos to itself.
    fn hold_fifo(&mut self, attr: &Attr) {
        if attr.kind == Kind::Fifo && self.held.is_none() {
            self.held = Some(Box::new((1, *attr)));
        }
    }

    /// Notes the newest state, unless the answer that says so was overtaken by a newer one. Returns
    /// whether it was not.
    fn came_to(&mut self, attr: &Attr) -> bool {
        self.container = Some(attr.container);
        self.kind = Some(attr.kind);
        if attr.change < self.change {
            return false;
        }
        if attr.change != self.change {
            // The kernel is about to hear of this state, perhaps before the feed tells of the change.
            self.moves.count();
            self.listing.is_old();
            self.heard = true;
        }
        (self.change, self.size) = (attr.change, attr.size);
        self.hold_fifo(attr);
        if let Some(held) = &mut self.held {
            held.1 = *attr;
        }
        true
    }

    /// Notes a change made through this mount that follows what it knows.
    fn place(&mut self, left: &Attr) {
        if left.change > self.change {
            self.pages = self.pages.map(|_| left.version);
        }
        self.came_to(left);
    }

    /// Notes a state that others may have made, which the kernel is about to be told of. Returns what [`Node::came_to`] does.
    fn is_shown(&mut self, attr: &Attr) -> bool {
        if attr.change > self.change {
            self.unplaced.begin(attr.change);
        }
        self.came_to(attr)
    }

    /// Returns up to which time old pages are being dropped, if they are.
    fn going(&self) -> Option<u64> {
        (self.gone < self.stale).then_some(self.stale)
    }

    fn told(&mut self, attr: &Attr) -> Told {
        // Of one state a file gets another version when the last write that is under way ends, and on a share when the tick of the
        // disk's clock is over that it was written in. The kernel is told nothing new by that, and what may be of a moment before,
        // which there is on a share alone, a look drops.
        let says_the_same = (attr.change, attr.size) == (self.change, self.size);
        let is_newest = self.is_shown(attr);
        if is_newest && self.pages.is_some_and(|version| version != attr.version) {
            self.pages = Some(attr.version);
            if !says_the_same {
                self.stale += 1;
                return Told::Stale;
            }
        }
        self.going().map_or(Told::Shown, Told::Going)
    }
}

/// What is shown of a directory or fifo that has no name any more.
fn without_names(attr: &Attr) -> Attr {
    Attr { links: 0, size: 0, ..*attr }
}

#[cfg(test)]
pub(crate) mod tests;
