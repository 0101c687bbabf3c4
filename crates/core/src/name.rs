//! Names and paths: bytes, checked once, never normalised.
//!
//! `.` and `..` belong to doors: no [`Name`] is either, so nothing below a door can
//! be led out of its directory.

use std::fmt;

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
        write_escaped(f, &self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Writes bytes for people: UTF-8 as it is, other bytes and control characters as `\xNN`.
fn write_escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { write!(f, "\\x{:02x}", u32::from(c))? } else { write!(f, "{c}")? }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
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
        write_escaped(f, &self.0)
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
}
