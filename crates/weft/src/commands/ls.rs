//! `weft ls`

use std::ffi::OsString;

use clap::Args;
use weft_client::Client;
use weft_client::tree::PassedOver;
use weft_core::Result;
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, LinkTarget, PageMax, Want};

use crate::context::Context;
use crate::names::Names;
use crate::output::out;
use crate::{paths, show};

/// Options of `weft ls`.
#[derive(Args)]
pub struct LsArgs {
    /// Directories or files [default: /]
    paths: Vec<OsString>,
    /// Show mode, owner, size and time
    #[arg(short, long)]
    long: bool,
    /// Show the directory itself, not what is in it
    #[arg(short, long)]
    directory: bool,
    /// List directories below too
    #[arg(short = 'R', short_alias = 'r', long)]
    recursive: bool,
}

pub fn run(context: &Context, args: &LsArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let names = Names::new(&client);
        let mut listing =
            Listing { context, client: &client, long: args.long, names, unseen: PassedOver::default() };
        let root = [OsString::from("/")];
        let paths = if args.paths.is_empty() { &root[..] } else { &args.paths };
        for path in paths {
            let at = paths::at(path)?;
            let shown = paths::show(&at.path);
            let walked = client
                .fs()
                .walk(&client.call(), &at, Want::default())
                .await
                .map_err(|e| e.op("list").about(&shown))?;
            if args.directory || walked.attr.kind != Kind::Directory {
                listing.print(&shown, &walked.attr).await?;
            } else {
                let heading = args.recursive || paths.len() > 1;
                listing
                    .directory(&walked.attr, &shown, heading, args.recursive)
                    .await
                    .map_err(|e| e.op("list").about(&shown))?;
            }
        }
        listing.unseen.whole().map_err(|e| e.op("list"))
    })
}

struct Listing<'a> {
    context: &'a Context,
    client: &'a Client,
    long: bool,
    names: Names<'a>,
    /// The directories that could not be looked into.
    unseen: PassedOver,
}

impl Listing<'_> {
    /// Lists a directory in name order, a page at a time; then, if asked, those below.
    async fn directory(&mut self, dir: &Attr, shown: &str, heading: bool, recursive: bool) -> Result<()> {
        let mut waiting = vec![(*dir, shown.to_owned())];
        while let Some((dir, shown)) = waiting.pop() {
            if heading && !self.context.json() {
                out!("{shown}:")?;
            }
            let mut from = Some(Cursor::ByName);
            let mut below = Vec::new();
            while let Some(cursor) = from {
                let want = Want { attr: true, rights: false };
                let page = self
                    .client
                    .fs()
                    .list(&self.client.call(), &At::id(dir.id), cursor, PageMax::MAX, want)
                    .await
                    .map_err(|e| e.said_of(&shown))?;
                if self.long || self.context.json() {
                    let owners = page.entries.iter().filter_map(|entry| entry.attr.map(|attr| attr.owner));
                    self.names.ask(owners).await?;
                }
                for entry in &page.entries {
                    let name = entry.name.to_string();
                    let path = format!("{}/{name}", shown.trim_end_matches('/'));
                    match &entry.attr {
                        Some(attr) => {
                            self.print(if self.context.json() { &path } else { &name }, attr).await?
                        }
                        None => out!("{name}")?,
                    }
                    if recursive && entry.kind == Kind::Directory {
                        match entry.attr {
                            Some(attr) => below.push((attr, path)),
                            None => self.unseen.add(path),
                        }
                    }
                }
                from = page.next;
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    async fn print(&mut self, name: &str, attr: &Attr) -> Result<()> {
        if self.context.json() {
            let owner = self.names.of(attr.owner).await?;
            out!("{}", json(name, attr, &owner))?;
            return Ok(());
        }
        if !self.long {
            out!("{name}{}", if attr.kind == Kind::Directory { "/" } else { "" })?;
            return Ok(());
        }
        let (mode, time) = (show::mode(attr), show::time(attr.mtime));
        let owner = self.names.of(attr.owner).await?;
        let target = self.target(attr).await?;
        out!("{mode} {:>3} {owner:12} {:>10} {time} {name}{target}", attr.links, show::size(attr.size))?;
        Ok(())
    }

    async fn target(&self, attr: &Attr) -> Result<String> {
        if attr.kind != Kind::Symlink {
            return Ok(String::new());
        }
        match self.client.fs().target(&self.client.call(), &At::id(attr.id)).await {
            Ok(LinkTarget::Symlink(target)) => Ok(format!(" -> {}", String::from_utf8_lossy(&target))),
            Ok(LinkTarget::Reference(to)) => Ok(format!(" -> {to:?}")),
            Err(_) => Ok(String::from(" -> ?")),
        }
    }
}

/// What `ls` and `stat` show in JSON.
pub fn json(path: &str, attr: &Attr, owner: &str) -> serde_json::Value {
    serde_json::json!({
        "path": path,
        "id": attr.id.to_string(),
        "kind": show::kind(attr.kind),
        "mode": format!("{:04o}", attr.mode),
        "links": attr.links,
        "owner": owner,
        "size": attr.size,
        "used": attr.used,
        "mtime": attr.mtime.seconds(),
        "mtime_ns": attr.mtime.nanos(),
        "ctime": attr.ctime.seconds(),
        "version": format!("{:032x}", attr.version.0),
        "container": attr.container.to_string(),
    })
}
