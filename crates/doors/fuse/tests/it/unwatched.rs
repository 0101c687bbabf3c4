//! A volume whose changes nobody is told of, below a root whose changes are told: what is changed
//! behind the mount is seen at once, not when it comes to be forgotten.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::io::Errno;
use weft_core::form::{At, Expect, FileSystem, Guard, Replace};
use weft_core::model::Model;

use crate::bed::{Bed, can_mount};
use crate::raw::{Mapping, until};

/// Gives a test a bed with a share, where one can be had.
fn shared(test: &str, act: impl FnOnce(&Bed, &Arc<Model>)) {
    if can_mount(test) {
        let (bed, share) = Bed::with_share();
        // From here on the kernel is told of changes in the root, and believes it for long.
        bed.store("told", b"1");
        until("it is there", || bed.join("told").exists());
        act(&bed, &share);
    }
}

fn at(name: &str) -> At {
    At::root(name.try_into().expect("a name"))
}

#[test]
fn an_open_sees_what_others_wrote_to_an_unwatched_file_though_its_version_stayed() {
    shared("unwatched_open", |bed, share| {
        for (round, size) in [100_000, 100_000, 5, 200_000, 4096, 4096].into_iter().enumerate() {
            let bytes = vec![round as u8 + 1; size];
            bed.store_in(share, "f", &bytes);
            assert!(fs::read(bed.join("share/f")).expect("read") == bytes, "round {round}");
            // Once more, now that the kernel has it.
            assert!(fs::read(bed.join("share/f")).expect("read") == bytes, "round {round} again");
        }
    });
}

#[test]
fn attributes_of_an_unwatched_file_are_those_of_now() {
    shared("unwatched_attributes", |bed, share| {
        for size in [1, 70_000, 3] {
            bed.store_in(share, "f", &vec![7; size]);
            let stat = fs::metadata(bed.join("share/f")).expect("there");
            assert_eq!((stat.len(), stat.ino() >> 48), (size as u64, 1));
        }
        let file = File::open(bed.join("share/f")).expect("opened");
        bed.store_in(share, "f", &[8; 9000]);
        assert_eq!(file.metadata().expect("there").len(), 9000);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 8000).expect("read");
        assert_eq!(byte, [8], "what came to it is read where its size is known");
    });
}

#[test]
fn what_others_write_into_an_unwatched_file_is_shown_where_it_is_open_and_mapped() {
    shared("unwatched_pages", |bed, share| {
        bed.store_in(share, "f", &[0; 100_000]);
        let file = File::open(bed.join("share/f")).expect("opened");
        let mapping = Mapping::new(&file, false);
        let mut byte = [9];
        for round in 0..3_u8 {
            until("both show it", || {
                file.read_exact_at(&mut byte, 50_000).expect("read");
                byte == [round] && mapping.read(90_000) == round
            });
            bed.store_in(share, "f", &[round + 1; 100_000]);
        }
    });
}

#[test]
fn unwatched_names_come_and_go_at_once() {
    shared("unwatched_names", |bed, share| {
        let (call, [a, b]) = (bed.call("alice", 99), ["a", "b"].map(at));
        for round in 0..3_u8 {
            assert!(!bed.join("share/a").exists() && !bed.join("share/b").exists());
            bed.store_in(share, "a", &[round]);
            assert_eq!(fs::read(bed.join("share/a")).expect("it is there"), [round]);
            let renamed = share.rename(&call, &a, &b, Replace::Any, &Guard::NONE);
            bed.runtime.block_on(renamed).expect("renamed");
            assert!(!bed.join("share/a").exists());
            assert_eq!(fs::read(bed.join("share/b")).expect("it is there"), [round]);
            let names = fs::read_dir(bed.join("share")).expect("listed").count();
            assert_eq!(names, 1);
            let removed = share.remove(&call, &b, Expect::NotDirectory, &Guard::NONE);
            bed.runtime.block_on(removed).expect("removed");
        }
    });
}

#[test]
fn what_is_written_through_the_mount_to_an_unwatched_file_is_there_and_stays_readable() {
    shared("unwatched_writes", |bed, share| {
        fs::create_dir(bed.join("share/d")).expect("made");
        fs::write(bed.join("share/d/f"), "mine").expect("written");
        assert_eq!(fs::read(bed.join("share/d/f")).expect("read"), b"mine");
        bed.store_in(share, "d/f", b"theirs");
        assert_eq!(fs::read(bed.join("share/d/f")).expect("read"), b"theirs");
        let file = File::open(bed.join("share/d/f")).expect("opened");
        assert_eq!(Mapping::new(&file, false).read(0), b't');
    });
}

#[test]
fn between_volumes_nothing_is_renamed_or_linked_and_a_copy_is_made_all_the_same() {
    shared("unwatched_crossing", |bed, _| {
        fs::write(bed.join("here"), "bytes").expect("written");
        let refused = |answer: std::io::Result<()>| Errno::from_io_error(&answer.expect_err("two volumes"));
        assert_eq!(refused(fs::rename(bed.join("here"), bed.join("share/there"))), Some(Errno::XDEV));
        assert_eq!(refused(fs::hard_link(bed.join("here"), bed.join("share/there"))), Some(Errno::XDEV));
        fs::copy(bed.join("here"), bed.join("share/there")).expect("copied");
        assert_eq!(fs::read(bed.join("share/there")).expect("read"), b"bytes");
    });
}
