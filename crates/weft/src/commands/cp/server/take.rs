//! From a server into the tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weft_client::copy::{Outcome, Progress, must_be_as_sent};
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Cursor, Expect, Guard, New, PageMax, Part, Replace, StageHint, Want};
use weft_core::{ErrorKind, FileId, Name, RelPath, Result, limits};
use weft_remote::{Depth, Download, Entry, From, Listing, Said, Url};

use super::checked::Checked;
use super::{AT_ONCE, Server, unless_stopped};
use crate::commands::cp::Job;
use crate::commands::cp::clearing::Extra;
use crate::commands::cp::goal::{Target, TreeGoal, not_a_directory};
use crate::commands::cp::transfer::Files;
use crate::paths::Ending;

/// Copies a file of a server, or a directory if it speaks WebDAV.
pub async fn take(job: &Job<'_>, url: &Url, ending: Ending, to: &TreeGoal) -> Result<()> {
    let server = job.wanted.server.server(job.context, url)?;
    let is_directory = server.is_directory(url).await?;
    let own = url.name();
    let own = own.as_deref().map(OsStr::from_bytes);
    let take = Take { job, server: &server, shared: Arc::default() };
    if is_directory != Some(true) {
        if ending != Ending::Name {
            let hint = "a directory is listed by WebDAV, which the server may not speak there";
            return Err(not_a_directory().hint(hint));
        }
        let ((dir, name), target) = (to.spot(own)?, to.target(own));
        let entry = Entry { name: None, is_directory: false, length: None, modified: None };
        let file = Taken { from: url.clone(), dir: Some(dir), name, entry, target, replaces: false };
        let copy = async |file: Taken, shared: &Progress| file.copy(job, &server, shared).await;
        return job.transfer_all(vec![(0, file)], copy).await;
    }
    job.refuse_directory()?;
    let into = match (to, ending) {
        (TreeGoal::Into { dir, path }, Ending::Contents) => {
            Below { dir: Some(*dir), target: Target::tree(path) }
        }
        _ => {
            if ending != Ending::Contents {
                job.report.directory();
            }
            let (dir, name) = to.spot(own)?;
            Below { dir: make_directory(job, dir, &name).await?, target: to.target(own) }
        }
    };
    take.tree(url.directory(), into).await
}

/// A directory of the tree that something goes into; none of a dry run that would make it.
struct Below {
    dir: Option<FileId>,
    target: Target,
}

/// Makes a directory, unless there is one. A dry run makes none.
async fn make_directory(job: &Job<'_>, dir: FileId, name: &Name) -> Result<Option<FileId>> {
    let at = At::name(dir, name.clone());
    match job.there((Some(dir), name)).await? {
        Some(found) if found.kind == Kind::Directory => return Ok(Some(found.id)),
        Some(_) if !job.wanted.delete => return Err(not_a_directory()),
        _ if job.wanted.dry_run => return Ok(None),
        Some(found) => job.clear_for(&at, &found).await?,
        None => {}
    }
    let made = job.client.fs().make(&job.client.call(), &at, New::Directory, &SetAttr::default()).await;
    match made {
        Err(error) if error.kind() != ErrorKind::Exists => Err(error),
        _ => Ok(job.there((Some(dir), name)).await?.map(|made| made.id)),
    }
}

struct Take<'j> {
    job: &'j Job<'j>,
    server: &'j Server,
    shared: Arc<Progress>,
}

impl Take<'_> {
    /// Copies what is in a directory, and in those below it. What the server lacks goes in the end, if each
    /// listing is known to be whole.
    async fn tree(&self, url: Url, into: Below) -> Result<()> {
        let (job, top, mut lacking) = (self.job, into.dir, Lacking::default());
        let look = async |files| self.look(url, into, &files, &mut lacking).await;
        let copy = async |file: Taken, shared: &Progress| file.copy(job, self.server, shared).await;
        job.transfer_found(&self.shared, AT_ONCE, look, copy).await?;
        if !job.wanted.delete {
            return Ok(());
        }
        // Once all else is there, so that nothing goes for them that is still looked through or copied into.
        let look = async |files: Files<Taken>| {
            for file in lacking.replacing {
                files.put(file.entry.length.unwrap_or_default(), file).await?;
            }
            Ok(())
        };
        job.transfer_found(&self.shared, AT_ONCE, look, copy).await?;
        job.clear_all(&lacking.extra).await?;
        match top {
            Some(dir) => job.settle(dir).await,
            None => Ok(()),
        }
    }

    /// Looks through directories: one listing is in memory at a time.
    async fn look(&self, url: Url, into: Below, files: &Files<Taken>, lacking: &mut Lacking) -> Result<()> {
        let mut left = vec![(url, into, RelPath::EMPTY)];
        while let Some((url, into, path)) = left.pop() {
            let listed = self.server.remote.list(&url, &self.server.passed, Depth::Members);
            let listed = unless_stopped(&self.shared, listed).await;
            self.shared.must_go_on()?;
            let listing = match listed {
                Ok(listing) => listing,
                Err(error) => {
                    self.job.failed(error.op("copy")).await?;
                    continue;
                }
            };
            let mut directories = HashSet::new();
            if let (true, Some(dir)) = (self.job.wanted.delete, into.dir) {
                match self.held(&listing, dir).await {
                    Ok(held) => {
                        lacking.extra.extend(extra(&listing, &held, dir, (&path, &into.target)));
                        let held = held.into_iter().filter(|(_, kind)| *kind == Kind::Directory);
                        directories.extend(held.map(|(name, _)| name));
                    }
                    Err(error) => self.job.failed(error.op("copy").about(&url)).await?,
                }
            }
            let named = listing.entries.into_iter().filter(|entry| entry.name.is_some());
            for entry in named {
                self.shared.must_go_on()?;
                let Some((name, path)) = self.wanted(&url, &path, &entry).await? else { continue };
                let (from, target) = (url.join(name.as_bytes()), into.target.below(name.as_bytes()));
                if !entry.is_directory {
                    let (bytes, replaces) = (entry.length.unwrap_or_default(), directories.contains(&name));
                    let file = Taken { from, dir: into.dir, name, entry, target, replaces };
                    match replaces {
                        true => lacking.replacing.push(file),
                        false => files.put(bytes, file).await?,
                    }
                    continue;
                }
                match self.directory(&into, &name).await {
                    Ok(dir) => left.push((from.directory(), Below { dir, target }, path)),
                    Err(error) => self.job.failed(error.op("copy").about(&from)).await?,
                }
            }
        }
        Ok(())
    }

    /// Returns what a directory of the tree holds, to be compared with what a server lists. Fails where the server may not
    /// tell all.
    async fn held(&self, listing: &Listing, dir: FileId) -> Result<Vec<(Name, Kind)>> {
        listing.whole()?;
        let (client, mut from, mut held) = (self.job.client, Cursor::ByName, Vec::new());
        loop {
            let page =
                client.fs().list(&client.call(), &At::id(dir), from, PageMax::MAX, Want::default()).await?;
            held.extend(page.entries.into_iter().map(|entry| (entry.name, entry.kind)));
            match page.next {
                Some(next) => from = next,
                None => return Ok(held),
            }
        }
    }

    /// Returns the directory that what is in one of the server goes into.
    async fn directory(&self, into: &Below, name: &Name) -> Result<Option<FileId>> {
        match into.dir {
            Some(dir) => make_directory(self.job, dir, name).await,
            None => Ok(None),
        }
    }

    /// Returns the name of what is not left out, and its path from the top. What cannot have its name in the tree is said.
    async fn wanted(&self, url: &Url, path: &RelPath, entry: &Entry) -> Result<Option<(Name, RelPath)>> {
        let name = Name::new(Bytes::from(entry.name.clone().unwrap_or_default()));
        let found = name.and_then(|name| path.join(&name).map(|path| (name, path)));
        match found {
            Ok((_, path)) if self.job.wanted.rules.leaves_out(path.as_bytes(), entry.is_directory) => {
                Ok(None)
            }
            Ok(found) => Ok(Some(found)),
            Err(error) => self.job.failed(error.op("copy").about(url)).await.map(|()| None),
        }
    }
}

/// What a tree that is to be like a server's has to lose.
#[derive(Default)]
struct Lacking {
    extra: Vec<Extra>,
    /// Files in whose place directories stand.
    replacing: Vec<Taken>,
}

/// Returns what a directory of the tree holds and the server lacks.
fn extra(
    listing: &Listing,
    held: &[(Name, Kind)],
    dir: FileId,
    (path, target): (&RelPath, &Target),
) -> Vec<Extra> {
    let source: HashSet<&[u8]> = listing.entries.iter().filter_map(|entry| entry.name.as_deref()).collect();
    let below = Path::new(OsStr::from_bytes(path.as_bytes()));
    Extra::of(held.iter().map(|(name, _)| name), &source, dir, (below, target))
}

/// One file to copy.
struct Taken {
    from: Url,
    /// None in a dry run that would make it.
    dir: Option<FileId>,
    name: Name,
    entry: Entry,
    target: Target,
    /// Whether a directory stands there, which goes once all of the file has come.
    replaces: bool,
}

impl Taken {
    async fn copy(self, job: &Job<'_>, server: &Server, shared: &Progress) -> Result<Outcome> {
        let shown = self.from.clone();
        self.copied(job, server, shared).await.map_err(|error| error.op("copy").said_of(shown))
    }

    /// Copies all of it or nothing. What is there of the same size and time stays.
    async fn copied(self, job: &Job<'_>, server: &Server, shared: &Progress) -> Result<Outcome> {
        let Some(dir) = self.dir else { return job.report.would(self.target).map(|()| Outcome::Unchanged) };
        let there = job.there((Some(dir), &self.name)).await?;
        let at = At::name(dir, self.name);
        let is_same = |there: &Attr| {
            let is_alike = Some(there.size) == self.entry.length && Some(there.mtime) == self.entry.modified;
            there.kind == Kind::File && is_alike
        };
        if !job.how.force && !job.how.checksum && there.as_ref().is_some_and(is_same) {
            return Ok(Outcome::Unchanged);
        }
        let replaced = there.filter(|there| self.replaces && there.kind == Kind::Directory);
        if replaced.is_some() {
            job.may_clear_directory()?;
        }
        if job.wanted.dry_run {
            if let Some(there) = &replaced {
                job.clear_for(&at, there).await?;
            }
            return job.report.would(self.target).map(|()| Outcome::Unchanged);
        }
        let asked = server.remote.download(&self.from, &server.passed, From::default(), true);
        let download = unless_stopped(shared, asked).await?;
        let said = download.said().clone();
        let mut source = Checked::new(download, shared);
        let bytes = match &replaced {
            Some(there) => stage_beside(job, dir, (&at, there), &said, &mut source).await?,
            None => stage(job, &at, &said, &mut source).await?,
        };
        shared.add_file();
        Ok(Outcome::Copied { bytes, resumed: 0 })
    }
}

/// Stages what comes and publishes it beside a directory, which goes only then. Returns how many bytes there were.
async fn stage_beside(
    job: &Job<'_>,
    dir: FileId,
    (at, there): (&At, &Attr),
    said: &Said,
    source: &mut Checked<'_, Download>,
) -> Result<u64> {
    let beside = At::name(dir, Name::new(Bytes::from(job.beside()))?);
    let bytes = stage(job, &beside, said, source).await?;
    let (fs, call) = (job.client.fs(), job.client.call());
    let done = async {
        job.clear_for(at, there).await?;
        fs.rename(&call, &beside, at, Replace::Any, &Guard::NONE).await
    };
    let done = done.await;
    if done.is_err() {
        // What matters is why.
        let _ = fs.remove(&call, &beside, Expect::NotDirectory, &Guard::NONE).await;
    }
    done.map(|_| bytes)
}

/// Stages what comes and publishes it. Returns how many bytes there were.
async fn stage(job: &Job<'_>, at: &At, said: &Said, source: &mut Checked<'_, Download>) -> Result<u64> {
    let client = job.client;
    let hint = StageHint { length: said.length, ..StageHint::default() };
    let stage = client.fs().stage(&client.call(), at, &hint).await?;
    let give_up = async || _ = stage.discard(&client.call()).await;
    let staged = async {
        let got = stage.put(&client.call_within(limits::TRANSFER_WITHIN), 1, 0, source).await?;
        let sent = Part { number: 1, bytes: source.bytes, digest: source.digest() };
        must_be_as_sent(&got, &sent)?;
        source.check(said).map(|()| sent)
    };
    let sent = match staged.await {
        Ok(sent) => sent,
        Err(error) => {
            give_up().await;
            return Err(error);
        }
    };
    let set = SetAttr { mtime: said.modified.map(SetTime::At), ..SetAttr::default() };
    let call = client.call_within(limits::publish_within(sent.bytes));
    let published = stage.publish(&call, &[sent], &set, &Guard::NONE).await;
    // What takes longer than anybody waits may come about.
    if published.as_ref().is_err_and(|error| error.kind() != ErrorKind::Deadline) {
        give_up().await;
    }
    published.map(|_| sent.bytes)
}
