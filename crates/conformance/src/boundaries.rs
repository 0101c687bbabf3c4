//! Power cuts at each change of a workload, one after the other.
//!
//! Crash seeds halt at one change that chance picks; whether each change was picked once nobody
//! knows. Here a workload that is the same each time is run again and again, cut off at its first
//! change, at its second, and so on, until it comes to its end.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a failing run must be repeatable")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use weft_sys::disk::Boundary;

use crate::run::{full, seed};

/// How many more workloads are cut with `./test --full`.
const FULL: u64 = 25;
/// Machines here have two cores.
const THREADS: u64 = 2;
/// More changes than any of these workloads makes: it would have no end.
const CHANGES_MAX: u64 = 100_000;

/// How often the power went off at which kind of change.
pub type Met = BTreeMap<Boundary, u64>;

/// Calls `cut` with each of so many workloads and with 1, 2, 3 … for the change at which the power
/// is to go off, until it says that it did not. Prints what was met, and when `cut` panics, at what.
/// `WEFT_SEED=N` cuts that workload alone.
pub fn each(workloads: u64, cut: impl Fn(u64, u64) -> Option<Boundary> + Sync) -> Met {
    let met = Mutex::new(Met::new());
    let chosen = match (seed(), full()) {
        (Some(one), _) => one..one + 1,
        (None, true) => 0..workloads * FULL,
        (None, false) => 0..workloads,
    };
    for workload in chosen {
        std::thread::scope(|scope| {
            for first in 1..=THREADS {
                let (met, cut) = (&met, &cut);
                scope.spawn(move || {
                    for at in (first..CHANGES_MAX).step_by(THREADS as usize) {
                        let named = Named { workload, at };
                        let boundary = cut(workload, at);
                        drop(named);
                        match boundary {
                            Some(kind) => {
                                *met.lock().expect("no holder panics").entry(kind).or_default() += 1
                            }
                            // The other thread may have earlier ones to cut.
                            None => return,
                        }
                    }
                });
            }
        });
    }
    let met = met.into_inner().expect("no holder panics");
    println!("the power went off at {} changes: {met:?}", met.values().sum::<u64>());
    met
}

/// Says at what the power went off if what was left then makes a test panic.
struct Named {
    workload: u64,
    at: u64,
}

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again with WEFT_SEED={}; the power went off at change {}", self.workload, self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_change_is_cut_once_and_counted_by_its_kind() {
        let seen = Mutex::new(BTreeSet::new());
        let met = each(2, |workload, at| {
            let kind = if at % 3 == 0 { "make" } else { "write" };
            // A workload that is past its end may be asked once more.
            let cut = at <= 10 && seen.lock().expect("no holder panics").insert((workload, at));
            cut.then_some(Boundary::Change(kind))
        });
        let workloads = seen.into_inner().expect("no holder panics").len() as u64 / 10;
        assert!(workloads >= 1);
        assert_eq!(met[&Boundary::Change("make")], 3 * workloads);
        assert_eq!(met[&Boundary::Change("write")], 7 * workloads);
    }
}
