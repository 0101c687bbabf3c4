//! The laws of the request form, for anything that implements it.
//!
//! An implementation says how to make a fresh instance of itself ([`Subject`]), and
//! [`file_system_suite!`](crate::file_system_suite) makes one test for each law. A law
//! is an async function over a subject; its name says what must hold.
//!
//! ```text
//! async fn fresh() -> MySubject { … }
//! weft_conformance::file_system_suite!(fresh);
//! ```
//!
//! A law that a subject declares it cannot keep says so when it is run. Beside the laws
//! stand two drivers with seeds of their own choosing: [`oracle::run`] makes the same
//! random requests of the subject and of the plain `Model` and compares every answer;
//! [`history::run`] lets many callers change names at once and checks that what they
//! heard can be put into some order.

pub mod attributes;
pub mod concurrency;
pub mod confined;
pub mod durable;
pub mod files;
pub mod history;
pub mod listing;
pub mod locks;
pub mod names;
pub mod narrowed;
pub mod opens;
pub mod oracle;
pub mod policies;
pub mod replays;
pub mod rights;
pub mod site;
pub mod stages;
mod suite;
pub mod symlinks;
pub mod watching;
pub mod workload;

pub use suite::{LAWS, try_law};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weft_core::SessionId;
use weft_core::form::FileSystem;

use crate::TestDomain;

/// The user who has every right on the root of a fresh instance; nobody else has any.
pub const ADMINISTRATOR: &str = "administrator";

/// A fresh instance of an implementation, and the handles on its surroundings that
/// laws need.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Returns the file system: one empty root that [`ADMINISTRATOR`] of the domain
    /// may do everything with.
    fn fs(&self) -> Arc<dyn FileSystem>;

    /// Returns the domain it trusts and has its capabilities signed by. The domain's
    /// clock is the one the file system goes by.
    fn domain(&self) -> &Arc<TestDomain>;

    /// Ends a session, as `Sessions` would tell it.
    fn end_session(&self, session: SessionId);

    /// Lets time pass on both of the domain's clocks: by moving them, or by waiting.
    async fn pass(&self, span: Duration);

    /// Returns whether [`Subject::pass`] moves the clock instead of waiting, so that
    /// laws about days can be tried.
    fn time_is_moved(&self) -> bool {
        false
    }

    /// Returns whether a call's origin reaches the file system as the call says it. Over a
    /// wire it does not: the server says where a call comes from.
    fn carries_origin(&self) -> bool {
        true
    }

    /// Returns whether nobody else takes or gives back room where it keeps its files.
    fn room_is_its_own(&self) -> bool {
        true
    }

    /// Returns the laws that it does not keep, each with the reason. They are tried all the same, and
    /// must fail: what is kept is no exception.
    fn exceptions(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Stops it cleanly and starts it again over what it kept, so that [`Subject::fs`]
    /// returns the new one. Returns `false` if it keeps nothing.
    async fn restart(&self) -> bool {
        false
    }
}
