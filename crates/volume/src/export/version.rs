//! Versions of files that anybody may write: made of what the machine tells of them.
//!
//! The machine stamps a change with a clock that moves in ticks of milliseconds. Of a file whose stamp
//! is of the present tick nobody can say that it will not be written again under the same stamp: it is
//! *young*, and has a version that is for the rest of the tick only, and another one once Weft has written
//! it. When the tick is over, two equal stamps of one inode mean equal bytes: but for one call of `write` that
//! takes longer than the tick, which is stamped when it begins, and for pages that a program has mapped and written
//! before. Whoever can wait a tick gets the lasting one.

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
        if is_young(facts) || slow {
            return self.of_young(id, (facts.size, facts.ctime, facts.mtime));
        }
        let mut stamp = [0; 44];
        stamp[..12].copy_from_slice(&id.to_bytes());
        stamp[12..20].copy_from_slice(&facts.size.to_be_bytes());
        stamp[20..32].copy_from_slice(&of_time(facts.ctime));
        stamp[32..].copy_from_slice(&of_time(facts.mtime));
        let mut version = [0; 16];
        version.copy_from_slice(&blake3::hash(&stamp).as_bytes()[..16]);
        Version(u128::from_be_bytes(version) & !YOUNG)
    }
}

impl Versions {
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

fn of_time(time: Time) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&time.seconds().to_be_bytes());
    bytes[8..].copy_from_slice(&time.subsec_nanos().to_be_bytes());
    bytes
}

/// Returns whether a file may be written again without its stamp showing it. A stamp of the future is
/// as bad: the clock was set back.
pub(super) fn is_young(facts: &Facts) -> bool {
    facts.ctime >= coarse_now()
}

/// How often a file that is being written just now is looked at once more for a version that lasts.
pub(super) const GROWTHS_AWAITED: u32 = 4;

/// How long to wait until what is young now no longer is, unless the machine's clock is late.
pub(super) fn until_grown() -> Duration {
    coarse_rest().max(Duration::from_millis(1))
}
