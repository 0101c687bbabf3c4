//! Histories of concurrent changes, and whether they can be put into an order.
//!
//! Many callers make, link, rename, remove, set and look up names at once. Each event
//! is recorded with a count before the request and one after the answer. A history is
//! right if the events can be put into one order in which every answer is what a plain
//! map would give, and in which no event comes before one that ended before it began:
//! that is what *linearizable* means.
//!
//! Names fall into groups between which nothing moves, so each group's history is
//! checked by itself (linearizability is local). An event without an answer, such as
//! one that a crash cut short, may have happened at any time after its beginning, or
//! not at all.

mod check;
mod record;

pub use check::{Contents, check};
pub use record::{Act, Answer, Event, Recorder, Spot};

use std::sync::Arc;

use super::Subject;
use super::site::{Dice, Site};

/// Callers at once.
const CALLERS: usize = 64;

/// What many callers hear of concurrent changes can be put into an order.
pub async fn changes_by_many_callers_can_be_put_into_an_order(subject: &dyn Subject) {
    run(subject, 1, 12).await;
}

/// Lets 64 callers make `acts` requests each, which the seed decides, and checks their
/// history.
///
/// # Panics
/// If there is no order in which the answers make sense.
pub async fn run(subject: &dyn Subject, seed: u64, acts: usize) {
    let site = Site::of(subject);
    let recorder = Arc::new(Recorder::begin(&site, &format!("history-{seed}"), CALLERS / 4).await);
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (recorder, call) = (recorder.clone(), site.call_of(&site.admin, 1000 + caller as u128));
        let mut dice = Dice::new(seed << 16 | caller as u64);
        callers.push(tokio::spawn(async move {
            for _ in 0..acts {
                recorder.act(&call, recorder.roll(&mut dice)).await;
            }
        }));
    }
    for caller in callers {
        caller.await.expect("no caller panics");
    }
    recorder.look_everywhere(&site.call()).await;
    for (group, events) in recorder.histories().into_iter().enumerate() {
        if let Err(furthest) = check(&events, &Contents::default()) {
            panic!("seed {seed}: group {group} has no order that explains its answers\n{furthest}");
        }
    }
}
