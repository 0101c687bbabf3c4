//! `weft tree`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_client::tree::{PassedOver, refused};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, Entry, PageMax, Want};
use weft_core::{FileId, Result, limits};

use crate::context::Context;
use crate::failure::Failures;
use crate::output::out;
use crate::paths::{self, TreePath};

/// Options of `weft tree`.
#[derive(Args)]
pub struct TreeArgs {
    /// Directories [default: /]
    paths: Vec<OsString>,
    /// Only so many directories deep
    #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    depth: Option<u64>,
    /// Only directories
    #[arg(short, long)]
    directories: bool,
}

pub fn run(context: &Context, args: &TreeArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        let root = [paths::here()];
        for text in if args.paths.is_empty() { &root[..] } else { &args.paths } {
            let path = TreePath::read(text)?;
            let shown = async {
                let top = path.look_up(&client).await?;
                let mut drawing =
                    Drawing { context, client: &client, args, totals: (0, 0), unseen: PassedOver::default() };
                drawing.all(&path.to_string(), top).await
            };
            failures.take(shown.await.map_err(|e| e.op("list")))?;
        }
        Ok(failures.exit())
    })
}

/// A tree that is being shown.
struct Drawing<'a> {
    context: &'a Context,
    client: &'a Client,
    args: &'a TreeArgs,
    /// Directories and other things so far.
    totals: (u64, u64),
    unseen: PassedOver,
}

/// A directory some of whose entries were shown.
struct Level {
    id: FileId,
    shown: String,
    /// What stands before each line of it.
    indent: String,
    /// The entries that were listed, the last first.
    ready: Vec<Entry>,
    next: Option<Cursor>,
}

impl Drawing<'_> {
    async fn all(&mut self, shown: &str, top: Attr) -> Result<()> {
        if self.context.json() {
            out!(
                "{}",
                serde_json::json!({ "path": shown, "kind": crate::show::kind(top.kind), "depth": 0 })
            )?;
        } else {
            out!("{shown}")?;
        }
        let mut levels = Vec::new();
        if top.kind == Kind::Directory {
            levels.push(self.level(top.id, shown.to_owned(), String::new()).await?);
        }
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.ready.pop() else {
                levels.pop();
                continue;
            };
            if level.ready.is_empty() {
                self.fill(level).await?;
            }
            let (is_last, indent) = (level.ready.is_empty(), level.indent.clone());
            let (above, depth) = (level.shown.clone(), levels.len());
            let path = format!("{}/{}", above.trim_end_matches('/'), entry.name);
            self.line(&entry, &path, (&indent, is_last), depth)?;
            let deeper = self.args.depth.is_none_or(|most| (depth as u64) < most);
            if entry.kind == Kind::Directory && deeper && depth < limits::TREE_DEPTH_MAX {
                let below = format!("{indent}{}", if is_last { "    " } else { "│   " });
                match self.level(entry.id, path.clone(), below).await {
                    Ok(level) => levels.push(level),
                    Err(e) if e.kind() == weft_core::ErrorKind::Denied => {
                        self.unseen.add(path, Kind::Directory);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        if !self.context.json() {
            out!("\n{} directories, {} files", self.totals.0, self.totals.1)?;
        }
        self.unseen.whole()
    }

    async fn level(&self, id: FileId, shown: String, indent: String) -> Result<Level> {
        let mut level = Level { id, shown, indent, ready: Vec::new(), next: Some(Cursor::ByName) };
        self.fill(&mut level).await?;
        Ok(level)
    }

    /// Lists more of a directory, until there is something to show or no more.
    async fn fill(&self, level: &mut Level) -> Result<()> {
        while level.ready.is_empty()
            && let Some(from) = level.next.take()
        {
            let (call, want) = (self.client.call(), Want { attr: false, rights: false });
            let page = self.client.fs().list(&call, &At::id(level.id), from, PageMax::MAX, want).await;
            let page = page.map_err(|e| refused(e, &level.shown))?;
            let wanted = |entry: &Entry| !self.args.directories || entry.kind == Kind::Directory;
            level.ready = page.entries.into_iter().filter(wanted).rev().collect();
            level.next = page.next;
        }
        Ok(())
    }

    fn line(
        &mut self,
        entry: &Entry,
        path: &str,
        (indent, is_last): (&str, bool),
        depth: usize,
    ) -> Result<()> {
        match entry.kind {
            Kind::Directory => self.totals.0 += 1,
            _ => self.totals.1 += 1,
        }
        if self.context.json() {
            let kind = crate::show::kind(entry.kind);
            return out!("{}", serde_json::json!({ "path": path, "kind": kind, "depth": depth }));
        }
        let slash = if entry.kind == Kind::Directory { "/" } else { "" };
        out!("{indent}{}{}{slash}", if is_last { "└── " } else { "├── " }, entry.name)
    }
}
