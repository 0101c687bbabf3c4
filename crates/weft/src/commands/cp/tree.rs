//! What copies make in the tree beside files: directories, links, named pipes.

use std::collections::HashSet;
use std::fmt::Display;

use weft_client::copy::{There, To, is_up};
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, LinkTarget, New, Request, SyncScope, Want};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Time, limits};

use super::{FILLED_WITH, Job};

/// A directory that a dry run would make has no id.
pub type Dir = Option<FileId>;

/// Directories that a copy made, or is to make alike: each has its source's mode and time when all is
/// in it.
#[derive(Default)]
pub struct Made {
    dirs: Vec<Ending>,
    ids: HashSet<FileId>,
}

/// A directory, and what it is to have in the end.
struct Ending {
    id: FileId,
    set: SetAttr,
    shown: String,
    /// What it had, if it was there.
    was: Option<(u16, Time)>,
}

impl Made {
    /// Returns whether a directory is one of those that were made.
    pub fn holds(&self, id: FileId) -> bool {
        self.ids.contains(&id)
    }
}

/// What has a directory's name by now.
pub enum Filled {
    /// Nothing: a dry run would make it.
    Missing,
    /// A directory that was made.
    New(FileId),
    /// One that was there.
    Old(FileId),
}

impl Filled {
    /// Returns its id.
    pub fn id(&self) -> Dir {
        match self {
            Self::Missing => None,
            Self::New(id) | Self::Old(id) => Some(*id),
        }
    }
}

impl Job<'_> {
    /// Says that a file of this size and modification time would be copied to a name, unless it is
    /// there.
    pub async fn would_copy(
        &self,
        (dir, name): (Dir, &Name),
        like: (u64, Time),
        there: There,
        target: impl Display,
    ) -> Result<()> {
        let is_there = match dir {
            Some(dir) => is_up(self.client, &To { dir, name, there }, like, self.how).await?,
            None => false,
        };
        if is_there { Ok(()) } else { self.report.would(target) }
    }

    /// Makes a directory, or finds the one that is there.
    pub async fn make_directory(
        &self,
        to: (Dir, &Name),
        (mode, mtime): (u16, Time),
        shown: impl Display,
        made: &mut Made,
    ) -> Result<Filled> {
        if self.wanted.dry_run {
            let there = self.there(to).await?;
            let is_other = there.is_some_and(|attr| attr.kind != Kind::Directory);
            if there.is_none() || (is_other && self.wanted.alike) {
                self.report.would(format_args!("{shown}/"))?;
                return Ok(Filled::Missing);
            }
            return there.map_or(Ok(Filled::Missing), |attr| directory(&attr).map(Filled::Old));
        }
        let at = self.at(to)?;
        let made_as = SetAttr { mode: Some(mode | FILLED_WITH), ..SetAttr::default() };
        let set = SetAttr { mode: Some(mode), mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        let make = async || self.client.fs().make(&self.applied(), &at, New::Directory, &made_as).await;
        let mut new = make().await;
        if self.wanted.alike && new.as_ref().is_err_and(|e| e.kind() == ErrorKind::Exists) {
            let there = self.client.fs().walk(&self.client.call(), &at, Want::default()).await?.attr;
            if there.kind == Kind::Directory {
                let was = Some((there.mode, there.mtime));
                made.dirs.push(Ending { id: there.id, set, shown: shown.to_string(), was });
                return Ok(Filled::Old(there.id));
            }
            self.remove_name(&at, &there).await?;
            new = make().await;
        }
        match new {
            Ok(new) => {
                let id = new.value.id;
                made.dirs.push(Ending { id, set, shown: shown.to_string(), was: None });
                made.ids.insert(id);
                to.0.into_iter().for_each(|above| self.touch(above));
                Ok(Filled::New(id))
            }
            Err(e) if e.kind() == ErrorKind::Exists => {
                let there = self.client.fs().walk(&self.client.call(), &at, Want::default()).await?;
                directory(&there.attr).map(Filled::Old)
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a directory that is there already like its source in the end.
    pub fn make_alike(&self, there: &Attr, (mode, mtime): (u16, Time), shown: impl Display, made: &mut Made) {
        let set = SetAttr { mode: Some(mode), mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        let was = Some((there.mode, there.mtime));
        made.dirs.push(Ending { id: there.id, set, shown: shown.to_string(), was });
    }

    /// Makes a symbolic link or a named pipe. One that is the same is left, another link replaced, and
    /// where all is to be alike, whatever has the name.
    pub async fn make_special(
        &self,
        to: (Dir, &Name),
        new: New,
        (mode, mtime): (u16, Time),
        shown: impl Display,
    ) -> Result<()> {
        let there = self.there(to).await?;
        let same = match &there {
            Some(attr) => self.is_same(attr, &new).await?,
            None => false,
        };
        let (fs, mut set) = (self.client.fs(), SetAttr::default());
        if self.wanted.alike {
            set.mtime = Some(SetTime::At(mtime));
        }
        if let (true, Some(there)) = (same, &there) {
            set.mode = (new == New::Fifo).then_some(mode);
            let differs = there.mtime != mtime || (new == New::Fifo && there.mode != mode);
            if self.wanted.alike && differs && !self.wanted.dry_run {
                fs.set(&self.applied(), &At::id(there.id), &set, &Guard::NONE).await?;
            }
            return Ok(());
        }
        if self.wanted.dry_run {
            return self.report.would(shown);
        }
        let at = self.at(to)?;
        match (&new, &there) {
            (New::Symlink(_), Some(there)) if there.kind == Kind::Symlink => {
                self.remove_name(&at, there).await?
            }
            (_, Some(there)) if self.wanted.alike => self.clear_for(&at, there).await?,
            _ => {}
        }
        if new == New::Fifo {
            set.mode = Some(mode);
        }
        to.0.into_iter().for_each(|dir| self.touch(dir));
        fs.make(&self.applied(), &at, new, &set).await.map(drop)
    }

    /// Gives the directories that were made their modes and times: the deepest first.
    pub async fn finish(&self, made: Made) -> Result<()> {
        let dirs: Vec<Ending> = made.dirs.into_iter().rev().filter(|dir| !self.is_as_it_was(dir)).collect();
        for some in dirs.chunks(limits::BATCH_REQUESTS_MAX) {
            let set =
                |dir: &Ending| Request::Set { at: At::id(dir.id), set: dir.set.clone(), guard: Guard::NONE };
            let done = self.client.fs().batch(&self.applied(), some.iter().map(set).collect()).await;
            for (dir, done) in some.iter().zip(done) {
                let is_made_so = dir.set.mode.is_some_and(|mode| mode & FILLED_WITH == FILLED_WITH);
                match done {
                    Ok(_) => {}
                    // Who may bring something there and no more keeps what it was made with.
                    Err(e) if e.kind() == ErrorKind::Denied && is_made_so => {}
                    Err(e) => self.failed(e.op("set mode and time of").said_of(&dir.shown)).await?,
                }
            }
        }
        Ok(())
    }

    /// Whether a directory that was there has all that it is to have, and nothing in it changed.
    fn is_as_it_was(&self, dir: &Ending) -> bool {
        let wanted = dir.set.mode.zip(dir.set.mtime);
        let was = dir.was.map(|(mode, mtime)| (mode, SetTime::At(mtime)));
        was.is_some() && was == wanted && !self.touched.borrow().contains(&dir.id)
    }

    /// Brings everything that was applied to disk: what is reported after it is durable.
    pub async fn settle(&self, dir: FileId) -> Result<()> {
        if self.wanted.dry_run {
            return Ok(());
        }
        let call = self.client.call_within(limits::TRANSFER_WITHIN);
        match self.client.fs().sync(&call, &At::id(dir), SyncScope::Volume).await {
            Ok(_) => Ok(()),
            // Who may bring something there and no more: it is durable within five seconds.
            Err(e) if matches!(e.kind(), ErrorKind::Denied | ErrorKind::Unsupported) => Ok(()),
            Err(e) => Err(e.op("bring to disk")),
        }
    }

    /// Returns what has a name, the link itself where it is one.
    pub async fn there(&self, (dir, name): (Dir, &Name)) -> Result<Option<Attr>> {
        let Some(dir) = dir else { return Ok(None) };
        let at = At::name(dir, name.clone());
        match self.client.fs().walk(&self.client.call(), &at, Want::default()).await {
            Ok(walked) => Ok(Some(walked.attr)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn at(&self, (dir, name): (Dir, &Name)) -> Result<At> {
        let dir = dir.ok_or_else(|| Error::internal("only a dry run has directories that are not there"))?;
        Ok(At::name(dir, name.clone()))
    }

    async fn is_same(&self, there: &Attr, new: &New) -> Result<bool> {
        match (new, there.kind) {
            (New::Fifo, Kind::Fifo) => Ok(true),
            (New::Symlink(target), Kind::Symlink) => {
                let theirs = self.client.fs().target(&self.client.call(), &At::id(there.id)).await?;
                Ok(matches!(theirs, LinkTarget::Symlink(theirs) if theirs == *target))
            }
            _ => Ok(false),
        }
    }
}

fn directory(there: &Attr) -> Result<FileId> {
    if there.kind == Kind::Directory {
        return Ok(there.id);
    }
    Err(Error::new(ErrorKind::NotDirectory, "what has that name there is not a directory"))
}
