//! Buffers for requests and for what is read from files, used again and again so that the kernel always writes into
//! memory that is there already.
//!
//! A large write's buffer goes along with it, as memory that a node on the same machine can be lent
//! ([`weft_sys::SharedBuffer`]): then its bytes cross no socket.
//!
//! How to get it wrong: use a buffer again while a node may still read it. Whoever hands one on as memory
//! holds it ([`Held`]), and says when it was answered; without that it is never used again.

use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use weft_core::form::{OpenedFile, Piece};
use weft_core::{Result, limits};
use weft_sys::SharedBuffer;

use crate::abi::{IN_HEADER_BYTES, WRITE_IN_BYTES};

/// Bytes the kernel may send at once, the largest write; more than any piece has.
const BUFFER_BYTES: usize = IN_HEADER_BYTES + WRITE_IN_BYTES + limits::MOUNT_WRITE_BYTES_MAX;

/// Those of one mount.
pub(crate) struct Buffers {
    idle: Mutex<Vec<Buffer>>,
    /// How many are kept.
    kept: usize,
}

/// Room for the largest request, and for any piece.
pub(crate) enum Buffer {
    Shared(SharedBuffer),
    /// Where the machine has no more of those to give.
    Own(Vec<u8>),
}

impl Buffer {
    fn new() -> Self {
        SharedBuffer::new(BUFFER_BYTES).map_or_else(|_| Self::Own(vec![0; BUFFER_BYTES]), Self::Shared)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Shared(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

impl Buffers {
    /// Makes none yet, and keeps so many.
    pub(crate) fn new(kept: usize) -> Self {
        Self { idle: Mutex::default(), kept }
    }

    pub(crate) fn take(&self) -> Buffer {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(Buffer::new)
    }

    /// Returns a request of `size` bytes that goes on with its buffer, which comes back when the last of it goes.
    pub(crate) fn lend(self: &Arc<Self>, buffer: Buffer, size: usize) -> Arc<Lent> {
        Lent::new(self, buffer, IN_HEADER_BYTES..size)
    }

    /// Returns a piece's bytes, read into a buffer if they are in a file. Fails as [`Piece::into_bytes`] does.
    pub(crate) fn fill(self: &Arc<Self>, piece: Piece) -> Result<Bytes> {
        let length = piece.length();
        match piece {
            Piece::Bytes(bytes) => Ok(bytes),
            Piece::File { .. } => {
                let mut buffer = self.take();
                piece.read_into(&mut buffer[..length])?;
                Ok(Lent::new(self, buffer, 0..length).bytes())
            }
        }
    }
}

/// A part of a buffer that is in use.
pub(crate) struct Lent {
    /// Taken out when this goes.
    buffer: Option<Buffer>,
    part: Range<usize>,
    /// Whether another process may be reading it.
    held: AtomicBool,
    home: Arc<Buffers>,
}

impl Lent {
    fn new(home: &Arc<Buffers>, buffer: Buffer, part: Range<usize>) -> Arc<Self> {
        Arc::new(Self { buffer: Some(buffer), part, held: AtomicBool::new(false), home: home.clone() })
    }

    /// Returns its bytes.
    pub(crate) fn bytes(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(Slice(self.clone()))
    }

    /// Returns its last `length` bytes as a piece of a file, for who can hand on that instead of bytes, and what to
    /// release once they were taken.
    pub(crate) fn held(self: &Arc<Self>, length: usize) -> (Piece, Held) {
        self.held.store(true, Ordering::Release);
        let at = self.part.end.saturating_sub(length) as u64;
        (Piece::File { file: self.clone(), at, length }, Held(self.clone()))
    }

    fn buffer(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or(&[])
    }
}

/// A buffer that another process may be reading.
pub(crate) struct Held(Arc<Lent>);

impl Held {
    /// Says that nobody reads it any more: whoever was asked to has answered.
    pub(crate) fn release(self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl OpenedFile for Lent {
    fn read_at(&self, into: &mut [u8], at: u64) -> std::io::Result<usize> {
        let from = self.buffer().get(at as usize..).unwrap_or(&[]);
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.buffer {
            Some(Buffer::Shared(buffer)) => Some(buffer.descriptor()),
            _ => None,
        }
    }
}

struct Slice(Arc<Lent>);

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.0.buffer()[self.0.part.clone()]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            return;
        }
        let mut idle = self.home.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.home.kept {
            idle.extend(self.buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = IN_HEADER_BYTES + 100;

    fn request(buffers: &Arc<Buffers>) -> Arc<Lent> {
        let mut buffer = buffers.take();
        buffer[IN_HEADER_BYTES..SIZE].fill(7);
        buffers.lend(buffer, SIZE)
    }

    #[test]
    fn a_buffer_is_used_again_unless_somebody_may_still_read_it() {
        let buffers = Arc::new(Buffers::new(2));
        let idle = || buffers.idle.lock().expect("whole").len();
        let bytes = request(&buffers).bytes();
        assert_eq!((&bytes[..], idle()), (&[7; 100][..], 0));
        drop(bytes);
        assert_eq!(idle(), 1);
        let (piece, held) = request(&buffers).held(10);
        assert_eq!(piece.into_bytes().expect("they are there"), [7; 10][..]);
        held.release();
        assert_eq!(idle(), 1);
        drop(request(&buffers).held(10));
        assert_eq!(idle(), 0, "nobody has said that it was read");
    }

    #[test]
    fn what_is_handed_on_as_a_file_is_the_end_of_the_request() {
        let buffers = Arc::new(Buffers::new(2));
        let mut buffer = buffers.take();
        buffer[SIZE - 3..SIZE].copy_from_slice(b"end");
        let (piece, _held) = buffers.lend(buffer, SIZE).held(3);
        let Piece::File { file, at, length } = piece else { panic!("it is a file") };
        let mut read = [0; 3];
        rustix::io::pread(file.descriptor().expect("shared memory"), &mut read, at).expect("it can be read");
        assert_eq!((&read, length), (b"end", 3));
    }
}
