//! Bytes of a shared file on their way out.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Error, Result, Time, limits};
use weft_sys::DiskFile;
use weft_sys::beneath::Facts;
use weft_sys::disk::RealFile;

use super::lease::Lease;
use crate::managed::{COPY_BYTES, advance, changed_while_read};

/// As much goes out in one call together with what is said before it; more is not copied without need.
pub(super) const COPIED_BYTES_MAX: usize = 16 << 10;

/// A range of a file. Others may cut it meanwhile: then it ends there.
pub(super) struct FileSource {
    pub(super) lease: Arc<Lease>,
    pub(super) file: Arc<RealFile>,
    pub(super) at: u64,
    pub(super) left: u64,
    /// For a pinned open: what the file looked like.
    pub(super) pinned: Option<Stamp>,
    /// For a pinned open: the bytes of the whole version, if they were read when it was opened.
    pub(super) bytes: Option<Bytes>,
}

/// What a pinned open compares: the length, and when bytes were last changed. Not the time of any change,
/// which is another when the file is replaced, renamed or linked; who writes bytes and sets the time of that
/// back to the nanosecond is not noticed.
pub(super) type Stamp = (u64, Time);

pub(super) fn stamp_of(facts: &Facts) -> Stamp {
    (facts.size, facts.mtime)
}

impl FileSource {
    /// `unread` is how many bytes of pages may not have been read yet, of whoever sends pages.
    async fn pull(&mut self, max: usize, unread: Option<u64>) -> Result<Option<Piece>> {
        self.lease.check().await?;
        let length =
            max.clamp(1, limits::PIECE_BYTES_MAX).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if length == 0 {
            return if self.lease.stalls { Ok(None) } else { self.look().map(|()| None) };
        }
        if let Some(piece) = self.of_version(length) {
            return Ok(Some(piece));
        }
        if !self.lease.stalls
            && let Some(piece) = self.at_once(length, unread)?
        {
            return Ok(Some(piece));
        }
        let (file, at, pinned) = (self.file.clone(), self.at, self.pinned);
        let read = move || {
            let mut bytes = vec![0; length];
            let read = file.read(&mut bytes, at).map_err(Error::unplaced)?;
            bytes.truncate(read);
            // After the bytes: what was written before they were read shows by now.
            look_at(&file, pinned)?;
            Ok(bytes)
        };
        let volume = &self.lease.volume;
        let bytes = volume.apart(volume.sys_deadline(), read).await?;
        Ok((!bytes.is_empty()).then(|| Piece::Bytes(bytes.into())))
    }

    /// Returns the next bytes if those of the version are known.
    fn of_version(&self, length: usize) -> Option<Piece> {
        let (bytes, at) = (self.bytes.as_ref()?, usize::try_from(self.at).ok()?);
        bytes.get(at..at.checked_add(length)?).map(|piece| Piece::Bytes(bytes.slice_ref(piece)))
    }

    /// Returns the next bytes if they are all there, and in memory.
    fn at_once(&self, length: usize, unread: Option<u64>) -> Result<Option<Piece>> {
        let must_copy = self.pinned.is_some() && !self.may_send_pages(length, unread);
        let length = if must_copy { length.min(COPY_BYTES) } else { length };
        if (must_copy || length <= COPIED_BYTES_MAX)
            && let Some(bytes) = self.file.read_at_once(self.at, length)
        {
            self.look()?;
            return Ok(Some(Piece::Bytes(bytes.into())));
        }
        if must_copy {
            return Ok(None);
        }
        self.look()?;
        let end = self.at + length as u64;
        // The length of one version is in what was looked at.
        let is_cut = self.pinned.is_none() && self.file.len().map_err(Error::unplaced)? < end;
        if is_cut || !self.file.resident(self.at, length as u64) {
            return Ok(None);
        }
        Ok(Some(Piece::File { file: self.file.clone(), at: self.at, length }))
    }

    /// What is written later shows in pages that a socket was handed, until they have been read. So of one version
    /// pages go only if more bytes come after them than may be unread: once those are sent, as copies, and the file
    /// is what it was, the pages have been read as they were. Decision 031.
    fn may_send_pages(&self, length: usize, unread: Option<u64>) -> bool {
        let after = self.left.saturating_sub(length as u64);
        unread.is_some_and(|unread| after >= unread.saturating_add(limits::PIECE_BYTES_MAX as u64))
    }

    /// Notes what was handed out.
    fn passed(&mut self, answer: Result<Option<Piece>>) -> Result<Option<Piece>> {
        advance(&answer, &mut self.at, &mut self.left);
        answer.map_err(|e| e.op("read").about(self.lease.id))
    }

    fn look(&self) -> Result<()> {
        look_at(&self.file, self.pinned)
    }
}

/// A pinned open sees one version, or says that it cannot.
fn look_at(file: &RealFile, pinned: Option<Stamp>) -> Result<()> {
    let Some(then) = pinned else { return Ok(()) };
    if file.stamp().map_err(Error::unplaced)? == then { Ok(()) } else { Err(changed_while_read()) }
}

#[async_trait]
impl Source for FileSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let answer = self.pull(max, None).await;
        self.passed(answer)
    }

    async fn next_to_send(&mut self, max: usize, unread: u64) -> Result<Option<Piece>> {
        let answer = self.pull(max, Some(unread)).await;
        self.passed(answer)
    }

    fn length(&self) -> Option<u64> {
        Some(self.left)
    }

    fn stopped(&self) -> Stopped {
        let lease = self.lease.clone();
        Box::pin(async move { lease.stopped().await.op("read") })
    }
}
