//! What every implementation of a contract must pass, and what tests need to say so:
//! a domain that signs, a clock that is moved by hand, and the suites.
//!
//! A dev-dependency only. A suite is a set of named laws; an implementation's own
//! tests make a fresh instance for each law and run it. A law that an implementation
//! declares it cannot keep (its `supports`) is reported as such, never skipped in silence.

pub mod boundaries;
pub mod clock;
pub mod domain;
pub mod file_system;
pub mod flushes;
pub mod fuzz;
pub mod issuer;
pub mod object_store;
pub mod run;
pub mod scripted;
pub mod seeds;
pub mod services;
pub mod sharing;
pub mod tables;
pub mod tls;

pub use clock::HandClock;
pub use domain::TestDomain;
pub use flushes::ShownBy;
pub use run::full;
pub use services::{TestAuthority, TestNameLocks, TestSessions};
pub use sharing::Sharing;
pub use tls::TestTls;
