//! Bytes of one version of a file, each block compared with the digest that the node keeps of it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{OpenFile, Piece, Range, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, limits};

use crate::Client;

/// Bytes under one digest.
pub(super) const BLOCK_BYTES: u64 = limits::SEAL_BLOCK_BYTES;

/// The digests of a file's blocks, asked for as they are needed: a file that is open pinned to a
/// version has those of that version.
pub(super) struct Digests<'a> {
    client: &'a Client,
    file: Arc<dyn OpenFile>,
    /// The number of the first that is known.
    from: u64,
    known: Vec<[u8; 32]>,
}

impl<'a> Digests<'a> {
    pub(super) fn new(client: &'a Client, file: Arc<dyn OpenFile>) -> Self {
        Self { client, file, from: 0, known: Vec::new() }
    }

    /// Returns the digest of a block.
    pub(super) async fn of(&mut self, block: u64) -> Result<[u8; 32]> {
        let known = |digests: &Self| {
            let place = usize::try_from(block.checked_sub(digests.from)?).ok()?;
            digests.known.get(place).copied()
        };
        if let Some(digest) = known(self) {
            return Ok(digest);
        }
        self.known = self.file.digests(&self.client.call(), block).await?;
        self.from = block;
        known(self).ok_or_else(ended_early)
    }

    /// Has the next one asked for anew.
    fn forget(&mut self) {
        self.known.clear();
    }
}

/// A range of a file that is open pinned to a version. Nothing of a block is handed out before all
/// of it has come and is as the node keeps it.
pub struct Verified<'a> {
    digests: Digests<'a>,
    /// Whole blocks, from the one that holds `at` on, up to `last`.
    below: Box<dyn Source>,
    last: u64,
    size: u64,
    at: u64,
    end: u64,
    ready: VecDeque<Bytes>,
}

impl<'a> Verified<'a> {
    /// Begins to read `at..end` of a file of `size` bytes.
    pub async fn begin(
        client: &'a Client,
        file: &Arc<dyn OpenFile>,
        size: u64,
        (at, end): (u64, u64),
    ) -> Result<Self> {
        let first = at - at % BLOCK_BYTES;
        let last = end.next_multiple_of(BLOCK_BYTES).min(size);
        let mut digests = Digests::new(client, file.clone());
        let below = if at < end {
            // At once: for a small file each is a wait of its own.
            tokio::try_join!(blocks(client, file, first, last), digests.of(first / BLOCK_BYTES))?.0
        } else {
            blocks(client, file, first, last).await?
        };
        Ok(Self { digests, below, last, size, at, end, ready: VecDeque::new() })
    }

    /// Takes the next block. One that is not as the node keeps it is asked for once more: a line may
    /// change a byte now and then, and where the file itself was written, the node says so.
    async fn take(&mut self) -> Result<()> {
        let start = self.at - self.at % BLOCK_BYTES;
        let stop = (start + BLOCK_BYTES).min(self.size);
        let mut came = match self.block(start, stop).await? {
            Some(came) => came,
            None => {
                self.digests.forget();
                let Digests { client, file, .. } = &self.digests;
                self.below = blocks(client, file, start, self.last).await?;
                self.block(start, stop).await?.ok_or_else(|| differs(start))?
            }
        };
        cut(&mut came, (self.at - start) as usize, stop.saturating_sub(self.end) as usize);
        (self.ready, self.at) = (came, stop.min(self.end));
        Ok(())
    }

    /// Reads the block at `at..stop`. `None` if it is not as the node keeps it.
    async fn block(&mut self, mut at: u64, stop: u64) -> Result<Option<VecDeque<Bytes>>> {
        let block = at / BLOCK_BYTES;
        let (mut hasher, mut came) = (blake3::Hasher::new(), VecDeque::new());
        while at < stop {
            let piece = self.below.next((stop - at) as usize).await?.ok_or_else(ended_early)?;
            let bytes = piece.into_bytes()?;
            hasher.update(&bytes);
            at += bytes.len() as u64;
            came.push_back(bytes);
        }
        let is_kept = *hasher.finalize().as_bytes() == self.digests.of(block).await?;
        Ok(is_kept.then_some(came))
    }
}

/// Begins to read whole blocks.
async fn blocks(client: &Client, file: &Arc<dyn OpenFile>, at: u64, end: u64) -> Result<Box<dyn Source>> {
    let range = Range { at, length: Some(end.saturating_sub(at)) };
    file.read(&client.call_within(limits::TRANSFER_WITHIN), range).await
}

/// Drops so many bytes in front and behind: fewer than there are.
fn cut(pieces: &mut VecDeque<Bytes>, mut front: usize, mut behind: usize) {
    while let Some(first) = pieces.front_mut()
        && front > 0
    {
        let now = front.min(first.len());
        *first = first.slice(now..);
        front -= now;
        if first.is_empty() {
            pieces.pop_front();
        }
    }
    while let Some(last) = pieces.back_mut()
        && behind > 0
    {
        let now = behind.min(last.len());
        last.truncate(last.len() - now);
        behind -= now;
        if last.is_empty() {
            pieces.pop_back();
        }
    }
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Conflict, "the file ended before its size")
}

fn differs(at: u64) -> Error {
    damaged_on_the_way(format!(
        "what came from byte {at} on is not what the node keeps: its checksum differs"
    ))
}

/// Says that bytes were not the same at both ends.
pub(super) fn damaged_on_the_way(detail: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(detail)
        .hint("copy it again; if that fails too, look at the line to the node and at its memory")
}

#[async_trait]
impl Source for Verified<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        while self.ready.is_empty() {
            if self.at >= self.end {
                return Ok(None);
            }
            let taken = self.take().await;
            if taken.is_err() {
                // After an error there is nothing more.
                self.at = self.end;
            }
            taken?;
        }
        let Some(first) = self.ready.front_mut() else { return Ok(None) };
        let bytes = first.split_to(first.len().min(max.max(1)));
        if first.is_empty() {
            self.ready.pop_front();
        }
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        let ready: usize = self.ready.iter().map(Bytes::len).sum();
        Some(self.end - self.at + ready as u64)
    }

    fn stopped(&self) -> Stopped {
        self.below.stopped()
    }
}
