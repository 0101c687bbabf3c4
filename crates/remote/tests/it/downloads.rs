//! Files that are read from servers which keep to what they say, and from others.

use weft_core::{ErrorKind, Result};
use weft_remote::{Download, Fields, From, Remote, Url};

use crate::{kind, remote, waits_pass};
use weft_conformance::scripted::{Scripted, Step, say};

async fn open(remote: &Remote, url: &Url) -> Result<Download> {
    remote.download(url, &Fields::new(), From::default(), false).await
}

async fn whole(remote: &Remote, url: &Url) -> Result<Vec<u8>> {
    let mut download = open(remote, url).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = download.next_bytes(1 << 20).await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

async fn of(scripts: Vec<Vec<Step>>) -> Result<Vec<u8>> {
    let server = Scripted::open(scripts).await;
    whole(&remote(), &server.url("/f")).await
}

fn ranged(tag: &str, range: &str, bytes: &str) -> Vec<Step> {
    let length = bytes.len();
    vec![say(format!(
        "HTTP/1.1 206 Partial Content\r\nETag: {tag}\r\nContent-Range: bytes {range}\r\nContent-Length: {length}\r\n\r\n{bytes}"
    ))]
}

/// Says that ten bytes come, and sends five.
fn broken(fields: &str) -> Vec<Step> {
    vec![say(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 10\r\n\r\n01234"))]
}

#[tokio::test]
async fn a_file_is_read_whole() {
    let plain = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    for answer in [plain, chunked] {
        assert_eq!(of(vec![vec![say(answer)]]).await.expect("it is read"), b"hello");
    }
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(of(vec![vec![say(empty)]]).await.expect("it is read"), b"");
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_where_it_was_with_the_same_version() {
    let server = Scripted::open(vec![broken("ETag: \"1\"\r\n"), ranged("\"1\"", "5-9/10", "56789")]).await;
    assert_eq!(whole(&remote(), &server.url("/f")).await.expect("it goes on"), b"0123456789");
    let head = server.heads()[1].to_ascii_lowercase();
    assert!(head.contains("\r\nrange: bytes=5-\r\n") && head.contains("\r\nif-match: \"1\"\r\n"), "{head}");
}

#[tokio::test]
async fn two_versions_are_never_mixed() {
    let gone = vec![say("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")];
    for then in [
        gone,
        ranged("\"2\"", "5-9/10", "56789"),
        ranged("\"1\"", "5-10/11", "56789x"),
        ranged("\"1\"", "4-9/10", "456789"),
        ranged("\"1\"", "5-9/*", "56789"),
    ] {
        assert_eq!(kind(of(vec![broken("ETag: \"1\"\r\n"), then]).await), ErrorKind::Conflict);
    }
    // What no version is said of is not gone on with, nor what has only a weak tag.
    for tag in ["", "ETag: W/\"1\"\r\n"] {
        let then = ranged("\"1\"", "5-9/10", "56789");
        let server = Scripted::open(vec![broken(tag), then]).await;
        assert!(whole(&remote(), &server.url("/f")).await.is_err(), "{tag}");
        assert_eq!(server.heads().len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_again_and_again_is_given_up() {
    waits_pass();
    let no_more = ranged("\"1\"", "5-9/10", "");
    let no_more = vec![say(String::from_utf8_lossy(&match &no_more[0] {
        Step::Say(bytes) => bytes.clone(),
        _ => Vec::new(),
    })
    .replace("Content-Length: 0", "Content-Length: 5"))];
    let server = Scripted::open(vec![broken("ETag: \"1\"\r\n"), no_more]).await;
    assert_eq!(kind(whole(&remote(), &server.url("/f")).await), ErrorKind::Unavailable);
    assert_eq!(server.heads().len() as u32, 1 + weft_core::limits::REMOTE_RESUMES_MAX);
}

#[tokio::test]
async fn an_end_that_cannot_be_told_from_a_break_is_none() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhello";
    assert_eq!(kind(of(vec![vec![say(until_close)]]).await), ErrorKind::Corrupt);
    let cut = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    assert_eq!(kind(of(vec![vec![say(cut)]]).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_stalls_is_given_up() {
    waits_pass();
    let silent = vec![Step::Stall];
    assert_eq!(kind(of(vec![silent]).await), ErrorKind::Deadline);
    let halfway = vec![say("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n01234"), Step::Stall];
    assert_eq!(kind(of(vec![halfway]).await), ErrorKind::Deadline);
}

#[tokio::test]
async fn a_head_has_an_end() {
    let endless = vec![say("HTTP/1.1 200 OK\r\n"), Step::Forever(b"X-More: of the same\r\n".repeat(100))];
    assert_eq!(kind(of(vec![endless]).await), ErrorKind::Unavailable);
    let one_line = vec![say("HTTP/1.1 200 OK\r\nX: "), Step::Forever(vec![b'x'; 4096])];
    assert_eq!(kind(of(vec![one_line]).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn what_is_no_file_is_told() {
    for (status, expected) in [
        ("404 Not Found", ErrorKind::NotFound),
        ("401 Unauthorized", ErrorKind::Unauthenticated),
        ("403 Forbidden", ErrorKind::Denied),
        ("500 Oh", ErrorKind::Unavailable),
        ("206 Partial Content", ErrorKind::Unavailable),
        ("204 No Content", ErrorKind::Unavailable),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(kind(of(vec![vec![say(answer)]]).await), expected, "{status}");
    }
    let coded = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(kind(of(vec![vec![say(coded)]]).await), ErrorKind::Corrupt);
    assert_eq!(kind(of(vec![vec![say("SSH-2.0-OpenSSH\r\n\r\n")]]).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_digest_is_asked_for_before_the_bytes_and_believed_of_the_same_version_only() {
    let head = |tag: &str| {
        vec![say(format!(
            "HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: 2\r\nDigest: adler32=013600d2\r\n\r\n"
        ))]
    };
    let get = || vec![say("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 2\r\n\r\nhi")];
    let server = Scripted::open(vec![head("\"1\""), get()]).await;
    let open = async |server: &Scripted| {
        remote().download(&server.url("/f"), &Fields::new(), From::default(), true).await
    };
    let download = open(&server).await.expect("it opens");
    assert_eq!(download.said().digest.as_deref(), Some("adler32=013600d2"));
    assert!(server.heads()[0].starts_with("HEAD ") && server.heads()[1].starts_with("GET "));
    let server = Scripted::open(vec![head("\"0\""), get()]).await;
    assert_eq!(kind(open(&server).await), ErrorKind::Conflict);
    // Who does not know HEAD is asked for the file.
    let unknown = vec![say("HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")];
    let server = Scripted::open(vec![unknown, get()]).await;
    assert!(!open(&server).await.expect("it opens").said().has_digest());
}
