//! Directories. Nothing is kept between two requests: each page is asked for anew, from
//! the cookie of the last entry the kernel took, so that a name that is gone is not
//! shown with attributes that were read before it went.

use std::sync::Arc;

use rustix::io::Errno;
use weft_core::form::{Cursor, Entry, PageMax, Want};
use weft_core::{Error, Rights, attr::Kind};

use super::{Door, Outcome, Reply, Undo, done, kind_bits, refuse};
use crate::abi::mode;
use crate::abi::reply::{self, Listing};

/// The places of `.` and `..`, which the door adds; stored cookies come after them.
const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

impl Door {
    /// Says at `opendir` already that a directory may not be listed, as programs expect.
    pub(super) async fn open_directory(&self, node: u64) -> Outcome {
        let want = Want { attr: true, rights: true };
        let walked = self.fs.walk(&self.call(), &self.at(node)?, want).await?;
        if walked.attr.kind != Kind::Directory {
            return refuse(Errno::NOTDIR);
        }
        if !walked.rights.is_some_and(|rights| rights.contains(Rights::LIST)) {
            return Err(Error::denied("to list it takes `list`").into());
        }
        self.mounted.nodes.opened_directory(node, &walked.attr);
        Ok(reply::open(0, 0).into())
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
        let from = if at <= AFTER_DOTS { Cursor::Start } else { Cursor::Cookie(at - AFTER_DOTS) };
        let max = PageMax::new(u32::try_from(listing.entries_max()).unwrap_or(u32::MAX));
        let want = Want { attr: attributes, rights: false };
        let page = self.fs.list(&self.call(), &self.at(node)?, from, max, want).await?;
        let inodes = [page.dir.id.inode(), page.parent.inode()];
        for (place, name) in [(AFTER_DOT, &b"."[..]), (AFTER_DOTS, b"..")] {
            let inode = inodes[place as usize - 1];
            if at < place && !listing.add(None, inode, mode::DIRECTORY, name, place) {
                return Ok(listing.into_bytes().into());
            }
        }
        let mut undo = Undo::default();
        for entry in &page.entries {
            if !self.list_entry(&mut listing, entry, attributes, &mut undo).await {
                break;
            }
        }
        Ok(Reply { head: listing.into_bytes(), pieces: Vec::new(), undo })
    }

    /// Adds one entry, counting a lookup if it goes with its attributes. Returns
    /// whether it fitted.
    async fn list_entry(
        self: &Arc<Self>,
        listing: &mut Listing,
        entry: &Entry,
        attributes: bool,
        undo: &mut Undo,
    ) -> bool {
        let (inode, kind) = (entry.id.inode(), kind_bits(entry.kind));
        let (name, next) = (entry.name.as_bytes(), entry.cookie.saturating_add(AFTER_DOTS));
        let Some(attr) = entry.attr.as_ref().filter(|_| attributes) else {
            return listing.add(None, inode, kind, name, next);
        };
        let (out, stale) = self.entry_out(attr);
        if stale {
            self.expire(out.node, true).await;
        }
        let fitted = listing.add(Some(&out), inode, kind, name, next);
        if fitted {
            undo.nodes.push(out.node);
        } else {
            self.mounted.nodes.forget(out.node, 1);
        }
        fitted
    }
}
