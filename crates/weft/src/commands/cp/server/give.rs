//! Out of the tree to a server.

use std::collections::HashMap;

use weft_client::copy::{Outcome, Verified};
use weft_client::tree::{Found, Walk};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, OpenHow, Pin, Want};
use weft_core::{ErrorKind, FileId, RelPath, Result, Rights};
use weft_remote::{Depth, Entry, Put, Url};

use super::checked::Checked;
use super::{Server, ServerGoal};
use crate::commands::cp::goal::{nameless, not_a_directory};
use crate::commands::cp::{Job, passed_over};
use crate::paths::{self, Ending};
use crate::progress::{self, Count};

/// Copies a file or directory of the tree to a server.
pub async fn give(job: &Job<'_>, from: RelPath, ending: Ending, to: &ServerGoal) -> Result<()> {
    let at = At::root(from.clone()).following();
    let attr = job.client.fs().walk(&job.client.call(), &at, Want::default()).await?.attr;
    let own = from.split_last().map(|(_, name)| name);
    let server = job.wanted.server.server(job.context, &to.url)?;
    let is_contents = attr.kind == Kind::Directory && ending == Ending::Contents;
    let url = match (&own, to.is_directory && !is_contents) {
        (Some(name), true) => to.url.join(name.as_bytes()),
        (None, true) => return Err(nameless()),
        (_, false) => to.url.clone(),
    };
    let count = progress::reading(job.context);
    let mut give = Give { job, server: &server, count, there: HashMap::new() };
    if attr.kind != Kind::Directory {
        if ending != Ending::Name {
            return Err(not_a_directory());
        }
        return give.file(&attr, &url, None).await;
    }
    job.refuse_directory()?;
    if !is_contents {
        job.report.directory();
    }
    give.tree(&from, &attr, &url.directory()).await
}

/// What a server has in a directory, by name.
type Members = HashMap<Vec<u8>, Entry>;

struct Give<'j> {
    job: &'j Job<'j>,
    server: &'j Server,
    count: Count,
    /// The directories that were gone into, and what was in each.
    there: HashMap<RelPath, Members>,
}

impl Give<'_> {
    async fn tree(&mut self, from: &RelPath, attr: &Attr, url: &Url) -> Result<()> {
        self.directory(&RelPath::EMPTY, url).await?;
        let mut walk = Walk::start(self.job.client, &At::id(attr.id), &paths::show(from)).await?;
        while let Some(found) = self.job.next(&mut walk).await? {
            let shown = walk.show(&found.path);
            let is_directory = found.attr.kind == Kind::Directory;
            if self.job.wanted.rules.leaves_out(found.path.as_bytes(), is_directory) {
                continue;
            }
            if let Err(error) = self.found(&found, url).await {
                self.job.failed(error.op("copy").about(shown)).await?;
            }
        }
        walk.whole()
    }

    async fn found(&mut self, found: &Found, top: &Url) -> Result<()> {
        let Some((above, name)) = found.path.split_last() else { return Ok(()) };
        // Left out, or refused and told: what is in it is not told once more.
        let Some(members) = self.there.get(&above) else { return Ok(()) };
        let there = members.get(name.as_bytes()).cloned();
        let names = found.path.as_bytes().split(|byte| *byte == b'/');
        let url = names.fold(top.clone(), |url, name| url.join(name));
        match found.attr.kind {
            Kind::Directory => self.directory(&found.path, &url.directory()).await,
            Kind::File => self.file(&found.attr, &url, there).await,
            _ => Err(passed_over()),
        }
    }

    /// Makes a directory, unless it is there, and looks what is in it.
    async fn directory(&mut self, path: &RelPath, url: &Url) -> Result<()> {
        let entries = match self.server.remote.list(url, &self.server.passed, Depth::Members).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !self.job.wanted.dry_run {
                    self.server.remote.make_directory(url, &self.server.passed).await?;
                }
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let named = |entry: Entry| Some((entry.name.clone()?, entry));
        self.there.insert(path.clone(), entries.into_iter().filter_map(named).collect());
        Ok(())
    }

    /// Copies one file. What is there of the same size, and not older, stays.
    async fn file(&self, attr: &Attr, url: &Url, there: Option<Entry>) -> Result<()> {
        let job = self.job;
        if attr.kind != Kind::File {
            return Err(passed_over());
        }
        // Servers tell whole seconds.
        let is_same = |there: &Entry| {
            let is_new = there.modified.is_some_and(|time| time.seconds() >= attr.mtime.seconds());
            !there.is_directory && there.length == Some(attr.size) && is_new
        };
        if !job.how.force && !job.how.checksum && there.as_ref().is_some_and(is_same) {
            job.report.add(Outcome::Unchanged);
            return Ok(());
        }
        if job.wanted.dry_run {
            return job.report.would(url);
        }
        let bytes = job.heeding(self.send(attr.id, url)).await?;
        job.report.add(Outcome::Copied { bytes, resumed: 0 });
        Ok(())
    }

    async fn send(&self, from: FileId, url: &Url) -> Result<u64> {
        let client = self.job.client;
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        let opened = client.fs().open(&client.call(), &At::id(from), &how).await?;
        let size = opened.attr.size;
        let verified = Verified::begin(client, &opened.file, size, (0, size)).await?;
        let mut source = Checked::new(verified, &self.count);
        let put = Put {
            url: url.clone(),
            passed: self.server.passed.clone(),
            length: Some(size),
            overwrites: true,
            modified: Some(opened.attr.mtime),
        };
        let stored = self.server.remote.upload(&put, &mut source).await;
        if source.interrupted {
            self.job.ended.set(true);
        }
        opened.file.close(&client.call()).await?;
        stored?;
        // Not every server tells what it keeps.
        if let Ok(said) = self.server.remote.describe(url, &self.server.passed).await {
            source.check(&said)?;
        }
        Ok(source.bytes)
    }
}
