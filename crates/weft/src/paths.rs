//! Paths as people write them: `/a/b` in the tree; for `cp`, `weft:/a/b` in the tree
//! and everything else on this machine.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use weft_client::{Client, tree};
use weft_core::attr::{Attr, Kind};
use weft_core::form::{At, Want};
use weft_core::{Error, ErrorKind, Name, RelPath, Result, Shown};
use weft_remote::Url;

/// What marks a path of the tree where both kinds are possible.
const MARK: &[u8] = b"weft:";

/// The directory that paths may begin in: only a shell has one.
static BASE: Mutex<Option<RelPath>> = Mutex::new(None);

/// Has paths begin in a directory from now on that do not begin with `/`.
pub fn begin_at(dir: RelPath) {
    // A path is replaced whole: a panic elsewhere cannot spoil it.
    *BASE.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir);
}

/// Has them begin at the root.
pub fn begin_at_root() {
    begin_at(RelPath::EMPTY);
}

/// Returns the directory that paths begin in, if they may.
pub fn base() -> Option<RelPath> {
    BASE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the directory that is meant where none is named: the root, but in a shell.
pub fn here() -> OsString {
    let dir = base().unwrap_or_default();
    OsStr::from_bytes(&[b"/", dir.as_bytes()].concat()).to_os_string()
}

/// Returns what a path that begins in a directory is from the root. `.` and `..` are taken by names alone; above
/// the root is the root.
fn from_base(base: &RelPath, path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> =
        base.as_bytes().split(|byte| *byte == b'/').filter(|n| !n.is_empty()).collect();
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    let mut whole = Vec::new();
    while let Some(part) = parts.next() {
        match part {
            b"." => {}
            b".." => drop(names.pop()),
            // At the end it says that a directory is meant; elsewhere nothing is guessed.
            b"" if parts.peek().is_none() => {}
            part => names.push(part),
        }
    }
    for name in &names {
        whole.push(b'/');
        whole.extend_from_slice(name);
    }
    if names.is_empty() || path.ends_with(b"/") {
        whole.push(b'/');
    }
    whole
}

/// A path of the tree, as it was written.
#[derive(Clone, Debug)]
pub struct TreePath {
    /// The path.
    pub path: RelPath,
    /// Whether a `/` stood at its end (also for the root): a directory is meant.
    pub is_directory: bool,
}

impl TreePath {
    /// Reads a path of the tree. It is absolute; `weft:` before it and `/` after it are
    /// allowed, `.`, `..` and `//` are not.
    pub fn read(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
        let unusable = |e: Error| {
            let hint = "write the path from the root, with neither `.` nor `..` nor `//`";
            let error = e.op("use").about(Shown(text.as_bytes()));
            if error.kind() == ErrorKind::Invalid { error.hint(hint) } else { error }
        };
        let begun = base().filter(|_| !bytes.is_empty() && !bytes.starts_with(b"/"));
        let whole = begun.map(|base| from_base(&base, bytes));
        let bytes = whole.as_deref().unwrap_or(bytes);
        let below = bytes
            .strip_prefix(b"/")
            .ok_or_else(|| unusable(Error::invalid("a path in the tree starts with `/`")))?;
        let (below, is_directory) = match below.strip_suffix(b"/") {
            // `//` is not a way to write `/`.
            Some(shorter) if !shorter.is_empty() => (shorter, true),
            _ => (below, below.is_empty()),
        };
        let path = RelPath::new(Bytes::copy_from_slice(below)).map_err(unusable)?;
        Ok(Self { path, is_directory })
    }

    /// Returns its address, a symbolic link at its end followed.
    pub fn at(&self) -> At {
        At::root(self.path.clone()).following()
    }

    /// Returns the address of what has this name: a link is not followed.
    pub fn at_itself(&self) -> At {
        At::root(self.path.clone())
    }

    /// Returns its last name. The root has none.
    pub fn name(&self) -> Result<Name> {
        let last = self.path.split_last().map(|(_, name)| name);
        last.ok_or_else(|| Error::invalid("the root has no name").about("/"))
    }

    /// Fails with `NotDirectory` if a directory is meant and what was found is none.
    pub fn check(&self, found: Kind) -> Result<()> {
        if !self.is_directory || found == Kind::Directory {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotDirectory, "it is not a directory, which a `/` at the end asks for"))
    }

    /// Returns the attributes of the thing the path leads to. Fails with `NotDirectory` if a
    /// directory is meant and it is none.
    pub async fn look_up(&self, client: &Client) -> Result<Attr> {
        self.look_at(client, &self.at()).await
    }

    /// For what acts on the thing the path leads to (`cat`, `touch`, `ls`): where a directory is
    /// meant, fails unless one is there or a symbolic link leads to one. No call otherwise.
    pub async fn check_thing(&self, client: &Client) -> Result<()> {
        self.check_at(client, &self.at()).await
    }

    /// As [`TreePath::check_thing`], for what lists what is there (`find`, `du`): a refusal names the
    /// right to list.
    pub async fn check_listed(&self, client: &Client) -> Result<()> {
        match self.check_thing(client).await {
            Err(error) => Err(tree::unlisted(client, &self.at(), error, &self.to_string()).await),
            Ok(()) => Ok(()),
        }
    }

    /// For what acts on the name itself (`rm`, `mv`, `ln`): where a directory is meant, fails
    /// unless the name is one's. A link to a directory is none: its name goes without the `/`.
    pub async fn check_name(&self, client: &Client) -> Result<()> {
        self.check_at(client, &self.at_itself()).await
    }

    async fn check_at(&self, client: &Client, at: &At) -> Result<()> {
        if !self.is_directory || self.path.is_empty() {
            return Ok(());
        }
        self.look_at(client, at).await.map(drop)
    }

    async fn look_at(&self, client: &Client, at: &At) -> Result<Attr> {
        let walked = client.fs().walk(&client.call(), at, Want::default()).await;
        let found = walked.and_then(|walked| self.check(walked.attr.kind).map(|()| walked.attr));
        found.map_err(|e| e.said_of(self))
    }
}

/// As people write it, without a `/` at the end.
impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.path)
    }
}

/// Reads a path of the tree, whatever stands at its end.
pub fn tree_path(text: &OsStr) -> Result<RelPath> {
    TreePath::read(text).map(|read| read.path)
}

/// A path given to `cp`.
pub enum Side {
    /// In the tree.
    Tree(RelPath, Ending),
    /// On this machine.
    Local(PathBuf, Ending),
    /// On a server that speaks HTTP.
    Server(Url, Ending),
    /// Standard input or output.
    Standard,
}

/// What the end of a path given to `cp` says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A name: of anything.
    Name,
    /// `/`: it is a directory.
    Slash,
    /// `/.`: it is a directory, and what is in it is meant.
    Contents,
}

impl Side {
    /// Reads a path given to `cp`.
    pub fn parse(text: &OsString) -> Result<Self> {
        let bytes = text.as_bytes();
        let ending = match bytes {
            b"." | b".." => Ending::Contents,
            _ if bytes.ends_with(b"/.") || bytes.ends_with(b"/..") => Ending::Contents,
            _ if bytes.ends_with(b"/") => Ending::Slash,
            _ => Ending::Name,
        };
        match bytes {
            b"-" => Ok(Self::Standard),
            _ if text.to_str().is_some_and(Url::is_meant) => {
                let url = text.to_str().unwrap_or_default();
                let dot = if ending == Ending::Contents { "." } else { "" };
                Ok(Self::Server(url.strip_suffix(dot).unwrap_or(url).parse()?, ending))
            }
            _ if bytes.starts_with(MARK) => {
                let dot = if ending == Ending::Contents { b".".as_slice() } else { b"" };
                let path = bytes.strip_suffix(dot).unwrap_or(bytes);
                tree_path(OsStr::from_bytes(path)).map(|path| Self::Tree(path, ending))
            }
            _ => Ok(Self::Local(PathBuf::from(text), ending)),
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
    fn a_path_may_begin_in_a_directory_and_then_dots_are_names_away() {
        let base = RelPath::new("a/b").expect("a path");
        for (path, whole) in [
            ("c", "/a/b/c"),
            ("c/", "/a/b/c/"),
            (".", "/a/b"),
            ("./c", "/a/b/c"),
            ("..", "/a"),
            ("../..", "/"),
            ("../../../c", "/c"),
            ("c//d", "/a/b/c//d"),
        ] {
            assert_eq!(String::from_utf8_lossy(&from_base(&base, path.as_bytes())), whole, "{path}");
        }
    }

    #[test]
    fn a_slash_at_the_end_asks_for_a_directory() {
        let read = |text: &str| TreePath::read(OsStr::new(text)).expect("a good path");
        for (text, kind, good) in [
            ("/a", Kind::File, true),
            ("/a", Kind::Directory, true),
            ("/a/", Kind::Directory, true),
            ("/a/", Kind::File, false),
            ("/a/", Kind::Symlink, false),
            ("weft:/a/b/", Kind::Fifo, false),
            ("/", Kind::Directory, true),
        ] {
            let checked = read(text).check(kind).map_err(|e| e.kind());
            assert_eq!(checked, if good { Ok(()) } else { Err(ErrorKind::NotDirectory) }, "{text} {kind:?}");
        }
    }

    #[test]
    fn only_the_mark_makes_a_path_of_the_tree_for_copying() {
        let side = |text: &str| Side::parse(&OsString::from(text)).expect("a good path");
        assert!(matches!(side("weft:/a"), Side::Tree(_, Ending::Name)));
        assert!(matches!(side("/a"), Side::Local(_, Ending::Name)));
        assert!(matches!(side("-"), Side::Standard));
        assert!(matches!(side("./-"), Side::Local(_, Ending::Name)));
    }

    #[test]
    fn the_end_of_a_path_to_copy_says_whether_a_directory_or_what_is_in_it_is_meant() {
        let ending = |text: &str| match Side::parse(&OsString::from(text)).expect("a good path") {
            Side::Tree(path, ending) => (format!("weft:{}", show(&path)), ending),
            Side::Local(path, ending) => (path.display().to_string(), ending),
            Side::Standard | Side::Server(..) => panic!("{text}"),
        };
        for (text, path, expected) in [
            ("weft:/a/", "weft:/a", Ending::Slash),
            ("weft:/a/.", "weft:/a", Ending::Contents),
            ("weft:/.", "weft:/", Ending::Contents),
            ("weft:/", "weft:/", Ending::Slash),
            ("weft:/a.", "weft:/a.", Ending::Name),
            ("a/", "a/", Ending::Slash),
            ("a/.", "a/.", Ending::Contents),
            (".", ".", Ending::Contents),
            ("..", "..", Ending::Contents),
            ("..a", "..a", Ending::Name),
        ] {
            assert_eq!(ending(text), (path.to_owned(), expected), "{text}");
        }
        assert!(Side::parse(&OsString::from("weft:/a/..")).is_err());
    }
}
