//! What is sent into the tree: the bytes of a local file, or of another file of the tree.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::form::{OpenFile, Piece, Source, Stopped};
use weft_core::{Error, Result};

use super::Progress;
use super::local::{LocalFile, LocalSource};
use super::verified::Verified;
use crate::Client;

/// A file whose bytes are sent.
pub enum Contents<'a> {
    /// One of this machine.
    Local(Arc<LocalFile>),
    /// One of the tree, open pinned to a version of so many bytes, and what errors call it.
    Tree(Arc<dyn OpenFile>, u64, &'a str),
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
        let (below, shown): (Box<dyn Source + 'a>, _) = match self {
            Self::Local(file) => (Box::new(LocalSource::new(file.clone(), at, end)), None),
            Self::Tree(file, size, shown) => {
                let read = Verified::begin(client, file, *size, (at, end)).await;
                (Box::new(read.map_err(|e| unreadable(e, shown))?), Some(*shown))
            }
        };
        Ok(Digested { below, shown, hasher, progress })
    }
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
    /// What errors call a file of the tree.
    shown: Option<&'a str>,
    hasher: &'a mut blake3::Hasher,
    progress: &'a Progress,
}

#[async_trait]
impl Source for Digested<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let piece = self.below.next(max).await.and_then(|piece| piece.map(Piece::into_bytes).transpose());
        let piece = piece.map_err(|e| match self.shown {
            Some(shown) => unreadable(e, shown),
            None => e,
        });
        let Some(bytes) = piece? else { return Ok(None) };
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
