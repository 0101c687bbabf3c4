//! How many streams a door answers at once, and whose.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::form::{Origin, one_machine};
use weft_core::limits;

/// The streams that are answered: each takes two descriptors and what waits between them.
#[derive(Clone, Default)]
pub struct Room {
    taken: Arc<Mutex<HashMap<Option<IpAddr>, usize>>>,
}

/// The place of one stream, given back when it is dropped.
pub struct Place {
    room: Room,
    machine: Option<IpAddr>,
}

impl Room {
    /// Takes a place; none if there are as many streams as there may be, or as many of that machine.
    pub fn enter(&self, from: Origin) -> Option<Place> {
        let machine = from.peer.map(one_machine);
        let mut taken = self.lock();
        if taken.values().sum::<usize>() >= limits::HTTP2_STREAMS_ALL_MAX {
            return None;
        }
        let own = taken.entry(machine).or_default();
        if *own >= limits::HTTP2_STREAMS_PER_PEER_MAX {
            return None;
        }
        *own += 1;
        Some(Place { room: self.clone(), machine })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        if let Some(own) = taken.get_mut(&self.machine) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.machine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_core::form::Door;

    use super::*;

    #[test]
    fn no_machine_takes_the_room_of_the_others_and_what_is_left_is_given_again() {
        let from = |last: u8| Origin { door: Door::Http, peer: Some([192, 0, 2, last].into()), uid: None };
        let room = Room::default();
        let own: Vec<_> = std::iter::from_fn(|| room.enter(from(1))).collect();
        assert_eq!(own.len(), limits::HTTP2_STREAMS_PER_PEER_MAX);
        let others: Vec<_> = (2..).map_while(|last| room.enter(from(last))).take(100).collect();
        assert_eq!(others.len(), 100);
        drop(own);
        assert!(room.enter(from(1)).is_some());
        drop(others);
        assert!(room.lock().is_empty());
    }
}
