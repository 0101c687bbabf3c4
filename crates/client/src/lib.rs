//! What programs link to use a node: finding it, proving who one is, and the file
//! work that takes more than one call (walking trees, copying, resuming).
//!
//! ```text
//!   Place ─▶ Client ── fs() ─▶ FileSystem over rpc
//!              │  └─── remote() ─▶ authority, accounts, node, audit
//!              └─ copy: plan ─▶ files, several at a time ─▶ small ones whole, others by stage, put, publish
//! ```
//!
//! No server code: what this crate depends on can be linked into anything. How to get
//! it wrong: believe a credential file that somebody else could have written; so one
//! that others can read or replace is refused, not used.

pub mod copy;
pub mod credential;
pub mod rules;
pub mod steady;
pub mod tree;

mod connect;
mod together;

pub use connect::{Client, Place};
