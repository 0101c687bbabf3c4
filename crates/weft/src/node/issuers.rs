//! Issuers of the configuration, as `auth` has them: their keys are read, or fetched by what speaks to other servers.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_auth::{Auth, Documents, IssuerSettings};
use weft_core::{Error, Result, limits};
use weft_remote::{Remote, Url};

use super::{NodeSettings, https, vouching};
use crate::config::Issuer;

/// What fetches the keys of issuers.
struct Fetcher(Remote);

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

#[async_trait]
impl Documents for Fetcher {
    async fn document(&self, url: &str) -> Result<Bytes> {
        let url: Url = url.parse()?;
        self.0.document(&url, limits::ISSUER_DOCUMENT_BYTES_MAX).await
    }
}

/// Returns what fetches the keys of issuers.
pub fn fetcher(remote: Remote) -> Arc<dyn Documents> {
    Arc::new(Fetcher(remote))
}

/// Returns issuers as `auth` has them, for a node that is called so. Fails where a file of keys cannot be used.
pub fn read(issuers: &[Issuer], own: &[String]) -> Result<Vec<IssuerSettings>> {
    issuers.iter().map(|issuer| one(issuer, own)).collect()
}

/// Takes these issuers in the place of those that there are. What cannot be used is told of, and what was stays.
pub async fn change(auth: &Auth, issuers: &[Issuer], own: &[String]) {
    let changed = async { auth.change_issuers(&read(issuers, own)?).await };
    if let Err(error) = changed.await {
        tracing::warn!(%error, "the issuers of the configuration cannot be used: what was stays");
    }
}

fn one(issuer: &Issuer, own: &[String]) -> Result<IssuerSettings> {
    let audiences = if issuer.audiences.is_empty() { own.to_vec() } else { issuer.audiences.clone() };
    let keys = issuer.keys.as_deref().map(|path| keys(path, &issuer.name)).transpose()?;
    Ok(IssuerSettings {
        name: issuer.name.clone(),
        url: issuer.url.clone(),
        audiences,
        base: issuer.base.clone(),
        acts_for: issuer.acts_for.clone(),
        groups: issuer.groups.clone(),
        keys,
    })
}

fn keys(path: &Path, name: &str) -> Result<Vec<u8>> {
    let text = vouching::read(path, "the keys of an issuer", limits::ISSUER_DOCUMENT_BYTES_MAX as u64)?;
    weft_auth::check_keys(&text).map_err(|error| {
        Error::invalid("the keys of an issuer cannot be used")
            .about(format!("{}, of `{name}`", path.display()))
            .hint("a set of public keys as the issuer shows it: {\"keys\": [ … ]}")
            .caused_by(error)
    })?;
    Ok(text)
}

/// Returns what others call this node: its public address, and those of its HTTPS by the hosts that it was given.
pub fn audiences(settings: &NodeSettings) -> Vec<String> {
    let https = settings.https.as_ref().map(|https| https.address);
    let port = https.as_ref().map(SocketAddr::port).filter(|port| *port != 0);
    let of = |host: &String| {
        let bare = format!("https://{host}");
        [port.map(|port| format!("{bare}:{port}")), Some(bare)]
    };
    let public = settings.public.as_ref().map(Url::origin);
    let of_hosts = settings.hosts.iter().filter(|host| https::is_name(host)).flat_map(of).flatten();
    of_hosts.filter(|own| Some(own) != public.as_ref()).chain(public.clone()).collect()
}
