//! Descriptors that travel with the bytes of a local socket.
//!
//! They go with the first byte that is sent after they were added, and are there before the byte that they
//! came with is read. So whoever says in its bytes that a descriptor belongs to them finds the other end
//! finding it; only the order says which is which.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use weft_core::form::OpenedFile;

use super::Socket;
use crate::disk::read_full;

/// Descriptors that go with one piece of what is sent, at most.
const TOGETHER_MAX: usize = 16;

/// Descriptors that came and nobody has taken yet, at most: who sends more breaks the connection.
const UNTAKEN_MAX: usize = 64;

/// Descriptors that go through a socket one way.
#[derive(Debug, Default)]
pub struct Passing(Mutex<VecDeque<OwnedFd>>);

impl Socket {
    /// Lets descriptors go along with what is sent.
    pub fn lending(mut self) -> (Self, Arc<Passing>) {
        let passing = self.lends.get_or_insert_with(Arc::default).clone();
        (self, passing)
    }

    /// Takes the descriptors that come along with what is read. Without this they are closed unseen.
    pub fn borrowing(mut self) -> (Self, Arc<Passing>) {
        let passing = self.borrows.get_or_insert_with(Arc::default).clone();
        (self, passing)
    }
}

impl Passing {
    /// Has a descriptor go with the next byte that is sent. It is closed here once it has gone.
    pub fn add(&self, descriptor: OwnedFd) {
        self.lock().push_back(descriptor);
    }

    /// Returns the oldest of those that came.
    pub fn take(&self) -> Option<OwnedFd> {
        self.lock().pop_front()
    }

    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        slices: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> io::Result<usize> {
        let mut leaving = self.lock();
        let together = leaving.len().min(TOGETHER_MAX);
        let descriptors: Vec<_> = leaving.iter().take(together).map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if together > 0 && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("there is no room for descriptors"));
        }
        let sent = sendmsg(socket, slices, &mut control, flags)?;
        if sent > 0 {
            leaving.drain(..together);
        }
        Ok(sent)
    }

    pub(super) fn receive(&self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
        let mut came = self.lock();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                came.extend(descriptors);
            }
        }
        // One that was lost on the way, for want of room for it in this process, would leave those after it
        // in each other's places.
        if received.flags.contains(ReturnFlags::CTRUNC) || came.len() > UNTAKEN_MAX {
            return Err(io::Error::other("descriptors were lost on the way: this process has too many open"));
        }
        Ok(received.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that came from another process.
pub struct Borrowed(pub OwnedFd);

impl OpenedFile for Borrowed {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(read_full(self.0.as_fd(), buffer, at)?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn file(text: &str) -> std::fs::File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("there is room");
        file
    }

    fn text(descriptor: OwnedFd) -> String {
        let mut text = String::new();
        std::fs::File::from(descriptor).read_to_string(&mut text).expect("it can be read");
        text
    }

    #[tokio::test]
    async fn descriptors_are_there_before_the_bytes_they_went_with_and_in_their_order() {
        let (here, there) = Socket::pair().expect("a pair");
        let ((mut here, leaving), (mut there, came)) = (here.lending(), there.borrowing());
        let mut byte = [0; 1];
        for round in 0..3_u8 {
            for number in 0..20 {
                leaving.add(file(&format!("{round} {number}")).into());
            }
            // 16 go with one byte, and the rest with the next.
            here.write_all(&[round]).await.expect("sent");
            here.write_all(&[round]).await.expect("sent");
            there.read_exact(&mut byte).await.expect("received");
            let found: Vec<_> = std::iter::from_fn(|| came.take()).map(text).collect();
            let sent: Vec<_> = (0..16).map(|number| format!("{round} {number}")).collect();
            assert_eq!(found, sent);
            there.read_exact(&mut byte).await.expect("received");
            assert_eq!(std::iter::from_fn(|| came.take()).count(), 4);
        }
        here.write_all(b"x").await.expect("sent");
        there.read_exact(&mut byte).await.expect("received");
        assert!(came.take().is_none(), "none went along");
    }

    #[tokio::test]
    async fn a_socket_that_lets_none_pass_closes_those_that_come_and_reads_on() {
        let (here, mut there) = Socket::pair().expect("a pair");
        let (mut here, leaving) = here.lending();
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        leaving.add(writes);
        here.write_all(b"abc").await.expect("sent");
        let mut bytes = [0; 3];
        there.read_exact(&mut bytes).await.expect("received");
        assert_eq!(&bytes, b"abc");
        // Nobody has the other end open any more.
        assert_eq!(rustix::io::read(&reads, &mut bytes).expect("it ends"), 0);
    }

    #[tokio::test]
    async fn who_sends_more_than_are_taken_is_not_read_any_more() {
        let (here, there) = Socket::pair().expect("a pair");
        let ((mut here, leaving), (mut there, _came)) = (here.lending(), there.borrowing());
        let mut byte = [0; 1];
        for sent in 0..=UNTAKEN_MAX {
            leaving.add(file("x").into());
            here.write_all(b"x").await.expect("sent");
            assert_eq!(there.read_exact(&mut byte).await.is_ok(), sent < UNTAKEN_MAX, "of {sent}");
        }
    }
}
