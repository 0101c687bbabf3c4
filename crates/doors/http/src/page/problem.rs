//! A refusal, for people.

use std::fmt::Write;

use weft_core::TraceId;

use super::{frame, login};
use crate::answer::Problem;
use crate::status::Status;

/// Returns a problem as a page. Whoever is asked who they are can say so there.
pub fn page(problem: &Problem, trace: TraceId) -> String {
    let mut text = String::new();
    let title = match problem.status {
        Status::UNAUTHORIZED => "Log in",
        other => other.phrase(),
    };
    frame::begin(title, &mut text);
    let _ = writeln!(
        text,
        "<header><nav><a href=\"/\">/</a></nav></header>\n<h1>{title}</h1>\n<p class=\"why\">{}.</p>",
        frame::escape(problem.detail())
    );
    if let Some(hint) = problem.hint() {
        let _ = writeln!(text, "<p>{}</p>", frame::escape(hint));
    }
    match problem.status {
        Status::UNAUTHORIZED => login::write_form(&mut text),
        Status::FORBIDDEN => text.push_str("<p><a href=\"?page=login\">Log in</a> as somebody else.</p>\n"),
        _ => {}
    }
    let _ = writeln!(text, "<p class=\"trace\">Trace {trace}</p>");
    frame::end(&mut text);
    text
}
