//! `weft mv`

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use weft_client::Client;
use weft_core::attr::Kind;
use weft_core::form::{At, Guard, Replace, Want};
use weft_core::{Error, ErrorKind, FileId, Result};

use crate::context::Context;
use crate::failure::Failures;
use crate::paths::TreePath;
use crate::progress;
use crate::show;

/// Options of `weft mv`.
#[derive(Args)]
pub struct MvArgs {
    /// What to rename, then the new name or the directory to move it to
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Fail if the new name is taken
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap the two
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

pub fn run(context: &Context, args: &MvArgs) -> Result<ExitCode> {
    let (sources, target) = super::sources_and_target(context, "mv", &args.paths);
    context.wait(async {
        let renames = progress::counting(context, "renamed", false);
        let client = context.client().await?;
        let target = TreePath::read(target)?;
        let into = directory(&client, &target).await.map_err(|e| e.op("rename to"))?;
        if sources.len() > 1 && into.is_none() {
            let detail = "several things can only be moved into a directory";
            return Err(Error::new(ErrorKind::NotDirectory, detail).op("rename to").about(target));
        }
        let how = match (args.no_clobber, args.exchange) {
            (true, _) => Replace::Never,
            (_, true) => Replace::Exchange,
            _ => Replace::Any,
        };
        let work = Renaming { client: &client, target, into, how, several: sources.len() > 1 };
        let mut failures = Failures::none(context, &client).beside(&renames);
        for source in sources {
            failures.take(work.one(source).await)?;
            renames.add(1);
        }
        Ok(failures.exit())
    })
}

struct Renaming<'a> {
    client: &'a Client,
    target: TreePath,
    /// The directory that is at the target.
    into: Option<FileId>,
    how: Replace,
    several: bool,
}

impl Renaming<'_> {
    async fn one(&self, source: &OsStr) -> Result<()> {
        let from = TreePath::read(source)?;
        let name = from.name().map_err(|e| e.op("rename"))?;
        from.check_name(self.client).await.map_err(|e| e.op("rename"))?;
        // What is renamed to itself does not go into itself, and stays as it is.
        let itself = from.path == self.target.path && !self.several;
        let (to, shown) = match self.into {
            Some(dir) if self.how != Replace::Exchange && !itself => {
                let shown = format!("{}/{name}", self.target.to_string().trim_end_matches('/'));
                (At::name(dir, name), shown)
            }
            _ => (self.target.at_itself(), self.target.to_string()),
        };
        if self.target.is_directory && self.into.is_none() {
            self.must_be_directory(&from).await?;
        }
        let (fs, call) = (self.client.fs(), self.client.call());
        let Err(error) = fs.rename(&call, &from.at_itself(), &to, self.how, &Guard::NONE).await else {
            return Ok(());
        };
        let old = match error.kind() {
            // What is there under the new name is in the way.
            ErrorKind::Exists | ErrorKind::NotEmpty | ErrorKind::IsDirectory => false,
            ErrorKind::NotFound | ErrorKind::NotDirectory => is_missing(self.client, &from).await,
            _ => true,
        };
        if error.kind() == ErrorKind::CrossVolume {
            return Err(error.op("rename").about(&from).hint(instead(&from, &shown)));
        }
        Err(if old { error.op("rename").about(&from) } else { error.op("rename to").said_of(shown) })
    }

    /// Only a directory can be given a name that ends in `/` and is not there yet.
    async fn must_be_directory(&self, from: &TreePath) -> Result<()> {
        let walked = self.client.fs().walk(&self.client.call(), &from.at_itself(), Want::default()).await;
        let kind = walked.map_err(|e| e.op("rename").said_of(from))?.attr.kind;
        self.target.check(kind).map_err(|e| e.op("rename to").about(&self.target))
    }
}

/// Returns what does the same where a rename cannot: in another place it would be another file.
/// Not done here: who renames expects all of it or nothing, at once.
fn instead(from: &TreePath, to: &str) -> String {
    let argument = |path: String| show::argument(path.as_ref());
    let (copied, copy) = (argument(format!("weft:{from}")), argument(format!("weft:{to}")));
    format!(
        "copy it, then remove it: weft cp -r {copied} {copy} && weft rm -r {}",
        argument(from.to_string())
    )
}

/// Returns whether nothing can be found under a name: of two names, it is the one that an error
/// speaks of. For words only: by now something else may be there.
pub async fn is_missing(client: &Client, path: &TreePath) -> bool {
    client.fs().walk(&client.call(), &path.at_itself(), Want::default()).await.is_err()
}

/// Returns the directory that is at a path, if one is. Fails if there is something else where the
/// path says that one is meant.
pub async fn directory(client: &Client, path: &TreePath) -> Result<Option<FileId>> {
    match client.fs().walk(&client.call(), &path.at(), Want::default()).await {
        Ok(walked) => {
            path.check(walked.attr.kind).map_err(|e| e.about(path))?;
            Ok((walked.attr.kind == Kind::Directory).then_some(walked.attr.id))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.about(path)),
    }
}
