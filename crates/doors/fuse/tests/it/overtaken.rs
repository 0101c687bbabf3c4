//! Answers that are overtaken by what another client changes: nobody believes for long what they show.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use weft_core::form::ChangeSeq;
use weft_core::limits;

use crate::asked_again::follow_at;
use crate::bed::{Bed, can_mount};
use crate::faulty::Faulty;
use crate::raw::until;

/// A mount that follows the feed, and what holds its answers.
struct Held {
    bed: Bed,
    lists: Arc<AtomicBool>,
    reads: Arc<AtomicBool>,
    tells: Arc<AtomicBool>,
    since: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
}

impl Held {
    /// Makes it, with a file of ten bytes that the mount was told of and did not look at.
    fn new(name: &str) -> Self {
        let flag = || Arc::new(AtomicBool::new(false));
        let (lists, reads, tells) = (flag(), flag(), flag());
        let count = || Arc::new(AtomicU64::new(0));
        let (since, asked, read, told) = (count(), count(), count(), count());
        let faulty = |inner| Faulty {
            lists_late: lists.clone(),
            reads_late: reads.clone(),
            tells_late: tells.clone(),
            since: since.clone(),
            asked: asked.clone(),
            reads: read.clone(),
            told: told.clone(),
            ..Faulty::new(inner)
        };
        let bed = Bed::with(|inner| Arc::new(faulty(inner)), limits::CALL_DEADLINE);
        bed.store(name, &[1; 10]);
        bed.store("open", &[0]);
        follow_at(&bed, bed.path());
        let held = Self { bed, lists, reads, tells, since, asked, read, told };
        held.tells_all();
        held
    }

    fn length(&self, name: &str) -> u64 {
        fs::metadata(self.bed.join(name)).expect("there").len()
    }

    /// Returns the mount's root, opened; what came with that is not given any more.
    fn opened(&self) -> fs::ReadDir {
        let opened = fs::read_dir(self.bed.path()).expect("opened");
        File::create(self.bed.join("made")).expect("made");
        self.tells_all();
        opened
    }

    /// Waits until the mount has told the kernel whatever has changed so far.
    fn tells_all(&self) {
        until("the feed has come", self.has_told(self.bed.feed()));
    }

    /// Returns how to see whether the mount has told the kernel what comes before a place of the feed.
    fn has_told(&self, before: ChangeSeq) -> impl Fn() -> bool {
        move || self.since.load(Ordering::SeqCst) >= before.0
    }

    /// Has another client change a file once something is asked for, and that be answered once the kernel was told.
    fn changes(&self, name: &str, asks: impl FnOnce() + Send) {
        self.lists.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            counts(&self.asked, || drop(scope.spawn(asks)));
            self.bed.store(name, &[1; 20]);
            self.tells_all();
            self.lists.store(false, Ordering::SeqCst);
        });
    }

    /// The same: right after, the file is shown as it is.
    fn overtakes(&self, name: &str, asks: impl FnOnce() + Send) {
        self.changes(name, asks);
        assert_eq!(self.length(name), 20);
    }

    /// The same of another file: what was answered is believed.
    fn passes_by(&self, name: &str, asks: impl FnOnce() + Send) {
        self.changes("open", asks);
        let asked = self.asked.load(Ordering::SeqCst);
        assert_eq!(self.length(name), 10);
        assert_eq!(self.asked.load(Ordering::SeqCst), asked, "{name} was just answered");
    }
}

/// Waits until something is counted that `begin` has begun.
fn counts(counter: &AtomicU64, begin: impl FnOnce()) {
    let before = counter.load(Ordering::SeqCst);
    begin();
    until("it is asked", || counter.load(Ordering::SeqCst) > before);
}

#[test]
fn what_a_name_led_to_before_another_changed_it_is_not_believed() {
    if !can_mount("what_a_name_led_to_before_another_changed_it_is_not_believed") {
        return;
    }
    let held = Held::new("late-f");
    held.overtakes("late-f", || assert_ne!(held.length("late-f"), 0));
}

#[test]
fn what_a_page_of_a_directory_shows_of_before_another_changed_it_is_not_believed() {
    if !can_mount("what_a_page_of_a_directory_shows_of_before_another_changed_it_is_not_believed") {
        return;
    }
    let held = Held::new("f");
    let opened = held.opened();
    held.overtakes("f", || assert_ne!(opened.count(), 0));
}

#[test]
fn what_was_asked_for_while_others_changed_another_file_is_believed() {
    if !can_mount("what_was_asked_for_while_others_changed_another_file_is_believed") {
        return;
    }
    let held = Held::new("late-f");
    held.passes_by("late-f", || assert_ne!(held.length("late-f"), 0));
    let held = Held::new("f");
    let opened = held.opened();
    held.passes_by("f", || assert_ne!(opened.count(), 0));
}

/// The page has counted its first entry, and waits for older pages of its second to go.
#[test]
fn what_others_change_of_a_page_that_waits_for_older_pages_to_go_is_not_believed() {
    const TEST: &str = "what_others_change_of_a_page_that_waits_for_older_pages_to_go_is_not_believed";
    if !can_mount(TEST) {
        return;
    }
    let held = Held::new("a");
    let opened = held.opened();
    let file = File::open(held.bed.join("open")).expect("opened");
    held.tells.store(true, Ordering::SeqCst);
    held.bed.store("open", &[1]);
    held.reads.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        // Its pages cannot go while one of them is read.
        counts(&held.read, || {
            drop(scope.spawn(|| file.read_at(&mut [0; 10], 0).expect("read")));
        });
        let opens = || File::open(held.bed.join("open")).expect("opened");
        scope.spawn(opens);
        let mut listing = None;
        counts(&held.asked, || listing = Some(scope.spawn(|| opened.count())));
        held.bed.store("a", &[1; 20]);
        counts(&held.told, || held.tells.store(false, Ordering::SeqCst));
        let has_come = held.has_told(held.bed.feed());
        until("the feed has come, or nobody waits", || {
            has_come() || listing.as_ref().is_none_or(|it| it.is_finished())
        });
        held.reads.store(false, Ordering::SeqCst);
    });
    assert_eq!(held.length("a"), 20);
}
