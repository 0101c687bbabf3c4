//! Answers about several resources (RFC 4918, 13).

use std::fmt::Write;

use weft_core::RelPath;

use crate::answer::Answer;
use crate::codec::target::Path;
use crate::exchange::{Served, Talk};
use crate::status::Status;

/// The media type.
pub const MEDIA: &str = "application/xml; charset=utf-8";
/// How it begins.
pub const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// How it ends.
pub const END: &str = "</D:multistatus>\n";

/// Returns how a path is written in an answer.
pub fn href(path: &RelPath, is_directory: bool) -> String {
    Path { path: path.clone(), is_directory: is_directory || path.is_empty() }.encode()
}

/// Begins what is said of a resource.
pub fn begin_response(href: &str, out: &mut String) {
    // Coded, it holds nothing that XML would have to escape.
    out.push_str("<D:response><D:href>");
    out.push_str(href);
    out.push_str("</D:href>");
}

/// Writes properties, which are written already, and what became of them.
pub fn propstat(properties: &str, status: Status, out: &mut String) {
    out.push_str("<D:propstat><D:prop>");
    out.push_str(properties);
    out.push_str("</D:prop>");
    write_status(status, out);
    out.push_str("</D:propstat>");
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
