//! Two `Model`s as one tree: the second is volume 1 and stands at `share`, as a directory does that
//! is served in place. Nobody tells of changes in it, and all of them seem to fall into one tick of
//! its clock: version, times and change number say nothing.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Attr, Changed, SetAttr, TagEdit, TagName, Version, Wcc};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Seek, Shape, Source, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier,
    Wait, Walked, Want, Why, WriteAt, Written,
};
use weft_core::model::Model;
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, Error, ErrorKind, FileId, Result, Rights, StageId, Time, VolumeId};

/// Where volume 1 stands in the root.
pub const SHARE: &str = "share";

const VOLUME: VolumeId = VolumeId(1);

/// Both of them.
pub struct Sharing {
    pub root: Arc<Model>,
    pub share: Arc<Model>,
}

/// A file of volume 1.
struct SharedFile(Arc<dyn OpenFile>);

impl Sharing {
    /// Returns which of the two an address is in, and the address there.
    fn place(&self, at: &At) -> (&Model, bool, At) {
        let mut there = at.clone();
        if at.base.volume() == VOLUME {
            there.base = FileId::new(VolumeId(0), at.base.serial(), at.base.generation());
            return (&self.share, true, there);
        }
        if at.base == FileId::ROOT && at.path.as_bytes() == SHARE.as_bytes() {
            return (&self.share, true, At::id(FileId::ROOT));
        }
        (&self.root, false, there)
    }

    /// The same for two addresses, which must be in one of them.
    fn both(&self, one: &At, other: &At) -> Result<(&Model, bool, At, At)> {
        let ((model, shared, one), (_, also, other)) = (self.place(one), self.place(other));
        if shared != also {
            return Err(Error::new(ErrorKind::CrossVolume, "the two are in different volumes"));
        }
        Ok((model, shared, one, other))
    }
}

/// Returns an id of volume 1.
fn id(id: FileId) -> FileId {
    FileId::new(VOLUME, id.serial(), id.generation())
}

fn attr(of: Attr) -> Attr {
    let (version, change) = (Version(1), 1);
    Attr { id: id(of.id), version, change, mtime: Time::EPOCH, ctime: Time::EPOCH, ..of }
}

fn wcc(of: Wcc) -> Wcc {
    Wcc { after: of.after.map(attr), ..of }
}

fn entry(of: Entry) -> Entry {
    Entry { id: id(of.id), attr: of.attr.map(attr), ..of }
}

fn changed<T>(of: Changed<T>, shared: bool, value: impl FnOnce(T) -> T) -> Changed<T> {
    if !shared {
        return of;
    }
    Changed { value: value(of.value), file: wcc(of.file), parents: of.parents.map(|parent| parent.map(wcc)) }
}

#[async_trait]
impl FileSystem for Sharing {
    fn supports(&self, volume: VolumeId) -> Supports {
        Supports { watch: volume != VOLUME, ..self.root.supports(volume) }
    }
    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        let (model, shared, at) = self.place(at);
        let walked = model.walk(call, &at, want).await?;
        if !shared {
            return Ok(walked);
        }
        Ok(Walked { attr: attr(walked.attr), parent: walked.parent.map(id), ..walked })
    }
    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        let (model, shared, dir) = self.place(dir);
        let mut page = model.list(call, &dir, from, max, want).await?;
        if shared {
            (page.dir, page.parent) = (attr(page.dir), FileId::ROOT);
            page.entries = page.entries.into_iter().map(entry).collect();
        }
        Ok(page)
    }
    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        let (model, shared, at) = self.place(at);
        Ok(changed(model.make(call, &at, new, set).await?, shared, entry))
    }
    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        let (model, shared, file, to) = self.both(file, to)?;
        Ok(changed(model.link(call, &file, &to).await?, shared, entry))
    }
    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        let (model, shared, from, to) = self.both(from, to)?;
        Ok(changed(model.rename(call, &from, &to, how, guard).await?, shared, |()| ()))
    }
    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        let (model, shared, at) = self.place(at);
        Ok(changed(model.remove(call, &at, kind, guard).await?, shared, |()| ()))
    }
    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        let (model, _, at) = self.place(at);
        model.target(call, &at).await
    }
    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let (model, shared, at) = self.place(at);
        Ok(changed(model.set(call, &at, set, guard).await?, shared, attr))
    }
    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        let (model, _, at) = self.place(at);
        model.tags(call, &at, from).await
    }
    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let (model, shared, at) = self.place(at);
        Ok(changed(model.tag(call, &at, edits, guard).await?, shared, |()| ()))
    }
    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        let (model, _, at) = self.place(at);
        model.policy(call, &at).await
    }
    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        self.root.protect(call, at, scope, edit).await
    }
    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        let (model, _, at) = self.place(at);
        model.why(call, &at, need, who).await
    }
    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        let (model, _, at) = self.place(at);
        model.space(call, &at).await
    }
    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        let (model, shared, at) = self.place(at);
        let opened = model.open(call, &at, how).await?;
        if !shared {
            return Ok(opened);
        }
        let file = Arc::new(SharedFile(opened.file));
        Ok(Opened { file, attr: attr(opened.attr), parent: opened.parent.map(wcc), ..opened })
    }
    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        self.root.file(call, id, need).await
    }
    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        let (model, shared, from, to) = self.both(from, to)?;
        let copied = model.copy(call, &from, range, &to, offset).await?;
        Ok(if shared { Copied { file: wcc(copied.file), ..copied } } else { copied })
    }
    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        self.root.stage(call, target, hint).await
    }
    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        self.root.staged(call, id).await
    }
    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        self.root.stages(call, dir, from).await
    }
    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let (model, _, at) = self.place(at);
        model.lock(call, &at, lock, wait).await
    }
    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        let (model, _, at) = self.place(at);
        model.test(call, &at, lock).await
    }
    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let (model, _, at) = self.place(at);
        model.unlock(call, &at, lock).await
    }
    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        let (model, _, at) = self.place(at);
        model.sync(call, &at, scope).await
    }
    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        self.root.watch(call, at, since).await
    }
    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        self.root.batch(call, requests).await
    }
}

#[async_trait]
impl OpenFile for SharedFile {
    fn id(&self) -> FileId {
        id(self.0.id())
    }
    async fn attr(&self, call: &Call) -> Result<Attr> {
        self.0.attr(call).await.map(attr)
    }
    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        self.0.read(call, range).await
    }
    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        self.0.digests(call, block).await
    }
    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        let written = self.0.write(call, at, data).await?;
        Ok(Written { file: wcc(written.file), ..written })
    }
    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        self.0.shape(call, shape).await.map(wcc)
    }
    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        self.0.seek(call, offset, what).await
    }
    async fn sync(&self, call: &Call, range: Range) -> Result<Verifier> {
        self.0.sync(call, range).await
    }
    async fn close(&self, call: &Call) -> Result<()> {
        self.0.close(call).await
    }
}
