//! `weft resolve`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::Result;
use weft_core::form::Want;

use crate::commands::stat::Kept;
use crate::context::Context;
use crate::failure::Failures;
use crate::output::out;
use crate::paths::TreePath;
use crate::show;

/// Options of `weft resolve`.
#[derive(Args)]
pub struct ResolveArgs {
    /// Names to follow
    #[arg(required = true)]
    paths: Vec<OsString>,
}

pub fn run(context: &Context, args: &ResolveArgs) -> Result<ExitCode> {
    context.wait(async {
        let client = context.client().await?;
        let mut failures = Failures::none(context, &client);
        for text in &args.paths {
            failures.take(one(context, &client, text).await.map_err(|e| e.op("resolve")))?;
        }
        Ok(failures.exit())
    })
}

/// Says what a path leads to, links and junctions followed, and who keeps its bytes.
async fn one(context: &Context, client: &Client, text: &OsStr) -> Result<()> {
    let path = TreePath::read(text)?;
    let walked = client.fs().walk(&client.call(), &path.at(), Want::default()).await;
    let attr = walked.map_err(|e| e.about(&path))?.attr;
    path.check(attr.kind).map_err(|e| e.about(&path))?;
    let kept = Kept::of(client, attr.id).await.map_err(|e| e.about(&path))?;
    let (volume, kind) = (attr.id.volume().0, show::kind(attr.kind));
    if context.json() {
        return out!(
            "{}",
            serde_json::json!({
                "path": path.to_string(),
                "kind": kind,
                "domain": client.domain().to_string(),
                "volume": volume,
                "id": attr.id.to_string(),
                "container": attr.container.to_string(),
                "kept": kept.json(),
            })
        );
    }
    out!("{path}: {kind} {} of volume {volume} in domain {}, {kept}", attr.id, client.domain())
}
