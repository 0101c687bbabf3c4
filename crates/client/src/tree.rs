//! Walking a tree of names.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, FileSystem, PageMax, Want};
use weft_core::{Error, ErrorKind, FileId, RelPath, Result, VolumeId};

use crate::Client;

/// Something found below the start of a walk.
#[derive(Clone, Debug)]
pub struct Found {
    /// The path from the start; empty for the start itself.
    pub path: RelPath,
    /// Its attributes.
    pub attr: Attr,
    /// The directory it was found in: what is done to its name there is done to no other,
    /// whatever has become of the path meanwhile. `None` for the start itself.
    pub dir: Option<FileId>,
}

/// Walks a tree, parents before what is in them, each directory in name order. Memory
/// is bounded by one page, the directories still to be visited and those that were refused.
pub struct Walk<'a> {
    client: &'a Client,
    /// The start, as whoever asked wrote it.
    shown: String,
    fs: Arc<dyn FileSystem>,
    ready: VecDeque<Found>,
    waiting: Vec<(RelPath, FileId, Cursor)>,
    passed_over: PassedOver,
    /// The directories of which not everything was shown.
    incomplete: HashSet<RelPath>,
    /// The volume that it stays in, if it stays in one.
    volume: Option<VolumeId>,
}

impl<'a> Walk<'a> {
    /// Starts at an address, which errors call `shown`. Fails with `NotFound` if nothing
    /// is there.
    pub async fn start(client: &'a Client, at: &At, shown: &str) -> Result<Self> {
        let fs = client.fs();
        let attr = match fs.walk(&client.call(), at, Want::default()).await {
            Ok(walked) => walked.attr,
            Err(error) => return Err(unlisted(client, at, error, shown).await),
        };
        let (ready, waiting) = (VecDeque::new(), Vec::new());
        let passed_over = PassedOver::default();
        let (shown, incomplete) = (shown.to_owned(), HashSet::new());
        let mut walk = Self { client, shown, fs, ready, waiting, passed_over, incomplete, volume: None };
        walk.found(Found { path: RelPath::EMPTY, attr, dir: None });
        Ok(walk)
    }

    /// Stays in the volume that it starts in: a directory of another is found, and not what is in it.
    #[must_use]
    pub fn staying(mut self) -> Self {
        self.volume = self.ready.front().map(|start| start.attr.id.volume());
        self
    }

    /// Returns whether something that was found lies in another volume than it stays in.
    pub fn leaves(&self, found: &Found) -> bool {
        self.volume.is_some_and(|volume| volume != found.attr.id.volume())
    }

    /// Returns what comes next, or `None` at the end. A directory that has gone since
    /// it was found is passed over, and so is what the caller has no right to see:
    /// [`Walk::whole`] says that at the end. After a failure it goes on with what is left,
    /// past the rest of the directory that could not be listed.
    pub async fn next(&mut self) -> Result<Option<Found>> {
        while self.ready.is_empty() {
            let Some((path, id, from)) = self.waiting.pop() else { return Ok(None) };
            let want = Want { attr: true, rights: false };
            let page = match self.fs.list(&self.client.call(), &At::id(id), from, PageMax::MAX, want).await {
                Ok(page) => page,
                Err(e) if e.kind() == ErrorKind::Stale => continue,
                Err(e) if is_refusal(e.kind()) && !path.is_empty() => {
                    self.passed_over.add(self.show(&path), Kind::Directory);
                    self.incomplete.insert(path);
                    continue;
                }
                Err(e) => return Err(self.fell_short(path, e)),
            };
            if let Some(next) = page.next {
                self.waiting.push((path.clone(), id, next));
            }
            for entry in page.entries {
                let below = path.join(&entry.name).map_err(|e| self.fell_short(path.clone(), e))?;
                match entry.attr {
                    Some(attr) => self.found(Found { path: below, attr, dir: Some(id) }),
                    None => {
                        self.passed_over.add(self.show(&below), entry.kind);
                        self.incomplete.insert(path.clone());
                    }
                }
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Fails with `Denied` if anything was passed over so far because the caller may not see
    /// it: what was made of the walk is less than what is there.
    pub fn whole(&self) -> Result<()> {
        self.passed_over.whole()
    }

    /// Returns the directories so far in which something was passed over, or which were
    /// themselves not looked into, for want of a right or for a failure.
    pub fn incomplete(&self) -> impl Iterator<Item = &RelPath> {
        self.incomplete.iter()
    }

    /// Notes that a directory's listing failed.
    fn fell_short(&mut self, path: RelPath, error: Error) -> Error {
        let error = refused(error, &self.show(&path));
        self.incomplete.insert(path);
        error
    }

    /// Shows a path below the start.
    pub fn show(&self, path: &RelPath) -> String {
        if path.is_empty() {
            return self.shown.clone();
        }
        format!("{}/{path}", self.shown.trim_end_matches('/'))
    }

    fn found(&mut self, found: Found) {
        if found.attr.kind == Kind::Directory && !self.leaves(&found) {
            self.waiting.push((found.path.clone(), found.attr.id, Cursor::ByName));
        }
        self.ready.push_back(found);
    }
}

/// Returns why a place, which errors call `shown`, cannot be listed, given why it cannot even be
/// looked at: that wants any right at all, and says of none that it is the one that is lacking.
pub async fn unlisted(client: &Client, at: &At, unseen: Error, shown: &str) -> Error {
    if unseen.kind() != ErrorKind::Denied {
        return unseen.said_of(shown);
    }
    let listed = client.fs().list(&client.call(), at, Cursor::ByName, PageMax::new(1), Want::default()).await;
    refused(listed.err().filter(|e| e.kind() == ErrorKind::Denied).unwrap_or(unseen), shown)
}

/// Says of a listing that failed what it was of, and how to learn who may allow it.
pub fn refused(error: Error, shown: &str) -> Error {
    let denied = error.kind() == ErrorKind::Denied;
    let error = error.said_of(shown);
    if denied { error.hint(format!("weft why {shown} list")) } else { error }
}

/// Whether a directory was not listed because of who asked, rather than for a fault.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Denied | ErrorKind::NotPermitted | ErrorKind::NotFound)
}

/// What was left out because the caller has no right to see it: how much, and path and kind of the
/// first.
#[derive(Debug, Default)]
pub struct PassedOver(Option<(u64, String, Kind)>);

impl PassedOver {
    /// Counts one more, whose path is `shown`.
    pub fn add(&mut self, shown: String, kind: Kind) {
        self.0.get_or_insert((0, shown, kind)).0 += 1;
    }

    /// Fails with `Denied`, naming the first, if anything was left out so far.
    pub fn whole(&self) -> Result<()> {
        let Some((entries, first, kind)) = &self.0 else { return Ok(()) };
        let more = match entries.saturating_sub(1) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let right = if *kind == Kind::Directory { "list" } else { "attr-read" };
        Err(Error::new(ErrorKind::Denied, format!("passed over for want of a right to see it{more}"))
            .said_of(first)
            .hint(format!("weft why {first} {right}")))
    }
}
