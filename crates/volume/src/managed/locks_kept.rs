//! Which sessions may take locks in the grace after a restart.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use weft_core::SessionId;

/// Sessions that took locks: before the last restart, and since.
pub(super) struct Lockers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those from before the restart. If there are none, nobody has to be waited for.
    former: HashSet<SessionId>,
    /// Those of them that have come back for their locks.
    back: HashSet<SessionId>,
    /// Those that had not when the grace was over.
    absent: HashSet<SessionId>,
    /// Those whose row may be there, since.
    since: HashSet<SessionId>,
    /// Those of them whose row is.
    noted: HashSet<SessionId>,
}

impl Lockers {
    pub(super) fn of(former: Vec<SessionId>) -> Self {
        let former = former.into_iter().collect();
        Self { state: Mutex::new(State { former, ..State::default() }) }
    }

    /// Returns whether a session may lock while former holders are waited for.
    pub(super) fn may_reclaim(&self, session: SessionId) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.former.is_empty() || state.former.contains(&session)
    }

    /// Notes that a session takes locks. Returns whether its row has to be written, and
    /// [`Lockers::noted`] called then.
    pub(super) fn add(&self, session: SessionId) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.former.contains(&session) {
            state.back.insert(session);
            return false;
        }
        if state.noted.contains(&session) {
            return false;
        }
        state.since.insert(session);
        true
    }

    /// Waits no longer for those who have not come back, and returns whose rows are to be removed.
    /// Asked inside the transaction that does so: who locks after it is noted anew, after it.
    pub(super) fn absent(&self) -> Vec<SessionId> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { former, back, absent, since, .. } = &mut *state;
        absent.extend(former.extract_if(|session| !back.contains(session)));
        absent.difference(since).copied().collect()
    }

    /// Notes that a session's row was written, unless the session has ended meanwhile.
    pub(super) fn noted(&self, session: SessionId) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.contains(&session) {
            state.noted.insert(session);
        }
    }

    /// Forgets a session that has ended. Returns whether it took locks.
    pub(super) fn end(&self, session: SessionId) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.noted.remove(&session);
        state.back.remove(&session);
        state.former.remove(&session) | state.since.remove(&session)
    }
}
