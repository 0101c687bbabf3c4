//! What an act leaves behind besides itself: a record for the audit, and names and bytes on disk where
//! its answer says so.

use std::sync::Arc;

use futures_util::future::try_join;
use weft_core::form::{Ack, At, Call};
use weft_core::service::{AuditOutcome, AuditRecord, AuditSubject};
use weft_core::{Error, FileId, Result, Rights};
use weft_kv::Txn;
use weft_sys::beneath::Held;

use super::Volume;
use super::policies::Bound;
use super::view::{Node, View};
use crate::managed::AUDITS;

/// What was done.
pub(super) struct Deed {
    /// What the audit calls it.
    pub(super) operation: &'static str,
    pub(super) about: AuditSubject,
    /// What decided.
    pub(super) because: String,
    pub(super) bytes: u64,
    /// A file that is new at a place: if the place has a policy, that is the file's from now on.
    pub(super) fresh: Option<(Vec<u8>, FileId)>,
    /// Directories whose names, and files whose bytes, are to be on disk before it is answered.
    pub(super) flush: Vec<Flush>,
}

/// What is brought to disk.
pub(super) enum Flush {
    Names(FileId, Arc<Held>),
    File(Arc<Held>),
}

impl Deed {
    /// Returns what was done to something at none of its names in particular.
    pub(super) fn of(view: &View<'_>, operation: &'static str, node: &Node, by: (&Node, Rights)) -> Self {
        let (governed, right) = by;
        let mut about = AuditSubject { object: Some(node.id), ..AuditSubject::default() };
        about.touch(governed.bound.container);
        about.touch(node.bound.container);
        Self {
            operation,
            about,
            because: words(view, &governed.bound, right),
            bytes: 0,
            fresh: None,
            flush: Vec::new(),
        }
    }

    /// Says under which name of a directory, whose names change with it.
    pub(super) fn at(mut self, dir: &Node, name: &weft_core::Name) -> Self {
        self.about.place = Some((dir.id, name.clone()));
        self.about.touch(dir.bound.container);
        self.flush.push(Flush::Names(dir.id, dir.held.clone()));
        self
    }

    /// Says that something is new where it is.
    pub(super) fn fresh(mut self, node: &Node) -> Self {
        self.fresh = Some((node.path.clone(), node.id));
        self
    }

    /// Says that bytes or attributes of a file changed.
    pub(super) fn of_file(mut self, node: &Node) -> Self {
        self.flush.push(Flush::File(node.held.clone()));
        self
    }
}

fn words(view: &View<'_>, bound: &Bound, right: Rights) -> String {
    let settled = view.settle_at(&bound.row.path, bound, right, &view.call.caller.subject());
    crate::managed::words(&settled, right)
}

impl Volume {
    /// Brings what an act changed to disk, if its answer is to say so, and records it meanwhile: both are there
    /// before the answer, and whoever waits does so for one disk's flush and not for two.
    pub(super) async fn leave(self: &Arc<Self>, call: &Call, mut deed: Deed) -> Result<()> {
        let flushes = if call.ack == Ack::Durable { std::mem::take(&mut deed.flush) } else { Vec::new() };
        let bring = async {
            for flush in flushes {
                self.flush(call, flush).await?;
            }
            match &deed.fresh {
                // Of what is on disk only: the old place would have lost its policy if it were back after a crash.
                Some((path, id)) => self.bind_fresh(self.deadline_to_end(call), path, *id).await,
                None => Ok(()),
            }
        };
        let record = async {
            let Some(record) = self.record_of(call, &deed)? else { return Ok(()) };
            self.space.write(call.ack, move |txn| txn.note(AUDITS, &record)).await.map(drop)
        };
        try_join(bring, record).await.map(drop)
    }

    async fn flush(self: &Arc<Self>, call: &Call, flush: Flush) -> Result<()> {
        let until = self.deadline_to_end(call);
        match flush {
            Flush::File(file) => self.apart(until, move || file.flush()).await,
            Flush::Names(id, dir) => {
                let volume = self.clone();
                let flush = move |dir: Arc<Held>| {
                    let volume = volume.clone();
                    async move { volume.apart(volume.sys_deadline(), move || dir.flush_names()).await }
                };
                self.sys.within(until, self.flushes.flushed(&self.sys, (id, dir), flush)).await
            }
        }
    }

    /// Returns the record of an act, encoded, if somebody takes it.
    pub(super) fn record_of(&self, call: &Call, deed: &Deed) -> Result<Option<Vec<u8>>> {
        if !self.audited {
            return Ok(None);
        }
        let caller = &call.caller;
        let record = AuditRecord {
            at: self.sys.clock().now(),
            caller: caller.name().clone(),
            credential: caller.credential(),
            delegates: caller.claims().delegates.clone(),
            from: call.from,
            trace: call.trace,
            operation: deed.operation.to_owned(),
            about: deed.about.clone(),
            outcome: AuditOutcome::Done,
            because: deed.because.clone(),
            bytes: deed.bytes,
        };
        let record = postcard::to_stdvec(&record);
        record.map(Some).map_err(|e| Error::internal("an audit record does not encode").caused_by(e))
    }
}

/// Says what an address leads to, for the record of a refusal: as far as it is known without asking the
/// machine again.
pub(super) fn found(volume: &Volume, at: &At) -> AuditSubject {
    let mut subject = AuditSubject { object: at.path.is_empty().then_some(at.base), ..Default::default() };
    let Some(base) = volume.last_path(at.base) else { return subject };
    let policies = volume.policies();
    let path = [&base[..], b"/", at.path.as_bytes()].concat();
    let path = path.strip_prefix(b"/").unwrap_or(&path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    subject.touch(policies.governing_path(path).container);
    if let Some((above, name)) = at.path.split_last()
        && above.is_empty()
    {
        subject.place = Some((at.base, name));
    }
    subject
}
