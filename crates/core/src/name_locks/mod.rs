//! Locks of names: WebDAV's write locks (RFC 4918, 6 and 7), which outlive connections and are shown
//! by tokens. They bind whoever changes names and files by such tokens, and nobody else: a lock of
//! a file's bytes ([`crate::form::Lock`]) does not see them, nor they it.
//!
//! A lock is of a *name*, as the RFC's lock root is: it lies where it was taken, across volumes, also
//! where nothing is yet, and does not go along when a file is renamed. Who reaches the same file by
//! another name (a hard or symbolic link) is not bound.
//!
//! Granting and checking are one table ([`NameLocks`](crate::service::NameLocks) is the role,
//! [`NameLockTable`] the rules): a change holds a [`Permit`] while it is made, and no lock is granted
//! over what a permit covers. So nobody who was told "it is yours" ever sees a change come that was
//! let through before.

mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use table::{NameLockTable, Permit};

use crate::caller::CallerName;
use crate::form::LockKind;
use crate::name::RelPath;
use crate::time::Time;

/// What a lock is shown by. Nobody can guess one; it is no proof of who shows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockToken(pub u128);

/// As a URI of the `urn:uuid` scheme (RFC 9562), which is how protocols write it.
impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let part = |shift: u32, bits: u32| (n >> shift) & ((1 << bits) - 1);
        write!(
            f,
            "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 32),
            part(80, 16),
            part(64, 16),
            part(48, 16),
            part(0, 48)
        )
    }
}

/// Not shown where things are printed for people to debug.
impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockToken(…)")
    }
}

impl LockToken {
    /// Makes the token of random bits: those that say "random UUID" are set.
    pub fn of_random(bits: u128) -> Self {
        let version = 0x4 << 76;
        let variant = 0b10 << 62;
        Self((bits & !(0xf << 76) & !(0b11 << 62)) | version | variant)
    }

    /// Reads a token as it is written; `None` if it is none of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("urn:uuid:")?;
        let mut parts = digits.split('-');
        let mut bits = 0u128;
        for length in [8, 4, 4, 4, 12] {
            let part = parts.next().filter(|part| part.len() == length)?;
            if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            bits = bits << (4 * length) | u128::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bits))
    }
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameLock {
    /// What it is shown by.
    pub token: LockToken,
    /// What was asked for.
    pub wanted: NameLockWanted,
    /// Who took it: only they may show it.
    pub holder: CallerName,
    /// When it ends unless it is refreshed.
    pub until: Time,
}

/// A lock that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameLockWanted {
    /// The name, from the root of the tree.
    pub path: RelPath,
    /// Whether everything below is locked too.
    pub deep: bool,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// What the client says of whoever holds it, for people: at most
    /// [`limits::NAME_LOCK_OWNER_BYTES_MAX`](crate::limits::NAME_LOCK_OWNER_BYTES_MAX).
    pub owner: Bytes,
    /// For how long: at most [`limits::NAME_LOCK_LASTS_MAX`](crate::limits::NAME_LOCK_LASTS_MAX).
    pub lasts: Duration,
}

impl NameLockWanted {
    /// Returns whether the lock says anything of `path` itself.
    pub fn covers(&self, path: &RelPath) -> bool {
        self.path == *path || (self.deep && path.is_within(&self.path))
    }
}

/// What a change touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What is there: bytes or attributes.
    Content,
    /// The name itself, which comes or goes: locks of its directory bind as well.
    Name,
    /// The name, and everything below it.
    Tree,
}

/// A part of the tree that a change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The name, from the root of the tree.
    pub path: RelPath,
    /// How far it goes.
    pub reach: Reach,
}

impl Touch {
    /// Returns whether a lock stands in the way of this, whoever shows what.
    fn meets(&self, lock: &NameLockWanted) -> bool {
        if lock.covers(&self.path) {
            return true;
        }
        let of_directory = self.path.split_last().is_some_and(|(directory, _)| directory == lock.path);
        match self.reach {
            Reach::Content => false,
            Reach::Name => of_directory,
            Reach::Tree => of_directory || lock.path.is_within(&self.path),
        }
    }
}
