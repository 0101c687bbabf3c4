//! Stages: bytes on their way to becoming a file. A row of the stage first, then its parts, then one
//! transaction that makes them the file.

mod brief;
mod put;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tokio::sync::OwnedMutexGuard;
use weft_core::attr::{Changed, SetAttr};
use weft_core::form::{
    Ack, At, BytesSource, Call, ChangeKind, Entry, Guard, New, Part, PartPage, Range, Shape, Source, Stage,
    StageHint, WriteAt,
};
use weft_core::proof::Granted;
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result, Rights, StageId, limits};
use weft_kv::SpaceTxn;

use super::Volume;
use super::act::{Act, Deed, answered, fingerprint};
use super::bytes::used_of;
use super::drop_box::{full, veiled};
use super::locate::Spot;
use super::names::check_size;
use super::stages::Tail;
use super::table::inodes::{self, Layout};
use super::table::stages::{self, PartBytes, PartRow, StageRow};
use super::table::{containers, unnamed};
use super::view::{Node, View};

/// A stage by its id.
pub(super) struct ManagedStage {
    volume: Arc<Volume>,
    id: StageId,
    /// Its row, for as long as no table has it.
    unwritten: Option<StageRow>,
}

/// What a stage's parts amount to.
#[derive(Clone)]
enum Content {
    Inline(Bytes),
    Whole { object: ObjectId, label: ContainerId, size: u64, used: u64 },
}

/// Parts as they are staged.
type Parts = Vec<(u32, PartRow)>;

fn shown(number: u32, part: &PartRow) -> Part {
    Part { number, bytes: part.bytes, digest: part.digest }
}

impl Volume {
    fn is_held(&self, part: &PartRow) -> bool {
        !matches!(part.held, PartBytes::Object { unsynced: Some(boot), .. } if boot != self.verifier().0)
    }

    pub(super) async fn stage(
        self: &Arc<Self>,
        call: &Call,
        target: &At,
        hint: &StageHint,
    ) -> Result<Arc<dyn Stage>> {
        let mut bytes = [0; 16];
        self.sys.random().fill(&mut bytes);
        let id = StageId(u128::from_be_bytes(bytes));
        let length = hint.length.unwrap_or(0);
        if hint.brief && length <= limits::BRIEF_BYTES_MAX {
            let row = self.look(call, |view| view.to_stage(id, target, length))?;
            return Ok(Arc::new(brief::BriefStage::new(self.clone(), id, row, hint.length)));
        }
        let target = target.clone();
        let applied = Call { ack: Ack::Applied, ..call.clone() };
        self.change(&applied, move |act| act.stage(id, &target, length)).await?;
        Ok(Arc::new(ManagedStage::of(self, id)))
    }

    pub(super) fn staged(self: &Arc<Self>, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        self.look(call, |view| view.staged_of(id))?;
        Ok(Arc::new(ManagedStage::of(self, id)))
    }
}

impl Act<'_, '_> {
    fn stage(&mut self, id: StageId, target: &At, length: u64) -> Result<()> {
        let row = self.view().to_stage(id, target, length)?;
        stages::put(self.txn, id, &row)
    }

    /// Writes a part; what held its bytes before goes, unless it still does.
    fn put_part(&mut self, id: StageId, number: u32, part: &PartRow) -> Result<()> {
        let row = self.view().staged_of(id)?;
        if let Some(object) = object_of(&part.held)
            && unnamed::is_garbage(self.txn, object)?
        {
            return Err(Error::new(ErrorKind::Conflict, "the part was begun again by somebody else"));
        }
        let old = stages::part(self.txn, id, number)?;
        if let Some(old) = &old {
            drop_bytes(self.txn, &row, old, Some(&part.held))?;
        }
        let was = old.as_ref().map_or(0, |old| old.bytes);
        self.use_bytes(row.container, was, part.bytes)?;
        self.count_part(&row, part, old.as_ref())?;
        stages::put_part(self.txn, id, number, part)
    }

    /// Counts what was sent of a part if it is dropped: of one that was gone on with, what is new.
    fn count_part(&mut self, row: &StageRow, part: &PartRow, old: Option<&PartRow>) -> Result<()> {
        if !self.volume.has_boxes.load(Ordering::Acquire) {
            return Ok(());
        }
        let dir = self.view().target_of(row)?.dir;
        let object = object_of(&part.held);
        let same = old.filter(|old| object.is_some() && object_of(&old.held) == object);
        let sent = part.bytes.saturating_sub(same.map_or(0, |old| old.bytes));
        self.count_sent(&dir, sent, object.is_some())
    }

    /// Makes the staged bytes the file at the target.
    fn publish(
        &mut self,
        id: StageId,
        parts: &Parts,
        content: &Content,
        set: &SetAttr,
        guard: &Guard,
        number: u64,
    ) -> Result<Changed<Entry>> {
        // The bytes were brought together for a while: the credential may have ended since.
        self.call.caller.live(self.now)?;
        let view = self.view();
        let row = view.staged_of(id)?;
        let now: Parts = view.parts_of(id, 0).collect::<Result<_>>()?;
        if now != *parts {
            return Err(Error::new(ErrorKind::Conflict, "parts were put while the stage was published"));
        }
        let spot = view.target_of(&row)?;
        // What was staged is the file's from now on, and charged as such.
        self.drop_staged(id, &row, parts, content)?;
        self.publish_at(&spot, content, set, guard, number)
    }

    /// Makes bytes that no row of a stage holds the file at a spot.
    fn publish_at(
        &mut self,
        spot: &Spot,
        content: &Content,
        set: &SetAttr,
        guard: &Guard,
        number: u64,
    ) -> Result<Changed<Entry>> {
        let view = self.view();
        view.may_publish(spot)?;
        let dropped = view.drops_into(&spot.dir)?;
        view.guard(guard, spot.held.as_ref().map(|(node, _)| node))?;
        let (container, frees) = view.published_into(spot)?;
        let room = view.room(container, content.used().saturating_sub(frees));
        // Who drops a file says nothing of it but its bytes.
        let set = if dropped { &SetAttr::default() } else { set };
        if dropped {
            room.map_err(full)?;
            self.view().takes_a_file(&spot.dir)?;
        } else {
            room?;
        }
        let above = self.before(&spot.dir)?;
        let (node, link, before) = match spot.held.clone() {
            Some((mut node, link)) => {
                let view = self.view();
                if !set.is_empty() {
                    view.may_set(&node, set)?;
                    view.may_change(&node, set)?;
                }
                let before = self.before(&node)?;
                self.swap(&mut node, content)?;
                self.apply(&mut node, set)?;
                (node, link, before)
            }
            None => {
                let mut node = self.inode_for(&spot.dir, &New::File { verifier: None }, set, number)?;
                if dropped {
                    node.inode.owner = spot.dir.inode.owner;
                }
                let mtime = node.inode.mtime;
                self.take_bytes(&mut node, content)?;
                if set.mtime.is_some() {
                    node.inode.mtime = mtime;
                }
                let link = self.add_to(&spot.dir, &spot.name, &node)?;
                (node, link, None)
            }
        };
        let made = before.is_none();
        let (kind, by) = match made {
            true => (ChangeKind::Make, (&spot.dir, Rights::INSERT)),
            false => (ChangeKind::Write, (&node, Rights::WRITE)),
        };
        let (place, bytes) = (Some((&spot.dir, &spot.name)), node.inode.size);
        self.record(&Deed { place, bytes, ..Deed::of(kind, "publish", &node, by) })?;
        if dropped {
            return Ok(veiled(&spot.dir, spot.name.clone()));
        }
        let mut answer = self.entered(&spot.dir, above, &spot.name, &link, &node, before)?;
        if !made {
            answer.parents[0] = None;
        }
        Ok(answer)
    }

    /// Swaps a file's bytes: everything else of it stays.
    fn swap(&mut self, node: &mut Node, content: &Content) -> Result<()> {
        match (node.inode.layout, content) {
            (Layout::Whole { object, label }, _) => {
                unnamed::add_garbage(self.txn, object, label)?;
                unnamed::RELABELS.remove(self.txn, node.serial())?;
            }
            (Layout::Inline, Content::Whole { .. }) => inodes::put_inline(self.txn, node.serial(), &[])?,
            (Layout::Inline, Content::Inline(_)) => {}
        }
        self.take_bytes(node, content)?;
        self.put(node)
    }

    /// Gives an inode its bytes. The inode itself is left to be written; what it had before is dealt with.
    fn take_bytes(&mut self, node: &mut Node, content: &Content) -> Result<()> {
        let was = node.inode.used;
        node.inode.layout_serial += 1;
        match content {
            Content::Inline(bytes) => {
                inodes::put_inline(self.txn, node.serial(), bytes)?;
                node.inode.layout = Layout::Inline;
                node.inode.size = bytes.len() as u64;
            }
            Content::Whole { object, label, size, .. } => {
                node.inode.layout = Layout::Whole { object: *object, label: *label };
                node.inode.size = *size;
                if *label != node.inode.container {
                    unnamed::RELABELS.add(self.txn, node.serial())?;
                }
            }
        }
        node.inode.used = content.used();
        self.use_bytes(node.inode.container, was, node.inode.used)?;
        node.inode.rewritten(self.wall, self.volume.boot());
        Ok(())
    }

    /// Ends a stage whose bytes were published: objects that are not the file's go.
    fn drop_staged(&mut self, id: StageId, row: &StageRow, parts: &Parts, content: &Content) -> Result<()> {
        let kept = match content {
            Content::Whole { object, .. } => Some(*object),
            Content::Inline(_) => None,
        };
        let objects = parts.iter().filter_map(|(_, part)| object_of(&part.held)).chain(row.joined);
        for object in objects.filter(|object| Some(*object) != kept) {
            unnamed::add_garbage(self.txn, object, row.container)?;
        }
        self.use_bytes(row.container, stages::bytes(self.txn, id)?, 0)?;
        stages::erase(self.txn, id, row)
    }
}

impl Content {
    fn used(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Whole { used, .. } => *used,
        }
    }
}

fn object_of(held: &PartBytes) -> Option<ObjectId> {
    match held {
        PartBytes::Object { object, .. } => Some(*object),
        PartBytes::Inline(_) => None,
    }
}

/// Leaves a part's object to be removed, unless it is still in use.
fn drop_bytes(
    txn: &mut SpaceTxn<'_>,
    row: &StageRow,
    old: &PartRow,
    still: Option<&PartBytes>,
) -> Result<()> {
    match object_of(&old.held) {
        Some(object) if still.and_then(object_of) != Some(object) => {
            unnamed::add_garbage(txn, object, row.container)
        }
        _ => Ok(()),
    }
}

/// Ends a stage with everything it holds.
pub(super) fn drop_stage(txn: &mut SpaceTxn<'_>, id: StageId) -> Result<()> {
    let Some(row) = stages::find(txn, id)? else { return Ok(()) };
    let parts: Parts = stages::parts(txn, id, 0).collect::<Result<_>>()?;
    for (_, part) in &parts {
        drop_bytes(txn, &row, part, None)?;
    }
    if let Some(object) = row.joined {
        unnamed::add_garbage(txn, object, row.container)?;
    }
    let charged = stages::bytes(txn, id)? as i64;
    containers::use_bytes(txn, row.container, -charged)?;
    stages::erase(txn, id, &row)
}

/// The caller's right to go on with a stage, looked at again when policy changes.
struct Standing<'a> {
    volume: &'a Arc<Volume>,
    row: StageRow,
    call: &'a Call,
    seen: AtomicU64,
}

impl<'a> Standing<'a> {
    fn new(volume: &'a Arc<Volume>, row: &StageRow, call: &'a Call) -> Self {
        let seen = AtomicU64::new(volume.policy_changes.load(Ordering::Acquire));
        Self { volume, row: row.clone(), call, seen }
    }

    fn check(&self) -> Result<()> {
        self.call.caller.live(self.volume.sys.clock().moment())?;
        let now = self.volume.policy_changes.load(Ordering::Acquire);
        if self.seen.swap(now, Ordering::AcqRel) == now {
            return Ok(());
        }
        self.volume.look_whenever(self.call, |view| view.may_go_on_with(&self.row).map(drop))
    }
}

/// Checks that the parts given, if any are, are those that are staged.
fn must_match(given: &[Part], staged: &Parts) -> Result<()> {
    let mut same = staged.iter().map(|(number, part)| shown(*number, part));
    if given.is_empty()
        || (given.len() == staged.len() && given.iter().all(|part| same.next() == Some(*part)))
    {
        return Ok(());
    }
    Err(Error::invalid("the parts given are not the parts that are staged"))
}

fn no_stage() -> Error {
    Error::not_found("there is no such stage of yours")
}

fn check_number(number: u32) -> Result<()> {
    if number == 0 || number > limits::STAGE_PARTS_MAX {
        return Err(Error::invalid("parts are numbered from 1 to 10000"));
    }
    Ok(())
}

impl ManagedStage {
    fn of(volume: &Arc<Volume>, id: StageId) -> Self {
        Self { volume: volume.clone(), id, unwritten: None }
    }

    /// Returns the stage if the caller may still publish it, and where.
    fn found(&self, view: &View<'_>) -> Result<(StageRow, Spot)> {
        match &self.unwritten {
            Some(row) => Ok((row.clone(), view.may_go_on_with(row)?)),
            None => view.may_go_on(self.id),
        }
    }

    fn granted(&self, call: &Call, label: ContainerId, object: ObjectId) -> Result<Granted> {
        self.volume.look_whenever(call, |view| {
            let (_, spot) = self.found(view)?;
            view.grant_staged(spot.published_by(), object, label)
        })
    }

    /// Waits until nobody puts any of the parts there are, and keeps it so: what becomes
    /// a file's bytes must not be written as a part any more.
    async fn hold_parts(&self, call: &Call) -> Result<(Vec<u32>, Vec<OwnedMutexGuard<Tail>>)> {
        let numbers: Vec<u32> = self.volume.look(call, |view| {
            view.staged_of(self.id)?;
            view.parts_of(self.id, 0).map(|part| part.map(|(number, _)| number)).collect()
        })?;
        let now = self.volume.sys.clock().tick();
        let waits = async {
            let mut held = Vec::with_capacity(numbers.len());
            // In their order, so that two who publish do not wait for each other.
            for number in &numbers {
                held.push(self.volume.stagings.tail(self.id, *number, now).lock_owned().await);
            }
            Ok(held)
        };
        let held = self.volume.sys.within(call.until, waits).await?;
        Ok((numbers, held))
    }

    /// Brings the parts together into what can become a file's bytes, on disk.
    async fn content(&self, call: &Call, row: &StageRow, parts: &Parts) -> Result<Content> {
        let inline: Option<Vec<&Bytes>> = parts
            .iter()
            .map(|(_, part)| match &part.held {
                PartBytes::Inline(bytes) => Some(bytes),
                PartBytes::Object { .. } => None,
            })
            .collect();
        let total: u64 = parts.iter().map(|(_, part)| part.bytes).sum();
        check_size(total)?;
        if let Some(inline) = inline.filter(|_| total <= limits::INLINE_BYTES_MAX) {
            let mut bytes = BytesMut::with_capacity(total as usize);
            inline.into_iter().for_each(|part| bytes.extend_from_slice(part));
            return Ok(Content::Inline(bytes.freeze()));
        }
        let label = row.container;
        let object = match &parts[..] {
            [(_, PartRow { held: PartBytes::Object { object, .. }, .. })] => *object,
            _ => self.join(call, row, parts).await?,
        };
        let granted = self.granted(call, label, object)?;
        let store = &self.volume.store;
        let mut stat = store.stat(&granted, object).await?;
        if stat.size > total {
            // Left behind by a part that was cut short.
            stat = store.shape(&granted, object, Shape::Truncate(total)).await?;
        }
        if stat.size != total {
            return Err(Error::corrupt("the staged bytes are fewer than were put").about(object));
        }
        store.sync(&granted, object).await?;
        let stat = store.seal(&granted, object).await?;
        Ok(Content::Whole { object, label, size: total, used: used_of(&stat) })
    }

    /// Copies several parts into one object.
    async fn join(&self, call: &Call, row: &StageRow, parts: &Parts) -> Result<ObjectId> {
        let (id, label) = (self.id, row.container);
        let object = self.volume.new_object().await?;
        self.volume
            .change_whenever(call, Ack::Applied, move |act| {
                let mut row = act.view().staged_of(id)?;
                if let Some(earlier) = row.joined.replace(object) {
                    unnamed::add_garbage(act.txn, earlier, row.container)?;
                }
                stages::put(act.txn, id, &row)
            })
            .await?;
        let granted = self.granted(call, label, object)?;
        let store = &self.volume.store;
        store.make(&granted, object, Some(parts.iter().map(|(_, part)| part.bytes).sum())).await?;
        let mut at = 0;
        for (_, part) in parts {
            match &part.held {
                PartBytes::Inline(bytes) => {
                    let mut source = BytesSource::new(bytes.clone());
                    store.write(&granted, object, WriteAt::Offset(at), &mut source).await?;
                }
                PartBytes::Object { object: from, .. } => {
                    let theirs = self.granted(call, label, *from)?;
                    let range = Range { at: 0, length: Some(part.bytes) };
                    store.copy((&theirs, *from), range, (&granted, object), at).await?;
                }
            }
            at += part.bytes;
        }
        Ok(object)
    }

    async fn published(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let print = fingerprint(call, &("publish", self.id, parts, set, guard))?;
        let replayed = || self.volume.look(call, |view| answered(view.read, call, &print));
        if let Some(answer) = replayed()? {
            return Ok(answer);
        }
        let (held, _alone) = self.hold_parts(call).await?;
        // Whoever held the parts may have been this very call, sent before.
        if let Some(answer) = replayed()? {
            return Ok(answer);
        }
        if set.size.is_some() {
            return Err(Error::invalid("the size is that of the parts"));
        }
        let (row, staged) = self.volume.look(call, |view| {
            let (row, _) = view.may_go_on(self.id)?;
            view.must_be_held(self.id, parts)?;
            let staged: Parts = view.parts_of(self.id, 0).collect::<Result<_>>()?;
            Ok((row, staged))
        })?;
        if !staged.iter().map(|(number, _)| number).eq(&held) {
            return Err(Error::new(ErrorKind::Conflict, "parts were put while the stage was published"));
        }
        must_match(parts, &staged)?;
        let content = self.content(call, &row, &staged).await?;
        let number = self.volume.number().await?;
        let (id, set, guard) = (self.id, set.clone(), *guard);
        let answer = self
            .volume
            .change_whenever(call, Ack::Durable, move |act| {
                act.once(&print, |act| act.publish(id, &staged, &content, &set, &guard, number))
            })
            .await?;
        self.volume.stagings.forget(self.id);
        self.volume.to_tidy.notify_one();
        Ok(answer)
    }
}

#[async_trait]
impl Stage for ManagedStage {
    fn id(&self) -> StageId {
        self.id
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        self.put_after(call, number, offset, (None, data)).await.map_err(|e| e.op("stage"))
    }

    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage> {
        let page = self.volume.look(call, |view| {
            view.may_go_on(self.id)?;
            let mut rest = view.parts_of(self.id, from);
            let mut parts = Vec::new();
            for part in rest.by_ref().take(limits::PAGE_ENTRIES_MAX as usize) {
                let (number, part) = part?;
                parts.push(shown(number, &part));
            }
            Ok(PartPage { parts, next: rest.next().transpose()?.map(|(number, _)| number) })
        });
        page.map_err(|e| e.op("list parts of"))
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let stage = Self::of(&self.volume, self.id);
        let (again, parts, set, guard) = (call.clone(), parts.to_vec(), set.clone(), *guard);
        let work = async move { stage.published(&again, &parts, &set, &guard).await };
        self.volume.undropped(call, work).await.map_err(|e| e.op("publish"))
    }

    async fn discard(&self, call: &Call) -> Result<()> {
        let id = self.id;
        self.volume
            .change(call, move |act| {
                let view = act.view();
                view.may_discard(&view.staged_of(id)?)?;
                drop_stage(act.txn, id)
            })
            .await
            .map_err(|e| e.op("discard"))?;
        self.volume.stagings.forget(id);
        self.volume.to_tidy.notify_one();
        Ok(())
    }
}
