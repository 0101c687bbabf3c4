//! What goes from a server because the source of a copy lacks it.
//!
//! A server's word is all there is to go by, so each directory is listed once more before anything in it goes: it must then
//! be told whole, and have what was copied by the very names it was copied by. A server to which `A` and `a` are one name
//! would otherwise lose, as something that the source lacks, what it was just given. A directory goes for a file only
//! once all else is through.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use weft_core::{Error, ErrorKind, Name, RelPath, Result};
use weft_remote::{Depth, Entry, Url};

use super::{Server, below};
use crate::commands::cp::Job;
use crate::commands::cp::clearing::keep_above;

/// What is seen of a directory before it goes: that may be a million names, and a server that makes up more ends here.
const SEEN_MAX: usize = 1_000_000;

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

    /// Whether a server may take two names of those that were copied for one.
    fn may_fold(&self) -> bool {
        let folded: HashSet<String> =
            self.given.iter().map(|name| String::from_utf8_lossy(name).to_lowercase()).collect();
        folded.len() < self.given.len()
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
            if let Err(error) = self.members_of(&url, path, held).await {
                self.job.failed(error.op("remove from").about(&url)).await?;
            }
        }
        Ok(())
    }

    /// Removes a file that a directory is to be in place of, while all went well so far.
    pub async fn file(&self, url: &Url) -> Result<()> {
        if self.job.report.failures() > 0 {
            return Err(Error::new(ErrorKind::NotDirectory, "a file stands there")
                .hint("--delete replaces it while nothing has failed"));
        }
        if self.job.wanted.dry_run {
            return Ok(());
        }
        self.server.remote.list(url, &self.server.passed, Depth::Itself).await?.file()?;
        self.remove(url).await
    }

    /// Removes a directory that a file is to be in place of.
    pub async fn directory(&self, url: &Url, path: &RelPath) -> Result<()> {
        self.job.may_clear_directory()?;
        self.tree(url, path).await
    }

    /// Removes what the source lacks in a directory.
    async fn members_of(&self, url: &Url, path: &RelPath, held: &Held) -> Result<()> {
        let mut extra = self.extra(url, path, held, &held.members)?;
        if extra.is_empty() && !held.may_fold() {
            return Ok(());
        }
        if !self.job.wanted.dry_run {
            extra = self.extra(url, path, held, &self.now(url, &held.given).await?)?;
        }
        for extra in extra {
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
    /// of it was seen. What goes whole is one request: to a server, what looks like a directory may be a link to one, and
    /// most then remove the link.
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
            if seen.len() > SEEN_MAX {
                return Err(Error::new(ErrorKind::TooLarge, "more is in it than is removed at once"));
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
