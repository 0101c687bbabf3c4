//! What tidying could not do yet. One thing that fails keeps no other from being tidied:
//! it is left, told, and tried again later.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use weft_core::{Error, ErrorKind, ObjectId, Result, limits};

/// What passes could not do, and why the first of it failed.
#[derive(Default)]
pub(super) struct Left {
    pub(super) count: u64,
    pub(super) why: Option<Error>,
}

impl Left {
    /// Takes how it went with one thing: done, not now, or failed. Returns whether it was
    /// done.
    pub(super) fn take(&mut self, done: Result<bool>) -> bool {
        match done {
            Ok(true) => return true,
            Ok(false) => {}
            // A policy was changed since the proof was made: the next pass makes a new one.
            Err(error) if error.kind() == ErrorKind::Revoked => {}
            Err(error) => {
                self.why.get_or_insert(error);
            }
        }
        self.count += 1;
        false
    }

    /// Takes what a whole pass left, or why it could not go on.
    pub(super) fn and(&mut self, pass: Result<Self>) {
        match pass {
            Ok(left) => {
                self.count += left.count;
                if self.why.is_none() {
                    self.why = left.why;
                }
            }
            Err(error) => drop(self.take(Err(error))),
        }
    }

    /// Says why something is left, if it failed.
    pub(super) fn report(&self) {
        if let Some(error) = &self.why {
            tracing::warn!(%error, left = self.count, "not everything could be tidied; it is tried again later");
        }
    }
}

/// Something to tidy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Thing {
    Orphan(u64),
    Label(u64),
    Object(ObjectId),
}

/// Things that failed and are not tried before it is time again, so that what comes to be
/// tidied meanwhile does not try them each time.
#[derive(Default)]
pub(super) struct Stuck(Mutex<HashSet<Thing>>);

impl Stuck {
    pub(super) fn has(&self, thing: Thing) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&thing)
    }

    /// Notes how it went with a thing.
    pub(super) fn note(&self, thing: Thing, done: &Result<bool>) {
        let mut stuck = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if done.is_err() && stuck.len() < limits::TIDY_STUCK_MAX {
            stuck.insert(thing);
        }
    }

    /// It is time to try everything again.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_withdrawn_meanwhile_leaves_a_thing_for_later_and_is_no_failure() {
        let mut left = Left::default();
        assert!(!left.take(Err(Error::new(ErrorKind::Revoked, "the right was withdrawn"))));
        assert!(left.count == 1 && left.why.is_none());
        assert!(!left.take(Err(Error::corrupt("a row"))));
        assert!(left.count == 2 && left.why.is_some());
    }
}
