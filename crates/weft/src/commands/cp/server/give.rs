//! Out of the tree to a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_client::Client;
use weft_client::copy::{Outcome, Progress, Verified};
use weft_client::tree::{Found, Walk};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, OpenHow, Opened, Pin, Want};
use weft_core::{ErrorKind, FileId, RelPath, Result, Rights};
use weft_remote::{Depth, Entry, Put, Url};

use super::checked::Checked;
use super::clearing::{Clearing, Held};
use super::{AT_ONCE, Server, ServerGoal, below, unless_stopped};
use crate::commands::cp::goal::{nameless, not_a_directory};
use crate::commands::cp::transfer::Files;
use crate::commands::cp::{Job, passed_over};
use crate::paths::{self, Ending};

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
    if attr.kind != Kind::Directory {
        if ending != Ending::Name {
            return Err(not_a_directory());
        }
        return one(job, &server, Given { attr, shown: paths::show(&from), url }).await;
    }
    job.refuse_directory()?;
    if !is_contents {
        job.report.directory();
    }
    tree(job, &server, (&from, attr.id), &url.directory()).await
}

/// Copies one file that was named.
async fn one(job: &Job<'_>, server: &Server, file: Given) -> Result<()> {
    if file.attr.kind != Kind::File {
        return Err(passed_over());
    }
    if job.wanted.dry_run {
        return job.report.would(file.url);
    }
    let copy = async |file: Given, shared: &Progress| file.copy(job, server, shared).await;
    job.transfer_all(vec![(file.attr.size, file)], copy).await
}

async fn tree(job: &Job<'_>, server: &Server, (from, top): (&RelPath, FileId), url: &Url) -> Result<()> {
    let shared = Arc::default();
    let mut walk = Walk::start(job.client, &At::id(top), &paths::show(from)).await?;
    let (mut there, mut later) = (BTreeMap::new(), Vec::new());
    let look = async |files| {
        let mut give = Give { job, server, shared: &shared, files, there: &mut there, later: &mut later };
        give.look(&mut walk, url).await
    };
    let copy = async |file: Given, shared: &Progress| file.copy(job, server, shared).await;
    job.transfer_found(&shared, AT_ONCE, look, copy).await?;
    let whole = walk.whole();
    if !job.wanted.delete {
        return whole;
    }
    // What could not be seen is not known to be lacking.
    if let Err(error) = whole {
        job.failed(error.op("copy")).await?;
    }
    let clearing = Clearing { job, server };
    replace(&clearing, &shared, later).await?;
    clearing.all(url, &there).await
}

/// Copies the files in whose place directories stand, each once that is gone.
async fn replace(
    clearing: &Clearing<'_>,
    shared: &Arc<Progress>,
    later: Vec<(RelPath, Given)>,
) -> Result<()> {
    let (job, server) = (clearing.job, clearing.server);
    let look = async |files: Files<Given>| {
        for (path, file) in later {
            let gone = unless_stopped(shared, clearing.directory(&file.url, &path)).await;
            shared.must_go_on()?;
            match gone {
                Ok(()) if job.wanted.dry_run => job.report.would(&file.url)?,
                Ok(()) => files.put(file.attr.size, file).await?,
                Err(error) => job.failed(error.op("copy").about(file.shown)).await?,
            }
        }
        Ok(())
    };
    let copy = async |file: Given, shared: &Progress| file.copy(job, server, shared).await;
    job.transfer_found(shared, AT_ONCE, look, copy).await
}

struct Give<'j> {
    job: &'j Job<'j>,
    server: &'j Server,
    shared: &'j Progress,
    /// Where files go.
    files: Files<Given>,
    /// The directories that were gone into, and what was in each.
    there: &'j mut BTreeMap<RelPath, Held>,
    /// Files in whose place directories stand, by their paths.
    later: &'j mut Vec<(RelPath, Given)>,
}

impl Give<'_> {
    /// Looks through the tree.
    async fn look(&mut self, walk: &mut Walk<'_>, url: &Url) -> Result<()> {
        let speaks = "directories go to servers that speak WebDAV; nothing was changed";
        self.directory(&RelPath::EMPTY, url).await.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.hint(speaks),
            _ => error,
        })?;
        while let Some(found) = self.job.next(walk).await? {
            let shown = walk.show(&found.path);
            let gone_on = self.found(&found, shown.clone(), url).await;
            self.shared.must_go_on()?;
            if let Err(error) = gone_on {
                self.job.failed(error.op("copy").about(shown)).await?;
            }
        }
        Ok(())
    }

    async fn found(&mut self, found: &Found, shown: String, top: &Url) -> Result<()> {
        let Some((above, name)) = found.path.split_last() else { return Ok(()) };
        // Left out, or refused and told: what is in it is not told once more.
        let Some(held) = self.there.get_mut(&above) else { return Ok(()) };
        let there = held.members.remove(name.as_bytes());
        let is_directory = found.attr.kind == Kind::Directory;
        if self.job.wanted.rules.leaves_out(found.path.as_bytes(), is_directory) {
            return Ok(());
        }
        if self.job.wanted.delete {
            held.given.insert(name.as_bytes().to_vec());
        }
        let url = below(top, &found.path);
        let is_other =
            self.job.wanted.delete && there.as_ref().is_some_and(|there| there.is_directory != is_directory);
        match found.attr.kind {
            Kind::Directory if is_other => self.replaced(&found.path, &url).await,
            Kind::Directory => self.directory(&found.path, &url.directory()).await,
            Kind::File if is_other => {
                self.later.push((found.path.clone(), Given { attr: found.attr, shown, url }));
                Ok(())
            }
            Kind::File => self.file(Given { attr: found.attr, shown, url }, there).await,
            _ => Err(passed_over()),
        }
    }

    /// Makes a directory in place of a file.
    async fn replaced(&mut self, path: &RelPath, url: &Url) -> Result<()> {
        let clearing = Clearing { job: self.job, server: self.server };
        unless_stopped(self.shared, clearing.file(url)).await?;
        if self.job.wanted.dry_run {
            // What stands there for now has nothing in it.
            self.there.insert(path.clone(), Held::default());
            return Ok(());
        }
        self.directory(path, &url.directory()).await
    }

    /// Makes a directory, unless it is there, and looks what is in it.
    async fn directory(&mut self, path: &RelPath, url: &Url) -> Result<()> {
        let (remote, passed) = (&self.server.remote, &self.server.passed);
        let listed = remote.list(url, passed, Depth::Members);
        let entries = match unless_stopped(self.shared, listed).await {
            Ok(listing) => {
                if let (true, Err(error)) = (self.job.wanted.delete, listing.whole()) {
                    self.job.failed(error.op("copy to").about(url)).await?;
                }
                listing.entries
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !self.job.wanted.dry_run {
                    unless_stopped(self.shared, remote.make_directory(url, passed)).await?;
                }
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        self.there.insert(path.clone(), Held::of(entries));
        Ok(())
    }

    /// Hands a file on. What is there of the same size, and not older, stays.
    async fn file(&self, file: Given, there: Option<Entry>) -> Result<()> {
        let (job, attr) = (self.job, &file.attr);
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
            return job.report.would(file.url);
        }
        self.files.put(attr.size, file).await
    }
}

/// One file to copy.
struct Given {
    attr: Attr,
    /// Its path.
    shown: String,
    url: Url,
}

impl Given {
    async fn copy(self, job: &Job<'_>, server: &Server, shared: &Progress) -> Result<Outcome> {
        let sent = self.send(job, server, shared).await;
        let bytes = sent.map_err(|error| error.op("copy").said_of(self.shown))?;
        shared.add_file();
        Ok(Outcome::Copied { bytes, resumed: 0 })
    }

    async fn send(&self, job: &Job<'_>, server: &Server, shared: &Progress) -> Result<u64> {
        let client = job.client;
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        let opened = client.fs().open(&client.call(), &At::id(self.attr.id), &how).await?;
        let sent = self.send_version(client, &opened, server, shared).await;
        let closed = opened.file.close(&client.call()).await;
        sent.and_then(|sent| closed.map(|()| sent))
    }

    async fn send_version(
        &self,
        client: &Client,
        opened: &Opened,
        server: &Server,
        shared: &Progress,
    ) -> Result<u64> {
        let size = opened.attr.size;
        let verified = Verified::begin(client, &opened.file, size, (0, size)).await?;
        let mut source = Checked::new(verified, shared);
        let put = Put {
            url: self.url.clone(),
            passed: server.passed.clone(),
            length: Some(size),
            overwrites: true,
            modified: Some(opened.attr.mtime),
        };
        unless_stopped(shared, server.remote.upload(&put, &mut source)).await?;
        // Not every server tells what it keeps.
        let told = unless_stopped(shared, server.remote.describe(&self.url, &server.passed)).await;
        if let Ok(said) = told {
            source.check(&said)?;
        }
        Ok(source.bytes)
    }
}
