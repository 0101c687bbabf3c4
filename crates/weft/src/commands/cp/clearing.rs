//! What goes from the target of a copy that is to be like its source.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use weft_client::tree::{Found, Walk};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Expect, Guard, VersionIs, Want};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result};
use weft_sys::{Folder, Sort};

use super::Job;
use super::goal::Target;

/// Something in the tree that the source lacks.
pub struct Extra {
    /// The directory it is in.
    pub dir: FileId,
    /// Its name there.
    pub name: Name,
    /// Its path below the top.
    pub below: PathBuf,
    /// Its path.
    pub target: Target,
}

impl Extra {
    /// Returns what a directory holds and its source lacks, by name: `below` and `target` are the directory's own.
    pub fn of<'n>(
        held: impl Iterator<Item = &'n Name>,
        source: &HashSet<&[u8]>,
        dir: FileId,
        (below, target): (&Path, &Target),
    ) -> Vec<Self> {
        let mut extra: Vec<&Name> = held.filter(|name| !source.contains(name.as_bytes())).collect();
        extra.sort_unstable_by_key(|name| name.as_bytes());
        let one = |name: &Name| Self {
            dir,
            name: name.clone(),
            below: below.join(OsStr::from_bytes(name.as_bytes())),
            target: target.below(name.as_bytes()),
        };
        extra.into_iter().map(one).collect()
    }
}

/// Something on this machine that the source lacks.
pub struct LocalExtra {
    /// The directory it is in.
    pub folder: Rc<Folder>,
    /// Its name there.
    pub name: OsString,
    /// Its path below the top.
    pub below: PathBuf,
}

impl Job<'_> {
    /// Whether what the source lacks may go: only what was read whole says what it lacks.
    pub fn may_delete(&self) -> bool {
        if !self.wanted.delete {
            return false;
        }
        if self.report.failures() > 0 {
            self.report.kept_for_failures();
            return false;
        }
        true
    }

    /// Removes what the source lacks, if that may go.
    pub async fn clear_all(&self, extra: &[Extra]) -> Result<()> {
        if !self.may_delete() {
            return Ok(());
        }
        for extra in extra {
            if let Err(e) = self.clear(extra).await {
                self.failed(e.op("remove").said_of(&extra.target)).await?;
            }
        }
        Ok(())
    }

    /// Makes room for what is to have a name: of a directory, only where what the source lacks goes, where no
    /// rule could protect what is in it, and where all went well so far.
    pub async fn clear_for(&self, at: &At, there: &Attr) -> Result<()> {
        if there.kind != Kind::Directory {
            return self.remove_name(at, there).await;
        }
        self.may_clear_directory()?;
        self.clear_tree(at, None, &at.to_string()).await
    }

    /// Fails where a directory may not go for something else, with all that is in it.
    pub fn may_clear_directory(&self) -> Result<()> {
        match self.may_replace_directories() && self.wanted.rules.is_empty() {
            true => Ok(()),
            false => Err(stands_there()),
        }
    }

    /// Whether a directory may go for something of another kind.
    pub fn may_replace_directories(&self) -> bool {
        self.wanted.delete && self.report.failures() == 0
    }

    /// Removes a name of something other than a directory: of what was seen there, and nothing that took its name
    /// meanwhile.
    pub async fn remove_name(&self, at: &At, there: &Attr) -> Result<()> {
        let mut seen = *there;
        loop {
            let failed = match self.remove_seen(at, &seen).await {
                Err(error) if error.kind() == ErrorKind::Precondition => error,
                removed => return removed,
            };
            let now = self.client.fs().walk(&self.applied(), at, Want::default()).await?.attr;
            // Another of its names went, as by this very copy.
            if !lost_names_alone(&seen, &now) {
                return Err(failed);
            }
            seen = now;
        }
    }

    async fn remove_seen(&self, at: &At, seen: &Attr) -> Result<()> {
        let guard = Guard { version: Some(VersionIs::Is(seen.version)), ctime: Some(seen.ctime) };
        self.client.fs().remove(&self.applied(), at, Expect::NotDirectory, &guard).await.map(drop)
    }

    /// Removes what the source lacks, but for what the rules leave out and the directories it is in.
    async fn clear(&self, extra: &Extra) -> Result<()> {
        let at = At::name(extra.dir, extra.name.clone());
        self.clear_tree(&at, Some(&extra.below), &extra.target.to_string()).await?;
        self.touch(extra.dir);
        Ok(())
    }

    /// Removes a tree, but for what rules that know it as `below` leave out.
    async fn clear_tree(&self, at: &At, below: Option<&Path>, shown: &str) -> Result<()> {
        let mut walk = Walk::start(self.client, at, shown).await?.staying();
        let (mut dirs, mut left, mut above): (Vec<Found>, Vec<RelPath>, HashSet<RelPath>) =
            Default::default();
        while let Some(found) = walk.next().await? {
            if left.iter().any(|left| found.path.is_within(left)) {
                continue;
            }
            let is_dir = found.attr.kind == Kind::Directory;
            let leaves_out = |below: &Path| {
                let inside = OsStr::from_bytes(found.path.as_bytes());
                // Joined to nothing, it would end in a slash.
                let path = if inside.is_empty() { below.to_path_buf() } else { below.join(inside) };
                self.wanted.rules.leaves_out(path.as_os_str().as_bytes(), is_dir)
            };
            if walk.leaves(&found) || below.is_some_and(leaves_out) {
                keep_above(&mut above, &found.path);
                left.push(found.path);
            } else if is_dir {
                dirs.push(found);
            } else {
                self.clear_one(at, &found, Expect::NotDirectory, walk.show(&found.path)).await?;
            }
        }
        walk.whole()?;
        for found in dirs.iter().rev().filter(|dir| !above.contains(&dir.path)) {
            self.clear_one(at, found, Expect::Directory, walk.show(&found.path)).await?;
        }
        Ok(())
    }

    async fn clear_one(&self, start: &At, found: &Found, expect: Expect, shown: String) -> Result<()> {
        if self.wanted.dry_run {
            return self.report.would_remove(shown);
        }
        let at = match (found.dir, found.path.split_last()) {
            (Some(dir), Some((_, name))) => At::name(dir, name),
            _ => start.clone(),
        };
        match self.client.fs().remove(&self.applied(), &at, expect, &Guard::NONE).await {
            Ok(_) => self.report.removed(),
            // It is gone, as it was to be.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e.op("remove").said_of(shown)),
        }
        Ok(())
    }

    /// Removes something of this machine, but for what the rules leave out and the directories it is in.
    /// Returns whether all of it went.
    pub fn clear_local(&self, extra: &LocalExtra) -> Result<bool> {
        let Some(seen) = extra.folder.look(&extra.name)? else { return Ok(true) };
        let is_dir = seen.sort == Sort::Directory;
        if self.wanted.rules.leaves_out(extra.below.as_os_str().as_bytes(), is_dir) {
            return Ok(false);
        }
        let mut all = true;
        if is_dir {
            let inside = Rc::new(extra.folder.inside(&extra.name)?);
            for name in inside.names()? {
                let below = extra.below.join(&name);
                all &= self.clear_local(&LocalExtra { folder: inside.clone(), name, below })?;
            }
        }
        if !all {
            return Ok(false);
        }
        if self.wanted.dry_run {
            self.report.would_remove(extra.folder.shown(&extra.name).display())?;
        } else if is_dir {
            extra.folder.remove_directory(&extra.name)?;
            self.report.removed();
        } else {
            extra.folder.remove(&extra.name)?;
            self.report.removed();
        }
        Ok(true)
    }
}

/// Whether a file is what it was but for names that it had. In a share that makes another version of it.
fn lost_names_alone(before: &Attr, now: &Attr) -> bool {
    let Attr { links, used, ctime, version, change, .. } = *now;
    links < before.links && *now == Attr { links, used, ctime, version, change, ..*before }
}

/// A directory stands where something else is to be.
pub fn stands_there() -> Error {
    Error::new(ErrorKind::IsDirectory, "a directory stands there").hint(
        "--delete replaces it, without rules that could protect what is in it, while nothing has failed",
    )
}

/// Keeps the directories above a path.
pub fn keep_above(kept: &mut HashSet<RelPath>, path: &RelPath) {
    let mut above = path.split_last();
    while let Some((dir, _)) = above {
        above = dir.split_last();
        kept.insert(dir);
    }
}
