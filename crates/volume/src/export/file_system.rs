//! `FileSystem`, for exports.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedMutexGuard;
use weft_core::attr::{Attr, Changed, Kind, SetAttr, TagEdit, TagName};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier, Wait, Walked, Want,
    Why, one_by_one,
};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, Error, ErrorKind, FileId, Result, Rights, StageId, VolumeId, limits};

use super::audit::Deed;
use super::replay::Turn;
use super::view::View;
use super::{Export, Volume};

impl Volume {
    /// Does what must be done to its end, whoever goes away meanwhile.
    pub(super) async fn undropped<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        call.check(self.sys.clock())?;
        let task = self.sys.spawn(work);
        self.sys.within(call.until, async { task.await? }).await
    }

    /// Makes a request, or answers it as it was answered before.
    pub(super) async fn once<T: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        call: &Call,
        request: &(impl Serialize + Sync),
        act: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        call.check(self.sys.clock())?;
        if call.once.is_some() {
            self.opens.lives(call.session)?;
        }
        match self.replays.begin(&self.sys, call, request).await? {
            Turn::Answered(answer) => Ok(answer),
            Turn::Make(keeper) => {
                let make = async move {
                    let answer = act.await?;
                    keeper.keep(&answer)?;
                    Ok(answer)
                };
                self.undropped(call, make).await
            }
        }
    }

    /// Waits for a turn to change names. What one act looks up another must not change before it has
    /// acted; against programs of the machine nothing helps, but Weft's own are put in an order.
    pub(super) async fn in_turn(self: &Arc<Self>, call: &Call) -> Result<OwnedMutexGuard<()>> {
        let turn = self.naming.clone();
        self.sys.within(call.until, async { Ok(turn.lock_owned().await) }).await
    }

    /// Acts, and leaves what an act leaves.
    fn act<T: Send + 'static>(
        self: &Arc<Self>,
        call: &Call,
        act: impl FnOnce(&View<'_>) -> Result<(T, Deed)> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let (volume, call) = (self.clone(), call.clone());
        async move {
            let turn = volume.in_turn(&call).await?;
            let (value, deed) = volume.look_to_act(&call, act).await?;
            drop(turn);
            volume.leave(&call, deed).await?;
            Ok(value)
        }
    }

    async fn rename(
        self: Arc<Self>,
        call: Call,
        (from, to): (At, At),
        how: Replace,
        guard: Guard,
    ) -> Result<Changed<()>> {
        // A policy that is edited meanwhile would be bound to the place that was.
        let _alone = self.editing_alone(call.until).await?;
        let look = move |view: &View<'_>| view.rename(&from, &to, how, &guard);
        let turn = self.in_turn(&call).await?;
        let (changed, places, deed) = self.look_to_act(&call, look).await?;
        drop(turn);
        self.known.moved(&places);
        self.opens.moved(&places);
        self.policies_moved(&places).await?;
        if let Some(deed) = deed {
            self.leave(&call, deed).await?;
        }
        Ok(changed)
    }

    async fn lock(self: &Arc<Self>, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let locked = || Error::new(ErrorKind::Locked, "somebody else holds a lock in the way");
        let now = self.sys.clock().tick();
        let until = match wait {
            Wait::No => None,
            Wait::Until(deadline) => Some(deadline.min(call.until).0.min(now.plus(limits::LOCK_WAIT_SLICE))),
        };
        let waiter = until.map(|_| self.locks.waiter());
        loop {
            let mut given_up = std::pin::pin!(self.locks.given_up.notified());
            given_up.as_mut().enable();
            let id = self.lockable(call, at).await?;
            self.opens.lives(call.session)?;
            if self.locks.take(id, call.session, lock, waiter.as_ref())? {
                if let Err(ended) = self.opens.lives(call.session) {
                    // Nobody would give it up.
                    self.locks.end_session(call.session);
                    return Err(ended);
                }
                return Ok(LockLease { until: self.sys.clock().tick().plus(limits::SESSION_IDLE) });
            }
            let until = until.ok_or_else(locked)?;
            tokio::select! {
                () = given_up => {}
                () = self.sys.sleep_until(until) => return Err(locked()),
            }
        }
    }

    async fn lockable(self: &Arc<Self>, call: &Call, at: &At) -> Result<FileId> {
        let at = at.clone();
        let find = move |view: &View<'_>| {
            let node = view.existing(&at)?;
            view.need(&node, Rights::LOCK)?;
            Ok(node.id)
        };
        self.look(call, find).await
    }

    async fn sync(self: &Arc<Self>, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        let at = at.clone();
        let find = move |view: &View<'_>| {
            let node = view.existing(&at)?;
            view.need_any(&node)?;
            Ok(node)
        };
        let node = self.look(call, find).await?;
        let flush = move || match (scope, node.kind) {
            (SyncScope::Volume, _) => node.held.flush_all(),
            (SyncScope::File, Kind::Directory) => node.held.flush_names(),
            (SyncScope::File, _) => node.held.flush(),
        };
        self.apart(call.until, flush).await?;
        self.space.flush().await?;
        Ok(self.verifier())
    }
}

#[async_trait]
impl FileSystem for Export {
    fn supports(&self, _volume: VolumeId) -> Supports {
        Supports {
            links: true,
            exchange: true,
            tags: true,
            locks: true,
            watch: false,
            publish_keeps_id: false,
            holes: true,
            file_bytes_max: limits::FILE_BYTES_MAX,
        }
    }

    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        let place = at.clone();
        let walked = self.0.look(call, move |view| view.walk(&place, want)).await;
        walked.map_err(|e| e.op("look up").about(at))
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        let place = dir.clone();
        // By name, all of the directory passes by.
        let long = matches!(from, Cursor::ByName | Cursor::After(_));
        let page = self.0.look_for_long(call, long, move |view| view.list(&place, &from, max, want)).await;
        page.map_err(|e| e.op("list").about(dir))
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        let (place, what, attributes) = (at.clone(), new.clone(), set.clone());
        let act = self.0.act(call, move |view| view.make(&place, &what, &attributes));
        self.0.once(call, &("make", at, &new, set), act).await.map_err(|e| e.op("make").about(at))
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        let (from, place) = (file.clone(), to.clone());
        let act = self.0.act(call, move |view| view.link(&from, &place));
        self.0.once(call, &("link", file, to), act).await.map_err(|e| e.op("link").about(to))
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        let act = self.0.clone().rename(call.clone(), (from.clone(), to.clone()), how, *guard);
        let done = self.0.once(call, &("rename", from, to, how, guard), act).await;
        done.map_err(|e| e.op("rename").about(from))
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        let (place, guarded) = (at.clone(), *guard);
        let act = self.0.act(call, move |view| view.remove(&place, kind, &guarded));
        self.0.once(call, &("remove", at, kind, guard), act).await.map_err(|e| e.op("remove").about(at))
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        let place = at.clone();
        let target = self.0.look(call, move |view| view.target(&place)).await;
        target.map_err(|e| e.op("read the link").about(at))
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let (place, attributes, guarded) = (at.clone(), set.clone(), *guard);
        let act = self.0.act(call, move |view| view.set(&place, &attributes, &guarded));
        let done = self.0.once(call, &("set", at, set, guard), act).await;
        done.map_err(|e| e.op("set attributes of").about(at))
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        let place = at.clone();
        let page = self.0.look(call, move |view| view.tags(&place, from.as_ref())).await;
        page.map_err(|e| e.op("read tags of").about(at))
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let (place, changes, guarded) = (at.clone(), edits.to_vec(), *guard);
        let act = self.0.act(call, move |view| view.tag(&place, &changes, &guarded));
        self.0.once(call, &("tag", at, edits, guard), act).await.map_err(|e| e.op("tag").about(at))
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        let place = at.clone();
        let policy = self.0.look(call, move |view| view.policy(&place)).await;
        policy.map_err(|e| e.op("read the policy of").about(at))
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        let (volume, again) = (self.0.clone(), call.clone());
        let (place, change) = (at.clone(), edit.clone());
        let act = async move { volume.protect(&again, &place, scope, &change).await };
        self.0.once(call, &("protect", at, scope, edit), act).await.map_err(|e| e.op("protect").about(at))
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        let place = at.clone();
        let why = self.0.look(call, move |view| view.why(&place, need, who.as_ref())).await;
        why.map_err(|e| e.op("explain").about(at))
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        let place = at.clone();
        let space = self.0.look(call, move |view| view.space(&place)).await;
        space.map_err(|e| e.op("measure").about(at))
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        self.0.open(call, at, how).await.map_err(|e| e.op("open").about(at))
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        let file = self.0.file(call, id, need).await.map_err(|e| e.op("open").about(id))?;
        Ok(Arc::new(file))
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        let copied = self.0.copy(call, from, range, to, offset).await;
        copied.map_err(|e| e.op("copy").about(from))
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        self.0.stage(call, target, hint).await.map_err(|e| e.op("stage").about(target))
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        self.0.staged(call, id).await
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        self.0.stages(call, dir, from).await.map_err(|e| e.op("list stages of").about(dir))
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        self.0.lock(call, at, lock, wait).await.map_err(|e| e.op("lock").about(at))
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        let id = self.0.lockable(call, at).await.map_err(|e| e.op("test a lock on").about(at))?;
        self.0.locks.test(id, call.session, lock)
    }

    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let place = at.clone();
        let id = self.0.look(call, move |view| Ok(view.existing(&place)?.id)).await;
        self.0.locks.give_up(id.map_err(|e| e.op("unlock").about(at))?, call.session, lock)
    }

    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        self.0.sync(call, at, scope).await.map_err(|e| e.op("sync").about(at))
    }

    async fn watch(&self, _: &Call, at: &At, _: ChangeSeq) -> Result<Changes> {
        let detail = "a share tells no changes: others make them without a word";
        Err(Error::new(ErrorKind::Unsupported, detail).op("watch").about(at))
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        one_by_one(self, call, requests).await
    }
}
