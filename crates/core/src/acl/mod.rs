//! Access control lists: who may do what in a container, under which conditions.
//!
//! Deciding is pure ([`decide`]): an ACL, a [`Caller`](crate::proof::Caller) and what
//! is asked go in, a [`Decision`] comes out, which knows for each right the entry
//! that settled it. `weft why` shows that same value; there is no second opinion. For
//! somebody who is not asking it is [`explain`]ed by the code that [`decide`] itself
//! uses; what comes of that proves nothing, and nothing can be issued of it.
//!
//! Rules, in order: no entry, no right; an entry whose conditions do not hold is not
//! there; a negative entry wins over any positive one; what a credential was narrowed
//! to, it stays narrowed to.
//!
//! How to get it wrong: let a capability outlive the condition that granted it. So
//! every condition that a decision leaned on, and every condition that would turn a
//! sleeping negative entry on, travels in the decision as a [`Constraint`].

mod condition;
mod decide;
mod modes;
mod settled;
mod subject;
mod text;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use condition::{Circumstance, Condition, Constraint, Network};
pub use decide::{Ask, Decision, Stored, Upon, decide};
pub use modes::{Modes, Owned, narrow};
pub use settled::{Because, Settled, explain};
pub use subject::Subject;
pub use text::Edited;

use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::id::DomainId;
use crate::limits;
use crate::rights::Rights;

/// Whom an entry speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// One caller, or everyone in one group.
    Caller(CallerName),
    /// Every caller that a domain vouches for.
    Domain(DomainId),
    /// Everybody, with or without credential.
    Anyone,
}

impl Who {
    /// Returns whether the entry speaks of them.
    pub fn matches(&self, who: &Subject<'_>) -> bool {
        match self {
            Self::Caller(name) => who.is_or_is_in(name.id()),
            Self::Domain(domain) => who.name().domain() == Some(*domain),
            Self::Anyone => true,
        }
    }

    /// Reads whom people mean: a caller's name as [`CallerName::parse`] reads it, `domain:ID` or
    /// `anyone`. Fails with `Invalid`.
    pub fn parse(text: &str, home: DomainId) -> Result<Self> {
        match text.strip_prefix("domain:") {
            Some(domain) => Ok(Self::Domain(domain.parse()?)),
            None if text == "anyone" => Ok(Self::Anyone),
            None => CallerName::parse(text, home).map(Self::Caller).map_err(|error| error.about(text)),
        }
    }

    /// Shows them as someone of `home` would write it: a caller's domain only if foreign.
    pub fn seen_from(&self, home: DomainId) -> String {
        match self {
            Self::Caller(name) => name.seen_from(home),
            Self::Domain(_) | Self::Anyone => self.to_string(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller(name) => name.fmt(f),
            Self::Domain(domain) => write!(f, "domain:{domain}"),
            Self::Anyone => f.write_str("anyone"),
        }
    }
}

/// What an entry does with its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Gives them.
    Allow,
    /// Withholds them, whatever other entries give.
    Deny,
}

impl Effect {
    /// Returns the word for it: `allow` or `deny`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// One line of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclEntry {
    /// Whom it speaks of.
    pub who: Who,
    /// Whether it gives or withholds.
    pub effect: Effect,
    /// The rights given or withheld.
    pub rights: Rights,
    /// All of these must hold; none means always.
    pub when: Vec<Condition>,
}

/// Whom it speaks of, its rights and its conditions.
impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.who, self.rights)?;
        for (place, condition) in self.when.iter().enumerate() {
            write!(f, " {} {condition}", if place == 0 { "when" } else { "and" })?;
        }
        Ok(())
    }
}

impl AclEntry {
    /// Returns an entry that gives `rights` to `who`, always.
    pub fn allow(who: Who, rights: Rights) -> Self {
        Self { who, effect: Effect::Allow, rights, when: Vec::new() }
    }

    /// Returns an entry that withholds `rights` from `who`, always.
    pub fn deny(who: Who, rights: Rights) -> Self {
        Self { who, effect: Effect::Deny, rights, when: Vec::new() }
    }

    /// Returns whether the entry lets everybody pass, whenever another gives them anything.
    pub fn gives_way_to(&self, other: &Self) -> bool {
        self.effect == Effect::Allow
            && (self.who == other.who || self.who == Who::Anyone)
            && self.rights.contains(Rights::TRAVERSE)
            && (self.when.is_empty() || self.when == other.when)
    }
}

/// The ACL of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    /// Rises by one with every change; caches of decisions compare it.
    pub version: u64,
    /// The entries. Their order means nothing but is kept for the reader.
    pub entries: Vec<AclEntry>,
}

impl Acl {
    /// Returns an ACL at version 0 with these entries.
    pub fn new(entries: Vec<AclEntry>) -> Self {
        Self { version: 0, entries }
    }

    /// Names an entry by its place and in words.
    pub fn words(&self, index: u16) -> Option<String> {
        self.entries.get(usize::from(index)).map(|entry| format!("entry {index} ({entry})"))
    }

    /// Checks that the ACL may be stored: within its bounds, and with somebody left
    /// who may change it, unconditionally. Fails with `TooLarge` or `Invalid`.
    pub fn check(&self) -> Result<()> {
        let large = self.entries.len() > limits::ACL_ENTRIES_MAX
            || self.entries.iter().any(|e| e.when.len() > limits::ACL_CONDITIONS_MAX);
        if large {
            return Err(Error::new(ErrorKind::TooLarge, "an ACL has at most 256 entries of 8 conditions"));
        }
        // Shown alike, and one of them speaks of nobody who has a name.
        if self.entries.iter().any(|e| matches!(&e.who, Who::Caller(name) if name.is_anyone())) {
            return Err(Error::invalid("an entry for everybody is no entry for a caller of no name"));
        }
        let kept = self.entries.iter().any(|entry| {
            entry.effect == Effect::Allow
                && entry.rights.contains(Rights::ACL_WRITE)
                && entry.when.is_empty()
                && !self.denied_for_good(&entry.who)
        });
        if kept { Ok(()) } else { Err(Error::invalid("the edit would leave nobody who may change the ACL")) }
    }

    /// Returns the entries that give somebody something which no entry of `old` gave them so.
    pub fn gained_over(&self, old: &Self) -> Vec<AclEntry> {
        let had = |new: &AclEntry| {
            let same = |e: &&AclEntry| e.effect == Effect::Allow && e.who == new.who && e.when == new.when;
            old.entries.iter().filter(same).any(|e| e.rights.contains(new.rights))
        };
        let gives = |e: &&AclEntry| e.effect == Effect::Allow && !e.rights.is_empty();
        self.entries.iter().filter(gives).filter(|e| !had(e)).cloned().collect()
    }

    /// Returns this ACL with `traverse` for everybody whom the entries `below` give anything and
    /// who lacks it here; `None` if nobody does. Fails with `TooLarge` if they are too many.
    pub fn with_way_to(&self, below: &[AclEntry]) -> Result<Option<Self>> {
        let mut mended = self.clone();
        for entry in below {
            if !mended.entries.iter().any(|there| there.gives_way_to(entry)) {
                mended.entries.push(AclEntry { rights: Rights::TRAVERSE, ..entry.clone() });
            }
        }
        if mended.entries.len() == self.entries.len() {
            return Ok(None);
        }
        mended.version += 1;
        mended.check()?;
        Ok(Some(mended))
    }

    /// Whether some entry withholds `acl-write` from exactly `who`, or from everybody.
    fn denied_for_good(&self, who: &Who) -> bool {
        self.entries.iter().any(|entry| {
            entry.effect == Effect::Deny
                && entry.rights.contains(Rights::ACL_WRITE)
                && (entry.who == *who || entry.who == Who::Anyone)
        })
    }
}
