//! Which sessions may take locks in the grace after a restart.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use weft_core::SessionId;

/// Sessions that took locks: before the last restart, and since.
pub(super) struct Lockers {
    state: Mutex<State>,
}

struct State {
    /// Those from before the restart. If there are none, nobody has to be waited for.
    former: HashSet<SessionId>,
    since: HashSet<SessionId>,
}

impl Lockers {
    pub(super) fn of(former: Vec<SessionId>) -> Self {
        let former = former.into_iter().collect();
        Self { state: Mutex::new(State { former, since: HashSet::new() }) }
    }

    /// Returns whether a session may lock while former holders are waited for.
    pub(super) fn may_reclaim(&self, session: SessionId) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.former.is_empty() || state.former.contains(&session)
    }

    /// Notes that a session takes locks. Returns whether that is news.
    pub(super) fn add(&self, session: SessionId) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        !state.former.contains(&session) && state.since.insert(session)
    }

    /// Forgets a session that has ended. Returns whether it took locks.
    pub(super) fn end(&self, session: SessionId) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.former.remove(&session) | state.since.remove(&session)
    }
}
