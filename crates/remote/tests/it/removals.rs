//! What servers are told to remove, and when it is believed that they did; and directories that may not be all told.

use weft_core::{ErrorKind, Result};
use weft_remote::{Depth, Fields, Listing};

use crate::{kind, remote, secret};
use weft_conformance::scripted::{Scripted, say};

async fn removed(answer: &str) -> Result<()> {
    let server = Scripted::open(vec![vec![say(answer)]]).await;
    remote().remove(&server.url("/d/"), &Fields::new()).await
}

#[tokio::test]
async fn what_a_server_says_it_removed_is_gone_and_nothing_else_is() {
    let server =
        Scripted::open(vec![vec![say("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")]]).await;
    remote().remove(&server.url("/d/a%20b"), &secret()).await.expect("it is gone");
    let head = server.heads()[0].to_ascii_lowercase();
    assert!(head.starts_with("delete /d/a%20b ") && head.contains("bearer secret"), "{head}");
    for (status, expected) in [
        // Of a directory, that some of it stayed.
        ("207 Multi-Status", ErrorKind::Conflict),
        ("404 Not Found", ErrorKind::NotFound),
        ("403 Forbidden", ErrorKind::Denied),
        ("405 Method Not Allowed", ErrorKind::Unsupported),
        ("423 Locked", ErrorKind::Locked),
        ("500 Oh", ErrorKind::Unavailable),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(kind(removed(&answer).await), expected, "{status}");
    }
}

#[tokio::test]
async fn nothing_is_removed_where_a_server_sends_on_to() {
    let other = Scripted::open(vec![vec![say("HTTP/1.1 204 No Content\r\n\r\n")]]).await;
    let to = other.url::<String>("/all/");
    for status in ["301 Moved Permanently", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let away = format!("HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(kind(removed(&away).await), ErrorKind::Denied, "{status}");
    }
    assert_eq!(other.heads(), Vec::<String>::new());
}

const OWN: &str = "<response><href>/d/</href><propstat><prop><resourcetype><collection/></resourcetype></prop>\
    <status>HTTP/1.1 200 OK</status></propstat></response>";

fn multistatus(framing: &str, text: &str) -> String {
    format!("HTTP/1.1 207 Multi-Status\r\n{framing}\r\n<multistatus xmlns=\"DAV:\">{text}")
}

async fn listed(scripts: Vec<String>, path: &str) -> Result<Listing> {
    let server = Scripted::open(scripts.iter().map(|text| vec![say(text)]).collect()).await;
    remote().list(&server.url(path), &Fields::new(), Depth::Members).await
}

#[tokio::test]
async fn a_listing_that_breaks_off_is_none() {
    let whole = format!("{OWN}</multistatus>");
    // Its own end says that it is whole, also where the connection's does not.
    listed(vec![multistatus("", &whole)], "/d/").await.and_then(|found| found.whole()).expect("it is whole");
    assert_eq!(kind(listed(vec![multistatus("", OWN)], "/d/").await), ErrorKind::Corrupt);
    let promised = multistatus("Content-Length: 5000\r\n", &whole);
    assert_eq!(kind(listed(vec![promised], "/d/").await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_listing_of_another_directory_is_not_the_whole_of_this_one() {
    let to = |path: &str| format!("HTTP/1.1 302 Found\r\nLocation: {path}\r\nContent-Length: 0\r\n\r\n");
    let whole = multistatus("", &format!("{OWN}</multistatus>"));
    let same = listed(vec![to("/d/"), whole.clone()], "/d").await.expect("it is read");
    same.whole().expect("it is the same");
    let other = listed(vec![to("/d/"), whole.clone()], "/run7/").await.expect("it is read");
    assert_eq!(kind(other.whole()), ErrorKind::Corrupt);
    // Nor is one of another server, whatever it calls the directory.
    let elsewhere = Scripted::open(vec![vec![say(&whole)]]).await;
    let away = to(&elsewhere.url::<String>("/d/"));
    let other = listed(vec![away], "/d/").await.expect("it is read");
    assert_eq!(kind(other.whole()), ErrorKind::Corrupt);
}
