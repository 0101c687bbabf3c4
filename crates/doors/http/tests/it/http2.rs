//! HTTP/2, by a client of the library that the door does its frames with: what is asked over streams is
//! answered as over connections, and no stream harms another.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{Request, Response};
use tokio::net::TcpStream;
use weft_core::limits;
use weft_core::service::Revoke;
use weft_doors_listener::Bounds;

use crate::house::House;

const LARGE: usize = 8 << 20;

/// An answer with all of its body.
struct Answer {
    head: Response<()>,
    body: Bytes,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).map(|value| value.to_str().expect("it is text"))
    }
}

/// A connection, driven by a task of its own.
struct Line {
    alice: String,
    send: SendRequest<Bytes>,
    driven: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

impl Line {
    async fn to(house: &House) -> Self {
        let socket = TcpStream::connect(house.address).await.expect("it connects");
        // What one stream does not take is no other's window.
        let mut settings = h2::client::Builder::new();
        // More streams than the other end allows are refused, and it tells how many those are after the first may begin.
        settings.initial_connection_window_size(1 << 20).initial_max_send_streams(1);
        let shaken = settings.handshake(socket).await;
        let (send, connection) = shaken.expect("it speaks HTTP/2");
        Self { alice: format!("Bearer {}", house.token()), send, driven: tokio::spawn(connection) }
    }

    /// Begins a request as alice; its body is still to come unless it ends here.
    async fn begin(
        &self,
        request: http::request::Builder,
        ends: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let request = request.header("authorization", &self.alice).body(()).expect("it is one");
        let mut send = self.send.clone().ready().await.expect("there is room for a stream");
        send.send_request(request, ends).expect("it is sent")
    }

    async fn get(&self, path: &str) -> Answer {
        let (answer, _) = self.begin(Request::get(format!("http://localhost{path}")), true).await;
        whole(answer).await.expect("it is answered")
    }

    async fn put(&self, path: &str, bytes: Bytes) -> Answer {
        let request = Request::put(format!("http://localhost{path}"));
        let (answer, mut body) = self.begin(request, false).await;
        pour(&mut body, bytes).await;
        body.send_data(Bytes::new(), true).expect("it ends");
        whole(answer).await.expect("it is answered")
    }
}

/// Sends bytes as fast as they are taken.
async fn pour(body: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        body.reserve_capacity(bytes.len().min(64 << 10));
        let room = std::future::poll_fn(|context| body.poll_capacity(context)).await;
        let room = room.expect("it is open").expect("it is open");
        body.send_data(bytes.split_to(room.min(bytes.len())), false).expect("it is sent");
    }
}

async fn whole(answer: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut body) = answer.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(Answer { head: Response::from_parts(head, ()), body: bytes.into() })
}

fn content(seed: u8, length: usize) -> Bytes {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8)) as u8 ^ seed).collect::<Vec<_>>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_over_streams_is_answered_as_over_connections() {
    let house = House::open().await;
    let line = Line::to(&house).await;
    let large = content(1, LARGE);
    let put = line.put("/large", large.clone()).await;
    assert_eq!(put.status(), 201);
    let got = line.get("/large").await;
    assert!(got.status() == 200 && got.body == large && got.field("etag") == put.field("etag"));
    assert_eq!(got.field("content-length"), Some(LARGE.to_string().as_str()));
    assert_eq!(got.field("connection"), None);
    let part = Request::get("http://localhost/large").header("range", "bytes=5-9");
    let part = whole(line.begin(part, true).await.0).await.expect("it is answered");
    assert_eq!((part.status(), &part.body[..]), (206, &large[5..10]));
    let head =
        whole(line.begin(Request::head("http://localhost/large"), true).await.0).await.expect("an answer");
    assert_eq!(
        (head.status(), head.body.len(), head.field("content-length")),
        (200, 0, got.field("content-length"))
    );
    let tag = got.field("etag").expect("a tag");
    let known = Request::get("http://localhost/large").header("if-none-match", tag);
    assert_eq!(whole(line.begin(known, true).await.0).await.expect("an answer").status(), 304);
    // In chunks over a connection, and of unknown length here.
    let listing = line.get("/").await;
    assert!(listing.status() == 200 && String::from_utf8_lossy(&listing.body).contains("large"));
    for (path, status) in [("/none", 404), ("/%00", 400), ("/private/", 200)] {
        assert_eq!(line.get(path).await.status(), status, "{path}");
    }
    let stranger = Request::get("http://localhost/private/").body(()).expect("it is one");
    let (answer, _) = line.send.clone().send_request(stranger, true).expect("it is sent");
    assert_eq!(whole(answer).await.expect("an answer").status(), 401, "each stream shows who asks");
    let elsewhere = whole(line.begin(Request::get("http://elsewhere.test/"), true).await.0).await;
    assert_eq!(elsewhere.expect("an answer").status(), 421);
    let connect = Request::builder().method("CONNECT").uri("localhost:1");
    assert_eq!(whole(line.begin(connect, true).await.0).await.expect("an answer").status(), 405);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_at_once_mix_nothing() {
    let house = House::open().await;
    let line = Line::to(&house).await;
    let count = 3 * limits::HTTP2_STREAMS_MAX;
    let size = |n: usize| 1000 + n * 997;
    let puts = (0..count).map(|n| {
        let line = &line;
        async move { line.put(&format!("/f{n}"), content(n as u8, size(n))).await.status() }
    });
    assert!(join_all(puts).await.into_iter().all(|status| status == 201));
    let gets = (0..count).map(|n| {
        let line = &line;
        async move { line.get(&format!("/f{n}")).await.body == content(n as u8, size(n)) }
    });
    assert!(join_all(gets).await.into_iter().all(|same| same));
    assert_eq!(house.stages().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_breaks_off_or_lies_about_its_length_leaves_nothing() {
    let house = House::open().await;
    let line = Line::to(&house).await;
    let (answer, mut body) = line.begin(Request::put("http://localhost/f"), false).await;
    pour(&mut body, content(1, 1 << 20)).await;
    body.send_reset(Reason::CANCEL);
    assert!(whole(answer).await.is_err());
    let said = Request::put("http://localhost/f").header("content-length", "10");
    let (answer, mut body) = line.begin(said, false).await;
    body.send_data(content(1, 5), true).expect("it is sent");
    assert!(whole(answer).await.map_or(true, |answer| answer.status() >= 400));
    let nothing_left = async {
        while house.stages().await > 0 || !house.mover.transfers().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), nothing_left).await.expect("it is tidied");
    assert_eq!(house.read("f").await, None);
    assert_eq!(line.put("/f", content(2, 5)).await.status(), 201, "the others go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stopped_is_reset_when_its_right_goes_and_holds_up_nobody() {
    let house = House::open().await;
    house.put("large", content(1, LARGE)).await;
    let claims = house.domain.claims("alice");
    let token = house.domain.credential(&claims).to_token();
    let line = Line::to(&house).await;
    let request = Request::get("http://localhost/large").header("authorization", format!("Bearer {token}"));
    let request = request.body(()).expect("it is one");
    let (answer, _) = line.send.clone().send_request(request, true).expect("it is sent");
    let (head, mut body) = answer.await.expect("it begins").into_parts();
    assert_eq!(head.status, 200);
    // Nothing of it is taken; another stream of the connection has a window of its own.
    assert_eq!(line.get("/none").await.status(), 404);
    house.authority_revoke(&Revoke::Credential(claims.id)).await;
    let mut taken = 0;
    let ended = loop {
        match body.data().await {
            Some(Ok(bytes)) => {
                taken += bytes.len();
                let _ = body.flow_control().release_capacity(bytes.len());
            }
            Some(Err(error)) => break error,
            None => panic!("never a clean end, {taken} bytes"),
        }
    };
    assert!(ended.is_reset() && taken < LARGE, "{ended} after {taken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_resets_again_and_again_is_cut_off_or_served_no_more_than_others() {
    let house = House::open().await;
    house.put("large", content(1, LARGE)).await;
    let hasty = Line::to(&house).await;
    for _ in 0..2000 {
        let Ok(mut send) = hasty.send.clone().ready().await else { break };
        let request = Request::get("http://localhost/large").header("authorization", &hasty.alice);
        let request = request.body(()).expect("it is one");
        let Ok((answer, mut body)) = send.send_request(request, true) else { break };
        body.send_reset(Reason::CANCEL);
        drop(answer);
    }
    let other = Line::to(&house).await;
    assert_eq!(other.get("/large").await.body.len(), LARGE);
    drop(hasty);
    let all_over = async {
        while !house.mover.transfers().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_over).await.expect("what was reset ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_door_that_closes_lets_streams_end_and_an_idle_connection_goes_by_itself() {
    let mut house = House::with(Bounds { idle: Duration::from_millis(300), ..Bounds::default() }).await;
    let idle = Line::to(&house).await;
    assert_eq!(idle.get("/none").await.status(), 404);
    let ended = tokio::time::timeout(Duration::from_secs(30), idle.driven).await.expect("it is ended");
    ended.expect("no panic").expect("in good order");
    let busy = Line::to(&house).await;
    let (answer, mut body) = busy.begin(Request::put("http://localhost/f"), false).await;
    pour(&mut body, content(1, 100_000)).await;
    let stopped = tokio::spawn(async move {
        house.stop().await;
        house
    });
    // It is told that no more may be asked, and what was asked is still answered.
    let refused = async {
        while busy.send.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), refused).await.expect("it hears of the end");
    pour(&mut body, content(2, 100_000)).await;
    body.send_data(Bytes::new(), true).expect("it ends");
    assert_eq!(whole(answer).await.expect("it is answered").status(), 201);
    let house = stopped.await.expect("it stopped");
    assert_eq!(house.read("f").await.map(|bytes| bytes.len()), Some(200_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_http_2_behind_its_preface_ends_the_connection_and_nothing_else() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let house = House::open().await;
    for noise in
        [&b""[..], b"SM\r\n\r\n", b"XX\r\n\r\n", &[0xff; 4096], b"SM\r\n\r\n\0\0\x04\x08\0\0\0\0\0\0\0\0\0"]
    {
        let mut socket = TcpStream::connect(house.address).await.expect("it connects");
        let _ = socket.write_all(b"PRI * HTTP/2.0\r\n\r\n").await;
        let _ = socket.write_all(noise).await;
        let _ = socket.shutdown().await;
        let mut said = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(30), socket.read_to_end(&mut said)).await;
        let _ = ended.expect("it is ended");
    }
    // As any but the first request it is none.
    let mut socket = TcpStream::connect(house.address).await.expect("it connects");
    let asked = b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    socket.write_all(asked).await.expect("it is sent");
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 204") && said.contains("HTTP/1.1 505"), "{said}");
    assert_eq!(Line::to(&house).await.get("/none").await.status(), 404);
}

/// Some clients take the reset of a stream that they still send on for the loss of its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_upload_of_little_more_than_was_sent_is_not_reset_and_one_without_end_is() {
    let house = House::open().await;
    let line = Line::to(&house).await;
    let refused = async |length: usize| {
        let request = Request::put("http://localhost/").header("content-length", length);
        let (answer, body) = line.begin(request, false).await;
        let answer = whole(answer).await.expect("it is answered before its body came");
        assert!((400..500).contains(&answer.status()), "{}", answer.status());
        body
    };
    let mut body = refused(5).await;
    body.send_data(Bytes::from_static(b"bytes"), true).expect("it is open");
    // What comes on this connection later came after a reset, had there been one.
    assert_eq!(line.get("/").await.status(), 200);
    let reset = std::future::poll_fn(|context| body.poll_reset(context));
    assert!(futures_util::FutureExt::now_or_never(reset).is_none_or(|reset| reset.is_err()), "it was reset");
    let mut body = refused(3 << 20).await;
    body.send_data(vec![7; 3 << 20].into(), true).expect("it is open");
    let reset = std::future::poll_fn(|context| body.poll_reset(context));
    let reset = tokio::time::timeout(2 * limits::HTTP_LINGER, reset).await;
    assert!(!matches!(reset, Ok(Ok(_))), "it was reset: {reset:?}");
    assert_eq!(line.get("/").await.status(), 200);
    let mut body = refused(1 << 30).await;
    let reset = std::future::poll_fn(|context| body.poll_reset(context));
    let reset = tokio::time::timeout(Duration::from_secs(30), reset).await.expect("in the end");
    assert_eq!(reset.expect("by the other side"), Reason::NO_ERROR);
}
