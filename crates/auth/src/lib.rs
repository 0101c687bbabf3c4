//! Who is asking, what proves it, and what was done about it: the one crate that holds secrets.
//!
//! **Problem.** Every call must carry proof of its caller, and every touch of bytes proof of a
//! right; neither may cost a signature or a disk read when it repeats, and both must end at once
//! when they are withdrawn.
//!
//! **Shape.** One [`Auth`] per node. It holds the keys of the home domain and its tables, and gives
//! out the service roles that `core` declares:
//!
//! ```text
//!                    keys/root.key (can be taken away)
//!                        │ certifies, at birth and at rotation
//!        ┌───────────────┼────────────────┐
//!   credentials      capabilities     audit heads
//!        │               │                │
//!   Authority ──▶ Caller │    Decision ─▶ Issuer ──▶ Granted        Audit: chained files
//!   evidence: password,  │                                          Sessions: in memory
//!   tokens, ours and of  └── Trust + Revocations: all that a checker needs
//!   issuers, socket uid,
//!   certificates
//! ```
//!
//! **What a first start makes.** The root key, one signing key for each purpose, the administrator
//! (its name, the uid that made the node, perhaps a password) and the group
//! `group:ADMINISTRATOR/administrators`, whose members are the administrators. All of it, or it
//! starts again; a root key that is there already is never replaced.
//!
//! **Order.** What is withdrawn is on disk before it takes effect, and in effect before the answer.
//! A gate is held shared by whoever mints and alone by whoever changes identities, so that
//! everything minted is either ended by a change or has seen it. Rights are judged by a clock that
//! never goes back.
//!
//! **Ways to get it wrong.** Keeping a `Caller` and not asking whether it is live: the caches here
//! ask each time. Answering faster for an unknown user: it costs a password check all the same.
//! Telling which half of a login was wrong. Forgetting what was revoked at a restart: credentials
//! are reloaded before anything is verified, capabilities of the earlier instance are dead.
//! Checking a secret with `==`.

mod accounts;
mod audit;
mod auth;
mod authority;
mod certificates;
mod certified;
mod check;
mod checks;
mod home;
mod issued;
mod issuer;
mod issuers;
mod keys;
mod links;
mod password;
mod remembered;
mod restored;
mod secret;
mod sessions;
mod steady;
mod tables;
mod throttle;
mod tokens;

pub use audit::AuditLog;
pub use auth::{Auth, FirstPassword, Founded, Settings, after_restore};
pub use certificates::{ClientAuthoritySettings, check_client_authority, subject_of};
pub use check::{check, mend};
pub use issuers::{ActsFor, Documents, IssuerSettings, check_keys, is_group};
pub use keys::file::is_signing_key;
pub use keys::{KeyState, RootKey};
pub use links::{LinkTarget, TableLinks};
pub use restored::{TakenOver, take_over};
pub use tables::SCHEMA_VERSION;

/// What the files begin with that auth keeps beside its tables: the audit log's, and those of keys.
pub const FILE_FORMATS: [&[u8]; 2] = [audit::MAGIC, keys::file::MAGIC];
