//! The node's own work on a volume: orphans, abandoned stages, objects that nothing
//! refers to, labels that lag behind. All of it is found in rows and can be stopped at
//! any point and gone on with.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use weft_core::form::{Ack, Call, Door, Origin, Wire};
use weft_core::proof::Objects;
use weft_core::{
    ContainerId, Deadline, ErrorKind, ObjectId, Result, Rights, SessionId, Tick, TraceId, limits,
};
use weft_kv::{Following, SpaceTxn};
use weft_sys::Task;

use super::left::{Left, Thing};
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
    /// What could not be taken away: it is tried again later.
    pub left: u64,
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
        volume.stuck.clear();
        let (mut swept, mut left) = (Swept::default(), Left::default());
        if volume.grace_is_over() {
            left.and(volume.sweep_orphans(&mut swept.orphans).await);
        }
        left.and(volume.sweep_stages(&mut swept.stages).await);
        left.and(volume.relabel_all().await);
        left.and(volume.split_all().await);
        left.and(volume.remove_garbage().await);
        left.and(volume.sweep_objects(&mut swept.objects).await);
        swept.replays = volume.sweep_replays().await?;
        if left.count == 0 {
            swept.containers = volume.sweep_containers().await?;
        }
        left.report();
        swept.left = left.count;
        Ok(swept)
    }
}

impl Volume {
    /// Takes the notes of changes into the ring for as long as the volume lives.
    pub(super) fn follow_feed(self: Arc<Self>) -> Result<Task<()>> {
        let mut notes = Following::new(self.sys.clone(), self.space.notes(CHANGES)?);
        let (sys, volume) = (self.sys.clone(), Arc::downgrade(&self));
        Ok(sys.spawn(async move {
            while let Some(batch) = notes.next().await {
                let Some(volume) = volume.upgrade() else { return };
                if let Some(position) = volume.feed.take(batch) {
                    notes.ack(position).await;
                }
            }
        }))
    }

    /// Does what waits to be done whenever there is some; orphans, and sessions that did not come
    /// back for their locks, once the grace after the start is over.
    pub(super) fn tidy_behind(self: Arc<Self>) -> Task<()> {
        let (sys, volume) = (self.sys.clone(), Arc::downgrade(&self));
        let grace = self.started.plus(limits::SESSION_GRACE);
        let own = sys.clone();
        // What an earlier run left is there already.
        self.to_tidy.notify_one();
        sys.spawn(async move {
            let (mut orphans_due, mut pause) = (true, limits::TIDY_RETRY);
            let mut again: Option<Tick> = None;
            loop {
                let Some(volume) = volume.upgrade() else { return };
                let now = own.clock().tick();
                if again.is_some_and(|again| now >= again) {
                    again = None;
                    volume.stuck.clear();
                }
                let with_orphans = orphans_due && now >= grace;
                let left = volume.tidy(with_orphans).await;
                left.report();
                if left.count == 0 {
                    (again, pause) = (None, limits::TIDY_RETRY);
                    orphans_due &= !with_orphans;
                } else if again.is_none() {
                    again = Some(own.clock().tick().plus(pause));
                    pause = if left.why.is_some() { (pause * 2).min(limits::TIDY_RETRY_MAX) } else { pause };
                }
                let orphans_wait = orphans_due && own.clock().tick() < grace;
                tokio::select! {
                    () = volume.to_tidy.notified() => {}
                    () = own.sleep_until(grace), if orphans_wait => {}
                    () = own.sleep_until(again.unwrap_or(now)), if again.is_some() => {}
                }
            }
        })
    }

    /// Does what waits to be done.
    async fn tidy(self: &Arc<Self>, with_orphans: bool) -> Left {
        let mut left = Left::default();
        if self.is_full.swap(false, Ordering::AcqRel) {
            left.and(self.give_up_idle(limits::FULL_GIVE_UP_BYTES).await.map(|()| Left::default()));
        }
        if with_orphans {
            left.and(self.sweep_orphans(&mut 0).await);
            left.and(self.forget_absent().await.map(|()| Left::default()));
        }
        left.and(self.relabel_all().await);
        left.and(self.split_all().await);
        left.and(self.remove_garbage().await);
        left.and(self.settle_ends().await.map(|()| Left::default()));
        left
    }

    /// Forgets the sessions that held locks before the start and have not come back: the next start
    /// waits for none of them.
    async fn forget_absent(self: &Arc<Self>) -> Result<()> {
        if self.lockers.absent().is_empty() {
            return Ok(());
        }
        let volume = self.clone();
        let forget = move |txn: &mut SpaceTxn<'_>| {
            let mut absent = volume.lockers.absent().into_iter();
            absent.try_for_each(|session| unnamed::remove_locker(txn, session))
        };
        self.space.write(Ack::Durable, forget).await.map(drop)
    }

    /// Forgets which files were about to end, now that the transactions which decided it
    /// are through, and the locks on those that have ended.
    async fn settle_ends(&self) -> Result<()> {
        let decided = self.opens.decided();
        if decided.is_empty() {
            return Ok(());
        }
        // Transactions run one after the other: after this one, those are through.
        self.space.write(Ack::Applied, |_| Ok(())).await?;
        let snapshot = self.space.snapshot()?;
        for (file, decision) in decided {
            let there = inodes::find(&snapshot, file.serial())?;
            if there.is_none_or(|inode| inode.generation != file.generation()) {
                self.locks.forget(file);
            }
            self.opens.settled_since(file, decision);
        }
        Ok(())
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
            from: Origin { door: Door::Node, peer: None, uid: None },
            once: None,
            ack: Ack::Applied,
            wire: Wire::Private,
        }
    }

    async fn sweep_orphans(self: &Arc<Self>, ended: &mut u64) -> Result<Left> {
        let (mut after, mut left) = (None, Left::default());
        loop {
            let some = unnamed::ORPHANS.some(&self.space.snapshot()?, after, BATCH)?;
            let Some(last) = some.last().copied() else { return Ok(left) };
            after = Some(last);
            for serial in some {
                let done = self.try_with(Thing::Orphan(serial), self.end_orphan(serial)).await;
                left.take(done);
                let there = inodes::find(&self.space.snapshot()?, serial);
                *ended += u64::from(matches!(there, Ok(None)));
            }
        }
    }

    /// Tries something, unless it has failed a moment ago.
    async fn try_with(&self, thing: Thing, work: impl Future<Output = Result<bool>>) -> Result<bool> {
        if self.stuck.has(thing) {
            return Ok(false);
        }
        let done = work.await;
        self.stuck.note(thing, &done);
        done
    }

    async fn sweep_stages(self: &Arc<Self>, ended: &mut u64) -> Result<Left> {
        let (mut after, mut left) = (None, Left::default());
        let now = self.sys.clock().now();
        loop {
            let some: Vec<_> =
                stages::all(&self.space.snapshot()?, after).take(BATCH).collect::<Result<_>>()?;
            let Some((last, _)) = some.last() else { return Ok(left) };
            after = Some(*last);
            for (id, row) in some {
                if row.is_over(now) {
                    let act = move |txn: &mut SpaceTxn<'_>| super::stage::drop_stage(txn, id);
                    let dropped = self.space.write(Ack::Applied, act).await;
                    *ended += u64::from(left.take(dropped.map(|_| true)));
                }
            }
        }
    }

    /// Removes objects that rows say nobody needs, but those that somebody still reads.
    pub(super) async fn remove_garbage(self: &Arc<Self>) -> Result<Left> {
        let (mut after, mut left) = (None, Left::default());
        loop {
            let some = unnamed::garbage(&self.space.snapshot()?, after, BATCH)?;
            let Some((last, _)) = some.last().copied() else { return Ok(left) };
            after = Some(last);
            for (object, label) in some {
                if !self.opens.is_pinned(object) {
                    let done = self.try_with(Thing::Object(object), self.remove_object(object, label)).await;
                    left.take(done);
                }
            }
        }
    }

    async fn remove_object(self: &Arc<Self>, object: ObjectId, label: ContainerId) -> Result<bool> {
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
        Ok(true)
    }

    /// Labels objects with the containers that their files have come to.
    pub(super) async fn relabel_all(self: &Arc<Self>) -> Result<Left> {
        let (mut after, mut left) = (None, Left::default());
        loop {
            let some = unnamed::RELABELS.some(&self.space.snapshot()?, after, BATCH)?;
            let Some(last) = some.last().copied() else { return Ok(left) };
            after = Some(last);
            // The store forgets nothing: it is told only of moves that a crash cannot
            // take back.
            self.space.flush().await?;
            for serial in some {
                let done = self.try_with(Thing::Label(serial), self.relabel(serial)).await;
                left.take(done);
            }
        }
    }

    /// Labels a file's object. `false` if somebody is at the file: later, then.
    async fn relabel(self: &Arc<Self>, serial: u64) -> Result<bool> {
        let writing = self.files.of(serial);
        let Ok(_alone) = writing.gate.try_write() else { return Ok(false) };
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
        Ok(true)
    }

    /// Removes objects at the store that no row knows: what a crash left of uploads.
    async fn sweep_objects(self: &Arc<Self>, removed: &mut u64) -> Result<Left> {
        let containers: Vec<_> = containers::all(&self.space.snapshot()?).collect::<Result<_>>()?;
        let (mut left, mut found) = (Left::default(), Vec::new());
        for container in containers {
            let mut after = None;
            loop {
                let next = match self.list_objects(container, after, &mut found).await {
                    Ok(next) => next,
                    Err(error) => {
                        left.take(Err(error));
                        break;
                    }
                };
                if found.len() >= CHUNK {
                    left.and(self.remove_unreferenced(std::mem::take(&mut found), removed).await);
                }
                match next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
        }
        left.and(self.remove_unreferenced(found, removed).await);
        Ok(left)
    }

    async fn list_objects(
        &self,
        container: ContainerId,
        after: Option<ObjectId>,
        found: &mut Vec<(ObjectId, ContainerId)>,
    ) -> Result<Option<ObjectId>> {
        let rights = Rights::MAINTAIN | Rights::LIST;
        let granted = self.upkeep(&self.space.snapshot()?, container, Objects::All, rights)?;
        let page = self.store.list(&granted, after).await?;
        found.extend(page.objects.iter().map(|stat| (stat.id, container)));
        Ok(page.next)
    }

    async fn remove_unreferenced(
        self: &Arc<Self>,
        found: Vec<(ObjectId, ContainerId)>,
        removed: &mut u64,
    ) -> Result<Left> {
        let mut left = Left::default();
        for (object, label) in self.unreferenced(&found)? {
            *removed += u64::from(left.take(self.remove_object(object, label).await));
        }
        Ok(left)
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
            found.iter().copied().filter(|(object, _)| !making.contains_key(object)).collect();
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

    /// Removes containers whose place is gone and that nothing carries the label of: who
    /// removes the last of that needs their epoch.
    async fn sweep_containers(self: &Arc<Self>) -> Result<u64> {
        // First those being made: what is referred to later is in the snapshot.
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
        for garbage in unnamed::all_garbage(&snapshot, None) {
            empty.remove(&garbage?.1);
        }
        making.values().for_each(|label| _ = empty.remove(label));
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
            Some(mut inode) if inode.is_in(object) => {
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
