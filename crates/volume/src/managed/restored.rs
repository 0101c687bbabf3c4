//! A volume that came back from a backup, before its first start: no id that was given since is
//! given again.
//!
//! A file's id is a number and a generation, an object's is made of them, a container's is a
//! number alone. The volume cannot know which it gave since the backup, so new files get a
//! generation of this restore, and a gap is left in the numbers. Clients that outlived the lost
//! node hold ids of it: they find nothing under them, never another file.

use std::sync::Arc;

use weft_core::form::Ack;
use weft_core::{Error, FileId, Result, limits};
use weft_kv::{Engine, Space, SpaceId, SpaceTxn};
use weft_sys::Sys;

use super::SCHEMA;
use super::table::volume;

/// Sees to a volume whose metadata was restored, durably. Nobody has opened it yet.
pub async fn after_restore(sys: &Sys, engine: Arc<dyn Engine>, space: SpaceId) -> Result<()> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    // Two restores of one backup differ by when they were made, as do the lives that follow.
    let seconds = u32::try_from(sys.clock().now().seconds()).unwrap_or(0);
    let gap = limits::RESTORE_NUMBERS_GAP + sys.random().below(limits::RESTORE_NUMBERS_GAP);
    let renumber = move |txn: &mut SpaceTxn<'_>| {
        let Some(mut row) = volume::find(txn)? else { return Ok(()) };
        let next = row.generation.checked_add(1);
        let next = next.ok_or_else(|| Error::internal("the volume was restored too often"))?;
        row.generation = seconds.max(next);
        volume::put(txn, &row)?;
        let end = volume::leased(txn)? + gap;
        if end > FileId::SERIAL_MAX {
            return Err(Error::internal("the volume was restored too often"));
        }
        volume::lease_past(txn, end)
    };
    space.write(Ack::Durable, renumber).await?;
    Ok(())
}
