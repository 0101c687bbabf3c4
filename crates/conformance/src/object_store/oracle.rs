//! Random operations beside a plain vector of bytes.

use weft_core::form::{Range, Seek, Shape, WriteAt};

use super::Subject;
use super::bench::{Bench, OBJECT, pattern};

/// One operation on one object.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes a pattern at an offset.
    Write(u64, usize),
    /// Appends a pattern.
    Append(usize),
    /// Cuts or grows.
    Truncate(u64),
    /// Makes a hole.
    Punch(u64, u64),
    /// Makes zeros; whether the size is kept.
    Zero(u64, u64, bool),
    /// Reserves space; whether the size is kept.
    Allocate(u64, u64, bool),
    /// Copies within the object, if the ranges are apart: from, length, to.
    Copy(u64, u64, u64),
    /// Reads a range.
    Read(u64, u64),
    /// Looks for data, then for a hole.
    Seek(u64),
    /// Seals.
    Seal,
    /// Syncs.
    Sync,
    /// Lets the store rest for seconds.
    Rest(u64),
    /// Stops and starts the store, if it keeps anything.
    Restart,
}

/// Makes the steps of a fresh object and of a vector, and compares after each.
pub async fn follow(subject: &dyn Subject, steps: &[Step]) {
    let mut bench = Bench::with_object(subject).await;
    let mut bytes: Vec<u8> = Vec::new();
    for (seed, step) in steps.iter().enumerate() {
        match step {
            Step::Restart => {
                bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
                drop(bench);
                subject.restart().await;
                bench = Bench::of(subject);
            }
            step => take(&bench, &mut bytes, seed as u64, step).await,
        }
        let size = bench.store.stat(&bench.all, OBJECT).await.expect("it is there").size;
        assert_eq!(size, bytes.len() as u64, "the size after step {seed}, {step:?}");
    }
    bench.expect(&bytes).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    bench.expect(&bytes).await;
}

async fn take(bench: &Bench<'_>, bytes: &mut Vec<u8>, seed: u64, step: &Step) {
    let shape = async |shape| bench.store.shape(&bench.all, OBJECT, shape).await.expect("it can be shaped");
    match *step {
        Step::Write(at, length) => {
            bench.write(at, pattern(seed, length)).await;
            put(bytes, at, &pattern(seed, length));
        }
        Step::Append(length) => {
            let written = bench.try_write(WriteAt::End, pattern(seed, length)).await.expect("there is room");
            assert_eq!(written.at, bytes.len() as u64);
            bytes.extend(pattern(seed, length));
        }
        Step::Truncate(size) => {
            shape(Shape::Truncate(size)).await;
            bytes.resize(size as usize, 0);
        }
        Step::Punch(at, length) if bench.subject.holes() => {
            shape(Shape::Punch { at, length }).await;
            zero(bytes, at, length);
        }
        Step::Punch(..) | Step::Restart => {}
        Step::Zero(at, length, keep_size) => {
            shape(Shape::Zero { at, length, keep_size }).await;
            zero(bytes, at, length);
            grow(bytes, at + length, keep_size);
        }
        Step::Allocate(at, length, keep_size) => {
            shape(Shape::Allocate { at, length: length.max(1), keep_size }).await;
            grow(bytes, at + length.max(1), keep_size);
        }
        Step::Copy(at, length, to) => copy(bench, bytes, at, length, to).await,
        Step::Read(at, length) => {
            let found = bench.read(at, Some(length)).await;
            let (at, length) = Range { at, length: Some(length) }.within(bytes.len() as u64);
            let at = (at as usize).min(bytes.len());
            assert!(found == bytes[at..at + length as usize], "bytes from {at} in step {seed}");
        }
        Step::Seek(offset) => seek(bench, bytes, offset).await,
        Step::Seal => {
            bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        }
        Step::Sync => {
            bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
        }
        Step::Rest(seconds) => bench.subject.pass(std::time::Duration::from_secs(seconds)).await,
    }
}

async fn copy(bench: &Bench<'_>, bytes: &mut Vec<u8>, at: u64, length: u64, to: u64) {
    let range = Range { at, length: Some(length) };
    let (from, length) = range.within(bytes.len() as u64);
    if from < to + length && to < from + length {
        return;
    }
    let copied = bench.store.copy((&bench.all, OBJECT), range, (&bench.all, OBJECT), to).await;
    assert_eq!(copied.expect("there is room"), length);
    if length > 0 {
        let moved = bytes[from as usize..(from + length) as usize].to_vec();
        put(bytes, to, &moved);
    }
}

/// What a hole is, is the store's choice; but it never hides bytes.
async fn seek(bench: &Bench<'_>, bytes: &[u8], offset: u64) {
    let size = bytes.len() as u64;
    let all_zero = |from: u64, to: u64| bytes[from as usize..to as usize].iter().all(|byte| *byte == 0);
    let data = bench.store.seek(&bench.all, OBJECT, offset, Seek::Data).await.ok();
    let from = offset.min(size);
    assert!(all_zero(from, data.unwrap_or(size)), "a hole up to {data:?} hides bytes");
    let hole = bench.store.seek(&bench.all, OBJECT, offset, Seek::Hole).await.ok();
    assert_eq!(hole.is_some(), offset < size, "up to the end there is always one");
    assert!(hole.is_none_or(|hole| (offset..=size).contains(&hole)));
}

fn put(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    let end = at as usize + new.len();
    if new.is_empty() {
        return;
    }
    bytes.resize(bytes.len().max(end), 0);
    bytes[at as usize..end].copy_from_slice(new);
}

fn zero(bytes: &mut [u8], at: u64, length: u64) {
    let size = bytes.len() as u64;
    bytes[at.min(size) as usize..(at + length).min(size) as usize].fill(0);
}

fn grow(bytes: &mut Vec<u8>, end: u64, keep_size: bool) {
    if !keep_size && end > bytes.len() as u64 {
        bytes.resize(end as usize, 0);
    }
}
