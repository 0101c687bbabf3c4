//! Which directories the kernel keeps a listing of that may be shown still.
//!
//! The kernel keeps what it was answered while it listed a directory, and shows that to whoever opens it again if it is told so
//! then: neither the node nor the mount is asked.
//!
//! ```text
//!   opened, and the node said what it is ─▶ noted: the kernel lists it, and keeps that
//!   opened again, and noted              ─▶ the kernel shows what it keeps
//!   names in it, itself or rights change ─▶ not noted: the next open asks the node, and the kernel lists it anew
//! ```
//!
//! The kernel drops by itself what changes here make old. What others change is told of ([`crate::watch`]): that drops what the
//! kernel has, for who has the directory open, and the note, for who opens it. The attributes that came with a listing are believed
//! for a while only, and when they are old, to list the directory anew brings them by the hundred, where to be asked for each
//! would take a call: so a note counts no longer than [`limits::MOUNT_LISTING_KEPT`].

use weft_core::attr::Attr;
use weft_core::{Tick, limits};

use super::Nodes;

/// What is noted of one directory's listing.
#[derive(Default)]
pub(super) struct Listing {
    /// How often it became old.
    turns: u64,
    note: Option<Box<Note>>,
}

/// The kernel lists a directory.
struct Note {
    /// What the directory was as it began.
    attr: Attr,
    since: Tick,
    /// How often all had become old by then.
    turns_of_all: u64,
}

/// A question that the node is asked about a directory: the note that its answer leads to counts if nothing became old
/// meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct AskedToList {
    node: u64,
    since: Tick,
    turns: u64,
    turns_of_all: u64,
}

impl Listing {
    pub(super) fn is_old(&mut self) {
        self.turns += 1;
        self.note = None;
    }
}

impl Nodes {
    /// Says that the node is about to be asked about a directory that is being opened or listed.
    pub(crate) fn ask_to_list(&self, node: u64, now: Tick) -> AskedToList {
        let table = self.lock();
        let turns = table.nodes.get(&node).map_or(0, |node| node.listing.turns);
        AskedToList { node, since: now, turns, turns_of_all: table.listing_turns }
    }

    /// Notes that the kernel is about to list what was asked about, and what that is.
    pub(crate) fn note_listing(&self, asked: AskedToList, attr: &Attr) {
        let mut table = self.lock();
        let AskedToList { since, turns_of_all, .. } = asked;
        if table.listing_turns != turns_of_all {
            return;
        }
        if let Some(node) = table.nodes.get_mut(&asked.node)
            && node.listing.turns == asked.turns
        {
            node.listing.note = Some(Box::new(Note { attr: *attr, since, turns_of_all }));
        }
    }

    /// Notes that an answer to this is about to be kept by the kernel, perhaps among those of who listed after it. If it was
    /// overtaken, what is kept is old.
    pub(crate) fn keeps_answer(&self, asked: AskedToList) {
        let mut table = self.lock();
        let is_late = table.listing_turns != asked.turns_of_all;
        if let Some(node) = table.nodes.get_mut(&asked.node)
            && (is_late || node.listing.turns != asked.turns)
        {
            node.listing.is_old();
        }
    }

    /// Returns what a directory is of which the kernel keeps a listing that may be shown to who opens it.
    pub(crate) fn noted_listing(&self, node: u64, now: Tick) -> Option<Attr> {
        let mut table = self.lock();
        let turns_of_all = table.listing_turns;
        let noted = &mut table.nodes.get_mut(&node)?.listing.note;
        let note = noted.as_ref()?;
        if now.since(note.since) > limits::MOUNT_LISTING_KEPT || note.turns_of_all != turns_of_all {
            *noted = None;
            return None;
        }
        Some(note.attr)
    }

    /// Notes that what the kernel keeps of a directory's listing is not to be shown any more.
    pub(crate) fn listing_is_old(&self, node: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&node) {
            node.listing.is_old();
        }
    }

    /// The same of all.
    pub(crate) fn listings_are_old(&self) {
        self.lock().listing_turns += 1;
    }

    /// Returns the directories that are open: who has one open and begins again is shown what the kernel keeps, whatever is noted.
    pub(crate) fn open_directories(&self) -> Vec<u64> {
        let table = self.lock();
        table.nodes.iter().filter(|(_, node)| node.is_open_directory()).map(|(number, _)| *number).collect()
    }

    /// Returns whether a directory is open.
    pub(crate) fn is_open_directory(&self, node: u64) -> bool {
        self.lock().nodes.get(&node).is_some_and(super::Node::is_open_directory)
    }
}
