//! Two mounts of one tree, under the tester of consistency, over the in-memory `Model`. `compare` and the tests in
//! `sharing` and `locks` look at one thing each; here all of it goes on at once.

use std::fs;

use weft_conformance::run::full;

use crate::bed::{Again, Bed, can_mount};
use crate::consistency::{
    By, Mounts, a_counter_stays_right, appends_come_whole, counts, what_is_closed_is_what_is_opened,
};

/// Mounts an empty model twice; `None` where that cannot be.
fn scene(test: &str) -> Option<(Mounts, Again, Bed)> {
    if !can_mount(test) {
        return None;
    }
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    Some(([bed.path().to_owned(), again.join("")], again, bed))
}

#[test]
fn what_is_closed_in_one_mount_is_what_the_other_opens() {
    let scene = scene("what_is_closed_in_one_mount_is_what_the_other_opens");
    if let Some((mounts, _again, _bed)) = scene {
        what_is_closed_is_what_is_opened(&mounts, if full() { 20_000 } else { 250 });
    }
}

#[test]
fn appends_of_any_length_from_two_mounts_come_whole_while_both_read() {
    let scene = scene("appends_of_any_length_from_two_mounts_come_whole_while_both_read");
    if let Some((mounts, _again, _bed)) = scene {
        appends_come_whole(&mounts, if full() { 2_000 } else { 60 });
    }
}

fn count_under(test: &str, by: By) {
    if counts() {
        return;
    }
    if let Some((mounts, _again, bed)) = scene(test) {
        a_counter_stays_right(&mounts, &format!("two_mounts::{test}"), by);
        let shown = fs::read(mounts[0].join("count")).expect("read");
        assert!(bed.stored("count") == shown, "what was looked at is what is stored");
    }
}

#[test]
fn range_locks_from_two_mounts_keep_a_counter_right() {
    count_under("range_locks_from_two_mounts_keep_a_counter_right", By::Range);
}

#[test]
fn whole_file_locks_from_two_mounts_keep_a_counter_right() {
    count_under("whole_file_locks_from_two_mounts_keep_a_counter_right", By::Whole);
}
