//! Propfind: what is known of a resource, and of what is in it.

use std::pin::pin;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Cursor, Entry, Page, PageMax, Space, Want};
use weft_core::{ErrorKind, FileId, RelPath, Result, limits};

use super::dead::{self, Tags};
use super::multistatus::{self, begin_response, end_response, propstat};
use super::properties::{Live, Resource};
use crate::answer::{Answer, Precondition, Problem};
use crate::codec::webdav::fields::{self, Depth};
use crate::codec::webdav::request::{self, PropFind};
use crate::codec::webdav::xml::QName;
use crate::exchange::{Exchange, Served, keeping_session};
use crate::map::Act;
use crate::small_body;
use crate::status::Status;
use crate::stream::Out;

/// Answers what is known.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let depth = fields::depth(x.head)?.unwrap_or(Depth::Infinity);
    let asked =
        Asked::of(request::prop_find(&small_body::received(&mut x, limits::DAV_XML_BYTES_MAX).await?)?);
    x.renew();
    let attr = match x.within(x.talk.http.services.fs.walk(&x.call, &x.at(), Want::default())).await {
        Ok(walked) => walked.attr,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    let is_directory = attr.kind == Kind::Directory;
    if depth == Depth::Infinity && is_directory {
        let why = "a directory is asked with `Depth: 0` or `1`: all below it may be millions";
        let problem = Problem::new(Status::FORBIDDEN, ErrorKind::Unsupported, why);
        return Err(problem.because(Precondition::PropfindFiniteDepth, None).into());
    }
    let members = is_directory && depth == Depth::One;
    // The first page is looked at before anything is said, so that a refusal can be.
    let first = match members {
        false => None,
        true => match page_of(&x, attr.id, Cursor::Start).await {
            Ok(page) => Some(page),
            Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
        },
    };
    let fields = |answer: &mut Answer| {
        answer.field("Content-Type", multistatus::MEDIA).fixed("Cache-Control: no-store\r\n");
    };
    let (head, chunked) = x.talk.begin_stream(Status::MULTI_STATUS, fields);
    let http = x.talk.http;
    let mut outbound = x.outbound(None);
    let out = Out::new(&mut outbound, head, chunked);
    let done = keeping_session(http, &x.call, pin!(send(&x, out, &asked, &attr, first))).await;
    let sent = outbound.sent();
    drop(outbound);
    x.sent_or_not(done, sent)
}

/// What is asked for, sorted.
struct Asked {
    live: Vec<Live>,
    dead: Dead,
    /// Whether only the names are.
    names: bool,
    /// Properties that nobody has.
    unknown: bool,
}

enum Dead {
    None,
    All,
    These(Vec<QName>),
}

impl Asked {
    fn of(find: PropFind) -> Self {
        let told = || Live::ALL.into_iter().filter(|live| live.is_told()).collect::<Vec<_>>();
        match find {
            PropFind::Names => {
                Self { live: Live::ALL.to_vec(), dead: Dead::All, names: true, unknown: false }
            }
            PropFind::All(further) => {
                let mut live = told();
                live.extend(further.iter().filter_map(Live::of).filter(|live| !live.is_told()));
                Self { live, dead: Dead::All, names: false, unknown: false }
            }
            PropFind::These(names) => {
                let live: Vec<Live> = names.iter().filter_map(Live::of).collect();
                let dead: Vec<QName> = names.into_iter().filter(|name| Live::of(name).is_none()).collect();
                let dead = if dead.is_empty() { Dead::None } else { Dead::These(dead) };
                Self { live, dead, names: false, unknown: true }
            }
        }
    }

    fn wants_tags(&self) -> bool {
        !matches!(self.dead, Dead::None)
    }

    fn wants(&self, live: Live) -> bool {
        !self.names && self.live.contains(&live)
    }
}

/// Returns a page. A whole listing may take as long as its reader: each page is a call of its own.
async fn page_of(x: &Exchange<'_, '_>, id: FileId, from: Cursor) -> Result<Page> {
    let services = &x.talk.http.services;
    let want = Want { attr: true, rights: false };
    let call = x.call.renewed(services.sys.clock(), limits::CALL_DEADLINE);
    let max = PageMax::new(limits::HTTP_PAGE_ENTRIES);
    services.sys.within(call.until, services.fs.list(&call, &At::id(id), from, max, want)).await
}

async fn send(
    x: &Exchange<'_, '_>,
    mut out: Out<'_, '_>,
    asked: &Asked,
    attr: &Attr,
    first: Option<Page>,
) -> Result<()> {
    let mut text = String::from(multistatus::BEGIN);
    one(x, asked, &x.path.path, attr.kind, Some(attr), &mut text).await?;
    let mut next = first;
    while let Some(page) = next.take() {
        for entry in &page.entries {
            out.held.extend_from_slice(text.as_bytes());
            out.flush_if_full().await?;
            text.clear();
            member(x, asked, entry, &mut text).await?;
        }
        if let Some(cursor) = page.next {
            next = Some(page_of(x, attr.id, cursor).await?);
        }
    }
    text.push_str(multistatus::END);
    out.held.extend_from_slice(text.as_bytes());
    out.end().await
}

/// Writes what is known of an entry. One that leads somewhere is told as what it leads to.
async fn member(x: &Exchange<'_, '_>, asked: &Asked, entry: &Entry, text: &mut String) -> Result<()> {
    let Ok(path) = x.path.path.join(&entry.name) else { return Ok(()) };
    if entry.kind != Kind::Symlink {
        return one(x, asked, &path, entry.kind, entry.attr.as_ref(), text).await;
    }
    let call = renewed(x);
    let at = At::root(path.clone()).following();
    match x
        .talk
        .http
        .services
        .sys
        .within(call.until, x.talk.http.services.fs.walk(&call, &at, Want::default()))
        .await
    {
        Ok(walked) => one(x, asked, &path, walked.attr.kind, Some(&walked.attr), text).await,
        // It leads nowhere, or where the caller may not look.
        Err(_) => one(x, asked, &path, Kind::Symlink, None, text).await,
    }
}

fn renewed(x: &Exchange<'_, '_>) -> weft_core::form::Call {
    x.call.renewed(x.talk.http.services.sys.clock(), limits::CALL_DEADLINE)
}

/// Writes what is known of one resource.
async fn one(
    x: &Exchange<'_, '_>,
    asked: &Asked,
    path: &RelPath,
    kind: Kind,
    attr: Option<&Attr>,
    text: &mut String,
) -> Result<()> {
    let tags = match attr.filter(|_| asked.wants_tags()) {
        Some(attr) => tags_of(x, attr.id).await?,
        None => Vec::new(),
    };
    let locks = match asked.wants(Live::LockDiscovery) {
        true => x.talk.http.services.locks.covering(path),
        false => Vec::new(),
    };
    let space = match kind == Kind::Directory
        && (asked.wants(Live::QuotaAvailable) || asked.wants(Live::QuotaUsed))
    {
        true => space_at(x, attr).await,
        false => None,
    };
    let resource =
        Resource { path, kind, attr, tags: &tags, locks: &locks, space, asker: x.call.caller.name() };
    begin_response(path, kind == Kind::Directory, text);
    write_properties(asked, &resource, text);
    end_response(text);
    Ok(())
}

fn write_properties(asked: &Asked, resource: &Resource<'_>, text: &mut String) {
    let (start, mut missing) = (text.len(), String::new());
    let any = propstat(Status::OK, text, |found| {
        write_live(asked, resource, (&mut *found, &mut missing));
        write_dead(asked, resource, (found, &mut missing));
    });
    if missing.is_empty() {
        return;
    }
    if !any {
        text.truncate(start);
    }
    // What is hidden and what is not there look the same.
    propstat(Status::NOT_FOUND, text, |all| all.push_str(&missing));
}

fn write_live(asked: &Asked, resource: &Resource<'_>, (found, missing): (&mut String, &mut String)) {
    for live in &asked.live {
        let written = match asked.names {
            true => resource.write_name(*live, found),
            false => resource.write(*live, found),
        };
        if !written && asked.unknown {
            dead::write_name(&live.name(), missing);
        }
    }
}

fn write_dead(asked: &Asked, resource: &Resource<'_>, (found, missing): (&mut String, &mut String)) {
    match &asked.dead {
        Dead::None => {}
        Dead::All => {
            for (tag, value) in resource.tags {
                let Some(name) = dead::property_of(tag) else { continue };
                match asked.names {
                    true => dead::write_name(&name, found),
                    false => _ = dead::write(&name, value, found),
                }
            }
        }
        Dead::These(names) => {
            for name in names {
                let value = dead::tag_of(name).ok().and_then(|tag| {
                    resource.tags.iter().find(|(own, _)| *own == tag).map(|(_, value)| value)
                });
                if !value.is_some_and(|value| dead::write(name, value, found)) {
                    dead::write_name(name, missing);
                }
            }
        }
    }
}

/// Returns the user attributes of what is there; none if it went, or if they are not the caller's to see.
async fn tags_of(x: &Exchange<'_, '_>, id: FileId) -> Result<Tags> {
    let services = &x.talk.http.services;
    match dead::tags(&services.sys, &services.fs, &x.call, id).await {
        Err(error) if is_hidden(error.kind()) => Ok(Tags::new()),
        tags => tags,
    }
}

fn is_hidden(kind: ErrorKind) -> bool {
    use ErrorKind::{Denied, NotFound, Stale, Unsupported};
    matches!(kind, Denied | NotFound | Stale | Unsupported)
}

/// Returns the space at a directory, if its caller may know of it.
async fn space_at(x: &Exchange<'_, '_>, attr: Option<&Attr>) -> Option<Space> {
    let (services, call) = (&x.talk.http.services, renewed(x));
    services.sys.within(call.until, services.fs.space(&call, &At::id(attr?.id))).await.ok()
}
