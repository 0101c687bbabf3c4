//! A tester of consistency for two mounts of one tree: what is written and closed in one is what an open in the
//! other reads; appends from both lose and tear nothing; locks from both exclude each other.
//!
//! It knows of the mounts where they are and nothing else: `two_mounts` here runs it over the in-memory `Model`,
//! and the tests of the program over a real node, whose mounts are lent files and lend memory. Everything is drawn
//! from a seed, which is printed; `WEFT_SEED` gives it again.

// The seed.
#![allow(clippy::print_stdout)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use weft_conformance::run::{full, seed_or_fresh};

use crate::raw::{Kind, Mapping, is_child, lock, start};

/// One directory, as each of the two mounts shows it.
pub type Mounts = [PathBuf; 2];

/// Bytes that passed below the mounts, whatever those keep: what was written, and what was read after the other mount
/// had written.
#[derive(Debug, Default)]
pub struct Passed {
    pub written: AtomicU64,
    pub read: AtomicU64,
}

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
struct Watched<'a> {
    at: Mounts,
    holds: Vec<u8>,
    held: Vec<(File, Option<Mapping>)>,
    draw: Draw,
    passed: &'a Passed,
}

impl Watched<'_> {
    /// Changes it through one mount, in one of the ways there are, and closes it.
    fn change(&mut self, mount: usize) {
        let path = &self.at[mount];
        let length = self.draw.length();
        let bytes = self.draw.bytes(length);
        let open = || File::options().write(true).open(path).expect("opened");
        let written = match self.draw.below(6) {
            0 => {
                fs::write(path, &bytes).expect("written");
                self.holds = bytes;
                length
            }
            1 => {
                let end = self.draw.below(self.holds.len() + 1);
                open().set_len(end as u64).expect("cut");
                self.holds.truncate(end);
                0
            }
            2 if self.holds.len() + length < FILE_BYTES_MAX => {
                let mut file = File::options().append(true).open(path).expect("opened");
                file.write_all(&bytes).expect("appended");
                self.holds.extend_from_slice(&bytes);
                length
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
                // locked, which over the model serves the mount.
                mapping.sync();
                0
            }
            _ => {
                let at = self.draw.below(self.holds.len() + 1);
                open().write_all_at(&bytes, at as u64).expect("written");
                let end = self.holds.len().max(at + length);
                self.holds.resize(end, 0);
                self.holds[at..at + length].copy_from_slice(&bytes);
                length
            }
        };
        self.passed.written.fetch_add(written as u64, Ordering::Relaxed);
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

/// Changes files through either mount and opens them in the other, `rounds` times each.
pub fn what_is_closed_is_what_is_opened(mounts: &Mounts, rounds: usize) -> Passed {
    const FILES: usize = 4;
    let (seed, passed) = (seed_or_fresh(), Passed::default());
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for file in 0..FILES {
            let at = mounts.each_ref().map(|mount| mount.join(format!("file {file}")));
            fs::write(&at[0], "").expect("made");
            let (draw, passed) = (Draw(seed.wrapping_add(file as u64)), &passed);
            scope.spawn(move || {
                let mut watched = Watched { at, holds: Vec::new(), held: Vec::new(), draw, passed };
                for round in 0..rounds {
                    let mount = watched.draw.below(2);
                    watched.change(mount);
                    watched.compare(1 - mount, round);
                    watched.compare(mount, round);
                    passed.read.fetch_add(watched.holds.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    passed
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

/// Four writers append to one file, two through each mount, while both mounts' readers look that nothing is lost or torn.
pub fn appends_come_whole(mounts: &Mounts, appends: u32) -> Passed {
    const WRITERS: u32 = 4;
    let (seed, passed) = (seed_or_fresh(), Passed::default());
    println!("seed {seed}");
    let logs = mounts.each_ref().map(|mount| mount.join("log"));
    fs::write(&logs[0], "").expect("made");
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
            let (writing, passed) = (&writing, &passed);
            scope.spawn(move || look_for_losses(log, WRITERS, writing, &passed.read));
        }
    });
    for log in &logs {
        let bytes = fs::read(log).expect("read");
        assert_eq!(counted(&bytes, WRITERS, true), [appends; WRITERS as usize], "{log:?}");
    }
    let length = fs::metadata(&logs[0]).expect("there").len();
    passed.written.store(length, Ordering::Relaxed);
    passed
}

/// Reads the file of appends again and again while there are writers, and counts in `read` what there was to be read.
fn look_for_losses(log: &Path, writers: u32, writing: &AtomicU32, read: &AtomicU64) {
    let mut last = vec![0; writers as usize];
    while writing.load(Ordering::Relaxed) > 0 {
        let bytes = fs::read(log).expect("read");
        read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let counts = counted(&bytes, writers, false);
        let none_lost = last.iter().zip(&counts).all(|(last, count)| last <= count);
        assert!(none_lost, "{last:?}, then {counts:?}");
        last = counts;
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
pub enum By {
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

impl By {
    /// What a child is told to take part in.
    fn part(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Whole => "whole",
        }
    }
}

/// In a child of [`a_counter_stays_right`], counts up in its file, each time under a lock, so that all who count see what
/// the one before wrote, in what they read ahead as well. A test that calls that calls this first, and ends if it was one.
pub fn counts() -> bool {
    let child = |by: By| Some((by, is_child(by.part())?));
    let Some((by, path)) = [By::Range, By::Whole].into_iter().find_map(child) else {
        return false;
    };
    let file = File::options().read(true).write(true).open(path).expect("opened");
    for round in 0..rounds_of_counting() {
        keep(&file, by, true);
        count_up(&file);
        if round % REPAINTED_EACH == 0 {
            repaint(&file);
        }
        keep(&file, by, false);
    }
    true
}

fn rounds_of_counting() -> u64 {
    if full() { 20_000 } else { 150 }
}

fn count_up(file: &File) {
    let mut count = [0; COUNT_BYTES];
    file.read_exact_at(&mut count, 0).expect("read");
    let more = u64::from_le_bytes(count) + 1;
    file.write_all_at(&more.to_le_bytes(), 0).expect("written");
}

const COUNT_BYTES: usize = 8;
/// Bytes behind the count, all of one value: more than one call takes, so that a mount reads ahead.
const PAINTED_BYTES: usize = 1_200_000;
/// Rounds of counting to one of painting, which takes longer.
const REPAINTED_EACH: u64 = 10;

/// Writes the next value over all that lies behind the count, once it is seen to be of one.
fn repaint(file: &File) {
    let mut bytes = vec![0; PAINTED_BYTES];
    file.read_exact_at(&mut bytes, COUNT_BYTES as u64).expect("read");
    let (first, other) = (bytes[0], bytes.iter().position(|byte| *byte != bytes[0]));
    assert_eq!(other, None, "byte {other:?} is no {first}");
    file.write_all_at(&vec![first.wrapping_add(1); PAINTED_BYTES], COUNT_BYTES as u64).expect("written");
}

/// Two processes on each of two mounts count in one file, which all hold open. They run `test` of this binary.
pub fn a_counter_stays_right(mounts: &Mounts, test: &str, by: By) {
    let at = mounts.each_ref().map(|mount| mount.join("count"));
    fs::write(&at[0], [0; COUNT_BYTES + PAINTED_BYTES]).expect("made");
    let mut children = [0, 1, 0, 1].map(|mount| start(test, by.part(), &at[mount]));
    for child in &mut children {
        assert!(child.child.wait().expect("it is ours").success(), "{by:?}");
    }
    let rounds = rounds_of_counting();
    let value = (4 * rounds.div_ceil(REPAINTED_EACH)) as u8;
    for at in &at {
        let bytes = fs::read(at).expect("read");
        let (count, painted) = bytes.split_at(COUNT_BYTES);
        let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
        assert_eq!(count, 4 * rounds, "{by:?}, {at:?}");
        assert!(painted.iter().all(|byte| *byte == value), "{by:?}, {at:?}: not all is {value}");
    }
}
