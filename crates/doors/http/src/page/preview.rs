//! The beginning of a text, or a picture.

use std::fmt::Write;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{OpenHow, Pin, Range, collect};
use weft_core::{Result, Rights, limits};

use super::frame::{bytes, escape};
use crate::codec::target::encode_name;
use crate::exchange::Exchange;
use crate::get::media_type;

/// Writes what can be shown of a file: nothing, if that is neither text nor a picture.
pub async fn write(x: &Exchange<'_, '_>, attr: &Attr, out: &mut String) {
    let Some((_, name)) = x.path.path.split_last().filter(|_| attr.kind == Kind::File) else { return };
    if media_type(name.as_bytes()).starts_with("image/") {
        let shown = escape(&name.to_string());
        let _ = writeln!(out, "<figure><img src=\"./{}\" alt=\"{shown}\"></figure>", encode_name(&name));
        return;
    }
    // Whoever may not read it sees no preview, and learns why below.
    let Ok(begin) = beginning(x).await else { return };
    let Some(text) = as_text(&begin, attr.size) else { return };
    let _ = writeln!(out, "<pre>{}</pre>", escape(text));
    if (text.len() as u64) < attr.size {
        let _ =
            writeln!(out, "<p>These are the first {} of {}.</p>", bytes(text.len() as u64), bytes(attr.size));
    }
}

async fn beginning(x: &Exchange<'_, '_>) -> Result<bytes::Bytes> {
    let services = &x.talk.http.services;
    let how = OpenHow { need: Rights::READ, pin: Pin::Version, ..OpenHow::default() };
    let opened = x.within(services.fs.open(&x.call, &x.at(), &how)).await?;
    let range = Range { at: 0, length: Some(limits::HTTP_PREVIEW_BYTES.min(opened.attr.size)) };
    let read = x
        .within(async {
            let mut source = opened.file.read(&x.call, range).await?;
            collect(&mut *source, limits::HTTP_PREVIEW_BYTES as usize).await
        })
        .await;
    let _ = x.within(opened.file.close(&x.call)).await;
    read
}

/// Returns the bytes as text, if they are: UTF-8 without control characters but those that texts have. The last
/// character may have been cut.
fn as_text(begin: &[u8], size: u64) -> Option<&str> {
    let text = match std::str::from_utf8(begin) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && (begin.len() as u64) < size => {
            std::str::from_utf8(&begin[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_odd = |one: char| one.is_control() && !matches!(one, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}');
    (!text.is_empty() && !text.contains(is_odd)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_shown_as_text() {
        assert_eq!(as_text("caf\u{e9}\n".as_bytes(), 6), Some("caf\u{e9}\n"));
        assert_eq!(as_text(b"caf\xc3", 100), Some("caf"), "the cut lies within a character");
        for odd in [&b"caf\xc3"[..], b"a\xffb", b"\x7fELF", b"a\0b", b""] {
            assert_eq!(as_text(odd, odd.len() as u64), None, "{}", odd.escape_ascii());
        }
    }
}
