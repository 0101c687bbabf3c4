//! Two `Model`s as one tree: the second is volume 1 and stands at a name in the first, as a directory
//! does that is served in place. Nobody tells of changes in it, and all of them seem to fall into one tick of
//! its clock: version, times and change number say nothing.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use weft_core::attr::{Attr, Changed, SetAttr, TagEdit, TagName, Version, Wcc};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Seek, Shape, Source, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier,
    Wait, Walked, Want, Why, WriteAt, Written, one_by_one,
};
use weft_core::model::Model;
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{
    CallerName, Error, ErrorKind, FileId, Name, RelPath, Result, Rights, StageId, Time, VolumeId,
};

const VOLUME: VolumeId = VolumeId(1);

/// Both of them. Unlike a tree it knows one junction, and follows no symbolic link through it.
pub struct Sharing {
    root: Arc<Model>,
    share: Arc<Model>,
    /// The path of the junction, and its directory.
    at: RelPath,
    dir: FileId,
    name: Name,
}

/// A file of volume 1.
struct SharedFile(Arc<dyn OpenFile>);

/// Where an address is.
struct Place<'a> {
    model: &'a Model,
    shared: bool,
    at: At,
}

impl Sharing {
    /// Shows one at a name in the other, whose directory is there. A directory is made under the
    /// name, for listings to have an entry.
    pub fn new(call: &Call, root: Arc<Model>, share: Arc<Model>, at: &str) -> Result<Arc<Self>> {
        let at = RelPath::try_from(at)?;
        let (above, name) = at.split_last().ok_or_else(|| Error::invalid("the root is no junction"))?;
        let made = root.make(call, &At::root(at.clone()), New::Directory, &SetAttr::default()).now_or_never();
        made.expect("a model does not wait")?;
        let dir = root.walk(call, &At::root(above), Want::default()).now_or_never();
        let dir = dir.expect("a model does not wait")?.attr.id;
        Ok(Arc::new(Self { root, share, at, dir, name }))
    }

    /// Returns which of the two an address is in, and the address there.
    fn place(&self, at: &At) -> Place<'_> {
        let share = |base: FileId, path: RelPath| {
            let base = FileId::new(VolumeId(0), base.serial(), base.generation());
            Place { model: &self.share, shared: true, at: At { base, path, follow: at.follow } }
        };
        if at.base.volume() == VOLUME {
            return share(at.base, at.path.clone());
        }
        match self.below(at) {
            Some(rest) => share(FileId::ROOT, rest),
            None => Place { model: &self.root, shared: false, at: at.clone() },
        }
    }

    /// Returns what is left of an address behind the junction, if it comes there.
    fn below(&self, at: &At) -> Option<RelPath> {
        let names = |path: &RelPath| -> Vec<Name> { path.names().collect() };
        let way = match at.base {
            FileId::ROOT => names(&self.at),
            base if base == self.dir => vec![self.name.clone()],
            _ => return None,
        };
        let path = names(&at.path);
        let rest = path.strip_prefix(&way[..])?;
        rest.iter().try_fold(RelPath::EMPTY, |path, name| path.join(name)).ok()
    }

    /// Fails for the name of the share itself.
    fn must_be_no_junction(&self, at: &At) -> Result<()> {
        if at.base.volume() != VOLUME && self.below(at).is_some_and(|rest| rest.is_empty()) {
            return Err(Error::new(ErrorKind::NotPermitted, "it is a share"));
        }
        Ok(())
    }

    /// The same for two addresses, which must be in one of them.
    fn both(&self, one: &At, other: &At) -> Result<(&Model, bool, At, At)> {
        let (one, other) = (self.place(one), self.place(other));
        if one.shared != other.shared {
            return Err(Error::new(ErrorKind::CrossVolume, "the two are in different volumes"));
        }
        Ok((one.model, one.shared, one.at, other.at))
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
        let Place { model, shared, at } = self.place(at);
        let walked = model.walk(call, &at, want).await?;
        if !shared {
            return Ok(walked);
        }
        let parent = if walked.attr.id == FileId::ROOT { Some(self.dir) } else { walked.parent.map(id) };
        Ok(Walked { attr: attr(walked.attr), parent, ..walked })
    }
    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        let Place { model, shared, at } = self.place(dir);
        let mut page = model.list(call, &at, from, max, want).await?;
        if shared {
            page.parent = if page.dir.id == FileId::ROOT { self.dir } else { id(page.parent) };
            page.dir = attr(page.dir);
            page.entries = page.entries.into_iter().map(entry).collect();
        } else if page.dir.id == self.dir {
            let junction = self.share.walk(call, &At::id(FileId::ROOT), want).await?.attr;
            for entry in page.entries.iter_mut().filter(|entry| entry.name == self.name) {
                entry.id = id(junction.id);
                entry.attr = want.attr.then(|| attr(junction));
            }
        }
        Ok(page)
    }
    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        let Place { model, shared, at } = self.place(at);
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
        self.must_be_no_junction(at)?;
        let Place { model, shared, at } = self.place(at);
        Ok(changed(model.remove(call, &at, kind, guard).await?, shared, |()| ()))
    }
    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        let Place { model, at, .. } = self.place(at);
        model.target(call, &at).await
    }
    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let Place { model, shared, at } = self.place(at);
        Ok(changed(model.set(call, &at, set, guard).await?, shared, attr))
    }
    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        let Place { model, at, .. } = self.place(at);
        model.tags(call, &at, from).await
    }
    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let Place { model, shared, at } = self.place(at);
        Ok(changed(model.tag(call, &at, edits, guard).await?, shared, |()| ()))
    }
    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        let Place { model, at, .. } = self.place(at);
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
        let Place { model, at, .. } = self.place(at);
        model.why(call, &at, need, who).await
    }
    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        let Place { model, at, .. } = self.place(at);
        model.space(call, &at).await
    }
    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        let Place { model, shared, at } = self.place(at);
        let opened = model.open(call, &at, how).await?;
        if !shared {
            return Ok(opened);
        }
        let file = Arc::new(SharedFile(opened.file));
        Ok(Opened { file, attr: attr(opened.attr), parent: opened.parent.map(wcc), ..opened })
    }
    async fn file(&self, call: &Call, file: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        let Place { model, shared, at } = self.place(&At::id(file));
        let open = model.file(call, at.base, need).await?;
        Ok(if shared { Arc::new(SharedFile(open)) } else { open })
    }
    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        let (model, shared, from, to) = self.both(from, to)?;
        let copied = model.copy(call, &from, range, &to, offset).await?;
        Ok(if shared { Copied { file: wcc(copied.file), ..copied } } else { copied })
    }
    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        let Place { model, at, .. } = self.place(target);
        model.stage(call, &at, hint).await
    }
    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        match self.root.staged(call, id).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {
                self.share.staged(call, id).await
            }
            found => found,
        }
    }
    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        let Place { model, shared, at } = self.place(dir);
        if shared {
            return Err(Error::unsupported("what was begun here is not listed"));
        }
        model.stages(call, &at, from).await
    }
    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let Place { model, at, .. } = self.place(at);
        model.lock(call, &at, lock, wait).await
    }
    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        let Place { model, at, .. } = self.place(at);
        model.test(call, &at, lock).await
    }
    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let Place { model, at, .. } = self.place(at);
        model.unlock(call, &at, lock).await
    }
    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        let Place { model, at, .. } = self.place(at);
        model.sync(call, &at, scope).await
    }
    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        self.root.watch(call, at, since).await
    }
    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        one_by_one(self, call, requests).await
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
