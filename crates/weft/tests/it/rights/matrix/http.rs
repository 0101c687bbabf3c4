//! The methods of HTTP and WebDAV: what is asked, and what an answer means. How it is sent is another's.

use super::{Cell, bytes_of};
use crate::http::{Answer, Http};

/// One request.
pub struct Question {
    pub method: &'static str,
    pub target: String,
    pub fields: Vec<String>,
    pub body: &'static [u8],
    judge: fn(&Answer, &Cell) -> String,
}

const SHARED: &[u8] =
    b"<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:shared/></D:lockscope>\
    <D:locktype><D:write/></D:locktype></D:lockinfo>";
const COLOUR: &[u8] = b"<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>\
    <m:colour xmlns:m=\"urn:matrix\">red</m:colour></D:prop></D:set></D:propertyupdate>";

impl Question {
    /// Returns what a cell asks at its door; none if nothing there asks that.
    pub fn of(cell: &Cell) -> Option<Self> {
        if is_webdav(cell) { webdav(cell) } else { plain_http(cell) }
    }

    fn new(method: &'static str, target: String, judge: fn(&Answer, &Cell) -> String) -> Self {
        Self { method, target, fields: Vec::new(), body: b"", judge }
    }

    fn with(mut self, field: String) -> Self {
        self.fields.push(field);
        self
    }

    fn holding(self, body: &'static [u8]) -> Self {
        Self { body, ..self }
    }

    /// Sends it in the clear, by HTTP/1.1.
    pub fn ask(&self, http: &Http, cell: &Cell) -> String {
        let fields: Vec<&str> = self.fields.iter().map(String::as_str).collect();
        self.judge(&http.ask(self.method, &self.target, &fields, self.body), cell)
    }

    /// Returns what an answer comes to.
    pub fn judge(&self, answer: &Answer, cell: &Cell) -> String {
        (self.judge)(answer, cell)
    }
}

/// Returns whether a cell is asked by a method of WebDAV. The secured door is asked by all that there are.
pub fn is_webdav(cell: &Cell) -> bool {
    let only_there = matches!(cell.right, "rename" | "lock" | "attr-write");
    cell.door == "webdav" || cell.door == "https2" && only_there
}

fn plain_http(cell: &Cell) -> Option<Question> {
    let (thing, bytes) = (cell.thing(), bytes_of(cell.kind));
    let directory = format!("{thing}/");
    Some(match (cell.right, cell.kind) {
        ("read" | "traverse", _) if cell.has_bytes() => Question::new("GET", thing, plain),
        ("list" | "traverse", "directory") => Question::new("GET", directory, plain),
        ("write", _) if cell.has_bytes() => Question::new("PUT", thing, made).holding(bytes),
        ("insert", "file" | "small") => Question::new("PUT", cell.new_thing(), made).holding(bytes),
        ("insert", "directory") => Question::new("MKCOL", cell.new_thing(), made),
        ("remove", "directory") => Question::new("DELETE", format!("{}/", cell.spare()), plain),
        ("remove", _) => Question::new("DELETE", cell.spare(), plain),
        ("attr-read", _) => Question::new("GET", format!("{}/?format=json", cell.dir()), listed),
        _ => return None,
    })
}

fn webdav(cell: &Cell) -> Option<Question> {
    let slash = if cell.kind == "directory" { "/" } else { "" };
    let (thing, spare) = (format!("{}{slash}", cell.thing()), format!("{}{slash}", cell.spare()));
    let to = format!("Destination: {}{slash}", cell.new_thing());
    let depth = |depth: u8| format!("Depth: {depth}");
    Some(match (cell.right, cell.kind) {
        ("read", _) if cell.has_bytes() => Question::new("COPY", thing, made).with(to),
        ("insert", "file" | "small") => Question::new("COPY", thing, made).with(to),
        ("insert", "directory") => Question::new("MKCOL", cell.new_thing(), made),
        ("list", "directory") => Question::new("PROPFIND", thing, plain).with(depth(1)),
        ("traverse", _) => Question::new("PROPFIND", thing, plain).with(depth(0)),
        ("rename", _) => Question::new("MOVE", spare, made).with(to),
        ("lock", _) => Question::new("LOCK", thing, made).with(depth(0)).holding(SHARED),
        ("attr-read", _) => Question::new("PROPFIND", format!("{}/", cell.dir()), found).with(depth(1)),
        ("attr-write", _) => Question::new("PROPPATCH", thing, patched).holding(COLOUR),
        _ => return None,
    })
}

fn plain(answer: &Answer, _: &Cell) -> String {
    of_status(answer.status)
}

fn of_status(status: u16) -> String {
    match status {
        200..=299 => "allowed".to_owned(),
        401 => "unauthenticated".to_owned(),
        403 => "denied".to_owned(),
        404 => "not-found".to_owned(),
        405 => "not-offered".to_owned(),
        other => format!("status-{other}"),
    }
}

/// Where something is made, a way there that does not exist is a conflict; and one answer for several
/// things would tell of failures.
fn made(answer: &Answer, _: &Cell) -> String {
    match answer.status {
        207 => format!("partly: {}", answer.text()),
        409 if answer.text().contains("not-found") => of_status(404),
        other => of_status(other),
    }
}

/// Attributes are shown in listings, or left out there.
fn listed(answer: &Answer, cell: &Cell) -> String {
    let listing: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let mut entries = listing["entries"].as_array().into_iter().flatten();
    let entry = entries.find(|entry| entry["name"] == cell.kind);
    shown(entry.map(|entry| entry["mtime"].is_string()), answer)
}

/// The same of the listings of WebDAV.
fn found(answer: &Answer, cell: &Cell) -> String {
    let text = answer.text();
    let names = [format!("/{}</D:href>", cell.kind), format!("/{}/</D:href>", cell.kind)];
    let mut entries = text.split("<D:response>");
    let entry = entries.find(|entry| names.iter().any(|name| entry.contains(name)));
    shown(entry.map(|entry| entry.contains("<D:getlastmodified>")), answer)
}

fn shown(has_time: Option<bool>, answer: &Answer) -> String {
    match has_time {
        Some(true) => "allowed".to_owned(),
        Some(false) => "denied".to_owned(),
        None => of_status(answer.status),
    }
}

/// What became of a property is told within the answer.
fn patched(answer: &Answer, _: &Cell) -> String {
    let text = answer.text();
    let told = text.split("HTTP/1.1 ").nth(1).and_then(|rest| rest.get(..3)?.parse().ok());
    of_status(told.filter(|_| answer.status == 207).unwrap_or(answer.status))
}
