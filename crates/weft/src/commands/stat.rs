//! `weft stat`

use std::ffi::OsString;

use clap::Args;
use weft_core::Result;
use weft_core::attr::Kind;
use weft_core::form::{LinkTarget, Want};

use crate::commands::ls::json;
use crate::context::Context;
use crate::output::out;
use crate::{paths, show};

/// Options of `weft stat`.
#[derive(Args)]
pub struct StatArgs {
    /// Files and directories
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Show what a symbolic link leads to
    #[arg(short = 'L', long)]
    follow: bool,
}

pub fn run(context: &Context, args: &StatArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        for path in &args.paths {
            let at = if args.follow { paths::at(path)? } else { paths::at_itself(path)? };
            let shown = paths::show(&at.path);
            let want = Want { attr: true, rights: true };
            let walked =
                client.fs().walk(&client.call(), &at, want).await.map_err(|e| e.op("stat").about(&shown))?;
            let attr = walked.attr;
            let names = client.remote().names_of(client.caller(), vec![attr.owner, attr.group]).await?;
            let name = |place: usize, id: weft_core::CallerId| {
                names
                    .get(place)
                    .cloned()
                    .flatten()
                    .map_or_else(|| id.to_string(), |n| n.seen_from(client.domain()))
            };
            let (owner, group) = (name(0, attr.owner), name(1, attr.group));
            let rights = walked.rights.unwrap_or_default();
            if context.json() {
                let mut value = json(&shown, &attr, &owner);
                value["group"] = group.into();
                value["rights"] = rights.to_string().into();
                out!("{value}")?;
                continue;
            }
            out!("path       {shown}")?;
            out!("kind       {}, {:04o}, {} links", show::kind(attr.kind), attr.mode, attr.links)?;
            out!(
                "size       {} ({} bytes), {} stored",
                show::size(attr.size),
                attr.size,
                show::size(attr.used)
            )?;
            out!("owner      {owner}, group {group}")?;
            out!("modified   {} UTC", show::time(attr.mtime))?;
            out!("changed    {} UTC", show::time(attr.ctime))?;
            out!("made       {} UTC", show::time(attr.btime))?;
            out!("version    {:032x}", attr.version.0)?;
            out!("id         {}", attr.id)?;
            out!("container  {}", attr.container)?;
            out!("you may    {rights}")?;
            if attr.kind == Kind::Symlink
                && let LinkTarget::Symlink(target) = client.fs().target(&client.call(), &at).await?
            {
                out!("leads to   {}", String::from_utf8_lossy(&target))?;
            }
        }
        Ok(())
    })
}
