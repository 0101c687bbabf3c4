//! Figures of Weft beside the best program for each job, in the same run.
//!
//! **Problem.** A number alone says little on a noisy machine, and less on another one.
//! What can be compared is a ratio between two programs that took turns on the same
//! data, with the same promise, minutes apart.
//!
//! **Shape.** A figure (`figure/`) prepares data in a [`place::Place`], starts Weft and
//! its peer (`peer/`), makes load (`load/`), and hands two measuring closures to
//! [`rounds::alternate`]: one warm-up each, then A B A B. A [`report::Report`] prints
//! one line per figure and keeps everything as JSON in `bench/results/`. System calls,
//! flushes and bytes copied per operation are counted in a run of their own
//! ([`count`]): tracing slows what it watches, and the counts are what noise cannot touch.
//!
//! ```text
//!   http.get.1g  weft=2900 MB/s  peer=2850 MB/s  ratio=1.02  (0.98–1.05)
//! ```
//!
//! A ratio over 1 means that Weft is better. Nothing here ever fails on a time: the
//! tests run every figure in its small size so that it does not rot.
//!
//! **Ways to get it wrong.** Comparing a durable write with one that is not: peers that
//! do not flush run under `peers/syncshim.c`. Measuring one side warm and the other
//! cold. Measuring the load maker: see `limits` for what the machine itself can do.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

mod count;
mod figure;
mod load;
mod machine;
mod node;
mod peer;
mod place;
mod report;
mod rounds;

use std::process::ExitCode;

use figure::{FIGURES, Size};

/// What can go wrong in a bench: it is told to a person and ends the run.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("side", words)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return told(figure::side(words));
    }
    let (name, size) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name] => (name, Size::Usual),
        [name, "--full"] | ["--full", name] => (name, Size::Full),
        [name, "--small"] => (name, Size::Small),
        _ => return usage(),
    };
    let chosen: Vec<_> = FIGURES.iter().filter(|figure| figure.answers_to(name)).collect();
    if chosen.is_empty() {
        return usage();
    }
    let limits = match figure::limits_here(size) {
        Ok(limits) => limits,
        Err(why) => {
            eprintln!("error: limits of this machine: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for figure in chosen {
        if let Err(why) = figure.run(size, &limits) {
            eprintln!("error: {}: {why}", figure.name);
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What a side of a comparison says to the bench that started it as a process of its own.
fn told(rate: Result<f64>) -> ExitCode {
    match rate {
        Ok(rate) => {
            println!("{rate:.1}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo xtask bench NAME [--full | --small]; NAME is one of, or a first part of:");
    for figure in FIGURES {
        eprintln!("  {:<16} {}", figure.name, figure.about);
    }
    ExitCode::from(2)
}
