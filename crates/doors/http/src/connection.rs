//! One connection: heads in, one exchange after the other, and a clean end.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use weft_core::form::{Door, Origin, Wire};
use weft_core::limits;
use weft_doors_listener::Guest;
use weft_sys::net::Socket;
use weft_sys::trace;

use crate::Http;
use crate::answer::Problem;
use crate::codec::Refusal;
use crate::codec::head::{self, Head};
use crate::exchange::{self, After};
use crate::http2;
use crate::identity::Identity;
use crate::status::Status;

/// Bytes of the buffer that a head is read into at first: most fit.
const HEAD_BUFFER: usize = 2 << 10;

/// A connection between requests: what an idle one costs.
pub struct Connection {
    pub http: Arc<Http>,
    pub socket: Socket,
    pub origin: Origin,
    /// Read and not used yet. Without memory of its own while it is empty.
    pub buffer: BytesMut,
    pub identity: Identity,
    /// What is before it, if the socket only leads there.
    pub front: Option<Front>,
}

/// The connection that a stream of HTTP/2 came by.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    /// Whether its bytes are encrypted.
    pub is_secured: bool,
    /// The address that it came to.
    pub own: Option<SocketAddr>,
}

impl Front {
    /// Returns who can read along.
    pub fn wire(&self) -> Wire {
        if self.is_secured { Wire::Private } else { Wire::Clear }
    }
}

/// Why no head came.
enum NoHead {
    /// The other end left, or nothing came for too long.
    Over,
    /// What came is no request.
    Refused(Refusal),
    /// What comes is HTTP/2.
    Http2,
}

/// Serves a connection until it ends.
pub async fn run(http: Arc<Http>, guest: Guest) {
    let Guest { socket, mut shutdown, stay } = guest;
    let origin = Origin { door: Door::Http, peer: socket.peer().ip(), uid: None };
    let wire = if socket.is_secured() { Wire::Private } else { Wire::Clear };
    let certificate = socket.certificate().map(Arc::new);
    let (buffer, identity, front) = (BytesMut::new(), Identity::new(wire, certificate), None);
    let mut connection = Connection { http, socket, origin, buffer, identity, front };
    let mut is_first = true;
    let after = loop {
        if connection.buffer.is_empty() {
            connection.buffer = BytesMut::new();
            let http = connection.http.clone();
            tokio::select! {
                biased;
                begun = connection.begun() => if !begun { break After::Close },
                () = shutdown.wait() => break After::Close,
                () = http.services.sys.sleep(stay.idle()) => break After::Close,
            }
        }
        let head = connection.read_head(stay.head(), is_first).await;
        is_first = false;
        let after = match head {
            // Boxed, so that an idle connection's task is small.
            Ok(head) => {
                let trace = connection.http.next_trace();
                let exchange = exchange::run(&mut connection, head, &shutdown, trace);
                Box::pin(trace::traced(trace, exchange)).await
            }
            Err(NoHead::Over) => break After::Close,
            Err(NoHead::Http2) => return Box::pin(http2::run(connection, shutdown, stay)).await,
            Err(NoHead::Refused(refusal)) => {
                Box::pin(exchange::refuse(&mut connection, Problem::from(refusal).closing())).await
            }
        };
        if after != After::KeepAlive {
            break after;
        }
    };
    connection.identity.leave(&connection.http);
    match after {
        After::Reset => connection.socket.reset(),
        After::Linger => Box::pin(linger(&mut connection)).await,
        After::Close | After::KeepAlive => {
            // A clean end of a secured connection is said, or it is as good as cut.
            if connection.socket.is_secured() {
                let sys = &connection.http.services.sys;
                tokio::select! {
                    _ = connection.socket.end_sending() => {}
                    () = sys.sleep(limits::HTTP_LINGER) => {}
                }
            }
        }
    }
}

impl Connection {
    /// Waits for the first bytes of a request, holding no buffer meanwhile. Returns whether any
    /// came before the end.
    async fn begun(&mut self) -> bool {
        loop {
            if self.socket.readable().await.is_err() {
                return false;
            }
            let read = poll_fn(|context| Poll::Ready(pin!(self.read_some()).poll(context))).await;
            match read {
                Poll::Ready(read) => return read.is_ok_and(|read| read > 0),
                // Readiness may be told too early; the buffer goes again.
                Poll::Pending => self.buffer = BytesMut::new(),
            }
        }
    }

    /// Reads the head of the next request. Empty lines before it are forgiven.
    async fn read_head(&mut self, patience: Duration, is_first: bool) -> Result<Head, NoHead> {
        let http = self.http.clone();
        let sys = &http.services.sys;
        let deadline = sys.clock().tick().plus(patience);
        let mut seen = 0;
        loop {
            while seen == 0 && self.buffer.starts_with(b"\r\n") {
                drop(self.buffer.split_to(2));
            }
            match head::end_of_head(&self.buffer, seen) {
                Ok(Some(_)) if is_first && self.buffer.starts_with(http2::PREFACE) => {
                    return Err(NoHead::Http2);
                }
                Ok(Some(end)) => {
                    let bytes = self.buffer.split_to(end).freeze();
                    return Head::parse(bytes).map_err(NoHead::Refused);
                }
                Ok(None) => seen = if self.buffer.len() < 3 { 0 } else { self.buffer.len() },
                Err(refusal) => return Err(NoHead::Refused(refusal)),
            }
            tokio::select! {
                biased;
                read = self.read_some() => match read {
                    Ok(0) | Err(_) => return Err(NoHead::Over),
                    Ok(_) => {}
                },
                () = sys.sleep_until(deadline) => {
                    return Err(NoHead::Refused(Refusal::new(
                        Status::TIMEOUT,
                        "the head of the request did not come in time",
                    )));
                }
            }
        }
    }

    async fn read_some(&mut self) -> io::Result<usize> {
        // Never more than a head's bound is held: what comes beyond it waits in the kernel.
        let room = limits::HTTP_HEAD_BYTES_MAX.saturating_sub(self.buffer.len()).max(1);
        self.buffer.reserve(room.min(HEAD_BUFFER.max(self.buffer.len())));
        self.socket.read_buf(&mut self.buffer).await
    }
}

/// Reads what still comes after the last answer, so that the answer is not lost with a reset.
pub(crate) async fn linger(connection: &mut Connection) {
    let http = connection.http.clone();
    let sys = &http.services.sys;
    let deadline = sys.clock().tick().plus(limits::HTTP_LINGER);
    let ended = tokio::select! {
        biased;
        ended = connection.socket.end_sending() => ended.is_ok(),
        () = sys.sleep_until(deadline) => false,
    };
    if !ended {
        return;
    }
    let mut dropped = 0;
    let mut scratch = BytesMut::new();
    while dropped < limits::HTTP_DRAIN_BYTES_MAX * 64 {
        scratch.clear();
        scratch.reserve(HEAD_BUFFER * 8);
        tokio::select! {
            biased;
            () = sys.sleep_until(deadline) => return,
            read = connection.socket.read_buf(&mut scratch) => match read {
                Ok(0) | Err(_) => return,
                Ok(read) => dropped += read as u64,
            },
        }
    }
}
