//! Copies within the tree: each file is replaced whole or not at all, so its bytes pass through here.

use std::collections::HashMap;
use std::ffi::OsStr;

use weft_client::copy::{From, Progress, There, copy_within};
use weft_client::tree::{Found, Walk};
use weft_core::ErrorKind::{Denied, NotFound, NotPermitted};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, LinkTarget, New, PageMax, Want};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result, limits};

use super::Job;
use super::goal::{Target, TreeGoal, not_a_directory};
use super::tree::{Dir, Made};
use crate::paths::{self, Ending};
use crate::progress;

/// Copies a file or tree to another place of the tree.
pub async fn copy(job: &Job<'_>, from: RelPath, ending: Ending, to: &TreeGoal) -> Result<()> {
    let (at, shown) = (At::root(from.clone()).following(), paths::show(&from));
    let attr = job.client.fs().walk(&job.client.call(), &at, Want::default()).await?.attr;
    let own = from.split_last().map(|(_, name)| name);
    let own = own.as_ref().map(|name| std::os::unix::ffi::OsStrExt::from_bytes(name.as_bytes()));
    if attr.kind != Kind::Directory {
        if ending != Ending::Name {
            return Err(not_a_directory());
        }
        let ((dir, name), target, mut files) = (to.spot(own)?, to.target(own), Vec::new());
        let done = one(job, &attr, &shown, (Some(dir), &name), &target, &mut files).await;
        done.map_err(|e| e.said_of(&shown))?;
        return send(job, files).await;
    }
    job.refuse_directory()?;
    tree(job, &attr, &shown, (ending, own), to).await
}

async fn tree(
    job: &Job<'_>,
    from: &Attr,
    shown: &str,
    (ending, own): (Ending, Option<&OsStr>),
    to: &TreeGoal,
) -> Result<()> {
    let (mut top, mut dirs) = (None, HashMap::new());
    let into = match (ending, to) {
        (Ending::Contents, TreeGoal::Into { dir, .. }) => {
            dirs.insert(RelPath::EMPTY, Some(*dir));
            *dir
        }
        _ => top.insert(to.spot(own)?).0,
    };
    if is_within(job, into, from.id).await? || is_at(job, top.as_ref(), from.id).await? {
        return Err(into_itself());
    }
    if ending != Ending::Contents {
        job.report.directory();
    }
    let found = progress::counting(job.context, "found", job.wanted.dry_run);
    job.report.beside(found.room());
    let target = to.target(own.filter(|_| ending != Ending::Contents));
    let mut copied = Copied { job, top, target, dirs, files: Vec::new(), made: Made::default() };
    let mut walk = Walk::start(job.client, &At::id(from.id), shown).await?;
    while let Some(next) = job.next(&mut walk).await? {
        copied.found(&next, walk.show(&next.path)).await?;
        found.add(1);
    }
    drop(found);
    send(job, copied.files).await?;
    job.finish(copied.made).await?;
    job.settle(into).await?;
    walk.whole()
}

/// Returns whether a directory is another or below it. One that may not be listed ends the search:
/// what is above it is not copied into it either.
async fn is_within(job: &Job<'_>, mut dir: FileId, top: FileId) -> Result<bool> {
    let (client, page) = (job.client, PageMax::new(1));
    for _ in 0..limits::TREE_DEPTH_MAX {
        if dir == top {
            return Ok(true);
        }
        let at = At::id(dir);
        match client.fs().list(&client.call(), &at, Cursor::ByName, page, Want::default()).await {
            Ok(page) if page.parent == dir => return Ok(false),
            Ok(page) => dir = page.parent,
            Err(e) if matches!(e.kind(), Denied | NotPermitted | NotFound) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// Returns whether a name is that of a directory, or of a link to it.
async fn is_at(job: &Job<'_>, spot: Option<&(FileId, Name)>, dir: FileId) -> Result<bool> {
    let Some((above, name)) = spot else { return Ok(false) };
    let (client, at) = (job.client, At::name(*above, name.clone()).following());
    match client.fs().walk(&client.call(), &at, Want::default()).await {
        Ok(walked) => Ok(walked.attr.id == dir),
        Err(e) if matches!(e.kind(), Denied | NotPermitted | NotFound | ErrorKind::Loop) => Ok(false),
        Err(e) => Err(e),
    }
}

fn into_itself() -> Error {
    Error::new(ErrorKind::Loop, "a directory cannot be copied into itself")
}

/// A tree that is copied within the tree.
struct Copied<'a> {
    job: &'a Job<'a>,
    /// Where the start goes, if not only what is in it is meant.
    top: Option<(FileId, Name)>,
    /// Where that is.
    target: Target,
    /// Each directory's copy. What is in one that has none is not copied.
    dirs: HashMap<RelPath, Dir>,
    files: Vec<Within>,
    made: Made,
}

/// One file to copy.
struct Within {
    from: FileId,
    shown: String,
    dir: FileId,
    name: Name,
    bytes: u64,
}

impl Copied<'_> {
    async fn found(&mut self, found: &Found, shown: String) -> Result<()> {
        if self.made.holds(found.attr.id) {
            return Err(into_itself());
        }
        if let Err(e) = self.copy(found, &shown).await {
            self.job.failed(e.op("copy").said_of(shown)).await?;
        }
        Ok(())
    }

    async fn copy(&mut self, found: &Found, shown: &str) -> Result<()> {
        let to = match (found.path.split_last(), &self.top) {
            (None, None) => return Ok(()),
            (None, Some((dir, name))) => (Some(*dir), name.clone()),
            (Some((above, name)), _) => match self.dirs.get(&above) {
                Some(dir) => (*dir, name),
                None => return Ok(()),
            },
        };
        let (to, target) = ((to.0, &to.1), self.target.below(found.path.as_bytes()));
        if found.attr.kind != Kind::Directory {
            return one(self.job, &found.attr, shown, to, &target, &mut self.files).await;
        }
        let like = (found.attr.mode, found.attr.mtime);
        let dir = self.job.make_directory(to, like, target, &mut self.made).await?;
        self.dirs.insert(found.path.clone(), dir.id());
        Ok(())
    }
}

/// Makes what is no file, and keeps a file for later.
async fn one(
    job: &Job<'_>,
    from: &Attr,
    shown: &str,
    to: (Dir, &Name),
    target: &Target,
    files: &mut Vec<Within>,
) -> Result<()> {
    let (client, fs) = (job.client, job.client.fs());
    match from.kind {
        Kind::File => {}
        Kind::Symlink => {
            return match fs.target(&client.call(), &At::id(from.id)).await? {
                LinkTarget::Symlink(link) => {
                    job.make_special(to, New::Symlink(link), (from.mode, from.mtime), target).await
                }
                LinkTarget::Reference(_) => Err(passed_over()),
            };
        }
        Kind::Fifo => return job.make_special(to, New::Fifo, (from.mode, from.mtime), target).await,
        Kind::Directory | Kind::Reference => return Err(passed_over()),
    }
    if job.wanted.dry_run {
        return job.would_copy(to, (from.size, from.mtime), There::Unknown, target).await;
    }
    let dir = to.0.ok_or_else(|| Error::internal("only a dry run makes no directory"))?;
    let (name, bytes) = (to.1.clone(), from.size);
    files.push(Within { from: from.id, shown: shown.to_owned(), dir, name, bytes });
    Ok(())
}

fn passed_over() -> Error {
    Error::unsupported("passed over: it refers to no file")
}

async fn send(job: &Job<'_>, files: Vec<Within>) -> Result<()> {
    if job.wanted.dry_run {
        return Ok(());
    }
    let copy = async |file: Within, shared: &Progress| {
        let from = From { at: &At::id(file.from), shown: &file.shown };
        let done = copy_within(job.client, from, file.dir, &file.name, job.how, shared).await;
        done.map_err(|e| e.op("copy").said_of(&file.shown))
    };
    job.transfer_all(files.into_iter().map(|file| (file.bytes, file)).collect(), copy).await
}
