//! `weft link`

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use weft_client::Client;
use weft_core::form::{Door, Origin};
use weft_core::service::{LinkGives, LinkRecord, Links, NewLink, Node};
use weft_core::{LinkId, Name, OneLine, Result, Time, limits};

use crate::context::Context;
use crate::output::{note, out};
use crate::paths::TreePath;
use crate::{show, spans};

/// What to do with links.
#[derive(Subcommand)]
pub enum LinkCommand {
    /// Make a link to a file or a directory, for people without an account
    #[command(after_help = CREATE_HELP)]
    Create(CreateArgs),
    /// List your links, and those that ended lately
    Ls {
        /// Everybody's, for administrators
        #[arg(long)]
        all: bool,
    },
    /// End links, and what is being read by them
    Revoke {
        /// Their ids, as `weft link ls` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<LinkId>,
    },
}

/// Options of `weft link create`.
#[derive(Args)]
pub struct CreateArgs {
    /// What the link is to lead to
    path: OsString,
    /// How long it lasts: `90s`, `30m`, `12h`, `7d`, `2w`; at most 366d
    #[arg(long = "for", value_name = "SPAN", default_value = "7d", value_parser = spans::read)]
    life: Duration,
    /// How often files may be read by it [default: as often as one likes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Let files be dropped into a directory that is a drop-box, and nothing be read
    #[arg(long, conflicts_with = "pin")]
    drop: bool,
    /// Keep to the version that the file has now: the link ends with it
    #[arg(long)]
    pin: bool,
}

impl CreateArgs {
    fn gives(&self) -> LinkGives {
        if self.drop { LinkGives::Insert } else { LinkGives::Read }
    }
}

const CREATE_HELP: &str = "\
Whoever has the link reads the file, or lists the directory and reads what is below it, as you would: it gives nothing \
that you may not read yourself when it is used. It follows the file to other names and places. Each read of a file from \
its beginning counts as one use. `weft link revoke` ends it, and downloads by it, at once.";

pub fn run(context: &Context, command: &LinkCommand) -> Result<()> {
    match command {
        LinkCommand::Create(args) => create(context, args),
        LinkCommand::Ls { all } => list(context, *all),
        LinkCommand::Revoke { ids } => revoke(context, ids),
    }
}

fn create(context: &Context, args: &CreateArgs) -> Result<()> {
    context.wait(async {
        let path = TreePath::read(&args.path)?;
        let client = context.client().await?;
        path.check_thing(&client).await.map_err(|e| e.op("make a link to").said_of(&path))?;
        let new = NewLink { gives: args.gives(), life: args.life, count: args.count, pin: args.pin };
        let here = Origin { door: Door::Native, peer: None, uid: None };
        let made = client.remote().make_link(client.caller(), here, &path.path, &new).await;
        let made = made.map_err(|e| e.op("make a link to").said_of(&path))?;
        let record = made.record;
        let name = record.path.split_last().map(|(_, name)| name);
        let name: Option<&Name> = name.as_ref().filter(|_| !record.is_directory);
        let target = weft_doors_http::link::encode(&made.secret, name);
        let door = door(&client).await?;
        let url = door.as_ref().map(|door| format!("{door}{target}"));
        if context.json() {
            let mut json = json(&record);
            (json["url"], json["target"]) = (url.into(), target.into());
            return out!("{json}");
        }
        out!("{}", url.as_ref().unwrap_or(&target))?;
        note!("link {}, until {} UTC{}", record.id, show::time(record.expires), often(&record));
        match door {
            None => note!("hint: the node speaks no HTTP; put its address before the link"),
            Some(door) if is_here_only(&door) => {
                note!("hint: this is the node's address on its own machine; others need the one that they reach it at");
            }
            Some(_) => {}
        }
        Ok(())
    })
}

/// Returns the node's door for links: the address that people reach it at, else the secured one if there is one.
async fn door(client: &Client) -> Result<Option<String>> {
    let doors = client.remote().status(client.caller()).await?.doors;
    let of = |scheme: &str| doors.iter().find(|(name, _)| name == scheme).map(|(_, address)| address.clone());
    Ok(of("public").or_else(|| of("https")).or_else(|| of("http")))
}

/// Returns whether an address means nothing to other machines.
fn is_here_only(door: &str) -> bool {
    let host = door.split_once("://").map_or(door, |(_, address)| address);
    let address: Option<std::net::SocketAddr> = host.parse().ok();
    address.is_some_and(|address| address.ip().is_loopback() || address.ip().is_unspecified())
}

fn list(context: &Context, all: bool) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let mut after = None;
        loop {
            let page = client.remote().links(client.caller(), all, after).await;
            let page = page.map_err(|e| e.op("list links"))?;
            after = page.last().map(|link| (link.by.id(), link.id));
            for link in &page {
                if context.json() {
                    out!("{}", json(link))?;
                } else {
                    line(link, all)?;
                }
            }
            if page.len() < limits::ACCOUNTS_PAGE_MAX {
                return Ok(());
            }
        }
    })
}

fn line(link: &LinkRecord, all: bool) -> Result<()> {
    let used = match link.count {
        Some(count) => format!("{}/{count}", link.used),
        None => link.used.to_string(),
    };
    let by = if all { format!("{:12} ", link.by.local()) } else { String::new() };
    let state = match &link.ended {
        Some(why) => format!("ended: {why}"),
        None => format!("until {} UTC", show::time(link.expires)),
    };
    let path = format!("/{}{}", link.path, if link.is_directory { "/" } else { "" });
    out!("{} {by}{:6} {used:>7}  {}  {state}", link.id, link.gives.to_string(), OneLine(&path))
}

fn revoke(context: &Context, ids: &[LinkId]) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        for id in ids {
            let ended = client.remote().end_link(client.caller(), *id).await;
            let ended = ended.map_err(|e| e.op("revoke link").said_of(id).hint("weft link ls"))?;
            if context.json() {
                out!("{}", json(&ended))?;
            }
        }
        Ok(())
    })
}

/// Says how often a link may be used, and of which version.
fn often(link: &LinkRecord) -> String {
    let count = match link.count {
        Some(1) => ", once".to_owned(),
        Some(count) => format!(", {count} times"),
        None => String::new(),
    };
    format!("{count}{}", if link.version.is_some() { ", for this version" } else { "" })
}

fn json(link: &LinkRecord) -> serde_json::Value {
    serde_json::json!({
        "id": link.id.to_string(),
        "by": link.by.to_string(),
        "path": format!("/{}", link.path),
        "file": link.file.to_string(),
        "directory": link.is_directory,
        "gives": link.gives.to_string(),
        "pinned": link.version.is_some(),
        "made": link.made.seconds(),
        "expires": link.expires.seconds(),
        "count": link.count,
        "used": link.used,
        "last": link.last.map(Time::seconds),
        "ended": link.ended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_cannot_reach_is_known_for_one() {
        for (door, here) in [
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:80", true),
            ("https://0.0.0.0:443", true),
            ("https://192.0.2.7:443", false),
            ("https://weft.example:443", false),
        ] {
            assert_eq!(is_here_only(door), here, "{door}");
        }
    }
}
