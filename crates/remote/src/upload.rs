//! A file that another server is given.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, ETAG, EXPECT, HeaderValue, IF_NONE_MATCH};
use hyper::http::response::Parts;
use hyper::{Method, Response, StatusCode};
use tokio::sync::{Notify, mpsc};
use weft_core::form::Source;
use weft_core::{Error, ErrorKind, Result, Time, limits};

use crate::connect::Line;
use crate::send::{Ask, gone, lies, refused, too_far};
use crate::{Fields, Remote, Url};

/// What is handed over at once: a server that takes less than this in [`limits::REMOTE_IDLE`] is as good as gone.
const HANDED_BYTES: usize = 64 << 10;

/// A file that is to be given.
#[derive(Clone)]
pub struct Put {
    /// Where it goes.
    pub url: Url,
    /// What is meant for that server alone.
    pub passed: Fields,
    /// Its bytes; none if they are not known, and it then goes in chunks.
    pub length: Option<u64>,
    /// Whether it may take the place of something.
    pub overwrites: bool,
    /// When its bytes changed, for servers that take it (`X-OC-Mtime`).
    pub modified: Option<Time>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Whether something was replaced, if the server says.
    pub replaced: Option<bool>,
    /// The tag of what is kept now.
    pub tag: Option<String>,
}

/// The body of a request.
pub(crate) enum Outgoing {
    Whole(Bytes),
    Pieces { pieces: mpsc::Receiver<io::Result<Bytes>>, left: Option<u64> },
}

impl Outgoing {
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }

    fn pieces(left: Option<u64>) -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, pieces) = mpsc::channel(1);
        (sender, Self::Pieces { pieces, left })
    }
}

impl Body for Outgoing {
    // The trait's own word.
    type r#Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pieces { pieces, left } => pieces.poll_recv(context).map(|piece| {
                if let (Some(left), Some(Ok(bytes))) = (left, &piece) {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                piece.map(|piece| piece.map(Frame::data))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Pieces { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces { left, .. } => left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

type Pieces = mpsc::Sender<io::Result<Bytes>>;
/// The answer that is waited for.
type Answering = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// How a try to give a file ended.
enum Given {
    Stored(Stored),
    /// The server names another place.
    Led(Box<Ask>),
}

/// What a server had of a file when it answered.
#[derive(Clone, Copy)]
enum Taken {
    Nothing,
    Some,
    All,
}

impl Remote {
    /// Gives a file to a server, and returns once that says it keeps it. The source is pulled only once the server is
    /// ready to take it, so a redirect costs none of it. Fails with what the source fails with.
    pub async fn upload(&self, put: &Put, source: &mut dyn Source) -> Result<Stored> {
        let mut own = Fields::new();
        if let Some(length) = put.length {
            own.insert(CONTENT_LENGTH, length.into());
        }
        if put.length != Some(0) {
            own.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        if !put.overwrites {
            own.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        if let Some(time) = put.modified {
            own.insert("x-oc-mtime", time.seconds().into());
        }
        let mut ask = Ask { method: Method::PUT, url: put.url.clone(), own, passed: put.passed.clone() };
        for _ in 0..=limits::REMOTE_REDIRECTS_MAX {
            let line = self.connect(&ask.url).await.map_err(|error| error.about(&ask.url))?;
            match self.give(&ask, line, put.length, source).await.map_err(|error| error.about(&ask.url))? {
                Given::Stored(stored) => return Ok(stored),
                Given::Led(next) => ask = *next,
            }
        }
        Err(too_far().about(&ask.url))
    }

    async fn give(
        &self,
        ask: &Ask,
        line: Line,
        length: Option<u64>,
        source: &mut dyn Source,
    ) -> Result<Given> {
        ask.check_private(&line)?;
        let mut line = line;
        let (pieces, body) = Outgoing::pieces(length);
        let mut request = ask.request(body)?;
        let leave = Arc::new(Notify::new());
        let given = leave.clone();
        hyper::ext::on_informational(&mut request, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                given.notify_one();
            }
        });
        let mut answer: Answering = Box::pin(line.sender.send_request(request));
        let early = match length {
            Some(0) => None,
            _ => self.leave(&leave, &mut answer).await?,
        };
        let (head, taken) = match early {
            Some(early) => (early.into_parts().0, Taken::Nothing),
            None => {
                let (answer, taken) = self.pump(pieces, source, length, answer).await?;
                (answer.into_parts().0, taken)
            }
        };
        if let Some(next) = ask.led_by(&head)? {
            return match taken {
                Taken::Nothing => Ok(Given::Led(Box::new(next))),
                _ => Err(lies("the server took some of the file and then redirected")),
            };
        }
        match taken {
            _ if !head.status.is_success() => Err(refused(head.status)),
            Taken::All => Ok(Given::Stored(Stored::of(&head))),
            _ => Err(lies("the server says that it keeps the file before it had it")),
        }
    }

    /// Waits for leave to send. Returns the answer, if that comes instead.
    async fn leave(&self, leave: &Notify, answer: &mut Answering) -> Result<Option<Response<Incoming>>> {
        tokio::select! {
            biased;
            early = answer => early.map(Some).map_err(gone),
            () = leave.notified() => Ok(None),
            () = self.sys().sleep(limits::REMOTE_LEAVE_WITHIN) => Ok(None),
        }
    }

    /// Sends the source, and waits for the answer: to all of it, or one that comes before.
    async fn pump(
        &self,
        pieces: Pieces,
        source: &mut dyn Source,
        length: Option<u64>,
        mut answer: Answering,
    ) -> Result<(Response<Incoming>, Taken)> {
        let mut stopped = source.stopped();
        let mut sent = 0;
        while length != Some(sent) {
            let piece = tokio::select! {
                biased;
                early = &mut answer => return Ok((early.map_err(gone)?, Taken::Some)),
                piece = source.next(limits::PIECE_BYTES_MAX) => piece?,
            };
            let Some(piece) = piece else { break };
            let mut bytes = piece.into_bytes()?;
            source.yield_turn();
            sent += bytes.len() as u64;
            while !bytes.is_empty() {
                let next = bytes.split_to(bytes.len().min(HANDED_BYTES));
                tokio::select! {
                    biased;
                    early = &mut answer => return Ok((early.map_err(gone)?, Taken::Some)),
                    why = &mut stopped => return Err(why),
                    handed = pieces.send(Ok(next)) => if handed.is_err() { break },
                    () = self.sys().sleep(limits::REMOTE_IDLE) => {
                        return Err(Error::new(ErrorKind::Deadline, "the server took nothing for too long"));
                    }
                }
            }
        }
        if length.is_some_and(|length| length != sent) {
            // The body never ends well then: the connection is cut with it.
            return Err(Error::corrupt("the bytes ended before the length that was promised"));
        }
        drop(pieces);
        let answered = self.soon(limits::REMOTE_ANSWER_WITHIN, async { answer.await.map_err(gone) });
        Ok((answered.await?, Taken::All))
    }
}

impl Stored {
    fn of(head: &Parts) -> Self {
        let replaced = match head.status {
            StatusCode::CREATED => Some(false),
            StatusCode::NO_CONTENT => Some(true),
            _ => None,
        };
        let tag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        Self { replaced, tag }
    }
}
