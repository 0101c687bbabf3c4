//! Trees: removed and copied name by name, as their caller, with one page of names in memory for each
//! level. What fails is told and the rest goes on, as RFC 4918 says.

use std::future::Future;
use std::sync::Arc;

use weft_core::attr::{Attr, Kind, SetAttr, SetTime, TagEdit, TagMust};
use weft_core::form::{
    At, Call, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, New, OpenHow, Page, PageMax, Pin, Range,
    StageHint, VersionIs, Want,
};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result, Rights, Time, limits};
use weft_sys::Sys;

use super::dead::{self, Tags};

/// How often a link is looked at again before it is left.
const LOOKS_AT_A_LINK: u32 = 4;

/// Works on trees for one request.
pub struct Trees<'a> {
    pub sys: &'a Sys,
    pub fs: &'a Arc<dyn FileSystem>,
    pub call: &'a Call,
    /// Whether what is copied goes where it was, name by name and once its copy is on the disk: what
    /// comes there meanwhile, or changes, is in no copy and stays.
    pub moves: bool,
    /// What could not be done: names, whether a directory's, and why. Bounded.
    pub failures: Vec<(RelPath, bool, Error)>,
    /// How many there were.
    pub failed: u64,
}

/// What of a file goes along with its bytes: only an owner may give a file these.
#[derive(Clone, Copy)]
pub struct AsIs {
    /// Who may do what, by its mode.
    pub mode: bool,
    /// When its bytes changed.
    pub mtime: Mtime,
}

/// When the bytes of a copy are said to have changed.
#[derive(Clone, Copy)]
pub enum Mtime {
    /// When it is made.
    Now,
    /// When those changed that were copied.
    Kept,
    /// Then.
    Said(SetTime),
}

/// What is to become of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// It stays.
    Copied,
    /// It gets another name: nothing of it is read.
    Renamed,
    /// It is copied to another volume, and goes.
    Moved,
}

/// A directory that is gone over.
struct Level {
    id: FileId,
    /// Where it was found: a name in the directory above, by that one's id. A path could have come to
    /// lead elsewhere meanwhile; paths are for telling.
    found: At,
    from: RelPath,
    /// What it is copied to.
    into: FileId,
    to: RelPath,
    /// The directories of its last page that are still to be gone into.
    directories: Vec<(FileId, Name)>,
    next: Option<Cursor>,
    /// How many failures there were before it.
    failed_before: u64,
    /// When names in it changed, of one that moves.
    mtime: Option<Time>,
}

impl<'a> Trees<'a> {
    /// Begins.
    pub fn new(sys: &'a Sys, fs: &'a Arc<dyn FileSystem>, call: &'a Call) -> Self {
        Self { sys, fs, call, moves: false, failures: Vec::new(), failed: 0 }
    }

    /// A call for each name: a tree takes as long as it takes.
    fn call(&self) -> Call {
        self.call.renewed(self.sys.clock(), limits::CALL_DEADLINE)
    }

    /// The call that makes a copy of something: on the disk before what it is of goes.
    fn making(&self) -> Call {
        if self.moves { self.call().durable() } else { self.call() }
    }

    async fn within<T>(&self, call: &Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.sys.within(call.until, work).await
    }

    fn failed(&mut self, path: &RelPath, is_directory: bool, error: Error) {
        self.failed += 1;
        if self.failures.len() < limits::DAV_FAILURES_MAX {
            self.failures.push((path.clone(), is_directory, error));
        }
    }

    async fn page(&self, id: FileId, from: Cursor) -> Result<Page> {
        let call = self.call();
        let want = Want { attr: true, rights: false };
        let max = PageMax::new(limits::DAV_TREE_PAGE);
        self.within(&call, self.fs.list(&call, &At::id(id), from, max, want)).await
    }

    async fn remove_one(&self, at: &At, expect: Expect, guard: &Guard, durable: bool) -> Result<()> {
        let call = if durable { self.call().durable() } else { self.call() };
        self.within(&call, self.fs.remove(&call, at, expect, guard)).await.map(|_| ())
    }

    /// Removes a directory with all that is in it. What is in another volume is not gone into: it was
    /// shared, not put here.
    pub async fn remove(&mut self, path: &RelPath, attr: &Attr) {
        let found = At::root(path.clone());
        let mut levels = vec![Level { failed_before: self.failed, ..Level::of(attr.id, found, path) }];
        while let Some(level) = levels.last_mut() {
            if let Some((id, name)) = level.directories.pop() {
                let (volume, below) = (level.id.volume(), level.from.join(&name));
                match below {
                    Ok(below) if id.volume() == volume => {
                        let found = At::name(level.id, name);
                        levels.push(Level { failed_before: self.failed, ..Level::of(id, found, &below) });
                    }
                    Ok(below) => self.failed(&below, true, is_shared()),
                    Err(error) => {
                        let place = level.from.clone();
                        self.failed(&place, true, error);
                    }
                }
                continue;
            }
            let (id, from, found) = (level.id, level.from.clone(), level.found.clone());
            if let Some(cursor) = level.next.take() {
                match self.page(id, cursor).await {
                    Ok(page) => {
                        let directories = self.remove_page(id, &from, &page).await;
                        level.directories = directories;
                        level.next = page.next;
                    }
                    Err(error) => self.failed(&from, true, error),
                }
                continue;
            }
            let is_last = levels.len() == 1;
            let whole = levels.pop().is_some_and(|level| level.failed_before == self.failed);
            // What still holds something is not told for itself: what it holds was.
            if whole {
                self.remove_emptied(&found, &from, is_last).await;
            }
        }
    }

    async fn remove_emptied(&mut self, found: &At, from: &RelPath, is_last: bool) {
        let removed = self.remove_one(found, Expect::Directory, &Guard::NONE, is_last).await;
        if let Err(error) = removed.or_else(unless_gone) {
            self.failed(from, true, error);
        }
    }

    /// Removes what of a page is no directory. Returns the directories.
    async fn remove_page(&mut self, id: FileId, above: &RelPath, page: &Page) -> Vec<(FileId, Name)> {
        let mut directories = Vec::new();
        for entry in &page.entries {
            if entry.kind == Kind::Directory {
                directories.push((entry.id, entry.name.clone()));
                continue;
            }
            let at = At::name(id, entry.name.clone());
            let removed = self.remove_one(&at, Expect::NotDirectory, &Guard::NONE, false).await;
            if let Err(error) = removed.or_else(unless_gone) {
                let path = above.join(&entry.name).unwrap_or_else(|_| above.clone());
                self.failed(&path, false, error);
            }
        }
        directories
    }

    /// Checks that a source could be taken, before anything makes room for it.
    pub async fn could_take(&self, source: &At, from: &Attr, taking: Taking) -> Result<()> {
        let renamed = taking == Taking::Renamed;
        match from.kind {
            Kind::Directory => self.page(from.id, Cursor::Start).await.map(drop)?,
            Kind::File => {
                let call = self.call();
                let how = OpenHow { need: Rights::READ, ..OpenHow::default() };
                let opened = self.within(&call, self.fs.open(&call, source, &how)).await;
                match opened {
                    Ok(opened) => _ = self.within(&call, opened.file.close(&call)).await,
                    Err(error) if renamed && error.kind() == ErrorKind::Denied => {}
                    Err(error) => return Err(error),
                }
            }
            Kind::Symlink if taking != Taking::Copied => {}
            Kind::Fifo | Kind::Reference if renamed => {}
            Kind::Symlink | Kind::Fifo | Kind::Reference => return Err(is_odd()),
        }
        let moves = taking != Taking::Copied;
        let Some((directory, _)) = source.path.split_last().filter(|_| moves) else { return Ok(()) };
        let (call, at) = (self.call(), At::root(directory).following());
        let want = Want { rights: true, attr: false };
        let walked = self.within(&call, self.fs.walk(&call, &at, want)).await?;
        if taking == Taking::Moved && from.container != walked.attr.container {
            return Err(has_policy());
        }
        // What is copied is removed thereafter; a rename asks for either.
        let (enough, named) = match renamed {
            true => (Rights::RENAME | Rights::REMOVE, "`rename` or `remove`"),
            false => (Rights::REMOVE, "`remove`"),
        };
        if walked.rights.is_some_and(|rights| rights.intersects(enough)) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Denied, format!("moving it needs {named} where it is")))
    }

    /// Copies a directory, with what is in it if `deep`. There must be nothing at `to`.
    pub async fn copy(&mut self, from: &RelPath, attr: &Attr, to: &RelPath, deep: bool) {
        let into = match self.copy_directory(attr, &At::root(to.clone())).await {
            Ok(into) => into,
            Err(error) => return self.failed(to, true, error),
        };
        let first = self.level(attr, At::root(from.clone()), from, (into, to.clone()));
        let mut levels = if deep { vec![first] } else { Vec::new() };
        while let Some(level) = levels.last_mut() {
            if let Some((id, name)) = level.directories.pop() {
                let (above, into) = (level.id, level.into);
                let (from, to) = (level.from.clone(), level.to.clone());
                match self.copy_below(id, &At::name(above, name.clone()), into, (&from, &to)).await {
                    Ok(level) => levels.push(level),
                    Err(error) => self.failed(&to.join(&name).unwrap_or(to), true, error),
                }
                continue;
            }
            if let Some(cursor) = level.next.take() {
                let (id, into) = (level.id, level.into);
                let (from, to) = (level.from.clone(), level.to.clone());
                let directories = match self.page_of(&levels, id, cursor).await {
                    Ok(page) => (self.copy_page(into, &from, &to, &page).await, page.next),
                    Err(error) => {
                        self.failed(if self.moves { &from } else { &to }, true, error);
                        (Vec::new(), None)
                    }
                };
                if let Some(level) = levels.last_mut() {
                    (level.directories, level.next) = directories;
                }
                continue;
            }
            let is_last = levels.len() == 1;
            if let Some(done) = levels.pop().filter(|_| self.moves) {
                self.moved(&done, is_last).await;
            }
        }
    }

    /// A directory that is copied, to one that has been made.
    fn level(&self, attr: &Attr, found: At, from: &RelPath, (into, to): (FileId, RelPath)) -> Level {
        let mtime = self.moves.then_some(attr.mtime);
        Level { into, to, mtime, failed_before: self.failed, ..Level::of(attr.id, found, from) }
    }

    /// Reads a page of the last level.
    async fn page_of(&self, levels: &[Level], id: FileId, from: Cursor) -> Result<Page> {
        // What was moved away meanwhile, with what is in it, is not taken from where it is now.
        for level in levels.iter().filter(|_| self.moves) {
            self.must_be_at(&level.found, level.id).await?;
        }
        self.page(id, from).await
    }

    /// Looks at what must still have this name.
    async fn must_be_at(&self, found: &At, id: FileId) -> Result<Attr> {
        let call = self.call();
        let walked = self.within(&call, self.fs.walk(&call, found, Want::default())).await?;
        if walked.attr.id == id {
            return Ok(walked.attr);
        }
        Err(Error::new(ErrorKind::Conflict, "something else has its name by now"))
    }

    /// Ends a directory that was moved: it goes, if nothing of it is left.
    async fn moved(&mut self, level: &Level, is_last: bool) {
        if let Some(mtime) = level.mtime {
            let (call, set) =
                (self.making(), SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() });
            let set = self.within(&call, self.fs.set(&call, &At::id(level.into), &set, &Guard::NONE)).await;
            match set {
                // Who may not set times moves it all the same.
                Err(error) if !matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotPermitted) => {
                    self.failed(&level.to, true, error);
                }
                _ => {}
            }
        }
        if level.failed_before != self.failed {
            return;
        }
        match self.must_be_at(&level.found, level.id).await {
            Ok(_) => self.remove_emptied(&level.found, &level.from, is_last).await,
            Err(error) => self.failed(&level.from, true, error),
        }
    }

    async fn copy_below(
        &self,
        id: FileId,
        found: &At,
        into: FileId,
        (from, to): (&RelPath, &RelPath),
    ) -> Result<Level> {
        let name = found.path.split_last().ok_or_else(|| Error::internal("it was found by a name"))?.1;
        let call = self.call();
        let walked = self.within(&call, self.fs.walk(&call, &At::id(id), Want::default())).await?;
        let into = self.copy_directory(&walked.attr, &At::name(into, name.clone())).await?;
        Ok(self.level(&walked.attr, found.clone(), &from.join(&name)?, (into, to.join(&name)?)))
    }

    async fn copy_page(
        &mut self,
        into: FileId,
        from: &RelPath,
        to: &RelPath,
        page: &Page,
    ) -> Vec<(FileId, Name)> {
        let mut directories = Vec::new();
        for entry in &page.entries {
            let below = |path: &RelPath| path.join(&entry.name).unwrap_or_else(|_| path.clone());
            let is_directory = entry.kind == Kind::Directory;
            if let Err(error) = self.goes_along(&page.dir, entry) {
                self.failed(&below(from), is_directory, error);
            } else if is_directory {
                directories.push((entry.id, entry.name.clone()));
            } else {
                let source = At::name(page.dir.id, entry.name.clone());
                match self.copy_entry(&source, into, entry).await {
                    Ok(copied) if self.moves => {
                        if let Err(error) = self.remove_copied(&source, entry.id, copied).await {
                            self.failed(&below(from), false, error);
                        }
                    }
                    Ok(_) => {}
                    Err(error) => self.failed(&below(to), false, error),
                }
            }
        }
        directories
    }

    /// Checks that what lies in a directory that is moved goes with it: what a copy would not be stays.
    fn goes_along(&self, above: &Attr, entry: &Entry) -> Result<()> {
        if !self.moves {
            return Ok(());
        }
        if entry.id.volume() != above.id.volume() {
            return Err(is_shared());
        }
        match &entry.attr {
            Some(attr) if attr.container == above.container => Ok(()),
            Some(_) => Err(has_policy()),
            None => Err(Error::denied("what it is may not be seen")),
        }
    }

    /// Removes what was copied, unless it has changed since.
    async fn remove_copied(&self, at: &At, id: FileId, copied: Option<VersionIs>) -> Result<()> {
        let Some(version) = copied else { return self.remove_link(at, id).await };
        let guard = Guard { version: Some(version), ctime: None };
        self.remove_one(at, Expect::NotDirectory, &guard, false).await.or_else(unless_gone)
    }

    /// Removes a symbolic link that was copied: nobody can have changed what has its id.
    pub async fn remove_link(&self, at: &At, id: FileId) -> Result<()> {
        // In a share what was made just now has a version for a moment only.
        let mut again = 0;
        loop {
            let attr = match self.must_be_at(at, id).await {
                Err(error) => return unless_gone(error),
                Ok(attr) => attr,
            };
            let guard = Guard { version: Some(VersionIs::Exactly(id, attr.version)), ctime: None };
            match self.remove_one(at, Expect::NotDirectory, &guard, true).await {
                Err(error) if error.kind() == ErrorKind::Precondition && again < LOOKS_AT_A_LINK => {
                    again += 1
                }
                removed => return removed.or_else(unless_gone),
            }
        }
    }

    /// Copies what is no directory. There must be nothing of its name. Returns which version of it was
    /// copied, if it is a file.
    async fn copy_entry(&self, source: &At, into: FileId, entry: &Entry) -> Result<Option<VersionIs>> {
        let target = At::name(into, entry.name.clone());
        match entry.kind {
            Kind::File => {
                let as_is = AsIs { mode: true, mtime: if self.moves { Mtime::Kept } else { Mtime::Now } };
                let guard = guard_of(false);
                self.copy_file(&At::id(entry.id), &target, &guard, as_is).await.map(Some)
            }
            Kind::Symlink => self.copy_link(source, &target).await.map(|()| None),
            Kind::Directory | Kind::Fifo | Kind::Reference => Err(is_odd()),
        }
    }

    /// Copies a symbolic link, as it is. There must be nothing at `to`.
    pub async fn copy_link(&self, from: &At, to: &At) -> Result<()> {
        let call = self.call();
        let target = self.within(&call, self.fs.target(&call, from)).await?;
        let LinkTarget::Symlink(target) = target else {
            return Err(Error::new(ErrorKind::Unsupported, "a reference is not copied"));
        };
        let (call, set) = (self.making(), SetAttr::default());
        self.within(&call, self.fs.make(&call, to, New::Symlink(target), &set)).await.map(|_| ())
    }

    async fn copy_directory(&self, attr: &Attr, to: &At) -> Result<FileId> {
        let call = self.making();
        let set = SetAttr { mode: Some(attr.mode & 0o777 | 0o700), ..SetAttr::default() };
        let made = self.within(&call, self.fs.make(&call, to, New::Directory, &set)).await?;
        let tags = self.tags(attr.id).await?;
        if !tags.is_empty() {
            self.give_tags(made.value.id, tags).await?;
        }
        Ok(made.value.id)
    }

    /// Copies a file: whoever looks sees nothing of it, or all. Returns what was copied.
    pub async fn copy_file(&self, from: &At, to: &At, guard: &Guard, as_is: AsIs) -> Result<VersionIs> {
        let call = self.call();
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        let opened = self.within(&call, self.fs.open(&call, from, &how)).await?;
        let copied = self.copy_opened(&opened, to, guard, as_is).await;
        let call = self.call();
        let _ = self.within(&call, opened.file.close(&call)).await;
        copied.map(|()| VersionIs::Exactly(opened.attr.id, opened.attr.version))
    }

    async fn copy_opened(
        &self,
        opened: &weft_core::form::Opened,
        to: &At,
        guard: &Guard,
        as_is: AsIs,
    ) -> Result<()> {
        let call = self.call();
        let hint = StageHint { length: Some(opened.attr.size), brief: true };
        let stage = self.within(&call, self.fs.stage(&call, to, &hint)).await?;
        let filled = async {
            let mut source = opened.file.read(&call, Range::ALL).await?;
            let call = self.call.renewed(self.sys.clock(), limits::PUBLISH_WITHIN);
            self.within(&call, stage.put(&call, 1, 0, &mut *source)).await?;
            let mode = as_is.mode.then_some(opened.attr.mode & 0o777);
            let mtime = match as_is.mtime {
                Mtime::Now => None,
                Mtime::Kept => Some(SetTime::At(opened.attr.mtime)),
                Mtime::Said(time) => Some(time),
            };
            let set = SetAttr { mode, mtime, ..SetAttr::default() };
            let call = self.call.renewed(self.sys.clock(), limits::PUBLISH_WITHIN).durable();
            self.within(&call, stage.publish(&call, &[], &set, guard)).await
        };
        match filled.await {
            // Dropped: what it became is not told.
            Ok(changed) if changed.file.after.is_none() => Ok(()),
            Ok(changed) => {
                let (tags, replaced) = (self.tags(opened.attr.id).await?, changed.file.before.is_some());
                if replaced || !tags.is_empty() {
                    self.give_tags(changed.value.id, tags).await?;
                }
                Ok(())
            }
            Err(error) => {
                let call = self.call();
                let _ = self.within(&call, stage.discard(&call)).await;
                Err(error)
            }
        }
    }

    async fn tags(&self, id: FileId) -> Result<Tags> {
        match dead::tags(self.sys, self.fs, self.call, id).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Tags::new()),
            tags => tags,
        }
    }

    /// Gives what was copied these attributes and no others.
    async fn give_tags(&self, id: FileId, tags: Tags) -> Result<()> {
        let there = self.tags(id).await?;
        let gone = there.iter().filter(|(name, _)| !tags.iter().any(|(kept, _)| kept == name));
        let mut edits: Vec<TagEdit> = gone.map(|(name, _)| TagEdit::Remove(name.clone())).collect();
        edits.extend(tags.into_iter().map(|(name, value)| TagEdit::Put { name, value, must: TagMust::Any }));
        if edits.is_empty() {
            return Ok(());
        }
        let call = self.making();
        self.within(&call, self.fs.tag(&call, &At::id(id), &edits, &Guard::NONE)).await.map(|_| ())
    }
}

impl Level {
    fn of(id: FileId, found: At, from: &RelPath) -> Self {
        let (from, to) = (from.clone(), from.clone());
        Self {
            id,
            found,
            from,
            into: id,
            to,
            directories: Vec::new(),
            next: Some(Cursor::Start),
            failed_before: 0,
            mtime: None,
        }
    }
}

fn is_odd() -> Error {
    Error::new(ErrorKind::Unsupported, "only files, directories and links are copied")
}

/// What has gone meanwhile need not be removed.
fn unless_gone(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Nothing may be there, or anything.
pub fn guard_of(overwrites: bool) -> Guard {
    Guard { version: (!overwrites).then_some(VersionIs::Absent), ctime: None }
}

fn has_policy() -> Error {
    Error::not_permitted("it has a policy of its own, which it would not have in another volume")
        .hint("copy it, give the copy its policy, and remove it")
}

/// What is said of a share that would go.
pub fn is_shared() -> Error {
    Error::not_permitted("a share lies there: it is taken back, not removed").hint("weft unshare")
}
