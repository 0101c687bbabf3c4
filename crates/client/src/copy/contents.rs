//! What is sent into the tree: the bytes of a local file, or of another file of the tree.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::Attr;
use weft_core::form::{OpenFile, OpenedFile, Piece, Seek, Source, Stopped};
use weft_core::{Error, ErrorKind, Result};
use weft_sys::local::{is_sparse, next_bytes};

use super::Progress;
use super::local::{LocalFile, LocalSource};
use super::verified::{BLOCK_BYTES, Digests, Verified};
use crate::Client;

/// A file whose bytes are sent.
pub enum Contents<'a> {
    /// One of this machine.
    Local(Arc<LocalFile>),
    /// One of the tree, open pinned to a version with these attributes, and what errors call it.
    Tree(Arc<dyn OpenFile>, Attr, &'a str),
}

impl Contents<'_> {
    /// Reads `at..end`, feeding every byte to `hasher` and counting it in `progress`.
    pub async fn read<'a>(
        &'a self,
        client: &'a Client,
        at: u64,
        end: u64,
        hasher: &'a mut blake3::Hasher,
        progress: &'a Progress,
    ) -> Result<Digested<'a>> {
        let below = self.source(client, at, end).await?;
        Ok(Digested { below, contents: self, hasher, progress })
    }

    /// Reads `at..end`.
    pub async fn source<'a>(&'a self, client: &'a Client, at: u64, end: u64) -> Result<Box<dyn Source + 'a>> {
        match self {
            Self::Local(file) => Ok(Box::new(LocalSource::new(file.clone(), at, end))),
            Self::Tree(file, attr, _) => {
                let read = Verified::begin(client, file, attr.size, (at, end)).await;
                Ok(Box::new(read.map_err(|e| self.unreadable(e))?))
            }
        }
    }

    /// Returns whether it has holes, or at least takes less of a disk than it is long.
    pub async fn is_sparse(&self, client: &Client) -> Result<bool> {
        match self {
            Self::Local(file) => is_sparse(&file.0),
            Self::Tree(_, attr, _) if attr.used >= attr.size => Ok(false),
            Self::Tree(file, attr, _) => match file.seek(&client.call(), 0, Seek::Hole).await {
                Ok(hole) => Ok(hole < attr.size),
                Err(e) if e.kind() == ErrorKind::Unsupported => Ok(false),
                Err(e) => Err(self.unreadable(e)),
            },
        }
    }

    /// Returns the next run of bytes at or behind a place that is no hole, or `None` if there is none
    /// before the end. It may end behind what the file was when it was opened.
    pub async fn next_run(&self, client: &Client, at: u64) -> Result<Option<(u64, u64)>> {
        match self {
            Self::Local(file) => next_bytes(&file.0, at),
            Self::Tree(file, attr, _) => {
                next_run(client, &**file, attr.size, at).await.map_err(|e| self.unreadable(e))
            }
        }
    }

    /// Returns digests of its blocks.
    pub fn sums<'a>(&'a self, client: &'a Client) -> Sums<'a> {
        match self {
            Self::Local(file) => Sums::Made(file),
            Self::Tree(file, ..) => Sums::Kept(Digests::new(client, file.clone()), self),
        }
    }

    /// Says of an error that it was met in reading what is sent.
    pub fn unreadable(&self, error: Error) -> Error {
        match self {
            Self::Local(_) => error,
            Self::Tree(_, _, shown) => unreadable(error, shown),
        }
    }
}

/// Digests of the blocks of what is sent: made here of a local file, the node's own of one of the tree.
pub enum Sums<'a> {
    Made(&'a LocalFile),
    Kept(Digests<'a>, &'a Contents<'a>),
}

impl Sums<'_> {
    /// Returns the digest of a block of a file of `size` bytes.
    pub async fn of(&mut self, block: u64, size: u64) -> Result<[u8; 32]> {
        let file = match self {
            Self::Made(file) => file,
            Self::Kept(digests, contents) => {
                return digests.of(block).await.map_err(|e| contents.unreadable(e));
            }
        };
        let at = block * BLOCK_BYTES;
        let mut bytes = vec![0; BLOCK_BYTES.min(size - at) as usize];
        if file.read_at(&mut bytes, at).map_err(super::local::unreadable)? < bytes.len() {
            return Err(Error::new(ErrorKind::Conflict, "the local file became shorter"));
        }
        Ok(*blake3::hash(&bytes).as_bytes())
    }
}

/// Returns the next blocks of a file of the tree of `size` bytes that hold bytes, from a place on that
/// begins one; `None` if there are none.
pub async fn next_run(
    client: &Client,
    file: &dyn OpenFile,
    size: u64,
    at: u64,
) -> Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let seek = async |from, what| file.seek(&client.call(), from, what).await;
    let begin = match seek(at, Seek::Data).await {
        Ok(begin) => begin,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(Some((at, size))),
        Err(e) => return Err(e),
    };
    let end = seek(begin, Seek::Hole).await?;
    Ok(Some(((begin - begin % BLOCK_BYTES).max(at), end.next_multiple_of(BLOCK_BYTES).min(size))))
}

/// Has a cause, so that nobody takes it for what the node says of the copy.
fn unreadable(error: Error, shown: &str) -> Error {
    let unread = Error::new(error.kind(), "the source cannot be read").said_of(shown);
    let unread = match error.advice() {
        Some(advice) => unread.hint(advice.to_owned()),
        None => unread,
    };
    unread.caused_by(error)
}

/// A range of a file, digested and counted as it is read.
pub struct Digested<'a> {
    below: Box<dyn Source + 'a>,
    contents: &'a Contents<'a>,
    hasher: &'a mut blake3::Hasher,
    progress: &'a Progress,
}

#[async_trait]
impl Source for Digested<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = self.below.next(max).await.and_then(|piece| piece.map(Piece::into_bytes).transpose());
        let Some(bytes) = piece.map_err(|e| self.contents.unreadable(e))? else { return Ok(None) };
        self.hasher.update(&bytes);
        self.progress.add_bytes(bytes.len() as u64)?;
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        self.below.length()
    }

    fn stopped(&self) -> Stopped {
        self.below.stopped()
    }
}
