//! Digests of whole files: computed when somebody asks, remembered by file and version. Many are
//! computed in turns, a piece each, so that no large file keeps the digest of a small one waiting; one
//! that many ask for is computed once, and goes on where it was when nobody waited any longer.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use quick_cache::sync::Cache;
use tokio::sync::{Mutex, Semaphore};
use weft_core::attr::Version;
use weft_core::form::{Call, Opened, Piece, Range, Source, Stopped};
use weft_core::{Deadline, Error, ErrorKind, FileId, Result, limits};
use weft_sys::{Sys, Task};

use crate::codec::digest::{Algorithm, Sum, Value};

/// Pieces smaller than this are summed up where they are; larger ones where they hold nobody up.
const INLINE_BYTES: usize = 64 << 10;

type Key = (FileId, Version, Algorithm);

/// The digests of one door.
pub struct Sums {
    known: Cache<Key, Value>,
    begun: Cache<Key, Arc<Mutex<Begun>>>,
    at_once: Semaphore,
}

/// A digest of the first bytes of a file. Who computes has it alone.
struct Begun {
    sum: Sum,
    bytes: u64,
}

impl Sums {
    /// Makes a store of at most `kept` digests that takes in `at_once` pieces at a time.
    pub fn new(kept: usize, at_once: usize) -> Self {
        let begun = Cache::new(limits::DIGESTS_BEGUN);
        Self { known: Cache::new(kept), begun, at_once: Semaphore::new(at_once) }
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
        let found = async {
            match self.told(call, opened, &key).await? {
                Some(value) => Ok(value),
                None => self.compute(sys, call, opened, key).await,
            }
        };
        match sys.within(until, found).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::Deadline => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a digest that was computed before. Who is told it has read the file as much as who
    /// computed it: a read is begun, which asks for the right and is recorded.
    async fn told(&self, call: &Call, opened: &Opened, key: &Key) -> Result<Option<Value>> {
        let Some(value) = self.known.get(key) else { return Ok(None) };
        opened.file.read(call, Range { at: 0, length: Some(0) }).await?;
        Ok(Some(value))
    }

    async fn compute(&self, sys: &Sys, call: &Call, opened: &Opened, key: Key) -> Result<Value> {
        let new = || Ok::<_, Error>(Arc::new(Mutex::new(Begun { sum: Sum::new(key.2), bytes: 0 })));
        let begun = self.begun.get_or_insert_with(&key, new)?;
        let mut begun = begun.lock().await;
        if let Some(value) = self.told(call, opened, &key).await? {
            return Ok(value);
        }
        let rest = Range { at: begun.bytes, length: None };
        let mut source = opened.file.read(call, rest).await?;
        loop {
            let turn =
                self.at_once.acquire().await.map_err(|_| Error::internal("digests are never closed"))?;
            let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? else { break };
            let bytes = piece.length() as u64;
            let sum = take_in(sys, begun.sum.clone(), piece).await?;
            // Only now: whoever goes away before leaves what was begun as it was.
            (begun.sum, begun.bytes) = (sum, begun.bytes + bytes);
            drop(turn);
            // A hole is read as fast as memory: others must get their turn, and this an end.
            tokio::task::yield_now().await;
        }
        if begun.bytes != opened.attr.size {
            return Err(Error::corrupt("the stored bytes end too early"));
        }
        let value = begun.sum.clone().finish();
        self.known.insert(key, value.clone());
        self.begun.remove(&key);
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

/// A source whose bytes are summed up as they pass. Whoever pulls may give a wait up and ask again:
/// nothing that was taken is lost by it.
pub struct Summed<'s, S> {
    sys: &'s Sys,
    source: S,
    sums: Vec<Sum>,
    /// What is being summed up, where that keeps nobody else from going on.
    under_way: Option<Task<(Vec<Sum>, Bytes)>>,
    /// What was summed up and not handed out.
    ready: Bytes,
}

impl<'s, S: Source> Summed<'s, S> {
    /// Begins with sums of nothing.
    pub fn new(sys: &'s Sys, source: S, sums: Vec<Sum>) -> Self {
        Self { sys, source, sums, under_way: None, ready: Bytes::new() }
    }

    /// Returns the sums of all that was taken; `None` if some of that was not handed out.
    pub fn finish(self) -> Option<Vec<Value>> {
        let is_through = self.under_way.is_none() && self.ready.is_empty();
        is_through.then(|| self.sums.into_iter().map(Sum::finish).collect())
    }

    /// Sums bytes up: at once if that is little work.
    fn sum_up(&mut self, bytes: Bytes) {
        let add = |sums: &mut Vec<Sum>, bytes: &Bytes| sums.iter_mut().for_each(|sum| sum.update(bytes));
        if self.sums.is_empty() || bytes.len() <= INLINE_BYTES {
            add(&mut self.sums, &bytes);
            self.ready = bytes;
            return;
        }
        let mut sums = std::mem::take(&mut self.sums);
        self.under_way = Some(self.sys.blocking(move || {
            add(&mut sums, &bytes);
            (sums, bytes)
        }));
    }
}

#[async_trait]
impl<S: Source> Source for Summed<'_, S> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.under_way.is_none() && self.ready.is_empty() {
            let Some(piece) = self.source.next(max).await? else { return Ok(None) };
            self.sum_up(piece.into_bytes()?);
        }
        if let Some(under_way) = &mut self.under_way {
            (self.sums, self.ready) = under_way.await?;
            self.under_way = None;
        }
        Ok(Some(Piece::Bytes(self.ready.split_to(self.ready.len().min(max)))))
    }

    fn length(&self) -> Option<u64> {
        if self.under_way.is_some() {
            return None;
        }
        self.source.length().map(|left| left + self.ready.len() as u64)
    }

    fn stopped(&self) -> Stopped {
        self.source.stopped()
    }

    fn yield_turn(&mut self) {
        self.source.yield_turn();
    }
}

#[cfg(test)]
mod tests {
    use weft_core::form::BytesSource;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_gives_a_wait_up_and_asks_again_loses_no_bytes_and_no_sum() {
        let bytes: Bytes = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
        let sys = Sys::real();
        let sums = vec![Sum::new(Algorithm::Sha256), Sum::new(Algorithm::Adler32)];
        let mut summed = Summed::new(&sys, BytesSource::new(bytes.clone()), sums);
        let (mut got, mut given_up) = (Vec::new(), 0);
        loop {
            let piece = tokio::select! {
                biased;
                piece = summed.next(1 << 20) => piece.expect("it is memory"),
                () = tokio::task::yield_now() => {
                    given_up += 1;
                    continue;
                }
            };
            let Some(piece) = piece else { break };
            // What is ready is handed out in smaller pieces, too.
            got.extend_from_slice(&piece.into_bytes().expect("memory"));
            if let Some(piece) = summed.next(1000).await.expect("memory") {
                got.extend_from_slice(&piece.into_bytes().expect("memory"));
            }
        }
        assert!(got == bytes && given_up > 0, "{} bytes, {given_up} given up", got.len());
        let sum = |algorithm| {
            let mut sum = Sum::new(algorithm);
            sum.update(&bytes);
            sum.finish()
        };
        assert_eq!(summed.finish(), Some(vec![sum(Algorithm::Sha256), sum(Algorithm::Adler32)]));
    }

    #[tokio::test]
    async fn sums_of_what_was_not_handed_out_are_none() {
        let sys = Sys::real();
        let source = BytesSource::new(&b"some bytes"[..]);
        let mut summed = Summed::new(&sys, source, vec![Sum::new(Algorithm::Md5)]);
        summed.sum_up(Bytes::from_static(b"some"));
        assert_eq!(summed.finish(), None);
    }
}
