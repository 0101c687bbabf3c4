//! Open files, by the number the kernel names them with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::io::Errno;
use weft_core::form::{OpenFile, Verifier};
use weft_core::{Error, ErrorKind, FileId, Rights, limits};

use crate::ahead::{Ahead, Moves};
use crate::errno::Failure;
use crate::nodes::Nodes;
use crate::remembered::{Fields, Head, Noted as Kept, Part, Remembered};

/// One open file.
pub(crate) struct Handle {
    /// The node it was opened at.
    pub node: u64,
    /// What the file system opened.
    pub file: Arc<dyn OpenFile>,
    /// The rights it was opened with.
    pub rights: Rights,
    /// What was written to the file through this mount, by whichever open file.
    pub written: Arc<Written>,
    /// How often the file's bytes may have changed.
    pub moves: Arc<Moves>,
    /// What was read of it beyond what was asked.
    pub ahead: Arc<Ahead>,
    /// Whether what is written to it passes the kernel's cache by.
    pub past_cache: bool,
    /// How many losses of it this one was told of, or found when it was opened.
    told: AtomicU64,
    /// The number of the request that opened it: answered again, it gives the kernel another.
    request: u64,
}

/// Set beside an open file's rights if it passes the kernel's cache by.
const PAST_CACHE: u64 = 1 << 32;

impl Handle {
    pub(crate) fn new(
        nodes: &Nodes,
        node: u64,
        file: Arc<dyn OpenFile>,
        rights: Rights,
        past_cache: bool,
        request: u64,
    ) -> Self {
        let (written, moves) = (nodes.written(node), nodes.moves(node));
        let told = AtomicU64::new(written.losses());
        Self { node, file, rights, written, moves, ahead: Arc::default(), past_cache, told, request }
    }

    /// Takes up an open file that is remembered, as which the file system has found `file`.
    fn remembered(nodes: &Nodes, fields: &Fields, file: Arc<dyn OpenFile>) -> Self {
        let [_, node, rights, _, request, _, told, _] = *fields;
        let of = Rights::from_bits(rights as u32);
        let handle = Self::new(nodes, node, file, of, rights & PAST_CACHE != 0, request);
        handle.told.store(told, Ordering::Relaxed);
        handle
    }

    /// Returns what is remembered of it under a number. What it is told later is not: a loss is rather told twice.
    fn fields(&self, number: u64) -> Fields {
        let rights = u64::from(self.rights.bits()) | if self.past_cache { PAST_CACHE } else { 0 };
        let open = self.file.kept_as().unwrap_or(0);
        [number, self.node, rights, open, self.request, 0, self.told.load(Ordering::Relaxed), 0]
    }

    /// Notes a sync that was asked for when `noted` was what had been written. Fails with `EIO`,
    /// once for each open file, if some of it may be lost, whoever wrote it and whoever found out.
    pub(crate) fn synced(&self, noted: Option<Noted>, verifier: Verifier) -> Result<(), Failure> {
        let lost = self.written.synced(noted, verifier);
        let losses = self.written.losses();
        let told = self.told.swap(losses, Ordering::Relaxed);
        if !lost && told >= losses {
            return Ok(());
        }
        let error =
            Error::new(ErrorKind::Unavailable, "bytes that were written since the last sync may be lost");
        Err(Failure::Shown(error.hint("write them again"), Errno::IO))
    }
}

/// The writes of one file that no sync has been seen after, and how often some were lost.
#[derive(Default)]
pub(crate) struct Written(Mutex<Unsynced>);

#[derive(Default)]
struct Unsynced {
    noted: Option<Noted>,
    count: u64,
    losses: u64,
    /// Where it is remembered, in the fields from [`FIRST`] on.
    kept: Kept,
}

/// Which fields of a node's place hold what of it: the two verifiers, how many writes there were (0 if a sync was seen
/// after all of them), how many losses.
const FIRST: usize = 4;
const LAST: usize = 5;
const COUNT: usize = 6;
const LOSSES: usize = 7;

/// Some writes: under which verifiers the first and the last were, and how many there were ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    first: Verifier,
    last: Verifier,
    count: u64,
}

impl Written {
    /// Has it remembered in a node's place.
    pub(crate) fn noted_at(kept: Kept) -> Self {
        Self(Mutex::new(Unsynced { kept, ..Unsynced::default() }))
    }

    /// Takes up what is remembered.
    pub(crate) fn remembered([first, last, count, losses]: [u64; 4], kept: Kept) -> Self {
        let noted = Noted { first: Verifier(first), last: Verifier(last), count };
        Self(Mutex::new(Unsynced { noted: (count > 0).then_some(noted), count, losses, kept }))
    }

    /// The node is forgotten, and its place another's.
    pub(crate) fn is_forgotten(&self) {
        self.lock().kept = Kept::default();
    }

    /// Notes a write. Returns nothing: a loss is told to whoever syncs, as Linux does.
    pub(crate) fn wrote(&self, verifier: Verifier) {
        let mut state = self.lock();
        state.count += 1;
        let before = state.noted;
        let first = before.map_or(verifier, |noted| noted.first);
        state.noted = Some(Noted { first, last: verifier, count: state.count });
        if before.is_none() {
            state.kept.set(FIRST, first.0);
        }
        if before.is_none_or(|noted| noted.last != verifier) {
            state.kept.set(LAST, verifier.0);
        }
        if before.is_none() {
            state.kept.set(COUNT, state.count);
        }
    }

    /// Returns what no sync has been seen after: for the sync that is about to be asked for.
    pub(crate) fn noted(&self) -> Option<Noted> {
        self.lock().noted
    }

    fn losses(&self) -> u64 {
        self.lock().losses
    }

    /// Notes that what was noted has been synced, and no more than that. Returns whether some
    /// of it may be lost.
    fn synced(&self, noted: Option<Noted>, verifier: Verifier) -> bool {
        let Some(noted) = noted else { return false };
        let lost = noted.first != verifier;
        let mut state = self.lock();
        if let Some(now) = state.noted.filter(|now| now.first == noted.first && now.count >= noted.count) {
            state.losses += u64::from(lost);
            // Before it is noted as told: asked again, it tells it rather twice than never.
            state.kept.set(LOSSES, state.losses);
            // What came since is of this life of the node, or of a later one.
            let since = Noted { first: if lost { now.last } else { verifier }, ..now };
            state.noted = (now.count > noted.count).then_some(since);
            match state.noted {
                Some(since) => state.kept.set(FIRST, since.first.0),
                None => state.kept.set(COUNT, 0),
            }
        }
        lost
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Unsynced> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open files of one door.
pub(crate) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    /// Where each is remembered.
    kept: Mutex<HashMap<u64, Kept>>,
    door: u64,
    /// Of all doors: no number comes again, though that of a door does.
    last: Arc<AtomicU64>,
    remembered: Arc<Remembered>,
}

/// Below these bits of an open file's number stands which one it is, above them the number of the door it was opened at.
const DOOR_SHIFT: u32 = 48;
const _: () = assert!(limits::MOUNT_USERS_MAX + 2 <= 1 << (u64::BITS - DOOR_SHIFT));

/// Returns which of the mount's doors an open file was opened at.
pub(crate) fn door_of(handle: u64) -> u64 {
    handle >> DOOR_SHIFT
}

impl Handles {
    /// Makes the table of the mount's door of that number, with what is remembered of it, as far as `find` finds the file
    /// that was kept under a number. All doors count their open files by `last`.
    pub(crate) fn of_door(
        (door, last): (u64, Arc<AtomicU64>),
        nodes: &Nodes,
        remembered: &Arc<Remembered>,
        find: impl Fn(u64) -> Option<Arc<dyn OpenFile>>,
    ) -> Self {
        let (mut open, mut kept) = (HashMap::new(), HashMap::new());
        for (place, fields) in remembered.each(Part::Handles) {
            let [number, _, _, file, ..] = fields;
            match find(file) {
                Some(file) => {
                    open.insert(number, Arc::new(Handle::remembered(nodes, &fields, file)));
                    kept.insert(number, Kept::at(remembered, Some(place)));
                }
                None => remembered.give_up(place),
            }
        }
        last.fetch_max(remembered.head(Head::LastHandle), Ordering::Relaxed);
        let (open, kept) = (RwLock::new(open), Mutex::new(kept));
        Self { open, kept, door, last, remembered: remembered.clone() }
    }

    /// Takes an open file in. Returns its number, which never comes again.
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let number = self.door << DOOR_SHIFT | count;
        self.remembered.set(Head::LastHandle, count);
        let place = self.remembered.keep(Part::Handles, handle.fields(number));
        kept.insert(number, Kept::at(&self.remembered, place));
        drop(kept);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    /// Takes out what a request opened before its process died: the kernel was never told of it.
    pub(crate) fn remove_untold(&self, request: u64) {
        let untold: Vec<u64> = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.iter().filter(|(_, handle)| handle.request == request).map(|(number, _)| *number).collect()
        };
        untold.into_iter().for_each(|number| drop(self.remove(number)));
    }

    /// Returns an open file. `EBADF` if there is none of that number.
    pub(crate) fn find(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Takes an open file out.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some(mut kept) = kept {
            kept.end();
        }
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Takes all open files out.
    pub(crate) fn take_all(&self) -> HashMap<u64, Arc<Handle>> {
        std::mem::take(&mut self.open.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows each open file.
    pub(crate) fn each(&self, show: impl FnMut(&Arc<Handle>)) {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().for_each(show);
    }

    /// Returns an open file of a node, if there is one.
    pub(crate) fn of_node(&self, node: u64) -> Option<Arc<Handle>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().find(|handle| handle.node == node).cloned()
    }

    /// Returns which files are open, and with which rights, each node once.
    pub(crate) fn each_node(&self) -> Vec<(u64, FileId, Rights)> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let mut nodes = HashMap::new();
        for handle in open.values() {
            let (_, rights) = nodes.entry(handle.node).or_insert((handle.file.id(), Rights::NONE));
            *rights |= handle.rights;
        }
        nodes.into_iter().map(|(node, (file, rights))| (node, file, rights)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::tests::{killed_at_every_store, next};

    const BEFORE: Verifier = Verifier(1);
    const AFTER: Verifier = Verifier(2);

    #[test]
    fn a_sync_answers_for_what_was_written_before_it_was_asked_for_and_no_more() {
        let written = Written::default();
        written.wrote(BEFORE);
        let first = written.noted();
        written.wrote(BEFORE);
        assert!(!written.synced(first, BEFORE));
        let second = written.noted();
        assert!(second.is_some(), "what came while it was under way is not synced");
        assert!(written.synced(second, AFTER), "and was lost");
        assert_eq!((written.noted(), written.losses()), (None, 1));
    }

    /// Once a write was answered, a sync after it tells its loss, whichever process it comes to.
    #[test]
    fn of_a_process_killed_at_any_store_no_loss_goes_untold() {
        killed_at_every_store(|remembered, is_dead| {
            let place = remembered.keep(Part::Nodes, [2, 1, 0, 1, 0, 0, 0, 0]);
            if is_dead() {
                return;
            }
            let written = Written::noted_at(Kept::at(remembered, place));
            written.wrote(BEFORE);
            assert!(!written.synced(written.noted(), BEFORE));
            written.wrote(BEFORE);
            let answered = !is_dead();
            // The node has restarted; the answer that says so never leaves if the process dies.
            let told = written.synced(written.noted(), AFTER) && !is_dead();
            written.wrote(AFTER);
            let found = next(remembered);
            let (_, fields) = found.each(Part::Nodes).next().expect("it is kept");
            let [_, _, _, _, rest @ ..] = fields;
            let found = Written::remembered(rest, Kept::default());
            let again = found.synced(found.noted(), AFTER);
            assert!(told || !answered || again || found.losses() > 0, "{fields:?}");
            assert!(!told || found.losses() > 0, "another open file hears of it");
        });
    }

    #[test]
    fn a_loss_that_two_syncs_find_at_once_is_one_loss() {
        let written = Written::default();
        written.wrote(BEFORE);
        let noted = written.noted();
        assert!(written.synced(noted, AFTER) && written.synced(noted, AFTER));
        assert_eq!(written.losses(), 1);
        written.wrote(AFTER);
        assert!(!written.synced(written.noted(), AFTER));
    }
}
