//! Numbers that outlive the process that wrote them: memory without a name, mapped by one process after the other.
//!
//! Whoever holds the file can map it again when the one before is gone, at whatever moment that was killed: a number
//! is stored whole or not at all, and of two that were stored one after the other the second is never there without the
//! first. That is all there is to rely on, and enough: what belongs together is stored first, and then the number that says
//! so.
//!
//! The file cannot be resized (seals, memfd_create(2)), so no access ever meets its end. It takes as much memory as was
//! written to.

use std::io;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};

use crate::mapped::{self, Mapped};

/// Bytes of one number.
const WORD_BYTES: usize = size_of::<u64>();

const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Zeros at first.
pub struct SharedWords(Mapped);

impl SharedWords {
    /// Makes so many, at least 1.
    pub fn new(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(WORD_BYTES).and_then(|bytes| u64::try_from(bytes).ok());
        let file = mapped::memory(bytes.ok_or_else(|| io::Error::other("more than can be counted"))?)?;
        fcntl_add_seals(&file, SEALS)?;
        Self::of(file)
    }

    /// Maps those that another process made. Fails with `InvalidData` for a file that is something else.
    pub fn of(file: OwnedFd) -> io::Result<Self> {
        let not_ours = || io::Error::new(io::ErrorKind::InvalidData, "it is no memory of numbers");
        let seals = fcntl_get_seals(&file).map_err(|_| not_ours())?;
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(|_| not_ours())?;
        let words = bytes / WORD_BYTES;
        if !seals.contains(SEALS) || words == 0 {
            return Err(not_ours());
        }
        let mapped = Mapped::of(file, words * WORD_BYTES)?;
        // In a dump there would be secrets as well.
        mapped.leave_out_of_dumps()?;
        Ok(Self(mapped))
    }

    /// Returns the file, for the process that goes on with it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    #[expect(unsafe_code, reason = "a mapping is a pointer")]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page and has this length until it is dropped, and the file has it for ever; whoever
        // else has it mapped reaches it as atomics too.
        unsafe { std::slice::from_raw_parts(self.0.at().as_ptr().cast(), self.0.length() / WORD_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn what_one_process_stored_is_there_for_the_next_and_takes_no_more_memory_than_that() {
        let words = SharedWords::new(1 << 27).expect("memory");
        assert_eq!((words.len(), words[7].load(Ordering::Relaxed)), (1 << 27, 0));
        words[7].store(5, Ordering::Relaxed);
        words[(1 << 27) - 1].store(6, Ordering::Relaxed);
        let file = words.descriptor().try_clone_to_owned().expect("a descriptor");
        drop(words);
        assert!(fstat(&file).expect("there").st_blocks < 1 << 10, "a gigabyte is not there");
        let again = SharedWords::of(file).expect("the same");
        assert_eq!([7, (1 << 27) - 1].map(|at| again[at].load(Ordering::Relaxed)), [5, 6]);
        assert!(ftruncate(again.descriptor(), 8).is_err(), "its end stays where it is");
    }

    #[test]
    fn a_dump_of_the_process_leaves_it_out() {
        let words = SharedWords::new(1 << 20).expect("memory");
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("told");
        let at = format!("{:x}-", words.as_ptr().addr());
        let ours = maps.lines().skip_while(|line| !line.starts_with(&at));
        let flags = ours.into_iter().find_map(|line| line.strip_prefix("VmFlags:")).expect("it is mapped");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }

    #[test]
    fn only_memory_that_cannot_be_resized_is_mapped() {
        let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&unsealed, 4096).expect("there is room");
        let empty = memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("memory");
        fcntl_add_seals(&empty, SEALS).expect("sealed");
        let (reads, _writes) = rustix::pipe::pipe().expect("a pipe");
        for other in [unsealed, empty, reads, tempfile::tempfile().expect("a file").into()] {
            assert_eq!(
                SharedWords::of(other).err().map(|error| error.kind()),
                Some(io::ErrorKind::InvalidData)
            );
        }
    }
}
