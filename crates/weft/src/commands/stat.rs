//! `weft stat`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::form::Want;
use weft_core::{CallerId, Result};

use crate::commands::ls::{json, leads_to};
use crate::context::Context;
use crate::failure::Failures;
use crate::output::out;
use crate::paths::TreePath;
use crate::show;

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

pub fn run(context: &Context, args: &StatArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        for text in &args.paths {
            failures.take(one(context, &client, text, args.follow).await.map_err(|e| e.op("stat")))?;
        }
        Ok(failures.exit())
    })
}

async fn one(context: &Context, client: &Client, text: &OsStr, follow: bool) -> Result<()> {
    let path = TreePath::read(text)?;
    let at = if follow || path.is_directory { path.at() } else { path.at_itself() };
    let shown = path.to_string();
    let walked = client.fs().walk(&client.call(), &at, Want { attr: true, rights: true }).await;
    let walked = walked.map_err(|e| e.about(&shown))?;
    let attr = walked.attr;
    path.check(attr.kind).map_err(|e| e.about(&shown))?;
    let names = client.remote().names_of(client.caller(), vec![attr.owner, attr.group]).await?;
    let name = |place: usize, id: CallerId| {
        let known = names.get(place).cloned().flatten();
        known.map_or_else(|| id.to_string(), |name| name.seen_from(client.domain()))
    };
    let (owner, group) = (name(0, attr.owner), name(1, attr.group));
    let rights = walked.rights.unwrap_or_default();
    if context.json() {
        let mut value = json(client, &shown, &attr, &owner).await;
        value["group"] = group.into();
        value["rights"] = rights.to_string().into();
        return out!("{value}");
    }
    out!("path       {shown}")?;
    out!("kind       {}, {:04o}, {} links", show::kind(attr.kind), attr.mode, attr.links)?;
    let (size, used) = (show::size(attr.size), show::size(attr.used));
    out!("size       {size} ({} bytes), {used} stored", attr.size)?;
    out!("owner      {owner}, group {group}")?;
    out!("modified   {} UTC", show::time(attr.mtime))?;
    out!("changed    {} UTC", show::time(attr.ctime))?;
    out!("made       {} UTC", show::time(attr.btime))?;
    out!("version    {:032x}", attr.version.0)?;
    out!("id         {}", attr.id)?;
    out!("container  {}", attr.container)?;
    out!("you may    {rights}")?;
    match leads_to(client, &attr).await {
        Some(target) => out!("leads to   {target}"),
        None => Ok(()),
    }
}
