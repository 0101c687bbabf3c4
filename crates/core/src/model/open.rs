//! Files, opened or not, and reading and writing them.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::Model;
use super::act::{Act, Bits, hidden};
use super::content::Content;
use crate::attr::{Attr, Version, Wcc};
use crate::caller::CallerName;
use crate::error::{Error, ErrorKind, Result};
use crate::form::{
    At, Call, ChangeKind, Copied, New, OpenFile, OpenHow, Piece, Pin, Range, Seek, Shape, Source, Stopped,
    Verifier, WriteAt, Written, check_carried, digested_range, digests_of,
};
use crate::id::{CredentialId, FileId, ObjectId};
use crate::limits;
use crate::proof::Granted;
use crate::rights::Rights;

/// A file to read or write: opened, or by its id alone.
pub(super) struct ModelFile {
    model: Arc<Model>,
    id: FileId,
    need: Rights,
    open: Option<Open>,
}

/// What an open keeps.
struct Open {
    number: u64,
    opener: CallerName,
    credential: CredentialId,
    pinned: Option<Pinned>,
}

/// The one version that a pinned open sees: kept whole, so its reads never conflict.
struct Pinned {
    content: Content,
    version: Version,
    object: ObjectId,
}

/// What `open` found or made.
pub(super) struct OpenedAt {
    pub(super) file: ModelFile,
    pub(super) attr: Attr,
    pub(super) made: bool,
    pub(super) parent: Option<Wcc>,
}

impl Act<'_> {
    pub(super) fn open(&mut self, model: Arc<Model>, at: &At, how: &OpenHow) -> Result<OpenedAt> {
        how.check()?;
        self.session_lives()?;
        let place = self.locate(at)?;
        let (id, made, parent) = match (place.id, place.name, &how.make) {
            (Some(_), _, Some(make)) if make.exclusive => return Err(Error::exists("the name is taken")),
            (Some(id), _, _) => {
                self.may_open(id, how)?;
                (id, false, None)
            }
            (None, Some((dir, name)), Some(make)) => {
                self.need(dir, Rights::INSERT)?;
                let before = self.state.before(dir);
                self.acl_gives(dir, how.need)?;
                let id = self.make_in(dir, &name, &New::File { verifier: None }, &make.set)?;
                self.record(ChangeKind::Make, id, Some((dir, name)), None);
                (id, true, Some(self.state.wcc(dir, before)))
            }
            _ => return Err(hidden()),
        };
        if how.truncate && !made {
            let now = self.now.wall;
            self.state.change_bytes(id, now, |content| content.truncate(0))?;
            self.record(ChangeKind::Write, id, None, None);
        }
        let file = self.opened(model, id, how)?;
        Ok(OpenedAt { file, attr: self.state.attr(id)?, made, parent })
    }

    /// A file that an open makes is governed by its directory's container; its mode
    /// bits do not bind the open that makes it.
    fn acl_gives(&self, dir: FileId, need: Rights) -> Result<()> {
        let decision = self.decide(dir, need, Bits::WereCounted)?;
        if decision.is_allowed() { Ok(()) } else { Err(self.refusal(dir, &decision)) }
    }

    fn may_open(&self, id: FileId, how: &OpenHow) -> Result<()> {
        let need = if how.truncate { how.need | Rights::WRITE } else { how.need };
        if need.is_empty() {
            self.need_any(id)?;
        }
        self.need(id, need)?;
        self.state.content(id).map(|_| ())
    }

    fn opened(&mut self, model: Arc<Model>, id: FileId, how: &OpenHow) -> Result<ModelFile> {
        let session = self.call.session;
        if self.state.opens.values().filter(|(s, _)| *s == session).count() >= limits::SESSION_OPENS_MAX {
            return Err(Error::new(ErrorKind::Busy, "the session holds as many opens as it may"));
        }
        let number = self.state.number();
        self.state.opens.insert(number, (session, id));
        let instance = self.state.instance;
        let content = self.state.content(id)?.clone();
        let inode = self.state.inode_mut(id)?;
        inode.opens += 1;
        let pinned = (how.pin == Pin::Version).then(|| Pinned {
            content,
            version: inode.version(instance),
            object: inode.object(),
        });
        let caller = &self.call.caller;
        let open = Open { number, opener: caller.name().clone(), credential: caller.credential(), pinned };
        Ok(ModelFile { model, id, need: how.need, open: Some(open) })
    }

    pub(super) fn file(&self, model: Arc<Model>, id: FileId, need: Rights) -> Result<ModelFile> {
        check_carried(need)?;
        self.state.inode(id)?;
        if need.is_empty() {
            self.need_any(id)?;
        }
        self.need(id, need)?;
        self.state.content(id)?;
        Ok(ModelFile { model, id, need, open: None })
    }

    pub(super) fn copy(&mut self, from: &At, range: Range, to: &At, offset: u64) -> Result<Copied> {
        let (source, target) = (self.existing(from)?, self.existing(to)?);
        self.need(source, Rights::READ)?;
        self.need(target, Rights::WRITE)?;
        let content = self.state.content(source)?.clone();
        self.state.content(target)?;
        let before = self.state.before(target);
        let (start, length) = range.within(content.size());
        let now = self.now.wall;
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(limits::PIECE_BYTES_MAX as u64) as usize;
            let bytes = content.read(start + done, piece);
            let at = offset.saturating_add(done);
            self.state.change_bytes(target, now, |content| content.write(at, &bytes))?;
            done += piece as u64;
        }
        if done > 0 {
            self.record(ChangeKind::Write, target, None, None);
        }
        Ok(Copied { bytes: done, file: self.state.wcc(target, before) })
    }

    pub(super) fn session_lives(&self) -> Result<()> {
        if self.state.sessions_ended.contains(&self.call.session) {
            return Err(Error::stale("the session has ended"));
        }
        Ok(())
    }
}

impl super::tree::State {
    /// Ends an open: the file goes with it if nothing else keeps it.
    pub(super) fn close(&mut self, number: u64) {
        if let Some((_, id)) = self.opens.remove(&number) {
            if let Some(inode) = self.inodes.get_mut(&id) {
                inode.opens -= 1;
            }
            self.sweep(id);
        }
    }
}

/// A right on one file's bytes, decided anew whenever policy changes under it.
struct Lease {
    model: Arc<Model>,
    call: Call,
    id: FileId,
    op: Rights,
    bits: Bits,
    object: ObjectId,
    granted: Mutex<Granted>,
}

impl Lease {
    /// Checks the right for one piece. Fails with `Revoked`, `Expired` or `Denied`.
    fn check(&self) -> Result<()> {
        match self.granted().allows(self.op, self.object, self.model.clock.moment()) {
            Err(e) if e.kind() == ErrorKind::Revoked => self.renew(),
            answer => answer,
        }
    }

    /// Decides again after the capability was withdrawn: policy may have changed for
    /// somebody else.
    fn renew(&self) -> Result<()> {
        self.call.caller.live(self.model.clock.moment())?;
        let act = self.model.act_whenever(&self.call);
        let granted = act
            .grant(self.id, self.op, self.bits, Some(self.object))
            .map_err(|e| Error::new(ErrorKind::Revoked, "the right was withdrawn").caused_by(e))?;
        *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = granted;
        Ok(())
    }

    fn granted(&self) -> Granted {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Act<'_> {
    /// Has the issuer sign what the ACL says of a file's bytes.
    fn grant(&self, id: FileId, op: Rights, bits: Bits, object: Option<ObjectId>) -> Result<Granted> {
        let decision = self.decide(id, op, bits)?;
        if !decision.is_allowed() {
            return Err(self.refusal(id, &decision));
        }
        let object = object.unwrap_or(self.state.inode(id)?.object());
        self.model.issuer.issue(&decision.narrowed(Rights::ALL, vec![object]))
    }
}

impl ModelFile {
    /// Begins a call on the file: `Stale` once it is closed or its session has ended.
    fn act<'a>(&'a self, call: &'a Call) -> Result<Act<'a>> {
        let act = self.model.act(call)?;
        if let Some(open) = &self.open
            && !act.state.opens.contains_key(&open.number)
        {
            return Err(Error::stale("the file was closed"));
        }
        act.state.inode(self.id)?;
        Ok(act)
    }

    fn bits(&self, call: &Call) -> Bits {
        let carries = self.open.as_ref().is_some_and(|open| {
            open.opener == *call.caller.name()
                && (!call.caller.is_confined() || open.credential == call.caller.credential())
        });
        if carries { Bits::WereCounted } else { Bits::Count }
    }

    fn pinned(&self) -> Option<&Pinned> {
        self.open.as_ref().and_then(|open| open.pinned.as_ref())
    }

    /// Takes up the first of some rights that both the file carries and the ACL gives.
    fn lease(&self, call: &Call, any_of: &[Rights]) -> Result<Lease> {
        let act = self.act(call)?;
        let bits = self.bits(call);
        let mut refused = Error::denied("the file was not opened for that");
        for op in any_of.iter().filter(|op| self.need.contains(**op)) {
            let object = self.pinned().map(|pinned| pinned.object);
            let object = object.map_or_else(|| act.state.inode(self.id).map(|i| i.object()), Ok)?;
            match act.grant(self.id, *op, bits, Some(object)) {
                Ok(granted) => {
                    return Ok(Lease {
                        model: self.model.clone(),
                        call: call.clone(),
                        id: self.id,
                        op: *op,
                        bits,
                        object,
                        granted: Mutex::new(granted),
                    });
                }
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    /// Writes bytes in one step. Returns where they went, and the file before and after.
    fn put(&self, call: &Call, at: WriteAt, bytes: &[u8]) -> Result<(u64, Wcc)> {
        let mut act = self.model.act_whenever(call);
        let before = act.state.before(self.id);
        let now = act.now.wall;
        let at = act.state.change_bytes(self.id, now, |content| {
            let at = match at {
                WriteAt::Offset(at) => at,
                WriteAt::End => content.size(),
            };
            content.write(at, bytes).map(|()| at)
        })?;
        act.record(ChangeKind::Write, self.id, None, None);
        Ok((at, act.state.wcc(self.id, before)))
    }

    /// Pulls everything before it writes: an append is one step, however long.
    async fn append(&self, lease: &Lease, data: &mut dyn Source) -> Result<Written> {
        let mut bytes = Vec::new();
        let mut failed = None;
        loop {
            match data.next(limits::PIECE_BYTES_MAX).await {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece.into_bytes()?),
                Ok(None) => break,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
            lease.check()?;
        }
        let written =
            if bytes.is_empty() { None } else { Some(self.put(&lease.call, WriteAt::End, &bytes)?) };
        match failed {
            Some(e) => Err(e),
            None => self.written(&lease.call, written, bytes.len() as u64),
        }
    }

    async fn overwrite(&self, lease: &Lease, at: u64, data: &mut dyn Source) -> Result<Written> {
        let mut done = 0_u64;
        let mut written: Option<(u64, Wcc)> = None;
        while let Some(piece) = data.next(limits::PIECE_BYTES_MAX).await? {
            lease.check()?;
            let bytes = piece.into_bytes()?;
            let (_, wcc) = self.put(&lease.call, WriteAt::Offset(at.saturating_add(done)), &bytes)?;
            let before = written.map_or(wcc.before, |(_, first)| first.before);
            written = Some((at, Wcc { before, after: wcc.after }));
            done += bytes.len() as u64;
        }
        let mut answer = self.written(&lease.call, written, done)?;
        answer.at = at;
        Ok(answer)
    }

    fn written(&self, call: &Call, written: Option<(u64, Wcc)>, bytes: u64) -> Result<Written> {
        let act = self.model.act_whenever(call);
        let same = || (0, act.state.wcc(self.id, act.state.before(self.id)));
        let (at, file) = written.unwrap_or_else(same);
        Ok(Written { at, bytes, file, ack: call.ack, verifier: Verifier(act.state.instance) })
    }
}

#[async_trait]
impl OpenFile for ModelFile {
    fn id(&self) -> FileId {
        self.id
    }

    async fn attr(&self, call: &Call) -> Result<Attr> {
        let act = self.act(call)?;
        let decision = act.decide(self.id, Rights::ALL, self.bits(call))?;
        if decision.allowed().is_empty() {
            return Err(act.refusal(self.id, &decision).op("stat"));
        }
        let mut attr = act.state.attr(self.id)?;
        if let Some(pinned) = self.pinned() {
            attr.size = pinned.content.size();
            attr.version = pinned.version;
        }
        Ok(attr)
    }

    async fn read(&self, call: &Call, range: Range) -> Result<Box<dyn Source>> {
        let lease = Arc::new(self.lease(call, &[Rights::READ, Rights::EXECUTE]).map_err(|e| e.op("read"))?);
        let act = self.act(call)?;
        let content = match self.pinned() {
            Some(pinned) => pinned.content.clone(),
            None => act.state.content(self.id)?.clone(),
        };
        let (at, length) = range.within(content.size());
        Ok(Box::new(ModelSource { lease, content, at, left: length }))
    }

    async fn digests(&self, call: &Call, block: u64) -> Result<Vec<[u8; 32]>> {
        digests_of(&mut *self.read(call, digested_range(block)).await?).await
    }

    async fn write(&self, call: &Call, at: WriteAt, data: &mut dyn Source) -> Result<Written> {
        match at {
            WriteAt::End => {
                let lease = self.lease(call, &[Rights::APPEND, Rights::WRITE]).map_err(|e| e.op("append"))?;
                self.append(&lease, data).await.map_err(|e| e.op("append"))
            }
            WriteAt::Offset(at) => {
                let lease = self.lease(call, &[Rights::WRITE]).map_err(|e| e.op("write"))?;
                self.overwrite(&lease, at, data).await.map_err(|e| e.op("write"))
            }
        }
    }

    async fn shape(&self, call: &Call, shape: Shape) -> Result<Wcc> {
        self.lease(call, &[Rights::WRITE]).map_err(|e| e.op("shape"))?;
        let mut act = self.act(call)?;
        let (before, now) = (act.state.before(self.id), act.now.wall);
        act.state.change_bytes(self.id, now, |content| content.shape(shape)).map_err(|e| e.op("shape"))?;
        act.record(ChangeKind::Write, self.id, None, None);
        Ok(act.state.wcc(self.id, before))
    }

    async fn seek(&self, call: &Call, offset: u64, what: Seek) -> Result<u64> {
        self.lease(call, &[Rights::READ, Rights::WRITE, Rights::EXECUTE]).map_err(|e| e.op("seek"))?;
        let act = self.act(call)?;
        match self.pinned() {
            Some(pinned) => pinned.content.seek(offset, what),
            None => act.state.content(self.id)?.seek(offset, what),
        }
    }

    async fn sync(&self, call: &Call, _range: Range) -> Result<Verifier> {
        Ok(Verifier(self.act(call)?.state.instance))
    }

    async fn close(&self, call: &Call) -> Result<()> {
        let mut act = self.act(call)?;
        if let Some(open) = &self.open {
            act.state.close(open.number);
        }
        Ok(())
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            self.model.state().close(open.number);
        }
    }
}

/// Bytes of one read, as they were when it began.
struct ModelSource {
    lease: Arc<Lease>,
    content: Content,
    at: u64,
    left: u64,
}

#[async_trait]
impl Source for ModelSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        if self.left == 0 {
            return Ok(None);
        }
        if let Err(e) = self.lease.check() {
            self.left = 0;
            return Err(e.op("read"));
        }
        let length = max.min(limits::PIECE_BYTES_MAX).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let bytes: Bytes = self.content.read(self.at, length);
        self.at += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        Some(self.left)
    }

    fn stopped(&self) -> Stopped {
        let lease = self.lease.clone();
        Box::pin(async move {
            loop {
                lease.granted().withdrawn(lease.op).await;
                if let Err(e) = lease.renew() {
                    return e.op("read");
                }
            }
        })
    }
}
