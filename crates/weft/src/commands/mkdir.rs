//! `weft mkdir`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, New, Want};
use weft_core::{Error, ErrorKind, RelPath, Result};

use crate::context::Context;
use crate::failure::Failures;
use crate::paths::{show, tree_path};

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

pub fn run(context: &Context, args: &MkdirArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        for text in &args.paths {
            let made = one(&client, text, args.parents).await;
            failures.take(made.map_err(|e| e.op("make")))?;
        }
        Ok(failures.exit())
    })
}

async fn one(client: &Client, text: &OsStr, parents: bool) -> Result<()> {
    let path = tree_path(text)?;
    if !parents {
        return make(client, &path).await;
    }
    let mut above = RelPath::EMPTY;
    for name in path.names() {
        above = above.join(&name)?;
        let Err(error) = make(client, &above).await else { continue };
        // Whoever may not make it there may still go on where it is.
        let there = At::root(above.clone()).following();
        match client.fs().walk(&client.call(), &there, Want::default()).await {
            Ok(walked) if walked.attr.kind == Kind::Directory => {}
            Ok(_) if error.kind() == ErrorKind::Exists => {
                return Err(Error::exists("it is there, and not a directory").about(show(&above)));
            }
            _ => return Err(error),
        }
    }
    Ok(())
}

async fn make(client: &Client, path: &RelPath) -> Result<()> {
    if path.is_empty() {
        return Err(Error::exists("the root is there always").about("/"));
    }
    let at = At::root(path.clone());
    let made = client.fs().make(&client.call(), &at, New::Directory, &SetAttr::default()).await;
    made.map(drop).map_err(|e| e.about(show(path)))
}
