//! What a file of this machine has besides its bytes: holes, and attributes of its user's.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{SeekFrom, XattrFlags};
use rustix::io::Errno;
use weft_core::{Result, limits};

use crate::fault;

/// What stands before the names of user attributes, which the tree's are without.
const USER: &[u8] = b"user.";

/// User attributes: names, without `user.`, and values.
pub type Tags = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns whether a file may have holes: it takes less room than its bytes would.
pub fn is_sparse(file: &File) -> Result<bool> {
    let metadata = file.metadata().map_err(|e| fault::error(e, "read", "the local file"))?;
    Ok(metadata.blocks().saturating_mul(512) < metadata.len())
}

/// Returns the next run of bytes at or behind a place that is no hole, or `None` if there is none
/// before the end. Where the file system knows no holes, all of it is one.
pub fn next_bytes(file: &File, at: u64) -> Result<Option<(u64, u64)>> {
    let failed = |e: Errno| fault::error(e.into(), "read", "the local file");
    let begin = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(begin) => begin,
        Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    rustix::fs::seek(file, SeekFrom::Hole(begin)).map(|end| Some((begin, end))).map_err(failed)
}

/// Returns a file's user attributes. Where the file system has none, there are none.
pub fn tags(file: impl AsFd) -> Result<Tags> {
    let failed = |e: Errno| fault::error(e.into(), "read attributes of", "the local file");
    // Most files have none, or few.
    let mut names = vec![0; 256];
    let length = loop {
        match rustix::fs::flistxattr(&file, &mut names[..]) {
            Ok(length) => break length,
            Err(Errno::OPNOTSUPP) => return Ok(Tags::new()),
            Err(Errno::RANGE) if names.len() < limits::TAGS_BYTES_MAX => {
                names.resize(limits::TAGS_BYTES_MAX, 0)
            }
            Err(e) => return Err(failed(e)),
        }
    };
    let mut tags = Tags::new();
    for name in names[..length].split(|byte| *byte == 0) {
        let Some(own) = name.strip_prefix(USER) else { continue };
        let mut value = vec![0; limits::TAGS_BYTES_MAX];
        match rustix::fs::fgetxattr(&file, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            // Gone since.
            Err(Errno::NODATA) => continue,
            Err(e) => return Err(failed(e)),
        }
        tags.push((own.to_vec(), value));
    }
    tags.sort();
    Ok(tags)
}

/// Returns one user attribute of what is at a path, as the machine answers; `None` if there is none.
pub fn tag_at(path: &Path, own: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let name = [USER, own].concat();
    let mut value = vec![0; limits::TAGS_BYTES_MAX];
    match rustix::fs::getxattr(path, &name[..], &mut value[..]) {
        Ok(length) => value.truncate(length),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    Ok(Some(value))
}

/// Gives a file a user attribute, or takes it away. One that is not there is no error.
pub fn set_tag(file: impl AsFd, own: &[u8], value: Option<&[u8]>) -> Result<()> {
    let name = [USER, own].concat();
    let done = match value {
        Some(value) => rustix::fs::fsetxattr(&file, &name[..], value, XattrFlags::empty()),
        None => match rustix::fs::fremovexattr(&file, &name[..]) {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        },
    };
    done.map_err(|e| fault::error(io::Error::from(e), "set attributes of", "the local file"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_and_attributes_of_a_file_are_seen() {
        let dir = tempfile::tempdir_in(".").expect("a directory on a disk");
        let path = dir.path().join("f");
        let file = File::options().create_new(true).read(true).write(true).open(&path).expect("made");
        assert!(!is_sparse(&file).expect("seen") && next_bytes(&file, 0).expect("seen").is_none());
        file.set_len(4 << 20).expect("long");
        file.write_all_at(b"x", 2 << 20).expect("written");
        assert!(is_sparse(&file).expect("seen"));
        let (begin, end) = next_bytes(&file, 0).expect("seen").expect("a run");
        assert!(begin <= 2 << 20 && end > 2 << 20 && end < 4 << 20, "{begin} {end}");
        assert_eq!(next_bytes(&file, end).expect("seen"), None);
        set_tag(&file, b"b", Some(b"2")).expect("set");
        set_tag(&file, b"a", Some(b"")).expect("set");
        assert_eq!(tags(&file).expect("read"), [(b"a".to_vec(), vec![]), (b"b".to_vec(), b"2".to_vec())]);
        set_tag(&file, b"a", None).expect("removed");
        set_tag(&file, b"a", None).expect("not there");
        assert_eq!(tags(&file).expect("read"), [(b"b".to_vec(), b"2".to_vec())]);
        let at = |own| tag_at(&path, own).expect("read");
        assert_eq!((at(b"b"), at(b"a")), (Some(b"2".to_vec()), None));
        assert!(tag_at(&dir.path().join("none"), b"b").is_err());
    }
}
