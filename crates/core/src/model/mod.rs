//! The plain in-memory [`Model`] of a file system, and [`ModelStore`] of an object
//! store: what every clever implementation is compared with, and the first thing
//! behind the doors.
//!
//! Everything is in maps behind one mutex. A call locks it, looks, checks and acts; so
//! each call is one transaction, and linearizable, by construction. Speed is no aim,
//! but bytes are kept in shared blocks, so that files of hundreds of megabytes work.
//!
//! ```text
//!   Model ── act(call) ──▶ Act { state, call, now }
//!                           ├ act         decide, need, locate: rights and addresses
//!                           ├ names       walk list make link rename remove target
//!                           ├ attributes  set tags tag space        protect  policy
//!                           ├ open stage  bytes                     lock watch why
//!                           └ once        replays
//! ```
//!
//! What it chooses where the form leaves a choice: an open pinned to one version keeps
//! the old bytes (it never answers `Conflict`) and only reads; one read sees one
//! version even without a pin; failures are not replayed; every directory on a path,
//! the last one too, needs `traverse`.
//!
//! How to get it wrong: be clever. Where this file and the form disagree, the form is
//! right; where this file and an implementation disagree, look at this file first.

mod act;
mod attributes;
mod content;
mod lock;
mod names;
mod once;
mod open;
mod protect;
mod stage;
mod store;
mod tree;
mod watch;
mod why;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use async_trait::async_trait;
use event_listener::{Event, EventListener};

pub use store::ModelStore;

use self::act::Act;
use self::lock::Waiting;
use self::stage::ModelStage;
use self::tree::State;
use crate::attr::{Attr, Changed, SetAttr, TagEdit, TagName};
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier, Wait, Walked, Want,
    Why, one_by_one,
};
use crate::id::{FileId, SessionId, StageId, VolumeId};
use crate::limits;
use crate::policy::{Policy, PolicyEdit};
use crate::rights::Rights;
use crate::service::{Issuer, Memberships, SessionWatcher};
use crate::time::{Clock, Tick, Timer};

/// A file system in memory: one volume, the root of the tree.
pub struct Model {
    clock: Arc<dyn Clock>,
    timer: Option<Arc<dyn Timer>>,
    issuer: Arc<dyn Issuer>,
    groups: Arc<dyn Memberships>,
    state: Mutex<State>,
    /// Heard by whoever waits for a lock or a change.
    changed: Event,
    me: Weak<Self>,
}

impl Model {
    /// Makes a file system of one empty directory, over which `owner` has every right
    /// and nobody else any. Without a timer a wait for a lock or a change is over at
    /// once, as if its deadline had come.
    pub fn new<A: Issuer + Memberships + 'static>(
        clock: Arc<dyn Clock>,
        authority: Arc<A>,
        owner: &CallerName,
    ) -> Arc<Self> {
        Self::make(clock, None, authority.clone(), authority, owner)
    }

    /// Makes a file system whose waits last until their deadlines.
    pub fn with_timer<A: Issuer + Memberships + 'static>(
        clock: Arc<dyn Clock>,
        timer: Arc<dyn Timer>,
        authority: Arc<A>,
        owner: &CallerName,
    ) -> Arc<Self> {
        Self::make(clock, Some(timer), authority.clone(), authority, owner)
    }

    fn make(
        clock: Arc<dyn Clock>,
        timer: Option<Arc<dyn Timer>>,
        issuer: Arc<dyn Issuer>,
        groups: Arc<dyn Memberships>,
        owner: &CallerName,
    ) -> Arc<Self> {
        let state = Mutex::new(State::new(owner, clock.now()));
        let changed = Event::new();
        Arc::new_cyclic(|me| Self { clock, timer, issuer, groups, state, changed, me: me.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A call checks before it changes, so a panic elsewhere leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: the caller's lease runs and the deadline has not passed.
    fn act<'a>(&'a self, call: &'a Call) -> Result<Act<'a>> {
        call.check(&*self.clock)?;
        Ok(self.act_whenever(call))
    }

    /// Goes on with a transfer, which outlives the deadline of the call that began it.
    fn act_whenever<'a>(&'a self, call: &'a Call) -> Act<'a> {
        Act { model: self, call, now: self.clock.moment(), state: self.state() }
    }

    fn shared(&self) -> Arc<Self> {
        self.me.upgrade().expect("only a shared model is ever called")
    }

    /// Waits until something changed; `false` if the time came first.
    async fn heard(&self, listener: EventListener, until: Tick) -> bool {
        let Some(timer) = &self.timer else { return false };
        let mut listener = pin!(listener);
        let mut timer = timer.at(until);
        std::future::poll_fn(|context| {
            if listener.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            timer.as_mut().poll(context).map(|()| false)
        })
        .await
    }
}

impl SessionWatcher for Model {
    fn ended(&self, session: SessionId) {
        let mut state = self.state();
        let opens: Vec<u64> =
            state.opens.iter().filter(|(_, (owner, _))| *owner == session).map(|(n, _)| *n).collect();
        for number in opens {
            state.close(number);
        }
        state.locks.end(session);
        state.rings.remove(&session);
        state.sessions_ended.insert(session);
        self.changed.notify(usize::MAX);
    }
}

#[async_trait]
impl FileSystem for Model {
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
        self.act(call)?.walk(at, want).map_err(|e| e.op("look up").about(&at.path))
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        self.act(call)?.list(dir, &from, max, want).map_err(|e| e.op("list").about(&dir.path))
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        let mut act = self.act(call)?;
        act.once(&("make", at, &new, set), |act| act.make(at, &new, set))
            .map_err(|e| e.op("make").about(&at.path))
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        let mut act = self.act(call)?;
        act.once(&("link", file, to), |act| act.link(file, to)).map_err(|e| e.op("link").about(&to.path))
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        let mut act = self.act(call)?;
        act.once(&("rename", from, to, how, guard), |act| act.rename(from, to, how, guard))
            .map_err(|e| e.op("rename").about(&from.path))
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        let mut act = self.act(call)?;
        act.once(&("remove", at, kind, guard), |act| act.remove(at, kind, guard))
            .map_err(|e| e.op("remove").about(&at.path))
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        self.act(call)?.target(at).map_err(|e| e.op("read the link").about(&at.path))
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        let mut act = self.act(call)?;
        act.once(&("set", at, set, guard), |act| act.set(at, set, guard))
            .map_err(|e| e.op("set attributes of").about(&at.path))
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        self.act(call)?.tags(at, from.as_ref()).map_err(|e| e.op("read tags of").about(&at.path))
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        let mut act = self.act(call)?;
        act.once(&("tag", at, edits, guard), |act| act.tag(at, edits, guard))
            .map_err(|e| e.op("tag").about(&at.path))
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        self.act(call)?.policy(at).map_err(|e| e.op("read the policy of").about(&at.path))
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        let mut act = self.act(call)?;
        act.once(&("protect", at, scope, edit), |act| act.protect(at, scope, edit))
            .map_err(|e| e.op("protect").about(&at.path))
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        self.act(call)?.why(at, need, who.as_ref()).map_err(|e| e.op("explain").about(&at.path))
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        self.act(call)?.space(at).map_err(|e| e.op("measure").about(&at.path))
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        let opened =
            self.act(call)?.open(self.shared(), at, how).map_err(|e| e.op("open").about(&at.path))?;
        let (attr, made, parent) = (opened.attr, opened.made, opened.parent);
        Ok(Opened { file: Arc::new(opened.file), attr, made, parent })
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        let file = self.act(call)?.file(self.shared(), id, need).map_err(|e| e.op("open").about(id))?;
        Ok(Arc::new(file))
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        self.act(call)?.copy(from, range, to, offset).map_err(|e| e.op("copy").about(&from.path))
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        let id = self.act(call)?.stage(target, hint).map_err(|e| e.op("stage").about(&target.path))?;
        Ok(Arc::new(ModelStage { model: self.shared(), id }))
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        let id = self.act(call)?.staged(id)?;
        Ok(Arc::new(ModelStage { model: self.shared(), id }))
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        self.act(call)?.stages(dir, from).map_err(|e| e.op("list stages of").about(&dir.path))
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let named = |e: Error| e.op("lock").about(&at.path);
        let locked = || named(Error::new(ErrorKind::Locked, "somebody else holds a lock in the way"));
        let until = match wait {
            Wait::No => return self.act(call)?.try_lock(at, lock, None).map_err(named)?.ok_or_else(locked),
            Wait::Until(deadline) => deadline.min(call.until).0,
        };
        let until = until.min(self.clock.tick().plus(limits::LOCK_WAIT_SLICE));
        let number = self.state().number();
        let _waiting = Waiting { model: self, number };
        loop {
            let listener = self.changed.listen();
            // Bound first: the state must be free again before the waiter is taken off.
            let given = self.act(call)?.try_lock(at, lock, Some(number)).map_err(named)?;
            if let Some(lease) = given {
                return Ok(lease);
            }
            if !self.heard(listener, until).await {
                return Err(locked());
            }
        }
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        self.act(call)?.test_lock(at, lock).map_err(|e| e.op("test a lock on").about(&at.path))
    }

    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        self.act(call)?.unlock(at, lock).map_err(|e| e.op("unlock").about(&at.path))
    }

    async fn sync(&self, call: &Call, at: &At, _scope: SyncScope) -> Result<Verifier> {
        let act = self.act(call)?;
        let id = act.existing(at)?;
        act.need_any(id)?;
        Ok(Verifier(act.state.instance))
    }

    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        loop {
            let listener = self.changed.listen();
            let found = self.act(call)?.changes(at, since).map_err(|e| e.op("watch").about(&at.path))?;
            if let Some(changes) = found {
                return Ok(changes);
            }
            if !self.heard(listener, call.until.0).await {
                return Ok(Changes { changes: Vec::new(), next: since });
            }
        }
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        one_by_one(self, call, requests).await
    }
}
