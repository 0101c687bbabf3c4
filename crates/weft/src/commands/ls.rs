//! `weft ls`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_client::tree::{self, PassedOver};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, LinkTarget, PageMax, Want};
use weft_core::{Result, Shown};

use crate::context::Context;
use crate::failure::Failures;
use crate::names::Names;
use crate::output::out;
use crate::paths::{self, TreePath};
use crate::progress::{self, Count};
use crate::show;

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

pub fn run(context: &Context, args: &LsArgs) -> Result<ExitCode> {
    context.wait(async {
        let count = progress::counting(context, "listed", true);
        let client = context.client().await?;
        let (names, failures) = (Names::new(&client), Failures::none(context, &client).beside(&count));
        let (client, count, unseen) = (&client, &count, PassedOver::default());
        let mut listing = Listing { context, client, args, names, unseen, failures, count, begun: false };
        let root = [paths::here()];
        let paths = if args.paths.is_empty() { &root[..] } else { &args.paths };
        // What is no directory has no heading, and comes first.
        let mut directories = Vec::new();
        for text in paths {
            let shown = listing.operand(text, &mut directories).await;
            listing.failures.take(shown.map_err(|e| e.op("list")))?;
        }
        let heading = args.recursive || paths.len() > 1;
        for (attr, shown) in directories {
            listing.directory(attr, shown, heading).await?;
        }
        let whole = listing.unseen.whole();
        listing.failures.take(whole.map_err(|e| e.op("list")))?;
        Ok(listing.failures.exit())
    })
}

struct Listing<'a> {
    context: &'a Context,
    client: &'a Client,
    args: &'a LsArgs,
    names: Names<'a>,
    /// The directories that could not be looked into.
    unseen: PassedOver,
    failures: Failures<'a>,
    /// The entries that were listed.
    count: &'a Count,
    /// Whether something was printed already.
    begun: bool,
}

impl Listing<'_> {
    /// Prints an operand that is no directory; keeps one that is for later.
    async fn operand(&mut self, text: &OsStr, directories: &mut Vec<(Attr, String)>) -> Result<()> {
        let path = TreePath::read(text)?;
        let attr = match self.look_up(&path).await {
            Ok(attr) => attr,
            Err(e) if self.args.directory => return Err(e.said_of(&path)),
            Err(e) => return Err(tree::unlisted(self.client, &path.at(), e, &path.to_string()).await),
        };
        if self.args.directory || attr.kind != Kind::Directory {
            return self.print(&path.to_string(), &attr).await;
        }
        directories.push((attr, path.to_string()));
        Ok(())
    }

    /// A symbolic link is followed, and shown itself if it leads nowhere, and with `-l` and `-d`. A
    /// `/` at the end follows it always.
    async fn look_up(&self, path: &TreePath) -> Result<Attr> {
        let (fs, call, want) = (self.client.fs(), self.client.call(), Want::default());
        if (self.args.long || self.args.directory) && !path.is_directory {
            return fs.walk(&call, &path.at_itself(), want).await.map(|walked| walked.attr);
        }
        let followed = match fs.walk(&call, &path.at(), want).await {
            Ok(walked) => return path.check(walked.attr.kind).map(|()| walked.attr),
            Err(error) => error,
        };
        match fs.walk(&call, &path.at_itself(), want).await {
            Ok(walked) if walked.attr.kind == Kind::Symlink && !path.is_directory => Ok(walked.attr),
            _ => Err(followed),
        }
    }

    /// Lists a directory and, if asked, those below. One that cannot be listed is said, and
    /// the others are listed all the same.
    async fn directory(&mut self, dir: Attr, shown: String, heading: bool) -> Result<()> {
        let mut waiting = vec![(dir, shown)];
        while let Some((dir, shown)) = waiting.pop() {
            if heading && !self.context.json() {
                out!("{}{shown}:", if self.begun { "\n" } else { "" })?;
                self.begun = true;
            }
            let mut below = Vec::new();
            let listed = self.pages(&dir, &shown, &mut below).await;
            self.failures.take(listed.map_err(|e| e.op("list")))?;
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Lists one directory in name order, a page at a time.
    async fn pages(&mut self, dir: &Attr, shown: &str, below: &mut Vec<(Attr, String)>) -> Result<()> {
        let mut from = Some(Cursor::ByName);
        while let Some(cursor) = from {
            let want = Want { attr: true, rights: false };
            let (fs, call) = (self.client.fs(), self.client.call());
            let page = fs.list(&call, &At::id(dir.id), cursor, PageMax::MAX, want).await;
            let page = page.map_err(|e| tree::refused(e, shown))?;
            if self.args.long || self.context.json() {
                let owners = page.entries.iter().filter_map(|entry| entry.attr.map(|attr| attr.owner));
                self.names.ask(owners).await?;
            }
            self.count.add(page.entries.len() as u64);
            for entry in &page.entries {
                let name = entry.name.to_string();
                let path = format!("{}/{name}", shown.trim_end_matches('/'));
                match &entry.attr {
                    Some(attr) => self.print(if self.context.json() { &path } else { &name }, attr).await?,
                    None => out!("{name}")?,
                }
                if self.args.recursive && entry.kind == Kind::Directory {
                    match entry.attr {
                        Some(attr) => below.push((attr, path)),
                        None => self.unseen.add(path, entry.kind),
                    }
                }
            }
            from = page.next;
        }
        Ok(())
    }

    async fn print(&mut self, name: &str, attr: &Attr) -> Result<()> {
        self.begun = true;
        if self.context.json() {
            let owner = self.names.of(attr.owner).await?;
            return out!("{}", json(self.client, name, attr, &owner).await);
        }
        if !self.args.long {
            let slash = if attr.kind == Kind::Directory && !name.ends_with('/') { "/" } else { "" };
            return out!("{name}{slash}");
        }
        let (mode, time) = (show::mode(attr), show::time(attr.mtime));
        let owner = self.names.of(attr.owner).await?;
        let target = match attr.kind {
            Kind::Symlink => {
                format!(" -> {}", leads_to(self.client, attr).await.as_deref().unwrap_or("?"))
            }
            _ => String::new(),
        };
        out!("{mode} {:>3} {owner:12} {:>10} {time} {name}{target}", attr.links, show::size(attr.size))
    }
}

/// Returns where a symbolic link leads; `None` for all else, and where that cannot be read.
pub async fn leads_to(client: &Client, attr: &Attr) -> Option<String> {
    if attr.kind != Kind::Symlink {
        return None;
    }
    match client.fs().target(&client.call(), &At::id(attr.id)).await.ok()? {
        LinkTarget::Symlink(target) => Some(Shown(&target).to_string()),
        LinkTarget::Reference(_) => None,
    }
}

/// What `ls`, `find` and `stat` show in JSON.
pub async fn json(client: &Client, path: &str, attr: &Attr, owner: &str) -> serde_json::Value {
    let mut value = json_of(path, attr, owner);
    if attr.kind == Kind::Symlink {
        value["target"] = leads_to(client, attr).await.into();
    }
    value
}

fn json_of(path: &str, attr: &Attr, owner: &str) -> serde_json::Value {
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
