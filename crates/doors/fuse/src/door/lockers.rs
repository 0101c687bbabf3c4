//! Who has locked what, or asked to, through this mount: so that all of it is given up.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_core::FileId;

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
#[derive(Default)]
pub(crate) struct Lockers(Mutex<Table>);

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
}

impl Lockers {
    /// Notes who is about to ask for a lock. Before it is asked for: a wait that was given up may
    /// have been granted all the same.
    pub(crate) fn ask(&self, locker: Locker, pid: u32, handle: u64) {
        let mut table = self.table();
        table.asked += 1;
        let asked = Asked(table.asked);
        if let Some(before) = table.lockers.insert(locker, Through { pid, handle, asked }) {
            table.leave(before.handle, locker);
        }
        table.by_handle.entry(handle).or_default().insert(locker);
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
            table.lockers.remove(&locker);
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

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
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

    fn locker(owner: u64, whole: bool) -> Locker {
        Locker { file: FileId::ROOT, owner, whole }
    }

    #[test]
    fn whoever_asked_through_an_open_file_last_is_found_when_it_is_closed() {
        let lockers = Lockers::default();
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
    fn who_asks_again_while_giving_up_is_not_forgotten() {
        let lockers = Lockers::default();
        lockers.ask(locker(1, false), 10, 100);
        let before = lockers.asked(locker(1, false)).expect("it asked");
        lockers.ask(locker(1, false), 10, 100);
        lockers.gave_up(locker(1, false), before);
        assert!(lockers.asked(locker(1, false)).is_some());
    }
}
