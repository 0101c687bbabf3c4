//! The small services that doors need around a file system, over the test domain.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use weft_core::form::{Call, Origin};
use weft_core::name_locks::{LockToken, NameLock, NameLockTable, NameLockWanted, Permit, Touch};
use weft_core::proof::{Attenuation, Caller, Signed};
use weft_core::service::{
    Authority, Evidence, NameLocks, Revoke, Secret, SessionGrant, SessionWatcher, Sessions,
};
use weft_core::{CallerId, CallerName, Error, ErrorKind, RelPath, Result, SessionId, Time};

use crate::TestDomain;

/// An authority over a test domain: tokens it signed, and a table of passwords.
pub struct TestAuthority {
    domain: Arc<TestDomain>,
    passwords: Mutex<HashMap<String, String>>,
}

impl TestAuthority {
    /// Makes an authority that knows these users and passwords.
    pub fn new(domain: Arc<TestDomain>, passwords: &[(&str, &str)]) -> Arc<Self> {
        let passwords =
            passwords.iter().map(|(user, password)| (user.to_string(), password.to_string())).collect();
        Arc::new(Self { domain, passwords: Mutex::new(passwords) })
    }

    /// Gives a user another password, and ends nothing.
    pub fn set_password(&self, user: &str, password: &str) {
        self.passwords().insert(user.to_owned(), password.to_owned());
    }

    fn passwords(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.passwords.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Authority for TestAuthority {
    async fn authenticate(&self, evidence: &Evidence, _: Origin) -> Result<Caller> {
        let refused = || Error::new(ErrorKind::Unauthenticated, "the user or the password is wrong");
        match evidence {
            Evidence::None | Evidence::SocketUid(_) => Ok(Caller::anyone()),
            Evidence::Password { user, password } => match self.passwords().get(user) {
                Some(known) if known == password.expose() => Ok(self.domain.caller(user)),
                _ => Err(refused()),
            },
            Evidence::Link(_) => Err(Error::not_found("there is no such link")),
            Evidence::Certificate(_) => Err(refused()),
            Evidence::Token(token) => {
                let (domain, now) = (&self.domain, self.domain.clock().moment());
                Caller::verify(
                    &Signed::from_token(token.expose())?,
                    domain.trust(),
                    domain.revocations(),
                    now,
                )
            }
        }
    }

    async fn credential(&self, caller: &Caller, limits: &Attenuation, life: Duration) -> Result<Signed> {
        let mut claims = caller.claims().clone();
        claims.limits = caller.limits().narrowed(limits)?;
        claims.expires = claims.expires.min(self.domain.clock().now().plus(life));
        Ok(self.domain.credential(&claims))
    }

    async fn name_of(&self, id: CallerId) -> Result<Option<CallerName>> {
        Ok(self.passwords().keys().map(|user| self.domain.name(user)).find(|name| name.id() == id))
    }

    async fn revoke(&self, _: &Caller, what: &Revoke) -> Result<()> {
        match what {
            Revoke::Credential(id) | Revoke::AnyCredential(id) => {
                self.domain.revocations().end_credential(*id, Time::MAX)
            }
            Revoke::Caller(name) | Revoke::AnyCaller(name) => {
                self.domain.revocations().end_caller(name.id(), self.domain.clock().now())
            }
            Revoke::Capability(id, rights) => self.domain.revocations().withdraw(*id, *rights, Time::MAX),
            Revoke::Container(id) => self.domain.revocations().begin_epoch(*id, u64::MAX),
        }
        Ok(())
    }
}

/// Sessions that end only when they are told to.
#[derive(Default)]
pub struct TestSessions(Mutex<SessionTable>);

#[derive(Default)]
struct SessionTable {
    last: u128,
    alive: HashMap<SessionId, String>,
    watchers: Vec<Arc<dyn SessionWatcher>>,
}

impl TestSessions {
    fn table(&self) -> std::sync::MutexGuard<'_, SessionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many sessions are alive.
    pub fn alive(&self) -> usize {
        self.table().alive.len()
    }
}

impl Sessions for TestSessions {
    fn begin(&self, _: &Caller, _: Origin) -> Result<SessionGrant> {
        let mut table = self.table();
        table.last += 1;
        let (id, secret) = (SessionId(1 << 64 | table.last), format!("secret {}", table.last));
        table.alive.insert(id, secret.clone());
        Ok(SessionGrant { id, secret: Secret::new(secret) })
    }

    fn resume(&self, _: &Caller, grant: &SessionGrant, _: Origin) -> Result<()> {
        match self.table().alive.get(&grant.id) {
            Some(secret) if secret == grant.secret.expose() => Ok(()),
            _ => Err(Error::stale("the session has ended")),
        }
    }

    fn renew(&self, session: SessionId) -> Result<()> {
        let alive = self.table().alive.contains_key(&session);
        if alive { Ok(()) } else { Err(Error::stale("the session has ended")) }
    }

    fn end(&self, session: SessionId) {
        let mut table = self.table();
        let (was_alive, watchers) = (table.alive.remove(&session).is_some(), table.watchers.clone());
        drop(table);
        if was_alive {
            watchers.iter().for_each(|watcher| watcher.ended(session));
        }
    }

    fn watch(&self, watcher: Arc<dyn SessionWatcher>) {
        self.table().watchers.push(watcher);
    }
}

/// Locks of names in memory: whoever asks has the right.
#[derive(Default)]
pub struct TestNameLocks {
    table: Arc<NameLockTable>,
    given: AtomicU64,
}

impl TestNameLocks {
    fn now(call: &Call) -> Time {
        call.caller.claims().issued
    }
}

#[async_trait]
impl NameLocks for TestNameLocks {
    async fn lock(&self, call: &Call, wanted: NameLockWanted) -> Result<NameLock> {
        let token = LockToken::of_random(u128::from(self.given.fetch_add(1, Ordering::Relaxed)) + 1);
        let until = Self::now(call).plus(wanted.lasts);
        let lock = NameLock { token, wanted, holder: call.caller.name().clone(), until };
        self.table.take_once_free(&lock, || Self::now(call)).await?;
        Ok(lock)
    }

    async fn refresh(
        &self,
        call: &Call,
        path: &RelPath,
        shown: &[LockToken],
        lasts: Duration,
    ) -> Result<NameLock> {
        let now = Self::now(call);
        self.table.refresh(call.caller.name(), path, shown, now.plus(lasts), now)
    }

    async fn unlock(&self, call: &Call, path: &RelPath, token: LockToken) -> Result<()> {
        if self.table.covering_with(token, path, Self::now(call))?.holder != *call.caller.name() {
            return Err(Error::new(ErrorKind::Denied, "not yours"));
        }
        self.table.drop_lock(token);
        Ok(())
    }

    fn covering(&self, path: &RelPath) -> Vec<NameLock> {
        self.table.covering(path, Time::EPOCH)
    }

    fn permit(&self, call: &Call, touches: Vec<Touch>, shown: &[LockToken]) -> Result<Permit> {
        self.table.permit(call.caller.name(), touches, shown, Self::now(call))
    }

    async fn gone(&self, path: &RelPath) {
        self.table.below(path).into_iter().for_each(|token| self.table.drop_lock(token));
    }
}
