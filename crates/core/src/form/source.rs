//! Bytes on their way: always pulled, a piece at a time.

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::limits;

/// A file of the machine below, open for reading: real ones have a descriptor, so
/// that the kernel can send them itself; simulated ones are copied.
pub trait OpenedFile: Send + Sync {
    /// Reads at an offset. Returns fewer bytes than asked only at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize>;

    /// Returns the descriptor, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Some bytes of a transfer.
#[derive(Clone)]
pub enum Piece {
    /// A range of an open file, to be sent without copying where that is possible.
    /// The whole range is there: a file that shrinks meanwhile is an error.
    File {
        /// The file.
        file: Arc<dyn OpenedFile>,
        /// The first byte.
        at: u64,
        /// How many.
        length: usize,
    },
    /// Bytes in memory.
    Bytes(Bytes),
}

impl Piece {
    /// Returns how many bytes it holds; never 0.
    pub fn length(&self) -> usize {
        match self {
            Self::File { length, .. } => *length,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Keeps the first `length` bytes, at least 1, and returns the others, if there are any.
    pub fn split_off(&mut self, length: usize) -> Option<Self> {
        if self.length() <= length {
            return None;
        }
        match self {
            Self::Bytes(bytes) => Some(Self::Bytes(bytes.split_off(length))),
            Self::File { file, at, length: all } => {
                let rest = Self::File { file: file.clone(), at: *at + length as u64, length: *all - length };
                *all = length;
                Some(rest)
            }
        }
    }

    /// Returns the bytes, reading them if they are still in a file. Fails with
    /// `Corrupt` if the file has become shorter, or with what reading it met.
    pub fn into_bytes(self) -> Result<Bytes> {
        if let Self::Bytes(bytes) = self {
            return Ok(bytes);
        }
        let mut buffer = vec![0; self.length()];
        self.read_into(&mut buffer)?;
        Ok(buffer.into())
    }

    /// Shows the bytes, those that are still in a file in parts: as few at a time as stay in what a processor has for
    /// itself. Fails as [`Self::into_bytes`] does, or with what `show` fails with.
    pub fn each_part(&self, mut show: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if let Self::Bytes(bytes) = self {
            return show(bytes);
        }
        let mut buffer = vec![0; limits::PIECE_PART_BYTES.min(self.length())];
        let mut rest = Some(self.clone());
        while let Some(mut part) = rest {
            rest = part.split_off(limits::PIECE_PART_BYTES);
            let bytes = &mut buffer[..part.length()];
            part.read_into(bytes)?;
            show(bytes)?;
        }
        Ok(())
    }

    /// Puts the bytes into a buffer that has their length. Fails as [`Self::into_bytes`] does.
    pub fn read_into(&self, buffer: &mut [u8]) -> Result<()> {
        let (file, at) = match self {
            Self::Bytes(bytes) => {
                buffer.copy_from_slice(bytes);
                return Ok(());
            }
            Self::File { file, at, .. } => (file, *at),
        };
        let read = file.read_at(buffer, at).map_err(|e| {
            Error::new(ErrorKind::Unavailable, "the stored bytes cannot be read").caused_by(e)
        })?;
        if read == buffer.len() { Ok(()) } else { Err(Error::corrupt("the stored bytes end too early")) }
    }
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { at, length, .. } => write!(f, "Piece::File({length} at {at})"),
            Self::Bytes(bytes) => write!(f, "Piece::Bytes({})", bytes.len()),
        }
    }
}

/// Ends when a transfer must stop although neither end asked for it: with `Revoked`
/// or `Expired` when the right is gone, `Unavailable` when the node stops.
pub type Stopped = Pin<Box<dyn Future<Output = Error> + Send>>;

/// Bytes to be pulled. Rights and seals are checked anew for every piece.
#[async_trait]
pub trait Source: Send {
    /// Returns the next piece, of at most `max` bytes (1 to 1 MiB), or `None` at the
    /// end. After an error or the end there is nothing more.
    async fn next(&mut self, max: usize) -> Result<Option<Piece>>;

    /// As [`Source::next`], for whoever hands files' pages to a socket, where somebody may write into them: `unread`
    /// bytes of those that were handed over last may not have been read by anybody when the next piece is pulled. So
    /// as many of the last ones must be bytes, of a source that is of one version.
    async fn next_to_send(&mut self, max: usize, _unread: u64) -> Result<Option<Piece>> {
        self.next(max).await
    }

    /// Returns how many bytes are left, if that is known.
    fn length(&self) -> Option<u64>;

    /// Returns a future that ends when the transfer must stop, so that whoever waits
    /// for a slow socket waits for this too.
    fn stopped(&self) -> Stopped;

    /// Gives back what is held for the piece handed out last: whoever pulls waits for something
    /// else now, and others may move theirs meanwhile.
    fn yield_turn(&mut self) {}
}

/// A source of bytes that are there already. Nothing stops it.
#[derive(Debug, Default)]
pub struct BytesSource(Option<Piece>);

impl BytesSource {
    /// Makes a source of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(Some(bytes.into()).filter(|bytes| !bytes.is_empty()).map(Piece::Bytes))
    }

    /// Makes a source of one piece, however long that is.
    pub fn of(piece: Piece) -> Self {
        Self(Some(piece))
    }
}

#[async_trait]
impl Source for BytesSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let Some(mut piece) = self.0.take() else { return Ok(None) };
        self.0 = piece.split_off(max.clamp(1, limits::PIECE_BYTES_MAX));
        Ok(Some(piece))
    }

    fn length(&self) -> Option<u64> {
        Some(self.0.as_ref().map_or(0, |piece| piece.length() as u64))
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

/// Pulls a source to its end. Fails with `TooLarge` beyond `max` bytes.
pub async fn pieces(source: &mut dyn Source, max: usize) -> Result<Vec<Piece>> {
    let (mut pieces, mut length) = (Vec::with_capacity(1), 0);
    while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? {
        length += piece.length();
        if length > max {
            return Err(Error::new(ErrorKind::TooLarge, "there are more bytes than may be held in memory"));
        }
        pieces.push(piece);
    }
    Ok(pieces)
}

/// The first bytes of a source, as far as they lie in files.
pub struct InFiles {
    source: Box<dyn Source>,
    ended: bool,
}

impl InFiles {
    /// Makes it of a source that nothing was pulled from.
    pub fn of(source: Box<dyn Source>) -> Self {
        Self { source, ended: false }
    }
}

#[async_trait]
impl Source for InFiles {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.ended {
            return Ok(None);
        }
        let piece = self.source.next(max).await?;
        let lies_in_a_file =
            |piece: &Piece| matches!(piece, Piece::File { file, .. } if file.descriptor().is_some());
        let piece = piece.filter(lies_in_a_file);
        self.ended = piece.is_none();
        Ok(piece)
    }

    /// Nobody knows before they are looked at.
    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        self.source.stopped()
    }
}

/// Returns the bytes of pieces, one after the other. Fails as [`Piece::into_bytes`] does.
pub fn joined(mut pieces: Vec<Piece>) -> Result<Bytes> {
    if pieces.len() <= 1 {
        return pieces.pop().map_or(Ok(Bytes::new()), Piece::into_bytes);
    }
    let mut bytes = Vec::with_capacity(pieces.iter().map(Piece::length).sum());
    for piece in pieces {
        bytes.extend_from_slice(&piece.into_bytes()?);
    }
    Ok(bytes.into())
}

/// Pulls a source to its end into memory. Fails with `TooLarge` beyond `max` bytes.
pub async fn collect(source: &mut dyn Source, max: usize) -> Result<Bytes> {
    joined(pieces(source, max).await?)
}
