//! What lies where something is to be mounted, or is.

use std::ffi::OsString;
use std::io::ErrorKind as Io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use weft_core::{Error, ErrorKind, Result};
use weft_sys::fault;

/// The type of our mounts in the machine's table.
const TYPE: &str = "fuse.weft";

/// Fails unless a path is a directory that hides nothing when something is mounted there.
pub fn check(dir: &Path) -> Result<()> {
    let refused = |kind, detail: String| Error::new(kind, detail).op("mount at").about(dir.display());
    let failed = |e| fault::error(e, "mount at", dir.display());
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == Io::NotADirectory => {
            return Err(refused(ErrorKind::NotDirectory, "it is not a directory".to_owned()));
        }
        Err(_) if is_mounted(dir)? => {
            let hint = format!("weft umount --lazy {}", dir.display());
            return Err(refused(ErrorKind::Exists, "a dead mount is there".to_owned()).hint(hint));
        }
        entries => entries.map_err(failed)?,
    };
    if is_mounted(dir)? {
        return Err(refused(ErrorKind::Exists, "something of weft is mounted there already".to_owned()));
    }
    if let Some(entry) = entries.into_iter().next() {
        let name = entry.map_err(failed)?.file_name();
        let detail = format!("it is not empty: it holds {name:?}");
        return Err(refused(ErrorKind::NotEmpty, detail).hint("choose an empty directory"));
    }
    Ok(())
}

/// Returns whether something of ours is mounted at a path, be it dead.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    let place = resolved(dir)?;
    Ok(mounts()?.any(|(at, ours)| ours && at == place))
}

/// Returns the mount of ours that a path lies in, be it dead. Looks at the path itself only where its
/// names alone lead to none: that would wait for what is mounted there.
pub fn around(path: &Path) -> Result<Option<PathBuf>> {
    let whole = std::path::absolute(path).map_err(|e| fault::error(e, "look at", path.display()))?;
    let is_plain = !whole.components().any(|part| part == Component::ParentDir);
    match innermost(&whole)?.filter(|_| is_plain) {
        Some(at) => Ok(Some(at)),
        None => innermost(&resolved(path)?),
    }
}

/// Returns the mount that a path without links lies in, if it is of ours.
fn innermost(path: &Path) -> Result<Option<PathBuf>> {
    // Of several at one place the last covers the others.
    let found =
        mounts()?.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.components().count());
    Ok(found.filter(|(_, ours)| *ours).map(|(at, _)| at))
}

/// Returns where something is mounted, and whether it is of ours, in the order of the machine's table.
fn mounts() -> Result<impl Iterator<Item = (PathBuf, bool)>> {
    const TABLE: &str = "/proc/self/mounts";
    let table = std::fs::read(TABLE).map_err(|e| fault::error(e, "read", TABLE))?;
    let lines: Vec<_> = table
        .split(|byte| *byte == b'\n')
        .map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(1);
            let (at, kind) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            (unescaped(at), kind == TYPE.as_bytes())
        })
        .collect();
    Ok(lines.into_iter())
}

/// Returns a path without links. The last name may be of a mount that is dead, where nothing
/// can be looked at.
fn resolved(dir: &Path) -> Result<PathBuf> {
    let failed = |e| fault::error(e, "look at", dir.display());
    if let Ok(place) = dir.canonicalize() {
        return Ok(place);
    }
    let whole = std::path::absolute(dir).map_err(failed)?;
    match (whole.parent().and_then(|parent| parent.canonicalize().ok()), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.join(name)),
        _ => Ok(whole),
    }
}

/// Takes back what the table writes as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let [first, after @ ..] = rest {
        let escape = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_escapes_is_taken_back_and_nothing_else() {
        for (field, path) in [
            ("/a", "/a"),
            (r"/a\040b", "/a b"),
            (r"/\134\011", "/\\\t"),
            (r"/end\04", r"/end\04"),
            (r"/\999", r"/\999"),
        ] {
            assert_eq!(unescaped(field.as_bytes()), Path::new(path), "{field}");
        }
    }
}
