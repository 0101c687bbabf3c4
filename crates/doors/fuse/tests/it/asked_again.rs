//! What the kernel asks again right after it was answered is answered without the node, and never wrongly.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Dir, XattrFlags};
use weft_core::limits;

use crate::bed::{Bed, can_mount, mounted};
use crate::faulty::Faulty;
use crate::raw::{Mapping, until};

/// Returns a mount, and a count of what its file system is asked for by name or attribute.
pub fn counted() -> (Bed, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let counts = asked.clone();
    let wrap = move |inner| Arc::new(Faulty { asked: counts, ..Faulty::new(inner) });
    (Bed::with(|inner| wrap(inner), limits::CALL_DEADLINE), asked)
}

/// Waits until what others change is told of: till then nothing is given again.
pub fn follow(bed: &Bed) {
    follow_at(bed, bed.path());
}

/// The same of another mount of what the bed has.
pub fn follow_at(bed: &Bed, mount: &Path) {
    bed.store("told", &[1]);
    let file = File::open(mount.join("told")).expect("opened");
    let mapping = Mapping::private(&file);
    assert_eq!(mapping.read(0), 1);
    bed.store("told", &[2]);
    until("the mapping shows it", || mapping.read(0) == 2);
}

#[test]
fn a_stat_after_a_write_and_a_change_of_owner_to_the_same_ask_the_node_nothing() {
    if !can_mount("a_stat_after_a_write_and_a_change_of_owner_to_the_same_ask_the_node_nothing") {
        return;
    }
    let (bed, asked) = counted();
    let mut file = File::create(bed.join("f")).expect("made");
    let mut length = 0;
    until("the feed is followed, and the stat comes in time", || {
        file.write_all(b"more").expect("written");
        length += 4;
        let before = asked.load(Ordering::SeqCst);
        let stat = file.metadata().expect("there");
        assert_eq!(stat.len(), length, "whoever is asked");
        fchown(&file, Some(stat.uid()), Some(stat.gid())).expect("nothing changes");
        asked.load(Ordering::SeqCst) == before
    });
}

#[test]
fn a_mebibyte_is_written_by_one_call() {
    if !can_mount("a_mebibyte_is_written_by_one_call") {
        return;
    }
    let written = Arc::<AtomicU64>::default();
    let counts = written.clone();
    let bed = Bed::with(
        move |inner| Arc::new(Faulty { written: counts, ..Faulty::new(inner) }),
        limits::CALL_DEADLINE,
    );
    fs::write(bed.join("f"), vec![7; 1 << 20]).expect("written");
    assert_eq!(written.load(Ordering::SeqCst), 1, "the kernel was told that requests may be that large");
}

#[test]
fn a_name_that_is_made_exclusively_is_looked_for_once() {
    if !can_mount("a_name_that_is_made_exclusively_is_looked_for_once") {
        return;
    }
    let (bed, asked) = counted();
    let mut number = 0;
    until("the feed is followed, and the second look comes in time", || {
        number += 1;
        let path = bed.join(&number.to_string());
        let before = asked.load(Ordering::SeqCst);
        assert!(!path.exists());
        OpenOptions::new().write(true).create_new(true).open(&path).expect("nobody has it");
        asked.load(Ordering::SeqCst) == before + 1
    });
}

#[test]
fn a_small_directory_is_opened_and_listed_by_one_call() {
    if !can_mount("a_small_directory_is_opened_and_listed_by_one_call") {
        return;
    }
    let (bed, asked) = counted();
    fs::create_dir(bed.join("d")).expect("made");
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| fs::write(bed.join("d").join(name), "x").expect("written"));
    until("the feed is followed, and the listing comes in time", || {
        let before = asked.load(Ordering::SeqCst);
        let listed = fs::read_dir(bed.join("d")).expect("opened");
        let mut listed: Vec<_> = listed.map(|entry| entry.expect("listed").file_name()).collect();
        listed.sort();
        assert_eq!(listed, names, "whoever is asked");
        asked.load(Ordering::SeqCst) == before + 1
    });
}

#[test]
fn what_a_copy_that_fails_has_copied_is_seen_at_once() {
    if !can_mount("what_a_copy_that_fails_has_copied_is_seen_at_once") {
        return;
    }
    let wrap = |inner| Arc::new(Faulty { copies_half: true, ..Faulty::new(inner) });
    let bed = Bed::with(|inner| wrap(inner), limits::CALL_DEADLINE);
    follow(&bed);
    fs::write(bed.join("from"), [7; 1000]).expect("written");
    let from = File::open(bed.join("from")).expect("opened");
    for number in 0..20 {
        let mut to = File::create(bed.join(&number.to_string())).expect("made");
        to.write_all(b"four").expect("written");
        assert!(rustix::fs::copy_file_range(&from, None, &to, Some(&mut 4), 1000).is_err());
        assert_eq!(to.metadata().expect("there").len(), 504);
    }
}

mounted! {
    fn a_listing_shows_at_once_what_was_changed_here_since_the_last(bed) {
        follow(&bed);
        let names = || {
            let listed = fs::read_dir(bed.path()).expect("opened");
            let mut names: Vec<_> = listed.map(|entry| entry.expect("listed").file_name()).collect();
            names.sort();
            names
        };
        for _ in 0..20 {
            assert_eq!(names(), ["told"]);
            let mut file = File::create(bed.join("a")).expect("made");
            assert_eq!(names(), ["a", "told"]);
            file.write_all(b"four").expect("written");
            assert_eq!(names(), ["a", "told"]);
            assert_eq!(fs::metadata(bed.join("a")).expect("there").len(), 4);
            fs::rename(bed.join("a"), bed.join("b")).expect("renamed");
            assert_eq!(names(), ["b", "told"]);
            fs::remove_file(bed.join("b")).expect("removed");
        }
    }

    fn whatever_changes_a_file_after_a_write_is_seen_at_once(bed) {
        follow(&bed);
        let (path, other) = (bed.join("f"), bed.join("g"));
        for _ in 0..20 {
            let mut file = File::create(&path).expect("made");
            let write = |file: &mut File| file.write_all(b"x").expect("written");
            write(&mut file);
            file.set_permissions(fs::Permissions::from_mode(0o640)).expect("changed");
            assert_eq!(file.metadata().expect("there").mode() & 0o7777, 0o640);
            write(&mut file);
            fs::hard_link(&path, &other).expect("linked");
            assert_eq!(file.metadata().expect("there").nlink(), 2);
            write(&mut file);
            fs::remove_file(&other).expect("removed");
            assert_eq!(file.metadata().expect("there").nlink(), 1);
            write(&mut file);
            let before = file.metadata().expect("there").ctime_nsec();
            rustix::fs::fsetxattr(&file, "user.mine", b"x", XattrFlags::empty()).expect("set");
            assert_ne!(file.metadata().expect("there").ctime_nsec(), before);
            write(&mut file);
            file.set_len(100).expect("grown");
            assert_eq!(file.metadata().expect("there").len(), 100);
            write(&mut file);
            fs::write(&other, "another").expect("written");
            fs::rename(&other, &path).expect("replaced");
            assert_eq!(file.metadata().expect("there").nlink(), 0);
            assert_eq!(fs::metadata(&path).expect("there").len(), 7);
        }
    }

    fn a_listing_shows_what_another_client_made_once_that_was_told(bed) {
        follow(&bed);
        let again = bed.mount_again("alice", 2);
        for round in 1..20 {
            let name = round.to_string();
            assert!(!bed.join(&name).exists());
            // What is open is listed anew from its start.
            let mut directory = Dir::new(File::open(bed.path()).expect("opened")).expect("a directory");
            let mut count = || {
                directory.rewind();
                directory.by_ref().count() - [".", ".."].len()
            };
            assert_eq!(count(), round);
            File::create(again.join(&name)).expect("made");
            until("its name was told", || bed.join(&name).exists());
            assert_eq!(count(), round + 1);
        }
    }

    fn what_another_client_makes_of_it_after_a_write_is_seen_by_an_open_at_once_and_by_a_stat_soon(bed) {
        follow(&bed);
        let again = bed.mount_again("alice", 2);
        for round in 1..20 {
            let mut file = File::create(bed.join("f")).expect("made");
            file.write_all(b"mine").expect("written");
            fs::write(again.join("f"), vec![7; 1000 + round]).expect("written");
            assert_eq!(File::open(bed.join("f")).and_then(|file| file.metadata()).expect("there").len(), 1000 + round as u64);
            file.write_all(b"mine").expect("written");
            fs::remove_file(again.join("f")).expect("removed");
            until("it has no name any more", || file.metadata().expect("there").nlink() == 0);
            let missing = bed.join("missing");
            assert!(!missing.exists());
            fs::write(again.join("missing"), "x").expect("written");
            let made = OpenOptions::new().write(true).create_new(true).open(&missing);
            assert_eq!(made.expect_err("it is there").kind(), std::io::ErrorKind::AlreadyExists);
            until("it is there", || missing.exists());
            fs::remove_file(again.join("missing")).expect("removed");
            until("it went", || !missing.exists());
        }
    }
}
