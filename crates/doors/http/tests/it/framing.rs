//! What is no request, what is half of one, and what is two: the connection stays right or ends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weft_doors_listener::Bounds;

use crate::house::{House, PASSWORD};
use crate::raw::{Raw, basic};

#[tokio::test]
async fn what_cannot_be_framed_is_refused_and_the_connection_ends() {
    let house = House::open().await;
    house.put("public/f", "content").await;
    for (text, status) in [
        ("GET /public/f HTTP/1.1\r\n\r\n", 400),
        ("GET /public/f HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET /public/f HTTP/1.1\nHost: localhost\n\n", 400),
        ("GET  /public/f HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /public/f HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        ("GET /public/f HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (
            "PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400),
        ("PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03\r\n\r\n", 400),
        ("GET /public/f HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n\r\n", 417),
    ] {
        let mut raw = Raw::connect(house.address).await;
        raw.send(text).await;
        let answer = raw.answer(false).await;
        assert_eq!((answer.status, answer.field("Connection")), (status, Some("close")), "{text:?}");
        assert_eq!(answer.field("Content-Type"), Some("application/problem+json"));
        assert!(raw.is_closed().await, "{text:?}");
    }
}

#[tokio::test]
async fn bad_targets_and_hosts_are_refused_and_the_connection_goes_on() {
    let house = House::open().await;
    house.put("public/f", "content").await;
    let mut raw = Raw::connect(house.address).await;
    for (line, status) in [
        ("GET /public/../secret", 400),
        ("GET /%2e%2e/secret", 400),
        ("GET /a%2fb", 400),
        ("GET /a%00b", 400),
        ("GET //public/f", 400),
        ("GET /public//f", 400),
        ("GET /%zz", 400),
        ("GET *", 400),
        ("PATCH /public/f", 405),
        ("POST /public/f", 405),
        ("REPORT /public/", 405),
        ("GET /public/f/", 404),
        ("GET /public", 301),
    ] {
        let answer = raw.ask(line, "", b"").await;
        assert_eq!((line, answer.status), (line, status));
        assert!(answer.field("X-Weft-Trace").is_some_and(|trace| trace.len() == 16));
    }
    let long = format!("GET /{}", "a".repeat(256));
    let answer = raw.ask(&long, "", b"").await;
    assert_eq!(answer.status, 414, "a name of 256 bytes");
    assert!(
        answer.text().contains("255 bytes") && answer.text().contains("\"kind\":\"too-long\""),
        "{}",
        answer.text()
    );
    for (host, status) in [("localhost:1", 200), ("evil.example", 421), (&house.address.to_string(), 200)] {
        raw.send(format!("GET /public/f HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(raw.answer(false).await.status, status, "{host}");
    }
    raw.send("GET http://evil.example/public/f HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(raw.answer(false).await.status, 421, "the target's own host counts");
    let options = raw.ask("OPTIONS *", "", b"").await;
    assert_eq!(
        (options.status, options.field("Allow")),
        (
            204,
            Some(
                "GET, HEAD, PUT, DELETE, MKCOL, OPTIONS, PROPFIND, PROPPATCH, COPY, MOVE, LOCK, UNLOCK, POST, PATCH"
            )
        )
    );
    assert_eq!(options.field("DAV"), Some("1, 2, 3"));
    assert_eq!(options.field("Access-Control-Allow-Origin"), None);
}

#[tokio::test]
async fn a_path_of_64_kib_and_a_head_without_end_are_refused_as_they_come() {
    let house = House::open().await;
    for (text, status) in [
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(64 << 10)), 414),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}", "X: y\r\n".repeat(20_000)), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "y".repeat(100_000)), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(200)), 431),
    ] {
        let mut raw = Raw::connect(house.address).await;
        // The other end may stop listening before all of it was sent.
        let _ = raw.stream.write_all(text.as_bytes()).await;
        assert_eq!(raw.answer(false).await.status, status);
    }
}

#[tokio::test]
async fn requests_sent_at_once_are_answered_in_order() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let alice = basic("alice", PASSWORD);
    let mut text = String::from("\r\n");
    for number in 0..20 {
        let body = format!("body {number}");
        text += &format!(
            "PUT /f{number} HTTP/1.1\r\nHost: localhost\r\n{alice}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        text += &format!("GET /f{number} HTTP/1.1\r\nHost: localhost\r\n{alice}\r\n");
        text += &format!(
            "PUT /c{number} HTTP/1.1\r\nHost: localhost\r\n{alice}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
    }
    raw.send(&text).await;
    for number in 0..20 {
        assert_eq!(raw.answer(false).await.status, 201);
        assert_eq!(raw.answer(false).await.text(), format!("body {number}"));
        assert_eq!(raw.answer(false).await.status, 201);
    }
    assert_eq!(house.read("c19").await.as_deref(), Some(&b"body 19"[..]));
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed_unless_it_asks_otherwise() {
    let house = House::open().await;
    house.put("public/f", "content").await;
    let mut raw = Raw::connect(house.address).await;
    raw.send("GET /public/f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
    let answer = raw.answer(false).await;
    assert_eq!((answer.text(), answer.field("Connection")), ("content", Some("keep-alive")));
    raw.send("GET /public/ HTTP/1.0\r\n\r\n").await;
    let answer = raw.answer(false).await;
    assert_eq!(answer.field("Transfer-Encoding"), None, "HTTP/1.0 knows no chunks");
    assert!(answer.text().contains("</html>"));
    assert!(raw.is_closed().await);
    let mut raw = Raw::connect(house.address).await;
    let answer = raw.ask("GET /public/f", "Connection: close\r\n", b"").await;
    assert_eq!((answer.text(), answer.field("Connection")), ("content", Some("close")));
    assert!(raw.is_closed().await);
}

#[tokio::test]
async fn a_client_that_waits_for_leave_gets_it_only_if_the_upload_may_come() {
    let house = House::open().await;
    let put = |path: &str, who: &str| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\n{who}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
    };
    let alice = basic("alice", PASSWORD);
    let mut raw = Raw::connect(house.address).await;
    raw.send(put("/f", &alice)).await;
    assert_eq!(raw.answer(false).await.status, 100);
    raw.send("hello").await;
    assert_eq!(raw.answer(false).await.status, 201);
    for (path, who, status) in [
        ("/f", "", 401),
        ("/no/f", alice.as_str(), 409),
        ("/public", alice.as_str(), 409),
        ("/a//b", alice.as_str(), 400),
        ("/f/", alice.as_str(), 405),
    ] {
        let mut raw = Raw::connect(house.address).await;
        raw.send(put(path, who)).await;
        let answer = raw.answer(false).await;
        assert_eq!((answer.status, answer.field("Connection")), (status, Some("close")), "{path}");
    }
    let mut raw = Raw::connect(house.address).await;
    raw.send(put("/f", &alice).replace("Expect", "If-None-Match: *\r\nExpect")).await;
    assert_eq!(raw.answer(false).await.status, 412);
}

#[tokio::test]
async fn an_upload_that_breaks_off_or_is_malformed_is_never_visible() {
    let house = House::open().await;
    let alice = basic("alice", PASSWORD);
    for (number, (framing, body)) in [
        ("Content-Length: 100", "half of it"),
        ("Transfer-Encoding: chunked", "a\r\nhalf of it\r\n"),
        ("Transfer-Encoding: chunked", "a\r\nhalf of it\r\n0\r\n"),
        ("Transfer-Encoding: chunked", "64\r\nhalf of it"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut raw = Raw::connect(house.address).await;
        raw.send(format!("PUT /cut{number} HTTP/1.1\r\nHost: localhost\r\n{alice}{framing}\r\n\r\n{body}"))
            .await;
        raw.stream.shutdown().await.expect("it is half closed");
        assert!(raw.is_closed().await);
        assert_eq!(house.read(&format!("cut{number}")).await, None);
    }
    for chunks in ["5\r\nhelloo\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "zz\r\n", "5\r\nhello\r\n-1\r\n\r\n"]
    {
        let mut raw = Raw::connect(house.address).await;
        raw.send(format!(
            "PUT /bad HTTP/1.1\r\nHost: localhost\r\n{alice}Transfer-Encoding: chunked\r\n\r\n{chunks}"
        ))
        .await;
        let answer = raw.answer(false).await;
        assert_eq!((answer.status, answer.field("Connection")), (400, Some("close")), "{chunks:?}");
        assert!(raw.is_closed().await);
        assert_eq!(house.read("bad").await, None);
    }
    assert_eq!(house.mover.transfers().len(), 0);
    assert_eq!(house.stages().await, 0, "nothing is left behind");
}

#[tokio::test]
async fn a_refused_upload_is_drained_if_it_is_small_and_the_answer_arrives_if_it_is_not() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    assert_eq!(raw.ask("PUT /f", "", &[b'x'; 100_000]).await.status, 401);
    assert_eq!(raw.alice("PUT /f", "", b"now").await.status, 201, "the same connection goes on");
    let mut raw = Raw::connect(house.address).await;
    raw.send("PUT /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n").await;
    for _ in 0..20 {
        if raw.stream.write_all(&[b'x'; 1_000_000]).await.is_err() {
            break;
        }
    }
    let answer = raw.answer(false).await;
    assert_eq!((answer.status, answer.field("Connection")), (401, Some("close")));
    let ranged =
        Raw::connect(house.address).await.alice("PUT /f", "Content-Range: bytes 0-1/5\r\n", b"ab").await;
    assert_eq!(ranged.status, 400, "a part must never become the whole");
}

#[tokio::test]
async fn a_head_that_dribbles_is_given_up_and_an_idle_connection_closed() {
    let bounds =
        Bounds { head: Duration::from_millis(300), idle: Duration::from_millis(600), ..Bounds::default() };
    let house = House::with(bounds).await;
    let mut slow = Raw::connect(house.address).await;
    let dribble = async {
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaa".iter().cycle() {
            if slow.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            if slow.hears(Duration::from_millis(1)).await {
                assert_eq!(slow.answer(false).await.status, 408);
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), dribble).await.expect("it is given up");
    let mut idle = Raw::connect(house.address).await;
    assert!(idle.is_closed().await);
}

#[tokio::test]
async fn a_stop_lets_a_request_under_way_finish_and_nobody_else_in() {
    let mut house = House::open().await;
    let mut busy = Raw::connect(house.address).await;
    let alice = basic("alice", PASSWORD);
    busy.send(format!("PUT /f HTTP/1.1\r\nHost: localhost\r\n{alice}Content-Length: 4\r\n\r\nab")).await;
    while house.mover.transfers().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut idle = Raw::connect(house.address).await;
    assert_eq!(idle.ask("OPTIONS *", "", b"").await.status, 204);
    let address = house.address;
    let finish = async {
        assert!(idle.is_closed().await, "an idle one goes at once");
        assert!(TcpStream::connect(address).await.is_err());
        busy.send("cd").await;
        assert_eq!(busy.answer(false).await.status, 201);
        assert!(busy.is_closed().await);
    };
    tokio::join!(house.stop(), finish);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"abcd"[..]));
}

#[tokio::test]
async fn who_has_too_many_connections_is_told_so_and_when_to_try_again() {
    let house = House::with(Bounds { connections_loopback: 1, ..Bounds::default() }).await;
    let mut first = TcpStream::connect(house.address).await.expect("it listens");
    first.write_all(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    first.read_u8().await.expect("it is served");
    let mut second = TcpStream::connect(house.address).await.expect("it is heard");
    second.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    second.read_to_string(&mut answer).await.expect("the answer arrives");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{head}");
    assert!(head.contains("\r\nRetry-After: 5\r\n") && head.contains("\r\nConnection: close\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{head}");
    assert!(body.contains("\"kind\":\"busy\""), "{body}");
    drop(first);
    // There is room again as soon as the first has been seen to leave.
    loop {
        let mut next = TcpStream::connect(house.address).await.expect("it listens");
        next.write_all(b"OPTIONS * HTTP/1.0\r\nHost: localhost\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        next.read_to_string(&mut answer).await.expect("an answer");
        if !answer.contains(" 429 ") {
            break;
        }
        tokio::task::yield_now().await;
    }
}
