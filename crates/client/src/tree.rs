//! Walking a tree of names.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, FileSystem, PageMax, Want};
use weft_core::{FileId, RelPath, Result};

use crate::Client;

/// Something found below the start of a walk.
#[derive(Clone, Debug)]
pub struct Found {
    /// The path from the start; empty for the start itself.
    pub path: RelPath,
    /// Its attributes.
    pub attr: Attr,
}

/// Walks a tree, parents before what is in them, each directory in name order. Memory
/// is bounded by one page and the directories still to be visited.
pub struct Walk<'a> {
    client: &'a Client,
    fs: Arc<dyn FileSystem>,
    ready: VecDeque<Found>,
    waiting: Vec<(RelPath, FileId, Cursor)>,
}

impl<'a> Walk<'a> {
    /// Starts at an address. Fails with `NotFound` if nothing is there.
    pub async fn start(client: &'a Client, at: &At) -> Result<Self> {
        let fs = client.fs();
        let attr = fs.walk(&client.call(), at, Want::default()).await?.attr;
        let mut walk = Self { client, fs, ready: VecDeque::new(), waiting: Vec::new() };
        walk.found(Found { path: RelPath::EMPTY, attr });
        Ok(walk)
    }

    /// Returns what comes next, or `None` at the end. A directory that has gone since
    /// it was found is passed over.
    pub async fn next(&mut self) -> Result<Option<Found>> {
        while self.ready.is_empty() {
            let Some((path, id, from)) = self.waiting.pop() else { return Ok(None) };
            let want = Want { attr: true, rights: false };
            let page = match self.fs.list(&self.client.call(), &At::id(id), from, PageMax::MAX, want).await {
                Ok(page) => page,
                Err(e) if e.kind() == weft_core::ErrorKind::Stale => continue,
                Err(e) => return Err(e.about(format!("/{path}"))),
            };
            if let Some(next) = page.next {
                self.waiting.push((path.clone(), id, next));
            }
            for entry in page.entries {
                if let Some(attr) = entry.attr {
                    self.found(Found { path: path.join(&entry.name)?, attr });
                }
            }
        }
        Ok(self.ready.pop_front())
    }

    fn found(&mut self, found: Found) {
        if found.attr.kind == Kind::Directory {
            self.waiting.push((found.path.clone(), found.attr.id, Cursor::ByName));
        }
        self.ready.push_back(found);
    }
}
