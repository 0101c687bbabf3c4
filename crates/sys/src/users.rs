//! Users of the machine: who they are, in which groups, and making files that are theirs.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use weft_core::{Error, ErrorKind, Result, limits};

/// The uid that the kernel shows for whoever has none here: nobody can be meant by it.
pub const NOBODY: u32 = 65_534;

/// A user, as the machine's own list of users has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The group that new files of theirs are of.
    pub gid: u32,
    /// All groups that they are in, that one among them.
    pub groups: Vec<u32>,
}

/// A user to run something as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// What the machine calls them.
    pub name: OsString,
    /// Their uid.
    pub uid: u32,
    /// The group that new files of theirs are of.
    pub gid: u32,
    /// Their home.
    pub home: PathBuf,
}

/// Bytes that one entry of the list of users may have.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Returns in which groups a user is; `None` if the machine knows no such user. The list may lie on a
/// network: it may take long to answer.
pub fn member(uid: u32) -> Result<Option<Member>> {
    by_uid(uid, |entry| groups_of(entry).map(|groups| Member { gid: entry.pw_gid, groups }))?.transpose()
}

/// Returns a user of a name, or, if there is none and it is a number, of that uid. `None` if the machine knows no
/// such user; as slow as [`member`].
#[expect(unsafe_code, reason = "no library offers these calls")]
pub fn account(name: &OsStr) -> Result<Option<Account>> {
    let text = |text: *const libc::c_char| {
        // SAFETY: the texts of an entry end with NUL, and live as long as the entry does.
        OsString::from_vec(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
    };
    let read = |entry: &libc::passwd| Account {
        name: text(entry.pw_name),
        uid: entry.pw_uid,
        gid: entry.pw_gid,
        home: text(entry.pw_dir).into(),
    };
    let Ok(asked) = CString::new(name.as_bytes()) else { return Ok(None) };
    let named = look_up(
        // SAFETY: the name ends with NUL; the rest is as `look_up` has it.
        |entry, room, size, found| unsafe { libc::getpwnam_r(asked.as_ptr(), entry, room, size, found) },
        read,
    )?;
    match (named, name.to_str().and_then(|name| name.parse().ok())) {
        (None, Some(uid)) => by_uid(uid, read),
        (named, _) => Ok(named),
    }
}

#[expect(unsafe_code, reason = "no library offers this call")]
fn by_uid<T>(uid: u32, read: impl FnOnce(&libc::passwd) -> T) -> Result<Option<T>> {
    look_up(
        // SAFETY: all is as `look_up` has it.
        |entry, room, size, found| unsafe { libc::getpwuid_r(uid, entry, room, size, found) },
        read,
    )
}

/// Asks the list of users by a call that is given room for an entry, for its texts, how many bytes that is, and room to
/// say where the entry is; reads the entry that it found.
#[expect(unsafe_code, reason = "no library offers these calls")]
fn look_up<T>(
    ask: impl FnOnce(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
    read: impl FnOnce(&libc::passwd) -> T,
) -> Result<Option<T>> {
    // SAFETY: it is plain numbers and pointers, of which all zeroes are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let (mut texts, mut found) = (vec![0; ENTRY_BYTES_MAX], std::ptr::null_mut());
    let failed = ask(&raw mut entry, texts.as_mut_ptr(), texts.len(), &raw mut found);
    if failed != 0 {
        let cause = std::io::Error::from_raw_os_error(failed);
        return Err(Error::new(ErrorKind::Unavailable, "the machine's list of users does not answer")
            .caused_by(cause));
    }
    // What it found is `entry`, whose texts lie in `texts`.
    Ok(if found.is_null() { None } else { Some(read(&entry)) })
}

#[expect(unsafe_code, reason = "no library offers this call")]
fn groups_of(entry: &libc::passwd) -> Result<Vec<u32>> {
    let mut groups = vec![0; limits::MACHINE_GROUPS_MAX];
    let mut count = groups.len() as libc::c_int;
    // SAFETY: the entry's name ends with NUL, and `groups` has room for as many as `count` says.
    let all = unsafe { libc::getgrouplist(entry.pw_name, entry.pw_gid, groups.as_mut_ptr(), &raw mut count) };
    if all < 0 {
        return Err(Error::new(ErrorKind::TooLarge, "the user is in more groups than are looked at"));
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    Ok(groups)
}

/// Runs `make` so that what it makes belongs to a user and a group of the machine, and is refused what
/// that user may not do there. For this thread only, and for one system call: `make` must not wait.
/// `NotPermitted` if this process may not act as somebody else.
pub fn making_as<T>(uid: u32, gid: u32, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let _back = Acting::begin(uid, gid)?;
    make()
}

/// The thread acts as another user until this is dropped.
struct Acting {
    uid: u32,
    gid: u32,
}

impl Acting {
    fn begin(uid: u32, gid: u32) -> Result<Self> {
        let before = Self { gid: file_gid(gid), uid: file_uid(uid) };
        // Refusals are not told: only asking again shows what became of it.
        if (file_uid(u32::MAX), file_gid(u32::MAX)) == (uid, gid) {
            return Ok(before);
        }
        let detail = "the node's user cannot make files that belong to another user of the machine";
        Err(Error::not_permitted(detail).hint("have it run with CAP_SETUID and CAP_SETGID"))
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        file_uid(self.uid);
        file_gid(self.gid);
    }
}

/// Has this thread meet files as another user, and returns as whom it did. What is no uid changes nothing.
#[expect(unsafe_code, reason = "no library offers this call")]
fn file_uid(uid: u32) -> u32 {
    // SAFETY: it takes a number and touches no memory of ours.
    let before = unsafe { libc::setfsuid(uid) };
    before.cast_unsigned()
}

/// The same for the group.
#[expect(unsafe_code, reason = "no library offers this call")]
fn file_gid(gid: u32) -> u32 {
    // SAFETY: it takes a number and touches no memory of ours.
    let before = unsafe { libc::setfsgid(gid) };
    before.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_machine_says_in_which_groups_its_users_are() {
        let root = member(0).expect("the list answers").expect("there is a root");
        assert!(root.gid == 0 && root.groups.contains(&0), "{root:?}");
        assert_eq!(member(3_999_999_999).expect("the list answers"), None);
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let account = |name: &str| account(OsStr::new(name)).expect("the list answers");
        let root = account("root").expect("there is a root");
        assert_eq!((root.uid, root.gid, root.home.as_path()), (0, 0, Path::new("/root")));
        assert_eq!(account("0"), Some(root));
        for nobody in ["", "no such user", "3999999999", "-1", "99999999999", "ro\0ot"] {
            assert_eq!(account(nobody), None, "{nobody:?}");
        }
    }

    #[test]
    fn what_is_made_as_somebody_is_theirs_and_only_that() {
        let place = tempfile::tempdir().expect("a directory");
        let made = |name: &str| {
            std::fs::create_dir(place.path().join(name))
                .map_err(|e| Error::denied("it is not made").caused_by(e))
        };
        let of = |name: &str| {
            let there = std::fs::metadata(place.path().join(name)).expect("made");
            (there.uid(), there.gid())
        };
        let own = (crate::process::uid(), crate::process::gid());
        let refused = making_as(1001, 1002, || made("closed")).expect_err("the directory is not theirs");
        if own.0 != 0 {
            assert_eq!(refused.kind(), ErrorKind::NotPermitted, "nor may this process act as them");
            making_as(own.0, own.1, || made("mine")).expect("as itself it may");
            return;
        }
        assert_eq!(refused.kind(), ErrorKind::Denied);
        std::os::unix::fs::chown(place.path(), Some(1001), Some(1002)).expect("root may");
        making_as(1001, 1002, || made("theirs")).expect("it is theirs now");
        let fell =
            std::panic::catch_unwind(|| making_as(1001, 1002, || -> Result<()> { panic!("on purpose") }));
        assert!(fell.is_err());
        made("own").expect("root may");
        assert_eq!((of("theirs"), of("own")), ((1001, 1002), own), "the thread is itself again");
    }
}
