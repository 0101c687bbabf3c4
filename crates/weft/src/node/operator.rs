//! What a running node tells of itself, and does for its operator.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use weft_auth::Auth;
use weft_core::form::{At, FileSystem, Origin};
use weft_core::metrics::Way;
use weft_core::proof::Caller;
use weft_core::service::{
    BackupReport, CheckReport, Finding, Keys, Node, NodeHealth, NodeStatus, ObjectStore, Scrub, Severity,
    Share,
};
use weft_core::{Clock, Error, ErrorKind, FileId, RelPath, Result, Time};
use weft_kv::Engine;
use weft_store::{Check, Directory};
use weft_sys::Sys;
use weft_volume::managed::{Managed, Unfinished};

use super::monitor::Monitor;
use super::shares::NodeShares;
use super::upkeep::{Chore, Upkeep};
use super::{Running, backup, call_of, keys, scrub};

pub struct Operator {
    sys: Sys,
    started: Time,
    data: String,
    doors: Vec<(String, String)>,
    auth: Arc<Auth>,
    engine: Arc<dyn Engine>,
    store: Arc<Directory>,
    volume: Managed,
    shares: Arc<NodeShares>,
    monitor: Arc<Monitor>,
    upkeep: Arc<Upkeep>,
    stop_asked: Arc<tokio::sync::Notify>,
    damaged: scrub::Named,
}

impl Operator {
    pub fn new(sys: &Sys, node: &Running) -> Self {
        Self {
            sys: sys.clone(),
            started: sys.clock().now(),
            data: node.directory.path().display().to_string(),
            doors: node.addresses.iter().map(|door| reached(door, node.host.as_deref())).collect(),
            auth: node.auth.clone(),
            engine: node.engine.clone(),
            store: node.store.clone(),
            volume: node.volume.clone(),
            shares: node.shares.clone(),
            monitor: node.monitor.clone(),
            upkeep: node.upkeep.clone(),
            stop_asked: node.stop_asked.clone(),
            damaged: scrub::Named::new(),
        }
    }

    /// Returns how many files there are, as far as the caller may know.
    async fn files(&self, caller: &Caller) -> u64 {
        let space = self.volume.space(&call_of(&self.sys, caller), &At::id(FileId::ROOT)).await;
        space.map_or(0, |space| space.files)
    }

    /// Says of each finding about an object which file that is.
    fn name_files(&self, caller: &Caller, findings: &mut [Finding]) -> Result<()> {
        let objects = super::check::objects_of(findings);
        if !objects.is_empty() {
            // A call of its own: what found them may have taken longer than one call may.
            let paths = self.volume.paths_of_objects(&call_of(&self.sys, caller), &objects)?;
            super::check::name_files(&paths, findings);
        }
        Ok(())
    }
}

#[async_trait]
impl Node for Operator {
    async fn status(&self, caller: &Caller) -> Result<NodeStatus> {
        let space = self.store.space()?;
        let administrator = self.auth.demand_administrator(caller).is_ok();
        let unfinished = if administrator { self.volume.unfinished()? } else { Unfinished::default() };
        Ok(NodeStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            domain: self.auth.domain(),
            started: self.started,
            pid: std::process::id(),
            data: if administrator { self.data.clone() } else { String::new() },
            doors: self.doors.clone(),
            bytes_total: space.bytes_total,
            bytes_free: space.bytes_free,
            files: self.files(caller).await,
            sessions: self.auth.session_count(),
            uploads: unfinished.uploads,
            upload_bytes: unfinished.bytes,
        })
    }

    async fn health(&self, caller: &Caller) -> Result<NodeHealth> {
        let metrics = self.sys.metrics();
        let ways = [Way::Http, Way::Https, Way::Native];
        let health = NodeHealth {
            not_ready: self.monitor.trouble(),
            connections: ways.map(|way| metrics.doors_connections.value((way,))).iter().sum(),
            transfers: self.monitor.transfers() as u64,
            opens: metrics.volume_opens.value(()),
            ..NodeHealth::default()
        };
        if self.auth.demand_administrator(caller).is_err() {
            return Ok(health);
        }
        let mut degraded = self.monitor.degraded();
        for share in self.shares.all(caller).await? {
            degraded.extend(share.away.map(|why| format!("the share at {} is away: {why}", share.at)));
        }
        degraded.extend(keys::ending(&self.sys, &self.auth));
        match self.damaged.scrub(&self.sys, caller, &self.store, &self.volume) {
            Ok(scrub) => degraded.extend(scrub::lines(&scrub)),
            Err(error) => degraded.push(format!("it cannot be told what is damaged: {error}")),
        }
        let done = self.upkeep.done();
        let time = |seconds: Option<i64>| seconds.map(|seconds| Time::from_unix(seconds, 0));
        let (backup, check, sweep) = (time(done.backup), time(done.check), time(done.sweep));
        Ok(NodeHealth { degraded, backup, check, sweep, ..health })
    }

    async fn stop(&self, caller: &Caller) -> Result<()> {
        self.auth.demand_administrator(caller)?;
        self.stop_asked.notify_one();
        Ok(())
    }

    async fn backup(&self, caller: &Caller, into: &str) -> Result<BackupReport> {
        self.auth.demand_administrator(caller)?;
        let metadata = |meta| self.engine.backup(meta);
        let mut report =
            backup::write(&self.sys, metadata, &self.store, self.data.as_ref(), into.as_ref()).await?;
        if let Err(error) = self.name_files(caller, &mut report.damaged) {
            tracing::warn!(%error, "damaged objects of a backup are named without their files");
        }
        self.upkeep.did(Chore::Backup, self.sys.now());
        Ok(report)
    }

    async fn check(&self, caller: &Caller) -> Result<CheckReport> {
        self.auth.demand_administrator(caller)?;
        let call = call_of(&self.sys, caller);
        let mut report = self.volume.check(&call).await.map_err(of_tables)?;
        let mut objects = self.store.check(Check { repair: false, blocks: true }).await?;
        self.name_files(caller, &mut objects.findings)?;
        // Those that the tables know are among them.
        report.objects = objects.objects;
        report.findings.extend(objects.findings);
        report.findings.extend(self.auth.check(caller).await?);
        let junctions = self.volume.junctions(&call_of(&self.sys, caller))?;
        let shares = super::check::shares(&self.sys, &self.engine, &self.auth, &junctions, false);
        report.findings.extend(shares.await?);
        if report.findings.iter().all(|finding| finding.severity == Severity::Note) {
            self.upkeep.did(Chore::Check, self.sys.now());
        }
        Ok(report)
    }

    async fn scrub(&self, caller: &Caller, begin: bool) -> Result<Scrub> {
        self.auth.demand_administrator(caller)?;
        if begin {
            self.store.scrub_now()?;
        }
        self.damaged.scrub(&self.sys, caller, &self.store, &self.volume)
    }

    async fn keys(&self, caller: &Caller) -> Result<Keys> {
        keys::list(&self.auth, caller, &self.data)
    }

    async fn rotate_keys(&self, caller: &Caller, root_key: Option<&str>, revoke_old: bool) -> Result<Keys> {
        keys::rotate(&self.auth, caller, &self.data, root_key, revoke_old).await
    }

    async fn share(&self, caller: &Caller, from: Origin, directory: &str, at: &RelPath) -> Result<Share> {
        self.shares.share(caller, from, directory, at).await
    }

    async fn unshare(&self, caller: &Caller, at: &RelPath) -> Result<Share> {
        self.shares.unshare(caller, at).await
    }

    async fn shares(&self, caller: &Caller) -> Result<Vec<Share>> {
        self.shares.all(caller).await
    }
}

/// Returns a door as others reach it: by what they call the machine, where it listens for others.
fn reached((scheme, bound): &(String, String), host: Option<&str>) -> (String, String) {
    let address = bound.split_once("://").and_then(|(_, address)| address.parse::<SocketAddr>().ok());
    let shown = match (address, host) {
        (Some(address), Some(host)) if !address.ip().is_loopback() => {
            format!("{scheme}://{host}:{}", address.port())
        }
        _ => bound.clone(),
    };
    (scheme.clone(), shown)
}

/// A check stops where the tables cannot be read: it is not the asker's row that is of use, but
/// what to do.
fn of_tables(error: Error) -> Error {
    if error.kind() != ErrorKind::Corrupt {
        return error;
    }
    Error::corrupt(format!("the metadata is damaged, and could not be read to its end: {error}"))
        .op("check the node")
        .hint("stop the node and restore a backup to another directory; what is read meanwhile is whole")
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_told_as_others_reach_it() {
        let door = |scheme: &str, bound: &str| (scheme.to_owned(), bound.to_owned());
        let shown = |scheme, bound, host| reached(&door(scheme, bound), host).1;
        let named = Some("files.example.org");
        assert_eq!(shown("https", "https://0.0.0.0:8421", named), "https://files.example.org:8421");
        assert_eq!(shown("http", "http://[2001:db8::1]:8420", named), "http://files.example.org:8420");
        for (scheme, bound, host) in [
            ("https", "https://0.0.0.0:8421", None),
            // What is in front of it has another port.
            ("http", "http://127.0.0.1:8420", named),
            ("native", "/srv/weft/node.sock", named),
        ] {
            assert_eq!(shown(scheme, bound, host), bound);
        }
    }
}
