//! The locks a session holds, so that they can be taken again.

use weft_core::form::{At, Lock, LockScope};

/// Locks by file, in the order they were taken; what an unlock or a later lock of the
/// same owner covers whole is forgotten. Taking the list again in order gives what was
/// held, since the node splits and merges the same way again.
#[derive(Default)]
pub(super) struct Held(Vec<(At, Lock)>);

impl Held {
    pub(super) fn took(&mut self, at: &At, lock: &Lock) {
        self.gave_up(at, lock);
        self.0.push((at.clone(), lock.clone()));
    }

    pub(super) fn gave_up(&mut self, at: &At, lock: &Lock) {
        self.0.retain(|(where_, held)| {
            where_ != at || held.owner != lock.owner || !covers(lock.scope, held.scope)
        });
    }

    pub(super) fn list(&self) -> Vec<(At, Lock)> {
        self.0.clone()
    }
}

fn covers(over: LockScope, under: LockScope) -> bool {
    match (over, under) {
        (LockScope::Whole, LockScope::Whole) => true,
        (LockScope::Range(over), LockScope::Range(under)) => over.at <= under.at && over.end() >= under.end(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use weft_core::FileId;
    use weft_core::form::{LockKind, LockOwner, LockRange};

    use super::*;

    fn lock(at: u64, length: u64) -> Lock {
        let scope = LockScope::Range(LockRange { at, length });
        Lock { scope, kind: LockKind::Exclusive, owner: LockOwner(bytes::Bytes::from_static(b"me")) }
    }

    #[test]
    fn what_a_later_lock_or_unlock_covers_is_forgotten() {
        let (mut held, at) = (Held::default(), At::id(FileId::ROOT));
        held.took(&at, &lock(10, 10));
        held.took(&at, &lock(30, 10));
        held.took(&at, &lock(0, 25));
        assert_eq!(held.list(), [(at.clone(), lock(30, 10)), (at.clone(), lock(0, 25))]);
        held.gave_up(&at, &lock(0, 0));
        assert!(held.list().is_empty());
    }

    #[test]
    fn a_whole_lock_and_ranges_do_not_see_each_other() {
        let (mut held, at) = (Held::default(), At::id(FileId::ROOT));
        held.took(&at, &Lock { scope: LockScope::Whole, ..lock(0, 0) });
        held.gave_up(&at, &lock(0, 0));
        assert_eq!(held.list().len(), 1);
    }
}
