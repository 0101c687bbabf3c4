//! Paths as people write them: `/a/b` in the tree; for `cp`, `weft:/a/b` in the tree
//! and everything else on this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bytes::Bytes;
use weft_core::form::At;
use weft_core::{Error, Name, RelPath, Result};

/// What marks a path of the tree where both kinds are possible.
const MARK: &[u8] = b"weft:";

/// Reads a path of the tree. It is absolute; `weft:` before it and `/` after it are
/// allowed, `.`, `..` and `//` are not.
pub fn tree_path(text: &OsStr) -> Result<RelPath> {
    let bytes = text.as_bytes();
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    let below = bytes.strip_prefix(b"/").ok_or_else(|| {
        let shown = text.to_string_lossy().into_owned();
        Error::invalid("a path in the tree starts with `/`").op("use").about(shown)
    })?;
    let below = match below.strip_suffix(b"/") {
        // `//` is not a way to write `/`.
        Some(shorter) if !shorter.is_empty() => shorter,
        _ => below,
    };
    RelPath::new(Bytes::copy_from_slice(below)).map_err(|e| e.op("use").about(text.to_string_lossy()))
}

/// Returns the address of a path of the tree, symbolic links at its end followed.
pub fn at(text: &OsStr) -> Result<At> {
    tree_path(text).map(|path| At::root(path).following())
}

/// Returns the address of a path of the tree itself: links are not followed.
pub fn at_itself(text: &OsStr) -> Result<At> {
    tree_path(text).map(At::root)
}

/// Splits a path of the tree into its parent's address and its last name.
pub fn parent_and_name(text: &OsStr) -> Result<(At, Name)> {
    let (parent, name) = tree_path(text)?
        .split_last()
        .ok_or_else(|| Error::invalid("the root has no name").op("use").about("/"))?;
    Ok((At::root(parent).following(), name))
}

/// A path given to `cp`.
pub enum Side {
    /// In the tree.
    Tree(RelPath),
    /// On this machine.
    Local(PathBuf),
    /// Standard input or output.
    Standard,
}

impl Side {
    /// Reads a path given to `cp`.
    pub fn parse(text: &OsString) -> Result<Self> {
        match text.as_bytes() {
            b"-" => Ok(Self::Standard),
            bytes if bytes.starts_with(MARK) => tree_path(text).map(Self::Tree),
            _ => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

/// Shows a path of the tree.
pub fn show(path: &RelPath) -> String {
    format!("/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_paths_are_absolute_and_not_normalised() {
        let read = |text: &str| tree_path(OsStr::new(text)).map(|p| p.to_string());
        for (text, expected) in [("/", ""), ("/a", "a"), ("/a/", "a"), ("weft:/a/b", "a/b")] {
            assert_eq!(read(text).expect("a good path"), expected, "{text}");
        }
        for text in ["", "a", "weft:a", "//", "/a//b", "/a/../b", "/./a"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_mark_makes_a_path_of_the_tree_for_copying() {
        let side = |text: &str| Side::parse(&OsString::from(text)).expect("a good path");
        assert!(matches!(side("weft:/a"), Side::Tree(_)));
        assert!(matches!(side("/a"), Side::Local(_)));
        assert!(matches!(side("-"), Side::Standard));
        assert!(matches!(side("./-"), Side::Local(_)));
    }
}
