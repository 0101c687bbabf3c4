//! Links on the page: made for what one looks at, listed, ended.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use weft_core::service::{LinkGives, LinkRecord, Links, NewLink};
use weft_core::{Error, ErrorKind, LinkId, Result, limits};

use super::frame::{self, escape};
use super::guard;
use super::rules::RULES;
use crate::answer::{Answer, Problem};
use crate::codec::form;
use crate::exchange::{Exchange, Served};
use crate::identity::Shown;
use crate::link;
use crate::map::Act;
use crate::status::Status;

const FIELDS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n";
/// For how many days a link can be made here.
const DAYS: [u64; 4] = [1, 7, 30, 365];

/// Returns the links of the node, for somebody who can make some here: who logged in on the page.
fn links<'x>(x: &'x Exchange<'_, '_>) -> Option<(&'x Arc<dyn Links>, String)> {
    let Shown::Cookie(cookie) = x.shown else { return None };
    let links = x.talk.http.services.links.as_ref().filter(|_| !x.call.caller.is_anyone())?;
    Some((links, guard::of(cookie)))
}

/// Returns the problem of somebody whose links are not made here.
fn elsewhere(x: &Exchange<'_, '_>) -> Problem {
    if x.call.caller.is_anyone() {
        return Problem::who_asks();
    }
    let why = "links are made on the page by who logged in on it, and else by `weft link create`";
    Problem::new(Status::FORBIDDEN, ErrorKind::NotPermitted, why)
}

/// Writes the form that makes a link to what the request names.
pub fn write_form(x: &Exchange<'_, '_>, out: &mut String) {
    let Some((_, guard)) = links(x) else { return };
    out.push_str("<h2>A link for somebody without an account</h2>\n");
    let _ = write!(
        out,
        "<form method=\"post\" action=\"?page=link\"><input type=\"hidden\" name=\"guard\" value=\"{guard}\">\
         <label>For <select name=\"days\">"
    );
    for days in DAYS {
        let chosen = if days == 7 { " selected" } else { "" };
        let _ = write!(out, "<option value=\"{days}\"{chosen}>{days} days");
    }
    out.push_str(
        "</select></label> <label>downloads at most <input name=\"count\" type=\"number\" min=\"1\" placeholder=\"any\">\
         </label> <button>Make a link</button> <a href=\"?page=links\">your links</a></form>\n",
    );
}

/// Answers with the caller's own links.
pub async fn list(x: Exchange<'_, '_>) -> Served {
    let Some((links, guard)) = links(&x) else { return Err(elsewhere(&x).into()) };
    let mut text = String::new();
    frame::begin("Your links", &mut text);
    frame::head(&x, &mut text);
    text.push_str("<h1>Your links</h1>\n<table><thead>\n<tr><th>To<th>Used<th>Until<th></thead><tbody>\n");
    let found = x.within(links.links(&x.call.caller, false, None)).await;
    let found = found.map_err(|error| Problem::of(&error, Act::Read))?;
    let whole = found.len() < limits::ACCOUNTS_PAGE_MAX;
    found.iter().for_each(|link| write_row(link, &guard, &mut text));
    text.push_str("</tbody></table>\n");
    if !whole {
        text.push_str("<p>There are more: <code>weft link ls</code> lists all.</p>\n");
    }
    frame::end(&mut text);
    answer(x, text).await
}

fn write_row(link: &LinkRecord, guard: &str, out: &mut String) {
    let count = link.count.map(|count| format!(" of {count}")).unwrap_or_default();
    let _ = write!(
        out,
        "<tr><td>/{}<td>{}{count}<td>{}<td>",
        escape(&link.path.to_string()),
        link.used,
        frame::time(link.expires)
    );
    let _ = match &link.ended {
        Some(why) => writeln!(out, "{}", escape(why)),
        None => writeln!(
            out,
            "<form method=\"post\" action=\"?page=unlink\"><input type=\"hidden\" name=\"guard\" value=\"{guard}\">\
             <input type=\"hidden\" name=\"id\" value=\"{}\"><button>End</button></form>",
            link.id
        ),
    };
}

/// Makes a link, and shows it: this once.
pub async fn make(x: Exchange<'_, '_>, body: &[u8]) -> Served {
    let Some((links, _)) = links(&x) else { return Err(elsewhere(&x).into()) };
    let new = asked(body).map_err(|error| Problem::of(&error, Act::Read))?;
    let made = x.within(links.make_link(&x.call.caller, x.call.from, &x.path.path, &new)).await;
    let made = match made {
        Ok(made) => made,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    let record = made.record;
    let name = record.path.split_last().map(|(_, name)| name).filter(|_| !record.is_directory);
    let address = format!("{}{}", x.talk.origin(x.head), link::encode(&made.secret, name.as_ref()));
    let mut text = String::new();
    frame::begin("A link", &mut text);
    frame::head(&x, &mut text);
    let _ = writeln!(
        text,
        "<h1>A link to /{}</h1>\n<p>Whoever has it reads what you may read there, until {}. It is shown this once; send it as \
         you would a password.</p>\n<p><input class=\"address\" readonly value=\"{}\"></p>\n\
         <p><a href=\"?page=links\">Your links</a></p>",
        escape(&record.path.to_string()),
        frame::time(record.expires),
        escape(&address)
    );
    frame::end(&mut text);
    answer(x, text).await
}

fn asked(body: &[u8]) -> Result<NewLink> {
    let field = |name| form::field(body, name).map_err(|refusal| Error::invalid(refusal.reason));
    let days: u64 = field("days")?.parse().ok().filter(|days| DAYS.contains(days)).unwrap_or(7);
    let count = match field("count")?.trim() {
        "" => None,
        text => Some(text.parse().map_err(|_| Error::invalid("`downloads` is a number from 1 on"))?),
    };
    Ok(NewLink { gives: LinkGives::Read, life: Duration::from_secs(days * 24 * 3600), count, pin: false })
}

/// Ends a link, and shows those that are left.
pub async fn end(x: Exchange<'_, '_>, body: &[u8]) -> Served {
    let Some((links, _)) = links(&x) else { return Err(elsewhere(&x).into()) };
    let id: Option<LinkId> = form::field(body, "id")?.parse().ok();
    let ended = match id {
        Some(id) => x.within(links.end_link(&x.call.caller, id)).await,
        None => Err(Error::invalid("that is no link's id")),
    };
    match ended {
        Ok(_) => list(x).await,
        Err(error) => Err(Problem::of(&error, Act::Read).into()),
    }
}

async fn answer(x: Exchange<'_, '_>, text: String) -> Served {
    let fields = |answer: &mut Answer| _ = answer.fixed(&RULES).fixed(FIELDS);
    x.talk.reply(Status::OK, fields, Some((super::MEDIA, text.into_bytes()))).await
}
