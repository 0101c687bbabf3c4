//! What of an upload is put at once: so much, or what came in so long, is on disk before more is taken.

use async_trait::async_trait;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, Tick, limits};
use weft_sys::Sys;

/// The next bytes of a source.
pub struct Slice<'s, S> {
    sys: &'s Sys,
    source: &'s mut S,
    /// Returns when whoever waits for something else than the source is to stop.
    stopped: &'s (dyn Fn() -> Stopped + Sync),
    /// Bytes that the upload may still have.
    room: u64,
    passed: u64,
    until: Tick,
    ended: bool,
}

impl<'s, S: Source> Slice<'s, S> {
    /// Begins with what comes next.
    pub fn new(
        sys: &'s Sys,
        source: &'s mut S,
        room: u64,
        stopped: &'s (dyn Fn() -> Stopped + Sync),
    ) -> Self {
        let until = sys.clock().tick().plus(limits::UPLOAD_SLICE_WITHIN);
        Self { sys, source, stopped, room, passed: 0, until, ended: false }
    }

    /// Returns how many bytes it had.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Returns whether the source has no more.
    pub fn is_last(&self) -> bool {
        self.ended || self.source.length() == Some(0)
    }

    fn left(&self) -> u64 {
        limits::UPLOAD_SLICE_BYTES.saturating_sub(self.passed).min(self.room)
    }

    /// A slice holds something: else a slow sender would have nothing but ends of slices put.
    fn is_full(&self) -> bool {
        self.passed >= limits::UPLOAD_SLICE_BYTES
            || (self.passed > 0 && self.sys.clock().tick() >= self.until)
    }
}

#[async_trait]
impl<S: Source> Source for Slice<'_, S> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.ended || self.is_full() {
            return Ok(None);
        }
        let at_most = usize::try_from(self.left()).unwrap_or(usize::MAX).min(max);
        let Some(piece) = self.source.next(at_most.max(1)).await? else {
            self.ended = true;
            return Ok(None);
        };
        let bytes = piece.length() as u64;
        self.room = self.room.checked_sub(bytes).ok_or_else(too_much)?;
        if self.room == 0 {
            // Kept back until there is no more: an upload that is whole becomes a file when somebody looks, and
            // this one would be cut short.
            if self.source.next(1).await?.is_some() {
                return Err(too_much());
            }
            self.ended = true;
        }
        self.passed += bytes;
        Ok(Some(piece))
    }

    fn length(&self) -> Option<u64> {
        self.source.length().map(|length| length.min(self.left()))
    }

    fn stopped(&self) -> Stopped {
        (self.stopped)()
    }

    fn yield_turn(&mut self) {
        self.source.yield_turn();
    }
}

fn too_much() -> Error {
    Error::new(ErrorKind::TooLarge, "more bytes came than the upload was to have")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use weft_core::form::BytesSource;

    use super::*;

    fn never() -> Stopped {
        Box::pin(std::future::pending())
    }

    async fn pull(slice: &mut Slice<'_, BytesSource>, max: usize) -> Result<usize> {
        Ok(slice.next(max).await?.map_or(0, |piece| piece.length()))
    }

    #[tokio::test]
    async fn a_slice_ends_after_its_bytes_or_its_time_and_the_next_goes_on_there() {
        let sys = Sys::simulated(1);
        let clock = sys.sim_clock().expect("it is simulated").clone();
        let whole = usize::try_from(limits::UPLOAD_SLICE_BYTES).expect("it fits") + 10;
        let mut source = BytesSource::new(Bytes::from(vec![7; whole]));
        let mut slice = Slice::new(&sys, &mut source, whole as u64, &never);
        let mut got = 0;
        loop {
            match pull(&mut slice, 1 << 20).await.expect("memory") {
                0 => break,
                bytes => got += bytes as u64,
            }
        }
        assert_eq!((got, slice.passed(), slice.is_last()), (limits::UPLOAD_SLICE_BYTES, got, false));
        let mut slice = Slice::new(&sys, &mut source, 10, &never);
        assert_eq!(slice.length(), Some(10));
        clock.step(limits::UPLOAD_SLICE_WITHIN + Duration::from_secs(1));
        assert_eq!(pull(&mut slice, 3).await.expect("memory"), 3, "something, however late it comes");
        assert_eq!(pull(&mut slice, 3).await.expect("memory"), 0, "its time is over");
        let mut slice = Slice::new(&sys, &mut source, 7, &never);
        assert_eq!(pull(&mut slice, 100).await.expect("memory"), 7);
        assert!(slice.is_last());
    }

    #[tokio::test]
    async fn of_more_bytes_than_there_is_room_for_never_as_many_are_handed_out() {
        let sys = Sys::real();
        for (room, handed_out, max) in [(0, 0, 100), (4, 0, 100), (4, 3, 1), (4, 2, 2)] {
            let mut source = BytesSource::new(&b"12345"[..]);
            let mut slice = Slice::new(&sys, &mut source, room, &never);
            let mut got = 0;
            let error = loop {
                match pull(&mut slice, max).await {
                    Ok(0) => panic!("it ended well"),
                    Ok(bytes) => got += bytes as u64,
                    Err(error) => break error,
                }
            };
            assert_eq!((got, error.kind()), (handed_out, ErrorKind::TooLarge));
        }
    }
}
