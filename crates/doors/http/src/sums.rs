//! Digests of whole files: computed when somebody asks, remembered by file and version. Many are
//! computed in turns, a piece each, so that no large file keeps the digest of a small one waiting.

use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use weft_core::attr::Version;
use weft_core::form::{Call, Opened, Piece, Range};
use weft_core::{Deadline, Error, ErrorKind, FileId, Result, limits};
use weft_sys::Sys;

use crate::codec::digest::{Algorithm, Sum, Value};

/// Pieces smaller than this are summed up where they are; larger ones where they hold nobody up.
const INLINE_BYTES: usize = 64 << 10;

type Key = (FileId, Version, Algorithm);

/// The digests of one door.
pub struct Sums {
    known: Cache<Key, Value>,
    at_once: Semaphore,
}

impl Sums {
    /// Makes a store of at most `kept` digests that takes in `at_once` pieces at a time.
    pub fn new(kept: usize, at_once: usize) -> Self {
        Self { known: Cache::new(kept), at_once: Semaphore::new(at_once) }
    }

    /// Returns the digest of an open file; none if that takes longer than `until`. The open is
    /// pinned, so it is of one version.
    pub async fn of(
        &self,
        sys: &Sys,
        call: &Call,
        opened: &Opened,
        algorithm: Algorithm,
        until: Deadline,
    ) -> Result<Option<Value>> {
        let key = (opened.attr.id, opened.attr.version, algorithm);
        if let Some(value) = self.known.get(&key) {
            return Ok(Some(value));
        }
        match sys.within(until, self.compute(sys, call, opened, key)).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::Deadline => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn compute(&self, sys: &Sys, call: &Call, opened: &Opened, key: Key) -> Result<Value> {
        let mut source = opened.file.read(call, Range::ALL).await?;
        let (mut sum, mut bytes) = (Sum::new(key.2), 0);
        loop {
            let turn =
                self.at_once.acquire().await.map_err(|_| Error::internal("digests are never closed"))?;
            // Whoever began before may have it by now.
            if let Some(value) = self.known.get(&key) {
                return Ok(value);
            }
            let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? else { break };
            bytes += piece.length() as u64;
            sum = take_in(sys, sum, piece).await?;
            drop(turn);
            // A hole is read as fast as memory: others must get their turn, and this an end.
            tokio::task::yield_now().await;
        }
        if bytes != opened.attr.size {
            return Err(Error::corrupt("the stored bytes end too early"));
        }
        let value = sum.finish();
        self.known.insert(key, value.clone());
        Ok(value)
    }
}

async fn take_in(sys: &Sys, mut sum: Sum, piece: Piece) -> Result<Sum> {
    if piece.length() <= INLINE_BYTES {
        sum.update(&piece.into_bytes()?);
        return Ok(sum);
    }
    let add = move || {
        sum.update(&piece.into_bytes()?);
        Ok(sum)
    };
    sys.blocking(add).await?
}
