//! An issuer's keys as they are had: fetched, kept for a while, fetched again.
//!
//! ```text
//!   younger than an hour        used
//!   an hour to six              used, and fetched again beside
//!   six to 24                   fetched first; used where that fails
//!   older, or none              fetched first; nothing is believed where that fails
//!   a key that is not there     fetched first, once a minute, whoever asks
//! ```
//!
//! One fetch at a time, to its end though nobody waits for it any more. Whoever waits does so for a bounded time, beside
//! a bounded number of others, and holds no thread.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use weft_core::{Deadline, Error, ErrorKind, Result, Tick, limits};
use weft_sys::Sys;

use super::keys::KeySet;

/// Gets what issuers publish. Auth itself speaks to nobody.
#[async_trait]
pub trait Documents: Debug + Send + Sync {
    /// Returns the document at an `https:` address, of at most [`limits::ISSUER_DOCUMENT_BYTES_MAX`], from the very
    /// server that is named: who sends on to another place is refused.
    async fn document(&self, url: &str) -> Result<Bytes>;
}

/// The keys of one issuer.
pub(super) struct PublishedKeys {
    sys: Sys,
    url: String,
    documents: Arc<dyn Documents>,
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    kept: Option<(Arc<KeySet>, Tick)>,
    /// When the last fetch was begun.
    tried: Option<Tick>,
    /// Why it failed, if it did.
    failed: Option<String>,
}

/// What is to be done for who needs a key.
enum Need {
    Use(Arc<KeySet>),
    /// The same, and fetch them beside.
    Renew(Arc<KeySet>),
    Fetch,
    /// It was tried a moment ago.
    GiveUp,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// Counts one of those who wait, or fetch.
struct Waiter(Arc<PublishedKeys>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl PublishedKeys {
    pub(super) fn new(sys: Sys, url: String, documents: Arc<dyn Documents>) -> Arc<Self> {
        let (state, turn, waiting) = (Mutex::default(), tokio::sync::Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { sys, url, documents, state, turn, waiting })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys by which to verify what needs a key that `has` finds: without it, if the issuer has none such.
    /// `Unavailable` if there are none, or none young enough; `Busy` if too many wait for them.
    pub(super) async fn keys(self: &Arc<Self>, has: impl Fn(&KeySet) -> bool) -> Result<Arc<KeySet>> {
        let now = self.sys.clock().tick();
        match self.need(now, &has) {
            Need::Use(keys) => return Ok(keys),
            Need::Renew(keys) => {
                // Too many already wait for the same.
                if let Ok(waiter) = self.waiter() {
                    drop(self.sys.spawn(Self::fetch(waiter, now)));
                }
                return Ok(keys);
            }
            Need::Fetch => {
                let fetched = self.sys.spawn(Self::fetch(self.waiter()?, now));
                let deadline = Deadline::within(self.sys.clock(), limits::ISSUER_WAIT);
                self.sys.within(deadline, fetched).await.map_err(|error| self.none().caused_by(error))?;
            }
            Need::GiveUp => {}
        }
        let (now, state) = (self.sys.clock().tick(), self.state());
        let young = |kept: &&(_, Tick)| now.since(kept.1) < limits::ISSUER_KEYS_STALE;
        let keys = state.kept.as_ref().filter(young).map(|(keys, _)| keys.clone());
        keys.ok_or_else(|| self.none())
    }

    /// Says what does not work, if something does not.
    pub(super) fn trouble(&self) -> Option<String> {
        let (now, state) = (self.sys.clock().tick(), self.state());
        let why = state.failed.as_ref()?;
        let age = state.kept.as_ref().map(|(_, at)| now.since(*at));
        Some(match age.filter(|age| *age < limits::ISSUER_KEYS_STALE) {
            Some(age) => format!("those of {} minutes ago count: {why}", age.as_secs() / 60),
            None => format!("none of its tokens is taken: {why}"),
        })
    }

    fn none(&self) -> Error {
        Error::new(ErrorKind::Unavailable, "the keys of the token's issuer cannot be had")
            .about(&self.url)
            .hint("try again in a minute; weft status says why")
    }

    fn need(&self, now: Tick, has: impl Fn(&KeySet) -> bool) -> Need {
        let state = self.state();
        let rested = state.tried.is_none_or(|tried| now.since(tried) >= limits::ISSUER_FETCH_REST);
        let Some((keys, fetched)) = &state.kept else {
            return if rested { Need::Fetch } else { self.during(&state) };
        };
        let age = now.since(*fetched);
        match rested {
            true if age >= limits::ISSUER_KEYS_STALE || !has(keys) => Need::Fetch,
            // Whoever failed the last time is not waited for again.
            true if age >= limits::ISSUER_KEYS_KEPT && state.failed.is_none() => Need::Fetch,
            true if age >= limits::ISSUER_KEYS_RENEW => Need::Renew(keys.clone()),
            false if !has(keys) => self.during(&state),
            _ if age < limits::ISSUER_KEYS_STALE => Need::Use(keys.clone()),
            _ => self.during(&state),
        }
    }

    /// Says what to do where a fetch was begun lately: wait for it if it goes on.
    fn during(&self, _: &State) -> Need {
        if self.turn.try_lock().is_err() { Need::Fetch } else { Need::GiveUp }
    }

    fn waiter(self: &Arc<Self>) -> Result<Waiter> {
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let waiter = Waiter(self.clone());
        if before >= limits::ISSUER_WAITERS_MAX {
            return Err(Error::new(ErrorKind::Busy, "too many wait for the keys of the token's issuer"));
        }
        Ok(waiter)
    }

    /// Fetches the keys, unless somebody has done so since `looked`.
    async fn fetch(waiter: Waiter, looked: Tick) {
        let this = &waiter.0;
        let _turn = this.turn.lock().await;
        {
            let (now, mut state) = (this.sys.clock().tick(), this.state());
            let meanwhile = state
                .tried
                .is_some_and(|tried| tried >= looked || now.since(tried) < limits::ISSUER_FETCH_REST);
            if meanwhile {
                return;
            }
            state.tried = Some(now);
        }
        let deadline = Deadline::within(this.sys.clock(), limits::ISSUER_FETCH_WITHIN);
        let fetched = this.sys.within(deadline, this.published()).await;
        this.keep(fetched);
    }

    async fn published(&self) -> Result<KeySet> {
        let wrong = |detail: &'static str| Error::new(ErrorKind::Unavailable, detail);
        let at = format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/'));
        let text = self.documents.document(&at).await?;
        let found: Discovery = serde_json::from_slice(&text)
            .map_err(|error| wrong("what the issuer says of itself cannot be read").caused_by(error))?;
        if found.issuer != self.url {
            return Err(wrong("what is found at the issuer's address is of another issuer"));
        }
        if !found.jwks_uri.starts_with("https://") {
            return Err(wrong("the issuer's keys are not at an `https:` address"));
        }
        KeySet::read(&self.documents.document(&found.jwks_uri).await?)
    }

    fn keep(&self, fetched: Result<KeySet>) {
        let mut state = self.state();
        match fetched {
            Ok(keys) => {
                if state.failed.take().is_some() {
                    tracing::info!(issuer = %self.url, "the issuer's keys can be had again");
                }
                state.kept = Some((Arc::new(keys), self.sys.clock().tick()));
            }
            Err(error) => {
                if state.failed.is_none() {
                    tracing::warn!(issuer = %self.url, error = ?error, "an issuer's keys cannot be had");
                }
                state.failed = Some(error.detail().to_owned());
            }
        }
    }
}
