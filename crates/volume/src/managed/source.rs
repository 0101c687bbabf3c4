//! Sources of a file's bytes: inline ones, an object's, and those on their way in.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{Piece, Range, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, limits};

use super::files::Unwritten;
use super::lease::{Lease, is_of_another_moment};

/// As much of one version is copied at once: what was read is in the processor's own memory still when it is sent.
pub(crate) const COPY_BYTES: usize = 256 << 10;

/// Zeros to hand out for what was never written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes in memory and zeros after them.
pub(super) struct InlineSource {
    pub(super) lease: Arc<Lease>,
    pub(super) bytes: Bytes,
    pub(super) zeros: u64,
}

#[async_trait]
impl Source for InlineSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.bytes.is_empty() && self.zeros == 0 {
            return Ok(None);
        }
        if let Err(error) = self.lease.check() {
            (self.bytes, self.zeros) = (Bytes::new(), 0);
            return Err(error.op("read"));
        }
        let max = max.clamp(1, limits::PIECE_BYTES_MAX);
        if !self.bytes.is_empty() {
            let length = self.bytes.len().min(max);
            return Ok(Some(Piece::Bytes(self.bytes.split_to(length))));
        }
        let length = max.min(ZEROS.len()).min(usize::try_from(self.zeros).unwrap_or(usize::MAX));
        self.zeros -= length as u64;
        Ok(Some(Piece::Bytes(Bytes::from_static(&ZEROS[..length]))))
    }

    fn length(&self) -> Option<u64> {
        Some(self.bytes.len() as u64 + self.zeros)
    }

    fn stopped(&self) -> Stopped {
        let lease = self.lease.clone();
        Box::pin(async move { lease.stopped().await.op("read") })
    }
}

/// Bytes of an object. When the proof behind them is withdrawn and the right is not,
/// it goes on with another proof where it was.
pub(super) struct ObjectSource {
    pub(super) lease: Arc<Lease>,
    pub(super) inner: Box<dyn Source>,
    pub(super) at: u64,
    pub(super) left: u64,
    /// For a pinned open: whether the file was written since.
    pub(super) unwritten: Option<Unwritten>,
}

impl ObjectSource {
    async fn pull(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.lease.check()? {
            self.reopen().await?;
        }
        match self.inner.next(max).await {
            Err(error)
                if matches!(error.kind(), ErrorKind::Revoked | ErrorKind::Expired | ErrorKind::Denied) =>
            {
                self.lease.renew()?;
                self.reopen().await?;
                self.inner.next(max).await
            }
            answer => answer,
        }
    }

    async fn reopen(&mut self) -> Result<()> {
        let range = Range { at: self.at, length: Some(self.left) };
        let (lease, store) = (&self.lease, &self.lease.volume.store);
        self.inner = match store.read(&lease.granted(), lease.object, range).await {
            Err(error) if is_of_another_moment(&error) => {
                lease.volume.label_is_through(lease.id).await;
                lease.renew()?;
                store.read(&lease.granted(), lease.object, range).await?
            }
            answer => answer?,
        };
        Ok(())
    }

    /// As many bytes as are handed out at once.
    fn most(&self, max: usize) -> usize {
        if self.copies() { max.min(COPY_BYTES) } else { max }
    }

    /// Whether pages of it could show what is written later, before they are read: decision 031.
    fn copies(&self) -> bool {
        self.unwritten.as_ref().is_some_and(Unwritten::is_in_use)
    }

    /// A pinned open sees one version, or says that it cannot.
    fn of_one_version(&self, piece: Option<Piece>) -> Result<Option<Piece>> {
        let piece = match piece {
            Some(piece) if self.copies() => piece.into_bytes().map(|bytes| Some(Piece::Bytes(bytes))),
            piece => Ok(piece),
        };
        // After the copy: what it may have met of a later version shows by now.
        if self.unwritten.as_ref().is_none_or(Unwritten::still) { piece } else { Err(changed_while_read()) }
    }
}

/// What a pinned open says where its version is gone.
pub(crate) fn changed_while_read() -> Error {
    Error::new(ErrorKind::Conflict, "the file changed while it was read")
}

/// Notes what was handed out of a range: where it goes on, and how much is left. After an error or the end
/// nothing is.
pub(crate) fn advance(answer: &Result<Option<Piece>>, at: &mut u64, left: &mut u64) {
    match answer {
        Ok(Some(piece)) => {
            *at += piece.length() as u64;
            *left = left.saturating_sub(piece.length() as u64);
        }
        Ok(None) | Err(_) => *left = 0,
    }
}

#[async_trait]
impl Source for ObjectSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.left == 0 {
            return Ok(None);
        }
        let answer = match self.pull(self.most(max)).await {
            Ok(piece) => self.of_one_version(piece),
            Err(error) => Err(error),
        };
        advance(&answer, &mut self.at, &mut self.left);
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

/// Is shown every byte that passes.
pub(super) type Tap<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// Says whether so many more bytes may pass.
pub(super) type Admit<'a> = &'a mut (dyn FnMut(u64) -> Result<()> + Send);

/// Bytes on their way in: what was pulled already first, then the rest, each piece
/// after a look at the right, up to what there is room for. It remembers its last
/// piece, so that a write which was interrupted can go on.
pub(super) struct Inbound<'a> {
    pub(super) check: &'a (dyn Fn() -> Result<()> + Send + Sync),
    pub(super) first: Option<Bytes>,
    pub(super) rest: &'a mut dyn Source,
    /// Bytes that there is room for, and what to say when there are more.
    pub(super) room: u64,
    pub(super) full: fn() -> Error,
    /// Bytes handed out so far.
    pub(super) passed: u64,
    pub(super) last: Option<Bytes>,
    /// Why the source itself failed, if it did: what came before is kept.
    pub(super) failed: Option<Error>,
    /// Looks at every piece that was taken.
    pub(super) tap: Option<Tap<'a>>,
    /// Is asked before so many more bytes are handed out.
    pub(super) admit: Option<Admit<'a>>,
    /// Bytes that may pass: a piece that is handed out again is not asked for again.
    admitted: u64,
}

impl<'a> Inbound<'a> {
    pub(super) fn new(
        check: &'a (dyn Fn() -> Result<()> + Send + Sync),
        first: Option<Bytes>,
        rest: &'a mut dyn Source,
        room: u64,
    ) -> Self {
        Self {
            check,
            first,
            rest,
            room,
            full: no_room,
            passed: 0,
            last: None,
            failed: None,
            tap: None,
            admit: None,
            admitted: 0,
        }
    }

    /// Hands the last piece out again: the write that took it was refused.
    pub(super) fn push_back(&mut self) {
        if let Some(last) = self.last.take() {
            self.passed -= last.len() as u64;
            self.first = Some(match self.first.take() {
                Some(first) => [last, first].concat().into(),
                None => last,
            });
        }
    }

    async fn pull(&mut self, max: usize) -> Result<Option<Bytes>> {
        (self.check)()?;
        if let Some(first) = &mut self.first {
            let piece = first.split_to(first.len().min(max));
            if first.is_empty() {
                self.first = None;
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        match self.rest.next(max).await? {
            Some(piece) => piece.into_bytes().map(Some),
            None => Ok(None),
        }
    }
}

#[async_trait]
impl Source for Inbound<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        // Asking for more says that the last piece was taken.
        if let (Some(last), Some(tap)) = (self.last.take(), &mut self.tap) {
            tap(&last);
        }
        if self.failed.is_some() {
            return Ok(None);
        }
        let piece = match self.pull(max.clamp(1, limits::PIECE_BYTES_MAX)).await {
            Ok(piece) => piece,
            // To the store that is an end: it keeps what came before.
            Err(error) => {
                self.failed = Some(error);
                return Ok(None);
            }
        };
        let Some(bytes) = piece else { return Ok(None) };
        if self.passed + bytes.len() as u64 > self.room {
            self.failed = Some((self.full)());
            return Ok(None);
        }
        let more = (self.passed + bytes.len() as u64).saturating_sub(self.admitted);
        if let Some(admit) = &mut self.admit
            && let Err(error) = admit(more)
        {
            self.failed = Some(error);
            return Ok(None);
        }
        self.admitted += more;
        self.passed += bytes.len() as u64;
        self.last = Some(bytes.clone());
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        self.rest.length().map(|rest| rest + first)
    }

    fn stopped(&self) -> Stopped {
        self.rest.stopped()
    }
}

pub(super) fn no_room() -> Error {
    Error::new(ErrorKind::NoSpace, "the container's limit leaves no room for more")
        .hint("raise the limit or remove files")
}
