//! `weft mkdir`

use std::ffi::OsString;

use clap::Args;
use weft_core::attr::SetAttr;
use weft_core::form::{At, New};
use weft_core::{ErrorKind, RelPath, Result};

use crate::context::Context;
use crate::paths;

/// Options of `weft mkdir`.
#[derive(Args)]
pub struct MkdirArgs {
    /// Directories
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Make the directories above too, and forgive those that are there
    #[arg(short, long)]
    parents: bool,
}

pub fn run(context: &Context, args: &MkdirArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        for path in &args.paths {
            let path = paths::tree_path(path)?;
            let mut above = RelPath::EMPTY;
            for name in path.names() {
                above = above.join(&name)?;
                let last = above == path;
                if !last && !args.parents {
                    continue;
                }
                let made = client
                    .fs()
                    .make(&client.call(), &At::root(above.clone()), New::Directory, &SetAttr::default())
                    .await;
                match made {
                    Err(e) if args.parents && e.kind() == ErrorKind::Exists => {}
                    outcome => drop(outcome.map_err(|e| e.op("make").about(paths::show(&above)))?),
                }
            }
        }
        Ok(())
    })
}
