//! Third-party copies: from house to house, and against servers that do not keep to what they say.

use std::time::Duration;

use weft_conformance::scripted::{Scripted, Step, say};
use weft_core::limits;
use weft_core::service::Revoke;

use crate::house::{House, PASSWORD};
use crate::raw::{Answer, Raw, basic};

/// Asks alice's house for a copy.
async fn copy(house: &House, path: &str, fields: &str) -> Answer {
    let mut raw = Raw::connect(house.address).await;
    raw.alice(&format!("COPY {path}"), fields, b"").await
}

/// What proves alice at the other house.
fn passed() -> String {
    format!("TransferHeader{}", basic("alice", PASSWORD))
}

fn noise(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

async fn wait_for(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} never came");
}

#[tokio::test]
async fn a_file_is_pulled_from_another_server_and_pushed_to_it() {
    let (here, there) = (House::open().await, House::open().await);
    for (name, bytes) in [("empty", noise(0)), ("small", noise(5)), ("large", noise(5_000_000))] {
        there.put(name, bytes.clone()).await;
        let source = format!(
            "Source: {}\r\nRequireChecksumVerification: true\r\n{}",
            there.url(&format!("/{name}")),
            passed()
        );
        let pulled = copy(&here, &format!("/{name}"), &source).await;
        assert_eq!((pulled.status, pulled.text()), (201, "success: Created\n"), "{name}");
        assert!(here.read(name).await.expect("it is there") == bytes, "{name}");
        let to = there.url(&format!("/back-{name}"));
        let destination = format!("Destination: {to}\r\nRequireChecksumVerification: true\r\n{}", passed());
        let pushed = copy(&here, &format!("/{name}"), &destination).await;
        assert_eq!((pushed.status, pushed.text()), (201, "success: Created\n"), "{name}");
        assert!(there.read(&format!("back-{name}")).await.expect("it is there") == bytes, "{name}");
    }
    assert_eq!(here.stages().await, 0);
}

#[tokio::test]
async fn nothing_is_fetched_or_given_for_who_has_no_right_to() {
    let house = House::open().await;
    let other = Scripted::open(vec![vec![say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]]).await;
    house.put("secret", "x").await;
    let mut raw = Raw::connect(house.address).await;
    let source = format!("Source: {}\r\n", other.url::<String>("/f"));
    let destination = format!("Destination: {}\r\n", other.url::<String>("/f"));
    // Also where anyone may add: who fetches is somebody.
    for (line, fields) in [("COPY /drop/f", &source), ("COPY /f", &source), ("COPY /public/f", &destination)]
    {
        assert_eq!(raw.ask(line, fields, b"").await.status, 401, "{line}");
    }
    let bob = basic("bob", "b");
    for (line, fields) in [("COPY /public/f", &source), ("COPY /f", &source), ("COPY /secret", &destination)]
    {
        let refused = raw.ask(line, &format!("{bob}{fields}"), b"").await.status;
        assert!([403, 404, 409].contains(&refused), "{line}: {refused}");
    }
    assert_eq!(other.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn what_asks_for_it_badly_is_told_so() {
    let house = House::open().await;
    house.put("f", "x").await;
    let other: String = Scripted::open(vec![vec![Step::Stall]]).await.url("/f");
    for (path, fields, status) in [
        ("/f", format!("Source: {other}\r\nDestination: {other}\r\n"), 400),
        ("/f", "Source: file:///etc/passwd\r\n".to_owned(), 400),
        ("/f", "Source: /f\r\n".to_owned(), 400),
        ("/f", "Source: http://u:p@127.0.0.1/\r\n".to_owned(), 400),
        ("/d/", format!("Source: {other}\r\n"), 409),
        ("/g", format!("Source: {other}\r\nCredential: gridsite\r\n"), 400),
        ("/g", format!("Source: {other}\r\nTransferHeaderHost: x\r\n"), 400),
        ("/g", format!("Source: {other}\r\nRequireChecksumVerification: maybe\r\n"), 400),
        ("/f", format!("Source: {other}\r\nOverwrite: F\r\n"), 412),
        // Inside, and not named by the operator.
        ("/g", "Source: http://127.0.0.2:1/f\r\n".to_owned(), 403),
        ("/g", "Source: http://[::1]:1/f\r\n".to_owned(), 403),
        ("/f", "Destination: http://127.0.0.2:1/f\r\n".to_owned(), 403),
        ("/f", "Destination: http://169.254.169.254/latest\r\n".to_owned(), 403),
    ] {
        let answer = copy(&house, path, &fields).await;
        assert_eq!(answer.status, status, "{path} {fields}: {}", answer.text());
    }
    assert_eq!(house.stages().await, 0);
}

#[tokio::test]
async fn a_copy_between_two_names_of_the_house_is_none_of_these() {
    let house = House::open().await;
    house.put("f", "x").await;
    for destination in ["/g".to_owned(), house.url("/h"), "http://localhost/i".to_owned()] {
        assert_eq!(
            copy(&house, "/f", &format!("Destination: {destination}\r\n")).await.status,
            201,
            "{destination}"
        );
    }
}

#[tokio::test]
async fn a_server_that_lies_leaves_nothing_behind() {
    let house = House::open().await;
    house.put("kept", "as it was").await;
    let head = |fields: &str| {
        vec![say(format!("HTTP/1.1 200 OK\r\nETag: \"1\"\r\n{fields}Content-Length: 5\r\n\r\n"))]
    };
    let body = |fields: &str, bytes: &str| {
        vec![say(format!("HTTP/1.1 200 OK\r\nETag: \"1\"\r\n{fields}Content-Length: 5\r\n\r\n{bytes}"))]
    };
    let changed = || vec![say("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")];
    let digest = "Digest: adler32=062c0216\r\n";
    for (why, scripts, fields) in [
        ("wrong digest", vec![head(digest), body("", "hello")], ""),
        (
            "wrong digest beside the bytes",
            vec![head(""), body("Repr-Digest: md5=:AAAAAAAAAAAAAAAAAAAAAA==:\r\n", "hello")],
            "",
        ),
        ("malformed digest", vec![head("Digest: adler32=no\r\n"), body("", "hello")], ""),
        ("no digest", vec![head(""), body("", "hello")], "RequireChecksumVerification: true\r\n"),
        ("too short, then another", vec![head(""), body("", "hel"), changed()], ""),
        ("no length", vec![head(""), vec![say("HTTP/1.1 200 OK\r\n\r\nhello")]], ""),
        ("nothing", vec![vec![], vec![]], ""),
        ("not HTTP", vec![vec![say("220 ready\r\n")]], ""),
        ("not there", vec![vec![say("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")]], ""),
        ("asks who", vec![vec![say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")]], ""),
        (
            "elsewhere",
            vec![vec![say(
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:1/\r\nContent-Length: 0\r\n\r\n",
            )]],
            "",
        ),
    ] {
        let server = Scripted::open(scripts).await;
        let answer =
            copy(&house, "/kept", &format!("Source: {}\r\n{fields}", server.url::<String>("/f"))).await;
        let failed = answer.status >= 400 && answer.status != 401 || answer.text().contains("\nfailure: ");
        assert!(failed, "{why}: {} {}", answer.status, answer.text());
        assert_eq!(house.read("kept").await.expect("it is there"), "as it was", "{why}");
    }
    assert_eq!(house.stages().await, 0);
}

#[tokio::test]
async fn a_server_that_says_it_keeps_what_it_does_not_is_found_out() {
    let house = House::open().await;
    house.put("f", "hello").await;
    let take = || {
        vec![
            say("HTTP/1.1 100 Continue\r\n\r\n"),
            Step::Take(5),
            say("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
        ]
    };
    let said = |fields: &str| vec![say(format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))];
    let must = "RequireChecksumVerification: true\r\n";
    for (then, fields, status) in [
        (said("Content-Length: 5\r\nDigest: adler32=062c0215\r\n"), must, 201),
        (said("Content-Length: 5\r\n"), "", 201),
        (said("Content-Length: 5\r\n"), must, 502),
        (said("Content-Length: 4\r\n"), "", 502),
        (said("Content-Length: 5\r\nDigest: adler32=062c0216\r\n"), "", 502),
    ] {
        let server = Scripted::open(vec![take(), then]).await;
        let answer =
            copy(&house, "/f", &format!("Destination: {}\r\n{fields}", server.url::<String>("/f"))).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

#[tokio::test]
async fn a_copy_that_takes_its_time_tells_how_far_it_is_and_ends_with_who_asked() {
    let house = House::open().await;
    let begin = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n01234";
    let head = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n";
    let server = Scripted::open(vec![vec![say(head)], vec![say(begin), Step::Stall]]).await;
    let mut raw = Raw::connect(house.address).await;
    let (auth, url) = (basic("alice", PASSWORD), server.url::<String>("/f"));
    raw.send(format!("COPY /f HTTP/1.1\r\nHost: localhost\r\n{auth}Source: {url}\r\n\r\n")).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("Stripe Bytes Transferred: 5\n") {
        let read = tokio::io::AsyncReadExt::read_buf(&mut raw.stream, &mut seen);
        let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("a marker comes in time");
        assert!(read.expect("it is read") > 0, "{}", String::from_utf8_lossy(&seen));
    }
    let text = String::from_utf8_lossy(&seen).into_owned();
    assert!(text.starts_with("HTTP/1.1 202 ") && text.contains("Perf Marker\nTimestamp: "), "{text}");
    assert_eq!((house.stages().await, house.mover.transfers().len()), (1, 1));
    drop(raw);
    wait_for("the end of the copy", async || house.stages().await == 0 && house.mover.transfers().is_empty())
        .await;
    assert!(house.read("f").await.is_none());
}

#[tokio::test]
async fn a_revoked_credential_ends_a_running_copy() {
    let house = House::open().await;
    let head = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n";
    let stalled = vec![say(format!("{head}01234")), Step::Stall];
    let server = Scripted::open(vec![vec![say(head)], stalled]).await;
    let mut raw = Raw::connect(house.address).await;
    let bearer = format!("Authorization: Bearer {}\r\n", house.token());
    let url = server.url::<String>("/f");
    raw.send(format!("COPY /f HTTP/1.1\r\nHost: localhost\r\n{bearer}Source: {url}\r\n\r\n")).await;
    wait_for("the copy", async || house.mover.transfers().iter().any(|one| one.bytes == 5)).await;
    house.authority_revoke(&Revoke::Caller(house.domain.name("alice"))).await;
    let answer = raw.answer(false).await;
    assert!(
        answer.status >= 400 || answer.text().contains("failure: "),
        "{} {}",
        answer.status,
        answer.text()
    );
    wait_for("the end of the copy", async || house.mover.transfers().is_empty()).await;
}

#[tokio::test]
async fn one_caller_has_so_many_copies_at_once_and_others_still_have_theirs() {
    let house = House::open().await;
    let server = Scripted::open(vec![vec![Step::Stall]]).await;
    let url = server.url::<String>("/f");
    let mut held = Vec::new();
    for n in 0..limits::THIRD_PARTY_PER_CALLER_MAX {
        let mut raw = Raw::connect(house.address).await;
        let auth = basic("alice", PASSWORD);
        raw.send(format!("COPY /f{n} HTTP/1.1\r\nHost: localhost\r\n{auth}Source: {url}\r\n\r\n")).await;
        held.push(raw);
    }
    wait_for("all of them", async || server.heads().len() == limits::THIRD_PARTY_PER_CALLER_MAX).await;
    let refused = copy(&house, "/more", &format!("Source: {url}\r\n")).await;
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")), "{}", refused.text());
    drop(held);
    let source = format!("Source: {}\r\n", Scripted::open(vec![vec![]]).await.url::<String>("/f"));
    wait_for("room", async || copy(&house, "/more", &source).await.status == 502).await;
}
