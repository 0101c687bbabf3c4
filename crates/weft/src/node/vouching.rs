//! Files by which an operator says whom others may vouch for: an issuer's keys, an authority's certificates.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weft_core::{Error, ErrorKind, Result};
use weft_sys::fault;

/// What tells one state of a file from another; none of one that is not there.
pub type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Returns the state of a file.
pub fn stamp(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// Reads such a file, of so many bytes at most; `what` says what it holds. Fails with `NotPermitted` where others could
/// change who is let in.
pub fn read(path: &Path, what: &'static str, most: u64) -> Result<Vec<u8>> {
    let failed = |error| fault::error(error, "read", path.display());
    // A pipe put there must not make us wait.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::invalid("it is not a regular file").op("read").about(path.display()));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o022 != 0 {
        return Err(Error::not_permitted(format!("others can change {what}"))
            .about(path.display())
            .hint(format!("chmod go-w {}", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        let detail = format!("{what} are more than {most} bytes");
        return Err(Error::new(ErrorKind::TooLarge, detail).about(path.display()));
    }
    Ok(bytes)
}
