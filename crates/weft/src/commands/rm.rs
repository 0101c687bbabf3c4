//! `weft rm` and `weft rmdir`

use std::ffi::OsString;

use clap::Args;
use weft_client::Client;
use weft_client::tree::Walk;
use weft_core::attr::Kind;
use weft_core::form::{At, Expect, Guard};
use weft_core::{ErrorKind, FileId, Result};

use crate::context::Context;
use crate::paths;

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
        let client = context.client().await?;
        for path in &args.paths {
            let at = paths::at_itself(path)?;
            let removed = if args.recursive {
                tree(&client, &at, args.dry_run).await
            } else {
                one(&client, &at, Expect::NotDirectory, args.dry_run).await
            };
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
        let client = context.client().await?;
        for path in &args.paths {
            let at = paths::at_itself(path)?;
            let removed = one(&client, &at, Expect::Directory, false).await;
            removed.map_err(|e| e.op("remove").about(paths::show(&at.path)))?;
        }
        Ok(())
    })
}

async fn one(client: &Client, at: &At, expect: Expect, dry_run: bool) -> Result<()> {
    if dry_run {
        client.fs().walk(&client.call(), at, weft_core::form::Want::default()).await?;
        println!("{}", paths::show(&at.path));
        return Ok(());
    }
    client.fs().remove(&client.call(), at, expect, &Guard::NONE).await.map(drop)
}

/// Removes what is in a tree, files first, then directories from the deepest up.
async fn tree(client: &Client, at: &At, dry_run: bool) -> Result<()> {
    let mut walk = Walk::start(client, at, &paths::show(&at.path)).await?;
    let mut directories: Vec<At> = Vec::new();
    while let Some(found) = walk.next().await? {
        let place = below(at.base, at, &found.path)?;
        if found.attr.kind == Kind::Directory {
            directories.push(place);
        } else {
            one(client, &place, Expect::NotDirectory, dry_run).await?;
        }
    }
    walk.whole()?;
    for place in directories.iter().rev() {
        one(client, place, Expect::Directory, dry_run).await?;
    }
    Ok(())
}

fn below(base: FileId, at: &At, path: &weft_core::RelPath) -> Result<At> {
    let whole = path.names().try_fold(at.path.clone(), |path, name| path.join(&name))?;
    Ok(At { base, path: whole, follow: at.follow })
}
