//! Bytes to messages: pure functions without I/O, each bounded, each fuzzed.

pub mod accept;
pub mod chunked;
pub mod condition;
pub mod cookie;
pub mod credentials;
pub mod digest;
pub mod form;
pub mod head;
pub mod host;
pub mod range;
pub mod target;
pub mod upload;
pub mod webdav;

#[cfg(test)]
mod fuzz;

use crate::status::Status;

/// Why a message cannot be taken: malformed, or more than a bound allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is answered with.
    pub status: Status,
    /// What is wrong, as a lower-case phrase.
    pub reason: &'static str,
}

impl Refusal {
    /// Makes a refusal.
    pub const fn new(status: Status, reason: &'static str) -> Self {
        Self { status, reason }
    }

    /// Makes the refusal of a malformed message.
    pub const fn malformed(reason: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, reason)
    }
}

/// Cuts whitespace that HTTP allows around a member off both ends.
pub fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Splits a list at commas outside quoted strings. Empty members are left out, as HTTP says.
pub fn members(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        loop {
            let text = rest?;
            let (member, after) = split_outside_quotes(text, b',');
            rest = after;
            if !trim(member).is_empty() {
                return Some(trim(member));
            }
        }
    })
}

/// Splits at the first `separator` outside quoted strings.
pub fn split_outside_quotes(text: &str, separator: u8) -> (&str, Option<&str>) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

/// Returns whether a byte may stand in a token (RFC 9110, 5.6.2).
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
