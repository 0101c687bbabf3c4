//! What is open, under which session. In memory: after a restart sessions open again.
//!
//! Opening and losing the last name must not miss each other: an open pins the id
//! first and looks whether the inode is there afterwards; an unlinking transaction
//! asks [`Opens::end`], which marks the id, so that a later pin knows to look again
//! once that transaction is through.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_core::{Error, ErrorKind, FileId, ObjectId, Result, SessionId, limits};

/// What is open.
#[derive(Default)]
pub(super) struct Opens(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    opens: HashMap<u64, Open>,
    by_session: HashMap<SessionId, HashSet<u64>>,
    files: HashMap<FileId, Used>,
    /// Objects that pinned opens read, whatever becomes of their files.
    objects: HashMap<ObjectId, usize>,
    /// Inodes whose end was decided in a transaction that may still be under way, and
    /// which decision it was; none yet if the transaction is still to come.
    ending: HashMap<FileId, Option<u64>>,
    decisions: u64,
    ended_sessions: HashSet<SessionId>,
    ended_order: VecDeque<SessionId>,
}

struct Open {
    session: SessionId,
    file: FileId,
    object: Option<ObjectId>,
}

/// Who has a file open.
#[derive(Default)]
struct Used {
    opens: usize,
    /// Whether its last name went meanwhile, in a transaction that may still be under way.
    unnamed: bool,
}

/// What an open that ended kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// The file, if nobody else has it open.
    pub(super) file: Option<FileId>,
    /// Whether that lost its last name while it was open: no snapshot may show it yet.
    pub(super) unnamed: bool,
    /// The object it was pinned to, if nobody else is.
    pub(super) object: Option<ObjectId>,
}

impl Opens {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails with `Stale` if the session has ended.
    pub(super) fn lives(&self, session: SessionId) -> Result<()> {
        if self.lock().ended_sessions.contains(&session) {
            return Err(Error::stale("the session has ended"));
        }
        Ok(())
    }

    /// Takes up an open. Returns its number, and whether the file's end may be under
    /// way, so that only a later look can be relied on.
    pub(super) fn pin(&self, session: SessionId, file: FileId) -> Result<(u64, bool)> {
        let mut state = self.lock();
        if state.ended_sessions.contains(&session) {
            return Err(Error::stale("the session has ended"));
        }
        let held = state.by_session.entry(session).or_default().len();
        if held >= limits::SESSION_OPENS_MAX {
            return Err(Error::new(ErrorKind::Busy, "the session holds as many opens as it may"));
        }
        state.last += 1;
        let number = state.last;
        state.opens.insert(number, Open { session, file, object: None });
        state.by_session.entry(session).or_default().insert(number);
        state.files.entry(file).or_default().opens += 1;
        Ok((number, state.ending.contains_key(&file)))
    }

    /// Keeps an object for an open that is pinned to it.
    pub(super) fn pin_object(&self, number: u64, object: ObjectId) {
        let mut state = self.lock();
        if let Some(open) = state.opens.get_mut(&number) {
            open.object = Some(object);
            *state.objects.entry(object).or_default() += 1;
        }
    }

    /// Returns whether an open is still one.
    pub(super) fn has(&self, number: u64) -> bool {
        self.lock().opens.contains_key(&number)
    }

    /// Ends an open. `None` if it had ended already.
    pub(super) fn close(&self, number: u64) -> Option<Closed> {
        self.lock().close(number)
    }

    /// Ends all opens of a session, for good.
    pub(super) fn end_session(&self, session: SessionId) -> Vec<Closed> {
        let mut state = self.lock();
        if state.ended_sessions.insert(session) {
            state.ended_order.push_back(session);
        }
        if state.ended_order.len() > limits::SESSIONS_MAX
            && let Some(oldest) = state.ended_order.pop_front()
        {
            state.ended_sessions.remove(&oldest);
        }
        let numbers = state.by_session.remove(&session).unwrap_or_default();
        numbers.into_iter().filter_map(|number| state.close(number)).collect()
    }

    /// Asked by the transaction that takes a file's last name: whether nobody has it
    /// open, so that it ends now. Remembered until the volume's upkeep finds the
    /// transaction through, or else until the last who has it open closes it, who may not
    /// see the transaction yet and has to end the file all the same.
    pub(super) fn end(&self, file: FileId) -> bool {
        let mut state = self.lock();
        if let Some(used) = state.files.get_mut(&file) {
            used.unnamed = true;
            return false;
        }
        state.decisions += 1;
        let decision = state.decisions;
        state.ending.insert(file, Some(decision));
        true
    }

    /// Says that a file nobody has open is about to end, in a transaction to come.
    /// [`Opens::end`] in it follows, or else [`Opens::end_is_off`].
    pub(super) fn begin_end(&self, file: FileId) {
        let mut state = self.lock();
        if !state.files.contains_key(&file) {
            state.ending.entry(file).or_default();
        }
    }

    /// Says that the transactions that asked to end a file are through.
    pub(super) fn settled(&self, file: FileId) {
        self.lock().ending.remove(&file);
    }

    /// Says that there is nothing to end, or that it cannot be ended now.
    pub(super) fn end_is_off(&self, file: FileId) {
        let mut state = self.lock();
        if state.ending.get(&file) == Some(&None) {
            state.ending.remove(&file);
        }
    }

    /// Returns the files that are about to end in transactions still to come.
    pub(super) fn undecided(&self) -> Vec<FileId> {
        let state = self.lock();
        state.ending.iter().filter(|(_, decision)| decision.is_none()).map(|(file, _)| *file).collect()
    }

    /// Returns the files whose end was decided, and in which decision.
    pub(super) fn decided(&self) -> Vec<(FileId, u64)> {
        let state = self.lock();
        state.ending.iter().filter_map(|(file, decision)| Some((*file, (*decision)?))).collect()
    }

    /// Says that the transaction of a decision is through.
    pub(super) fn settled_since(&self, file: FileId, decision: u64) {
        let mut state = self.lock();
        if state.ending.get(&file) == Some(&Some(decision)) {
            state.ending.remove(&file);
        }
    }

    /// Returns whether a file's end was decided and may still be under way.
    pub(super) fn is_ending(&self, file: FileId) -> bool {
        self.lock().ending.contains_key(&file)
    }

    /// Returns whether an open is pinned to an object.
    pub(super) fn is_pinned(&self, object: ObjectId) -> bool {
        self.lock().objects.contains_key(&object)
    }
}

impl State {
    fn close(&mut self, number: u64) -> Option<Closed> {
        let open = self.opens.remove(&number)?;
        if let Some(own) = self.by_session.get_mut(&open.session) {
            own.remove(&number);
            if own.is_empty() {
                self.by_session.remove(&open.session);
            }
        }
        let used = last_of(&mut self.files, open.file, |used| &mut used.opens);
        let unnamed = used.as_ref().is_some_and(|used| used.unnamed);
        let file = used.map(|_| open.file);
        let object =
            open.object.filter(|object| last_of(&mut self.objects, *object, |opens| opens).is_some());
        Some(Closed { file, unnamed, object })
    }
}

/// Counts one less. Returns what was kept under the key if that was the last.
fn last_of<K: std::hash::Hash + Eq, V>(
    kept: &mut HashMap<K, V>,
    key: K,
    count: impl FnOnce(&mut V) -> &mut usize,
) -> Option<V> {
    let Entry::Occupied(mut entry) = kept.entry(key) else { return None };
    let count = count(entry.get_mut());
    *count -= 1;
    (*count == 0).then(|| entry.remove())
}

#[cfg(test)]
mod tests {
    use weft_core::VolumeId;

    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn file(serial: u64) -> FileId {
        FileId::new(VolumeId(0), serial, 0)
    }

    #[test]
    fn a_file_ends_only_when_nobody_has_it_open_and_a_later_pin_knows() {
        let opens = Opens::default();
        let (number, doubtful) = opens.pin(SESSION, file(7)).unwrap();
        assert!(!doubtful);
        assert!(!opens.end(file(7)), "somebody has it open");
        assert_eq!(opens.close(number), Some(Closed { file: Some(file(7)), unnamed: true, object: None }));
        assert!(opens.end(file(7)));
        assert!(opens.pin(SESSION, file(7)).unwrap().1, "its end is under way");
        opens.settled(file(7));
    }

    #[test]
    fn the_end_of_a_session_closes_what_it_had_and_refuses_more() {
        let opens = Opens::default();
        let (a, _) = opens.pin(SESSION, file(7)).unwrap();
        opens.pin(SESSION, file(7)).unwrap();
        opens.pin(SessionId(2), file(8)).unwrap();
        opens.pin_object(a, ObjectId(3));
        let closed = opens.end_session(SESSION);
        assert_eq!(closed.iter().filter(|c| c.file == Some(file(7))).count(), 1);
        assert!(!opens.is_pinned(ObjectId(3)) && !opens.end(file(8)));
        assert!(opens.pin(SESSION, file(9)).is_err());
    }

    #[test]
    fn what_was_decided_is_forgotten_once_its_transaction_is_through_and_not_before() {
        let opens = Opens::default();
        assert!(opens.end(file(7)));
        let before = opens.decided();
        assert!(opens.end(file(7)), "decided again, in a later transaction");
        before.into_iter().for_each(|(file, decision)| opens.settled_since(file, decision));
        assert!(opens.is_ending(file(7)), "the later one may be under way");
        opens.end_is_off(file(7));
        assert!(opens.is_ending(file(7)), "it was decided");
        opens.decided().into_iter().for_each(|(file, decision)| opens.settled_since(file, decision));
        assert!(!opens.is_ending(file(7)));
        opens.begin_end(file(8));
        assert!(opens.decided().is_empty(), "its transaction is still to come");
        opens.end_is_off(file(8));
        assert!(!opens.is_ending(file(8)));
    }
}
