//! Copies into the tree.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use weft_client::copy::{Progress, upload};
use weft_core::form::New;
use weft_core::{Error, ErrorKind, Name, Result};
use weft_sys::{Folder, Seen, Sort, fault};

use super::goal::{Target, TreeGoal, nameless};
use super::tree::{Dir, Made};
use super::{Job, passed_over, stream};
use crate::paths::Ending;
use crate::progress::{self, Count};

/// Copies a file or directory of this machine.
pub async fn copy(job: &Job<'_>, from: &Path, ending: Ending, to: &TreeGoal) -> Result<()> {
    let unreadable = |e| fault::error(e, "read", from.display());
    let there = std::fs::metadata(from).map_err(unreadable)?;
    if there.is_dir() {
        job.refuse_directory()?;
        return tree(job, from, ending, to).await;
    }
    let ((dir, name), target) = (to.spot(from.file_name())?, to.target(from.file_name()));
    if !there.is_file() {
        return match job.args.recursive {
            true => special(job, from, (Some(dir), &name), target).await,
            false => stream::from_file(job, from, (dir, &name), target).await,
        };
    }
    // A link that was typed is followed.
    let real = from.canonicalize().map_err(unreadable)?;
    let top = Rc::new(Folder::open(real.parent().unwrap_or(Path::new("/")))?);
    let own = real.file_name().ok_or_else(nameless)?;
    let seen = top.look(own)?.ok_or_else(|| Error::not_found("there is no such file"))?;
    let (below, own, shown) = (PathBuf::new(), own.into(), from.into());
    send(job, vec![Up { top, below, own, shown, dir: Some(dir), name, target, seen }]).await
}

/// Copies a pipe as what it is.
async fn special(job: &Job<'_>, from: &Path, to: (Dir, &Name), target: Target) -> Result<()> {
    let folder = Folder::open(from.parent().unwrap_or(Path::new("")))?;
    let seen = folder.look(from.file_name().ok_or_else(nameless)?)?;
    match seen {
        Some(Seen { sort: Sort::Fifo, mode, .. }) => job.make_special(to, New::Fifo, mode, target).await,
        _ => Err(passed_over()),
    }
}

async fn tree(job: &Job<'_>, from: &Path, ending: Ending, to: &TreeGoal) -> Result<()> {
    // `dir/.` is shown as `dir`.
    let from: &Path = &from.components().collect::<PathBuf>();
    let top = Rc::new(Folder::open(from)?);
    let found = progress::counting(job.context, "found", job.args.dry_run);
    job.report.beside(found.room());
    let own = from.file_name().filter(|_| ending != Ending::Contents);
    let (target, waiting, files) = (to.target(own), Vec::new(), Vec::new());
    let mut scan = Scan { job, top, target, found, waiting, files, made: Made::default() };
    match (ending, to) {
        (Ending::Contents, TreeGoal::Into { dir, .. }) => {
            let top = scan.top.clone();
            scan.fill(&top, top.names()?, Path::new(""), Some(*dir)).await?;
        }
        _ => {
            if ending != Ending::Contents {
                job.report.directory();
            }
            let (dir, name) = to.spot(from.file_name())?;
            scan.waiting.push((PathBuf::new(), Some(dir), name));
        }
    }
    while let Some((below, dir, name)) = scan.waiting.pop() {
        if let Err(e) = scan.directory(&below, dir, &name).await {
            job.failed(e.op("copy").said_of(from.join(below).display())).await?;
        }
    }
    let Scan { found, files, made, .. } = scan;
    drop(found);
    send(job, files).await?;
    job.finish(made).await
}

/// One file to copy.
struct Up {
    top: Rc<Folder>,
    below: PathBuf,
    own: OsString,
    shown: PathBuf,
    dir: Dir,
    name: Name,
    target: Target,
    seen: Seen,
}

/// A look through a directory: what is no file is made at once, files are kept for later.
struct Scan<'a> {
    job: &'a Job<'a>,
    top: Rc<Folder>,
    /// Where the start goes.
    target: Target,
    found: Count,
    waiting: Vec<(PathBuf, Dir, Name)>,
    files: Vec<Up>,
    made: Made,
}

impl Scan<'_> {
    /// Makes a directory, once it is known that it can be read, and what is in it.
    async fn directory(&mut self, below: &Path, dir: Dir, name: &Name) -> Result<()> {
        let folder = self.top.below(below)?;
        let (seen, names) = (folder.itself()?, folder.names()?);
        let target = self.target.below(below.as_os_str().as_bytes());
        let like = (seen.mode, seen.mtime);
        let dir = self.job.make_directory((dir, name), like, target, &mut self.made).await?;
        self.fill(&folder, names, below, dir).await
    }

    async fn fill(&mut self, folder: &Folder, names: Vec<OsString>, below: &Path, dir: Dir) -> Result<()> {
        for own in names {
            self.found.add(1);
            // Whoever waits for Ctrl-C has a turn, also where nothing is asked of the node.
            tokio::task::yield_now().await;
            if let Err(e) = self.entry(folder, below, &own, dir).await {
                self.job.failed(e.op("copy").said_of(folder.shown(&own).display())).await?;
            }
        }
        Ok(())
    }

    async fn entry(&mut self, folder: &Folder, below: &Path, own: &OsStr, dir: Dir) -> Result<()> {
        // What has gone since it was listed is not there.
        let Some(seen) = folder.look(own)? else { return Ok(()) };
        let name = Name::new(Bytes::copy_from_slice(own.as_bytes()))?;
        let target = self.target.below(below.join(own).as_os_str().as_bytes());
        match seen.sort {
            Sort::Directory => self.waiting.push((below.join(own), dir, name)),
            Sort::File => {
                let (top, below, shown) = (self.top.clone(), below.to_path_buf(), folder.shown(own));
                self.files.push(Up { top, below, own: own.into(), shown, dir, name, target, seen });
            }
            Sort::Symlink => {
                let new = New::Symlink(folder.target(own)?.into());
                self.job.make_special((dir, &name), new, seen.mode, target).await?;
            }
            Sort::Fifo => {
                self.job.make_special((dir, &name), New::Fifo, seen.mode, target).await?;
            }
            Sort::Other => return Err(passed_over()),
        }
        Ok(())
    }
}

async fn send(job: &Job<'_>, files: Vec<Up>) -> Result<()> {
    if job.args.dry_run {
        for file in files {
            let (to, seen) = ((file.dir, &file.name), &file.seen);
            job.would_copy(to, (seen.size, seen.mtime), file.target).await?;
        }
        return Ok(());
    }
    let total = files.iter().map(|file| file.seen.size).sum();
    let copy = async |file: Up, shared: &Progress| {
        let dir = file.dir.ok_or_else(|| Error::new(ErrorKind::Internal, "its directory was not made"))?;
        let open = file.top.below(&file.below)?.read(&file.own)?;
        let done = upload(job.client, open, dir, &file.name, job.how, shared).await;
        done.map_err(|e| e.op("copy").said_of(file.shown.display()))
    };
    job.transfer(total, files, copy).await
}
