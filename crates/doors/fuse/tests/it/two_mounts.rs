//! Two mounts of one tree, under a tester of consistency: what is written and closed in one is what an
//! open in the other reads; appends from both lose and tear nothing; locks from both exclude each other.
//!
//! Everything is drawn from a seed, which is printed; `WEFT_SEED` gives it again. `compare` and the tests
//! in `sharing` and `locks` look at one thing each; here all of it goes on at once.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use weft_conformance::run::{full, seed_or_fresh};

use crate::bed::{Bed, can_mount};
use crate::raw::{Kind, Mapping, is_child, lock, start};

/// Numbers that follow from a seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Draws a length: mostly small, sometimes more than one call or one window takes.
    fn length(&mut self) -> usize {
        let most = [100, 5_000, 16_000, 70_000, 300_000, 1_200_000][self.below(6)];
        1 + self.below(most)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// Bytes that a file of the tester grows to at most.
const FILE_BYTES_MAX: usize = 3 << 20;

/// One file: what it holds, and what is kept open of it in either mount, so that there is something
/// old to be shown.
struct Watched {
    at: [PathBuf; 2],
    holds: Vec<u8>,
    held: Vec<(File, Option<Mapping>)>,
    draw: Draw,
}

impl Watched {
    /// Changes it through one mount, in one of the ways there are, and closes it.
    fn change(&mut self, mount: usize) {
        let path = &self.at[mount];
        let length = self.draw.length();
        let bytes = self.draw.bytes(length);
        let open = || File::options().write(true).open(path).expect("opened");
        match self.draw.below(6) {
            0 => {
                fs::write(path, &bytes).expect("written");
                self.holds = bytes;
            }
            1 => {
                let end = self.draw.below(self.holds.len() + 1);
                open().set_len(end as u64).expect("cut");
                self.holds.truncate(end);
            }
            2 if self.holds.len() + length < FILE_BYTES_MAX => {
                let mut file = File::options().append(true).open(path).expect("opened");
                file.write_all(&bytes).expect("appended");
                self.holds.extend_from_slice(&bytes);
            }
            3 if !self.holds.is_empty() => {
                let file = File::options().read(true).write(true).open(path).expect("opened");
                let mapping = Mapping::new(&file, true);
                for byte in bytes.iter().take(50) {
                    let at = self.draw.below(self.holds.len());
                    mapping.write(at, *byte);
                    self.holds[at] = *byte;
                }
                // Not left to the end of the mapping: the kernel writes back there with this process's memory
                // locked, which serves the mount.
                mapping.sync();
            }
            _ => {
                let at = self.draw.below(self.holds.len() + 1);
                open().write_all_at(&bytes, at as u64).expect("written");
                let end = self.holds.len().max(at + length);
                self.holds.resize(end, 0);
                self.holds[at..at + length].copy_from_slice(&bytes);
            }
        }
    }

    /// Opens it in a mount, and fails unless it reads there as what it holds.
    fn compare(&mut self, mount: usize, round: usize) {
        let mut file = File::open(&self.at[mount]).expect("opened");
        let length = file.metadata().expect("there").len();
        assert_eq!(length, self.holds.len() as u64, "round {round}, {:?}: its length", self.at[mount]);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("read");
        let differs = bytes.iter().zip(&self.holds).position(|(read, holds)| read != holds);
        assert!(
            bytes.len() == self.holds.len() && differs.is_none(),
            "round {round}, {:?}: {} of {} bytes, and byte {differs:?} is another",
            self.at[mount],
            bytes.len(),
            self.holds.len(),
        );
        // Some stay open, some of those mapped and looked at.
        if self.draw.below(4) == 0 {
            let mapping = (!self.holds.is_empty()).then(|| Mapping::new(&file, false));
            if let Some(mapping) = &mapping {
                mapping.read(self.draw.below(self.holds.len()));
            }
            self.held.push((file, mapping));
        }
        if self.held.len() > 4 {
            self.held.remove(0);
        }
    }
}

#[test]
fn what_is_closed_in_one_mount_is_what_the_other_opens() {
    const FILES: usize = 4;
    if !can_mount("what_is_closed_in_one_mount_is_what_the_other_opens") {
        return;
    }
    let (seed, rounds) = (seed_or_fresh(), if full() { 20_000 } else { 250 });
    println!("seed {seed}");
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    std::thread::scope(|scope| {
        for file in 0..FILES {
            let name = format!("file {file}");
            fs::write(bed.join(&name), "").expect("made");
            let at = [bed.join(&name), again.join(&name)];
            let draw = Draw(seed.wrapping_add(file as u64));
            scope.spawn(move || {
                let mut watched = Watched { at, holds: Vec::new(), held: Vec::new(), draw };
                for round in 0..rounds {
                    let mount = watched.draw.below(2);
                    watched.change(mount);
                    watched.compare(1 - mount, round);
                    watched.compare(mount, round);
                }
            });
        }
    });
}

/// Bytes before what an append brings: whose it is, which of theirs, how many come.
const HEAD_BYTES: usize = 12;

/// Makes one append: its bytes follow from its head.
fn piece(writer: u32, number: u32, length: u32) -> Vec<u8> {
    let mut piece = [writer, number, length].map(u32::to_le_bytes).concat();
    piece.extend(Draw(u64::from(writer) << 32 | u64::from(number)).bytes(length as usize));
    piece
}

/// Returns how many appends of each writer there are, in the order that each made them. Fails if anything else is in
/// the file, but for a last one that has not come whole where `whole` does not ask for that.
fn counted(bytes: &[u8], writers: u32, whole: bool) -> Vec<u32> {
    let (mut counts, mut at) = (vec![0; writers as usize], 0);
    while at + HEAD_BYTES <= bytes.len() {
        let number =
            |index: usize| u32::from_le_bytes(bytes[at + 4 * index..][..4].try_into().expect("four bytes"));
        let (writer, which, length) = (number(0), number(1), number(2));
        let count = counts.get_mut(writer as usize).unwrap_or_else(|| panic!("at {at}: writer {writer}"));
        assert_eq!(which, *count, "at {at}: an append of writer {writer} is lost or moved");
        let expected = piece(writer, which, length);
        let there = &bytes[at..bytes.len().min(at + expected.len())];
        let same = expected.iter().zip(there).take_while(|(expected, there)| expected == there).count();
        let (length, end) = (expected.len(), at + same);
        assert_eq!(
            same,
            there.len(),
            "append {which} of writer {writer}, {length} bytes at {at}, is torn at {end}: {:?}",
            &bytes[end..bytes.len().min(end + 16)]
        );
        if there.len() < expected.len() {
            break;
        }
        *count += 1;
        at += expected.len();
    }
    assert!(!whole || at == bytes.len(), "{} bytes are nobody's", bytes.len() - at);
    counts
}

/// Appends through a mount, from an open file that is sometimes another.
fn append(log: &Path, writer: u32, appends: u32, mut draw: Draw) {
    // Half of them may read what they append to, and the kernel goes another way.
    let open = || File::options().append(true).read(writer > 1).open(log).expect("opened");
    let mut file = open();
    for number in 0..appends {
        // The kernel cuts in two what is longer than a mebibyte.
        let piece = piece(writer, number, draw.length().min(200_000) as u32);
        assert_eq!(file.write(&piece).expect("appended"), piece.len());
        if draw.below(8) == 0 {
            file = open();
        }
    }
}

#[test]
fn appends_of_any_length_from_two_mounts_come_whole_while_both_read() {
    const WRITERS: u32 = 4;
    if !can_mount("appends_of_any_length_from_two_mounts_come_whole_while_both_read") {
        return;
    }
    let (seed, appends) = (seed_or_fresh(), if full() { 2_000 } else { 60 });
    println!("seed {seed}");
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    fs::write(bed.join("log"), "").expect("made");
    let logs = [bed.join("log"), again.join("log")];
    let writing = AtomicU32::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (log, writing) = (&logs[writer as usize % 2], &writing);
            scope.spawn(move || {
                let ends = Ends(writing);
                append(log, writer, appends, Draw(seed.wrapping_add(u64::from(writer))));
                drop(ends);
            });
        }
        for log in &logs {
            let writing = &writing;
            scope.spawn(move || {
                let mut last = vec![0; WRITERS as usize];
                while writing.load(Ordering::Relaxed) > 0 {
                    let counts = counted(&fs::read(log).expect("read"), WRITERS, false);
                    let none_lost = last.iter().zip(&counts).all(|(last, count)| last <= count);
                    assert!(none_lost, "{last:?}, then {counts:?}");
                    last = counts;
                }
            });
        }
    });
    for log in &logs {
        assert_eq!(
            counted(&fs::read(log).expect("read"), WRITERS, true),
            [appends; WRITERS as usize],
            "{log:?}"
        );
    }
}

/// Counts a writer down, also one that panics: its readers are to end.
struct Ends<'a>(&'a AtomicU32);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a counter is kept to oneself.
#[derive(Clone, Copy, Debug)]
enum By {
    /// `fcntl`, on all of the file.
    Range,
    /// `flock`.
    Whole,
}

fn keep(file: &File, by: By, taken: bool) {
    match (by, taken) {
        (By::Range, true) => lock(file, Kind::Write, 0, 0, true).expect("taken"),
        (By::Range, false) => lock(file, Kind::None, 0, 0, false).expect("given up"),
        (By::Whole, true) => flock(file, FlockOperation::LockExclusive).expect("taken"),
        (By::Whole, false) => flock(file, FlockOperation::Unlock).expect("given up"),
    }
}

/// Children: count up in a file, each time under a lock of its own or of the other kind.
fn counts() -> bool {
    let by = [("range", By::Range), ("whole", By::Whole)];
    let Some((by, path)) = by.into_iter().find_map(|(name, by)| Some((by, is_child(name)?))) else {
        return false;
    };
    let file = File::options().read(true).write(true).open(path).expect("opened");
    for _ in 0..rounds_of_counting() {
        keep(&file, by, true);
        let mut count = [0; 8];
        file.read_exact_at(&mut count, 0).expect("read");
        let more = u64::from_le_bytes(count) + 1;
        file.write_all_at(&more.to_le_bytes(), 0).expect("written");
        keep(&file, by, false);
    }
    true
}

fn rounds_of_counting() -> u64 {
    if full() { 20_000 } else { 150 }
}

/// Two processes on each of two mounts count in one file, which all hold open.
fn count_under(test: &str, part: &str) {
    if counts() || !can_mount(test) {
        return;
    }
    let bed = Bed::new();
    let again = bed.mount_again("alice", 2);
    fs::write(bed.join("count"), 0_u64.to_le_bytes()).expect("made");
    let at = |path: &Path| start(&format!("two_mounts::{test}"), part, path);
    let mut children = [&bed.join("count"), &again.join("count"), &bed.join("count"), &again.join("count")]
        .map(|path| at(path));
    for child in &mut children {
        assert!(child.child.wait().expect("it is ours").success());
    }
    let count = u64::from_le_bytes(bed.stored("count")[..].try_into().expect("eight bytes"));
    assert_eq!(count, 4 * rounds_of_counting());
}

#[test]
fn range_locks_from_two_mounts_keep_a_counter_right() {
    count_under("range_locks_from_two_mounts_keep_a_counter_right", "range");
}

#[test]
fn whole_file_locks_from_two_mounts_keep_a_counter_right() {
    count_under("whole_file_locks_from_two_mounts_keep_a_counter_right", "whole");
}
