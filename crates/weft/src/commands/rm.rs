//! `weft rm` and `weft rmdir`

use std::ffi::OsString;

use clap::Args;
use weft_client::Client;
use weft_client::tree::Walk;
use weft_core::attr::Kind;
use weft_core::form::{At, Expect, Guard, Want};
use weft_core::{ErrorKind, FileId, Result};

use crate::context::Context;
use crate::output::out;
use crate::paths;
use crate::progress::{self, Count};

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

pub fn run(context: &Context, args: &RmArgs) -> Result<()> {
    context.wait(async {
        let count = progress::counting(context, "removed", args.dry_run);
        let client = context.client().await?;
        let work = Removal { client: &client, count, dry_run: args.dry_run };
        for path in &args.paths {
            let at = paths::at_itself(path)?;
            let removed =
                if args.recursive { work.tree(&at).await } else { work.one(&at, Expect::NotDirectory).await };
            match removed {
                Err(e) if args.force && e.kind() == ErrorKind::NotFound => {}
                outcome => outcome.map_err(|e| e.op("remove").about(paths::show(&at.path)))?,
            }
        }
        Ok(())
    })
}

pub fn rmdir(context: &Context, args: &RmdirArgs) -> Result<()> {
    context.wait(async {
        let count = progress::counting(context, "removed", false);
        let client = context.client().await?;
        let work = Removal { client: &client, count, dry_run: false };
        for path in &args.paths {
            let at = paths::at_itself(path)?;
            let removed = work.one(&at, Expect::Directory).await;
            removed.map_err(|e| e.op("remove").about(paths::show(&at.path)))?;
        }
        Ok(())
    })
}

struct Removal<'a> {
    client: &'a Client,
    count: Count,
    dry_run: bool,
}

impl Removal<'_> {
    async fn one(&self, at: &At, expect: Expect) -> Result<()> {
        let (fs, call) = (self.client.fs(), self.client.call());
        if self.dry_run {
            fs.walk(&call, at, Want::default()).await?;
            out!("{}", paths::show(&at.path))?;
        } else {
            fs.remove(&call, at, expect, &Guard::NONE).await?;
        }
        self.count.add(1);
        Ok(())
    }

    /// Removes what is in a tree, files first, then directories from the deepest up.
    async fn tree(&self, at: &At) -> Result<()> {
        let mut walk = Walk::start(self.client, at, &paths::show(&at.path)).await?;
        let mut directories: Vec<At> = Vec::new();
        while let Some(found) = walk.next().await? {
            let place = below(at.base, at, &found.path)?;
            if found.attr.kind == Kind::Directory {
                directories.push(place);
            } else {
                self.one(&place, Expect::NotDirectory).await?;
            }
        }
        walk.whole()?;
        for place in directories.iter().rev() {
            self.one(place, Expect::Directory).await?;
        }
        Ok(())
    }
}

fn below(base: FileId, at: &At, path: &weft_core::RelPath) -> Result<At> {
    let whole = path.names().try_fold(at.path.clone(), |path, name| path.join(&name))?;
    Ok(At { base, path: whole, follow: at.follow })
}
