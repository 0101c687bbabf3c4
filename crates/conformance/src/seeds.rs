//! Which seeds a crash test runs through: half always the same, half new each time.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a failing run must be repeatable")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::fuzz::Named;
use crate::run::{fresh_seed, full, seed};

/// How long each crash test goes on making new seeds with `./test --full`: the four of
/// them (`kv`, `store`, `volume`, the node) make an hour.
const FULL: Duration = Duration::from_secs(15 * 60);
/// Machines here have two cores.
const THREADS: usize = 2;

/// Calls `work` with the seeds `always`, `0..count / 2` and as many new ones, on two
/// threads. `WEFT_SEED=N` runs that one alone; with `WEFT_TEST_FULL` new seeds go on for
/// a quarter of an hour. Prints the first new seed and, when `work` panics, the seed it had.
pub fn each(always: &[u64], count: u64, work: impl Fn(u64) + Sync) {
    if let Some(seed) = seed() {
        return work(seed);
    }
    let fresh = fresh_seed();
    let end = full().then(|| Instant::now() + FULL);
    let go_on = |seed: &u64| end.map_or(seed - fresh < count / 2, |end| Instant::now() < end);
    let seeds = always.iter().copied().chain(0..count / 2).chain((fresh..).take_while(go_on));
    let (seeds, ran) = (Mutex::new(seeds), Mutex::new(0u64));
    println!("first new seed {fresh}");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().expect("no holder panics").next() else { break };
                    let named = Named(seed);
                    work(seed);
                    drop(named);
                    *ran.lock().expect("no holder panics") += 1;
                }
            });
        }
    });
    println!("{} seeds", ran.into_inner().expect("no holder panics"));
}
