//! Locks between programs of one mount, between mounts, and what ends a wait.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use weft_core::limits;

use crate::bed::{Bed, can_mount, mounted};
use crate::faulty::Faulty;
use crate::raw::{
    Kind, SOON, be_interrupted, in_the_way, is_child, is_in, lock, lock_description, say, start, until,
};

fn open(path: impl AsRef<Path>) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

fn number(answer: std::io::Result<()>) -> Option<Errno> {
    answer.err().and_then(|error| Errno::from_io_error(&error))
}

/// Children: take a lock and say so, or wait for one.
fn as_child() -> bool {
    if let Some(path) = is_child("hold") {
        let file = open(path);
        lock(&file, Kind::Write, 10, 10, false).expect("free");
        say("held");
        std::thread::park_timeout(SOON * 6);
        return true;
    }
    if let Some(path) = is_child("wait") {
        be_interrupted();
        let file = open(path);
        say("begun");
        let answer = number(lock(&file, Kind::Write, 0, 0, true));
        std::process::exit(if answer == Some(Errno::INTR) { 44 } else { 45 });
    }
    if let Some(path) = is_child("stay") {
        be_interrupted();
        let file = open(path);
        say("begun");
        assert_eq!(number(lock(&file, Kind::Write, 0, 0, true)), Some(Errno::INTR));
        say("interrupted");
        std::thread::park_timeout(SOON * 6);
        return true;
    }
    false
}

mounted! {
    fn range_locks_of_two_mounts_stand_in_each_others_way(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, there) = (open(bed.join("f")), open(again.join("f")));
        lock(&here, Kind::Read, 0, 100, false).expect("free");
        lock(&there, Kind::Read, 50, 100, false).expect("shared");
        assert_eq!(number(lock(&there, Kind::Write, 0, 10, false)), Some(Errno::AGAIN));
        assert_eq!(in_the_way(&there, Kind::Write, 0, 10), Some((0, 100, 0)), "another client's process has no number");
        lock(&there, Kind::Write, 100, 0, false).expect("free from there to the end");
        assert_eq!(number(lock(&here, Kind::Read, 1_000_000, 1, false)), Some(Errno::AGAIN));
        // Split: the middle is given up, both ends stay.
        lock(&here, Kind::None, 10, 10, false).expect("given up");
        assert_eq!(in_the_way(&there, Kind::Write, 10, 10), None);
        assert_eq!(in_the_way(&there, Kind::Write, 0, 30), Some((0, 10, 0)));
        assert_eq!(in_the_way(&there, Kind::Write, 20, 30), Some((20, 80, 0)));
    }

    fn a_file_with_all_the_locks_that_it_may_carry_says_so_in_fcntls_own_words(bed) {
        let file = open(bed.join("f"));
        for number in 0..limits::LOCKS_PER_FILE_MAX as i64 {
            lock(&file, Kind::Write, 2 * number, 1, false).expect("free");
        }
        for wait in [false, true] {
            let more = lock(&file, Kind::Write, 1 << 30, 1, wait);
            assert_eq!(number(more), Some(Errno::NOLCK), "wait {wait}");
        }
        lock(&file, Kind::None, 0, 1, false).expect("given up");
        lock(&file, Kind::Write, 1 << 30, 1, false).expect("room again");
    }

    fn closing_any_descriptor_gives_a_process_its_range_locks_up(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, there) = (open(bed.join("f")), open(again.join("f")));
        lock(&here, Kind::Write, 0, 0, false).expect("free");
        assert_eq!(number(lock(&there, Kind::Write, 0, 0, false)), Some(Errno::AGAIN));
        drop(open(bed.join("f")));
        lock(&there, Kind::Write, 0, 0, false).expect("given up by the close, as POSIX has it");
    }

    fn whole_file_locks_belong_to_the_open_file(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, twice, there) = (open(bed.join("f")), open(bed.join("f")), open(again.join("f")));
        flock(&here, FlockOperation::LockExclusive).expect("free");
        for other in [&twice, &there] {
            assert_eq!(flock(other, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
        }
        // The two kinds of lock do not see each other.
        lock(&there, Kind::Write, 0, 0, false).expect("free");
        let copy = here.try_clone().expect("duplicated");
        drop(here);
        assert_eq!(flock(&there, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN), "its duplicate holds it");
        drop(copy);
        // The kernel tells of the last close when it comes to it.
        until("the lock is free", || flock(&there, FlockOperation::NonBlockingLockShared).is_ok());
        flock(&twice, FlockOperation::NonBlockingLockShared).expect("shared");
        flock(&there, FlockOperation::Unlock).expect("given up");
        flock(&twice, FlockOperation::NonBlockingLockExclusive).expect("alone now");
    }

    fn locks_of_an_open_file_description_end_with_its_last_close(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, there) = (open(bed.join("f")), open(again.join("f")));
        lock_description(&here, Kind::Write).expect("free");
        let copy = here.try_clone().expect("duplicated");
        drop(here);
        assert_eq!(number(lock_description(&there, Kind::Write)), Some(Errno::AGAIN), "its duplicate holds it");
        drop(copy);
        until("the lock is free", || lock_description(&there, Kind::Write).is_ok());
    }

    fn a_wait_ends_when_the_lock_is_given_up(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, there) = (open(bed.join("f")), open(again.join("f")));
        lock(&here, Kind::Write, 0, 10, false).expect("free");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock(&there, Kind::Write, 5, 10, true));
            let whole = scope.spawn(|| {
                flock(&here, FlockOperation::LockExclusive).expect("free");
                flock(&here, FlockOperation::Unlock)
            });
            whole.join().expect("no panic").expect("other calls go on meanwhile");
            lock(&here, Kind::None, 0, 10, false).expect("given up");
            waiter.join().expect("no panic").expect("taken");
        });
        assert_eq!(number(lock(&here, Kind::Write, 0, 10, false)), Some(Errno::AGAIN));
    }

    fn a_lock_that_was_waited_for_while_another_descriptor_was_closed_ends_with_its_file(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, there) = (open(bed.join("f")), open(again.join("f")));
        lock(&there, Kind::Write, 0, 10, false).expect("free");
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let here = &here;
            let waiter = scope.spawn(move || {
                tell.send(rustix::thread::gettid()).expect("it is heard");
                lock(here, Kind::Write, 0, 10, true)
            });
            let thread = told.recv().expect("it begins");
            until("it waits", || is_in(thread, libc::SYS_fcntl));
            drop(here.try_clone().expect("duplicated"));
            lock(&there, Kind::None, 0, 0, false).expect("given up");
            waiter.join().expect("no panic").expect("it is given");
        });
        assert_eq!(number(lock(&there, Kind::Write, 0, 10, false)), Some(Errno::AGAIN));
        drop(here);
        until("the lock is free", || lock(&there, Kind::Write, 0, 10, false).is_ok());
    }

    fn two_who_wait_for_each_other_are_told_of_the_deadlock(bed) {
        let again = bed.mount_again("alice", 2);
        let (here, there) = (open(bed.join("f")), open(again.join("f")));
        lock(&here, Kind::Write, 0, 1, false).expect("free");
        lock(&there, Kind::Write, 1, 1, false).expect("free");
        let answers = std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                let answer = number(lock(&here, Kind::Write, 1, 1, true));
                lock(&here, Kind::None, 0, 0, false).expect("given up");
                answer
            });
            let two = scope.spawn(|| {
                let answer = number(lock(&there, Kind::Write, 0, 1, true));
                lock(&there, Kind::None, 0, 0, false).expect("given up");
                answer
            });
            [one.join().expect("no panic"), two.join().expect("no panic")]
        });
        assert!(answers.contains(&Some(Errno::DEADLK)) && answers.contains(&None), "{answers:?}");
    }
}

#[test]
fn a_conflict_names_the_process_and_ends_with_it() {
    if as_child() || !can_mount("a_conflict_names_the_process_and_ends_with_it") {
        return;
    }
    let bed = Bed::new();
    let file = open(bed.join("f"));
    let mut child = start("locks::a_conflict_names_the_process_and_ends_with_it", "hold", &bed.join("f"));
    child.hear("held");
    assert_eq!(number(lock(&file, Kind::Write, 0, 0, false)), Some(Errno::AGAIN));
    let pid = i32::try_from(child.child.id()).expect("a pid");
    assert_eq!(in_the_way(&file, Kind::Read, 0, 0), Some((10, 10, pid)));
    child.kill();
    child.end();
    until("the dead process's lock is free", || lock(&file, Kind::Write, 0, 0, false).is_ok());
}

/// A wait that was given up must not take the lock after all.
fn ends_a_wait(test: &str, signal: i32) -> std::process::ExitStatus {
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    let (here, there) = (open(bed.join("f")), open(again.join("f")));
    lock(&there, Kind::Write, 0, 0, false).expect("free");
    let mut child = start(&format!("locks::{test}"), "wait", &bed.join("f"));
    child.hear("begun");
    let thread = child.waits_in(libc::SYS_fcntl);
    child.signal(thread, signal);
    let status = child.end();
    lock(&there, Kind::None, 0, 0, false).expect("given up");
    lock(&here, Kind::Write, 0, 0, false).expect("nobody took it meanwhile");
    status
}

#[test]
fn a_signal_ends_a_wait_for_a_lock() {
    if as_child() || !can_mount("a_signal_ends_a_wait_for_a_lock") {
        return;
    }
    let status = ends_a_wait("a_signal_ends_a_wait_for_a_lock", libc::SIGUSR1);
    assert_eq!(status.code(), Some(44), "fcntl answered EINTR");
}

#[test]
fn a_program_that_waits_for_a_lock_can_be_killed() {
    if as_child() || !can_mount("a_program_that_waits_for_a_lock_can_be_killed") {
        return;
    }
    let status = ends_a_wait("a_program_that_waits_for_a_lock_can_be_killed", libc::SIGKILL);
    assert_eq!(status.signal(), Some(libc::SIGKILL));
}

#[test]
fn locks_end_with_the_mount() {
    if !can_mount("locks_end_with_the_mount") {
        return;
    }
    let bed = Bed::new();
    let there = open(bed.join("f"));
    {
        let again = bed.mount_again("alice", 2);
        let here = open(again.join("f"));
        lock(&here, Kind::Write, 0, 0, false).expect("free");
        fs::read(again.join("f")).expect("the mount stands");
    }
    until("the lock is free", || lock(&there, Kind::Write, 0, 0, false).is_ok());
}

/// A bed whose file system goes on with a wait for a lock that was given up, and is too busy
/// for so many unlocks.
fn faulty(unlocks: u64) -> Bed {
    let (lost, busy) = (Arc::default(), Arc::new(AtomicU64::new(unlocks)));
    Bed::with(move |inner| Arc::new(Faulty { lost, busy, ..Faulty::new(inner) }), limits::CALL_DEADLINE)
}

#[test]
fn a_lock_that_was_granted_after_its_wait_was_given_up_goes_with_the_process() {
    const TEST: &str = "a_lock_that_was_granted_after_its_wait_was_given_up_goes_with_the_process";
    if as_child() || !can_mount(TEST) {
        return;
    }
    let bed = faulty(0);
    let again = bed.mount_again("alice", 2);
    let there = open(again.join("f"));
    lock(&there, Kind::Write, 0, 0, false).expect("free");
    let mut child = start(&format!("locks::{TEST}"), "stay", &bed.join("f"));
    child.hear("begun");
    let thread = child.waits_in(libc::SYS_fcntl);
    child.signal(thread, libc::SIGUSR1);
    child.hear("interrupted");
    lock(&there, Kind::None, 0, 0, false).expect("given up");
    until("the child is given it all the same", || in_the_way(&there, Kind::Write, 0, 0).is_some());
    child.kill();
    child.end();
    until("the dead process's lock is free", || lock(&there, Kind::Write, 0, 0, false).is_ok());
}

#[test]
fn a_lock_that_could_not_be_given_up_at_once_is_given_up_later() {
    if !can_mount("a_lock_that_could_not_be_given_up_at_once_is_given_up_later") {
        return;
    }
    // The flush of the first close, its release, and one more try.
    let bed = faulty(3);
    let again = bed.mount_again("alice", 2);
    let (here, there) = (open(bed.join("f")), open(again.join("f")));
    lock(&here, Kind::Write, 0, 0, false).expect("free");
    drop(here);
    until("the lock is free", || lock(&there, Kind::Write, 0, 0, false).is_ok());
}

/// Nothing but the close of a duplicate is asked to give it up.
#[test]
fn a_close_that_could_not_give_a_lock_up_has_it_given_up_later_though_another_descriptor_stays_open() {
    if !can_mount("a_close_that_could_not_give_a_lock_up_has_it_given_up_later") {
        return;
    }
    let bed = faulty(2);
    let again = bed.mount_again("alice", 2);
    let (here, there) = (open(bed.join("f")), open(again.join("f")));
    let copy = here.try_clone().expect("duplicated");
    lock(&here, Kind::Write, 0, 0, false).expect("free");
    drop(copy);
    until("the lock is free", || lock(&there, Kind::Write, 0, 0, false).is_ok());
    drop(here);
}

/// What it is given then must not go with what it held before, nor that stay.
#[test]
fn who_locks_again_after_a_close_that_gave_nothing_up_holds_the_new_lock_alone() {
    if !can_mount("who_locks_again_after_a_close_that_gave_nothing_up_holds_the_new_lock_alone") {
        return;
    }
    let bed = faulty(1);
    let again = bed.mount_again("alice", 2);
    let (here, there) = (open(bed.join("f")), open(again.join("f")));
    let copy = here.try_clone().expect("duplicated");
    lock(&here, Kind::Write, 0, 10, false).expect("free");
    drop(copy);
    lock(&here, Kind::Write, 100, 10, false).expect("free");
    lock(&there, Kind::Write, 0, 10, false).expect("the close gave it up");
    assert_eq!(number(lock(&there, Kind::Write, 100, 10, false)), Some(Errno::AGAIN));
    // For longer than what is given up later takes.
    std::thread::sleep(limits::MOUNT_UNLOCK_REST * 2);
    assert_eq!(number(lock(&there, Kind::Write, 100, 10, false)), Some(Errno::AGAIN));
}

#[test]
fn an_unlock_that_failed_leaves_the_lock_to_be_given_up_by_the_close() {
    if !can_mount("an_unlock_that_failed_leaves_the_lock_to_be_given_up_by_the_close") {
        return;
    }
    let bed = faulty(1);
    let again = bed.mount_again("alice", 2);
    let (here, there) = (open(bed.join("f")), open(again.join("f")));
    flock(&here, FlockOperation::LockExclusive).expect("free");
    assert_eq!(flock(&here, FlockOperation::Unlock), Err(Errno::BUSY));
    assert_eq!(flock(&there, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    drop(here);
    until("the lock is free", || flock(&there, FlockOperation::NonBlockingLockShared).is_ok());
}
