//! `FileSystem`, with what is read and refused recorded.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Attr, Changed, SetAttr, TagEdit, TagName};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier, Wait, Walked, Want,
    Why, one_by_one,
};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, ContainerId, FileId, Result, Rights, StageId, VolumeId};

use super::file::AuditedFile;
use super::reads::Reader;
use super::stage::AuditedStage;
use super::{About, Audited, watched};

impl Audited {
    fn watch_file(
        &self,
        call: &Call,
        container: Option<ContainerId>,
        below: Arc<dyn OpenFile>,
    ) -> Arc<dyn OpenFile> {
        Arc::new(AuditedFile::new(&self.0, call, container, below))
    }

    fn watch_stage(&self, below: Arc<dyn Stage>, target: Option<At>) -> Arc<dyn Stage> {
        Arc::new(AuditedStage { inner: self.0.clone(), below, target })
    }
}

#[async_trait]
impl FileSystem for Audited {
    fn supports(&self, volume: VolumeId) -> Supports {
        self.0.below.supports(volume)
    }

    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        watched!(self.0, call, "walk", About::At(at), self.0.below.walk(call, at, want))
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        watched!(self.0, call, "list", About::At(dir), self.0.below.list(call, dir, from, max, want))
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        watched!(self.0, call, "make", About::At(at), self.0.below.make(call, at, new, set))
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        watched!(self.0, call, "link", About::Both(file, to), self.0.below.link(call, file, to))
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        watched!(
            self.0,
            call,
            "rename",
            About::Both(from, to),
            self.0.below.rename(call, from, to, how, guard)
        )
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        watched!(self.0, call, "remove", About::At(at), self.0.below.remove(call, at, kind, guard))
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        watched!(self.0, call, "target", About::At(at), self.0.below.target(call, at))
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        watched!(self.0, call, "set", About::At(at), self.0.below.set(call, at, set, guard))
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        watched!(self.0, call, "tags", About::At(at), self.0.below.tags(call, at, from))
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        watched!(self.0, call, "tag", About::At(at), self.0.below.tag(call, at, edits, guard))
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        watched!(self.0, call, "policy", About::At(at), self.0.below.policy(call, at))
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        watched!(self.0, call, "protect", About::At(at), self.0.below.protect(call, at, scope, edit))
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        watched!(self.0, call, "why", About::At(at), self.0.below.why(call, at, need, who))
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        watched!(self.0, call, "space", About::At(at), self.0.below.space(call, at))
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        let source = watched!(
            self.0,
            call,
            "copy",
            About::Both(from, to),
            self.0.below.walk(call, from, Want::default())
        )?;
        // The file that is recorded is the one that is read, whatever its names do meanwhile.
        let (file, container) = (source.attr.id, Some(source.attr.container));
        let at = At::id(file);
        let copying = self.0.below.copy(call, &at, range, to, offset);
        let copied = watched!(self.0, call, "copy", About::Both(&at, to), copying)?;
        self.0.read(&Reader { call: call.clone(), file, container }, copied.bytes).await;
        Ok(copied)
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        watched!(self.0, call, "stages", About::At(dir), self.0.below.stages(call, dir, from))
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        watched!(self.0, call, "lock", About::At(at), self.0.below.lock(call, at, lock, wait))
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        watched!(self.0, call, "test", About::At(at), self.0.below.test(call, at, lock))
    }

    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        watched!(self.0, call, "unlock", About::At(at), self.0.below.unlock(call, at, lock))
    }

    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        watched!(self.0, call, "sync", About::At(at), self.0.below.sync(call, at, scope))
    }

    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        watched!(self.0, call, "watch", About::At(at), self.0.below.watch(call, at, since))
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        let opened = watched!(self.0, call, "open", About::At(at), self.0.below.open(call, at, how))?;
        let file = self.watch_file(call, Some(opened.attr.container), opened.file);
        Ok(Opened { file, ..opened })
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        let below =
            watched!(self.0, call, "file", About::At(&At::id(id)), self.0.below.file(call, id, need))?;
        let container = self.0.witness.container_of(call, id);
        Ok(self.watch_file(call, container, below))
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        let stage =
            watched!(self.0, call, "stage", About::At(target), self.0.below.stage(call, target, hint))?;
        Ok(self.watch_stage(stage, Some(target.clone())))
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        let stage = watched!(self.0, call, "staged", About::Stage(id, None), self.0.below.staged(call, id))?;
        Ok(self.watch_stage(stage, None))
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        // Each by itself through here, so that each is recorded as what it is.
        one_by_one(self, call, requests).await
    }
}
