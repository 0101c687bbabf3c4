//! What HTTPS proves itself by: the certificate that the operator gave, or one of the node's own.
//!
//! The node's own is made at the first start and kept, so that whoever compared its fingerprint once
//! needs not do so again. It is made anew a month before its end, where a host is asked for that it
//! is not for, and where it, or its key, cannot be used.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use weft_core::{Error, Result, limits};
use weft_doors_http::protocols;
use weft_doors_listener::certificate::{self, Own, Said};
use weft_doors_listener::{Files, Identity};
use weft_sys::{Disk, FlushSite, RealDisk, Sys, Task, net, process};

use super::directory::{NodeDirectory, TLS};

/// The node's own certificate, and its key.
const CHAIN: &str = "cert.pem";
const KEY: &str = "key.pem";

/// How a node speaks HTTPS.
#[derive(Clone)]
pub struct HttpsSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// The certificate that was given; the node's own without one.
    pub given: Option<Files>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

/// The certificate that a node shows, kept up to date.
pub struct Shown {
    sys: Sys,
    identity: Arc<Identity>,
    /// For which hosts the node's own must be; none if one was given.
    own: Option<Vec<String>>,
}

impl Shown {
    /// Reads the certificate that was given, or the node's own, made if need be.
    pub fn open(
        sys: &Sys,
        directory: &NodeDirectory,
        settings: &HttpsSettings,
        hosts: &[String],
    ) -> Result<Arc<Self>> {
        let (files, own) = match &settings.given {
            Some(files) => (files.clone(), None),
            None => {
                let dir = directory.tls()?;
                let files = Files { chain: dir.join(CHAIN), key: dir.join(KEY) };
                let asked = asked_hosts(settings.address.ip(), hosts);
                if !is_good(sys, &files, &asked) {
                    make(sys, &files, &asked)?;
                }
                (files, Some(asked))
            }
        };
        let identity = Identity::load(files, protocols(settings.http2))?;
        Ok(Arc::new(Self { sys: sys.clone(), identity, own }))
    }

    /// Returns what a listener takes.
    pub fn identity(&self) -> Arc<Identity> {
        self.identity.clone()
    }

    /// Returns where the node's own certificate lies; none if one was given.
    pub fn own(&self) -> Option<&Path> {
        self.own.as_ref().map(|_| self.identity.files().chain.as_path())
    }

    /// Returns the fingerprint of the certificate in its file; none if it cannot be read now.
    pub fn fingerprint(&self) -> Option<String> {
        said(&self.identity.files().chain).map(|said| said.fingerprint)
    }

    /// Takes up what changed; with `anyway`, whether or not anything did.
    pub fn refresh(&self, anyway: bool) {
        let files = self.identity.files();
        let renewed = match &self.own {
            Some(asked) if ends_soon(&self.sys, files) => make(&self.sys, files, asked),
            _ => Ok(()),
        };
        match renewed.and_then(|()| self.identity.refresh(anyway)) {
            Ok(true) => {
                let fingerprint = self.fingerprint().unwrap_or_default();
                tracing::info!(path = %files.chain.display(), fingerprint, "new connections are shown this certificate");
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the certificate could not be renewed: what was stays"),
        }
    }

    /// Looks now and then whether anything changed.
    pub fn watch(self: Arc<Self>) -> Task<()> {
        let sys = self.sys.clone();
        sys.clone().spawn(async move {
            loop {
                sys.sleep(limits::TLS_LOOK_EVERY).await;
                self.refresh(false);
            }
        })
    }
}

/// Returns the hosts that were asked for: a certificate without one of them will not do.
fn asked_hosts(listens: IpAddr, hosts: &[String]) -> Vec<String> {
    let mut asked: Vec<String> = hosts.iter().filter(|name| is_name(name)).cloned().collect();
    asked.push("localhost".to_owned());
    if !listens.is_unspecified() {
        asked.push(listens.to_string());
    }
    asked.truncate(limits::TLS_OWN_HOSTS_MAX);
    asked
}

/// Returns these, and what else the machine is called.
fn all_hosts(asked: &[String]) -> Vec<String> {
    let loopback = ["127.0.0.1".to_owned(), "::1".to_owned()];
    let addresses = net::own_addresses(limits::TLS_OWN_HOSTS_MAX).into_iter().map(|own| own.to_string());
    let own = process::host_name().into_iter().filter(|name| is_name(name));
    let mut all: Vec<String> = Vec::new();
    for host in own.chain(asked.iter().cloned()).chain(loopback).chain(addresses) {
        if !all.contains(&host) && all.len() < limits::TLS_OWN_HOSTS_MAX {
            all.push(host);
        }
    }
    all
}

/// Returns whether a certificate can be for it: `*`, which stands for any, is none.
pub fn is_name(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}

fn is_good(sys: &Sys, files: &Files, asked: &[String]) -> bool {
    let Some(said) = said(&files.chain) else { return false };
    let usable = Identity::load(files.clone(), protocols(true)).is_ok();
    usable && !ends_soon(sys, files) && asked.iter().all(|host| said.hosts.contains(host))
}

fn ends_soon(sys: &Sys, files: &Files) -> bool {
    said(&files.chain).is_none_or(|said| sys.clock().now().plus(limits::TLS_OWN_RENEW) > said.until)
}

fn said(chain: &Path) -> Option<Said> {
    certificate::read(&std::fs::read(chain).ok()?).ok()
}

/// Makes a certificate and its key, durably: whoever is told its fingerprint is not to be told another after a
/// power cut.
fn make(sys: &Sys, files: &Files, asked: &[String]) -> Result<()> {
    let own = certificate::make(&all_hosts(asked), sys.clock().now())?;
    let directory = files.chain.ancestors().nth(2);
    let directory =
        directory.ok_or_else(|| Error::internal("the certificate lies below the node's directory"))?;
    keep(&RealDisk::open(directory)?, &own).map_err(|error| error.op("write").about(files.chain.display()))
}

/// Keeps a certificate and its key in the part of a node's directory that is theirs, each whole or not at all: of
/// two that do not belong together neither is used.
fn keep(directory: &dyn Disk, own: &Own) -> Result<()> {
    let tls = directory.beneath(TLS)?;
    tls.replace(KEY, own.key.as_bytes(), FlushSite::NodeCertificate)?;
    tls.replace(CHAIN, own.chain.as_bytes(), FlushSite::NodeCertificate)?;
    tls.sync_dir("", FlushSite::NodeCertificateDir)?;
    directory.sync_dir("", FlushSite::NodeCertificateDir)
}

#[cfg(test)]
mod tests;
