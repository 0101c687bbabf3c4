//! What a node tells of itself over HTTP, beside the tree: short texts under a few names, on a listener
//! of their own.
//!
//! One request a connection, read by the same codec as the door's: a monitor asks every few seconds, and
//! a connection that is kept would have to be bounded, idle and drained. Nothing here reads a body or
//! knows a caller: what is told is for whoever can reach the listener, so it listens on the loopback
//! unless an operator says otherwise, and answers for its own host names only, so that no page of
//! another site can read it through somebody's browser.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use weft_core::{ErrorKind, limits};
use weft_doors_listener::{Guest, Listener, Shutdown};
use weft_sys::Sys;
use weft_sys::net::{More, Socket};

use crate::codec::Refusal;
use crate::codec::head::{self, Head, Method};
use crate::codec::host::Hosts;
use crate::status::Status;

/// Bytes that are read at once: most heads fit.
const READ_BYTES: usize = 2 << 10;

/// A text, and how it is meant.
pub struct Notice {
    /// The status it is told with.
    pub status: Status,
    /// Its media type.
    pub media: &'static str,
    /// The text.
    pub text: String,
}

impl Notice {
    /// Makes a notice of a line for people.
    pub fn line(status: Status, line: &str) -> Self {
        Self { status, media: "text/plain; charset=utf-8", text: format!("{line}\n") }
    }
}

/// Whoever has something to tell.
pub trait Notices: Send + Sync + 'static {
    /// Returns what there is under a path; none if there is nothing.
    fn notice(&self, path: &[u8]) -> Option<Notice>;
}

/// Tells it to whoever asks, until `shutdown` is requested. `hosts` are names that requests may use
/// beside those of the loopback.
pub async fn serve(
    sys: Sys,
    notices: Arc<dyn Notices>,
    hosts: &[String],
    listener: Listener,
    shutdown: Shutdown,
) {
    let hosts = Arc::new(Hosts::new(hosts));
    let welcome = move |guest: Guest| {
        let (sys, notices, hosts) = (sys.clone(), notices.clone(), hosts.clone());
        async move { tell(&sys, &*notices, &hosts, guest).await }
    };
    listener.serve(shutdown, crate::answer::too_many_connections(), welcome).await;
}

/// Answers one request, within the time that a head may take and as much again for the answer.
async fn tell(sys: &Sys, notices: &dyn Notices, hosts: &Hosts, guest: Guest) {
    let Guest { mut socket, mut shutdown, stay } = guest;
    let asked = tokio::select! {
        asked = read_head(&mut socket) => asked,
        () = shutdown.wait() => None,
        () = sys.sleep(stay.head()) => None,
    };
    let Some(asked) = asked else { return };
    let answer = answer(notices, hosts, &socket, &asked);
    tokio::select! {
        _ = leave(&mut socket, &answer) => {}
        () = sys.sleep(limits::HTTP_LINGER) => {}
    }
}

/// Reads until a head has ended; none if the other end leaves first.
async fn read_head(socket: &mut Socket) -> Option<Result<Head, Refusal>> {
    let mut buffer = BytesMut::new();
    loop {
        match head::end_of_head(&buffer, 0) {
            Ok(Some(end)) => return Some(Head::parse(buffer.split_to(end).freeze())),
            Ok(None) => {}
            Err(refusal) => return Some(Err(refusal)),
        }
        let room = limits::HTTP_HEAD_BYTES_MAX.saturating_sub(buffer.len()).clamp(1, READ_BYTES);
        buffer.reserve(room);
        match socket.read_buf(&mut buffer).await {
            Ok(read) if read > 0 => {}
            _ => return None,
        }
    }
}

fn answer(notices: &dyn Notices, hosts: &Hosts, socket: &Socket, asked: &Result<Head, Refusal>) -> Bytes {
    let head = match asked {
        Ok(head) => head,
        Err(refusal) => return written(&Notice::line(refusal.status, refusal.reason), "", true),
    };
    let own = || socket.own_address().map(|own| own.ip());
    if (head.is_1_1 || !head.host().is_empty()) && !hosts.admits(head.host(), own) {
        let why = "this does not answer for that host";
        return written(&Notice::line(Status::MISDIRECTED, why), "", true);
    }
    if !matches!(head.method, Method::Get | Method::Head) {
        let notice = Notice::line(Status::METHOD_NOT_ALLOWED, "one can only ask here");
        return written(&notice, "Allow: GET, HEAD\r\n", true);
    }
    let notice = notices.notice(&head.path());
    let notice = notice.unwrap_or_else(|| Notice::line(Status::NOT_FOUND, ErrorKind::NotFound.name()));
    written(&notice, "", head.method == Method::Get)
}

/// Writes a whole answer.
fn written(notice: &Notice, more: &str, with_text: bool) -> Bytes {
    let Notice { status, media, text } = notice;
    let mut answer = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {media}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n{more}\r\n",
        status.code(),
        status.phrase(),
        text.len()
    );
    if with_text {
        answer.push_str(text);
    }
    answer.into()
}

/// Sends the answer, and reads what still comes so that the answer is not lost with a reset.
async fn leave(socket: &mut Socket, answer: &[u8]) -> std::io::Result<()> {
    socket.send(answer, More::Ends).await?;
    socket.end_sending().await?;
    let mut scratch = [0; READ_BYTES];
    while socket.read(&mut scratch).await? > 0 {}
    Ok(())
}
