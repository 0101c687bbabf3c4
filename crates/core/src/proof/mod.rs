//! Proofs: who is asking ([`Caller`]) and what they may do ([`Granted`]).
//!
//! Both have private fields, and the only ways to make one are to verify a signature
//! (`Caller::verify`, `Granted::verify`) or to be nobody (`Caller::anyone`). A door
//! cannot forge either; a store demands the second. Keys and signing live in `auth`.
//!
//! ```text
//!   root key ── certifies ──▶ signing key ── signs ──▶ credential ── verify ──▶ Caller
//!                         └─▶ issuing key ── signs ──▶ capability ── verify ──▶ Granted
//!                                                    (made of a Decision)
//! ```
//!
//! Both are live leases, not stamps: they read an atomic flag that [`Revocations`]
//! sets, and the expiry, each time they are asked. How to get it wrong: keep a
//! `Granted` and skip asking it. So bytes are handed out a piece at a time and
//! sources ask per piece.

mod caller;
mod capability;
mod credential;
mod lease;
mod signed;
mod trust;

pub use caller::Caller;
pub use capability::{CapabilityClaims, Granted, Objects};
pub use credential::{Attenuation, Confines, CredentialClaims, EvidenceKind, Scope, Within};
pub use lease::{Revocations, Withdrawn};
pub use signed::{Purpose, Signed};
pub use trust::{CertificateClaims, KeyCertificate, Trust};
