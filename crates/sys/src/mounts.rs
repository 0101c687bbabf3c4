//! Where directories lie on their file systems: what is mounted in a second place is the same there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where something lies: on which file system, and where on that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    device: Vec<u8>,
    path: PathBuf,
}

impl Spot {
    /// Returns where the machine's list of mounts says that a path lies, an absolute one without links.
    /// None if that is not told.
    pub fn of(path: &Path) -> Option<Self> {
        Self::among(&std::fs::read("/proc/self/mountinfo").ok()?, path)
    }

    fn among(mounts: &[u8], path: &Path) -> Option<Self> {
        let mounts = mounts.split(|byte| *byte == b'\n').filter_map(Mount::read);
        // Of several on one place, the last lies on top.
        let on = mounts.filter(|mount| path.starts_with(&mount.at));
        let on = on.max_by_key(|mount| mount.at.components().count())?;
        let below = path.strip_prefix(&on.at).ok()?;
        Some(Self { device: on.device, path: on.top.join(below) })
    }

    /// Returns whether it is, or lies below, another.
    pub fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// A line of the list of mounts.
struct Mount {
    device: Vec<u8>,
    /// What of the file system is shown.
    top: PathBuf,
    at: PathBuf,
}

impl Mount {
    fn read(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, top, at) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { device: device.to_vec(), top: plain(top), at: plain(at) })
    }
}

/// Returns a path as it is: the list has spaces and the like as three octal digits.
fn plain(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| byte == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_twice_lies_where_it_does() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 22 0:25 / /srv rw shared:1 - tmpfs tmpfs rw\n\
            31 22 254:0 /node/keys /mnt/with\\040space rw - ext4 /dev/vda rw\n\
            32 30 0:26 / /srv/deep rw - tmpfs tmpfs rw\n\
            nonsense\n\
            33 32 0:27 /old /srv/deep rw - tmpfs tmpfs rw\n";
        let spot = |path: &str| Spot::among(mounts, Path::new(path)).expect("it is told");
        let (data, seen) = (spot("/node"), spot("/mnt/with space/a"));
        assert_eq!(seen, spot("/node/keys/a"));
        assert!(seen.is_within(&data) && !data.is_within(&seen) && data.is_within(&data));
        assert!(!spot("/srv/node").is_within(&data), "the same path of another file system");
        assert!(!spot("/nodes").is_within(&data));
        assert_eq!(spot("/srv/deep/x"), Spot { device: b"0:27".to_vec(), path: "/old/x".into() });
        assert_eq!(Spot::among(b"", Path::new("/")), None);
        assert!(Spot::of(Path::new("/")).is_some());
    }
}
