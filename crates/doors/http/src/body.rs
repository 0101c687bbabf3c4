//! The body of a request, as it comes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weft_core::{Error, ErrorKind, Result, limits};
use weft_mover::Incoming;
use weft_sys::Sys;
use weft_sys::net::{More, Socket};

use crate::codec::Refusal;
use crate::codec::chunked::Chunked;
use crate::codec::head::{Framing, Head};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The first read of a body; reads that bring much double it.
const FIRST_READ: usize = 16 << 10;
/// Reads from which on it is waited for half of what they can take. The end of a chunked body may
/// be less than that and wait [`limits::INBOUND_GATHER`] for company: not for short bodies.
const FAST_READ: usize = 256 << 10;

/// How far a body is.
pub struct Progress {
    framing: Left,
    /// Whether the client still waits for leave to send.
    pub awaits_leave: bool,
    /// What went wrong, if it did.
    pub failure: Option<Failure>,
    read_size: usize,
    /// The memory of what was taken before last.
    spare: BytesMut,
    /// For more than small reads: there is room for so many.
    large: Option<OwnedSemaphorePermit>,
}

enum Left {
    Length {
        left: u64,
        total: u64,
    },
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
    /// For the time to wait until much has come.
    pub sys: &'b Sys,
    /// Room for large reads, which all bodies of the door share.
    pub room: &'b Arc<Semaphore>,
    /// Whether anything comes.
    pub pulse: Pulse<'b>,
}

/// Tells whether nothing came for a while, with one timer for many reads.
#[derive(Default)]
pub struct Pulse<'b> {
    came: bool,
    beat: Option<Pin<Box<dyn Future<Output = ()> + Send + 'b>>>,
}

impl<'b> Pulse<'b> {
    async fn beat(&mut self, sys: &'b Sys) {
        self.beat.get_or_insert_with(|| Box::pin(sys.sleep(limits::INBOUND_GATHER))).await;
        self.beat = None;
    }

    /// Returns whether nothing came since the last beat.
    fn missed(&mut self) -> bool {
        !std::mem::take(&mut self.came)
    }
}

impl Progress {
    /// Begins the body of a request.
    pub fn new(head: &Head) -> Self {
        let framing = match head.framing {
            Framing::Length(0) => Left::Done,
            Framing::Length(total) => Left::Length { left: total, total },
            Framing::Chunked => Left::Chunked(Chunked::default(), 0),
        };
        let awaits_leave = head.expects_continue && !matches!(framing, Left::Done);
        Self { framing, awaits_leave, ..Self::none() }
    }

    /// Returns the body of what is no request: there is none.
    pub fn none() -> Self {
        Self {
            framing: Left::Done,
            awaits_leave: false,
            failure: None,
            read_size: FIRST_READ,
            spare: BytesMut::new(),
            large: None,
        }
    }

    /// Reads twice as much at once from now on, if there is room.
    fn speed_up(&mut self, room: &Arc<Semaphore>) {
        self.large = self.large.take().or_else(|| room.clone().try_acquire_owned().ok());
        if self.large.is_some() {
            self.read_size = (self.read_size * 2).min(limits::INBOUND_BUFFER_BYTES);
        }
    }

    /// Returns how much to read at once.
    fn next_read(&self) -> usize {
        let size = self.read_size as u64;
        match &self.framing {
            // Never beyond the body: what follows it belongs to the next request's buffer. And up to
            // a multiple of the size, where blocks of what is stored end too.
            Left::Length { left, total } => (size - (total - left) % size).min(*left) as usize,
            Left::Chunked(..) | Left::Done => self.read_size,
        }
    }

    /// Returns whether all of it was read.
    pub fn is_done(&self) -> bool {
        matches!(self.framing, Left::Done)
    }

    /// Returns how many bytes are left, if the framing says.
    pub fn left(&self) -> Option<u64> {
        match &self.framing {
            Left::Length { left, .. } => Some(*left),
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
            Left::Length { left, .. } => {
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
        let sys = self.sys;
        loop {
            let size = self.progress.next_read();
            // A sender that filled the last reads will fill this one: being woken for every packet
            // of it would cost more than the packets.
            let fast = size >= FAST_READ;
            // Room that nobody uses is for others; a fast one has some.
            let timed = self.progress.large.is_some();
            self.socket.wake_at(if fast { size / 2 } else { 1 })?;
            if self.buffer.is_empty() {
                // What was taken last may still be being stored: its memory is free next time.
                std::mem::swap(self.buffer, &mut self.progress.spare);
            }
            self.buffer.reserve(size);
            let Self { socket, buffer, pulse, .. } = self;
            let got = tokio::select! {
                biased;
                got = poll_fn(|context| read_what_is_there(socket, context, buffer, size)) => got?,
                () = pulse.beat(sys), if timed => {
                    if self.pulse.missed() {
                        self.slow_down();
                    }
                    continue;
                }
            };
            self.pulse.came = true;
            // A read that was cut to a multiple, or to the body's end, says as much of the sender.
            if got >= (size / 2).max(FIRST_READ) {
                self.progress.speed_up(self.room);
            }
            return Ok(());
        }
    }

    /// Goes back to what a slow sender gets: woken for every byte, and no large buffer held.
    fn slow_down(&mut self) {
        self.progress.read_size = FIRST_READ;
        self.progress.spare = BytesMut::new();
        self.progress.large = None;
        // The begin of a chunk's size may stand in it, or of the next request.
        *self.buffer = BytesMut::from(&self.buffer[..]);
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

/// What comes next may be short: a head, or the rest of what is thrown away.
impl Drop for Body<'_> {
    fn drop(&mut self) {
        if self.progress.large.is_some() {
            self.slow_down();
        }
        // Whoever reads a socket that is broken hears of it there.
        let _ = self.socket.wake_at(1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_bodies_read_much_at_once_and_who_slows_down_makes_room() {
        let room = Arc::new(Semaphore::new(1));
        let (mut one, mut other) = (Progress::none(), Progress::none());
        for _ in 0..10 {
            one.speed_up(&room);
            other.speed_up(&room);
        }
        assert_eq!((one.read_size, other.read_size), (limits::INBOUND_BUFFER_BYTES, FIRST_READ));
        drop(one);
        other.speed_up(&room);
        assert_eq!(other.read_size, 2 * FIRST_READ);
    }
}
