//! Locks: `fcntl`'s by range, `flock`'s by open file, both the file system's own, so
//! that programs on two mounts see each other's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use rustix::io::Errno;
use tokio::runtime::Handle;
use weft_core::form::{At, Lock, LockKind, LockOwner, LockRange, LockScope, Wait};
use weft_core::{Deadline, Error, ErrorKind, FileId, limits};

use super::lockers::{self, Asked, Locker};
use super::{Door, Outcome, done, refuse};
use crate::abi::request::LockIn;
use crate::abi::{lock, reply};
use crate::errno::Failure;
use crate::look::is_away;
use crate::nodes::Told;
use crate::remembered::Remembered;

impl Door {
    pub(super) async fn test_lock(&self, node: u64, asked: &LockIn) -> Outcome {
        let at = self.at(node)?;
        let held = self.fs.test(&self.call(), &at, &wanted(asked)?).await?;
        let Some(held) = held else { return Ok(reply::lock(0, 0, lock::UNLOCK, 0).into()) };
        let kind = match held.kind {
            LockKind::Shared => lock::READ,
            LockKind::Exclusive => lock::WRITE,
        };
        let (start, end) = match held.scope {
            LockScope::Range(range) => (range.at, last_byte(range)),
            LockScope::Whole => (0, lock::TO_THE_END),
        };
        Ok(reply::lock(start, end, kind, self.holder(at.base, &held.owner)).into())
    }

    pub(super) async fn set_lock(
        self: &Arc<Self>,
        node: u64,
        asked: &LockIn,
        wait: bool,
        taken: Option<Arc<AtomicBool>>,
    ) -> Outcome {
        let (at, wants) = (self.at(node)?, wanted(asked)?);
        let locker = Locker { file: at.base, owner: asked.owner, whole: asked.flock };
        if asked.kind == lock::UNLOCK {
            // First: the next process would hold on to what somebody else was given since.
            self.lockers.released(locker, wants.scope);
            self.fs.unlock(&self.call(), &at, &wants).await?;
            return done();
        }
        self.obtain(locker, &wants, asked, wait).await?;
        if self.is_shut() {
            // Its open file was closed meanwhile, and nobody else gives this up.
            if let Some(asked) = self.lockers.asked(locker) {
                self.giving_up(locker, asked).end().await?;
            }
            return refuse(Errno::BADF);
        }
        if let Some(taken) = taken {
            taken.store(true, Ordering::Release);
        }
        self.lockers.took(locker, wants.scope, wants.kind);
        self.look_again(node, asked.handle).await;
        done()
    }

    /// Has a locker be given a lock, and notes that it may hold it. What it is to give up, of a close before this or by
    /// another thread meanwhile, it gives up first: the lock must not go with that, nor that stay.
    async fn obtain(
        self: &Arc<Self>,
        locker: Locker,
        lock: &Lock,
        asked: &LockIn,
        wait: bool,
    ) -> Result<(), Failure> {
        let at = At::id(locker.file);
        loop {
            if let Some(before) = self.lockers.is_to_give_up(locker) {
                self.give_up(locker, before).await?;
            }
            self.lockers.ask(locker, asked.pid, asked.handle);
            if wait {
                self.wait_for(&at, lock).await?;
            } else {
                self.take(&at, lock).await?;
            }
            if self.lockers.is_to_give_up(locker).is_none() {
                break;
            }
        }
        if self.lockers.asked(locker).is_none() {
            // A close meanwhile gave up what it held until then.
            self.lockers.ask(locker, asked.pid, asked.handle);
        }
        Ok(())
    }

    /// Has nothing be shown of a file that was kept from before a lock was given: who held it
    /// until then may have written, and the feed may not have told yet.
    async fn look_again(self: &Arc<Self>, node: u64, handle: u64) {
        self.mounted.nodes.moved(node);
        let attr = match self.handles.find(handle) {
            Ok(handle) => handle.file.attr(&self.call()).await.ok(),
            Err(_) => None,
        };
        let pages = match attr {
            // What is being dropped for another may be shown till it is: it must not here.
            Some(attr) if self.mounted.nodes.told(node, &attr) != Told::Shown => true,
            Some(attr) if self.is_watched(attr.id.volume()) => false,
            // Of a volume that nobody tells of, one version may stand for two changes.
            _ => {
                self.mounted.nodes.becomes_stale(node);
                true
            }
        };
        self.expire(node, pages).await;
    }

    async fn take(&self, at: &At, lock: &Lock) -> Result<(), Failure> {
        match self.fs.lock(&self.call(), at, lock, Wait::No).await {
            Ok(_) => Ok(()),
            // The table of locks is full: fcntl's own word for that.
            Err(error) => Err(Failure::from(error).shown(ErrorKind::Busy, Errno::NOLCK)),
        }
    }

    /// Waits as long as it takes, a slice at a time, so that a node that is gone is
    /// noticed. Dropped when the waiting program is interrupted.
    async fn wait_for(&self, at: &At, lock: &Lock) -> Result<(), Failure> {
        loop {
            let call = self.call_within(limits::CALL_DEADLINE);
            let until =
                Deadline::within(&*self.mounted.clock, limits::LOCK_WAIT_SLICE.min(self.mounted.patience));
            match self.fs.lock(&call, at, lock, Wait::Until(until)).await {
                Ok(_) => return Ok(()),
                Err(_) if self.is_shut() => return Err(Errno::BADF.into()),
                Err(error) if error.kind() == ErrorKind::Locked => {}
                Err(error) => return Err(Failure::from(error).shown(ErrorKind::Busy, Errno::NOLCK)),
            }
        }
    }

    /// A descriptor was closed: its process's `fcntl` locks on the file go, as POSIX has it. Whether or not that is done by
    /// the time it is answered, and another descriptor of the file stays open.
    pub(super) async fn flush(self: &Arc<Self>, node: u64, owner: u64) -> Outcome {
        let locker = Locker { file: self.mounted.nodes.file(node)?, owner, whole: false };
        if let Some(asked) = self.lockers.asked(locker) {
            self.giving_up(locker, asked).end().await?;
        }
        done()
    }

    /// An open file was closed for good: whatever was locked through it and not given up yet
    /// goes. Of that are `flock`'s locks, open file description locks, and what a close could
    /// not give up. Nobody waits for it, so it is tried until it is done.
    pub(super) async fn unlock_all(self: &Arc<Self>, handle: u64) {
        let through = self.lockers.through(handle).into_iter();
        let all: Vec<_> = through.map(|(locker, asked)| self.giving_up(locker, asked)).collect();
        for one in all {
            // What failed is said, and tried again.
            let _ = one.end().await;
        }
    }

    /// Gives up what was locked through open files that are not open: a process before this one did not get to it.
    pub(crate) fn give_up_forgotten(self: &Arc<Self>) {
        for (locker, asked) in self.lockers.forgotten(|handle| self.handles.find(handle).is_ok()) {
            self.lockers.forget_handle(locker, asked);
            tokio::spawn(self.clone().give_up_later(locker, asked));
        }
    }

    /// Begins to give up what a locker may hold, which goes on by itself if it is not waited for.
    fn giving_up(self: &Arc<Self>, locker: Locker, asked: Asked) -> GivingUp {
        // At once: who asks again waits until it is done.
        let is_first = self.lockers.forget_handle(locker, asked);
        GivingUp { door: self.clone(), locker, asked, is_first, is_done: false }
    }

    /// Gives up all that a locker may hold, unless it asked again meanwhile. It is forgotten only once that is done. Of one
    /// locker one at a time, and to its end whoever waits: what comes to the node later would take what was asked for since.
    async fn give_up(self: &Arc<Self>, locker: Locker, asked: Asked) -> Result<(), Error> {
        let door = self.clone();
        let given_up = tokio::spawn(async move {
            let _permit = door.unlocks.acquire().await;
            let Some(turn) = door.lockers.turn(locker) else { return Ok(()) };
            let _turn = turn.lock().await;
            if door.lockers.asked(locker) != Some(asked) {
                return Ok(());
            }
            let all = LockScope::Range(LockRange { at: 0, length: 0 });
            let scope = if locker.whole { LockScope::Whole } else { all };
            let lock = lock_of(locker.owner, LockKind::Exclusive, scope);
            match door.fs.unlock(&door.call(), &At::id(locker.file), &lock).await {
                // With the file its locks went.
                Err(error) if !matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => Err(error),
                _ => {
                    door.lockers.gave_up(locker, asked);
                    Ok(())
                }
            }
        });
        given_up.await.unwrap_or_else(|error| Err(Error::internal("it was stopped").caused_by(error)))
    }

    /// Tries until it is done, however long the node is away or refuses: while its session lives on, so does the lock. The
    /// session of a user who was let go, and whom the node does not hear any more, has ended once it was idle.
    async fn give_up_later(self: Arc<Self>, locker: Locker, asked: Asked) {
        let mut refused_for = Duration::ZERO;
        // Who asked again has given up before.
        while self.lockers.asked(locker) == Some(asked) {
            let is_old = refused_for >= limits::SESSION_IDLE;
            tokio::time::sleep(if is_old { limits::SESSION_IDLE } else { limits::MOUNT_UNLOCK_REST }).await;
            match self.give_up(locker, asked).await {
                Ok(()) => return,
                Err(error) if is_away(error.kind()) => refused_for = Duration::ZERO,
                Err(error) if is_old && self.is_shut() && is_unheard(&error) => {
                    return self.lockers.gave_up(locker, asked);
                }
                Err(error) => {
                    refused_for += limits::MOUNT_UNLOCK_REST;
                    if refused_for == limits::SESSION_IDLE {
                        let file = locker.file;
                        tracing::error!(%file, %error, "a lock that nobody holds any more cannot be given up");
                    }
                }
            }
        }
    }

    /// Returns the process that holds a lock; 0 if it is none of this mount's.
    fn holder(&self, file: FileId, owner: &LockOwner) -> u32 {
        let Ok(owner) = <[u8; 8]>::try_from(&owner.0[..]) else { return 0 };
        self.lockers.pid(Locker { file, owner: u64::from_be_bytes(owner), whole: false })
    }
}

/// A lock that nobody holds any more, being given up. Dropped before that is done, because it failed or nobody waits, it
/// goes on by itself, and in the next process should this one die.
struct GivingUp {
    door: Arc<Door>,
    locker: Locker,
    asked: Asked,
    /// Whether nobody else is at it.
    is_first: bool,
    is_done: bool,
}

impl GivingUp {
    /// Gives it up now, if that can be had. Fails as [`weft_core::form::FileSystem::unlock`] does.
    async fn end(mut self) -> Result<(), Failure> {
        let given_up = self.door.give_up(self.locker, self.asked).await;
        self.is_done = given_up.is_ok();
        Ok(given_up.inspect_err(|error| {
            tracing::warn!(file = %self.locker.file, %error, "a lock could not be given up yet");
        })?)
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        // A runtime that stops takes the mount with it.
        if !self.is_done
            && self.is_first
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(self.door.clone().give_up_later(self.locker, self.asked));
        }
    }
}

/// Whether a failure says that the node hears nothing more by the caller's proof.
fn is_unheard(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Expired | ErrorKind::Revoked | ErrorKind::Unauthenticated)
}

/// Returns the locks that programs on the mount hold, as they are remembered, for the file system to hold on to.
pub fn remembered_locks(remembered: &Remembered) -> Vec<(At, Lock)> {
    let held = lockers::remembered(remembered).into_iter();
    held.map(|(locker, scope, kind)| (At::id(locker.file), lock_of(locker.owner, kind, scope))).collect()
}

fn wanted(asked: &LockIn) -> Result<Lock, Errno> {
    let kind = match asked.kind {
        lock::READ => LockKind::Shared,
        // An unlock says no kind; what is given up may be of either.
        lock::WRITE | lock::UNLOCK => LockKind::Exclusive,
        _ => return Err(Errno::INVAL),
    };
    let scope = if asked.flock {
        LockScope::Whole
    } else {
        let length =
            if asked.end >= lock::TO_THE_END { 0 } else { (asked.end + 1).saturating_sub(asked.start) };
        LockScope::Range(LockRange { at: asked.start, length })
    };
    Ok(lock_of(asked.owner, kind, scope))
}

fn lock_of(owner: u64, kind: LockKind, scope: LockScope) -> Lock {
    let mut bytes = BytesMut::with_capacity(8);
    bytes.put_u64(owner);
    Lock { scope, kind, owner: LockOwner(bytes.freeze()) }
}

fn last_byte(range: LockRange) -> u64 {
    if range.length == 0 { lock::TO_THE_END } else { range.end() - 1 }
}
