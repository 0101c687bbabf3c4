//! `weft du`

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_client::tree::Walk;
use weft_core::Result;
use weft_core::attr::Kind;

use crate::context::Context;
use crate::failure::Failures;
use crate::output::out;
use crate::paths::{self, TreePath};
use crate::progress::{self, Count};
use crate::show;

/// Options of `weft du`.
#[derive(Args)]
pub struct DuArgs {
    /// Directories [default: /]
    paths: Vec<OsString>,
    /// Count sizes, not storage
    #[arg(long)]
    apparent_size: bool,
}

pub fn run(context: &Context, args: &DuArgs) -> Result<ExitCode> {
    context.wait(async {
        let looked = progress::counting(context, "added up", false);
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client).beside(&looked);
        let root = [paths::here()];
        for text in if args.paths.is_empty() { &root[..] } else { &args.paths } {
            let added = one(context, &client, text, args.apparent_size, &looked).await;
            failures.take(added.map_err(|e| e.op("add up")))?;
        }
        Ok(failures.exit())
    })
}

async fn one(context: &Context, client: &Client, text: &OsStr, apparent: bool, looked: &Count) -> Result<()> {
    let path = TreePath::read(text)?;
    path.check_listed(client).await?;
    let shown = path.to_string();
    let mut walk = Walk::start(client, &path.at(), &shown).await?;
    // A file with several names is counted once.
    let (mut bytes, mut files, mut linked) = (0_u64, 0_u64, HashSet::new());
    while let Some(found) = walk.next().await? {
        let attr = found.attr;
        looked.add(1);
        if attr.kind == Kind::Directory || (attr.links > 1 && !linked.insert(attr.id)) {
            continue;
        }
        files += 1;
        bytes += if apparent { attr.size } else { attr.used };
    }
    looked.beside(|| match context.json() {
        true => out!("{}", serde_json::json!({ "path": shown, "bytes": bytes, "files": files })),
        false => out!("{:>10}  {files} files  {shown}", show::size(bytes)),
    })?;
    walk.whole()
}
