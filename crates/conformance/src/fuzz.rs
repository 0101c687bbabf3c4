//! Parsers against what is almost valid: made, mutated, handed in.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a failing run must be repeatable")]

use std::time::{Duration, Instant};

use weft_sys::memory::{Counted, most_taken};

use crate::file_system::site::Dice;
use crate::run::{fresh_seed, full, number, seed};

/// How long a parser is fuzzed when `WEFT_FUZZ_SECONDS` does not say otherwise.
const MOMENT: Duration = Duration::from_millis(1500);
/// The same with `./test --full`.
const FULL: Duration = Duration::from_secs(60);

/// Bytes that what is handed in may take of memory in any case, and for each byte of it.
pub const MEMORY_MAX: (usize, usize) = (256 << 10, 64);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Calls `check` with what `make` makes, as it is or mutated, until the time is over: a
/// moment, or `WEFT_FUZZ_SECONDS`. Half of the seeds are the same each time. Prints the
/// seed and the bytes when `check` panics, or takes more memory than such bytes are worth;
/// `WEFT_SEED=N` runs that seed alone.
pub fn fuzz(name: &str, make: impl Fn(&mut Dice) -> Vec<u8>, check: impl Fn(&[u8])) {
    fuzz_within(MEMORY_MAX, name, make, check);
}

/// As [`fuzz`], for what may take other amounts of memory: in any case, and for each byte.
pub fn fuzz_within(
    (any, each): (usize, usize),
    name: &str,
    make: impl Fn(&mut Dice) -> Vec<u8>,
    check: impl Fn(&[u8]),
) {
    for_a_while(name, |seed| {
        let mut dice = Dice::new(seed);
        let valid = make(&mut dice);
        let times = dice.roll(5);
        let bytes = (0..times).fold(valid, |bytes, _| mutated(&bytes, &mut |sides| dice.roll(sides)));
        let shown = Shown(&bytes);
        let ((), most) = most_taken(|| check(&bytes));
        assert!(most <= any + each * bytes.len(), "{} bytes of input took {most} of memory", bytes.len());
        drop(shown);
    });
}

/// Calls `one` with seed after seed.
fn for_a_while(name: &str, mut one: impl FnMut(u64)) {
    if let Some(seed) = seed() {
        return one(seed);
    }
    let usual = if full() { FULL } else { MOMENT };
    let end = Instant::now() + number("WEFT_FUZZ_SECONDS").map_or(usual, Duration::from_secs);
    let fresh = fresh_seed();
    let mut runs = 0;
    while runs == 0 || Instant::now() < end {
        let named = Named(if runs % 2 == 0 { runs } else { fresh + runs });
        one(named.0);
        drop(named);
        runs += 1;
    }
    println!("{name}: {runs} runs, new seeds from {fresh}");
}

/// Changes, flips, drops, doubles, moves, inserts or cuts off some bytes. `roll` returns a
/// number below what it is given, which is never 0.
pub fn mutated(valid: &[u8], roll: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
    /// What parsers of text and of numbers take for something else.
    const ODD: &[u8] = b"\r\n\0 \t,;:=\"\\/%?#*-+.0123456789abcdefxXW(){}[]\x7f\x80\xff\xc3";
    let mut bytes = valid.to_vec();
    let at = roll(bytes.len() as u64 + 1) as usize;
    let length = (roll(40) as usize).min(bytes.len() - at);
    match roll(8) {
        0 => bytes.insert(at, ODD[roll(ODD.len() as u64) as usize]),
        1 if at < bytes.len() => bytes[at] = ODD[roll(ODD.len() as u64) as usize],
        2 | 3 if at < bytes.len() => bytes[at] ^= 1 << roll(8),
        4 => drop(bytes.drain(at..at + length)),
        5 => {
            let copy = bytes[at..at + length].to_vec();
            let to = roll(bytes.len() as u64 + 1) as usize;
            bytes.splice(to..to, copy);
        }
        6 => bytes.insert(at, roll(256) as u8),
        _ => bytes.truncate(at),
    }
    bytes
}

/// Says which seed it was if the work with it panics.
pub(crate) struct Named(pub(crate) u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again with WEFT_SEED={}", self.0);
        }
    }
}

/// Says what bytes they were if the work with them panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on {:?}", self.0.escape_ascii().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "of memory")]
    fn a_parser_that_takes_what_a_length_says_is_found() {
        fuzz(
            "greedy",
            |dice| (dice.roll(1 << 32) as u32).to_le_bytes().to_vec(),
            |bytes| {
                let length = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
                drop(std::hint::black_box(Vec::<u8>::with_capacity(length as usize)));
            },
        );
    }
}
