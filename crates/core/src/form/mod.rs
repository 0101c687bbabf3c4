//! The common request form: what every door, mount, CLI and node speaks.
//!
//! [`FileSystem`] is the one trait; its laws are on its methods, and by their numbers in
//! `docs/LAWS.md`. Small requests go through it as calls; bytes are always pulled, as a [`Source`]
//! of [`Piece`]s, so that whoever sends them can stop, queue and share.
//!
//! ```text
//!  door ── Call + At ──▶ FileSystem ──▶ attributes, pages, changes
//!                            │
//!                            └─ open/file ─▶ OpenFile ── read ─▶ Source ─▶ pieces ─▶ the mover
//!                            └─ stage ─────▶ Stage ◀── put ── Source ◀── pieces ◀── the mover
//! ```
//!
//! How to get it wrong: resolve a path in one call and act in another. So every
//! method takes an id and a short path and does walk, act and attributes in one
//! transaction.

mod address;
mod answer;
mod batch;
mod call;
mod digests;
mod file_system;
mod held;
mod lock;
mod source;
mod watch;
mod whole;

pub use address::{At, Cursor, Expect, Follow, Guard, Replace, VersionIs};
pub use answer::{
    Copied, Entry, LinkTarget, LockLease, Opened, Page, Part, PartPage, Protected, Reference, Space,
    StageEntry, StagePage, Supports, TagPage, Walked, Want, Why, WhyStep, Written,
};
pub use batch::{Reply, Request, dispatch, one_by_one, too_many_requests};
pub use call::{Ack, Call, Door, Origin, Wire, one_machine};
pub use digests::{digest_of_zeros, digested_range, digests_of};
pub use file_system::{
    FileSystem, Make, New, OpenFile, OpenHow, PageMax, Pin, Range, Scope, Seek, Shape, Stage, StageHint,
    SyncScope, WriteAt, check_carried,
};
pub use held::HeldLocks;
pub use lock::{Lock, LockKind, LockOwner, LockRange, LockScope, Wait};
pub use source::{BytesSource, OpenedFile, Piece, Source, Stopped, collect, joined, pieces};
pub use watch::{Change, ChangeKind, ChangeSeq, Changes};
pub use whole::{Whole, put_whole};

/// Changes when unsynced data may have been lost: compare it across writes and syncs
/// (request-form law 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Verifier(pub u64);
