//! The node's own work on a volume: orphans, abandoned stages, objects that nothing
//! refers to, labels that lag behind. All of it is found in rows and can be stopped at
//! any point and gone on with.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use weft_core::form::{Ack, Call, Door, Origin, Wire};
use weft_core::proof::Objects;
use weft_core::{
    ContainerId, Deadline, ErrorKind, ObjectId, Result, Rights, SessionId, Tick, TraceId, limits,
};
use weft_kv::SpaceTxn;
use weft_sys::Task;

use super::table::inodes::{self, Layout};
use super::table::stages::{self, PartBytes};
use super::table::{containers, once, unnamed};
use super::{CHANGES, Managed, Volume};

/// How many things of a kind are handled in one go.
const BATCH: usize = 256;
/// Objects whose references are looked for in one pass.
const CHUNK: usize = 65_536;

/// What a sweep took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Inodes without names that nobody has open.
    pub orphans: u64,
    /// Stages that were left alone for too long.
    pub stages: u64,
    /// Objects that nothing referred to.
    pub objects: u64,
    /// Sessions whose kept answers nobody can ask for any more.
    pub replays: u64,
    /// Containers that governed nothing any more.
    pub containers: u64,
}

impl Managed {
    /// Takes away what crashes, abandoned uploads and removals left behind. Needs
    /// `maintain` at the root, or to be the node itself. Safe at any time, and again
    /// after being stopped.
    pub async fn sweep(&self, call: &Call) -> Result<Swept> {
        let volume = &self.volume;
        volume.look(call, |view| {
            let own = (volume.node)();
            let is_node = !own.is_anyone() && own.name() == call.caller.name();
            let root = view.node_at(weft_core::FileId::ROOT.serial())?;
            if is_node { Ok(()) } else { view.need(&root, Rights::MAINTAIN) }
        })?;
        let mut swept = Swept::default();
        if volume.grace_is_over() {
            swept.orphans = volume.sweep_orphans().await?;
        }
        swept.stages = volume.sweep_stages().await?;
        volume.relabel_all().await?;
        volume.split_all().await?;
        volume.remove_garbage().await?;
        swept.objects = volume.sweep_objects().await?;
        swept.replays = volume.sweep_replays().await?;
        swept.containers = volume.sweep_containers().await?;
        Ok(swept)
    }
}

impl Volume {
    /// Takes the notes of changes into the ring for as long as the volume lives.
    pub(super) fn follow_feed(self: Arc<Self>) -> Result<Task<()>> {
        let mut notes = self.space.notes(CHANGES)?;
        let (sys, volume) = (self.sys.clone(), Arc::downgrade(&self));
        Ok(sys.spawn(async move {
            while let Ok(batch) = notes.next().await {
                let Some(volume) = volume.upgrade() else { return };
                let dropped = volume.feed.take(batch);
                if let Some(position) = dropped
                    && let Err(error) = notes.ack(position).await
                {
                    tracing::warn!(%error, "old changes are kept longer than needed");
                }
            }
        }))
    }

    /// Does what waits to be done whenever there is some, and orphans once the grace
    /// after the start is over.
    pub(super) fn tidy_behind(self: Arc<Self>) -> Task<()> {
        let (sys, volume) = (self.sys.clone(), Arc::downgrade(&self));
        let grace = self.started.plus(limits::SESSION_GRACE);
        let own = sys.clone();
        // What an earlier run left is there already.
        self.to_tidy.notify_one();
        sys.spawn(async move {
            let mut orphans_due = true;
            loop {
                let Some(volume) = volume.upgrade() else { return };
                if orphans_due && own.clock().tick() >= grace {
                    orphans_due = false;
                    report("orphans are left", volume.sweep_orphans().await.map(drop));
                }
                report("labels lag behind", volume.relabel_all().await);
                report("a split is not through", volume.split_all().await);
                report("objects are left to remove", volume.remove_garbage().await);
                tokio::select! {
                    () = volume.to_tidy.notified() => {}
                    () = own.sleep_until(grace), if orphans_due => {}
                }
            }
        })
    }

    pub(super) fn grace_is_over(&self) -> bool {
        self.sys.clock().tick() >= self.started.plus(limits::SESSION_GRACE)
    }

    /// A call of the node's own, that nobody waits for.
    pub(super) fn own_call(&self) -> Call {
        Call {
            caller: (self.node)(),
            session: SessionId(0),
            until: Deadline(Tick(u64::MAX)),
            trace: TraceId(0),
            from: Origin { door: Door::Node, peer: None },
            once: None,
            ack: Ack::Applied,
            wire: Wire::Private,
        }
    }

    async fn sweep_orphans(self: &Arc<Self>) -> Result<u64> {
        let (mut after, mut ended) = (None, 0);
        loop {
            let some = unnamed::ORPHANS.some(&self.space.snapshot()?, after, BATCH)?;
            let Some(last) = some.last().copied() else { return Ok(ended) };
            after = Some(last);
            for serial in some {
                self.end_orphan(serial).await?;
                ended += u64::from(inodes::find(&self.space.snapshot()?, serial)?.is_none());
            }
        }
    }

    async fn sweep_stages(self: &Arc<Self>) -> Result<u64> {
        let (mut after, mut ended) = (None, 0);
        let now = self.sys.clock().now();
        loop {
            let some: Vec<_> =
                stages::all(&self.space.snapshot()?, after).take(BATCH).collect::<Result<_>>()?;
            let Some((last, _)) = some.last() else { return Ok(ended) };
            after = Some(*last);
            for (id, row) in some {
                if now.since(row.begun) >= limits::STAGE_LIFE {
                    self.space.write(Ack::Applied, move |txn| super::stage::drop_stage(txn, id)).await?;
                    ended += 1;
                }
            }
        }
    }

    /// Removes objects that rows say nobody needs, but those that somebody still reads.
    pub(super) async fn remove_garbage(self: &Arc<Self>) -> Result<()> {
        let mut after = None;
        loop {
            let some = unnamed::garbage(&self.space.snapshot()?, after, BATCH)?;
            let Some((last, _)) = some.last().copied() else { return Ok(()) };
            after = Some(last);
            for (object, label) in some {
                if !self.opens.is_pinned(object) {
                    self.remove_object(object, label).await?;
                }
            }
        }
    }

    async fn remove_object(self: &Arc<Self>, object: ObjectId, label: ContainerId) -> Result<()> {
        // The row is durable first: until it is, a crash may bring back what refers to
        // the object.
        self.space.flush().await?;
        let granted = self.upkeep(
            &self.space.snapshot()?,
            label,
            Objects::Only(vec![object]),
            Rights::WRITE | Rights::REMOVE,
        )?;
        match self.store.remove(&granted, object).await {
            // Under another label it is nobody's object, which the next sweep finds.
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => {}
            Err(error) => return Err(error),
        }
        self.space.write(Ack::Applied, move |txn| unnamed::remove_garbage(txn, object)).await?;
        Ok(())
    }

    /// Labels objects with the containers that their files have come to.
    pub(super) async fn relabel_all(self: &Arc<Self>) -> Result<()> {
        let mut after = None;
        loop {
            let some = unnamed::RELABELS.some(&self.space.snapshot()?, after, BATCH)?;
            let Some(last) = some.last().copied() else { return Ok(()) };
            after = Some(last);
            // The store forgets nothing: it is told only of moves that a crash cannot
            // take back.
            self.space.flush().await?;
            for serial in some {
                self.relabel(serial).await?;
            }
        }
    }

    async fn relabel(self: &Arc<Self>, serial: u64) -> Result<()> {
        let writing = self.files.of(serial);
        let _alone = writing.gate.write().await;
        let snapshot = self.space.snapshot()?;
        let inode = inodes::find(&snapshot, serial)?;
        let mut relabelled = None;
        if let Some(inode) = inode
            && let Layout::Whole { object, label } = inode.layout
            && label != inode.container
        {
            let to = inode.container;
            let rights = Rights::WRITE | Rights::REMOVE | Rights::INSERT;
            let only = || Objects::Only(vec![object]);
            let old = self.upkeep(&snapshot, label, only(), rights)?;
            let new = self.upkeep(&snapshot, to, only(), rights)?;
            match self.store.relabel(&old, &new, object).await {
                // Done before, and the row that says so was lost.
                Err(_) if self.store.stat(&new, object).await.is_ok() => {}
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            relabelled = Some((object, to));
        }
        let act = move |txn: &mut SpaceTxn<'_>| note_label(txn, serial, relabelled);
        self.space.write(Ack::Applied, act).await?;
        // Leases hold proof under the old label.
        self.policy_has_changed(&[]);
        Ok(())
    }

    /// Removes objects at the store that no row knows: what a crash left of uploads.
    async fn sweep_objects(self: &Arc<Self>) -> Result<u64> {
        let containers: Vec<_> = containers::all(&self.space.snapshot()?).collect::<Result<_>>()?;
        let (mut removed, mut found) = (0, Vec::new());
        for container in containers {
            let mut after = None;
            loop {
                let rights = Rights::MAINTAIN | Rights::LIST;
                let granted = self.upkeep(&self.space.snapshot()?, container, Objects::All, rights)?;
                let page = self.store.list(&granted, after).await?;
                found.extend(page.objects.iter().map(|stat| (stat.id, container)));
                if found.len() >= CHUNK {
                    removed += self.remove_unreferenced(std::mem::take(&mut found)).await?;
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        Ok(removed + self.remove_unreferenced(found).await?)
    }

    async fn remove_unreferenced(self: &Arc<Self>, found: Vec<(ObjectId, ContainerId)>) -> Result<u64> {
        let loose = self.unreferenced(&found)?;
        for (object, label) in &loose {
            self.remove_object(*object, *label).await?;
        }
        Ok(loose.len() as u64)
    }

    /// Returns those of some objects that nothing refers to: one pass over the volume for
    /// many of them.
    fn unreferenced(&self, found: &[(ObjectId, ContainerId)]) -> Result<Vec<(ObjectId, ContainerId)>> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        // First those being made: what is referred to later is in the snapshot.
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let snapshot = self.space.snapshot()?;
        let mut loose: HashMap<ObjectId, ContainerId> =
            found.iter().copied().filter(|(object, _)| !making.contains(object)).collect();
        if loose.is_empty() {
            return Ok(Vec::new());
        }
        for inode in inodes::all(&snapshot) {
            if let Layout::Whole { object, .. } = inode?.1.layout {
                loose.remove(&object);
            }
        }
        for stage in stages::all(&snapshot, None) {
            let (id, row) = stage?;
            row.joined.map(|object| loose.remove(&object));
            for part in stages::parts(&snapshot, id, 0) {
                if let PartBytes::Object { object, .. } = part?.1.held {
                    loose.remove(&object);
                }
            }
        }
        // Garbage has its row, and who reads it may go on until it is let go.
        let mut unreferenced = Vec::new();
        for (object, label) in loose {
            if !unnamed::is_garbage(&snapshot, object)? {
                unreferenced.push((object, label));
            }
        }
        unreferenced.sort_unstable();
        Ok(unreferenced)
    }

    async fn sweep_replays(self: &Arc<Self>) -> Result<u64> {
        let before = self.sys.clock().now();
        let before =
            weft_core::Time::from_nanos(before.nanos().saturating_sub(limits::REPLAY_LIFE.as_nanos() as i64));
        let mut forgotten = 0;
        loop {
            let idle = once::idle(&self.space.snapshot()?, before, BATCH)?;
            if idle.is_empty() {
                return Ok(forgotten);
            }
            for session in idle {
                self.space.write(Ack::Applied, move |txn| once::forget(txn, session)).await?;
                forgotten += 1;
            }
        }
    }

    /// Removes containers whose place is gone and that no inode is in any more.
    async fn sweep_containers(self: &Arc<Self>) -> Result<u64> {
        let snapshot = self.space.snapshot()?;
        let mut empty = HashSet::new();
        for container in containers::all(&snapshot) {
            let container = container?;
            let root = containers::rules(&snapshot, container)?.root;
            if inodes::find(&snapshot, root)?.is_none() {
                empty.insert(container);
            }
        }
        if empty.is_empty() {
            return Ok(0);
        }
        for inode in inodes::all(&snapshot) {
            let inode = inode?.1;
            empty.remove(&inode.container);
            if let Layout::Whole { label, .. } = inode.layout {
                empty.remove(&label);
            }
        }
        for stage in stages::all(&snapshot, None) {
            empty.remove(&stage?.1.container);
        }
        let gone: Vec<ContainerId> = empty.into_iter().collect();
        let count = gone.len() as u64;
        for container in gone {
            self.space.write(Ack::Applied, move |txn| containers::erase(txn, container)).await?;
        }
        Ok(count)
    }
}

/// Notes that an object carries a container's label now, wherever it is referred to.
fn note_label(
    txn: &mut SpaceTxn<'_>,
    serial: u64,
    relabelled: Option<(ObjectId, ContainerId)>,
) -> Result<()> {
    let inode = inodes::find(txn, serial)?;
    if let Some((object, to)) = relabelled {
        match inode {
            Some(mut inode) if matches!(inode.layout, Layout::Whole { object: now, .. } if now == object) => {
                inode.layout = Layout::Whole { object, label: to };
                inodes::put(txn, serial, &inode)?;
                if inode.container != to {
                    // It has moved on meanwhile.
                    return Ok(());
                }
            }
            _ if unnamed::is_garbage(txn, object)? => unnamed::add_garbage(txn, object, to)?,
            _ => {}
        }
    }
    unnamed::RELABELS.remove(txn, serial)
}

fn report(what: &'static str, done: Result<()>) {
    if let Err(error) = done {
        tracing::warn!(%error, "{what}; the next sweep goes on");
    }
}
