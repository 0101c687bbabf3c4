//! `weft touch`

use std::ffi::OsString;

use clap::Args;
use weft_core::attr::{SetAttr, SetTime};
use weft_core::form::{Guard, New};
use weft_core::{ErrorKind, Result};

use crate::context::Context;
use crate::paths;

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

pub fn run(context: &Context, args: &TouchArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
        for path in &args.paths {
            let at = paths::at(path)?;
            let touched = match client.fs().set(&client.call(), &at, &now, &Guard::NONE).await {
                Err(e) if e.kind() == ErrorKind::NotFound && args.no_create => Ok(()),
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let new = New::File { verifier: None };
                    client.fs().make(&client.call(), &at, new, &SetAttr::default()).await.map(drop)
                }
                outcome => outcome.map(drop),
            };
            touched.map_err(|e| e.op("touch").about(paths::show(&at.path)))?;
        }
        Ok(())
    })
}
