//! Trees: removed and copied name by name, as their caller, with one page of names in memory for each
//! level. What fails is told and the rest goes on, as RFC 4918 says.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use weft_core::attr::{Attr, Kind, SetAttr, SetTime, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, Call, Cursor, Expect, FileSystem, Guard, LinkTarget, New, OpenHow, Page, PageMax, Pin, Range,
    StageHint, VersionIs, Want,
};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result, Rights, Time, limits};
use weft_sys::Sys;

/// Works on trees for one request.
pub struct Trees<'a> {
    pub sys: &'a Sys,
    pub fs: &'a Arc<dyn FileSystem>,
    pub call: &'a Call,
    /// What could not be done: names, whether a directory's, and why. Bounded.
    pub failures: Vec<(RelPath, bool, Error)>,
    /// How many there were.
    pub failed: u64,
}

/// A directory that is gone over.
struct Level {
    id: FileId,
    from: RelPath,
    to: RelPath,
    /// The directories of its last page that are still to be gone into.
    directories: Vec<(FileId, Name)>,
    next: Option<Cursor>,
    /// How many failures there were before it.
    failed_before: u64,
}

impl<'a> Trees<'a> {
    /// Begins.
    pub fn new(sys: &'a Sys, fs: &'a Arc<dyn FileSystem>, call: &'a Call) -> Self {
        Self { sys, fs, call, failures: Vec::new(), failed: 0 }
    }

    /// A call for each name: a tree takes as long as it takes.
    fn call(&self) -> Call {
        self.call.renewed(self.sys.clock(), limits::CALL_DEADLINE)
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

    async fn remove_one(&self, path: &RelPath, expect: Expect, durable: bool) -> Result<()> {
        let call = if durable { self.call().durable() } else { self.call() };
        let at = At::root(path.clone());
        self.within(&call, self.fs.remove(&call, &at, expect, &Guard::NONE)).await.map(|_| ())
    }

    /// Removes a directory with all that is in it. What is in another volume is not gone into: it was
    /// shared, not put here.
    pub async fn remove(&mut self, path: &RelPath, attr: &Attr) {
        let mut levels = vec![Level::of(attr.id, path, path, self.failed)];
        while let Some(level) = levels.last_mut() {
            if let Some((id, name)) = level.directories.pop() {
                let (volume, below) = (level.id.volume(), level.from.join(&name));
                match below {
                    Ok(below) if id.volume() == volume => {
                        levels.push(Level::of(id, &below, &below, self.failed))
                    }
                    Ok(below) => self.failed(&below, true, is_shared()),
                    Err(error) => {
                        let place = level.from.clone();
                        self.failed(&place, true, error);
                    }
                }
                continue;
            }
            let (id, from) = (level.id, level.from.clone());
            if let Some(cursor) = level.next.take() {
                match self.page(id, cursor).await {
                    Ok(page) => {
                        let directories = self.remove_page(&from, &page).await;
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
            if whole
                && let Err(error) = self.remove_one(&from, Expect::Directory, is_last).await
                && error.kind() != ErrorKind::NotFound
            {
                self.failed(&from, true, error);
            }
        }
    }

    /// Removes what of a page is no directory. Returns the directories.
    async fn remove_page(&mut self, above: &RelPath, page: &Page) -> Vec<(FileId, Name)> {
        let mut directories = Vec::new();
        for entry in &page.entries {
            if entry.kind == Kind::Directory {
                directories.push((entry.id, entry.name.clone()));
                continue;
            }
            let removed = match above.join(&entry.name) {
                Ok(path) => self.remove_one(&path, Expect::NotDirectory, false).await.map_err(|e| (path, e)),
                Err(error) => Err((above.clone(), error)),
            };
            match removed {
                Err((path, error)) if error.kind() != ErrorKind::NotFound => self.failed(&path, false, error),
                _ => {}
            }
        }
        directories
    }

    /// Copies a directory, with what is in it if `deep`. There must be nothing at `to`.
    pub async fn copy(&mut self, from: &RelPath, attr: &Attr, to: &RelPath, deep: bool) {
        if let Err(error) = self.copy_directory(attr, to).await {
            return self.failed(to, true, error);
        }
        let mut levels = if deep { vec![Level::of(attr.id, from, to, 0)] } else { Vec::new() };
        while let Some(level) = levels.last_mut() {
            let (id, from, to) = (level.id, level.from.clone(), level.to.clone());
            if let Some((id, name)) = level.directories.pop() {
                match self.copy_below(id, &from, &to, &name).await {
                    Ok(below) => levels.push(below),
                    Err(error) => self.failed(&to.join(&name).unwrap_or(to), true, error),
                }
                continue;
            }
            let Some(cursor) = level.next.take() else {
                levels.pop();
                continue;
            };
            match self.page(id, cursor).await {
                Ok(page) => {
                    let directories = self.copy_page(&from, &to, &page).await;
                    level.directories = directories;
                    level.next = page.next;
                }
                Err(error) => self.failed(&to, true, error),
            }
        }
    }

    async fn copy_below(&self, id: FileId, from: &RelPath, to: &RelPath, name: &Name) -> Result<Level> {
        let (from, to) = (from.join(name)?, to.join(name)?);
        let call = self.call();
        let walked = self.within(&call, self.fs.walk(&call, &At::id(id), Want::default())).await?;
        self.copy_directory(&walked.attr, &to).await?;
        Ok(Level::of(id, &from, &to, 0))
    }

    async fn copy_page(&mut self, from: &RelPath, to: &RelPath, page: &Page) -> Vec<(FileId, Name)> {
        let mut directories = Vec::new();
        for entry in &page.entries {
            let (Ok(source), Ok(target)) = (from.join(&entry.name), to.join(&entry.name)) else {
                self.failed(
                    to,
                    true,
                    Error::new(ErrorKind::TooLong, "a path would be longer than its limit"),
                );
                continue;
            };
            let copied = match entry.kind {
                Kind::Directory => {
                    directories.push((entry.id, entry.name.clone()));
                    Ok(())
                }
                Kind::File => {
                    self.copy_file(&At::id(entry.id), &target, &Guard::NONE, None).await.map(|_| ())
                }
                Kind::Symlink => self.copy_link(&source, &target).await,
                Kind::Fifo | Kind::Reference => {
                    Err(Error::new(ErrorKind::Unsupported, "only files, directories and links are copied"))
                }
            };
            if let Err(error) = copied {
                self.failed(&target, false, error);
            }
        }
        directories
    }

    async fn copy_link(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let call = self.call();
        let target = self.within(&call, self.fs.target(&call, &At::root(from.clone()))).await?;
        let LinkTarget::Symlink(target) = target else {
            return Err(Error::new(ErrorKind::Unsupported, "a reference is not copied"));
        };
        let (to, set) = (At::root(to.clone()), SetAttr::default());
        self.within(&call, self.fs.make(&call, &to, New::Symlink(target), &set)).await.map(|_| ())
    }

    async fn copy_directory(&self, attr: &Attr, to: &RelPath) -> Result<()> {
        let call = self.call();
        let set = SetAttr { mode: Some(attr.mode & 0o777 | 0o700), ..SetAttr::default() };
        let to = At::root(to.clone());
        let made = self.within(&call, self.fs.make(&call, &to, New::Directory, &set)).await?;
        let tags = self.tags(attr.id).await?;
        self.give_tags(made.value.id, tags).await
    }

    /// Copies a file: whoever looks sees nothing of it, or all. Returns whether something was replaced.
    pub async fn copy_file(
        &self,
        from: &At,
        to: &RelPath,
        guard: &Guard,
        mtime: Option<Time>,
    ) -> Result<bool> {
        let call = self.call();
        let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
        let opened = self.within(&call, self.fs.open(&call, from, &how)).await?;
        let copied = self.copy_opened(&opened, to, guard, mtime).await;
        let call = self.call();
        let _ = self.within(&call, opened.file.close(&call)).await;
        copied
    }

    async fn copy_opened(
        &self,
        opened: &weft_core::form::Opened,
        to: &RelPath,
        guard: &Guard,
        mtime: Option<Time>,
    ) -> Result<bool> {
        let call = self.call();
        let hint = StageHint { length: Some(opened.attr.size), brief: true };
        let at = At::root(to.clone());
        let stage = self.within(&call, self.fs.stage(&call, &at, &hint)).await?;
        let filled = async {
            let mut source = opened.file.read(&call, Range::ALL).await?;
            let call = self.call.renewed(self.sys.clock(), limits::PUBLISH_WITHIN);
            self.within(&call, stage.put(&call, 1, 0, &mut *source)).await?;
            let set = SetAttr { mtime: mtime.map(SetTime::At), ..SetAttr::default() };
            let call = self.call.renewed(self.sys.clock(), limits::PUBLISH_WITHIN).durable();
            self.within(&call, stage.publish(&call, &[], &set, guard)).await
        };
        match filled.await {
            Ok(changed) => {
                let tags = self.tags(opened.attr.id).await?;
                self.give_tags(changed.value.id, tags).await?;
                Ok(changed.file.before.is_some())
            }
            Err(error) => {
                let call = self.call();
                let _ = self.within(&call, stage.discard(&call)).await;
                Err(error)
            }
        }
    }

    async fn tags(&self, id: FileId) -> Result<Vec<(TagName, Bytes)>> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let call = self.call();
            let page = match self.within(&call, self.fs.tags(&call, &At::id(id), from)).await {
                Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(all),
                page => page?,
            };
            all.extend(page.tags);
            from = page.next;
            if from.is_none() {
                return Ok(all);
            }
        }
    }

    /// Gives what was copied these attributes and no others.
    async fn give_tags(&self, id: FileId, tags: Vec<(TagName, Bytes)>) -> Result<()> {
        let there = self.tags(id).await?;
        let gone = there.iter().filter(|(name, _)| !tags.iter().any(|(kept, _)| kept == name));
        let mut edits: Vec<TagEdit> = gone.map(|(name, _)| TagEdit::Remove(name.clone())).collect();
        edits.extend(tags.into_iter().map(|(name, value)| TagEdit::Put { name, value, must: TagMust::Any }));
        if edits.is_empty() {
            return Ok(());
        }
        let call = self.call();
        self.within(&call, self.fs.tag(&call, &At::id(id), &edits, &Guard::NONE)).await.map(|_| ())
    }
}

impl Level {
    fn of(id: FileId, from: &RelPath, to: &RelPath, failed_before: u64) -> Self {
        let (from, to) = (from.clone(), to.clone());
        Self { id, from, to, directories: Vec::new(), next: Some(Cursor::Start), failed_before }
    }
}

/// Nothing may be there, or anything.
pub fn guard_of(overwrites: bool) -> Guard {
    Guard { version: (!overwrites).then_some(VersionIs::Absent), ctime: None }
}

fn is_shared() -> Error {
    Error::not_permitted("a share lies there: it is taken back, not removed").hint("weft unshare")
}
