//! Memory without a name (memfd_create(2)), mapped here: what [`SharedBuffer`](crate::SharedBuffer) and
//! [`SharedWords`](crate::SharedWords) are made of. What may be done through the mapping, they decide.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A whole file of memory, mapped to be read and written.
pub(crate) struct Mapped {
    at: NonNull<u8>,
    length: usize,
    file: OwnedFd,
}

// SAFETY: it owns its mapping as a boxed slice does its memory; nothing of it belongs to a thread.
#[expect(unsafe_code, reason = "a mapping is a pointer")]
unsafe impl Send for Mapped {}
// SAFETY: through a shared reference only its address is to be had.
#[expect(unsafe_code, reason = "a mapping is a pointer")]
unsafe impl Sync for Mapped {}

/// Makes a file of memory of so many bytes, zeros, that can be sealed.
pub(crate) fn memory(bytes: u64) -> io::Result<OwnedFd> {
    let file = memfd_create("weft", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes)?;
    Ok(file)
}

impl Mapped {
    /// Maps the first `length` bytes, at least 1, at the beginning of a page.
    #[expect(unsafe_code, reason = "mapped memory is to be had in no other way")]
    pub(crate) fn of(file: OwnedFd, length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &file, 0) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("nothing was mapped"))?;
        Ok(Self { at, length, file })
    }

    /// Has dumps of the process leave it out: to read what was never written makes it real memory.
    #[expect(unsafe_code, reason = "a mapping is a pointer")]
    pub(crate) fn leave_out_of_dumps(&self) -> io::Result<()> {
        // SAFETY: it is this mapping, of which nothing that can be seen here changes.
        Ok(unsafe { rustix::mm::madvise(self.at.as_ptr().cast(), self.length, Advice::LinuxDontDump) }?)
    }

    /// Returns where it is, until it is dropped.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Returns how many bytes it has.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the file.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Mapped {
    #[expect(unsafe_code, reason = "a mapping is a pointer")]
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it outlives it. That it is there says that it can be
        // unmapped.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.length) };
    }
}
