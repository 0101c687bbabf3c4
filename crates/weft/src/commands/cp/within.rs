//! Copies within the tree: the bytes do not leave the node.

use std::collections::HashMap;

use weft_client::copy::{Outcome, is_up};
use weft_client::tree::{Found, Walk};
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, LinkTarget, Make, New, OpenHow, Pin, Range, Shape, Want};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result, Rights, limits};

use super::Job;
use super::goal::{TreeGoal, not_a_directory};
use super::tree::{Dir, Made};
use crate::paths::{self, Ending};
use crate::progress;

/// Copies a file or tree to another place of the tree.
pub async fn copy(job: &Job<'_>, from: RelPath, ending: Ending, to: &TreeGoal) -> Result<()> {
    let count = progress::counting(job.context, "copied", job.args.dry_run);
    job.report.beside(count.room());
    let (at, shown) = (At::root(from.clone()).following(), paths::show(&from));
    let attr = job.client.fs().walk(&job.client.call(), &at, Want::default()).await?.attr;
    let own = from.split_last().map(|(_, name)| name);
    let own = own.as_ref().map(|name| std::os::unix::ffi::OsStrExt::from_bytes(name.as_bytes()));
    if attr.kind != Kind::Directory {
        if ending != Ending::Name {
            return Err(not_a_directory());
        }
        let (dir, name) = to.spot(own)?;
        return one(job, &attr, &shown, (Some(dir), &name)).await.map_err(|e| e.said_of(shown));
    }
    job.refuse_directory()?;
    let mut copied = Copied { job, top: None, dirs: HashMap::new(), made: Made::default() };
    let into = match (ending, to) {
        (Ending::Contents, TreeGoal::Into(dir)) => {
            copied.dirs.insert(RelPath::EMPTY, Some(*dir));
            *dir
        }
        _ => {
            if ending != Ending::Contents {
                job.report.directory();
            }
            let (dir, name) = to.spot(own)?;
            copied.top = Some((dir, name));
            dir
        }
    };
    if into == attr.id {
        return Err(into_itself());
    }
    let mut walk = Walk::start(job.client, &At::id(attr.id), &shown).await?;
    while let Some(found) = job.next(&mut walk).await? {
        copied.found(&found, walk.show(&found.path)).await?;
        count.add(1);
    }
    job.finish(copied.made).await?;
    walk.whole()
}

fn into_itself() -> Error {
    Error::new(ErrorKind::Loop, "a directory cannot be copied into itself")
}

/// A tree that is copied within the tree.
struct Copied<'a> {
    job: &'a Job<'a>,
    /// Where the start goes, if not only what is in it is meant.
    top: Option<(FileId, Name)>,
    /// Each directory's copy. What is in one that has none is not copied.
    dirs: HashMap<RelPath, Dir>,
    made: Made,
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
        let to = (to.0, &to.1);
        if found.attr.kind != Kind::Directory {
            return one(self.job, &found.attr, shown, to).await;
        }
        let like = (found.attr.mode, found.attr.mtime);
        let dir = self.job.make_directory(to, like, shown, &mut self.made).await?;
        self.dirs.insert(found.path.clone(), dir);
        Ok(())
    }
}

async fn one(job: &Job<'_>, from: &Attr, shown: &str, to: (Dir, &Name)) -> Result<()> {
    let (client, fs) = (job.client, job.client.fs());
    match from.kind {
        Kind::File => {}
        Kind::Symlink => {
            return match fs.target(&client.call(), &At::id(from.id)).await? {
                LinkTarget::Symlink(target) => {
                    job.make_special(to, New::Symlink(target), from.mode, shown).await
                }
                LinkTarget::Reference(_) => Err(passed_over()),
            };
        }
        Kind::Fifo => return job.make_special(to, New::Fifo, from.mode, shown).await,
        Kind::Directory | Kind::Reference => return Err(passed_over()),
    }
    let is_up = match to.0 {
        Some(dir) if !job.how.force => is_up(client, dir, to.1, from.size, from.mtime).await?,
        _ => false,
    };
    match (is_up, to.0) {
        (true, _) if job.args.dry_run => {}
        (true, _) => job.report.add(Outcome::Unchanged),
        (false, Some(dir)) if !job.args.dry_run => {
            let bytes = bytes(job, from, &At::name(dir, to.1.clone())).await?;
            job.report.add(Outcome::Copied { bytes, resumed: 0 });
        }
        (false, _) => job.report.would(shown)?,
    }
    Ok(())
}

fn passed_over() -> Error {
    Error::unsupported("passed over: it refers to no file")
}

/// Copies a file's bytes, then gives the copy its mode and time.
async fn bytes(job: &Job<'_>, from: &Attr, to: &At) -> Result<u64> {
    let (client, fs) = (job.client, job.client.fs());
    let set = SetAttr { mode: Some(from.mode), mtime: Some(SetTime::At(from.mtime)), ..SetAttr::default() };
    let make = Some(Make { exclusive: false, set: set.clone() });
    let how = OpenHow { need: Rights::WRITE, pin: Pin::None, make, truncate: false };
    let opened = fs.open(&client.call(), to, &how).await?;
    let call = client.call_within(limits::TRANSFER_WITHIN);
    let copied = fs.copy(&call, &At::id(from.id), Range::ALL, &At::id(opened.attr.id), 0).await?;
    opened.file.shape(&client.call(), Shape::Truncate(copied.bytes)).await?;
    opened.file.sync(&client.call(), Range::ALL).await?;
    opened.file.close(&client.call()).await?;
    fs.set(&client.call(), &At::id(opened.attr.id), &set, &Guard::NONE).await?;
    Ok(copied.bytes)
}
