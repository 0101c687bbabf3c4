//! Conditional requests, ranges and digests, as they arrive.

use std::time::Duration;

use data_encoding::BASE64;
use md5::{Digest as _, Md5};
use sha2::Sha512;
use weft_core::attr::{SetAttr, SetTime};
use weft_core::form::{FileSystem, Guard, Replace};
use weft_core::{Time, limits};
use weft_doors_listener::Bounds;
use weft_sys::Sys;

use crate::house::{House, PASSWORD, at};
use crate::raw::{Raw, basic};

/// A file, and its tag.
async fn with_file() -> (House, Raw, String) {
    let house = House::open().await;
    house.put("f", &b"0123456789abcdefghij"[..]).await;
    let mut raw = Raw::connect(house.address).await;
    let tag = raw.alice("HEAD /f", "", b"").await.field("ETag").expect("files have tags").to_owned();
    (house, raw, tag)
}

#[tokio::test]
async fn a_reader_that_has_it_already_is_told_so() {
    let (_house, mut raw, tag) = with_file().await;
    for fields in [
        format!("If-None-Match: {tag}"),
        format!("If-None-Match: \"x\", W/{tag}"),
        "If-None-Match: *".into(),
        "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT".into(),
    ] {
        let answer = raw.alice("GET /f", &format!("{fields}\r\n"), b"").await;
        assert_eq!((answer.status, answer.field("ETag")), (304, Some(tag.as_str())), "{fields}");
        assert_eq!(raw.alice("HEAD /f", &format!("{fields}\r\n"), b"").await.status, 304, "{fields}");
    }
    for (fields, status) in [
        ("If-None-Match: \"x\"".into(), 200),
        ("If-Match: \"x\"".to_owned(), 412),
        (format!("If-Match: W/{tag}"), 412),
        (format!("If-Match: {tag}"), 200),
        ("If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT".into(), 412),
        ("If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT".into(), 200),
        ("If-Match: nonsense".into(), 400),
    ] {
        assert_eq!(raw.alice("GET /f", &format!("{fields}\r\n"), b"").await.status, status, "{fields}");
    }
}

#[tokio::test]
async fn a_change_is_made_only_if_its_condition_holds_and_changes_the_tag() {
    let (house, mut raw, tag) = with_file().await;
    for (line, fields, status) in [
        ("PUT /f", "If-None-Match: *".to_owned(), 412),
        ("PUT /f", "If-Match: \"x\"".into(), 412),
        ("PUT /f", format!("If-None-Match: {tag}"), 412),
        ("PUT /g", "If-Match: *".into(), 412),
        ("DELETE /f", "If-Match: \"x\"".into(), 412),
        ("DELETE /f", "If-None-Match: *".into(), 412),
        ("DELETE /f", "If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT".into(), 412),
        ("PUT /g", "If-None-Match: *".into(), 201),
        ("PUT /g", "If-None-Match: *".into(), 412),
        ("PUT /f", format!("If-Match: \"x\", {tag}"), 204),
        ("PUT /f", format!("If-Match: {tag}"), 412),
        ("DELETE /f", format!("If-Match: {tag}"), 412),
        ("DELETE /f", "If-Match: *".into(), 204),
        ("PUT /g", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT".into(), 204),
    ] {
        let body: &[u8] = if line.starts_with("PUT") { b"new" } else { b"" };
        let answer = raw.alice(line, &format!("{fields}\r\n"), body).await;
        assert_eq!(answer.status, status, "{line} {fields}");
    }
    assert_eq!(house.read("f").await, None);
    assert_eq!(house.read("g").await.as_deref(), Some(&b"new"[..]));
}

#[tokio::test]
async fn of_many_who_make_a_name_at_once_one_does() {
    let house = House::open().await;
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let address = house.address;
            tokio::spawn(async move {
                let mut raw = Raw::connect(address).await;
                raw.alice("PUT /one", "If-None-Match: *\r\n", format!("{number}").as_bytes()).await.status
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.expect("it answers"));
    }
    statuses.sort_unstable();
    let expected: Vec<u16> = std::iter::once(201).chain(std::iter::repeat_n(412, 15)).collect();
    assert_eq!(statuses, expected);
}

#[tokio::test]
async fn ranges_are_what_was_asked_for() {
    let (_house, mut raw, tag) = with_file().await;
    for (range, status, content_range, body) in [
        ("bytes=0-4", 206, Some("bytes 0-4/20"), "01234"),
        ("bytes=15-", 206, Some("bytes 15-19/20"), "fghij"),
        ("bytes=-3", 206, Some("bytes 17-19/20"), "hij"),
        ("bytes=0-4,3-6", 206, Some("bytes 0-6/20"), "0123456"),
        ("bytes=x", 200, None, "0123456789abcdefghij"),
        ("bytes=20-", 416, Some("bytes */20"), ""),
    ] {
        let answer = raw.alice("GET /f", &format!("Range: {range}\r\n"), b"").await;
        assert_eq!((answer.status, answer.field("Content-Range")), (status, content_range), "{range}");
        if status != 416 {
            assert_eq!(answer.text(), body, "{range}");
        }
        let head = raw.alice("HEAD /f", &format!("Range: {range}\r\n"), b"").await;
        let whole = (head.status, head.field("Content-Length"));
        assert_eq!(whole, (200, Some("20")), "{range}: only GET has ranges");
    }
    for (validator, status) in [(tag.as_str(), 206), ("\"x\"", 200), ("Sat, 01 Jan 2000 00:00:00 GMT", 200)] {
        let answer =
            raw.alice("GET /f", &format!("Range: bytes=0-1\r\nIf-Range: {validator}\r\n"), b"").await;
        assert_eq!(answer.status, status, "{validator}");
    }
}

#[tokio::test]
async fn a_date_never_joins_ranges_of_two_versions() {
    let house = House::open().await;
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let old = SetTime::At(Time::from_unix(784_111_777, 0));
    let mut raw = Raw::connect(house.address).await;
    for bytes in [&b"one version"[..], b"two version"] {
        house.put("f", bytes).await;
        // As a copy that keeps times does.
        let set = SetAttr { mtime: Some(old), ..SetAttr::default() };
        house.fs.set(&house.call("alice"), &at("f"), &set, &Guard::NONE).await.expect("it is hers");
        let answer = raw.alice("GET /f", &format!("Range: bytes=4-\r\nIf-Range: {date}\r\n"), b"").await;
        assert_eq!((answer.status, answer.field("Last-Modified")), (200, Some(date)));
        assert_eq!(answer.body, bytes);
    }
}

#[tokio::test]
async fn a_condition_that_may_hold_for_who_says_who_they_are_asks_for_that() {
    let house = House::open().await;
    house.put("private/f", &b"hers"[..]).await;
    let mut raw = Raw::connect(house.address).await;
    let tag = raw.alice("HEAD /private/f", "", b"").await.field("ETag").expect("it has one").to_owned();
    let condition = format!("If-Match: {tag}\r\n");
    for line in ["DELETE /private/f", "PUT /private/f", "MKCOL /private/f"] {
        let answer = raw.ask(line, &condition, b"").await;
        assert_eq!(answer.status, 401, "{line}");
        assert!(answer.field("WWW-Authenticate").is_some(), "{line}");
    }
    assert_eq!(raw.alice("DELETE /private/f", &condition, b"").await.status, 204);
}

#[tokio::test]
async fn a_condition_speaks_of_the_file_that_was_seen_not_of_another_of_its_version() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    for name in ["/f", "/g"] {
        assert_eq!(raw.alice(&format!("PUT {name}"), "", b"one").await.status, 201);
    }
    let tag = raw.alice("HEAD /f", "", b"").await.field("ETag").expect("it has one").to_owned();
    let mut slow = Raw::connect(house.address).await;
    let auth = basic("alice", PASSWORD);
    slow.send(format!(
        "PUT /f HTTP/1.1\r\nHost: localhost\r\n{auth}If-Match: {tag}\r\nContent-Length: 5\r\n\r\nmine"
    ))
    .await;
    let begun = async {
        while house.mover.transfers().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), begun).await.expect("it was judged");
    let call = house.call("alice");
    house.fs.rename(&call, &at("g"), &at("f"), Replace::Any, &Guard::NONE).await.expect("both are hers");
    slow.send(b"!").await;
    assert_eq!(slow.answer(false).await.status, 412);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"one"[..]), "the other file stands");
}

#[tokio::test]
async fn several_ranges_come_in_parts_whose_length_was_told() {
    let (_house, mut raw, _) = with_file().await;
    let answer = raw.alice("GET /f", "Range: bytes=0-1, 10-11, -1\r\n", b"").await;
    assert_eq!(answer.status, 206);
    let media = answer.field("Content-Type").expect("a type");
    let boundary = media.strip_prefix("multipart/byteranges; boundary=").expect("parts");
    let part = |range: &str, body: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {range}/20\r\n\r\n{body}"
        )
    };
    let expected =
        part("0-1", "01") + &part("10-11", "ab") + &part("19-19", "j") + &format!("\r\n--{boundary}--\r\n");
    assert_eq!(answer.text(), expected);
    assert_eq!(raw.alice("GET /f", "", b"").await.status, 200, "the connection goes on");
}

#[tokio::test]
async fn digests_are_told_when_asked_for_in_both_languages() {
    let (_house, mut raw, _) = with_file().await;
    let answer = raw
        .alice("GET /f", "Want-Repr-Digest: sha-256=1\r\nWant-Digest: adler32\r\nRange: bytes=0-1\r\n", b"")
        .await;
    assert_eq!(answer.field("Repr-Digest"), Some("sha-256=:a8FL3EUXp6aCxpEN4uKUbrjh7NBAkHKP720JKnzrYsU=:"));
    assert_eq!(answer.field("Digest"), Some("adler32=35070605"));
    assert_eq!(
        (answer.status, answer.text()),
        (206, "01"),
        "a digest is of the whole file, whatever is sent"
    );
    let head = raw.alice("HEAD /f", "Want-Digest: md5\r\n", b"").await;
    assert_eq!(head.field("Digest"), Some("md5=ZEvgbfxUBh/R5n9eu6vNWA=="));
    let again = raw.alice("PUT /f", "", b"other").await;
    assert_eq!(again.status, 204);
    let head = raw.alice("HEAD /f", "Want-Digest: adler32\r\n", b"").await;
    assert_eq!(head.field("Digest"), Some("adler32=06740223"), "another version has another digest");
    assert_eq!(raw.alice("HEAD /f", "Want-Digest: unixcksum\r\n", b"").await.field("Digest"), None);
}

/// The digest of a file that nobody will have: no request lives so long.
const ENDLESS: u64 = 1 << 44;

#[tokio::test]
async fn a_digest_that_takes_too_long_is_left_out_and_keeps_no_other_waiting() {
    let sys = Sys::simulated(1);
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let house = House::on(sys, Bounds::default()).await;
    house.put("public/endless", &b"x"[..]).await;
    let longer = SetAttr { size: Some(ENDLESS), ..SetAttr::default() };
    house.fs.set(&house.call("alice"), &at("public/endless"), &longer, &Guard::NONE).await.expect("a hole");
    house.put("public/small", &b"hello"[..]).await;
    let wants = "Host: localhost\r\nWant-Repr-Digest: sha-256=1\r\nWant-Digest: adler32";
    let mut waiting = Vec::new();
    // More than are taken in at once, by nobody in particular.
    for line in ["HEAD /public/endless", "GET /public/endless"].repeat(limits::DIGESTS_AT_ONCE) {
        let mut raw = Raw::connect(house.address).await;
        raw.send(format!("{line} HTTP/1.1\r\n{wants}\r\nRange: bytes=0-0\r\n\r\n")).await;
        waiting.push((line, raw));
    }
    let mut raw = Raw::connect(house.address).await;
    let small = raw.ask("HEAD /public/small", "Want-Digest: adler32\r\n", b"").await;
    assert_eq!((small.status, small.field("Digest")), (200, Some("adler32=062c0215")));
    clock.step(limits::DIGEST_WITHIN);
    for (line, raw) in &mut waiting {
        let answer = raw.answer(line.starts_with("HEAD")).await;
        let (status, length) = if line.starts_with("HEAD") { (200, ENDLESS) } else { (206, 1) };
        let told = (answer.status, answer.field("Content-Length").map(str::to_owned));
        assert_eq!(told, (status, Some(length.to_string())), "{line}");
        assert_eq!((answer.field("Digest"), answer.field("Repr-Digest")), (None, None), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_that_a_crowd_asks_for_is_computed_once_and_told_to_all() {
    let house = House::open().await;
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    let md5 = BASE64.encode(&Md5::digest(&bytes));
    house.put("public/large", bytes).await;
    let address = house.address;
    let asked = (0..24).map(|_| {
        tokio::spawn(async move {
            let mut raw = Raw::connect(address).await;
            let answer = raw.ask("HEAD /public/large", "Want-Digest: md5\r\n", b"").await;
            answer.field("Digest").map(str::to_owned)
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        assert_eq!(asked.await.expect("it answers"), Some(format!("md5={md5}")));
    }
}

#[tokio::test]
async fn a_digest_that_nobody_waited_for_goes_on_where_it_was() {
    let sys = Sys::simulated(1);
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let house = House::on(sys, Bounds::default()).await;
    house.put("public/f", &b"x"[..]).await;
    let longer = SetAttr { size: Some(200 << 20), ..SetAttr::default() };
    house.fs.set(&house.call("alice"), &at("public/f"), &longer, &Guard::NONE).await.expect("a hole");
    let (mut asked, mut told) = (0, None);
    while told.is_none() {
        asked += 1;
        let mut raw = Raw::connect(house.address).await;
        raw.send("HEAD /public/f HTTP/1.1\r\nHost: localhost\r\nWant-Digest: sha-512\r\n\r\n").await;
        // Much sooner than it can be through.
        raw.hears(Duration::from_millis(50)).await;
        clock.step(limits::DIGEST_WITHIN);
        told = raw.answer(true).await.field("Digest").map(str::to_owned);
        assert!(asked < 1000, "each begins anew");
    }
    let mut sum = Sha512::new();
    sum.update(b"x");
    sum.update(vec![0; (200 << 20) - 1]);
    assert_eq!(told, Some(format!("sha-512={}", BASE64.encode(&sum.finalize()))));
    assert!(asked > 1, "it was through at once: nothing was shown");
}

#[tokio::test]
async fn an_upload_with_another_digest_is_refused_and_nothing_is_seen_of_it() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let good = [
        "Repr-Digest: sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
        "Digest: adler32=062c0215",
        "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==",
        "Digest: md5=XUFAKrxLKna5cZ2REBfFkg==, adler32=62c0215",
    ];
    for (number, digest) in good.into_iter().enumerate() {
        let bad = raw.alice(&format!("PUT /{number}"), &format!("{digest}\r\n"), b"hellO").await;
        assert_eq!(bad.status, 400, "{digest}");
        assert!(bad.text().contains("another digest"), "{}", bad.text());
        assert_eq!(house.read(&number.to_string()).await, None);
        assert_eq!(
            raw.alice(&format!("PUT /{number}"), &format!("{digest}\r\n"), b"hello").await.status,
            201
        );
        let worse = raw.alice(&format!("PUT /{number}"), &format!("{digest}\r\n"), b"worse").await;
        assert_eq!(worse.status, 400);
        assert_eq!(
            house.read(&number.to_string()).await.as_deref(),
            Some(&b"hello"[..]),
            "the old file stands"
        );
    }
    assert_eq!(raw.alice("PUT /x", "Repr-Digest: sha-256=:AA==:\r\n", b"hello").await.status, 400);
    // Said twice it is one; two that differ cannot both be right.
    let twice = "Digest: md5=XUFAKrxLKna5cZ2REBfFkg==\r\nContent-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n";
    assert_eq!(raw.alice("PUT /twice", twice, b"hello").await.status, 201);
    let differ = "Digest: adler32=062c0215, adler32=062c0216\r\n";
    let answer = raw.alice("PUT /differ", differ, b"hello").await;
    assert_eq!((answer.status, answer.text().contains("differ")), (400, true), "{}", answer.text());
    assert_eq!(raw.alice("PUT /x", "Repr-Digest: crc32c=:AA==:\r\n", b"hello").await.status, 201);
}
