//! How many third-party copies are under way, and whose.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_core::{CallerId, Error, ErrorKind, Result, limits};

/// The copies under way: each holds a connection, maybe two, and bytes for somebody who need not do anything for it.
#[derive(Default)]
pub struct Room {
    taken: Mutex<HashMap<CallerId, usize>>,
}

/// The place of one copy, given back when it is dropped.
pub struct Place<'r> {
    room: &'r Room,
    caller: CallerId,
}

impl Room {
    /// Takes a place. `Busy` if there are too many copies, or too many of this caller.
    pub fn enter(&self, caller: CallerId) -> Result<Place<'_>> {
        let mut taken = self.lock();
        let busy = |why| Error::new(ErrorKind::Busy, why).hint("ask again later");
        if taken.values().sum::<usize>() >= limits::THIRD_PARTY_MAX {
            return Err(busy("as many third-party copies are under way as this node makes at once"));
        }
        let own = taken.entry(caller).or_default();
        if *own >= limits::THIRD_PARTY_PER_CALLER_MAX {
            return Err(busy("as many of your third-party copies are under way as one caller may have"));
        }
        *own += 1;
        Ok(Place { room: self, caller })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallerId, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        if let Some(own) = taken.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.caller);
            }
        }
    }
}
