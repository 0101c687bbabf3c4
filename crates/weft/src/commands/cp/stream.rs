//! What is no regular file of this machine: standard input, pipes and devices. Their bytes are
//! taken, or put into them, as they come.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weft_client::copy::{Verified, must_be_as_sent};
use weft_core::attr::{Attr, SetAttr};
use weft_core::form::{At, Guard, OpenHow, Part, Piece, Pin, Source, StageHint, Stopped};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Rights, limits};
use weft_sys::fault;

use super::goal::{Target, TreeGoal};
use super::{Job, interrupted};
use crate::progress::{self, Count};

/// Copies standard input to a file: all of it or nothing.
pub async fn from_input(job: &Job<'_>, to: &TreeGoal) -> Result<()> {
    let (dir, name) = to.spot(None)?;
    if job.wanted.dry_run {
        return job.report.would(to.target(None));
    }
    let input = io::stdin().as_fd().try_clone_to_owned();
    let input = input.map_err(|e| fault::error(e, "read", "standard input"))?;
    let count = progress::reading(job.context);
    take(job, input.into(), "standard input", count, (dir, &name)).await
}

/// Copies what a pipe or a device gives until it ends: all of it or nothing.
pub async fn from_file(job: &Job<'_>, from: &Path, to: (FileId, &Name), target: Target) -> Result<()> {
    if job.wanted.dry_run {
        return job.report.would(target);
    }
    let path = from.to_path_buf();
    let file = aside(move || File::open(path)).await?;
    let file = file.map_err(|e| fault::error(e, "read", from.display()))?;
    let count = progress::reading(job.context);
    take(job, file, &from.display().to_string(), count, to).await
}

/// Writes a file's bytes into a pipe or a device, as it is.
pub async fn into_file(job: &Job<'_>, from: &Attr, shown: &str, to: &Path) -> Result<()> {
    if job.wanted.dry_run {
        return job.report.would(Target::local(to));
    }
    let (client, failed) = (job.client, |e| fault::error(e, "write", to.display()));
    let path = to.to_path_buf();
    let file = Arc::new(aside(move || File::options().write(true).open(path)).await?.map_err(failed)?);
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let unreadable = |e: Error| e.said_of(shown);
    let opened = client.fs().open(&client.call(), &At::id(from.id), &how).await.map_err(unreadable)?;
    let size = opened.attr.size;
    let mut source = Verified::begin(client, &opened.file, size, (0, size)).await.map_err(unreadable)?;
    let (count, mut bytes) = (progress::printing(job.context, size), 0);
    while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await.map_err(unreadable)? {
        let (piece, file) = (Piece::into_bytes(piece)?, file.clone());
        let length = piece.len() as u64;
        aside(move || (&*file).write_all(&piece)).await?.map_err(failed)?;
        count.add(length);
        bytes += length;
    }
    opened.file.close(&client.call()).await.map_err(unreadable)?;
    job.report.add_stream(bytes);
    Ok(())
}

async fn take(
    job: &Job<'_>,
    file: File,
    shown: &str,
    count: Count,
    (dir, name): (FileId, &Name),
) -> Result<()> {
    let interrupt = signal(SignalKind::interrupt());
    let interrupt = interrupt.map_err(|e| fault::error(e, "wait for", "an interrupt"))?;
    let (file, hasher) = (Arc::new(file), blake3::Hasher::new());
    let mut input = Input { file, shown, count, hasher, bytes: 0, interrupt, interrupted: false };
    let bytes = job.heeding(stage(job, &At::name(dir, name.clone()), &mut input)).await;
    if input.interrupted {
        job.ended.set(true);
    }
    job.report.add_stream(bytes?);
    Ok(())
}

/// Stages all of the input and publishes it. Returns how many bytes there were.
async fn stage(job: &Job<'_>, target: &At, input: &mut Input<'_>) -> Result<u64> {
    let client = job.client;
    let stage = client.fs().stage(&client.call(), target, &StageHint::default()).await?;
    let staged = async {
        let got = stage.put(&client.call_within(limits::TRANSFER_WITHIN), 1, 0, input).await?;
        let sent = Part { number: 1, bytes: input.bytes, digest: *input.hasher.finalize().as_bytes() };
        must_be_as_sent(&got, &sent).map(|()| sent)
    };
    // Nobody can go on with it: what was read is read. If it cannot be dropped either, the node gives
    // it up later.
    let give_up = async || _ = stage.discard(&client.call()).await;
    let sent = match staged.await {
        Ok(sent) => sent,
        Err(error) => {
            give_up().await;
            return Err(error);
        }
    };
    let call = client.call_within(limits::publish_within(sent.bytes));
    let published = stage.publish(&call, &[sent], &SetAttr::default(), &Guard::NONE).await;
    // What takes longer than anybody waits may come about.
    if published.as_ref().is_err_and(|error| error.kind() != ErrorKind::Deadline) {
        give_up().await;
    }
    published.map(|_| sent.bytes)
}

/// Does what may wait for somebody else away from the thread that speaks to the node.
async fn aside<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(act).await;
    done.map_err(|e| Error::new(ErrorKind::Internal, "what was done aside did not end").caused_by(e))
}

struct Input<'a> {
    file: Arc<File>,
    shown: &'a str,
    count: Count,
    /// Of all that was read so far, and how much that is.
    hasher: blake3::Hasher,
    bytes: u64,
    interrupt: Signal,
    interrupted: bool,
}

#[async_trait]
impl Source for Input<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let (file, max) = (self.file.clone(), max.min(limits::PIECE_BYTES_MAX));
        let read = aside(move || {
            let mut bytes = vec![0; max];
            let read = (&*file).read(&mut bytes)?;
            bytes.truncate(read);
            io::Result::Ok(Bytes::from(bytes))
        });
        let bytes = tokio::select! {
            read = read => read?,
            // The thread that reads is left behind.
            Some(()) = self.interrupt.recv() => {
                self.interrupted = true;
                return Err(interrupted());
            }
        };
        let bytes = bytes.map_err(|e| fault::error(e, "read", self.shown))?;
        self.count.add(bytes.len() as u64);
        self.hasher.update(&bytes);
        self.bytes += bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}
