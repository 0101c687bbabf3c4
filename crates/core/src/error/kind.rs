//! Why something fails: the one table of kinds, and what can be done about each.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($kind:ident = $number:literal, $name:literal, $meaning:literal;)*) => {
        /// Why something failed. Append-only: numbers travel on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum ErrorKind { $( #[doc = $meaning] $kind = $number, )* }

        impl ErrorKind {
            /// Every kind, in numeric order: tables and their tests go over this.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$kind),*];

            /// Returns the kind's fixed lower-case name, as logs, JSON and audit records show it.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$kind => $name, )* }
            }

            /// Returns what it says, as one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$kind => $meaning, )* }
            }
        }
    };
}

kinds! {
    NotFound = 0, "not-found", "The thing does not exist, or the caller may not know that it does.";
    Exists = 1, "exists", "A name that must be new is taken.";
    Denied = 2, "denied", "The caller lacks a right.";
    NotPermitted = 3, "not-permitted", "The act is not for this caller whatever the ACL says.";
    Unauthenticated = 4, "unauthenticated", "The caller must prove who it is first.";
    Invalid = 5, "invalid", "The request is malformed.";
    Conflict = 6, "conflict", "The act clashes with another that is under way or with present state.";
    Precondition = 7, "precondition", "A guard given with the request does not hold.";
    NotEmpty = 8, "not-empty", "A directory that must be empty is not.";
    NotDirectory = 9, "not-directory", "A directory was needed.";
    IsDirectory = 10, "is-directory", "Something other than a directory was needed.";
    CrossVolume = 11, "cross-volume", "The act would span two volumes, or two containers where that is refused.";
    TooLong = 12, "too-long", "A name or path is longer than its limit.";
    TooLarge = 13, "too-large", "A size or count is beyond its limit.";
    TooManyLinks = 14, "too-many-links", "The file has as many names as it may have.";
    Loop = 15, "loop", "Too many symbolic links in a path, or a directory moved below itself.";
    ReadOnly = 16, "read-only", "The volume or snapshot cannot be written.";
    NoAttribute = 17, "no-attribute", "There is no such user attribute.";
    NoSpace = 18, "no-space", "The store, or the container's size limit, is full.";
    NoQuota = 19, "no-quota", "A caller's or lot's share is used up.";
    Locked = 20, "locked", "Somebody else holds a conflicting lock.";
    Busy = 21, "busy", "Too much is under way; the same call may succeed later.";
    Deadlock = 22, "deadlock", "Waiting for the lock would wait for ever.";
    Stale = 23, "stale", "The id, cursor or handle names something that is gone.";
    Expired = 24, "expired", "The credential, capability or lease has run out.";
    Revoked = 25, "revoked", "The right was withdrawn.";
    Deadline = 26, "deadline", "The call's deadline passed before there was an answer.";
    Unavailable = 27, "unavailable", "The service that must answer cannot be reached or is stopping.";
    Unsupported = 28, "unsupported", "This implementation declares that it cannot do this.";
    Corrupt = 29, "corrupt", "Stored bytes do not match their checksum; they were not served.";
    Internal = 30, "internal", "A defect in Weft or an unexpected answer of the machine below it.";
}

/// Whether the same call may succeed if it is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: something else must change first.
    Never,
    /// Yes, after a pause.
    Later,
    /// Yes, after looking the thing up or logging in again.
    Afresh,
}

/// Who has to act so that the call can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Whoever made the call.
    Caller,
    /// Whoever owns the container and its ACL.
    Owner,
    /// Whoever runs the node.
    Operator,
    /// Nobody: time heals it.
    Nobody,
}

impl ErrorKind {
    /// Returns whether, and how, trying again may help.
    pub fn retry(self) -> Retry {
        match self {
            Self::Busy | Self::Locked | Self::Deadline | Self::Unavailable | Self::Conflict => Retry::Later,
            Self::Stale | Self::Expired | Self::Unauthenticated | Self::Deadlock => Retry::Afresh,
            _ => Retry::Never,
        }
    }

    /// Returns who must act before the call can succeed.
    pub fn actor(self) -> Actor {
        match self {
            Self::Denied | Self::Revoked | Self::NoQuota | Self::ReadOnly => Actor::Owner,
            Self::NoSpace | Self::Corrupt | Self::Internal | Self::Unavailable => Actor::Operator,
            Self::Busy | Self::Locked | Self::Deadline | Self::Conflict => Actor::Nobody,
            _ => Actor::Caller,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_numbers_are_their_place_in_the_list() {
        for (place, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }
}
