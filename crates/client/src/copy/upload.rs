//! One file into the tree: a local one, or another of the tree.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use weft_core::attr::{Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, Part, Source, Stage, StageHint, Walked, Want};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Time, limits};
use weft_sys::fault;

use super::contents::Contents;
use super::local::{LocalFile, times_and_mode};
use super::verified::damaged_on_the_way;
use super::{From, How, Outcome, Progress};
use crate::Client;

/// Bytes in every part but the last.
const PART_BYTES: u64 = 64 << 20;
/// How often other copies to a name, each just begun, may make one send its bytes again.
const BEGUN_AGAIN_AT_MOST: u32 = 3;

/// Copies an open regular file to a name in a directory. What is there is replaced whole; an
/// interrupted copy of it is taken up again. Of several copies to one name at once the last wins.
pub async fn upload(
    client: &Client,
    file: File,
    dir: FileId,
    name: &Name,
    how: How,
    progress: &Progress,
) -> Result<Outcome> {
    let metadata = file.metadata().map_err(|e| fault::error(e, "read", "the local file"))?;
    let (contents, size) = (Contents::Local(Arc::new(LocalFile(file))), metadata.len());
    let (set, mtime) =
        (times_and_mode(&metadata), Time::from_unix(metadata.mtime(), metadata.mtime_nsec() as u32));
    Sending { client, contents, dir, name, size, set, progress }.unless_up(mtime, how).await
}

/// Copies a file of the tree to a name in a directory, in the same way. Its version at the
/// beginning is copied: also where another file takes its name meanwhile, and if its bytes are
/// changed in place, it fails with `Conflict`.
pub async fn copy_within(
    client: &Client,
    from: From<'_>,
    dir: FileId,
    name: &Name,
    how: How,
    progress: &Progress,
) -> Result<Outcome> {
    let opened = from.open(client).await?;
    let (attr, contents) = (opened.attr, Contents::Tree(opened.file.clone(), opened.attr.size, from.shown));
    let (size, mtime) = (attr.size, attr.mtime);
    let set = SetAttr { mode: Some(attr.mode), mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
    let sending = Sending { client, contents, dir, name, size, set, progress };
    let outcome = sending.unless_up(mtime, how).await;
    let closed = opened.file.close(&client.call()).await.map_err(|e| e.said_of(from.shown));
    let outcome = outcome?;
    closed.map(|()| outcome)
}

/// Returns whether a file of this size and modification time stands at a name.
pub async fn is_up(client: &Client, dir: FileId, name: &Name, size: u64, mtime: Time) -> Result<bool> {
    let at = At::name(dir, name.clone());
    match client.fs().walk(&client.call(), &at, Want::default()).await {
        Ok(Walked { attr, .. }) => Ok(attr.kind == Kind::File && attr.size == size && attr.mtime == mtime),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Fails with `Corrupt` unless the node has got a part as it was sent.
pub fn must_be_as_sent(got: &Part, sent: &Part) -> Result<()> {
    if got == sent {
        return Ok(());
    }
    Err(damaged_on_the_way("what the node got is not what was sent: its checksum differs"))
}

/// Whether a stage was published, dropped or written by somebody else. What the node says has no
/// cause behind it; what is said of the source has.
fn is_anothers_doing(error: &Error) -> bool {
    use ErrorKind::{Conflict, Corrupt, Invalid, NotFound, Stale};
    matches!(error.kind(), Conflict | Corrupt | Invalid | NotFound | Stale)
        && std::error::Error::source(error).is_none()
}

struct Sending<'a> {
    client: &'a Client,
    contents: Contents<'a>,
    dir: FileId,
    name: &'a Name,
    size: u64,
    set: SetAttr,
    progress: &'a Progress,
}

impl Sending<'_> {
    /// Sends the file, unless what stands there is as long and was changed then.
    async fn unless_up(&self, mtime: Time, how: How) -> Result<Outcome> {
        let bytes = self.size;
        let outcome = if !how.force && is_up(self.client, self.dir, self.name, bytes, mtime).await? {
            self.progress.add_bytes(bytes)?;
            Outcome::Unchanged
        } else {
            Outcome::Copied { bytes, resumed: self.run().await? }
        };
        self.progress.add_file();
        Ok(outcome)
    }

    /// Returns how many bytes were there already. If another copy to the name took the stage, all
    /// is sent again in one that nobody looks for any more: copies look when they begin.
    async fn run(&self) -> Result<u64> {
        let mut again = 0;
        loop {
            match self.attempt(again == 0).await {
                Err(e) if again < BEGUN_AGAIN_AT_MOST && is_anothers_doing(&e) => again += 1,
                outcome => return outcome,
            }
        }
    }

    async fn attempt(&self, takes_up: bool) -> Result<u64> {
        let (client, target) = (self.client, At::name(self.dir, self.name.clone()));
        let (stage, kept) = if takes_up { self.take_up().await? } else { (None, Vec::new()) };
        let hint = StageHint { length: Some(self.size), ..StageHint::default() };
        let stage = match stage {
            Some(stage) => stage,
            None => client.fs().stage(&client.call(), &target, &hint).await?,
        };
        let resumed = kept.iter().map(|part| part.bytes).sum();
        let sent = self.send_all(&*stage, kept).await;
        let useless = |error: &Error| matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Corrupt);
        if sent.as_ref().is_err_and(useless) {
            // Kept to be gone on with, it would hold the very space that is lacking, or bytes that
            // are not the file's. If it cannot be dropped either, the node gives it up later.
            let _ = stage.discard(&client.call()).await;
        }
        sent.map(|()| resumed)
    }

    async fn send_all(&self, stage: &dyn Stage, kept: Vec<Part>) -> Result<()> {
        let parts = self.send(stage, kept).await?;
        let call = self.client.call_within(limits::publish_within(self.size));
        stage.publish(&call, &parts, &self.set, &Guard::NONE).await.map(drop)
    }

    /// Looks for a stage that an earlier copy to the same name left, and returns it
    /// with those of its parts that hold what the source holds.
    async fn take_up(&self) -> Result<(Option<Arc<dyn Stage>>, Vec<Part>)> {
        let (fs, mut from) = (self.client.fs(), None);
        loop {
            let page = match fs.stages(&self.client.call(), &At::id(self.dir), from).await {
                // Where nothing is kept of what was interrupted, all of it is sent.
                Err(e) if e.kind() == ErrorKind::Unsupported => return Ok((None, Vec::new())),
                page => page?,
            };
            for entry in page.stages.iter().filter(|entry| entry.name == *self.name) {
                let stage = fs.staged(&self.client.call(), entry.id).await?;
                let kept = self.matching(&*stage).await?;
                if !kept.is_empty() {
                    return Ok((Some(stage), kept));
                }
                stage.discard(&self.client.call()).await?;
            }
            from = page.next;
            if from.is_none() {
                return Ok((None, Vec::new()));
            }
        }
    }

    /// Returns the leading parts whose digests are those of the source's bytes.
    /// All but the last of them must be whole.
    async fn matching(&self, stage: &dyn Stage) -> Result<Vec<Part>> {
        let mut kept: Vec<Part> = Vec::new();
        for part in stage.parts(&self.client.call(), 1).await?.parts {
            let (at, full) =
                (PART_BYTES * kept.len() as u64, kept.last().is_none_or(|last| last.bytes == PART_BYTES));
            if !full
                || part.number != kept.len() as u32 + 1
                || part.bytes > PART_BYTES
                || at + part.bytes > self.size
            {
                break;
            }
            let hasher = self.hash(at, at + part.bytes, self.progress).await?;
            if *hasher.finalize().as_bytes() != part.digest {
                break;
            }
            kept.push(part);
        }
        Ok(kept)
    }

    /// Sends what is not staged yet. Returns every part, with digests made here.
    async fn send(&self, stage: &dyn Stage, mut parts: Vec<Part>) -> Result<Vec<Part>> {
        let mut staged = parts.pop_if(|last| last.bytes < PART_BYTES).map_or(0, |last| last.bytes);
        while PART_BYTES * (parts.len() as u64) < self.size {
            let (number, start) = (parts.len() as u32 + 1, PART_BYTES * parts.len() as u64);
            let end = (start + PART_BYTES).min(self.size);
            // The digest is of the whole part, so what is staged already is read again.
            let mut hasher = self.hash(start, start + staged, &Progress::default()).await?;
            let from = start + staged;
            let mut data = self.contents.read(self.client, from, end, &mut hasher, self.progress).await?;
            let call = self.client.call_within(limits::TRANSFER_WITHIN);
            let got = stage.put(&call, number, staged, &mut data).await?;
            drop(data);
            let sent = Part { number, bytes: end - start, digest: *hasher.finalize().as_bytes() };
            must_be_as_sent(&got, &sent)?;
            parts.push(sent);
            staged = 0;
        }
        Ok(parts)
    }

    async fn hash(&self, at: u64, end: u64, progress: &Progress) -> Result<blake3::Hasher> {
        let mut hasher = blake3::Hasher::new();
        let mut source = self.contents.read(self.client, at, end, &mut hasher, progress).await?;
        while source.next(limits::PIECE_BYTES_MAX).await?.is_some() {}
        drop(source);
        Ok(hasher)
    }
}
