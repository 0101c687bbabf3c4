//! Every parser against mutations of valid messages: no panic, bounded work, and what is accepted
//! says the same when it is written and read again.
//!
//! Runs for a moment in each test run, for `WEFT_FUZZ_SECONDS` seconds each where that is set. A
//! failure prints the seed; `WEFT_SEED` runs it again.

use bytes::Bytes;
use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;
use weft_core::{StageId, limits};

use super::chunked::tests::decode;
use super::condition::{Conditions, Present, format_date, parse_date};
use super::head::{Framing, Head, end_of_head};
use super::range::{Wanted, wanted};
use super::target::{Path, encode_name, parameter};
use super::upload::{Metadata, STAMP_BYTES, Ticket, is_ticket};
use super::{Refusal, accept, cookie, credentials, digest, form, host, members};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn make_head(dice: &mut Dice) -> Vec<u8> {
    let mut head = format!(
        "{} {} HTTP/1.{}\r\n",
        dice.pick(&["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "MKCOL", "POST", "PATCH"]),
        dice.pick(&["/", "/a/b%20c", "/a?after=x&limit=3", "*", "http://h/x", "http://h", "/\u{e4}/"]),
        dice.roll(2)
    );
    for _ in 0..dice.roll(6) {
        head += *dice.pick(&[
            "Host: localhost\r\n",
            "Content-Length: 12\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: keep-alive, close\r\n",
            "Expect: 100-continue\r\n",
            "If-Match: \"a\", W/\"b\"\r\n",
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            "Range: bytes=0-1,-5\r\n",
            "Authorization: Basic YWxpY2U6cDp3\r\n",
            "X-Other: \t y \r\n",
        ]);
    }
    (head + "\r\n").into_bytes()
}

#[test]
fn heads() {
    fuzz("head", make_head, |bytes| {
        let whole = end_of_head(bytes, 0);
        for cut in [0, bytes.len() / 3, bytes.len() / 2] {
            if let (Ok(None), Ok(found)) = (end_of_head(&bytes[..cut], 0), &whole) {
                assert_eq!(end_of_head(bytes, cut).ok().as_ref(), Some(found), "however the bytes come");
            }
        }
        let Ok(Some(end)) = whole else { return };
        assert!(end <= bytes.len() && bytes[..end].ends_with(b"\r\n\r\n"));
        let Ok(head) = Head::parse(Bytes::copy_from_slice(&bytes[..end])) else { return };
        framing_has_one_reading(&bytes[..end], &head);
        let _ = (head.query().map(<[u8]>::len), head.host().len());
        if let Ok(conditions) = Conditions::of(&head) {
            let there = Present { tag: Some("\"a\"".into()), mtime: weft_core::Time::EPOCH };
            let _ = (conditions.judge(Some(&there)), conditions.judge(None));
        }
        path_round_trips(head.path());
    });
}

/// A second opinion, written differently: of all lines, at most one speaks of framing.
fn framing_has_one_reading(bytes: &[u8], head: &Head) {
    let text = text(bytes).to_ascii_lowercase();
    let lines = |name: &str| text.split("\r\n").skip(1).filter(|line| line.starts_with(name)).count();
    let (lengths, codings) = (lines("content-length:"), lines("transfer-encoding:"));
    match head.framing {
        Framing::Chunked => assert_eq!((lengths, codings), (0, 1)),
        Framing::Length(0) => assert!(lengths <= 1 && codings == 0),
        Framing::Length(_) => assert_eq!((lengths, codings), (1, 0)),
    }
}

fn path_round_trips(raw: Bytes) {
    let Ok(path) = Path::decode(raw) else { return };
    for name in path.path.names() {
        assert!(!matches!(name.as_bytes(), b"." | b".." | b"") && !name.as_bytes().contains(&b'/'));
    }
    let coded = path.encode();
    assert!(coded.bytes().all(|byte| byte.is_ascii_graphic()) && !coded.starts_with("//"));
    assert_eq!(Path::decode(coded.into()).expect("it was just coded"), path);
}

#[test]
fn targets() {
    let make = |dice: &mut Dice| {
        let parts = ["/a", "/b%20c", "/%FF", "/...", "/caf%C3%A9", "/", "/%2e", "/x%2fy"];
        (0..dice.roll(6)).map(|_| *dice.pick(&parts)).collect::<String>().into_bytes()
    };
    fuzz("target", make, |bytes| {
        path_round_trips(Bytes::copy_from_slice(bytes));
        if let Ok(Some(value)) = parameter(Some(bytes), "after")
            && let Ok(name) = weft_core::Name::new(value)
        {
            let query = format!("after={}", encode_name(&name));
            let again = parameter(Some(query.as_bytes()), "after").expect("it was just coded");
            assert_eq!(again.as_deref(), Some(name.as_bytes()));
        }
    });
}

#[test]
fn chunked_bodies() {
    let make = |dice: &mut Dice| {
        let mut body = Vec::new();
        for _ in 0..dice.roll(5) {
            let length = dice.roll(40) as usize + 1;
            let extension = dice.pick(&["", ";a", " ; b=\"c\"", ""]);
            body.extend(format!("{length:x}{extension}\r\n").bytes());
            body.extend(std::iter::repeat_n(b'x', length));
            body.extend(b"\r\n");
        }
        body.extend(dice.pick(&["0\r\n\r\n", "0\r\nA: b\r\n\r\n", "000\r\n\r\n"]).bytes());
        body
    };
    fuzz("chunked", make, |bytes| {
        let whole = decode(bytes, bytes.len());
        for at_once in [1, 3, 17] {
            let split = decode(bytes, at_once);
            assert_eq!(split.is_ok(), whole.is_ok(), "however the bytes come");
            if let (Ok(Some((one, _))), Ok(Some((other, _)))) = (&whole, &split) {
                assert_eq!(one, other);
            }
        }
        let Ok(Some((content, rest))) = whole else { return };
        assert!(content.len() + rest.len() < bytes.len());
        let again = format!("{:x}\r\n{}\r\n0\r\n\r\n", content.len(), text(&content));
        if !content.is_empty() && content.is_ascii() {
            assert_eq!(decode(again.as_bytes(), 5).expect("good").expect("whole").0, content);
        }
    });
}

#[test]
fn ranges() {
    let make = |dice: &mut Dice| {
        let mut field = String::from("bytes=");
        for _ in 0..=dice.roll(70) {
            let (first, last) = (dice.roll(120), dice.roll(120));
            field += &match dice.roll(4) {
                0 => format!("{first}-,"),
                1 => format!("-{last},"),
                _ => format!("{first}-{last},"),
            };
        }
        field.into_bytes()
    };
    fuzz("range", make, |bytes| {
        let field = text(bytes);
        for size in [0, 1, 100, u64::MAX] {
            let stretches = match wanted(&field, size) {
                Wanted::Whole | Wanted::Nothing => continue,
                Wanted::One(one) => vec![one],
                Wanted::Several(several) => several,
            };
            assert!(!stretches.is_empty() && stretches.len() <= limits::HTTP_RANGES_MAX);
            let mut sorted = stretches.clone();
            sorted.sort_unstable_by_key(|stretch| stretch.at);
            assert!(sorted.iter().all(|one| one.length > 0 && one.at < size && one.length <= size - one.at));
            assert!(sorted.windows(2).all(|pair| pair[0].end() <= pair[1].at), "no byte twice");
            let written: Vec<String> =
                stretches.iter().map(|one| format!("{}-{}", one.at, one.end() - 1)).collect();
            let again = match wanted(&format!("bytes={}", written.join(", ")), size) {
                Wanted::One(one) => vec![one],
                Wanted::Several(several) => several,
                other => panic!("{other:?}"),
            };
            assert_eq!(again, stretches);
        }
    });
}

#[test]
fn conditions_and_dates() {
    let make = |dice: &mut Dice| {
        let parts = [
            "\"a\"",
            "W/\"b\"",
            "*",
            "\"\"",
            "\"c,d\"",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ];
        let list: Vec<&str> = (0..dice.roll(80)).map(|_| *dice.pick(&parts)).collect();
        list.join(*dice.pick(&[", ", ",", " , ,"])).into_bytes()
    };
    fuzz("condition", make, |bytes| {
        let field = text(bytes);
        if let Some(time) = parse_date(&field) {
            assert_eq!(parse_date(&format_date(time)), Some(time));
        }
        for name in ["If-Match", "If-None-Match", "If-Unmodified-Since", "If-Range"] {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{name}: {field}\r\n\r\n");
            let Ok(head) = Head::parse(head.into()) else { continue };
            let Ok(conditions) = Conditions::of(&head) else { continue };
            let there = Present { tag: Some("\"a\"".into()), mtime: weft_core::Time::EPOCH };
            let _ = (conditions.judge(Some(&there)), conditions.judge(None), conditions.pinned(None));
        }
    });
}

#[test]
fn digests() {
    let make = |dice: &mut Dice| {
        let parts = [
            "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:",
            "md5=:XUFAKrxLKna5cZ2REBfFkg==:",
            "adler=:BiwCFQ==:;p=1",
            "adler32=062c0215",
            "MD5=XUFAKrxLKna5cZ2REBfFkg==",
            "sha-512=10",
            "adler32;q=0.5",
            "crc32c=:AA==:",
        ];
        let list: Vec<&str> = (0..dice.roll(6)).map(|_| *dice.pick(&parts)).collect();
        list.join(", ").into_bytes()
    };
    fuzz("digest", make, |bytes| {
        let field = text(bytes);
        let _ = (digest::wanted(&field), digest::wanted_old(&field), digest::value_md5(&field));
        for value in digest::values(&field).unwrap_or_default() {
            assert_eq!(digest::values(&value.to_field()).expect("it was just written"), [value]);
        }
        for value in digest::values_old(&field).unwrap_or_default() {
            assert_eq!(digest::values_old(&value.to_old_field()).expect("it was just written"), [value]);
        }
    });
}

#[test]
fn uploads() {
    let make = |dice: &mut Dice| {
        let parts = [
            "filename YS50eHQ=",
            "mtime MTcwMC41",
            "filetype dGV4dC9wbGFpbg==",
            "filename Li4vYQ==",
            "is_confidential",
            "mtime LTE=",
        ];
        let list: Vec<&str> = (0..dice.roll(5)).map(|_| *dice.pick(&parts)).collect();
        list.join(*dice.pick(&[",", ", ", " ,"])).into_bytes()
    };
    fuzz("upload metadata", make, |bytes| {
        let said = text(bytes);
        let Ok(metadata) = Metadata::of(&said) else { return };
        let name = metadata.name.as_bytes();
        assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..");
        // It is sent back as it came: it must not end the field that it stands in.
        assert!(!said.contains(['\r', '\n']));
        let ticket = Ticket {
            id: StageId(u128::MAX / 3),
            length: bytes.len() as u64,
            stamp: [0xa5; STAMP_BYTES],
            is_new: bytes.len() % 2 == 0,
            said,
            metadata,
        };
        let query = ticket.to_query();
        assert!(query.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(Ticket::of(Some(query.as_bytes())).expect("it was just written"), ticket);
    });
}

#[test]
fn addresses_of_uploads() {
    let make = |dice: &mut Dice| {
        let id = format!("{:032x}", u128::from(dice.roll(1 << 40)) << 64);
        let upload = format!("upload={id}.{}.{id}", dice.roll(1 << 50));
        let parts = [&upload, "new=1", "metadata=filename%20YS50eHQ%3D", "page=about"];
        let list: Vec<&str> = (0..dice.roll(6)).map(|_| *dice.pick(&parts)).collect();
        list.join("&").into_bytes()
    };
    fuzz("upload address", make, |bytes| {
        let Ok(ticket) = Ticket::of(Some(bytes)) else { return };
        assert!(is_ticket(Some(bytes)));
        assert_eq!(Ticket::of(Some(ticket.to_query().as_bytes())).expect("it was just written"), ticket);
    });
}

#[test]
fn the_rest() {
    let make = |dice: &mut Dice| {
        let parts = [
            "Basic YWxpY2U6cDp3",
            "Bearer abc.def",
            "localhost:80",
            "[::1]:80",
            "a.b",
            "text/html;q=0.5",
            "application/json",
            ", ",
        ];
        (0..dice.roll(5)).map(|_| *dice.pick(&parts)).collect::<String>().into_bytes()
    };
    let hosts = host::Hosts::new(&["a.b".to_owned()]);
    fuzz("credentials, hosts, media", make, |bytes| {
        let field = text(bytes);
        let _ =
            (credentials::evidence(&field), accept::wants_json(Some(&field)), hosts.admits(bytes, || None));
        assert!(members(&field).all(|member| !member.is_empty()));
    });
}

#[test]
fn what_browsers_send() {
    let make = |dice: &mut Dice| {
        let parts =
            ["weft0=abc", "; ", "weft1=", "user=a%20b", "&", "password=%C3%A9+x", "a=b", "%", "text/html"];
        (0..dice.roll(8)).map(|_| *dice.pick(&parts)).collect::<String>().into_bytes()
    };
    fuzz("cookies, forms", make, |bytes| {
        if let Some(token) = cookie::joined(&text(bytes)) {
            let pairs: Vec<String> =
                cookie::split(&token).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(cookie::joined(&pairs.join("; ")), Some(token));
        }
        for name in ["user", "password"] {
            // What is no text becomes a mark of three bytes.
            assert!(form::field(bytes, name).map_or(true, |value| value.len() <= 3 * bytes.len()));
        }
        let _ = accept::wants_page(Some(&text(bytes)));
    });
}

/// A refusal is small and fixed: it never carries what was sent.
#[test]
fn refusals_carry_nothing_of_what_was_sent() {
    assert!(size_of::<Refusal>() <= 24);
}
