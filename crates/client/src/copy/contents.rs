//! What is sent into the tree: the bytes of a local file, or of another file of the tree.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::form::{OpenFile, Piece, Range, Source, Stopped};
use weft_core::{Error, Result, limits};

use super::Progress;
use super::local::{LocalFile, LocalSource};
use crate::Client;

/// A file whose bytes are sent.
pub enum Contents<'a> {
    /// One of this machine.
    Local(Arc<LocalFile>),
    /// One of the tree, open pinned to a version, and what errors call it.
    Tree(Arc<dyn OpenFile>, &'a str),
}

impl Contents<'_> {
    /// Reads `at..end`, feeding every byte to `hasher` and counting it in `progress`.
    pub async fn read<'a>(
        &'a self,
        client: &Client,
        at: u64,
        end: u64,
        hasher: &'a mut blake3::Hasher,
        progress: &'a Progress,
    ) -> Result<Digested<'a>> {
        let (below, shown): (Box<dyn Source>, _) = match self {
            Self::Local(file) => (Box::new(LocalSource::new(file.clone(), at, end)), None),
            Self::Tree(file, shown) => {
                let (call, length) = (client.call_within(limits::TRANSFER_WITHIN), Some(end - at));
                let read = file.read(&call, Range { at, length }).await;
                (read.map_err(|e| unreadable(e, shown))?, Some(*shown))
            }
        };
        Ok(Digested { below, shown, hasher, progress })
    }
}

/// Has a cause, so that nobody takes it for what the node says of the copy.
fn unreadable(error: Error, shown: &str) -> Error {
    Error::new(error.kind(), "the source cannot be read").said_of(shown).caused_by(error)
}

/// A range of a file, digested and counted as it is read.
pub struct Digested<'a> {
    below: Box<dyn Source>,
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
