//! The request form over the volume: each method one snapshot or one transaction.

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
use weft_core::service::SessionWatcher;
use weft_core::{CallerName, Error, ErrorKind, FileId, Result, Rights, SessionId, StageId, VolumeId, limits};
use weft_kv::SpaceTxn;

use super::act::fingerprint;
use super::drop_box::Boxing;
use super::table::inodes::Layout;
use super::table::{once, unnamed};
use super::{Managed, Volume};

impl SessionWatcher for Managed {
    fn ended(&self, session: SessionId) {
        let volume = self.volume.clone();
        let closed = volume.opens.end_session(session);
        volume.locks.end_session(session);
        let locked = volume.lockers.end(session);
        let sys = volume.sys.clone();
        for closed in closed {
            volume.clone().let_go_behind(closed);
        }
        // Most sessions (one for each HTTP connection) made no change that could be replayed:
        // their end writes nothing.
        let changed = volume.space.snapshot().and_then(|rows| once::has(&rows, session)).unwrap_or(true);
        if !locked && !changed {
            return;
        }
        drop(sys.spawn(async move {
            let forget = move |txn: &mut SpaceTxn<'_>| {
                if locked {
                    unnamed::remove_locker(txn, session)?;
                }
                once::forget(txn, session)
            };
            if let Err(error) = volume.space.write(weft_core::form::Ack::Applied, forget).await {
                tracing::warn!(%error, "a session's answers are left to the sweep");
            }
        }));
    }
}

impl Volume {
    /// Takes a lock, waiting for it for as long as is asked, one slice at most.
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
            let id = self.look(call, |view| {
                let node = view.existing(at)?;
                view.need(&node, Rights::LOCK)?;
                Ok(node.id)
            })?;
            self.opens.lives(call.session)?;
            // Before it is taken: whoever stops waiting in here must not have got it.
            self.note_locker(call.session).await?;
            let reclaims = self.grace_is_over() || self.lockers.may_reclaim(call.session);
            if reclaims && self.locks.take(id, call.session, lock, waiter.as_ref())? {
                self.stays(call, id)?;
                let until = self.sys.clock().tick().plus(limits::SESSION_IDLE);
                return Ok(LockLease { until });
            }
            let Some(until) = until else {
                return Err(if reclaims {
                    locked()
                } else {
                    locked().hint("former holders may reclaim their locks; try again shortly")
                });
            };
            let end = if reclaims { until } else { until.min(self.started.plus(limits::SESSION_GRACE)) };
            tokio::select! {
                () = given_up => {}
                () = self.sys.sleep_until(end) => {
                    if end == until {
                        return Err(locked());
                    }
                }
            }
        }
    }

    /// Takes a lock back if its file or session ended while it was taken: nobody would
    /// give it up.
    fn stays(&self, call: &Call, id: FileId) -> Result<()> {
        match self.look_whenever(call, |view| view.node(id).map(drop)) {
            Err(gone) if gone.kind() == ErrorKind::Stale => {
                self.locks.forget(id);
                return Err(gone);
            }
            // What cannot be looked at now was there a moment ago, and others hold locks on it.
            _ => {}
        }
        self.opens.lives(call.session).inspect_err(|_| self.locks.end_session(call.session))
    }

    /// Notes, once, that a session takes locks: after a restart it may reclaim them.
    async fn note_locker(&self, session: SessionId) -> Result<()> {
        if !self.lockers.add(session) {
            return Ok(());
        }
        let act = move |txn: &mut SpaceTxn<'_>| unnamed::add_locker(txn, session);
        self.space.write(weft_core::form::Ack::Durable, act).await?;
        self.lockers.noted(session);
        Ok(())
    }

    /// Returns what changed, waiting for it until the call's deadline.
    async fn watch(self: &Arc<Self>, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        let _waits = self.feed.wait();
        let mut is_asked = false;
        loop {
            let mut more = std::pin::pin!(self.feed.more.notified());
            more.as_mut().enable();
            if let Some(changes) = self.look(call, |view| view.changes(at, since))? {
                return Ok(changes);
            }
            if !is_asked {
                // Changes are told once they are durable, and what was committed while nobody waited is not yet. Who
                // comes back for more must not have each flushed by itself.
                self.to_flush.notify_one();
                is_asked = true;
            } else if let Some(error) = self.feed.failure() {
                return Err(error);
            }
            tokio::select! {
                () = more => {}
                () = self.sys.sleep_until(call.until.0) => {
                    let nothing = Changes { changes: Vec::new(), next: since };
                    return self.feed.failure().map_or(Ok(nothing), Err);
                }
            }
        }
    }

    /// Brings a file's object, if it has one, and everything committed to disk.
    async fn sync(self: &Arc<Self>, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        let node = self.look(call, |view| {
            let node = view.existing(at)?;
            view.need_any(&node)?;
            Ok(node)
        })?;
        if let (SyncScope::File, Layout::Whole { object, .. }) = (scope, node.inode.layout) {
            self.sync_object(call, node.id, object).await?;
        }
        if scope == SyncScope::Volume {
            self.sync_written().await?;
        }
        self.space.flush().await?;
        Ok(self.verifier())
    }

    /// After a transaction in which files may have ended.
    pub(super) fn ended(&self, file: Option<FileId>) {
        if let Some(file) = file {
            self.opens.settled(file);
            self.locks.forget(file);
        }
        self.to_tidy.notify_one();
    }
}

#[async_trait]
impl FileSystem for Managed {
    fn supports(&self, _volume: VolumeId) -> Supports {
        Supports {
            links: true,
            exchange: true,
            tags: true,
            locks: true,
            watch: true,
            publish_keeps_id: true,
            holes: true,
            file_bytes_max: limits::FILE_BYTES_MAX,
        }
    }

    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        self.volume.look(call, |view| view.walk(at, want)).map_err(|e| e.op("look up").about(at))
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        let page = self.volume.look(call, |view| view.list(dir, &from, max, want));
        page.map_err(|e| e.op("list").about(dir))
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        let print = fingerprint(call, &("make", at, &new, set))?;
        let number = self.volume.number().await?;
        let (place, set) = (at.clone(), set.clone());
        let made =
            self.volume.change(call, move |act| act.once(&print, |act| act.make(&place, &new, &set, number)));
        made.await.map_err(|e| e.op("make").about(at))
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        let print = fingerprint(call, &("link", file, to))?;
        let cookie = self.volume.number().await?;
        let (file, place) = (file.clone(), to.clone());
        let linked =
            self.volume.change(call, move |act| act.once(&print, |act| act.link(&file, &place, cookie)));
        linked.await.map_err(|e| e.op("link").about(to))
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        let print = fingerprint(call, &("rename", from, to, how, guard))?;
        let cookie = self.volume.number().await?;
        let (source, target, guard) = (from.clone(), to.clone(), *guard);
        let (volume, again) = (self.volume.clone(), call.clone());
        let work = async move {
            let renamed = volume.change_whenever(&again, again.ack, move |act| {
                let mut epochs = Vec::new();
                let answer = act.once(&print, |act| {
                    let (answer, begun) = act.rename(&source, &target, (how, cookie), &guard)?;
                    epochs = begun;
                    Ok(answer)
                })?;
                Ok((answer, epochs))
            });
            let (answer, epochs) = renamed.await?;
            if !epochs.is_empty() {
                volume.space.flush().await?;
                volume.policy_has_changed(&epochs);
            } else {
                volume.names_have_changed();
            }
            volume.ended(None);
            Ok(answer)
        };
        self.volume.undropped(call, work).await.map_err(|e| e.op("rename").about(from))
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        let print = fingerprint(call, &("remove", at, kind, guard))?;
        let (place, guard) = (at.clone(), *guard);
        let removed =
            self.volume.change(call, move |act| act.once(&print, |act| act.remove(&place, kind, &guard)));
        let removed = removed.await.map_err(|e| e.op("remove").about(at))?;
        self.volume.names_have_changed();
        self.volume.ended(None);
        Ok(removed)
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        self.volume.look(call, |view| view.target(at)).map_err(|e| e.op("read the link").about(at))
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let changed = self.volume.set(call, at, set, guard).await;
        changed.map_err(|e| e.op("set attributes of").about(at))
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        let page = self.volume.look(call, |view| view.tags(at, from.as_ref()));
        page.map_err(|e| e.op("read tags of").about(at))
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let print = fingerprint(call, &("tag", at, edits, guard))?;
        let (place, edits, guard) = (at.clone(), edits.to_vec(), *guard);
        let tagged =
            self.volume.change(call, move |act| act.once(&print, |act| act.tag(&place, &edits, &guard)));
        tagged.await.map_err(|e| e.op("tag").about(at))
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        let policy = self.volume.look(call, |view| view.policy(at));
        policy.map_err(|e| e.op("read the policy of").about(at))
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        let done = self.volume.protect(call, at, scope, edit, Boxing::Keep).await;
        done.map_err(|e| e.op("protect").about(at))
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        let why = self.volume.look(call, |view| view.why(at, need, who.as_ref()));
        why.map_err(|e| e.op("explain").about(at))
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        self.volume.look(call, |view| view.space(at)).map_err(|e| e.op("measure").about(at))
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        self.volume.open(call, at, how).await.map_err(|e| e.op("open").about(at))
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        let file = self.volume.file(call, id, need).map_err(|e| e.op("open").about(id))?;
        Ok(Arc::new(file))
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        let copied = self.volume.copy(call, from, range, to, offset).await;
        copied.map_err(|e| e.op("copy").about(from))
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        self.volume.stage(call, target, hint).await.map_err(|e| e.op("stage").about(target))
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        self.volume.staged(call, id)
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        let page = self.volume.look(call, |view| view.stages(dir, from));
        page.map_err(|e| e.op("list stages of").about(dir))
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        self.volume.lock(call, at, lock, wait).await.map_err(|e| e.op("lock").about(at))
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        let id = self.volume.look(call, |view| {
            let node = view.existing(at)?;
            view.need(&node, Rights::LOCK)?;
            Ok(node.id)
        });
        let id = id.map_err(|e| e.op("test a lock on").about(at))?;
        self.volume.locks.test(id, call.session, lock)
    }

    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let id = self.volume.look(call, |view| Ok(view.existing(at)?.id));
        let id = id.map_err(|e| e.op("unlock").about(at))?;
        self.volume.locks.give_up(id, call.session, lock)
    }

    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        self.volume.sync(call, at, scope).await.map_err(|e| e.op("sync").about(at))
    }

    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        self.volume.watch(call, at, since).await.map_err(|e| e.op("watch").about(at))
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        one_by_one(self, call, requests).await
    }
}
