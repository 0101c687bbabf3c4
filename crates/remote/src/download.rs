//! A file of another server, read: one version, whole, and on from where it broke off.

use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_MATCH, LAST_MODIFIED,
    RANGE, TRANSFER_ENCODING,
};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use weft_core::form::{Piece, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, Time, limits};

use crate::connect::Line;
use crate::send::{Answer, Ask, lies, refused};
use crate::{Fields, Remote, Url};

/// Digests that are checked by whoever downloads, as the two fields name them: by another nothing is.
const CHECKED: [&str; 5] = ["adler", "adler32", "md5", "sha-256", "sha-512"];
/// Digests that grids keep go first: a server that keeps one need not read the file.
const WANT_DIGEST: &str = "adler32;q=1.0, sha-256;q=0.8, md5;q=0.5";
const WANT_REPR_DIGEST: &str = "sha-256=10, sha-512=8, adler=5, md5=3";

/// What a server says of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Its bytes.
    pub length: Option<u64>,
    /// The tag of this version, if it stands for exactly these bytes.
    pub tag: Option<String>,
    /// When it was changed.
    pub modified: Option<Time>,
    /// Its `Repr-Digest` (RFC 9530).
    pub repr_digest: Option<String>,
    /// Its `Digest` (RFC 3230), which grids have.
    pub digest: Option<String>,
}

/// Where a download begins.
#[derive(Clone, Debug, Default)]
pub struct From {
    /// The first byte that is wanted.
    pub at: u64,
    /// What the server said of the file when the bytes before that were read.
    pub said: Option<Said>,
}

/// A file of another server, as it comes.
pub struct Download {
    remote: Remote,
    ask: Ask,
    said: Said,
    /// The connection, and the body on it. None once it broke off.
    open: Option<(Line, Incoming)>,
    /// What came and was not handed out.
    waiting: Bytes,
    /// The next byte that comes.
    at: u64,
    /// How often it broke off lately, and where the last time.
    resumes: u32,
    resumed_at: u64,
}

impl Said {
    fn of(fields: &HeaderMap) -> Self {
        let text = |name: &HeaderName| Some(fields.get(name)?.to_str().ok()?.trim().to_owned());
        let list = |name: &'static str| {
            let all: Vec<&str> = fields.get_all(name).iter().filter_map(|one| one.to_str().ok()).collect();
            (!all.is_empty()).then(|| all.join(", "))
        };
        let modified = text(&LAST_MODIFIED).and_then(|text| httpdate::parse_http_date(&text).ok());
        let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Self {
            length: text(&CONTENT_LENGTH).and_then(|text| text.parse().ok()),
            tag: text(&ETAG).filter(|tag| tag.starts_with('"')),
            modified: since.map(|since| Time::from_unix(since.as_secs() as i64, since.subsec_nanos())),
            repr_digest: list("repr-digest"),
            digest: list("digest"),
        }
    }

    /// Returns whether the server gives a digest of those that everybody here checks.
    pub fn has_digest(&self) -> bool {
        let members =
            [&self.repr_digest, &self.digest].into_iter().flatten().flat_map(|text| text.split(','));
        let mut names = members.filter_map(|member| Some(member.split_once('=')?.0.trim()));
        names.any(|name| CHECKED.iter().any(|known| name.eq_ignore_ascii_case(known)))
    }

    fn is_of_same(&self, other: &Self) -> bool {
        self.tag == other.tag && (self.length == other.length || other.length.is_none())
    }
}

fn want_digests(fields: &mut Fields) {
    fields.insert("want-digest", HeaderValue::from_static(WANT_DIGEST));
    fields.insert("want-repr-digest", HeaderValue::from_static(WANT_REPR_DIGEST));
}

impl Remote {
    /// Asks what a server says of a file, its digest included.
    pub async fn describe(&self, url: &Url, passed: &Fields) -> Result<Said> {
        let mut own = Fields::new();
        want_digests(&mut own);
        let ask = Ask { method: Method::HEAD, url: url.clone(), own, passed: passed.clone() };
        let answer = self.ask(ask, Bytes::new()).await?;
        if answer.head.status != StatusCode::OK {
            return Err(refused(answer.head.status).about(url));
        }
        Ok(Said::of(&answer.head.headers))
    }

    /// Begins to read a file. What the server says of it stands for the whole download: another version
    /// later is an error. With `digests` it is asked for one of the file.
    pub async fn download(&self, url: &Url, passed: &Fields, from: From, digests: bool) -> Result<Download> {
        // Servers of grids tell a digest of a file, and not with its bytes.
        let before = match digests {
            true => self.told_before(url, passed).await?,
            false => None,
        };
        let mut own = Fields::new();
        if digests {
            want_digests(&mut own);
        }
        let ask = Ask { method: Method::GET, url: url.clone(), own, passed: passed.clone() };
        let mut download = Download {
            remote: self.clone(),
            ask,
            said: from.said.clone().unwrap_or_default(),
            open: None,
            waiting: Bytes::new(),
            at: from.at,
            resumes: 0,
            resumed_at: from.at,
        };
        match from.said {
            Some(_) if from.at > 0 => download.go_on().await,
            _ => download.begin(before).await,
        }
        .map_err(|error| error.about(url))?;
        Ok(download)
    }

    /// Asks what the server says of a file; whoever does not say is asked for the file itself.
    async fn told_before(&self, url: &Url, passed: &Fields) -> Result<Option<Said>> {
        match self.describe(url, passed).await {
            Ok(said) => Ok(Some(said)),
            Err(error) if matches!(error.kind(), ErrorKind::Deadline | ErrorKind::Loop) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

impl Download {
    /// Returns what the server says of the file.
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Returns how many bytes are still to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        self.said.length.map(|length| length.saturating_sub(self.at) + self.waiting.len() as u64)
    }

    /// Waits for bytes and returns at most `max` of them; `None` at the file's end. `Conflict` if it is no longer the file
    /// that was begun, `Corrupt` if the server sends more or less than it said.
    pub async fn next_bytes(&mut self, max: usize) -> Result<Option<Bytes>> {
        loop {
            if !self.waiting.is_empty() {
                return Ok(Some(self.waiting.split_to(self.waiting.len().min(max.max(1)))));
            }
            if self.said.length == Some(self.at) {
                return Ok(None);
            }
            let came = match &mut self.open {
                Some((_, body)) => self.remote.piece(body).await,
                None => Err(Error::new(ErrorKind::Unavailable, "the connection to the server broke off")),
            };
            match came {
                Ok(Some(bytes)) => self.take(bytes)?,
                Ok(None) if self.said.length.is_none() => {
                    self.said.length = Some(self.at);
                }
                Ok(None) => self.resume(lies("the server sent less than it said")).await?,
                Err(error) if error.kind() == ErrorKind::Deadline => return Err(error.about(&self.ask.url)),
                Err(error) => self.resume(error).await?,
            }
        }
    }

    fn take(&mut self, bytes: Bytes) -> Result<()> {
        self.at += bytes.len() as u64;
        if self.said.length.is_some_and(|length| self.at > length) {
            return Err(lies("the server sent more than it said").about(&self.ask.url));
        }
        if self.at >= self.resumed_at + limits::REMOTE_RESUME_BYTES {
            self.resumes = 0;
        }
        self.waiting = bytes;
        Ok(())
    }

    /// Opens the download again where it broke off, after a rest, if that can be done without mixing two versions.
    async fn resume(&mut self, why: Error) -> Result<()> {
        self.open = None;
        // Bytes without a version are only believed if a digest of the whole is there to check them by.
        let is_sure = self.said.length.is_some() && (self.said.tag.is_some() || self.said.has_digest());
        if !is_sure || self.resumes >= limits::REMOTE_RESUMES_MAX {
            return Err(why.about(&self.ask.url));
        }
        self.remote.sys().sleep(limits::REMOTE_RESUME_REST * (1 << self.resumes)).await;
        (self.resumes, self.resumed_at) = (self.resumes + 1, self.at);
        match self.go_on().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            done => done.map_err(|error| error.about(&self.ask.url)),
        }
    }

    async fn begin(&mut self, before: Option<Said>) -> Result<()> {
        let Answer { line, head, body, ask } = self.remote.ask(self.ask.clone(), Bytes::new()).await?;
        check_coding(&head)?;
        if head.status != StatusCode::OK {
            return Err(refused(head.status));
        }
        self.said = Said::of(&head.headers);
        if self.said.length.is_none() && !head.headers.contains_key(TRANSFER_ENCODING) {
            return Err(lies(
                "the server neither says how long the file is nor sends it in chunks: its end cannot be told from a break",
            ));
        }
        if let Some(before) = before.filter(|_| !self.said.has_digest()) {
            if before.has_digest() && before.tag != self.said.tag {
                return Err(changed());
            }
            if before.is_of_same(&self.said) || self.said.is_of_same(&before) {
                (self.said.repr_digest, self.said.digest) = (before.repr_digest, before.digest);
                self.said.length = self.said.length.or(before.length);
            }
        }
        self.ask = Ask { method: Method::GET, ..ask };
        self.open = Some((line, body));
        Ok(())
    }

    async fn go_on(&mut self) -> Result<()> {
        let mut ask = self.ask.clone();
        let range = format!("bytes={}-", self.at);
        ask.own.insert(RANGE, HeaderValue::from_str(&range).map_err(crate::send::malformed)?);
        if let Some(tag) = &self.said.tag {
            ask.own.insert(IF_MATCH, HeaderValue::from_str(tag).map_err(crate::send::malformed)?);
        }
        let Answer { line, head, body, .. } = self.remote.ask(ask, Bytes::new()).await?;
        check_coding(&head)?;
        match head.status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => return Err(changed()),
            StatusCode::OK => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the connection broke off and the server sends no ranges",
                ));
            }
            status => return Err(refused(status)),
        }
        let said = Said::of(&head.headers);
        if self.said.tag.is_some() && said.tag != self.said.tag {
            return Err(changed());
        }
        let expected = self.said.length.map(|length| format!("{range}{}/{length}", length.saturating_sub(1)));
        let expected = expected.map(|text| text.replace('=', " "));
        let found = head.headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
        if expected.is_none() || found.map(str::trim) != expected.as_deref() {
            return Err(changed());
        }
        self.open = Some((line, body));
        Ok(())
    }
}

fn changed() -> Error {
    Error::new(ErrorKind::Conflict, "the file changed while it was read").hint("copy it again")
}

fn check_coding(head: &Parts) -> Result<()> {
    match head.headers.get(CONTENT_ENCODING) {
        Some(coding) if coding.as_bytes() != b"identity" => {
            Err(lies("the server sends the file in a coding that was not asked for"))
        }
        _ => Ok(()),
    }
}

#[async_trait]
impl Source for Download {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        Ok(self.next_bytes(max.min(limits::PIECE_BYTES_MAX)).await?.map(Piece::Bytes))
    }

    fn length(&self) -> Option<u64> {
        self.left()
    }

    /// Never ends: the source's own waits have their deadlines.
    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}
