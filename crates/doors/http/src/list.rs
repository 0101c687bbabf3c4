//! Listings: a page for people, JSON for programs, in name order, sent page by page.

use std::pin::pin;

use serde::Serialize;
use weft_core::attr::Kind;
use weft_core::form::{Cursor, Entry, Page, PageMax, Want};
use weft_core::{Name, Result, Time, limits};
use weft_sys::net::More;

use crate::answer::{Answer, Problem};
use crate::codec::accept::{wants_json, wants_page};
use crate::codec::condition::{Conditions, Present, Verdict, entity_tag, format_time};
use crate::codec::head::Field;
use crate::codec::target::{encode_name, parameter};
use crate::exchange::{Exchange, Served, keeping_session};
use crate::link;
use crate::map::Act;
use crate::page;
use crate::page::listing::Listing;
use crate::page::sorted::{First, Sorting};
use crate::status::Status;
use crate::stream::Out;

/// What goes with a listing beside the rules of all pages, which do no harm to JSON.
const LISTING_RULES: &str = "Cache-Control: no-cache\r\nReferrer-Policy: no-referrer\r\n";

/// What of a directory was asked for.
struct Asked {
    /// JSON, by the query: then the next page is asked for so, too.
    json: bool,
    after: Option<Name>,
    /// Entries at most; all if none was given.
    limit: Option<u64>,
    sorting: Sorting,
}

/// Serves a directory's listing.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let asked = match asked(&x) {
        Ok(asked) => asked,
        Err(error) => return Err(Problem::of(&error, Act::Read).into()),
    };
    let accept = x.head.all(Field::Accept)?;
    let json = asked.json || wants_json(accept.as_deref());
    // People turn pages; a program that asks for nothing else gets all.
    let limit = asked.limit.or(wants_page(accept.as_deref()).then_some(u64::from(limits::HTTP_PAGE_ENTRIES)));
    let mut further = Further { limit, json: asked.json, note: None };
    let first = match asked.sorting {
        Sorting::KEPT => page_of(&x, asked.after.map_or(Cursor::ByName, Cursor::After), limit).await,
        sorting => sorted(&x, sorting, &mut further).await,
    };
    let first = match first {
        Ok(page) => page,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    match conditions(&x)?.judge(Some(&LISTED)) {
        Verdict::Holds => {}
        Verdict::Known => {
            let rules = |answer: &mut Answer| _ = answer.fixed(&page::RULES).fixed(LISTING_RULES);
            return x.talk.reply(Status::NOT_MODIFIED, rules, None).await;
        }
        Verdict::Fails => return Err(crate::remove::failed().into()),
    }
    let linked = x.linked.is_some();
    let media = if json { "application/json" } else { page::MEDIA };
    let fields = |answer: &mut Answer| {
        answer.field("Content-Type", media).fixed(&page::RULES).fixed(LISTING_RULES);
        if linked {
            answer.fixed(link::RULES);
        }
    };
    let mut shape: Box<dyn Shape> = match json {
        true => Box::new(Json { comma: false }),
        false => Box::new(Listing::of(&x, asked.sorting, further.note.take()).await),
    };
    let (head, chunked) = x.talk.begin_stream(Status::OK, fields);
    let http = x.talk.http;
    let mut outbound = x.outbound(None);
    let done = if x.talk.is_head {
        outbound.send_bytes(&head, More::Ends).await
    } else {
        let out = Out::new(&mut outbound, head, chunked);
        keeping_session(http, &x.call, pin!(send(&x, out, &mut *shape, first, further))).await
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
    Ok(Asked { json, after, limit, sorting: Sorting::asked(query)? })
}

/// Returns the first entries of a directory in an order that it is not kept in, as its one page.
async fn sorted(x: &Exchange<'_, '_>, sorting: Sorting, further: &mut Further) -> Result<Page> {
    let most = further.limit.unwrap_or(u64::MAX).min(limits::HTTP_SORTED_MAX as u64) as usize;
    let gathered = gathered(x, First::new(sorting, most));
    let (first, page) = keeping_session(x.talk.http, &x.call, pin!(gathered)).await?;
    let (entries, all) = first.done();
    if (entries.len() as u64) < all {
        further.note = Some(format!("These are the first {} of {all} in this order.", entries.len()));
    }
    Ok(Page { entries, ..page })
}

/// Shows every entry of a directory to `first`. Returns it with the last page, emptied.
async fn gathered(x: &Exchange<'_, '_>, mut first: First) -> Result<(First, Page)> {
    let mut from = Cursor::ByName;
    loop {
        let mut page = page_of(x, from, None).await?;
        page.entries.drain(..).for_each(|entry| first.see(entry));
        match page.next.take() {
            Some(next) => from = next,
            None => return Ok((first, page)),
        }
    }
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
pub trait Shape: Send {
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
pub fn href(entry: &Entry) -> String {
    let slash = if entry.kind == Kind::Directory { "/" } else { "" };
    format!("./{}{slash}", encode_name(&entry.name))
}

/// How a page is to be followed by the next.
struct Further {
    limit: Option<u64>,
    json: bool,
    /// What is to be said of what is not shown.
    note: Option<String>,
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
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Reference => "reference",
    }
}
