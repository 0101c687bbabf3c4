//! A full disk: what uploads that nobody goes on with hold is given up, so that others can write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_core::form::Ack;
use weft_core::{Error, ErrorKind, Result, StageId, limits};
use weft_kv::SpaceTxn;

use super::table::stages;
use super::{Managed, Volume};

/// What uploads that are not finished hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// How many there are.
    pub uploads: u64,
    /// Bytes that came for them.
    pub bytes: u64,
}

impl Managed {
    /// Returns what unfinished uploads hold: one pass over all of them.
    pub fn unfinished(&self) -> Result<Unfinished> {
        let snapshot = self.volume.space.snapshot()?;
        let mut unfinished = Unfinished::default();
        for stage in stages::all(&snapshot, None) {
            unfinished.uploads += 1;
            unfinished.bytes += stages::bytes(&snapshot, stage?.0)?;
        }
        Ok(unfinished)
    }
}

impl Volume {
    /// Makes room for so many bytes if the disk has less: gives up stages that nobody works on,
    /// and waits for a moment until what was removed has left the disk. There may be no more room
    /// after it. Those who come meanwhile wait together.
    pub(super) async fn make_room(self: &Arc<Self>, need: u64) -> Result<()> {
        let lacks = || self.store.space().map(|space| need.saturating_sub(space.bytes_free));
        if lacks()? == 0 {
            return Ok(());
        }
        let came = self.sys.clock().tick();
        let mut last = self.room_made.lock().await;
        if *last > came {
            return Ok(());
        }
        // What was removed already may be enough.
        self.remove_garbage().await?;
        self.give_up_idle(lacks()?).await?;
        self.remove_garbage().await?;
        let until = self.sys.clock().tick().plus(limits::FULL_ROOM_WAIT);
        while lacks()? > 0 && self.sys.clock().tick() < until {
            self.sys.sleep(limits::FULL_ROOM_LOOK).await;
        }
        *last = self.sys.clock().tick();
        Ok(())
    }

    /// Ends stages that nobody has worked on for a while, the oldest first, until so many bytes
    /// are given up.
    pub(super) async fn give_up_idle(self: &Arc<Self>, need: u64) -> Result<()> {
        let (mut bytes, mut count) = (0, 0_u64);
        for id in self.idle_stages()? {
            if bytes >= need {
                break;
            }
            // Somebody may have come back to it since.
            if self.stagings.at_work(self.sys.clock().tick()).contains(&id) {
                continue;
            }
            bytes += stages::bytes(&self.space.snapshot()?, id)?;
            count += 1;
            let act = move |txn: &mut SpaceTxn<'_>| super::stage::drop_stage(txn, id);
            self.space.write(Ack::Applied, act).await?;
            self.stagings.forget(id);
        }
        if count > 0 {
            tracing::info!(count, bytes, "the disk is full: uploads that rested unfinished were given up");
        }
        Ok(())
    }

    /// Notes that a write met a full disk: the worker gives up what rests.
    pub(super) fn met_full_disk(&self, error: &Error) {
        if error.kind() == ErrorKind::NoSpace {
            self.is_full.store(true, Ordering::Release);
            self.to_tidy.notify_one();
        }
    }

    /// Returns the stages that hold something and that nobody has worked on for a while, the
    /// oldest first. Who worked on one before a restart gets as long after it to come back.
    fn idle_stages(&self) -> Result<Vec<StageId>> {
        let now = self.sys.clock().tick();
        if now.since(self.started) < limits::FULL_STAGE_IDLE {
            return Ok(Vec::new());
        }
        let at_work = self.stagings.at_work(now);
        let (snapshot, wall) = (self.space.snapshot()?, self.sys.clock().now());
        let mut idle = Vec::new();
        for stage in stages::all(&snapshot, None) {
            let (id, row) = stage?;
            let rests = !at_work.contains(&id) && wall.since(row.begun) >= limits::FULL_STAGE_IDLE;
            if rests && stages::bytes(&snapshot, id)? > 0 {
                idle.push((row.begun, id));
            }
        }
        idle.sort_unstable();
        Ok(idle.into_iter().map(|(_, id)| id).collect())
    }
}
