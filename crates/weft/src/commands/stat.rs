//! `weft stat`

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::form::Want;
use weft_core::service::Node;
use weft_core::{CallerId, FileId, OneLine, Result};

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
    let kept = Kept::of(client, attr.id).await.map_err(|e| e.about(&shown))?;
    if context.json() {
        let mut value = json(client, &shown, &attr, &owner).await;
        value["group"] = group.into();
        value["rights"] = rights.to_string().into();
        value["kept"] = kept.json();
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
    out!("kept       {kept}")?;
    out!("you may    {rights}")?;
    match leads_to(client, &attr).await {
        Some(target) => out!("leads to   {target}"),
        None => Ok(()),
    }
}

/// Who keeps a file's bytes.
pub enum Kept {
    /// The node's own stores.
    Managed,
    /// Whoever has the directory of the node's machine that is served in place; not everybody is
    /// told which that is.
    Exported(Option<String>),
}

impl Kept {
    /// Asks only of what is outside the root's volume.
    pub async fn of(client: &Client, id: FileId) -> Result<Self> {
        if id.volume() == FileId::ROOT.volume() {
            return Ok(Self::Managed);
        }
        let shares = client.remote().shares(client.caller()).await?;
        let share = shares.into_iter().find(|share| share.volume == id.volume());
        Ok(Self::Exported(share.map(|share| share.directory).filter(|directory| !directory.is_empty())))
    }

    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::Managed => serde_json::json!({ "as": "managed" }),
            Self::Exported(directory) => serde_json::json!({ "as": "exported", "directory": directory }),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Managed => f.write_str("managed"),
            Self::Exported(None) => f.write_str("exported"),
            Self::Exported(Some(directory)) => write!(f, "exported from {}", OneLine(directory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_a_file_is_said_and_from_which_directory_to_whom_that_is_told() {
        let said = |kept: Kept| (kept.to_string(), kept.json().to_string());
        let told = |text: &str, json: &str| (text.to_owned(), json.to_owned());
        assert_eq!(said(Kept::Managed), told("managed", r#"{"as":"managed"}"#));
        assert_eq!(said(Kept::Exported(None)), told("exported", r#"{"as":"exported","directory":null}"#));
        let exported = said(Kept::Exported(Some("/srv/data".into())));
        assert_eq!(exported, told("exported from /srv/data", r#"{"as":"exported","directory":"/srv/data"}"#));
    }

    #[test]
    fn the_contract_speaks_of_files_in_the_words_that_are_said_here() {
        let contract = include_str!("../../../../docs/SEMANTICS.md");
        for kept in [Kept::Managed, Kept::Exported(None)] {
            assert!(contract.contains(&format!("**{kept}**")), "{kept}");
        }
    }
}
