//! `weft rm` and `weft rmdir`

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_client::tree::{Found, Walk};
use weft_core::attr::Kind;
use weft_core::form::{At, Expect, Guard, Want};
use weft_core::{Error, ErrorKind, FileId, RelPath, Result, Rights};

use crate::context::Context;
use crate::failure::Failures;
use crate::output::out;
use crate::paths::TreePath;
use crate::progress::{self, Count};
use crate::show;

/// Options of `weft rm`.
#[derive(Args)]
pub struct RmArgs {
    /// Files
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Remove directories and what is in them
    #[arg(short, long)]
    recursive: bool,
    /// Say nothing of what is not there
    #[arg(short, long)]
    force: bool,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// Options of `weft rmdir`.
#[derive(Args)]
pub struct RmdirArgs {
    /// Empty directories
    #[arg(required = true)]
    paths: Vec<OsString>,
}

pub fn run(context: &Context, args: &RmArgs) -> Result<ExitCode> {
    context.wait(async {
        let count = progress::counting(context, "removed", args.dry_run);
        let client = context.client().await?;
        let mut work = Removal::new(context, &client, &count);
        (work.dry_run, work.force) = (args.dry_run, args.force);
        for text in &args.paths {
            match work.operand(text, args.recursive).await {
                Err(e) if args.force && e.kind() == ErrorKind::NotFound => {}
                removed => work.failures.take(removed.map_err(|e| e.op("remove")))?,
            }
        }
        Ok(work.failures.exit())
    })
}

pub fn rmdir(context: &Context, args: &RmdirArgs) -> Result<ExitCode> {
    context.wait(async {
        let count = progress::counting(context, "removed", false);
        let client = context.client().await?;
        let mut work = Removal::new(context, &client, &count);
        for text in &args.paths {
            let removed = work.empty_directory(text).await;
            work.failures.take(removed.map_err(|e| e.op("remove")))?;
        }
        Ok(work.failures.exit())
    })
}

/// Reads a path whose name is to go. The root has none, which is found before what is in it goes.
fn removable(text: &OsStr) -> Result<TreePath> {
    let path = TreePath::read(text)?;
    if path.path.is_empty() {
        return Err(Error::invalid("the root of the tree stays")
            .op("remove")
            .about("/")
            .hint("name what is in it that is to go: weft rm -r /a /b"));
    }
    Ok(path)
}

struct Removal<'a> {
    context: &'a Context,
    client: &'a Client,
    count: &'a Count,
    dry_run: bool,
    force: bool,
    /// Directories that were asked about: whether names may be removed from them.
    may: HashMap<FileId, bool>,
    failures: Failures<'a>,
}

impl<'a> Removal<'a> {
    fn new(context: &'a Context, client: &'a Client, count: &'a Count) -> Self {
        let failures = Failures::none(context, client).beside(count);
        Self { context, client, count, dry_run: false, force: false, may: HashMap::new(), failures }
    }

    async fn empty_directory(&mut self, text: &OsStr) -> Result<()> {
        let path = removable(text)?;
        self.one(&path.at_itself(), &path.to_string(), Expect::Directory).await
    }

    /// Removes what was named. Fails with `NotFound` only if there was nothing to begin with.
    async fn operand(&mut self, text: &OsStr, recursive: bool) -> Result<()> {
        let path = removable(text)?;
        path.check_name(self.client).await?;
        if recursive {
            return self.tree(&path).await;
        }
        self.one(&path.at_itself(), &path.to_string(), Expect::NotDirectory).await
    }

    /// Removes what is in a tree, files first, then directories from the deepest up. Each name
    /// goes from the directory that it was found in, wherever its path may lead by then; above
    /// what stays, everything stays.
    async fn tree(&mut self, path: &TreePath) -> Result<()> {
        let (start, mut kept) = (path.at_itself(), HashSet::new());
        self.must_be_in_its_volume(path).await?;
        let mut walk = Walk::start(self.client, &start, &path.to_string()).await?.staying();
        let mut directories: Vec<Found> = Vec::new();
        loop {
            let found = match walk.next().await {
                Ok(Some(found)) => found,
                Ok(None) => break,
                // Whatever it says: what could not be listed is not known to be gone.
                Err(e) => {
                    self.failures.take(Err(e.op("remove")))?;
                    continue;
                }
            };
            let shown = walk.show(&found.path);
            if walk.leaves(&found) {
                self.failures.take(Err(is_shared(&shown)))?;
                keep_above(&mut kept, &found.path);
                continue;
            }
            if found.attr.kind == Kind::Directory {
                directories.push(found);
                continue;
            }
            if !self.found(&start, &found, &shown, Expect::NotDirectory).await? {
                keep_above(&mut kept, &found.path);
            }
        }
        for path in walk.incomplete() {
            keep_above(&mut kept, path);
            kept.insert(path.clone());
        }
        self.failures.take(walk.whole().map_err(|e| e.op("remove")))?;
        for found in directories.iter().rev() {
            if kept.contains(&found.path) {
                continue;
            }
            let shown = walk.show(&found.path);
            if !self.found(&start, found, &shown, Expect::Directory).await? {
                keep_above(&mut kept, &found.path);
            }
        }
        Ok(())
    }

    /// Fails for a name in one volume that leads to the root of another: what is in that would go from
    /// where it is served, and the name itself would stay.
    async fn must_be_in_its_volume(&self, path: &TreePath) -> Result<()> {
        let walked = self.client.fs().walk(&self.client.call(), &path.at_itself(), Want::default()).await;
        match walked {
            Ok(walked) if walked.parent.is_some_and(|dir| dir.volume() != walked.attr.id.volume()) => {
                Err(is_shared(&path.to_string()))
            }
            // The walk says what there is to say.
            _ => Ok(()),
        }
    }

    /// Removes what a walk found. Returns whether it is gone; if not, that was said.
    async fn found(&mut self, start: &At, found: &Found, shown: &str, expect: Expect) -> Result<bool> {
        let at = match (found.dir, found.path.split_last()) {
            (Some(dir), Some((_, name))) => At::name(dir, name),
            _ => start.clone(),
        };
        let removed = match self.one(&at, shown, expect).await {
            Err(e) if self.force && e.kind() == ErrorKind::NotFound && self.is_gone(found).await => Ok(()),
            removed => removed,
        };
        let is_gone = removed.is_ok();
        self.failures.take(removed).map(|()| is_gone)
    }

    /// Whether what was found, and is not found any more, is gone, and not only hidden from whoever
    /// lost their rights meanwhile.
    async fn is_gone(&self, found: &Found) -> bool {
        let known = At::id(found.dir.unwrap_or(found.attr.id));
        let want = Want { attr: false, rights: true };
        match self.client.fs().walk(&self.client.call(), &known, want).await {
            Ok(dir) => found.dir.is_some() && dir.rights.unwrap_or_default().contains(Rights::LIST),
            Err(e) => e.kind() == ErrorKind::Stale,
        }
    }

    async fn one(&mut self, at: &At, shown: &str, expect: Expect) -> Result<()> {
        let done = if self.dry_run {
            self.would(at, shown, expect).await
        } else {
            let (fs, call) = (self.client.fs(), self.client.call());
            fs.remove(&call, at, expect, &Guard::NONE).await.map(drop).map_err(|e| e.said_of(shown))
        };
        done.map_err(|e| e.op("remove"))?;
        self.count.add(1);
        Ok(())
    }

    /// Says that a name would go, or fails as removing it would, as far as that can be seen.
    async fn would(&mut self, at: &At, shown: &str, expect: Expect) -> Result<()> {
        let walked = self.client.fs().walk(&self.client.call(), at, Want::default()).await;
        let walked = walked.map_err(|e| e.said_of(shown))?;
        if expect == Expect::NotDirectory && walked.attr.kind == Kind::Directory {
            return Err(Error::new(ErrorKind::IsDirectory, "it is a directory").about(shown));
        }
        let dir = walked.parent.ok_or_else(|| Error::internal("a name has no directory").about(shown))?;
        if !self.may_remove_from(dir).await.map_err(|e| e.said_of(shown))? {
            let above = shown.rsplit_once('/').map_or("", |(above, _)| above);
            let above = if above.is_empty() { "/" } else { above };
            let detail = format!("you have no right to remove from {above}");
            return Err(Error::denied(detail).about(shown).hint(format!("weft why {above} remove")));
        }
        if self.context.json() {
            return out!("{}", serde_json::json!({ "path": shown, "kind": show::kind(walked.attr.kind) }));
        }
        out!("{shown}")
    }

    async fn may_remove_from(&mut self, dir: FileId) -> Result<bool> {
        if let Some(may) = self.may.get(&dir) {
            return Ok(*may);
        }
        let want = Want { attr: false, rights: true };
        let walked = self.client.fs().walk(&self.client.call(), &At::id(dir), want).await?;
        let may = walked.rights.unwrap_or_default().contains(Rights::REMOVE);
        self.may.insert(dir, may);
        Ok(may)
    }
}

/// Why nothing was removed of a directory of another volume.
fn is_shared(shown: &str) -> Error {
    let path = show::argument(shown.as_ref());
    Error::new(
        ErrorKind::NotPermitted,
        "it is a share: its files are those of a directory of the node's machine",
    )
    .op("remove")
    .about(shown)
    .hint(format!(
        "weft unshare {path} takes it out of the tree; weft rm -r {path}/NAME removes what is in it"
    ))
}

fn keep_above(kept: &mut HashSet<RelPath>, path: &RelPath) {
    let mut above = path.split_last();
    while let Some((dir, _)) = above {
        above = dir.split_last();
        // What is above one that is kept is kept already.
        if !kept.insert(dir) {
            return;
        }
    }
}
