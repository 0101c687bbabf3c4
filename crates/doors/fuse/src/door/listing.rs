//! Directories. Each page is asked for from the cookie of the last entry the kernel took: anew, so that a name that is gone is
//! not shown with attributes that were read before it went, or, where changes are told of, from what was asked for a moment ago
//! ([`crate::fresh`]). There an open brings the first page with it, so that a small directory takes one call, not three.

use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use weft_core::attr::{Attr, Kind};
use weft_core::form::{Cursor, Entry, Page, PageMax, Want};
use weft_core::{Error, Rights, limits};

use super::{Door, Given, Outcome, Reply, Undo, done, kind_bits, refuse};
use crate::abi::reply::{self, Listing};
use crate::abi::{fopen, mode};
use crate::errno::Failure;
use crate::fresh::Listed;

/// The places of `.` and `..`, which the door adds; stored cookies come after them.
const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

/// Before the first stored cookie.
const AFTER_NOTHING: u64 = 0;

impl Door {
    /// Says at `opendir` already that a directory may not be listed, as programs expect.
    pub(super) async fn open_directory(&self, node: u64) -> Outcome {
        let at = self.at(node)?;
        if self.is_told(at.base.volume()) {
            return self.open_told(node).await;
        }
        let want = Want { attr: true, rights: true };
        let walked = self.fs.walk(&self.call(), &at, want).await?;
        if walked.attr.kind != Kind::Directory {
            return refuse(Errno::NOTDIR);
        }
        if !walked.rights.is_some_and(|rights| rights.contains(Rights::LIST)) {
            return Err(Error::denied("to list it takes `list`").into());
        }
        self.mounted.nodes.opened_directory(node, &walked.attr);
        Ok(reply::open(0, 0).into())
    }

    /// The same of one whose changes are told of. The kernel keeps what it lists of it, and shows what it kept of it before if
    /// that may be shown still ([`crate::nodes`]).
    async fn open_told(&self, node: u64) -> Outcome {
        let (nodes, clock) = (&self.mounted.nodes, &self.mounted.clock);
        let undo = Undo { directory: Some(node), ..Undo::default() };
        let may_ask = self.calls.who().0.live(clock.moment()).is_ok();
        if let Some(attr) = nodes.noted_listing(node, clock.tick()).filter(|_| may_ask) {
            nodes.opened_directory(node, &attr);
            let head = reply::open(0, fopen::CACHE_DIR | fopen::KEEP_CACHE);
            return Ok(Reply { head, undo, ..Reply::default() });
        }
        let asked = nodes.ask_to_list(node, clock.tick());
        let page = self.page(node, AFTER_NOTHING, limits::MOUNT_OPENED_ENTRIES_MAX, true).await?;
        let keeps = is_told_whole(&page);
        if keeps {
            nodes.note_listing(asked, &page.dir);
        }
        nodes.opened_directory(node, &page.dir);
        let head = reply::open(0, if keeps { fopen::CACHE_DIR } else { 0 });
        Ok(Reply { head, undo, ..Reply::default() })
    }

    pub(super) fn release_directory(&self, node: u64) -> Outcome {
        self.mounted.nodes.closed_directory(node);
        done()
    }

    pub(super) async fn read_directory(
        self: &Arc<Self>,
        node: u64,
        at: u64,
        size: u32,
        attributes: bool,
    ) -> Outcome {
        let mut listing = Listing::new(size as usize, attributes);
        let after = at.saturating_sub(AFTER_DOTS);
        let told = self.is_told(self.at(node)?.base.volume());
        let asking = self.mounted.fresh.ask();
        let kept = self.mounted.fresh.listed(node, after, attributes, self.mounted.clock.tick());
        let (page, place) = match kept.filter(|_| told) {
            Some(kept) => kept,
            None => {
                let max = u32::try_from(listing.entries_max()).unwrap_or(u32::MAX);
                let asked = self.mounted.nodes.ask_to_list(node, self.mounted.clock.tick());
                let page = self.page(node, after, max, attributes).await?;
                self.mounted.nodes.keeps_answer(asked);
                (page, 0)
            }
        };
        self.mounted.nodes.lists_directory(node, &page.dir);
        let inodes = [page.dir.id.inode(), page.parent.inode()];
        for (place, name) in [(AFTER_DOT, &b"."[..]), (AFTER_DOTS, b"..")] {
            let inode = inodes[place as usize - 1];
            if at < place && !listing.add(None, inode, mode::DIRECTORY, name, place) {
                return Ok(listing.into_bytes().into());
            }
        }
        let entries = &page.entries[place..];
        let entries = &entries[..listing.fitting(entries.iter().map(|entry| entry.name.as_bytes()))];
        let mut given = self.gives(Undo::default());
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            let shown = entry.attr.as_ref().filter(|_| attributes);
            found.push(match shown {
                Some(attr) => self.find_listed(node, (entry, attr), &mut given).await,
                None => None,
            });
        }
        // Nothing is waited for any more: what others changed up to here is known to have overtaken it.
        for (entry, found) in entries.iter().zip(found) {
            let name = entry.name.as_bytes();
            let out = found.map(|(found, attr)| self.entry_out(found, attr, (node, name), asking));
            let next = entry.cookie.saturating_add(AFTER_DOTS);
            listing.add(out.as_ref(), entry.id.inode(), kind_bits(entry.kind), name, next);
        }
        Ok(Reply { head: listing.into_bytes(), undo: given.answered(), ..Reply::default() })
    }

    /// Asks for a page of a directory, of what goes on after a cookie, and keeps it for a moment if changes are told of.
    async fn page(&self, node: u64, after: u64, max: u32, attributes: bool) -> Result<Arc<Page>, Failure> {
        let at = self.at(node)?;
        let from = if after == AFTER_NOTHING { Cursor::Start } else { Cursor::Cookie(after) };
        let want = Want { attr: attributes, rights: false };
        let asking = self.mounted.fresh.ask();
        let page = Arc::new(self.fs.list(&self.call(), &at, from, PageMax::new(max), want).await?);
        if !is_told_whole(&page) {
            self.mounted.nodes.listing_is_old(node);
        } else if self.is_told(at.base.volume()) {
            let listed = Listed { page: page.clone(), after, attributes };
            self.mounted.fresh.is_listed(asking, node, listed, self.mounted.clock.tick());
        }
        Ok(page)
    }

    /// Counts a lookup of an entry that is to be shown with its attributes, and has pages go that are not of them. Returns its node,
    /// and them; `None` if more is known of it by now: then its name alone is shown.
    async fn find_listed<'a>(
        self: &Arc<Self>,
        directory: u64,
        (entry, attr): (&Entry, &'a Attr),
        given: &mut Given<'_>,
    ) -> Option<(u64, &'a Attr)> {
        if self.mounted.nodes.is_past(attr) {
            return None;
        }
        let (node, told) = self.mounted.nodes.found(attr);
        given.undo.nodes.push(node);
        // Not with the page that it came in.
        self.came_by(entry.kind, node, (directory, Bytes::copy_from_slice(entry.name.as_bytes())));
        self.make_way(node, told).await;
        Some((node, attr))
    }
}

/// Returns whether whatever changes of what a page shows is told of with the directory's own volume: of another volume below it,
/// or of what a reference leads to, nothing may be.
fn is_told_whole(page: &Page) -> bool {
    let volume = page.dir.id.volume();
    page.entries.iter().all(|entry| entry.id.volume() == volume && entry.kind != Kind::Reference)
}
