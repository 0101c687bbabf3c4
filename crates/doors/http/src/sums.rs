//! Digests of whole files: computed when somebody asks, remembered by file and version.

use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use weft_core::attr::Version;
use weft_core::form::{Call, Opened, Piece, Range};
use weft_core::{Error, ErrorKind, FileId, Result, limits};
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
    /// Makes a store of at most `kept` digests that computes `at_once` at a time.
    pub fn new(kept: usize, at_once: usize) -> Self {
        Self { known: Cache::new(kept), at_once: Semaphore::new(at_once) }
    }

    /// Returns the digest of an open file. The open is pinned, so it is of one version.
    pub async fn of(&self, sys: &Sys, call: &Call, opened: &Opened, algorithm: Algorithm) -> Result<Value> {
        let key = (opened.attr.id, opened.attr.version, algorithm);
        if let Some(value) = self.known.get(&key) {
            return Ok(value);
        }
        let turn =
            async { self.at_once.acquire().await.map_err(|_| Error::internal("digests are never closed")) };
        let _turn = sys.within(call.until, turn).await?;
        if let Some(value) = self.known.get(&key) {
            return Ok(value);
        }
        let value = compute(sys, call, opened, algorithm).await?;
        self.known.insert(key, value.clone());
        Ok(value)
    }
}

async fn compute(sys: &Sys, call: &Call, opened: &Opened, algorithm: Algorithm) -> Result<Value> {
    let mut source = opened.file.read(call, Range::ALL).await?;
    let mut sum = Sum::new(algorithm);
    let mut bytes = 0;
    while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? {
        bytes += piece.length() as u64;
        sum = take_in(sys, sum, piece).await?;
        // A hole is read as fast as memory: others must get their turn, and an end.
        tokio::task::yield_now().await;
        if call.until.passed(sys.clock()) {
            let detail = "the digest of the file takes longer than a request may";
            return Err(Error::new(ErrorKind::Deadline, detail));
        }
    }
    if bytes != opened.attr.size {
        return Err(Error::corrupt("the stored bytes end too early"));
    }
    Ok(sum.finish())
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
