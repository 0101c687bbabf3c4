//! `weft cp`: what goes where, and how much at a time. The copying is the client's.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_client::copy::How;
use weft_client::rules::Rules;
use weft_client::tree::{Found, Walk};
use weft_core::form::{Ack, Call};
use weft_core::{Error, ErrorKind, FileId, Result};

use crate::context::Context;
use crate::failure;
use crate::paths::Side;

mod clearing;
mod down;
mod goal;
mod links;
pub mod moving;
mod report;
mod server;
mod stream;
mod transfer;
mod tree;
mod up;
mod within;

use goal::Goal;
use report::Report;

/// Bits without which whoever copies could not fill a directory.
const FILLED_WITH: u16 = 0o700;

/// Options of `weft cp`.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub struct CpArgs {
    /// What to copy, then where to: weft:/a/b in the tree, a/b on this machine, https://host/a/b on a
    /// server, - standard input
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Copy directories and what is in them
    #[arg(short, long)]
    recursive: bool,
    /// Copy even what has the same size and modification time on both sides
    #[arg(long)]
    force: bool,
    /// Only say what would be copied
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: server::ServerOptions,
}

const HELP: &str = "\
A directory is copied into a target that is one, and else under the target's name. `dir/.` is what is in a
directory, `dir/` says that it is one. Names that begin with a dash go behind `--`.

A file appears whole: out of the tree it is written beside the target as .NAME.VERSION.weft-part, which the next
copy goes on with, and then takes its name. So a name that had other hard links gets a file of its own, and a
symbolic link given as target is followed to what it names. A pipe or device given as target is written to as it
is. Below a directory that is copied into, no symbolic link of this machine is followed.

Modes (of new local files and directories without the bits of the umask) and modification times come along. What
fails is said, the rest is copied, and the exit code is that of the first failure.";

pub fn run(context: &Context, args: &CpArgs) -> Result<ExitCode> {
    let (sources, target) = super::sources_and_target(context, "cp", &args.paths);
    let report = Report::new(context, args.dry_run);
    let how = How { force: args.force, umask: weft_sys::process::umask(), ..How::default() };
    let server = args.server.clone();
    let wanted = Wanted { recursive: args.recursive, dry_run: args.dry_run, server, ..Wanted::default() };
    let done = context.wait(async {
        let client = context.client().await?;
        let job = Job::new(context, &client, &wanted, &report, how);
        job.until_interrupted(job.all(sources, target)).await
    });
    report.end(done)
}

/// What a copy is to be like, whichever command makes it.
#[derive(Default)]
pub struct Wanted {
    /// Directories are copied.
    recursive: bool,
    /// It is only said what would be done.
    dry_run: bool,
    /// The target becomes like the source in all that both can carry: hard links, user attributes, and
    /// modes and times also of what was there.
    alike: bool,
    /// What the source lacks goes from the target.
    delete: bool,
    /// What is left out.
    rules: Rules,
    /// How servers are spoken to.
    server: server::ServerOptions,
}

/// What one side has no kind for.
fn passed_over() -> Error {
    Error::unsupported("passed over: neither file, directory, link nor pipe")
}

/// What was asked for.
struct Job<'a> {
    context: &'a Context,
    client: &'a Client,
    wanted: &'a Wanted,
    report: &'a Report<'a>,
    how: How,
    /// Whether something failed after which all else would.
    ended: Cell<bool>,
    /// Whether what is under way heeds Ctrl-C itself: it has something to keep, or to give up.
    heeds: Cell<bool>,
    /// Directories of the tree in which something changed.
    touched: RefCell<HashSet<FileId>>,
    /// Files of the tree with several names that were written, each for one file of this machine.
    linked: RefCell<HashMap<FileId, (u64, u64)>>,
}

/// Whoever started it has stopped it.
fn interrupted() -> Error {
    Error::new(ErrorKind::Unavailable, "interrupted")
}

impl<'a> Job<'a> {
    fn new(
        context: &'a Context,
        client: &'a Client,
        wanted: &'a Wanted,
        report: &'a Report<'a>,
        how: How,
    ) -> Self {
        let (ended, heeds) = (Cell::new(false), Cell::new(false));
        let (touched, linked) = (RefCell::default(), RefCell::default());
        Self { context, client, wanted, report, how, ended, heeds, touched, linked }
    }

    /// Returns a call whose change is durable only with what is synced after it: of many small ones,
    /// each would wait for a flush of its own.
    fn applied(&self) -> Call {
        Call { ack: Ack::Applied, ..self.client.call() }
    }

    /// Says that the names in a directory of the tree changed.
    fn touch(&self, dir: FileId) {
        self.touched.borrow_mut().insert(dir);
    }

    /// Does all of it, or what comes before Ctrl-C: from the first transfer on the process does
    /// not end by that alone any more.
    async fn until_interrupted(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Ok(()) = tokio::signal::ctrl_c() => if !self.heeds.get() { return Err(interrupted().op("copy")) },
            }
        }
    }

    /// Does what heeds Ctrl-C itself.
    async fn heeding<T>(&self, work: impl Future<Output = T>) -> T {
        self.heeds.set(true);
        let done = work.await;
        self.heeds.set(false);
        done
    }

    async fn all(&self, sources: &[OsString], target: &OsStr) -> Result<()> {
        let side = Side::parse(&target.to_os_string()).map_err(|e| e.op("copy"))?;
        let goal = Goal::find(self, &side, sources.len() > 1).await;
        let goal = goal.map_err(|e| e.op("copy").about(target.to_string_lossy()))?;
        for source in sources {
            self.report.began(source, target, goal.is_new());
            if let Err(e) = self.one(source, &goal).await {
                self.failed(e.op("copy").about(source.to_string_lossy())).await?;
            }
        }
        Ok(())
    }

    async fn one(&self, source: &OsString, goal: &Goal) -> Result<()> {
        match (Side::parse(source)?, goal) {
            (Side::Local(from, ending), Goal::Tree(to)) => up::copy(self, &from, ending, to).await,
            (Side::Tree(from, ending), Goal::Local(to)) => down::copy(self, from, ending, to).await,
            (Side::Server(from, ending), Goal::Tree(to)) => server::take(self, &from, ending, to).await,
            (Side::Tree(from, ending), Goal::Server(to)) => server::give(self, from, ending, to).await,
            (Side::Standard, Goal::Tree(to)) => stream::from_input(self, to).await,
            (Side::Tree(from, ending), Goal::Tree(to)) => within::copy(self, from, ending, to).await,
            (Side::Local(..) | Side::Standard | Side::Server(..), Goal::Local(_) | Goal::Server(_)) => {
                Err(Error::invalid("one side must be in the tree")
                    .hint("write paths of the tree as weft:/a/b"))
            }
        }
    }

    fn refuse_directory(&self) -> Result<()> {
        if self.wanted.recursive {
            return Ok(());
        }
        Err(Error::new(ErrorKind::IsDirectory, "it is a directory").hint("weft cp -r copies directories"))
    }

    /// Returns what a walk finds next. A listing that fails is said, and ends it.
    async fn next(&self, walk: &mut Walk<'_>) -> Result<Option<Found>> {
        match walk.next().await {
            Err(e) => self.failed(e.op("copy")).await.map(|()| None),
            found => found,
        }
    }

    /// Says that something was not copied. Fails where all else would fail as well.
    async fn failed(&self, error: Error) -> Result<()> {
        let ends_all = self.ended.get()
            || failure::ends_all(&error, self.client)
            || match error.kind() {
                ErrorKind::Unauthenticated | ErrorKind::Revoked | ErrorKind::Expired => true,
                // A container's limit, or the node's disk, may have room for what comes; this machine's
                // disk, which alone has a cause, has none.
                ErrorKind::NoSpace => std::error::Error::source(&error).is_some(),
                _ => false,
            };
        if ends_all {
            self.ended.set(true);
            return Err(error);
        }
        self.report.fail(&error);
        Ok(())
    }
}
