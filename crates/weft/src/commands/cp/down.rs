//! Copies out of the tree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use weft_client::copy::{From, Outcome, Progress, Spot, download, is_there, match_local_tags};
use weft_client::tree::{Found, Walk};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, LinkTarget, Want};
use weft_core::{Error, ErrorKind, FileId, RelPath, Result, Time, limits};
use weft_sys::{Folder, Seen, Sort};

use super::clearing::{LocalExtra, stands_there};
use super::goal::{LocalGoal, Target, nameless, not_a_directory};
use super::links::{Linked, LocalLink};
use super::transfer::Files;
use super::{FILLED_WITH, Job, interrupted, passed_over, stream};
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
    let shown = paths::show(&from);
    with_files(job, &mut take, async |take| take.entry(&attr, shown, Path::new(""), &name).await).await?;
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
    } else if job.wanted.alike {
        take.make_top_alike(attr).await?;
    }
    let mut walk = Walk::start(job.client, &At::id(attr.id), &paths::show(from)).await?;
    let look = async |take: &mut Take<'_>| {
        while let Some(found) = job.next(&mut walk).await? {
            take.shared.must_go_on().map_err(|_| interrupted())?;
            take.found(&found, walk.show(&found.path)).await?;
        }
        Ok(())
    };
    with_files(job, &mut take, look).await?;
    // What could not be seen is not known to be lacking.
    let whole = walk.whole();
    if !job.wanted.delete {
        take.end().await?;
        return whole;
    }
    if let Err(e) = whole {
        job.failed(e.op("copy")).await?;
    }
    take.end().await
}

/// Returns the mode that a pipe made like another has: the machine takes the bits of the umask away.
fn made_as(attr: &Attr) -> u16 {
    attr.mode & 0o777 & !weft_sys::process::umask()
}

/// Copies files while `look` finds them.
async fn with_files<'a>(
    job: &Job<'_>,
    take: &mut Take<'a>,
    look: impl AsyncFnOnce(&mut Take<'a>) -> Result<()>,
) -> Result<()> {
    let shared = take.shared.clone();
    let look = async |files| {
        take.files = Some(files);
        let looked = look(take).await;
        // No more come.
        take.files = None;
        looked
    };
    let copy = async |file: Down, shared: &Progress| file.receive(job, shared).await;
    job.transfer_found(&shared, limits::COPIES_AT_ONCE_MAX, look, copy).await
}

/// One file to copy.
struct Down {
    from: FileId,
    shown: String,
    folder: Rc<Folder>,
    name: OsString,
}

impl Down {
    async fn receive(self, job: &Job<'_>, shared: &Progress) -> Result<Outcome> {
        let from = From { at: &At::id(self.from), shown: &self.shown };
        let to = Spot { folder: &self.folder, name: &self.name };
        let done = download(job.client, from, to, job.how, shared).await;
        done.map_err(|e| e.op("copy").about(self.folder.shown(&self.name).display()))
    }
}

/// What is taken out of the tree: what is no file is made at once, files are handed on.
struct Take<'a> {
    job: &'a Job<'a>,
    /// Counts what is found, where nothing else is shown.
    found: Option<Count>,
    shared: Arc<Progress>,
    /// Where files go, while it lasts.
    files: Option<Files<Down>>,
    /// What goes somewhere goes below this; `None` where a dry run would make it.
    top: Option<Rc<Folder>>,
    /// The path of that.
    target: Target,
    /// The directory that was made or filled last, by its path below the top.
    last: Option<(PathBuf, Rc<Folder>)>,
    /// Directories that were made, or are to be alike: each has its source's mode and time when all is in it.
    made: Vec<(PathBuf, u16, Time)>,
    /// Directories that could not be made: what is in them is not copied.
    barred: Vec<RelPath>,
    /// The first name of each file that has several, and the others.
    firsts: HashMap<FileId, (PathBuf, OsString)>,
    links: Vec<LocalLink>,
    /// What the source has in each directory that was there, where the rest goes.
    present: BTreeMap<PathBuf, HashSet<OsString>>,
}

impl<'a> Take<'a> {
    fn new(job: &'a Job<'a>, top: Option<Rc<Folder>>, target: Target) -> Self {
        // What is found is only printed by a dry run.
        let found = job.wanted.dry_run.then(|| progress::counting(job.context, "found", true));
        if let Some(found) = &found {
            job.report.beside(found.room());
        }
        let (shared, files, last, made, barred) = (Arc::default(), None, None, Vec::new(), Vec::new());
        let (firsts, links, present) = (HashMap::new(), Vec::new(), BTreeMap::new());
        Self { job, found, shared, files, top, target, last, made, barred, firsts, links, present }
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

    /// Has the directory that is copied into made like the one that is copied, in the end.
    async fn make_top_alike(&mut self, like: &Attr) -> Result<()> {
        self.made.push((PathBuf::new(), like.mode & 0o777, like.mtime));
        if self.job.wanted.delete {
            self.present.insert(PathBuf::new(), HashSet::new());
        }
        match (&self.top, self.job.wanted.dry_run) {
            (Some(top), false) => {
                match_local_tags(self.job.client, like.id, top, self.job.how.attributes).await
            }
            _ => Ok(()),
        }
    }

    async fn found(&mut self, found: &Found, shown: String) -> Result<()> {
        let Some((above, name)) = found.path.split_last() else { return Ok(()) };
        if self.barred.iter().any(|barred| found.path.is_within(barred)) {
            return Ok(());
        }
        if self.job.wanted.rules.leaves_out(found.path.as_bytes(), found.attr.kind == Kind::Directory) {
            if found.attr.kind == Kind::Directory {
                self.barred.push(found.path.clone());
            }
            return Ok(());
        }
        if let Some(counted) = &self.found {
            counted.add(1);
        }
        let (below, name) = (OsStr::from_bytes(above.as_bytes()), OsStr::from_bytes(name.as_bytes()));
        if let Some(present) = self.present.get_mut(Path::new(below)) {
            present.insert(name.to_os_string());
        }
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
        let mut seen = match &folder {
            Some(folder) => folder.look(name)?,
            None => None,
        };
        if let (true, Some(folder), Some(there)) = (self.job.wanted.alike, &folder, &seen)
            && self.make_room(attr, folder, (below, name), there)?
        {
            seen = None;
        }
        match attr.kind {
            Kind::Directory => {
                let made = self.make_directory(folder.as_deref(), name, attr, below.join(name))?;
                match folder {
                    Some(folder) if made && self.job.wanted.alike && !self.job.wanted.dry_run => {
                        let inside = folder.inside(name)?;
                        match_local_tags(self.job.client, attr.id, &inside, self.job.how.attributes).await
                    }
                    _ => Ok(()),
                }
            }
            Kind::File => self.file(attr, shown, folder, below, name).await,
            Kind::Symlink => self.link(attr, shown, folder, below, (name, seen)).await,
            Kind::Fifo if seen.is_some_and(|seen| seen.sort == Sort::Fifo) => Ok(()),
            Kind::Fifo => match folder {
                Some(folder) if !self.job.wanted.dry_run => {
                    folder.make_fifo(name, attr.mode & 0o777)?;
                    if self.job.wanted.alike { folder.set_time(name, attr.mtime) } else { Ok(()) }
                }
                _ => self.would(&below.join(name)),
            },
            Kind::Reference => Err(passed_over()),
        }
    }

    /// Takes away what has a name that something of another kind is to have. Returns whether it did.
    fn make_room(
        &self,
        attr: &Attr,
        folder: &Rc<Folder>,
        (below, name): (&Path, &OsStr),
        there: &Seen,
    ) -> Result<bool> {
        let fits = match (attr.kind, there.sort) {
            (Kind::Directory, Sort::Directory) => true,
            (Kind::Fifo, Sort::Fifo) => (there.mode, there.mtime) == (made_as(attr), attr.mtime),
            // These are replaced in one go.
            (Kind::File, Sort::File | Sort::Symlink) | (Kind::Symlink, Sort::Symlink) => true,
            (_, _) => false,
        };
        if fits || self.job.wanted.dry_run {
            return Ok(false);
        }
        if there.sort != Sort::Directory {
            return folder.remove(name).map(|()| true);
        }
        if !self.job.may_replace_directories() {
            return Err(stands_there());
        }
        let extra = LocalExtra { folder: folder.clone(), name: name.to_os_string(), below: below.join(name) };
        self.job.clear_local(&extra)
    }

    /// Hands a file on, or keeps it as another name of one that was.
    async fn file(
        &mut self,
        attr: &Attr,
        shown: String,
        folder: Option<Rc<Folder>>,
        below: &Path,
        name: &OsStr,
    ) -> Result<()> {
        if let (true, true, Some(folder)) = (self.job.wanted.alike, attr.links > 1, &folder) {
            if let Some(first) = self.firsts.get(&attr.id) {
                let (first, folder, name, below) =
                    (first.clone(), folder.clone(), name.to_os_string(), below.join(name));
                self.links.push(LocalLink { first, folder, name, below });
                return Ok(());
            }
            self.firsts.insert(attr.id, (below.to_path_buf(), name.to_os_string()));
        }
        if self.job.wanted.dry_run {
            let is_there = match &folder {
                Some(folder) => is_there(Spot { folder, name }, attr, self.job.how)?,
                None => false,
            };
            return if is_there { Ok(()) } else { self.would(&below.join(name)) };
        }
        let folder = folder.ok_or_else(|| Error::internal("only a dry run makes no directory"))?;
        let (from, name, bytes) = (attr.id, name.to_os_string(), attr.size);
        match &self.files {
            Some(files) => files.put(bytes, Down { from, shown, folder, name }).await,
            None => Err(Error::internal("a file was found after all were")),
        }
    }

    /// Makes a symbolic link. One that is the same is left, another link replaced.
    async fn link(
        &self,
        attr: &Attr,
        shown: String,
        folder: Option<Rc<Folder>>,
        below: &Path,
        (name, seen): (&OsStr, Option<Seen>),
    ) -> Result<()> {
        let client = self.job.client;
        let target = client.fs().target(&client.call(), &At::id(attr.id)).await;
        let LinkTarget::Symlink(target) = target.map_err(|e| e.said_of(&shown))? else {
            return Err(passed_over());
        };
        let is_link = seen.is_some_and(|seen| seen.sort == Sort::Symlink);
        let made = match folder {
            Some(folder) if is_link && folder.target(name)? == target => Ok(Some(folder)),
            Some(folder) if !self.job.wanted.dry_run => {
                let made = match is_link {
                    true => folder.replace_symlink(name, &target),
                    false => folder.make_symlink(name, &target),
                };
                made.map(|()| Some(folder))
            }
            _ => self.would(&below.join(name)).map(|()| None),
        };
        match made? {
            Some(folder) if self.job.wanted.alike && !self.job.wanted.dry_run => {
                folder.set_time(name, attr.mtime)
            }
            _ => Ok(()),
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
        let mode = like.mode & 0o777;
        match (folder, seen) {
            (Some(folder), Some(_)) => {
                folder.inside(name)?;
                if self.job.wanted.delete {
                    self.present.insert(below.clone(), HashSet::new());
                }
                if self.job.wanted.alike {
                    self.made.push((below, mode, like.mtime));
                }
                Ok(true)
            }
            (Some(folder), None) if !self.job.wanted.dry_run => {
                if folder.make(name, mode | FILLED_WITH)? {
                    self.made.push((below, mode & !self.job.how.umask, like.mtime));
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
                Err(e) if self.job.wanted.dry_run && e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            },
        }
    }

    /// Does what has to wait until all files are there: more names of them, what goes, and the modes and
    /// times of directories, the deepest first.
    async fn end(mut self) -> Result<()> {
        let job = self.job;
        for link in std::mem::take(&mut self.links) {
            if let Err(e) = self.another_name(&link) {
                job.failed(e.op("copy").about(link.folder.shown(&link.name).display())).await?;
            }
        }
        if job.may_delete() {
            for extra in self.extra()? {
                if let Err(e) = job.clear_local(&extra) {
                    job.failed(e.op("remove")).await?;
                }
            }
        }
        if job.wanted.dry_run {
            return Ok(());
        }
        for (below, mode, mtime) in self.made.iter().rev() {
            let folder = self.top.as_ref().map(|top| top.below(below)).transpose();
            let set = |folder: Option<Folder>| match folder {
                Some(folder) if !folder.itself().is_ok_and(|is| (is.mode, is.mtime) == (*mode, *mtime)) => {
                    folder.set(*mode, *mtime)
                }
                _ => Ok(()),
            };
            if let Err(e) = folder.and_then(set) {
                job.failed(e).await?;
            }
        }
        match &self.top {
            // What was reported is on disk.
            Some(top) if job.how.flushed_later => top.flush_all(),
            _ => Ok(()),
        }
    }

    fn another_name(&mut self, link: &LocalLink) -> Result<()> {
        let Some(first) = self.folder(&link.first.0)? else { return self.would(&link.below) };
        let first = (&*first, &*link.first.1);
        if self.job.wanted.dry_run {
            let (file, there) = (first.0.look(first.1)?, link.folder.look(&link.name)?);
            let is_there = there.is_some_and(|there| file.is_some_and(|file| file.inode == there.inode));
            return if is_there { Ok(()) } else { self.would(&link.below) };
        }
        match self.job.link_local(first, (&link.folder, &link.name))? {
            Linked::New => self.job.report.linked(),
            Linked::Already | Linked::Apart => self.job.report.add(Outcome::Unchanged),
        }
        Ok(())
    }

    /// Returns what this machine has and the source lacks.
    fn extra(&mut self) -> Result<Vec<LocalExtra>> {
        let mut extra = Vec::new();
        for (dir, present) in std::mem::take(&mut self.present) {
            let Some(folder) = self.folder(&dir)? else { continue };
            for name in folder.names()?.into_iter().filter(|name| !present.contains(name)) {
                let below = dir.join(&name);
                extra.push(LocalExtra { folder: folder.clone(), name, below });
            }
        }
        Ok(extra)
    }
}
