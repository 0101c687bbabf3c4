//! `weft backup` and `weft restore`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weft_core::service::{BackupReport, Node};
use weft_core::{Error, Result};

use crate::context::Context;
use crate::node::{NodeDirectory, backup};
use crate::output::{note, out};
use crate::{progress, show};

/// Options of `weft backup`.
#[derive(Args)]
pub struct BackupArgs {
    /// A directory of the node's machine that is not there yet
    into: PathBuf,
}

/// Options of `weft restore`.
#[derive(Args)]
pub struct RestoreArgs {
    /// A backup
    from: PathBuf,
    /// The directory of the node to make
    dir: Option<PathBuf>,
}

const WARNING: &str =
    "the node's signing keys are in it: keep it safe. The root key is not: put that away by itself";

/// What ended with old keys is believed again where these are back.
const RESTORED: &str = "it signs with the keys of the backup: if keys were rotated with --revoke-old since, do so again \
    before anybody uses it";

/// Exits with 1 if something in it was damaged before: the backup is whole all the same.
pub fn backup(context: &Context, args: &BackupArgs) -> Result<ExitCode> {
    context.wait(async {
        let into = std::path::absolute(&args.into).map_err(|e| Error::invalid("not a path").caused_by(e))?;
        let report = {
            let _shown = progress::waiting(context, "backing up");
            let client = context.client().await?;
            client.remote().backup(client.caller(), &into.to_string_lossy()).await?
        };
        say(context, "backed up to", &report, WARNING)?;
        Ok(if report.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

pub fn restore(context: &Context, args: &RestoreArgs) -> Result<()> {
    let dir = context.directory(args.dir.clone())?;
    context.wait(async {
        let report = into_new(context, &args.from, &dir).await?;
        say(context, "restored to", &report, RESTORED)
    })
}

/// Restores into a directory that is ours from before the backup is read: of two restores, or of a
/// restore and a start, one has it and the other is told who.
async fn into_new(context: &Context, from: &Path, dir: &Path) -> Result<BackupReport> {
    let shown = progress::waiting(context, "restoring");
    let directory = NodeDirectory::take_empty(dir, "restore")?;
    drop(shown);
    let restored = read_and_restore(context, from, &directory).await;
    match &restored {
        Ok(_) => directory.release()?,
        Err(_) => directory.give_up()?,
    }
    restored
}

async fn read_and_restore(context: &Context, from: &Path, directory: &NodeDirectory) -> Result<BackupReport> {
    let shown = progress::waiting(context, "reading the backup");
    backup::verify(context.sys(), from).await?;
    drop(shown);
    let _shown = progress::waiting(context, "restoring");
    backup::restore(context.sys(), from, directory).await
}

fn say(context: &Context, done: &str, report: &BackupReport, warning: &str) -> Result<()> {
    if context.json() {
        return out!(
            "{}",
            serde_json::json!({
                "path": report.path,
                "metadata_bytes": report.metadata_bytes,
                "objects": report.objects,
                "object_bytes": report.object_bytes,
                "damaged": report.damaged.iter().map(|finding| &finding.detail).collect::<Vec<_>>(),
                "warning": warning,
            })
        );
    }
    for finding in &report.damaged {
        out!("LOST  {}", show::finding(finding))?;
    }
    let (metadata, bytes) = (show::size(report.metadata_bytes), show::size(report.object_bytes));
    out!("{done} {}: metadata {metadata}, {} objects, {bytes}", report.path, report.objects)?;
    note!("{warning}");
    Ok(())
}
