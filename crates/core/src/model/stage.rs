//! Stages: bytes on their way to becoming a file.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::Model;
use super::act::Act;
use super::content::Content;
use super::tree::Body;
use crate::acl::Circumstance;
use crate::attr::{Changed, SetAttr};
use crate::error::{Error, ErrorKind, Result};
use crate::form::{
    At, Call, ChangeKind, Entry, Guard, New, Part, PartPage, Source, Stage, StageEntry, StageHint, StagePage,
};
use crate::id::{CallerId, FileId, StageId};
use crate::limits;
use crate::name::Name;
use crate::rights::Rights;
use crate::time::Time;

/// A stage and what it holds so far.
pub(super) struct Staged {
    caller: CallerId,
    dir: FileId,
    name: Name,
    begun: Time,
    parts: BTreeMap<u32, StagedPart>,
}

#[derive(Default)]
struct StagedPart {
    content: Content,
    hasher: blake3::Hasher,
}

impl Staged {
    fn bytes(&self) -> u64 {
        self.parts.values().map(|part| part.content.size()).sum()
    }

    fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.parts.iter().map(|(number, part)| part.shown(*number))
    }
}

impl StagedPart {
    fn shown(&self, number: u32) -> Part {
        Part { number, bytes: self.content.size(), digest: *self.hasher.finalize().as_bytes() }
    }
}

/// A stage by its id.
pub(super) struct ModelStage {
    pub(super) model: Arc<Model>,
    pub(super) id: StageId,
}

impl Act<'_> {
    pub(super) fn stage(&mut self, target: &At, hint: &StageHint) -> Result<StageId> {
        self.sweep_stages();
        let (dir, name, _) = self.named(target)?;
        self.may_publish(dir, &name)?;
        let length = hint.length.unwrap_or(0);
        if length > limits::FILE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "a file has at most 2^62 bytes"));
        }
        self.room_for(dir, &name, length)?;
        // Not to be guessed from another one, as a stage's id is shown to its maker only.
        let seed = (self.state.instance, self.state.number());
        let hash = blake3::hash(format!("{seed:?}").as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        let id = StageId(u128::from_be_bytes(id));
        let (caller, begun) = (self.call.caller.name().id(), self.now.wall);
        self.state.stages.insert(id, Staged { caller, dir, name, begun, parts: BTreeMap::new() });
        Ok(id)
    }

    /// Publishing needs `write` on what is there, or else `insert`.
    fn may_publish(&self, dir: FileId, name: &Name) -> Result<Option<FileId>> {
        let there = self.state.lookup(dir, name)?.map(|slot| slot.id);
        match there {
            Some(id) => {
                self.need(id, Rights::WRITE)?;
                self.state.content(id)?;
            }
            None => {
                self.need(dir, Rights::INSERT)?;
            }
        }
        Ok(there)
    }

    /// Checks that so many bytes would fit where a stage is to be published.
    fn room_for(&self, dir: FileId, name: &Name, bytes: u64) -> Result<()> {
        let there = self.state.lookup(dir, name)?.and_then(|slot| self.state.inodes.get(&slot.id));
        let (container, frees) = match there {
            Some(inode) => (inode.container, inode.used()),
            None => (self.state.inode(dir)?.container, 0),
        };
        self.state.room(container, bytes.saturating_sub(frees))
    }

    /// Finds a stage that the caller may still publish.
    fn may_go_on(&self, id: StageId) -> Result<&Staged> {
        let staged = self.staged_of(id)?;
        self.may_publish(staged.dir, &staged.name)?;
        Ok(staged)
    }

    /// Drops a stage. What the ACL gave for it may be gone, but the credential must carry what
    /// it takes, here.
    fn discard(&mut self, id: StageId) -> Result<()> {
        let staged = self.staged_of(id)?;
        let there = self.state.lookup(staged.dir, &staged.name).ok().flatten();
        let place = there.map_or(staged.dir, |slot| slot.id);
        let at = Circumstance { now: self.now, peer: self.call.from.peer };
        let carried = self.call.caller.rights_at(&at) & self.within_paths(place);
        if !carried.intersects(Rights::INSERT | Rights::WRITE) {
            return Err(Error::denied("the credential does not reach what is staged there"));
        }
        self.state.stages.remove(&id);
        Ok(())
    }

    /// Finds a stage of the caller's own; anyone else's is not there.
    fn staged_of(&self, id: StageId) -> Result<&Staged> {
        let staged = self.state.stages.get(&id).filter(|s| s.caller == self.call.caller.name().id());
        staged.ok_or_else(|| Error::not_found("there is no such stage of yours").about(id))
    }

    pub(super) fn staged(&mut self, id: StageId) -> Result<StageId> {
        self.sweep_stages();
        self.staged_of(id).map(|_| id)
    }

    pub(super) fn stages(&mut self, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        self.sweep_stages();
        let dir = self.existing(dir)?;
        self.need_any(dir)?;
        self.state.directory(dir)?;
        let own = self.call.caller.name().id();
        let mut rest = self.state.stages.iter().filter(|(id, staged)| {
            staged.dir == dir
                && staged.caller == own
                && !self.call.caller.is_anyone()
                && self.may_publish(dir, &staged.name).is_ok()
                && from.is_none_or(|from| **id > from)
        });
        let stages: Vec<StageEntry> = rest
            .by_ref()
            .take(limits::PAGE_ENTRIES_MAX as usize)
            .map(|(id, s)| StageEntry { id: *id, name: s.name.clone(), begun: s.begun, bytes: s.bytes() })
            .collect();
        let next = rest.next().and(stages.last()).map(|last| last.id);
        Ok(StagePage { stages, next })
    }

    /// Drops stages that were left alone for longer than they are kept.
    fn sweep_stages(&mut self) {
        let now = self.now.wall;
        self.state.stages.retain(|_, staged| now.since(staged.begun) < limits::STAGE_LIFE);
    }

    /// Begins or goes on with a part.
    fn begin_part(&mut self, id: StageId, number: u32, offset: u64) -> Result<()> {
        self.may_go_on(id)?;
        if number == 0 || number > limits::STAGE_PARTS_MAX {
            return Err(Error::invalid("parts are numbered from 1 to 10000"));
        }
        let Some(staged) = self.state.stages.get_mut(&id) else { return Ok(()) };
        let held = staged.parts.get(&number).map_or(0, |part| part.content.size());
        if offset == 0 {
            staged.parts.insert(number, StagedPart::default());
        } else if offset != held {
            return Err(Error::invalid(format!(
                "the part has {held} bytes: go on there or start again at 0"
            )));
        }
        Ok(())
    }

    fn extend_part(&mut self, id: StageId, number: u32, bytes: &[u8]) -> Result<()> {
        let staged = self.staged_of(id)?;
        let (dir, name, all) = (staged.dir, staged.name.clone(), staged.bytes() + bytes.len() as u64);
        self.may_publish(dir, &name)?;
        self.room_for(dir, &name, all)?;
        let Some(part) = self.state.stages.get_mut(&id).and_then(|s| s.parts.get_mut(&number)) else {
            return Err(Error::invalid("the part was taken away meanwhile"));
        };
        part.content.write(part.content.size(), bytes)?;
        part.hasher.update(bytes);
        Ok(())
    }

    fn part(&self, id: StageId, number: u32) -> Result<Part> {
        let part = self.staged_of(id)?.parts.get(&number);
        part.map(|part| part.shown(number)).ok_or_else(|| Error::invalid("the part was taken away meanwhile"))
    }

    fn publish(
        &mut self,
        id: StageId,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let staged = self.staged_of(id)?;
        if !parts.is_empty() && !staged.parts().eq(parts.iter().copied()) {
            return Err(Error::invalid("the parts given are not the parts that are staged"));
        }
        if set.size.is_some() {
            return Err(Error::invalid("the size is that of the parts"));
        }
        let (dir, name) = (staged.dir, staged.name.clone());
        let content = joined(staged)?;
        let there = self.may_publish(dir, &name)?;
        self.guard(guard, there)?;
        self.room_for(dir, &name, content.size())?;
        let (file, above) = (there.and_then(|id| self.state.before(id)), self.state.before(dir));
        let id_of_file = match there {
            Some(file) => {
                self.replace(file, content, set)?;
                self.record(ChangeKind::Write, file, Some((dir, name.clone())), None);
                file
            }
            None => {
                let file = self.make_in(dir, &name, &New::File { verifier: None }, set)?;
                let now = self.now.wall;
                self.state.change_bytes(file, now, |old| {
                    *old = content;
                    Ok(())
                })?;
                self.apply(file, &SetAttr { mtime: set.mtime, ..SetAttr::default() })?;
                self.record(ChangeKind::Make, file, Some((dir, name.clone())), None);
                file
            }
        };
        self.state.stages.remove(&id);
        let parent = there.is_none().then(|| self.state.wcc(dir, above));
        let file = self.state.wcc(id_of_file, file);
        Ok(Changed { value: self.entry(dir, &name)?, file, parents: [parent, None] })
    }

    /// Swaps a file's bytes: everything else of it stays, but what `set` says.
    fn replace(&mut self, file: FileId, content: Content, set: &SetAttr) -> Result<()> {
        self.may_set(file, set)?;
        let now = self.now.wall;
        self.state.change_bytes(file, now, |old| {
            *old = content;
            Ok(())
        })?;
        let inode = self.state.inode_mut(file)?;
        inode.layout += 1;
        inode.writes = 0;
        debug_assert!(matches!(inode.body, Body::File(_)), "only a file is replaced");
        self.apply(file, set)
    }
}

/// Joins the parts in number order.
fn joined(staged: &Staged) -> Result<Content> {
    let mut parts = staged.parts.values().map(|part| &part.content);
    let mut all = parts.next().cloned().unwrap_or_default();
    for part in parts {
        let mut at = 0;
        while at < part.size() {
            let bytes = part.read(at, limits::PIECE_BYTES_MAX);
            all.write(all.size(), &bytes)?;
            at += bytes.len() as u64;
        }
    }
    Ok(all)
}

#[async_trait]
impl Stage for ModelStage {
    fn id(&self) -> StageId {
        self.id
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        self.model.act(call)?.begin_part(self.id, number, offset).map_err(|e| e.op("stage"))?;
        while let Some(piece) = data.next(limits::PIECE_BYTES_MAX).await? {
            let bytes = piece.into_bytes()?;
            call.caller.live(self.model.clock.moment())?;
            let mut act = self.model.act_whenever(call);
            act.extend_part(self.id, number, &bytes).map_err(|e| e.op("stage"))?;
        }
        self.model.act_whenever(call).part(self.id, number)
    }

    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage> {
        let act = self.model.act(call)?;
        let mut rest = act.may_go_on(self.id)?.parts().filter(|part| part.number >= from);
        let parts = rest.by_ref().take(limits::PAGE_ENTRIES_MAX as usize).collect();
        Ok(PartPage { parts, next: rest.next().map(|part| part.number) })
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let request = ("publish", self.id, parts, set, guard);
        let mut act = self.model.act(call)?;
        act.once(&request, |act| act.publish(self.id, parts, set, guard)).map_err(|e| e.op("publish"))
    }

    async fn discard(&self, call: &Call) -> Result<()> {
        self.model.act(call)?.discard(self.id).map_err(|e| e.op("discard"))
    }
}
