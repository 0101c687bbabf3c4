//! What a running node tells of itself, and does for its operator.

use std::sync::Arc;

use async_trait::async_trait;
use weft_auth::Auth;
use weft_core::form::{At, FileSystem};
use weft_core::proof::Caller;
use weft_core::service::{BackupReport, CheckReport, Node, NodeStatus, ObjectStore};
use weft_core::{FileId, Result, Time};
use weft_kv::Engine;
use weft_store::{Check, Directory};
use weft_sys::Sys;
use weft_volume::managed::Managed;

use super::{Running, backup, call_of};

pub struct Operator {
    sys: Sys,
    started: Time,
    data: String,
    doors: Vec<(String, String)>,
    auth: Arc<Auth>,
    engine: Arc<dyn Engine>,
    store: Arc<Directory>,
    volume: Managed,
    stop_asked: Arc<tokio::sync::Notify>,
}

impl Operator {
    pub fn new(sys: &Sys, node: &Running) -> Self {
        Self {
            sys: sys.clone(),
            started: sys.clock().now(),
            data: node.directory.path().display().to_string(),
            doors: node.addresses.clone(),
            auth: node.auth.clone(),
            engine: node.engine.clone(),
            store: node.store.clone(),
            volume: node.volume.clone(),
            stop_asked: node.stop_asked.clone(),
        }
    }

    /// Returns how many files there are, as far as the caller may know.
    async fn files(&self, caller: &Caller) -> u64 {
        let space = self.volume.space(&call_of(&self.sys, caller), &At::id(FileId::ROOT)).await;
        space.map_or(0, |space| space.files)
    }
}

#[async_trait]
impl Node for Operator {
    async fn status(&self, caller: &Caller) -> Result<NodeStatus> {
        let space = self.store.space()?;
        Ok(NodeStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            domain: self.auth.domain(),
            started: self.started,
            pid: std::process::id(),
            data: if self.auth.demand_administrator(caller).is_ok() {
                self.data.clone()
            } else {
                String::new()
            },
            doors: self.doors.clone(),
            bytes_total: space.bytes_total,
            bytes_free: space.bytes_free,
            files: self.files(caller).await,
            sessions: self.auth.session_count(),
        })
    }

    async fn stop(&self, caller: &Caller) -> Result<()> {
        self.auth.demand_administrator(caller)?;
        self.stop_asked.notify_one();
        Ok(())
    }

    async fn backup(&self, caller: &Caller, into: &str) -> Result<BackupReport> {
        self.auth.demand_administrator(caller)?;
        let metadata = |meta| self.engine.backup(meta);
        backup::write(&self.sys, metadata, &self.store, self.data.as_ref(), into.as_ref()).await
    }

    async fn check(&self, caller: &Caller) -> Result<CheckReport> {
        self.auth.demand_administrator(caller)?;
        let call = call_of(&self.sys, caller);
        let mut report = self.volume.check(&call).await?;
        let mut objects = self.store.check(Check { repair: false, blocks: true }).await?;
        // The blocks may have taken longer than one call may.
        let damaged = super::check::objects_of(&objects.findings);
        if !damaged.is_empty() {
            let paths = self.volume.paths_of_objects(&call_of(&self.sys, caller), &damaged)?;
            super::check::name_files(&paths, &mut objects.findings);
        }
        report.objects += objects.objects;
        report.findings.extend(objects.findings);
        report.findings.extend(self.auth.check(caller).await?);
        Ok(report)
    }
}
