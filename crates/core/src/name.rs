//! Names and paths: bytes, checked once, never normalised.
//!
//! No [`Name`] is `.` or `..`, so nothing below a door can be led out of its directory. A
//! symbolic link's target may hold them, and a mount's kernel understands them.

use std::fmt::{self, Write};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::limits;

/// One name in a directory: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Name(Bytes);

impl Name {
    /// Checks and makes a name. Fails with `Invalid`, or `TooLong` beyond 255 bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        check_name(&bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn check_name(bytes: &[u8]) -> Result<()> {
    if bytes.len() > limits::NAME_BYTES_MAX {
        return Err(Error::new(ErrorKind::TooLong, "a name has at most 255 bytes"));
    }
    if bytes.is_empty() || bytes == b"." || bytes == b".." {
        return Err(Error::invalid("a name is neither empty nor `.` nor `..`"));
    }
    if bytes.iter().any(|b| matches!(b, b'/' | 0)) {
        return Err(Error::invalid("a name contains neither `/` nor NUL"));
    }
    Ok(())
}

impl TryFrom<Bytes> for Name {
    type Error = Error;
    fn try_from(bytes: Bytes) -> Result<Self> {
        Self::new(bytes)
    }
}

impl From<Name> for Bytes {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;
    fn try_from(text: &str) -> Result<Self> {
        Self::new(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Bytes as people and programs are shown them, on one line: UTF-8 as it is, `\\` for a backslash,
/// and `\xNN` for every other byte and each byte of a control character. No two that differ are
/// shown alike, and what is shown can be turned back.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coded = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        };
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => coded(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                    c => f.write_char(c)?,
                }
            }
            coded(f, chunk.invalid())?;
        }
        Ok(())
    }
}

/// A text of several parts as people are shown it, on one line: as it is, but each byte of a control
/// character as [`Shown`] has it. What is shown already is not changed by it.
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(char::is_control) {
            let text = part.trim_end_matches(char::is_control);
            f.write_str(text)?;
            Shown(&part.as_bytes()[text.len()..]).fmt(f)?;
        }
        Ok(())
    }
}

/// A path below some base: zero or more [`Name`]s joined by `/`. Empty means the base
/// itself.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct RelPath(Bytes);

impl RelPath {
    /// The base itself.
    pub const EMPTY: Self = Self(Bytes::new());

    /// Checks and makes a path. Leading, trailing and doubled `/` are not forgiven:
    /// doors decide what those mean. Fails with `Invalid` or `TooLong`.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.len() > limits::PATH_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "the path is longer than its limit"));
        }
        if !bytes.is_empty() {
            let mut depth = 0;
            for name in bytes.split(|b| *b == b'/') {
                check_name(name)?;
                depth += 1;
            }
            if depth > limits::PATH_DEPTH_MAX {
                return Err(Error::new(ErrorKind::TooLong, "the path has more names than its limit"));
            }
        }
        Ok(Self(bytes))
    }

    /// Returns the path's bytes, without a leading `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether this is the base itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names from first to last. No allocation.
    pub fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.0.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(|n| Name(self.0.slice_ref(n)))
    }

    /// Returns the path of the parent and the last name, or `None` for the base itself.
    pub fn split_last(&self) -> Option<(Self, Name)> {
        if self.0.is_empty() {
            return None;
        }
        let (parent, name) = match self.0.iter().rposition(|b| *b == b'/') {
            Some(slash) => (self.0.slice(..slash), self.0.slice(slash + 1..)),
            None => (Bytes::new(), self.0.clone()),
        };
        Some((Self(parent), Name(name)))
    }

    /// Returns this path and `name` below it. Fails with `TooLong`.
    pub fn join(&self, name: &Name) -> Result<Self> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&name.0);
        Self::new(bytes)
    }

    /// Returns whether this path is `above` or lies below it, by whole names.
    pub fn is_within(&self, above: &Self) -> bool {
        above.is_empty()
            || (self.0.starts_with(&above.0) && matches!(self.0.get(above.0.len()), None | Some(b'/')))
    }
}

impl TryFrom<Bytes> for RelPath {
    type Error = Error;
    fn try_from(bytes: Bytes) -> Result<Self> {
        Self::new(bytes)
    }
}

impl From<RelPath> for Bytes {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

impl TryFrom<&str> for RelPath {
    type Error = Error;
    fn try_from(text: &str) -> Result<Self> {
        Self::new(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<Name> for RelPath {
    fn from(name: Name) -> Self {
        Self(name.0)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bytes_without_slash_nul_and_dots() {
        for good in [&b"a"[..], b"\xff\xfe", b"...", b"a b", &[b'x'; 255]] {
            assert!(Name::new(good.to_vec()).is_ok());
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(Name::new(bad.to_vec()).is_err());
        }
    }

    #[test]
    fn within_compares_whole_names() {
        let path = |t| RelPath::try_from(t).expect("a good path");
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(path("a").is_within(&RelPath::EMPTY));
        assert!(!path("ab").is_within(&path("a")));
        assert!(!path("a").is_within(&path("a/b")));
    }

    #[test]
    fn split_and_join_are_inverse() {
        let path = RelPath::try_from("a/b/c").expect("a good path");
        let (parent, name) = path.split_last().expect("it has a last name");
        assert_eq!(parent.join(&name).expect("it was a path"), path);
        assert_eq!(path.names().count(), 3);
        assert_eq!(RelPath::EMPTY.names().count(), 0);
    }

    #[test]
    fn display_escapes_what_a_terminal_must_not_see() {
        assert_eq!(Name::new(&b"a\xff\x1b"[..]).expect("a good name").to_string(), "a\\xff\\x1b");
    }

    #[test]
    fn the_byte_ff_and_the_four_characters_of_its_code_are_shown_apart() {
        assert_eq!(Shown(b"bad\xff").to_string(), r"bad\xff");
        assert_eq!(Shown(br"bad\xff").to_string(), r"bad\\xff");
        // A control character of two bytes is not the byte of its number.
        assert_eq!(Shown("\u{85}".as_bytes()).to_string(), r"\xc2\x85");
        assert_eq!(Shown(b"\x85").to_string(), r"\x85");
    }

    #[test]
    fn a_text_of_many_lines_is_shown_on_one_and_what_is_shown_stays_as_it_is() {
        let shown = OneLine("a\nb\u{1b}[2J\u{85} ü\\x0a").to_string();
        assert_eq!(shown, r"a\x0ab\x1b[2J\xc2\x85 ü\x0a");
        assert_eq!(OneLine(&shown).to_string(), shown);
    }

    /// The rule as `docs/SEMANTICS.md` gives it to whoever reads names back.
    fn turned_back(shown: &str) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), shown.as_bytes());
        while let Some((first, more)) = rest.split_first() {
            rest = more;
            match (first, more) {
                (b'\\', [b'\\', more @ ..]) => {
                    bytes.push(b'\\');
                    rest = more;
                }
                (b'\\', [b'x', high, low, more @ ..]) => {
                    let digit = |byte: &u8| char::from(*byte).to_digit(16).expect("a digit") as u8;
                    bytes.push(digit(high) << 4 | digit(low));
                    rest = more;
                }
                (byte, _) => bytes.push(*byte),
            }
        }
        bytes
    }

    #[test]
    fn what_is_shown_of_any_bytes_can_be_turned_back_and_is_one_line() {
        // Bytes that mean something to the rule come often.
        const PIECES: [&[u8]; 8] =
            [b"\\", b"x", b"ff", b"\xff", b"\x1b", b"\xc2\x85", "\u{e4}".as_bytes(), b"\xe2\x80"];
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..random() % 12 {
                match random() % 4 {
                    0 => bytes.push(random() as u8),
                    _ => bytes.extend_from_slice(PIECES[random() % PIECES.len()]),
                }
            }
            let shown = Shown(&bytes).to_string();
            assert_eq!(turned_back(&shown), bytes, "{shown}");
            assert!(!shown.contains(char::is_control), "{bytes:?}");
        }
    }
}
