//! Drop-boxes: directories into which people without an account put files, and learn nothing.
//!
//! What a box takes is bounded in bytes, in files and in bytes for a time; the rules are here, pure, and
//! the volume that keeps the box carries them out in the transaction that makes the file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::acl::{Acl, AclEntry, Effect, Who};
use crate::error::{Error, Result};
use crate::id::StageId;
use crate::limits;
use crate::name::Name;
use crate::rights::Rights;
use crate::time::Time;

/// What a drop-box takes at most. All of it must be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropLimits {
    /// Bytes in it, with those that are on their way.
    pub bytes: u64,
    /// Names in its directory.
    pub files: u64,
    /// Bytes that may be dropped in each `rate_per`.
    pub rate_bytes: u64,
    /// The time that `rate_bytes` are for; from a second to `limits::DROP_RATE_PER_MAX`.
    pub rate_per: Duration,
}

impl DropLimits {
    /// Fails with `Invalid` unless each limit is one.
    pub fn check(&self) -> Result<()> {
        if self.bytes == 0 || self.files == 0 || self.rate_bytes == 0 {
            return Err(Error::invalid("a drop-box takes some bytes, some files, and some bytes in a time"));
        }
        if self.rate_per < Duration::from_secs(1) || self.rate_per > limits::DROP_RATE_PER_MAX {
            return Err(Error::invalid("the rate of a drop-box is for a time from a second to 31 days"));
        }
        Ok(())
    }
}

/// How full a drop-box is as to its rate: what was dropped runs off evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// Bytes that have not run off yet.
    pub level: u64,
    /// As of when.
    pub at: Time,
}

impl Fill {
    /// Returns an empty one.
    pub fn empty(at: Time) -> Self {
        Self { level: 0, at }
    }

    /// Returns it as it is now. A clock that was set back lets nothing run off.
    #[must_use]
    pub fn now(self, limits: &DropLimits, now: Time) -> Self {
        let (rate, per) = (u128::from(limits.rate_bytes.max(1)), limits.rate_per.as_nanos().max(1));
        let off = rate * now.since(self.at).as_nanos() / per;
        if now < self.at || off >= u128::from(self.level) {
            return Self { level: if now < self.at { self.level } else { 0 }, at: now };
        }
        // Only the time that whole bytes took: else none ever runs off for who looks often enough.
        let took = u64::try_from(off * per / rate).unwrap_or(u64::MAX);
        Self { level: self.level - off as u64, at: self.at.plus(Duration::from_nanos(took)) }
    }

    /// Returns it with more bytes in it, however many.
    #[must_use]
    pub fn and(self, limits: &DropLimits, now: Time, bytes: u64) -> Self {
        let now = self.now(limits, now);
        Self { level: now.level.saturating_add(bytes), ..now }
    }

    /// Returns it with more bytes in it; none if they are too many for now.
    pub fn with(self, limits: &DropLimits, now: Time, bytes: u64) -> Option<Self> {
        Some(self.and(limits, now, bytes)).filter(|fill| fill.level <= limits.rate_bytes)
    }
}

/// What no entry gives to whoever has proved nothing, but `insert` in a drop-box.
pub const NOT_FOR_ANYONE: Rights = Rights::from_bits(
    Rights::WRITE.bits()
        | Rights::APPEND.bits()
        | Rights::INSERT.bits()
        | Rights::REMOVE.bits()
        | Rights::RENAME.bits()
        | Rights::ATTR_WRITE.bits()
        | Rights::ACL_WRITE.bits()
        | Rights::MIGRATE.bits()
        | Rights::LOT.bits()
        | Rights::MAINTAIN.bits(),
);

/// Returns whether an entry gives something to whoever has proved nothing.
pub fn is_for_anyone(entry: &AclEntry) -> bool {
    entry.effect == Effect::Allow && entry.who == Who::Anyone
}

/// Checks what an ACL gives to whoever has proved nothing: in a drop-box `insert` and nothing more, elsewhere
/// nothing that changes anything. Fails with `Invalid`.
pub fn check_for_anyone(acl: &Acl, in_drop_box: bool) -> Result<()> {
    let given = acl.entries.iter().filter(|e| is_for_anyone(e)).fold(Rights::NONE, |all, e| all | e.rights);
    if in_drop_box {
        return match given - Rights::INSERT {
            Rights::NONE => Ok(()),
            more => Err(Error::invalid(format!("in a drop-box anyone may insert, and no more: not {more}"))
                .hint("grant it on a directory that is no drop-box")),
        };
    }
    let more = given & NOT_FOR_ANYONE;
    if more.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "anyone may put files into a drop-box, and change nothing elsewhere: not {more}"
    ))
    .hint("weft dropbox create PATH --bytes 10G --files 1000 --rate 1G/d"))
}

/// Returns the name that a dropped file gets: the one it came with, and a part of its stage's id, which is
/// chance, before its ending. So it meets no other, and who dropped it does not know it.
pub fn stored_name(name: &Name, stage: StageId) -> Result<Name> {
    let mark =
        format!("-{}", data_encoding::BASE32_NOPAD.encode(&stage.0.to_be_bytes()[..5]).to_ascii_lowercase());
    let bytes = name.as_bytes();
    let dot = bytes.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0 && bytes.len() - dot <= 16);
    let (stem, ending) = bytes.split_at(dot.unwrap_or(bytes.len()));
    let mut room = (limits::NAME_BYTES_MAX - mark.len() - ending.len()).min(stem.len());
    // Not in the middle of a character, where it is text.
    while room > 0 && room < stem.len() && stem[room] & 0xc0 == 0x80 {
        room -= 1;
    }
    Name::new([&stem[..room], mark.as_bytes(), ending].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> DropLimits {
        DropLimits { bytes: 1, files: 1, rate_bytes: 1000, rate_per: Duration::from_secs(10) }
    }

    fn at(millis: i64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_was_dropped_runs_off_evenly_and_never_faster() {
        let full = Fill::empty(at(0)).with(&limits(), at(0), 1000).expect("it fits");
        assert_eq!(full.with(&limits(), at(0), 1), None);
        assert_eq!(full.with(&limits(), at(9), 1), None, "no whole byte has run off");
        assert!(full.with(&limits(), at(10), 1).is_some() && full.with(&limits(), at(10), 2).is_none());
        assert!(
            full.with(&limits(), at(5000), 500).is_some() && full.with(&limits(), at(5000), 501).is_none()
        );
        assert!(full.with(&limits(), at(1_000_000), 1000).is_some());
        assert_eq!(full.with(&limits(), at(1_000_000), 1001), None, "nothing is saved up");
        assert_eq!(full.with(&limits(), at(-5000), 1), None, "a clock set back lets nothing run off");
        assert_eq!(Fill::empty(at(0)).with(&limits(), at(0), u64::MAX), None);
    }

    #[test]
    fn who_looks_often_loses_nothing_by_it() {
        let mut often = Fill::empty(at(0)).with(&limits(), at(0), 1000).expect("it fits");
        for millis in 1..=5000 {
            often = often.now(&limits(), at(millis));
        }
        assert_eq!(often.level, 500);
    }

    #[test]
    fn any_time_takes_no_more_than_the_rate_twice() {
        // The bucket, and what runs off meanwhile.
        let (mut fill, mut taken) = (Fill::empty(at(0)), 0);
        for millis in (0..10_000).step_by(7) {
            if let Some(more) = fill.with(&limits(), at(millis), 13) {
                (fill, taken) = (more, taken + 13);
            }
        }
        assert!((1900..=2000).contains(&taken), "{taken}");
    }

    #[test]
    fn a_stored_name_keeps_its_ending_and_fits_and_says_nothing_of_others() {
        let name = |text: &str| Name::try_from(text).expect("a name");
        let stored = |text: &str, stage: u128| {
            stored_name(&name(text), StageId(stage << 88)).expect("it fits").to_string()
        };
        assert_eq!(stored("report.pdf", 0), "report-aaaaaaaa.pdf");
        assert_ne!(stored("report.pdf", 1), stored("report.pdf", 2));
        assert_eq!(stored(".hidden", 0), ".hidden-aaaaaaaa");
        assert_eq!(stored("plain", 0), "plain-aaaaaaaa");
        for long in ["a".repeat(255), format!("{}.txt", "é".repeat(125)), format!("a.{}", "b".repeat(250))] {
            let stored = stored_name(&name(&long), StageId(7)).expect("it fits");
            assert!(
                stored.as_bytes().len() <= 255 && std::str::from_utf8(stored.as_bytes()).is_ok(),
                "{stored}"
            );
        }
    }

    #[test]
    fn anyone_inserts_into_a_drop_box_and_changes_nothing_elsewhere() {
        let acl = |rights| Acl::new(vec![AclEntry::allow(Who::Anyone, rights)]);
        for right in Rights::ALL.each().map(|(_, right)| right) {
            assert_eq!(check_for_anyone(&acl(right), true).is_ok(), right == Rights::INSERT, "{right}");
            let harmless = Rights::READING | Rights::ACL_READ | Rights::AUDIT_READ;
            assert_eq!(check_for_anyone(&acl(right), false).is_ok(), harmless.contains(right), "{right}");
        }
        let denied = Acl::new(vec![AclEntry::deny(Who::Anyone, Rights::ALL)]);
        check_for_anyone(&denied, true).expect("nothing is given");
    }
}
