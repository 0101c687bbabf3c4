//! The node itself: how it is, and what its operator may ask of it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{DomainId, ObjectId};
use crate::proof::Caller;
use crate::time::Time;

/// How a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its version.
    pub version: String,
    /// Its domain.
    pub domain: DomainId,
    /// When it was started.
    pub started: Time,
    /// Its process.
    pub pid: u32,
    /// Where its data lie.
    pub data: String,
    /// Its doors: name and address.
    pub doors: Vec<(String, String)>,
    /// Bytes its store has.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Files and directories.
    pub files: u64,
    /// Sessions.
    pub sessions: u64,
    /// Uploads that were begun and are not finished; to administrators.
    pub uploads: u64,
    /// Bytes that those hold.
    pub upload_bytes: u64,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Wrong, and mended or mendable without loss.
    Repairable,
    /// Bytes or names are lost.
    Loss,
}

/// One thing a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Which structure.
    pub structure: String,
    /// What is wrong with it.
    pub detail: String,
    /// What was done, or would be; where nothing can be, what somebody may do. May be empty.
    pub repair: String,
    /// The object it is about, if it is about one: by it, whoever knows names can say
    /// which file that is.
    pub object: Option<ObjectId>,
}

/// What a check found in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Inodes looked at.
    pub inodes: u64,
    /// Objects looked at.
    pub objects: u64,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// Where it was written.
    pub path: String,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Objects copied.
    pub objects: u64,
    /// Bytes of objects.
    pub object_bytes: u64,
    /// What was damaged already where it was copied from: the rest is as it was.
    pub damaged: Vec<Finding>,
}

/// What can be asked of a running node. Everything but `status` needs the administrator.
#[async_trait]
pub trait Node: Send + Sync {
    /// Returns how it is. Where its data lie and what is being uploaded only administrators are told.
    async fn status(&self, caller: &Caller) -> Result<NodeStatus>;

    /// Stops it cleanly: the answer comes before the end.
    async fn stop(&self, caller: &Caller) -> Result<()>;

    /// Writes a consistent copy of metadata and objects to a directory on the node's
    /// machine while it runs. `Exists` if something is there.
    async fn backup(&self, caller: &Caller, into: &str) -> Result<BackupReport>;

    /// Checks every structure of the running node without changing anything.
    async fn check(&self, caller: &Caller) -> Result<CheckReport>;
}
