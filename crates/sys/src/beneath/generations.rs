//! Generations of inodes that were asked for before: asking costs as much as all else that is known of one.
//!
//! While an inode lives its own generation stays as it is, and the time when it was made tells it from whatever has
//! its number next: unless both were made in one tick of the clock. So only of what was made some time ago is
//! anything kept; then whatever has that number later was also made later. A number that is made of more than the
//! inode is not kept: snapshots of one directory are alike in all of this, and follow each other under one name.

use std::sync::LazyLock;
use std::time::Duration;

use quick_cache::sync::Cache;
use rustix::fs::{Statx, StatxTimestamp};
use weft_core::Time;

use super::coarse_now;
use super::handle::Generation;

/// As many are kept: 5 MiB.
const KEPT_MAX: usize = 1 << 16;

/// Longer than the tick of any file system, and than the clock of another machine is likely to be behind.
const SETTLED: Duration = Duration::from_secs(5);

/// The file system, the inode's number, when it was made.
type Key = ((u32, u32), u64, (i64, u32));

static KEPT: LazyLock<Cache<Key, u32>> = LazyLock::new(|| Cache::new(KEPT_MAX));

/// Returns the generation of an inode: as it is kept, or as `ask` finds it. Fails as that does.
pub(super) fn generation<E>(
    stat: &Statx,
    made: Option<StatxTimestamp>,
    ask: impl FnOnce() -> Result<Generation, E>,
) -> Result<u32, E> {
    let settled =
        made.filter(|made| coarse_now().since(Time::from_unix(made.tv_sec, made.tv_nsec)) >= SETTLED);
    let of = |made: StatxTimestamp| {
        ((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino, (made.tv_sec, made.tv_nsec))
    };
    let key: Option<Key> = settled.map(of);
    if let Some(kept) = key.as_ref().and_then(|key| KEPT.get(key)) {
        return Ok(kept);
    }
    match (ask()?, key) {
        (Generation::Own(number), Some(key)) => {
            KEPT.insert(key, number);
            Ok(number)
        }
        (Generation::Own(number) | Generation::Made(number), _) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    use super::*;

    #[test]
    fn only_what_is_settled_is_kept_and_only_for_what_was_made_then() {
        let file = tempfile::tempfile().expect("a file");
        let stat = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::ALL).expect("it is there");
        let told = |made, answer| generation(&stat, made, || Ok::<_, ()>(Generation::Own(answer)));
        let now = coarse_now().seconds();
        let once = |tv_sec| {
            let mut made = stat.stx_mtime;
            (made.tv_sec, made.tv_nsec) = (tv_sec, 5);
            Some(made)
        };
        for answer in [1, 2] {
            assert_eq!(told(None, answer), Ok(answer), "nobody knows when it was made");
            assert_eq!(told(once(now), answer), Ok(answer), "just now");
            assert_eq!(told(once(now + 3600), answer), Ok(answer), "it is to be made yet");
        }
        assert_eq!(told(once(now - 60), 1), Ok(1));
        assert_eq!(told(once(now - 60), 2), Ok(1), "it was asked before");
        assert_eq!(told(once(now - 61), 2), Ok(2), "another one of its number");
        for answer in [1, 2] {
            let made = || Ok::<_, ()>(Generation::Made(answer));
            assert_eq!(generation(&stat, once(now - 63), made), Ok(answer), "of a snapshot, say");
        }
        assert_eq!(generation(&stat, once(now - 62), || Err(7)), Err(7));
        assert_eq!(told(once(now - 62), 3), Ok(3), "a failure is not kept");
    }
}
