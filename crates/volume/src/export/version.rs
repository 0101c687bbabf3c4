//! Versions of files that anybody may write: made of what the machine tells of them.
//!
//! The machine stamps a change with a clock that moves in ticks of milliseconds. Of a file whose stamp
//! is of the present tick nobody can say that it will not be written again under the same stamp: it is
//! *young*, and has a version that is for the rest of the tick only, and another one once Weft has written
//! it. When the tick is over, two equal stamps of one inode mean equal bytes: but for one call of `write` that
//! takes longer than the tick, which is stamped when it begins, and for pages that a program has mapped and written
//! before. Whoever can wait a tick gets the lasting one.
//!
//! Some file systems stamp finer than the clock ticks: a file that was looked at since its last change gets another stamp
//! at its next (ext4, XFS, btrfs and tmpfs since Linux 6.13). They do not say so, but such a stamp is ahead of
//! the clock. What is published with one has its lasting version at once ([`Versions::settle`]): it was looked at before
//! its rename and after, the kernel renames no file while bytes are being written to it, and if some were written since the first look,
//! its time of writing says so. What is opened has none so soon: a write may be stamped already whose bytes
//! are not there yet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use weft_core::attr::Version;
use weft_core::{FileId, Time, limits};
use weft_sys::Sys;
use weft_sys::beneath::{Facts, coarse_now, coarse_rest};

/// The longest tick of any file system that this is likely to meet, and some more for clocks that differ.
const SLOW_TICK: Duration = Duration::from_secs(5);

/// Marks versions that last for a moment.
const YOUNG: u128 = 1 << 127;

pub(super) struct Versions {
    /// Tells versions of young files from those of other starts.
    start: u64,
    given: AtomicU64,
    /// What young files were last shown as.
    young: Cache<FileId, (Stamp, Version)>,
}

/// What the machine tells of a file's bytes.
type Stamp = (u64, Time, Time);

impl Versions {
    pub(super) fn new(sys: &Sys) -> Self {
        let mut bytes = [0; 8];
        sys.random().fill(&mut bytes);
        let young = Cache::new(limits::EXPORT_VERIFIERS_KEPT);
        Self { start: u64::from_be_bytes(bytes) >> 1, given: AtomicU64::new(0), young }
    }

    pub(super) fn of(&self, id: FileId, facts: &Facts, slow: bool) -> Version {
        // What lies elsewhere is stamped there, in ticks of up to two seconds.
        let slow = slow && coarse_now().since(facts.ctime) < SLOW_TICK;
        if is_young(facts) || slow { self.of_young(id, stamp(facts)) } else { lasting(id, facts) }
    }

    /// Has a file that was just looked at be shown as what it will be shown as when the tick is over, since its
    /// next change gets another stamp.
    pub(super) fn settle(&self, id: FileId, facts: &Facts) {
        self.young.insert(id, (stamp(facts), lasting(id, facts)));
    }

    fn of_young(&self, id: FileId, stamp: Stamp) -> Version {
        if let Some((shown, version)) = self.young.get(&id)
            && shown == stamp
        {
            return version;
        }
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let version = Version(YOUNG | u128::from(self.start) << 64 | u128::from(number));
        self.young.insert(id, (stamp, version));
        version
    }

    /// Notes that Weft has written a file: in the same tick its stamp may not show it.
    pub(super) fn written(&self, id: FileId) {
        self.young.remove(&id);
    }
}

fn stamp(facts: &Facts) -> Stamp {
    (facts.size, facts.ctime, facts.mtime)
}

/// The version of a file that is not young.
fn lasting(id: FileId, facts: &Facts) -> Version {
    let mut stamp = [0; 44];
    stamp[..12].copy_from_slice(&id.to_bytes());
    stamp[12..20].copy_from_slice(&facts.size.to_be_bytes());
    stamp[20..32].copy_from_slice(&of_time(facts.ctime));
    stamp[32..].copy_from_slice(&of_time(facts.mtime));
    let mut version = [0; 16];
    version.copy_from_slice(&blake3::hash(&stamp).as_bytes()[..16]);
    Version(u128::from_be_bytes(version) & !YOUNG)
}

fn of_time(time: Time) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&time.seconds().to_be_bytes());
    bytes[8..].copy_from_slice(&time.subsec_nanos().to_be_bytes());
    bytes
}

/// Returns whether a version holds for more than the rest of a tick.
pub(super) fn lasts(version: Version) -> bool {
    version.0 & YOUNG == 0
}

/// Returns whether a file may be written again without its stamp showing it. A stamp that is ahead of the clock
/// is as bad as one of this tick: the clock was set back, or the next change may not be told.
pub(super) fn is_young(facts: &Facts) -> bool {
    is_young_at(facts.ctime, coarse_now())
}

pub(super) fn is_young_at(stamp: Time, now: Time) -> bool {
    // File systems of few bytes an inode (ext4 of 128) stamp whole seconds, and do not say so.
    let by_seconds = stamp.subsec_nanos() == 0 && now.since(stamp) < Duration::from_secs(1);
    stamp >= now || by_seconds
}

/// Returns whether a young file no longer is if one waits [`until_grown`]: else that takes seconds.
pub(super) fn is_of_this_tick(facts: &Facts) -> bool {
    facts.ctime >= coarse_now()
}

/// The last look at a file before a change that gives it another stamp.
pub(super) struct LastLook {
    mtime: Time,
    clock: Time,
}

impl LastLook {
    pub(super) fn of(facts: &Facts) -> Self {
        Self { mtime: facts.mtime, clock: coarse_now() }
    }

    /// Returns whether the change was stamped finer than the clock ticks, and no bytes were written since the look:
    /// then the next change is told from what was looked at just now. Nothing is known if the clock was set
    /// back meanwhile.
    pub(super) fn tells_apart(&self, facts: &Facts) -> bool {
        self.tells_apart_at(facts, coarse_now())
    }

    fn tells_apart_at(&self, facts: &Facts, now: Time) -> bool {
        facts.mtime == self.mtime && self.clock <= now && facts.ctime > now
    }
}

/// How often a file that is being written just now is looked at once more for a version that lasts.
pub(super) const GROWTHS_AWAITED: u32 = 4;

/// How long to wait until what is young now no longer is, unless the machine's clock is late.
pub(super) fn until_grown() -> Duration {
    coarse_rest().max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::user::tests::facts;

    const SECOND: i64 = 1_000_000_000;
    const TICK: i64 = 4_000_000;

    fn stamped(mtime: Time, ctime: Time) -> Facts {
        Facts { mtime, ctime, ..facts(1, 1, 0o644) }
    }

    #[test]
    fn what_is_settled_is_shown_as_it_will_be_for_as_long_as_it_is_not_changed() {
        let (id, versions) = (FileId::ROOT, Versions::new(&Sys::simulated(1)));
        let (young, old) = (coarse_now().plus(Duration::from_secs(600)), Time::from_nanos(SECOND + 1));
        let facts = |changed| stamped(Time::EPOCH, changed);
        assert!(!lasts(versions.of(id, &facts(young), false)));
        versions.settle(id, &facts(young));
        let shown = versions.of(id, &facts(young), false);
        assert!(lasts(shown) && shown == lasting(id, &facts(young)), "what it is when it is no longer young");
        assert_eq!(versions.of(id, &facts(old), false), lasting(id, &facts(old)));
        let changed = versions.of(id, &facts(young.plus(Duration::from_nanos(1))), false);
        assert!(!lasts(changed) && changed != shown);
        versions.settle(id, &facts(young));
        versions.written(id);
        assert!(!lasts(versions.of(id, &facts(young), false)), "Weft wrote it");
    }

    #[test]
    fn a_stamp_lasts_once_its_clock_has_moved_on_be_it_one_of_ticks_or_of_seconds() {
        let cases = [
            (7 * SECOND + 1, 7 * SECOND + 1, true),
            (7 * SECOND + 1, 7 * SECOND + 1 + TICK, false),
            (7 * SECOND + 1 + TICK, 7 * SECOND + 1, true),
            (7 * SECOND, 7 * SECOND + TICK, true),
            (7 * SECOND, 8 * SECOND - 1, true),
            (7 * SECOND, 8 * SECOND, false),
        ];
        let at = Time::from_nanos;
        for (stamp, now, young) in cases {
            assert_eq!(is_young_at(at(stamp), at(now)), young, "stamped {stamp}, at {now}");
        }
    }

    /// When bytes were written before and after the look, the clock then and now, when the change was stamped.
    #[test]
    fn a_change_is_told_from_later_ones_if_it_is_ahead_of_the_clock_and_nobody_wrote() {
        let base = 7 * SECOND + 1;
        let cases = [
            ("ahead of the clock", (base, base), (base, base), base + 1, true),
            ("whatever time the bytes were given", (1, 1), (base, base), base + 1, true),
            ("of the present tick", (base, base), (base, base), base, false),
            ("of an earlier tick", (base, base), (base, base + TICK), base + 1, false),
            ("somebody wrote since the look", (base, base + 1), (base, base), base + 2, false),
            ("the clock was set back", (base, base), (base, base - TICK), base, false),
        ];
        let at = Time::from_nanos;
        for (case, (wrote, written), (then, now), stamp, told) in cases {
            let last = LastLook { mtime: at(wrote), clock: at(then) };
            assert_eq!(last.tells_apart_at(&stamped(at(written), at(stamp)), at(now)), told, "{case}");
        }
    }
}
