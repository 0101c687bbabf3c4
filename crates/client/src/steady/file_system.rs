//! `FileSystem`, over whatever connection stands.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Attr, Changed, SetAttr, TagEdit, TagName};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier, Wait, Walked, Want,
    Why,
};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, ErrorKind, FileId, Result, Rights, StageId, VolumeId};

use super::file::SteadyFile;
use super::{Repeat, Steady, steadily};

#[async_trait]
impl FileSystem for Steady {
    fn supports(&self, volume: VolumeId) -> Supports {
        self.0.link().remote.supports(volume)
    }

    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.walk(call, at, want))
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.list(call, dir, from.clone(), max, want))
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.target(call, at))
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.tags(call, at, from.clone()))
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.policy(call, at))
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.why(call, at, need, who.clone()))
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.space(call, at))
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.stages(call, dir, from))
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.test(call, at, lock))
    }

    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.sync(call, at, scope))
    }

    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.watch(call, at, since))
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        // Copying twice would overwrite what somebody else wrote in between.
        steadily!(self.0, call, Repeat::Never, |link| async {
            self.0.check_locks(from.base)?;
            self.0.check_locks(to.base)?;
            link.remote.copy(call, from, range, to, offset).await
        })
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.staged(call, id))
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        steadily!(self.0, call, Repeat::Safe, |link| link.remote.file(call, id, need))
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.make(call, at, new.clone(), set))
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.link(call, file, to))
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.rename(call, from, to, how, guard))
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.remove(call, at, kind, guard))
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.set(call, at, set, guard))
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.tag(call, at, edits, guard))
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.protect(call, at, scope, edit))
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        steadily!(self.0, call, Repeat::Marked, |link| link.remote.stage(call, target, hint))
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        // Once the session is another, the node knows no mark of it. To cut a file twice cuts what others wrote in
        // between; to make one twice that must be new finds one's own in the way.
        let changes = how.truncate || how.make.as_ref().is_some_and(|make| make.exclusive);
        let repeat = if changes { Repeat::Never } else { Repeat::Safe };
        let (epoch, opened) = steadily!(self.0, call, repeat, |link| async {
            link.remote.open(call, at, how).await.map(|opened| (link.epoch, opened))
        })?;
        let file = SteadyFile::new(&self.0, epoch, how, &opened.attr, opened.file.clone());
        Ok(Opened { file, ..opened })
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let lease = steadily!(self.0, call, Repeat::Safe, |link| link.remote.lock(call, at, lock, wait))?;
        self.0.locks().took(at, lock);
        Ok(lease)
    }

    /// Forgotten only once it is done: after a failure the owner has the lock still, and
    /// would be right to rely on it. Not where its file is gone, with which it went.
    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let unlocked = steadily!(self.0, call, Repeat::Safe, |link| link.remote.unlock(call, at, lock));
        if !matches!(&unlocked, Err(error) if error.kind() != ErrorKind::Stale) {
            self.0.locks().gave_up(at, lock);
        }
        unlocked
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        self.0.link().remote.batch(call, requests).await
    }
}
