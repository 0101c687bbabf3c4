//! `weft cat`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::form::{OpenHow, Opened, Pin, Range};
use weft_core::{Error, Result, Rights, limits};

use crate::context::Context;
use crate::failure::Failures;
use crate::paths::TreePath;
use crate::{output, progress};

/// Options of `weft cat`.
#[derive(Args)]
pub struct CatArgs {
    /// Files
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Only these bytes, both counted: `0-99`, `100-` or `-100` (the last hundred)
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    range: Option<String>,
}

pub fn run(context: &Context, args: &CatArgs) -> Result<ExitCode> {
    // One that is malformed is so for every file.
    args.range.as_deref().map_or(Ok(Range::ALL), |text| range(text, 0))?;
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        for text in &args.paths {
            failures
                .take(one(context, &client, text, args.range.as_deref()).await.map_err(|e| e.op("read")))?;
        }
        output::flush()?;
        Ok(failures.exit())
    })
}

async fn one(context: &Context, client: &Client, text: &OsStr, part: Option<&str>) -> Result<()> {
    let path = TreePath::read(text)?;
    path.check_thing(client).await?;
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = client.fs().open(&client.call(), &path.at(), &how).await;
    let opened = opened.map_err(|e| e.op("read").about(&path))?;
    let printed = print(context, client, &opened, part).await.map_err(|e| e.op("read").said_of(&path));
    // What is open is closed also where reading failed.
    let closed = opened.file.close(&client.call()).await;
    printed.and(closed)
}

async fn print(context: &Context, client: &Client, opened: &Opened, part: Option<&str>) -> Result<()> {
    let range = part.map_or(Ok(Range::ALL), |text| range(text, opened.attr.size))?;
    let left = opened.attr.size.saturating_sub(range.at);
    let printed = progress::printing(context, range.length.map_or(left, |length| length.min(left)));
    let mut source = opened.file.read(&client.call_within(limits::TRANSFER_WITHIN), range).await?;
    while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? {
        let bytes = piece.into_bytes()?;
        output::bytes(&bytes)?;
        printed.add(bytes.len() as u64);
    }
    Ok(())
}

/// Reads a range of a file of `size` bytes.
fn range(text: &str, size: u64) -> Result<Range> {
    let bad = || Error::invalid("a range is `A-B`, `A-` or `-N`");
    let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
    match text.split_once('-').ok_or_else(bad)? {
        ("", last) => {
            let length = number(last)?.min(size);
            Ok(Range { at: size - length, length: Some(length) })
        }
        (first, "") => Ok(Range { at: number(first)?, length: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            let length = last.checked_sub(first).and_then(|d| d.checked_add(1)).ok_or_else(bad)?;
            Ok(Range { at: first, length: Some(length) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_both_ends_and_from_the_end() {
        let read = |text| range(text, 1000).map(|r| (r.at, r.length)).ok();
        assert_eq!(read("0-99"), Some((0, Some(100))));
        assert_eq!(read("100-"), Some((100, None)));
        assert_eq!(read("-100"), Some((900, Some(100))));
        assert_eq!(read("-5000"), Some((0, Some(1000))));
        for bad in ["", "-", "5", "9-3", "a-b", "0-18446744073709551615"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
