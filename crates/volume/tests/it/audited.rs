//! Laws of what is recorded of reads and refusals.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use weft_conformance::file_system::site::*;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, Cursor, Expect, FileSystem, New, PageMax, Range, Request, StageHint, Want, WriteAt,
};
use weft_core::proof::Caller;
use weft_core::service::{Audit, AuditFilter, AuditOutcome, AuditPage, AuditRecord, AuditVerdict};
use weft_core::{ContainerId, Error, ErrorKind, FileId, Result, Rights, limits};
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
        let of =
            records.iter().filter(|record| record.operation == "read" && record.about.object == Some(file));
        of.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.bytes))
    }

    /// Returns why what was refused was.
    fn reasons(&self) -> Vec<String> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().map(|record| record.because.clone()).collect()
    }

    /// Takes out the records of refusals: of which operation, and what they were about.
    fn refusals(&self) -> Vec<(String, Option<FileId>, Option<ContainerId>)> {
        let records = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let refused = records.into_iter().filter(|record| record.outcome != AuditOutcome::Done);
        refused.map(|record| (record.operation, record.about.object, record.about.container)).collect()
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
fn of_what_would_be_lent_nothing_counts_as_read_that_is_not() {
    with_log(async |site, sys, fs, log| {
        let id = site.file("f", &pattern(100_000, 1)).await;
        let file = fs.file(&site.call(), id, Rights::READ).await.works();
        // It is looked at, and lies in no file that could be.
        let mut source = file.lend(&site.call(), Range::ALL).await.works();
        assert!(source.next(1000).await.works().is_none());
        a_moment(sys).await;
        assert_eq!(log.reads_of(id), (1, 0));
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

/// A sealed directory with a file in it, and bob, who may pass what lies above it and no more.
async fn sealed(site: &Site<'_>) -> (ContainerId, FileId, Caller) {
    let bob = site.user("bob");
    site.allow("", &bob, Rights::TRAVERSE).await;
    site.dir("hers").await;
    let file = site.file("hers/f", &pattern(100_000, 1)).await;
    let made = site.seal("hers").await;
    (made.container, file, bob)
}

#[test]
fn a_refusal_is_recorded_with_what_it_was_about_where_that_is_hidden_too() {
    with_log(async |site, _, fs, log| {
        let (container, f, bob) = sealed(site).await;
        let call = site.call_of(&bob, 2);
        let mut told = Vec::new();
        for path in ["hers/f", "hers/none", "hers/none/below", "hers/f/below"] {
            let error = fs.open(&call, &at(path), &how(Rights::READ)).await.err().expect("not his");
            told.push((error.kind(), error.detail().to_owned(), error.advice().map(str::to_owned)));
        }
        assert!(told.iter().all(|one| *one == told[0] && one.0 == ErrorKind::NotFound), "{told:?}");
        fs.remove(&call, &at("hers/f"), Expect::Any, &free()).await.fails();
        assert_eq!(fs.file(&call, f, Rights::READ).await.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
        assert_eq!(
            fs.list(&call, &at("hers"), Cursor::Start, PageMax::new(10), Want::default()).await.fails(),
            ErrorKind::Denied
        );
        let hers = site.find("hers").await.works();
        let about = |operation: &str, object| (operation.to_owned(), object, Some(container));
        // What lies behind the directory that refused is not looked at: its name tells.
        let opened = [None; 4].map(|object| about("open", object));
        let others = [about("remove", None), about("file", Some(f)), about("list", Some(hers))];
        assert_eq!(log.refusals(), [&opened[..], &others].concat());
    });
}

#[test]
fn a_refusal_through_a_link_is_about_the_directory_that_refused_and_nothing_behind_it() {
    with_log(async |site, _, fs, log| {
        let (container, _, bob) = sealed(site).await;
        site.dir("his").await;
        site.dir("hers/there").await;
        let call = site.call_of(&bob, 2);
        // Who owns where the link leads in the end must not learn what lies on the way.
        for target in ["hers/there/../../his", "hers/missing/../../his"] {
            site.symlink("way", target).await;
            fs.open(&call, &at("way").following(), &how(Rights::READ)).await.map(drop).fails();
            site.fs.remove(&site.call(), &at("way"), Expect::Any, &free()).await.works();
        }
        assert_eq!(log.refusals(), [(); 2].map(|()| ("open".to_owned(), None, Some(container))));
    });
}

#[test]
fn of_a_refusal_between_two_places_the_record_of_one_tells_nothing_of_the_other() {
    with_log(async |site, _, fs, log| {
        let (container, _, bob) = sealed(site).await;
        site.dir("his").await;
        site.allow("his", &bob, Rights::ALL).await;
        let his = site.file("his/f", b"").await;
        let own = site.attr(his).await.container;
        let call = site.call_of(&bob, 2);
        for guess in ["hers/f", "hers/none"] {
            fs.rename(&call, &at("his/f"), &at(guess), weft_core::form::Replace::Any, &free()).await.fails();
            fs.rename(&call, &at(guess), &at("his/g"), weft_core::form::Replace::Any, &free()).await.fails();
            fs.link(&call, &at("his/f"), &at(guess)).await.fails();
            fs.copy(&call, &at(guess), Range::ALL, &at("his/f"), 0).await.map(drop).fails();
        }
        let tells = |reason: &String| reason.contains("his/") || reason.contains("hers/");
        assert!(!log.reasons().iter().any(tells), "{:?}", log.reasons());
        let records = log.refusals();
        let (half, again) = records.split_at(records.len() / 2);
        assert_eq!(half, again, "the same whether the name is there or not");
        let of = |container| half.iter().filter(|record| record.2 == Some(container)).count();
        assert_eq!((half.len(), of(container), of(own)), (8, 4, 4));
    });
}

#[test]
fn what_is_outside_the_paths_of_a_credential_is_recorded_as_refused() {
    with_log(async |site, _, fs, log| {
        let (container, _, _) = sealed(site).await;
        site.dir("his").await;
        let mut claims = site.subject.domain().claims(weft_conformance::file_system::ADMINISTRATOR);
        claims.limits.paths = vec![at("his").path];
        let call = site.call_of(&site.subject.domain().caller_with(&claims), 2);
        let refused = fs.walk(&call, &at("hers/f"), Want::default()).await.fails();
        let hers = site.find("hers").await.works();
        assert_eq!(refused, ErrorKind::NotFound);
        let records = log.refusals();
        assert_eq!(records, [("walk".to_owned(), None, Some(container))], "{hers}");
    });
}

#[test]
fn what_is_refused_through_an_open_file_a_stage_or_a_batch_is_recorded_as_any() {
    with_log(async |site, _, fs, log| {
        let (container, f, bob) = sealed(site).await;
        site.allow("hers", &bob, Rights::WRITING).await;
        let call = site.call_of(&bob, 2);
        let (writing, reading) =
            (fs.file(&call, f, Rights::WRITE).await.works(), fs.file(&call, f, Rights::READ).await.works());
        let mut source = reading.read(&call, Range::ALL).await.works();
        source.next(1000).await.works();
        let begun = fs.stage(&call, &at("hers/new"), &StageHint::default()).await.works();
        let brief = StageHint { brief: true, ..StageHint::default() };
        let brief = fs.stage(&call, &at("hers/small"), &brief).await.works();
        let again = fs.staged(&call, begun.id()).await.works();
        assert_eq!(log.refusals(), []);
        site.forbid("hers", &bob).await;
        write_to(&*writing, &call, WriteAt::Offset(0), b"x").await.fails();
        source.next(1000).await.fails();
        for stage in [begun, brief, again] {
            stage.publish(&call, &[], &SetAttr::default(), &free()).await.fails();
        }
        let remove = Request::Remove { at: at("hers/f"), kind: Expect::Any, guard: free() };
        let make = Request::Make { at: at("hers/g"), new: New::Directory, set: SetAttr::default() };
        let walk = Request::Walk { at: At::id(f), want: Want::default() };
        let replies = fs.batch(&call, vec![remove, make, walk]).await;
        assert!(replies.iter().all(Result::is_err));
        let about = |(operation, object): (&str, _)| (operation.to_owned(), object, Some(container));
        let expected = [
            ("write", Some(f)),
            ("read", Some(f)),
            ("publish", None),
            ("publish", None),
            ("publish", None),
            ("remove", None),
            ("make", None),
            ("walk", Some(f)),
        ];
        assert_eq!(log.refusals(), expected.map(about));
    });
}

#[test]
fn what_a_batch_copies_is_recorded_as_read() {
    with_log(async |site, _, fs, log| {
        let (from, _) = (site.file("from", &pattern(5000, 1)).await, site.file("to", b"").await);
        let copy = Request::Copy { from: at("from"), range: Range::ALL, to: at("to"), offset: 0 };
        assert!(fs.batch(&site.call(), vec![copy]).await.iter().all(Result::is_ok));
        assert_eq!(log.reads_of(from), (1, 5000));
    });
}
