//! One file into the tree: a local one, or another of the tree.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use weft_core::attr::{Attr, Kind, SetAttr, SetTime};
use weft_core::form::{At, Guard, Part, Source, Stage, StageHint, Walked, Want, Whole, collect};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Time, limits};
use weft_sys::fault;

use super::compare::same_bytes;
use super::contents::Contents;
use super::local::{LocalFile, times_and_mode};
use super::sparse::Sparse;
use super::verified::{BLOCK_BYTES, damaged_on_the_way};
use super::{From, How, Outcome, Progress};
use crate::Client;

/// Bytes in every part but the last.
const PART_BYTES: u64 = 64 << 20;
/// How often other copies to a name, each just begun, may make one send its bytes again.
const BEGUN_AGAIN_AT_MOST: u32 = 3;

/// What has the name that a file is copied to, as far as it is known.
#[derive(Clone, Debug)]
pub enum There {
    /// Nobody looked.
    Unknown,
    /// Nothing.
    Nothing,
    /// Something with these attributes.
    Found(Box<Attr>),
}

/// Where a file is copied to.
#[derive(Clone, Debug)]
pub struct To<'a> {
    /// The directory.
    pub dir: FileId,
    /// The name in it.
    pub name: &'a Name,
    /// What is known to have the name.
    pub there: There,
}

impl To<'_> {
    fn at(&self) -> At {
        At::name(self.dir, self.name.clone())
    }

    /// Returns what has the name, the link itself where it is one.
    async fn look(&self, client: &Client) -> Result<Option<Attr>> {
        match &self.there {
            There::Nothing => Ok(None),
            There::Found(attr) => Ok(Some(**attr)),
            There::Unknown => match client.fs().walk(&client.call(), &self.at(), Want::default()).await {
                Ok(Walked { attr, .. }) => Ok(Some(attr)),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            },
        }
    }
}

/// What became of a file that was to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// What was done.
    pub outcome: Outcome,
    /// The copy.
    pub id: FileId,
    /// What was there already and has the same bytes.
    pub was: Option<Attr>,
    /// Whether nothing was there.
    pub is_new: bool,
}

/// Copies an open regular file to a name in a directory. What is there is replaced whole; an
/// interrupted copy of it is taken up again. Of several copies to one name at once the last wins.
/// Holes of it are holes of the copy.
pub async fn upload(client: &Client, file: File, to: To<'_>, how: How, progress: &Progress) -> Result<Sent> {
    let metadata = file.metadata().map_err(|e| fault::error(e, "read", "the local file"))?;
    let (contents, size) = (Contents::Local(Arc::new(LocalFile(file))), metadata.len());
    let (set, mtime) =
        (times_and_mode(&metadata), Time::from_unix(metadata.mtime(), metadata.mtime_nsec() as u32));
    Sending { client, contents, to, size, set, progress }.unless_up(mtime, how).await
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
    let (attr, contents) = (opened.attr, Contents::Tree(opened.file.clone(), opened.attr, from.shown));
    let (size, mtime) = (attr.size, attr.mtime);
    let set = SetAttr { mode: Some(attr.mode), mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
    let to = To { dir, name, there: There::Unknown };
    let sending = Sending { client, contents, to, size, set, progress };
    let sent = sending.unless_up(mtime, how).await;
    let closed = opened.file.close(&client.call()).await.map_err(|e| e.said_of(from.shown));
    let sent = sent?;
    closed.map(|()| sent.outcome)
}

/// Returns whether what `cp` would send to a name is there already: of this size and time, unless `how`
/// says otherwise.
pub async fn is_up(client: &Client, to: &To<'_>, like: (u64, Time), how: How) -> Result<bool> {
    let there = to.look(client).await?;
    Ok(there.is_some_and(|attr| {
        attr.kind == Kind::File && how.is_same(like, (attr.size, attr.mtime)) == Some(true)
    }))
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
    to: To<'a>,
    size: u64,
    set: SetAttr,
    progress: &'a Progress,
}

impl Sending<'_> {
    /// Sends the file, unless what stands there is the same.
    async fn unless_up(&self, mtime: Time, how: How) -> Result<Sent> {
        let there = if how.force { None } else { self.to.look(self.client).await? };
        let file = there.filter(|attr| attr.kind == Kind::File);
        let same = match file {
            Some(attr) => self.is_same(&attr, mtime, how).await?,
            None => false,
        };
        let sent = match file.filter(|_| same) {
            Some(attr) => {
                self.progress.add_bytes(self.size)?;
                Sent { outcome: Outcome::Unchanged, id: attr.id, was: Some(attr), is_new: false }
            }
            None => {
                let (resumed, id) = self.run().await?;
                let outcome = Outcome::Copied { bytes: self.size, resumed };
                Sent { outcome, id, was: None, is_new: there.is_none() && !how.force }
            }
        };
        self.progress.add_file();
        Ok(sent)
    }

    async fn is_same(&self, there: &Attr, mtime: Time, how: How) -> Result<bool> {
        match (how.is_same((self.size, mtime), (there.size, there.mtime)), &self.contents) {
            (Some(same), _) => Ok(same),
            (None, Contents::Local(file)) => {
                same_bytes(self.client, &At::id(there.id), file, self.size, self.progress).await
            }
            (None, Contents::Tree(..)) => Ok(mtime == there.mtime),
        }
    }

    /// Returns how many bytes were there already, and the copy. If another copy to the name took the
    /// stage, all is sent again in one that nobody looks for any more: copies look when they begin.
    async fn run(&self) -> Result<(u64, FileId)> {
        if self.size > BLOCK_BYTES && self.contents.is_sparse(self.client).await? {
            let (client, contents) = (self.client, &self.contents);
            // Also where nobody looked because it is replaced whatever it is: it may be more than bytes.
            let there = self.to.look(client).await?;
            let sparse = Sparse { client, contents, to: &self.to, size: self.size, set: &self.set };
            if let Some(id) = sparse.send(there.as_ref(), self.progress).await? {
                return Ok((0, id));
            }
        }
        let mut again = 0;
        loop {
            match self.attempt(again == 0).await {
                Err(e) if again < BEGUN_AGAIN_AT_MOST && is_anothers_doing(&e) => again += 1,
                outcome => return outcome,
            }
        }
    }

    async fn attempt(&self, takes_up: bool) -> Result<(u64, FileId)> {
        if self.size <= limits::PIECE_BYTES_MAX as u64 {
            return self.whole().await.map(|id| (0, id));
        }
        let (client, target) = (self.client, self.to.at());
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
        sent.map(|id| (resumed, id))
    }

    /// Sends a small file in one message.
    async fn whole(&self) -> Result<FileId> {
        let mut hasher = blake3::Hasher::new();
        let mut source = self.contents.read(self.client, 0, self.size, &mut hasher, self.progress).await?;
        let bytes = collect(&mut source, limits::PIECE_BYTES_MAX).await?;
        drop(source);
        let whole =
            Whole { digest: *hasher.finalize().as_bytes(), set: self.set.clone(), guard: Guard::NONE };
        let made = self.client.put(self.to.at(), bytes, whole).await;
        let made = made.map_err(|e| match e.kind() {
            ErrorKind::Corrupt => {
                damaged_on_the_way("what the node got is not what was sent: its checksum differs")
            }
            _ => e,
        })?;
        Ok(made.value.id)
    }

    async fn send_all(&self, stage: &dyn Stage, kept: Vec<Part>) -> Result<FileId> {
        let parts = self.send(stage, kept).await?;
        let call = self.client.call_within(limits::publish_within(self.size));
        stage.publish(&call, &parts, &self.set, &Guard::NONE).await.map(|made| made.value.id)
    }

    /// Looks for a stage that an earlier copy to the same name left, and returns it
    /// with those of its parts that hold what the source holds.
    async fn take_up(&self) -> Result<(Option<Arc<dyn Stage>>, Vec<Part>)> {
        let (fs, mut from) = (self.client.fs(), None);
        loop {
            let page = match fs.stages(&self.client.call(), &At::id(self.to.dir), from).await {
                // Where nothing is kept of what was interrupted, all of it is sent.
                Err(e) if e.kind() == ErrorKind::Unsupported => return Ok((None, Vec::new())),
                page => page?,
            };
            for entry in page.stages.iter().filter(|entry| entry.name == *self.to.name) {
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
