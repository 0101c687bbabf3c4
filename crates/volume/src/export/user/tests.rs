use weft_core::Time;
use weft_sys::folder::Sort;

use super::*;

const OWNER: u32 = 1001;
const GROUP: u32 = 50;

fn user(uid: u32, groups: Option<&[u32]>) -> User {
    let member = groups.map(|groups| Arc::new(Member { gid: uid, groups: [&[uid], groups].concat() }));
    User { uid, member }
}

/// What the machine tells of some file.
pub(in crate::export) fn facts(uid: u32, gid: u32, mode: u16) -> Facts {
    Facts {
        inode: 1,
        generation: 1,
        sort: Sort::File,
        mode,
        links: 1,
        uid,
        gid,
        size: 0,
        used: 0,
        atime: Time::EPOCH,
        mtime: Time::EPOCH,
        ctime: Time::EPOCH,
        btime: None,
        is_mount: false,
    }
}

/// Of each mode: what its owner may do, who is in its group, others, and one whose groups are not known.
#[test]
fn bits_count_for_the_first_class_that_somebody_is_of_and_for_no_other() {
    let who = [
        user(OWNER, Some(&[GROUP])),
        user(1002, Some(&[7, GROUP])),
        user(1002, Some(&[7])),
        user(1002, None),
    ];
    let table: [(u16, [u16; 4], [u16; 4]); 9] = [
        // mode, without an access list, with one
        (0o000, [0, 0, 0, 0], [0, 0, 0, 0]),
        (0o600, [6, 0, 0, 0], [6, 0, 0, 0]),
        (0o640, [6, 4, 0, 0], [6, 0, 0, 0]),
        (0o644, [6, 4, 4, 4], [6, 0, 0, 0]),
        (0o604, [6, 0, 4, 0], [6, 0, 0, 0]),
        (0o047, [0, 4, 7, 4], [0, 0, 0, 0]),
        (0o077, [0, 7, 7, 7], [0, 0, 0, 0]),
        (0o711, [7, 1, 1, 1], [7, 0, 0, 0]),
        (0o7777, [7, 7, 7, 7], [7, 0, 0, 0]),
    ];
    for (mode, plain, listed) in table {
        let facts = facts(OWNER, GROUP, mode);
        let access = |has_acl: bool| who.each_ref().map(|user| user.access(&facts, || has_acl));
        assert_eq!((access(false), access(true)), (plain, listed), "{mode:o}");
    }
}

/// What `governed` rights are left of each kind by each of the eight settings of its owner's bits.
#[test]
fn rights_are_left_as_the_machine_would_leave_them() {
    let owner = user(OWNER, None);
    let governed = Rights::LIST | Rights::TRAVERSE | Rights::INSERT | Rights::REMOVE | Rights::RENAME;
    let names = Rights::INSERT | Rights::REMOVE | Rights::RENAME;
    let (none, look) = (Rights::NONE, Rights::TRAVERSE | Rights::LIST);
    let of_dir = [none, Rights::TRAVERSE, none, Rights::TRAVERSE | names, none, look, none, look | names];
    let bytes = Rights::READ | Rights::WRITE | Rights::APPEND | Rights::EXECUTE;
    let write = Rights::WRITE | Rights::APPEND;
    let of_file =
        [none, none, write, write, Rights::READ, Rights::READ | Rights::EXECUTE, Rights::READ | write, bytes];
    for bits in 0..8_u16 {
        let facts = facts(OWNER, GROUP, bits << 6 | 0o077);
        let left = |kind| owner.rights(kind, &facts, || false);
        assert_eq!(left(Kind::Directory) & governed, of_dir[usize::from(bits)], "{bits} of a directory");
        assert_eq!(left(Kind::File) & bytes, of_file[usize::from(bits)], "{bits} of a file");
        let rest = Rights::ALL - governed - bytes;
        assert_eq!(
            (left(Kind::Directory) & rest, left(Kind::File) & rest),
            (rest, rest),
            "bits bind no others"
        );
    }
    let others = user(1002, Some(&[GROUP])).rights(Kind::File, &facts(OWNER, GROUP, 0o777), || false);
    assert_eq!(others, Rights::ALL - Rights::ATTR_WRITE, "attributes are the owner's");
}

#[test]
fn a_sticky_directory_keeps_names_for_their_owners() {
    for (mode, dir, file, may) in
        [(0o0777, 1, 2, true), (0o1777, 1, 2, false), (0o1777, OWNER, 2, true), (0o1777, 1, OWNER, true)]
    {
        let may_unname = user(OWNER, Some(&[])).may_unname(&facts(dir, 0, mode), &facts(file, 0, 0o777));
        assert_eq!(may_unname, may, "{mode:o} {dir} {file}");
    }
}

#[test]
fn nobody_gives_away_what_they_could_not_give_themselves() {
    let (owner, made) = (user(OWNER, Some(&[GROUP])), facts(OWNER, OWNER, 0o600));
    for (uid, gid, may) in
        [(OWNER, OWNER, true), (OWNER, GROUP, true), (OWNER, 7, false), (1002, OWNER, false)]
    {
        assert_eq!(owner.may_stand_for(&facts(uid, gid, 0o644), &made), may, "{uid} {gid}");
    }
    assert!(!user(OWNER, None).may_stand_for(&facts(OWNER, GROUP, 0o644), &made), "not on a guess");
    for (gid, was, mode, may) in [
        (GROUP, 0o755, 0o2755, true),
        (7, 0o755, 0o2755, false),
        (7, 0o2755, 0o2700, true),
        (7, 0o755, 0o1777, true),
    ] {
        assert_eq!(owner.may_set_mode(&facts(OWNER, gid, was), mode), may, "{gid} {mode:o}");
    }
}

#[test]
fn root_and_who_stands_for_nobody_are_no_owners() {
    for uid in [0, users::NOBODY, u32::MAX] {
        assert_eq!(must_be_somebody(uid).expect_err("nobody's").kind(), ErrorKind::NotPermitted);
    }
    must_be_somebody(OWNER).expect("somebody");
}
