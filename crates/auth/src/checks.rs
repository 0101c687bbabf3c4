//! Checking passwords: a few at a time, in turn, and nobody's guesses at others' cost.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use weft_core::form::Origin;
use weft_core::service::Secret;
use weft_core::{Clock, Deadline, Error, ErrorKind, Result, limits};
use weft_sys::Sys;

use crate::password::PasswordHash;
use crate::steady::Steady;
use crate::throttle::{Throttle, Try};

/// Where a password was given: what one place does is bounded apart from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// An address; of IPv6, the network of 64 bits that one machine has to itself.
    Address(IpAddr),
    /// A uid on this machine.
    Uid(u32),
    /// By a caller who is known already.
    Known,
}

impl From<Origin> for Place {
    fn from(from: Origin) -> Self {
        match (from.peer, from.uid) {
            (Some(address), _) => Self::Address(weft_core::form::one_machine(address)),
            (None, Some(uid)) => Self::Uid(uid),
            (None, None) => Self::Known,
        }
    }
}

/// The memory for password checks, who waits for it, and who has been wrong too often.
pub(crate) struct Checks {
    sys: Sys,
    steady: Arc<Steady>,
    /// One permit for the memory of one check.
    permits: Semaphore,
    waiting: Mutex<Waiting>,
    throttle: Arc<Throttle>,
}

#[derive(Default)]
struct Waiting {
    all: usize,
    by_place: HashMap<Place, usize>,
}

/// Counts itself among those who wait.
struct Waiter<'a> {
    checks: &'a Checks,
    place: Place,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.checks.waiting();
        waiting.all -= 1;
        if let Some(count) = waiting.by_place.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                waiting.by_place.remove(&self.place);
            }
        }
    }
}

impl Checks {
    pub(crate) fn new(sys: Sys, steady: Arc<Steady>) -> Self {
        Self {
            sys,
            steady,
            permits: Semaphore::new(limits::PASSWORD_CHECKS_MAX),
            waiting: Mutex::default(),
            throttle: Arc::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a try for a user, after the wait that earlier wrong ones have brought it.
    pub(crate) async fn begin(&self, user: &str, place: Place) -> Result<Try> {
        let attempt = self.throttle.begin(user, place, self.steady.tick())?;
        if attempt.must_wait() {
            self.sys.sleep(limits::PASSWORD_FAILURE_DELAY).await;
        }
        Ok(attempt)
    }

    fn wait(&self, place: Place) -> Result<Waiter<'_>> {
        let mut waiting = self.waiting();
        let here = waiting.by_place.get(&place).copied().unwrap_or_default();
        if waiting.all >= limits::PASSWORD_WAITERS_MAX {
            return Err(busy("too many passwords are being checked"));
        }
        if here >= limits::PASSWORD_WAITERS_PER_PEER_MAX {
            return Err(busy("too many passwords from there are being checked"));
        }
        waiting.all += 1;
        *waiting.by_place.entry(place).or_default() += 1;
        Ok(Waiter { checks: self, place })
    }

    /// Waits for the memory of one check. `Busy` if too many wait, or for too long.
    pub(crate) async fn turn(&self, place: Place) -> Result<SemaphorePermit<'_>> {
        let _waiter = self.wait(place)?;
        let late = || busy("too many passwords are being checked");
        let deadline = Deadline::within(self.sys.clock(), limits::PASSWORD_WAIT);
        let acquire = async { self.permits.acquire().await.map_err(|_| late()) };
        self.sys.within(deadline, acquire).await.map_err(|_| late())
    }

    /// Compares a password with a hash, in a turn that has come.
    pub(crate) async fn compare(
        &self,
        turn: SemaphorePermit<'_>,
        hash: PasswordHash,
        given: &Secret,
    ) -> Result<bool> {
        let given = given.clone();
        let right = self.sys.blocking(move || hash.is(&given)).await?;
        drop(turn);
        right
    }
}

fn busy(detail: &'static str) -> Error {
    Error::new(ErrorKind::Busy, detail)
}
