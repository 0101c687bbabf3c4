//! Frames: a typed message, and bytes behind it.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weft_core::{Error, ErrorKind, Result, limits};

use crate::message::to_bytes;

const HEAD_BYTES: usize = 12;

/// A frame as it is sent or was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The call it belongs to; 0 for none.
    pub stream: u32,
    /// The encoded message.
    pub body: Bytes,
    /// The bytes behind it.
    pub payload: Bytes,
}

impl Frame {
    /// Makes a frame of a message and bytes.
    pub fn new<T: Serialize>(stream: u32, message: &T, payload: Bytes) -> Self {
        Self { stream, body: to_bytes(message), payload }
    }

    /// Decodes the message. Fails with `Invalid`; bytes left over are not forgiven.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T> {
        let bad = |e| Error::invalid("the peer sent a malformed message").caused_by(e);
        let (message, rest) = postcard::take_from_bytes(&self.body).map_err(bad)?;
        if rest.is_empty() { Ok(message) } else { Err(Error::invalid("the peer sent more than a message")) }
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        head[8..].copy_from_slice(&self.stream.to_le_bytes());
        head
    }
}

/// Returns a whole frame's bytes: for tests and fuzzing.
pub fn encode(frame: &Frame) -> Vec<u8> {
    [&frame.head()[..], &frame.body, &frame.payload].concat()
}

/// Writes a frame.
pub async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> Result<()> {
    let mut frames = FrameWriter::new(to);
    frames.add(frame).await?;
    frames.flush().await
}

/// Writes frames: small ones together, a large payload as it is.
pub struct FrameWriter<W> {
    to: W,
    gathered: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes to `to`.
    pub fn new(to: W) -> Self {
        Self { to, gathered: Vec::new() }
    }

    /// Adds a frame to those that [`Self::flush`] writes; of many or of a large one, some are written now. Not
    /// safe to cancel.
    pub async fn add(&mut self, frame: &Frame) -> Result<()> {
        self.gathered.extend_from_slice(&frame.head());
        self.gathered.extend_from_slice(&frame.body);
        // A small payload costs less to copy than a system call of its own.
        if frame.payload.len() <= SMALL_PAYLOAD {
            self.gathered.extend_from_slice(&frame.payload);
        } else {
            self.flush().await?;
            self.to.write_all(&frame.payload).await.map_err(lost)?;
        }
        if self.gathered.len() < GATHERED_MAX { Ok(()) } else { self.flush().await }
    }

    /// Returns whether nothing waits for [`Self::flush`].
    pub fn is_flushed(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Writes what was gathered. Not safe to cancel.
    pub async fn flush(&mut self) -> Result<()> {
        let wrote = self.to.write_all(&self.gathered).await.map_err(lost);
        self.gathered.clear();
        // An idle connection keeps little.
        self.gathered.shrink_to(GATHERED_KEPT);
        wrote
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the connection broke while sending").caused_by(error)
}

const SMALL_PAYLOAD: usize = 16 << 10;

/// Bytes that are kept for the next frames.
const GATHERED_KEPT: usize = 4 << 10;

/// Bytes of small frames that wait for those after them.
const GATHERED_MAX: usize = 64 << 10;

/// What a frame says of itself before it comes.
#[derive(Debug)]
pub struct FrameHead {
    body: usize,
    payload: usize,
    stream: u32,
}

impl FrameHead {
    /// Returns how many bytes the frame, read and understood, may take.
    pub fn cost(&self) -> usize {
        HEAD_BYTES + self.body * limits::RPC_DECODED_BYTES + self.payload
    }
}

/// Reads frames. Sizes are checked before anything is allocated.
pub struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `from`.
    pub fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::new() }
    }

    /// Returns the next frame, or `None` if the peer closed between two frames. Not safe
    /// to cancel: a frame may be half read.
    pub async fn next(&mut self) -> Result<Option<Frame>> {
        match self.head().await? {
            Some(head) => self.rest(head).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits for the next frame to begin, and returns what it says of itself. [`Self::rest`] must
    /// follow. Safe to cancel.
    pub async fn head(&mut self) -> Result<Option<FrameHead>> {
        if !self.fill(HEAD_BYTES).await? {
            return Ok(None);
        }
        let head = self.buffer.split_to(HEAD_BYTES);
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (body, payload, stream) = (word(0) as usize, word(4) as usize, word(8));
        if body > limits::RPC_BODY_BYTES_MAX || payload > limits::PIECE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the peer sent a frame larger than a frame may be"));
        }
        Ok(Some(FrameHead { body, payload, stream }))
    }

    /// Returns the frame whose head was read last. Not safe to cancel.
    pub async fn rest(&mut self, head: FrameHead) -> Result<Frame> {
        if !self.fill(head.body + head.payload).await? {
            return Err(cut());
        }
        let body = self.buffer.split_to(head.body).freeze();
        let payload = self.buffer.split_to(head.payload).freeze();
        Ok(Frame { stream: head.stream, body, payload })
    }

    /// Reads until `wanted` bytes are there. `false` if there was nothing at all.
    async fn fill(&mut self, wanted: usize) -> Result<bool> {
        while self.buffer.len() < wanted {
            // No more than that, however much room is there: some lines fill it with zeros first.
            let room = (wanted - self.buffer.len()).max(READ_AHEAD);
            self.buffer.reserve(room);
            let read = self.from.read_buf(&mut (&mut self.buffer).limit(room)).await;
            let read =
                read.map_err(|e| Error::new(ErrorKind::Unavailable, "the connection broke").caused_by(e))?;
            if read == 0 {
                return if self.buffer.is_empty() && wanted == HEAD_BYTES { Ok(false) } else { Err(cut()) };
            }
        }
        Ok(true)
    }
}

/// How much is read at once while looking for small frames.
const READ_AHEAD: usize = 16 << 10;

fn cut() -> Error {
    Error::new(ErrorKind::Unavailable, "the peer went away in the middle of a frame")
}

#[cfg(test)]
mod asked;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "frames are read on a real runtime here")]
mod tests {
    use std::fmt::Debug;

    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::{MEMORY_MAX, fuzz_within};

    use super::asked::services::{to_client, to_server};
    use super::*;
    use crate::message::{Answer, Lent, ToClient, ToServer};

    async fn read(bytes: &[u8]) -> Result<Vec<Frame>> {
        let mut reader = FrameReader::new(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn sample() -> Vec<Frame> {
        let hello = Frame::new(0, &ToServer::Hello { oldest: 1, newest: 1 }, Bytes::new());
        let small = Frame::new(7, &ToServer::Data { end: false }, Bytes::from_static(b"abc"));
        let large = Frame::new(7, &ToServer::Data { end: true }, vec![1; 300_000].into());
        let parts = vec![Lent::File { descriptor: 0, at: 9, length: 8 }, Lent::Bytes(3)];
        let lent = ToClient::Reply(Box::new(Ok(Answer::Lent(parts))));
        vec![hello, small, large, Frame::new(8, &lent, Bytes::from_static(b"abc"))]
    }

    #[tokio::test]
    async fn frames_arrive_as_they_were_sent() {
        let mut wire = Vec::new();
        for frame in sample() {
            write_frame(&mut wire, &frame).await.expect("a vector takes everything");
        }
        assert_eq!(wire, sample().iter().flat_map(encode).collect::<Vec<_>>());
        let mut together = FrameWriter::new(Vec::new());
        for frame in sample() {
            together.add(&frame).await.expect("a vector takes everything");
        }
        together.flush().await.expect("a vector takes everything");
        assert_eq!(together.to, wire);
        assert_eq!(read(&wire).await.expect("whole frames"), sample());
    }

    #[tokio::test]
    async fn a_stream_cut_anywhere_is_an_error_and_never_a_shorter_frame() {
        let wire: Vec<u8> = sample()[..2].iter().flat_map(encode).collect();
        let first = encode(&sample()[0]).len();
        for cut in 0..wire.len() {
            let outcome = read(&wire[..cut]).await;
            assert_eq!(outcome.is_ok(), cut == 0 || cut == first, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn a_huge_length_is_refused_before_memory_is_taken() {
        for word in 0..2 {
            let mut head = [0_u8; 12];
            head[word * 4..word * 4 + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(read(&head).await.expect_err("too large").kind(), ErrorKind::TooLarge);
        }
    }

    /// Whatever is understood is written as it was read.
    fn again<M: Serialize + DeserializeOwned + PartialEq + Debug>(frame: &Frame) {
        let Ok(message) = frame.message::<M>() else { return };
        let written = Frame::new(frame.stream, &message, Bytes::new());
        assert_eq!(written.message::<M>().expect("it was just written"), message);
    }

    /// Whatever comes is frames or an error, and what a frame says is written as it was read.
    #[test]
    fn mutated_frames_are_read_or_refused_and_never_worse() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let files = [sample(), asked::frames()].concat();
        let frame = |dice: &mut Dice| match dice.roll(3) {
            0 => dice.pick(&files).clone(),
            1 => Frame::new(5, &to_server(dice), Bytes::new()),
            _ => Frame::new(5, &to_client(dice), Bytes::new()),
        };
        let make = |dice: &mut Dice| (0..=dice.roll(2)).flat_map(|_| encode(&frame(dice))).collect();
        // A frame's memory is asked for once its size is known to be one that a frame may have.
        let most = limits::RPC_BODY_BYTES_MAX + limits::PIECE_BYTES_MAX + MEMORY_MAX.0;
        fuzz_within((most, MEMORY_MAX.1), "frame", make, |bytes| {
            for frame in runtime.block_on(read(bytes)).unwrap_or_default() {
                again::<ToServer>(&frame);
                again::<ToClient>(&frame);
            }
        });
    }
}
