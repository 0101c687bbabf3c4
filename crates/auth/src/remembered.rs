//! Callers whose evidence was verified a moment ago, so that repeating it costs a hash.
//!
//! What is found here is still a lease: whoever takes it out asks whether it is live. Passwords
//! and tokens are kept as hashes keyed anew at each start.

use quick_cache::sync::Cache;
use weft_core::proof::Caller;
use weft_core::service::Secret;
use weft_core::{CallerId, LinkId, Tick, TokenId, limits};
use weft_sys::Random;

/// A hash of evidence.
type Hash = [u8; 32];

#[derive(Clone)]
struct Until {
    caller: Caller,
    until: Tick,
}

/// The caches.
pub(crate) struct Remembered {
    key: [u8; 32],
    passwords: Cache<Hash, Until>,
    tokens: Cache<Hash, Caller>,
    uids: Cache<u32, Until>,
    /// By links' ids, which are hashes already.
    links: Cache<LinkId, Caller>,
    /// By the ids of programs' tokens, the same.
    by_tokens: Cache<TokenId, Until>,
    /// Tokens of issuers.
    issued: Cache<Hash, Until>,
}

impl Remembered {
    pub(crate) fn new(random: &dyn Random) -> Self {
        let mut key = [0; 32];
        random.fill(&mut key);
        Self {
            key,
            passwords: Cache::new(limits::CALLERS_CACHED_MAX),
            tokens: Cache::new(limits::CALLERS_CACHED_MAX),
            uids: Cache::new(limits::CALLERS_CACHED_MAX),
            links: Cache::new(limits::CALLERS_CACHED_MAX),
            by_tokens: Cache::new(limits::CALLERS_CACHED_MAX),
            issued: Cache::new(limits::CALLERS_CACHED_MAX),
        }
    }

    fn hash(&self, parts: [&str; 2]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    pub(crate) fn password(&self, user: &str, password: &Secret, now: Tick) -> Option<Caller> {
        let found = self.passwords.get(&self.hash([user, password.expose()]))?;
        (now < found.until).then_some(found.caller)
    }

    pub(crate) fn keep_password(&self, user: &str, password: &Secret, caller: &Caller, now: Tick) {
        let until = now.plus(limits::PASSWORD_REMEMBERED);
        self.passwords.insert(self.hash([user, password.expose()]), Until { caller: caller.clone(), until });
    }

    pub(crate) fn token(&self, token: &Secret) -> Option<Caller> {
        self.tokens.get(&self.hash(["", token.expose()]))
    }

    pub(crate) fn keep_token(&self, token: &Secret, caller: &Caller) {
        self.tokens.insert(self.hash(["", token.expose()]), caller.clone());
    }

    pub(crate) fn link(&self, id: LinkId) -> Option<Caller> {
        self.links.get(&id)
    }

    pub(crate) fn keep_link(&self, id: LinkId, caller: &Caller) {
        self.links.insert(id, caller.clone());
    }

    pub(crate) fn by_token(&self, id: TokenId, now: Tick) -> Option<Caller> {
        let found = self.by_tokens.get(&id)?;
        (now < found.until).then_some(found.caller)
    }

    pub(crate) fn keep_by_token(&self, id: TokenId, caller: &Caller, now: Tick) {
        let until = now.plus(limits::TOKEN_REMEMBERED);
        self.by_tokens.insert(id, Until { caller: caller.clone(), until });
    }

    pub(crate) fn issued(&self, token: &Secret, now: Tick) -> Option<Caller> {
        let found = self.issued.get(&self.hash(["issued", token.expose()]))?;
        (now < found.until).then_some(found.caller)
    }

    pub(crate) fn keep_issued(&self, token: &Secret, caller: &Caller, now: Tick) {
        let until = now.plus(limits::ISSUED_REMEMBERED);
        self.issued.insert(self.hash(["issued", token.expose()]), Until { caller: caller.clone(), until });
    }

    /// Returns who a uid is: `anyone` too is remembered.
    pub(crate) fn uid(&self, uid: u32, now: Tick) -> Option<Caller> {
        let found = self.uids.get(&uid)?;
        (now < found.until).then_some(found.caller)
    }

    pub(crate) fn keep_uid(&self, uid: u32, caller: &Caller, now: Tick) {
        let until = now.plus(limits::CREDENTIAL_LIFE / 2);
        self.uids.insert(uid, Until { caller: caller.clone(), until });
    }

    /// Forgets a caller's passwords, and who any uid is. Tokens end with their leases.
    pub(crate) fn forget(&self, caller: CallerId) {
        self.passwords.retain(|_, found| found.caller.name().id() != caller);
        self.uids.clear();
    }
}
