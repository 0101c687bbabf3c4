//! Locks: ranges that split and merge, whole files beside them, and who waits for whom.
//! In memory; they die with their session.
//!
//! What each holder has is kept sorted ([`HeldLocks`]), so that taking, giving up and looking
//! for what is in the way are walks over short sorted lists.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use weft_core::form::{HeldLocks, Lock, LockKind, LockOwner, LockScope};
use weft_core::{Error, ErrorKind, FileId, Result, SessionId, limits};

/// Who holds or waits: an owner of a session.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    session: SessionId,
    owner: LockOwner,
}

impl Holder {
    pub(crate) fn of(session: SessionId, lock: &Lock) -> Result<Self> {
        if lock.owner.0.len() > limits::LOCK_OWNER_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "a lock's owner has at most 1024 bytes"));
        }
        Ok(Self { session, owner: lock.owner.clone() })
    }
}

/// Every lock, and everyone who waits for one.
#[derive(Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    /// Wakes those who wait: something was given up.
    pub(crate) given_up: Notify,
}

#[derive(Default)]
struct State {
    files: HashMap<FileId, HashMap<Holder, HeldLocks>>,
    /// How many locks each session has, of all files.
    counts: HashMap<SessionId, usize>,
    waiting: HashMap<u64, Wanted>,
    last_waiter: u64,
}

#[derive(Clone)]
struct Wanted {
    file: FileId,
    by: Holder,
    scope: LockScope,
    kind: LockKind,
}

/// A wait that is counted in looking for deadlocks, until it is dropped.
pub(crate) struct Waiter<'a> {
    locks: &'a Locks,
    number: u64,
}

impl State {
    /// Everybody's locks that stand in the way.
    fn in_the_way<'a>(
        &'a self,
        wanted: &'a Wanted,
    ) -> impl Iterator<Item = (&'a Holder, (LockScope, LockKind))> {
        self.files
            .get(&wanted.file)
            .into_iter()
            .flatten()
            .filter(|(holder, _)| **holder != wanted.by)
            .filter_map(|(holder, held)| Some((holder, held.in_the_way(wanted.scope, wanted.kind)?)))
    }

    fn take(&mut self, wanted: &Wanted) -> Result<()> {
        let file = self.files.get(&wanted.file);
        let mut held = file.and_then(|file| file.get(&wanted.by)).cloned().unwrap_or_default();
        let had = held.count();
        let of_file = file.map_or(0, |file| file.values().map(HeldLocks::count).sum()) - had;
        let of_session = self.counts.get(&wanted.by.session).map_or(0, |count| *count) - had;
        held.take(wanted.scope, wanted.kind);
        if of_file + held.count() > limits::LOCKS_PER_FILE_MAX {
            return Err(Error::new(ErrorKind::Busy, "the file carries as many locks as it may"));
        }
        if of_session + held.count() > limits::LOCKS_PER_SESSION_MAX {
            return Err(Error::new(ErrorKind::Busy, "the session has as many locks as it may"));
        }
        self.count(wanted.by.session, had, held.count());
        self.files.entry(wanted.file).or_default().insert(wanted.by.clone(), held);
        Ok(())
    }

    /// Notes that of the locks of a session some that were `had` are `now` so many.
    fn count(&mut self, session: SessionId, had: usize, now: usize) {
        let count = self.counts.entry(session).or_default();
        *count = *count + now - had;
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    /// Returns whether one of `from`, or someone it waits for, waits for `to`.
    fn leads_to(&self, from: Vec<Holder>, to: &Holder) -> bool {
        let mut seen = HashSet::new();
        let mut todo = from;
        while let Some(here) = todo.pop() {
            if here == *to {
                return true;
            }
            if !seen.insert(here.clone()) {
                continue;
            }
            for wanted in self.waiting.values().filter(|wanted| wanted.by == here) {
                todo.extend(self.in_the_way(wanted).map(|(holder, _)| holder.clone()));
            }
        }
        false
    }
}

impl Locks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a wait, or several tries for one lock.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        let mut state = self.lock();
        state.last_waiter += 1;
        Waiter { locks: self, number: state.last_waiter }
    }

    /// Takes a lock if nothing is in the way, and returns whether it did. With a waiter
    /// the caller is going to wait: `Deadlock` if that could never end.
    pub(crate) fn take(
        &self,
        file: FileId,
        session: SessionId,
        lock: &Lock,
        waiter: Option<&Waiter<'_>>,
    ) -> Result<bool> {
        let wanted = Wanted { file, by: Holder::of(session, lock)?, scope: lock.scope, kind: lock.kind };
        let mut state = self.lock();
        let blockers: Vec<Holder> = state.in_the_way(&wanted).map(|(holder, _)| holder.clone()).collect();
        if blockers.is_empty() {
            state.take(&wanted)?;
            drop(state);
            // What the holder had of another kind may have made room for others.
            self.given_up.notify_waiters();
            return Ok(true);
        }
        if let Some(waiter) = waiter {
            if state.leads_to(blockers, &wanted.by) {
                return Err(Error::new(ErrorKind::Deadlock, "the holder waits for a lock of yours"));
            }
            state.waiting.insert(waiter.number, wanted);
        }
        Ok(false)
    }

    /// Returns the first lock that stands in the way.
    pub(crate) fn test(&self, file: FileId, session: SessionId, lock: &Lock) -> Result<Option<Lock>> {
        let wanted = Wanted { file, by: Holder::of(session, lock)?, scope: lock.scope, kind: lock.kind };
        let state = self.lock();
        let first = state.in_the_way(&wanted).min_by_key(|(_, (scope, _))| match scope {
            LockScope::Range(range) => range.at,
            LockScope::Whole => 0,
        });
        Ok(first.map(|(holder, (scope, kind))| Lock { scope, kind, owner: holder.owner.clone() }))
    }

    /// Gives up what the owner has of the lock's scope.
    pub(crate) fn give_up(&self, file: FileId, session: SessionId, lock: &Lock) -> Result<()> {
        let by = Holder::of(session, lock)?;
        let mut state = self.lock();
        let (mut had, mut now) = (0, 0);
        if let Some(holders) = state.files.get_mut(&file) {
            if let Some(held) = holders.get_mut(&by) {
                had = held.count();
                held.give_up(lock.scope);
                now = held.count();
                if now == 0 {
                    holders.remove(&by);
                }
            }
            if holders.is_empty() {
                state.files.remove(&file);
            }
        }
        state.count(session, had, now);
        drop(state);
        self.given_up.notify_waiters();
        Ok(())
    }

    /// Drops everything a session holds.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.lock();
        for holders in state.files.values_mut() {
            holders.retain(|holder, _| holder.session != session);
        }
        state.files.retain(|_, holders| !holders.is_empty());
        state.counts.remove(&session);
        drop(state);
        self.given_up.notify_waiters();
    }

    /// Drops everything about a file that is gone, and lets those who wait find that out.
    pub(crate) fn forget(&self, file: FileId) {
        let mut state = self.lock();
        for (holder, held) in state.files.remove(&file).into_iter().flatten() {
            state.count(holder.session, held.count(), 0);
        }
        drop(state);
        self.given_up.notify_waiters();
    }

    /// Returns how many files carry locks.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().files.len()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.locks.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
#[path = "locks/tests.rs"]
mod tests;
