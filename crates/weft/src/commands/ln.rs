//! `weft ln`

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use clap::Args;
use weft_core::attr::SetAttr;
use weft_core::form::{At, New};
use weft_core::{Error, ErrorKind, Name, Result};

use crate::commands::mv::{directory, is_missing};
use crate::context::Context;
use crate::paths::TreePath;

/// Options of `weft ln`.
#[derive(Args)]
pub struct LnArgs {
    /// What the link leads to
    target: OsString,
    /// The link's name, or the directory to make it in
    link: OsString,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
}

pub fn run(context: &Context, args: &LnArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let path = TreePath::read(&args.link)?;
        let failed = |e: Error, shown: &str| e.op("make the link").said_of(shown);
        let (link, shown) = match directory(&client, &path).await.map_err(|e| e.op("make the link"))? {
            Some(dir) => {
                let name = last_name(&args.target).map_err(|e| failed(e, &path.to_string()))?;
                let shown = format!("{}/{name}", path.to_string().trim_end_matches('/'));
                (At::name(dir, name), shown)
            }
            None if path.is_directory => {
                return Err(failed(Error::not_found("there is no such directory"), &path.to_string()));
            }
            None => (path.at_itself(), path.to_string()),
        };
        if args.symbolic {
            let new = New::Symlink(Bytes::copy_from_slice(args.target.as_bytes()));
            let made = client.fs().make(&client.call(), &link, new, &SetAttr::default()).await;
            return made.map(drop).map_err(|e| failed(e, &shown));
        }
        let target = TreePath::read(&args.target)?;
        target.check_name(&client).await.map_err(|e| e.op("link to"))?;
        let Err(error) = client.fs().link(&client.call(), &target.at_itself(), &link).await else {
            return Ok(());
        };
        let of_target = match error.kind() {
            ErrorKind::IsDirectory | ErrorKind::TooManyLinks => true,
            ErrorKind::NotFound | ErrorKind::NotDirectory => is_missing(&client, &target).await,
            _ => false,
        };
        if error.kind() == ErrorKind::CrossVolume {
            return Err(failed(error, &shown).hint("weft ln -s makes a symbolic link"));
        }
        Err(if of_target { error.op("link to").said_of(&target) } else { failed(error, &shown) })
    })
}

/// Returns the name under which a link to `target` is put into a directory.
fn last_name(target: &OsStr) -> Result<Name> {
    let bytes = target.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let name = bytes[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    Name::new(Bytes::copy_from_slice(name))
        .map_err(|_| Error::invalid("the target has no name of its own: name the link too"))
}
