//! How much of what a socket was handed may still be pages of this machine's memory that nobody has read.
//!
//! A file's pages are not copied when they are sent: whoever writes into the file meanwhile changes what is read
//! of them later. Across a network that is what the other machine has not acknowledged; on one machine, pages
//! go by reference into the other end's queue, and lie there until a program reads them.

use std::fs;
use std::net::SocketAddr;

use super::route::{Device, device_to};
use super::{Peer, Socket, Stream};

impl Socket {
    /// Returns how many of the bytes of files that were sent last may not have been read from their pages yet, however
    /// large the buffers have grown. None where nothing bounds that: another network namespace of this machine
    /// has limits of its own. Some system calls. Not counted: buffers that somebody privileged forces beyond the
    /// machine's limits, and limits that are raised later.
    pub fn unread_max(&self) -> Option<u64> {
        if self.is_secured() {
            // They are encrypted into other memory as they are handed over.
            return Some(0);
        }
        match (self.peer, &self.stream) {
            (Peer::Address(peer), Stream::Tcp(stream)) => unread_over(peer, stream.local_addr().ok()?),
            _ => buffer_max("core/wmem_default", "core/wmem_max"),
        }
    }
}

fn unread_over(peer: SocketAddr, own: SocketAddr) -> Option<u64> {
    let sent = buffer_max("ipv4/tcp_wmem", "core/wmem_max")?;
    match device_to(peer.ip().to_canonical(), own.ip().to_canonical())? {
        Device::Wire => Some(sent),
        // Twice, for a server in between that passes pages on (`splice`) and has queues of its own.
        Device::Loopback => Some(2 * (sent + buffer_max("ipv4/tcp_rmem", "core/rmem_max")?)),
        Device::Other => None,
    }
}

/// Returns how large a buffer may be: what the machine makes it, or twice what a program may ask for (socket(7)).
fn buffer_max(made: &str, asked: &str) -> Option<u64> {
    Some(largest(made)?.max(2 * largest(asked)?))
}

/// Returns the largest number of a setting.
fn largest(setting: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/{setting}")).ok()?;
    text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Listener;

    #[tokio::test]
    async fn on_one_machine_both_ends_count_and_the_sender_alone_over_a_local_socket() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).await.expect("it listens");
        let address = listener.address().expect("it has one");
        let (there, here) = tokio::join!(Socket::connect(address), listener.accept());
        let (there, here) = (there.expect("it connects"), here.expect("it is taken"));
        let received = largest("ipv4/tcp_rmem").expect("Linux says so");
        assert_eq!(here.unread_max(), there.unread_max());
        assert!(here.unread_max().is_some_and(|most| most > 2 * received));
        let (local, _other) = Socket::pair().expect("made");
        assert!(local.unread_max().is_some_and(|most| most > 0 && most < 2 * received));
    }
}
