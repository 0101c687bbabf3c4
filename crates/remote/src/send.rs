//! A request, its answer, and where that leads.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue, LOCATION, USER_AGENT};
use hyper::http::request::Builder;
use hyper::http::response::Parts;
use hyper::{Method, Request, StatusCode};
use weft_core::{Deadline, Error, ErrorKind, Result, limits};

use crate::connect::Line;
use crate::upload::Outgoing;
use crate::{Fields, Remote, Url};

/// What is asked of another server.
#[derive(Clone)]
pub(crate) struct Ask {
    pub method: Method,
    pub url: Url,
    /// What the request says, to whomever.
    pub own: Fields,
    /// What is meant for the server of this address, and for no other.
    pub passed: Fields,
}

/// An answer whose body has not been read.
pub(crate) struct Answer {
    pub line: Line,
    pub head: Parts,
    pub body: Incoming,
    /// What was asked in the end, after all redirects.
    pub ask: Ask,
}

impl Ask {
    /// Fails if what is meant for the server would be read by whoever is on the way.
    pub fn check_private(&self, line: &Line) -> Result<()> {
        if self.passed.is_empty() || self.url.is_secure() || line.address.is_loopback() {
            return Ok(());
        }
        Err(Error::denied("what proves who asks is sent by TLS only").hint("name the server by https"))
    }

    /// Makes the request.
    pub fn request(&self, body: Outgoing) -> Result<Request<Outgoing>> {
        let builder = Builder::new().method(self.method.clone()).uri(self.url.target());
        let mut request = builder.body(body).map_err(malformed)?;
        let fields = request.headers_mut();
        for (name, value) in self.own.iter().chain(&self.passed) {
            fields.append(name, value.clone());
        }
        fields.insert(HOST, HeaderValue::from_str(&self.url.authority()).map_err(malformed)?);
        fields.insert(USER_AGENT, HeaderValue::from_static(concat!("weft/", env!("CARGO_PKG_VERSION"))));
        // Files are taken as they are kept.
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Ok(request)
    }

    /// Returns what is to be asked instead, if an answer leads elsewhere.
    pub fn led_by(&self, head: &Parts) -> Result<Option<Self>> {
        match head.status {
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => {}
            StatusCode::SEE_OTHER if self.method == Method::GET || self.method == Method::HEAD => {}
            _ => return Ok(None),
        }
        let location = head.headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| lies("the server redirects to nowhere"))?;
        let url = self
            .url
            .leads_to(location)
            .map_err(|error| lies("the server redirects to what is no address of a file").caused_by(error))?;
        if self.url.is_secure() && !url.is_secure() {
            return Err(Error::denied("the server redirects to an address without TLS"));
        }
        let mut next = Self { url, ..self.clone() };
        if !next.url.is_same_server(&self.url) {
            next.passed.clear();
        }
        Ok(Some(next))
    }
}

impl Remote {
    /// Sends a request with a small body, or none, and returns the answer, whatever it says.
    pub(crate) async fn ask(&self, ask: Ask, body: Bytes) -> Result<Answer> {
        let mut ask = ask;
        for _ in 0..=limits::REMOTE_REDIRECTS_MAX {
            let (line, head, body) = self.ask_once(&ask, body.clone()).await?;
            match ask.led_by(&head).map_err(|error| error.about(&ask.url))? {
                Some(next) => ask = next,
                None => return Ok(Answer { line, head, body, ask }),
            }
        }
        Err(too_far().about(&ask.url))
    }

    /// Sends a request and returns its answer, wherever that leads.
    pub(crate) async fn ask_once(&self, ask: &Ask, body: Bytes) -> Result<(Line, Parts, Incoming)> {
        let mut line = self.connect(&ask.url).await.map_err(|error| error.about(&ask.url))?;
        ask.check_private(&line).map_err(|error| error.about(&ask.url))?;
        let request = ask.request(Outgoing::whole(body))?;
        let sent = line.sender.send_request(request);
        let answered = self.soon(limits::REMOTE_ANSWER_WITHIN, async { sent.await.map_err(gone) });
        let (head, body) = answered.await.map_err(|error| error.about(&ask.url))?.into_parts();
        Ok((line, head, body))
    }

    /// Waits for another server, so long at most.
    pub(crate) async fn soon<T>(&self, span: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
        let until = Deadline::within(self.sys().clock(), span);
        self.sys().within(until, work).await.map_err(|error| match error.kind() {
            ErrorKind::Deadline => Error::new(ErrorKind::Deadline, "the server did not answer in time"),
            _ => error,
        })
    }

    /// Waits for the next bytes of a body; `None` at its end. Whoever gives the wait up loses nothing.
    pub(crate) async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>> {
        let next = async {
            loop {
                let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
                match frame.transpose().map_err(gone)?.map(|frame| frame.into_data()) {
                    None => return Ok(None),
                    Some(Ok(bytes)) if !bytes.is_empty() => return Ok(Some(bytes)),
                    // Fields that follow a body say nothing that is asked for.
                    Some(_) => {}
                }
            }
        };
        let until = Deadline::within(self.sys().clock(), limits::REMOTE_IDLE);
        self.sys().within(until, next).await.map_err(|error| match error.kind() {
            ErrorKind::Deadline => Error::new(ErrorKind::Deadline, "the server sent nothing for too long"),
            _ => error,
        })
    }
}

/// The error of a server that does not keep to what it says.
pub(crate) fn lies(why: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, why)
}

pub(crate) fn too_far() -> Error {
    Error::new(ErrorKind::Loop, "the server redirects more often than is followed")
}

pub(crate) fn malformed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("the request cannot be made of that").caused_by(error)
}

/// Tells what went wrong on a connection.
pub(crate) fn gone(error: hyper::Error) -> Error {
    let why = match error.is_parse() {
        true => "the server's answer is malformed, or its head larger than the limit",
        false => "the connection to the server broke off",
    };
    Error::new(ErrorKind::Unavailable, why).caused_by(error)
}

/// Returns the error of an answer that is no success.
pub(crate) fn refused(status: StatusCode) -> Error {
    let kind = match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound,
        StatusCode::UNAUTHORIZED => ErrorKind::Unauthenticated,
        StatusCode::FORBIDDEN => ErrorKind::Denied,
        StatusCode::PRECONDITION_FAILED => ErrorKind::Precondition,
        StatusCode::CONFLICT => ErrorKind::Conflict,
        StatusCode::LOCKED => ErrorKind::Locked,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::TooLarge,
        StatusCode::INSUFFICIENT_STORAGE => ErrorKind::NoSpace,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("the server answers {}", status.to_string().trim_end()))
}
