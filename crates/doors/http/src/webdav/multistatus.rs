//! Answers about several resources (RFC 4918, 13).

use std::fmt::Write;

use weft_core::RelPath;

use crate::answer::Answer;
use crate::codec::target::write_path;
use crate::exchange::{Served, Talk};
use crate::status::Status;

/// The media type.
pub const MEDIA: &str = "application/xml; charset=utf-8";
/// How it begins.
pub const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// How it ends.
pub const END: &str = "</D:multistatus>\n";

/// Begins what is said of a resource.
pub fn begin_response(path: &RelPath, is_directory: bool, out: &mut String) {
    out.push_str("<D:response>");
    write_href(path, is_directory, out);
}

/// Writes how a path is told in an answer. Coded, it holds nothing that XML would have to escape.
pub fn write_href(path: &RelPath, is_directory: bool, out: &mut String) {
    out.push_str("<D:href>");
    write_path(path, is_directory, out);
    out.push_str("</D:href>");
}

/// Writes properties, as `write` does, and what became of them. Returns whether there are any.
pub fn propstat(status: Status, out: &mut String, write: impl FnOnce(&mut String)) -> bool {
    out.push_str("<D:propstat><D:prop>");
    let start = out.len();
    write(out);
    let any = out.len() > start;
    out.push_str("</D:prop>");
    write_status(status, out);
    out.push_str("</D:propstat>");
    any
}

/// Writes a status.
pub fn write_status(status: Status, out: &mut String) {
    let _ = write!(out, "<D:status>HTTP/1.1 {} {}</D:status>", status.code(), status.phrase());
}

/// Ends what is said of a resource.
pub fn end_response(out: &mut String) {
    out.push_str("</D:response>\n");
}

/// Answers with what was written of several resources.
pub async fn reply(talk: &mut Talk<'_>, mut text: String) -> Served {
    text.push_str(END);
    let fields = |answer: &mut Answer| _ = answer.fixed("Cache-Control: no-store\r\n");
    talk.reply(Status::MULTI_STATUS, fields, Some((MEDIA, text.into_bytes()))).await
}
