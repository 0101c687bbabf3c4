//! Paths: percent-coded in a target, plain bytes in Weft. Nothing is normalised.

use bytes::Bytes;
use weft_core::{Error, ErrorKind, Name, RelPath, Result};

/// A path from the root, as a target gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The path.
    pub path: RelPath,
    /// Whether a `/` stood at its end (also for the root): a directory is meant.
    pub is_directory: bool,
}

impl Path {
    /// Decodes the path of a target. `Invalid` for `.`, `..`, `//`, NUL, a coded `/`, a malformed
    /// escape or a byte that must be coded; `TooLong`.
    pub fn decode(raw: Bytes) -> Result<Self> {
        let Some(b'/') = raw.first() else {
            return Err(Error::invalid("the target is not a path from the root"));
        };
        let is_directory = raw.last() == Some(&b'/');
        let inner = raw.slice(1..raw.len() - usize::from(is_directory && raw.len() > 1));
        if inner.is_empty() {
            if raw.len() > 1 {
                return Err(EMPTY_NAME());
            }
            return Ok(Self { path: RelPath::EMPTY, is_directory: true });
        }
        if inner.split(|byte| *byte == b'/').any(<[u8]>::is_empty) {
            return Err(EMPTY_NAME());
        }
        let decoded = if inner.contains(&b'%') { decode(&inner, true)?.into() } else { plain(inner)? };
        Ok(Self { path: RelPath::new(decoded)?, is_directory })
    }

    /// Returns the path as a target: coded, from the root, with its `/` at the end if it had one.
    pub fn encode(&self) -> String {
        let mut target = String::new();
        write_path(&self.path, self.is_directory, &mut target);
        target
    }
}

/// Writes a path as a target, as [`Path::encode`] returns it.
pub fn write_path(path: &RelPath, is_directory: bool, out: &mut String) {
    out.push('/');
    encode_into(path.as_bytes(), true, out);
    if is_directory && !path.is_empty() {
        out.push('/');
    }
}

const EMPTY_NAME: fn() -> Error = || Error::invalid("the path has an empty name: `//`");

/// Decodes a query's value to bytes, `+` being itself.
pub fn decode_value(raw: &[u8]) -> Result<Vec<u8>> {
    decode(raw, false)
}

/// Returns a parameter of a query, decoded.
pub fn parameter(query: Option<&[u8]>, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(query) = query else { return Ok(None) };
    let mut pairs = query.split(|byte| *byte == b'&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map(decode_value).transpose()
}

/// Codes a name for use as a link in its directory.
pub fn encode_name(name: &Name) -> String {
    let mut text = String::new();
    encode_into(name.as_bytes(), false, &mut text);
    text
}

fn decode(raw: &[u8], is_path: bool) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(literal(*byte)?);
            continue;
        }
        let (high, low) = (rest.next().copied().and_then(hex), rest.next().copied().and_then(hex));
        let (Some(high), Some(low)) = (high, low) else {
            return Err(Error::invalid("`%` is not followed by two hexadecimal digits"));
        };
        match high << 4 | low {
            b'/' if is_path => return Err(Error::invalid("a name contains no `/`, coded or not")),
            0 if is_path => return Err(Error::invalid("a name contains no NUL")),
            byte => bytes.push(byte),
        }
    }
    Ok(bytes)
}

/// Checks a path that has nothing to decode; it stays where it is.
fn plain(raw: Bytes) -> Result<Bytes> {
    raw.iter().try_for_each(|byte| literal(*byte).map(|_| ()))?;
    Ok(raw)
}

/// Returns a byte that stands for itself. Bytes beyond ASCII are forgiven: many clients send
/// UTF-8 as it is.
fn literal(byte: u8) -> Result<u8> {
    if byte <= b' ' || byte == 0x7f || byte == b'#' {
        return Err(Error::new(ErrorKind::Invalid, "the target holds a byte that must be percent-coded"));
    }
    Ok(byte)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Codes everything but what RFC 3986 never reserves, and `/` between names.
fn encode_into(bytes: &[u8], is_path: bool, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || (is_path && *byte == b'/');
        if plain {
            text.push(*byte as char);
        } else {
            text.push('%');
            text.push(DIGITS[usize::from(byte >> 4)] as char);
            text.push(DIGITS[usize::from(byte & 15)] as char);
        }
    }
}

/// Codes text for the value of `filename*` (RFC 8187).
pub fn encode_extended(bytes: &[u8]) -> String {
    let mut text = String::new();
    encode_into(bytes, false, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(raw: &'static str) -> Result<Path> {
        Path::decode(Bytes::from_static(raw.as_bytes()))
    }

    #[test]
    fn paths_are_bytes_and_a_slash_at_the_end_means_a_directory() {
        for (raw, bytes, is_directory) in [
            ("/", &b""[..], true),
            ("/a", b"a", false),
            ("/a/", b"a", true),
            ("/a/b%20c", b"a/b c", false),
            ("/%FF%fe", b"\xff\xfe", false),
            ("/a%25b+c", b"a%b+c", false),
            ("/\u{e4}", "\u{e4}".as_bytes(), false),
            ("/...", b"...", false),
        ] {
            let path = decoded(raw).expect(raw);
            assert_eq!((path.path.as_bytes(), path.is_directory), (bytes, is_directory), "{raw}");
            assert_eq!(Path::decode(path.encode().into()).expect("it was just coded"), path);
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for raw in [
            "",
            "a",
            "*",
            "//",
            "/a//b",
            "//a",
            "/a//",
            "/.",
            "/..",
            "/a/../b",
            "/%2e%2e/b",
            "/%2E",
            "/a%2Fb",
            "/a%00",
            "/%",
            "/%4",
            "/%zz",
            "/a#b",
            "/a b",
            "/./",
            "/a/%2e",
        ] {
            assert_eq!(decoded(raw).expect_err(raw).kind(), ErrorKind::Invalid, "{raw}");
        }
        let long = format!("/{}", "a".repeat(256));
        assert_eq!(Path::decode(long.into()).expect_err("256 bytes").kind(), ErrorKind::TooLong);
    }

    #[test]
    fn a_backslash_and_a_second_slash_never_survive_into_a_redirect() {
        let path = decoded("/\\evil.example").expect("a name may hold a backslash");
        assert_eq!(path.encode(), "/%5Cevil.example");
    }

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let query = Some(&b"xafter=1&after=%ff&limit="[..]);
        assert_eq!(parameter(query, "after").expect("good"), Some(vec![0xff]));
        assert_eq!(parameter(query, "limit").expect("good"), Some(vec![]));
        assert_eq!(parameter(query, "afte").expect("good"), None);
    }
}
