//! Listings: a page for people, JSON for programs, in name order, sent page by page.

use std::pin::pin;

use serde::Serialize;
use weft_core::attr::Kind;
use weft_core::form::{Cursor, Entry, Page, PageMax, Want};
use weft_core::{Name, Result, Time, limits};
use weft_sys::net::More;

use crate::answer::{Answer, Problem};
use crate::codec::accept::wants_json;
use crate::codec::condition::{Conditions, Present, Verdict, entity_tag, format_time};
use crate::codec::head::Field;
use crate::codec::target::{encode_name, parameter};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::Act;
use crate::status::Status;
use crate::stream::Out;

const LISTING_RULES: &str = "Cache-Control: no-cache\r\nVary: Accept, Authorization\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\r\n\
    Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n";

/// What of a directory was asked for.
struct Asked {
    /// JSON, by the query: then the next page is asked for so, too.
    json: bool,
    after: Option<Name>,
    /// Entries at most; all if none was given.
    limit: Option<u64>,
}

/// Serves a directory's listing.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let asked = match asked(&x) {
        Ok(asked) => asked,
        Err(error) => return Err(Problem::of(&error, Act::Read).into()),
    };
    let json = asked.json || wants_json(x.head.all(Field::Accept)?.as_deref());
    let from = asked.after.map_or(Cursor::ByName, Cursor::After);
    let first = match page_of(&x, from, asked.limit).await {
        Ok(page) => page,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    match conditions(&x)?.judge(Some(&LISTED)) {
        Verdict::Holds => {}
        Verdict::Known => {
            let rules = |answer: &mut Answer| _ = answer.fixed(LISTING_RULES);
            return x.talk.reply(Status::NOT_MODIFIED, rules, None).await;
        }
        Verdict::Fails => return Err(crate::remove::failed().into()),
    }
    let media = if json { "application/json" } else { "text/html; charset=utf-8" };
    let fields = |answer: &mut Answer| _ = answer.field("Content-Type", media).fixed(LISTING_RULES);
    let (head, chunked) = x.talk.begin_stream(Status::OK, fields);
    let http = x.talk.http;
    let mut outbound = x.outbound(None);
    let done = if x.talk.is_head {
        outbound.send_bytes(&head, More::Ends).await
    } else {
        let out = Out::new(&mut outbound, head, chunked);
        let shape: &mut dyn Shape =
            if json { &mut Json { comma: false } } else { &mut Html { title: title(&x) } };
        let further = Further { limit: asked.limit, json: asked.json };
        keeping_session(http, &x.call, pin!(send(&x, out, shape, first, further))).await
    };
    let sent = outbound.sent();
    drop(outbound);
    x.sent_or_not(done, sent)
}

/// A listing, for conditions: it is there, and has no tag.
const LISTED: Present = Present { tag: None, mtime: Time::EPOCH };

/// Returns the conditions that a listing can be asked under. Dates are none: a directory's time
/// does not say that a file in it changed.
fn conditions(x: &Exchange<'_, '_>) -> Served<Conditions> {
    Ok(Conditions { modified_since: None, unmodified_since: None, ..Conditions::of(x.head)? })
}

fn asked(x: &Exchange<'_, '_>) -> Result<Asked> {
    let query = x.head.query();
    let after = parameter(query, "after")?.filter(|name| !name.is_empty()).map(Name::new).transpose()?;
    let limit = match parameter(query, "limit")? {
        None => None,
        Some(text) => {
            let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<u64>().ok());
            let number = number.filter(|limit| *limit > 0);
            Some(number.ok_or_else(|| weft_core::Error::invalid("`limit` is not a number from 1 on"))?)
        }
    };
    let json = parameter(query, "format")?.is_some_and(|format| format == b"json");
    Ok(Asked { json, after, limit })
}

/// Returns a page. A whole listing may take as long as its reader: each page is a call of its own.
async fn page_of(x: &Exchange<'_, '_>, from: Cursor, left: Option<u64>) -> Result<Page> {
    let services = &x.talk.http.services;
    let entries = left.unwrap_or(u64::MAX).min(u64::from(limits::HTTP_PAGE_ENTRIES)) as u32;
    let want = Want { attr: true, rights: false };
    let (call, at) = (x.call.renewed(services.sys.clock(), limits::CALL_DEADLINE), x.at());
    services.sys.within(call.until, services.fs.list(&call, &at, from, PageMax::new(entries), want)).await
}

/// Sends page after page. Only one is ever held.
async fn send(
    x: &Exchange<'_, '_>,
    mut out: Out<'_, '_>,
    shape: &mut dyn Shape,
    first: Page,
    further: Further,
) -> Result<()> {
    shape.begin(&mut out.held);
    let mut left = further.limit;
    let mut next = Some(first);
    while let Some(page) = next.take() {
        for entry in &page.entries {
            shape.entry(entry, &mut out.held);
            out.flush_if_full().await?;
        }
        left = left.map(|left| left.saturating_sub(page.entries.len() as u64));
        match page.next {
            Some(_) if left == Some(0) => {
                let last = page.entries.last().map(|entry| &entry.name);
                shape.end(last.map(|last| further.query(last)).as_deref(), &mut out.held);
                return out.end().await;
            }
            Some(cursor) => next = Some(page_of(x, cursor, left).await?),
            None => {}
        }
    }
    shape.end(None, &mut out.held);
    out.end().await
}

/// How a listing looks.
trait Shape: Send {
    fn begin(&mut self, out: &mut Vec<u8>);
    fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>);
    /// Ends it; `next` is the query of what comes after, if there is more.
    fn end(&mut self, next: Option<&str>, out: &mut Vec<u8>);
}

struct Json {
    comma: bool,
}

#[derive(Serialize)]
struct JsonEntry<'a> {
    /// For people: bytes that are no text are shown as `\xNN`.
    name: String,
    /// Exact: relative to the listing.
    href: String,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

impl Shape for Json {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"entries\":[");
    }

    fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.comma, true) {
            out.push(b',');
        }
        out.push(b'\n');
        let file = entry.attr.as_ref().filter(|attr| attr.kind == Kind::File);
        let json = JsonEntry {
            name: entry.name.to_string(),
            href: href(entry),
            kind: kind_name(entry.kind),
            size: file.map(|attr| attr.size),
            mtime: entry.attr.as_ref().map(|attr| format_time(attr.mtime)),
            etag: file.map(entity_tag),
        };
        // Plain strings and numbers always have a JSON form.
        out.extend_from_slice(&serde_json::to_vec(&json).unwrap_or_default());
    }

    fn end(&mut self, next: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\n]");
        if let Some(next) = next {
            out.extend_from_slice(format!(",\"next\":\"{next}\"").as_bytes());
        }
        out.extend_from_slice(b"}\n");
    }
}

/// A path relative to the listing: with `./` before it, so that a name with a colon is no scheme.
fn href(entry: &Entry) -> String {
    let slash = if entry.kind == Kind::Directory { "/" } else { "" };
    format!("./{}{slash}", encode_name(&entry.name))
}

/// How a page is to be followed by the next.
struct Further {
    limit: Option<u64>,
    json: bool,
}

impl Further {
    /// Returns the query of the page behind `last`. It holds only letters, digits and what needs no
    /// escape but `&`.
    fn query(&self, last: &Name) -> String {
        let limit = self.limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
        let format = if self.json { "&format=json" } else { "" };
        format!("?after={}{limit}{format}", encode_name(last))
    }
}

/// Returns the word for a kind in listings.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Reference => "reference",
    }
}

struct Html {
    title: String,
}

fn title(x: &Exchange<'_, '_>) -> String {
    if x.path.path.is_empty() { "/".to_owned() } else { format!("/{}/", x.path.path) }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
    color-scheme:light dark}h1{font-size:1.2rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
    th{text-align:left;font-weight:600}td,th{padding:.15rem .6rem .15rem 0;border-bottom:1px solid #8883}\
    td:first-child{overflow-wrap:anywhere}td:nth-child(n+2){white-space:nowrap;font-variant-numeric:tabular-nums}\
    th:nth-child(2),td:nth-child(2){text-align:right}a{text-decoration:none}a:hover{text-decoration:underline}";

impl Shape for Html {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let title = escape(&self.title);
        let page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
             <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table>\
             <tr><th>Name<th>Size<th>Changed</tr>\n"
        );
        out.extend_from_slice(page.as_bytes());
        if self.title != "/" {
            out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td><td></tr>\n");
        }
    }

    fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let slash = if entry.kind == Kind::Directory { "/" } else { "" };
        let file = entry.attr.as_ref().filter(|attr| attr.kind == Kind::File);
        let size = file.map(|attr| attr.size.to_string()).unwrap_or_default();
        let changed = entry.attr.as_ref().map(|attr| format_time(attr.mtime)).unwrap_or_default();
        let row = format!(
            "<tr><td><a href=\"{}\">{}{slash}</a><td>{size}<td>{}</tr>\n",
            href(entry),
            escape(&entry.name.to_string()),
            changed.replace('T', " ").trim_end_matches('Z')
        );
        out.extend_from_slice(row.as_bytes());
    }

    fn end(&mut self, next: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"</table>\n");
        if let Some(next) = next {
            let next = next.replace('&', "&amp;");
            out.extend_from_slice(format!("<p><a href=\"{next}\">More</a></p>\n").as_bytes());
        }
        out.extend_from_slice(b"</body></html>\n");
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            one => escaped.push(one),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(escape("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
    }
}
