//! Laws of what is recorded of reads.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use weft_conformance::file_system::site::*;
use weft_core::attr::SetAttr;
use weft_core::form::{FileSystem, Range};
use weft_core::proof::Caller;
use weft_core::service::{Audit, AuditFilter, AuditPage, AuditRecord, AuditVerdict};
use weft_core::{Error, FileId, Result, Rights, limits};
use weft_sys::{SimDisk, Sys, simulate};
use weft_volume::audited::Audited;

use super::crash::volume_on;
use super::site::Volume;

/// A log that keeps what it is given.
#[derive(Default)]
struct Log(Mutex<Vec<AuditRecord>>);

impl Log {
    /// Returns how many records there are of reads of a file, and of how many bytes.
    fn reads_of(&self, file: FileId) -> (usize, u64) {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = records.iter().filter(|record| record.operation == "read" && record.object == Some(file));
        of.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.bytes))
    }
}

#[async_trait]
impl Audit for Log {
    async fn record(&self, record: AuditRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    async fn records(&self, _: &Caller, _: &AuditFilter) -> Result<AuditPage> {
        Err(Error::unsupported("nobody reads it here"))
    }

    async fn verify(&self, _: &Caller) -> Result<AuditVerdict> {
        Err(Error::unsupported("nobody reads it here"))
    }
}

fn audited(volume: &Volume) -> (Audited, Arc<Log>) {
    let (log, managed) = (Arc::<Log>::default(), Arc::new(volume.running().managed));
    (Audited::new(volume.sys.clone(), managed.clone(), log.clone(), managed), log)
}

/// Passes the time after which what was read is recorded.
async fn a_moment(sys: &Sys) {
    sys.sleep(limits::AUDIT_READS_EVERY * 2).await;
}

/// Runs a test on a volume with a log: the administrator's site, and the file system that records.
fn with_log(test: impl AsyncFnOnce(&Site<'_>, &Sys, Audited, Arc<Log>)) {
    simulate(1, |sys| async move {
        let (volume, _) = volume_on(&sys, &SimDisk::new(), 1, true).await;
        let (fs, log) = audited(&volume);
        test(&Site::of(&volume), &sys, fs, log).await;
    });
}

#[test]
fn what_is_read_is_recorded_within_a_moment_however_long_the_file_stays_open() {
    with_log(async |site, sys, fs, log| {
        let id = site.file("f", &pattern(100_000, 1)).await;
        let file = fs.file(&site.call(), id, Rights::READ).await.works();
        let mut source = file.read(&site.call(), Range::ALL).await.works();
        a_moment(sys).await;
        assert_eq!(log.reads_of(id), (1, 0), "that it was begun is recorded, too");
        for (records, bytes) in [(2, 1000), (3, 2000)] {
            source.next(1000).await.works().expect("there is more");
            a_moment(sys).await;
            assert_eq!(log.reads_of(id), (records, bytes));
        }
        a_moment(sys).await;
        assert_eq!(log.reads_of(id), (3, 2000), "nothing more was read");
        source.next(1000).await.works().expect("there is more");
        fs.record_reads().await;
        assert_eq!(log.reads_of(id), (4, 3000), "whoever wants to know now knows now");
        file.close(&site.call()).await.works();
        drop((file, source));
        a_moment(sys).await;
        assert_eq!(log.reads_of(id), (4, 3000));
    });
}

#[test]
fn what_reads_on_when_its_file_is_gone_is_recorded_to_its_end() {
    with_log(async |site, _, fs, log| {
        let id = site.file("f", &pattern(100_000, 1)).await;
        let file = fs.file(&site.call(), id, Rights::READ).await.works();
        let mut source = file.read(&site.call(), Range::ALL).await.works();
        drop(file);
        weft_core::form::collect(&mut *source, 1 << 20).await.works();
        drop(source);
        fs.record_reads().await;
        assert_eq!(log.reads_of(id), (1, 100_000));
    });
}

#[test]
fn what_is_copied_or_read_to_be_executed_is_recorded_as_read() {
    with_log(async |site, _, fs, log| {
        let (from, to) = (site.file("from", &pattern(5000, 1)).await, site.file("to", b"").await);
        let range = Range { at: 1000, length: None };
        assert_eq!(fs.copy(&site.call(), &at("from"), range, &at("to"), 0).await.works().bytes, 4000);
        assert_eq!((log.reads_of(from), log.reads_of(to)), ((1, 4000), (0, 0)));
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        fs.set(&site.call(), &at("to"), &set, &free()).await.works();
        let file = fs.file(&site.call(), to, Rights::EXECUTE).await.works();
        assert_eq!(read_of(&*file, &site.call(), Range::ALL).await.works().len(), 4000);
        fs.record_reads().await;
        assert_eq!(log.reads_of(to), (1, 4000));
    });
}
