//! The methods of HTTP.

use super::{Cell, bytes_of};
use crate::http::{Answer, Http};

/// Asks one thing.
pub fn ask(http: &Http, cell: &Cell) -> String {
    let thing = cell.thing();
    let (directory, bytes) = (format!("{thing}/"), bytes_of(cell.kind));
    let answer = match (cell.right, cell.kind) {
        ("read" | "traverse", _) if cell.has_bytes() => http.get(&thing),
        ("list" | "traverse", "directory") => http.get(&directory),
        ("write", _) if cell.has_bytes() => return put(&http.put(&thing, bytes)),
        ("insert", "file" | "small") => return put(&http.put(&cell.new_thing(), bytes)),
        ("insert", "directory") => return put(&http.ask("MKCOL", &cell.new_thing(), &[], b"")),
        ("remove", "directory") => http.delete(&format!("{}/", cell.spare())),
        ("remove", _) => http.delete(&cell.spare()),
        ("attr-read", _) => return attributes(&http.get(&format!("{}/?format=json", cell.dir())), cell.kind),
        _ => return "not-offered".to_owned(),
    };
    plain(answer.status)
}

fn plain(status: u16) -> String {
    match status {
        200..=299 => "allowed".to_owned(),
        401 => "unauthenticated".to_owned(),
        403 => "denied".to_owned(),
        404 => "not-found".to_owned(),
        other => format!("status-{other}"),
    }
}

/// Where something is made, a way there that does not exist is a conflict.
fn put(answer: &Answer) -> String {
    let missing = answer.status == 409 && answer.text().contains("not-found");
    plain(if missing { 404 } else { answer.status })
}

/// Attributes are shown in listings, or left out there.
fn attributes(answer: &Answer, kind: &str) -> String {
    let listing: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let mut entries = listing["entries"].as_array().into_iter().flatten();
    match entries.find(|entry| entry["name"] == kind) {
        Some(entry) if entry["mtime"].is_string() => "allowed".to_owned(),
        Some(_) => "denied".to_owned(),
        None => plain(answer.status),
    }
}
