//! Authorities of clients, as `auth` has them: read from their files, and again where those change.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Mutex;
use weft_auth::{Auth, ClientAuthoritySettings, check_client_authority};
use weft_core::{Result, limits};
use weft_doors_listener::Identity;
use weft_sys::{Sys, Task};

use super::vouching::{self, Stamp};
use crate::config::ClientAuthority;

/// The authorities of clients, kept as their files are.
pub struct Clients {
    sys: Sys,
    auth: Arc<Auth>,
    /// What asks for certificates, if HTTPS is spoken.
    identity: Option<Arc<Identity>>,
    state: Mutex<State>,
}

struct State {
    set: Vec<ClientAuthority>,
    /// Their files as they were last looked at, whether or not they were good.
    seen: Vec<Stamp>,
}

/// Reads the files of authorities. Fails where one of them cannot be used.
pub fn read(set: &[ClientAuthority]) -> Result<Vec<ClientAuthoritySettings>> {
    set.iter().map(one).collect()
}

fn one(authority: &ClientAuthority) -> Result<ClientAuthoritySettings> {
    let (what, most) = ("the certificates of an authority of clients", limits::CLIENT_AUTHORITY_BYTES_MAX);
    let certificates = vouching::read(&authority.certificates, what, most)?;
    let (what, most) = ("the certificates that an authority has revoked", limits::CLIENT_REVOKED_BYTES_MAX);
    let lists = |path: &Path| vouching::read(path, what, most);
    let settings = ClientAuthoritySettings {
        name: authority.name.clone(),
        certificates,
        revoked: authority.revoked.as_deref().map(lists).transpose()?,
        acts_for: authority.acts_for.clone(),
    };
    check_client_authority(&settings)
        .map_err(|error| error.op("use the authority").about(&authority.name))?;
    Ok(settings)
}

fn stamps(set: &[ClientAuthority]) -> Vec<Stamp> {
    let files = |one: &ClientAuthority| {
        [Some(vouching::stamp(&one.certificates)), one.revoked.as_deref().map(vouching::stamp)]
    };
    set.iter().flat_map(files).flatten().collect()
}

impl Clients {
    /// Keeps the authorities that a node was started with, and has HTTPS ask for their certificates.
    pub fn open(
        sys: &Sys,
        auth: &Arc<Auth>,
        identity: Option<Arc<Identity>>,
        set: Vec<ClientAuthority>,
    ) -> Result<Arc<Self>> {
        // What changed since they were read is read again soon.
        let state = Mutex::new(State { seen: stamps(&set), set });
        let own = Self { sys: sys.clone(), auth: auth.clone(), identity, state };
        own.ask()?;
        Ok(Arc::new(own))
    }

    /// Has HTTPS ask for certificates of those authorities, and for none where there are none.
    fn ask(&self) -> Result<()> {
        let hints = self.auth.client_hints();
        self.identity
            .as_ref()
            .map_or(Ok(()), |identity| identity.ask_clients(Some(hints).filter(|hints| !hints.is_empty())))
    }

    /// Takes these authorities, or those that there are as their files are now. What cannot be used is told of, and what
    /// was stays.
    pub async fn change(&self, set: Option<Vec<ClientAuthority>>) {
        let mut state = self.state.lock().await;
        let set = set.unwrap_or_else(|| state.set.clone());
        if set.is_empty() && state.set.is_empty() {
            return;
        }
        // Looked at before they are read: what changes meanwhile is read again.
        let seen = stamps(&set);
        match self.take(set.clone()).await {
            Ok(()) => {
                tracing::info!(count = set.len(), "the authorities of clients were read again");
                *state = State { set, seen };
            }
            Err(error) => {
                tracing::warn!(%error, "the authorities of clients cannot be used: what was stays");
                state.seen = stamps(&state.set);
            }
        }
    }

    async fn take(&self, set: Vec<ClientAuthority>) -> Result<()> {
        let settings = self.sys.blocking(move || read(&set)).await??;
        self.auth.change_client_authorities(settings).await?;
        self.ask()
    }

    /// Looks now and then whether a file changed.
    pub fn watch(self: Arc<Self>) -> Task<()> {
        let sys = self.sys.clone();
        sys.clone().spawn(async move {
            loop {
                sys.sleep(limits::TLS_LOOK_EVERY).await;
                let changed = {
                    let state = self.state.lock().await;
                    stamps(&state.set) != state.seen
                };
                if changed {
                    self.change(None).await;
                }
            }
        })
    }
}
