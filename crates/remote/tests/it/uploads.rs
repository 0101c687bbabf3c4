//! Files that are given to servers which take them, and to others.

use weft_core::form::BytesSource;
use weft_core::{ErrorKind, Result};
use weft_remote::{Fields, Put, Stored};

use crate::{kind, remote, waits_pass};
use weft_conformance::scripted::{Scripted, Step, say};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const CREATED: &str = "HTTP/1.1 201 Created\r\nETag: \"7\"\r\nContent-Length: 0\r\n\r\n";

async fn give(server: &Scripted, bytes: &'static [u8], length: Option<u64>) -> Result<Stored> {
    let put = Put { url: server.url("/f"), passed: Fields::new(), length, overwrites: true, modified: None };
    remote().upload(&put, &mut BytesSource::new(bytes)).await
}

async fn given(script: Vec<Step>) -> Result<Stored> {
    give(&Scripted::open(vec![script]).await, b"hello", Some(5)).await
}

#[tokio::test]
async fn a_file_is_sent_once_the_server_is_ready_and_kept_once_it_says_so() {
    let server = Scripted::open(vec![vec![say(CONTINUE), Step::Take(5), say(CREATED)]]).await;
    let stored = give(&server, b"hello", Some(5)).await.expect("it is kept");
    assert_eq!((stored.replaced, stored.tag.as_deref()), (Some(false), Some("\"7\"")));
    let head = server.heads()[0].to_ascii_lowercase();
    assert!(
        head.contains("\r\ncontent-length: 5\r\n") && head.contains("\r\nexpect: 100-continue\r\n"),
        "{head}"
    );
    assert!(!head.contains("transfer-encoding"), "{head}");
    let server = Scripted::open(vec![vec![say(CREATED)]]).await;
    give(&server, b"", Some(0)).await.expect("nothing is kept, too");
    assert!(server.heads()[0].to_ascii_lowercase().contains("\r\ncontent-length: 0\r\n"));
    // `2\r\nhi\r\n0\r\n\r\n`, where nobody knows how much comes.
    let server = Scripted::open(vec![vec![say(CONTINUE), Step::Take(12), say(CREATED)]]).await;
    give(&server, b"hi", None).await.expect("it is kept");
}

#[tokio::test]
async fn a_server_that_never_gives_leave_gets_the_file_all_the_same() {
    let server = Scripted::open(vec![vec![Step::Take(5), say(CREATED)]]).await;
    give(&server, b"hello", Some(5)).await.expect("it is kept");
}

#[tokio::test]
async fn a_redirect_before_the_bytes_is_followed_and_one_after_them_is_not() {
    let other = Scripted::open(vec![vec![say(CONTINUE), Step::Take(5), say(CREATED)]]).await;
    let away = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        other.url::<String>("/x")
    );
    let server = Scripted::open(vec![vec![say(&away)]]).await;
    give(&server, b"hello", Some(5)).await.expect("it is kept there");
    assert!(other.heads()[0].starts_with("PUT /x "));
    assert_eq!(kind(given(vec![say(CONTINUE), Step::Take(5), say(&away)]).await), ErrorKind::Corrupt);
}

#[tokio::test]
async fn what_a_server_says_before_it_has_the_file_is_not_believed() {
    assert_eq!(kind(given(vec![say(CREATED)]).await), ErrorKind::Corrupt);
    let full = "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(kind(given(vec![say(full)]).await), ErrorKind::NoSpace);
    assert_eq!(kind(given(vec![say(CONTINUE), Step::Take(2), say(full)]).await), ErrorKind::NoSpace);
    assert_eq!(kind(given(vec![say(CONTINUE), Step::Take(5)]).await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_source_that_ends_early_is_never_kept() {
    let server = Scripted::open(vec![vec![say(CONTINUE), Step::Take(5), say(CREATED)]]).await;
    assert_eq!(kind(give(&server, b"hell", Some(5)).await), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_given_up() {
    waits_pass();
    static LARGE: [u8; 32 << 20] = [0; 32 << 20];
    let server = Scripted::open(vec![vec![say(CONTINUE), Step::Stall]]).await;
    assert_eq!(kind(give(&server, &LARGE, Some(LARGE.len() as u64)).await), ErrorKind::Deadline);
}
