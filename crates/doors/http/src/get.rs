//! GET and HEAD of files.

use std::borrow::Cow;
use std::pin::pin;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{OpenHow, Opened, Pin, Range};
use weft_core::{Deadline, ErrorKind, Rights, limits};
use weft_sys::net::More;

use crate::answer::{Answer, Problem};
use crate::codec::condition::{Conditions, Present, Verdict, format_date, if_range_holds};
use crate::codec::digest::{self, Algorithm};
use crate::codec::head::Field;
use crate::codec::range::{self, Stretch, Wanted};
use crate::codec::target::{Path, encode_extended};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::link;
use crate::list;
use crate::map::Act;
use crate::page::{self, Page};
use crate::status::Status;

/// User files share an origin with pages of the node: nothing in them may act in its name.
const FILE_RULES: &str = "Accept-Ranges: bytes\r\nCache-Control: no-cache\r\n\
    Content-Security-Policy: sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:\r\n\
    X-Content-Type-Options: nosniff\r\n";

/// Serves a file, or a directory's listing.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    match Page::asked(x.head.query()) {
        // By a link one reads; the page's own ways are for who is somebody.
        _ if x.linked.is_some() => {}
        Ok(None) => {}
        Ok(Some(Page::About)) => return Box::pin(page::about::serve(x)).await,
        Ok(Some(Page::Links | Page::Link | Page::Unlink)) => return Box::pin(page::links::list(x)).await,
        Ok(Some(Page::Login | Page::Logout)) => return Box::pin(page::login::form(x)).await,
        Err(error) => return Err(Problem::of(&error, Act::Read).into()),
    }
    if x.path.is_directory {
        return Box::pin(list::serve(x)).await;
    }
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    match x.within(x.talk.http.services.fs.open(&x.call, &x.at(), &how)).await {
        Ok(opened) => {
            let served = file(&mut x, &opened).await;
            x.renew();
            // What was read was read; a late error of a read has nothing to tell.
            let _ = x.within(opened.file.close(&x.call)).await;
            served
        }
        Err(error) if error.kind() == ErrorKind::IsDirectory => Box::pin(to_directory(x)).await,
        Err(error) => Err(Box::pin(x.problem(&error, Act::Read)).await.into()),
    }
}

/// Sends whoever asked for a directory without its `/` to the name with it, so that relative links
/// in its listing lead somewhere.
async fn to_directory(x: Exchange<'_, '_>) -> Served {
    let mut location = x.encode(&Path { path: x.path.path.clone(), is_directory: true });
    if let Some(query) = x.head.query() {
        location.push('?');
        location.extend(query.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| *byte as char));
    }
    let fields = |answer: &mut Answer| {
        // Something else may have the name one day.
        answer.field("Location", location).fixed("Cache-Control: no-cache\r\n");
        if x.linked.is_some() {
            answer.fixed(link::RULES);
        }
    };
    x.talk.reply(Status::MOVED, fields, None).await
}

async fn file(x: &mut Exchange<'_, '_>, opened: &Opened) -> Served {
    let attr = &opened.attr;
    if attr.kind != Kind::File {
        let why = "only files and directories can be read here";
        return Err(Problem::new(Status::NOT_IMPLEMENTED, ErrorKind::Unsupported, why).into());
    }
    let present = Present::of(attr);
    match Conditions::of(x.head)?.judge(Some(&present)) {
        Verdict::Holds => {}
        Verdict::Known => return Box::pin(not_modified(x, &present)).await,
        Verdict::Fails => return Err(crate::remove::failed().into()),
    }
    let digests = match wants_digests(x) {
        true => {
            let fields = Box::pin(digest_fields(x, opened)).await?;
            x.renew();
            fields
        }
        false => Vec::new(),
    };
    let wanted = wanted(x, attr, &present)?;
    link::count(x, opened, &wanted).await?;
    match wanted {
        Wanted::Whole => whole(x, opened, &present, &digests).await,
        Wanted::One(stretch) => one(x, opened, &present, &digests, stretch).await,
        Wanted::Several(stretches) => Box::pin(several(x, opened, &present, &digests, &stretches)).await,
        Wanted::Nothing => {
            let why = "no range that was asked for lies in the file";
            let problem = Problem::new(Status::RANGE_NOT_SATISFIABLE, ErrorKind::Invalid, why);
            Err(problem.with("Content-Range", format!("bytes */{}", attr.size)).into())
        }
    }
}

/// Returns what of the file is to be sent.
fn wanted(x: &Exchange<'_, '_>, attr: &Attr, present: &Present) -> Served<Wanted> {
    let Some(field) = x.head.one(Field::Range)? else { return Ok(Wanted::Whole) };
    // Ranges are defined for GET alone (RFC 9110, 14.2).
    if x.talk.is_head {
        return Ok(Wanted::Whole);
    }
    if let Some(validator) = x.head.one(Field::IfRange)?
        && !if_range_holds(validator, present)
    {
        return Ok(Wanted::Whole);
    }
    Ok(range::wanted(field, attr.size))
}

async fn not_modified(x: &mut Exchange<'_, '_>, present: &Present) -> Served {
    let fields = |answer: &mut Answer| {
        validators(answer, present);
        answer.fixed("Cache-Control: no-cache\r\n");
    };
    x.talk.reply(Status::NOT_MODIFIED, fields, None).await
}

fn validators(answer: &mut Answer, present: &Present) {
    if let Some(tag) = &present.tag {
        answer.field("ETag", tag);
    }
    answer.field("Last-Modified", format_date(present.mtime));
}

/// Begins the head of an answer that carries bytes of the file.
fn begin(
    x: &mut Exchange<'_, '_>,
    status: Status,
    present: &Present,
    digests: &[(&'static str, String)],
) -> Answer {
    let mut answer = x.talk.answer(status);
    validators(&mut answer, present);
    for (name, value) in digests {
        answer.field(name, value);
    }
    answer.fixed(FILE_RULES);
    if x.linked.is_some() {
        answer.fixed(link::RULES);
    }
    if let Some(name) = x.name()
        && is_active(&media_type(name.as_bytes()))
    {
        answer.field(
            "Content-Disposition",
            format_args!("attachment; filename*=UTF-8''{}", encode_extended(name.as_bytes())),
        );
    }
    answer
}

async fn whole(
    x: &mut Exchange<'_, '_>,
    opened: &Opened,
    present: &Present,
    digests: &[(&'static str, String)],
) -> Served {
    let size = opened.attr.size;
    let mut answer = begin(x, Status::OK, present, digests);
    answer.field("Content-Type", media(x)).field("Content-Length", size);
    send(x, opened, &answer.end(), Stretch { at: 0, length: size }).await
}

async fn one(
    x: &mut Exchange<'_, '_>,
    opened: &Opened,
    present: &Present,
    digests: &[(&'static str, String)],
    stretch: Stretch,
) -> Served {
    let mut answer = begin(x, Status::PARTIAL_CONTENT, present, digests);
    answer
        .field("Content-Type", media(x))
        .field("Content-Range", content_range(stretch, opened.attr.size))
        .field("Content-Length", stretch.length);
    send(x, opened, &answer.end(), stretch).await
}

/// Sends a head and one stretch of the file.
async fn send(x: &mut Exchange<'_, '_>, opened: &Opened, head: &[u8], stretch: Stretch) -> Served {
    if x.talk.is_head || stretch.length == 0 {
        let mut outbound = x.outbound(None);
        let done = outbound.send_bytes(head, More::Ends).await;
        let sent = outbound.sent();
        drop(outbound);
        return x.sent_or_not(done, sent);
    }
    let range = Range { at: stretch.at, length: Some(stretch.length) };
    match x.within(opened.file.read(&x.call, range)).await {
        Ok(mut source) => x.send(head, &mut *source, stretch.length).await,
        Err(error) => x.sent_or_not(Err(error), 0),
    }
}

async fn several(
    x: &mut Exchange<'_, '_>,
    opened: &Opened,
    present: &Present,
    digests: &[(&'static str, String)],
    stretches: &[Stretch],
) -> Served {
    let http = x.talk.http;
    let media = media(x);
    let heads: Vec<String> = stretches
        .iter()
        .map(|stretch| {
            let range = content_range(*stretch, opened.attr.size);
            format!("\r\n--{}\r\nContent-Type: {media}\r\nContent-Range: {range}\r\n\r\n", http.boundary)
        })
        .collect();
    let end = format!("\r\n--{}--\r\n", http.boundary);
    let parts = heads.iter().zip(stretches).map(|(head, stretch)| head.len() as u64 + stretch.length);
    let length = parts.sum::<u64>() + end.len() as u64;
    let mut answer = begin(x, Status::PARTIAL_CONTENT, present, digests);
    answer
        .field("Content-Type", format_args!("multipart/byteranges; boundary={}", http.boundary))
        .field("Content-Length", length);
    let mut head = answer.end();
    if x.talk.is_head {
        return send(x, opened, &head, Stretch { at: 0, length: 0 }).await;
    }
    let mut outbound = x.outbound(Some(length));
    let parts = async {
        for (part, stretch) in heads.iter().zip(stretches) {
            head.extend_from_slice(part.as_bytes());
            let range = Range { at: stretch.at, length: Some(stretch.length) };
            // What the parts before it took is no time of this one.
            let sys = &http.services.sys;
            let call = x.call.renewed(sys.clock(), limits::CALL_DEADLINE);
            let mut source = sys.within(call.until, opened.file.read(&call, range)).await?;
            outbound.send(&head, &mut *source, More::Follows).await?;
            head.clear();
        }
        outbound.send_bytes(end.as_bytes(), More::Ends).await
    };
    let done = keeping_session(http, &x.call, pin!(parts)).await;
    let sent = outbound.sent();
    drop(outbound);
    x.sent_or_not(done, sent)
}

fn content_range(stretch: Stretch, size: u64) -> String {
    format!("bytes {}-{}/{size}", stretch.at, stretch.end() - 1)
}

fn wants_digests(x: &Exchange<'_, '_>) -> bool {
    x.head.has(Field::WantReprDigest) || x.head.has(Field::WantDigest)
}

/// Returns the digest fields that were asked for, without those that would take too long: whoever
/// asks says what they would like to have, not what they need.
async fn digest_fields(x: &Exchange<'_, '_>, opened: &Opened) -> Served<Vec<(&'static str, String)>> {
    let until = Deadline::within(x.talk.http.services.sys.clock(), limits::DIGEST_WITHIN);
    let mut fields = Vec::new();
    if let Some(algorithm) = x.head.all(Field::WantReprDigest)?.and_then(|field| digest::wanted(&field)) {
        let value = sum(x, opened, algorithm, until).await?;
        fields.extend(value.map(|value| ("Repr-Digest", value.to_field())));
    }
    if let Some(algorithm) = x.head.all(Field::WantDigest)?.and_then(|field| digest::wanted_old(&field)) {
        let value = sum(x, opened, algorithm, until).await?;
        fields.extend(value.map(|value| ("Digest", value.to_old_field())));
    }
    Ok(fields)
}

async fn sum(
    x: &Exchange<'_, '_>,
    opened: &Opened,
    algorithm: Algorithm,
    until: Deadline,
) -> Served<Option<digest::Value>> {
    let http = x.talk.http;
    let sum = http.sums.of(&http.services.sys, &x.call, opened, algorithm, until);
    match keeping_session(http, &x.call, pin!(sum)).await {
        Ok(value) => Ok(value),
        Err(error) => Err(x.problem(&error, Act::Read).await.into()),
    }
}

fn media(x: &Exchange<'_, '_>) -> Cow<'static, str> {
    x.name().map_or(Cow::Borrowed("application/octet-stream"), |name| media_type(name.as_bytes()))
}

/// Returns the media type that a name suggests.
pub fn media_type(name: &[u8]) -> Cow<'static, str> {
    let ending = name
        .iter()
        .rposition(|byte| *byte == b'.')
        .and_then(|dot| std::str::from_utf8(&name[dot + 1..]).ok());
    match ending.and_then(|ending| mime_guess::from_ext(ending).first_raw()) {
        Some("text/plain") => Cow::Borrowed("text/plain; charset=utf-8"),
        Some(media) => Cow::Borrowed(media),
        None => Cow::Borrowed("application/octet-stream"),
    }
}

/// Returns whether a browser would run or render something in a file of this type.
fn is_active(media: &str) -> bool {
    const ACTIVE: [&[u8]; 13] = [
        b"html",
        b"xml",
        b"svg",
        b"javascript",
        b"ecmascript",
        b"xsl",
        b"mathml",
        b"flash",
        b"x-mixed",
        b"multipart/",
        b"message/",
        b"xbap",
        b"silverlight",
    ];
    let plain = media.split(';').next().unwrap_or(media).as_bytes();
    // Few letters begin one of them: the rest is passed quickly.
    let begins = |at: &usize| matches!(plain[*at], b'e' | b'f' | b'h' | b'j' | b'm' | b's' | b'x');
    (0..plain.len()).filter(begins).any(|at| ACTIVE.iter().any(|active| plain[at..].starts_with(active)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_would_run_is_an_attachment() {
        for (name, active) in [
            ("a.html", true),
            ("a.HTM", true),
            ("a.svg", true),
            ("a.xml", true),
            ("a.xhtml", true),
            ("a.js", true),
            ("a.mjs", true),
            ("a.rss", true),
            ("a.mht", true),
            ("a.txt", false),
            ("a.pdb", false),
            ("a.png", false),
            ("a", false),
            (".html.gz", false),
            ("a.json", false),
            ("a.csv", false),
        ] {
            assert_eq!(
                is_active(&media_type(name.as_bytes())),
                active,
                "{name}: {}",
                media_type(name.as_bytes())
            );
        }
        assert_eq!(media_type(b"\xff.\xff"), "application/octet-stream");
    }
}
