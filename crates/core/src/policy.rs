//! The policy of a container: its ACL and what else holds for everything in it.

use serde::{Deserialize, Serialize};

use crate::acl::{Acl, Modes};
use crate::id::ContainerId;

/// Which reads of a container's objects the audit log records. Writes, refusals and
/// changes of policy are always recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditReads {
    /// Every read.
    #[default]
    All,
    /// No read.
    Off,
}

/// Everything a container decides for its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Which container.
    pub container: ContainerId,
    /// Rises when capabilities issued so far must die.
    pub epoch: u64,
    /// Who may do what.
    pub acl: Acl,
    /// How mode bits narrow that.
    pub modes: Modes,
    /// Bytes its files may take together; `None` is no limit.
    pub bytes_max: Option<u64>,
    /// Bytes its files take now.
    pub bytes_used: u64,
    /// Whether reads are recorded.
    pub audit_reads: AuditReads,
}

/// What to change of a policy; what is `None` stays (and a split takes it over from
/// the enclosing container).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyEdit {
    /// The new ACL, whole. Its version must be that of the ACL it was edited from,
    /// else `Conflict`.
    pub acl: Option<Acl>,
    /// How mode bits narrow the ACL.
    pub modes: Option<Modes>,
    /// The limit on bytes; `Some(None)` lifts it.
    pub bytes_max: Option<Option<u64>>,
    /// Whether reads are recorded.
    pub audit_reads: Option<AuditReads>,
}
