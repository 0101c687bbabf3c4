//! `weft cat`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::form::{OpenHow, Opened, Pin, Range};
use weft_core::{Result, Rights, limits};

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
    #[arg(long, value_name = "A-B", allow_hyphen_values = true, value_parser = part)]
    range: Option<Part>,
}

/// What was asked for of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// From a byte on, so many or all.
    From(Range),
    /// The last so many bytes.
    Last(u64),
}

pub fn run(context: &Context, args: &CatArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        for text in &args.paths {
            failures.take(one(context, &client, text, args.range).await.map_err(|e| e.op("read")))?;
        }
        output::flush()?;
        Ok(failures.exit())
    })
}

async fn one(context: &Context, client: &Client, text: &OsStr, part: Option<Part>) -> Result<()> {
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

async fn print(context: &Context, client: &Client, opened: &Opened, part: Option<Part>) -> Result<()> {
    let range = part.map_or(Range::ALL, |part| part.of(opened.attr.size));
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

impl Part {
    /// Returns where it lies in a file of `size` bytes.
    fn of(self, size: u64) -> Range {
        match self {
            Self::From(range) => range,
            Self::Last(length) => {
                let length = length.min(size);
                Range { at: size - length, length: Some(length) }
            }
        }
    }
}

fn part(text: &str) -> std::result::Result<Part, &'static str> {
    const BAD: &str = "a range is `A-B`, `A-` or `-N`";
    let number = |text: &str| text.parse::<u64>().map_err(|_| BAD);
    match text.split_once('-').ok_or(BAD)? {
        ("", last) => number(last).map(Part::Last),
        (first, "") => Ok(Part::From(Range { at: number(first)?, length: None })),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            let length = last.checked_sub(first).and_then(|d| d.checked_add(1)).ok_or(BAD)?;
            Ok(Part::From(Range { at: first, length: Some(length) }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_both_ends_and_from_the_end() {
        let read = |text| part(text).map(|part| part.of(1000)).map(|r| (r.at, r.length)).ok();
        assert_eq!(read("0-99"), Some((0, Some(100))));
        assert_eq!(read("100-"), Some((100, None)));
        assert_eq!(read("-100"), Some((900, Some(100))));
        assert_eq!(read("-5000"), Some((0, Some(1000))));
        for bad in ["", "-", "5", "9-3", "a-b", "0-18446744073709551615"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
