//! Places for work that is bounded, in all and for each who has it done.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places that are taken, and by whom.
pub struct Places<K> {
    taken: Arc<Mutex<HashMap<K, usize>>>,
    all: usize,
    each: usize,
}

/// One place, given back when it is dropped.
pub struct Place<K: Eq + Hash> {
    taken: Arc<Mutex<HashMap<K, usize>>>,
    whose: K,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All are taken.
    All,
    /// Whoever asks has as many as one may have.
    Own,
}

impl<K: Eq + Hash + Clone> Places<K> {
    /// Has so many places in all, and so many for each.
    pub fn new(all: usize, each: usize) -> Self {
        Self { taken: Arc::default(), all, each }
    }

    /// Takes a place.
    pub fn enter(&self, whose: K) -> Result<Place<K>, Full> {
        let mut taken = lock(&self.taken);
        if taken.values().sum::<usize>() >= self.all {
            return Err(Full::All);
        }
        let own = taken.entry(whose.clone()).or_default();
        if *own >= self.each {
            return Err(Full::Own);
        }
        *own += 1;
        Ok(Place { taken: self.taken.clone(), whose })
    }
}

fn lock<K>(taken: &Mutex<HashMap<K, usize>>) -> MutexGuard<'_, HashMap<K, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(own) = taken.get_mut(&self.whose) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_places_of_the_others_and_what_is_left_is_given_again() {
        let places = Places::new(5, 2);
        let own: Vec<_> = std::iter::from_fn(|| places.enter(1).ok()).collect();
        assert_eq!((own.len(), places.enter(1).err()), (2, Some(Full::Own)));
        let others: Vec<_> = (2..).map_while(|whose| places.enter(whose).ok()).collect();
        assert_eq!((others.len(), places.enter(9).err()), (3, Some(Full::All)));
        drop(own);
        assert!(places.enter(1).is_ok());
        drop(others);
        assert!(lock(&places.taken).is_empty());
    }
}
