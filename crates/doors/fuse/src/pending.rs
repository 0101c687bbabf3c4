//! Requests that have no answer yet, and those the kernel no longer waits for.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The requests under way, by the kernel's number.
#[derive(Default)]
pub(crate) struct Pending {
    calls: Mutex<HashMap<u64, State>>,
}

enum State {
    /// It was begun and may be over at once.
    Begun,
    /// It was interrupted before it came to wait.
    Interrupted,
    /// It waits, and is to be told.
    Waiting(oneshot::Sender<()>),
}

impl Pending {
    /// Notes that a request was begun.
    pub(crate) fn begin(&self, unique: u64) {
        self.lock().insert(unique, State::Begun);
    }

    /// Notes that it did not end at once. Returns what ends when it is interrupted.
    pub(crate) fn wait(&self, unique: u64) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let before = self.lock().insert(unique, State::Waiting(tell));
        if matches!(before, Some(State::Interrupted)) {
            self.interrupt(unique);
        }
        told
    }

    /// Tells a request that its program was interrupted. Returns whether there is such
    /// a request: if not, it is over, or another thread is just about to begin it.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let before = match self.lock().get_mut(&unique) {
            Some(state) => std::mem::replace(state, State::Interrupted),
            None => return false,
        };
        // Not under the lock: whoever is woken may end there and then, and say so here.
        if let State::Waiting(tell) = before {
            // It may have ended this moment.
            let _ = tell.send(());
        }
        true
    }

    /// Notes that a request is answered.
    pub(crate) fn end(&self, unique: u64) {
        self.lock().remove(&unique);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, State>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reaches_a_request_whether_it_comes_before_or_after_the_wait() {
        let pending = Pending::default();
        assert!(!pending.interrupt(1), "nothing was begun");
        pending.begin(1);
        assert!(pending.interrupt(1));
        assert!(pending.wait(1).try_recv().is_ok());
        pending.begin(2);
        let mut told = pending.wait(2);
        assert!(told.try_recv().is_err());
        assert!(pending.interrupt(2));
        assert!(told.try_recv().is_ok());
        assert!(pending.interrupt(2), "interrupting again is nothing new");
        pending.end(2);
        assert!(!pending.interrupt(2));
    }
}
