//! From a source to something that is no socket of a door.

use async_trait::async_trait;
use weft_core::Result;
use weft_core::form::{Piece, Source, Stopped};

use crate::transfer::{Direction, Listed};
use crate::{Class, Mover, Permit, cancelled};

/// A source whose pieces go on by a way of their own, to another server. Each waits for its turn; the slot goes back
/// when the next is asked for, or its turn is given back while something else is waited for.
pub struct Onward<'a> {
    mover: &'a Mover,
    source: Box<dyn Source + 'a>,
    listed: Listed<'a>,
    permit: Option<Permit<'a>>,
}

impl<'a> Onward<'a> {
    pub(crate) fn begin(mover: &'a Mover, class: Class, source: Box<dyn Source + 'a>) -> Result<Self> {
        let begun = mover.sys.clock().tick();
        let listed = mover.transfers.enter(class, Direction::Outbound, source.length(), begun)?;
        Ok(Self { mover, source, listed, permit: None })
    }
}

async fn turn(mover: &Mover, left: Option<u64>) -> Permit<'_> {
    match left.and_then(|left| mover.admit(left)) {
        Some(permit) => permit,
        None => mover.turns.slot().await,
    }
}

#[async_trait]
impl Source for Onward<'_> {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        self.permit = None;
        self.listed.transfer.check()?;
        self.permit = Some(turn(self.mover, self.source.length()).await);
        let piece = self.source.next(max).await?;
        self.listed.transfer.moved(piece.as_ref().map_or(0, Piece::length) as u64);
        Ok(piece)
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn stopped(&self) -> Stopped {
        let (stopped, transfer) = (self.source.stopped(), self.listed.transfer.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                why = stopped => why,
                () = transfer.cancelled() => cancelled(),
            }
        })
    }

    fn yield_turn(&mut self) {
        self.permit = None;
    }
}
