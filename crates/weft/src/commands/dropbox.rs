//! `weft dropbox`

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use weft_core::drop_box::DropLimits;
use weft_core::form::{Door, Origin};
use weft_core::service::{DropBoxRecord, Links};
use weft_core::{OneLine, Result};

use crate::context::Context;
use crate::output::{note, out};
use crate::paths::TreePath;
use crate::{show, sizes, spans};

/// What to do with drop-boxes.
#[derive(Subcommand)]
pub enum DropboxCommand {
    /// Make a directory a drop-box, or change what one takes
    #[command(after_help = CREATE_HELP)]
    Create(CreateArgs),
    /// List drop-boxes
    Ls,
    /// Take no more files; what is there stays
    End {
        /// The directory
        path: OsString,
    },
}

/// Options of `weft dropbox create`: without bounds there is none.
#[derive(Args)]
pub struct CreateArgs {
    /// The directory; it is there already
    path: OsString,
    /// Bytes that it holds at most, such as `10G`
    #[arg(long, value_parser = sizes::read)]
    bytes: u64,
    /// Files that it holds at most
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// Bytes that may come in a time, such as `1G/d` or `100M/h`
    #[arg(long, value_parser = rate)]
    rate: (u64, Duration),
}

const CREATE_HELP: &str = "\
Anyone may then put files there (curl -T FILE https://NODE/PATH/), and no more: nobody without rights of their own sees, \
reads, replaces or removes what is in it. Each file gets a name of its own, `report-k3j9x2ma.pdf`. What you move out or \
remove makes room again.";

/// Reads a rate: a size, and the time it is for.
fn rate(text: &str) -> std::result::Result<(u64, Duration), &'static str> {
    const FORM: &str = "a rate is a size and a time: `1G/d`, `100M/h`, `5M/10m`";
    let (bytes, per) = text.split_once('/').ok_or(FORM)?;
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
    Ok((sizes::read(bytes).map_err(|_| FORM)?, spans::read(&per).map_err(|_| FORM)?))
}

pub fn run(context: &Context, command: &DropboxCommand) -> Result<()> {
    match command {
        DropboxCommand::Create(args) => create(context, args),
        DropboxCommand::Ls => list(context),
        DropboxCommand::End { path } => end(context, path),
    }
}

/// The node knows itself from where it is asked.
const HERE: Origin = Origin { door: Door::Native, peer: None, uid: None };

fn create(context: &Context, args: &CreateArgs) -> Result<()> {
    context.wait(async {
        let path = TreePath::read(&args.path)?;
        let (rate_bytes, rate_per) = args.rate;
        let limits = DropLimits { bytes: args.bytes, files: args.files, rate_bytes, rate_per };
        let client = context.client().await?;
        let made = client.remote().make_drop_box(client.caller(), HERE, &path.path, &limits).await;
        let made = made.map_err(|e| e.op("make a drop-box of").said_of(&path))?;
        if context.json() {
            return out!("{}", json(&made));
        }
        note!("anyone may put files into {path}, and nothing more");
        note!("by its path they come there if the directories above let anyone `traverse` them, by a link anyway");
        note!("hint: weft link create {} --drop", show::argument(args.path.as_ref()));
        Ok(())
    })
}

fn list(context: &Context) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        for known in client.remote().drop_boxes(client.caller()).await.map_err(|e| e.op("list drop-boxes"))? {
            if context.json() {
                out!("{}", json(&known))?;
                continue;
            }
            let limits = &known.limits;
            out!(
                "/{}  {} of {}  {} of {} files  {} now, {} per {}",
                OneLine(&known.path.to_string()),
                show::size(known.bytes),
                show::size(limits.bytes),
                known.files,
                limits.files,
                show::size(known.rate_left),
                show::size(limits.rate_bytes),
                spans::show(limits.rate_per),
            )?;
        }
        Ok(())
    })
}

fn end(context: &Context, path: &OsString) -> Result<()> {
    context.wait(async {
        let path = TreePath::read(path)?;
        let client = context.client().await?;
        let was = client.remote().end_drop_box(client.caller(), HERE, &path.path).await;
        let was = was.map_err(|e| e.op("end the drop-box").said_of(&path))?;
        if context.json() { out!("{}", json(&was)) } else { Ok(()) }
    })
}

fn json(known: &DropBoxRecord) -> serde_json::Value {
    let limits = &known.limits;
    serde_json::json!({
        "path": format!("/{}", known.path),
        "file": known.file.to_string(),
        "bytes": known.bytes,
        "bytes_max": limits.bytes,
        "files": known.files,
        "files_max": limits.files,
        "rate_bytes": limits.rate_bytes,
        "rate_seconds": limits.rate_per.as_secs(),
        "rate_left": known.rate_left,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_size_for_a_time() {
        for (text, bytes, seconds) in
            [("1G/d", 1 << 30, 86_400), ("100M/h", 100 << 20, 3600), ("5/10m", 5, 600)]
        {
            assert_eq!(rate(text), Ok((bytes, Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "1G", "1G/", "/d", "1G/x", "G/d"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
