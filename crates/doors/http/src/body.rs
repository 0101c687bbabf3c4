//! The body of a request, as it comes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use weft_core::{Error, ErrorKind, Result, limits};
use weft_mover::Incoming;
use weft_sys::net::{More, Socket};

use crate::codec::Refusal;
use crate::codec::chunked::Chunked;
use crate::codec::head::{Framing, Head};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The first read of a body; reads that are filled double it.
const FIRST_READ: usize = 16 << 10;

/// How far a body is.
pub struct Progress {
    framing: Left,
    /// Whether the client still waits for leave to send.
    pub awaits_leave: bool,
    /// What went wrong, if it did.
    pub failure: Option<Failure>,
    read_size: usize,
}

enum Left {
    Length(u64),
    /// The coding, and bytes at the front of the buffer known to be content.
    Chunked(Chunked, usize),
    Done,
}

/// Why a body is not whole.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// Its framing is malformed.
    Refused(Refusal),
    /// The connection broke off.
    Gone,
}

/// The body of the request on a connection.
pub struct Body<'b> {
    /// How far it is.
    pub progress: &'b mut Progress,
    /// The connection.
    pub socket: &'b mut Socket,
    /// What was read from it and not used yet: may reach into the next request.
    pub buffer: &'b mut BytesMut,
}

impl Progress {
    /// Begins the body of a request.
    pub fn new(head: &Head) -> Self {
        let framing = match head.framing {
            Framing::Length(0) => Left::Done,
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunked(Chunked::default(), 0),
        };
        let awaits_leave = head.expects_continue && !matches!(framing, Left::Done);
        Self { framing, awaits_leave, failure: None, read_size: FIRST_READ }
    }

    /// Returns the body of what is no request: there is none.
    pub fn none() -> Self {
        Self { framing: Left::Done, awaits_leave: false, failure: None, read_size: FIRST_READ }
    }

    /// Returns whether all of it was read.
    pub fn is_done(&self) -> bool {
        matches!(self.framing, Left::Done)
    }

    /// Returns how many bytes are left, if the framing says.
    pub fn left(&self) -> Option<u64> {
        match &self.framing {
            Left::Length(left) => Some(*left),
            Left::Chunked(..) => None,
            Left::Done => Some(0),
        }
    }
}

impl Body<'_> {
    /// Returns content that is in the buffer already, at most `max` bytes; `None` if there is none.
    fn take(&mut self, max: usize) -> std::result::Result<Option<Bytes>, Refusal> {
        match &mut self.progress.framing {
            Left::Done => Ok(None),
            Left::Length(left) => {
                let length = (*left).min(self.buffer.len().min(max) as u64) as usize;
                *left -= length as u64;
                if *left == 0 {
                    self.progress.framing = Left::Done;
                }
                Ok((length > 0).then(|| self.buffer.split_to(length).freeze()))
            }
            Left::Chunked(chunked, content) => {
                if *content == 0 {
                    let step = chunked.step(self.buffer)?;
                    drop(self.buffer.split_to(step.skip));
                    *content = step.content;
                    if step.done {
                        self.progress.framing = Left::Done;
                        return Ok(None);
                    }
                }
                let length = (*content).min(max);
                *content -= length;
                Ok((length > 0).then(|| self.buffer.split_to(length).freeze()))
            }
        }
    }

    /// Waits for more bytes in the buffer: at least one, and what else is there already.
    async fn fill(&mut self) -> io::Result<()> {
        if self.progress.awaits_leave {
            self.progress.awaits_leave = false;
            self.socket.send(CONTINUE, More::Ends).await?;
        }
        let size = match &self.progress.framing {
            // Never beyond the body: what follows it belongs to the next request's buffer.
            Left::Length(left) => (*left).min(self.progress.read_size as u64) as usize,
            _ => self.progress.read_size,
        };
        self.buffer.reserve(size);
        let (socket, buffer) = (&mut *self.socket, &mut *self.buffer);
        let got = poll_fn(|context| read_what_is_there(socket, context, buffer, size)).await?;
        if got == size {
            self.progress.read_size = (size * 2).clamp(FIRST_READ, limits::INBOUND_BUFFER_BYTES);
        }
        Ok(())
    }

    /// Reads and drops what is left, at most `max` bytes. Returns whether that was all.
    pub async fn drain(&mut self, max: u64) -> bool {
        let mut dropped = 0;
        while !self.progress.is_done() && dropped <= max {
            match self.receive(FIRST_READ).await {
                Ok(Some(bytes)) => dropped += bytes.len() as u64,
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        self.progress.is_done()
    }
}

/// Reads until `size` bytes came or the socket has no more for now.
fn read_what_is_there(
    socket: &mut Socket,
    context: &mut Context<'_>,
    buffer: &mut BytesMut,
    size: usize,
) -> Poll<io::Result<usize>> {
    let mut got = 0;
    while got < size {
        let mut into = (&mut *buffer).limit(size - got);
        match pin!(socket.read_buf(&mut into)).poll(context) {
            Poll::Pending if got == 0 => return Poll::Pending,
            Poll::Pending => break,
            Poll::Ready(Ok(0)) if got == 0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(Ok(0)) => break,
            Poll::Ready(Ok(read)) => got += read,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(got))
}

#[async_trait]
impl Incoming for Body<'_> {
    async fn receive(&mut self, max: usize) -> Result<Option<Bytes>> {
        loop {
            match self.take(max) {
                Ok(Some(bytes)) => return Ok(Some(bytes)),
                Ok(None) if self.progress.is_done() => return Ok(None),
                Ok(None) => {}
                Err(refusal) => {
                    self.progress.failure = Some(Failure::Refused(refusal));
                    return Err(Error::invalid(refusal.reason));
                }
            }
            if let Err(error) = self.fill().await {
                self.progress.failure = Some(Failure::Gone);
                return Err(Error::new(ErrorKind::Unavailable, "the upload broke off").caused_by(error));
            }
        }
    }

    fn left(&self) -> Option<u64> {
        self.progress.left()
    }
}
