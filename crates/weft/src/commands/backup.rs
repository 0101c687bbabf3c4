//! `weft backup` and `weft restore`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use weft_core::service::{BackupReport, Node};
use weft_core::{Error, OneLine, Result};
use weft_sys::process;

use crate::context::Context;
use crate::node::NodeDirectory;
use crate::node::backup::{self, Restored};
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
    /// Where the node's user has another uid here: uids of the backup are the same people's here all
    /// the same, as where a directory service gives them out
    #[arg(long)]
    keep_uids: bool,
}

const WARNING: &str =
    "the node's signing keys are in it: keep it safe. The root key is not: put that away by itself";

/// What ended with old keys is believed again where these are back.
const RESTORED: &str = "it signs with the keys of the backup: if keys were rotated with --revoke-old since, do so again \
    before anybody uses it";

/// What the backup's uids are worth where the node's user has another.
const UIDS_ENDED: &str = "the node's user had another uid: the backup's may be strangers' here. `weft user uid NAME UID` \
    says who is who, and a restore with --keep-uids takes them as they were";

/// Two nodes that serve one directory by the policies of two times are more than was asked for.
const DETACHED: &str = "`weft share` lists what was shared, and `weft share DIR PATH` serves it again, by the policies of the backup";

const NO_ADMINISTRATOR: &str = "no administrator of the backup may log in";

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
        let restored = into_new(context, args, &dir).await?;
        say_restored(context, &restored)
    })
}

/// Restores into a directory that is ours from before the backup is read: of two restores, or of a
/// restore and a start, one has it and the other is told who.
async fn into_new(context: &Context, args: &RestoreArgs, dir: &Path) -> Result<Restored> {
    let shown = progress::waiting(context, "restoring");
    let directory = NodeDirectory::take_empty(dir, "restore")?;
    drop(shown);
    let restored = read_and_restore(context, args, &directory).await;
    match &restored {
        Ok(_) => directory.release()?,
        Err(_) => directory.give_up()?,
    }
    restored
}

async fn read_and_restore(
    context: &Context,
    args: &RestoreArgs,
    directory: &NodeDirectory,
) -> Result<Restored> {
    let shown = progress::waiting(context, "reading the backup");
    backup::verify(context.sys(), &args.from).await?;
    drop(shown);
    let _shown = progress::waiting(context, "restoring");
    backup::restore(context.sys(), &args.from, directory, args.keep_uids).await
}

/// Tells what was restored, and what of it is otherwise than in the backup.
fn say_restored(context: &Context, restored: &Restored) -> Result<()> {
    let Restored { report, uids, detached } = restored;
    let uid = process::uid();
    if context.json() {
        let ended = uids.ended.iter().map(|(user, uid)| json!({ "user": user, "uid": uid }));
        let mut said = json_of(report, RESTORED);
        said["administrator"] = match &uids.administrator {
            Some(user) => json!({ "user": user, "uid": uid }),
            None => Value::Null,
        };
        said["uids_ended"] = ended.collect();
        said["shares_detached"] = detached.iter().map(|share| share.directory.to_string_lossy()).collect();
        return out!("{said}");
    }
    say(context, "restored to", report, RESTORED)?;
    match &uids.administrator {
        Some(user) => out!("administrator {user}: uid {uid} on this machine")?,
        None => note!("{NO_ADMINISTRATOR}"),
    }
    for (user, uid) in &uids.ended {
        out!("uid {uid} is not {user} any more")?;
    }
    if !uids.ended.is_empty() {
        note!("{UIDS_ENDED}");
    }
    for share in detached {
        out!("not served: the share of {}", OneLine(&share.directory.to_string_lossy()))?;
    }
    if !detached.is_empty() {
        note!("{DETACHED}");
    }
    Ok(())
}

fn say(context: &Context, done: &str, report: &BackupReport, warning: &str) -> Result<()> {
    if context.json() {
        return out!("{}", json_of(report, warning));
    }
    for finding in &report.damaged {
        out!("LOST  {}", show::finding(finding))?;
    }
    let (metadata, bytes) = (show::size(report.metadata_bytes), show::size(report.object_bytes));
    out!("{done} {}: metadata {metadata}, {} objects, {bytes}", report.path, report.objects)?;
    note!("{warning}");
    Ok(())
}

fn json_of(report: &BackupReport, warning: &str) -> Value {
    json!({
        "path": report.path,
        "metadata_bytes": report.metadata_bytes,
        "objects": report.objects,
        "object_bytes": report.object_bytes,
        "damaged": report.damaged.iter().map(|finding| &finding.detail).collect::<Vec<_>>(),
        "warning": warning,
    })
}
