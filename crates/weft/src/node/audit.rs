//! The audit log as callers may read it: administrators all of it, others what is
//! about a container on which the tree gives them `audit-read`.

use std::sync::Arc;

use async_trait::async_trait;
use weft_auth::Auth;
use weft_core::form::{At, FileSystem, Want};
use weft_core::proof::Caller;
use weft_core::service::{
    Audit, AuditFilter, AuditOutcome, AuditPage, AuditRecord, AuditSubject, AuditVerdict,
};
use weft_core::{Error, Result, Rights};
use weft_kv::Engine;
use weft_sys::Sys;
use weft_volume::audited::Audited;
use weft_volume::managed;

use super::call_of;

/// Asks the tree before it asks the log.
pub struct Guarded {
    sys: Sys,
    auth: Arc<Auth>,
    engine: Arc<dyn Engine>,
    fs: Audited,
}

impl Guarded {
    pub fn new(sys: Sys, auth: Arc<Auth>, engine: Arc<dyn Engine>, fs: Audited) -> Self {
        Self { sys, auth, engine, fs }
    }

    /// Waits until the log has what was read and written before now: records of writes come to it
    /// through the engine, once they are on disk.
    async fn catch_up(&self) -> Result<()> {
        self.fs.record_reads().await;
        let Some(last) = self.engine.last_note(managed::AUDITS)? else { return Ok(()) };
        self.engine.flush().await?;
        self.auth.audit_log().copied(last).await
    }

    async fn demand(&self, caller: &Caller, filter: &AuditFilter) -> Result<()> {
        let refused = || Error::denied("only administrators read the whole log").hint("weft audit PATH");
        let (Some(container), Some(member)) = (filter.container, filter.member) else {
            return Err(refused());
        };
        let call = call_of(&self.sys, caller);
        let walked = self.fs.walk(&call, &At::id(member), Want { attr: true, rights: true }).await?;
        let may = walked.rights.unwrap_or_default().contains(Rights::AUDIT_READ);
        let refused = if walked.attr.container != container || !may {
            Error::denied("reading the audit of the container needs `audit-read` on it")
        } else if caller.is_confined() && filter.object != Some(member) {
            // A container reaches beyond the paths of a credential; what lies there is not to be told.
            let detail = "a credential that is limited to paths reads what is about one path only";
            Error::denied(detail).hint("weft audit --only PATH")
        } else {
            return Ok(());
        };
        self.fs.refused(&call, "audit", &At::id(member), &refused).await;
        Err(refused)
    }
}

#[async_trait]
impl Audit for Guarded {
    async fn record(&self, record: AuditRecord) {
        self.auth.audit().record(record).await;
    }

    async fn records(&self, caller: &Caller, filter: &AuditFilter) -> Result<AuditPage> {
        let is_administrator = self.auth.demand_administrator(caller).is_ok();
        if !is_administrator {
            self.demand(caller, filter).await?;
        }
        // What a later page holds was there when the first was asked for.
        if filter.after == 0 {
            self.catch_up().await?;
        }
        let mut page = self.auth.audit().records(caller, filter).await?;
        if !is_administrator && caller.is_confined() {
            page.records.iter_mut().for_each(|(_, record)| withhold_places(filter, record));
        }
        Ok(page)
    }

    async fn verify(&self, caller: &Caller) -> Result<AuditVerdict> {
        self.auth.audit().verify(caller).await
    }
}

/// Keeps back where a file was, what it met there and what it was called: that may lie outside the paths
/// of the credential that asks. What the file is called inside them, who asked knows.
fn withhold_places(filter: &AuditFilter, record: &mut AuditRecord) {
    let (object, container) = (filter.object, filter.container);
    record.about = AuditSubject { object, container, ..AuditSubject::default() };
    if record.outcome != AuditOutcome::Done {
        record.because.clear();
    }
}
