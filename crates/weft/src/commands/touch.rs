//! `weft touch`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::attr::{SetAttr, SetTime};
use weft_core::form::{Guard, New};
use weft_core::{ErrorKind, Result};

use crate::context::Context;
use crate::failure::Failures;
use crate::paths::TreePath;

/// Options of `weft touch`.
#[derive(Args)]
pub struct TouchArgs {
    /// Files
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Do not make files that are not there
    #[arg(short = 'c', long)]
    no_create: bool,
}

pub fn run(context: &Context, args: &TouchArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        for text in &args.paths {
            let touched = match one(&client, text, args.no_create).await {
                Err(e) if e.kind() == ErrorKind::NotFound && args.no_create => Ok(()),
                outcome => outcome.map_err(|e| e.op("touch")),
            };
            failures.take(touched)?;
        }
        Ok(failures.exit())
    })
}

async fn one(client: &Client, text: &OsStr, no_create: bool) -> Result<()> {
    let path = TreePath::read(text)?;
    path.check_thing(client).await?;
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let (fs, call, at) = (client.fs(), client.call(), path.at());
    let touched = match fs.set(&call, &at, &now, &Guard::NONE).await {
        Err(e) if e.kind() == ErrorKind::NotFound && !no_create => {
            let new = New::File { verifier: None };
            fs.make(&call, &at, new, &SetAttr::default()).await.map(drop)
        }
        outcome => outcome.map(drop),
    };
    touched.map_err(|e| e.about(&path))
}
