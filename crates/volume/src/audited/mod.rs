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
use weft_core::service::{Audit, AuditOutcome, AuditRecord, AuditSubject};
use weft_core::{ContainerId, Error, ErrorKind, FileId, StageId};
use weft_sys::Sys;

use reads::{Reader, Unrecorded};

/// What the volume below knows of what is recorded.
pub trait Witness: Send + Sync {
    /// Returns whether the reads of a container's files are to be recorded. Where that cannot be
    /// found out, they are.
    fn are_recorded(&self, container: ContainerId) -> bool;

    /// Returns the container of a file; none if it is gone.
    fn container_of(&self, call: &Call, file: FileId) -> Option<ContainerId>;

    /// Says what settled that a caller may read a file; nothing if the file is gone.
    fn settled_by(&self, call: &Call, file: FileId) -> Option<String>;

    /// Says what an address leads to, or as far as the caller may go on it: for the record of a refusal,
    /// which the caller is not shown.
    fn found(&self, call: &Call, at: &At) -> AuditSubject;

    /// Says which name a stage is meant for, likewise; nothing if it is gone.
    fn meant_for(&self, call: &Call, stage: StageId) -> Option<At>;
}

/// What a call is about.
#[derive(Clone, Copy)]
enum About<'a> {
    At(&'a At),
    /// From where, to where; a file, and a name for it.
    Both(&'a At, &'a At),
    Open(&'a Reader),
    /// A stage, and where it was begun if that is known.
    Stage(StageId, Option<&'a At>),
}

/// A file system whose reads and refusals are recorded.
#[derive(Clone)]
pub struct Audited(Arc<Inner>);

struct Inner {
    sys: Sys,
    below: Arc<dyn FileSystem>,
    audit: Arc<dyn Audit>,
    witness: Arc<dyn Witness>,
    unrecorded: Unrecorded,
}

impl Audited {
    /// Records what passes to `below` in `audit`.
    pub fn new(
        sys: Sys,
        below: Arc<dyn FileSystem>,
        audit: Arc<dyn Audit>,
        witness: Arc<dyn Witness>,
    ) -> Self {
        Self(Arc::new(Inner { sys, below, audit, witness, unrecorded: Unrecorded::default() }))
    }

    /// Records everything that was read before now: before the log is read, and before it is closed.
    pub async fn record_reads(&self) {
        self.0.record_reads().await;
    }

    /// Records that something about a place was refused beside the tree.
    pub async fn refused(&self, call: &Call, operation: &str, at: &At, error: &Error) {
        self.0.refused(call, operation, About::At(at), error).await;
    }
}

impl Inner {
    /// Records a refusal; other failures are no decision about anybody. What is hidden from the
    /// caller is looked up here, after its answer was made, and stands in the record alone.
    async fn refused(&self, call: &Call, operation: &str, about: About<'_>, error: &Error) {
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
        let because = match (told.subject(), &about) {
            // What one side was called is nothing for whoever reads the audit of the other.
            (None, _) | (_, About::Both(..)) => error.detail().to_owned(),
            (Some(subject), _) => format!("{subject}: {}", error.detail()),
        };
        for subject in self.found(call, about) {
            let outcome = AuditOutcome::Failed(error.kind());
            self.audit.record(self.record(call, operation, subject, outcome, because.clone(), 0)).await;
        }
    }

    /// Says what a refused call was about. Of two places each has a record of its own: who reads the
    /// audit of one must not learn there what is hidden at the other.
    fn found(&self, call: &Call, about: About<'_>) -> Vec<AuditSubject> {
        let one = match about {
            About::At(at) => self.witness.found(call, at),
            About::Both(from, to) => {
                return vec![self.witness.found(call, from), self.witness.found(call, to)];
            }
            About::Open(Reader { file, container, .. }) => {
                let found = self.witness.found(call, &At::id(*file));
                AuditSubject { container: found.container.or(*container), ..found }
            }
            About::Stage(id, begun_at) => {
                let at = self.witness.meant_for(call, id).or(begun_at.cloned());
                at.map(|at| self.witness.found(call, &at)).unwrap_or_default()
            }
        };
        vec![one]
    }

    /// Records that bytes were read, and by which entry, if that is wanted of the container.
    async fn read(&self, reader: &Reader, bytes: u64) {
        let Reader { call, file, container } = reader;
        if container.is_some_and(|container| !self.witness.are_recorded(container)) {
            return;
        }
        let because = self.witness.settled_by(call, *file);
        let about = AuditSubject { object: Some(*file), container: *container, ..AuditSubject::default() };
        let record = self.record(call, "read", about, AuditOutcome::Done, because.unwrap_or_default(), bytes);
        self.audit.record(record).await;
    }

    fn record(
        &self,
        call: &Call,
        operation: &str,
        about: AuditSubject,
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
            about,
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

/// Makes a call and records it if it is refused.
macro_rules! watched {
    ($inner:expr, $call:ident, $operation:literal, $about:expr, $act:expr) => {{
        let outcome = $act.await;
        if let Err(error) = &outcome {
            $inner.refused($call, $operation, $about, error).await;
        }
        outcome
    }};
}
use watched;
