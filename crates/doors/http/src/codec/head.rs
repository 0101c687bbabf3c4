//! The head of a request: method, target, and the fields this door reads.
//!
//! Framing is where a front server and this one could disagree about what a request is, so
//! everything odd is refused: bare line feeds, two lengths, a length beside chunks, a coding that
//! is not exactly `chunked`.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use bytes::Bytes;
use weft_core::limits;

use super::{Refusal, trim};
use crate::status::Status;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A file or listing.
    Get,
    /// The same without its bytes.
    Head,
    /// A form of the page, or an upload that is begun.
    Post,
    /// More of an upload.
    Patch,
    /// Makes or replaces a file.
    Put,
    /// Removes a name.
    Delete,
    /// What can be asked.
    Options,
    /// Makes a directory.
    Mkcol,
    /// What is known of a resource.
    Propfind,
    /// Changes what is known of it.
    Proppatch,
    /// Copies a resource, or a tree of them.
    Copy,
    /// Gives a resource another name.
    Move,
    /// Locks a name, or goes on with a lock.
    Lock,
    /// Ends a lock.
    Unlock,
    /// Anything else.
    Other,
}

impl Method {
    fn of(text: &str) -> Self {
        match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PATCH" => Self::Patch,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "MKCOL" => Self::Mkcol,
            "PROPFIND" => Self::Propfind,
            "PROPPATCH" => Self::Proppatch,
            "COPY" => Self::Copy,
            "MOVE" => Self::Move,
            "LOCK" => Self::Lock,
            "UNLOCK" => Self::Unlock,
            _ => Self::Other,
        }
    }

    /// Returns whether the method changes nothing.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Propfind)
    }

    /// Returns the method's name, for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Mkcol => "MKCOL",
            Self::Propfind => "PROPFIND",
            Self::Proppatch => "PROPPATCH",
            Self::Copy => "COPY",
            Self::Move => "MOVE",
            Self::Lock => "LOCK",
            Self::Unlock => "UNLOCK",
            Self::Other => "other",
        }
    }
}

/// How the body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes; 0 if there is none.
    Length(u64),
    /// Chunks.
    Chunked,
}

macro_rules! fields {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// A field this door reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Field { $($name),* }

        impl Field {
            const NAMES: &[&str] = &[$($text),*];
            const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

fields! {
    Host = "host",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Connection = "connection",
    Expect = "expect",
    Authorization = "authorization",
    Range = "range",
    IfRange = "if-range",
    IfMatch = "if-match",
    IfNoneMatch = "if-none-match",
    IfModifiedSince = "if-modified-since",
    IfUnmodifiedSince = "if-unmodified-since",
    Accept = "accept",
    WantReprDigest = "want-repr-digest",
    WantDigest = "want-digest",
    ReprDigest = "repr-digest",
    ContentDigest = "content-digest",
    Digest = "digest",
    ContentMd5 = "content-md5",
    ContentRange = "content-range",
    ContentEncoding = "content-encoding",
    UserAgent = "user-agent",
    Depth = "depth",
    Destination = "destination",
    Overwrite = "overwrite",
    If = "if",
    LockToken = "lock-token",
    Timeout = "timeout",
    OcMtime = "x-oc-mtime",
    Cookie = "cookie",
    Origin = "origin",
    Guard = "x-weft-guard",
    Source = "source",
    Credential = "credential",
    RequireChecks = "requirechecksumverification",
    ContentType = "content-type",
    MethodOverride = "x-http-method-override",
    TusResumable = "tus-resumable",
    UploadLength = "upload-length",
    UploadDeferLength = "upload-defer-length",
    UploadOffset = "upload-offset",
    UploadMetadata = "upload-metadata",
    UploadConcat = "upload-concat",
    UploadChecksum = "upload-checksum",
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self::ALL[at])
    }

    /// Returns the field's name in lower case.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A part of the head's bytes. The head's bound keeps both in 16 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    at: u16,
    length: u16,
}

const _: () = assert!(limits::HTTP_HEAD_BYTES_MAX <= u16::MAX as usize);

/// The head of a request, checked.
#[derive(Debug)]
pub struct Head {
    bytes: Bytes,
    /// What is asked for.
    pub method: Method,
    /// Whether the version is 1.1 (else 1.0).
    pub is_1_1: bool,
    /// How the body is framed.
    pub framing: Framing,
    /// Whether the connection may be used again.
    pub keep_alive: bool,
    /// Whether the client waits for leave to send the body.
    pub expects_continue: bool,
    path: Span,
    query: Option<Span>,
    host: Span,
    /// The first value of each field; empty fields have length 0 and `at` 0.
    values: [Option<Span>; Field::ALL.len()],
    repeated: Vec<(Field, Span)>,
}

/// Looks for the end of a head in `bytes`, of which the first `seen` were looked at before.
/// Returns its length if it is there.
pub fn end_of_head(bytes: &[u8], seen: usize) -> Result<Option<usize>, Refusal> {
    // The last three bytes seen may be the beginning of the end.
    let mut at = seen.saturating_sub(3);
    while let Some(feed) = find(bytes, at, |byte| byte == b'\n') {
        if feed == 0 || bytes[feed - 1] != b'\r' {
            return Err(Refusal::malformed("a line must end in CR LF"));
        }
        if feed >= 3 && bytes[feed - 3..feed - 1] == *b"\r\n" {
            return if feed < limits::HTTP_HEAD_BYTES_MAX {
                Ok(Some(feed + 1))
            } else {
                Err(too_large(bytes))
            };
        }
        at = feed + 1;
    }
    if bytes.len() >= limits::HTTP_HEAD_BYTES_MAX { Err(too_large(bytes)) } else { early_target(bytes) }
}

/// A target that is too long is refused as soon as it is.
fn early_target(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
    let first_line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    // The method and version take no more than this beside the target.
    if first_line > limits::HTTP_TARGET_BYTES_MAX + 64 { Err(too_large(bytes)) } else { Ok(None) }
}

fn too_large(bytes: &[u8]) -> Refusal {
    let first_line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    if first_line > limits::HTTP_TARGET_BYTES_MAX {
        Refusal::new(Status::TARGET_TOO_LONG, "the target is longer than its limit")
    } else {
        Refusal::new(Status::FIELDS_TOO_LARGE, "the head is larger than its limit")
    }
}

impl Head {
    /// Parses a whole head, its empty line included.
    pub fn parse(bytes: Bytes) -> Result<Self, Refusal> {
        check_lines(&bytes)?;
        let mut space = [const { MaybeUninit::uninit() }; limits::HTTP_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(&bytes, &mut space).map_err(refusal)?;
        if parsed != httparse::Status::Complete(bytes.len()) {
            return Err(Refusal::malformed("the head does not end where its empty line is"));
        }
        let method = request.method.ok_or(Refusal::malformed("there is no method"))?;
        let target = request.path.ok_or(Refusal::malformed("there is no target"))?;
        if target.len() > limits::HTTP_TARGET_BYTES_MAX {
            return Err(Refusal::new(Status::TARGET_TOO_LONG, "the target is longer than its limit"));
        }
        let span = |part: &[u8]| Span {
            at: (part.as_ptr() as usize - bytes.as_ptr() as usize) as u16,
            length: part.len() as u16,
        };
        let mut values = [None; Field::ALL.len()];
        let mut repeated = Vec::new();
        for header in request.headers.iter() {
            let Some(field) = Field::of(header.name) else { continue };
            let value = &mut values[field as usize];
            match value {
                None => *value = Some(span(header.value)),
                Some(_) => repeated.push((field, span(header.value))),
            }
        }
        let (authority, path) = split_target(target)?;
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(span(query.as_bytes()))),
            None => (path, None),
        };
        let mut head = Self {
            method: Method::of(method),
            is_1_1: request.version == Some(1),
            framing: Framing::Length(0),
            keep_alive: false,
            expects_continue: false,
            path: span(path.as_bytes()),
            query,
            host: authority.map(|authority| span(authority.as_bytes())).unwrap_or_default(),
            values,
            repeated,
            bytes: bytes.clone(),
        };
        head.settle()?;
        Ok(head)
    }

    /// Draws the conclusions that concern the connection itself.
    fn settle(&mut self) -> Result<(), Refusal> {
        let host = self.one(Field::Host)?;
        if host.is_none() && self.is_1_1 {
            return Err(Refusal::malformed("there is no Host"));
        }
        if self.host.length == 0 {
            self.host = self.values[Field::Host as usize].unwrap_or_default();
        }
        self.framing = self.find_framing()?;
        self.keep_alive = self.find_keep_alive()?;
        self.expects_continue = match self.one(Field::Expect)? {
            None => false,
            Some(expect) if expect.eq_ignore_ascii_case("100-continue") => self.is_1_1,
            Some(_) => {
                return Err(Refusal::new(Status::EXPECTATION_FAILED, "only 100-continue can be expected"));
            }
        };
        Ok(())
    }

    fn find_framing(&self) -> Result<Framing, Refusal> {
        let coding = self.one(Field::TransferEncoding)?;
        let length = self.one(Field::ContentLength)?;
        match (coding, length) {
            (None, None) => Ok(Framing::Length(0)),
            (None, Some(text)) => Ok(Framing::Length(parse_length(text)?)),
            (Some(_), Some(_)) => Err(Refusal::malformed("a body has a length or is chunked, not both")),
            (Some(_), None) if !self.is_1_1 => Err(Refusal::malformed("HTTP/1.0 has no transfer codings")),
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
            (Some(_), None) => {
                Err(Refusal::new(Status::NOT_IMPLEMENTED, "the only transfer coding is chunked"))
            }
        }
    }

    fn find_keep_alive(&self) -> Result<bool, Refusal> {
        let options = self.all(Field::Connection)?.unwrap_or_default();
        let says = |what: &str| super::members(&options).any(|option| option.eq_ignore_ascii_case(what));
        Ok(if self.is_1_1 { !says("close") } else { says("keep-alive") && !says("close") })
    }

    /// Returns the path of the target as it was sent.
    pub fn path(&self) -> Bytes {
        self.bytes.slice_ref(self.at(self.path))
    }

    /// Returns the query of the target as it was sent.
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|query| self.at(query))
    }

    /// Returns the host that was asked for; empty if HTTP/1.0 named none.
    pub fn host(&self) -> &[u8] {
        self.at(self.host)
    }

    /// Returns the value of a field that may come once. Fails if it comes twice or is no text.
    pub fn one(&self, field: Field) -> Result<Option<&str>, Refusal> {
        if self.repeated.iter().any(|(repeated, _)| *repeated == field) {
            return Err(Refusal::malformed("a field came twice that may come once"));
        }
        self.values[field as usize].map(|span| text(self.at(span))).transpose()
    }

    /// Returns the members of a list field, in one line. Fails if it is no text.
    pub fn all(&self, field: Field) -> Result<Option<Cow<'_, str>>, Refusal> {
        let Some(first) = self.values[field as usize] else { return Ok(None) };
        let mut all = Cow::Borrowed(text(self.at(first))?);
        for (_, span) in self.repeated.iter().filter(|(repeated, _)| *repeated == field) {
            let all = all.to_mut();
            all.push_str(", ");
            all.push_str(text(self.at(*span))?);
        }
        Ok(Some(all))
    }

    /// Returns whether a field came at all.
    pub fn has(&self, field: Field) -> bool {
        self.values[field as usize].is_some()
    }

    /// Returns the fields whose names begin so, in whatever case: what follows in the name, and the value as it was sent.
    pub fn beginning(&self, prefix: &str) -> Vec<(&str, &[u8])> {
        let mut space = [httparse::EMPTY_HEADER; limits::HTTP_FIELDS_MAX];
        let mut request = httparse::Request::new(&mut space);
        // It was parsed before, so it can be again.
        if request.parse(&self.bytes).is_err() {
            return Vec::new();
        }
        let rest = |name: &str| name.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix));
        let found = request.headers.iter().filter(|header| rest(header.name));
        found.map(|header| (&header.name[prefix.len()..], header.value)).collect()
    }

    fn at(&self, span: Span) -> &[u8] {
        &self.bytes[span.at as usize..][..span.length as usize]
    }
}

fn text(value: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(value).map(trim).map_err(|_| Refusal::malformed("a field's value is no text"))
}

fn parse_length(text: &str) -> Result<u64, Refusal> {
    const BAD: Refusal = Refusal::malformed("Content-Length is not a number");
    if text.is_empty() || text.len() > 20 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD);
    }
    text.parse().map_err(|_| BAD)
}

/// Every line ends in CR LF and neither stands alone; no line is folded.
fn check_lines(bytes: &[u8]) -> Result<(), Refusal> {
    let mut at = 0;
    while let Some(end) = find(bytes, at, |byte| byte == b'\r' || byte == b'\n') {
        if bytes[end] == b'\n' {
            return Err(Refusal::malformed("a line must end in CR LF"));
        }
        if bytes.get(end + 1) != Some(&b'\n') {
            return Err(Refusal::malformed("a CR stands alone"));
        }
        at = end + 2;
        if let Some(b' ' | b'\t') = bytes.get(at) {
            return Err(Refusal::malformed("a field is folded"));
        }
    }
    Ok(())
}

/// Returns where the next such byte is. Blocks without one are passed at once, which the compiler
/// makes one step of.
fn find(bytes: &[u8], from: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let (blocks, _) = bytes[from..].as_chunks::<32>();
    let has = |block: &&[u8; 32]| block.iter().fold(false, |has, byte| has | wanted(*byte));
    let from = from + blocks.iter().take_while(|block| !has(block)).count() * 32;
    bytes[from..].iter().position(|byte| wanted(*byte)).map(|found| from + found)
}

/// Splits a target into the authority it names, if any, and its path with query.
fn split_target(target: &str) -> Result<(Option<&str>, &str), Refusal> {
    if target.starts_with('/') || target == "*" {
        return Ok((None, target));
    }
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let rest = scheme.map(|scheme| &target[scheme.len()..]);
    let rest = rest.ok_or(Refusal::malformed("the target is neither a path nor an http address"))?;
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, "/"),
    };
    if authority.is_empty() || authority.contains(['@', '?', '#']) {
        return Err(Refusal::malformed("the target's host is malformed"));
    }
    // A path of its own lies within the target; "/" alone stands for an empty one.
    let path = if path == "/" && !target.ends_with('/') { &target[4 + 1..][..1] } else { path };
    Ok((Some(authority), path))
}

fn refusal(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => {
            Refusal::new(Status::FIELDS_TOO_LARGE, "there are more fields than the limit")
        }
        httparse::Error::Version => Refusal::new(
            Status::VERSION,
            "this door speaks HTTP/1.0, HTTP/1.1 and, from the first byte on, HTTP/2",
        ),
        httparse::Error::HeaderName => Refusal::malformed("a field's name is malformed"),
        httparse::Error::HeaderValue => Refusal::malformed("a field's value is malformed"),
        _ => Refusal::malformed("the request line is malformed"),
    }
}

#[cfg(test)]
mod tests;
