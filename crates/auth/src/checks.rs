//! Checking passwords: a few at a time, in turn, and nobody's guesses at others' cost.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weft_core::form::Origin;
use weft_core::service::Secret;
use weft_core::{CallerId, Clock, Deadline, Error, ErrorKind, Result, limits};
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
    /// By a caller who is known already; `anyone`, where nothing is known of the place.
    Caller(CallerId),
}

impl From<Origin> for Place {
    fn from(from: Origin) -> Self {
        match (from.peer, from.uid) {
            (Some(address), _) => Self::Address(weft_core::form::one_machine(address)),
            (None, Some(uid)) => Self::Uid(uid),
            (None, None) => Self::Caller(CallerId::ANYONE),
        }
    }
}

/// The memory for password checks, who waits for it, and who has been wrong too often.
pub(crate) struct Checks {
    sys: Sys,
    steady: Arc<Steady>,
    /// One permit for the memory of one check.
    permits: Arc<Semaphore>,
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
            permits: Arc::new(Semaphore::new(limits::PASSWORD_CHECKS_MAX)),
            waiting: Mutex::default(),
            throttle: Arc::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a try for a user, after the wait that earlier wrong ones have brought it.
    pub(crate) async fn begin(&self, user: &str, place: Place) -> Result<Try> {
        let attempt = self.throttle.begin(user, place, self.steady.tick());
        let attempt = attempt.inspect_err(|_| self.sys.metrics().auth_throttled.count(()))?;
        if !attempt.wait().is_zero() {
            self.sys.metrics().auth_throttled.count(());
            self.sys.sleep(attempt.wait()).await;
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
    pub(crate) async fn turn(&self, place: Place) -> Result<OwnedSemaphorePermit> {
        let _waiter = self.wait(place)?;
        let late = || busy("too many passwords are being checked");
        let deadline = Deadline::within(self.sys.clock(), limits::PASSWORD_WAIT);
        let acquire = async { self.permits.clone().acquire_owned().await.map_err(|_| late()) };
        self.sys.within(deadline, acquire).await.map_err(|_| late())
    }

    /// Compares a password with a hash, in a turn that has come.
    pub(crate) async fn compare(
        &self,
        turn: OwnedSemaphorePermit,
        hash: PasswordHash,
        given: &Secret,
    ) -> Result<bool> {
        let given = given.clone();
        self.run(turn, move || hash.is(&given)).await
    }

    /// Hashes a new password that a caller sets, which takes what checking one takes.
    pub(crate) async fn hash(&self, caller: CallerId, password: &Secret) -> Result<PasswordHash> {
        let turn = self.turn(Place::Caller(caller)).await?;
        let (password, sys) = (password.clone(), self.sys.clone());
        self.run(turn, move || PasswordHash::make(&password, sys.random())).await
    }

    /// Does the work of one check. Its turn lasts as long as that takes, whether or not anybody
    /// still waits for the outcome.
    async fn run<T: Send + 'static>(
        &self,
        turn: OwnedSemaphorePermit,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let whole = move || {
            let outcome = work();
            drop(turn);
            outcome
        };
        self.sys.blocking(whole).await?
    }
}

fn busy(detail: &'static str) -> Error {
    Error::new(ErrorKind::Busy, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Poll;

    use weft_core::Time;

    use super::*;

    fn checks(sys: Sys) -> Checks {
        Checks::new(sys.clone(), Arc::new(Steady::new(sys, Time::EPOCH)))
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "work on a real thread is what is tested")]
    async fn a_turn_lasts_as_long_as_its_work_though_nobody_waits_for_it_any_more() {
        let checks = checks(Sys::real());
        let turn = checks.turn(Place::Uid(1)).await.expect("it is free");
        let (finish, finished) = mpsc::channel::<()>();
        let mut work = Box::pin(checks.run(turn, move || Ok(finished.recv().is_ok())));
        let begun = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending()));
        assert!(begun.await, "it is at work");
        drop(work);
        assert_eq!(checks.permits.available_permits(), limits::PASSWORD_CHECKS_MAX - 1);
        finish.send(()).expect("it waits for this");
        let all = u32::try_from(limits::PASSWORD_CHECKS_MAX).expect("a few");
        drop(checks.permits.acquire_many(all).await.expect("they are given back"));
    }

    #[test]
    fn whoever_fills_the_line_fills_their_own_place_in_it_only() {
        let checks = checks(Sys::simulated(1));
        let [alice, bob] = [1, 2].map(|id| Place::Caller(CallerId(id)));
        let line: Vec<_> =
            (0..limits::PASSWORD_WAITERS_PER_PEER_MAX).map(|_| checks.wait(alice).expect("room")).collect();
        assert_eq!(checks.wait(alice).map(drop).map_err(|error| error.kind()), Err(ErrorKind::Busy));
        drop(checks.wait(bob).expect("his own place"));
        drop(line);
        drop(checks.wait(alice).expect("room again"));
    }
}
