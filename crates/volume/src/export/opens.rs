//! What is open, under which session. An open file is held by descriptors: it lives without a name as
//! the machine's own open files do.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::{Error, ErrorKind, FileId, Result, SessionId, limits};
use weft_sys::beneath::Held;

use super::descriptors::{Descriptor, Descriptors, Handle};
use super::known::moved;
use super::policies::{Bound, is_within};
use super::rename::Move;

/// What is open.
#[derive(Default)]
pub(super) struct Opens(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    opens: HashMap<u64, Open>,
    by_session: HashMap<SessionId, HashSet<u64>>,
    files: HashMap<FileId, OpenFile>,
    ended: HashSet<SessionId>,
    ended_order: VecDeque<SessionId>,
}

struct Open {
    session: SessionId,
    /// None while it is still being opened.
    file: Option<FileId>,
}

/// A file that is open.
struct OpenFile {
    inode: OpenInode,
    /// How many opens there are of it.
    opens: usize,
    descriptors: Descriptors,
}

/// An inode that somebody has open.
#[derive(Clone)]
pub(super) struct OpenInode {
    pub(super) held: Arc<Held>,
    /// Where it was when it was last opened.
    pub(super) path: Vec<u8>,
    /// Set once this node has taken its last name away.
    pub(super) last: Option<LastName>,
}

/// The last name of a file that has none any more.
#[derive(Clone)]
pub(super) struct LastName {
    pub(super) path: Vec<u8>,
    /// What governed it there, as it was then.
    pub(super) bound: Arc<Bound>,
}

impl Opens {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails with `Stale` if the session has ended.
    pub(super) fn lives(&self, session: SessionId) -> Result<()> {
        if self.lock().ended.contains(&session) { Err(ended()) } else { Ok(()) }
    }

    /// Begins an open, before anything is done for it. Returns its number.
    pub(super) fn begin(&self, session: SessionId) -> Result<u64> {
        let mut state = self.lock();
        if state.ended.contains(&session) {
            return Err(ended());
        }
        if state.by_session.entry(session).or_default().len() >= limits::SESSION_OPENS_MAX {
            return Err(Error::new(ErrorKind::Busy, "the session holds as many opens as it may"));
        }
        state.last += 1;
        let number = state.last;
        state.opens.insert(number, Open { session, file: None });
        state.by_session.entry(session).or_default().insert(number);
        Ok(number)
    }

    /// Says what was opened. Returns what the open goes by, and what it brought if that is not needed: to be dropped
    /// where that may take its time. `Stale` if the session has ended meanwhile.
    pub(super) fn opened(
        &self,
        number: u64,
        id: FileId,
        inode: OpenInode,
        own: Arc<Descriptor>,
    ) -> Result<(Handle, Option<Arc<Descriptor>>)> {
        let mut state = self.lock();
        let open = state.opens.get_mut(&number).ok_or_else(ended)?;
        open.file = Some(id);
        let (file, before) = match state.files.entry(id) {
            Entry::Vacant(new) => {
                (new.insert(OpenFile { inode, opens: 0, descriptors: Descriptors::default() }), None)
            }
            Entry::Occupied(known) => {
                let known = known.into_mut();
                let last = known.inode.last.take();
                let before = std::mem::replace(&mut known.inode, OpenInode { last, ..inode });
                (known, Some(before))
            }
        };
        file.opens += 1;
        let joined = file.descriptors.join(own);
        drop(state);
        // Not while all wait for the table. What the inode keeps, the opens before this one keep as well.
        drop(before);
        Ok(joined)
    }

    /// Returns whether an open is still one.
    pub(super) fn has(&self, number: u64) -> bool {
        self.lock().opens.contains_key(&number)
    }

    /// Notes that a file has lost its last name. Returns whether somebody has it open.
    pub(super) fn lost_last(&self, file: FileId, name: LastName) -> bool {
        let mut state = self.lock();
        let open = state.files.get_mut(&file);
        open.map(|open| open.inode.last = Some(name)).is_some()
    }

    /// Notes that some things lie elsewhere now: so does, with the directory that it was in, where a file lost its last name.
    pub(super) fn moved(&self, places: &[Move]) {
        if !places.iter().any(|place| place.is_directory) {
            return;
        }
        for last in self.lock().files.values_mut().filter_map(|file| file.inode.last.as_mut()) {
            let above = |place: &&Move| last.path != place.from && is_within(&last.path, &place.from);
            if let Some(place) = places.iter().find(above) {
                last.path = moved(&last.path, &place.from, &place.to);
            }
        }
    }

    /// Returns what holds a file that somebody has open.
    pub(super) fn held(&self, file: FileId) -> Option<OpenInode> {
        self.lock().files.get(&file).map(|open| open.inode.clone())
    }

    /// Ends an open. Returns whether it was one still.
    pub(super) fn close(&self, number: u64) -> bool {
        self.lock().close(number)
    }

    /// Ends all opens of a session, for good.
    pub(super) fn end_session(&self, session: SessionId) {
        let mut state = self.lock();
        if state.ended.insert(session) {
            state.ended_order.push_back(session);
        }
        if state.ended_order.len() > limits::SESSIONS_MAX
            && let Some(oldest) = state.ended_order.pop_front()
        {
            state.ended.remove(&oldest);
        }
        for number in state.by_session.remove(&session).unwrap_or_default() {
            state.close(number);
        }
    }
}

impl State {
    fn close(&mut self, number: u64) -> bool {
        let Some(open) = self.opens.remove(&number) else { return false };
        if let Some(numbers) = self.by_session.get_mut(&open.session) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_session.remove(&open.session);
            }
        }
        let Some(id) = open.file else { return true };
        if let Entry::Occupied(mut file) = self.files.entry(id) {
            file.get_mut().opens -= 1;
            if file.get().opens == 0 {
                file.remove();
            }
        }
        true
    }
}

fn ended() -> Error {
    Error::stale("the session has ended")
}
