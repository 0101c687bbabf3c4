//! Links for people without an account.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::authority::Secret;
use crate::attr::Version;
use crate::caller::CallerName;
use crate::drop_box::DropLimits;
use crate::error::Result;
use crate::form::Origin;
use crate::id::{CallerId, FileId, LinkId};
use crate::name::RelPath;
use crate::proof::Caller;
use crate::rights::Rights;
use crate::time::Time;

/// What a link lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkGives {
    /// Read a file; of a directory, list it and read everything below it.
    Read,
    /// Drop files into a directory that is a drop-box, and nothing more.
    Insert,
}

impl LinkGives {
    /// Returns the rights that the holder may carry at most; the maker's own bound them at each use.
    pub fn rights(self) -> Rights {
        match self {
            Self::Read => Rights::READ | Rights::LIST | Rights::TRAVERSE | Rights::ATTR_READ,
            Self::Insert => Rights::INSERT,
        }
    }
}

impl fmt::Display for LinkGives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Insert => "insert",
        })
    }
}

/// What of a file is about to go out by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Whether the first byte of the file is among it.
    pub first: bool,
    /// Its bytes.
    pub bytes: u64,
    /// The bytes of the whole file.
    pub of: u64,
}

impl Portion {
    /// Of a file that comes in nothing goes out: each is a use.
    pub const DROPPED: Self = Self { first: true, bytes: 0, of: 0 };
}

/// A link to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLink {
    /// What it gives.
    pub gives: LinkGives,
    /// How long it lasts, from a second to `limits::LINK_LIFE_MAX`.
    pub life: Duration,
    /// How often it may be used, from 1 on; none is as often as one likes.
    pub count: Option<u64>,
    /// Whether it is for the version that the file has now, and ends with that.
    pub pin: bool,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// Its id: not its secret, and nothing can be read with it.
    pub id: LinkId,
    /// Who made it, as whom it reads.
    pub by: CallerName,
    /// What it is for, wherever that is by now.
    pub file: FileId,
    /// Where that was when the link was made.
    pub path: RelPath,
    /// Whether it is for a directory.
    pub is_directory: bool,
    /// What it gives.
    pub gives: LinkGives,
    /// The one version it is for, if it is for one.
    pub version: Option<Version>,
    /// When it was made.
    pub made: Time,
    /// When it ends.
    pub expires: Time,
    /// How often it may be used.
    pub count: Option<u64>,
    /// How often it was.
    pub used: u64,
    /// When it was used last.
    pub last: Option<Time>,
    /// Why it works no more, if auth knows. What became of the file and of the maker's rights on it only
    /// the volume knows.
    pub ended: Option<String>,
}

/// A link that was made, with its secret, which is told this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkGrant {
    /// The link.
    pub record: LinkRecord,
    /// Its secret.
    pub secret: Secret,
}

/// A drop-box: a directory into which people without an account put files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropBoxRecord {
    /// Where it is.
    pub path: RelPath,
    /// Its directory.
    pub file: FileId,
    /// What it takes at most.
    pub limits: DropLimits,
    /// Bytes in it, with those that are on their way.
    pub bytes: u64,
    /// Names in its directory.
    pub files: u64,
    /// Bytes that it takes just now, as to its rate.
    pub rate_left: u64,
}

/// Makes, lists and ends what people without an account may do: links and drop-boxes.
#[async_trait]
pub trait Links: Send + Sync {
    /// Makes a link to what is at a path. It reads as its maker, confined to that one thing by its id,
    /// and so never more than the maker may when it is used.
    ///
    /// Takes a credential that is not narrowed (`NotPermitted`) and the rights that the link gives
    /// (`Denied`, or `NotFound`). `Invalid` for a life or a count that is none, `TooLarge` for more links
    /// than `limits::LINKS_OWNED_MAX`.
    async fn make_link(
        &self,
        caller: &Caller,
        from: Origin,
        at: &RelPath,
        new: &NewLink,
    ) -> Result<LinkGrant>;

    /// Returns the caller's links, those that ended lately too, or everybody's (`all`, for
    /// administrators): in the order of their makers' ids and theirs, after one of them; at most 1 000.
    async fn links(
        &self,
        caller: &Caller,
        all: bool,
        after: Option<(CallerId, LinkId)>,
    ) -> Result<Vec<LinkRecord>>;

    /// Ends a link, and what is being read by it. For its maker and administrators; `NotFound` for others.
    async fn end_link(&self, caller: &Caller, id: LinkId) -> Result<LinkRecord>;

    /// Makes a directory a drop-box, or changes what one takes. Anyone may then `insert` there, and
    /// nothing more. Needs `acl-write` on it; `Unsupported` in a share.
    async fn make_drop_box(
        &self,
        caller: &Caller,
        from: Origin,
        at: &RelPath,
        limits: &DropLimits,
    ) -> Result<DropBoxRecord>;

    /// Returns the drop-boxes whose policy the caller may see.
    async fn drop_boxes(&self, caller: &Caller) -> Result<Vec<DropBoxRecord>>;

    /// Ends a drop-box: what is in it stays. Needs `acl-write` on it. `Invalid` if it is none.
    async fn end_drop_box(&self, caller: &Caller, from: Origin, at: &RelPath) -> Result<DropBoxRecord>;
}
