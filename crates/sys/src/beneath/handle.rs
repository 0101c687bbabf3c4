//! What tells an inode from an earlier one of the same number.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::StatxTimestamp;
use rustix::io::Errno;

/// As large as the kernel makes them.
const HANDLE_BYTES_MAX: usize = 128;

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// Returns a number that changes when the inode's number is given to another file: made of the
/// handle that the file system gives out for it; where it gives out none, of when it was made.
pub(super) fn generation(
    file: impl AsFd,
    name: &std::ffi::CStr,
    made: Option<StatxTimestamp>,
) -> rustix::io::Result<u32> {
    let mut handle = Handle { bytes: HANDLE_BYTES_MAX as u32, kind: 0, handle: [0; HANDLE_BYTES_MAX] };
    match ask(&file, name, &mut handle) {
        Ok(()) => {
            let length = (handle.bytes as usize).min(HANDLE_BYTES_MAX);
            return Ok(fold(&handle.handle[..length]));
        }
        // It gives out none, or none to us; and it will not tomorrow.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::OVERFLOW) => {}
        Err(other) => return Err(other),
    }
    let Some(made) = made else { return Ok(0) };
    Ok(fold(&(made.tv_sec as i128 * 1_000_000_000 + i128::from(made.tv_nsec)).to_le_bytes()))
}

#[expect(unsafe_code, reason = "no library offers this system call yet")]
fn ask(file: &impl AsFd, name: &std::ffi::CStr, handle: &mut Handle) -> rustix::io::Result<()> {
    let (mut mount, fd) = (0, file.as_fd().as_raw_fd());
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    let handle: *mut Handle = handle;
    // SAFETY: the descriptor is borrowed and the name ends with NUL for the whole call; `Handle`
    // begins as the kernel's `file_handle` does and has room for as many bytes as it says.
    let asked = unsafe { libc::name_to_handle_at(fd, name.as_ptr(), handle.cast(), &raw mut mount, flags) };
    if asked == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
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
    #[test]
    fn the_fold_stays_as_it_is() {
        assert_eq!(super::fold(b"weft"), 0x247d_267d);
    }
}
