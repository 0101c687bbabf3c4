//! `weft scrub`

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use weft_client::Client;
use weft_core::service::{Node, Scrub};
use weft_core::{Error, ErrorKind, OneLine, Result, Time};

use crate::context::Context;
use crate::output::out;
use crate::{progress, show};

/// How often a node is asked whether a round has ended.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Options of `weft scrub`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ScrubArgs {
    /// Return when the round has ended, however long that takes
    #[arg(long)]
    wait: bool,
    #[command(subcommand)]
    what: Option<What>,
}

/// What to do instead of beginning a round.
#[derive(Clone, Copy, Subcommand)]
enum What {
    /// Say how far it is, and what is damaged
    Status,
}

/// Exits with 1 if something is known to be damaged.
pub fn run(context: &Context, args: &ScrubArgs) -> Result<ExitCode> {
    let shown = args.wait.then(|| progress::waiting(context, "reading everything"));
    let scrub = context.wait(async {
        let client = context.client().await?;
        let node = client.remote();
        let scrub = node.scrub(client.caller(), args.what.is_none()).await?;
        if args.wait { ended(context, &client, scrub).await } else { Ok(scrub) }
    })?;
    drop(shown);
    print(context, &scrub)?;
    let damaged = !scrub.damaged.is_empty() || scrub.beyond > 0;
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Waits for the end of the round that was asked for: the one that has begun by now, or the one after it.
async fn ended(context: &Context, client: &Client, asked: Scrub) -> Result<Scrub> {
    let round = asked.rounds + u64::from(asked.asked);
    loop {
        let now = client.remote().scrub(client.caller(), false).await?;
        if now.rounds.saturating_sub(u64::from(now.began.is_some())) >= round {
            return Ok(now);
        }
        if now.bytes_per_second == 0 {
            return Err(Error::new(ErrorKind::Conflict, "it was switched off before the round had ended")
                .op("wait for the scrubber")
                .hint("set `scrub` in weft.toml, and send SIGHUP: the round then goes on"));
        }
        context.sys().sleep(ASK_EVERY).await;
    }
}

fn print(context: &Context, scrub: &Scrub) -> Result<()> {
    if context.json() {
        return out!("{}", json(scrub));
    }
    out!("{}", line(scrub))?;
    for damage in &scrub.damaged {
        let files = match &damage.files[..] {
            [] => format!("object {}", damage.object),
            files => files.join(" and "),
        };
        out!("damaged  {}: {}", OneLine(&files), show::damage(damage))?;
    }
    if scrub.beyond > 0 {
        out!("damaged  {} more objects", scrub.beyond)?;
    }
    Ok(())
}

/// Says how far it is, in a line.
pub fn line(scrub: &Scrub) -> String {
    let Scrub { bytes_per_second, asked, began, ended, objects, bytes, .. } = scrub;
    let ended = ended.map_or("never".to_owned(), |ended| show::time(ended) + " UTC");
    let now = match began {
        _ if *bytes_per_second == 0 => "switched off".to_owned(),
        None => "at rest".to_owned(),
        Some(began) => {
            let (began, bytes) = (show::time(*began), show::size(*bytes));
            format!(
                "since {began} UTC: {objects} objects, {bytes}, at {} a second",
                show::size(*bytes_per_second)
            )
        }
    };
    let then = if *asked && began.is_some() { ", and another after that" } else { "" };
    format!("{now}{then}; last to its end: {ended}")
}

/// Says it to programs.
pub fn json(scrub: &Scrub) -> serde_json::Value {
    let seconds = |time: Option<Time>| time.map(Time::seconds);
    let damaged = scrub.damaged.iter().map(|damage| {
        json!({
            "object": damage.object.to_string(),
            "files": damage.files,
            "from": damage.from,
            "to": damage.to,
            "blocks": damage.blocks,
            "unread": damage.unread,
            "since": damage.since.seconds(),
        })
    });
    json!({
        "bytes_per_second": scrub.bytes_per_second,
        "rounds": scrub.rounds,
        "asked": scrub.asked,
        "began": seconds(scrub.began),
        "ended": seconds(scrub.ended),
        "objects": scrub.objects,
        "bytes": scrub.bytes,
        "damaged": damaged.collect::<Vec<_>>(),
        "beyond": scrub.beyond,
    })
}
