//! One mount for several users of the machine: each is who they said they are, and all others are anyone.
//!
//! Needs root, to make calls as other uids.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Uid;
use rustix::io::Errno;
use weft_core::{ErrorKind, Rights};
use weft_doors_fuse::OVERFLOW_ID;

use crate::bed::{Bed, Shared, mounted};
use crate::raw::{Kind, Mapping, lock, lock_description, until};
use crate::told;

/// Uids of this machine that nobody else here uses.
const ALICE: u32 = 42_001;
const BOB: u32 = 42_002;
const STRANGER: u32 = 42_003;

/// What is answered where somebody has no right at all.
const HIDDEN: Errno = Errno::NOENT;

/// Does something as a uid, without any privilege, on a thread of its own.
fn as_uid<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root becomes anybody");
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

/// Returns what a call failed with, and `None` if it did not.
fn number<T>(answer: std::io::Result<T>) -> Option<Errno> {
    answer.err().and_then(|error| Errno::from_io_error(&error))
}

/// A shared mount that carol serves, on which alice and bob have said who they are. All three may
/// do everything, but where [`private`] says otherwise.
fn share(bed: &Bed) -> Shared {
    bed.allow(&[("bob", Rights::ALL), ("carol", Rights::ALL)]);
    let shared = bed.mount_shared("carol", 10);
    admit(bed, &shared, "alice", 20, ALICE);
    admit(bed, &shared, "bob", 30, BOB);
    shared
}

fn admit(bed: &Bed, shared: &Shared, user: &str, session: u128, uid: u32) {
    let user = bed.local_user(bed.model.clone(), bed.domain.caller(user), session, uid);
    bed.inside(|| shared.mount().admit(user)).expect("admitted");
}

/// Makes a directory of alice's that nobody else may do anything in, with a file in it.
fn private(bed: &Bed) {
    fs::create_dir(bed.join("private")).expect("made");
    bed.store("private/secret", &[7; 300_000]);
    std::os::unix::fs::symlink("somewhere", bed.join("private/link")).expect("made");
    bed.allow_below("private", &[]);
}

/// Returns what every way to look at what is private is answered with.
fn looked_at(shared: &Shared) -> Vec<Option<Errno>> {
    let (dir, secret) = (shared.join("private"), shared.join("private/secret"));
    vec![
        number(fs::read_dir(&dir)),
        number(fs::symlink_metadata(&secret)),
        number(fs::read(&secret)),
        number(File::options().write(true).open(&secret)),
        number(fs::read_link(shared.join("private/link"))),
        number(fs::remove_file(&secret)),
        number(fs::rename(&secret, shared.join("taken"))),
        number(fs::hard_link(&secret, shared.join("taken"))),
        rustix::fs::getxattr(&secret, "user.weft.id", &mut [0_u8; 100][..]).err(),
    ]
}

fn why(path: &Path) -> Option<String> {
    told::get(path, "user.weft.why").ok()
}

mounted! {
    fn each_call_is_made_as_the_uid_that_makes_it(bed) {
        let shared = share(&bed);
        for (uid, name) in [(ALICE, "of-alice"), (BOB, "of-bob"), (0, "of-carol")] {
            as_uid(uid, || fs::write(shared.join(name), name)).expect("each may");
        }
        for (name, owner) in [("of-alice", "alice"), ("of-bob", "bob"), ("of-carol", "carol")] {
            assert_eq!(bed.walked(name).attr.owner, bed.domain.name(owner).id(), "{name}");
        }
        let refused = as_uid(STRANGER, || {
            [number(fs::read(shared.join("of-bob"))), number(fs::write(shared.join("of-nobody"), "x"))]
        });
        assert_eq!(refused, [Some(HIDDEN); 2], "who has not said who they are is anyone");
        bed.allow(&[("carol", Rights::ALL), ("bob", Rights::READING)]);
        until("bob may only read", || as_uid(BOB, || number(fs::write(shared.join("of-bob"), "x"))) == Some(Errno::ACCESS));
        assert_eq!(as_uid(BOB, || fs::read(shared.join("of-alice"))).expect("he may read"), b"of-alice");
        as_uid(ALICE, || fs::write(shared.join("of-bob"), "by alice")).expect("she may");
    }

    fn a_file_is_given_to_who_uses_the_mount_and_to_nobody_else(bed) {
        let shared = share(&bed);
        let at = shared.join("f");
        fs::write(&at, "carol's").expect("she may");
        let chown = |uid, gid| number(std::os::unix::fs::chown(&at, uid, gid));
        let ids = |stat: fs::Metadata| (stat.uid(), stat.gid());
        fs::set_permissions(&at, fs::Permissions::from_mode(0o6755)).expect("hers");
        assert_eq!(chown(Some(BOB), Some(ALICE)), None);
        assert_eq!(ids(fs::metadata(&at).expect("there")), (BOB, ALICE));
        assert_eq!(fs::metadata(&at).expect("there").mode() & 0o7777, 0o755, "set-id bits stay behind");
        let attr = bed.walked("f").attr;
        assert_eq!((attr.owner, attr.group), (bed.domain.name("bob").id(), bed.domain.name("alice").id()));
        for nobody in [STRANGER, OVERFLOW_ID] {
            let answers = [chown(Some(nobody), None), chown(None, Some(nobody))];
            assert_eq!(answers, [Some(Errno::PERM); 2], "{nobody}");
        }
        bed.allow(&[("carol", Rights::ALL), ("bob", Rights::WRITING)]);
        until("bob gives nothing away any more", || as_uid(BOB, || chown(Some(ALICE), None)) == Some(Errno::PERM));
        assert_eq!(as_uid(BOB, || chown(None, Some(BOB))), None, "to a group that he is");
        assert_eq!(ids(as_uid(ALICE, || fs::metadata(&at)).expect("there")), (BOB, BOB));
        assert_eq!(as_uid(ALICE, || chown(Some(ALICE), None)), None, "she may change the ACL");
        assert_eq!(as_uid(BOB, || chown(Some(BOB), None)), Some(Errno::PERM));
    }

    fn nobody_sees_anothers_names_or_bytes_that_the_kernel_was_told(bed) {
        private(&bed);
        let shared = share(&bed);
        private_is_left_alone(&bed);
        let _mapped = as_uid(ALICE, || {
            let secret = shared.join("private/secret");
            assert_eq!(fs::read_dir(shared.join("private")).expect("hers").count(), 2);
            assert_eq!(fs::metadata(&secret).expect("hers").len(), 300_000);
            assert_eq!(fs::read(&secret).expect("hers"), [7; 300_000]);
            fs::read_link(shared.join("private/link")).expect("hers");
            let mapping = Mapping::private(&File::open(&secret).expect("hers"));
            assert_eq!(mapping.read(200_000), 7);
            mapping
        });
        for uid in [BOB, STRANGER, 0] {
            let answers = as_uid(uid, || looked_at(&shared));
            assert!(answers.iter().all(Option::is_some), "{uid}: {answers:?}");
        }
        // What was refused to one is there for the other.
        assert_eq!(as_uid(ALICE, || fs::read(shared.join("private/secret"))).expect("hers"), [7; 300_000]);
        let absent = shared.join("private/absent");
        assert!(as_uid(BOB, || number(fs::metadata(&absent))).is_some());
        bed.store("private/absent", b"there by now");
        assert_eq!(as_uid(ALICE, || fs::read(&absent)).expect("hers"), b"there by now");
    }

    fn a_right_that_is_withdrawn_stops_the_next_read_though_another_user_reads_on(bed) {
        bed.store("f", &[7; 300_000]);
        let shared = share(&bed);
        let open = |uid| as_uid(uid, || File::open(shared.join("f"))).expect("both may");
        let (of_alice, of_bob) = (open(ALICE), open(BOB));
        let read = |file: &File, uid| as_uid(uid, || file.read_at(&mut [0; 4096], 8192));
        assert_eq!((read(&of_alice, ALICE).ok(), read(&of_bob, BOB).ok()), (Some(4096), Some(4096)));
        bed.allow(&[("carol", Rights::ALL)]);
        until("bob is refused", || number(read(&of_bob, BOB)) == Some(HIDDEN));
        let why = as_uid(BOB, || why(&shared.join("."))).expect("he may ask");
        assert!(why.starts_with("failed: read\n") && why.contains("\nhint: it was open: "), "{why}");
        for _ in 0..20 {
            assert_eq!(read(&of_alice, ALICE).ok(), Some(4096), "she may still");
            assert_eq!(number(read(&of_bob, BOB)), Some(HIDDEN));
        }
    }

    fn an_open_file_is_whose_it_was_opened_as_whoever_uses_it(bed) {
        private(&bed);
        let shared = share(&bed);
        private_is_left_alone(&bed);
        let open = || File::options().read(true).write(true).open(shared.join("private/secret"));
        let file = as_uid(ALICE, open).expect("hers");
        as_uid(BOB, || {
            file.write_all_at(b"handed over", 0).expect("by her descriptor");
            file.set_len(11).expect("by her descriptor");
            file.sync_all().expect("by her descriptor");
            assert!(number(open()).is_some(), "and by that one only");
            assert!(number(file.metadata()).is_some(), "fstat(2) names no open file");
        });
        assert_eq!(bed.stored("private/secret"), b"handed over");
    }

    fn locks_of_two_users_of_one_mount_see_each_other_and_go_with_their_files(bed) {
        bed.store("f", b"x");
        let shared = share(&bed);
        let open = |uid| as_uid(uid, || File::options().read(true).write(true).open(shared.join("f"))).expect("both may");
        let (of_alice, of_bob) = (open(ALICE), open(BOB));
        as_uid(ALICE, || lock_description(&of_alice, Kind::Write)).expect("it is free");
        let taken = as_uid(BOB, || lock_description(&of_bob, Kind::Write));
        assert_eq!(number(taken), Some(Errno::AGAIN));
        drop(of_alice);
        until("the lock went with the file", || as_uid(BOB, || lock_description(&of_bob, Kind::Write)).is_ok());
        let again = open(ALICE);
        assert!(number(as_uid(ALICE, || lock(&again, Kind::Write, 0, 0, false))).is_some());
        bed.inside(|| shared.mount().dismiss(BOB)).expect("it is shared");
        until("the lock went with its user", || as_uid(ALICE, || lock(&again, Kind::Write, 0, 0, false)).is_ok());
    }

    fn who_is_dismissed_is_anyone_and_has_nothing_open(bed) {
        bed.store("f", &[7; 8192]);
        let shared = share(&bed);
        let (mut file, mapping) = as_uid(BOB, || {
            let file = File::open(shared.join("f")).expect("he may");
            let mapping = Mapping::private(&file);
            (file, mapping)
        });
        assert_eq!(mapping.read(0), 7);
        drop(mapping);
        assert!(bed.inside(|| shared.mount().dismiss(BOB)).expect("it is shared"));
        assert_eq!(number(file.read(&mut [0; 10])), Some(Errno::BADF));
        assert_eq!(as_uid(BOB, || number(File::open(shared.join("f")))), Some(HIDDEN));
        assert!(!bed.inside(|| shared.mount().dismiss(BOB)).expect("it is shared"));
        admit(&bed, &shared, "bob", 31, BOB);
        assert_eq!(as_uid(BOB, || fs::read(shared.join("f"))).expect("he may again"), [7; 8192]);
        assert_eq!(number(file.read(&mut [0; 10])), Some(Errno::BADF), "what was closed stays closed");
    }

    fn an_owner_is_shown_as_the_uid_that_said_so(bed) {
        let shared = share(&bed);
        for (uid, name) in [(ALICE, "of-alice"), (BOB, "of-bob"), (0, "of-carol")] {
            as_uid(uid, || fs::write(shared.join(name), name)).expect("each may");
        }
        let owner = |name: &str, uid| as_uid(uid, || fs::metadata(shared.join(name))).expect("there").uid();
        for uid in [ALICE, BOB, 0] {
            let owners = ["of-alice", "of-bob", "of-carol"].map(|name| owner(name, uid));
            assert_eq!(owners, [ALICE, BOB, 0], "as {uid}");
        }
        admit(&bed, &shared, "bob", 40, STRANGER);
        assert_eq!((owner("of-bob", STRANGER), owner("of-bob", BOB)), (BOB, BOB), "the first who is bob");
        for (uid, shown) in [(STRANGER, BOB), (BOB, OVERFLOW_ID)] {
            bed.inside(|| shared.mount().dismiss(uid)).expect("it is shared");
            assert_eq!(owner("of-bob", ALICE), shown);
        }
    }

    fn what_failed_is_told_to_whom_it_failed_for(bed) {
        private(&bed);
        let shared = share(&bed);
        private_is_left_alone(&bed);
        assert!(as_uid(BOB, || number(fs::read(shared.join("private/secret")))).is_some());
        let root = shared.join(".");
        let told = as_uid(BOB, || why(&root)).expect("it is told");
        assert!(told.contains("private"), "{told}");
        assert!(as_uid(STRANGER, || number(fs::write(shared.join("by-a-stranger"), "x"))).is_some());
        for uid in [ALICE, STRANGER, 0] {
            let told = as_uid(uid, || why(&root));
            assert!(told.is_none(), "{uid}: {told:?}");
        }
    }

    fn nothing_can_be_written_by_a_mapping_which_the_kernel_might_send_as_another(bed) {
        bed.store("f", b"x");
        let shared = share(&bed);
        let file = as_uid(ALICE, || File::options().read(true).write(true).open(shared.join("f"))).expect("she may");
        let mapped = Mapping::with(&file, true, rustix::mm::MapFlags::SHARED);
        assert_eq!(mapped.err(), Some(Errno::NODEV));
    }

    fn what_one_user_makes_stays_under_their_feet(bed) {
        let shared = share(&bed);
        let place = shared.join("made");
        fs::create_dir(&place).expect("made");
        let here = rustix::fs::open(&place, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).expect("there");
        let path = || fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&here)));
        // All doors hear of this one after they have heard of the directory.
        fs::write(shared.join("f"), "old").expect("made");
        let mapping = as_uid(BOB, || Mapping::private(&File::open(shared.join("f")).expect("he may")));
        assert_eq!(mapping.read(0), b'o');
        bed.store("f", b"new");
        until("bob's door has heard", || mapping.read(0) == b'n');
        assert_eq!(path().expect("told"), place, "nobody took its name from it");
    }

    fn bytes_are_copied_between_open_files_as_who_opened_them(bed) {
        private(&bed);
        let shared = share(&bed);
        private_is_left_alone(&bed);
        let source = as_uid(ALICE, || File::open(shared.join("private/secret"))).expect("hers");
        let make = |name: &str| File::create(shared.join(name));
        let (hers, his) = (as_uid(ALICE, || make("hers")).expect("made"), as_uid(BOB, || make("his")).expect("made"));
        let copy = |to: &File| as_uid(BOB, || std::io::copy(&mut &source, &mut &*to));
        for (to, name) in [(&hers, "hers"), (&his, "his")] {
            rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).expect("it is a file");
            assert_eq!(copy(to).expect("by the descriptors"), 300_000);
            assert_eq!(bed.stored(name), [7; 300_000]);
        }
        bed.inside(|| shared.mount().dismiss(ALICE)).expect("it is shared");
        rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0)).expect("it is a file");
        assert_eq!(number(copy(&his)), Some(Errno::BADF));
    }

    fn a_lock_that_is_waited_for_is_not_given_to_who_was_dismissed(bed) {
        bed.store("f", b"x");
        let shared = share(&bed);
        let open = |uid| as_uid(uid, || File::options().read(true).write(true).open(shared.join("f"))).expect("both may");
        let (of_alice, of_bob) = (open(ALICE), open(BOB));
        as_uid(ALICE, || lock_description(&of_alice, Kind::Write)).expect("it is free");
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let waits = scope.spawn(|| {
                as_uid(BOB, move || {
                    tell.send(rustix::thread::gettid()).expect("it is waited for");
                    lock(&of_bob, Kind::Write, 0, 0, true)
                })
            });
            let thread = told.recv().expect("it begins").as_raw_nonzero();
            let stat = || fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("it lives");
            until("he waits", || !stat().contains(") R "));
            bed.inside(|| shared.mount().dismiss(BOB)).expect("it is shared");
            drop(of_alice);
            assert_eq!(number(waits.join().expect("no panic")), Some(Errno::BADF));
        });
        let again = open(ALICE);
        until("it is free", || as_uid(ALICE, || lock_description(&again, Kind::Write)).is_ok());
    }

    fn what_anyone_may_do_needs_no_name(bed) {
        let shared = share(&bed);
        bed.store("f", b"for all");
        bed.allow(&[("anyone", Rights::READING)]);
        assert_eq!(as_uid(STRANGER, || fs::read(shared.join("f"))).expect("anyone may"), b"for all");
        assert_eq!(as_uid(STRANGER, || number(fs::write(shared.join("f"), "x"))), Some(Errno::ACCESS));
    }

    fn only_a_shared_mount_admits_users_and_not_the_one_who_serves_it(bed) {
        let user = |uid| bed.local_user(bed.model.clone(), bed.domain.caller("bob"), 40, uid);
        let refused = bed.inside(|| bed.mount().admit(user(BOB))).expect_err("it is of one user");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(number(as_uid(BOB, || fs::read_dir(bed.join(".")))), Some(Errno::ACCESS), "the kernel says so");
        let shared = share(&bed);
        for (uid, why) in [(0, "it serves the mount"), (OVERFLOW_ID, "what is nobody's is shown as its")] {
            let refused = bed.inside(|| shared.mount().admit(user(uid))).expect_err(why);
            assert_eq!(refused.kind(), ErrorKind::NotPermitted);
        }
    }

    fn a_write_of_one_user_is_read_and_seen_in_a_mapping_by_the_other(bed) {
        bed.store("f", &[1; 8192]);
        let shared = share(&bed);
        let mapping = as_uid(BOB, || Mapping::private(&File::open(shared.join("f")).expect("he may")));
        assert_eq!(mapping.read(5000), 1);
        as_uid(ALICE, || {
            let mut file = File::options().write(true).open(shared.join("f")).expect("she may");
            file.write_all(&[2; 8192]).expect("written");
        });
        assert_eq!(as_uid(BOB, || fs::read(shared.join("f"))).expect("he may"), [2; 8192]);
        assert_eq!(mapping.read(5000), 2);
        bed.store("f", &[3; 8192]);
        until("a change from elsewhere is seen", || mapping.read(5000) == 3);
    }
}

/// What is private stays so, whatever the rest is allowed: rights below were set apart before.
fn private_is_left_alone(bed: &Bed) {
    assert!(bed.walked("private").rights.is_some_and(|rights| rights.contains(Rights::READ)));
}
