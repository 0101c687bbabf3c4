//! Copies out of the tree.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use weft_client::copy::{From, Progress, Spot, download, is_there};
use weft_client::tree::{Found, Walk};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, LinkTarget, Want};
use weft_core::{Error, ErrorKind, FileId, RelPath, Result, Time};
use weft_sys::{Folder, Sort};

use super::goal::{LocalGoal, Target, nameless, not_a_directory};
use super::{FILLED_WITH, Job, passed_over, stream};
use crate::paths::{self, Ending};
use crate::progress::{self, Count};

/// Copies a file or directory of the tree.
pub async fn copy(job: &Job<'_>, from: RelPath, ending: Ending, to: &LocalGoal) -> Result<()> {
    let at = At::root(from.clone()).following();
    let attr = job.client.fs().walk(&job.client.call(), &at, Want::default()).await?.attr;
    let own = from.split_last().map(|(_, name)| OsStr::from_bytes(name.as_bytes()).to_os_string());
    if attr.kind == Kind::Directory {
        job.refuse_directory()?;
        return tree(job, &from, &attr, (ending, own), to).await;
    }
    if ending != Ending::Name {
        return Err(not_a_directory());
    }
    let (folder, name) = match to {
        LocalGoal::Stream(path) if attr.kind == Kind::File => {
            return stream::into_file(job, &attr, &paths::show(&from), path).await;
        }
        LocalGoal::Stream(_) => return Err(passed_over()),
        LocalGoal::Into(folder) => (folder, own.ok_or_else(nameless)?),
        LocalGoal::Name { folder, name, .. } => (folder, name.clone()),
    };
    let mut take = Take::below(job, folder)?;
    take.entry(&attr, paths::show(&from), Path::new(""), &name).await?;
    take.end().await
}

async fn tree(
    job: &Job<'_>,
    from: &RelPath,
    attr: &Attr,
    (ending, own): (Ending, Option<OsString>),
    to: &LocalGoal,
) -> Result<()> {
    let mut take = match (to, ending) {
        (LocalGoal::Into(folder), Ending::Contents) => Take::below(job, folder)?,
        (LocalGoal::Into(folder), _) => Take::into(job, folder, &own.ok_or_else(nameless)?, attr)?,
        (LocalGoal::Name { folder, name, .. }, _) => Take::into(job, folder, name, attr)?,
        (LocalGoal::Stream(_), _) => return Err(not_a_directory()),
    };
    if ending != Ending::Contents {
        job.report.directory();
    }
    let mut walk = Walk::start(job.client, &At::id(attr.id), &paths::show(from)).await?;
    while let Some(found) = job.next(&mut walk).await? {
        take.found(&found, walk.show(&found.path)).await?;
    }
    take.end().await?;
    walk.whole()
}

/// One file to copy.
struct Down {
    from: FileId,
    shown: String,
    top: Rc<Folder>,
    below: PathBuf,
    name: OsString,
    bytes: u64,
}

/// What is taken out of the tree: what is no file is made at once, files are kept for later.
struct Take<'a> {
    job: &'a Job<'a>,
    found: Count,
    /// What goes somewhere goes below this; `None` where a dry run would make it.
    top: Option<Rc<Folder>>,
    /// The path of that.
    target: Target,
    /// The directory that was made or filled last, by its path below the top.
    last: Option<(PathBuf, Rc<Folder>)>,
    files: Vec<Down>,
    /// Directories that were made: each has its source's mode and time when all is in it.
    made: Vec<(PathBuf, u16, Time)>,
    /// Directories that could not be made: what is in them is not copied.
    barred: Vec<RelPath>,
}

impl<'a> Take<'a> {
    fn new(job: &'a Job<'a>, top: Option<Rc<Folder>>, target: Target) -> Self {
        let found = progress::counting(job.context, "found", job.args.dry_run);
        job.report.beside(found.room());
        Self { job, found, top, target, last: None, files: Vec::new(), made: Vec::new(), barred: Vec::new() }
    }

    /// Takes a directory as the top.
    fn below(job: &'a Job<'a>, folder: &Folder) -> Result<Self> {
        let target = Target::local(&folder.shown(OsStr::new("")));
        Ok(Self::new(job, Some(Rc::new(folder.below(Path::new(""))?)), target))
    }

    /// Makes the top as a directory like another, or takes the one that is there.
    fn into(job: &'a Job<'a>, folder: &Folder, name: &OsStr, like: &Attr) -> Result<Self> {
        let mut take = Self::new(job, None, Target::local(&folder.shown(name)));
        if take.make_directory(Some(folder), name, like, PathBuf::new())? {
            take.top = Some(Rc::new(folder.inside(name)?));
        }
        Ok(take)
    }

    async fn found(&mut self, found: &Found, shown: String) -> Result<()> {
        let Some((above, name)) = found.path.split_last() else { return Ok(()) };
        if self.barred.iter().any(|barred| found.path.is_within(barred)) {
            return Ok(());
        }
        self.found.add(1);
        let (below, name) = (OsStr::from_bytes(above.as_bytes()), OsStr::from_bytes(name.as_bytes()));
        if let Err(e) = self.entry(&found.attr, shown.clone(), Path::new(below), name).await {
            if found.attr.kind == Kind::Directory {
                self.barred.push(found.path.clone());
            }
            self.job.failed(e.op("copy").about(shown)).await?;
        }
        Ok(())
    }

    async fn entry(&mut self, attr: &Attr, shown: String, below: &Path, name: &OsStr) -> Result<()> {
        let folder = self.folder(below)?;
        let seen = match &folder {
            Some(folder) => folder.look(name)?.map(|seen| seen.sort),
            None => None,
        };
        match attr.kind {
            Kind::Directory => self.make_directory(folder.as_deref(), name, attr, below.join(name)).map(drop),
            Kind::File => self.file(attr, shown, folder, below, name),
            Kind::Symlink => self.link(attr, shown, folder, below, (name, seen)).await,
            Kind::Fifo if seen == Some(Sort::Fifo) => Ok(()),
            Kind::Fifo => match folder {
                Some(folder) if !self.job.args.dry_run => folder.make_fifo(name, attr.mode & 0o777),
                _ => self.would(&below.join(name)),
            },
            Kind::Reference => Err(passed_over()),
        }
    }

    fn file(
        &mut self,
        attr: &Attr,
        shown: String,
        folder: Option<Rc<Folder>>,
        below: &Path,
        name: &OsStr,
    ) -> Result<()> {
        if self.job.args.dry_run {
            let is_there = match &folder {
                Some(folder) if !self.job.how.force => is_there(Spot { folder, name }, attr)?,
                _ => false,
            };
            return if is_there { Ok(()) } else { self.would(&below.join(name)) };
        }
        let top = self.top.clone().ok_or_else(|| Error::internal("only a dry run makes no directory"))?;
        let (from, below, name, bytes) = (attr.id, below.to_path_buf(), name.to_os_string(), attr.size);
        self.files.push(Down { from, shown, top, below, name, bytes });
        Ok(())
    }

    /// Makes a symbolic link. One that is the same is left, another link replaced.
    async fn link(
        &self,
        attr: &Attr,
        shown: String,
        folder: Option<Rc<Folder>>,
        below: &Path,
        (name, seen): (&OsStr, Option<Sort>),
    ) -> Result<()> {
        let client = self.job.client;
        let target = client.fs().target(&client.call(), &At::id(attr.id)).await;
        let LinkTarget::Symlink(target) = target.map_err(|e| e.said_of(&shown))? else {
            return Err(passed_over());
        };
        let is_link = seen == Some(Sort::Symlink);
        match folder {
            Some(folder) if is_link && folder.target(name)? == target => Ok(()),
            Some(folder) if !self.job.args.dry_run => {
                if is_link {
                    folder.replace_symlink(name, &target)
                } else {
                    folder.make_symlink(name, &target)
                }
            }
            _ => self.would(&below.join(name)),
        }
    }

    fn would(&self, below: &Path) -> Result<()> {
        self.job.report.would(self.target.below(below.as_os_str().as_bytes()))
    }

    /// Makes a directory, unless it is there. Returns whether it is there now.
    fn make_directory(
        &mut self,
        folder: Option<&Folder>,
        name: &OsStr,
        like: &Attr,
        below: PathBuf,
    ) -> Result<bool> {
        let seen = folder.map(|folder| folder.look(name)).transpose()?.flatten();
        match (folder, seen) {
            (Some(folder), Some(_)) => folder.inside(name).map(|_| true),
            (Some(folder), None) if !self.job.args.dry_run => {
                if folder.make(name, like.mode & 0o777 | FILLED_WITH)? {
                    self.made.push((below, like.mode & 0o777 & !self.job.how.umask, like.mtime));
                }
                Ok(true)
            }
            _ => {
                let target = self.target.below(below.as_os_str().as_bytes());
                self.job.report.would(format_args!("{target}/")).map(|()| false)
            }
        }
    }

    /// Returns a directory below the top; `None` where a dry run would make it.
    fn folder(&mut self, below: &Path) -> Result<Option<Rc<Folder>>> {
        match (&self.last, &self.top) {
            (Some((path, folder)), _) if path == below => Ok(Some(folder.clone())),
            (_, None) => Ok(None),
            (_, Some(top)) => match top.below(below) {
                Ok(folder) => {
                    let folder = Rc::new(folder);
                    self.last = Some((below.to_path_buf(), folder.clone()));
                    Ok(Some(folder))
                }
                Err(e) if self.job.args.dry_run && e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            },
        }
    }

    /// Copies the files, and gives the directories their modes and times: the deepest first.
    async fn end(self) -> Result<()> {
        let Self { job, found, top, files, made, .. } = self;
        drop(found);
        if job.args.dry_run {
            return Ok(());
        }
        receive(job, files).await?;
        for (below, mode, mtime) in made.into_iter().rev() {
            let folder = top.as_ref().map(|top| top.below(&below)).transpose();
            if let Err(e) = folder.and_then(|folder| folder.map_or(Ok(()), |folder| folder.set(mode, mtime)))
            {
                job.failed(e).await?;
            }
        }
        Ok(())
    }
}

async fn receive(job: &Job<'_>, files: Vec<Down>) -> Result<()> {
    let total = files.iter().map(|file| file.bytes).sum();
    let copy = async |file: Down, shared: &Progress| {
        let folder = file.top.below(&file.below)?;
        let from = From { at: &At::id(file.from), shown: &file.shown };
        let to = Spot { folder: &folder, name: &file.name };
        let done = download(job.client, from, to, job.how, shared).await;
        done.map_err(|e| e.op("copy").about(folder.shown(&file.name).display()))
    };
    job.transfer(total, files, copy).await
}
