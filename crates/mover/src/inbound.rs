//! From a door to whoever stores.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::metrics::Flow;
use weft_core::{Error, Result, limits};

use crate::transfer::{Direction, Listed};
use crate::{Class, Mover, Permit, cancelled, stalled};

/// What a door makes of the bytes it receives: the body of a request, without its framing.
#[async_trait]
pub trait Incoming: Send {
    /// Waits for bytes and returns at most `max` of them; `None` at the body's end. Fails if the
    /// other end breaks off before that: a body that is not whole never ends well.
    async fn receive(&mut self, max: usize) -> Result<Option<Bytes>>;

    /// Returns how many bytes are left, if that is known.
    fn left(&self) -> Option<u64>;
}

/// A source of what a door receives. It waits for its share before each piece; the slot goes back when the next
/// piece is asked for: who asks once a piece is stored has that in its turn as well.
///
/// Only the time that the sender was waited for counts against it: whoever stores may be slow.
pub struct Inbound<'a> {
    mover: &'a Mover,
    incoming: &'a mut dyn Incoming,
    listed: Listed<'a>,
    /// What came and was not handed out: whoever stores may give a wait for its turn up and ask
    /// again, as it does when policy changes.
    received: Option<Bytes>,
    permit: Option<Permit<'a>>,
    stopped: Stopped,
    pace: Pace,
    ended: bool,
}

/// How long a sender may still be waited for, and what it has brought since that was settled: the
/// rule for every way in.
pub struct Pace {
    left: Duration,
    brought: u64,
}

impl Pace {
    /// That of a sender who has not been waited for yet.
    pub const START: Self = Self { left: limits::TRANSFER_IDLE, brought: 0 };

    /// Returns how much longer the sender may be waited for.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// Counts a wait, and the bytes that it brought.
    pub fn waited(&mut self, span: Duration, brought: usize) {
        self.left = self.left.saturating_sub(span);
        self.brought += brought as u64;
        if self.brought >= limits::TRANSFER_PROGRESS_BYTES {
            *self = Self::START;
        }
    }
}

impl<'a> Inbound<'a> {
    pub(crate) fn begin(
        mover: &'a Mover,
        class: Class,
        incoming: &'a mut dyn Incoming,
        stopped: Stopped,
    ) -> Result<Self> {
        let begun = mover.sys.clock().tick();
        let listed = mover.transfers.enter(class, Direction::Inbound, incoming.left(), begun)?;
        let (received, permit, pace) = (None, None, Pace::START);
        Ok(Self { mover, incoming, listed, received, permit, stopped, pace, ended: false })
    }

    async fn receive(&mut self, max: usize) -> Result<Option<Bytes>> {
        let (transfer, sys) = (&self.listed.transfer, &self.mover.sys);
        transfer.check()?;
        let begun = sys.clock().tick();
        let received = tokio::select! {
            biased;
            why = &mut self.stopped => Err(why),
            () = transfer.cancelled() => Err(cancelled()),
            bytes = self.incoming.receive(max) => bytes,
            () = sys.sleep_until(begun.plus(self.pace.left())) => Err(stalled()),
        }?;
        self.pace.waited(sys.clock().tick().since(begun), received.as_ref().map_or(0, Bytes::len));
        Ok(received)
    }

    async fn turn(&mut self) -> Result<Permit<'a>> {
        let small = self.incoming.left().unwrap_or(u64::MAX);
        if let Some(permit) = self.mover.admit(small) {
            return Ok(permit);
        }
        tokio::select! {
            biased;
            permit = self.mover.turns.slot() => Ok(permit),
            why = &mut self.stopped => Err(why),
            () = self.listed.transfer.cancelled() => Err(cancelled()),
        }
    }

    async fn pull(&mut self, max: usize) -> Result<Option<Bytes>> {
        self.permit = None;
        if self.received.is_none() {
            self.received = self.receive(max).await?;
        }
        if self.received.is_none() {
            return Ok(None);
        }
        self.permit = Some(self.turn().await?);
        // From here on there is nothing to wait for: what is taken is handed out.
        let Some(mut bytes) = self.received.take() else { return Ok(None) };
        let piece = bytes.split_to(bytes.len().min(max));
        self.received = Some(bytes).filter(|rest| !rest.is_empty());
        self.listed.transfer.moved(piece.len() as u64);
        self.mover.sys.metrics().mover_moved.add((Flow::In,), piece.len() as u64);
        Ok(Some(piece))
    }
}

#[async_trait]
impl Source for Inbound<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.ended {
            return Ok(None);
        }
        let pulled = self.pull(max.min(limits::PIECE_BYTES_MAX)).await;
        self.ended = !matches!(pulled, Ok(Some(_)));
        Ok(pulled?.map(Piece::Bytes))
    }

    fn length(&self) -> Option<u64> {
        let received = self.received.as_ref().map_or(0, Bytes::len) as u64;
        self.incoming.left().map(|left| left + received)
    }

    /// Never ends: the source's own waits fail when it must stop.
    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending::<Error>())
    }

    fn yield_turn(&mut self) {
        self.permit = None;
    }
}
