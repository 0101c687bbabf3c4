//! How a request says what it is about.

use serde::{Deserialize, Serialize};

use crate::attr::{Attr, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::id::FileId;
use crate::name::{Name, RelPath};
use crate::time::Time;

/// What to do with a symbolic link at the end of a path. Links inside a path are
/// always followed, inside the tree (request-form law 18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Follow {
    /// The link itself is meant.
    #[default]
    Never,
    /// What it leads to is meant.
    Last,
}

/// An address: an id, and a path below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// Where to start.
    pub base: FileId,
    /// Where to go from there; empty means the base itself.
    pub path: RelPath,
    /// What to do with a symbolic link at the end.
    pub follow: Follow,
}

impl At {
    /// Returns the address of an inode itself.
    pub fn id(base: FileId) -> Self {
        Self { base, path: RelPath::EMPTY, follow: Follow::Never }
    }

    /// Returns the address of a path from the root of the tree.
    pub fn root(path: RelPath) -> Self {
        Self { base: FileId::ROOT, path, follow: Follow::Never }
    }

    /// Returns the address of one name in a directory.
    pub fn name(base: FileId, name: Name) -> Self {
        Self { base, path: name.into(), follow: Follow::Never }
    }

    /// Returns this address with a symbolic link at its end followed.
    #[must_use]
    pub fn following(mut self) -> Self {
        self.follow = Follow::Last;
        self
    }
}

/// As people write it: `/a/b` from the root of the tree, else the id and what is below it.
impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.base == FileId::ROOT, self.path.is_empty()) {
            (true, _) => write!(f, "/{}", self.path),
            (false, true) => self.base.fmt(f),
            (false, false) => write!(f, "{}/{}", self.base, self.path),
        }
    }
}

/// Where a listing goes on (request-form law 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cursor {
    /// At the start, in stored order.
    Start,
    /// After the entry with this cookie, in stored order.
    Cookie(u64),
    /// At the start, in name order (byte order).
    ByName,
    /// After this name, in name order.
    After(Name),
}

/// What must be true of a file's version. Two files may have equal versions: whoever has seen one file
/// and means that one asks for [`VersionIs::Exactly`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VersionIs {
    /// It is this one.
    Is(Version),
    /// It is not this one (nothing being there is fine).
    IsNot(Version),
    /// Nothing is there.
    Absent,
    /// Something is there, whatever version.
    Present,
    /// It is this file, at this version.
    Exactly(FileId, Version),
}

/// What must be true for a change to be made, tested inside its transaction; else
/// `Precondition`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Of the target's version.
    pub version: Option<VersionIs>,
    /// Of the target's change time.
    pub ctime: Option<Time>,
}

impl Guard {
    /// No condition.
    pub const NONE: Self = Self { version: None, ctime: None };

    /// Judges what is there, or that nothing is. Fails with `Precondition`.
    pub fn judge(&self, there: Option<&Attr>) -> Result<()> {
        let failed = |detail: &'static str| Err(Error::new(ErrorKind::Precondition, detail));
        let version = there.map(|attr| attr.version);
        let holds = match self.version {
            None => true,
            Some(VersionIs::Is(wanted)) => version == Some(wanted),
            Some(VersionIs::IsNot(unwanted)) => version != Some(unwanted),
            Some(VersionIs::Absent) => version.is_none(),
            Some(VersionIs::Present) => version.is_some(),
            Some(VersionIs::Exactly(file, wanted)) => {
                there.is_some_and(|attr| (attr.id, attr.version) == (file, wanted))
            }
        };
        if !holds {
            return failed("the target's version is not what the guard says");
        }
        if self.ctime.is_some() && self.ctime != there.map(|attr| attr.ctime) {
            return failed("the target has changed since the time the guard says");
        }
        Ok(())
    }
}

/// What `rename` may do to an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replace {
    /// Nothing: `Exists`.
    Never,
    /// Replace it, as POSIX `rename` does.
    Any,
    /// Swap the two; both must exist.
    Exchange,
}

/// What `remove` expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// An empty directory, else `NotDirectory` or `NotEmpty`.
    Directory,
    /// Anything but a directory, else `IsDirectory`.
    NotDirectory,
    /// Anything; a directory must be empty.
    Any,
}
