//! What an ACL says, right by right.

use super::{Acl, AclEntry, Circumstance, Constraint, Effect, Subject};
use crate::rights::{RIGHTS_COUNT, Rights};

/// What settled one right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// No entry gives it.
    NoEntry,
    /// The entry with this index gives it.
    Allowed(u16),
    /// The entry with this index withholds it.
    Withheld(u16),
    /// The credential was narrowed and does not carry it.
    Narrowed,
    /// It was taken away after the ACL gave it: by the file's mode bits.
    Mode,
}

impl Because {
    /// Says why rights are refused. `inside` says whether the credential's paths leave them; all
    /// rights stand for any one.
    pub fn refusal(self, missing: Rights, inside: bool) -> String {
        let named = |any: &str| if missing == Rights::ALL { any.to_owned() } else { missing.to_string() };
        match self {
            Self::Mode if !inside => {
                format!("the credential is limited to other paths ({})", named("every right"))
            }
            Self::Mode => format!("the mode bits withhold {}", named("every right")),
            Self::Narrowed => format!("the credential is narrowed and lacks {}", named("every right")),
            Self::Withheld(_) => {
                format!("an entry of the container's ACL withholds {}", named("every right"))
            }
            Self::NoEntry | Self::Allowed(_) => {
                format!("no entry of the container's ACL gives {}", named("any right"))
            }
        }
    }

    /// Says what settled one right. `inside` says whether the credential's paths leave it, `entry`
    /// what of an entry may be told.
    pub fn words(self, right: Rights, inside: bool, entry: impl Fn(u16) -> String) -> String {
        match self {
            Self::NoEntry => format!("{right}: no entry gives it"),
            Self::Allowed(index) => format!("{right}: {} gives it", entry(index)),
            Self::Withheld(index) => format!("{right}: {} withholds it", entry(index)),
            Self::Narrowed => format!("{right}: the credential was narrowed and does not carry it"),
            Self::Mode if !inside => format!("{right}: the credential is limited to other paths"),
            Self::Mode => format!("{right}: the mode bits withhold it"),
        }
    }
}

/// What an ACL says of some rights for somebody: an explanation, of which nothing can be issued.
#[derive(Clone, Debug)]
pub struct Settled {
    asked: Rights,
    allowed: Rights,
    because: [Because; RIGHTS_COUNT],
    constraints: Vec<Constraint>,
}

impl Settled {
    /// Returns the rights that were asked for.
    pub fn asked(&self) -> Rights {
        self.asked
    }

    /// Returns those of the asked rights that are allowed.
    pub fn allowed(&self) -> Rights {
        self.allowed
    }

    /// Returns the conditions it leaned on.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Returns what settled one right (the lowest, if several are given).
    pub fn because(&self, right: Rights) -> Because {
        right.each().next().map_or(Because::NoEntry, |(bit, _)| self.because[bit])
    }

    /// Takes away what the file's mode bits do not leave (see [`super::narrow`]).
    #[must_use]
    pub fn narrowed(mut self, left: Rights) -> Self {
        for (bit, right) in (self.allowed - left).each() {
            self.because[bit] = Because::Mode;
            self.allowed = self.allowed - right;
        }
        self
    }

    /// Leans on more conditions.
    pub(super) fn under(mut self, constraints: Vec<Constraint>) -> Self {
        self.constraints.extend(constraints);
        self
    }

    /// Puts `by` in the place of what was asked: all of it if all was allowed, else nothing, under
    /// every condition that was leaned on.
    pub(super) fn carried_out(mut self, by: Rights) -> Self {
        let because = self.because(self.asked);
        let whole = self.allowed == self.asked;
        self.because = [Because::NoEntry; RIGHTS_COUNT];
        for (bit, _) in by.each() {
            self.because[bit] = because;
        }
        for constraint in &mut self.constraints {
            constraint.rights = by;
        }
        (self.asked, self.allowed) = (by, if whole { by } else { Rights::NONE });
        self
    }

    /// Unconditional entries free the rights they give from any constraint that an
    /// earlier, conditional one put on them.
    fn allow(&mut self, index: usize, entry: &AclEntry, who: &Subject<'_>, at: &Circumstance) {
        if !entry.when.iter().all(|c| c.holds(who, at)) {
            return;
        }
        let given = entry.rights & self.asked;
        let fresh = given - self.allowed;
        for (bit, _) in fresh.each() {
            self.because[bit] = Because::Allowed(index as u16);
        }
        self.allowed |= given;
        if entry.when.is_empty() {
            for constraint in &mut self.constraints {
                constraint.rights = constraint.rights - given;
            }
            for (bit, _) in given.each() {
                if let Because::Allowed(by) = &mut self.because[bit] {
                    *by = index as u16;
                }
            }
        } else if !fresh.is_empty() {
            self.constraints.push(Constraint {
                rights: fresh,
                conditions: entry.when.clone(),
                must_hold: true,
            });
        }
    }

    fn deny(&mut self, index: usize, entry: &AclEntry, who: &Subject<'_>, at: &Circumstance) {
        let rights = entry.rights & self.asked;
        if entry.when.iter().all(|c| c.holds(who, at)) {
            self.allowed = self.allowed - rights;
            for (bit, _) in rights.each() {
                self.because[bit] = Because::Withheld(index as u16);
            }
        } else {
            self.constraints.push(Constraint { rights, conditions: entry.when.clone(), must_hold: false });
        }
    }

    fn narrow(&mut self, lost: Rights) {
        for (bit, right) in (self.allowed & lost).each() {
            self.because[bit] = Because::Narrowed;
            self.allowed = self.allowed - right;
        }
    }
}

/// Says what of the asked rights an ACL gives somebody, and what settles each: what
/// [`super::decide`] decides, without a proof of who is asking.
///
/// Pure: the same arguments always give the same answer, and nothing is recorded.
pub fn explain(acl: &Acl, who: &Subject<'_>, asked: Rights, at: &Circumstance) -> Settled {
    let because = [Because::NoEntry; RIGHTS_COUNT];
    let mut settled = Settled { asked, allowed: Rights::NONE, because, constraints: Vec::new() };
    let speaking =
        || acl.entries.iter().enumerate().filter(|(_, e)| e.rights.intersects(asked) && e.who.matches(who));
    for (index, entry) in speaking().filter(|(_, e)| e.effect == Effect::Allow) {
        settled.allow(index, entry, who, at);
    }
    for (index, entry) in speaking().filter(|(_, e)| e.effect == Effect::Deny) {
        settled.deny(index, entry, who, at);
    }
    settled.narrow(asked - who.rights_at(at));
    let allowed = settled.allowed;
    settled.constraints.retain(|c| c.rights.intersects(allowed));
    settled
}
