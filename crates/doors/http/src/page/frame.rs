//! What every page has around it: where one is, who one is, the way out.

use std::fmt::Write;

use weft_core::{RelPath, Rights, Time};

use super::guard;
use super::rules::{SCRIPT, STYLE};
use crate::codec::condition::format_time;
use crate::codec::target::{Path, encode_name};
use crate::exchange::Exchange;
use crate::identity::Shown;

/// Writes the beginning of a page.
pub fn begin(title: &str, out: &mut String) {
    let _ = writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}</style></head>\n<body>",
        escape(title)
    );
}

/// Writes the end of a page.
pub fn end(out: &mut String) {
    out.push_str("</body></html>\n");
}

/// Writes the end of a page that does something.
pub fn end_with_script(out: &mut String) {
    let _ = write!(out, "<script>{SCRIPT}</script>");
    end(out);
}

/// Writes where one is, each directory on the way a link, and who one is.
pub fn head(x: &Exchange<'_, '_>, out: &mut String) {
    let root = x.encode(&Path { path: RelPath::EMPTY, is_directory: true });
    let shown = if x.linked.is_some() { "shared with you /" } else { "/" };
    let _ = write!(out, "<header><nav><a href=\"{root}\">{shown}</a>");
    let (mut way, mut at) = (root, x.path.path.names().peekable());
    while let Some(name) = at.next() {
        let is_last = at.peek().is_none();
        way.push_str(&encode_name(&name));
        let slash = if !is_last || x.path.is_directory { "/" } else { "" };
        way.push_str(slash);
        let _ = write!(out, "<a href=\"{way}\">{}</a>{slash}", escape(&name.to_string()));
    }
    out.push_str("</nav>");
    who(x, out);
    out.push_str("</header>\n");
}

fn who(x: &Exchange<'_, '_>, out: &mut String) {
    // Whoever has a link is nobody in particular, and is told of nobody.
    if x.linked.is_some() {
        return;
    }
    let name = x.call.caller.name();
    let shown = escape(name.local());
    if x.call.caller.is_anyone() {
        return way("", ("page", "login"), "Log in", out);
    }
    let _ = match x.shown {
        Shown::Cookie(cookie) => write!(
            out,
            "<form method=\"post\" action=\"?page=logout\"><span title=\"{}\">{shown}</span> \
             <input type=\"hidden\" name=\"guard\" value=\"{}\"><button>Log out</button></form>",
            escape(&name.to_string()),
            guard::of(cookie)
        ),
        // Told with each request or connection, by the browser or by a program: there is nothing to end.
        Shown::Field(_) | Shown::Certificate(_) | Shown::Nothing => {
            write!(out, "<p title=\"{}\">{shown}</p>", escape(&name.to_string()))
        }
    };
}

/// Writes a way to another page of the same place, as a button: programs that follow all links of a page, to
/// fetch what is in a directory, find only what is in it.
pub fn way(action: &str, (name, value): (&str, &str), text: &str, out: &mut String) {
    let _ = write!(
        out,
        "<form class=\"way\" action=\"{action}\"><button name=\"{name}\" value=\"{value}\">{text}</button></form>"
    );
}

/// Returns what a script sends along with a change.
pub fn guard(x: &Exchange<'_, '_>) -> String {
    match x.shown {
        Shown::Cookie(cookie) => guard::of(cookie),
        Shown::Field(_) | Shown::Certificate(_) | Shown::Nothing => String::new(),
    }
}

/// Returns how the path of a request is shown.
pub fn title(path: &Path) -> String {
    match (path.path.is_empty(), path.is_directory) {
        (true, _) => "/".to_owned(),
        (false, true) => format!("/{}/", path.path),
        (false, false) => format!("/{}", path.path),
    }
}

/// Returns rights as people read them.
pub fn rights(rights: Rights) -> String {
    if rights.is_empty() {
        "nothing".to_owned()
    } else {
        rights.to_string().replace(',', ", ").replace('=', "")
    }
}

/// Returns a number of bytes as people read it: three digits and a unit of 1024s.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // What would be written as 1024 is one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.95 { 1 } else { 0 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Returns a time as people read it.
pub fn time(at: Time) -> String {
    format_time(at).replace('T', " ").trim_end_matches('Z').to_owned()
}

/// Writes text so that nothing in it is markup.
pub fn escape(text: &str) -> String {
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

    #[test]
    fn bytes_are_shown_in_three_digits_at_most() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10_188, "9.9 KiB"),
            (10_189, "10 KiB"),
            (1_048_063, "1023 KiB"),
            (1_048_064, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(count), shown, "{count}");
        }
    }
}
