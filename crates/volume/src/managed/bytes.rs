//! Writing in place and changing extents: inline bytes in one transaction, an object's
//! under its gate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_core::attr::{Before, Wcc};
use weft_core::form::{Ack, Call, ChangeKind, Shape, Source, WriteAt, Written};
use weft_core::proof::Objects;
use weft_core::service::ObjectStat;
use weft_core::{ContainerId, Error, ErrorKind, FileId, ObjectId, Result, Rights, limits};

use super::Volume;
use super::act::{Act, Deed};
use super::files::Writing;
use super::landing::{Pull, changed_meanwhile};
use super::lease::{Lease, is_of_another_moment};
use super::names::check_size;
use super::stages::Coming;
use super::table::inodes::{self, Inode, Layout};
use super::table::unnamed;
use super::view::{Bits, Node};

/// How a write of inline bytes went.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
enum Inline {
    Done(Written),
    /// The file is, or must become, an object.
    TooLarge,
}

impl Volume {
    /// Pulls the source to its end into a file. What was pulled before an error is
    /// written.
    pub(super) async fn write(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        at: WriteAt,
        data: &mut dyn Source,
    ) -> Result<Written> {
        let node = self.look_whenever(&lease.call, |view| view.node(lease.id))?;
        let mut pull = Pull::new(lease, data);
        let start = match at {
            WriteAt::Offset(at) => at,
            WriteAt::End => node.inode.size,
        };
        if let (Layout::Inline, Some(few)) = (node.inode.layout, limits::INLINE_BYTES_MAX.checked_sub(start))
        {
            let piece = pull.gather(few as usize).await;
            if pull.has_ended()
                && let Inline::Done(written) =
                    self.write_inline(lease, at, piece.clone().into_bytes()?).await?
            {
                return pull.failed.map_or(Ok(written), Err);
            }
            pull.push_back(piece);
        }
        self.write_object(lease, at, &mut pull).await
    }

    /// Writes inline bytes in one transaction.
    async fn write_inline(self: &Arc<Self>, lease: &Lease, at: WriteAt, bytes: Bytes) -> Result<Inline> {
        let (id, count) = (lease.id, bytes.len() as u64);
        let (by, verifier, ack) = ((lease.op, lease.bits), self.verifier(), lease.call.ack);
        let done =
            self.change_whenever(&lease.call, ack, move |act| act.write_inline(id, by, at, &bytes)).await?;
        Ok(match done {
            Some((at, file)) => Inline::Done(Written { at, bytes: count, file, ack, verifier }),
            None => Inline::TooLarge,
        })
    }

    /// Moves an inline file's bytes into an object of its own, unless somebody else
    /// changes them meanwhile. To be run to its end.
    pub(super) async fn promoted(self: &Arc<Self>, lease: &Lease) -> Result<()> {
        let (call, id) = (&lease.call, lease.id);
        let writing = self.files.of(id.serial());
        let _alone = writing.gate.write().await;
        let (node, bytes) =
            self.look_whenever(call, |view| Ok((view.node(id)?, inodes::inline(view.read, id.serial())?)))?;
        if node.inode.layout != Layout::Inline {
            return Ok(());
        }
        let object = self.new_object().await?;
        let label = node.inode.container;
        let _making = self.making(object, label);
        let granted = lease.granted_on(object, label)?;
        self.store.make(&granted, object, None).await?;
        let mut stat = None;
        if !bytes.is_empty() {
            let mut source = weft_core::form::BytesSource::new(bytes.clone());
            stat = Some(self.store.write(&granted, object, WriteAt::Offset(0), &mut source).await?.stat);
        }
        if node.inode.size > bytes.len() as u64 {
            stat = Some(self.store.shape(&granted, object, Shape::Truncate(node.inode.size)).await?);
        }
        // Bytes that were durable before must not become less so.
        self.store.sync(&granted, object).await?;
        let (used, was) = (stat.map_or(0, |stat| used_of(&stat)), (node.inode.size, bytes));
        let swapped = self
            .change_whenever(call, Ack::Applied, move |act| act.promote(id, (object, label), &was, used))
            .await?;
        if swapped {
            self.mark_known(&writing, id.serial());
        } else {
            self.store.remove(&granted, object).await?;
        }
        Ok(())
    }

    /// Brings an object's bytes to disk.
    pub(super) async fn sync_object(&self, call: &Call, id: FileId, object: ObjectId) -> Result<()> {
        match self.synced(call, id, object).await {
            Err(error) if is_of_another_moment(&error) => {
                self.label_is_through(id).await;
                self.synced(call, id, object).await
            }
            done => done,
        }
    }

    async fn synced(&self, call: &Call, id: FileId, object: ObjectId) -> Result<()> {
        let granted = self.look_whenever(call, |view| {
            let label = match view.node(id)?.inode.layout {
                Layout::Whole { object: now, label } if now == object => label,
                _ => return Ok(None),
            };
            // What was taken is kept: that is upkeep, and tells nothing of the bytes.
            self.upkeep(view.read, label, Objects::Only(vec![object]), Rights::READ).map(Some)
        })?;
        if let Some(granted) = granted {
            self.store.sync(&granted, object).await?;
        }
        Ok(())
    }

    /// Checks that there is room for bytes at an offset, beside all that is coming to the container
    /// and in no row yet. They count among those until the answer is dropped.
    pub(super) fn room_to_write(&self, lease: &Lease, node: &Node, start: u64, end: u64) -> Result<Coming> {
        // Where a file has holes is not in its row: bytes may fill as many as it has in all.
        let Inode { size, used, container, .. } = node.inode;
        let more = end.saturating_sub(start).min(size.max(end).saturating_sub(used));
        let mut coming = Coming::new(&self.stagings, container);
        let all = coming.add(more);
        if more > 0 {
            self.look_whenever(&lease.call, |view| view.room(container, all))?;
        }
        Ok(coming)
    }

    /// Changes a file's extent.
    pub(super) async fn shape(self: &Arc<Self>, lease: &Arc<Lease>, shape: Shape) -> Result<Wcc> {
        let end = end_of(shape)?;
        let fits = !matches!(shape, Shape::Allocate { .. }) || end <= limits::INLINE_BYTES_MAX;
        for _ in 0..limits::PROMOTIONS_MAX {
            let node = self.look_whenever(&lease.call, |view| view.node(lease.id))?;
            let (id, call, bits) = (lease.id, &lease.call, lease.bits);
            let shaped = match node.inode.layout {
                Layout::Inline if fits => {
                    self.change_whenever(call, call.ack, move |act| act.shape_inline(id, bits, shape)).await?
                }
                _ => {
                    let (volume, lease) = (self.clone(), lease.clone());
                    self.sys.spawn(async move { volume.shape_object(&lease, shape, end).await }).await??
                }
            };
            if let Some(wcc) = shaped {
                return Ok(wcc);
            }
        }
        Err(changed_meanwhile())
    }

    /// Changes the extent of a file's object. `None` if there was none.
    async fn shape_object(self: &Arc<Self>, lease: &Lease, shape: Shape, end: u64) -> Result<Option<Wcc>> {
        let serial = lease.id.serial();
        let writing = self.files.of(serial);
        let alone = writing.gate.write().await;
        let node = self.look_whenever(&lease.call, |view| view.node(lease.id))?;
        let room = match shape {
            Shape::Allocate { at, .. } => Some(self.room_to_write(lease, &node, at, end)?),
            _ => None,
        };
        let Layout::Whole { object, label } = node.inode.layout else {
            drop((room, alone));
            return self.promoted(lease).await.map(|()| None);
        };
        let granted = lease.granted_on(object, label)?;
        self.mark(&writing, serial).await?;
        let stroke = self.files.begin(&writing, object);
        let shaped = self.store.shape(&granted, object, shape).await;
        writing.written(self.sys.clock().tick());
        // One that failed may have been carried out all the same.
        let stat = match &shaped {
            Ok(stat) => Some(*stat),
            Err(_) => self.store.stat(&granted, object).await.ok(),
        };
        let (id, now) = (lease.id, stat.map(|stat| (stat.size, used_of(&stat))));
        let noted = self
            .change_whenever(&lease.call, Ack::Applied, move |act| act.note_shaped(id, object, now))
            .await;
        match &noted {
            Ok(_) => drop(stroke),
            Err(_) => stroke.untold(),
        }
        drop((room, alone));
        shaped?;
        let wcc = noted?;
        if lease.call.ack == Ack::Durable {
            self.sync_object(&lease.call, lease.id, object).await?;
            self.space.flush().await?;
        }
        Ok(Some(wcc))
    }

    /// Marks, durably, that a file's object is about to be written in place. Under the
    /// file's gate: who settles it has that alone.
    pub(super) async fn mark(self: &Arc<Self>, writing: &Arc<Writing>, serial: u64) -> Result<()> {
        if writing.marked.load(Ordering::Acquire) {
            return Ok(());
        }
        let act = move |txn: &mut weft_kv::SpaceTxn<'_>| unnamed::WRITING.add(txn, serial);
        self.space.write(Ack::Durable, act).await?;
        self.mark_known(writing, serial);
        Ok(())
    }

    /// Notes that the mark is there, and sees to it that it goes again.
    pub(super) fn mark_known(self: &Arc<Self>, writing: &Arc<Writing>, serial: u64) {
        writing.written(self.sys.clock().tick());
        if !writing.marked.swap(true, Ordering::AcqRel) {
            let (volume, writing) = (Arc::downgrade(self), writing.clone());
            let sys = self.sys.clone();
            drop(self.sys.spawn(super::settle::settle_behind(sys, volume, writing, serial)));
        }
    }
}

/// What a write into an object did.
#[derive(Clone, Copy)]
pub(super) struct Wrote {
    pub(super) object: ObjectId,
    /// The byte after the last.
    pub(super) end: u64,
    pub(super) bytes: u64,
    pub(super) used: Option<u64>,
    /// Whether it failed: any byte may have changed.
    pub(super) torn: bool,
}

/// Bytes that an object counts for: what the store has for it, at most its size.
pub(super) fn used_of(stat: &ObjectStat) -> u64 {
    stat.used.min(stat.size)
}

fn end_of(shape: Shape) -> Result<u64> {
    let (at, length) = match shape {
        Shape::Truncate(size) => (size, 0),
        Shape::Allocate { length: 0, .. } => {
            return Err(Error::invalid("a range to allocate has at least one byte"));
        }
        Shape::Allocate { at, length, .. } | Shape::Punch { at, length } | Shape::Zero { at, length, .. } => {
            (at, length)
        }
    };
    let end = at.saturating_add(length);
    check_size(end)?;
    Ok(end)
}

impl Act<'_, '_> {
    /// Writes inline bytes. `None` if they do not fit, or there is an object by now.
    fn write_inline(
        &mut self,
        id: FileId,
        (op, bits): (Rights, Bits),
        at: WriteAt,
        bytes: &Bytes,
    ) -> Result<Option<(u64, Wcc)>> {
        let mut node = self.view().node(id)?;
        self.view().still_may(&node, op, bits)?;
        let at = match at {
            WriteAt::Offset(at) => at,
            WriteAt::End => node.inode.size,
        };
        let end = at.saturating_add(bytes.len() as u64);
        if node.inode.layout != Layout::Inline || (end > limits::INLINE_BYTES_MAX && !bytes.is_empty()) {
            return Ok(None);
        }
        let before = self.before(&node)?;
        if bytes.is_empty() {
            return Ok(Some((at, self.wcc(id, before)?)));
        }
        let mut held = inodes::inline(self.txn, id.serial())?.to_vec();
        held.resize(held.len().max(end as usize), 0);
        held[at as usize..end as usize].copy_from_slice(bytes);
        let size = node.inode.size.max(end);
        self.replace_inline(&mut node, &held, size)?;
        self.record_write(&node, op, bytes.len() as u64)?;
        Ok(Some((at, self.wcc(id, before)?)))
    }

    /// Writes an inline file's bytes and size anew, if there is room.
    fn replace_inline(&mut self, node: &mut Node, held: &[u8], size: u64) -> Result<()> {
        let (was, is) = (node.inode.used, held.len() as u64);
        self.view().room(node.inode.container, is.saturating_sub(was))?;
        self.use_bytes(node.inode.container, was, is)?;
        inodes::put_inline(self.txn, node.serial(), held)?;
        (node.inode.used, node.inode.size) = (is, size);
        node.inode.rewritten(self.wall, self.volume.boot());
        self.put(node)
    }

    pub(super) fn record_write(&mut self, node: &Node, op: Rights, bytes: u64) -> Result<()> {
        self.record(&Deed { bytes, ..Deed::of(ChangeKind::Write, "write", node, (node, op)) })
    }

    /// Changes an inline file's extent. `None` if there is an object by now.
    fn shape_inline(&mut self, id: FileId, bits: Bits, shape: Shape) -> Result<Option<Wcc>> {
        let mut node = self.view().node(id)?;
        self.view().still_may(&node, Rights::WRITE, bits)?;
        if node.inode.layout != Layout::Inline {
            return Ok(None);
        }
        let before = self.before(&node)?;
        let mut held = inodes::inline(self.txn, id.serial())?.to_vec();
        let mut size = node.inode.size;
        match shape {
            Shape::Truncate(to) => {
                held.truncate(usize::try_from(to).unwrap_or(usize::MAX));
                size = to;
            }
            Shape::Allocate { at, length, keep_size } => {
                let end = at + length;
                held.resize(held.len().max(end as usize), 0);
                size = if keep_size { size } else { size.max(end) };
                // What lies beyond the end is not kept: there is nothing to reserve here.
                held.truncate(usize::try_from(size).unwrap_or(usize::MAX));
            }
            Shape::Punch { at, length } => clear(&mut held, at, length),
            Shape::Zero { at, length, keep_size } => {
                clear(&mut held, at, length);
                size = if keep_size { size } else { size.max(at + length) };
            }
        }
        self.replace_inline(&mut node, &held, size)?;
        self.record_write(&node, Rights::WRITE, 0)?;
        Ok(Some(self.wcc(id, before)?))
    }

    /// Gives an inline file an object with the same bytes and as long. `false` if it is not the
    /// file it was.
    fn promote(
        &mut self,
        id: FileId,
        (object, label): (ObjectId, ContainerId),
        (size, bytes): &(u64, Bytes),
        used: u64,
    ) -> Result<bool> {
        let mut node = self.view().node(id)?;
        // Its end alone may be another: what lies behind the bytes of the row is in none.
        let same = node.inode.layout == Layout::Inline
            && node.inode.size == *size
            && inodes::inline(self.txn, id.serial())? == *bytes;
        if !same {
            return Ok(false);
        }
        self.use_bytes(node.inode.container, node.inode.used, used)?;
        inodes::put_inline(self.txn, id.serial(), &[])?;
        node.inode.layout = Layout::Whole { object, label };
        node.inode.layout_serial += 1;
        node.inode.used = used;
        unnamed::WRITING.add(self.txn, id.serial())?;
        if label != node.inode.container {
            unnamed::RELABELS.add(self.txn, id.serial())?;
        }
        self.put(&node)?;
        Ok(true)
    }

    /// Brings an inode up to what was written into its object.
    pub(super) fn note_written(&mut self, id: FileId, op: Rights, written: &Wrote) -> Result<Wcc> {
        let Some(mut node) = self.still_on(id, written.object)? else {
            return Ok(Wcc { before: None, after: None });
        };
        let before: Option<Before> = self.before(&node)?;
        if written.bytes == 0 && !written.torn {
            return self.wcc(id, before);
        }
        let size = node.inode.size.max(written.end);
        let used = written.used.unwrap_or(node.inode.used);
        self.resized(&mut node, size, used)?;
        self.record_write(&node, op, written.bytes)?;
        self.wcc(id, before)
    }

    /// Brings an inode up to what its object's extent has become, as far as it is known.
    fn note_shaped(&mut self, id: FileId, object: ObjectId, now: Option<(u64, u64)>) -> Result<Wcc> {
        let Some(mut node) = self.still_on(id, object)? else {
            return Ok(Wcc { before: None, after: None });
        };
        let before = self.before(&node)?;
        let (size, used) = now.unwrap_or((node.inode.size, node.inode.used));
        self.resized(&mut node, size, used)?;
        self.record_write(&node, Rights::WRITE, 0)?;
        self.wcc(id, before)
    }

    /// Returns the file if its bytes are still those of the object. If not, what was
    /// done to that object happened, as far as anyone can see, before it was replaced.
    fn still_on(&self, id: FileId, object: ObjectId) -> Result<Option<Node>> {
        match self.view().node(id) {
            Ok(node) => Ok(Some(node).filter(|node| node.object() == object)),
            Err(error) if error.kind() == ErrorKind::Stale => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn resized(&mut self, node: &mut Node, size: u64, used: u64) -> Result<()> {
        self.use_bytes(node.inode.container, node.inode.used, used)?;
        (node.inode.size, node.inode.used) = (size, used);
        node.inode.rewritten(self.wall, self.volume.boot());
        self.put(node)
    }

    /// Empties a file: whatever object it had is left to those who are pinned to it.
    pub(super) fn empty(&mut self, node: &mut Node) -> Result<()> {
        if let Layout::Whole { object, label } = node.inode.layout {
            unnamed::add_garbage(self.txn, object, label)?;
            unnamed::RELABELS.remove(self.txn, node.serial())?;
            node.inode.layout = Layout::Inline;
            node.inode.layout_serial += 1;
        }
        inodes::put_inline(self.txn, node.serial(), &[])?;
        self.resized(node, 0, 0)
    }
}

fn clear(held: &mut [u8], at: u64, length: u64) {
    let end = usize::try_from(at.saturating_add(length)).unwrap_or(usize::MAX).min(held.len());
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(end);
    held[at..end].fill(0);
}
