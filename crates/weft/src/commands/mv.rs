//! `weft mv`

use std::ffi::OsString;

use clap::Args;
use weft_client::Client;
use weft_core::attr::Kind;
use weft_core::form::{At, Guard, Replace, Want};
use weft_core::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::{paths, progress};

/// Options of `weft mv`.
#[derive(Args)]
pub struct MvArgs {
    /// What to rename, then the new name or the directory to move it to
    #[arg(required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Fail if the new name is taken
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap the two
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

pub fn run(context: &Context, args: &MvArgs) -> Result<()> {
    context.wait(async {
        let renames = progress::counting(context, "renamed", false);
        let client = context.client().await?;
        let (target, sources) = args.paths.split_last().expect("at least two paths are required");
        let into = directory(&client, target).await?;
        if sources.len() > 1 && into.is_none() {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "several things can only be moved into a directory",
            )
            .about(target.to_string_lossy()));
        }
        let how = match (args.no_clobber, args.exchange) {
            (true, _) => Replace::Never,
            (_, true) => Replace::Exchange,
            _ => Replace::Any,
        };
        for source in sources {
            let (parent, name) = paths::parent_and_name(source)?;
            let from = At { path: parent.path.join(&name)?, ..At::root(parent.path.clone()) };
            let to = match &into {
                Some(dir) if !args.exchange => At::name(dir.base, name),
                _ => paths::at_itself(target)?,
            };
            let renamed = client.fs().rename(&client.call(), &from, &to, how, &Guard::NONE).await;
            renamed.map_err(|e| e.op("rename").about(source.to_string_lossy()))?;
            renames.add(1);
        }
        Ok(())
    })
}

/// Returns the address of a directory, if that is what is at the path.
pub async fn directory(client: &Client, path: &OsString) -> Result<Option<At>> {
    match client.fs().walk(&client.call(), &paths::at(path)?, Want::default()).await {
        Ok(walked) => Ok((walked.attr.kind == Kind::Directory).then(|| At::id(walked.attr.id))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.about(path.to_string_lossy())),
    }
}
