//! POSIX mode bits: stored and shown so that tar, git and make work. They narrow what
//! the ACL gives and never widen it.

use serde::{Deserialize, Serialize};

use super::Subject;
use crate::attr::{Kind, SetAttr, SetTime};
use crate::id::CallerId;
use crate::rights::Rights;

/// How a container reads mode bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modes {
    /// As AFS does: only the owner's three bits count, for everybody.
    #[default]
    Owner,
    /// As POSIX does: owner's, group's or others' bits, by who the caller is.
    Classes,
}

impl Modes {
    /// Returns whether a change of attributes of a file whose mode is `was` is for the owner alone, and for who may
    /// change the ACL, whatever rights others have.
    pub fn leave_to_owner(self, was: u16, set: &SetAttr) -> bool {
        let times = [set.atime, set.mtime];
        let sets_time = times.iter().any(|time| matches!(time, Some(SetTime::At(_))));
        let one_now = times.contains(&Some(SetTime::Now)) && times.contains(&None);
        let mode = set.mode.is_some_and(|mode| !drops_set_id(was, mode));
        sets_time || (self == Self::Classes && (mode || one_now))
    }

    /// Returns the rights that a change of attributes needs of others than the owner, beyond those it needs anyway.
    /// POSIX lets those who may write a file say that it was used now (`utimensat`, "Errors").
    pub fn need_of_others(self, kind: Kind, set: &SetAttr) -> Rights {
        let uses_now = [set.atime, set.mtime].contains(&Some(SetTime::Now));
        match kind {
            _ if self == Self::Owner || !uses_now => Rights::NONE,
            Kind::Directory => Rights::INSERT,
            _ => Rights::WRITE,
        }
    }
}

/// Returns whether a mode differs from what it was in set-id bits that it lacks, and in nothing else: a
/// write takes them away, whoever's it is.
fn drops_set_id(was: u16, mode: u16) -> bool {
    const SET_ID: u16 = 0o6000;
    let dropped = was & !mode;
    mode != was && mode & !was == 0 && dropped & !SET_ID == 0
}

/// What of a file decides which of its mode bits speak of a caller.
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    /// The file's kind: the same bit means different rights on a directory.
    pub kind: Kind,
    /// The mode's lower 12 bits.
    pub mode: u16,
    /// The file's owner.
    pub owner: CallerId,
    /// The file's group.
    pub group: CallerId,
}

/// Returns the rights that a file's mode bits leave to somebody.
pub fn narrow(modes: Modes, file: &Owned, who: &Subject<'_>) -> Rights {
    let shift = match modes {
        Modes::Owner => 6,
        Modes::Classes if who.name().id() == file.owner => 6,
        Modes::Classes if who.is_or_is_in(file.group) => 3,
        Modes::Classes => 0,
    };
    let bits = file.mode >> shift;
    let mut left = Rights::ALL - governed(file.kind);
    for (bit, rights) in [(4, read_bit(file.kind)), (2, write_bit(file.kind)), (1, execute_bit(file.kind))] {
        if bits & bit != 0 {
            left |= rights;
        }
    }
    left
}

/// The rights that mode bits speak of at all.
fn governed(kind: Kind) -> Rights {
    read_bit(kind) | write_bit(kind) | execute_bit(kind)
}

fn read_bit(kind: Kind) -> Rights {
    match kind {
        Kind::Directory => Rights::LIST,
        Kind::File | Kind::Fifo => Rights::READ,
        Kind::Symlink | Kind::Reference => Rights::NONE,
    }
}

fn write_bit(kind: Kind) -> Rights {
    match kind {
        Kind::Directory => Rights::INSERT | Rights::REMOVE | Rights::RENAME,
        Kind::File | Kind::Fifo => Rights::WRITE | Rights::APPEND,
        Kind::Symlink | Kind::Reference => Rights::NONE,
    }
}

fn execute_bit(kind: Kind) -> Rights {
    match kind {
        Kind::Directory => Rights::TRAVERSE,
        Kind::File => Rights::EXECUTE,
        Kind::Fifo | Kind::Symlink | Kind::Reference => Rights::NONE,
    }
}
