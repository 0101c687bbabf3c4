//! What tells an inode from an earlier one of the same number, and finds it again.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{OFlags, StatxTimestamp};
use rustix::io::Errno;

/// As large as the kernel makes them.
const HANDLE_BYTES_MAX: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// How handles are made of an inode's number and generation on many file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Four bytes each: ext4, F2FS, the smaller XFS.
    Narrow,
    /// Eight and four: XFS.
    Wide,
}

impl Handle {
    const EMPTY: Self = Self { bytes: HANDLE_BYTES_MAX as u32, kind: 0, handle: [0; HANDLE_BYTES_MAX] };

    fn bytes(&self) -> &[u8] {
        &self.handle[..(self.bytes as usize).min(HANDLE_BYTES_MAX)]
    }

    /// Returns how it is made, and the generation in it, if it is made of this inode's number so.
    fn made_of(&self, inode: u64) -> Option<(Shape, u32)> {
        let shape = match (self.kind, self.bytes) {
            (NARROW, 8) => Shape::Narrow,
            (WIDE, 12) => Shape::Wide,
            _ => return None,
        };
        let (_, generation) = self.bytes().split_last_chunk::<4>()?;
        let generation = u32::from_ne_bytes(*generation);
        (Self::of(shape, inode, generation)?.bytes() == self.bytes()).then_some((shape, generation))
    }

    /// Makes one. None for a number that does not fit.
    fn of(shape: Shape, inode: u64, generation: u32) -> Option<Self> {
        let (kind, number) = match shape {
            Shape::Narrow => (NARROW, u32::try_from(inode).ok()?.to_ne_bytes().to_vec()),
            Shape::Wide => (WIDE, inode.to_ne_bytes().to_vec()),
        };
        let whole = [&number[..], &generation.to_ne_bytes()].concat();
        let mut handle = Self { bytes: whole.len() as u32, kind, ..Self::EMPTY };
        handle.handle[..whole.len()].copy_from_slice(&whole);
        Some(handle)
    }
}

/// The kernel's names for the two kinds.
const NARROW: i32 = 1;
const WIDE: i32 = 0x81;

/// A number that changes when the inode's number is given to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// The inode's own, whatever it is reached by.
    Own(u32),
    /// Made of all that its handle says, such as which snapshot it lies in; or of when it was made.
    Made(u32),
}

/// Returns that number: out of the handle that the file system gives out for it; where it gives out none, of when
/// it was made.
pub(super) fn generation(
    file: impl AsFd,
    name: &std::ffi::CStr,
    inode: u64,
    made: Option<StatxTimestamp>,
) -> rustix::io::Result<Generation> {
    if let Some(handle) = ask(&file, name)? {
        return Ok(match handle.made_of(inode) {
            Some((_, generation)) => Generation::Own(generation),
            None => Generation::Made(fold(handle.bytes())),
        });
    }
    let Some(made) = made else { return Ok(Generation::Made(0)) };
    let nanos = made.tv_sec as i128 * 1_000_000_000 + i128::from(made.tv_nsec);
    Ok(Generation::Made(fold(&nanos.to_le_bytes())))
}

/// Returns how the handles of a file system are made, as far as one of its files tells.
pub(super) fn shape(file: impl AsFd, inode: u64) -> rustix::io::Result<Option<Shape>> {
    Ok(ask(&file, c"")?.and_then(|handle| Some(handle.made_of(inode)?.0)))
}

/// Holds what has a number and a generation on the file system that `on` is an open directory of. None if
/// nothing has, or this process may not look for it so.
pub(super) fn find(
    on: impl AsFd,
    shape: Shape,
    inode: u64,
    generation: u32,
) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(handle) = Handle::of(shape, inode, generation) else { return Ok(None) };
    let mut pauses = (0..PAUSES).map(|nth| SHORTEST_PAUSE * (1 << nth));
    loop {
        match (open(&on, handle), pauses.next()) {
            (Ok(found), _) => return Ok(Some(found)),
            (Err(Errno::STALE | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS), _) => return Ok(None),
            (Err(Errno::NOMEM), Some(pause)) => std::thread::sleep(pause),
            (Err(other), _) => return Err(other),
        }
    }
}

/// `ENOMEM` is also what ext4 says of a number while another file is being made of it: microseconds, unless that
/// waits for the disk. Each pause is twice as long as the one before, 26 ms in all: others wait behind it.
const PAUSES: u32 = 9;
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);

/// Asks for the handle of a file; there is none where the file system gives out none, or none to us; and
/// it will not tomorrow.
#[expect(unsafe_code, reason = "no library offers this system call yet")]
fn ask(file: &impl AsFd, name: &std::ffi::CStr) -> rustix::io::Result<Option<Handle>> {
    let (mut handle, mut mount, fd) = (Handle::EMPTY, 0, file.as_fd().as_raw_fd());
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    let place: *mut Handle = &raw mut handle;
    // SAFETY: the descriptor is borrowed and the name ends with NUL for the whole call; `Handle`
    // begins as the kernel's `file_handle` does and has room for as many bytes as it says.
    let asked = unsafe { libc::name_to_handle_at(fd, name.as_ptr(), place.cast(), &raw mut mount, flags) };
    match told(asked) {
        Ok(_) => Ok(Some(handle)),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::OVERFLOW) => Ok(None),
        Err(other) => Err(other),
    }
}

#[expect(unsafe_code, reason = "no library offers this system call yet")]
fn open(on: &impl AsFd, mut handle: Handle) -> rustix::io::Result<OwnedFd> {
    let flags = (OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
    let place: *mut Handle = &raw mut handle;
    // SAFETY: the descriptor is borrowed for the whole call; `Handle` is as the kernel has it.
    let opened = unsafe { libc::open_by_handle_at(on.as_fd().as_raw_fd(), place.cast(), flags) };
    let opened = told(opened)?;
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

fn told(answer: i32) -> rustix::io::Result<i32> {
    if answer >= 0 {
        return Ok(answer);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// FNV-1a, folded. Ids that are kept on disk are made of it: it stays as it is.
fn fold(bytes: &[u8]) -> u32 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u32 ^ hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fold_stays_as_it_is() {
        assert_eq!(fold(b"weft"), 0x247d_267d);
    }

    #[test]
    fn a_handle_is_made_again_of_the_number_and_generation_in_it_and_of_no_others() {
        for (shape, inode) in [(Shape::Narrow, 0xffff_fffe), (Shape::Wide, 0x0012_3456_789a_bcde)] {
            let handle = Handle::of(shape, inode, 0xdead_beef).expect("it fits");
            assert_eq!(handle.made_of(inode), Some((shape, 0xdead_beef)));
            assert_eq!(handle.made_of(inode + 1), None, "what is no number of an inode is not taken for one");
            let odd = Handle { kind: handle.kind + 1, ..handle };
            assert_eq!(odd.made_of(inode), None);
        }
        assert!(Handle::of(Shape::Narrow, 1 << 32, 1).is_none());
        // As FUSE has it: words the other way round.
        let mut other = Handle { bytes: 12, kind: WIDE, ..Handle::EMPTY };
        other.handle[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(other.made_of(7), None);
    }
}
