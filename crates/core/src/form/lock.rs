//! Locks (request-form law 9).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::time::Deadline;

/// Whether others may hold the same kind at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Any number of shared locks may overlap.
    Shared,
    /// Overlaps with no other owner's lock.
    Exclusive,
}

/// A range of bytes. `length` 0 means to the end, however far that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub at: u64,
    /// How many; 0 is all the rest.
    pub length: u64,
}

impl LockRange {
    /// Returns the byte after the last; `u64::MAX` if there is no last.
    pub fn end(self) -> u64 {
        if self.length == 0 { u64::MAX } else { self.at.saturating_add(self.length) }
    }

    /// Returns whether the two share a byte.
    pub fn overlaps(self, other: Self) -> bool {
        self.at < other.end() && other.at < self.end()
    }
}

/// What is locked. The two scopes do not see each other, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockScope {
    /// A range of bytes, as `fcntl` locks: splits and merges.
    Range(LockRange),
    /// The whole open file, as `flock` locks.
    Whole,
}

/// Who holds a lock within a session: 0 to 1 024 bytes that only mean something there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockOwner(pub Bytes);

/// A lock, wanted or held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// What of the file.
    pub scope: LockScope,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Whose, within the call's session.
    pub owner: LockOwner,
}

/// Whether to wait for a lock that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No: `Locked` at once.
    No,
    /// Until then (at most one slice of 30 s; ask again to go on), then `Locked`.
    /// `Deadlock` if waiting could never end.
    Until(Deadline),
}
