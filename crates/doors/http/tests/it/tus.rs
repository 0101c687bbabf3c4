//! Uploads that go on where a line broke, by raw sockets. `weft` has the tests with real clients.

use std::time::Duration;

use data_encoding::BASE64;
use weft_core::form::{BytesSource, Expect, FileSystem, Guard};
use weft_core::proof::{Attenuation, CredentialClaims};
use weft_core::service::Revoke;
use weft_core::{Rights, StageId, acl::Who, limits};
use weft_doors_listener::Bounds;
use weft_sys::Sys;

use crate::house::{House, PASSWORD, at};
use crate::raw::{Answer, Raw, basic};

const TUS: &str = "Tus-Resumable: 1.0.0\r\n";
const BYTES: &str = "Content-Type: application/offset+octet-stream\r\n";

/// Returns the fields of a PATCH at an offset.
fn patch(offset: u64) -> String {
    format!("{TUS}{BYTES}Upload-Offset: {offset}\r\n")
}

/// Returns the fields that begin an upload.
fn begin(name: &str, length: usize) -> String {
    format!(
        "{TUS}Upload-Length: {length}\r\nUpload-Metadata: filename {}\r\n",
        BASE64.encode(name.as_bytes())
    )
}

/// Begins an upload as alice. Returns its address.
async fn begun(raw: &mut Raw, dir: &str, name: &str, length: usize) -> String {
    let answer = raw.alice(&format!("POST {dir}"), &begin(name, length), b"").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.field("Location").expect("an address").to_owned()
}

/// Returns how far an upload of alice's is; none if there is no such upload.
async fn offset(raw: &mut Raw, address: &str) -> Option<u64> {
    let answer = raw.alice(&format!("HEAD {address}"), TUS, b"").await;
    assert!(matches!(answer.status, 200 | 404), "{}", answer.status);
    answer.field("Upload-Offset").map(|offset| offset.parse().expect("a number"))
}

/// Begins a PATCH of which only `sent` comes, and waits until that was taken.
async fn stalled(house: &House, address: &str, framing: &str, sent: &[u8], taken: u64) -> Raw {
    let mut raw = Raw::connect(house.address).await;
    let auth = basic("alice", PASSWORD);
    raw.send(format!("PATCH {address} HTTP/1.1\r\nHost: localhost\r\n{auth}{}{framing}\r\n\r\n", patch(0)))
        .await;
    raw.send(sent).await;
    let there = async {
        while house.mover.transfers().first().map(|transfer| transfer.bytes) != Some(taken) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), there).await.expect("it is taken");
    raw
}

fn spoken(answer: &Answer) -> bool {
    answer.field("Tus-Resumable") == Some("1.0.0")
}

#[tokio::test]
async fn an_upload_is_begun_looked_at_gone_on_with_and_is_a_file_once_it_is_whole() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let said = format!(
        "filename {},mtime {},kind {}",
        BASE64.encode(b"a b.txt"),
        BASE64.encode(b"1700000000"),
        "eA=="
    );
    let fields = format!("{TUS}Upload-Length: 11\r\nUpload-Metadata: {said}\r\n");
    let made = raw.alice("POST /public/", &fields, b"").await;
    assert_eq!((made.status, spoken(&made)), (201, true), "{}", made.text());
    let address = made.field("Location").expect("an address").to_owned();
    assert!(address.starts_with("/public/a%20b.txt?upload="), "{address}");
    for (sent, bytes) in [(0, &b"hello"[..]), (5, b", "), (7, b"you!")] {
        let told = raw.alice(&format!("HEAD {address}"), TUS, b"").await;
        assert_eq!((told.status, spoken(&told)), (200, true));
        assert_eq!(told.field("Upload-Offset"), Some(sent.to_string().as_str()));
        assert_eq!(told.field("Upload-Length"), Some("11"));
        assert_eq!(told.field("Upload-Metadata"), Some(said.as_str()), "as it came");
        assert_eq!(told.field("Cache-Control"), Some("no-store"));
        assert_eq!(house.read("public/a b.txt").await, None, "nothing is seen before all of it is");
        let more = raw.alice(&format!("PATCH {address}"), &patch(sent), bytes).await;
        assert_eq!((more.status, spoken(&more)), (204, true), "{sent}");
        let now = sent + bytes.len() as u64;
        assert_eq!(more.field("Upload-Offset"), Some(now.to_string().as_str()));
        assert_eq!(more.field("ETag").is_some(), now == 11, "the file's, once it is one");
    }
    assert_eq!(house.read("public/a b.txt").await.as_deref(), Some(&b"hello, you!"[..]));
    let got = raw.alice("GET /public/a%20b.txt", "", b"").await;
    assert_eq!(got.field("Last-Modified"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
}

#[tokio::test]
async fn whoever_asks_is_told_what_is_spoken() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    for target in ["*", "/public/"] {
        let told = raw.ask(&format!("OPTIONS {target}"), "", b"").await;
        assert_eq!((told.status, spoken(&told)), (204, true));
        assert_eq!(told.field("Tus-Version"), Some("1.0.0"));
        assert_eq!(told.field("Tus-Extension"), Some("creation,termination"));
        assert_eq!(told.field("Tus-Max-Size"), Some(limits::FILE_BYTES_MAX.to_string().as_str()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_before_a_line_broke_is_kept_and_the_rest_follows() {
    let house = House::open().await;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for (name, framing, sent) in [
        ("known", format!("Content-Length: {}", bytes.len()), bytes[..1_234_567].to_vec()),
        (
            "chunked",
            "Transfer-Encoding: chunked".to_owned(),
            [format!("{:x}\r\n", 1_234_567).as_bytes(), &bytes[..1_234_567], b"\r\n12"].concat(),
        ),
    ] {
        let mut raw = Raw::connect(house.address).await;
        let address = begun(&mut raw, "/", name, bytes.len()).await;
        drop(stalled(&house, &address, &framing, &sent, 1_234_567).await);
        assert_eq!(offset(&mut raw, &address).await, Some(1_234_567), "{name}");
        assert_eq!(house.read(name).await, None);
        let more = raw.alice(&format!("PATCH {address}"), &patch(1_234_567), &bytes[1_234_567..]).await;
        assert_eq!(more.status, 204, "{name}");
        assert!(house.read(name).await.expect("it is there") == bytes, "{name}");
    }
    assert_eq!(house.stages().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_back_stops_the_request_whose_line_is_dead() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let began = std::time::Instant::now();
    for how in ["HEAD", "PATCH", "DELETE"] {
        let address = begun(&mut raw, "/", how, 10).await;
        let mut dead = stalled(&house, &address, "Content-Length: 10", b"abc", 3).await;
        match how {
            "HEAD" => assert_eq!(offset(&mut raw, &address).await, Some(3)),
            "PATCH" => {
                let more = raw.alice(&format!("PATCH {address}"), &patch(3), b"defghij").await;
                assert_eq!(more.status, 204);
                assert_eq!(house.read(how).await.as_deref(), Some(&b"abcdefghij"[..]));
            }
            _ => {
                assert_eq!(raw.alice(&format!("DELETE {address}"), TUS, b"").await.status, 204);
                assert_eq!(offset(&mut raw, &address).await, None);
            }
        }
        let told = dead.answer(false).await;
        assert_eq!((told.status, spoken(&told)), (409, true), "{}", told.text());
        assert!(told.text().contains("another request goes on"), "{}", told.text());
    }
    assert!(began.elapsed() < limits::TRANSFER_IDLE / 3, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_elses_upload_is_seen_stopped_or_ended() {
    let house = House::open().await;
    house.protect("public", Who::Caller(house.domain.name("bob")), Rights::ALL).await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/public/", "f", 10).await;
    let mut own = stalled(&house, &address, "Content-Length: 10", b"abc", 3).await;
    for (auth, status) in [(basic("bob", "b"), 404), (String::new(), 404)] {
        for (method, fields) in [("HEAD", TUS.to_owned()), ("PATCH", patch(3)), ("DELETE", TUS.to_owned())] {
            let body: &[u8] = if method == "PATCH" { b"defghij" } else { b"" };
            let answer = raw.ask(&format!("{method} {address}"), &format!("{auth}{fields}"), body).await;
            assert_eq!((method, answer.status), (method, status), "{auth}");
        }
    }
    own.send(b"defghij").await;
    assert_eq!(own.answer(false).await.status, 204, "nobody stopped it");
    assert_eq!(house.read("public/f").await.as_deref(), Some(&b"abcdefghij"[..]));
    // That it became a file is told to whose it was, too.
    assert_eq!(raw.ask(&format!("HEAD {address}"), &(basic("bob", "b") + TUS), b"").await.status, 404);
    assert_eq!(offset(&mut raw, &address).await, Some(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_is_stopped_and_ended_by_nobody_whose_credential_does_not_carry_it() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/public/", "f", 10).await;
    let mut own = stalled(&house, &address, "Content-Length: 10", b"abc", 3).await;
    let reader = Attenuation { rights: Rights::READING, ..Attenuation::default() };
    let elsewhere = Attenuation { paths: vec![at("private").path], ..Attenuation::default() };
    for limits in [reader, elsewhere] {
        let claims = CredentialClaims { limits, ..house.domain.claims("alice") };
        let bearer = format!("Authorization: Bearer {}\r\n", house.domain.credential(&claims).to_token());
        for (method, fields) in [("HEAD", TUS.to_owned()), ("PATCH", patch(3)), ("DELETE", TUS.to_owned())] {
            let body: &[u8] = if method == "PATCH" { b"defghij" } else { b"" };
            let answer = raw.ask(&format!("{method} {address}"), &format!("{bearer}{fields}"), body).await;
            assert!(matches!(answer.status, 403 | 404), "{method}: {}", answer.status);
        }
    }
    own.send(b"defghij").await;
    assert_eq!(own.answer(false).await.status, 204, "nobody stopped it");
    assert_eq!(house.read("public/f").await.as_deref(), Some(&b"abcdefghij"[..]));
}

#[tokio::test]
async fn who_replaces_a_file_of_another_sends_no_bytes_in_vain_because_of_the_time_they_bring() {
    let house = House::open().await;
    house.protect("public", Who::Caller(house.domain.name("bob")), Rights::READING | Rights::WRITING).await;
    house.put("public/f", "alice's").await;
    let mut raw = Raw::connect(house.address).await;
    let said = format!("filename {},mtime {}", BASE64.encode(b"f"), BASE64.encode(b"1700000000"));
    for (who, keeps) in [(basic("bob", "b"), false), (basic("alice", PASSWORD), true)] {
        let fields = format!("{who}{TUS}Upload-Length: 5\r\nUpload-Metadata: {said}\r\n");
        let made = raw.ask("POST /public/", &fields, b"").await;
        let address = made.field("Location").expect("an address").to_owned();
        let put = raw.ask(&format!("PATCH {address}"), &format!("{who}{}", patch(0)), b"hello").await;
        assert_eq!(put.status, 204, "{}", put.text());
        let is_said = put.field("Last-Modified") == Some("Tue, 14 Nov 2023 22:13:20 GMT");
        assert_eq!(is_said, keeps, "who owns the file may say when it was changed");
    }
    assert_eq!(house.read("public/f").await.as_deref(), Some(&b"hello"[..]));
}

#[tokio::test]
async fn strangers_are_asked_who_they_are_and_leave_nothing() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    for dir in ["/public/", "/drop/", "/private/", "/none/"] {
        let answer = raw.ask(&format!("POST {dir}"), &begin("f", 5), b"").await;
        assert_eq!((answer.status, spoken(&answer)), (401, true), "{dir}");
    }
    let bob = basic("bob", "b");
    assert_eq!(raw.ask("POST /private/", &(bob.clone() + &begin("f", 5)), b"").await.status, 409);
    assert_eq!(raw.ask("POST /public/", &(bob + &begin("f", 5)), b"").await.status, 403);
}

#[tokio::test]
async fn an_address_leads_to_one_name_in_one_directory() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/public/", "f", 5).await;
    let query = address.split_once('?').expect("a query").1.to_owned();
    // Of a process that made other stamps, the file system is asked.
    let (id, rest) = query.split_once('.').expect("parts");
    let (length, rest) = rest.split_once('.').expect("parts");
    let foreign = format!("{id}.{length}.{}{}", "0".repeat(32), &rest[32..]);
    for query in [&query, &foreign] {
        for other in ["/public/g", "/f", "/private/f", "/public/f/f", "/none/f", "/"] {
            let other = format!("{other}?{query}");
            for (method, fields) in
                [("HEAD", TUS.to_owned()), ("PATCH", patch(0)), ("DELETE", TUS.to_owned())]
            {
                let body: &[u8] = if method == "PATCH" { b"hello" } else { b"" };
                let answer = raw.alice(&format!("{method} {other}"), &fields, body).await;
                assert_eq!((method, answer.status), (method, 404), "{other}");
            }
        }
    }
    for query in [&query, &foreign] {
        assert_eq!(offset(&mut raw, &format!("/public/f?{query}")).await, Some(0));
    }
}

#[tokio::test]
async fn what_is_not_spoken_here_is_refused_and_does_nothing() {
    let house = House::open().await;
    house.put("f", "the file").await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 5).await;
    for version in ["", "Tus-Resumable: 0.2.2\r\n", "Tus-Resumable: 1.0.1\r\n"] {
        for method in ["HEAD", "PATCH", "DELETE"] {
            let fields = format!("{version}{BYTES}Upload-Offset: 0\r\n");
            let body: &[u8] = if method == "PATCH" { b"hello" } else { b"" };
            let answer = raw.alice(&format!("{method} {address}"), &fields, body).await;
            assert_eq!((answer.status, answer.field("Tus-Version")), (412, Some("1.0.0")), "{method}");
        }
    }
    assert_eq!(house.read("f").await.as_deref(), Some(&b"the file"[..]), "it is no DELETE of the file");
    for (fields, body, status) in [
        (format!("{TUS}{BYTES}"), &b"hello"[..], 400),
        (format!("{TUS}{BYTES}Upload-Offset: -1\r\n"), b"hello", 400),
        (format!("{TUS}{BYTES}Upload-Offset: 5\r\n"), b"", 409),
        (format!("{TUS}{BYTES}Upload-Offset: 1\r\n"), b"ello", 409),
        (format!("{TUS}Upload-Offset: 0\r\n"), b"hello", 415),
        (format!("{TUS}Content-Type: text/plain\r\nUpload-Offset: 0\r\n"), b"hello", 415),
        (patch(0) + "Upload-Checksum: sha1 AAAA\r\n", b"hello", 400),
        (patch(0) + "Digest: md5=XUFAKrxLKna5cZ2REBfFkg==\r\n", b"hello", 400),
        (patch(0) + "Content-Encoding: gzip\r\n", b"hello", 415),
        (patch(0), b"hello!", 413),
    ] {
        let answer = raw.alice(&format!("PATCH {address}"), &fields, body).await;
        assert_eq!((answer.status, spoken(&answer)), (status, true), "{fields}: {}", answer.text());
        assert_eq!(offset(&mut raw, &address).await, Some(0), "{fields}");
    }
    let chunked = format!("{}{}Transfer-Encoding: chunked\r\n", basic("alice", PASSWORD), patch(0));
    raw.send(format!("PATCH {address} HTTP/1.1\r\nHost: localhost\r\n{chunked}\r\n6\r\nhello!\r\n0\r\n\r\n"))
        .await;
    assert_eq!(raw.answer(false).await.status, 413, "more came than was to");
    let mut raw = Raw::connect(house.address).await;
    assert!(offset(&mut raw, &address).await.is_some_and(|there| there < 5), "a look would make it the file");
    assert_eq!(house.read("f").await.as_deref(), Some(&b"the file"[..]));
    assert_eq!(raw.alice("PATCH /f", &patch(0), b"x").await.status, 405, "a file is no upload");
    assert_eq!(raw.alice("PATCH /f?upload=1", &patch(0), b"x").await.status, 400);
}

#[tokio::test]
async fn what_could_not_be_kept_is_refused_at_the_beginning() {
    let house = House::open().await;
    house.put("f", "a file").await;
    let mut raw = Raw::connect(house.address).await;
    let name = "Upload-Metadata: filename YQ==\r\n";
    let too_long = limits::FILE_BYTES_MAX + 1;
    for (target, fields, status) in [
        ("/", format!("{TUS}{name}"), 400),
        ("/", format!("{TUS}{name}Upload-Defer-Length: 1\r\n"), 400),
        ("/", format!("{TUS}{name}Upload-Length: x\r\n"), 400),
        ("/", format!("{TUS}{name}Upload-Length: {too_long}\r\n"), 413),
        ("/", format!("{TUS}{name}Upload-Length: 5\r\nUpload-Concat: partial\r\n"), 400),
        ("/", format!("{TUS}{name}Upload-Length: 5\r\nRepr-Digest: md5=:XUFAKrxLKna5cZ2REBfFkg==:\r\n"), 400),
        ("/", format!("{TUS}Upload-Length: 5\r\n"), 400),
        ("/", format!("{TUS}Upload-Length: 5\r\nUpload-Metadata: filename YS9i\r\n"), 400),
        ("/", format!("{name}Tus-Resumable: 0.2.0\r\nUpload-Length: 5\r\n"), 412),
        ("/", format!("{TUS}{name}Upload-Length: 5\r\nIf-Match: *\r\n"), 412),
        ("/f", format!("{TUS}{name}Upload-Length: 5\r\n"), 409),
        ("/none/", format!("{TUS}{name}Upload-Length: 5\r\n"), 409),
        (
            "/",
            format!("{TUS}Upload-Length: 5\r\nUpload-Metadata: filename {}\r\n", BASE64.encode(b"drop")),
            409,
        ),
        ("/", begin("f", 5) + "If-None-Match: *\r\n", 412),
        ("/", begin("f", 5) + "If-Match: *\r\n", 400),
        ("/", begin("f", 5) + "X-HTTP-Method-Override: GET\r\n", 400),
        ("/", format!("{name}Upload-Length: 5\r\n"), 405),
    ] {
        let answer = raw.alice(&format!("POST {target}"), &fields, b"").await;
        assert_eq!(answer.status, status, "{target} {fields}: {}", answer.text());
    }
    assert_eq!(raw.alice("POST /", &begin("a", 5), b"hello").await.status, 415, "its bytes come later");
    assert_eq!(house.stages().await, 0, "nothing is left of what was refused");
    house.limit("", 1000).await;
    assert_eq!(raw.alice("POST /", &begin("a", 2000), b"").await.status, 507);
}

#[tokio::test]
async fn an_upload_of_no_bytes_is_a_file_at_once() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "empty", 0).await;
    assert_eq!(house.read("empty").await.as_deref(), Some(&b""[..]));
    assert_eq!(offset(&mut raw, &address).await, Some(0));
    assert_eq!(raw.alice("POST /", &(begin("empty", 0) + "If-None-Match: *\r\n"), b"").await.status, 412);
    assert_eq!(house.stages().await, 0);
}

#[tokio::test]
async fn whoever_did_not_hear_that_it_is_a_file_learns_it_when_they_ask_again() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 5).await;
    assert_eq!(raw.alice(&format!("PATCH {address}"), &patch(0), b"hello").await.status, 204);
    assert_eq!(offset(&mut raw, &address).await, Some(5));
    let again = raw.alice(&format!("PATCH {address}"), &patch(0), b"hello").await;
    assert_eq!(again.status, 409, "from where it was");
    assert_eq!(raw.alice(&format!("PATCH {address}"), &patch(5), b"").await.status, 204);
    assert_eq!(raw.alice(&format!("DELETE {address}"), TUS, b"").await.status, 410);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"hello"[..]));
}

#[tokio::test]
async fn what_is_whole_and_no_file_becomes_one_when_somebody_looks() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 5).await;
    assert_eq!(raw.alice(&format!("PATCH {address}"), &patch(0), b"he").await.status, 204);
    // As a node leaves it that ends after the last byte, before it is published.
    let id = address.split("upload=").nth(1).and_then(|rest| rest.split('.').next()).expect("an id");
    let (call, id): (_, StageId) = (house.call("alice"), id.parse().expect("an id"));
    let stage = house.fs.staged(&call, id).await.expect("it is alice's");
    stage.put(&call, 1, 2, &mut BytesSource::new(&b"llo"[..])).await.expect("it is put");
    assert_eq!(house.read("f").await, None);
    assert_eq!(offset(&mut raw, &address).await, Some(5));
    assert_eq!(house.read("f").await.as_deref(), Some(&b"hello"[..]));
}

#[tokio::test]
async fn a_name_that_was_to_be_free_is_not_taken_over_and_the_upload_is_kept() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let fields = begin("f", 5) + "If-None-Match: *\r\n";
    let made = raw.alice("POST /", &fields, b"").await;
    let address = made.field("Location").expect("an address").to_owned();
    house.put("f", "came first").await;
    let refused = raw.alice(&format!("PATCH {address}"), &patch(0), b"hello").await;
    assert_eq!((refused.status, spoken(&refused)), (412, true));
    assert_eq!(house.read("f").await.as_deref(), Some(&b"came first"[..]));
    assert_eq!(
        raw.alice(&format!("HEAD {address}"), TUS, b"").await.status,
        412,
        "nothing is told that is not so"
    );
    let gone = house.fs.remove(&house.call("alice"), &at("f"), Expect::NotDirectory, &Guard::NONE).await;
    gone.expect("it is removed");
    assert_eq!(offset(&mut raw, &address).await, Some(5));
    assert_eq!(house.read("f").await.as_deref(), Some(&b"hello"[..]));
}

#[tokio::test]
async fn the_last_patch_may_say_what_it_replaces() {
    let house = House::open().await;
    house.put("f", "old").await;
    let mut raw = Raw::connect(house.address).await;
    let tag = raw.alice("HEAD /f", "", b"").await.field("ETag").expect("a tag").to_owned();
    let address = begun(&mut raw, "/", "f", 5).await;
    let wrong = raw.alice(&format!("PATCH {address}"), &(patch(0) + "If-Match: \"x\"\r\n"), b"hello").await;
    assert_eq!(wrong.status, 412);
    assert_eq!(offset(&mut raw, &address).await, Some(0), "refused before anything is taken");
    let right =
        raw.alice(&format!("PATCH {address}"), &format!("{}If-Match: {tag}\r\n", patch(0)), b"hello").await;
    assert_eq!(right.status, 204);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"hello"[..]));
}

#[tokio::test]
async fn a_lock_is_in_the_way_of_more_and_whoever_shows_it_goes_on() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 5).await;
    assert_eq!(raw.alice(&format!("PATCH {address}"), &patch(0), b"he").await.status, 204);
    let lock = br#"<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>"#;
    let locked = raw.alice("LOCK /f", "", lock).await;
    assert!(matches!(locked.status, 200 | 201), "{}", locked.text());
    let token = locked.field("Lock-Token").expect("a token").to_owned();
    assert_eq!(raw.alice(&format!("PATCH {address}"), &patch(2), b"llo").await.status, 423);
    assert_eq!(raw.alice("POST /", &begin("f", 5), b"").await.status, 423);
    assert_eq!(house.stages().await, 1, "nothing is left of what was refused");
    assert_eq!(offset(&mut raw, &address).await, Some(2));
    let fields = format!("{}If: ({token})\r\n", patch(2));
    assert_eq!(raw.alice(&format!("PATCH {address}"), &fields, b"llo").await.status, 204);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"hello"[..]));
}

#[tokio::test]
async fn an_upload_that_is_ended_is_gone_with_what_came() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 5).await;
    assert_eq!(raw.alice(&format!("PATCH {address}"), &patch(0), b"he").await.status, 204);
    assert_eq!(house.stages().await, 1);
    assert_eq!(raw.alice(&format!("DELETE {address}"), TUS, b"").await.status, 204);
    assert_eq!((house.stages().await, offset(&mut raw, &address).await), (0, None));
    for (method, fields) in [("PATCH", patch(2)), ("DELETE", TUS.to_owned())] {
        assert_eq!(raw.alice(&format!("{method} {address}"), &fields, b"").await.status, 404, "{method}");
    }
}

#[tokio::test]
async fn post_stands_for_patch_and_delete_where_nothing_else_gets_through() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 5).await;
    let fields = patch(0) + "X-HTTP-Method-Override: PATCH\r\n";
    assert_eq!(raw.alice(&format!("POST {address}"), &fields, b"he").await.status, 204);
    assert_eq!(offset(&mut raw, &address).await, Some(2));
    let fields = format!("{TUS}X-HTTP-Method-Override: DELETE\r\n");
    assert_eq!(raw.alice(&format!("POST {address}"), &fields, b"").await.status, 204);
    assert_eq!(offset(&mut raw, &address).await, None);
    house.put("g", "stays").await;
    let without = "X-HTTP-Method-Override: DELETE\r\n";
    assert_eq!(raw.alice("POST /g", without, b"").await.status, 405, "and only of uploads");
    let of_a_file = format!("{TUS}{without}");
    assert_eq!(raw.alice("POST /g", &of_a_file, b"").await.status, 405);
    assert_eq!(house.read("g").await.as_deref(), Some(&b"stays"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_goes_stops_the_bytes_and_what_came_is_kept() {
    let house = House::open().await;
    let claims = house.domain.claims("alice");
    let bearer = format!("Authorization: Bearer {}\r\n", house.domain.credential(&claims).to_token());
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 9).await;
    let mut own = Raw::connect(house.address).await;
    own.send(format!(
        "PATCH {address} HTTP/1.1\r\nHost: localhost\r\n{bearer}{}Content-Length: 9\r\n\r\nabc",
        patch(0)
    ))
    .await;
    let there = async {
        while house.mover.transfers().first().map(|transfer| transfer.bytes) != Some(3) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), there).await.expect("it is taken");
    house.authority_revoke(&Revoke::Credential(claims.id)).await;
    assert_eq!(own.answer(false).await.status, 401);
    assert_eq!(offset(&mut raw, &address).await, Some(3), "to who proves who they are again");
}

#[tokio::test]
async fn who_stands_still_is_given_up_and_what_came_is_kept() {
    let sys = Sys::simulated(1);
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let house = House::on(sys, Bounds::default()).await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/", "f", 10).await;
    drop(raw);
    let mut slow = stalled(&house, &address, "Content-Length: 10", b"abc", 3).await;
    clock.step(limits::TRANSFER_IDLE + Duration::from_secs(1));
    assert_eq!(slow.answer(false).await.status, 408);
    let mut raw = Raw::connect(house.address).await;
    assert_eq!(offset(&mut raw, &address).await, Some(3));
}

#[tokio::test]
async fn a_cookie_alone_begins_looks_at_and_changes_no_upload() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let address = begun(&mut raw, "/public/", "f", 5).await;
    let body = format!("user=alice&password={}", PASSWORD.replace(' ', "+"));
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let login = raw.ask("POST /public/?page=login", form, body.as_bytes()).await;
    let kept = login.all("Set-Cookie").into_iter().filter(|cookie| !cookie.contains("Max-Age=0"));
    let pairs: Vec<&str> = kept.filter_map(|cookie| cookie.split(';').next()).collect();
    let cookie = format!("Cookie: {}\r\n", pairs.join("; "));
    let page = raw.ask("GET /public/", &format!("{cookie}Accept: text/html\r\n"), b"").await;
    let guard = page.text().split("data-guard=\"").nth(1).and_then(|rest| rest.split('"').next());
    let guard = format!("X-Weft-Guard: {}\r\n", guard.expect("the page has one"));
    for (line, fields, body, status) in [
        ("POST /public/".to_owned(), begin("g", 5), &b""[..], 201),
        (format!("HEAD {address}"), TUS.to_owned(), b"", 200),
        (format!("PATCH {address}"), patch(0), b"he", 204),
        (format!("DELETE {address}"), TUS.to_owned(), b"", 204),
    ] {
        assert_eq!(raw.ask(&line, &format!("{cookie}{fields}"), body).await.status, 403, "{line}");
        let shown = format!("{cookie}{guard}{fields}");
        assert_eq!(raw.ask(&line, &shown, body).await.status, status, "{line}");
    }
}
