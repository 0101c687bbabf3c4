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
    /// The start, as whoever asked wrote it.
    shown: String,
    fs: Arc<dyn FileSystem>,
    ready: VecDeque<Found>,
    waiting: Vec<(RelPath, FileId, Cursor)>,
}

impl<'a> Walk<'a> {
    /// Starts at an address, which errors call `shown`. Fails with `NotFound` if nothing
    /// is there.
    pub async fn start(client: &'a Client, at: &At, shown: &str) -> Result<Self> {
        let fs = client.fs();
        let walked = fs.walk(&client.call(), at, Want::default()).await;
        let attr = walked.map_err(|e| e.said_of(shown))?.attr;
        let mut walk =
            Self { client, shown: shown.to_owned(), fs, ready: VecDeque::new(), waiting: Vec::new() };
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
                Err(e) => return Err(e.said_of(self.show(&path))),
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

    /// Shows a path below the start.
    pub fn show(&self, path: &RelPath) -> String {
        if path.is_empty() {
            return self.shown.clone();
        }
        format!("{}/{path}", self.shown.trim_end_matches('/'))
    }

    fn found(&mut self, found: Found) {
        if found.attr.kind == Kind::Directory {
            self.waiting.push((found.path.clone(), found.attr.id, Cursor::ByName));
        }
        self.ready.push_back(found);
    }
}
