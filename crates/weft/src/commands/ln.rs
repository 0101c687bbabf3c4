//! `weft ln`

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use clap::Args;
use weft_core::Result;
use weft_core::attr::SetAttr;
use weft_core::form::{At, New};

use crate::commands::mv::directory;
use crate::context::Context;
use crate::paths;

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
        let link = match directory(&client, &args.link).await? {
            Some(dir) => At::name(dir.base, paths::parent_and_name(&args.target)?.1),
            None => paths::at_itself(&args.link)?,
        };
        let made = if args.symbolic {
            let to = Bytes::copy_from_slice(args.target.as_bytes());
            client.fs().make(&client.call(), &link, New::Symlink(to), &SetAttr::default()).await
        } else {
            client.fs().link(&client.call(), &paths::at_itself(&args.target)?, &link).await
        };
        made.map(drop).map_err(|e| e.op("link").about(args.link.to_string_lossy()))
    })
}
