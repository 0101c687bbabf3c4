//! The plain path: get, put, list, delete, and who may.

use crate::house::{House, PASSWORD};
use crate::raw::{Raw, basic};

#[tokio::test]
async fn what_is_put_is_got_listed_and_removed() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let made = raw.alice("PUT /a.txt", "", b"hello").await;
    assert_eq!(made.status, 201);
    let got = raw.alice("GET /a.txt", "", b"").await;
    assert_eq!((got.status, got.text()), (200, "hello"));
    assert_eq!(got.field("ETag"), made.field("ETag"));
    assert_eq!(got.field("Content-Type"), Some("text/plain; charset=utf-8"));
    let again = raw.alice("PUT /a.txt", "", b"hello, again").await;
    assert_eq!(again.status, 204);
    assert_ne!(again.field("ETag"), made.field("ETag"));
    let head = raw.alice("HEAD /a.txt", "", b"").await;
    assert_eq!((head.status, head.field("Content-Length"), head.body.len()), (200, Some("12"), 0));
    let list = raw.alice("GET /", "Accept: application/json\r\n", b"").await;
    assert!(
        list.text().contains("\"href\":\"./a.txt\"") && list.text().contains("\"size\":12"),
        "{}",
        list.text()
    );
    assert_eq!(raw.alice("DELETE /a.txt", "", b"").await.status, 204);
    assert_eq!(raw.alice("GET /a.txt", "", b"").await.status, 404);
    assert_eq!(raw.alice("DELETE /a.txt", "", b"").await.status, 404);
}

#[tokio::test]
async fn empty_files_chunked_uploads_and_large_ones_arrive_whole() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    assert_eq!(raw.alice("PUT /empty", "Content-Length: 0\r\n", b"").await.status, 201);
    assert_eq!(raw.alice("GET /empty", "", b"").await.body, b"");
    let head = format!(
        "PUT /chunked HTTP/1.1\r\nHost: localhost\r\n{}Transfer-Encoding: chunked\r\n\r\n",
        basic("alice", PASSWORD)
    );
    raw.send(head + "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n").await;
    assert_eq!(raw.answer(false).await.status, 201);
    assert_eq!(raw.alice("GET /chunked", "", b"").await.body, b"hello!");
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(raw.alice("PUT /large", "", &large).await.status, 201);
    assert!(raw.alice("GET /large", "", b"").await.body == large);
}

#[tokio::test]
async fn anyone_is_asked_who_they_are_before_they_learn_anything() {
    let house = House::open().await;
    house.put("secret", "x").await;
    house.put("private/secret", "z").await;
    house.put("public/open", "y").await;
    let mut raw = Raw::connect(house.address).await;
    for line in [
        "GET /secret",
        "GET /",
        "HEAD /secret",
        "DELETE /secret",
        "GET /private/",
        "GET /private/secret",
        "GET /private/nothing",
        "DELETE /private/nothing",
        "GET /private/nothing/x",
    ] {
        let answer = raw.ask(line, "", b"").await;
        assert_eq!((line, answer.status), (line, 401));
        assert!(answer.field("WWW-Authenticate").is_some_and(|challenge| challenge.starts_with("Basic")));
    }
    assert_eq!(raw.ask("PUT /new", "", b"x").await.status, 401);
    assert_eq!(raw.ask("PUT /secret", "If-None-Match: *\r\n", b"x").await.status, 401);
    assert_eq!(raw.ask("PUT /no/way", "", b"x").await.status, 401);
    assert_eq!(raw.ask("GET /public/open", "", b"").await.text(), "y");
    assert_eq!(raw.ask("GET /public/nothing", "", b"").await.status, 404, "anyone may list /public");
    assert_eq!(raw.ask("GET /secret", &basic("alice", "wrong"), b"").await.status, 401);
    assert_eq!(raw.ask("GET /secret", &basic("nobody", PASSWORD), b"").await.status, 401);
    assert_eq!(raw.ask("GET /secret", "Authorization: Negotiate abc\r\n", b"").await.status, 401);
    let bob = basic("bob", "b");
    assert_eq!(raw.ask("GET /secret", &bob, b"").await.status, 403, "bob may pass through / and knows");
    assert_eq!(raw.ask("GET /private/secret", &bob, b"").await.status, 404, "for bob there is nothing");
    for line in ["GET /nothing", "GET /secret/x"] {
        assert_eq!(raw.ask(line, "", b"").await.status, 404, "{line}: anyone may look names up in /");
    }
    let token = format!("Authorization: Bearer {}\r\n", house.token());
    assert_eq!(raw.ask("GET /secret", &token, b"").await.text(), "x");
    assert_eq!(
        raw.ask("GET /secret", "", b"").await.status,
        401,
        "the next request on the connection is nobody's"
    );
    drop(raw);
    while house.sessions.alive() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_drop_box_takes_from_anyone_and_shows_nothing() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    assert_eq!(raw.ask("PUT /drop/gift", "", b"for you").await.status, 201);
    assert_eq!(raw.ask("PUT /drop/gift", "", b"changed").await.status, 401);
    assert_eq!(raw.ask("GET /drop/", "", b"").await.status, 401);
    assert_eq!(raw.alice("GET /drop/gift", "", b"").await.text(), "for you");
}

#[tokio::test]
async fn a_full_container_says_so_and_takes_again_when_there_is_room() {
    let house = House::open().await;
    house.limit("private", 1000).await;
    let mut raw = Raw::connect(house.address).await;
    assert_eq!(raw.alice("PUT /private/a", "", &[b'a'; 900]).await.status, 201);
    let full = raw.alice("PUT /private/b", "", &[b'b'; 200]).await;
    assert_eq!(full.status, 507);
    assert!(
        full.text().contains("\"kind\":\"no-space\"") && full.text().contains("\"detail\":\"cannot"),
        "{}",
        full.text()
    );
    let head = format!(
        "PUT /private/b HTTP/1.1\r\nHost: localhost\r\n{}Transfer-Encoding: chunked\r\n\r\n",
        basic("alice", PASSWORD)
    );
    raw.send(format!("{head}c8\r\n{}\r\n0\r\n\r\n", "b".repeat(200))).await;
    assert_eq!(raw.answer(false).await.status, 507, "also when the length was not told beforehand");
    assert_eq!(house.read("private/b").await, None);
    assert_eq!(raw.alice("DELETE /private/a", "", b"").await.status, 204);
    assert_eq!(raw.alice("PUT /private/b", "", &[b'b'; 200]).await.status, 201);
}

#[tokio::test]
async fn no_answer_is_for_a_page_of_another_origin() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    for (line, fields, status) in [
        ("PUT /a.js", "", 201),
        ("GET /a.js", "", 200),
        ("HEAD /a.js", "", 200),
        ("GET /a.js", "Range: bytes=1-2\r\n", 206),
        ("GET /", "", 200),
        ("GET /", "Accept: application/json\r\n", 200),
        ("GET /none", "", 404),
        ("OPTIONS *", "", 204),
        ("DELETE /a.js", "", 204),
    ] {
        let body: &[u8] = if line.starts_with("PUT") { b"secret()" } else { b"" };
        let answer = raw.alice(line, fields, body).await;
        let policy = answer.field("Cross-Origin-Resource-Policy");
        assert_eq!((answer.status, policy), (status, Some("same-origin")), "{line} {fields}");
    }
}
