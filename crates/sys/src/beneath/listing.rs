//! The names in a directory, in the kernel's order.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;

use rustix::fs::{self, RawDir, SeekFrom};
use rustix::io::Errno;
use weft_core::Result;

use super::held::{Facts, Held, facts_of_name};
use super::refused;
use crate::folder::Sort;

/// Bytes of names that are asked for at once.
const BUFFER_BYTES: usize = 32 << 10;

/// One name.
pub struct Listed<'a> {
    dir: &'a std::os::fd::OwnedFd,
    name: &'a std::ffi::CStr,
    /// Where a listing goes on after it; of the kernel's choosing, never 0.
    pub next: u64,
    /// What it stands for, if the file system says so for nothing.
    pub sort: Option<Sort>,
}

impl Listed<'_> {
    /// Returns the name's bytes.
    pub fn name(&self) -> &[u8] {
        self.name.to_bytes()
    }

    /// Returns what the machine knows of what it stands for, as [`Held::look`] does; `None` if it is gone by now.
    pub fn facts(&self, stalls: bool) -> Result<Option<Facts>> {
        facts_of_name(self.dir, self.name, stalls)
    }
}

impl Held {
    /// Calls `each` with every name of a directory from a place on (0 is the start), until it
    /// breaks. `.` and `..` are not told. Names that come or go meanwhile may be missed; others
    /// come once.
    pub fn list(&self, from: u64, mut each: impl FnMut(Listed<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
        let dir = self.open_directory().map_err(refused)?;
        if from != 0 {
            fs::seek(&dir, SeekFrom::Start(from)).map_err(refused)?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                entry => entry.map_err(refused)?,
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let listed = Listed {
                dir: &dir,
                name,
                next: entry.next_entry_cookie(),
                sort: Sort::known(entry.file_type()),
            };
            if each(listed)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
