//! The audit log: who did what to which object, and which entry decided.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::caller::CallerName;
use crate::error::{ErrorKind, Result};
use crate::form::Origin;
use crate::id::{ContainerId, CredentialId, FileId, TraceId};
use crate::proof::Caller;
use crate::time::Time;

/// How an audited operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It was refused or failed.
    Failed(ErrorKind),
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When.
    pub at: Time,
    /// Who.
    pub caller: CallerName,
    /// On which credential.
    pub credential: CredentialId,
    /// Those who acted for the caller.
    pub delegates: Vec<CallerName>,
    /// From where.
    pub from: Origin,
    /// The trace shown to the caller.
    pub trace: TraceId,
    /// Which operation.
    pub operation: String,
    /// On which inode.
    pub object: Option<FileId>,
    /// In which container.
    pub container: Option<ContainerId>,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// The entry, credential limit or mode that decided, in words.
    pub because: String,
    /// Bytes read or written.
    pub bytes: u64,
}

/// Which records to return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Only about this container.
    pub container: Option<ContainerId>,
    /// An inode of that container, by which a caller who is no administrator is found
    /// to have `audit-read` on it.
    pub member: Option<FileId>,
    /// Only about this inode.
    pub object: Option<FileId>,
    /// Only by this caller.
    pub caller: Option<CallerName>,
    /// Only from this time on.
    pub from: Option<Time>,
    /// Only before this time.
    pub until: Option<Time>,
    /// Only after this position.
    pub after: u64,
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// Records with their positions, oldest first.
    pub records: Vec<(u64, AuditRecord)>,
    /// The position to go on after, if there are more.
    pub next: Option<u64>,
}

/// Whether the log is what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditVerdict {
    /// Every batch hashes to the next and the head is signed.
    Whole {
        /// How many records.
        records: u64,
    },
    /// Something was changed.
    Broken {
        /// The file.
        file: String,
        /// The byte at which the first batch that does not match starts.
        offset: u64,
        /// What does not match.
        detail: String,
    },
}

/// Keeps the audit log.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Records something that is not part of a metadata commit: a read, a refusal, a
    /// login. Never waits; written within a second. A full queue makes the next call
    /// that is recorded wait rather than lose a record.
    async fn record(&self, record: AuditRecord);

    /// Returns records. Without being an administrator, only of one container, whose
    /// `audit-read` the caller has (the volume checks that before it asks).
    async fn records(&self, caller: &Caller, filter: &AuditFilter) -> Result<AuditPage>;

    /// Verifies the whole log. Administrators only.
    async fn verify(&self, caller: &Caller) -> Result<AuditVerdict>;
}
