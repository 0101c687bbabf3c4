//! A file system that gets stuck, panics or loses bytes, and mounts that go away.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use weft_core::form::FileSystem;
use weft_core::limits;

use crate::bed::{Bed, can_mount, mounted};
use crate::faulty::{Faulty, SLOW};
use crate::raw::{Kind, be_interrupted, in_the_way, is_child, is_in, lock, say, start, until};
use crate::told::get;

fn number<T>(answer: std::io::Result<T>) -> Option<Errno> {
    answer.err().and_then(|error| Errno::from_io_error(&error))
}

fn faulty(patience: Duration) -> (Bed, Arc<AtomicU64>) {
    let lost = Arc::new(AtomicU64::new(0));
    let shared = lost.clone();
    (Bed::with(move |inner| Arc::new(Faulty { lost: shared, ..Faulty::new(inner) }), patience), lost)
}

#[test]
fn a_stuck_call_holds_nobody_else_up_and_ends_by_its_deadline() {
    if !can_mount("a_stuck_call_holds_nobody_else_up_and_ends_by_its_deadline") {
        return;
    }
    let patience = Duration::from_millis(1500);
    let (bed, _) = faulty(patience);
    fs::write(bed.join("f"), "x").expect("written");
    fs::create_dir(bed.join("d")).expect("made");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let stuck: Vec<_> = (0..16)
            .map(|i| {
                let path = bed.join(&format!("stuck-walk{i}"));
                scope.spawn(move || number(fs::metadata(path)))
            })
            .collect();
        for i in 0..100 {
            fs::write(bed.join(&format!("d/{i}")), "y").expect("others go on");
            assert_eq!(fs::read_to_string(bed.join("f")).expect("read"), "x");
        }
        assert!(begun.elapsed() < patience, "the others took {:?}", begun.elapsed());
        for answer in stuck {
            assert_eq!(answer.join().expect("no panic"), Some(Errno::TIMEDOUT));
        }
    });
    let longest = patience + limits::MOUNT_INTERRUPT_GRACE * 2;
    assert!(begun.elapsed() >= patience && begun.elapsed() < longest, "it took {:?}", begun.elapsed());
}

#[test]
fn a_program_in_a_stuck_call_can_be_killed() {
    if let Some(path) = is_child("read") {
        say("begun");
        let _ = fs::read(path);
        return;
    }
    if !can_mount("a_program_in_a_stuck_call_can_be_killed") {
        return;
    }
    let (bed, _) = faulty(limits::CALL_DEADLINE);
    fs::write(bed.join("stuck-read"), "x").expect("written");
    let begun = Instant::now();
    let mut child = start("faults::a_program_in_a_stuck_call_can_be_killed", "read", &bed.join("stuck-read"));
    child.hear("begun");
    std::thread::sleep(Duration::from_millis(100)); // into the read; killing earlier passes as well
    child.kill();
    assert_eq!(child.end().signal(), Some(libc::SIGKILL));
    assert!(begun.elapsed() < limits::CALL_DEADLINE / 2, "it took {:?}", begun.elapsed());
}

#[test]
fn a_panic_below_fails_one_call_and_not_the_mount() {
    if !can_mount("a_panic_below_fails_one_call_and_not_the_mount") {
        return;
    }
    let (bed, _) = faulty(limits::CALL_DEADLINE);
    for _ in 0..20 {
        assert_eq!(number(fs::metadata(bed.join("panic"))), Some(Errno::IO));
    }
    fs::write(bed.join("f"), "x").expect("the mount stands");
}

/// More than the calls that may go on at once.
#[test]
fn syncs_that_wait_for_a_disk_that_hangs_hold_up_no_other_call() {
    if !can_mount("syncs_that_wait_for_a_disk_that_hangs_hold_up_no_other_call") {
        return;
    }
    let (late, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (syncs_late, syncs) = (late.clone(), asked.clone());
    let wrap =
        move |inner| -> Arc<dyn FileSystem> { Arc::new(Faulty { syncs_late, syncs, ..Faulty::new(inner) }) };
    let bed = Bed::with(wrap, limits::CALL_DEADLINE);
    let many = limits::MOUNT_CALLS_MAX + 20;
    // The kernel lets one program at a time sync a file.
    let files: Vec<File> =
        (0..many).map(|n| File::create(bed.join(&format!("f{n}"))).expect("made")).collect();
    let begun = Mutex::new(Vec::new());
    let sync = |file: &File| {
        begun.lock().expect("no panic").push(rustix::thread::gettid());
        file.sync_all()
    };
    std::thread::scope(|scope| {
        // Whatever becomes of this, nobody is left to wait for the disk.
        let hangs = Hangs(&late);
        let syncs: Vec<_> = files.iter().map(|file| scope.spawn(|| sync(file))).collect();
        until("all of them wait", || begun.lock().expect("no panic").len() == many);
        let threads = begun.lock().expect("no panic").clone();
        until("all of them wait in the kernel", || {
            threads.iter().all(|thread| is_in(*thread, libc::SYS_fsync))
        });
        let others = scope.spawn(|| (0..100).try_for_each(|n| fs::write(bed.join(&format!("g{n}")), "x")));
        until("others go on", || others.is_finished());
        others.join().expect("no panic").expect("others go on");
        assert!(syncs.iter().all(|sync| !sync.is_finished()), "the disk hangs still");
        assert_eq!(asked.load(Ordering::SeqCst), limits::MOUNT_SYNCS_MAX as u64, "and is asked no more");
        drop(hangs);
        for sync in syncs {
            sync.join().expect("no panic").expect("the disk goes on");
        }
    });
}

/// A disk that hangs until this goes.
struct Hangs<'a>(&'a AtomicBool);

impl Drop for Hangs<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn user_attributes_without_end_fail_and_take_no_memory_without_end() {
    if !can_mount("user_attributes_without_end_fail_and_take_no_memory_without_end") {
        return;
    }
    let wrap =
        |inner| -> Arc<dyn FileSystem> { Arc::new(Faulty { tags_without_end: true, ..Faulty::new(inner) }) };
    let bed = Bed::with(wrap, limits::CALL_DEADLINE);
    bed.store("f", b"x");
    assert_eq!(get(bed.join("f"), "user.a"), Err(Errno::IO));
    assert_eq!(get(bed.join("f"), "user.z").map(|value| value.len()), Ok(60 << 10));
}

#[test]
fn a_sync_after_a_loss_fails_once() {
    if !can_mount("a_sync_after_a_loss_fails_once") {
        return;
    }
    let (bed, lost) = faulty(limits::CALL_DEADLINE);
    let mut file = File::create(bed.join("f")).expect("made");
    file.write_all(b"one").expect("written");
    file.sync_all().expect("nothing was lost");
    file.write_all(b"two").expect("written");
    lost.fetch_add(1, Ordering::SeqCst);
    assert_eq!(number(file.sync_data()), Some(Errno::IO));
    file.write_all(b"three").expect("written");
    file.sync_data().expect("this was not lost");
    File::open(bed.path()).expect("opened").sync_all().expect("a directory too");
}

#[test]
fn a_loss_is_told_to_each_open_file_once_whichever_it_was_written_through() {
    if !can_mount("a_loss_is_told_to_each_open_file_once_whichever_it_was_written_through") {
        return;
    }
    let (bed, lost) = faulty(limits::CALL_DEADLINE);
    fs::write(bed.join("f"), "one").expect("written");
    lost.fetch_add(1, Ordering::SeqCst);
    // As `sync FILE` does.
    let (first, second) =
        (File::open(bed.join("f")).expect("opened"), File::open(bed.join("f")).expect("opened"));
    assert_eq!(number(first.sync_all()), Some(Errno::IO));
    assert_eq!(number(second.sync_all()), Some(Errno::IO));
    first.sync_all().expect("it was told");
    second.sync_all().expect("it was told");
    File::open(bed.join("f")).expect("opened").sync_all().expect("the loss is an old one");
}

/// Renames in a child that is interrupted. Returns how the child ended.
fn rename_interrupted(test: &str, to: &str, signal: i32) -> std::process::ExitStatus {
    let (bed, _) = faulty(limits::CALL_DEADLINE);
    fs::write(bed.join("f"), "x").expect("written");
    let mut child = start(&format!("faults::{test}"), "rename", &bed.join(to));
    child.hear("begun");
    let thread = child.waits_in(libc::SYS_rename);
    child.signal(thread, signal);
    let status = child.end();
    assert_eq!(bed.join("f").exists(), to != "slow", "what was not answered as done is not done");
    status
}

fn is_renaming_child() -> bool {
    let Some(path) = is_child("rename") else { return false };
    be_interrupted();
    say("begun");
    let answer = number(fs::rename(path.with_file_name("f"), path));
    std::process::exit(if answer == Some(Errno::INTR) { 44 } else { i32::from(answer.is_some()) });
}

#[test]
fn a_change_that_is_made_is_not_answered_as_interrupted() {
    const TEST: &str = "a_change_that_is_made_is_not_answered_as_interrupted";
    if is_renaming_child() || !can_mount(TEST) {
        return;
    }
    assert_eq!(rename_interrupted(TEST, "slow", libc::SIGUSR1).code(), Some(0));
}

#[test]
fn a_sync_that_is_made_is_not_answered_as_interrupted() {
    const TEST: &str = "a_sync_that_is_made_is_not_answered_as_interrupted";
    if let Some(path) = is_child("sync") {
        be_interrupted();
        let file = File::options().write(true).open(&path).expect("opened");
        say("begun");
        // The standard library asks again.
        std::process::exit(i32::from(rustix::fs::fsync(&file).is_err()));
    }
    if !can_mount(TEST) {
        return;
    }
    let syncs_late = Arc::new(AtomicBool::new(true));
    let late = syncs_late.clone();
    let make = move |inner| Arc::new(Faulty { syncs_late: late, ..Faulty::new(inner) }) as _;
    let bed = Bed::with(make, limits::CALL_DEADLINE);
    fs::write(bed.join("f"), "x").expect("written");
    let mut child = start(&format!("faults::{TEST}"), "sync", &bed.join("f"));
    child.hear("begun");
    let thread = child.waits_in(libc::SYS_fsync);
    child.signal(thread, libc::SIGUSR1);
    std::thread::sleep(SLOW);
    syncs_late.store(false, Ordering::SeqCst);
    assert_eq!(child.end().code(), Some(0));
}

#[test]
fn a_program_in_a_stuck_change_can_be_killed() {
    const TEST: &str = "a_program_in_a_stuck_change_can_be_killed";
    if is_renaming_child() || !can_mount(TEST) {
        return;
    }
    assert_eq!(rename_interrupted(TEST, "stuck", libc::SIGTERM).signal(), Some(libc::SIGTERM));
}

#[test]
fn a_lock_that_was_taken_is_not_answered_as_interrupted() {
    const TEST: &str = "a_lock_that_was_taken_is_not_answered_as_interrupted";
    let open = |path: &Path| File::options().read(true).write(true).open(path).expect("opened");
    if let Some(path) = is_child("lock") {
        be_interrupted();
        let file = open(&path);
        say("begun");
        std::process::exit(i32::from(lock(&file, Kind::Write, 0, 0, true).is_err()));
    }
    if !can_mount(TEST) {
        return;
    }
    let (bed, _) = faulty(limits::CALL_DEADLINE);
    let path = bed.join("slow-attr");
    fs::write(&path, "x").expect("written");
    let here = open(&path);
    let mut child = start(&format!("faults::{TEST}"), "lock", &path);
    child.hear("begun");
    let thread = child.waits_in(libc::SYS_fcntl);
    // The mount asks what the file is now, for a while.
    until("the lock is taken", || in_the_way(&here, Kind::Write, 0, 0).is_some());
    child.signal(thread, libc::SIGUSR1);
    assert_eq!(child.end().code(), Some(0));
}

mounted! {
    fn a_mount_in_use_is_busy_and_can_be_taken_away_lazily(bed) {
        let mut file = File::create(bed.join("f")).expect("made");
        let unmounted = bed.runtime.block_on(bed.mount().unmount());
        assert_eq!(unmounted.expect_err("a file is open").kind(), weft_core::ErrorKind::Busy);
        bed.runtime.block_on(bed.mount().unmount_lazily()).expect("taken away");
        assert!(!bed.join("f").exists());
        file.write_all(b"still open").expect("written");
        assert!(!bed.mount().is_ended());
        drop(file);
        bed.runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(10), bed.mount().wait()).await
        }).expect("it ended with its last file");
        assert_eq!(bed.stored("f"), b"still open");
    }

    fn a_mount_ends_when_somebody_else_unmounts_it(bed) {
        fs::write(bed.join("f"), "x").expect("written");
        let status = Command::new("fusermount3").arg("-u").arg(bed.path()).status().expect("it runs");
        assert!(status.success());
        until("it is ended", || bed.mount().is_ended());
        bed.runtime.block_on(bed.mount().unmount()).expect("it is away already");
    }

    fn a_mount_shows_itself_in_the_table_of_mounts(bed) {
        let table = fs::read_to_string("/proc/mounts").expect("read");
        let path = bed.path().display().to_string();
        let line = table.lines().find(|line| line.contains(&path)).expect("it is there");
        assert!(line.starts_with("weft-test ") && line.contains(" fuse.weft "), "{line}");
        assert!(line.contains("nosuid,nodev") && !line.contains("allow_other"), "{line}");
    }

    fn a_directory_below_the_root_can_be_mounted_alone(bed) {
        fs::create_dir_all(bed.join("a/b")).expect("made");
        fs::write(bed.join("a/b/f"), "x").expect("written");
        let again = bed.mount_below("a", 2);
        assert_eq!(fs::read_to_string(again.join("b/f")).expect("read"), "x");
        assert_eq!(fs::read_dir(again.join(".")).expect("listed").count(), 1);
        fs::write(again.join("b/g"), "y").expect("written");
        until("it is there", || bed.join("a/b/g").exists());
    }
}
