//! Locks of names, kept over a restart: the table of `weft_core::name_locks` with a row behind each
//! lock.
//!
//! The rows belong to the node, not to a volume: a name may lie in any of them, and a deep lock reach
//! over several. A row that is not read back, or whose time is over, is dropped at the start: a lock is
//! a promise among clients for at most an hour, no one's data.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_core::form::{Ack, At, Call, FileSystem, Want};
use weft_core::name_locks::{LockToken, NameLock, NameLockTable, NameLockWanted, Permit, Touch};
use weft_core::service::NameLocks;
use weft_core::{Error, ErrorKind, RelPath, Result, Rights, Time, limits};
use weft_kv::{Engine, Order, Read, Schema, Space, SpaceId, SpaceTxn, Txn, prefix_end};
use weft_sys::Sys;

use crate::managed::row::{Row, decode, encode};

/// The schema of the table.
pub const SCHEMA: Schema = Schema { version: 1, migrations: &[] };

/// The table's keys begin with this byte, which is on disk for good.
const LOCK: u8 = 0x01;

/// What whoever may do any of it may lock: nobody else has a reason to keep others from it.
const CHANGING: Rights = Rights::from_bits(
    Rights::WRITE.bits()
        | Rights::APPEND.bits()
        | Rights::INSERT.bits()
        | Rights::REMOVE.bits()
        | Rights::ATTR_WRITE.bits(),
);

impl Row for NameLock {
    const WHAT: &'static str = "lock of a name";
}

/// Locks of the names of one tree.
pub struct KeptNameLocks {
    sys: Sys,
    fs: Arc<dyn FileSystem>,
    space: Space,
    table: Arc<NameLockTable>,
}

impl KeptNameLocks {
    /// Opens the table: the locks whose time is not over hold again. Fails as [`Space::open`] does.
    pub async fn open(
        sys: Sys,
        fs: Arc<dyn FileSystem>,
        engine: Arc<dyn Engine>,
        space: SpaceId,
    ) -> Result<Self> {
        let space = Space::open(engine, space, &SCHEMA).await?;
        let own = Self { sys, fs, space, table: Arc::default() };
        own.restore().await?;
        Ok(own)
    }

    async fn restore(&self) -> Result<()> {
        let now = self.now();
        let mut over = Vec::new();
        for row in self.space.snapshot()?.scan(&[LOCK], &prefix_end(&[LOCK]), Order::Rising) {
            let (key, value) = row?;
            match decode::<NameLock>(&key, &value) {
                Ok(lock) if now < lock.until => self.table.restore(lock),
                Ok(_) => over.push(key.to_vec()),
                Err(error) => {
                    tracing::warn!(%error, "a lock of a name is lost");
                    over.push(key.to_vec());
                }
            }
        }
        if over.is_empty() {
            return Ok(());
        }
        let drop_rows = move |txn: &mut SpaceTxn<'_>| over.iter().try_for_each(|key| txn.delete(key));
        self.space.write(Ack::Applied, drop_rows).await.map(|_| ())
    }

    fn now(&self) -> Time {
        self.sys.clock().now()
    }

    async fn put(&self, lock: &NameLock) -> Result<()> {
        let lock = lock.clone();
        let put = move |txn: &mut SpaceTxn<'_>| {
            let key = key_of(lock.token);
            txn.put(&key, &encode(&key, &lock)?)
        };
        self.space.write(Ack::Durable, put).await.map(|_| ())
    }

    /// Ends locks, in memory and on disk.
    async fn end(&self, tokens: Vec<LockToken>, ack: Ack) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        tokens.iter().for_each(|token| self.table.drop_lock(*token));
        let drop_rows =
            move |txn: &mut SpaceTxn<'_>| tokens.iter().try_for_each(|token| txn.delete(&key_of(*token)));
        self.space.write(ack, drop_rows).await.map(|_| ())
    }

    async fn rights(&self, call: &Call, path: &RelPath) -> Result<Rights> {
        let at = At::root(path.clone()).following();
        let want = Want { rights: true, attr: false };
        Ok(self.fs.walk(call, &at, want).await?.rights.unwrap_or(Rights::NONE))
    }

    /// Checks that the caller may lock what has the name, or make something of that name.
    async fn check_right(&self, call: &Call, path: &RelPath) -> Result<()> {
        let denied = |right: Rights| {
            Error::new(ErrorKind::Denied, format!("locking it needs `{right}`"))
                .about(format_args!("/{path}"))
        };
        match (self.rights(call, path).await, path.split_last()) {
            (Ok(rights), _) if !rights.contains(Rights::LOCK) => Err(denied(Rights::LOCK)),
            // Whoever reads may lock bytes; this would keep others from writing.
            (Ok(rights), _) if !rights.intersects(CHANGING) => Err(denied(Rights::WRITE)),
            (Ok(_), _) => Ok(()),
            (Err(error), Some((directory, _))) if error.kind() == ErrorKind::NotFound => {
                let rights = self.rights(call, &directory).await?;
                if rights.contains(Rights::INSERT) { Ok(()) } else { Err(denied(Rights::INSERT)) }
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Checks that the credential is good for a lock of its caller's: one that was narrowed is less than who took it.
    async fn check_carried(&self, call: &Call, lock: &NameLock) -> Result<()> {
        match call.caller.is_narrowed() {
            true => self.check_right(call, &lock.wanted.path).await,
            false => Ok(()),
        }
    }

    /// Takes the lock once no change that it would cover is under way.
    async fn taken(&self, call: &Call, lock: &NameLock) -> Result<()> {
        match self.sys.within(call.until, self.table.take_once_free(lock, || self.now())).await {
            Err(error) if error.kind() == ErrorKind::Deadline => {
                Err(Error::new(ErrorKind::Locked, "a change of it is not through")
                    .about(format_args!("/{}", lock.wanted.path)))
            }
            outcome => outcome,
        }
    }
}

#[async_trait]
impl NameLocks for KeptNameLocks {
    async fn lock(&self, call: &Call, wanted: NameLockWanted) -> Result<NameLock> {
        call.caller.live(self.sys.clock().moment())?;
        self.check_right(call, &wanted.path).await?;
        self.end(self.table.over(self.now()), Ack::Applied).await?;
        let lasts = wanted.lasts.min(limits::NAME_LOCK_LASTS_MAX);
        let wanted = NameLockWanted { lasts, ..wanted };
        let random = self.sys.random();
        let token = LockToken::of_random(u128::from(random.u64()) << 64 | u128::from(random.u64()));
        let until = self.now().plus(lasts);
        let lock = NameLock { token, wanted, holder: call.caller.name().clone(), until };
        self.taken(call, &lock).await?;
        if let Err(error) = self.put(&lock).await {
            self.table.drop_lock(token);
            return Err(error);
        }
        Ok(lock)
    }

    async fn refresh(
        &self,
        call: &Call,
        path: &RelPath,
        shown: &[LockToken],
        lasts: Duration,
    ) -> Result<NameLock> {
        call.caller.live(self.sys.clock().moment())?;
        for lock in shown.iter().filter_map(|token| self.table.covering_with(*token, path, self.now()).ok()) {
            self.check_carried(call, &lock).await?;
        }
        let now = self.now();
        let until = now.plus(lasts.min(limits::NAME_LOCK_LASTS_MAX));
        let lock = self.table.refresh(call.caller.name(), path, shown, until, now)?;
        self.put(&lock).await?;
        // It may have been given up while it was written.
        if self.table.find(lock.token, now).is_none() {
            self.end(vec![lock.token], Ack::Durable).await?;
        }
        Ok(lock)
    }

    async fn unlock(&self, call: &Call, path: &RelPath, token: LockToken) -> Result<()> {
        call.caller.live(self.sys.clock().moment())?;
        let lock = self.table.covering_with(token, path, self.now())?;
        if lock.holder != *call.caller.name() {
            let rights = self.rights(call, &lock.wanted.path).await?;
            if !rights.contains(Rights::ACL_WRITE) {
                return Err(Error::new(ErrorKind::Denied, "the lock is somebody else's"));
            }
        } else {
            self.check_carried(call, &lock).await?;
        }
        self.end(vec![token], Ack::Durable).await
    }

    fn covering(&self, path: &RelPath) -> Vec<NameLock> {
        self.table.covering(path, self.now())
    }

    fn permit(&self, call: &Call, touches: Vec<Touch>, shown: &[LockToken]) -> Result<Permit> {
        self.table.permit(call.caller.name(), touches, shown, self.now())
    }

    async fn gone(&self, path: &RelPath) {
        if let Err(error) = self.end(self.table.below(path), Ack::Applied).await {
            tracing::warn!(%error, "locks of a name that has gone stay on disk until their time is over");
        }
    }
}

fn key_of(token: LockToken) -> Vec<u8> {
    [&[LOCK][..], &token.0.to_be_bytes()].concat()
}
