//! HTTP/2 (RFC 9113): each stream is a connection of its own to the rest of the door.
//!
//! **Problem.** Browsers and grid tools send many requests over one connection. Whatever they ask must be
//! judged, bounded and answered by the same code as over HTTP/1.1.
//!
//! **Shape.** The `h2` library does frames, header compression and flow control. A stream's head becomes
//! the head of an HTTP/1.1 request, its body comes framed as one, and a pair of sockets leads to an
//! exchange that knows of no difference:
//!
//! ```text
//!  connection ─ h2 ─┬─ stream ─ head (pure) ─▶ pipe ══ socket pair ══▶ exchange::run
//!                   └─ stream ─ …                ◀═══════════════════╝
//! ```
//!
//! A stream that is alone goes along in the connection's own task, which goes on while the two wake each other.
//!
//! So deadlines, back-pressure and fair shares are those of any socket: whoever takes nothing fills the
//! pair, and the exchange gives up as it does on a slow reader.
//!
//! Rejected: answers that are no bytes until they leave (two ways to send a file, and what is refused in one
//! may pass in the other); hyper, which is the same library with a body type between.
//!
//! **Ways to get it wrong.** Not polling the connection while its streams are many: they wait for frames that
//! nobody reads. Ending a stream cleanly whose answer broke off: it is reset.

mod head;
mod insistent;
mod pipe;
mod streams;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weft_core::form::{Origin, one_machine};
use weft_core::limits;
use weft_doors_listener::{Shutdown, Stay};
use weft_sys::net::Socket;
use weft_sys::trace;

use crate::Http;
use crate::answer::Problem;
use crate::codec::head::Head;
use crate::connection::{Connection, Front, linger};
use crate::exchange::{self, After};
use crate::identity::Identity;

use self::streams::Streams;

/// What a client that speaks HTTP/2 begins with looks like the head of a request.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Serves a connection on which the preface came, until it ends.
pub async fn run(connection: Connection, shutdown: Shutdown, stay: Stay) {
    insistent::insistent(serve(connection, shutdown, stay)).await
}

async fn serve(connection: Connection, mut shutdown: Shutdown, stay: Stay) {
    let Connection { http, socket, origin, buffer, identity, .. } = connection;
    let certificate = identity.certificate();
    let front = Front { is_secured: socket.is_secured(), own: socket.own_address() };
    let sys = &http.services.sys;
    let shaken = tokio::select! {
        biased;
        shaken = settings().handshake::<_, Bytes>(Begun { bytes: buffer, socket }) => shaken,
        () = sys.sleep(stay.head()) => return identities(&http, [identity]),
    };
    let mut line = match shaken {
        Ok(line) => line,
        Err(error) => {
            tracing::debug!(%error, "a connection spoke no HTTP/2");
            return identities(&http, [identity]);
        }
    };
    let door = Door { http: http.clone(), origin, front, shutdown: shutdown.clone() };
    let (mut streams, mut known) = (Streams::new(), vec![identity]);
    let mut ending = false;
    loop {
        let patience = if ending { limits::HTTP_LINGER } else { stay.idle() };
        tokio::select! {
            biased;
            event = poll_fn(|context| poll_event(&mut line, &mut streams, context)) => match event {
                // A few are remembered for the next: each has a session, of which the node has only so many.
                Event::Ended(Some(identity)) if known.len() < limits::HTTP2_KNOWN_MAX => known.push(identity),
                Event::Ended(identity) => identities(&http, identity),
                Event::Asked(request, respond) => {
                    let fresh = || Identity::new(front.wire(), certificate.clone());
                    let identity = known.pop().unwrap_or_else(fresh);
                    streams.add(door.clone().serve(request, respond, identity));
                }
                Event::Closed(error) => {
                    error.inspect(|error| tracing::debug!(%error, "a connection broke off"));
                    break;
                }
            },
            () = shutdown.wait(), if !ending => {
                ending = true;
                line.graceful_shutdown();
            }
            () = sys.sleep(patience), if streams.len() == 0 => {
                if ending {
                    break;
                }
                ending = true;
                line.graceful_shutdown();
            }
        }
    }
    drop(line);
    // What they wait for on the other side is gone: they end.
    while let Some(identity) = streams.next().await {
        known.push(identity);
    }
    identities(&http, known);
}

/// What a connection comes to.
enum Event {
    /// A stream ended: who was known on it.
    Ended(Option<Identity>),
    Asked(http::Request<RecvStream>, SendResponse<Bytes>),
    /// The connection ended, maybe for this.
    Closed(Option<h2::Error>),
}

fn poll_event<F: Future<Output = Identity> + Send + 'static>(
    line: &mut h2::server::Connection<Begun, Bytes>,
    streams: &mut Streams<F>,
    context: &mut Context<'_>,
) -> Poll<Event> {
    if let Poll::Ready(identity) = streams.poll_beside(context) {
        return Poll::Ready(Event::Ended(identity));
    }
    let asked = match streams.len() < limits::HTTP2_STREAMS_MAX {
        true => line.poll_accept(context),
        false => line.poll_closed(context).map(|closed| closed.err().map(Err)),
    };
    match asked {
        Poll::Ready(Some(Ok((request, respond)))) => Poll::Ready(Event::Asked(request, respond)),
        Poll::Ready(Some(Err(error))) => Poll::Ready(Event::Closed(Some(error))),
        Poll::Ready(None) => Poll::Ready(Event::Closed(None)),
        Poll::Pending => streams.poll_along(context).map(Event::Ended),
    }
}

fn identities(http: &Http, known: impl IntoIterator<Item = Identity>) {
    known.into_iter().for_each(|mut identity| identity.leave(http));
}

fn settings() -> h2::server::Builder {
    let mut settings = h2::server::Builder::new();
    settings
        .max_concurrent_streams(limits::HTTP2_STREAMS_MAX as u32)
        .max_header_list_size(limits::HTTP_HEAD_BYTES_MAX as u32)
        .initial_window_size(limits::HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::HTTP2_WINDOW_BYTES)
        .max_send_buffer_size(limits::HTTP2_SEND_BYTES);
    settings
}

/// What all streams of a connection have in common.
#[derive(Clone)]
struct Door {
    http: Arc<Http>,
    origin: Origin,
    front: Front,
    shutdown: Shutdown,
}

impl Door {
    /// Serves one stream. Returns who was known on it, for the next.
    async fn serve(
        self,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        identity: Identity,
    ) -> Identity {
        let Ok(_place) = self.http.streams.enter(self.origin.peer.map(one_machine)) else {
            respond.send_reset(Reason::REFUSED_STREAM);
            return identity;
        };
        let (parts, body) = request.into_parts();
        let framing = head::Framing::of(&parts, body.is_end_stream());
        let bytes = match head::request(&parts, framing) {
            Ok(bytes) => bytes,
            Err(refusal) => {
                tracing::debug!(reason = refusal.reason, "a stream is no request");
                respond.send_reset(Reason::PROTOCOL_ERROR);
                return identity;
            }
        };
        let (near, far) = match Socket::pair() {
            Ok(pair) => pair,
            Err(error) => {
                tracing::warn!(%error, "a stream could not be served");
                respond.send_reset(Reason::REFUSED_STREAM);
                return identity;
            }
        };
        let Self { http, origin, front, shutdown } = self;
        let sys = http.services.sys.clone();
        let front = Some(front);
        let mut connection =
            Connection { http, socket: near, origin, buffer: BytesMut::new(), identity, front };
        let served = async move {
            let after = match Head::parse(bytes) {
                Ok(head) => {
                    let trace = connection.http.next_trace();
                    trace::traced(trace, exchange::run(&mut connection, head, &shutdown, trace)).await
                }
                Err(refusal) => exchange::refuse(&mut connection, Problem::from(refusal).closing()).await,
            };
            if after == After::Linger {
                linger(&mut connection).await;
            }
            // Its end of the pair closes here: the other learns whether it has all of the answer.
            (connection.identity, after)
        };
        let mut served = pin!(served);
        let is_head = parts.method == http::Method::HEAD;
        let mut carried = pin!(pipe::carry(&sys, far, (body, framing), respond, is_head));
        tokio::select! {
            biased;
            (identity, after) = &mut served => {
                // What may not be had any more is not waited for: dropped, the stream is reset.
                if after != After::Reset {
                    carried.await;
                }
                identity
            }
            () = &mut carried => served.await.0,
        }
    }
}

/// A socket of which some bytes were read already.
struct Begun {
    bytes: BytesMut,
    socket: Socket,
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, into);
        }
        let length = self.bytes.len().min(into.remaining());
        into.put_slice(&self.bytes[..length]);
        self.bytes.advance(length);
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
