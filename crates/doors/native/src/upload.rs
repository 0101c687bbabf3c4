//! An upload: a source whose bytes the server asks for as it has room (law of
//! server-directed movement: the server says when and how much).

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Deadline, Error, ErrorKind, ErrorReport, Result, limits};
use weft_mover::Pace;
use weft_rpc::{Frame, ToClient};

use crate::connection::Replies;

/// What the reader hands on of an upload.
pub(crate) enum Arrived {
    Bytes { bytes: Bytes, end: bool },
    Aborted(ErrorReport),
}

pub(crate) struct Upload {
    stream: u32,
    replies: Replies,
    arrived: mpsc::Receiver<Arrived>,
    ready: Bytes,
    granted: u32,
    /// However often a byte comes: a client that brings too few of them is given up.
    pace: Pace,
    ended: bool,
}

impl Upload {
    pub(crate) fn new(stream: u32, replies: Replies, arrived: mpsc::Receiver<Arrived>) -> Self {
        Self { stream, replies, arrived, ready: Bytes::new(), granted: 0, pace: Pace::START, ended: false }
    }

    async fn receive(&mut self) -> Result<()> {
        if self.granted == 0 {
            self.granted = limits::RPC_WINDOW_BYTES;
            self.replies.send(Frame::new(self.stream, &ToClient::Grant(self.granted), Bytes::new())).await?;
        }
        match self.wait().await? {
            Arrived::Bytes { bytes, end } => {
                let left = self.granted.checked_sub(bytes.len() as u32);
                self.granted =
                    left.ok_or_else(|| Error::invalid("the client sent more than it was granted"))?;
                (self.ready, self.ended) = (bytes, end);
                Ok(())
            }
            Arrived::Aborted(report) => {
                self.ended = true;
                Err(report.into())
            }
        }
    }

    /// Waits for the client. Fails with `Deadline` if it brings too little for too long.
    async fn wait(&mut self) -> Result<Arrived> {
        let sys = self.replies.sys();
        let (begun, until) = (sys.clock().tick(), Deadline::within(sys.clock(), self.pace.left()));
        let gone = || Error::new(ErrorKind::Unavailable, "the client went away in the middle of its upload");
        let arrived = sys.within(until, async { self.arrived.recv().await.ok_or_else(gone) }).await?;
        let brought = if let Arrived::Bytes { bytes, .. } = &arrived { bytes.len() } else { 0 };
        self.pace.waited(sys.clock().tick().since(begun), brought);
        Ok(arrived)
    }
}

#[async_trait]
impl Source for Upload {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        while self.ready.is_empty() {
            if self.ended {
                return Ok(None);
            }
            self.receive().await?;
        }
        Ok(Some(Piece::Bytes(self.ready.split_to(self.ready.len().min(max)))))
    }

    fn length(&self) -> Option<u64> {
        None
    }

    /// Never ends by itself: whoever writes re-checks its right for every piece.
    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}
