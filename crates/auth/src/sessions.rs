//! Sessions, in memory; what proves one after a restart needs no row.
//!
//! A session's id holds the number of the start that made it and 96 random bits; its secret is a
//! keyed hash of the id and its caller, under a key the domain keeps. So for
//! [`limits::SESSION_GRACE`] after a start, whoever shows the right secret takes the session up
//! again, without the node having written anything when it was begun: most sessions (one per HTTP
//! connection) hold nothing worth a row. What this costs: within that grace the holder of the
//! secret can also take up a session that had ended before the restart. It comes back empty, as a
//! new one would; nobody else can, and the opens and locks it had are gone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use subtle::ConstantTimeEq;
use weft_core::form::Origin;
use weft_core::proof::Caller;
use weft_core::service::{SessionGrant, SessionSecret, SessionWatcher, Sessions};
use weft_core::{CallerId, Error, ErrorKind, Result, SessionId, Tick, limits};
use weft_sys::{Sys, Task};

use crate::checks::Place;

/// How many parts the table is split into, so that calls of different sessions do not meet.
const SHARDS: usize = 16;

/// Whose sessions are counted together: anyone is many, so theirs are by where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    Caller(CallerId),
    Anyone(Place),
}

impl Whose {
    fn of(caller: &Caller, from: Origin) -> Self {
        if caller.is_anyone() { Self::Anyone(from.into()) } else { Self::Caller(caller.name().id()) }
    }
}

struct Session {
    whose: Whose,
    used: AtomicU64,
}

/// How many sessions there are, and of whom.
#[derive(Default)]
struct Places {
    all: usize,
    of: HashMap<Whose, usize>,
}

impl Places {
    fn take(&mut self, whose: Whose) -> Result<()> {
        let own = self.of.get(&whose).copied().unwrap_or(0);
        if own >= limits::SESSIONS_PER_CALLER_MAX {
            return Err(Error::new(ErrorKind::Busy, "the caller has as many sessions as one may")
                .hint("end some, or wait: those that nobody uses end by themselves"));
        }
        if self.all >= limits::SESSIONS_MAX {
            return Err(Error::new(ErrorKind::Busy, "the node has as many sessions as it may"));
        }
        self.all += 1;
        self.of.insert(whose, own + 1);
        Ok(())
    }

    fn give_back(&mut self, whose: Whose) {
        self.all -= 1;
        if let Entry::Occupied(mut own) = self.of.entry(whose) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// The sessions of this start.
pub(crate) struct MemSessions {
    sys: Sys,
    key: [u8; 32],
    start: u32,
    grace_ends: Tick,
    shards: [RwLock<HashMap<SessionId, Session>>; SHARDS],
    places: Mutex<Places>,
    watchers: Mutex<Vec<Arc<dyn SessionWatcher>>>,
}

impl MemSessions {
    /// Makes the sessions of start number `start`; `mark` is the domain's.
    pub(crate) fn new(sys: Sys, mark: &[u8; 32], start: u32) -> Self {
        let grace_ends = sys.clock().tick().plus(limits::SESSION_GRACE);
        Self {
            sys,
            key: blake3::derive_key("weft session secret v1", mark),
            start,
            grace_ends,
            shards: std::array::from_fn(|_| RwLock::default()),
            places: Mutex::default(),
            watchers: Mutex::default(),
        }
    }

    /// Ends sessions that nobody uses, for as long as the task lives.
    pub(crate) fn sweep(self: &Arc<Self>) -> Task<()> {
        let sessions = Arc::downgrade(self);
        let sys = self.sys.clone();
        self.sys.spawn(async move {
            loop {
                sys.sleep(limits::SESSION_SWEEP).await;
                let Some(sessions) = sessions.upgrade() else { return };
                sessions.end_idle();
            }
        })
    }

    fn end_idle(&self) {
        let now = self.sys.clock().tick();
        let idle =
            |session: &Session| now.since(Tick(session.used.load(Ordering::Acquire))) >= limits::SESSION_IDLE;
        for shard in &self.shards {
            let ended: Vec<SessionId> =
                read(shard).iter().filter(|(_, s)| idle(s)).map(|(id, _)| *id).collect();
            for id in ended {
                // It may have been used since.
                self.end_if(id, idle);
            }
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.places().all as u64
    }

    fn shard(&self, id: SessionId) -> &RwLock<HashMap<SessionId, Session>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    fn secret(&self, id: SessionId, caller: CallerId) -> SessionSecret {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&id.0.to_be_bytes());
        hasher.update(&caller.0.to_be_bytes());
        let hash = hasher.finalize();
        SessionSecret::new(data_encoding::BASE32_NOPAD.encode(&hash.as_bytes()[..20]).to_ascii_lowercase())
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: SessionId, whose: Whose) -> Result<()> {
        self.places().take(whose)?;
        let session = Session { whose, used: AtomicU64::new(self.sys.clock().tick().0) };
        if write(self.shard(id)).insert(id, session).is_some() {
            // Two connections took it up at once: it is one session.
            self.places().give_back(whose);
        }
        Ok(())
    }

    /// Notes that a session is used. Returns whether it is there.
    fn use_now(&self, id: SessionId) -> bool {
        let shard = read(self.shard(id));
        let session = shard.get(&id);
        session.inspect(|session| session.used.store(self.sys.clock().tick().0, Ordering::Release)).is_some()
    }

    fn end_if(&self, id: SessionId, over: impl FnOnce(&Session) -> bool) {
        let ended = match write(self.shard(id)).entry(id) {
            Entry::Occupied(session) if over(session.get()) => session.remove(),
            _ => return,
        };
        self.places().give_back(ended.whose);
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        watchers.iter().for_each(|watcher| watcher.ended(id));
    }

    /// Whether a session that is not here may be one from before this start.
    fn may_return(&self, id: SessionId) -> bool {
        let made = (id.0 >> 96) as u32;
        made < self.start
            && self.start - made <= limits::SESSION_BOOTS_MAX
            && self.sys.clock().tick() < self.grace_ends
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn ended() -> Error {
    Error::stale("the session has ended")
}

impl Sessions for MemSessions {
    fn begin(&self, caller: &Caller, from: Origin) -> Result<SessionGrant> {
        let mut random = [0; 12];
        self.sys.random().fill(&mut random);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.start.to_be_bytes());
        bytes[4..].copy_from_slice(&random);
        let id = SessionId(u128::from_be_bytes(bytes));
        self.add(id, Whose::of(caller, from))?;
        Ok(SessionGrant { id, secret: self.secret(id, caller.name().id()) })
    }

    fn resume(&self, caller: &Caller, grant: &SessionGrant, from: Origin) -> Result<()> {
        let right = self.secret(grant.id, caller.name().id());
        if !bool::from(right.expose().as_bytes().ct_eq(grant.secret.expose().as_bytes())) {
            return Err(Error::stale("the session has ended, or it is another caller's"));
        }
        if self.use_now(grant.id) {
            return Ok(());
        }
        if self.may_return(grant.id) { self.add(grant.id, Whose::of(caller, from)) } else { Err(ended()) }
    }

    fn renew(&self, session: SessionId) -> Result<()> {
        if self.use_now(session) { Ok(()) } else { Err(ended()) }
    }

    fn end(&self, session: SessionId) {
        self.end_if(session, |_| true);
    }

    fn watch(&self, watcher: Arc<dyn SessionWatcher>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(watchers.len() < limits::SESSION_WATCHERS_MAX, "watchers are wired once, at the start");
        watchers.push(watcher);
    }
}
