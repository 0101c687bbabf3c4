//! Copies within the tree: the bytes do not leave the node.

use weft_client::tree::Walk;
use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, LinkTarget, New, Range, Shape, Want};
use weft_core::form::{OpenHow, Pin};
use weft_core::{ErrorKind, FileId, Name, RelPath, Result, Rights, limits};

use super::Job;
use crate::output::out;
use crate::{paths, progress};

/// Copies a file or tree to another place of the tree.
pub async fn copy(job: &Job<'_>, from: RelPath, to: RelPath) -> Result<()> {
    let count = progress::counting(job.context, "copied", job.args.dry_run);
    let own_name = from.split_last().map(|(_, name)| name);
    let (parent, name) = job.target(&to, own_name.as_ref().map(Name::as_bytes)).await?;
    let start = paths::show(&from);
    let at = At::root(from).following();
    let attr = job.client.fs().walk(&job.client.call(), &at, Want::default()).await?.attr;
    if attr.kind != Kind::Directory {
        return one(job, &attr, parent, &name).await.map_err(|e| e.said_of(start));
    }
    job.refuse_directory()?;
    if job.client.fs().walk(&job.client.call(), &At::id(parent), Want::default()).await?.attr.id == attr.id {
        return Err(weft_core::Error::new(ErrorKind::Loop, "a directory cannot be copied into itself"));
    }
    let mut walk = Walk::start(job.client, &At::id(attr.id), &start).await?;
    let mut made: Vec<(RelPath, FileId)> = Vec::new();
    while let Some(found) = walk.next().await? {
        let (parent, name) = match found.path.split_last() {
            None => (parent, name.clone()),
            Some((above, name)) => {
                let dir = made.iter().rev().find(|(path, _)| *path == above).map(|(_, id)| *id);
                (dir.ok_or_else(|| weft_core::Error::internal("a walk shows directories first"))?, name)
            }
        };
        if found.attr.kind == Kind::Directory {
            let dir = job.make_directory(parent, &name, walk.show(&found.path).as_ref()).await?;
            made.push((found.path, dir));
        } else {
            let copied = one(job, &found.attr, parent, &name).await;
            copied.map_err(|e| e.said_of(walk.show(&found.path)))?;
        }
        count.add(1);
    }
    walk.whole()
}

async fn one(job: &Job<'_>, from: &Attr, parent: FileId, name: &Name) -> Result<()> {
    let (client, fs, to) = (job.client, job.client.fs(), At::name(parent, name.clone()));
    if job.args.dry_run {
        out!("{name}")?;
        return Ok(());
    }
    match from.kind {
        Kind::File => {}
        Kind::Symlink => {
            if let LinkTarget::Symlink(target) = fs.target(&client.call(), &At::id(from.id)).await? {
                fs.make(&client.call(), &to, New::Symlink(target), &SetAttr::default()).await?;
            }
            return Ok(());
        }
        Kind::Fifo => return fs.make(&client.call(), &to, New::Fifo, &SetAttr::default()).await.map(drop),
        Kind::Directory | Kind::Reference => return Ok(()),
    }
    let set = SetAttr { mode: Some(from.mode), mtime: Some(SetTime::At(from.mtime)), ..SetAttr::default() };
    let make = Some(weft_core::form::Make { exclusive: false, set: set.clone() });
    let how = OpenHow { need: Rights::WRITE, pin: Pin::None, make, truncate: false };
    let opened = fs.open(&client.call(), &to, &how).await?;
    let call = client.call_within(limits::TRANSFER_WITHIN);
    let copied = fs.copy(&call, &At::id(from.id), Range::ALL, &At::id(opened.attr.id), 0).await?;
    opened.file.shape(&client.call(), Shape::Truncate(copied.bytes)).await?;
    opened.file.sync(&client.call(), Range::ALL).await?;
    opened.file.close(&client.call()).await?;
    fs.set(&client.call(), &At::id(opened.attr.id), &set, &Guard::NONE).await.map(drop)
}
