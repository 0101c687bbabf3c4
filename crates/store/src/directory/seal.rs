//! Opening for writing, sealing and flushing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedRwLockReadGuard;
use weft_core::form::{Ack, Seek, Verifier};
use weft_core::{Error, ErrorKind, ObjectId, Result, limits};
use weft_kv::{Order, Read, SpaceTxn, Txn, prefix_end};
use weft_sys::FlushSite;

use super::Inner;
use super::live::{Live, Phase, Record, Todo};
use super::rows::{
    FileNumber, OBJECTS, ObjectRow, SEALS, WRITING, number_at, object_at, object_key, seal_key,
};
use super::seals::{GROUP_BLOCKS, Group, Seal, block_of, extent};
use crate::proof::absent;

impl Inner {
    /// Marks a sealed object on disk as open for writing. From then until it is sealed again
    /// nobody relies on its seals after a crash.
    pub(super) async fn open_for_writing(&self, live: &Arc<Live>) -> Result<()> {
        self.make_room_for_writer().await?;
        let _turning = live.turning.lock().await;
        {
            let state = live.state();
            if state.removed {
                return Err(absent(live.id));
            }
            if state.phase == Phase::Writing {
                return Ok(());
            }
        }
        let (object, number) = (live.id, live.number);
        let mark = move |txn: &mut SpaceTxn<'_>| {
            let row = ObjectRow::read(txn, object)?.filter(|row| row.file == number);
            row.ok_or_else(|| absent(object))?;
            txn.put(&object_key(WRITING, object), &[])
        };
        self.space.write(Ack::Durable, mark).await?;
        {
            let mut state = live.state();
            state.phase = Phase::Writing;
            state.recorded = true;
            state.written_at = self.clock().tick();
        }
        self.writing_table().insert(live.id, live.clone());
        // Who removed it since its record was looked at may have been here before.
        if live.state().removed {
            self.writing_table().remove(&live.id);
            return Err(absent(live.id));
        }
        self.wake_all();
        Ok(())
    }

    /// If too many objects are open for writing, seals the one that was not written longest.
    pub(super) async fn make_room_for_writer(&self) -> Result<()> {
        let open = {
            let writing = self.writing_table();
            if writing.len() < limits::STORE_WRITING_MAX {
                return Ok(());
            }
            writing.values().cloned().collect::<Vec<_>>()
        };
        match open.into_iter().min_by_key(|live| live.state().written_at) {
            // One that cannot be sealed now does not stop others.
            Some(live) => self.seal(&live).await.map(drop).or(Ok(())),
            None => Ok(()),
        }
    }

    /// Seals what changed: hashes it, flushes the bytes, records the seals. Returns whether the
    /// object is sealed now; not if somebody went on writing.
    pub(super) async fn seal(&self, live: &Arc<Live>) -> Result<bool> {
        let _turning = live.turning.lock().await;
        {
            let state = live.state();
            match state.phase {
                Phase::Sealed => return Ok(true),
                _ if state.removed => return Ok(true),
                _ if state.has_losses() => return Err(flush_failed()),
                _ => {}
            }
        }
        self.trim(live).await?;
        if !self.hash_changed(live).await? || !self.hash_unsure(live).await? {
            return Ok(false);
        }
        self.flush_bytes(live).await?;
        let Some(record) = close(live) else { return Ok(false) };
        let recorded = self.record(live, record).await;
        if live.state().removed {
            return Ok(true);
        }
        let unverified = recorded.as_ref().ok().copied();
        live.state().end_record(unverified);
        if unverified.is_some() {
            // Who opens it for writing again waits for `turning`: it cannot be in there anew.
            self.writing_table().remove(&live.id);
        }
        recorded?;
        self.counters.seals.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Hashes what was written. Returns whether no change of extent was in the way.
    async fn hash_changed(&self, live: &Arc<Live>) -> Result<bool> {
        let mut from = 0;
        loop {
            let Some(unshaped) = unshaped(live) else { return Ok(false) };
            let todo = live.state().changed(from);
            let Some(last) = todo.last() else { return Ok(true) };
            from = last.block + 1;
            let (live, here) = (live.clone(), todo.iter().all(|todo| todo.passed.is_some()));
            self.quickly(here, move || {
                let _unshaped = unshaped;
                hash_all(&live, &todo)
            })
            .await?;
        }
    }

    /// Seals what was open when the node stopped: as it was recorded where it still looks so, as
    /// unverified elsewhere. Returns as [`Inner::hash_changed`] does.
    async fn hash_unsure(&self, live: &Arc<Live>) -> Result<bool> {
        loop {
            let Some(unshaped) = unshaped(live) else { return Ok(false) };
            let Some(from) = live.state().first_unsure() else { return Ok(true) };
            let file = live.file.clone();
            let data = self.sys.blocking(move || file.seek(extent(from, 0).0, Seek::Data)).await??;
            let Some((todo, end)) = live.state().unsure_from(data.map_or(u64::MAX, block_of)) else {
                return Ok(true);
            };
            for todo in &todo {
                let (before, records) = {
                    let state = live.state();
                    (state.before(todo.block), state.records())
                };
                if before.is_none() {
                    self.fetch_group(live, todo.block / GROUP_BLOCKS, records)?;
                }
            }
            let live = live.clone();
            self.quickly(false, move || {
                let _unshaped = unshaped;
                hash_all(&live, &todo)?;
                live.state().settle_unsure(end);
                Ok(())
            })
            .await?;
        }
    }

    /// Does work that may block: here if it will not.
    async fn quickly(&self, here: bool, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        if here { work() } else { self.sys.blocking(work).await? }
    }

    /// Brings an object's bytes and size to disk.
    pub(super) async fn flush_bytes(&self, live: &Arc<Live>) -> Result<()> {
        let _flushing = live.flushing.lock().await;
        let (stamp, since) = {
            let state = live.state();
            // The machine tells of a failure once: had this waited for the flush that met it, its
            // own would go well.
            if state.has_losses() {
                return Err(flush_failed());
            }
            (state.stamp(), state.unflushed_since)
        };
        if since.is_none() {
            return Ok(());
        }
        let file = live.file.clone();
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let flushed = self.sys.blocking(move || file.sync(FlushSite::StoreObject)).await?;
        let mut state = live.state();
        match flushed {
            Ok(()) => {
                // What was written meanwhile may or may not be covered.
                let now = self.clock().tick();
                state.unflushed_since = (state.stamp() != stamp).then_some(now);
                Ok(())
            }
            Err(error) => {
                state.lose();
                self.counters.flushes_failed.fetch_add(1, Ordering::Release);
                tracing::error!(op = "sync", id = %live.id, error = ?error, "a flush failed: bytes may be lost");
                Err(error)
            }
        }
    }

    /// Makes everything about an object durable.
    pub(super) async fn sync(&self, live: &Arc<Live>) -> Result<Verifier> {
        self.flush_bytes(live).await?;
        if !self.options.records_flushed_by_caller && !live.state().recorded {
            self.space.flush().await?;
            live.state().recorded = true;
        }
        Ok(self.verifier())
    }

    /// Records the seals of an object that nobody writes. Returns how many blocks are unverified.
    async fn record(&self, live: &Live, record: Record) -> Result<u64> {
        let fresh: Vec<(u64, Seal)> = record.fresh.into_iter().collect();
        let mut parts: Vec<Arc<[(u64, Seal)]>> =
            fresh.chunks(limits::STORE_SEAL_TXN_BLOCKS).map(Arc::from).collect();
        // All but the last part go ahead; until the last the object stays marked as open.
        let last = parts.pop().unwrap_or_else(|| Arc::from([]));
        let (object, number, boot) = (live.id, live.number, self.boot);
        let mut voided: Arc<[Range<u64>]> = record.voided.ranges().collect();
        for part in parts {
            let voids = std::mem::replace(&mut voided, Arc::from([]));
            let act = move |txn: &mut SpaceTxn<'_>| {
                let change = void_seals(txn, object, &voids)? + set_seals(txn, object, &part)?;
                change_row(txn, object, number, |row| row.count_unverified(change))
            };
            self.space.write(Ack::Applied, act).await?;
        }
        let act = move |txn: &mut SpaceTxn<'_>| {
            let change = void_seals(txn, object, &voided)? + set_seals(txn, object, &last)?;
            txn.delete(&object_key(WRITING, object))?;
            change_row(txn, object, number, |row| {
                row.count_unverified(change);
                (row.size, row.writes, row.boot) = (record.size, record.writes, boot);
            })
        };
        let (row, _) = self.space.write(Ack::Applied, act).await?;
        Ok(row.unverified)
    }

    /// Seals every object that was open for writing when the node stopped.
    pub(super) async fn seal_unsure(&self) -> Result<()> {
        let marked: Result<Vec<ObjectId>> = {
            let records = self.space.snapshot()?;
            let rows = records.scan(&[WRITING], &prefix_end(&[WRITING]), Order::Rising);
            rows.map(|row| object_at(&row?.0, 1)).collect()
        };
        for object in marked? {
            if self.known(object).is_some() {
                continue;
            }
            let sealed = match self.take_up(object).await {
                Ok(live) => self.seal(&live).await.map(drop),
                Err(error) => Err(error),
            };
            match sealed {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // `check` reports it; other objects go on.
                Err(error) => {
                    tracing::warn!(op = "seal", id = %object, error = ?error, "left open after a crash")
                }
            }
        }
        Ok(())
    }
}

/// Keeps changes of extent out; `None` if one is under way or waits. What one does shows in no
/// list of what changed until it ends, and what is hashed meanwhile may be from before it.
fn unshaped(live: &Live) -> Option<OwnedRwLockReadGuard<()>> {
    live.gate.clone().try_read_owned().ok()
}

/// Closes the object to writers, if nothing changed since it was hashed and flushed.
fn close(live: &Live) -> Option<Record> {
    let _unshaped = unshaped(live)?;
    let mut state = live.state();
    // What changed the extent during the flush may be in no block, and on no disk.
    if state.unflushed_since.is_some() { None } else { state.close_for_record() }
}

fn flush_failed() -> Error {
    Error::new(ErrorKind::Unavailable, "an earlier flush failed and bytes of the object may be lost")
        .hint("write what was not acknowledged again; look at the machine's log: a disk may be failing")
}

/// Hashes blocks and hands the seals over. A file that ends too early has zeros there.
fn hash_all(live: &Live, todo: &[Todo]) -> Result<()> {
    for todo in todo {
        let found = match todo.passed {
            Some(seal) => seal,
            None => hash(live, todo.at, todo.length)?,
        };
        let mut state = live.state();
        let before = if todo.unsure { state.before(todo.block) } else { None };
        state.take_seal(todo, found, before);
    }
    Ok(())
}

/// Returns the seal that bytes would have now.
pub(super) fn hash(live: &Live, at: u64, length: u64) -> Result<Seal> {
    let data = live.file.seek(at, Seek::Data)?;
    if data.is_none_or(|data| data >= at + length) {
        return Ok(Seal::Hole);
    }
    let mut bytes = vec![0; length as usize];
    live.file.read(&mut bytes, at)?;
    Ok(Seal::of(&bytes))
}

/// Changes the object's row, unless the object is gone. Returns the new row.
fn change_row(
    txn: &mut SpaceTxn<'_>,
    object: ObjectId,
    number: FileNumber,
    change: impl FnOnce(&mut ObjectRow),
) -> Result<ObjectRow> {
    let row = ObjectRow::read(txn, object)?.filter(|row| row.file == number);
    let mut row = row.ok_or_else(|| absent(object))?;
    change(&mut row);
    txn.put(&object_key(OBJECTS, object), &row.encode())?;
    Ok(row)
}

/// Takes the seals of whole ranges of blocks away. Returns by how much the number of unverified
/// blocks changes.
fn void_seals(txn: &mut SpaceTxn<'_>, object: ObjectId, ranges: &[Range<u64>]) -> Result<i64> {
    let mut change = 0;
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let from = seal_key(object, range.start / GROUP_BLOCKS);
        let to = match range.end {
            u64::MAX => prefix_end(&object_key(SEALS, object)),
            end => seal_key(object, (end - 1) / GROUP_BLOCKS + 1).to_vec(),
        };
        let rows: Result<Vec<_>> = txn.scan(&from, &to, Order::Rising).collect();
        for (key, value) in rows? {
            let first = number_at(&key, 17)?.saturating_mul(GROUP_BLOCKS);
            let group = Group::decode(&value)?;
            let mut left = group.clone();
            let blocks = first..first.saturating_add(GROUP_BLOCKS);
            blocks.filter(|block| range.contains(block)).for_each(|block| left.set(block, Seal::Hole));
            change += put_group(txn, &key, &group, &left)?;
        }
    }
    Ok(change)
}

/// Records seals, which are in block order. Returns as [`void_seals`] does.
fn set_seals(txn: &mut SpaceTxn<'_>, object: ObjectId, seals: &[(u64, Seal)]) -> Result<i64> {
    let mut change = 0;
    for part in seals.chunk_by(|a, b| a.0 / GROUP_BLOCKS == b.0 / GROUP_BLOCKS) {
        let key = seal_key(object, part[0].0 / GROUP_BLOCKS);
        let old = txn.get(&key)?.map(|row| Group::decode(&row)).transpose()?.unwrap_or_default();
        let mut new = old.clone();
        part.iter().for_each(|(block, seal)| new.set(*block, *seal));
        change += put_group(txn, &key, &old, &new)?;
    }
    Ok(change)
}

fn put_group(txn: &mut SpaceTxn<'_>, key: &[u8], old: &Group, new: &Group) -> Result<i64> {
    match (new == old, new.is_empty()) {
        (true, _) => {}
        (false, true) => txn.delete(key)?,
        (false, false) => txn.put(key, &new.encode())?,
    }
    Ok(new.unverified() as i64 - old.unverified() as i64)
}

#[cfg(test)]
mod tests;
