//! One object in use: its open file, and what is known of its blocks.
//!
//! Everything here is memory; who changes files or records calls in before and after.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::limits;
use weft_core::{ContainerId, ObjectId, Tick};
use weft_sys::DiskFile;

use super::rows::{FileNumber, ObjectRow};
use super::seals::{GROUP_BLOCKS, Group, Seal, block_of, blocks_in, extent};

/// An object in use. There is never more than one for the same object.
pub(super) struct Live {
    pub(super) id: ObjectId,
    pub(super) number: FileNumber,
    pub(super) file: Arc<dyn DiskFile>,
    label: AtomicU64,
    /// When it was last looked up, in look-ups of the whole store.
    pub(super) used: AtomicU64,
    /// Pieces being written share it, and so does sealing; a change of extent has it alone.
    pub(super) gate: Arc<tokio::sync::RwLock<()>>,
    /// Held by the append under way.
    pub(super) tail: tokio::sync::Mutex<()>,
    /// Held while it is opened for writing or sealed.
    pub(super) turning: tokio::sync::Mutex<()>,
    /// Held while its bytes are flushed.
    pub(super) flushing: tokio::sync::Mutex<()>,
    /// Innermost: who holds it takes no other lock, none of the store's tables either.
    state: Mutex<State>,
}

/// Whether writes may go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Every block is as its seal says. The first write must be announced on disk.
    Sealed,
    /// The record of the seals is on its way; writes wait.
    Sealing,
    /// Marked on disk as open for writing.
    Writing,
}

/// A block that changed since it was sealed.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    /// The object's stamp at the last change.
    stamp: u64,
    /// Writes of it under way.
    writers: u32,
    /// The seal of everything up to a byte, if the block went by in order.
    passed: Option<(u64, Seal)>,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It changed, or may have.
    Unsealed,
    /// It must look like this. `checked` if it did, the last time it was read.
    Sealed { seal: Seal, checked: bool },
    /// Its group of seals must be fetched first.
    Elsewhere,
}

/// A write that was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: u64,
    length: u64,
    /// The stamp of its beginning.
    stamp: u64,
    /// The failed flushes before it.
    losses: u64,
    /// The stamp that its first block had before, if that had changed since it was sealed.
    pub(super) before: Option<u64>,
}

/// A block to be sealed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Todo {
    pub(super) block: u64,
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) passed: Option<Seal>,
    stamp: u64,
    /// Nobody knows whether it changed: it was open when the node stopped.
    pub(super) unsure: bool,
}

/// What one seal has to record.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) fresh: BTreeMap<u64, Seal>,
    pub(super) voided: Voided,
    pub(super) size: u64,
    pub(super) writes: u64,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) size: u64,
    pub(super) writes: u64,
    pub(super) unverified: u64,
    pub(super) removed: bool,
    /// The file may be longer than the object: a write ran out of space half way.
    pub(super) ragged: bool,
    /// Whether the object's record is known to be on disk.
    pub(super) recorded: bool,
    pub(super) written_at: Tick,
    /// Since when there are bytes that no flush has covered.
    pub(super) unflushed_since: Option<Tick>,
    stamp: u64,
    changed: BTreeMap<u64, Changed>,
    /// Blocks that were open when the node stopped and have not been looked at since.
    unsure: Range<u64>,
    /// Seals made since the last record.
    fresh: BTreeMap<u64, Seal>,
    /// Blocks whose recorded seals no longer count.
    voided: Voided,
    groups: HashMap<u64, Arc<Group>>,
    /// Counts records made: what was fetched before one is not kept after it.
    records: u64,
    checked: BTreeSet<u64>,
    /// Who reads the file beside readers: while somebody does, no block counts as checked.
    aside: u32,
    /// Bytes that a failed flush may have lost and nobody has written anew.
    lost: Vec<Range<u64>>,
    /// Counts failed flushes.
    losses: u64,
}

impl Live {
    /// Takes up an object as its row says; `writing` if it is marked as open for writing, which
    /// then was before this boot unless `made` now.
    pub(super) fn new(id: ObjectId, row: &ObjectRow, file: Arc<dyn DiskFile>, was: Was, now: Tick) -> Self {
        let (phase, size, unsure) = match was {
            Was::Sealed => (Phase::Sealed, row.size, 0..0),
            Was::MadeNow => (Phase::Writing, 0, 0..0),
            Was::Writing { size } => (Phase::Writing, size, 0..blocks_in(size)),
        };
        // Of what lay beyond, nothing is left to be sealed.
        let beyond = blocks_in(size)..u64::MAX;
        let mut voided = Voided::default();
        if phase == Phase::Writing {
            voided.add(beyond);
        }
        let state = State {
            phase,
            size,
            writes: row.writes,
            unverified: row.unverified,
            removed: false,
            ragged: false,
            recorded: false,
            written_at: now,
            // What a killed process wrote may still be in memory only.
            unflushed_since: matches!(was, Was::Writing { .. }).then_some(now),
            stamp: 0,
            changed: BTreeMap::new(),
            unsure,
            fresh: BTreeMap::new(),
            voided,
            groups: HashMap::new(),
            records: 0,
            checked: BTreeSet::new(),
            aside: 0,
            lost: Vec::new(),
            losses: 0,
        };
        Self {
            id,
            number: row.file,
            file,
            label: AtomicU64::new(row.container.0),
            used: AtomicU64::new(0),
            gate: Arc::default(),
            tail: tokio::sync::Mutex::default(),
            turning: tokio::sync::Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn label(&self) -> ContainerId {
        ContainerId(self.label.load(Ordering::Acquire))
    }

    pub(super) fn set_label(&self, container: ContainerId) {
        self.label.store(container.0, Ordering::Release);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves the state whole, so a panic elsewhere cannot spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reading an object's file other than block by block for readers: that brings bytes into memory
/// which nobody compared with their seals, or which were found not to match. Until this is
/// dropped, and the first time after, each block is compared when it is served.
pub(super) struct Aside(Arc<Live>);

impl Aside {
    pub(super) fn new(live: Arc<Live>) -> Self {
        {
            let mut state = live.state();
            state.aside += 1;
            state.checked.clear();
        }
        Self(live)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.state().aside -= 1;
    }
}

/// How an object was when it was taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Was {
    /// Sealed.
    Sealed,
    /// Made a moment ago.
    MadeNow,
    /// Open for writing when the node stopped; its file has `size` bytes.
    Writing {
        /// Bytes in the file.
        size: u64,
    },
}

impl State {
    /// Returns what is known of a block, and its extent.
    pub(super) fn known(&self, block: u64) -> (Known, u64, u64) {
        let (at, length) = extent(block, self.size);
        if self.changed.contains_key(&block) || self.unsure.contains(&block) {
            return (Known::Unsealed, at, length);
        }
        match self.recorded_seal(block) {
            Some(seal) => (Known::Sealed { seal, checked: self.is_checked(block) }, at, length),
            None => (Known::Elsewhere, at, length),
        }
    }

    /// Returns the seal last made of a block, whether it changed since or not.
    fn recorded_seal(&self, block: u64) -> Option<Seal> {
        if let Some(seal) = self.fresh.get(&block) {
            return Some(*seal);
        }
        if self.voided.contains(block) {
            return Some(Seal::Hole);
        }
        self.groups.get(&(block / GROUP_BLOCKS)).map(|group| group.seal(block))
    }

    /// Returns what a fetch of a group must show to [`State::keep_group`].
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Keeps a group of recorded seals, unless a record was made since `records`.
    pub(super) fn keep_group(&mut self, group: u64, seals: Group, records: u64) {
        if records != self.records {
            return;
        }
        if self.groups.len() >= limits::STORE_SEAL_GROUPS_MAX {
            self.groups.clear();
        }
        self.groups.insert(group, Arc::new(seals));
    }

    /// Notes that a block was read and looked as it must.
    pub(super) fn check_off(&mut self, block: u64) {
        if self.aside == 0 && !self.changed.contains_key(&block) {
            self.checked.insert(block);
        }
    }

    /// Notes that a block must be looked at again.
    pub(super) fn uncheck(&mut self, block: u64) {
        self.checked.remove(&block);
    }

    pub(super) fn is_checked(&self, block: u64) -> bool {
        self.checked.contains(&block)
    }

    /// Begins a write of a range: from now on its blocks count as changed. If the object grows,
    /// so does the block it ended in.
    pub(super) fn begin_write(&mut self, at: u64, length: u64) -> Begun {
        self.stamp += 1;
        let before = self.changed.get(&block_of(at)).map(|changed| changed.stamp);
        if at > self.size {
            self.touch_end();
        }
        for block in blocks_of(at, length) {
            let changed = self.touch(block);
            changed.writers += 1;
            changed.passed = None;
        }
        Begun { at, length, stamp: self.stamp, losses: self.losses, before }
    }

    /// Ends a write. `passed` are the seals that were made in passing; none if it failed. Returns
    /// the stamp that its blocks have now.
    pub(super) fn end_write(
        &mut self,
        begun: Begun,
        done: bool,
        passed: &[(u64, Option<Seal>)],
        now: Tick,
    ) -> u64 {
        let Begun { at, length, .. } = begun;
        self.stamp += 1;
        let end = at + length;
        if done && end > self.size {
            // Growing from inside a block that others have sealed meanwhile is covered by
            // `begin_write`; growing from its edge needs nothing.
            if at > self.size {
                self.touch_end();
            }
            self.size = end;
        }
        let stamp = self.stamp;
        for block in blocks_of(at, length) {
            let Some(changed) = self.changed.get_mut(&block) else { continue };
            changed.writers -= 1;
            // Else somebody wrote there meanwhile: what passed here is not all that is there.
            let alone = changed.writers == 0 && changed.stamp == begun.stamp;
            changed.stamp = stamp;
            let seal = passed.iter().find(|(passed, _)| *passed == block).and_then(|(_, seal)| *seal);
            let up_to = end.min((block + 1) * limits::SEAL_BLOCK_BYTES);
            changed.passed = seal.filter(|_| done && alone).map(|seal| (up_to, seal));
        }
        self.ragged |= !done;
        self.writes += 1;
        self.wrote(now);
        match (done, begun.losses == self.losses) {
            (true, true) => self.recover(&(at..end)),
            // A flush failed meanwhile: it may have taken these bytes along.
            (true, false) => self.lost.push(at..end),
            (false, _) => {}
        }
        stamp
    }

    /// Forgets losses in a range that was written anew or cut off.
    fn recover(&mut self, range: &Range<u64>) {
        if self.lost.is_empty() {
            return;
        }
        let left =
            |lost: &Range<u64>| [lost.start..lost.end.min(range.start), lost.start.max(range.end)..lost.end];
        self.lost = self.lost.iter().flat_map(left).filter(|lost| !lost.is_empty()).collect();
    }

    fn wrote(&mut self, now: Tick) {
        self.written_at = now;
        self.unflushed_since.get_or_insert(now);
    }

    /// Marks a block as changed.
    fn touch(&mut self, block: u64) -> &mut Changed {
        let stamp = self.stamp;
        let changed = self.changed.entry(block).or_default();
        changed.stamp = stamp;
        changed
    }

    /// Marks the block that the object ends in the middle of, if it does.
    fn touch_end(&mut self) {
        if !self.size.is_multiple_of(limits::SEAL_BLOCK_BYTES) {
            self.touch(block_of(self.size)).passed = None;
        }
    }

    /// Begins to make zeros of a range, or to cut it off: whole blocks inside count as holes from
    /// now on, those in part as changed. Nobody writes meanwhile.
    pub(super) fn begin_void(&mut self, at: u64, end: u64) {
        self.stamp += 1;
        if end <= at {
            return;
        }
        self.recover(&(at..end));
        let inside = blocks_in(at)..if end >= self.size { u64::MAX } else { block_of(end) };
        for block in [block_of(at), block_of(end - 1)] {
            if !inside.contains(&block) && extent(block, self.size).1 > 0 {
                self.touch(block).passed = None;
            }
        }
        if inside.start < inside.end {
            self.changed.retain(|block, _| !inside.contains(block));
            self.fresh.retain(|block, _| !inside.contains(block));
            self.checked.retain(|block| !inside.contains(block));
            self.clear_unsure(&inside);
            self.voided.add(inside);
        }
    }

    /// What lies in the middle of the unsure range stays unsure: it is only looked at again.
    fn clear_unsure(&mut self, inside: &Range<u64>) {
        if inside.start <= self.unsure.start {
            self.unsure.start = self.unsure.start.max(inside.end.min(self.unsure.end));
        } else if inside.end >= self.unsure.end {
            self.unsure.end = self.unsure.end.min(inside.start);
        }
    }

    /// Sets the size after a change of extent.
    pub(super) fn resize(&mut self, size: u64, now: Tick) {
        self.stamp += 1;
        if size > self.size {
            self.touch_end();
        }
        self.size = size;
        self.writes += 1;
        self.wrote(now);
    }

    /// Notes that a change of a range failed: nobody knows what is there now.
    pub(super) fn doubt(&mut self, at: u64, end: u64) {
        let blocks = block_of(at)..blocks_in(end.min(self.size));
        self.unsure = match self.unsure.is_empty() {
            true => blocks,
            false => self.unsure.start.min(blocks.start)..self.unsure.end.max(blocks.end),
        };
    }

    /// Returns some blocks, from `from` on, that changed and that nobody is writing.
    pub(super) fn changed(&self, from: u64) -> Vec<Todo> {
        let quiet = self.changed.range(from..).filter(|(_, changed)| changed.writers == 0);
        quiet
            .take(limits::STORE_SEAL_BLOCKS)
            .map(|(block, changed)| self.task(*block, Some(changed)))
            .collect()
    }

    /// Returns the first block that nobody has looked at since the node stopped, if any is left.
    pub(super) fn first_unsure(&self) -> Option<u64> {
        (!self.unsure.is_empty()).then_some(self.unsure.start)
    }

    /// Returns the next few blocks that nobody has looked at since the node stopped, without
    /// those that changed since, and where they end; `None` if there are none. All before `data`
    /// are holes in the file, and settled as such: what was recorded of them no longer counts.
    pub(super) fn unsure_from(&mut self, data: u64) -> Option<(Vec<Todo>, u64)> {
        let start = data.clamp(self.unsure.start, self.unsure.end.max(self.unsure.start));
        if self.unsure.start < start {
            self.voided.add(self.unsure.start..start);
            self.unsure.start = start;
        }
        let end = self.unsure.end.min(start.saturating_add(limits::STORE_SEAL_BLOCKS as u64));
        let quiet = (start..end).filter(|block| !self.changed.contains_key(block));
        (start < end).then(|| (quiet.map(|block| self.task(block, None)).collect(), end))
    }

    fn task(&self, block: u64, changed: Option<&Changed>) -> Todo {
        let (at, length) = extent(block, self.size);
        let passed = changed.and_then(|changed| changed.passed);
        let passed = passed.filter(|(up_to, _)| *up_to == at + length).map(|(_, seal)| seal);
        let stamp = changed.map_or(0, |changed| changed.stamp);
        Todo { block, at, length, passed, stamp, unsure: changed.is_none() }
    }

    /// Takes the seal found for a block, unless the block changed meanwhile. `before` is what was
    /// recorded of an unsure one.
    pub(super) fn take_seal(&mut self, todo: &Todo, found: Seal, before: Option<Seal>) {
        let changed = self.changed.get(&todo.block);
        match (todo.unsure, changed) {
            (false, Some(changed)) if changed.stamp == todo.stamp && changed.writers == 0 => {
                self.changed.remove(&todo.block);
                self.fresh.insert(todo.block, found);
            }
            (true, None) if self.unsure.contains(&todo.block) => {
                self.fresh.insert(todo.block, before.unwrap_or_default().renewed(found));
            }
            _ => return,
        }
        self.check_off(todo.block);
    }

    /// Notes that every unsure block up to `end` was looked at or has changed.
    pub(super) fn settle_unsure(&mut self, end: u64) {
        self.unsure.start = self.unsure.end.min(end);
    }

    /// Returns the first block from `block` on that has a seal for bytes which is not recorded yet.
    pub(super) fn next_fresh(&self, block: u64) -> Option<u64> {
        self.fresh.range(block..).find(|(_, seal)| **seal != Seal::Hole).map(|(block, _)| *block)
    }

    /// Returns what was recorded of a block before it became unsure; `None` if its group must be
    /// fetched first.
    pub(super) fn before(&self, block: u64) -> Option<Seal> {
        self.recorded_seal(block)
    }

    /// If every block is sealed and nobody writes, closes the object to writers and returns what
    /// is to be recorded.
    pub(super) fn close_for_record(&mut self) -> Option<Record> {
        if self.phase != Phase::Writing || !self.changed.is_empty() || !self.unsure.is_empty() {
            return None;
        }
        self.phase = Phase::Sealing;
        let (fresh, voided) = (self.fresh.clone(), self.voided.clone());
        Some(Record { fresh, voided, size: self.size, writes: self.writes })
    }

    /// Ends what [`State::close_for_record`] began: `unverified` blocks if it was recorded.
    pub(super) fn end_record(&mut self, unverified: Option<u64>) {
        let Some(unverified) = unverified else {
            self.phase = Phase::Writing;
            return;
        };
        self.phase = Phase::Sealed;
        self.unverified = unverified;
        self.fresh.clear();
        self.voided = Voided::default();
        self.groups.clear();
        self.records += 1;
    }

    /// Notes that bytes not yet flushed may be lost, though they can still be read.
    pub(super) fn lose(&mut self) {
        self.losses += 1;
        let blocks = self.changed.keys().chain(self.fresh.keys());
        let lost = blocks.map(|block| extent(*block, self.size)).filter(|(_, length)| *length > 0);
        let lost: Vec<_> = lost.map(|(at, length)| at..at + length).collect();
        self.lost.extend(lost);
    }

    pub(super) fn has_losses(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The present stamp: it moves with every change.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }
}

/// Ranges of blocks that neither overlap nor touch, each by its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Voided(BTreeMap<u64, u64>);

impl Voided {
    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // From the last range that may reach it on down: those that do become one with it.
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to))
            && to >= start
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    fn contains(&self, block: u64) -> bool {
        self.0.range(..=block).next_back().is_some_and(|(_, end)| block < *end)
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }
}

fn blocks_of(at: u64, length: u64) -> Range<u64> {
    block_of(at)..blocks_in(at + length)
}

#[cfg(test)]
mod tests;
