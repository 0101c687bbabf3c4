//! Where directories lie on their file systems, and what sort of file system that is: what is mounted in a
//! second place is the same there.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use weft_core::Result;

use crate::fault;

/// What the machine says is mounted.
const LIST: &str = "/proc/self/mountinfo";

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
        Self::among(&list()?, path)
    }

    fn among(mounts: &[u8], path: &Path) -> Option<Self> {
        // Of several on one place, the last lies on top.
        let on = each(mounts).filter(|mount| path.starts_with(&mount.at));
        let on = on.max_by_key(|mount| mount.at.components().count())?;
        let below = path.strip_prefix(&on.at).ok()?;
        Some(Self { device: on.device, path: on.top.join(below) })
    }

    /// Returns whether it is, or lies below, another.
    pub fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// Where something is mounted, and the name of its file system, such as `ext4` or `fuse.weft`.
pub type Mounted = (PathBuf, Vec<u8>);

/// Returns all that is mounted, in the order in which it was: what came later covers what came before at or
/// below the same place. Fails as reading the machine's list does.
pub fn all() -> Result<Vec<Mounted>> {
    let list = std::fs::read(LIST).map_err(|e| fault::error(e, "read", LIST))?;
    Ok(each(&list).map(|mount| (mount.at, mount.kind)).collect())
}

/// Returns the uid whose process serves what is mounted at a place, an absolute path without links; of several
/// there, the last one. None if that is nothing that a process serves.
pub fn served_by(place: &Path) -> Option<u32> {
    served_by_among(&list()?, place)
}

fn served_by_among(mounts: &[u8], place: &Path) -> Option<u32> {
    let on_top = each(mounts).filter(|mount| mount.at == place).last()?;
    let words = on_top.words.split(|byte| *byte == b',');
    let uid = words.into_iter().find_map(|word| word.strip_prefix(b"user_id="))?;
    std::str::from_utf8(uid).ok()?.parse().ok()
}

/// What a process serves (FUSE), as the kernel numbers it for as long as it is mounted or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served(u32);

impl Served {
    /// Returns what is mounted at a path without links; `None` if that is nothing that a process serves. Nothing is asked of
    /// that process.
    pub fn at(dir: &Path) -> Option<Self> {
        let list = list()?;
        let mount = each(&list).filter(|mount| mount.at == dir).last()?;
        if !mount.kind.starts_with(b"fuse") {
            return None;
        }
        // All of them are of one sort of device; the number behind the colon tells them apart.
        let number = mount.device.split(|byte| *byte == b':').nth(1)?;
        std::str::from_utf8(number).ok()?.parse().ok().map(Self)
    }

    /// Has every call on it fail, whoever still has a descriptor of it. Fails if it is not this user's.
    pub fn abort(self) -> io::Result<()> {
        std::fs::write(format!("/sys/fs/fuse/connections/{}/abort", self.0), "1")
    }
}

/// Returns the name of the file system that something open lies on, such as `ext4`. None if that is not told.
pub(crate) fn file_system(open: impl AsFd) -> Option<Vec<u8>> {
    let stat = statx(open, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID) {
        return None;
    }
    file_system_of(&list()?, stat.stx_mnt_id)
}

fn file_system_of(mounts: &[u8], id: u64) -> Option<Vec<u8>> {
    each(mounts).find(|mount| mount.id == id).map(|mount| mount.kind)
}

fn list() -> Option<Vec<u8>> {
    std::fs::read(LIST).ok()
}

fn each(mounts: &[u8]) -> impl Iterator<Item = Mount> {
    mounts.split(|byte| *byte == b'\n').filter_map(Mount::read)
}

/// A line of the list of mounts (`proc_pid_mountinfo(5)`).
struct Mount {
    id: u64,
    device: Vec<u8>,
    /// What of the file system is shown.
    top: PathBuf,
    at: PathBuf,
    /// The file system's name.
    kind: Vec<u8>,
    /// What the file system says of itself.
    words: Vec<u8>,
}

impl Mount {
    fn read(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, _above) = (std::str::from_utf8(fields.next()?).ok()?.parse().ok()?, fields.next()?);
        let (device, top, at) = (fields.next()?, fields.next()?, fields.next()?);
        // Options, and fields of no certain number up to a dash.
        let mut rest = fields.skip(1).skip_while(|field| *field != b"-").skip(1);
        let kind = rest.next()?.to_vec();
        let words = rest.nth(1).unwrap_or_default().to_vec();
        Some(Self { id, device: device.to_vec(), top: plain(top), at: plain(at), kind, words })
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
    fn what_the_list_escapes_is_taken_back_and_nothing_else() {
        for (field, path) in [
            ("/a", "/a"),
            (r"/a\040b", "/a b"),
            (r"/\134\011", "/\\\t"),
            (r"/end\04", r"/end\04"),
            (r"/\999", r"/\999"),
        ] {
            assert_eq!(plain(field.as_bytes()), Path::new(path), "{field}");
        }
        assert!(all().expect("told").iter().any(|(at, _)| at == Path::new("/")));
    }

    #[test]
    fn who_serves_a_mount_is_as_the_list_says() {
        let mounts = b"22 1 254:0 / / rw - ext4 /dev/vda rw,user_id=7\n\
            40 22 0:50 / /mnt rw - fuse.weft weft rw,user_id=1000,group_id=1000,allow_other\n\
            41 40 0:51 / /mnt rw - fuse.weft weft rw,user_id=1001,group_id=1001\n\
            42 22 0:52 / /tmp rw - tmpfs tmpfs rw\n\
            43 22 0:53 / /odd rw - fuse weft rw,user_id=x\n";
        for (place, uid) in [("/mnt", Some(1001)), ("/tmp", None), ("/odd", None), ("/elsewhere", None)] {
            assert_eq!(served_by_among(mounts, Path::new(place)), uid, "{place}");
        }
    }

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
        let kind = |id| file_system_of(mounts, id).map(|kind| String::from_utf8(kind).expect("text"));
        assert_eq!((kind(22).as_deref(), kind(30).as_deref(), kind(29)), (Some("ext4"), Some("tmpfs"), None));
        assert_eq!(Spot::among(b"", Path::new("/")), None);
        assert!(Spot::of(Path::new("/")).is_some());
        let proc = std::fs::File::open("/proc/self/status").expect("there");
        assert_eq!(file_system(proc).as_deref(), Some(&b"proc"[..]));
    }
}
