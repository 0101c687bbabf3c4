//! What other clients do, seen on a mount: coherence, rights, revocation, owners.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use weft_core::Rights;
use weft_core::form::{At, FileSystem, Guard, Replace};

use crate::asked_again::follow_at;
use crate::bed::{Bed, can_mount, mounted};
use crate::faulty::Faulty;
use crate::raw::{Mapping, SOON, is_child, say, start, until};
use crate::told;

fn number<T>(answer: std::io::Result<T>) -> Option<Errno> {
    answer.err().and_then(|error| Errno::from_io_error(&error))
}

mounted! {
    fn an_open_sees_every_change_made_before_it(bed) {
        // Longer, shorter and as long as before, a page that was read and one that was not.
        for (round, size) in [100_000, 100_000, 5, 200_000, 4096, 4097].into_iter().enumerate() {
            let bytes = vec![round as u8 + 1; size];
            bed.store("f", &bytes);
            assert!(fs::read(bed.join("f")).expect("read") == bytes, "round {round}");
        }
    }

    fn an_open_file_comes_to_show_what_another_client_wrote(bed) {
        bed.store("f", &[1; 10_000]);
        let file = File::open(bed.join("f")).expect("opened");
        let mapping = Mapping::new(&file, false);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 5000).expect("read");
        assert_eq!((byte[0], mapping.read(5000)), (1, 1));
        bed.store("f", &[2; 10_000]);
        until("the mapping shows it", || mapping.read(5000) == 2);
        until("a read shows it", || {
            file.read_exact_at(&mut byte, 5000).expect("read");
            byte[0] == 2
        });
        bed.store("f", &[3; 20_000]);
        until("its length shows it", || file.metadata().expect("there").len() == 20_000);
    }

    fn names_that_another_client_makes_moves_and_removes_come_and_go(bed) {
        let again = bed.mount_again("alice", 2);
        fs::create_dir(again.join("d")).expect("made");
        until("it is there", || bed.join("d").is_dir());
        assert!(!bed.join("d/f").exists());
        fs::write(again.join("d/f"), "x").expect("written");
        until("what was not there is", || bed.join("d/f").exists());
        let stat = fs::metadata(bed.join("d/f")).expect("there");
        fs::rename(again.join("d/f"), again.join("g")).expect("renamed");
        until("it moved", || !bed.join("d/f").exists() && bed.join("g").exists());
        assert_eq!(fs::metadata(bed.join("g")).expect("there").ino(), stat.ino());
        fs::set_permissions(again.join("g"), std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("changed");
        until("its mode changed", || fs::metadata(bed.join("g")).expect("there").mode() & 0o777 == 0o640);
        fs::remove_file(again.join("g")).expect("removed");
        until("it is gone", || !bed.join("g").exists());
    }

    fn names_change_also_beside_a_change_of_policy(bed) {
        let [log, moved] = ["log", "log.1"].map(|name| At::root(name.try_into().expect("a name")));
        for round in 0..10_u8 {
            bed.store("log", &[round]);
            until("it is shown", || fs::read(bed.join("log")).is_ok_and(|read| read == [round]));
            bed.allow(&[("bob", if round % 2 == 0 { Rights::READ } else { Rights::NONE })]);
            let call = bed.call("alice", 99);
            let renamed = bed.model.rename(&call, &log, &moved, Replace::Any, &Guard::NONE);
            bed.runtime.block_on(renamed).expect("renamed");
            bed.store("log", &[100 + round]);
            until("the name leads to the new file", || {
                fs::read(bed.join("log")).is_ok_and(|read| read == [100 + round])
            });
        }
    }

    fn a_write_is_seen_by_other_clients_when_it_returns(bed) {
        let mut file = File::create(bed.join("f")).expect("made");
        for round in 0..50_u8 {
            file.write_all(&[round; 1000]).expect("written");
            let stored = bed.stored("f");
            assert_eq!((stored.len(), stored.last()), (1000 * (usize::from(round) + 1), Some(&round)));
        }
    }

    fn appends_of_two_mounts_never_mix(bed) {
        let again = bed.mount_again("alice", 2);
        let append = |path| File::options().append(true).create(true).open(path).expect("opened");
        File::create(bed.join("log")).expect("made");
        std::thread::scope(|scope| {
            for (who, path) in [("a", bed.join("log")), ("b", again.join("log"))] {
                scope.spawn(move || {
                    let mut file = append(path);
                    for line in 0..300 {
                        file.write_all(format!("{who} {line:03}\n").as_bytes()).expect("written");
                    }
                });
            }
        });
        let log = String::from_utf8(bed.stored("log")).expect("text");
        assert_eq!(log.lines().count(), 600);
        for who in ["a", "b"] {
            let lines: Vec<_> = log.lines().filter(|line| line.starts_with(who)).collect();
            assert!(lines.len() == 300 && lines.is_sorted(), "{who}");
        }
        until("the mount shows it too", || fs::read_to_string(bed.join("log")).expect("read") == log);
    }

    fn what_others_own_is_shown_under_the_overflow_id(bed) {
        bed.allow(&[("bob", Rights::WRITING)]);
        let again = bed.mount_again("bob", 2);
        fs::write(again.join("bobs"), "").expect("made");
        fs::write(bed.join("mine"), "").expect("made");
        let owner = |name: &str| fs::metadata(bed.join(name)).expect("there").uid();
        assert_eq!((owner("mine"), owner("bobs")), (rustix::process::getuid().as_raw(), weft_doors_fuse::OVERFLOW_ID));
        assert_eq!(fs::metadata(again.join("bobs")).expect("there").uid(), rustix::process::getuid().as_raw());
        std::os::unix::fs::chown(bed.join("mine"), Some(owner("mine")), None).expect("as it is");
    }

    fn access_is_answered_by_the_acl_and_not_by_the_mode(bed) {
        fs::write(bed.join("f"), "x").expect("written");
        fs::set_permissions(bed.join("f"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("changed");
        bed.allow(&[("bob", Rights::READING)]);
        let again = bed.mount_again("bob", 2);
        let may = |name: &str, access| rustix::fs::accessat(CWD, again.join(name), access, AtFlags::empty());
        assert_eq!(may("f", Access::READ_OK | Access::EXEC_OK), Ok(()));
        assert_eq!(may("f", Access::WRITE_OK), Err(Errno::ACCESS));
        assert_eq!(may(".", Access::WRITE_OK), Err(Errno::ACCESS));
        assert_eq!(number(fs::write(again.join("f"), "y")), Some(Errno::ACCESS));
        assert_eq!(number(fs::write(again.join("new"), "y")), Some(Errno::ACCESS));
        assert_eq!(fs::read_to_string(again.join("f")).expect("read"), "x");
        bed.allow(&[("bob", Rights::READ | Rights::TRAVERSE | Rights::ATTR_READ)]);
        until("listing is refused", || number(fs::read_dir(again.join("."))) == Some(Errno::ACCESS));
        assert_eq!(fs::read_to_string(again.join("f")).expect("known by its name"), "x");
    }

    fn a_right_that_is_withdrawn_ends_for_open_files_and_kept_pages(bed) {
        bed.store("f", &[1; 10_000]);
        bed.allow(&[("bob", Rights::WRITING)]);
        let again = bed.mount_again("bob", 2);
        let file = File::options().read(true).write(true).open(again.join("f")).expect("opened");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 5000).expect("read");
        bed.allow(&[("bob", Rights::READING)]);
        assert!(number(file.write_at(&[9], 0)).is_some(), "the next write is refused");
        file.read_exact_at(&mut byte, 5000).expect("reading is still allowed");
        let begun = Instant::now();
        bed.allow(&[]);
        until("reading what was kept is refused", || file.read_at(&mut byte, 5000).is_err());
        assert!(begun.elapsed().as_secs_f64() < 1.0, "it took {:?}", begun.elapsed());
        let why = told::get(again.join("."), "user.weft.why").expect("bob may ask his own mount");
        assert!(why.starts_with("failed: read\n") && why.contains("\nhint: it was open: "), "{why}");
        until("it is not there any more", || !again.join("f").exists());
        bed.allow(&[("bob", Rights::READING)]);
        until("what is granted again works again", || file.read_at(&mut byte, 5000).is_ok());
    }

    fn what_was_read_ahead_is_not_shown_after_a_change(bed) {
        bed.store("f", &[1; AHEAD]);
        let file = File::options().read(true).write(true).open(bed.join("f")).expect("opened");
        assert_eq!(from_the_mount(&file, AHEAD), [1; AHEAD]);
        // By this mount: through another open file, by cutting, by a copy into it.
        let other = File::options().write(true).open(bed.join("f")).expect("opened");
        other.write_all_at(&[2; 10], 700_000).expect("written");
        assert_eq!(from_the_mount(&file, AHEAD)[700_000..700_010], [2; 10]);
        other.set_len(600_000).and_then(|()| other.set_len(AHEAD as u64)).expect("cut");
        assert_eq!(from_the_mount(&file, AHEAD)[600_000..], [0; AHEAD - 600_000]);
        bed.store("from", &[3; 10]);
        let from = File::open(bed.join("from")).expect("opened");
        rustix::fs::copy_file_range(&from, Some(&mut 0), &other, Some(&mut 700_000), 10).expect("copied");
        assert_eq!(from_the_mount(&file, AHEAD)[700_000..700_010], [3; 10]);
        // By another client: once some of it is shown, all of it is.
        bed.store("f", &[4; AHEAD]);
        until("it is shown", || byte(&file, 5000) == 4);
        assert_eq!(from_the_mount(&file, AHEAD), [4; AHEAD]);
    }

    fn what_is_read_past_the_page_cache_is_as_it_is_now(bed) {
        bed.store("f", &[1; AHEAD]);
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).custom_flags(direct).open(bed.join("f")).expect("opened");
        let mut part = vec![0; 128 << 10];
        for round in 1..10_u8 {
            file.read_exact_at(&mut part, 0).expect("read");
            assert!(part.iter().all(|byte| *byte == round), "round {round}");
            bed.store("f", &[round + 1; AHEAD]);
        }
    }

    fn a_file_that_grows_while_it_is_read_is_read_to_its_end(bed) {
        bed.store("f", &[1; 200_000]);
        let file = File::open(bed.join("f")).expect("opened");
        assert_eq!(from_the_mount(&file, AHEAD), [1; 200_000]);
        bed.append("f", &[1; 300_000]);
        until("it is longer", || file.metadata().expect("told").len() == 500_000);
        assert_eq!(from_the_mount(&file, AHEAD), [1; 500_000]);
    }

    fn a_full_container_is_enospc_and_leaves_what_was_there(bed) {
        bed.store("f", &[1; 1000]);
        bed.limit(1 << 20);
        // The kernel is told in blocks, of which the last may be in use by half.
        let (all, free) = space(bed.path());
        assert!(all == 1 << 20 && (all - 8192..=all - 1000).contains(&free), "{free} of {all}");
        let file = File::options().write(true).open(bed.join("f")).expect("opened");
        let mut written = 0_u64;
        let failed = loop {
            match file.write_at(&[2; 65_536], 1000 + written) {
                Ok(n) => written += n as u64,
                Err(error) => break Errno::from_io_error(&error),
            }
            assert!(written < 2 << 20, "the limit binds");
        };
        assert_eq!(failed, Some(Errno::NOSPC));
        let (all, free) = space(bed.path());
        assert!(all == 1 << 20 && free < 65_536, "{free} of {all}");
        assert_eq!(bed.stored("f")[..1000], [1; 1000]);
        bed.limit(8 << 20);
        file.write_all_at(&[3; 1 << 20], 0).expect("there is room again");
        let (all, free) = space(bed.path());
        assert!(all == 8 << 20 && free > 6 << 20, "{free} of {all}");
    }
}

/// Returns how many bytes there may be in a directory, and how many more.
fn space(dir: &Path) -> (u64, u64) {
    let told = rustix::fs::statvfs(dir).expect("told");
    (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
}

/// Bytes of a file that is read ahead.
const AHEAD: usize = 1_500_000;

/// Reads a file from end to end, none of it from what the kernel keeps.
fn from_the_mount(file: &File, most: usize) -> Vec<u8> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
    let (mut bytes, mut part) = (Vec::new(), vec![0; 128 << 10]);
    while bytes.len() < most {
        match file.read_at(&mut part, bytes.len() as u64).expect("read") {
            0 => break,
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
    bytes
}

/// A mount that is told of no change: what follows must hold without.
fn deaf_bed() -> Bed {
    let bed = Bed::with(
        |inner| Arc::new(Faulty { deaf: true, ..Faulty::new(inner) }),
        weft_core::limits::CALL_DEADLINE,
    );
    bed.store("f", &[1; 10_000]);
    bed
}

/// Returns an open file two of whose pages are in the cache.
fn two_pages_kept(bed: &Bed) -> File {
    let file = File::options().read(true).write(true).open(bed.join("f")).expect("opened");
    for at in [0, 5000] {
        assert_eq!(byte(&file, at), 1);
    }
    file
}

/// Returns a deaf mount, and a file open there whose bytes are others by now, and it does not show.
fn changed_unheard(bytes: &[u8], shows_the_old: impl Fn(&File) -> bool) -> (Bed, File) {
    // What the kernel keeps it keeps for a moment, which on a busy machine may be over too soon.
    for _ in 0..10 {
        let bed = deaf_bed();
        // Bytes are kept, and attributes that were asked for after them.
        let file = two_pages_kept(&bed);
        file.metadata().expect("there");
        bed.store("f", bytes);
        if shows_the_old(&file) {
            return (bed, file);
        }
    }
    panic!("the feed lags, or this tests nothing");
}

fn byte(file: &File, at: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    byte[0]
}

#[test]
fn an_open_sees_bytes_and_length_even_if_the_feed_lags() {
    if !can_mount("an_open_sees_bytes_and_length_even_if_the_feed_lags") {
        return;
    }
    let lags = |old: &File| old.metadata().expect("there").len() == 10_000;
    let (bed, _old) = changed_unheard(&[2; 30_000], lags);
    let file = File::open(bed.join("f")).expect("opened");
    assert_eq!(
        (file.metadata().expect("there").len(), byte(&file, 5000), byte(&file, 29_999)),
        (30_000, 2, 2)
    );
}

#[test]
fn attributes_that_are_told_never_come_with_older_pages() {
    if !can_mount("attributes_that_are_told_never_come_with_older_pages") {
        return;
    }
    let (bed, file) = changed_unheard(&[2; 10_000], |file| byte(file, 5000) == 1);
    // A listing brings attributes.
    for entry in fs::read_dir(bed.path()).expect("listed") {
        entry.expect("an entry").metadata().expect("there");
    }
    assert_eq!((byte(&file, 0), byte(&file, 5000)), (2, 2));
}

#[test]
fn an_own_write_after_anothers_drops_the_pages_that_were_kept() {
    if !can_mount("an_own_write_after_anothers_drops_the_pages_that_were_kept") {
        return;
    }
    let bed = deaf_bed();
    let file = two_pages_kept(&bed);
    bed.store("f", &[2; 10_000]);
    file.write_all_at(&[3], 0).expect("written");
    until("the other page is read anew", || byte(&file, 5000) == 2);
    assert_eq!(byte(&file, 0), 3);
}

#[test]
fn an_append_behind_anothers_shows_where_it_went() {
    if !can_mount("an_append_behind_anothers_shows_where_it_went") {
        return;
    }
    let bed = deaf_bed();
    let mut file = File::options().read(true).append(true).open(bed.join("f")).expect("opened");
    assert_eq!(byte(&file, 9_999), 1);
    bed.append("f", &[2; 100]);
    file.write_all(&[3; 50]).expect("written");
    let expected: Vec<u8> = [vec![1; 10_000], vec![2; 100], vec![3; 50]].concat();
    assert_eq!(bed.stored("f"), expected);
    until("it is read so", || {
        let mut bytes = vec![0; 20_000];
        let n = file.read_at(&mut bytes, 0).expect("read");
        bytes[..n] == expected
    });
}

#[test]
fn a_mapping_of_what_is_open_to_be_appended_to_is_written_back_at_once() {
    if !can_mount("a_mapping_of_what_is_open_to_be_appended_to_is_written_back_at_once") {
        return;
    }
    let bed = Bed::new();
    bed.store("f", &[1; 10_000]);
    let file = File::options().read(true).append(true).open(bed.join("f")).expect("opened");
    let mapping = Mapping::new(&file, true);
    let begun = Instant::now();
    mapping.write(5000, 2);
    mapping.sync();
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
    assert_eq!((bed.stored("f")[5000], bed.stored("f").len()), (2, 10_000));
}

#[test]
fn pages_of_a_mapping_that_are_written_back_at_once_are_kept_in_whichever_order_that_is_answered() {
    const PAGES: u64 = 20;
    if !can_mount(
        "pages_of_a_mapping_that_are_written_back_at_once_are_kept_in_whichever_order_that_is_answered",
    ) {
        return;
    }
    let [written, reads]: [Arc<AtomicU64>; 2] = Default::default();
    let late = Arc::new(AtomicBool::new(false));
    let (first_late, counts) = (late.clone(), (written.clone(), reads.clone()));
    let bed = Bed::with(
        |inner| {
            let (written, reads) = counts;
            Arc::new(Faulty { first_late, written, reads, ..Faulty::new(inner) })
        },
        weft_core::limits::CALL_DEADLINE,
    );
    // Every other page, or the kernel sends them in one.
    let places = || (0..PAGES).map(|page| page as usize * 8192);
    bed.store("f", &[1; 8192 * PAGES as usize]);
    // What the feed tells late of that has pages go as well.
    follow_at(&bed, bed.path());
    let file = File::options().read(true).write(true).open(bed.join("f")).expect("opened");
    let mapping = Mapping::new(&file, true);
    places().for_each(|place| assert_eq!(mapping.read(place), 1));
    let before = reads.load(Ordering::SeqCst);
    for round in 2..7 {
        late.store(true, Ordering::SeqCst);
        let until_written = written.load(Ordering::SeqCst) + PAGES;
        places().for_each(|place| mapping.write(place, round));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until("all are written", || written.load(Ordering::SeqCst) == until_written);
                late.store(false, Ordering::SeqCst);
            });
            mapping.sync();
        });
        assert!(places().all(|place| bed.stored("f")[place] == round));
    }
    assert_eq!(reads.load(Ordering::SeqCst), before, "the kernel keeps what it has written back itself");
}

/// Returns a mount, and a file whose newest bytes an open there has shown before the feed told of them; by now it has. With it comes
/// how often bytes were read: no more since the kernel has those.
fn shown_before_it_was_told(test: &str) -> Option<(Bed, File, Arc<AtomicU64>, u64)> {
    if !can_mount(test) {
        return None;
    }
    // On a busy machine it may be told of again too soon.
    for _ in 0..10 {
        let (late, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (tells_late, count) = (late.clone(), reads.clone());
        let bed = Bed::with(
            |inner| Arc::new(Faulty { tells_late, reads: count, ..Faulty::new(inner) }),
            weft_core::limits::CALL_DEADLINE,
        );
        let length = || fs::metadata(bed.join("told")).expect("there").len();
        bed.store("f", &[1; 10_000]);
        bed.store("told", &[1; 10]);
        two_pages_kept(&bed);
        assert_eq!(length(), 10);
        late.store(true, Ordering::SeqCst);
        bed.store("f", &[2; 10_000]);
        bed.store("told", &[1; 20]);
        let file = File::open(bed.join("f")).expect("opened");
        assert_eq!((byte(&file, 0), byte(&file, 5000)), (2, 2));
        let (lags, before) = (length() == 10, reads.load(Ordering::SeqCst));
        late.store(false, Ordering::SeqCst);
        until("the feed has come", || length() == 20);
        assert_eq!((byte(&file, 0), byte(&file, 5000)), (2, 2));
        if lags && reads.load(Ordering::SeqCst) == before {
            return Some((bed, file, reads, before));
        }
    }
    panic!("what was shown is told of at once, or the feed does not lag");
}

#[test]
fn what_an_open_has_shown_is_told_of_later_and_what_comes_after_it_at_once() {
    const TEST: &str = "what_an_open_has_shown_is_told_of_later_and_what_comes_after_it_at_once";
    let Some((bed, file, reads, before)) = shown_before_it_was_told(TEST) else { return };
    until("it is read anew", || byte(&file, 5000) == 2 && reads.load(Ordering::SeqCst) > before);
    bed.store("f", &[3; 10_000]);
    until("the next change is shown", || (byte(&file, 0), byte(&file, 5000)) == (3, 3));
}

/// A child that reads a mapping until it faults: one that is shared, or as programs are mapped.
pub(crate) fn reads_a_mapping() -> bool {
    let (shared, private) = (is_child("map"), is_child("map-private"));
    let Some(path) = shared.as_ref().or(private.as_ref()) else { return false };
    let file = File::open(path).expect("opened");
    let mapping = if shared.is_some() { Mapping::new(&file, false) } else { Mapping::private(&file) };
    assert_eq!(mapping.read(5000), 1);
    say("mapped");
    loop {
        assert_eq!(mapping.read(5000), 1);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_mapping_of_what_may_no_longer_be_read_faults() {
    const TEST: &str = "a_mapping_of_what_may_no_longer_be_read_faults";
    if reads_a_mapping() || !can_mount(TEST) {
        return;
    }
    let bed = Bed::new();
    bed.store("f", &[1; 10_000]);
    bed.allow(&[("bob", Rights::READING)]);
    let again = bed.mount_again("bob", 2);
    let mut child = start(&format!("sharing::{TEST}"), "map", &again.join("f"));
    child.hear("mapped");
    bed.allow(&[]);
    assert_eq!(child.end().signal(), Some(libc::SIGBUS));
}

/// The change that takes the right away is one that its loser may not see.
#[test]
fn a_mapping_faults_also_if_the_change_of_policy_is_hidden() {
    const TEST: &str = "a_mapping_faults_also_if_the_change_of_policy_is_hidden";
    if reads_a_mapping() || !can_mount(TEST) {
        return;
    }
    let bed = Bed::new();
    fs::create_dir(bed.join("d")).expect("made");
    bed.store("d/f", &[1; 10_000]);
    bed.allow_below("d", &[("bob", Rights::READING)]);
    let again = bed.mount_again("bob", 2);
    let mut child = start(&format!("sharing::{TEST}"), "map", &again.join("d/f"));
    child.hear("mapped");
    bed.allow_below("d", &[]);
    assert_eq!(child.end().signal(), Some(libc::SIGBUS));
    until("it is not there any more", || !again.join("d/f").exists());
}
