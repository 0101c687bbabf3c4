//! A `Model` that gets stuck, is slow, busy or panics, or loses what was not synced, where a
//! test says so.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use weft_core::attr::{Attr, Changed, SetAttr, TagEdit, TagName, Wcc};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Seek, Shape, Source, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier,
    Wait, Walked, Want, Why, WriteAt, Written,
};
use weft_core::model::Model;
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, Error, ErrorKind, FileId, Result, Rights, StageId, VolumeId, limits};

/// Looking up `stuck-walk…` never ends, `panic` panics, and reading a file named `stuck-read`
/// never ends; to make `late` fails, and it is made [`LATE`]; asking what one named `slow-attr` is takes [`SLOW`]. A rename to `slow` takes [`SLOW`], one to `stuck` never ends. A lock that is
/// waited for is taken when it is free, whether anybody waits for it still or not.
pub struct Faulty {
    pub inner: Arc<Model>,
    /// Added to every verifier: raising it says that unsynced bytes were lost.
    pub lost: Arc<AtomicU64>,
    /// Whether its change feed tells of nothing.
    pub deaf: bool,
    /// How many unlocks are refused because too much is under way.
    pub busy: Arc<AtomicU64>,
    /// How often it was asked for a name, for attributes or for a page of a directory.
    pub asked: Arc<AtomicU64>,
    /// How often bytes were written.
    pub written: Arc<AtomicU64>,
    /// While it is set, nobody is answered who has written at a file's beginning.
    pub first_late: Arc<AtomicBool>,
    /// While it is set, a page of a directory that was asked for is not answered, nor what a name leads to that begins with `late-`.
    pub lists_late: Arc<AtomicBool>,
    /// While it is set, no sync of a file is answered.
    pub syncs_late: Arc<AtomicBool>,
    /// How many syncs of files were asked for.
    pub syncs: Arc<AtomicU64>,
    /// Whether what it tells of user attributes has no end.
    pub tags_without_end: bool,
    /// How often bytes were read.
    pub reads: Arc<AtomicU64>,
    /// While it is set, nobody is answered who reads.
    pub reads_late: Arc<AtomicBool>,
    /// While it is set, its change feed tells of nothing yet.
    pub tells_late: Arc<AtomicBool>,
    /// From where on its change feed was asked last: what comes before was taken in.
    pub since: Arc<AtomicU64>,
    /// How often its change feed told of something.
    pub told: Arc<AtomicU64>,
    /// Whether a copy ends with an error once it has copied a half.
    pub copies_half: bool,
}

impl Faulty {
    /// One that fails nowhere else.
    pub fn new(inner: Arc<Model>) -> Self {
        Self {
            inner,
            lost: Arc::default(),
            deaf: false,
            busy: Arc::default(),
            asked: Arc::default(),
            written: Arc::default(),
            first_late: Arc::default(),
            lists_late: Arc::default(),
            syncs_late: Arc::default(),
            syncs: Arc::default(),
            tags_without_end: false,
            reads: Arc::default(),
            reads_late: Arc::default(),
            tells_late: Arc::default(),
            since: Arc::default(),
            told: Arc::default(),
            copies_half: false,
        }
    }
}

/// Longer than a program that was interrupted waits for an answer.
pub const SLOW: Duration = Duration::from_millis(2500);
const _: () = assert!(SLOW.as_millis() > limits::MOUNT_INTERRUPT_GRACE.as_millis());

/// How long after it was said to have failed something is made all the same.
pub const LATE: Duration = Duration::from_millis(300);

struct FaultyFile {
    inner: Arc<dyn OpenFile>,
    lost: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    first_late: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    reads_late: Arc<AtomicBool>,
    syncs_late: Arc<AtomicBool>,
    syncs: Arc<AtomicU64>,
    stuck: bool,
    slow: bool,
}

/// Waits for as long as it is set.
async fn late(set: &AtomicBool) {
    while set.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn shifted(verifier: Verifier, lost: &AtomicU64) -> Verifier {
    Verifier(verifier.0.wrapping_add(lost.load(Ordering::SeqCst)))
}

#[async_trait]
impl FileSystem for Faulty {
    fn supports(&self, volume: VolumeId) -> Supports {
        self.inner.supports(volume)
    }
    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match at.path.as_bytes() {
            name if name.starts_with(b"stuck-walk") => pending().await,
            b"panic" => panic!("a test asked for it"),
            name if name.starts_with(b"late-") => {
                let walked = self.inner.walk(call, at, want).await;
                late(&self.lists_late).await;
                walked
            }
            _ => self.inner.walk(call, at, want).await,
        }
    }
    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let page = self.inner.list(call, dir, from, max, want).await;
        late(&self.lists_late).await;
        page
    }
    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        if at.path.as_bytes() == b"late" {
            let (inner, call, at, set) = (self.inner.clone(), call.clone(), at.clone(), set.clone());
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                inner.make(&call, &at, new, &set).await
            });
            return Err(Error::new(ErrorKind::Deadline, "a test asked for it"));
        }
        self.inner.make(call, at, new, set).await
    }
    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        self.inner.link(call, file, to).await
    }
    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        match to.path.as_bytes() {
            b"slow" => tokio::time::sleep(SLOW).await,
            b"stuck" => pending().await,
            _ => {}
        }
        self.inner.rename(call, from, to, how, guard).await
    }
    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        self.inner.remove(call, at, kind, guard).await
    }
    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        self.inner.target(call, at).await
    }
    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        self.inner.set(call, at, set, guard).await
    }
    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        if self.tags_without_end {
            let name = TagName::new("z")?;
            return Ok(TagPage { tags: vec![(name.clone(), vec![0; 60 << 10].into())], next: Some(name) });
        }
        self.inner.tags(call, at, from).await
    }
    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        self.inner.tag(call, at, edits, guard).await
    }
    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        self.inner.policy(call, at).await
    }
    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        self.inner.protect(call, at, scope, edit).await
    }
    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        self.inner.why(call, at, need, who).await
    }
    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        self.inner.space(call, at).await
    }
    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        let mut opened = self.inner.open(call, at, how).await?;
        let stuck = self.inner.walk(call, &At::root("stuck-read".try_into()?), Want::default()).await;
        let stuck = stuck.is_ok_and(|walked| walked.attr.id == opened.attr.id);
        let slow = self.inner.walk(call, &At::root("slow-attr".try_into()?), Want::default()).await;
        let slow = slow.is_ok_and(|walked| walked.attr.id == opened.attr.id);
        let (inner, lost) = (opened.file, self.lost.clone());
        let (asked, written, reads) = (self.asked.clone(), self.written.clone(), self.reads.clone());
        let (syncs_late, syncs) = (self.syncs_late.clone(), self.syncs.clone());
        let (first_late, reads_late) = (self.first_late.clone(), self.reads_late.clone());
        opened.file = Arc::new(FaultyFile {
            inner,
            lost,
            asked,
            written,
            first_late,
            reads,
            reads_late,
            syncs_late,
            syncs,
            stuck,
            slow,
        });
        Ok(opened)
    }
    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        self.inner.file(call, id, need).await
    }
    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        if self.copies_half {
            let half = Range { at: range.at, length: Some(500) };
            self.inner.copy(call, from, half, to, offset).await?;
            return Err(Error::new(ErrorKind::NoSpace, "a test asked for it"));
        }
        self.inner.copy(call, from, range, to, offset).await
    }
    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        self.inner.stage(call, target, hint).await
    }
    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        self.inner.staged(call, id).await
    }
    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        self.inner.stages(call, dir, from).await
    }
    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let (inner, call, at, lock) = (self.inner.clone(), call.clone(), at.clone(), lock.clone());
        let taken = tokio::spawn(async move { inner.lock(&call, &at, &lock, wait).await });
        taken.await.expect("no panic")
    }
    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        self.inner.test(call, at, lock).await
    }
    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let less = |busy: u64| busy.checked_sub(1);
        if self.busy.try_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Error::new(ErrorKind::Busy, "too much is under way"));
        }
        self.inner.unlock(call, at, lock).await
    }
    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        self.inner.sync(call, at, scope).await
    }
    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        // Far ahead, the inner one says where it stands, once.
        let is_first = since.0 > u64::MAX >> 2;
        if self.deaf && !is_first {
            return pending().await;
        }
        if !is_first {
            self.since.store(since.0, Ordering::SeqCst);
        }
        let page = self.inner.watch(call, at, since).await?;
        late(&self.tells_late).await;
        self.told.fetch_add(page.changes.len() as u64, Ordering::SeqCst);
        Ok(page)
    }
    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        self.inner.batch(call, requests).await
    }
}

#[async_trait]
impl OpenFile for FaultyFile {
    fn id(&self) -> FileId {
        self.inner.id()
    }
    async fn attr(&self, call: &Call) -> Result<Attr> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.slow {
            tokio::time::sleep(SLOW).await;
        }
        self.inner.attr(call).await
    }
    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        late(&self.reads_late).await;
        if self.stuck { pending().await } else { self.inner.read(call, range).await }
    }
    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        self.inner.digests(call, block).await
    }
    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        let mut written = self.inner.write(call, at, data).await?;
        self.written.fetch_add(1, Ordering::SeqCst);
        if matches!(at, WriteAt::Offset(0)) {
            late(&self.first_late).await;
        }
        written.verifier = shifted(written.verifier, &self.lost);
        Ok(written)
    }
    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        self.inner.shape(call, shape).await
    }
    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        self.inner.seek(call, offset, what).await
    }
    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        late(&self.syncs_late).await;
        Ok(shifted(self.inner.sync(call, range).await?, &self.lost))
    }
    async fn close(&self, call: &Call) -> Result<()> {
        self.inner.close(call).await
    }
}
