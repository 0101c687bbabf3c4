//! Heads of HTTP/2 as heads of HTTP/1.1, and back: pure.

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use weft_core::limits;

use crate::codec::Refusal;

/// How the body of a request is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// Its length was said, and h2 sees to it that it is that long.
    Length,
    /// In chunks: nobody knows how long it is.
    Chunked,
}

impl Framing {
    /// Returns how the body of a request is to be brought, `ended` being whether its stream has none.
    pub fn of(parts: &http::request::Parts, ended: bool) -> Self {
        match parts.headers.contains_key(header::CONTENT_LENGTH) {
            true => Self::Length,
            false if ended => Self::None,
            false => Self::Chunked,
        }
    }
}

/// Fields that speak of a connection: HTTP/2 has none of them (RFC 9113, 8.2.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Returns the head of a request as HTTP/1.1 has it. Whatever would be another request then is refused.
pub fn request(parts: &http::request::Parts, framing: Framing) -> Result<Bytes, Refusal> {
    if OF_CONNECTIONS.iter().any(|name| parts.headers.contains_key(name)) {
        return Err(Refusal::malformed("a stream has no fields of a connection"));
    }
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut head = BytesMut::with_capacity(512);
    line(&mut head, &[parts.method.as_str().as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1"]);
    if let Some(host) = host(parts)? {
        line(&mut head, &[b"host: ", host]);
    }
    for (name, value) in &parts.headers {
        // What is said of leave to send and of trailers has no meaning here.
        if ![header::HOST, header::COOKIE, header::EXPECT, header::TE].contains(name) {
            line(&mut head, &[name.as_str().as_bytes(), b": ", value.as_bytes()]);
        }
    }
    if let Some(cookies) = cookies(&parts.headers) {
        line(&mut head, &[b"cookie: ", &cookies]);
    }
    if framing == Framing::Chunked {
        line(&mut head, &[b"transfer-encoding: chunked"]);
    }
    line(&mut head, &[]);
    Ok(head.freeze())
}

fn line(head: &mut BytesMut, parts: &[&[u8]]) {
    parts.iter().for_each(|part| head.extend_from_slice(part));
    head.extend_from_slice(b"\r\n");
}

/// Returns the host that is asked, which may be said twice, but not differently.
fn host(parts: &http::request::Parts) -> Result<Option<&[u8]>, Refusal> {
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut said = parts.headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    match (authority, said.next(), said.next()) {
        (_, _, Some(_)) => Err(Refusal::malformed("there are two hosts")),
        (Some(authority), Some(host), None) if !authority.eq_ignore_ascii_case(host) => {
            Err(Refusal::malformed("the host is not the authority"))
        }
        (authority, host, None) => Ok(authority.or(host)),
    }
}

/// Returns the cookies as one field: they may come in several (RFC 9113, 8.2.3).
fn cookies(fields: &HeaderMap) -> Option<Vec<u8>> {
    let crumbs: Vec<&[u8]> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    (!crumbs.is_empty()).then(|| crumbs.join(&b"; "[..]))
}

/// The head of an answer.
#[derive(Debug)]
pub struct Answered {
    /// As HTTP/2 has it.
    pub head: Response<()>,
    /// The length of its body, if it is said; else it comes in chunks.
    pub length: Option<u64>,
}

/// Reads the head of an answer of this door, its empty line included. None if it is not one.
pub fn response(bytes: &[u8]) -> Option<Answered> {
    let mut space = [httparse::EMPTY_HEADER; limits::HTTP_FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut space);
    if !parsed.parse(bytes).ok()?.is_complete() {
        return None;
    }
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(parsed.code?).ok()?;
    let mut length = None;
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(field.value).ok()?;
        if name == header::CONTENT_LENGTH {
            length = Some(value.to_str().ok()?.parse().ok()?);
        }
        if !OF_CONNECTIONS.contains(&name) {
            head.headers_mut().append(name, value);
        }
    }
    Some(Answered { head, length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::head::{self, Field, Head};

    fn parts(request: http::request::Builder) -> http::request::Parts {
        request.body(()).expect("a request").into_parts().0
    }

    fn read(parts: &http::request::Parts, framing: Framing) -> Head {
        Head::parse(request(parts, framing).expect("it is one")).expect("it is one here as well")
    }

    #[test]
    fn a_stream_says_what_a_request_of_a_connection_says() {
        let asked = http::Request::put("https://weft.test/a%20b?x=1")
            .header("cookie", "a=1")
            .header("x-oc-mtime", "7")
            .header("cookie", "b=2")
            .header("expect", "100-continue")
            .header("te", "trailers");
        let head = read(&parts(asked), Framing::Chunked);
        assert_eq!((head.method, head.framing), (head::Method::Put, head::Framing::Chunked));
        assert_eq!(
            (head.host(), &head.path()[..], head.query()),
            (&b"weft.test"[..], &b"/a%20b"[..], Some(&b"x=1"[..]))
        );
        assert_eq!(head.one(Field::Cookie).expect("one"), Some("a=1; b=2"));
        assert_eq!(head.one(Field::OcMtime).expect("one"), Some("7"));
        assert!(!head.expects_continue && head.keep_alive);
        let head =
            read(&parts(http::Request::get("https://h/").header("content-length", "5")), Framing::Length);
        assert_eq!(head.framing, head::Framing::Length(5));
    }

    #[test]
    fn what_is_of_connections_or_names_two_hosts_is_refused() {
        for (name, value) in [
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("keep-alive", "1"),
            ("proxy-connection", "x"),
            ("host", "other"),
        ] {
            let parts = parts(http::Request::get("https://weft.test/").header(name, value));
            assert!(request(&parts, Framing::None).is_err(), "{name}");
        }
        let same = parts(http::Request::get("https://weft.test/").header("host", "WEFT.test"));
        assert_eq!(read(&same, Framing::None).host(), b"weft.test");
    }

    #[test]
    fn an_answer_keeps_its_fields_but_those_of_the_connection() {
        let bytes = b"HTTP/1.1 207 Multi-Status\r\nDate: x\r\nConnection: close\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
            Content-Length: 12\r\n\r\n";
        let answered = response(bytes).expect("it is one");
        let fields = answered.head.headers();
        assert_eq!((answered.head.status().as_u16(), answered.length), (207, Some(12)));
        assert!(!fields.contains_key("connection") && fields.get_all("set-cookie").iter().count() == 2);
        let chunked = response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").expect("it is one");
        assert!(chunked.length.is_none() && chunked.head.headers().is_empty());
        assert!(response(b"HTTP/1.1 200 OK\r\n").is_none() && response(b"nothing\r\n\r\n").is_none());
    }
}
