//! Which directories the kernel keeps a listing of that may be shown still.
//!
//! The kernel keeps what it was answered while it listed a directory, and shows that to whoever opens it again if it is told so
//! then: neither the node nor the mount is asked.
//!
//! ```text
//!   opened, and the node said what it is ─▶ the kernel lists it, and keeps that
//!   opened again, nothing heard of it    ─▶ the kernel shows what it keeps
//!   names in it, itself or rights change ─▶ the next open asks the node, and the kernel lists it anew
//! ```
//!
//! It drops by itself what changes here make old. What others change in it is told of ([`crate::watch`]): that drops what the kernel
//! has and what is noted here. The attributes that came with a listing are believed for a while only, and when they are old, to
//! list the directory anew brings them by the hundred, where to be asked for each would take a call: so nothing is shown for longer
//! than [`limits::MOUNT_LISTING_KEPT`].

use weft_core::attr::Attr;
use weft_core::{Tick, limits};

use super::Nodes;

/// What the kernel keeps of one directory.
#[derive(Default)]
pub(super) struct Listing {
    /// How often it was dropped.
    dropped: u64,
    /// What the directory was when the kernel began to list it, and when that was.
    kept: Option<Box<Kept>>,
}

struct Kept {
    attr: Attr,
    since: Tick,
    /// How often all were dropped by then.
    all_dropped: u64,
}

/// A question that the node is asked about a directory: what the kernel lists after its answer is kept if nothing was dropped
/// meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct AskingToList {
    node: u64,
    since: Tick,
    dropped: u64,
    all_dropped: u64,
}

impl Listing {
    pub(super) fn drop(&mut self) {
        self.dropped += 1;
        self.kept = None;
    }
}

impl Nodes {
    /// Says that the node is about to be asked about a directory that is being opened.
    pub(crate) fn ask_to_list(&self, node: u64, now: Tick) -> AskingToList {
        let table = self.lock();
        let dropped = table.nodes.get(&node).map_or(0, |node| node.listing.dropped);
        AskingToList { node, since: now, dropped, all_dropped: table.listings_dropped }
    }

    /// Notes that the kernel is about to list what was asked about, and what it is.
    pub(crate) fn lists(&self, asked: AskingToList, attr: &Attr) {
        let mut table = self.lock();
        let AskingToList { since, all_dropped, .. } = asked;
        if table.listings_dropped != all_dropped {
            return;
        }
        if let Some(node) = table.nodes.get_mut(&asked.node)
            && node.listing.dropped == asked.dropped
        {
            node.listing.kept = Some(Box::new(Kept { attr: *attr, since, all_dropped }));
        }
    }

    /// Returns what a directory is of which the kernel keeps a listing that may be shown.
    pub(crate) fn listing(&self, node: u64, now: Tick) -> Option<Attr> {
        let table = self.lock();
        let kept = table.nodes.get(&node)?.listing.kept.as_ref()?;
        let is_young = now.since(kept.since) <= limits::MOUNT_LISTING_KEPT;
        (is_young && kept.all_dropped == table.listings_dropped).then_some(kept.attr)
    }

    /// Notes that what the kernel keeps of a directory's listing is not to be shown any more.
    pub(crate) fn drop_listing(&self, node: u64) {
        if let Some(node) = self.lock().nodes.get_mut(&node) {
            node.listing.drop();
        }
    }

    /// The same of all.
    pub(crate) fn drop_listings(&self) {
        self.lock().listings_dropped += 1;
    }

    /// Returns the directories that are open, of which whoever has them open may be shown what the kernel keeps.
    pub(crate) fn open_directories(&self) -> Vec<u64> {
        let table = self.lock();
        table.nodes.iter().filter(|(_, node)| node.held.is_some()).map(|(number, _)| *number).collect()
    }
}
