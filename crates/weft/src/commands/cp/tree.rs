//! What copies make in the tree beside files: directories, links, named pipes.

use std::collections::HashSet;
use std::fmt::Display;

use weft_client::copy::is_up;
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Expect, Guard, LinkTarget, New, VersionIs, Want};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Time};

use super::{FILLED_WITH, Job};

/// A directory that a dry run would make has no id.
pub type Dir = Option<FileId>;

/// Directories that a copy made: each has its source's mode and time when all is in it.
#[derive(Default)]
pub struct Made {
    dirs: Vec<(FileId, SetAttr, String)>,
    ids: HashSet<FileId>,
}

impl Made {
    /// Returns whether a directory is one of them.
    pub fn holds(&self, id: FileId) -> bool {
        self.ids.contains(&id)
    }
}

impl Job<'_> {
    /// Says that a file of this size and modification time would be copied to a name, unless it is
    /// there.
    pub async fn would_copy(
        &self,
        (dir, name): (Dir, &Name),
        (size, mtime): (u64, Time),
        target: impl Display,
    ) -> Result<()> {
        let is_there = match dir {
            Some(dir) if !self.how.force => is_up(self.client, dir, name, size, mtime).await?,
            _ => false,
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
    ) -> Result<Dir> {
        if self.args.dry_run {
            let there = self.there(to).await?;
            if there.is_none() {
                self.report.would(format_args!("{shown}/"))?;
            }
            return there.map(|attr| directory(&attr)).transpose();
        }
        let at = self.at(to)?;
        let set = SetAttr { mode: Some(mode | FILLED_WITH), ..SetAttr::default() };
        match self.client.fs().make(&self.client.call(), &at, New::Directory, &set).await {
            Ok(new) => {
                let set = SetAttr { mode: Some(mode), mtime: Some(SetTime::At(mtime)), ..set };
                made.dirs.push((new.value.id, set, shown.to_string()));
                made.ids.insert(new.value.id);
                Ok(Some(new.value.id))
            }
            Err(e) if e.kind() == ErrorKind::Exists => {
                let there = self.client.fs().walk(&self.client.call(), &at, Want::default()).await?;
                directory(&there.attr).map(Some)
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a symbolic link or a named pipe. One that is the same is left, another link replaced.
    pub async fn make_special(
        &self,
        to: (Dir, &Name),
        new: New,
        mode: u16,
        shown: impl Display,
    ) -> Result<()> {
        let there = self.there(to).await?;
        let same = match &there {
            Some(attr) => self.is_same(attr, &new).await?,
            None => false,
        };
        if same {
            return Ok(());
        }
        if self.args.dry_run {
            return self.report.would(shown);
        }
        let (fs, at) = (self.client.fs(), self.at(to)?);
        let mut set = SetAttr::default();
        if let (New::Symlink(_), Some(Attr { kind: Kind::Symlink, ctime, version, .. })) = (&new, &there) {
            // That link and nothing that took its name meanwhile.
            let seen = Guard { version: Some(VersionIs::Is(*version)), ctime: Some(*ctime) };
            fs.remove(&self.client.call(), &at, Expect::NotDirectory, &seen).await?;
        } else if new == New::Fifo {
            set.mode = Some(mode);
        }
        fs.make(&self.client.call(), &at, new, &set).await.map(drop)
    }

    /// Gives the directories that were made their modes and times: the deepest first.
    pub async fn finish(&self, made: Made) -> Result<()> {
        for (id, set, shown) in made.dirs.into_iter().rev() {
            let done = self.client.fs().set(&self.client.call(), &At::id(id), &set, &Guard::NONE).await;
            let is_made_so = set.mode.is_some_and(|mode| mode & FILLED_WITH == FILLED_WITH);
            match done {
                Ok(_) => {}
                // Who may bring something there and no more keeps what it was made with.
                Err(e) if e.kind() == ErrorKind::Denied && is_made_so => {}
                Err(e) => self.failed(e.op("set mode and time of").said_of(shown)).await?,
            }
        }
        Ok(())
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
