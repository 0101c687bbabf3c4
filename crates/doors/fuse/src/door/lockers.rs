//! Who has locked what, or asked to, through this mount: so that all of it is given up.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::FileId;
use weft_core::form::{HeldLocks, LockKind, LockRange, LockScope};

use crate::remembered::{Fields, Noted, Part, Remembered, file_of, numbers_of};

/// Who locks: an owner as the kernel numbers it, of one file, in one of the two ways
/// that do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Locker {
    pub file: FileId,
    pub owner: u64,
    /// `flock`'s way, by open file; otherwise `fcntl`'s, by range.
    pub whole: bool,
}

/// When a locker asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked(u64);

/// Everyone who may hold a lock.
pub(crate) struct Lockers {
    table: Mutex<Table>,
    remembered: Arc<Remembered>,
}

#[derive(Default)]
struct Table {
    lockers: HashMap<Locker, Through>,
    /// By open file, those who asked through it last.
    by_handle: HashMap<u64, HashSet<Locker>>,
    asked: u64,
}

/// The process that asked last, and the open file it asked through.
struct Through {
    pid: u32,
    handle: u64,
    asked: Asked,
    /// Where these are remembered.
    noted: Noted,
    /// Held while it gives up.
    turn: Arc<tokio::sync::Mutex<()>>,
    held: HeldLocks,
    /// Where each lock is that it holds.
    noted_held: HashMap<(LockScope, LockKind), Noted>,
}

/// What a place of a locker holds beside the file's two numbers: the key's sort, the owner, and two numbers more.
const PID: usize = 4;
const HANDLE: usize = 5;

/// No open file has this number.
const NO_HANDLE: u64 = 0;

/// Sorts of places: who asked in either way, what they hold.
const ASKED: u64 = 1;
const ASKED_WHOLE: u64 = 2;
const SHARED: u64 = 3;
const EXCLUSIVE: u64 = 4;
const WHOLE_SHARED: u64 = 5;
const WHOLE_EXCLUSIVE: u64 = 6;

/// Returns the locks that are held, as they are remembered.
pub(super) fn remembered(remembered: &Remembered) -> Vec<(Locker, LockScope, LockKind)> {
    remembered.each(Part::Locks).filter_map(|(_, fields)| held_of(&fields)).collect()
}

fn held_of(fields: &Fields) -> Option<(Locker, LockScope, LockKind)> {
    let [sort, inode, generation, owner, at, length, ..] = *fields;
    let range = LockScope::Range(LockRange { at, length });
    let (scope, kind) = match sort {
        SHARED => (range, LockKind::Shared),
        EXCLUSIVE => (range, LockKind::Exclusive),
        WHOLE_SHARED => (LockScope::Whole, LockKind::Shared),
        WHOLE_EXCLUSIVE => (LockScope::Whole, LockKind::Exclusive),
        _ => return None,
    };
    Some((Locker { file: file_of(inode, generation), owner, whole: scope == LockScope::Whole }, scope, kind))
}

fn fields_of(locker: Locker, scope: LockScope, kind: LockKind) -> Fields {
    let [inode, generation] = numbers_of(locker.file);
    let (sort, range) = match (scope, kind) {
        (LockScope::Range(range), LockKind::Shared) => (SHARED, range),
        (LockScope::Range(range), LockKind::Exclusive) => (EXCLUSIVE, range),
        (LockScope::Whole, LockKind::Shared) => (WHOLE_SHARED, LockRange { at: 0, length: 0 }),
        (LockScope::Whole, LockKind::Exclusive) => (WHOLE_EXCLUSIVE, LockRange { at: 0, length: 0 }),
    };
    [sort, inode, generation, locker.owner, range.at, range.length, 0, 0]
}

impl Lockers {
    /// Makes the table, with what is remembered of it.
    pub(crate) fn new(remembered: &Arc<Remembered>) -> Self {
        let lockers = Self { table: Mutex::default(), remembered: remembered.clone() };
        let mut table = lockers.table();
        for (place, fields) in remembered.each(Part::Locks) {
            let [sort, inode, generation, owner, pid, handle, ..] = fields;
            if matches!(sort, ASKED | ASKED_WHOLE) {
                let locker = Locker { file: file_of(inode, generation), owner, whole: sort == ASKED_WHOLE };
                table.ask(locker, pid as u32, handle, |_| Noted::at(remembered, Some(place)));
            }
        }
        for (place, fields) in remembered.each(Part::Locks) {
            let Some((locker, scope, kind)) = held_of(&fields) else { continue };
            // Who asked is noted before, and forgotten after.
            let Some(through) = table.lockers.get_mut(&locker) else {
                remembered.give_up(place);
                continue;
            };
            through.held.take(scope, kind);
            through.noted_held.insert((scope, kind), Noted::at(remembered, Some(place)));
        }
        drop(table);
        lockers
    }

    /// Notes that a locker was given a lock.
    pub(crate) fn took(&self, locker: Locker, scope: LockScope, kind: LockKind) {
        self.holds(locker, |held| held.take(scope, kind));
    }

    /// Notes that a locker is about to give up what it holds of a scope. That it may hold something stays known.
    pub(crate) fn released(&self, locker: Locker, scope: LockScope) {
        self.holds(locker, |held| held.give_up(scope));
    }

    /// Notes what a locker holds: all of it, before what it holds no more is forgotten. A request that was half noted is
    /// answered once more.
    fn holds(&self, locker: Locker, change: impl FnOnce(&mut HeldLocks)) {
        let mut table = self.table();
        let Some(through) = table.lockers.get_mut(&locker) else { return };
        change(&mut through.held);
        let held: HashSet<_> = through.held.each().collect();
        for (scope, kind) in &held {
            through.noted_held.entry((*scope, *kind)).or_insert_with(|| {
                let place = self.remembered.keep(Part::Locks, fields_of(locker, *scope, *kind));
                Noted::at(&self.remembered, place)
            });
        }
        through.noted_held.retain(|lock, noted| {
            let stays = held.contains(lock);
            if !stays {
                noted.end();
            }
            stays
        });
    }

    /// Notes who is about to ask for a lock. Before it is asked for: a wait that was given up may
    /// have been granted all the same.
    pub(crate) fn ask(&self, locker: Locker, pid: u32, handle: u64) {
        self.table().ask(locker, pid, handle, |locker| {
            let [inode, generation] = numbers_of(locker.file);
            let sort = if locker.whole { ASKED_WHOLE } else { ASKED };
            let fields = [sort, inode, generation, locker.owner, pid.into(), handle, 0, 0];
            Noted::at(&self.remembered, self.remembered.keep(Part::Locks, fields))
        });
    }

    /// Returns when a locker asked last, if it may hold anything.
    pub(crate) fn asked(&self, locker: Locker) -> Option<Asked> {
        self.table().lockers.get(&locker).map(|through| through.asked)
    }

    /// Returns the process of a locker; 0 if it is none of this mount's.
    pub(crate) fn pid(&self, locker: Locker) -> u32 {
        self.table().lockers.get(&locker).map_or(0, |through| through.pid)
    }

    /// Forgets a locker that has given up everything, unless it asked again meanwhile.
    pub(crate) fn gave_up(&self, locker: Locker, asked: Asked) {
        let mut table = self.table();
        if let Some(through) = table.lockers.get(&locker).filter(|through| through.asked == asked) {
            let handle = through.handle;
            if let Some(mut through) = table.lockers.remove(&locker) {
                through.noted_held.values_mut().for_each(Noted::end);
                through.noted.end();
            }
            table.leave(handle, locker);
        }
    }

    /// Returns those who asked through an open file last: it is closed, and whoever owns a
    /// lock by it can use it no more.
    pub(crate) fn through(&self, handle: u64) -> Vec<(Locker, Asked)> {
        let mut table = self.table();
        let lockers = table.by_handle.remove(&handle).unwrap_or_default();
        lockers.into_iter().filter_map(|locker| Some((locker, table.lockers.get(&locker)?.asked))).collect()
    }

    /// Returns those who asked last through an open file that is not open, as `is_open` says.
    pub(crate) fn forgotten(&self, is_open: impl Fn(u64) -> bool) -> Vec<(Locker, Asked)> {
        let table = self.table();
        let closed = table.lockers.iter().filter(|(_, through)| !is_open(through.handle));
        closed.map(|(locker, through)| (*locker, through.asked)).collect()
    }

    /// Notes that what a locker may hold is to be given up, whether or not the file is open still that it asked through last,
    /// unless it asked again meanwhile. Returns whether that was not noted before.
    pub(crate) fn forget_handle(&self, locker: Locker, asked: Asked) -> bool {
        let mut table = self.table();
        let through = table.lockers.get_mut(&locker).filter(|through| through.asked == asked);
        let Some(through) = through.filter(|through| through.handle != NO_HANDLE) else { return false };
        let handle = std::mem::replace(&mut through.handle, NO_HANDLE);
        through.noted.set(HANDLE, NO_HANDLE);
        table.leave(handle, locker);
        true
    }

    /// Returns when a locker asked last, if what it may hold is to be given up.
    pub(crate) fn is_to_give_up(&self, locker: Locker) -> Option<Asked> {
        let table = self.table();
        let through = table.lockers.get(&locker).filter(|through| through.handle == NO_HANDLE)?;
        Some(through.asked)
    }

    /// Returns what is held by whoever gives up what a locker may hold; `None` if it may hold nothing.
    pub(crate) fn turn(&self, locker: Locker) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.table().lockers.get(&locker).map(|through| through.turn.clone())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn ask(&mut self, locker: Locker, pid: u32, handle: u64, note: impl FnOnce(Locker) -> Noted) {
        self.asked += 1;
        let asked = Asked(self.asked);
        match self.lockers.get_mut(&locker) {
            Some(through) => {
                let before = through.handle;
                (through.pid, through.handle, through.asked) = (pid, handle, asked);
                through.noted.set(PID, pid.into());
                through.noted.set(HANDLE, handle);
                self.leave(before, locker);
            }
            None => {
                let (held, noted_held) = (HeldLocks::default(), HashMap::new());
                let (noted, turn) = (note(locker), Arc::default());
                let through = Through { pid, handle, asked, noted, turn, held, noted_held };
                self.lockers.insert(locker, through);
            }
        }
        self.by_handle.entry(handle).or_default().insert(locker);
    }

    fn leave(&mut self, handle: u64, locker: Locker) {
        if let Some(lockers) = self.by_handle.get_mut(&handle) {
            lockers.remove(&locker);
            if lockers.is_empty() {
                self.by_handle.remove(&handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::tests::{killed_at_every_store, next};

    fn locker(owner: u64, whole: bool) -> Locker {
        Locker { file: FileId::ROOT, owner, whole }
    }

    #[test]
    fn whoever_asked_through_an_open_file_last_is_found_when_it_is_closed() {
        let lockers = Lockers::new(&Arc::new(Remembered::new().expect("memory")));
        let (process, open_file) = (locker(1, false), locker(2, true));
        lockers.ask(process, 10, 100);
        lockers.ask(open_file, 10, 100);
        lockers.ask(open_file, 11, 100);
        // The process asked through another descriptor since, which may stay open.
        lockers.ask(process, 10, 200);
        let through = lockers.through(100);
        assert_eq!(through.iter().map(|(locker, _)| *locker).collect::<Vec<_>>(), [open_file]);
        assert!(lockers.through(100).is_empty());
        assert_eq!((lockers.pid(process), lockers.pid(open_file)), (10, 11));
        through.into_iter().for_each(|(locker, asked)| lockers.gave_up(locker, asked));
        assert_eq!((lockers.asked(open_file), lockers.pid(open_file)), (None, 0));
    }

    #[test]
    fn of_a_process_killed_at_any_store_it_is_known_who_may_hold_a_lock_and_what_they_were_given() {
        let range = |at, length| LockScope::Range(LockRange { at, length });
        let one = locker(1, false);
        killed_at_every_store(|remembered, is_dead| {
            let lockers = Lockers::new(remembered);
            let (mut given, mut may_hold) = (HeldLocks::default(), false);
            for (scope, kind) in [
                (range(0, 100), Some(LockKind::Exclusive)),
                (range(10, 10), None),
                (range(0, 50), Some(LockKind::Shared)),
                (range(200, 0), Some(LockKind::Exclusive)),
                (range(0, 0), None),
                (range(5, 5), Some(LockKind::Shared)),
            ] {
                lockers.ask(one, 10, 100);
                may_hold |= !is_dead();
                match kind {
                    Some(kind) => lockers.took(one, scope, kind),
                    None => lockers.released(one, scope),
                }
                if is_dead() {
                    // The kernel sends it again.
                    let next = Lockers::new(&next(remembered));
                    assert!(!may_hold || next.asked(one).is_some(), "somebody has to give it up");
                    next.ask(one, 10, 100);
                    match kind {
                        Some(kind) => next.took(one, scope, kind),
                        None => next.released(one, scope),
                    }
                }
                match kind {
                    Some(kind) => given.take(scope, kind),
                    None => given.give_up(scope),
                }
                if is_dead() {
                    break;
                }
            }
            let mut held = HeldLocks::default();
            for (locker, scope, kind) in super::remembered(&next(remembered)) {
                assert_eq!(locker, one);
                held.take(scope, kind);
            }
            assert_eq!(held, given);
        });
    }

    #[test]
    fn a_locker_that_gave_up_all_is_found_by_nobody() {
        let remembered = Arc::new(Remembered::new().expect("memory"));
        remembered.set(crate::remembered::Head::Stands, 1);
        let lockers = Lockers::new(&remembered);
        for (locker, scope) in [
            (locker(1, false), LockScope::Range(LockRange { at: 0, length: 5 })),
            (locker(1, true), LockScope::Whole),
        ] {
            lockers.ask(locker, 10, 100);
            lockers.took(locker, scope, LockKind::Exclusive);
            let found = Lockers::new(&next(&remembered));
            assert_eq!(found.through(100).len(), 1);
            assert_eq!(super::remembered(&next(&remembered)), [(locker, scope, LockKind::Exclusive)]);
            lockers.gave_up(locker, lockers.asked(locker).expect("it asked"));
        }
        assert_eq!(next(&remembered).each(Part::Locks).count(), 0);
    }

    /// Whichever process comes to it gives up what was locked through a file that is closed, or is being given up.
    #[test]
    fn what_is_to_be_given_up_is_found_by_the_next_process_unless_it_was_asked_for_again() {
        let remembered = Arc::new(Remembered::new().expect("memory"));
        remembered.set(crate::remembered::Head::Stands, 1);
        let lockers = Lockers::new(&remembered);
        for owner in [1, 2, 3] {
            lockers.ask(locker(owner, false), 10, 100);
        }
        lockers.ask(locker(4, true), 10, 200);
        for owner in [1, 2] {
            let asked = lockers.asked(locker(owner, false)).expect("it asked");
            lockers.ask(locker(2, false), 10, 100);
            lockers.forget_handle(locker(owner, false), asked);
        }
        let found = Lockers::new(&next(&remembered));
        let mut owners: Vec<u64> =
            found.forgotten(|handle| handle == 100).iter().map(|(locker, _)| locker.owner).collect();
        owners.sort_unstable();
        assert_eq!(owners, [1, 4]);
        assert_eq!(found.through(100).len(), 2, "the others are held still");
    }

    #[test]
    fn who_asks_again_while_giving_up_is_not_forgotten() {
        let lockers = Lockers::new(&Arc::new(Remembered::new().expect("memory")));
        lockers.ask(locker(1, false), 10, 100);
        let before = lockers.asked(locker(1, false)).expect("it asked");
        lockers.ask(locker(1, false), 10, 100);
        lockers.gave_up(locker(1, false), before);
        assert!(lockers.asked(locker(1, false)).is_some());
    }
}
