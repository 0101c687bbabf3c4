//! Copies into the tree.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weft_client::copy::{Outcome, Progress, Sent, There, To, match_tags, upload};
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Cursor, Guard, New, PageMax, Want};
use weft_core::{Error, ErrorKind, FileId, Name, Result, limits};
use weft_sys::local::Tags;
use weft_sys::{Folder, Seen, Sort, fault};

use super::clearing::Extra;
use super::goal::{Target, TreeGoal, nameless};
use super::links::Linked;
use super::transfer::Files;
use super::tree::{Dir, Filled, Made};
use super::{Job, interrupted, passed_over, stream};
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
        return match job.wanted.recursive {
            true => special(job, from, (Some(dir), &name), target).await,
            false => stream::from_file(job, from, (dir, &name), target).await,
        };
    }
    // A link that was typed is followed.
    let real = from.canonicalize().map_err(unreadable)?;
    let folder = Rc::new(Folder::open(real.parent().unwrap_or(Path::new("/")))?);
    let own = real.file_name().ok_or_else(nameless)?;
    let seen = folder.look(own)?.ok_or_else(|| Error::not_found("there is no such file"))?;
    let (own, shown, there) = (own.into(), from.into(), There::Unknown);
    send(job, Up { folder, own, shown, dir: Some(dir), name, target, seen, there }).await
}

/// Copies a pipe as what it is.
async fn special(job: &Job<'_>, from: &Path, to: (Dir, &Name), target: Target) -> Result<()> {
    let folder = Folder::open(from.parent().unwrap_or(Path::new("")))?;
    let seen = folder.look(from.file_name().ok_or_else(nameless)?)?;
    match seen {
        Some(Seen { sort: Sort::Fifo, mode, mtime, .. }) => {
            job.make_special(to, New::Fifo, (mode, mtime), target).await
        }
        _ => Err(passed_over()),
    }
}

/// Copies one file that was named.
async fn send(job: &Job<'_>, file: Up) -> Result<()> {
    if job.wanted.dry_run {
        return file.would(job).await;
    }
    let copy = async |file: Up, shared: &Progress| file.send(job, shared).await.map(|sent| sent.outcome);
    job.transfer_all(vec![(file.seen.size, file)], copy).await
}

async fn tree(job: &Job<'_>, from: &Path, ending: Ending, to: &TreeGoal) -> Result<()> {
    // `dir/.` is shown as `dir`.
    let from: &Path = &from.components().collect::<PathBuf>();
    let top = Rc::new(Folder::open(from)?);
    let own = from.file_name().filter(|_| ending != Ending::Contents);
    let shared = Arc::new(Progress::default());
    let start = match (ending, to) {
        (Ending::Contents, TreeGoal::Into { dir, .. }) => Start::Into(*dir),
        _ => {
            if ending != Ending::Contents {
                job.report.directory();
            }
            let (dir, name) = to.spot(from.file_name())?;
            Start::As(dir, name)
        }
    };
    let dir = start.dir();
    let mut scan = Scan::new(job, top, (from.to_path_buf(), to.target(own)), shared.clone());
    if job.wanted.dry_run {
        // What is found is only printed.
        let counted = progress::counting(job.context, "found", true);
        job.report.beside(counted.room());
        scan.found = Some(counted);
    }
    let look = async |files| {
        scan.files = Some(files);
        let looked = scan.run(start).await;
        // No more come.
        scan.files = None;
        looked
    };
    let copy = async |file: Up, shared: &Progress| match job.wanted.dry_run {
        true => file.would(job).await.map(|()| Outcome::Unchanged),
        false => file.send(job, shared).await.map(|sent| sent.outcome),
    };
    job.transfer_found(&shared, limits::COPIES_AT_ONCE_MAX, look, copy).await?;
    scan.end(dir).await
}

/// Where the top of a tree goes.
enum Start {
    /// What is in it, into a directory.
    Into(FileId),
    /// It, to a name in one.
    As(FileId, Name),
}

impl Start {
    fn dir(&self) -> FileId {
        match self {
            Self::Into(dir) | Self::As(dir, _) => *dir,
        }
    }
}

/// One file to copy.
struct Up {
    folder: Rc<Folder>,
    own: OsString,
    shown: PathBuf,
    dir: Dir,
    name: Name,
    target: Target,
    seen: Seen,
    there: There,
}

impl Up {
    /// Says that it would be copied, unless it is there.
    async fn would(self, job: &Job<'_>) -> Result<()> {
        let (to, seen) = ((self.dir, &self.name), &self.seen);
        job.would_copy(to, (seen.size, seen.mtime), self.there, self.target).await
    }

    async fn send(&self, job: &Job<'_>, shared: &Progress) -> Result<Sent> {
        self.sent(job, shared).await.map_err(|e| e.op("copy").said_of(self.shown.display()))
    }

    async fn sent(&self, job: &Job<'_>, shared: &Progress) -> Result<Sent> {
        let local = self.folder.read(&self.own)?;
        let dir = self.dir.ok_or_else(|| Error::internal("only a dry run makes no directory"))?;
        let mut to = To { dir, name: &self.name, there: self.there.clone() };
        if !job.wanted.alike {
            return upload(job.client, local, to, job.how, shared).await;
        }
        let tags = weft_sys::local::tags(&local)?;
        if let There::Unknown = to.there {
            let there = job.there((Some(dir), &self.name)).await?;
            to.there = there.map_or(There::Nothing, |attr| There::Found(Box::new(attr)));
        }
        if let There::Found(attr) = &to.there
            && attr.kind != Kind::File
        {
            job.clear_for(&At::name(dir, self.name.clone()), attr).await?;
            to.there = There::Nothing;
        }
        if let There::Found(attr) = &to.there
            && attr.links > 1
            && !job.is_one_file(attr.id, &self.seen)
        {
            to.there = self.set_apart(job, dir).await?;
        }
        let sent = upload(job.client, local, to, job.how, shared).await?;
        if sent.outcome != Outcome::Unchanged {
            job.touch(dir);
        }
        self.make_alike(job, &sent, &tags).await?;
        Ok(sent)
    }

    /// Takes the name from a file that has others, so that what is written to it is not written to those. Returns
    /// what then has the name.
    async fn set_apart(&self, job: &Job<'_>, dir: FileId) -> Result<There> {
        let at = At::name(dir, self.name.clone());
        for _ in 0..limits::LINKS_MAX {
            // Its other names may have been taken from it since it was listed.
            match job.there((Some(dir), &self.name)).await? {
                None => return Ok(There::Nothing),
                Some(attr) if attr.links < 2 => return Ok(There::Found(Box::new(attr))),
                Some(attr) => match job.remove_name(&at, &attr).await {
                    Ok(()) => return Ok(There::Nothing),
                    // Another name of it went just now: each time it has one less.
                    Err(e) if e.kind() == ErrorKind::Precondition => {}
                    Err(e) => return Err(e),
                },
            }
        }
        Err(Error::new(ErrorKind::Conflict, "its other names change all the time"))
    }

    /// Gives the copy the user attributes of its source, and one that was there its mode and time.
    async fn make_alike(&self, job: &Job<'_>, sent: &Sent, tags: &Tags) -> Result<()> {
        match_tags(job.client, sent.id, tags, sent.is_new, job.how.attributes).await?;
        let Some(was) = sent.was else { return Ok(()) };
        let mut set = SetAttr::default();
        if was.mode != self.seen.mode {
            set.mode = Some(self.seen.mode);
        }
        if was.mtime != self.seen.mtime {
            set.mtime = Some(SetTime::At(self.seen.mtime));
        }
        if set.is_empty() {
            return Ok(());
        }
        job.client.fs().set(&job.applied(), &At::id(sent.id), &set, &Guard::NONE).await.map(drop)
    }
}

/// Another name of a file that was found before.
struct Link {
    first: (FileId, Name),
    up: Up,
}

/// What a directory of the tree holds.
struct Listing {
    entries: HashMap<Name, Option<Attr>>,
    /// Whether these are all.
    whole: bool,
}

impl Listing {
    const UNKNOWN: fn() -> Self = || Self { entries: HashMap::new(), whole: false };

    fn there(&self, name: &Name) -> There {
        match self.entries.get(name) {
            Some(Some(attr)) => There::Found(Box::new(*attr)),
            None if self.whole => There::Nothing,
            Some(None) | None => There::Unknown,
        }
    }
}

/// A look through a directory: what is no file is made at once, files are handed on.
struct Scan<'a> {
    job: &'a Job<'a>,
    top: Rc<Folder>,
    /// The path of the start, and where that goes.
    from: PathBuf,
    target: Target,
    /// Counts what is found, where nothing else is shown.
    found: Option<Count>,
    shared: Arc<Progress>,
    waiting: Vec<(PathBuf, Dir, Name)>,
    /// Where files go, while it lasts.
    files: Option<Files<Up>>,
    made: Made,
    /// The first name of each file that has several.
    firsts: HashMap<(u64, u64), (FileId, Name)>,
    links: Vec<Link>,
    /// What the source lacks.
    extra: Vec<Extra>,
}

impl<'a> Scan<'a> {
    fn new(
        job: &'a Job<'a>,
        top: Rc<Folder>,
        (from, target): (PathBuf, Target),
        shared: Arc<Progress>,
    ) -> Self {
        let (waiting, made, found) = (Vec::new(), Made::default(), None);
        let (firsts, links, extra, files) = (HashMap::new(), Vec::new(), Vec::new(), None);
        Self { job, top, from, target, found, shared, waiting, files, made, firsts, links, extra }
    }

    async fn run(&mut self, start: Start) -> Result<()> {
        match start {
            Start::Into(dir) => {
                let top = self.top.clone();
                if self.job.wanted.alike {
                    self.make_top_alike(&top, dir).await?;
                }
                self.fill(&top, top.names()?, Path::new(""), &Filled::Old(dir)).await?;
            }
            Start::As(dir, name) => self.waiting.push((PathBuf::new(), Some(dir), name)),
        }
        while let Some((below, dir, name)) = self.waiting.pop() {
            if let Err(e) = self.directory(&below, dir, &name).await {
                self.job.failed(e.op("copy").said_of(self.from.join(below).display())).await?;
            }
        }
        Ok(())
    }

    /// Has the directory that is copied into made like the one that is copied, in the end.
    async fn make_top_alike(&mut self, top: &Folder, dir: FileId) -> Result<()> {
        let (seen, client) = (top.itself()?, self.job.client);
        let there = client.fs().walk(&client.call(), &At::id(dir), Want::default()).await?.attr;
        self.job.make_alike(&there, (seen.mode, seen.mtime), &self.target, &mut self.made);
        if self.job.wanted.dry_run {
            return Ok(());
        }
        match_tags(client, dir, &top.tags()?, false, self.job.how.attributes).await
    }

    /// Makes a directory, once it is known that it can be read, and what is in it.
    async fn directory(&mut self, below: &Path, dir: Dir, name: &Name) -> Result<()> {
        let folder = Rc::new(self.top.below(below)?);
        let (seen, names) = (folder.itself()?, folder.names()?);
        let target = self.target.below(below.as_os_str().as_bytes());
        let like = (seen.mode, seen.mtime);
        let filled = self.job.make_directory((dir, name), like, target, &mut self.made).await?;
        if let (true, Some(id)) = (self.job.wanted.alike, filled.id())
            && !self.job.wanted.dry_run
        {
            let (tags, is_new) = (folder.tags()?, matches!(filled, Filled::New(_)));
            match_tags(self.job.client, id, &tags, is_new, self.job.how.attributes).await?;
        }
        self.fill(&folder, names, below, &filled).await
    }

    async fn fill(
        &mut self,
        folder: &Rc<Folder>,
        names: Vec<OsString>,
        below: &Path,
        dir: &Filled,
    ) -> Result<()> {
        let listing = self.listing(dir, names.len()).await?;
        if self.job.wanted.delete {
            self.note_extra(&listing, &names, below, dir);
        }
        for own in names {
            self.shared.must_go_on().map_err(|_| interrupted())?;
            // Whoever waits for Ctrl-C has a turn, also where nothing is asked of the node.
            tokio::task::yield_now().await;
            if let Err(e) = self.entry(folder, below, &own, dir.id(), &listing).await {
                self.job.failed(e.op("copy").said_of(folder.shown(&own).display())).await?;
            }
        }
        Ok(())
    }

    /// Looks at all that a directory holds in as few messages as there are pages, where that is less than
    /// to look at each name. Who may not list it looks at each.
    async fn listing(&self, dir: &Filled, names: usize) -> Result<Listing> {
        let (client, delete) = (self.job.client, self.job.wanted.delete);
        let mut listing = Listing::UNKNOWN();
        let id = match dir {
            Filled::Old(id) if delete || names > LOOKED_AT_EACH => *id,
            Filled::Old(_) => return Ok(listing),
            Filled::New(_) | Filled::Missing => return Ok(Listing { whole: true, ..listing }),
        };
        let (mut from, want) = (Cursor::ByName, Want { attr: true, rights: false });
        loop {
            let page = client.fs().list(&client.call(), &At::id(id), from, PageMax::MAX, want).await;
            let page = match page {
                Err(e) if e.kind() == ErrorKind::Denied && !delete => return Ok(Listing::UNKNOWN()),
                page => page?,
            };
            listing.entries.extend(page.entries.into_iter().map(|entry| (entry.name, entry.attr)));
            from = match page.next {
                None => return Ok(Listing { whole: true, ..listing }),
                Some(_) if !delete && listing.entries.len() > LISTED_FOR_EACH * names => return Ok(listing),
                Some(next) => next,
            };
        }
    }

    /// Notes what a directory of the tree has and its source lacks.
    fn note_extra(&mut self, listing: &Listing, names: &[OsString], below: &Path, dir: &Filled) {
        let Filled::Old(dir) = dir else { return };
        let names: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let target = self.target.below(below.as_os_str().as_bytes());
        self.extra.extend(Extra::of(listing.entries.keys(), &names, *dir, (below, &target)));
    }

    async fn entry(
        &mut self,
        folder: &Rc<Folder>,
        below: &Path,
        own: &OsStr,
        dir: Dir,
        listing: &Listing,
    ) -> Result<()> {
        // What has gone since it was listed is not there.
        let Some(seen) = folder.look(own)? else { return Ok(()) };
        let below = below.join(own);
        if self.job.wanted.rules.leaves_out(below.as_os_str().as_bytes(), seen.sort == Sort::Directory) {
            return Ok(());
        }
        if let Some(found) = &self.found {
            found.add(1);
        }
        let name = Name::new(Bytes::copy_from_slice(own.as_bytes()))?;
        let target = self.target.below(below.as_os_str().as_bytes());
        let like = (seen.mode, seen.mtime);
        match seen.sort {
            Sort::Directory => self.waiting.push((below, dir, name)),
            Sort::File => {
                let (folder, shown, there) = (folder.clone(), folder.shown(own), listing.there(&name));
                self.file(Up { folder, own: own.into(), shown, dir, name, target, seen, there }).await?;
            }
            Sort::Symlink => {
                let new = New::Symlink(folder.target(own)?.into());
                self.job.make_special((dir, &name), new, like, target).await?;
            }
            Sort::Fifo => self.job.make_special((dir, &name), New::Fifo, like, target).await?,
            Sort::Other => return Err(passed_over()),
        }
        Ok(())
    }

    /// Hands a file on, or keeps it as another name of one that was.
    async fn file(&mut self, up: Up) -> Result<()> {
        if let (true, true, Some(dir)) = (self.job.wanted.alike, up.seen.links > 1, up.dir) {
            if let Some(first) = self.firsts.get(&up.seen.inode) {
                self.links.push(Link { first: first.clone(), up });
                return Ok(());
            }
            self.firsts.insert(up.seen.inode, (dir, up.name.clone()));
        }
        match &self.files {
            Some(files) => files.put(up.seen.size, up).await,
            None => Err(Error::internal("a file was found after all were")),
        }
    }

    /// Does what has to wait until all files are there: more names of them, what goes, and the modes and
    /// times of directories.
    async fn end(self, dir: FileId) -> Result<()> {
        let Self { job, made, links, extra, .. } = self;
        for link in links {
            let shown = link.up.shown.clone();
            if let Err(e) = self::link(job, link).await {
                job.failed(e.op("copy").said_of(shown.display())).await?;
            }
        }
        job.clear_all(&extra).await?;
        if !job.wanted.dry_run {
            job.finish(made).await?;
        }
        job.settle(dir).await
    }
}

async fn link(job: &Job<'_>, link: Link) -> Result<()> {
    let Link { first, up } = link;
    let dir = up.dir.ok_or_else(|| Error::internal("a link has a directory"))?;
    if job.wanted.dry_run {
        let (there, file) =
            (job.there((up.dir, &up.name)).await?, job.there((Some(first.0), &first.1)).await?);
        let is_there = there.is_some_and(|there| file.is_some_and(|file| file.id == there.id));
        return if is_there { Ok(()) } else { job.report.would(up.target) };
    }
    match job.link((first.0, &first.1), (dir, &up.name)).await? {
        Linked::New => job.report.linked(),
        Linked::Already => job.report.add(Outcome::Unchanged),
        Linked::Apart => send(job, up).await?,
    }
    Ok(())
}

/// Names that are looked at each for itself, where a directory may hold many more.
const LOOKED_AT_EACH: usize = 8;
/// Entries that are listed for each name that is copied, before they are looked at each for itself.
const LISTED_FOR_EACH: usize = 16;
