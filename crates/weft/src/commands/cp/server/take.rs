//! From a server into the tree.

use bytes::Bytes;
use futures_util::StreamExt;
use weft_client::copy::{Outcome, must_be_as_sent};
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, New, Part, StageHint, Want};
use weft_core::{ErrorKind, FileId, Name, RelPath, Result, limits};
use weft_remote::{Depth, Download, Entry, From, Said, Url};

use super::checked::Checked;
use super::{AT_ONCE, Server};
use crate::commands::cp::Job;
use crate::commands::cp::goal::{Target, TreeGoal, nameless, not_a_directory};
use crate::paths::Ending;
use crate::progress::{self, Count};

/// Copies a file of a server, or a directory if it speaks WebDAV.
pub async fn take(job: &Job<'_>, url: &Url, ending: Ending, to: &TreeGoal) -> Result<()> {
    let server = job.wanted.server.server(job.context, url)?;
    let is_directory = server.is_directory(url).await?;
    let own = url.name();
    let take = Take { job, server: &server, count: progress::reading(job.context) };
    if is_directory != Some(true) {
        if ending != Ending::Name {
            let hint = "a directory is listed by WebDAV, which the server may not speak there";
            return Err(not_a_directory().hint(hint));
        }
        let (dir, name) = spot(to, own.as_deref())?;
        let entry = Entry { name: None, is_directory: false, length: None, modified: None };
        return take.file(url, (dir, &name), &entry, target(to, own.as_deref())).await;
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
            let (dir, name) = spot(to, own.as_deref())?;
            Below { dir: make_directory(job, dir, &name).await?, target: target(to, own.as_deref()) }
        }
    };
    take.tree(url.directory(), into).await
}

fn spot(to: &TreeGoal, own: Option<&[u8]>) -> Result<(FileId, Name)> {
    match to {
        TreeGoal::Into { dir, .. } => {
            Ok((*dir, Name::new(Bytes::copy_from_slice(own.ok_or_else(nameless)?))?))
        }
        TreeGoal::Name { dir, name, .. } => Ok((*dir, name.clone())),
    }
}

fn target(to: &TreeGoal, own: Option<&[u8]>) -> Target {
    match to {
        TreeGoal::Into { path, .. } => Target::tree(path).below(own.unwrap_or_default()),
        TreeGoal::Name { path, .. } => Target::tree(path),
    }
}

/// A directory of the tree that something goes into; none of a dry run that would make it.
struct Below {
    dir: Option<FileId>,
    target: Target,
}

/// Makes a directory, unless there is one. A dry run makes none.
async fn make_directory(job: &Job<'_>, dir: FileId, name: &Name) -> Result<Option<FileId>> {
    let at = At::name(dir, name.clone());
    match attr(job, &at).await? {
        Some(found) if found.kind == Kind::Directory => return Ok(Some(found.id)),
        Some(_) => return Err(not_a_directory()),
        None if job.wanted.dry_run => return Ok(None),
        None => {}
    }
    let made = job.client.fs().make(&job.client.call(), &at, New::Directory, &SetAttr::default()).await;
    match made {
        Err(error) if error.kind() != ErrorKind::Exists => Err(error),
        _ => Ok(attr(job, &at).await?.map(|made| made.id)),
    }
}

async fn attr(job: &Job<'_>, at: &At) -> Result<Option<Attr>> {
    match job.client.fs().walk(&job.client.call(), at, Want::default()).await {
        Ok(walked) => Ok(Some(walked.attr)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Take<'j> {
    job: &'j Job<'j>,
    server: &'j Server,
    count: Count,
}

impl Take<'_> {
    /// Copies what is in a directory, and in those below it: one listing is in memory at a time.
    async fn tree(&self, url: Url, into: Below) -> Result<()> {
        let mut left = vec![(url, into, RelPath::EMPTY)];
        while let Some((url, into, path)) = left.pop() {
            let entries = match self.server.remote.list(&url, &self.server.passed, Depth::Members).await {
                Ok(entries) => entries,
                Err(error) => {
                    self.job.failed(error.op("copy")).await?;
                    continue;
                }
            };
            let named = entries.into_iter().filter(|entry| entry.name.is_some());
            let (directories, files): (Vec<_>, Vec<_>) = named.partition(|entry| entry.is_directory);
            self.files(&url, &into, &path, files).await?;
            for entry in directories {
                match self.below(&url, &into, &path, &entry).await {
                    Ok(below) => left.extend(below),
                    Err(error) => self.job.failed(error.op("copy").about(&url)).await?,
                }
            }
        }
        Ok(())
    }

    async fn below(
        &self,
        url: &Url,
        into: &Below,
        path: &RelPath,
        entry: &Entry,
    ) -> Result<Option<(Url, Below, RelPath)>> {
        let Some((name, path)) = self.wanted(path, entry)? else { return Ok(None) };
        let dir = match into.dir {
            Some(dir) => make_directory(self.job, dir, &name).await?,
            None => None,
        };
        let target = into.target.below(name.as_bytes());
        Ok(Some((url.join(name.as_bytes()).directory(), Below { dir, target }, path)))
    }

    /// Returns the name of what is not left out, and its path from the top.
    fn wanted(&self, path: &RelPath, entry: &Entry) -> Result<Option<(Name, RelPath)>> {
        let name = Name::new(Bytes::from(entry.name.clone().unwrap_or_default()))?;
        let path = path.join(&name)?;
        let is_left_out = self.job.wanted.rules.leaves_out(path.as_bytes(), entry.is_directory);
        Ok((!is_left_out).then_some((name, path)))
    }

    async fn files(&self, url: &Url, into: &Below, path: &RelPath, files: Vec<Entry>) -> Result<()> {
        let one = async |entry: Entry| {
            let Some((name, _)) = self.wanted(path, &entry)? else { return Ok(()) };
            let (from, target) = (url.join(name.as_bytes()), into.target.below(name.as_bytes()));
            let done = match into.dir {
                Some(dir) => self.file(&from, (dir, &name), &entry, target).await,
                None => self.job.report.would(target),
            };
            match done {
                Err(error) => self.job.failed(error.op("copy").about(&from)).await,
                Ok(()) => Ok(()),
            }
        };
        let mut done = futures_util::stream::iter(files).map(one).buffer_unordered(AT_ONCE);
        while let Some(done) = done.next().await {
            done?;
        }
        Ok(())
    }

    /// Copies one file: all of it or nothing. What is there of the same size and time stays.
    async fn file(
        &self,
        from: &Url,
        (dir, name): (FileId, &Name),
        entry: &Entry,
        target: Target,
    ) -> Result<()> {
        let (job, at) = (self.job, At::name(dir, name.clone()));
        let there = attr(job, &at).await?;
        let is_same = |there: &Attr| {
            let is_alike = Some(there.size) == entry.length && Some(there.mtime) == entry.modified;
            there.kind == Kind::File && is_alike
        };
        if !job.how.force && !job.how.checksum && there.as_ref().is_some_and(is_same) {
            job.report.add(Outcome::Unchanged);
            return Ok(());
        }
        if job.wanted.dry_run {
            return job.report.would(target);
        }
        let (remote, passed) = (&self.server.remote, &self.server.passed);
        let download = remote.download(from, passed, From::default(), true).await?;
        let said = download.said().clone();
        let mut source = Checked::new(download, &self.count);
        let staged = job.heeding(self.stage(&at, &said, &mut source)).await;
        if source.interrupted {
            job.ended.set(true);
        }
        job.report.add(Outcome::Copied { bytes: staged?, resumed: 0 });
        Ok(())
    }

    async fn stage(&self, at: &At, said: &Said, source: &mut Checked<'_, Download>) -> Result<u64> {
        let client = self.job.client;
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
}
