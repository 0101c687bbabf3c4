//! Locks: ranges that split and merge, whole files beside them, and who waits for whom.

use std::collections::BTreeMap;

use super::act::Act;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{At, Lock, LockKind, LockLease, LockOwner, LockRange, LockScope};
use crate::id::{FileId, SessionId};
use crate::limits;
use crate::rights::Rights;

/// Who holds or waits: an owner of a session.
#[derive(Clone, PartialEq, Eq)]
struct Holder {
    session: SessionId,
    owner: LockOwner,
}

/// A lock that stands. `Whole` locks are kept apart from ranges by their scope.
#[derive(Clone)]
struct Held {
    by: Holder,
    scope: LockScope,
    kind: LockKind,
}

/// Every lock, and everyone who waits for one.
#[derive(Default)]
pub(super) struct Locks {
    held: BTreeMap<FileId, Vec<Held>>,
    waiting: BTreeMap<u64, (FileId, Held)>,
}

impl Held {
    fn stands_in_the_way_of(&self, wanted: &Self) -> bool {
        self.by != wanted.by
            && overlap(self.scope, wanted.scope)
            && (self.kind == LockKind::Exclusive || wanted.kind == LockKind::Exclusive)
    }
}

fn overlap(a: LockScope, b: LockScope) -> bool {
    match (a, b) {
        (LockScope::Whole, LockScope::Whole) => true,
        (LockScope::Range(a), LockScope::Range(b)) => a.overlaps(b),
        _ => false,
    }
}

impl Locks {
    /// Drops everything about a file.
    pub(super) fn forget(&mut self, id: FileId) {
        self.held.remove(&id);
    }

    /// Drops everything a session holds.
    pub(super) fn end(&mut self, session: SessionId) {
        for held in self.held.values_mut() {
            held.retain(|lock| lock.by.session != session);
        }
        self.held.retain(|_, held| !held.is_empty());
    }

    fn in_the_way<'a>(&'a self, id: FileId, wanted: &'a Held) -> impl Iterator<Item = &'a Held> {
        self.held.get(&id).into_iter().flatten().filter(|held| held.stands_in_the_way_of(wanted))
    }

    /// Takes what is free: the holder's own locks give way to the new one.
    fn take(&mut self, id: FileId, wanted: &Held) -> Result<()> {
        let mut held = self.held.get(&id).cloned().unwrap_or_default();
        give_up(&mut held, &wanted.by, wanted.scope);
        held.push(wanted.clone());
        merge(&mut held, &wanted.by);
        if held.len() > limits::LOCKS_PER_FILE_MAX {
            return Err(Error::new(ErrorKind::Busy, "the file carries as many locks as it may"));
        }
        self.held.insert(id, held);
        Ok(())
    }

    /// Returns whether `from`, or someone it waits for, waits for `to`.
    fn leads_to(&self, from: &Holder, to: &Holder) -> bool {
        let mut seen: Vec<&Holder> = Vec::new();
        let mut todo = vec![from];
        while let Some(here) = todo.pop() {
            if here == to {
                return true;
            }
            if seen.contains(&here) {
                continue;
            }
            seen.push(here);
            for (id, wanted) in self.waiting.values().filter(|(_, wanted)| wanted.by == *here) {
                todo.extend(self.in_the_way(*id, wanted).map(|held| &held.by));
            }
        }
        false
    }
}

/// Takes a scope away from what a holder has, cutting ranges where needed.
fn give_up(held: &mut Vec<Held>, by: &Holder, scope: LockScope) {
    let mut kept = Vec::new();
    for lock in held.drain(..) {
        match (lock.scope, scope) {
            _ if lock.by != *by || !overlap(lock.scope, scope) => kept.push(lock),
            (LockScope::Range(has), LockScope::Range(gone)) => {
                for (at, end) in [(has.at, gone.at.min(has.end())), (gone.end().max(has.at), has.end())] {
                    if at < end {
                        kept.push(Held { scope: LockScope::Range(range(at, end)), ..lock.clone() });
                    }
                }
            }
            _ => {}
        }
    }
    *held = kept;
}

/// Joins ranges of one holder and kind that touch.
fn merge(held: &mut Vec<Held>, by: &Holder) {
    let own = |lock: &Held| lock.by == *by && matches!(lock.scope, LockScope::Range(_));
    let mut mine: Vec<Held> = held.iter().filter(|lock| own(lock)).cloned().collect();
    held.retain(|lock| !own(lock));
    mine.sort_by_key(|lock| start(lock.scope));
    for lock in mine {
        let joined = held.last_mut().filter(|last| own(last) && last.kind == lock.kind).and_then(|last| {
            let (LockScope::Range(a), LockScope::Range(b)) = (last.scope, lock.scope) else { return None };
            (a.end() >= b.at).then(|| last.scope = LockScope::Range(range(a.at, a.end().max(b.end()))))
        });
        if joined.is_none() {
            held.push(lock);
        }
    }
}

fn range(at: u64, end: u64) -> LockRange {
    LockRange { at, length: if end == u64::MAX { 0 } else { end - at } }
}

fn start(scope: LockScope) -> u64 {
    match scope {
        LockScope::Range(range) => range.at,
        LockScope::Whole => 0,
    }
}

impl Act<'_> {
    fn wanted(&self, lock: &Lock) -> Result<Held> {
        if lock.owner.0.len() > limits::LOCK_OWNER_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "a lock's owner has at most 1024 bytes"));
        }
        let by = Holder { session: self.call.session, owner: lock.owner.clone() };
        Ok(Held { by, scope: lock.scope, kind: lock.kind })
    }

    /// Takes a lock if nothing is in the way; `None` if something is. With `waiter`,
    /// the caller is going to wait, known by that number: `Deadlock` if that could
    /// never end.
    pub(super) fn try_lock(
        &mut self,
        at: &At,
        lock: &Lock,
        waiter: Option<u64>,
    ) -> Result<Option<LockLease>> {
        let id = self.existing(at)?;
        self.need(id, Rights::LOCK)?;
        self.session_lives()?;
        let wanted = self.wanted(lock)?;
        let locks = &mut self.state.locks;
        let blockers: Vec<Holder> = locks.in_the_way(id, &wanted).map(|held| held.by.clone()).collect();
        if blockers.is_empty() {
            locks.take(id, &wanted)?;
            return Ok(Some(LockLease { until: self.now.tick.plus(limits::SESSION_IDLE) }));
        }
        if let Some(waiter) = waiter {
            if blockers.iter().any(|blocker| locks.leads_to(blocker, &wanted.by)) {
                return Err(Error::new(ErrorKind::Deadlock, "the holder waits for a lock of yours"));
            }
            locks.waiting.insert(waiter, (id, wanted));
        }
        Ok(None)
    }

    pub(super) fn test_lock(&self, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        let id = self.existing(at)?;
        self.need(id, Rights::LOCK)?;
        let wanted = self.wanted(lock)?;
        let first = self.state.locks.in_the_way(id, &wanted).min_by_key(|held| start(held.scope));
        Ok(first.map(|held| Lock { scope: held.scope, kind: held.kind, owner: held.by.owner.clone() }))
    }

    pub(super) fn unlock(&mut self, at: &At, lock: &Lock) -> Result<()> {
        let id = self.existing(at)?;
        let wanted = self.wanted(lock)?;
        if let Some(held) = self.state.locks.held.get_mut(&id) {
            give_up(held, &wanted.by, wanted.scope);
            if held.is_empty() {
                self.state.locks.held.remove(&id);
            }
        }
        self.model.changed.notify(usize::MAX);
        Ok(())
    }
}

/// Takes a waiter off the list however its wait ends.
pub(super) struct Waiting<'a> {
    pub(super) model: &'a super::Model,
    pub(super) number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.model.state().locks.waiting.remove(&self.number);
    }
}
