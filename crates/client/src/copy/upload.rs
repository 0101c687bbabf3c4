//! One local file into the tree.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, Guard, Part, Source, Stage, StageHint, Walked, Want};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Time, limits};
use weft_sys::fault;

use super::local::{LocalFile, LocalSource, times_and_mode};
use super::{How, Outcome, Progress};
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
    let (size, set) = (metadata.len(), times_and_mode(&metadata));
    let mtime = Time::from_unix(metadata.mtime(), metadata.mtime_nsec() as u32);
    if !how.force && is_up(client, dir, name, size, mtime).await? {
        progress.add_bytes(size)?;
        progress.add_file();
        return Ok(Outcome::Unchanged);
    }
    let sending = Sending { client, file: Arc::new(LocalFile(file)), dir, name, size, set, progress };
    let resumed = sending.run().await?;
    progress.add_file();
    Ok(Outcome::Copied { bytes: size, resumed })
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

/// Whether a stage was published, dropped or written by somebody else. What the node says has no
/// cause behind it; what this machine says of the local file has.
fn is_anothers_doing(error: &Error) -> bool {
    use ErrorKind::{Conflict, Invalid, NotFound, Stale};
    matches!(error.kind(), Conflict | Invalid | NotFound | Stale)
        && std::error::Error::source(error).is_none()
}

struct Sending<'a> {
    client: &'a Client,
    file: Arc<LocalFile>,
    dir: FileId,
    name: &'a Name,
    size: u64,
    set: SetAttr,
    progress: &'a Progress,
}

impl Sending<'_> {
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
        if sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            // Kept to be gone on with, it would hold the very space that is lacking. If it cannot
            // be dropped either, the node gives it up later.
            let _ = stage.discard(&client.call()).await;
        }
        sent.map(|()| resumed)
    }

    async fn send_all(&self, stage: &dyn Stage, kept: Vec<Part>) -> Result<()> {
        let parts = self.send(stage, kept).await?;
        stage.publish(&self.client.call(), &parts, &self.set, &Guard::NONE).await.map(drop)
    }

    /// Looks for a stage that an earlier copy to the same name left, and returns it
    /// with those of its parts that hold what the local file holds.
    async fn take_up(&self) -> Result<(Option<Arc<dyn Stage>>, Vec<Part>)> {
        let (fs, mut from) = (self.client.fs(), None);
        loop {
            let page = fs.stages(&self.client.call(), &At::id(self.dir), from).await?;
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

    /// Returns the leading parts whose digests are those of the local file's bytes.
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
            let mut data =
                LocalSource::new(self.file.clone(), start + staged, end, &mut hasher, self.progress);
            stage.put(&self.client.call_within(limits::TRANSFER_WITHIN), number, staged, &mut data).await?;
            parts.push(Part { number, bytes: end - start, digest: *hasher.finalize().as_bytes() });
            staged = 0;
        }
        Ok(parts)
    }

    async fn hash(&self, at: u64, end: u64, progress: &Progress) -> Result<blake3::Hasher> {
        let mut hasher = blake3::Hasher::new();
        let mut source = LocalSource::new(self.file.clone(), at, end, &mut hasher, progress);
        while source.next(limits::PIECE_BYTES_MAX).await?.is_some() {}
        Ok(hasher)
    }
}
