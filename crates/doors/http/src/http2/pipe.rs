//! Carries the bytes of one stream between HTTP/2 and the socket behind which it is answered.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use weft_core::limits;
use weft_sys::Sys;
use weft_sys::net::Socket;

use super::head::{self, Answered, Framing};
use crate::codec::chunked::Chunked;

/// What is read of an answer at once.
const READ_BYTES: usize = 32 << 10;

/// Why a stream ends before its answer does.
enum Broken {
    /// The exchange did, or what came of it is no answer.
    Exchange,
    /// Whoever asked is gone, or wants no more of it.
    Asker,
}

impl From<h2::Error> for Broken {
    fn from(_: h2::Error) -> Self {
        Self::Asker
    }
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Exchange
    }
}

/// Carries a request's body one way and its answer the other, until there is no more of the answer.
pub async fn carry(
    sys: &Sys,
    socket: Socket,
    (body, framing): (RecvStream, Framing),
    mut respond: SendResponse<Bytes>,
    is_head: bool,
) {
    let (from, into) = tokio::io::split(socket);
    let answered = async {
        let mut answered = pin!(Answer::new(sys, from).send(&mut respond, is_head));
        let mut brought = pin!(bring(body, framing, into));
        let answered = tokio::select! {
            biased;
            answered = &mut answered => answered,
            () = &mut brought => return answered.await,
        };
        if answered.is_ok() {
            // Of a stream that is reset while they still send, some clients (curl 7.88) lose the answer. How much
            // more is taken is the exchange's to say, which closes its end.
            tokio::select! {
                () = &mut brought => {}
                () = sys.sleep(limits::HTTP_LINGER) => {}
            }
        }
        answered
    };
    let answered = answered.await;
    if let Err(Broken::Exchange) = answered {
        respond.send_reset(Reason::INTERNAL_ERROR);
    }
}

/// Brings a body as it comes, and no faster than it is taken. A body that breaks off ends, as a connection
/// does.
async fn bring(mut body: RecvStream, framing: Framing, mut into: WriteHalf<Socket>) {
    let brought = async {
        while let Some(bytes) = body.data().await {
            let bytes = bytes?;
            if bytes.is_empty() {
                continue;
            }
            if framing == Framing::Chunked {
                into.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
            }
            into.write_all(&bytes).await?;
            if framing == Framing::Chunked {
                into.write_all(b"\r\n").await?;
            }
            body.flow_control().release_capacity(bytes.len())?;
        }
        if framing == Framing::Chunked {
            into.write_all(b"0\r\n\r\n").await?;
        }
        Ok::<(), Broken>(())
    };
    if brought.await.is_err() {
        // Where the exchange has ended, nobody reads any more.
        let _ = into.shutdown().await;
    }
}

/// An answer on its way out.
struct Answer<'a> {
    sys: &'a Sys,
    from: ReadHalf<Socket>,
    /// Read and not sent yet.
    buffer: BytesMut,
    /// How long whoever asked was waited for since [`limits::TRANSFER_PROGRESS_BYTES`] were taken last.
    waited: Duration,
    taken: u64,
}

impl<'a> Answer<'a> {
    fn new(sys: &'a Sys, from: ReadHalf<Socket>) -> Self {
        Self { sys, from, buffer: BytesMut::new(), waited: Duration::ZERO, taken: 0 }
    }

    async fn send(mut self, respond: &mut SendResponse<Bytes>, is_head: bool) -> Result<(), Broken> {
        let Answered { head, length } = self.head(respond).await?;
        let is_empty = is_head || length == Some(0) || matches!(head.status().as_u16(), 204 | 304);
        let mut stream = respond.send_response(head, is_empty)?;
        let sent = match length {
            _ if is_empty => Ok(()),
            Some(length) => self.send_length(&mut stream, length).await,
            None => self.send_chunks(&mut stream).await,
        };
        if let Err(Broken::Exchange) = sent {
            stream.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
        sent
    }

    /// Reads the head, and those before it that only say that something goes on.
    async fn head(&mut self, respond: &mut SendResponse<Bytes>) -> Result<Answered, Broken> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let bytes = self.buffer.split_to(end + 4);
                let answered = head::response(&bytes).ok_or(Broken::Exchange)?;
                if !answered.head.status().is_informational() {
                    return Ok(answered);
                }
                continue;
            }
            if self.buffer.len() > limits::HTTP_HEAD_BYTES_MAX {
                return Err(Broken::Exchange);
            }
            self.fill(|context| respond.poll_reset(context)).await?;
        }
    }

    /// Reads on, unless whoever asked wants no more: `reset` tells.
    async fn fill(
        &mut self,
        reset: impl FnMut(&mut Context<'_>) -> Poll<Result<Reason, h2::Error>>,
    ) -> Result<(), Broken> {
        self.buffer.reserve(READ_BYTES);
        let read = tokio::select! {
            biased;
            read = self.from.read_buf(&mut self.buffer) => read?,
            _ = poll_fn(reset) => return Err(Broken::Asker),
        };
        if read == 0 { Err(Broken::Exchange) } else { Ok(()) }
    }

    async fn send_length(&mut self, stream: &mut SendStream<Bytes>, mut left: u64) -> Result<(), Broken> {
        while left > 0 {
            if self.buffer.is_empty() {
                self.fill(|context| stream.poll_reset(context)).await?;
            }
            let length = left.min(self.buffer.len() as u64);
            left -= length;
            let bytes = self.buffer.split_to(length as usize).freeze();
            self.pass(stream, bytes, left == 0).await?;
        }
        Ok(())
    }

    async fn send_chunks(&mut self, stream: &mut SendStream<Bytes>) -> Result<(), Broken> {
        let mut chunked = Chunked::default();
        loop {
            let step = chunked.step(&self.buffer).map_err(|_| Broken::Exchange)?;
            drop(self.buffer.split_to(step.skip));
            if step.done {
                return Ok(stream.send_data(Bytes::new(), true)?);
            }
            match step.content {
                0 => self.fill(|context| stream.poll_reset(context)).await?,
                content => {
                    let bytes = self.buffer.split_to(content).freeze();
                    self.pass(stream, bytes, false).await?;
                }
            }
        }
    }

    /// Sends bytes as fast as they are taken.
    async fn pass(
        &mut self,
        stream: &mut SendStream<Bytes>,
        mut bytes: Bytes,
        is_last: bool,
    ) -> Result<(), Broken> {
        while !bytes.is_empty() {
            stream.reserve_capacity(bytes.len());
            let since = self.sys.clock().tick();
            let room = tokio::select! {
                biased;
                room = poll_fn(|context| stream.poll_capacity(context)) => room.ok_or(Broken::Asker)??,
                // The exchange may have ended: nobody else waits for who takes next to nothing.
                () = self.sys.sleep(limits::TRANSFER_IDLE.saturating_sub(self.waited)) => {
                    return Err(Broken::Exchange);
                }
            };
            self.waited += self.sys.clock().tick().since(since);
            self.taken += room.min(bytes.len()) as u64;
            if self.taken >= limits::TRANSFER_PROGRESS_BYTES {
                (self.waited, self.taken) = (Duration::ZERO, 0);
            }
            let piece = bytes.split_to(room.min(bytes.len()));
            stream.send_data(piece, is_last && bytes.is_empty())?;
        }
        Ok(())
    }
}
