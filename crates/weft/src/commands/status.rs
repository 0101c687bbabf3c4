//! `weft status`

mod mounted;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use weft_client::Client;
use weft_core::form::Space;
use weft_core::service::{Node, NodeHealth, NodeStatus, Scrub, Share};
use weft_core::{ErrorKind, Result, Time};

use crate::context::Context;
use crate::output::out;
use crate::paths::TreePath;
use crate::show;

/// Options of `weft status`.
#[derive(Args)]
pub struct StatusArgs {
    /// A mount, or something in one: show how that mount is instead
    dir: Option<PathBuf>,
}

/// What is shown.
struct Shown {
    status: NodeStatus,
    /// Nothing of a node that is too old to say.
    health: Option<NodeHealth>,
    /// To administrators.
    scrub: Option<Scrub>,
    /// Each with its space, as far as that can be told.
    shares: Vec<(Share, Option<Space>)>,
}

/// Exits with 0 if the node, or the mount, is well, and with 1 if it is not ready or something of it does not
/// work.
pub fn run(context: &Context, args: &StatusArgs) -> Result<ExitCode> {
    if let Some(dir) = &args.dir {
        return mounted::run(context, dir);
    }
    context.wait(async {
        let shown = look(&context.client().await?).await?;
        if context.json() {
            out!("{}", shown.json())?;
        } else {
            shown.print()?;
        }
        let well = shown.health.is_none_or(|health| health.not_ready.is_none() && health.degraded.is_empty());
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

async fn look(client: &Client) -> Result<Shown> {
    let (node, caller) = (client.remote(), client.caller());
    let status = node.status(caller).await?;
    let health = unless_old(node.health(caller).await)?;
    let scrub = match node.scrub(caller, false).await {
        Err(error) if error.kind() == ErrorKind::NotPermitted => None,
        scrub => unless_old(scrub)?,
    };
    let shares = unless_old(node.shares(caller).await)?.unwrap_or_default();
    let mut with_space = Vec::new();
    for share in shares {
        let path = TreePath::read(share.at.as_ref()).ok().filter(|_| share.away.is_none());
        let space = match path {
            Some(path) => client.fs().space(&client.call(), &path.at()).await.ok(),
            None => None,
        };
        with_space.push((share, space));
    }
    Ok(Shown { status, health, scrub, shares: with_space })
}

/// Returns an answer; none of a node that is too old for the question.
fn unless_old<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        answer => answer.map(Some),
    }
}

impl Shown {
    fn json(&self) -> serde_json::Value {
        let Self { status, health, scrub, shares } = self;
        let shares = shares.iter().map(|(share, space)| {
            json!({
                "at": share.at,
                "away": share.away,
                "bytes_total": space.as_ref().map(|space| space.bytes_total),
                "bytes_free": space.as_ref().map(|space| space.bytes_free),
            })
        });
        let mut value = json!({
            "version": status.version,
            "domain": status.domain.to_string(),
            "started": status.started.seconds(),
            "pid": status.pid,
            "data": status.data,
            "doors": status.doors.iter().cloned().collect::<BTreeMap<_, _>>(),
            "bytes_total": status.bytes_total,
            "bytes_free": status.bytes_free,
            "files": status.files,
            "sessions": status.sessions,
            "uploads": status.uploads,
            "upload_bytes": status.upload_bytes,
            "shares": shares.collect::<Vec<_>>(),
        });
        if let Some(health) = health {
            let seconds = |time: Option<Time>| time.map(Time::seconds);
            value["ready"] = health.not_ready.is_none().into();
            value["not_ready"] = json!(health.not_ready);
            value["degraded"] = json!(health.degraded);
            value["connections"] = health.connections.into();
            value["transfers"] = health.transfers.into();
            value["opens"] = health.opens.into();
            value["backup"] = json!(seconds(health.backup));
            value["check"] = json!(seconds(health.check));
            value["sweep"] = json!(seconds(health.sweep));
        }
        if let Some(scrub) = scrub {
            value["scrub"] = super::scrub::json(scrub);
        }
        value
    }

    fn print(&self) -> Result<()> {
        let Self { status, health, scrub, shares } = self;
        out!("weft     {}", status.version)?;
        out!("domain   {}", status.domain)?;
        out!("started  {} UTC, pid {}", show::time(status.started), status.pid)?;
        if !status.data.is_empty() {
            out!("data     {}", status.data)?;
        }
        out!("space    {} free of {}", show::size(status.bytes_free), show::size(status.bytes_total))?;
        out!("files    {}", status.files)?;
        for (share, space) in shares {
            match (&share.away, space) {
                (Some(why), _) => out!("share    {}: away: {why}", share.at)?,
                (None, Some(space)) => {
                    let (free, total) = (show::size(space.bytes_free), show::size(space.bytes_total));
                    out!("share    {}: {free} free of {total}", share.at)?;
                }
                (None, None) => out!("share    {}", share.at)?,
            }
        }
        out!("sessions {}", status.sessions)?;
        if status.uploads > 0 {
            out!("uploads  {} unfinished, holding {}", status.uploads, show::size(status.upload_bytes))?;
        }
        for (door, address) in &status.doors {
            out!("door     {door} at {address}")?;
        }
        if let Some(scrub) = scrub {
            out!("scrub    {}", super::scrub::line(scrub))?;
        }
        health.as_ref().map_or(Ok(()), |health| print_health(health, !status.data.is_empty()))
    }
}

fn print_health(health: &NodeHealth, to_administrator: bool) -> Result<()> {
    let NodeHealth { connections, transfers, opens, .. } = health;
    out!("now      {connections} connections, {transfers} transfers, {opens} open files")?;
    if to_administrator {
        let done = |time: Option<Time>| time.map_or("never".to_owned(), |time| show::time(time) + " UTC");
        out!("backup   {}", done(health.backup))?;
        out!("check    {}", done(health.check))?;
        out!("sweep    {}", done(health.sweep))?;
    }
    for what in &health.degraded {
        out!("degraded {what}")?;
    }
    match &health.not_ready {
        Some(why) => out!("ready    no: {why}"),
        None => out!("ready    yes"),
    }
}
