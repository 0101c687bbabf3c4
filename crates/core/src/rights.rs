//! Rights: one bit for each operation a caller may be allowed.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A set of rights.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(u32);

macro_rules! rights {
    ($($(#[$doc:meta])* $konst:ident = $bit:literal, $text:literal;)*) => {
        impl Rights { $( $(#[$doc])* pub const $konst: Self = Self(1 << $bit); )* }
        /// Every right with its name, in bit order.
        const NAMED: &[(Rights, &str)] = &[$((Rights::$konst, $text)),*];
    };
}

rights! {
    /// Read a file's bytes.
    READ = 0, "read";
    /// Overwrite or truncate a file's bytes.
    WRITE = 1, "write";
    /// Add to a file's end.
    APPEND = 2, "append";
    /// List a directory's names.
    LIST = 3, "list";
    /// Look one exact name up without listing.
    TRAVERSE = 4, "traverse";
    /// Make a name in a directory.
    INSERT = 5, "insert";
    /// Remove a name from a directory.
    REMOVE = 6, "remove";
    /// Change a name within its container.
    RENAME = 7, "rename";
    /// Take locks.
    LOCK = 8, "lock";
    /// See attributes.
    ATTR_READ = 9, "attr-read";
    /// Change attributes.
    ATTR_WRITE = 10, "attr-write";
    /// See the container's ACL.
    ACL_READ = 11, "acl-read";
    /// Change the container's ACL, and split it.
    ACL_WRITE = 12, "acl-write";
    /// Run a file as a program, or a derived file's recipe.
    EXECUTE = 13, "execute";
    /// Move bytes to another store.
    MIGRATE = 14, "migrate";
    /// Read the audit records of the container.
    AUDIT_READ = 15, "audit-read";
    /// Charge a lot.
    LOT = 16, "lot";
    /// Scrub, sweep and repair: what a node does to its own stores.
    MAINTAIN = 17, "maintain";
}

/// How many rights there are.
pub const RIGHTS_COUNT: usize = NAMED.len();

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Every right.
    pub const ALL: Self = Self((1 << RIGHTS_COUNT as u32) - 1);
    /// The familiar set `read`: look around and read.
    pub const READING: Self = Self(
        Self::READ.0 | Self::LIST.0 | Self::TRAVERSE.0 | Self::ATTR_READ.0 | Self::LOCK.0 | Self::EXECUTE.0,
    );
    /// The familiar set `write`: everything of `read`, and change what is there.
    pub const WRITING: Self = Self(
        Self::READING.0
            | Self::WRITE.0
            | Self::APPEND.0
            | Self::INSERT.0
            | Self::REMOVE.0
            | Self::RENAME.0
            | Self::ATTR_WRITE.0,
    );

    /// Returns whether every right of `other` is here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any right of `other` is here.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether there is no right here.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the bits; bit numbers are fixed for good.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Makes a set of bits; unknown bits are dropped.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns each single right here, with its bit number, lowest first.
    pub fn each(self) -> impl Iterator<Item = (usize, Self)> {
        NAMED
            .iter()
            .enumerate()
            .filter(move |(_, (right, _))| self.contains(*right))
            .map(|(i, (right, _))| (i, *right))
    }

    /// Reads rights as people write them: names, or the sets `read`, `write`, `all`,
    /// `none`, joined by commas; or AFS letters out of `rlidwka`. A set's name stands
    /// for the whole set; the single rights of those names are `=read` and `=write`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut rights = Self::NONE;
        for word in text.split(',').map(str::trim) {
            rights |= Self::word(word)?;
        }
        Ok(rights)
    }

    fn word(word: &str) -> Result<Self> {
        let single = word.strip_prefix('=').unwrap_or(word);
        let set = match word {
            "read" => Some(Self::READING),
            "write" => Some(Self::WRITING),
            "all" => Some(Self::ALL),
            "none" => Some(Self::NONE),
            _ => NAMED.iter().find(|(_, name)| *name == single).map(|(right, _)| *right),
        };
        set.or_else(|| Self::afs_letters(word)).ok_or_else(|| {
            Error::invalid(format!("`{word}` is no right")).hint(
                "rights are `read`, `write`, `all`, single ones such as `insert`, or AFS letters `rlidwka`",
            )
        })
    }

    fn afs_letters(word: &str) -> Option<Self> {
        if word.is_empty() {
            return None;
        }
        word.chars().try_fold(Self::NONE, |rights, letter| {
            let more = match letter {
                'r' => Self::READ | Self::EXECUTE,
                'l' => Self::LIST | Self::TRAVERSE | Self::ATTR_READ,
                'i' => Self::INSERT,
                'd' => Self::REMOVE | Self::RENAME,
                'w' => Self::WRITE | Self::APPEND | Self::ATTR_WRITE,
                'k' => Self::LOCK,
                'a' => Self::ACL_READ | Self::ACL_WRITE,
                _ => return None,
            };
            Some(rights | more)
        })
    }
}

impl BitOr for Rights {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Rights {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Rights {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Rights {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Not for Rights {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, name) in
            [(Self::ALL, "all"), (Self::WRITING, "write"), (Self::READING, "read"), (Self::NONE, "none")]
        {
            if *self == set {
                return f.write_str(name);
            }
        }
        for (place, (_, right)) in self.each().enumerate() {
            let name = NAMED.iter().find(|(r, _)| *r == right).map_or("", |(_, name)| *name);
            // A single right that shares its name with a set is marked, so that what
            // is printed reads back as the same rights.
            let mark = if matches!(name, "read" | "write") { "=" } else { "" };
            write!(f, "{}{mark}{name}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_up_to_three_rights_reads_back_as_printed() {
        for a in 0..RIGHTS_COUNT {
            for b in 0..RIGHTS_COUNT {
                let set = Rights::from_bits(1 << a | 1 << b | 1);
                assert_eq!(Rights::parse(&set.to_string()).expect("it was just printed"), set);
            }
        }
        for set in [Rights::ALL, Rights::NONE, Rights::READING, Rights::WRITING, Rights::READ, Rights::WRITE]
        {
            assert_eq!(Rights::parse(&set.to_string()).expect("it was just printed"), set);
        }
    }

    #[test]
    fn afs_letters_are_read() {
        assert_eq!(Rights::parse("rl").expect("letters"), Rights::READING - Rights::LOCK);
        assert!(Rights::parse("rx").is_err());
        assert!(Rights::parse("").is_err());
    }
}
