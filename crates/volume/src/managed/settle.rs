//! What follows later: objects that are no longer written get their seal, and what a
//! crash left half-done is mended before the first call.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::proof::Objects;
use weft_core::{Deadline, ErrorKind, FileId, ObjectId, Result, Rights, limits};
use weft_kv::SpaceTxn;
use weft_sys::Sys;

use super::bytes::used_of;
use super::files::Writing;
use super::lease::is_of_another_moment;
use super::opens::Closed;
use super::table::inodes::{self, Layout};
use super::table::{containers, unnamed};
use super::view::Node;
use super::{Managed, Volume};

/// How many marks are looked at in one go.
const BATCH: usize = 256;

/// Waits until a file has not been written for a while, then settles it.
pub(super) async fn settle_behind(sys: Sys, volume: Weak<Volume>, writing: Arc<Writing>, serial: u64) {
    let mut pause = limits::OBJECT_IDLE;
    loop {
        sys.sleep(pause).await;
        let Some(volume) = volume.upgrade() else { return };
        let idle = sys.clock().tick().since(writing.last_written());
        if idle < limits::OBJECT_IDLE {
            pause = limits::OBJECT_IDLE - idle;
            continue;
        }
        match volume.settle(&writing, serial).await {
            Ok(true) => return,
            Ok(false) => pause = limits::OBJECT_IDLE,
            // The engine is closed, or nothing can be made durable any more: the next start mends.
            // A store that fails alone may recover, and nothing else tells of what was written.
            Err(error) if error.kind() == ErrorKind::Unavailable && volume.is_closed().await => return,
            Err(error) => {
                tracing::warn!(%error, inode = serial, "a written file could not be settled yet");
                pause = limits::OBJECT_IDLE.max(Duration::from_secs(1)) * 2;
            }
        }
    }
}

impl Managed {
    /// Settles what is being written and brings everything to disk, before the volume is
    /// let go: the next start then finds nothing to mend. Calls still under way may
    /// leave something to mend after all.
    pub async fn close(&self) -> Result<()> {
        let volume = &self.volume;
        // What was let go of behind is let go of now: after the next start it would be
        // kept for who may come back.
        for file in volume.opens.undecided() {
            volume.end_orphan(file.serial()).await?;
        }
        let mut after = None;
        loop {
            let marked = unnamed::WRITING.some(&volume.space.snapshot()?, after, BATCH)?;
            let Some(last) = marked.last().copied() else { break };
            after = Some(last);
            for serial in marked {
                let writing = volume.files.of(serial);
                let deadline = Deadline::within(volume.sys.clock(), limits::OBJECT_IDLE);
                let alone = volume.sys.within(deadline, async { Ok(writing.gate.write().await) }).await;
                // Who is at the file for so long leaves something to mend, and so may who removes it.
                if let Ok(alone) = alone {
                    volume.settle_alone(&writing, serial).await?;
                    drop(alone);
                }
            }
        }
        volume.space.flush().await?;
        Ok(())
    }
}

impl Volume {
    /// Whether nothing can be written any more until the next start.
    async fn is_closed(&self) -> bool {
        self.space.write(Ack::Applied, |_| Ok(())).await.is_err()
    }

    /// Settles a file. `false` if somebody is at it: later, then.
    async fn settle(self: &Arc<Self>, writing: &Arc<Writing>, serial: u64) -> Result<bool> {
        let Ok(_alone) = writing.gate.try_write() else { return Ok(false) };
        self.settle_alone(writing, serial).await
    }

    /// Brings an object that was written to disk, has it sealed, and takes its mark away. `false` if the file went
    /// meanwhile, or has other bytes: whoever removes it does not wait. For who has the file's gate alone.
    async fn settle_alone(self: &Arc<Self>, writing: &Writing, serial: u64) -> Result<bool> {
        let snapshot = self.space.snapshot()?;
        let layout = inodes::find(&snapshot, serial)?.map(|inode| inode.layout);
        let mut settled = None;
        if let Some(Layout::Whole { object, label }) = layout {
            let rights = Rights::READ | Rights::WRITE;
            let granted = self.upkeep(&snapshot, label, Objects::Only(vec![object]), rights)?;
            let sealed = async {
                self.store.sync(&granted, object).await?;
                self.store.seal(&granted, object).await
            };
            match sealed.await {
                Ok(stat) => settled = Some((object, stat)),
                Err(error) if error.kind() == ErrorKind::NotFound && !self.has_object(serial, object)? => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        let (boot, now) = (self.boot(), self.sys.clock().now());
        let untold = writing.has_untold();
        let act = move |txn: &mut SpaceTxn<'_>| {
            unnamed::WRITING.remove(txn, serial)?;
            let Some((object, stat)) = settled else { return Ok(()) };
            let Some(mut inode) = inodes::find(txn, serial)? else { return Ok(()) };
            if !inode.is_in(object) {
                return Ok(());
            }
            let used = used_of(&stat);
            if (inode.size, inode.used) == (stat.size, used) && !untold {
                return Ok(());
            }
            containers::use_bytes(txn, inode.container, used as i64 - inode.used as i64)?;
            if inode.size != stat.size || untold {
                // A row that was not written, after a failure.
                inode.stamp = inode.stamp.next(boot);
                inode.changed(now);
            }
            (inode.size, inode.used) = (stat.size, used);
            inodes::put(txn, serial, &inode)
        };
        self.space.write(Ack::Applied, act).await?;
        self.files.told(writing);
        writing.marked.store(false, Ordering::Release);
        Ok(true)
    }

    /// Returns whether the bytes of a file are in an object now.
    fn has_object(&self, serial: u64, object: ObjectId) -> Result<bool> {
        let inode = inodes::find(&self.space.snapshot()?, serial)?;
        Ok(inode.is_some_and(|inode| inode.is_in(object)))
    }

    /// Mends what a crash left: objects whose new label the store knows and the rows do
    /// not, and files whose objects were being written, which are as their objects are
    /// now, under versions that nobody has seen. A file that cannot be mended yet keeps
    /// its mark, and nobody else waits for it.
    pub(super) async fn mend_after_crash(self: &Arc<Self>) -> Result<()> {
        self.relabel_all().await?.report();
        let mut after = None;
        loop {
            let marked = unnamed::WRITING.some(&self.space.snapshot()?, after, BATCH)?;
            let Some(last) = marked.last().copied() else { return Ok(()) };
            after = Some(last);
            for serial in marked {
                if let Err(error) = self.mend_written(serial).await {
                    tracing::warn!(%error, inode = serial, "a written file could not be mended yet");
                    self.restamp(serial).await?;
                    self.mark_known(&self.files.of(serial), serial);
                }
            }
        }
    }

    /// Gives a file a version that nobody has seen: its bytes may be others.
    async fn restamp(&self, serial: u64) -> Result<()> {
        let (boot, now) = (self.boot(), self.sys.clock().now());
        let act = move |txn: &mut SpaceTxn<'_>| {
            let Some(mut inode) = inodes::find(txn, serial)? else { return Ok(()) };
            inode.stamp = inode.stamp.next(boot);
            inode.changed(now);
            inodes::put(txn, serial, &inode)
        };
        self.space.write(Ack::Durable, act).await.map(drop)
    }

    async fn mend_written(self: &Arc<Self>, serial: u64) -> Result<()> {
        let snapshot = self.space.snapshot()?;
        let Some(inode) = inodes::find(&snapshot, serial)? else {
            self.space.write(Ack::Applied, move |txn| unnamed::WRITING.remove(txn, serial)).await?;
            return Ok(());
        };
        let mut stat = None;
        if let Layout::Whole { object, label } = inode.layout {
            let rights = Rights::READ | Rights::WRITE;
            let granted = self.upkeep(&snapshot, label, Objects::Only(vec![object]), rights)?;
            stat = match self.store.stat(&granted, object).await {
                Ok(stat) => {
                    self.store.sync(&granted, object).await?;
                    Some(stat)
                }
                // The check says what is lost; the volume opens all the same.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    tracing::error!(inode = serial, %object, "a file's object is not there");
                    None
                }
                Err(error) => return Err(error),
            };
        }
        let (boot, now) = (self.boot(), self.sys.clock().now());
        let act = move |txn: &mut SpaceTxn<'_>| {
            unnamed::WRITING.remove(txn, serial)?;
            let Some(mut inode) = inodes::find(txn, serial)? else { return Ok(()) };
            if let Some(stat) = stat {
                let used = used_of(&stat);
                containers::use_bytes(txn, inode.container, used as i64 - inode.used as i64)?;
                (inode.size, inode.used) = (stat.size, used);
            }
            inode.stamp = inode.stamp.next(boot);
            inode.changed(now);
            inodes::put(txn, serial, &inode)
        };
        self.space.write(Ack::Durable, act).await?;
        Ok(())
    }

    /// Lets go of what an open that ended kept: a file without names, an object that
    /// was replaced.
    pub(super) async fn let_go(self: Arc<Self>, closed: Closed) -> Result<()> {
        if let Some(file) = closed.file {
            let serial = file.serial();
            if closed.unnamed || unnamed::ORPHANS.has(&self.space.snapshot()?, serial)? {
                self.end_orphan(serial).await?;
            }
            self.opens.end_is_off(file);
        }
        if let Some(object) = closed.object
            && unnamed::is_garbage(&self.space.snapshot()?, object)?
        {
            self.to_tidy.notify_one();
        }
        Ok(())
    }

    /// The same, while nobody waits.
    pub(super) fn let_go_behind(self: Arc<Self>, closed: Closed) {
        if closed.file.is_none() && closed.object.is_none() {
            return;
        }
        let Ok(snapshot) = self.space.snapshot() else { return };
        let orphan = closed.file.is_some_and(|file| {
            closed.unnamed || unnamed::ORPHANS.has(&snapshot, file.serial()).unwrap_or(true)
        });
        let ending = closed.file.filter(|_| orphan);
        if let Some(file) = ending {
            self.opens.begin_end(file);
        }
        if orphan || closed.object.is_some() {
            let sys = self.sys.clone();
            drop(sys.spawn(async move {
                if let Err(error) = self.clone().let_go(closed).await {
                    tracing::warn!(%error, "what an open kept is left to the sweep");
                    ending.inspect(|file| self.opens.end_is_off(*file));
                }
            }));
        }
    }

    /// Ends an inode without names, unless somebody has it open again.
    pub(super) async fn end_orphan(self: &Arc<Self>, serial: u64) -> Result<bool> {
        let call = self.own_call();
        let ended = self.change_whenever(&call, Ack::Applied, move |act| {
            if !unnamed::ORPHANS.has(act.txn, serial)? {
                return Ok(None);
            }
            let Some(inode) = inodes::find(act.txn, serial)? else {
                return unnamed::ORPHANS.remove(act.txn, serial).map(|()| None);
            };
            let id = FileId::new(act.volume.id, serial, inode.generation);
            // Whoever has it open holds its locks as well.
            if !act.volume.opens.end(id) {
                return Ok(None);
            }
            act.end(&Node { id, inode })?;
            Ok(Some(id))
        });
        self.ended(ended.await?);
        Ok(true)
    }
}

impl Volume {
    /// Brings every object that is being written to disk.
    pub(super) async fn sync_written(self: &Arc<Self>) -> Result<()> {
        let mut after = None;
        loop {
            let marked = unnamed::WRITING.some(&self.space.snapshot()?, after, BATCH)?;
            let Some(last) = marked.last().copied() else { return Ok(()) };
            after = Some(last);
            for serial in marked {
                match self.sync_marked(serial).await {
                    Err(error) if is_of_another_moment(&error) => {
                        drop(self.files.of(serial).gate.read().await);
                        self.sync_marked(serial).await?;
                    }
                    done => done?,
                }
            }
        }
    }

    async fn sync_marked(&self, serial: u64) -> Result<()> {
        let snapshot = self.space.snapshot()?;
        let inode = inodes::find(&snapshot, serial)?;
        let Some(Layout::Whole { object, label }) = inode.map(|inode| inode.layout) else { return Ok(()) };
        let granted = self.upkeep(&snapshot, label, Objects::Only(vec![object]), Rights::READ)?;
        drop(snapshot);
        self.store.sync(&granted, object).await.map(drop)
    }
}
