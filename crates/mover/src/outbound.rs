//! From sources to a socket.

use std::io::{self, IoSlice};

use bytes::Bytes;
use weft_core::form::{Piece, Source, Stopped};
use weft_core::metrics::Flow;
use weft_core::{Error, ErrorKind, Result, Tick, limits};
use weft_sys::net::{More, Socket};

use crate::transfer::{Direction, Listed};
use crate::{Class, Mover, Permit, cancelled, stalled};

/// A transfer to a socket: one or several sources, each with bytes of the protocol before it.
pub struct Outbound<'a> {
    mover: &'a Mover,
    class: Class,
    socket: &'a Socket,
    length: Option<u64>,
    listed: Option<Listed<'a>>,
    sent: u64,
    /// Bytes of sources among them.
    of_sources: u64,
    /// When bytes last left.
    progress: Tick,
}

/// What is on its way: the protocol's bytes, then a piece.
struct Load<'h> {
    head: &'h [u8],
    piece: Option<Piece>,
}

/// A source, and the future that ends when it must stop: made when first needed, since small
/// transfers never wait.
struct Watched<'s> {
    source: &'s mut dyn Source,
    stopped: Option<Stopped>,
}

/// As many bytes at least are worth the question how much of what is sent may lie unread.
const LARGE_BYTES: u64 = 4 << 20;

impl Watched<'_> {
    async fn next(&mut self, unread: Option<u64>) -> Result<Option<Piece>> {
        match unread {
            Some(unread) => self.source.next_to_send(limits::PIECE_BYTES_MAX, unread).await,
            None => self.source.next(limits::PIECE_BYTES_MAX).await,
        }
    }

    fn stopped(&mut self) -> &mut Stopped {
        self.stopped.get_or_insert_with(|| self.source.stopped())
    }
}

impl<'a> Outbound<'a> {
    pub(crate) fn new(mover: &'a Mover, class: Class, socket: &'a Socket, length: Option<u64>) -> Self {
        let progress = mover.sys.clock().tick();
        Self { mover, class, socket, length, listed: None, sent: 0, of_sources: 0, progress }
    }

    /// Returns how many bytes have left, the protocol's own included. While this is 0 the other
    /// end has seen nothing and can still be told why there is nothing.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends `head`, then the source to its end. They leave together as far as they fit.
    ///
    /// Fails with what the source fails with, or what stopped it; `Deadline` if the other end
    /// takes nothing for [`limits::TRANSFER_IDLE`]; `Unavailable` if it is gone or the transfer is
    /// cancelled; `Corrupt` if the source ends before the length it gave. After a failure the
    /// connection must be reset, unless nothing was sent.
    pub async fn send(&mut self, head: &[u8], source: &mut dyn Source, after: More) -> Result<()> {
        let promised = source.length();
        let unread = promised.filter(|bytes| *bytes >= LARGE_BYTES).and_then(|_| self.socket.unread_max());
        let mut watched = Watched { source, stopped: None };
        let mut pulled = 0;
        let mut head = head;
        let mut permit = self.first_permit(promised, &mut watched).await?;
        while let Some(piece) = watched.next(unread).await? {
            pulled += piece.length() as u64;
            let more = if promised == Some(pulled) { after } else { More::Follows };
            let load = Load { head, piece: Some(piece) };
            permit = self.push(load, more, permit, &mut watched).await?;
            head = &[];
            if promised == Some(pulled) {
                break;
            }
            drop(permit);
            self.check()?;
            permit = self.next_turn(&mut watched).await?;
        }
        if promised.is_some_and(|promised| promised != pulled) {
            return Err(Error::corrupt("the bytes ended before the length that was promised"));
        }
        if !head.is_empty() {
            self.push(Load { head, piece: None }, after, permit, &mut watched).await?;
        }
        Ok(())
    }

    /// Sends bytes of the protocol itself. Metadata: takes no slot, but is held to the same
    /// deadline.
    pub async fn send_bytes(&mut self, bytes: &[u8], after: More) -> Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match self.socket.try_send(&[IoSlice::new(left)], after) {
                Ok(sent) => {
                    self.moved(sent, 0);
                    left = &left[sent..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Box::pin(self.wait_unlisted()).await?;
                }
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(())
    }

    /// Sends a load, giving the permit back whenever the socket is full.
    async fn push(
        &mut self,
        mut load: Load<'_>,
        more: More,
        mut permit: Permit<'a>,
        watched: &mut Watched<'_>,
    ) -> Result<Permit<'a>> {
        loop {
            match self.try_push(&mut load, more) {
                Ok(()) if load.is_empty() => return Ok(permit),
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Busy => {
                    drop(permit);
                    permit = self.next_turn(watched).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what the socket takes now. `Busy` if it is full.
    fn try_push(&mut self, load: &mut Load<'_>, more: More) -> Result<()> {
        let answer = match &load.piece {
            None => self.socket.try_send(&[IoSlice::new(load.head)], more),
            Some(Piece::Bytes(bytes)) => {
                self.socket.try_send(&[IoSlice::new(load.head), IoSlice::new(bytes)], more)
            }
            Some(Piece::File { .. }) if !load.head.is_empty() => {
                self.socket.try_send(&[IoSlice::new(load.head)], More::Follows)
            }
            Some(Piece::File { file, at, length }) => match file.descriptor() {
                Some(descriptor) => self.socket.try_send_file(descriptor, *at, *length),
                None => return load.copy_in(),
            },
        };
        match answer {
            Ok(0) => Err(Error::corrupt("the stored bytes end too early")),
            Ok(sent) => {
                let of_piece = load.advance(sent);
                self.moved(sent, of_piece);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Error::new(ErrorKind::Busy, "the socket is full"))
            }
            // Not every file can be sent by the kernel; those are copied.
            Err(error) if load.head.is_empty() && error.kind() == io::ErrorKind::InvalidInput => {
                load.copy_in()
            }
            Err(error) => Err(gone(error)),
        }
    }

    fn moved(&mut self, sent: usize, of_piece: usize) {
        self.sent += sent as u64;
        self.of_sources += of_piece as u64;
        self.progress = self.mover.sys.clock().tick();
        self.mover.sys.metrics().mover_moved.add((Flow::Out,), of_piece as u64);
        if let Some(listed) = &self.listed {
            listed.transfer.moved(of_piece as u64);
        }
    }

    async fn first_permit(&mut self, promised: Option<u64>, watched: &mut Watched<'_>) -> Result<Permit<'a>> {
        match promised.and_then(|bytes| self.mover.admit(bytes)) {
            Some(permit) => Ok(permit),
            None => Box::pin(self.slot(watched)).await,
        }
    }

    /// Waits for the socket, then for a slot. Boxed: what a small transfer never waits in must not
    /// make it large.
    async fn next_turn(&mut self, watched: &mut Watched<'_>) -> Result<Permit<'a>> {
        let turn = async {
            self.wait_to_send(watched).await?;
            self.slot(watched).await
        };
        Box::pin(turn).await
    }

    fn check(&self) -> Result<()> {
        self.listed.as_ref().map_or(Ok(()), |listed| listed.transfer.check())
    }

    fn list(&mut self) -> Result<()> {
        if self.listed.is_none() {
            let begun = self.mover.sys.clock().tick();
            let entry = self.mover.transfers.enter(self.class, Direction::Outbound, self.length, begun)?;
            entry.transfer.moved(self.of_sources);
            self.listed = Some(entry);
        }
        Ok(())
    }

    /// Waits for a slot, the source being stopped or the transfer cancelled. Having to wait for
    /// others is no lack of progress of the other end, and lasts as long as their pieces.
    async fn slot(&mut self, watched: &mut Watched<'_>) -> Result<Permit<'a>> {
        self.list()?;
        let transfer = &self.listed.as_ref().expect("it was just listed").transfer;
        tokio::select! {
            biased;
            permit = self.mover.turns.slot() => Ok(permit),
            why = watched.stopped() => Err(why),
            () = transfer.cancelled() => Err(cancelled()),
        }
    }

    /// Waits until the socket takes bytes, the source is stopped, the transfer is cancelled, or
    /// nothing has moved for too long.
    async fn wait_to_send(&mut self, watched: &mut Watched<'_>) -> Result<()> {
        self.list()?;
        let transfer = &self.listed.as_ref().expect("it was just listed").transfer;
        tokio::select! {
            biased;
            why = watched.stopped() => Err(why),
            () = transfer.cancelled() => Err(cancelled()),
            ready = self.socket.writable() => ready.map_err(gone),
            () = self.mover.sys.sleep_until(self.progress.plus(limits::TRANSFER_IDLE)) => Err(stalled()),
        }
    }

    async fn wait_unlisted(&self) -> Result<()> {
        tokio::select! {
            biased;
            ready = self.socket.writable() => ready.map_err(gone),
            () = self.mover.sys.sleep_until(self.progress.plus(limits::TRANSFER_IDLE)) => Err(stalled()),
        }
    }
}

impl Load<'_> {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.piece.is_none()
    }

    /// Takes `sent` bytes off the front. Returns how many of them were the piece's.
    fn advance(&mut self, sent: usize) -> usize {
        let of_head = sent.min(self.head.len());
        self.head = &self.head[of_head..];
        let of_piece = sent - of_head;
        let left = match &mut self.piece {
            None => 0,
            Some(Piece::Bytes(bytes)) => {
                drop(bytes.split_to(of_piece));
                bytes.len()
            }
            Some(Piece::File { at, length, .. }) => {
                *at += of_piece as u64;
                *length -= of_piece;
                *length
            }
        };
        if left == 0 {
            self.piece = None;
        }
        of_piece
    }

    /// Reads a file's piece into memory, to be sent from there.
    fn copy_in(&mut self) -> Result<()> {
        let bytes: Bytes = match self.piece.take() {
            Some(piece) => piece.into_bytes()?,
            None => return Ok(()),
        };
        self.piece = Some(Piece::Bytes(bytes));
        Ok(())
    }
}

fn gone(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the other end closed the connection").caused_by(error)
}
