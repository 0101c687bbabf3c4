//! The audit of what no commit carries: reads and refusals.
//!
//! Writes are recorded by the volume itself, in the commit that makes them. This wrapper
//! stands between the doors and the volume and records what leaves no trace there: bytes
//! that were read, for each open, where the container says so; and every refusal, always.
//!
//! How to get it wrong: record before the act and call it done, or lose a record when a
//! file is dropped and not closed, or never closed. So reads are recorded when the last that can
//! read goes, and before that every now and then.

mod file;
mod file_system;
mod reads;
mod stage;

use std::sync::Arc;

use weft_core::form::{At, Call, FileSystem};
use weft_core::service::{Audit, AuditOutcome, AuditRecord};
use weft_core::{ContainerId, Error, ErrorKind, FileId};
use weft_sys::Sys;

use reads::{Reader, Unrecorded};

/// What the volume below knows of reads.
pub trait Readings: Send + Sync {
    /// Returns whether the reads of a container's files are to be recorded. Where that cannot be
    /// found out, they are.
    fn are_recorded(&self, container: ContainerId) -> bool;

    /// Says what settled that a caller may read a file; nothing if the file is gone.
    fn settled_by(&self, call: &Call, file: FileId) -> Option<String>;
}

/// A file system whose reads and refusals are recorded.
#[derive(Clone)]
pub struct Audited(Arc<Inner>);

struct Inner {
    sys: Sys,
    below: Arc<dyn FileSystem>,
    audit: Arc<dyn Audit>,
    reads: Arc<dyn Readings>,
    unrecorded: Unrecorded,
}

impl Audited {
    /// Records what passes to `below` in `audit`.
    pub fn new(
        sys: Sys,
        below: Arc<dyn FileSystem>,
        audit: Arc<dyn Audit>,
        reads: Arc<dyn Readings>,
    ) -> Self {
        Self(Arc::new(Inner { sys, below, audit, reads, unrecorded: Unrecorded::default() }))
    }

    /// Records everything that was read before now: before the log is read, and before it is closed.
    pub async fn record_reads(&self) {
        self.0.record_reads().await;
    }
}

impl Inner {
    /// Records a refusal; other failures are no decision about anybody.
    async fn refused(&self, call: &Call, operation: &str, object: Option<FileId>, error: &Error) {
        let told = error;
        let error = reason(error);
        let refusal = matches!(
            error.kind(),
            ErrorKind::Denied
                | ErrorKind::NotPermitted
                | ErrorKind::Unauthenticated
                | ErrorKind::Revoked
                | ErrorKind::Expired
        );
        if !refusal {
            return;
        }
        let because = match told.subject() {
            Some(about) => format!("{about}: {}", error.detail()),
            None => error.detail().to_owned(),
        };
        let outcome = AuditOutcome::Failed(error.kind());
        let record = self.record(call, operation, (object, None), outcome, because, 0);
        self.audit.record(record).await;
    }

    /// Records that bytes were read, and by which entry, if that is wanted of the container.
    async fn read(&self, reader: &Reader, bytes: u64) {
        let Reader { call, file, container } = reader;
        if !self.reads.are_recorded(*container) {
            return;
        }
        let because = self.reads.settled_by(call, *file);
        let about = (Some(*file), Some(*container));
        let record = self.record(call, "read", about, AuditOutcome::Done, because.unwrap_or_default(), bytes);
        self.audit.record(record).await;
    }

    fn record(
        &self,
        call: &Call,
        operation: &str,
        (object, container): (Option<FileId>, Option<ContainerId>),
        outcome: AuditOutcome,
        because: String,
        bytes: u64,
    ) -> AuditRecord {
        AuditRecord {
            at: self.sys.clock().now(),
            caller: call.caller.name().clone(),
            credential: call.caller.credential(),
            delegates: call.caller.claims().delegates.clone(),
            from: call.from,
            trace: call.trace,
            operation: operation.to_owned(),
            object,
            container,
            outcome,
            because,
            bytes,
        }
    }
}

/// Returns why something was refused: what the caller is told does not exist may be
/// hidden from it, and then the reason is chained below.
fn reason(error: &Error) -> &Error {
    let below = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    below.filter(|_| error.kind() == ErrorKind::NotFound).unwrap_or(error)
}

/// Returns the inode an address names, if it names one by id.
fn named(at: &At) -> Option<FileId> {
    at.path.is_empty().then_some(at.base)
}

/// Makes a call and records it if it is refused.
macro_rules! watched {
    ($inner:expr, $call:ident, $operation:literal, $object:expr, $act:expr) => {{
        let outcome = $act.await;
        if let Err(error) = &outcome {
            $inner.refused($call, $operation, $object, error).await;
        }
        outcome
    }};
}
use watched;
