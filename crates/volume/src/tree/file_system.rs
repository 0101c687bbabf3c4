//! The request form over the tree: each request is made in the volume that it is about.

use std::sync::Arc;

use async_trait::async_trait;
use weft_core::attr::{Attr, Changed, Kind, SetAttr, TagEdit, TagName};
use weft_core::drop_box::check_for_anyone;
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier, Wait, Walked, Want,
    Why, one_by_one,
};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, ErrorKind, FileId, Result, Rights, StageId, VolumeId};

use super::ends::{End, begin_at_root, retold};
use super::{Joined, Tree, is_root};

/// Makes a request of the volume that its address leads to.
macro_rules! reached {
    ($tree:ident, $call:ident, $at:ident, |$fs:ident| $asked:expr) => {
        match $tree.member_of($at.base.volume()).map_err(|e| e.about($at))? {
            Some(joined) => {
                let $fs = &joined.member;
                $asked.await
            }
            None => {
                let $fs = &$tree.root;
                match $asked.await {
                    Err(refused) if refused.kind() == ErrorKind::Unavailable => {
                        let (joined, rest) = $tree.goes_on($call, $at, refused)?;
                        let ($fs, whole) = (&joined.member, $at);
                        let $at = &rest;
                        $asked.await.map_err(|e| retold(e, &rest, whole))
                    }
                    answer => answer,
                }
            }
        }
    };
}

/// Makes a request of the one volume that both its addresses lead to.
macro_rules! reached_both {
    ($tree:ident, $call:ident, [$from:ident: $from_end:expr, $to:ident: $to_end:expr], |$fs:ident| $asked:expr) => {{
        let mut refused = None;
        if begin_at_root($from, $to) {
            let $fs = &$tree.root;
            match $asked.await {
                Err(error) if error.kind() == ErrorKind::Unavailable => refused = Some(error),
                answer => return answer,
            }
        }
        let (joined, a, b) = $tree.meet($call, [($from, $from_end), ($to, $to_end)], refused)?;
        let ($fs, whole) = (&joined.member, ($from, $to));
        let ($from, $to) = (&a, &b);
        $asked.await.map_err(|e| retold(retold(e, &a, whole.0), &b, whole.1))
    }};
}

impl Tree {
    /// Returns the directory that a member's root is seen in.
    fn above(&self, root: FileId) -> Option<FileId> {
        let joined = self.member_of(root.volume()).ok().flatten().filter(|joined| joined.root() == root)?;
        self.root.directory_of(joined.junction).ok()
    }

    /// Checks what an edit of policy gives to those who proved nothing. Whoever may not edit it hears that
    /// from the volume.
    fn must_bound_strangers(&self, call: &Call, at: &At, scope: Scope, edit: &PolicyEdit) -> Result<()> {
        let Some(acl) = edit.acl.as_ref().filter(|_| !self.strangers_change) else { return Ok(()) };
        let in_root = is_root(at.base.volume());
        let in_drop_box = in_root && self.root.edits_drop_box(call, at, scope).unwrap_or(false);
        check_for_anyone(acl, in_drop_box).map_err(|error| error.op("protect").about(at))
    }

    /// Shows a junction in a listing as what is seen there.
    async fn show(&self, call: &Call, entry: &mut Entry, want: Want) {
        let Some(joined) = self.member_at(entry.id) else { return };
        (entry.id, entry.kind) = (joined.root(), Kind::Directory);
        entry.attr = if want.attr { joined.attr(call).await } else { None };
    }

    /// Adds what a member says to the explanation of the way to it.
    async fn why_beyond(
        &self,
        call: &Call,
        (at, need, who): (&At, Rights, Option<CallerName>),
        (joined, rest): (Joined, At),
    ) -> Result<Why> {
        let mut why = self.root.why_may_pass(call, at, who.as_ref())?;
        if !why.allowed {
            return Ok(why);
        }
        let there = joined.member.why(call, &rest, need, who).await.map_err(|e| retold(e, &rest, at))?;
        for mut step in there.steps {
            step.place = place_told(step.place, &rest, at);
            why.add(step);
        }
        Ok(why)
    }
}

impl Joined {
    /// Returns the attributes of the member's root, if they can be seen.
    async fn attr(&self, call: &Call) -> Option<Attr> {
        let want = Want { rights: true, ..Want::default() };
        let walked = self.member.walk(call, &At::id(self.root()), want).await.ok()?;
        walked.rights.is_some_and(|rights| rights.contains(Rights::ATTR_READ)).then_some(walked.attr)
    }
}

/// Names a place in a member as its reader did: by what it asked for, unless a symbolic link led there.
fn place_told(place: String, rest: &At, at: &At) -> String {
    let (whole, root) = (at.to_string(), FileId::root_of(rest.base.volume()).to_string());
    let left = if rest.path.is_empty() { String::new() } else { format!("/{}", rest.path) };
    match (whole.strip_suffix(&left), place.strip_prefix(&root)) {
        (Some(junction), Some(below)) => format!("{junction}{below}"),
        _ => place,
    }
}

#[async_trait]
impl FileSystem for Tree {
    fn supports(&self, volume: VolumeId) -> Supports {
        match self.member_of(volume) {
            Ok(Some(joined)) => joined.member.supports(volume),
            Ok(None) => self.root.supports(volume),
            Err(_) => Supports::NOTHING,
        }
    }

    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        let mut walked = reached!(self, call, at, |fs| fs.walk(call, at, want))?;
        let by_name = is_root(at.base.volume()) && !at.path.is_empty();
        if by_name && walked.parent.is_none() && !is_root(walked.attr.id.volume()) {
            walked.parent = self.above(walked.attr.id);
        }
        Ok(walked)
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        let mut page = reached!(self, call, dir, |fs| fs.list(call, dir, from.clone(), max, want))?;
        if is_root(page.dir.id.volume()) {
            for entry in page.entries.iter_mut().filter(|entry| entry.kind == Kind::Reference) {
                self.show(call, entry, want).await;
            }
        } else if let Some(above) = self.above(page.dir.id) {
            page.parent = above;
        }
        Ok(page)
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        reached!(self, call, at, |fs| fs.make(call, at, new.clone(), set))
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        reached_both!(self, call, [file: End::Thing, to: End::Name], |fs| fs.link(call, file, to))
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        reached_both!(self, call, [from: End::Name, to: End::Name], |fs| fs
            .rename(call, from, to, how, guard))
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        reached!(self, call, at, |fs| fs.remove(call, at, kind, guard))
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        reached!(self, call, at, |fs| fs.target(call, at))
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        reached!(self, call, at, |fs| fs.set(call, at, set, guard))
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        reached!(self, call, at, |fs| fs.tags(call, at, from.clone()))
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        reached!(self, call, at, |fs| fs.tag(call, at, edits, guard))
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        reached!(self, call, at, |fs| fs.policy(call, at))
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        self.must_bound_strangers(call, at, scope, edit)?;
        reached!(self, call, at, |fs| fs.protect(call, at, scope, edit))
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        if let Some(joined) = self.member_of(at.base.volume()).map_err(|e| e.about(at))? {
            return joined.member.why(call, at, need, who).await;
        }
        match self.root.why(call, at, need, who.clone()).await {
            Err(refused) if refused.kind() == ErrorKind::Unavailable => {
                let there = self.goes_on(call, at, refused)?;
                self.why_beyond(call, (at, need, who), there).await
            }
            why => why,
        }
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        reached!(self, call, at, |fs| fs.space(call, at))
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        reached!(self, call, at, |fs| fs.open(call, at, how))
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        match self.member_of(id.volume()).map_err(|e| e.about(id))? {
            Some(joined) => joined.member.file(call, id, need).await,
            None => self.root.file(call, id, need).await,
        }
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        reached_both!(self, call, [from: End::Thing, to: End::Thing], |fs| fs
            .copy(call, from, range, to, offset))
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        reached!(self, call, target, |fs| fs.stage(call, target, hint))
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        let refused = match self.root.staged(call, id).await {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            stage => return stage,
        };
        // An id says nothing of its volume. One that cannot be asked does not hide what others have.
        for joined in self.members().values() {
            if let Ok(stage) = joined.member.staged(call, id).await {
                return Ok(stage);
            }
        }
        Err(refused)
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        reached!(self, call, dir, |fs| fs.stages(call, dir, from))
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        reached!(self, call, at, |fs| fs.lock(call, at, lock, wait))
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        reached!(self, call, at, |fs| fs.test(call, at, lock))
    }

    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        reached!(self, call, at, |fs| fs.unlock(call, at, lock))
    }

    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        reached!(self, call, at, |fs| fs.sync(call, at, scope))
    }

    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        reached!(self, call, at, |fs| fs.watch(call, at, since))
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        // Each by itself through here: one batch may reach several volumes.
        one_by_one(self, call, requests).await
    }
}
