//! The locks a session holds, so that they can be taken again, and those that could not be.

use std::collections::{HashMap, HashSet};

use weft_core::FileId;
use weft_core::form::{At, HeldLocks, Lock, LockOwner, LockRange, LockScope};

/// Locks by file and owner, as the node has them.
#[derive(Default)]
pub(super) struct Locks {
    held: HashMap<FileId, Vec<Held>>,
    /// Who had a lock that is somebody else's now, until they have given up all of that file.
    lost: HashSet<(FileId, LockOwner)>,
}

/// What one owner has of one file.
struct Held {
    at: At,
    owner: LockOwner,
    locks: HeldLocks,
}

impl Locks {
    /// Notes that a lock was taken.
    pub(super) fn took(&mut self, at: &At, lock: &Lock) {
        let here = self.held.entry(at.base).or_default();
        if let Some(held) = here.iter_mut().find(|held| held.is_of(at, lock)) {
            return held.locks.take(lock.scope, lock.kind);
        }
        let mut locks = HeldLocks::default();
        locks.take(lock.scope, lock.kind);
        here.push(Held { at: at.clone(), owner: lock.owner.clone(), locks });
    }

    /// Notes that what the owner held of a lock's scope was given up.
    pub(super) fn gave_up(&mut self, at: &At, lock: &Lock) {
        if is_all(lock.scope) {
            self.lost.remove(&(at.base, lock.owner.clone()));
        }
        self.drop(at, lock);
    }

    /// Notes that a lock was held and cannot be had again.
    pub(super) fn lose(&mut self, at: &At, lock: &Lock) {
        self.lost.insert((at.base, lock.owner.clone()));
        self.drop(at, lock);
    }

    /// Returns whether somebody here goes by a lock of a file that is not theirs any more.
    pub(super) fn were_lost(&self, file: FileId) -> bool {
        !self.lost.is_empty() && self.lost.iter().any(|(there, _)| *there == file)
    }

    /// Returns every lock that is held.
    pub(super) fn list(&self) -> Vec<(At, Lock)> {
        let of_one = |held: &Held| -> Vec<(At, Lock)> {
            let lock = |(scope, kind)| Lock { scope, kind, owner: held.owner.clone() };
            held.locks.each().map(|each| (held.at.clone(), lock(each))).collect()
        };
        self.held.values().flatten().flat_map(of_one).collect()
    }

    fn drop(&mut self, at: &At, lock: &Lock) {
        let Some(here) = self.held.get_mut(&at.base) else { return };
        if let Some(held) = here.iter_mut().find(|held| held.is_of(at, lock)) {
            held.locks.give_up(lock.scope);
        }
        here.retain(|held| held.locks.count() > 0);
        if here.is_empty() {
            self.held.remove(&at.base);
        }
    }
}

impl Held {
    fn is_of(&self, at: &At, lock: &Lock) -> bool {
        self.at == *at && self.owner == lock.owner
    }
}

fn is_all(scope: LockScope) -> bool {
    matches!(scope, LockScope::Whole | LockScope::Range(LockRange { at: 0, length: 0 }))
}

#[cfg(test)]
mod tests {
    use weft_core::form::LockKind;

    use super::*;

    fn lock(kind: LockKind, at: u64, length: u64) -> Lock {
        let scope = LockScope::Range(LockRange { at, length });
        Lock { scope, kind, owner: LockOwner(bytes::Bytes::from_static(b"me")) }
    }

    fn root() -> At {
        At::id(FileId::ROOT)
    }

    const ALONE: LockKind = LockKind::Exclusive;

    #[test]
    fn a_partial_unlock_is_remembered() {
        let (mut locks, at) = (Locks::default(), root());
        locks.took(&at, &lock(ALONE, 0, 100));
        locks.gave_up(&at, &lock(ALONE, 10, 10));
        assert_eq!(locks.list(), [(at.clone(), lock(ALONE, 0, 10)), (at.clone(), lock(ALONE, 20, 80))]);
    }

    #[test]
    fn what_is_given_up_bit_by_bit_is_not_taken_again() {
        let (mut locks, at) = (Locks::default(), root());
        locks.took(&at, &lock(ALONE, 0, 2));
        locks.gave_up(&at, &lock(ALONE, 0, 1));
        locks.gave_up(&at, &lock(ALONE, 1, 1));
        assert!(locks.list().is_empty() && locks.held.is_empty());
    }

    #[test]
    fn a_part_that_became_shared_is_taken_again_as_shared() {
        let (mut locks, at) = (Locks::default(), root());
        locks.took(&at, &lock(ALONE, 0, 100));
        locks.took(&at, &lock(LockKind::Shared, 0, 50));
        let left = [(at.clone(), lock(LockKind::Shared, 0, 50)), (at.clone(), lock(ALONE, 50, 50))];
        assert_eq!(locks.list(), left);
    }

    #[test]
    fn a_whole_lock_and_ranges_do_not_see_each_other_nor_do_owners() {
        let (mut locks, at) = (Locks::default(), root());
        let whole = Lock { scope: LockScope::Whole, ..lock(ALONE, 0, 0) };
        locks.took(&at, &whole);
        locks.gave_up(&at, &lock(ALONE, 0, 0));
        let other = LockOwner(bytes::Bytes::from_static(b"you"));
        locks.gave_up(&at, &Lock { owner: other, ..whole.clone() });
        assert_eq!(locks.list(), [(at, whole)]);
    }

    #[test]
    fn a_lost_lock_is_known_until_its_owner_has_given_up_all_of_the_file() {
        let (mut locks, at) = (Locks::default(), root());
        locks.took(&at, &lock(ALONE, 0, 10));
        locks.lose(&at, &lock(ALONE, 0, 10));
        assert!(locks.list().is_empty(), "it is not asked for again behind the other's back");
        locks.gave_up(&at, &lock(ALONE, 0, 10));
        assert!(locks.were_lost(FileId::ROOT));
        locks.gave_up(&at, &lock(ALONE, 0, 0));
        assert!(!locks.were_lost(FileId::ROOT));
    }
}
