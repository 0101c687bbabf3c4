//! Where a bench keeps its data: below `target`, on the disk that is measured, and gone
//! afterwards.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::machine;

/// A folder of its own for one bench.
pub struct Place(tempfile::TempDir);

impl Place {
    /// Makes one. Servers that drop root can search it.
    pub fn new() -> Result<Self> {
        let above = machine::root().join("target/bench");
        std::fs::create_dir_all(&above)?;
        let place = Self(tempfile::tempdir_in(above)?);
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755))?;
        Ok(place)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes a folder in it that any server may write.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path().join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777))?;
        Ok(folder)
    }
}

/// Writes `bytes` of data that no file system or network would shrink, readable by all.
pub fn fill(file: &Path, bytes: u64) -> Result<()> {
    let mut out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(file)?);
    let block = noise(1 << 20);
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        out.write_all(&block[..part])?;
        left -= part as u64;
    }
    out.into_inner()?.sync_all()?;
    Ok(())
}

/// Returns `length` bytes of xorshift noise, always the same.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
