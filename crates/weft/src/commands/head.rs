//! `weft head` and `weft tail`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::form::{OpenHow, Opened, Pin, Range};
use weft_core::{Result, Rights, limits};

use crate::context::Context;
use crate::failure::Failures;
use crate::output::{self, out};
use crate::paths::TreePath;

/// Bytes that are asked for at once where it is not known how many are needed.
const STEP_BYTES: u64 = 64 << 10;

/// Options of `weft head` and `weft tail`.
#[derive(Args)]
pub struct HeadArgs {
    /// Files
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// So many lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, conflicts_with = "bytes")]
    lines: u64,
    /// So many bytes
    #[arg(short = 'c', long, value_name = "N")]
    bytes: Option<u64>,
}

#[derive(Clone, Copy)]
enum End {
    Head,
    Tail,
}

pub fn head(context: &Context, args: &HeadArgs) -> Result<ExitCode> {
    run(context, args, End::Head)
}

pub fn tail(context: &Context, args: &HeadArgs) -> Result<ExitCode> {
    run(context, args, End::Tail)
}

fn run(context: &Context, args: &HeadArgs, end: End) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        let mut before = "";
        for text in &args.paths {
            let heading = (args.paths.len() > 1).then_some(before);
            let done = one(&client, text, args, end, heading).await;
            if done.is_ok() {
                before = "\n";
            }
            failures.take(done.map_err(|e| e.op("read")))?;
        }
        output::flush()?;
        Ok(failures.exit())
    })
}

/// Prints an end of one file, under its name where there are several: `heading` stands before that.
async fn one(client: &Client, text: &OsStr, args: &HeadArgs, end: End, heading: Option<&str>) -> Result<()> {
    let path = TreePath::read(text)?;
    path.check_thing(client).await?;
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = client.fs().open(&client.call(), &path.at(), &how).await;
    let opened = opened.map_err(|e| e.op("read").about(&path))?;
    let printed = async {
        if let Some(before) = heading {
            out!("{before}==> {path} <==")?;
        }
        print(client, &opened, args, end).await
    };
    let printed = printed.await.map_err(|e| e.op("read").said_of(&path));
    // What is open is closed also where reading failed.
    let closed = opened.file.close(&client.call()).await;
    printed.and(closed)
}

async fn print(client: &Client, opened: &Opened, args: &HeadArgs, end: End) -> Result<()> {
    let size = opened.attr.size;
    let (from, lines) = match (end, args.bytes) {
        (End::Head, None) => (0, Some(args.lines)),
        (End::Head, Some(bytes)) => return bytes_of(client, opened, 0, bytes.min(size), None).await,
        (End::Tail, Some(bytes)) => (size.saturating_sub(bytes), None),
        (End::Tail, None) => (last_lines(client, opened, args.lines).await?, None),
    };
    bytes_of(client, opened, from, size - from, lines).await
}

/// Prints so many bytes from a place on, or so many lines of them if that is less.
async fn bytes_of(
    client: &Client,
    opened: &Opened,
    mut at: u64,
    bytes: u64,
    mut lines: Option<u64>,
) -> Result<()> {
    let end = at + bytes;
    while at < end && lines != Some(0) {
        // Few lines are near the beginning.
        let step = if lines.is_some() { STEP_BYTES } else { end - at };
        let range = Range { at, length: Some(step.min(end - at)) };
        let mut source = opened.file.read(&client.call_within(limits::TRANSFER_WITHIN), range).await?;
        while lines != Some(0)
            && let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await?
        {
            let bytes = piece.into_bytes()?;
            at += bytes.len() as u64;
            output::bytes(&bytes[..up_to_lines(&bytes, &mut lines)])?;
        }
    }
    Ok(())
}

/// Returns how many bytes are printed until no line is left to print.
fn up_to_lines(bytes: &[u8], lines: &mut Option<u64>) -> usize {
    let Some(left) = lines else { return bytes.len() };
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        *left -= 1;
        if *left == 0 {
            return at + 1;
        }
    }
    bytes.len()
}

/// Returns where the last lines of a file begin: it is read from its end, as far as they reach.
async fn last_lines(client: &Client, opened: &Opened, lines: u64) -> Result<u64> {
    let size = opened.attr.size;
    let (mut at, mut left) = (size, lines);
    if lines == 0 {
        return Ok(size);
    }
    while at > 0 {
        let from = at.saturating_sub(STEP_BYTES);
        let range = Range { at: from, length: Some(at - from) };
        let mut source = opened.file.read(&client.call_within(limits::TRANSFER_WITHIN), range).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? {
            bytes.extend_from_slice(&piece.into_bytes()?);
        }
        for (place, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let ends_file = from + place as u64 + 1 == size;
            if !ends_file {
                left -= 1;
            }
            if left == 0 {
                return Ok(from + place as u64 + 1);
            }
        }
        at = from;
    }
    Ok(0)
}
