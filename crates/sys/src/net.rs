//! Sockets: TCP and local ones behind one type, with readiness, so that whoever sends can wait
//! for the socket and for something else at once.
//!
//! Sending never waits inside: `try_…` moves what the kernel takes now, [`Socket::writable`] waits.
//! The bytes of a file go from the page cache to the socket by `sendfile`, past user space; a
//! header sent with [`More::Follows`] leaves together with what follows it.
//!
//! A socket may be secured ([`Socket::secured`]): everything here then goes through TLS, and a file's
//! bytes through user space.

mod listener;
mod names;
mod own;
mod passing;
mod route;
#[cfg(test)]
mod tests;
mod tls;
mod unread;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use weft_core::metrics::{Flow, Metrics, Way};
use weft_core::service::CertificateChain;

pub use listener::{Listener, check_local_path, raise_descriptor_limit};
pub use names::resolve;
pub use own::own_addresses;
pub use passing::{Borrowed, Passing};
pub use tls::{Tls, TlsSettings};

/// Slices that one vectored send takes (half of Linux's `UIO_MAXIOV` is far more than anyone needs).
const SLICES_MAX: usize = 512;

/// Bytes that are read at once where descriptors may come along, about what a local socket holds: room for them
/// has to be zeros first.
const BORROWING_BYTES: usize = 224 << 10;

/// Who is at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host on the network.
    Address(SocketAddr),
    /// A process of this machine, on a local socket: its uid, as the kernel said it.
    Uid(u32),
}

impl Peer {
    /// Returns the host's address; none on a local socket.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address.ip().to_canonical()),
            Self::Uid(_) => None,
        }
    }
}

/// Whether more bytes follow at once, so that the kernel may wait for them to fill a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// These are the last for now: send.
    Ends,
    /// More follow at once.
    Follows,
}

impl More {
    fn flags(self) -> SendFlags {
        match self {
            Self::Ends => SendFlags::NOSIGNAL,
            Self::Follows => SendFlags::NOSIGNAL | SendFlags::MORE,
        }
    }
}

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    /// Once it is secured.
    session: Option<Box<Mutex<tls::Session>>>,
    peer: Peer,
    /// Descriptors that go along, if they may.
    lends: Option<Arc<Passing>>,
    /// Those that come along, if they are taken.
    borrows: Option<Arc<Passing>>,
    /// What [`Socket::wake_at`] was told last.
    wake_at: AtomicUsize,
    /// Where its bytes are counted, if they are.
    counted: Option<(Arc<Metrics>, Way)>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Local(UnixStream),
}

macro_rules! either {
    ($self:ident, $stream:ident => $act:expr) => {
        match $self {
            Stream::Tcp($stream) => $act,
            Stream::Local($stream) => $act,
        }
    };
}

/// The bytes as the kernel has them.
impl Stream {
    async fn readable(&self) -> io::Result<()> {
        either!(self, stream => stream.readable().await)
    }

    async fn writable(&self) -> io::Result<()> {
        either!(self, stream => stream.writable().await)
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(context))
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_write_ready(context))
    }

    /// `WouldBlock` where it is known that the kernel takes nothing now.
    fn check_writable(&self) -> io::Result<()> {
        self.try_io(Interest::WRITABLE, |_| Ok(()))
    }

    fn try_send(&self, slices: &[IoSlice<'_>], more: More, lends: Option<&Passing>) -> io::Result<usize> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        self.try_io(Interest::WRITABLE, |socket| match lends {
            Some(passing) => passing.send(socket, slices, more.flags()),
            None => Ok(sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), more.flags())?),
        })
    }

    fn try_receive(&self, into: &mut [u8]) -> io::Result<usize> {
        self.try_io(Interest::READABLE, |socket| Ok(recv(socket, &mut *into, RecvFlags::empty())?.0))
    }

    fn try_io<T>(
        &self,
        interest: Interest,
        mut act: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match either!(self, stream => stream.try_io(interest, || act(stream.as_fd()))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Socket {
    /// Connects to a host.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::tcp(TcpStream::connect(address).await?, address)
    }

    /// Connects to a local socket.
    pub async fn connect_local(path: &Path) -> io::Result<Self> {
        Self::local(UnixStream::connect(path).await?)
    }

    /// Returns two sockets connected to each other.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::local(one)?, Self::local(other)?))
    }

    fn tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        // What must leave together is sent together (More), so nothing is won by Nagle's delay.
        stream.set_nodelay(true)?;
        Ok(Self::over(Stream::Tcp(stream), Peer::Address(peer)))
    }

    fn local(stream: UnixStream) -> io::Result<Self> {
        let peer = Peer::Uid(stream.peer_cred()?.uid());
        Ok(Self::over(Stream::Local(stream), peer))
    }

    fn over(stream: Stream, peer: Peer) -> Self {
        Self {
            stream,
            session: None,
            peer,
            lends: None,
            borrows: None,
            wake_at: AtomicUsize::new(1),
            counted: None,
        }
    }

    /// Shakes hands as a TLS server; the socket is secured from then on. The caller sets the
    /// deadline. The connection is over if it fails.
    pub async fn secured(mut self, tls: &Tls) -> io::Result<Self> {
        self.session = Some(Box::new(Mutex::new(*tls::Session::accept(&self.stream, tls).await?)));
        Ok(self)
    }

    /// Has its bytes counted from now on: what is handed over and what is read, TLS apart.
    pub fn counted(self, metrics: Arc<Metrics>, way: Way) -> Self {
        Self { counted: Some((metrics, way)), ..self }
    }

    fn count(&self, flow: Flow, bytes: usize) {
        if let Some((metrics, way)) = &self.counted {
            metrics.doors_moved.add((*way, flow), bytes as u64);
        }
    }

    /// Returns whether the bytes are encrypted.
    pub fn is_secured(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the certificate that the other end showed as it shook hands, and has proved to hold the key of; none
    /// where it showed none, and on a plain socket.
    pub fn certificate(&self) -> Option<CertificateChain> {
        self.session()?.certificate()
    }

    fn session(&self) -> Option<MutexGuard<'_, tls::Session>> {
        // What a panic left half done fails at the other end: every record is sealed.
        Some(self.session.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns this end's own address; none on a local socket. A system call.
    pub fn own_address(&self) -> Option<SocketAddr> {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().ok(),
            Stream::Local(_) => None,
        }
    }

    /// Waits until bytes, or the end, can be read. A hint: a reader may still have to wait.
    pub async fn readable(&self) -> io::Result<()> {
        if self.session().is_some_and(|mut session| session.is_readable()) {
            return Ok(());
        }
        self.stream.readable().await
    }

    /// Has whoever waits to read be woken once `bytes` are there, or the end: who takes much at once
    /// is then not woken for every packet. 1 is how a socket begins. Bytes that are there already
    /// and are enough wake at once, so lowering the mark never loses any. A wish: a local socket
    /// wakes for every byte, and the kernel for what it keeps at most.
    pub fn wake_at(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes.max(1);
        if matches!(self.stream, Stream::Local(_)) || self.wake_at.swap(bytes, Ordering::Relaxed) == bytes {
            return Ok(());
        }
        set_low_water(self.as_fd(), bytes)
    }

    /// Waits until bytes can be sent. Yields now and then even if they always can, so that a
    /// fast reader does not keep the thread.
    pub async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Sends what the kernel takes now of the slices. `WouldBlock` if it takes nothing. What is left
    /// must come next, if anything does: of a secured socket, some of it may be encrypted already.
    pub fn try_send(&self, slices: &[IoSlice<'_>], more: More) -> io::Result<usize> {
        let sent = match self.session() {
            Some(mut session) => session.send(&self.stream, slices, more),
            None => self.stream.try_send(slices, more, self.lends.as_deref()),
        };
        sent.inspect(|sent| self.count(Flow::Out, *sent))
    }

    /// Sends what the kernel takes now of a file's range, without copying it unless the socket is
    /// secured. `WouldBlock` if it takes nothing; 0 if the file ends before `at`; `InvalidInput` if this kind of file cannot
    /// be sent so.
    pub fn try_send_file(&self, file: BorrowedFd<'_>, at: u64, length: usize) -> io::Result<usize> {
        let mut offset = at;
        let sent = match self.session() {
            Some(mut session) => session.send_file(&self.stream, file, at, length),
            None => self
                .stream
                .try_io(Interest::WRITABLE, |socket| Ok(sendfile(socket, file, Some(&mut offset), length)?)),
        };
        sent.inspect(|sent| self.count(Flow::Out, *sent))
    }

    /// Sends all bytes, waiting as often as it takes: the caller sets the deadline.
    pub async fn send(&self, mut bytes: &[u8], more: More) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_send(&[IoSlice::new(bytes)], more) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more will be sent; reading goes on. Of a secured socket it may wait until
    /// that can be said: the caller sets the deadline.
    pub async fn end_sending(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_end_sending(context)).await
    }

    fn poll_end_sending(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(mut session) = self.session() {
            while let Err(error) = session.end_sending(&self.stream) {
                if error.kind() != io::ErrorKind::WouldBlock {
                    return Poll::Ready(Err(error));
                }
                ready!(self.stream.poll_writable(context))?;
            }
        }
        Poll::Ready(Ok(rustix::net::shutdown(self, Shutdown::Write)?))
    }

    /// Drops the connection at once, with what is still unsent: the other end sees a reset, never
    /// a clean end of something that is not whole.
    pub fn reset(self) {
        // A local socket has no reset; closing it with unread bytes is as near as it comes.
        let _ = sockopt::set_socket_linger(&self, Some(Duration::ZERO));
    }
}

#[expect(unsafe_code, reason = "no library offers this option")]
fn set_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads one `int` at the address of one that outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let stream = &self.stream;
        either!(stream, stream => stream.as_fd())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let Self { stream, session, borrows, .. } = &mut *self;
        let read = match (session, borrows) {
            (Some(session), _) => {
                let session = session.get_mut().unwrap_or_else(PoisonError::into_inner);
                session.poll_read(stream, context, into)
            }
            (None, Some(borrows)) => poll_borrowing(stream, borrows, context, into),
            (None, None) => either!(stream, stream => Pin::new(stream).poll_read(context, into)),
        };
        self.count(Flow::In, into.filled().len() - before);
        read
    }
}

/// Reads, and takes the descriptors that come along.
fn poll_borrowing(
    stream: &Stream,
    borrows: &Passing,
    context: &mut Context<'_>,
    into: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let room = into.initialize_unfilled_to(into.remaining().min(BORROWING_BYTES));
        match stream.try_io(Interest::READABLE, |socket| borrows.receive(socket, room)) {
            Ok(read) => {
                into.advance(read);
                return Poll::Ready(Ok(()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_readable(context))?,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_send(slices, More::Ends) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_writable(context))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end_sending(context)
    }
}
