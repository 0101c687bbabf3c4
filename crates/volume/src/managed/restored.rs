//! A volume that came back from a backup, before its first start: no id that was given since is
//! given again, and files written while the backup was made are mended as after a crash.
//!
//! A file's id is a number and a generation, an object's is made of them, a container's is a
//! number alone. The volume cannot know which it gave since the backup, so new files get a
//! generation of this restore, and a gap is left in the numbers. Clients that outlived the lost
//! node hold ids of it: they find nothing under them, never another file.

use std::collections::HashSet;
use std::sync::Arc;

use weft_core::form::Ack;
use weft_core::{Error, FileId, ObjectId, Result, limits};
use weft_kv::{Engine, Space, SpaceId, SpaceTxn};
use weft_sys::Sys;

use super::SCHEMA;
use super::table::inodes::{self, Layout};
use super::table::{unnamed, volume};

/// Files marked in one transaction.
const MARKS_AT_ONCE: usize = 4096;

/// Sees to a volume whose metadata was restored, durably. Nobody has opened it yet. The bytes of
/// the objects `unsettled` may be younger than the metadata.
pub async fn after_restore(
    sys: &Sys,
    engine: Arc<dyn Engine>,
    space: SpaceId,
    unsettled: &[ObjectId],
) -> Result<()> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    renumber(sys, &space).await?;
    mark_written(&space, &unsettled.iter().copied().collect()).await
}

/// Marks the files of some objects as being written: the start then takes their sizes from the
/// objects, and gives them versions that nobody has seen.
async fn mark_written(space: &Space, objects: &HashSet<ObjectId>) -> Result<()> {
    let mut files = Vec::new();
    for row in inodes::all(&space.snapshot()?) {
        let (serial, inode) = row?;
        if matches!(inode.layout, Layout::Whole { object, .. } if objects.contains(&object)) {
            files.push(serial);
        }
    }
    for some in files.chunks(MARKS_AT_ONCE) {
        let some = some.to_vec();
        let mark = move |txn: &mut SpaceTxn<'_>| {
            some.iter().try_for_each(|serial| unnamed::WRITING.add(txn, *serial))
        };
        space.write(Ack::Durable, mark).await?;
    }
    Ok(())
}

async fn renumber(sys: &Sys, space: &Space) -> Result<()> {
    let step = Step::now(sys);
    let renumber = move |txn: &mut SpaceTxn<'_>| {
        let Some(row) = volume::find(txn)? else { return Ok(()) };
        let (row, end) = step.from(row, volume::leased(txn)?)?;
        volume::put(txn, &row)?;
        volume::lease_past(txn, end)
    };
    space.write(Ack::Durable, renumber).await.map(drop)
}

/// The step past numbers that nobody knows: another generation, and a gap.
pub(super) struct Step {
    seconds: u32,
    gap: u64,
}

impl Step {
    pub(super) fn now(sys: &Sys) -> Self {
        // Two restores of one backup differ by when they were made, as do the lives that follow.
        let seconds = u32::try_from(sys.clock().now().seconds()).unwrap_or(0);
        Self { seconds, gap: limits::RESTORE_NUMBERS_GAP + sys.random().below(limits::RESTORE_NUMBERS_GAP) }
    }

    /// Returns what the volume is after the step, and the first number that may be leased then;
    /// all below `leased` are known to have been.
    pub(super) fn from(&self, row: volume::Volume, leased: u64) -> Result<(volume::Volume, u64)> {
        let too_often = || Error::internal("the volume was restored too often");
        let generation = self.seconds.max(row.generation.checked_add(1).ok_or_else(too_often)?);
        let end = leased.saturating_add(self.gap);
        if end > FileId::SERIAL_MAX {
            return Err(too_often());
        }
        Ok((volume::Volume { generation, ..row }, end))
    }
}
