//! What was found: told once, kept over restarts, and over when the object is whole again, or gone.

use std::sync::Arc;

use weft_core::form::Ack;
use weft_core::{ErrorKind, ObjectId, Result, limits};
use weft_kv::{Read, SpaceTxn, Txn};

use super::super::Inner;
use super::super::rows::{DAMAGED, ObjectRow, WRITING, object_key};
use super::super::seals::{block_of, blocks_in};
use super::look::{Ahead, Looked};
use super::record::Found;
use super::time_for;

impl Inner {
    /// Notes a block that is not as it was written.
    pub(super) async fn found_wrong(
        &self,
        object: ObjectId,
        (at, length): (u64, u64),
        unread: bool,
    ) -> Result<()> {
        let row = ObjectRow::read(&self.space.snapshot()?, object).unwrap_or_default();
        let (writes, boot) = row.map_or((0, 0), |row| (row.writes, row.boot));
        let since = self.clock().now();
        let (found, is_new) = {
            let mut state = self.scrubber.state();
            let (round, is_full) = (state.round.number, state.found.len() >= limits::SCRUB_DAMAGED_MAX);
            let new = Found { round, since, from: at, to: at + length, blocks: 1, unread, writes, boot };
            match state.found.get_mut(&object) {
                Some(known) if known.round == round => {
                    known.add(&new);
                    (*known, false)
                }
                Some(known) => {
                    *known = Found { since: known.since, ..new };
                    (*known, false)
                }
                None if is_full => {
                    if state.beyond.replace(object) != Some(object) {
                        state.round.beyond += 1;
                    }
                    return Ok(());
                }
                None => {
                    state.found.insert(object, new);
                    (new, true)
                }
            }
        };
        if is_new {
            let what = if unread { "cannot be read" } else { "do not match their checksum" };
            tracing::error!(op = "scrub", id = %object, from = at, bytes = length, "stored bytes {what}");
        }
        self.count_damaged();
        self.record_found(object, Some(found)).await
    }

    /// Notes that an object is as it was written, or gone.
    pub(super) async fn found_whole(&self, object: ObjectId) -> Result<()> {
        if self.scrubber.state().found.remove(&object).is_some() {
            tracing::info!(op = "scrub", id = %object, "what was damaged is whole again, or was removed");
            self.count_damaged();
            self.record_found(object, None).await?;
        }
        Ok(())
    }

    /// Looks after what was found: what was removed since is over, and what was written since is looked
    /// at again.
    pub(super) async fn tend_found(self: &Arc<Self>) -> Result<()> {
        let found = self.scrubber.state().found.clone();
        for (object, what) in found {
            let records = self.space.snapshot()?;
            // One whose record cannot be read is still there.
            let Ok(row) = ObjectRow::read(&records, object) else { continue };
            let Some(row) = row else {
                self.found_whole(object).await?;
                continue;
            };
            let written = (row.writes, row.boot) != (what.writes, what.boot);
            let at_rest = records.get(&object_key(WRITING, object))?.is_none();
            if written && at_rest {
                self.look_again(object, &what, &row).await?;
            }
        }
        Ok(())
    }

    /// Looks at the blocks again that were found damaged in an object that was written since.
    async fn look_again(self: &Arc<Self>, object: ObjectId, what: &Found, row: &ObjectRow) -> Result<()> {
        let live = match self.borrow(object).await {
            Ok(live) => live,
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let end = what.to.min(live.state().size);
        let (mut left, mut skipped, mut ahead): (Option<Found>, _, _) = (None, false, Ahead::default());
        for block in block_of(what.from)..blocks_in(end) {
            let rate = self.scrubber.rate();
            if *self.closing.borrow() || rate == 0 {
                return Ok(());
            }
            match self.look_at(&live, block, &mut ahead).await? {
                Looked::Whole(read) => self.sys.sleep(time_for(read, rate)).await,
                Looked::Skipped => skipped = true,
                Looked::Wrong { extent: (at, length), unread } => {
                    let (writes, boot) = (row.writes, row.boot);
                    let wrong = Found { from: at, to: at + length, blocks: 1, unread, writes, boot, ..*what };
                    match &mut left {
                        Some(left) => left.add(&wrong),
                        None => left = Some(wrong),
                    }
                    self.sys.sleep(time_for(length, rate)).await;
                }
            }
        }
        self.give_back(live);
        match left {
            _ if skipped => Ok(()),
            None => self.found_whole(object).await,
            Some(left) => {
                self.scrubber.state().found.insert(object, left);
                self.record_found(object, Some(left)).await
            }
        }
    }

    async fn record_found(&self, object: ObjectId, found: Option<Found>) -> Result<()> {
        let act = move |txn: &mut SpaceTxn<'_>| match found {
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
