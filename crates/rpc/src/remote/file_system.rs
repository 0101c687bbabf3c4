//! `FileSystem` over a connection.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::attr::{Attr, Changed, SetAttr, TagEdit, TagName};
use weft_core::form::{
    At, Call, ChangeSeq, Changes, Copied, Cursor, Entry, Expect, FileSystem, Guard, LinkTarget, Lock,
    LockLease, New, OpenFile, OpenHow, Opened, Page, PageMax, Protected, Range, Replace, Reply, Request,
    Scope, Space, Stage, StageHint, StagePage, Supports, SyncScope, TagPage, Verifier, Wait, Walked, Want,
    Why, too_many_requests,
};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{CallerName, Error, FileId, Result, Rights, StageId, VolumeId, limits};

use super::file::RemoteFile;
use super::stage::RemoteStage;
use super::{Remote, take};
use crate::message::{Answer, CallBody, FileAsk, FileRef};

/// Makes a request of the form and takes the reply of the same name out of the answer.
macro_rules! request {
    ($self:ident, $call:ident, $name:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let request = Request::$name { $($field: $value),* };
        match $self.0.call($call, CallBody::Request(request)).await? {
            Answer::Reply(Reply::$name(value)) => Ok(value),
            _ => Err(super::unexpected()),
        }
    }};
}

#[async_trait]
impl FileSystem for Remote {
    /// The root's volume is told of with the welcome. Any other is asked when a walk or an open has
    /// first come to it; until then, and where that fails, it is [`Supports::NOTHING`].
    fn supports(&self, volume: VolumeId) -> Supports {
        self.0.supports(volume)
    }

    async fn walk(&self, call: &Call, at: &At, want: Want) -> Result<Walked> {
        let walked: Walked = request!(self, call, Walk { at: at.clone(), want: want })?;
        self.0.learn(call, walked.attr.id.volume()).await;
        Ok(walked)
    }

    async fn list(&self, call: &Call, dir: &At, from: Cursor, max: PageMax, want: Want) -> Result<Page> {
        request!(self, call, List { dir: dir.clone(), from: from, max: max, want: want })
    }

    async fn make(&self, call: &Call, at: &At, new: New, set: &SetAttr) -> Result<Changed<Entry>> {
        request!(self, call, Make { at: at.clone(), new: new, set: set.clone() })
    }

    async fn link(&self, call: &Call, file: &At, to: &At) -> Result<Changed<Entry>> {
        request!(self, call, Link { file: file.clone(), to: to.clone() })
    }

    async fn rename(
        &self,
        call: &Call,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<Changed<()>> {
        request!(self, call, Rename { from: from.clone(), to: to.clone(), how: how, guard: *guard })
    }

    async fn remove(&self, call: &Call, at: &At, kind: Expect, guard: &Guard) -> Result<Changed<()>> {
        request!(self, call, Remove { at: at.clone(), kind: kind, guard: *guard })
    }

    async fn target(&self, call: &Call, at: &At) -> Result<LinkTarget> {
        request!(self, call, Target { at: at.clone() })
    }

    async fn set(&self, call: &Call, at: &At, set: &SetAttr, guard: &Guard) -> Result<Changed<Attr>> {
        request!(self, call, Set { at: at.clone(), set: set.clone(), guard: *guard })
    }

    async fn tags(&self, call: &Call, at: &At, from: Option<TagName>) -> Result<TagPage> {
        request!(self, call, Tags { at: at.clone(), from: from })
    }

    async fn tag(&self, call: &Call, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<Changed<()>> {
        request!(self, call, Tag { at: at.clone(), edits: edits.to_vec(), guard: *guard })
    }

    async fn policy(&self, call: &Call, at: &At) -> Result<Policy> {
        request!(self, call, Policy { at: at.clone() })
    }

    async fn protect(
        &self,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        request!(self, call, Protect { at: at.clone(), scope: scope, edit: edit.clone() })
    }

    async fn why(&self, call: &Call, at: &At, need: Rights, who: Option<CallerName>) -> Result<Why> {
        request!(self, call, Why { at: at.clone(), need: need, who: who })
    }

    async fn space(&self, call: &Call, at: &At) -> Result<Space> {
        request!(self, call, Space { at: at.clone() })
    }

    async fn open(&self, call: &Call, at: &At, how: &OpenHow) -> Result<Opened> {
        let header = self.0.header(call).await?;
        let body = CallBody::Open(at.clone(), how.clone());
        match self.0.connection.call(header, body, Bytes::new(), call.until).await?.0 {
            Answer::Opened { file, attr, made, parent } => {
                let file = RemoteFile::open(&self.0, attr.id, (header.session, file));
                self.0.learn(call, attr.id.volume()).await;
                Ok(Opened { file, attr, made, parent })
            }
            _ => Err(super::unexpected()),
        }
    }

    async fn file(&self, call: &Call, id: FileId, need: Rights) -> Result<Arc<dyn OpenFile>> {
        let file = FileRef::Id(id, need);
        take!(self.0.call(call, CallBody::File(file, FileAsk::Check)).await?, Answer::Done => ())?;
        Ok(Arc::new(RemoteFile { shared: self.0.clone(), id, file, session: 0 }))
    }

    async fn copy(&self, call: &Call, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        request!(self, call, Copy { from: from.clone(), range: range, to: to.clone(), offset: offset })
    }

    async fn stage(&self, call: &Call, target: &At, hint: &StageHint) -> Result<Arc<dyn Stage>> {
        let answer = self.0.call(call, CallBody::Stage(target.clone(), *hint)).await?;
        let id = take!(answer, Answer::Stage(id) => id)?;
        Ok(Arc::new(RemoteStage::new(self.0.clone(), id)))
    }

    async fn staged(&self, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        let answer = self.0.call(call, CallBody::Staged(id)).await?;
        let id = take!(answer, Answer::Stage(id) => id)?;
        Ok(Arc::new(RemoteStage::new(self.0.clone(), id)))
    }

    async fn stages(&self, call: &Call, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        request!(self, call, Stages { dir: dir.clone(), from: from })
    }

    async fn lock(&self, call: &Call, at: &At, lock: &Lock, wait: Wait) -> Result<LockLease> {
        let clock = self.0.connection.sys().clock();
        let wait = match wait {
            Wait::No => None,
            Wait::Until(until) => Some(u32::try_from(until.left(clock).as_millis()).unwrap_or(u32::MAX)),
        };
        let answer = self.0.call(call, CallBody::Lock(at.clone(), lock.clone(), wait)).await?;
        let left_ms = take!(answer, Answer::Locked(left_ms) => left_ms)?;
        Ok(LockLease { until: clock.tick().plus(std::time::Duration::from_millis(left_ms.into())) })
    }

    async fn test(&self, call: &Call, at: &At, lock: &Lock) -> Result<Option<Lock>> {
        let answer = self.0.call(call, CallBody::Test(at.clone(), lock.clone())).await?;
        take!(answer, Answer::InTheWay(lock) => lock)
    }

    async fn unlock(&self, call: &Call, at: &At, lock: &Lock) -> Result<()> {
        let answer = self.0.call(call, CallBody::Unlock(at.clone(), lock.clone())).await?;
        take!(answer, Answer::Done => ())
    }

    async fn sync(&self, call: &Call, at: &At, scope: SyncScope) -> Result<Verifier> {
        request!(self, call, Sync { at: at.clone(), scope: scope })
    }

    async fn watch(&self, call: &Call, at: &At, since: ChangeSeq) -> Result<Changes> {
        let mut changes: Changes = request!(self, call, Watch { at: at.clone(), since: since })?;
        // A cache tells its own changes by the session it knows.
        let numbers = self.0.numbers();
        for change in &mut changes.changes {
            change.session = numbers.local.get(&change.session).copied().unwrap_or(change.session);
        }
        Ok(changes)
    }

    async fn batch(&self, call: &Call, requests: Vec<Request>) -> Vec<Result<Reply>> {
        let count = requests.len();
        let outcome = if count > limits::BATCH_REQUESTS_MAX {
            Err(too_many_requests())
        } else {
            self.0.call(call, CallBody::Batch(requests)).await
        };
        let failed = match outcome {
            Ok(Answer::Batch(replies)) if replies.len() == count => {
                return replies.into_iter().map(|reply| reply.map_err(Error::from)).collect();
            }
            Ok(_) => super::unexpected(),
            Err(error) => error,
        };
        let report = weft_core::ErrorReport::from(&failed);
        (0..count).map(|_| Err(report.clone().into())).collect()
    }
}
