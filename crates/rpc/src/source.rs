//! Bytes that arrive over a connection, pulled as we make room for them.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::proof::Caller;
use weft_core::{Deadline, Error, ErrorKind, Result, limits};

use crate::connection::Stream;
use crate::message::{ToClient, ToServer};

/// A download. Dropping it early tells the server to stop.
pub struct RemoteSource {
    stream: Stream,
    caller: Caller,
    left: Option<u64>,
    ready: VecDeque<Piece>,
    ended: bool,
    owed: u32,
}

impl RemoteSource {
    pub(crate) fn new(stream: Stream, caller: Caller, left: Option<u64>, ended: bool, ready: Bytes) -> Self {
        let ready = Some(ready).filter(|bytes| !bytes.is_empty()).map(Piece::Bytes).into_iter().collect();
        Self { stream, caller, left, ready, ended, owed: 0 }
    }

    /// Of files that were lent, and nothing after them.
    pub(crate) fn lent(stream: Stream, caller: Caller, pieces: Vec<Piece>) -> Self {
        let left = pieces.iter().map(|piece| piece.length() as u64).sum();
        Self { stream, caller, left: Some(left), ready: pieces.into(), ended: true, owed: 0 }
    }

    /// Gives room back once enough has been taken that it is worth a message.
    async fn give_room(&mut self, taken: usize) -> Result<()> {
        self.owed += taken as u32;
        if self.owed >= limits::RPC_WINDOW_BYTES / 4 && !self.ended {
            let connection = self.stream.connection();
            let idle = Deadline::within(connection.sys().clock(), limits::TRANSFER_IDLE);
            let credit = ToServer::Credit(self.owed);
            let said = self.stream.send(&credit, Bytes::new());
            connection.sys().within(idle, said).await?;
            self.owed = 0;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<()> {
        let idle = Deadline::within(self.stream.connection().sys().clock(), limits::TRANSFER_IDLE);
        let sys = self.stream.connection().sys().clone();
        let incoming = sys.within(idle, self.stream.next()).await?;
        match incoming.message {
            ToClient::Data { end } => {
                if !incoming.payload.is_empty() {
                    self.ready.push_back(Piece::Bytes(incoming.payload));
                }
                self.ended = end;
                if end {
                    self.stream.set_done();
                }
                Ok(())
            }
            ToClient::Failed(report) => {
                self.ended = true;
                self.stream.set_done();
                Err(report.into())
            }
            _ => Err(Error::new(ErrorKind::Invalid, "the server sent something else than bytes")),
        }
    }
}

#[async_trait]
impl Source for RemoteSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        // What arrived before the right ended is not handed out after it.
        self.caller.live(self.stream.connection().sys().clock().moment())?;
        if let Some(error) = self.stream.failure() {
            return Err(error);
        }
        let mut piece = loop {
            match self.ready.pop_front() {
                Some(piece) => break piece,
                None if self.ended => return Ok(None),
                None => self.receive().await?,
            }
        };
        if let Some(rest) = piece.split_off(max) {
            self.ready.push_front(rest);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(piece.length() as u64);
        }
        self.give_room(piece.length()).await?;
        Ok(Some(piece))
    }

    fn length(&self) -> Option<u64> {
        self.left
    }

    /// The server watches the right; this ends when the server says so.
    fn stopped(&self) -> Stopped {
        Box::pin(self.stream.failing())
    }
}
