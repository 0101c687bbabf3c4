//! The roles of a node that are no file system: one trait a file. What implements
//! them is wired in the binary; tests wire other things.

mod accounts;
mod audit;
mod authority;
mod issuer;
mod links;
mod memberships;
mod name_locks;
mod node;
mod object_store;
mod sessions;
mod tokens;

pub use accounts::{Accounts, GroupEdit, GroupRecord, NewUser, UserEdit, UserRecord};
pub use audit::{Audit, AuditFilter, AuditOutcome, AuditPage, AuditRecord, AuditSubject, AuditVerdict};
pub use authority::{Authority, CertificateChain, Evidence, Identity, Revoke, Secret};
pub use issuer::Issuer;
pub use links::{DropBoxRecord, LinkGives, LinkGrant, LinkRecord, Links, NewLink, Portion};
pub use memberships::Memberships;
pub use name_locks::NameLocks;
pub use node::{
    BackupReport, CheckReport, Damage, Finding, KeyRecord, Keys, Node, NodeHealth, NodeStatus, Scrub,
    Severity, Share,
};
pub use object_store::{ObjectPage, ObjectStat, ObjectStore, ObjectWritten, StoreSpace};
pub use sessions::{SessionGrant, SessionSecret, SessionWatcher, Sessions};
pub use tokens::{NewToken, TOKEN_PREFIX, TokenGrant, TokenRecord, Tokens, TokensOf};
