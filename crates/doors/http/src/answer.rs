//! Heads of answers, and the answer to a request that failed.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use bytes::Bytes;
use serde::Serialize;
use weft_core::{Error, ErrorKind, RelPath, TraceId, limits};

use crate::codec::Refusal;
use crate::codec::webdav::xml::{escape_into, is_char};
use crate::map::{self, Act};
use crate::page;
use crate::status::Status;
use crate::webdav::multistatus;

/// The media type of the body of a problem.
const PROBLEM_MEDIA: &str = "application/problem+json";

/// A page of another origin must not be answered, as a part of itself, with what a browser's own
/// credentials give here.
const ALL_RULES: &str = "Cross-Origin-Resource-Policy: same-origin\r\n";

/// The head of an answer while it is written.
pub struct Answer {
    head: String,
}

impl Answer {
    /// Begins one.
    pub fn new(status: Status, date: &str, trace: TraceId) -> Self {
        let mut head = String::with_capacity(512);
        // Writing to a string never fails.
        let _ = write!(
            head,
            "HTTP/1.1 {} {}\r\nDate: {date}\r\nX-Weft-Trace: {trace}\r\n{ALL_RULES}",
            status.code(),
            status.phrase()
        );
        Self { head }
    }

    /// Adds a field. The value holds no line end: whatever comes from names is percent-coded first.
    pub fn field(&mut self, name: &str, value: impl Display) -> &mut Self {
        let from = self.head.len();
        let _ = write!(self.head, "{name}: {value}");
        debug_assert!(!self.head[from..].contains(['\r', '\n']), "a field must stay one line");
        self.head.push_str("\r\n");
        self
    }

    /// Adds fields that are always the same.
    pub fn fixed(&mut self, lines: &'static str) -> &mut Self {
        self.head.push_str(lines);
        self
    }

    /// Ends the head.
    pub fn end(&mut self) -> Vec<u8> {
        self.head.push_str("\r\n");
        std::mem::take(&mut self.head).into_bytes()
    }
}

/// Why a request is not answered with what it asked for.
#[derive(Debug)]
pub struct Problem {
    /// The status.
    pub status: Status,
    /// What sort of error it is.
    pub kind: ErrorKind,
    detail: Cow<'static, str>,
    hint: Option<String>,
    /// Further fields of the answer.
    pub fields: Vec<(&'static str, Cow<'static, str>)>,
    /// Whether the connection cannot be used any more: framing is lost.
    pub closes: bool,
    /// Whether it is people who see it, in a browser.
    is_page: bool,
    /// What of RFC 4918 was not kept, and of which path.
    unmet: Option<(Precondition, Option<RelPath>)>,
}

/// What a WebDAV request must meet (RFC 4918, 16): programs look for its name.
#[derive(Clone, Copy, Debug)]
pub enum Precondition {
    /// The token of each lock in the way was shown.
    LockTokenSubmitted,
    /// No lock lies where one is wanted.
    NoConflictingLock,
    /// The lock is one of the name.
    LockTokenMatchesRequestUri,
    /// Not everything below was asked for.
    PropfindFiniteDepth,
}

impl Precondition {
    fn name(self) -> &'static str {
        match self {
            Self::LockTokenSubmitted => "lock-token-submitted",
            Self::NoConflictingLock => "no-conflicting-lock",
            Self::LockTokenMatchesRequestUri => "lock-token-matches-request-uri",
            Self::PropfindFiniteDepth => "propfind-finite-depth",
        }
    }
}

/// RFC 9457, with what Weft adds.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    trace: String,
}

impl Problem {
    /// Makes one.
    pub fn new(status: Status, kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            kind,
            detail: detail.into(),
            hint: None,
            fields: Vec::new(),
            closes: false,
            is_page: false,
            unmet: None,
        }
    }

    /// Makes the problem of an error that a request for `act` met.
    pub fn of(error: &Error, act: Act) -> Self {
        let mut problem = Self::new(map::status(error.kind(), act), error.kind(), error.to_string());
        problem.hint = error.advice().map(str::to_owned);
        if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unavailable) {
            problem = problem.with("Retry-After", "1");
        }
        if problem.status == Status::UNAUTHORIZED { problem.challenging() } else { problem }
    }

    /// Makes the problem of asking who the caller is: what was asked for is for somebody, or for
    /// nobody, and only proof of who asks decides which is told.
    pub fn who_asks() -> Self {
        Self::new(
            Status::UNAUTHORIZED,
            ErrorKind::Unauthenticated,
            "this needs a user's password or a credential",
        )
        .challenging()
    }

    /// Adds a field to the answer.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Ends the connection after the answer.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Says which precondition was not met, and of which path.
    #[must_use]
    pub fn because(mut self, what: Precondition, path: Option<RelPath>) -> Self {
        self.unmet = Some((what, path));
        self
    }

    /// Tells it to somebody who looks at it in a browser. They are asked who they are by the page itself, so the
    /// browser is not told to ask with a window of its own.
    #[must_use]
    pub fn for_people(mut self) -> Self {
        self.is_page = true;
        self.fields.retain(|(_, value)| !value.starts_with("Basic "));
        self
    }

    /// Returns whether people see it.
    pub fn is_page(&self) -> bool {
        self.is_page
    }

    /// Returns what went wrong.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns what to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    fn challenging(self) -> Self {
        self.with("WWW-Authenticate", "Basic realm=\"weft\", charset=\"UTF-8\"")
            .with("WWW-Authenticate", "Bearer realm=\"weft\"")
    }

    /// Returns the body and its media type.
    pub fn body(&self, trace: TraceId) -> (&'static str, Vec<u8>) {
        match &self.unmet {
            Some((what, path)) => (multistatus::MEDIA, self.unmet_body(*what, path.as_ref(), trace)),
            None if self.is_page => (page::MEDIA, page::problem::page(self, trace).into_bytes()),
            None => (PROBLEM_MEDIA, self.json_body(trace)),
        }
    }

    /// What WebDAV's programs look for, and beside it what people do.
    fn unmet_body(&self, what: Precondition, path: Option<&RelPath>, trace: TraceId) -> Vec<u8> {
        let name = what.name();
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\">");
        match path {
            Some(path) => {
                let _ = write!(text, "<D:{name}>");
                multistatus::write_href(path, false, &mut text);
                let _ = write!(text, "</D:{name}>");
            }
            None => _ = write!(text, "<D:{name}/>"),
        }
        let _ = write!(text, "<detail xmlns=\"weft:error\" trace=\"{trace}\">");
        let shown: String = self.detail.chars().filter(|one| is_char(*one)).collect();
        escape_into(&shown, &mut text);
        text.push_str("</detail></D:error>\n");
        text.into_bytes()
    }

    fn json_body(&self, trace: TraceId) -> Vec<u8> {
        let body = Body {
            r#type: "about:blank",
            title: self.status.phrase(),
            status: self.status.code(),
            detail: &self.detail,
            kind: self.kind.name(),
            hint: self.hint.as_deref(),
            trace: trace.to_string(),
        };
        let mut text = serde_json::to_vec(&body).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// Returns the whole answer to a connection beyond those that its machine may have.
pub fn too_many_connections() -> Bytes {
    let why = "your address has as many connections open as it may";
    let body = Problem::new(Status::TOO_MANY, ErrorKind::Busy, why).json_body(TraceId(0));
    let (status, retry) = (Status::TOO_MANY, limits::TURNED_AWAY_RETRY.as_secs());
    let mut answer = Answer { head: format!("HTTP/1.1 {} {}\r\n", status.code(), status.phrase()) };
    answer.field("Retry-After", retry).fixed("Connection: close\r\n");
    answer.field("Content-Type", PROBLEM_MEDIA).field("Content-Length", body.len());
    [answer.end(), body].concat().into()
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.status, ErrorKind::Invalid, refusal.reason)
    }
}
