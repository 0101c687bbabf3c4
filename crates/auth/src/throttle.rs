//! Who has been wrong too often: a bounded table of wrong passwords in a row.
//!
//! A try after too many waits, and only one such try runs at a time, so a guesser gets one answer
//! per [`limits::PASSWORD_FAILURE_DELAY`] and a rightful user from elsewhere notices nothing. The
//! user's own next try from the same address waits its turn, then works, and clears the count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::{Error, ErrorKind, Result, Tick, limits};

use crate::checks::Place;

/// Whose wrong passwords are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    User(Box<str>, Place),
    All(Place),
}

#[derive(Clone, Copy)]
struct Count {
    wrong: u32,
    last: Tick,
    /// Whether a try is waiting out its delay.
    waiting: bool,
}

/// The table.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<HashMap<Who, Count>>);

/// A try that may go on, perhaps after a wait.
pub(crate) struct Try {
    throttle: Arc<Throttle>,
    who: Vec<(Who, u32)>,
    held: bool,
}

impl Throttle {
    /// Begins a try. `Busy` if it would have to wait and another one is waiting already.
    pub(crate) fn begin(self: &Arc<Self>, user: &str, place: Place, now: Tick) -> Result<Try> {
        let user: Box<str> = user.chars().take(limits::CALLER_NAME_BYTES_MAX).collect();
        let mut who = vec![(Who::User(user, place), limits::PASSWORD_FAILURES_FREE)];
        if place != Place::Known {
            who.push((Who::All(place), limits::PASSWORD_FAILURES_PEER));
        }
        let mut table = self.table();
        let mut held = false;
        for (who, free) in &who {
            let Some(count) = table.get_mut(who) else { continue };
            if now.since(count.last) > limits::PASSWORD_FAILURES_KEPT {
                table.remove(who);
            } else if count.wrong > *free {
                if count.waiting {
                    return Err(Error::new(ErrorKind::Busy, "too many wrong passwords from there")
                        .hint("wait a few seconds between tries"));
                }
                held = true;
            }
        }
        if held {
            who.iter().filter_map(|(who, _)| table.get_mut(who).map(|count| count.waiting = true)).count();
        }
        drop(table);
        Ok(Try { throttle: self.clone(), who, held })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Who, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room by forgetting the oldest half. Rare: only once the table is full.
    fn shrink(table: &mut HashMap<Who, Count>) {
        let mut ages: Vec<Tick> = table.values().map(|count| count.last).collect();
        ages.sort_unstable();
        let middle = ages[ages.len() / 2];
        table.retain(|_, count| count.last > middle);
    }
}

impl Try {
    /// Returns whether the try must wait [`limits::PASSWORD_FAILURE_DELAY`] first.
    pub(crate) fn must_wait(&self) -> bool {
        self.held
    }

    /// The password was wrong.
    pub(crate) fn was_wrong(self, now: Tick) {
        let mut table = self.throttle.table();
        if table.len() + self.who.len() > limits::PASSWORD_FAILURES_TABLE {
            Throttle::shrink(&mut table);
        }
        for (who, _) in &self.who {
            let count = table.entry(who.clone()).or_insert(Count { wrong: 0, last: now, waiting: false });
            count.wrong = count.wrong.saturating_add(1);
            count.last = now;
        }
    }

    /// The password was right.
    pub(crate) fn was_right(self) {
        let mut table = self.throttle.table();
        for (who, _) in &self.who {
            table.remove(who);
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        if self.held {
            let mut table = self.throttle.table();
            for (who, _) in &self.who {
                if let Some(count) = table.get_mut(who) {
                    count.waiting = false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place::Uid(1000);

    fn fail(throttle: &Arc<Throttle>, user: &str, place: Place, tick: u64) {
        throttle.begin(user, place, Tick(tick)).expect("it may try").was_wrong(Tick(tick));
    }

    #[test]
    fn after_many_wrong_ones_a_try_waits_and_a_second_is_refused_until_a_right_one_clears_it() {
        let throttle = Arc::new(Throttle::default());
        for n in 0..=limits::PASSWORD_FAILURES_FREE {
            assert!(!throttle.begin("alice", HERE, Tick(0)).expect("free").must_wait(), "{n}");
            fail(&throttle, "alice", HERE, u64::from(n));
        }
        assert!(!throttle.begin("bob", HERE, Tick(9)).expect("another user").must_wait());
        let elsewhere = throttle.begin("alice", Place::Uid(1001), Tick(9)).expect("another uid");
        assert!(!elsewhere.must_wait(), "what one uid guesses costs another nothing");
        let waiting = throttle.begin("alice", HERE, Tick(9)).expect("one may wait");
        assert!(waiting.must_wait());
        let second = throttle.begin("alice", HERE, Tick(9)).map(drop).map_err(|error| error.kind());
        assert_eq!(second, Err(ErrorKind::Busy));
        waiting.was_right();
        assert!(!throttle.begin("alice", HERE, Tick(9)).expect("cleared").must_wait());
    }

    #[test]
    fn one_place_trying_many_users_waits_too_and_is_forgotten_in_time() {
        let throttle = Arc::new(Throttle::default());
        for place in [Place::Address([192, 0, 2, 1].into()), HERE] {
            for n in 0..=limits::PASSWORD_FAILURES_PEER {
                fail(&throttle, &format!("user{n}"), place, 1);
            }
            assert!(throttle.begin("new", place, Tick(2)).expect("one may wait").must_wait());
            let later = Tick(2).plus(limits::PASSWORD_FAILURES_KEPT * 2);
            assert!(!throttle.begin("new", place, later).expect("forgotten").must_wait());
        }
    }

    #[test]
    fn the_table_stays_within_its_bound_whoever_tries() {
        let throttle = Arc::new(Throttle::default());
        for n in 0..3 * limits::PASSWORD_FAILURES_TABLE as u64 {
            fail(&throttle, &format!("user{n}"), HERE, n);
        }
        assert!(throttle.table().len() <= limits::PASSWORD_FAILURES_TABLE);
    }
}
