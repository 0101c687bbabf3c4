//! The shared model of Weft, and nothing else: the first thing to read.
//!
//! Everything multiplies on two ideas. One **form**: every way in (HTTP, a mount, the
//! native protocol) speaks the same [`form::FileSystem`], and everything with files
//! behind it implements that trait. Two **proofs**: every call carries a
//! [`proof::Caller`] (who asks) and every touch of bytes a [`proof::Granted`] (may do
//! this), which only verifying a signature can make.
//!
//! ```text
//!   evidence ─▶ Authority ─▶ Caller ─┐
//!   door ─────▶ Call ────────────────┴▶ FileSystem ── acl::decide ─▶ Decision
//!                                            │             └ Issuer ─▶ Granted
//!                                            └─ bytes ── Granted ─▶ ObjectStore
//! ```
//!
//! This crate is pure: no disk, no network, no runtime, and time only as the
//! [`Clock`] trait. What it must never know: any protocol, any storage format, any
//! key's secret half. The in-memory [`model`] is the plain truth that every clever
//! implementation is compared with.

pub mod acl;
pub mod attr;
pub mod caller;
pub mod drop_box;
pub mod error;
pub mod form;
pub mod id;
pub mod limits;
pub mod metrics;
pub mod model;
pub mod name;
pub mod name_locks;
pub mod policy;
pub mod proof;
pub mod rights;
pub mod service;
pub mod time;

pub use caller::{CallerKind, CallerName};
pub use error::{Actor, Error, ErrorKind, ErrorReport, Result, Retry};
pub use id::{
    CallerId, CapabilityId, ContainerId, CredentialId, DomainId, FileId, KeyId, LinkId, ObjectId, RequestId,
    SessionId, StageId, TokenId, TraceId, VolumeId,
};
pub use name::{Name, OneLine, RelPath, Shown};
pub use rights::Rights;
pub use time::{Civil, Clock, Deadline, Moment, Tick, Time, Timer};
