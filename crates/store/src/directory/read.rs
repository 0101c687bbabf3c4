//! Reading: each piece checked against the right, the label and the seal.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{OpenedFile, Piece, Range, Seek, Source, Stopped};
use weft_core::limits::{PIECE_BYTES_MAX, SEAL_BLOCK_BYTES, STORE_INLINE_BYTES, STORE_READ_TRIES};
use weft_core::proof::Granted;
use weft_core::{Error, ErrorKind, Result, Rights};
use weft_kv::Read;
use weft_sys::Sys;

use super::Inner;
use super::live::{Known, Live};
use super::rows::seal_key;
use super::seals::{GROUP_BLOCKS, Group, Seal, block_of};
use crate::proof::Permit;

/// What a hole is served from.
static ZEROS: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; SEAL_BLOCK_BYTES as usize]));

/// How many blocks after one that is read from the disk may come along by the kernel's own
/// read-ahead, unseen. Disks are set to as much as 8 MiB.
pub(super) const READ_AHEAD_BLOCKS: u64 = 16;

/// How a block can be served.
pub(super) enum Block {
    /// From the file: it is in the page cache as it was checked, or has no seal to be checked.
    File,
    /// From memory: it was just read and checked. All of the block.
    Bytes(Bytes),
}

/// The bytes of a range of an object.
pub(super) struct ObjectSource {
    inner: Arc<Inner>,
    live: Arc<Live>,
    permit: Permit,
    at: u64,
    end: u64,
    /// The block read last, checked.
    held: Option<(u64, Bytes)>,
}

impl ObjectSource {
    pub(super) fn new(inner: &Arc<Inner>, live: Arc<Live>, permit: Permit, range: Range) -> Self {
        let (at, length) = range.within(live.state().size);
        Self { inner: inner.clone(), live, permit, at, end: at + length, held: None }
    }

    async fn piece(&mut self, max: usize) -> Result<Option<Piece>> {
        if *self.inner.closing.borrow() {
            return Err(stopping());
        }
        self.permit.check(self.live.label(), self.inner.clock())?;
        if self.at >= self.end {
            return Ok(None);
        }
        self.inner.pieces.fetch_add(1, Ordering::Relaxed);
        if self.live.state().size < self.end {
            let detail = "the object was cut shorter while it was read";
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
        let block = block_of(self.at);
        let left = self.end.min((block + 1) * SEAL_BLOCK_BYTES) - self.at;
        let length = (left as usize).min(max).min(PIECE_BYTES_MAX);
        let held = match self.held.take().filter(|(held, _)| *held == block) {
            Some((_, bytes)) => Block::Bytes(bytes),
            None => self.inner.block(&self.live, block).await?,
        };
        let piece = match held {
            Block::File => Piece::File { file: opened(&self.live), at: self.at, length },
            Block::Bytes(bytes) => {
                let start = (self.at - block * SEAL_BLOCK_BYTES) as usize;
                if bytes.len() < start + length {
                    let detail = "the object was cut shorter while it was read";
                    return Err(Error::new(ErrorKind::Conflict, detail));
                }
                let piece = bytes.slice(start..start + length);
                self.held = Some((block, bytes));
                Piece::Bytes(piece)
            }
        };
        self.at += length as u64;
        Ok(Some(piece))
    }
}

fn opened(live: &Live) -> Arc<dyn OpenedFile> {
    live.file.clone()
}

fn stopping() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is stopping")
}

#[async_trait]
impl Source for ObjectSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = self.piece(max.max(1)).await;
        if piece.is_err() {
            // After an error there is nothing more.
            self.end = self.at;
        }
        piece.map_err(|error| error.op("read").about(self.live.id))
    }

    fn length(&self) -> Option<u64> {
        Some(self.end - self.at)
    }

    fn stopped(&self) -> Stopped {
        stopped(&self.inner, self.permit.granted(), self.permit.watched())
    }
}

/// Ends when the right is gone, or the store is closed.
pub(super) fn stopped(inner: &Inner, granted: &Granted, rights: Rights) -> Stopped {
    let withdrawn = granted.withdrawn(rights);
    let expires = granted.claims().expires.plus(weft_core::limits::CLOCK_SKEW_MAX);
    let ends = inner.clock().moment().tick_of(expires);
    let sys: Sys = inner.sys.clone();
    let mut closing = inner.closing.subscribe();
    Box::pin(async move {
        tokio::select! {
            () = withdrawn => Error::new(ErrorKind::Revoked, "the right was withdrawn"),
            () = sys.sleep_until(ends) => Error::new(ErrorKind::Expired, "the capability has run out"),
            // An error means that the store is gone altogether.
            _ = closing.wait_for(|closing| *closing) => stopping(),
        }
    })
}

impl Inner {
    /// Finds out how a block can be served, reading and checking it if need be. `Corrupt` if it
    /// does not match its seal.
    pub(super) async fn block(&self, live: &Arc<Live>, block: u64) -> Result<Block> {
        for _ in 0..STORE_READ_TRIES {
            let (known, at, length) = self.look_up(live, block)?;
            let (seal, checked) = match known {
                // Bytes where no seal is: either zeros that somebody wrote, or a seal that was
                // lost, which must not make zeros of what it was for.
                Known::Sealed { seal: Seal::Hole, .. } if !holds_data(live, at, length)? => {
                    return Ok(Block::Bytes(ZEROS.slice(..length as usize)));
                }
                Known::Sealed { seal, checked } => (seal, checked),
                Known::Unsealed | Known::Elsewhere => return Ok(Block::File),
            };
            let believed = checked && !self.options.verify_always && live.file.resident(at, length);
            // Asked again: it may be another's reading that has brought it into memory since.
            if believed && live.state().is_checked(block) {
                return Ok(Block::File);
            }
            let read = self.checked(live, block, seal, at, length).await;
            if let Some(bytes) = read.inspect_err(|_| self.scrubber.suspect(live.id, block))? {
                return Ok(Block::Bytes(bytes));
            }
            // It may be in the middle of a change: then it has no seal by now, or, if it is being
            // cut off or made zeros, its seal is right once that has ended.
            drop(live.gate.read().await);
        }
        self.counters.blocks_corrupt.fetch_add(1, Ordering::Relaxed);
        tracing::error!(op = "read", id = %live.id, block, "a stored block does not match its seal");
        // Who looks at the node's health is told of it too.
        self.scrubber.suspect(live.id, block);
        let place = block * SEAL_BLOCK_BYTES;
        Err(Error::corrupt(format!("the stored bytes from {place} on do not match their checksum"))
            .about(live.id)
            .hint("weft fsck; restore the object from a backup"))
    }

    /// Makes sure that a sealed block matches its seal before a part of it is overwritten: else
    /// the next seal would make the damage good.
    pub(super) async fn check_before_change(&self, live: &Arc<Live>, block: u64) -> Result<()> {
        match self.look_up(live, block)? {
            (Known::Sealed { .. }, _, 1..) => self.block(live, block).await.map(drop),
            _ => Ok(()),
        }
    }

    /// The same before the object grows past `to` from inside a block: that block is sealed anew,
    /// with zeros after its bytes.
    pub(super) async fn check_before_growth(&self, live: &Arc<Live>, to: u64) -> Result<()> {
        let size = live.state().size;
        if to > size && !size.is_multiple_of(SEAL_BLOCK_BYTES) {
            self.check_before_change(live, block_of(size)).await?;
        }
        Ok(())
    }

    /// Returns what is known of a block, its seal fetched if need be, and its extent.
    pub(super) fn look_up(&self, live: &Live, block: u64) -> Result<(Known, u64, u64)> {
        loop {
            let records = {
                let state = live.state();
                match state.known(block) {
                    (Known::Elsewhere, ..) => state.records(),
                    known => return Ok(known),
                }
            };
            self.fetch_group(live, block / GROUP_BLOCKS, records)?;
        }
    }

    /// Brings a group of recorded seals into memory.
    pub(super) fn fetch_group(&self, live: &Live, group: u64, records: u64) -> Result<()> {
        let row = self.space.snapshot()?.get(&seal_key(live.id, group))?;
        let seals = row.map(|row| Group::decode(&row)).transpose()?.unwrap_or_default();
        live.state().keep_group(group, seals, records);
        Ok(())
    }

    /// Reads a block. Returns its bytes if they match the seal.
    pub(super) async fn checked(
        &self,
        live: &Arc<Live>,
        block: u64,
        seal: Seal,
        at: u64,
        length: u64,
    ) -> Result<Option<Bytes>> {
        self.counters.blocks_checked.fetch_add(1, Ordering::Relaxed);
        let reading = live.clone();
        let read = move || -> Result<Option<Bytes>> {
            // Reading brings it into memory, whatever it is.
            reading.state().uncheck(block);
            distrust_read_ahead(&reading, block);
            let mut bytes = vec![0; length as usize];
            let read = reading.file.read(&mut bytes, at)?;
            Ok((read as u64 == length && seal.matches(&bytes)).then(|| Bytes::from(bytes)))
        };
        let quick = length <= STORE_INLINE_BYTES && live.file.resident(at, length);
        let bytes = if quick { read()? } else { self.sys.blocking(read).await?? };
        if bytes.is_some() {
            live.state().check_off(block);
        }
        Ok(bytes)
    }
}

pub(super) fn holds_data(live: &Live, at: u64, length: u64) -> Result<bool> {
    Ok(live.file.seek(at, Seek::Data)?.is_some_and(|data| data < at + length))
}

/// Reading a block from the disk may bring parts of the next ones along: those that are not in
/// memory now must be checked again when their turn comes.
pub(super) fn distrust_read_ahead(live: &Live, block: u64) {
    for next in block + 1..=block + READ_AHEAD_BLOCKS {
        let (checked, extent) = {
            let state = live.state();
            (state.is_checked(next), super::seals::extent(next, state.size))
        };
        if checked && !live.file.resident(extent.0, extent.1) {
            live.state().uncheck(next);
        }
    }
}
