//! Who has been wrong too often: a bounded table of wrong passwords in a row.
//!
//! Tries after too many wait in line, each [`limits::PASSWORD_FAILURE_DELAY`] behind the one
//! before, so guessers get one answer in that time and a rightful user from elsewhere notices
//! nothing. The user's own next try from the same address waits its turn, then works, and clears
//! the count. Behind a loopback address is everybody who comes through a server in front, so there
//! wrong passwords are counted by user only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    /// Tries that wait out their delay.
    waiting: u32,
}

/// The table.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<HashMap<Who, Count>>);

/// A try that may go on, perhaps after a wait.
pub(crate) struct Try {
    throttle: Arc<Throttle>,
    who: Vec<(Who, u32)>,
    wait: Duration,
}

/// Returns whether a place is one machine or one uid, and not perhaps many users behind a server.
fn is_one(place: Place) -> bool {
    match place {
        Place::Address(address) => !address.is_loopback(),
        Place::Uid(_) => true,
        Place::Caller(_) => false,
    }
}

impl Throttle {
    /// Begins a try. `Busy` if it would have to wait behind too many.
    pub(crate) fn begin(self: &Arc<Self>, user: &str, place: Place, now: Tick) -> Result<Try> {
        let user: Box<str> = user.chars().take(limits::CALLER_NAME_BYTES_MAX).collect();
        let mut who = vec![(Who::User(user, place), limits::PASSWORD_FAILURES_FREE)];
        if is_one(place) {
            who.push((Who::All(place), limits::PASSWORD_FAILURES_PEER));
        }
        let mut table = self.table();
        let mut line = 0;
        for (who, free) in &who {
            let Some(count) = table.get(who) else { continue };
            if now.since(count.last) > limits::PASSWORD_FAILURES_KEPT {
                table.remove(who);
            } else if count.wrong > *free {
                if count.waiting >= limits::PASSWORD_TRIES_WAITING_MAX {
                    return Err(Error::new(ErrorKind::Busy, "too many wrong passwords from there")
                        .hint("wait a few seconds between tries"));
                }
                line = line.max(count.waiting + 1);
            }
        }
        if line > 0 {
            for (who, _) in &who {
                if let Some(count) = table.get_mut(who) {
                    count.waiting += 1;
                }
            }
        }
        drop(table);
        Ok(Try { throttle: self.clone(), who, wait: limits::PASSWORD_FAILURE_DELAY * line })
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
    /// Returns how long the try must wait first.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// The password was wrong.
    pub(crate) fn was_wrong(self, now: Tick) {
        let mut table = self.throttle.table();
        if table.len() + self.who.len() > limits::PASSWORD_FAILURES_TABLE {
            Throttle::shrink(&mut table);
        }
        for (who, _) in &self.who {
            let count = table.entry(who.clone()).or_insert(Count { wrong: 0, last: now, waiting: 0 });
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
        if !self.wait.is_zero() {
            let mut table = self.throttle.table();
            for (who, _) in &self.who {
                if let Some(count) = table.get_mut(who) {
                    // Another's right password may have begun the count anew.
                    count.waiting = count.waiting.saturating_sub(1);
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
    fn after_many_wrong_ones_tries_wait_in_a_short_line_until_a_right_one_clears_it() {
        let throttle = Arc::new(Throttle::default());
        for n in 0..=limits::PASSWORD_FAILURES_FREE {
            assert!(throttle.begin("alice", HERE, Tick(0)).expect("free").wait().is_zero(), "{n}");
            fail(&throttle, "alice", HERE, u64::from(n));
        }
        assert!(throttle.begin("bob", HERE, Tick(9)).expect("another user").wait().is_zero());
        let elsewhere = throttle.begin("alice", Place::Uid(1001), Tick(9)).expect("another uid");
        assert!(elsewhere.wait().is_zero(), "what one uid guesses costs another nothing");
        let line: Vec<_> = (1..=limits::PASSWORD_TRIES_WAITING_MAX)
            .map(|place| {
                let waiting = throttle.begin("alice", HERE, Tick(9)).expect("room in the line");
                assert_eq!(waiting.wait(), limits::PASSWORD_FAILURE_DELAY * place, "one behind the other");
                waiting
            })
            .collect();
        let more = throttle.begin("alice", HERE, Tick(9)).map(drop).map_err(|error| error.kind());
        assert_eq!(more, Err(ErrorKind::Busy));
        for waiting in line {
            waiting.was_right();
        }
        assert!(throttle.begin("alice", HERE, Tick(9)).expect("cleared").wait().is_zero());
    }

    #[test]
    fn one_place_trying_many_users_waits_too_and_is_forgotten_in_time() {
        let throttle = Arc::new(Throttle::default());
        for place in [Place::Address([192, 0, 2, 1].into()), HERE] {
            for n in 0..=limits::PASSWORD_FAILURES_PEER {
                fail(&throttle, &format!("user{n}"), place, 1);
            }
            assert!(!throttle.begin("new", place, Tick(2)).expect("it may wait").wait().is_zero());
            let later = Tick(2).plus(limits::PASSWORD_FAILURES_KEPT * 2);
            assert!(throttle.begin("new", place, later).expect("forgotten").wait().is_zero());
        }
    }

    #[test]
    fn one_who_guesses_through_a_server_in_front_keeps_nobody_else_there_waiting() {
        let throttle = Arc::new(Throttle::default());
        for front in ["127.0.0.1", "::1"] {
            let front = Place::Address(front.parse().expect("an address"));
            for n in 0..=2 * limits::PASSWORD_FAILURES_PEER {
                fail(&throttle, &format!("user{}", n % 4), front, 1);
            }
            let guesser = throttle.begin("user0", front, Tick(2)).expect("it may wait");
            assert!(!guesser.wait().is_zero(), "a user's own count goes on");
            assert!(throttle.begin("alice", front, Tick(2)).expect("another").wait().is_zero());
            let own = throttle.begin("user0", front, Tick(2)).expect("who they mean gets a turn");
            assert_eq!(own.wait(), 2 * guesser.wait());
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
