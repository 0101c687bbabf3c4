//! The table: which locks there are, which changes are under way, and the rules between them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event_listener::Event;

use super::{LockToken, NameLock, NameLockWanted, Touch};
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::form::LockKind;
use crate::limits;
use crate::name::RelPath;
use crate::time::Time;

/// Locks and permits, in memory.
#[derive(Default)]
pub struct NameLockTable {
    state: Mutex<State>,
    /// Wakes who waits for changes to be through.
    ended: Event,
}

#[derive(Default)]
struct State {
    locks: HashMap<LockToken, NameLock>,
    /// The same by name: what lies below a name follows it.
    by_path: BTreeMap<Vec<u8>, Vec<LockToken>>,
    permits: HashMap<u64, Vec<Touch>>,
    last_permit: u64,
}

/// Leave to make a change, as long as it is held: no lock is granted over what it touches.
#[must_use]
pub struct Permit {
    table: Arc<NameLockTable>,
    number: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.table.lock().permits.remove(&self.number);
        self.table.ended.notify(usize::MAX);
    }
}

impl NameLockTable {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lock once no change that it would cover is under way. Fails as [`take`](Self::take) does.
    pub async fn take_once_free(&self, lock: &NameLock, now: impl Fn() -> Time) -> Result<()> {
        loop {
            // Listened first: a change that ends after the look is heard of.
            let ended = self.ended.listen();
            if self.take(lock, now())? {
                return Ok(());
            }
            ended.await;
        }
    }

    /// Takes a lock. `Ok(false)` if a change is under way that it would cover: try again once that is
    /// through. `Locked` if somebody's lock stands in the way, whose name is the error's subject;
    /// `Busy` beyond the bounds.
    pub fn take(&self, lock: &NameLock, now: Time) -> Result<bool> {
        if lock.wanted.owner.len() > limits::NAME_LOCK_OWNER_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLong, "what is said of a lock's owner is too long"));
        }
        let mut state = self.lock();
        if let Some(other) = state.clash(&lock.wanted, now) {
            return Err(is_locked(&other.wanted.path));
        }
        if state.permits.values().flatten().any(|touch| touch.meets(&lock.wanted)) {
            return Ok(false);
        }
        state.check_room(lock, now)?;
        state.insert(lock.clone());
        Ok(true)
    }

    /// Puts back a lock that was granted before.
    pub fn restore(&self, lock: NameLock) {
        self.lock().insert(lock);
    }

    /// Gives leave for a change that touches these. `Locked`, with the name of the lock, where one
    /// stands in the way whose token `caller` does not show. Of several shared locks of one name one
    /// token is enough.
    pub fn permit(
        self: &Arc<Self>,
        caller: &CallerName,
        touches: Vec<Touch>,
        shown: &[LockToken],
        now: Time,
    ) -> Result<Permit> {
        let mut state = self.lock();
        for touch in &touches {
            state.check(touch, caller, shown, now)?;
        }
        state.last_permit += 1;
        let number = state.last_permit;
        state.permits.insert(number, touches);
        Ok(Permit { table: self.clone(), number })
    }

    /// Returns the locks that say something of a name: its own, and deep ones above it.
    pub fn covering(&self, path: &RelPath, now: Time) -> Vec<NameLock> {
        let state = self.lock();
        let above = state.at_and_above(path, now);
        above.filter(|lock| lock.wanted.covers(path)).cloned().collect()
    }

    /// Returns a lock.
    pub fn find(&self, token: LockToken, now: Time) -> Option<NameLock> {
        self.lock().locks.get(&token).filter(|lock| now < lock.until).cloned()
    }

    /// Returns a lock that covers a name. `Conflict` if there is no such lock.
    pub fn covering_with(&self, token: LockToken, path: &RelPath, now: Time) -> Result<NameLock> {
        let lock = self.find(token, now).filter(|lock| lock.wanted.covers(path));
        lock.ok_or_else(|| Error::new(ErrorKind::Conflict, "no lock with that token covers this name"))
    }

    /// Gives the first of these locks that covers the name and is the caller's time until `until`.
    /// `Precondition` if there is none.
    pub fn refresh(
        &self,
        caller: &CallerName,
        path: &RelPath,
        shown: &[LockToken],
        until: Time,
        now: Time,
    ) -> Result<NameLock> {
        let mut state = self.lock();
        let is_own = |lock: &NameLock| lock.holder == *caller && lock.wanted.covers(path);
        let own = shown.iter().copied().find(|token| state.live(*token, now).is_some_and(is_own));
        let Some(lock) = own.and_then(|token| state.locks.get_mut(&token)) else {
            let why = "none of the locks shown is yours and covers this name";
            return Err(Error::new(ErrorKind::Precondition, why));
        };
        lock.until = until;
        Ok(lock.clone())
    }

    /// Drops a lock. Nothing there is no error.
    pub fn drop_lock(&self, token: LockToken) {
        self.lock().remove(token);
    }

    /// Returns the locks of a name and of what lies below it: those that end when it goes.
    pub fn below(&self, path: &RelPath) -> Vec<LockToken> {
        let state = self.lock();
        state.tokens_below(path).chain(state.tokens_at(path)).collect()
    }

    /// Returns the locks whose time is over.
    pub fn over(&self, now: Time) -> Vec<LockToken> {
        let state = self.lock();
        state.locks.values().filter(|lock| lock.until <= now).map(|lock| lock.token).collect()
    }
}

impl State {
    /// The first lock that one of this kind cannot lie beside.
    fn clash(&self, wanted: &NameLockWanted, now: Time) -> Option<&NameLock> {
        let excludes =
            |lock: &&NameLock| wanted.kind == LockKind::Exclusive || lock.wanted.kind == LockKind::Exclusive;
        let above = self.at_and_above(&wanted.path, now).filter(|lock| lock.wanted.covers(&wanted.path));
        let below = self.tokens_below(&wanted.path).filter(|_| wanted.deep);
        let below = below.filter_map(|token| self.live(token, now));
        above.chain(below).find(excludes)
    }

    fn check(&self, touch: &Touch, caller: &CallerName, shown: &[LockToken], now: Time) -> Result<()> {
        if self.locks.is_empty() {
            return Ok(());
        }
        let may_show = |lock: &NameLock| lock.holder == *caller && shown.contains(&lock.token);
        let above = self.at_and_above(&touch.path, now);
        let below = self.tokens_below(&touch.path).filter_map(|token| self.live(token, now));
        let mut places: BTreeMap<&[u8], (&NameLock, bool)> = BTreeMap::new();
        for lock in above.chain(below).filter(|lock| touch.meets(&lock.wanted)) {
            let place = places.entry(lock.wanted.path.as_bytes()).or_insert((lock, false));
            place.1 |= may_show(lock);
        }
        match places.into_values().find(|(_, shown)| !shown) {
            None => Ok(()),
            Some((lock, _)) => Err(is_locked(&lock.wanted.path)),
        }
    }

    fn check_room(&self, lock: &NameLock, now: Time) -> Result<()> {
        let (holder, path) = (&lock.holder, &lock.wanted.path);
        if self.tokens_at(path).filter(|token| self.live(*token, now).is_some()).count()
            >= limits::NAME_LOCKS_SHARED_MAX
        {
            return Err(Error::new(ErrorKind::Busy, "the name has as many locks as it may"));
        }
        let live = self.locks.values().filter(|lock| now < lock.until);
        let own = live.filter(|lock| lock.holder == *holder).count();
        if self.locks.len() >= limits::NAME_LOCKS_MAX || own >= limits::NAME_LOCKS_EACH_MAX {
            return Err(Error::new(ErrorKind::Busy, "there are as many locks of names as there may be"));
        }
        Ok(())
    }

    fn live(&self, token: LockToken, now: Time) -> Option<&NameLock> {
        self.locks.get(&token).filter(|lock| now < lock.until)
    }

    /// Locks of a name and of each directory above it, that hold now.
    fn at_and_above(&self, path: &RelPath, now: Time) -> impl Iterator<Item = &NameLock> {
        let above = std::iter::successors(Some(path.clone()), |path| Some(path.split_last()?.0));
        let tokens = above.flat_map(|path| self.tokens_at(&path).collect::<Vec<_>>());
        tokens.filter_map(move |token| self.live(token, now))
    }

    fn tokens_at(&self, path: &RelPath) -> impl Iterator<Item = LockToken> + '_ {
        self.by_path.get(path.as_bytes()).into_iter().flatten().copied()
    }

    fn tokens_below(&self, path: &RelPath) -> impl Iterator<Item = LockToken> + '_ {
        // Below `a` is whatever begins with `a/`; below the root is all but the root.
        let under = |last: u8| [path.as_bytes(), &[last]].concat();
        let range = match path.is_empty() {
            true => (Bound::Excluded(Vec::new()), Bound::Unbounded),
            false => (Bound::Included(under(b'/')), Bound::Excluded(under(b'/' + 1))),
        };
        self.by_path.range(range).flat_map(|(_, tokens)| tokens).copied()
    }

    fn insert(&mut self, lock: NameLock) {
        let path = lock.wanted.path.as_bytes().to_vec();
        self.by_path.entry(path).or_default().push(lock.token);
        self.locks.insert(lock.token, lock);
    }

    fn remove(&mut self, token: LockToken) {
        let Some(lock) = self.locks.remove(&token) else { return };
        let path = lock.wanted.path.as_bytes();
        if let Some(tokens) = self.by_path.get_mut(path) {
            tokens.retain(|other| *other != token);
            if tokens.is_empty() {
                self.by_path.remove(path);
            }
        }
    }
}

fn is_locked(path: &RelPath) -> Error {
    Error::new(ErrorKind::Locked, "a lock that was not shown stands in the way")
        .about(format_args!("/{path}"))
}
