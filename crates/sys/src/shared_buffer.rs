//! Memory that another process may be lent: a file without a name, mapped here.
//!
//! What is lent is the file, not the mapping: the other process reads it (`pread`), and it stays what it was when
//! this one goes on to write there. So a buffer must not be used again until whoever has it says so.
//!
//! The file can be neither resized nor written by anybody but the mapping that was made before (seals, memfd_create(2)).
//! That is what makes both ends safe: this one's slice has one writer, and the other never waits for a disk, a pipe
//! or a file system that somebody made up.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};

use crate::mapped::{self, Mapped};

/// What a file of such memory is sealed against.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// Zeros at first, of this process alone to write.
pub struct SharedBuffer(Mapped);

impl SharedBuffer {
    /// Makes one of `length` bytes, at least 1.
    pub fn new(length: usize) -> io::Result<Self> {
        let mapped = Mapped::of(mapped::memory(length as u64)?, length)?;
        // After that nobody can map it to write any more, by whatever descriptor.
        fcntl_add_seals(mapped.descriptor(), SEALS)?;
        Ok(Self(mapped))
    }

    /// Returns the file, for the process that it is lent to.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

impl Deref for SharedBuffer {
    type Target = [u8];

    #[expect(unsafe_code, reason = "a mapping is a pointer")]
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has this length until it is dropped, no file shrinks below it, and nobody writes there but
        // who has this buffer for himself.
        unsafe { std::slice::from_raw_parts(self.0.at().as_ptr(), self.0.length()) }
    }
}

impl DerefMut for SharedBuffer {
    #[expect(unsafe_code, reason = "a mapping is a pointer")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; other processes read the file, never a reference to this memory.
        unsafe { std::slice::from_raw_parts_mut(self.0.at().as_ptr(), self.0.length()) }
    }
}

/// Returns whether a file is memory that some process made to be lent, with at least `length` bytes: reading those never
/// waits and never ends too early.
pub fn is_lent_memory(file: BorrowedFd<'_>, length: u64) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
        && fstat(file).is_ok_and(|found| u64::try_from(found.st_size).is_ok_and(|size| size >= length))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags};

    use super::*;

    #[test]
    fn what_is_written_here_is_read_by_whoever_has_the_file_and_by_nobody_written() {
        let mut buffer = SharedBuffer::new(10_000).expect("memory");
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[9_998..].copy_from_slice(b"ab");
        let lent = buffer.descriptor().try_clone_to_owned().expect("a descriptor");
        drop(buffer);
        let mut read = [0; 3];
        assert_eq!(rustix::io::pread(&lent, &mut read, 9_998).expect("read"), 2);
        assert_eq!(&read, b"ab\0");
        assert!(rustix::io::pwrite(&lent, b"x", 0).is_err(), "written");
        assert!(ftruncate(&lent, 5).and(ftruncate(&lent, 20_000)).is_err(), "resized");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        #[expect(unsafe_code, reason = "that it cannot be mapped is what is looked at")]
        // SAFETY: nothing is mapped.
        let mapped =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, access, MapFlags::SHARED, &lent, 0) };
        assert!(mapped.is_err(), "mapped to be written");
    }

    #[test]
    fn only_memory_that_cannot_change_its_size_is_taken_for_lent() {
        let buffer = SharedBuffer::new(10_000).expect("memory");
        assert!(is_lent_memory(buffer.descriptor(), 10_000) && !is_lent_memory(buffer.descriptor(), 10_001));
        let file = tempfile::tempfile().expect("a file");
        file.set_len(10_000).expect("there is room");
        let (reads, _writes) = rustix::pipe::pipe().expect("a pipe");
        let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&unsealed, 10_000).expect("there is room");
        for (what, other) in
            [("a file", file.as_fd()), ("a pipe", reads.as_fd()), ("unsealed", unsealed.as_fd())]
        {
            assert!(!is_lent_memory(other, 0), "{what}");
        }
    }
}
