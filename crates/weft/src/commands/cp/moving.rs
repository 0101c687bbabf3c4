//! `weft import`, `weft export` and `weft sync`: copies that are to be like their source.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weft_client::copy::{Attributes, How};
use weft_core::{Error, RelPath, Result};
use weft_remote::Url;
use weft_sys::fault;

use super::goal::{Goal, LocalGoal, TreeGoal, not_a_directory};
use super::report::Report;
use super::server::{self, ServerGoal};
use super::{Job, Wanted, down, up};
use crate::context::Context;
use crate::paths::{self, Ending, Side};

mod chosen;

use chosen::Chosen;

/// Options of all three.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Compare bytes, not sizes and modification times, to tell what is there already
    #[arg(short, long)]
    checksum: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    server: server::ServerOptions,
}

/// Options of `weft import`.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub struct ImportArgs {
    /// A directory of this machine, or https://host/dir/ of a server
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// What is in it goes into this directory of the tree, which is made if it is not there
    #[arg(value_name = "PATH")]
    to: OsString,
    #[command(flatten)]
    options: Options,
}

/// Options of `weft export`.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub struct ExportArgs {
    /// A directory of the tree
    #[arg(value_name = "PATH")]
    from: OsString,
    /// What is in it goes into this directory of this machine, or https://host/dir/ of a server, which
    /// is made if it is not there
    #[arg(value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// Options of `weft sync`.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub struct SyncArgs {
    /// A directory: weft:/a/b in the tree, a/b on this machine, https://host/a/b/ on a server
    #[arg(value_name = "FROM")]
    from: OsString,
    /// The directory that is made like it, on the other side
    #[arg(value_name = "TO")]
    to: OsString,
    /// Remove what FROM lacks; nothing is removed if not all of FROM could be copied
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    options: Options,
}

const HELP: &str = "\
Repeating the same command goes on where it stopped: what has the same size and modification time on both
sides is not copied again. Modes, times, hard links, holes, symbolic links, named pipes and user attributes come along, owners
do not. What fails is said, the rest is copied, and the exit code is that of the first failure. What is reported is on disk.

Patterns are those of rsync, and the first that matches decides: `*.o` is a name, `/a` begins at the top, `d/` is a directory,
`*` does not match `/` and `**` does, `d/***` is a directory and all that is in it. What is left out is not removed either.";

pub fn import(context: &Context, args: &ImportArgs) -> Result<ExitCode> {
    let (how, wanted) = asked(&args.options, false)?;
    run(context, &wanted, how, async |job| {
        let to = paths::tree_path(&args.to)?;
        if let Side::Server(from, _) = Side::parse(&args.from.clone().into_os_string())? {
            return from_server(job, &from, &Side::Tree(to, Ending::Name), &args.to).await;
        }
        into_tree(job, &args.from, &Side::Tree(to, Ending::Name), &args.to).await
    })
}

pub fn export(context: &Context, args: &ExportArgs) -> Result<ExitCode> {
    let (how, wanted) = asked(&args.options, false)?;
    run(context, &wanted, how, async |job| {
        let from = paths::tree_path(&args.from)?;
        if let Side::Server(to, _) = Side::parse(&args.to.clone().into_os_string())? {
            return to_server(job, from, &to).await;
        }
        let from = Side::Tree(from, Ending::Contents);
        out_of_tree(job, from, &args.to, &args.from).await
    })
}

pub fn sync(context: &Context, args: &SyncArgs) -> Result<ExitCode> {
    let (mut how, wanted) = asked(&args.options, args.delete)?;
    how.attributes = Attributes::Match;
    run(context, &wanted, how, async |job| match (Side::parse(&args.from)?, Side::parse(&args.to)?) {
        (Side::Local(from, _), to @ Side::Tree(..)) => into_tree(job, &from, &to, &args.to).await,
        (from @ Side::Tree(..), Side::Local(to, _)) => out_of_tree(job, from, &to, &args.from).await,
        (Side::Server(from, _), to @ Side::Tree(..)) => from_server(job, &from, &to, &args.to).await,
        (Side::Tree(from, _), Side::Server(to, _)) => to_server(job, from, &to).await,
        (Side::Tree(..), Side::Tree(..)) => {
            Err(Error::unsupported("both are in the tree").hint("weft cp -r copies within the tree"))
        }
        _ => Err(Error::invalid("one side must be in the tree").hint("write paths of the tree as weft:/a/b")),
    })
}

/// Returns what options ask for.
fn asked(options: &Options, delete: bool) -> Result<(How, Wanted)> {
    let how = How {
        checksum: options.checksum,
        attributes: Attributes::Add,
        flushed_later: true,
        ..How::default()
    };
    let (rules, dry_run) = (options.chosen.rules()?, options.dry_run);
    let server = options.server.clone();
    Ok((how, Wanted { recursive: true, dry_run, alike: true, delete, rules, server }))
}

fn run(
    context: &Context,
    wanted: &Wanted,
    how: How,
    work: impl AsyncFnOnce(&Job<'_>) -> Result<()>,
) -> Result<ExitCode> {
    let report = Report::new(context, wanted.dry_run);
    let done = context.wait(async {
        let client = context.client().await?;
        let job = Job::new(context, &client, wanted, &report, how);
        job.until_interrupted(work(&job)).await
    });
    report.end(done)
}

async fn into_tree(job: &Job<'_>, from: &Path, to: &Side, typed: &OsStr) -> Result<()> {
    let there = std::fs::metadata(from).map_err(|e| fault::error(e, "read", from.display()))?;
    if !there.is_dir() {
        return Err(not_a_directory().op("copy").about(from.display()).hint("weft cp copies files"));
    }
    let goal = directory_of_tree(job, to, typed).await?;
    job.report.began_alike();
    up::copy(job, from, Ending::Contents, &goal).await.map_err(|e| e.op("copy").about(from.display()))
}

/// Finds the directory of the tree that is copied into, or the name that one is to have.
async fn directory_of_tree(job: &Job<'_>, to: &Side, typed: &OsStr) -> Result<TreeGoal> {
    let found = match Goal::find(job, to, false).await {
        Ok(Goal::Tree(TreeGoal::Name { is_new: false, .. })) => Err(not_a_directory()),
        Ok(Goal::Tree(goal)) => Ok(goal),
        Ok(_) => Err(Error::internal("a path of the tree leads elsewhere")),
        Err(error) => Err(error),
    };
    found.map_err(|e| e.op("copy to").about(typed.to_string_lossy()))
}

/// Copies what is in a directory of a server.
async fn from_server(job: &Job<'_>, from: &Url, to: &Side, typed: &OsStr) -> Result<()> {
    let goal = directory_of_tree(job, to, typed).await?;
    job.report.began_alike();
    server::take(job, from, Ending::Contents, &goal).await.map_err(|e| e.op("copy").about(from))
}

/// Copies what is in a directory to one of a server.
async fn to_server(job: &Job<'_>, from: RelPath, to: &Url) -> Result<()> {
    let goal = ServerGoal { url: to.directory(), is_directory: true };
    job.report.began_alike();
    let shown = paths::show(&from);
    server::give(job, from, Ending::Contents, &goal).await.map_err(|e| e.op("copy").about(shown))
}

async fn out_of_tree(job: &Job<'_>, from: Side, to: &Path, typed: &OsStr) -> Result<()> {
    let Side::Tree(from, _) = from else { return Err(Error::internal("a path of the tree leads elsewhere")) };
    let side = Side::Local(without_slash(to), Ending::Name);
    let goal = Goal::find(job, &side, false).await.map_err(|e| e.op("copy to").about(to.display()))?;
    let Goal::Local(goal) = goal else {
        return Err(Error::internal("a path of this machine leads elsewhere"));
    };
    if matches!(goal, LocalGoal::Name { is_new: false, .. } | LocalGoal::Stream(_)) {
        return Err(not_a_directory().op("copy to").about(to.display()));
    }
    job.report.began_alike();
    let done = down::copy(job, from, Ending::Contents, &goal).await;
    done.map_err(|e| e.op("copy").about(typed.to_string_lossy()))
}

/// A slash says that a directory is meant, which is all that can be.
fn without_slash(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    match bytes.iter().rposition(|byte| *byte != b'/') {
        Some(last) => PathBuf::from(OsStr::from_bytes(&bytes[..=last])),
        None => path.to_path_buf(),
    }
}
