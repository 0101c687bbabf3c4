use super::*;

fn parse(text: &str) -> Result<Head, Refusal> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    match end_of_head(&bytes, 0)? {
        Some(end) => Head::parse(bytes.slice(..end)),
        None => Err(Refusal::malformed("the test's head has no end")),
    }
}

fn status_of(text: &str) -> u16 {
    parse(text).expect_err("it must be refused").status.code()
}

#[test]
fn a_plain_request_is_taken_apart() {
    let head = parse("GET /a%20b?after=x HTTP/1.1\r\nHost: h:1\r\nRange: bytes=0-1 \r\n\r\n").expect("good");
    assert_eq!((head.method, head.is_1_1, head.keep_alive), (Method::Get, true, true));
    assert_eq!((&head.path()[..], head.query()), (&b"/a%20b"[..], Some(&b"after=x"[..])));
    assert_eq!(head.host(), b"h:1");
    assert_eq!(head.one(Field::Range).expect("once"), Some("bytes=0-1"));
    assert_eq!(head.framing, Framing::Length(0));
}

#[test]
fn an_absolute_target_names_the_host() {
    for (target, path) in
        [("http://a.b:8/x?y", "/x"), ("http://a.b:8", "/"), ("HTTP://a.b:8/", "/"), ("http://a.b:8//", "//")]
    {
        let head = parse(&format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n")).expect("good");
        assert_eq!((head.host(), &head.path()[..]), (&b"a.b:8"[..], path.as_bytes()), "{target}");
    }
    for target in ["ftp://a/", "a/b", "http:///x", "http://u@h/", "x"] {
        assert_eq!(status_of(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")), 400, "{target}");
    }
}

#[test]
fn framing_that_two_servers_could_read_differently_is_refused() {
    for fields in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1,1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length : 1\r\n",
        " Content-Length: 1\r\n",
        "X: a\r\n b\r\n",
        "X: a\nY: b\r\n",
        "X: a\rY: b\r\n",
        "X\r\n",
        "Host: again\r\n",
    ] {
        assert_eq!(status_of(&format!("PUT /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n")), 400, "{fields:?}");
    }
    for coding in ["gzip, chunked", "identity", "chunked, chunked", "xchunked", "chunked;q=1"] {
        let text = format!("PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: {coding}\r\n\r\n");
        assert_eq!(status_of(&text), 501, "{coding}");
    }
    assert_eq!(status_of("PUT /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    let chunked = parse("PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n").expect("good");
    assert_eq!(chunked.framing, Framing::Chunked);
}

#[test]
fn other_refusals_have_their_own_status() {
    assert_eq!(status_of("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
    assert_eq!(status_of("GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n"), 417);
    assert_eq!(status_of("G@T / HTTP/1.1 \r\n\r\n"), 400);
    let long = "a".repeat(limits::HTTP_TARGET_BYTES_MAX + 1);
    assert_eq!(status_of(&format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n")), 414);
    assert_eq!(end_of_head(long.repeat(2).as_bytes(), 0).expect_err("too long").status.code(), 414);
    let wide = format!("X: {}\r\n", "a".repeat(1000)).repeat(40);
    assert_eq!(status_of(&format!("GET / HTTP/1.1\r\nHost: h\r\n{wide}\r\n")), 431);
    let many = "X: 1\r\n".repeat(limits::HTTP_FIELDS_MAX + 1);
    assert_eq!(status_of(&format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n")), 431);
}

#[test]
fn connections_end_when_either_side_says_so() {
    let keeps = |version: &str, option: &str| {
        parse(&format!("GET / {version}\r\nHost: h\r\n{option}\r\n")).expect("good").keep_alive
    };
    assert!(keeps("HTTP/1.1", ""));
    assert!(!keeps("HTTP/1.1", "Connection: Close\r\n"));
    assert!(!keeps("HTTP/1.1", "Connection: x\r\nConnection: close\r\n"));
    assert!(!keeps("HTTP/1.0", ""));
    assert!(keeps("HTTP/1.0", "Connection: keep-alive\r\n"));
}

#[test]
fn the_end_is_found_however_the_bytes_come() {
    let text = b"GET / HTTP/1.1\r\nHost: h\r\n\r\nrest";
    for cut in 0..text.len() {
        let first = end_of_head(&text[..cut], 0).expect("no refusal");
        assert_eq!(first, (cut >= 27).then_some(27), "{cut}");
        if first.is_none() {
            assert_eq!(end_of_head(text, cut).expect("no refusal"), Some(27), "{cut}");
        }
    }
    assert!(end_of_head(b"GET / HTTP/1.1\n\n", 0).is_err());
}

#[test]
fn line_ends_are_checked_wherever_in_the_head_they_stand() {
    for length in 0..100 {
        let value = "v".repeat(length);
        let head = |end: &str| format!("GET / HTTP/1.1\r\nHost: h\r\nx: {value}{end}y: z\r\n\r\n");
        assert!(parse(&head("\r\n")).is_ok(), "{length}");
        for bad in ["\n", "\r", "\r\r\n", "\n\r\n", "\r\n ", "\r\n\t"] {
            assert_eq!(status_of(&head(bad)), 400, "{length}: {bad:?}");
        }
    }
}
