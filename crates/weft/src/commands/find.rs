//! `weft find`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weft_client::Client;
use weft_client::tree::{Found, Walk};
use weft_core::attr::{Kind, TagName};
use weft_core::form::At;
use weft_core::{ErrorKind, Result};

use crate::commands::attr;
use crate::commands::ls::json;
use crate::context::Context;
use crate::failure::Failures;
use crate::names::Names;
use crate::output::out;
use crate::paths::{self, TreePath};
use crate::progress::{self, Count};

/// Kinds that can be looked for.
#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
    /// Files
    F,
    /// Directories
    D,
    /// Symbolic links
    L,
    /// Named pipes
    P,
}

/// Options of `weft find`.
#[derive(Args)]
pub struct FindArgs {
    /// Where to start [default: /]
    paths: Vec<OsString>,
    /// Only names that match: `*` is any bytes, `?` any one
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// Only this kind
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<KindArg>,
    /// Only sizes above (`+N`), below (`-N`) or of N bytes; K, M, G and T multiply by 1024
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = size)]
    size: Option<Size>,
    /// Only what has this user attribute, with this value if one is given (may be given again)
    #[arg(long = "attr", value_name = "NAME[=VALUE]")]
    attrs: Vec<OsString>,
}

/// How a size compares with a number of bytes.
type Size = (std::cmp::Ordering, u64);

pub fn run(context: &Context, args: &FindArgs) -> Result<ExitCode> {
    let filter = Filter::new(args)?;
    context.wait(async {
        let looked = progress::counting(context, "looked at", true);
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client).beside(&looked);
        let root = [paths::here()];
        for text in if args.paths.is_empty() { &root[..] } else { &args.paths } {
            let found = below(context, &client, text, &filter, &looked).await;
            failures.take(found.map_err(|e| e.op("look through")))?;
        }
        Ok(failures.exit())
    })
}

async fn below(
    context: &Context,
    client: &Client,
    text: &OsStr,
    filter: &Filter,
    looked: &Count,
) -> Result<()> {
    let start = TreePath::read(text)?;
    start.check_listed(client).await?;
    let mut walk = Walk::start(client, &start.at(), &start.to_string()).await?;
    let mut names = Names::new(client);
    while let Some(found) = walk.next().await? {
        looked.add(1);
        if filter.takes(&found) && filter.takes_tags(client, &found, &walk).await? {
            let path = walk.show(&found.path);
            if context.json() {
                let owner = names.of(found.attr.owner).await?;
                out!("{}", json(client, &path, &found.attr, &owner).await)?;
            } else {
                out!("{path}")?;
            }
        }
    }
    walk.whole()
}

struct Filter {
    name: Option<Vec<u8>>,
    kind: Option<Kind>,
    size: Option<Size>,
    /// Attributes that it must have, with a value or any.
    attrs: Vec<(TagName, Option<Vec<u8>>)>,
}

impl Filter {
    fn new(args: &FindArgs) -> Result<Self> {
        let kind = args.kind.map(|kind| match kind {
            KindArg::F => Kind::File,
            KindArg::D => Kind::Directory,
            KindArg::L => Kind::Symlink,
            KindArg::P => Kind::Fifo,
        });
        let name = args.name.as_ref().map(|n| n.as_bytes().to_vec());
        let attr = |text: &OsString| {
            let mut parts = text.as_bytes().splitn(2, |byte| *byte == b'=');
            let name = attr::named(OsStr::from_bytes(parts.next().unwrap_or_default()))?;
            Ok((name, parts.next().map(<[u8]>::to_vec)))
        };
        let attrs = args.attrs.iter().map(attr).collect::<Result<_>>()?;
        Ok(Self { name, kind, size: args.size, attrs })
    }

    /// Whether it has the attributes that are asked for: they are asked of the node last.
    async fn takes_tags(&self, client: &Client, found: &Found, walk: &Walk<'_>) -> Result<bool> {
        for (name, wanted) in &self.attrs {
            let value = match attr::find(client, &At::id(found.attr.id), name.as_bytes()).await {
                // Gone since it was found.
                Err(e) if e.kind() == ErrorKind::Stale => None,
                value => value.map_err(|e| e.said_of(walk.show(&found.path)))?,
            };
            if value.is_none_or(|value| wanted.as_ref().is_some_and(|wanted| *wanted != value)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn takes(&self, found: &Found) -> bool {
        let name = found.path.split_last().map(|(_, name)| name);
        let named = |pattern: &Vec<u8>| name.as_ref().is_some_and(|n| matches(pattern, n.as_bytes()));
        self.name.as_ref().is_none_or(named)
            && self.kind.is_none_or(|kind| found.attr.kind == kind)
            && self.size.is_none_or(|(how, size)| found.attr.size.cmp(&size) == how)
    }
}

fn size(text: &str) -> std::result::Result<Size, &'static str> {
    use std::cmp::Ordering;
    let (how, digits) = match text.as_bytes().first() {
        Some(b'+') => (Ordering::Greater, &text[1..]),
        Some(b'-') => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    };
    let (digits, shift) = match digits.as_bytes().last() {
        Some(b'K') => (&digits[..digits.len() - 1], 10),
        Some(b'M') => (&digits[..digits.len() - 1], 20),
        Some(b'G') => (&digits[..digits.len() - 1], 30),
        Some(b'T') => (&digits[..digits.len() - 1], 40),
        _ => (digits, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    number.map(|n| (how, n)).ok_or("a size is `N`, `+N` or `-N`, with K, M, G or T behind it")
}

/// Matches a name against a pattern of `*` and `?`: on a mismatch, the last `*` takes
/// one byte more, so the time is bounded by the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, good) in [
            ("*.pdb", "1abc.pdb", true),
            ("*.pdb", "1abc.pdb.gz", false),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxbxx", false),
            ("?", "a", true),
            ("?", "", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("**a", "aaab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), good, "{pattern} {name}");
        }
    }

    #[test]
    fn sizes_read_units_and_refuse_overflow() {
        use std::cmp::Ordering;
        assert_eq!(size("+10K").expect("a size"), (Ordering::Greater, 10_240));
        assert_eq!(size("-1G").expect("a size"), (Ordering::Less, 1 << 30));
        for bad in ["", "+", "K", "1X", "99999999999T", "--1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
