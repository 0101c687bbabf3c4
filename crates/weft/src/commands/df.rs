//! `weft df`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::Result;

use crate::context::Context;
use crate::failure::Failures;
use crate::output::out;
use crate::paths::{self, TreePath};
use crate::show;

/// Options of `weft df`.
#[derive(Args)]
pub struct DfArgs {
    /// Places [default: /]
    paths: Vec<OsString>,
}

pub fn run(context: &Context, args: &DfArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        let root = [paths::here()];
        if !context.json() {
            out!("{:>10} {:>10} {:>10} {:>5} {:>10}  place", "size", "used", "free", "used%", "files")?;
        }
        for text in if args.paths.is_empty() { &root[..] } else { &args.paths } {
            failures.take(one(context, &client, text).await.map_err(|e| e.op("tell the space at")))?;
        }
        Ok(failures.exit())
    })
}

async fn one(context: &Context, client: &Client, text: &OsStr) -> Result<()> {
    let path = TreePath::read(text)?;
    path.check_thing(client).await?;
    let space = client.fs().space(&client.call(), &path.at()).await.map_err(|e| e.about(&path))?;
    let used = space.bytes_total.saturating_sub(space.bytes_free);
    if context.json() {
        return out!(
            "{}",
            serde_json::json!({
                "path": path.to_string(),
                "bytes_total": space.bytes_total,
                "bytes_used": used,
                "bytes_free": space.bytes_free,
                "files": space.files,
            })
        );
    }
    let percent = (u128::from(used) * 100).checked_div(u128::from(space.bytes_total)).unwrap_or(0);
    let [total, used, free] = [space.bytes_total, used, space.bytes_free].map(show::size);
    out!("{total:>10} {used:>10} {free:>10} {percent:>4}% {:>10}  {path}", space.files)
}
