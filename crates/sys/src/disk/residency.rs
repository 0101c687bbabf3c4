//! Whether a file's pages are in memory, without bringing them there.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::ReadWriteFlags;

/// `cachestat(2)`, the same number on every architecture; since Linux 6.5.
const SYS_CACHESTAT: libc::c_long = 451;

/// Set once the kernel has said that it has no `cachestat`.
static WITHOUT_CACHESTAT: AtomicBool = AtomicBool::new(false);

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// Returns whether every page of the range is in the page cache; false if nobody can tell.
pub(super) fn resident(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    if !WITHOUT_CACHESTAT.load(Ordering::Relaxed) {
        match cached_pages(file, at, len) {
            Some(pages) => return pages >= pages_of(at, len),
            None => WITHOUT_CACHESTAT.store(true, Ordering::Relaxed),
        }
    }
    readable_at_once(file, at, len)
}

fn pages_of(at: u64, len: u64) -> u64 {
    let page = rustix::param::page_size() as u64;
    (at + len).div_ceil(page) - at / page
}

#[expect(unsafe_code, reason = "no library offers this system call yet")]
fn cached_pages(file: BorrowedFd<'_>, at: u64, len: u64) -> Option<u64> {
    let range = CachestatRange { off: at, len };
    let mut found = Cachestat::default();
    // SAFETY: the descriptor is borrowed for the whole call, and both structures are laid out as
    // the kernel's, live across it and are of its size.
    let answer =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) };
    (answer == 0).then_some(found.nr_cache)
}

/// The older way: a read that refuses to wait comes back whole only if all of it is there. Costs
/// a copy of the range.
fn readable_at_once(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    let mut scratch = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut scratch)], at, ReadWriteFlags::NOWAIT);
    read.is_ok_and(|read| read as u64 == len)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{Advice, fadvise, fdatasync};

    use super::*;

    #[test]
    fn what_was_just_written_is_resident_and_what_was_dropped_is_not() {
        let file = tempfile::tempfile().expect("a file");
        let bytes = vec![7; 1 << 20];
        rustix::io::pwrite(&file, &bytes, 0).expect("room");
        assert!(resident(file.as_fd(), 0, 1 << 20));
        assert!(resident(file.as_fd(), 5000, 100));
        assert!(readable_at_once(file.as_fd(), 4096, 8192));
        fdatasync(&file).expect("it can");
        fadvise(&file, 0, None, Advice::DontNeed).expect("it can");
        assert!(!resident(file.as_fd(), 0, 1 << 20));
    }
}
