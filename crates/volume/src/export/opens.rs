//! What is open, under which session. An open file is held by its descriptor: it lives without a name as
//! the machine's own open files do.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::{Error, ErrorKind, FileId, Result, SessionId, limits};
use weft_sys::beneath::Held;

/// What is open.
#[derive(Default)]
pub(super) struct Opens(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    opens: HashMap<u64, Open>,
    by_session: HashMap<SessionId, HashSet<u64>>,
    files: HashMap<FileId, Vec<u64>>,
    ended: HashSet<SessionId>,
    ended_order: VecDeque<SessionId>,
}

struct Open {
    session: SessionId,
    /// None while it is still being opened.
    file: Option<(FileId, OpenInode)>,
}

/// An inode that somebody has open.
#[derive(Clone)]
pub(super) struct OpenInode {
    pub(super) held: Arc<Held>,
    /// Where it was when it was opened.
    pub(super) path: Vec<u8>,
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

    /// Says what was opened. `Stale` if the session has ended meanwhile.
    pub(super) fn opened(&self, number: u64, file: FileId, inode: OpenInode) -> Result<()> {
        let mut state = self.lock();
        let open = state.opens.get_mut(&number).ok_or_else(ended)?;
        open.file = Some((file, inode));
        state.files.entry(file).or_default().push(number);
        Ok(())
    }

    /// Returns whether an open is still one.
    pub(super) fn has(&self, number: u64) -> bool {
        self.lock().opens.contains_key(&number)
    }

    /// Returns what holds a file that somebody has open.
    pub(super) fn held(&self, file: FileId) -> Option<OpenInode> {
        let state = self.lock();
        let number = state.files.get(&file)?.first()?;
        state.opens.get(number)?.file.as_ref().map(|(_, inode)| inode.clone())
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
        let Some((file, _)) = open.file else { return true };
        if let Some(numbers) = self.files.get_mut(&file) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.files.remove(&file);
            }
        }
        true
    }
}

fn ended() -> Error {
    Error::stale("the session has ended")
}
