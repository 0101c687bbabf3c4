//! Messages between two processes of this machine, with descriptors beside the bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Descriptors that go with one message, at most.
const DESCRIPTORS_MAX: usize = 4;

/// Returns both ends of a socket that keeps messages apart: each is received as it was sent. What one end sent is there for the
/// other whatever became of the process that sent it.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message, of at least a byte, and descriptors with it. Does not wait.
pub fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("there is no room for descriptors"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(message)], &mut control, flags).map(drop)?)
}

/// Takes a message of `into.len()` bytes at most, and the descriptors that came with it: 0 bytes once the other end is gone.
/// Waits for it unless `now`: `WouldBlock` then if there is none.
pub fn receive(socket: impl AsFd, into: &mut [u8], now: bool) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let waits = if now { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let flags = RecvFlags::CMSG_CLOEXEC | waits;
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Ok((received.bytes, descriptors.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_what_goes_with_it_outlive_whoever_sent_them() {
        let (ours, theirs) = pair().expect("a socket");
        let mut into = [0; 9];
        let nothing = receive(&ours, &mut into, true).expect_err("nothing was sent");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        send(&theirs, b"first", &[writes.as_fd(), reads.as_fd()]).expect("sent");
        send(&theirs, b"second", &[]).expect("sent");
        drop((theirs, writes));
        let (size, with) = receive(&ours, &mut into, true).expect("it came");
        assert_eq!((&into[..size], with.len()), (&b"first"[..], 2));
        assert_eq!(rustix::io::write(&with[0], b"x").expect("it is open"), 1);
        let (size, with) = receive(&ours, &mut into, false).expect("it came");
        assert_eq!((&into[..size], with.len()), (&b"second"[..], 0));
        assert_eq!(receive(&ours, &mut into, false).expect("the end").0, 0);
        assert_eq!(send(&ours, b"x", &[]).expect_err("nobody").kind(), io::ErrorKind::BrokenPipe);
    }
}
