//! Bytes of a shared file on their way out.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::DiskFile;
use weft_sys::beneath::{Facts, Held};
use weft_sys::disk::RealFile;

use super::lease::Lease;

/// A range of a file. Others may cut it meanwhile: then it ends there.
pub(super) struct FileSource {
    pub(super) lease: Arc<Lease>,
    pub(super) file: Arc<RealFile>,
    pub(super) at: u64,
    pub(super) left: u64,
    /// For a pinned open: the file, and what it looked like.
    pub(super) pinned: Option<(Arc<Held>, Facts)>,
    /// Whether reading may wait for a network or another program.
    pub(super) stalls: bool,
}

/// What a pinned open compares. Not the time of change, which is another when the file is replaced,
/// renamed or linked; who writes bytes and sets the time of that back to the nanosecond is not noticed.
pub(super) fn is_unchanged(then: &Facts, now: &Facts) -> bool {
    (then.size, then.mtime) == (now.size, now.mtime)
}

pub(super) fn changed_while_read() -> Error {
    Error::new(ErrorKind::Conflict, "the file changed while it was read")
}

impl FileSource {
    async fn pull(&mut self, max: usize) -> Result<Option<Piece>> {
        self.lease.check().await?;
        let length =
            max.clamp(1, limits::PIECE_BYTES_MAX).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if length > 0 && !self.stalls && self.is_here(length)? {
            self.unchanged(true)?;
            let file = self.file.clone();
            return Ok(Some(Piece::File { file, at: self.at, length }));
        }
        if length == 0 {
            return self.unchanged(!self.stalls).map(|()| None);
        }
        let (file, at, pinned) = (self.file.clone(), self.at, self.pinned.clone());
        let read = move || {
            let mut bytes = vec![0; length];
            let read = file.read(&mut bytes, at).map_err(Error::unplaced)?;
            bytes.truncate(read);
            // After the bytes: what was written before they were read shows by now.
            match pinned {
                Some((held, facts)) if !is_unchanged(&facts, &held.facts()?) => Err(changed_while_read()),
                _ => Ok(bytes),
            }
        };
        let volume = &self.lease.volume;
        let bytes = volume.apart(volume.sys_deadline(), read).await?;
        Ok((!bytes.is_empty()).then(|| Piece::Bytes(bytes.into())))
    }

    /// Whether the next bytes are all there, and in memory.
    fn is_here(&self, length: usize) -> Result<bool> {
        let end = self.at + length as u64;
        let size = self.file.len().map_err(Error::unplaced)?;
        Ok(size >= end && self.file.resident(self.at, length as u64))
    }

    /// A pinned open sees one version, or says that it cannot.
    fn unchanged(&self, may_ask: bool) -> Result<()> {
        let Some((held, facts)) = self.pinned.as_ref().filter(|_| may_ask) else { return Ok(()) };
        if is_unchanged(facts, &held.facts()?) { Ok(()) } else { Err(changed_while_read()) }
    }
}

#[async_trait]
impl Source for FileSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let answer = self.pull(max).await;
        match &answer {
            Ok(Some(piece)) => {
                self.at += piece.length() as u64;
                self.left = self.left.saturating_sub(piece.length() as u64);
            }
            Ok(None) | Err(_) => self.left = 0,
        }
        answer.map_err(|e| e.op("read").about(self.lease.id))
    }

    fn length(&self) -> Option<u64> {
        Some(self.left)
    }

    fn stopped(&self) -> Stopped {
        let lease = self.lease.clone();
        Box::pin(async move { lease.stopped().await.op("read") })
    }
}
