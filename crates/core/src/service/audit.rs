//! The audit log: who did what to which object, and which entry decided.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::caller::CallerName;
use crate::error::{ErrorKind, Result};
use crate::form::Origin;
use crate::id::{ContainerId, CredentialId, FileId, TraceId};
use crate::limits;
use crate::name::Name;
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

/// What a record is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSubject {
    /// Which inode.
    pub object: Option<FileId>,
    /// A second one: what a rename replaced or exchanged.
    pub other: Option<FileId>,
    /// In which container: that whose policy decided, where that is known.
    pub container: Option<ContainerId>,
    /// Further containers: of the other places, of what was replaced, those whose policy was changed
    /// with it.
    pub also: Vec<ContainerId>,
    /// In which directory and under which name, or one of several; for a rename, from.
    pub place: Option<(FileId, Name)>,
    /// For a rename that was done, to: one that was refused has a record for each side.
    pub to: Option<(FileId, Name)>,
}

impl AuditSubject {
    /// Adds a container, unless it is there.
    pub fn touch(&mut self, container: ContainerId) {
        if self.container.is_none() {
            self.container = Some(container);
        } else if !self.is_about_container(container) && self.also.len() < limits::AUDIT_CONTAINERS_MAX {
            self.also.push(container);
        }
    }

    /// Returns whether it is about an inode.
    pub fn is_about(&self, object: FileId) -> bool {
        self.object == Some(object) || self.other == Some(object)
    }

    /// Returns whether it is about a container.
    pub fn is_about_container(&self, container: ContainerId) -> bool {
        self.container == Some(container) || self.also.contains(&container)
    }
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
    /// On what.
    pub about: AuditSubject,
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
    /// login. On disk within a second. Waits only while the queue is full, and no longer than
    /// `limits::AUDIT_WAIT`: what finds no place by then is counted as lost, and the log says so.
    async fn record(&self, record: AuditRecord);

    /// Returns records. Without being an administrator, only of one container, whose
    /// `audit-read` the caller has (the volume checks that before it asks).
    async fn records(&self, caller: &Caller, filter: &AuditFilter) -> Result<AuditPage>;

    /// Verifies the whole log. Administrators only.
    async fn verify(&self, caller: &Caller) -> Result<AuditVerdict>;
}
