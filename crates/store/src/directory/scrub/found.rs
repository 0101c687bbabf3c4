//! What was found: told once, kept over restarts, and over when the object is whole again, or gone.
//!
//! Damaged blocks are known one by one, and one is over when it was looked at and is whole; what nobody looked at
//! stays. Those that were written since are looked at again soon, among the steps of the round, and so is what a
//! reader was refused.

use std::collections::btree_map::Entry;

use weft_core::form::Ack;
use weft_core::{Error, ErrorKind, ObjectId, Result, limits};
use weft_kv::{Read, SpaceTxn, Txn};

use super::super::Inner;
use super::super::live::Live;
use super::super::rows::{DAMAGED, ObjectRow, WRITING, object_key};
use super::super::seals::blocks_in;
use super::look::{Ahead, Looked};
use super::record::{Bad, Found, Written};
use super::{Borrowed, Scrubber};

impl Scrubber {
    /// Has it look soon at a block that somebody was refused, or at an object that somebody could not open.
    pub(in super::super) fn suspect(&self, object: ObjectId, block: u64) {
        {
            let mut state = self.state();
            let is_known =
                state.found.get(&object).is_some_and(|found| found.lost || found.blocks.contains_key(&block));
            let is_full = state.again.len() >= limits::SCRUB_AGAIN_MAX;
            if is_known || is_full || state.again.contains(&(object, block)) {
                return;
            }
            state.again.push_front((object, block));
        }
        self.wake();
    }

    /// Has it look soon at what may be whole by now of an object that is written so far.
    fn look_soon(&self, object: ObjectId, written: Written) {
        let mut state = self.state();
        let Some(found) = state.found.get(&object) else { return };
        let changed = found.blocks.iter().filter(|(_, bad)| bad.written != written).map(|(block, _)| *block);
        let due: Vec<u64> = found.lost.then_some(0).into_iter().chain(changed).collect();
        for block in due {
            if state.again.len() >= limits::SCRUB_AGAIN_MAX {
                return;
            }
            if !state.again.contains(&(object, block)) {
                state.again.push_back((object, block));
            }
        }
    }

    /// Returns what is to be looked at out of its turn. While a round is under way that is every other step at most:
    /// what is written and damaged over and over must not hold it up.
    pub(super) fn next_again(&self, is_quiet: bool) -> Option<(ObjectId, u64)> {
        let mut state = self.state();
        let is_turn = is_quiet || !state.looked_again || state.round.at.is_none();
        let next = if is_turn { state.again.pop_front() } else { None };
        state.looked_again = next.is_some();
        next
    }
}

impl Inner {
    /// Returns whether an error says something of an object, and nothing of the machine as a whole.
    pub(super) fn is_of_object(&self, error: &Error) -> bool {
        let of_machine = matches!(error.kind(), ErrorKind::Busy | ErrorKind::ReadOnly | ErrorKind::NoSpace);
        !of_machine && !*self.closing.borrow()
    }

    /// Takes an object up as a reader would. `None` if it was removed a moment ago, or if it cannot be: then
    /// that is noted.
    pub(super) async fn taken_up(&self, object: ObjectId) -> Result<Option<Borrowed>> {
        match self.borrow(object).await {
            Ok(borrowed) => {
                self.lessen(object, |found| found.lost = false).await?;
                Ok(Some(borrowed))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if self.is_of_object(&error) => {
                self.found_lost(object, &error).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that nothing of an object can be read.
    pub(super) async fn found_lost(&self, object: ObjectId, why: &Error) -> Result<()> {
        if self.worsen(object, |found| found.lost = true).await? {
            tracing::error!(op = "scrub", id = %object, error = ?why, "stored bytes cannot be read");
        }
        Ok(())
    }

    /// Notes what a look at a block came to. Returns how many bytes were read for it.
    pub(super) async fn note_look(&self, live: &Live, block: u64, looked: Looked) -> Result<u64> {
        let (at, length, unread) = match looked {
            Looked::Skipped => return Ok(0),
            Looked::Whole(read) => {
                self.sys.metrics().store_scrubbed_bytes.add((), read);
                let forget = |found: &mut Found| {
                    found.blocks.remove(&block);
                };
                self.lessen(live.id, forget).await?;
                return Ok(read);
            }
            Looked::Wrong { extent: (at, length), unread } => (at, length, unread),
        };
        self.sys.metrics().store_scrubbed_bytes.add((), length);
        let row = ObjectRow::read(&self.space.snapshot()?, live.id).unwrap_or_default();
        let written = row.map_or(Written::default(), |row| written_of(&row));
        let bad = Bad { length: u32::try_from(length).unwrap_or(u32::MAX), unread, written };
        if self.worsen(live.id, |found| found.add(block, at, bad)).await? {
            let what = if unread { "cannot be read" } else { "do not match their checksum" };
            tracing::error!(op = "scrub", id = %live.id, from = at, bytes = length, "stored bytes {what}");
        }
        Ok(length)
    }

    /// Adds to what is wrong with an object. Returns whether nothing was before.
    async fn worsen(&self, object: ObjectId, change: impl FnOnce(&mut Found)) -> Result<bool> {
        let since = self.clock().now();
        let (found, is_new) = {
            let mut state = self.scrubber.state();
            let is_full = state.found.len() >= limits::SCRUB_DAMAGED_MAX;
            match state.found.entry(object) {
                Entry::Occupied(mut known) => {
                    let before = known.get().clone();
                    change(known.get_mut());
                    if *known.get() == before {
                        return Ok(false);
                    }
                    (known.get().clone(), false)
                }
                Entry::Vacant(_) if is_full => {
                    if state.beyond.replace(object) != Some(object) {
                        state.round.beyond += 1;
                    }
                    return Ok(false);
                }
                Entry::Vacant(place) => {
                    let mut found = Found { since, ..Found::default() };
                    change(&mut found);
                    (place.insert(found).clone(), true)
                }
            }
        };
        self.count_damaged();
        self.record_found(object, Some(found)).await?;
        Ok(is_new)
    }

    /// Takes away from what is wrong with an object.
    pub(super) async fn lessen(&self, object: ObjectId, change: impl FnOnce(&mut Found)) -> Result<()> {
        let found = {
            let mut state = self.scrubber.state();
            let Some(found) = state.found.get_mut(&object) else { return Ok(()) };
            let before = found.clone();
            change(found);
            if *found == before && !found.is_over() {
                return Ok(());
            }
            found.clone()
        };
        if found.is_over() {
            self.found_whole(object).await
        } else {
            self.record_found(object, Some(found)).await
        }
    }

    /// Notes that an object is as it was written, or gone.
    async fn found_whole(&self, object: ObjectId) -> Result<()> {
        if self.scrubber.state().found.remove(&object).is_some() {
            tracing::info!(op = "scrub", id = %object, "what was damaged is whole again, or was removed");
            self.count_damaged();
            self.record_found(object, None).await?;
        }
        Ok(())
    }

    /// Looks after what was found: what was removed since is over, and what was written since, or could not be taken
    /// up, is to be looked at again.
    pub(super) async fn tend_found(&self) -> Result<()> {
        let found: Vec<ObjectId> = {
            let mut state = self.scrubber.state();
            state.tend_at = self.clock().tick().plus(limits::SCRUB_REST);
            state.found.keys().copied().collect()
        };
        for object in found {
            let records = self.space.snapshot()?;
            // One whose record cannot be read is still there.
            let Ok(row) = ObjectRow::read(&records, object) else { continue };
            let Some(row) = row else {
                self.found_whole(object).await?;
                continue;
            };
            if records.get(&object_key(WRITING, object))?.is_none() {
                self.scrubber.look_soon(object, written_of(&row));
            }
        }
        Ok(())
    }

    /// Looks at a block out of its turn. Returns what that cost.
    pub(super) async fn look_again(&self, object: ObjectId, block: u64) -> Result<u64> {
        let Some(borrowed) = self.taken_up(object).await? else { return Ok(limits::SCRUB_OBJECT_BYTES) };
        let live = &borrowed.live;
        let looked = if block < blocks_in(live.state().size) {
            self.look_at(live, block, &mut Ahead::default()).await
        } else {
            // It was cut off.
            Ok(Looked::Whole(0))
        };
        let read = match looked {
            Ok(looked) => self.note_look(live, block, looked).await,
            Err(error) => Err(error),
        };
        self.give_back(borrowed);
        Ok(limits::SCRUB_OBJECT_BYTES + read?)
    }

    async fn record_found(&self, object: ObjectId, found: Option<Found>) -> Result<()> {
        let act = move |txn: &mut SpaceTxn<'_>| match &found {
            Some(found) => txn.put(&object_key(DAMAGED, object), &found.encode()),
            None => txn.delete(&object_key(DAMAGED, object)),
        };
        self.space.write(Ack::Applied, act).await.map(|_| ())
    }

    /// Tells monitors how many objects are damaged.
    pub(super) fn count_damaged(&self) {
        let count = {
            let state = self.scrubber.state();
            state.found.len() as u64 + state.round.beyond
        };
        self.sys.metrics().store_damaged.set((), count);
    }
}

fn written_of(row: &ObjectRow) -> Written {
    Written { writes: row.writes, boot: row.boot }
}
