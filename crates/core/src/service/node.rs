//! The node itself: how it is, and what its operator may ask of it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::caller::CallerName;
use crate::error::Result;
use crate::form::Origin;
use crate::id::{DomainId, KeyId, ObjectId, VolumeId};
use crate::name::RelPath;
use crate::proof::{Caller, Purpose};
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

/// How well a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// Why it should be sent no requests, if that is so.
    pub not_ready: Option<String>,
    /// What of it does not work as it should, while it goes on; to administrators.
    pub degraded: Vec<String>,
    /// Connections to its doors.
    pub connections: u64,
    /// Transfers over HTTP that are under way, small ones apart.
    pub transfers: u64,
    /// Files that are open.
    pub opens: u64,
    /// When it was last backed up; to administrators, as the two below.
    pub backup: Option<Time>,
    /// When all of it was last checked, and nothing was wrong.
    pub check: Option<Time>,
    /// When what nobody refers to was last taken away.
    pub sweep: Option<Time>,
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

/// How far a node is with comparing what it keeps with what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Bytes that it reads in a second at most; 0 if it does not.
    pub bytes_per_second: u64,
    /// Rounds that were begun, in all.
    pub rounds: u64,
    /// Whether somebody asked for one that has not begun: it follows the one under way.
    pub asked: bool,
    /// When the round under way was begun, if one is.
    pub began: Option<Time>,
    /// When the last round came to its end.
    pub ended: Option<Time>,
    /// Objects that were looked at in the round under way, or else in the last.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What is damaged, as far as it is remembered by name.
    pub damaged: Vec<Damage>,
    /// Objects that are damaged and not remembered by name.
    pub beyond: u64,
}

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Which.
    pub object: ObjectId,
    /// The first byte of the first block that is not as it was written.
    pub from: u64,
    /// The end of the last such block.
    pub to: u64,
    /// How many such blocks there are; those between may be whole.
    pub blocks: u64,
    /// Whether the disk does not give the bytes at all.
    pub unread: bool,
    /// When it was found.
    pub since: Time,
    /// The files whose bytes they are, as people write them.
    pub files: Vec<String>,
}

/// The keys of a node's domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Where on the node's machine the root key lies, if it was not put away.
    pub root: Option<String>,
    /// Those that sign, or signed.
    pub keys: Vec<KeyRecord>,
}

/// A key that signs, or signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Which.
    pub id: KeyId,
    /// What it is for.
    pub purpose: Purpose,
    /// Whether it signs now.
    pub current: bool,
    /// Whether what it signed is no longer believed.
    pub ended: bool,
    /// When it was made.
    pub made: Time,
    /// Until when what it signed is believed, unless it was ended.
    pub until: Time,
}

/// A directory of the node's machine that is served in place, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The volume it is.
    pub volume: VolumeId,
    /// Where it is in the tree, as people write it; empty if its junction has gone.
    pub at: String,
    /// The directory; to administrators and to who shared it, empty to others.
    pub directory: String,
    /// When it was shared.
    pub made: Time,
    /// Who shared it.
    pub by: Option<CallerName>,
    /// Why it is not served at the moment, if it is not. To those who are not told the directory
    /// it does not name it either.
    pub away: Option<String>,
    /// The user of the node's machine whose rights there limit it: whose directory it was, if whoever
    /// shared it was no administrator.
    pub limited_to: Option<u32>,
}

/// What can be asked of a running node. `status`, `health` and `shares` are for everybody, `share`
/// and `unshare` for whose directory it is too; the rest is for administrators.
#[async_trait]
pub trait Node: Send + Sync {
    /// Returns how it is. Where its data lie and what is being uploaded only administrators are told.
    async fn status(&self, caller: &Caller) -> Result<NodeStatus>;

    /// Returns how well it is. What is degraded, and what was done for its upkeep, only administrators are told.
    async fn health(&self, caller: &Caller) -> Result<NodeHealth>;

    /// Stops it cleanly: the answer comes before the end.
    async fn stop(&self, caller: &Caller) -> Result<()>;

    /// Writes a consistent copy of metadata and objects to a directory on the node's
    /// machine while it runs. `Exists` if something is there.
    async fn backup(&self, caller: &Caller, into: &str) -> Result<BackupReport>;

    /// Checks every structure of the running node without changing anything.
    async fn check(&self, caller: &Caller) -> Result<CheckReport>;

    /// Returns how far the scrubber is; with `begin`, has it begin a round, after the one that is under way if
    /// one is. `Conflict` if it is to begin and is switched off.
    async fn scrub(&self, caller: &Caller, begin: bool) -> Result<Scrub>;

    /// Returns the domain's keys.
    async fn keys(&self, caller: &Caller) -> Result<Keys>;

    /// Makes new keys that sign from now on, certified by the root key, and returns them all. What the old ones
    /// signed stays good until it runs out; with `revoke_old`, what any old one signed is dead at once, but for
    /// the audit log. `root_key` is an absolute path on the node's machine: `None` is where a start
    /// left it. It is read for this, and not kept.
    ///
    /// `Unavailable` if the root key is not where it should be, `Invalid` if it is another domain's,
    /// `NotPermitted` if it is no plain file that the node's user alone can read, `Deadline` if it cannot be read
    /// in time.
    async fn rotate_keys(&self, caller: &Caller, root_key: Option<&str>, revoke_old: bool) -> Result<Keys>;

    /// Serves a directory of the node's machine, in place, as a volume of its own at a name that is
    /// free. The directory is an absolute path there. An administrator may share any; who is none, and asks
    /// from that machine, one that belongs to the uid it asks `from`: what is done through the share is
    /// then limited to what that user of the machine may do.
    ///
    /// Fails with `NotPermitted` if it is not the caller's to share, `Exists` if something is at the
    /// name, `Invalid` for a path that is not absolute, `NotFound` or `NotDirectory` for what is there,
    /// `Unsupported` for what the node cannot serve.
    async fn share(&self, caller: &Caller, from: Origin, directory: &str, at: &RelPath) -> Result<Share>;

    /// Ends the share at a name, and returns what it was. Nothing in the directory is touched. For
    /// administrators, and for who made it.
    /// `NotFound` if nothing is there, `Invalid` if that is no share.
    async fn unshare(&self, caller: &Caller, at: &RelPath) -> Result<Share>;

    /// Returns what is shared: all of it to administrators. To others what they shared, and those
    /// shares whose junction they can walk to, without the directory.
    async fn shares(&self, caller: &Caller) -> Result<Vec<Share>>;
}
