//! The native door: the server's end of `rpc`.
//!
//! It verifies what clients present, rebuilds each [`Call`](weft_core::form::Call)
//! from that, and makes the call of the service traits. It decides nothing.
//!
//! ```text
//!   line ─▶ reader ─┬▶ Present, Begin, End   in order, on the spot
//!                   ├▶ Call ─▶ a task of its own ─▶ the trait ─▶ Reply, Data …
//!                   └▶ Data, Credit, Cancel ─▶ that task
//!   line ◀─ writer ◀─ one bounded queue ◀────────────┘
//! ```
//!
//! The reader never waits for a call, so a stalled stream holds nobody up; instead
//! everything a client may send is bounded, and one that sends more is cut off. What
//! it brings, and what is read for it, is paid for out of room that all connections of
//! its uid share (`held`). Bytes of a download are asked about once more as they leave
//! the queue, so that what waited there while its right ended does not go.
//! Opens belong to sessions, not to connections: a client that comes back finds them.

mod calls;
mod connection;
mod download;
mod held;
mod lend;
mod peer;
mod repeats;
mod sessions;
mod upload;

use std::sync::Arc;

use weft_core::form::FileSystem;
use weft_core::proof::KeyCertificate;
use weft_core::service::{Accounts, Audit, Authority, Links, Node, Sessions, Tokens};
use weft_core::{DomainId, Result};
use weft_sys::Sys;

pub use connection::{serve, serve_own, too_many_connections};
pub use held::Uids;
pub use sessions::OpenTables;

/// Tells which keys vouch for a domain's credentials: others after a rotation.
pub type Certificates = Arc<dyn Fn() -> Result<Vec<KeyCertificate>> + Send + Sync>;

/// What the door opens onto.
pub struct Services {
    /// The system.
    pub sys: Sys,
    /// The tree.
    pub fs: Arc<dyn FileSystem>,
    /// Who is who.
    pub authority: Arc<dyn Authority>,
    /// Users and groups.
    pub accounts: Arc<dyn Accounts>,
    /// Sessions.
    pub sessions: Arc<dyn Sessions>,
    /// The audit log.
    pub audit: Arc<dyn Audit>,
    /// The node.
    pub node: Arc<dyn Node>,
    /// Links for people without an account.
    pub links: Arc<dyn Links>,
    /// Tokens of programs.
    pub tokens: Arc<dyn Tokens>,
    /// The node's domain.
    pub domain: DomainId,
    /// The keys that vouch for its credentials, shown to clients as they are when those connect.
    pub certificates: Certificates,
    /// What is open, by session. Give it to `sessions` as a watcher.
    pub opens: Arc<OpenTables>,
    /// What is held for each uid.
    pub uids: Uids,
}
