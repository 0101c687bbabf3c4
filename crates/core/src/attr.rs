//! Attributes: what `stat` shows, what may be set, and what stood before and after.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{CallerId, ContainerId, FileId};
use crate::limits;
use crate::time::Time;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe: kept and shown; the bytes pass through the mounting kernel.
    Fifo,
    /// An entry that refers to something that is no file (request-form law 20).
    Reference,
}

/// A file's version: opaque, compared for equality only. Two equal versions of one
/// file have equal bytes, whatever crashed in between (request-form law 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version(pub u128);

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Which inode.
    pub id: FileId,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, set-id bits and sticky bit: the lower 12 bits of POSIX's mode.
    pub mode: u16,
    /// How many names it has; for a directory 2 and its subdirectories.
    pub links: u32,
    /// Who owns it.
    pub owner: CallerId,
    /// The group that mode bits speak of.
    pub group: CallerId,
    /// Bytes in a file, entries in a directory, bytes in a symbolic link's target.
    pub size: u64,
    /// Bytes of storage it takes.
    pub used: u64,
    /// When it was last read, as far as somebody says so: reading does not write.
    pub atime: Time,
    /// When its bytes or names last changed.
    pub mtime: Time,
    /// When anything of it last changed.
    pub ctime: Time,
    /// When it was made.
    pub btime: Time,
    /// The version of its bytes.
    pub version: Version,
    /// Rises with every change of anything of it.
    pub change: u64,
    /// The container whose policy governs it.
    pub container: ContainerId,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// This time: needs the owner, as POSIX says.
    At(Time),
}

impl SetTime {
    /// Returns the time that is set by a change made at `now`.
    pub fn at(self, now: Time) -> Time {
        match self {
            Self::Now => now,
            Self::At(time) => time,
        }
    }
}

/// Attributes to set; those that are `None` stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    /// New mode bits (lower 12 bits).
    pub mode: Option<u16>,
    /// New owner.
    pub owner: Option<CallerId>,
    /// New group.
    pub group: Option<CallerId>,
    /// New size of a file: cut or extended with zeros.
    pub size: Option<u64>,
    /// New time of last reading.
    pub atime: Option<SetTime>,
    /// New time of last change of bytes.
    pub mtime: Option<SetTime>,
}

impl SetAttr {
    /// Returns whether nothing is to be set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Weak cache consistency: what NFS wants of an inode from just before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Size.
    pub size: u64,
    /// Time of last change of bytes or names.
    pub mtime: Time,
    /// Time of last change of anything.
    pub ctime: Time,
    /// Change counter.
    pub change: u64,
}

impl From<&Attr> for Before {
    fn from(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime, change: attr.change }
    }
}

/// An inode just before and just after a change, both read inside its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wcc {
    /// Before; `None` if the change made it.
    pub before: Option<Before>,
    /// After; `None` if the change ended it.
    pub after: Option<Attr>,
}

/// The outcome of a change, with the inode and up to two parents before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed<T> {
    /// What the operation answers.
    pub value: T,
    /// The inode that changed.
    pub file: Wcc,
    /// The directories that changed: source (or only) parent, then target parent.
    pub parents: [Option<Wcc>; 2],
}

/// The name of a user attribute: 1 to 255 bytes without NUL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct TagName(Bytes);

impl TagName {
    /// Checks and makes a name. Fails with `Invalid` or `TooLong`.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.len() > limits::TAG_NAME_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "an attribute's name has at most 255 bytes"));
        }
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(Error::invalid("an attribute's name is neither empty nor contains NUL"));
        }
        Ok(Self(bytes))
    }

    /// Returns the name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Bytes> for TagName {
    type Error = Error;
    fn try_from(bytes: Bytes) -> Result<Self> {
        Self::new(bytes)
    }
}

impl From<TagName> for Bytes {
    fn from(name: TagName) -> Self {
        name.0
    }
}

/// One change of a user attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TagEdit {
    /// Gives it a value (at most 60 KiB).
    Put {
        /// Its name.
        name: TagName,
        /// Its value.
        value: Bytes,
        /// What must be true before.
        must: TagMust,
    },
    /// Removes it; `NoAttribute` if it is not there.
    Remove(TagName),
}

/// What must be true of a user attribute before it is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TagMust {
    /// Nothing.
    Any,
    /// It is not there (else `Exists`).
    BeNew,
    /// It is there (else `NoAttribute`).
    Exist,
}
