//! A directory as a page.

use std::fmt::Write;

use weft_core::Rights;
use weft_core::attr::Kind;
use weft_core::form::{Entry, Want};

use super::frame::{self, bytes, escape};
use super::sorted::{Order, Sorting};
use crate::codec::condition::format_time;
use crate::exchange::Exchange;
use crate::list::{Shape, href, kind_name};

/// A listing for people.
pub struct Listing {
    begin: String,
    is_root: bool,
    /// Whether it is seen by a link: then it is read, and no more.
    is_linked: bool,
    /// What is said below it.
    note: Option<String>,
}

impl Listing {
    /// Makes the page of the directory that a request is for, in this order of its entries.
    ///
    /// `note` is said below it.
    pub async fn of(x: &Exchange<'_, '_>, sorting: Sorting, note: Option<String>) -> Self {
        // Only what is offered depends on it; what is asked for is decided when it is.
        let want = Want { rights: true, attr: false };
        let walked = x.within(x.talk.http.services.fs.walk(&x.call, &x.at(), want)).await;
        let rights = walked.ok().and_then(|walked| walked.rights).unwrap_or(Rights::NONE);
        let title = frame::title(&x.path);
        let mut begin = String::with_capacity(8 << 10);
        frame::begin(&title, &mut begin);
        frame::head(x, &mut begin);
        if x.linked.is_none() {
            tools(x, rights, &mut begin);
        }
        begin.push_str("<table><thead>\n<tr>");
        for (order, name) in [(Order::Name, "Name"), (Order::Size, "Size"), (Order::Changed, "Changed")] {
            heading(order, name, sorting, &mut begin);
        }
        begin.push_str("<th></thead><tbody>\n");
        Self { begin, is_root: x.path.path.is_empty(), is_linked: x.linked.is_some(), note }
    }
}

/// What changes the directory: the script shows it, since without one it would do nothing.
fn tools(x: &Exchange<'_, '_>, rights: Rights, out: &mut String) {
    let _ = writeln!(
        out,
        "<section id=\"tools\" data-may=\"{}\" data-guard=\"{}\" hidden>\
         <button id=\"make\">New folder</button> <label>Add files <input type=\"file\" id=\"files\" multiple></label> \
         <span>or drop them here</span><ul id=\"moves\"></ul></section>\n\
         <p id=\"said\" role=\"alert\"></p>\n\
         <div class=\"rights\">You may: {}. ",
        offered(rights),
        frame::guard(x),
        frame::rights(rights),
    );
    frame::way("", ("page", "about"), "Why?", out);
    out.push_str("</div>\n");
}

/// Returns what the script may offer.
fn offered(rights: Rights) -> String {
    let all = [(Rights::INSERT, "insert"), (Rights::RENAME, "rename"), (Rights::REMOVE, "remove")];
    let may = all.into_iter().filter(|(right, _)| rights.contains(*right)).map(|(_, name)| name);
    may.collect::<Vec<_>>().join(" ")
}

/// A heading that leads to the same directory in its order, or the other way round.
fn heading(order: Order, name: &str, sorting: Sorting, out: &mut String) {
    let is_it = sorting.order == order;
    let asked = Sorting { order, falls: is_it && !sorting.falls }.name();
    let sort = match (is_it, sorting.falls) {
        (true, false) => " aria-sort=\"ascending\"",
        (true, true) => " aria-sort=\"descending\"",
        (false, _) => "",
    };
    let _ = write!(out, "<th{sort}>");
    frame::way("", ("sort", &asked), name, out);
}

impl Shape for Listing {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.append(&mut std::mem::take(&mut self.begin).into_bytes());
        if !self.is_root {
            out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td><td><td>\n");
        }
    }

    fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let mut row = String::with_capacity(512);
        let (href, name) = (href(entry), escape(&entry.name.to_string()));
        let slash = if entry.kind == Kind::Directory { "/" } else { "" };
        let _ = write!(row, "<tr><td><a href=\"{href}\">{name}</a>{slash}");
        match entry.attr.as_ref().filter(|attr| attr.kind == Kind::File) {
            Some(attr) => _ = write!(row, "<td title=\"{}\">{}", attr.size, bytes(attr.size)),
            None if entry.kind == Kind::Directory => row.push_str("<td>"),
            None => _ = write!(row, "<td>{}", kind_name(entry.kind)),
        }
        let changed = entry.attr.as_ref().map(|attr| format_time(attr.mtime)).unwrap_or_default();
        let shown = changed.replace('T', " ");
        let _ = write!(row, "<td title=\"{changed}\">{}<td>", shown.trim_end_matches('Z'));
        if !self.is_linked {
            frame::way(&href, ("page", "about"), "about", &mut row);
        }
        row.push('\n');
        out.append(&mut row.into_bytes());
    }

    fn end(&mut self, next: Option<&str>, out: &mut Vec<u8>) {
        let mut text = String::from("</tbody></table>\n");
        if let Some(note) = &self.note {
            let _ = writeln!(text, "<p>{}</p>", escape(note));
        }
        if let Some(next) = next {
            let _ = writeln!(text, "<p><a href=\"{}\">More</a></p>", escape(next));
        }
        match self.is_linked {
            true => frame::end(&mut text),
            false => frame::end_with_script(&mut text),
        }
        out.append(&mut text.into_bytes());
    }
}
