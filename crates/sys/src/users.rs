//! Users of the machine: in which groups they are, and making files that are theirs.

use std::ffi::CStr;

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

/// Bytes that one entry of the list of users may have.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Returns in which groups a user is; `None` if the machine knows no such user. The list may lie on a
/// network: it may take long to answer.
#[expect(unsafe_code, reason = "no library offers these calls")]
pub fn member(uid: u32) -> Result<Option<Member>> {
    // SAFETY: it is plain numbers and pointers, of which all zeroes are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let (mut text, mut found) = (vec![0; ENTRY_BYTES_MAX], std::ptr::null_mut());
    // SAFETY: `entry` and `found` are ours to write, and `text` is as long as is said.
    let failed =
        unsafe { libc::getpwuid_r(uid, &raw mut entry, text.as_mut_ptr(), text.len(), &raw mut found) };
    if failed != 0 {
        let cause = std::io::Error::from_raw_os_error(failed);
        return Err(Error::new(ErrorKind::Unavailable, "the machine's list of users does not answer")
            .caused_by(cause));
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the call has found an entry, whose name lies in `text` and ends with NUL.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    let mut groups = vec![0; limits::MACHINE_GROUPS_MAX];
    let mut count = groups.len() as libc::c_int;
    // SAFETY: the name ends with NUL, and `groups` has room for as many as `count` says.
    let all = unsafe { libc::getgrouplist(name.as_ptr(), entry.pw_gid, groups.as_mut_ptr(), &raw mut count) };
    if all < 0 {
        return Err(Error::new(ErrorKind::TooLarge, "the user is in more groups than are looked at"));
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    Ok(Some(Member { gid: entry.pw_gid, groups }))
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

    use super::*;

    #[test]
    fn the_machine_says_in_which_groups_its_users_are() {
        let root = member(0).expect("the list answers").expect("there is a root");
        assert!(root.gid == 0 && root.groups.contains(&0), "{root:?}");
        assert_eq!(member(3_999_999_999).expect("the list answers"), None);
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
