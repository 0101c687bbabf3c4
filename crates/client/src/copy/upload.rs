//! One local file into the tree.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use weft_core::attr::{Attr, Kind, SetTime};
use weft_core::form::{At, Guard, Part, Source, Stage, StageHint, Want};
use weft_core::{ErrorKind, FileId, Name, Result, limits};
use weft_sys::fault;

use super::local::{LocalFile, LocalSource, times_and_mode};
use super::{How, Outcome, Progress};
use crate::Client;

/// Bytes in every part but the last.
const PART_BYTES: u64 = 64 << 20;

/// Copies a local file to a name in a directory. What is there is replaced whole; an
/// interrupted copy of it is taken up again.
pub async fn upload(
    client: &Client,
    from: &Path,
    dir: FileId,
    name: &Name,
    how: How,
    progress: &Progress,
) -> Result<Outcome> {
    let unreadable = |e| fault::error(e, "read", from.display());
    let file = File::open(from).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let (size, set) = (metadata.len(), times_and_mode(&metadata));
    let target = At::name(dir, name.clone());
    if !how.force && unchanged(present(client, &target).await?.as_ref(), size, set.mtime) {
        progress.add_bytes(size)?;
        progress.add_file();
        return Ok(Outcome::Unchanged);
    }
    let sending = Sending { client, file: Arc::new(LocalFile(file)), size, progress };
    let (stage, kept) = sending.take_up(dir, name).await?;
    let hint = StageHint { length: Some(size), ..StageHint::default() };
    let stage = match stage {
        Some(stage) => stage,
        None => client.fs().stage(&client.call(), &target, &hint).await?,
    };
    let resumed = kept.iter().map(|part| part.bytes).sum();
    let parts = sending.send(&*stage, kept).await?;
    stage.publish(&client.call(), &parts, &set, &Guard::NONE).await?;
    progress.add_file();
    Ok(Outcome::Copied { resumed })
}

async fn present(client: &Client, target: &At) -> Result<Option<Attr>> {
    match client.fs().walk(&client.call(), target, Want::default()).await {
        Ok(walked) => Ok(Some(walked.attr)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn unchanged(there: Option<&Attr>, size: u64, mtime: Option<SetTime>) -> bool {
    there.is_some_and(|attr| {
        attr.kind == Kind::File && attr.size == size && Some(SetTime::At(attr.mtime)) == mtime
    })
}

struct Sending<'a> {
    client: &'a Client,
    file: Arc<LocalFile>,
    size: u64,
    progress: &'a Progress,
}

impl Sending<'_> {
    /// Looks for a stage that an earlier copy to the same name left, and returns it
    /// with those of its parts that hold what the local file holds.
    async fn take_up(&self, dir: FileId, name: &Name) -> Result<(Option<Arc<dyn Stage>>, Vec<Part>)> {
        let (fs, mut from) = (self.client.fs(), None);
        loop {
            let page = fs.stages(&self.client.call(), &At::id(dir), from).await?;
            for entry in page.stages.iter().filter(|entry| entry.name == *name) {
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
