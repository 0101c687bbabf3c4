//! What goes from a server because the source of a copy lacks it.
//!
//! A server's word is all there is to go by, so each directory is listed once more before anything in it goes: it must then
//! be told whole, and have what was copied by the very names it was copied by. A server to which `A` and `a` are one name
//! would otherwise lose, as something that the source lacks, what it was just given.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use weft_core::{Error, ErrorKind, Name, RelPath, Result};
use weft_remote::{Depth, Entry, Url};

use super::{Server, below};
use crate::commands::cp::Job;
use crate::commands::cp::clearing::{keep_above, stands_there};

/// What a server has in a directory, by name.
type Members = BTreeMap<Vec<u8>, Entry>;

/// A directory of a server while it is copied into.
#[derive(Default)]
pub struct Held {
    /// What it had before, but for what the source has as well.
    pub members: Members,
    /// The names of what is copied there.
    pub given: HashSet<Vec<u8>>,
}

impl Held {
    /// Begins with what a server has.
    pub fn of(entries: Vec<Entry>) -> Self {
        Self { members: named(entries), ..Self::default() }
    }
}

fn named(entries: Vec<Entry>) -> Members {
    entries.into_iter().filter_map(|entry| Some((entry.name.clone()?, entry))).collect()
}

/// Something that goes.
struct Seen {
    url: Url,
    /// Its path below the top.
    path: RelPath,
    is_directory: bool,
}

/// What removes from a server.
pub struct Clearing<'c> {
    pub job: &'c Job<'c>,
    pub server: &'c Server,
}

impl Clearing<'_> {
    /// Removes what the source lacks, if that may go.
    pub async fn all(&self, top: &Url, there: &BTreeMap<RelPath, Held>) -> Result<()> {
        if !self.job.may_delete() {
            return Ok(());
        }
        for (path, held) in there {
            let url = below(top, path).directory();
            if let Err(error) = self.directory(&url, path, held).await {
                self.job.failed(error.op("remove from").about(&url)).await?;
            }
        }
        Ok(())
    }

    /// Makes room for what is to have a name: of a directory, only where no rule could protect what is in it, and where
    /// all went well so far.
    pub async fn make_room(&self, url: &Url, path: &RelPath, there: &Entry) -> Result<()> {
        if there.is_directory && !(self.job.may_replace_directories() && self.job.wanted.rules.is_empty()) {
            return Err(stands_there());
        }
        if self.job.wanted.dry_run {
            return Ok(());
        }
        if there.is_directory {
            return self.tree(url, path).await;
        }
        self.remove(url).await
    }

    async fn directory(&self, url: &Url, path: &RelPath, held: &Held) -> Result<()> {
        if self.extra(url, path, held, &held.members)?.is_empty() {
            return Ok(());
        }
        let now = match self.job.wanted.dry_run {
            true => held.members.clone(),
            false => self.now(url, &held.given).await?,
        };
        for extra in self.extra(url, path, held, &now)? {
            let done = match extra.is_directory {
                true => self.tree(&extra.url, &extra.path).await,
                false => self.go(&extra, true).await,
            };
            if let Err(error) = done {
                self.job.failed(error.op("remove").about(&extra.url)).await?;
            }
        }
        Ok(())
    }

    /// Returns what goes of what a server has in a directory.
    fn extra(&self, url: &Url, path: &RelPath, held: &Held, there: &Members) -> Result<Vec<Seen>> {
        let mut extra = Vec::new();
        for (name, entry) in there.iter().filter(|(name, _)| held.members.contains_key(*name)) {
            let seen = Seen::of(url, path, name, entry)?;
            if !self.leaves_out(&seen) {
                extra.push(seen);
            }
        }
        Ok(extra)
    }

    fn leaves_out(&self, seen: &Seen) -> bool {
        self.job.wanted.rules.leaves_out(seen.path.as_bytes(), seen.is_directory)
    }

    /// Returns all that a server has in a directory by now. Fails where what was copied is not among it.
    async fn now(&self, url: &Url, given: &HashSet<Vec<u8>>) -> Result<Members> {
        let members = self.members(url).await?;
        if given.iter().all(|name| members.contains_key(name)) {
            return Ok(members);
        }
        let why = "the server lists what was copied there by another name, or not at all";
        Err(Error::new(ErrorKind::Conflict, why)
            .hint("it may take `A` and `a` for one name: rename what differs by that"))
    }

    async fn members(&self, url: &Url) -> Result<Members> {
        let listing = self.server.remote.list(url, &self.server.passed, Depth::Members).await?;
        listing.whole()?;
        Ok(named(listing.entries))
    }

    /// Removes a directory, but for what the rules leave out and the directories it is in. Nothing of it goes unless all
    /// of it was seen. What goes whole is one request: to a server, what looks like a directory may be a link to one,
    /// and what is behind that is not to go.
    async fn tree(&self, url: &Url, path: &RelPath) -> Result<()> {
        let mut seen = vec![Seen { url: url.directory(), path: path.clone(), is_directory: true }];
        let (mut above, mut next) = (HashSet::new(), 0);
        while let Some(one) = seen.get(next) {
            let members = if one.is_directory { self.members(&one.url).await? } else { Members::new() };
            let (url, path) = (one.url.clone(), one.path.clone());
            for (name, entry) in &members {
                let member = Seen::of(&url, &path, name, entry)?;
                if self.leaves_out(&member) {
                    keep_above(&mut above, &member.path);
                } else {
                    seen.push(member);
                }
            }
            next += 1;
        }
        for one in seen.iter().filter(|one| !above.contains(&one.path)) {
            let goes_with_another =
                one.path != *path && one.path.split_last().is_some_and(|(dir, _)| !above.contains(&dir));
            self.go(one, !goes_with_another).await?;
        }
        Ok(())
    }

    /// Removes something by its name, or counts what has gone with the directory it was in.
    async fn go(&self, seen: &Seen, by_name: bool) -> Result<()> {
        if self.job.wanted.dry_run {
            return self.job.report.would_remove(&seen.url);
        }
        if by_name {
            self.remove(&seen.url).await?;
        }
        self.job.report.removed();
        Ok(())
    }

    async fn remove(&self, url: &Url) -> Result<()> {
        match self.server.remote.remove(url, &self.server.passed).await {
            // It is gone, as it was to be.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

impl Seen {
    fn of(dir: &Url, path: &RelPath, name: &[u8], entry: &Entry) -> Result<Self> {
        let (url, is_directory) = (dir.join(name), entry.is_directory);
        let path = path.join(&Name::new(Bytes::copy_from_slice(name))?)?;
        Ok(Self { url: if is_directory { url.directory() } else { url }, path, is_directory })
    }
}
