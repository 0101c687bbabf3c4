//! A stage: bytes in files of their own beside the one they are to become, then one rename.
//!
//! What is published is another inode than what it replaces: it takes over mode and attributes. A file
//! of several names is not replaced, since the others would keep the old bytes.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join;
use weft_core::acl::Circumstance;
use weft_core::attr::{Attr, Changed, Kind, SetAttr};
use weft_core::form::{
    Ack, At, Call, Entry, Guard, Part, PartPage, Piece, Source, Stage, StageEntry, StageHint, StagePage,
};
use weft_core::{Error, ErrorKind, Result, Rights, StageId, limits};
use weft_sys::DiskFile;
use weft_sys::beneath::{Held, Onto};
use weft_sys::disk::RealFile;

use super::Volume;
use super::attributes::must_have_bytes;
use super::audit::Deed;
use super::lease::Lease;
use super::locate::{Spot, not_directory};
use super::names::{SET_ID, check_size, mode_of, must_be_free, set_times, too_large};
use super::stages::{StagedPart, Staging};
use super::user::{SEARCH, WRITE};
use super::version::{GROWTHS_AWAITED, LastLook, is_of_this_tick, lasts, until_grown};
use super::view::{Node, View, hidden};

/// A stage by its id.
pub(super) struct ExportStage {
    volume: Arc<Volume>,
    id: StageId,
}

impl View<'_> {
    /// Publishing needs `write` on what is there, or else `insert`.
    fn may_publish(&self, spot: &Spot) -> Result<()> {
        let (node, right) = spot.published_by();
        self.need(node, right)?;
        must_be_free(&spot.name)?;
        let Some(node) = &spot.held else { return Ok(()) };
        must_have_bytes(node)?;
        if node.facts.links > 1 {
            let detail = "the file has several names, of which the others would keep the old bytes";
            return Err(Error::new(ErrorKind::TooManyLinks, detail).hint("write it in place"));
        }
        // Another file takes its place: the machine asks for that of the directory.
        self.need_unname(&spot.dir, node)?;
        self.need_access(&spot.dir, WRITE | SEARCH)
    }

    /// Checks that a stage is the caller's own, and of this age.
    fn must_own(&self, staging: &Staging) -> Result<()> {
        let own = staging.caller == self.call.caller.name().id();
        let age = self.volume.sys.clock().now().since(staging.begun);
        if own && age < limits::STAGE_LIFE { Ok(()) } else { Err(no_stage(staging.id)) }
    }

    /// Returns where the caller may still publish a stage.
    fn may_go_on(&self, staging: &Staging) -> Result<Spot> {
        self.must_own(staging)?;
        let spot = self.target_of(staging)?;
        self.may_publish(&spot)?;
        Ok(spot)
    }

    fn target_of(&self, staging: &Staging) -> Result<Spot> {
        let dir = self.node_held(staging.dir, &staging.held)?;
        let held = self.child(&dir, &staging.name)?;
        Ok(Spot { dir, name: staging.name.clone(), held })
    }

    /// Checks that the caller may drop a stage of its own: the credential must carry what it takes.
    fn may_discard(&self, staging: &Staging) -> Result<()> {
        self.must_own(staging)?;
        let caller = &self.call.caller;
        let mut carried = caller.rights_at(&Circumstance { now: self.now, peer: self.call.from.peer });
        if caller.is_confined() {
            let spot = self.target_of(staging)?;
            carried = carried & self.within_paths(&spot.published_by().0.path);
        }
        if carried.intersects(Rights::INSERT | Rights::WRITE) {
            return Ok(());
        }
        Err(Error::denied("the credential does not reach what is staged there").caller(caller.name()))
    }

    /// Makes a file for staged bytes.
    fn stage_file(&self, dir: &Node, name: Vec<u8>) -> Result<StagedPart> {
        let make = || self.making(dir, || dir.held.make_open(&name, 0o600));
        let (held, file) = match make() {
            Err(error) if error.kind() == ErrorKind::Exists => {
                dir.held.remove(&name, false)?;
                make()?
            }
            made => made?,
        };
        let (held, hasher) = (Arc::new(held), blake3::Hasher::new());
        let dir = dir.held.clone();
        Ok(StagedPart { bytes: 0, on_its_way: 0, hasher, file, held, dir, name, published: false })
    }

    /// Puts staged bytes in their place.
    fn publish(
        &self,
        staging: &Staging,
        part: &mut StagedPart,
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<(Changed<Entry>, Node, Deed)> {
        self.call.caller.live(self.now)?;
        let spot = self.may_go_on(staging)?;
        self.guard(guard, spot.held.as_ref())?;
        self.may_give(set, &spot.dir)?;
        let staged = part.dir.inside(&part.name)?;
        if !staged.facts()?.is_same_inode(&part.held.facts()?) {
            return Err(Error::new(ErrorKind::Conflict, "staged bytes were replaced by somebody else"));
        }
        let above = self.before(&spot.dir);
        let before = spot.held.as_ref().map(|node| self.before(node));
        match &spot.held {
            Some(old) => self.take_over(old, &staged, set)?,
            None => {
                let mode = mode_of(Kind::File, set.mode.unwrap_or(0o644))?;
                part.file.set_mode(mode).map_err(Error::unplaced)?;
            }
        }
        set_times(&staged, set, self)?;
        let onto = if spot.held.is_some() { Onto::Anything } else { Onto::Nothing };
        let last = match self.root.may_stamp_finely() {
            true => Some(LastLook::of(&staged.facts()?)),
            false => None,
        };
        part.dir.rename(&part.name, &spot.dir.held, spot.name.as_bytes(), onto)?;
        part.published = true;
        if let Some(old) = &spot.held {
            self.gone(old);
        }
        let path = self.below(&spot.dir, &spot.name);
        let node = self.node_of(path, staged, &spot.dir.bound)?.ok_or_else(hidden)?;
        if last.is_some_and(|last| last.tells_apart(&node.facts)) {
            self.volume.versions.settle(node.id, &node.facts);
        }
        let by = match &spot.held {
            Some(old) => (old, Rights::WRITE),
            None => (&spot.dir, Rights::INSERT),
        };
        let deed = Deed::of(self, "publish", &node, by).at(&spot.dir, &spot.name);
        let deed = Deed { bytes: part.bytes, ..deed.fresh(&node) };
        let changed = self.entered(&spot.dir, above, &spot.name, &node, before);
        Ok((changed, node, deed))
    }

    /// Has a new file look like the one it takes the place of, but for its bytes and for what would have it
    /// run as another.
    fn take_over(&self, old: &Node, new: &Held, set: &SetAttr) -> Result<()> {
        let mode = set.mode.map(|mode| mode_of(Kind::File, mode)).transpose()?;
        if !old.held.may(WRITE) {
            return Err(Error::denied("the machine lets nobody write it as whom the node runs"));
        }
        let made = new.facts()?;
        let detail = "it belongs to another user or group of the machine, who would lose it";
        let lost = || Error::not_permitted(detail).hint("write it in place");
        if self.user.as_ref().is_some_and(|user| !user.may_stand_for(&old.facts, &made)) {
            return Err(lost());
        }
        if (made.uid, made.gid) != (old.facts.uid, old.facts.gid) {
            new.set_owner(old.facts.uid, old.facts.gid).map_err(|e| lost().caused_by(e))?;
        }
        for name in old.held.tags(&old.facts)? {
            let kept = name.starts_with(b"user.") || name == b"system.posix_acl_access";
            if let Some(value) = old.held.tag(&name)?.filter(|_| kept) {
                new.set_tag(&name, Some(&value))?;
            }
        }
        new.set_mode(mode.unwrap_or(old.facts.mode & !SET_ID))
    }
}

fn no_stage(id: StageId) -> Error {
    Error::not_found("there is no such stage").about(id)
}

impl Volume {
    pub(super) async fn stage(
        self: &Arc<Self>,
        call: &Call,
        target: &At,
        hint: &StageHint,
    ) -> Result<Arc<dyn Stage>> {
        let mut bytes = [0; 16];
        self.sys.random().fill(&mut bytes);
        let id = StageId(u128::from_be_bytes(bytes));
        check_size(hint.length.unwrap_or(0))?;
        let target = target.clone();
        let begin = move |view: &View<'_>| {
            let spot = view.spot(&target)?;
            view.may_publish(&spot)?;
            let (volume, place) = (view.volume, (spot.dir.id, spot.dir.held, spot.name));
            let (caller, now) = (view.call.caller.name().id(), volume.sys.clock().now());
            volume.stages.begin(Staging::new(id, caller, place, now, volume.stage_owner)).map(drop)
        };
        self.look(call, begin).await?;
        Ok(Arc::new(ExportStage { volume: self.clone(), id }))
    }

    pub(super) async fn staged(self: &Arc<Self>, call: &Call, id: StageId) -> Result<Arc<dyn Stage>> {
        let staging = self.stages.find(id).ok_or_else(|| no_stage(id))?;
        self.look(call, move |view| view.must_own(&staging)).await?;
        Ok(Arc::new(ExportStage { volume: self.clone(), id }))
    }

    pub(super) async fn stages(
        self: &Arc<Self>,
        call: &Call,
        dir: &At,
        from: Option<StageId>,
    ) -> Result<StagePage> {
        let dir = dir.clone();
        let find = move |view: &View<'_>| {
            let dir = view.existing(&dir)?;
            view.need_any(&dir)?;
            if !dir.is_directory() {
                return Err(not_directory());
            }
            if view.call.caller.is_anyone() {
                return Ok((Vec::new(), None));
            }
            let own = view.volume.stages.of(dir.id, view.call.caller.name().id(), from);
            let most = limits::PAGE_ENTRIES_MAX as usize;
            let next = own.get(most - 1).filter(|_| own.len() > most).map(|staging| staging.id);
            let own = own.into_iter().take(most).filter(|staging| view.may_go_on(staging).is_ok());
            Ok((own.collect::<Vec<_>>(), next))
        };
        let (own, next) = self.look(call, find).await?;
        let mut stages = Vec::with_capacity(own.len());
        for staging in own {
            let mut bytes = 0;
            for (_, part) in staging.parts(0) {
                bytes += self.sys.within(call.until, async { Ok(part.lock().await.bytes) }).await?;
            }
            stages.push(StageEntry {
                id: staging.id,
                name: staging.name.clone(),
                begun: staging.begun,
                bytes,
            });
        }
        Ok(StagePage { stages, next })
    }

    /// Ends the uploads that nobody has gone on with for too long.
    pub(super) fn sweep_stages(&self) {
        let now = self.sys.clock().now();
        let life = i64::try_from(limits::STAGE_LIFE.as_secs()).unwrap_or(i64::MAX);
        let oldest = weft_core::Time::from_unix(now.seconds().saturating_sub(life), 0);
        let old = self.stages.end_older(oldest);
        drop(self.sys.blocking(move || drop(old)));
    }
}

impl ExportStage {
    fn staging(&self) -> Result<Arc<Staging>> {
        self.volume.stages.find(self.id).ok_or_else(|| no_stage(self.id))
    }

    async fn may_go_on(&self, call: &Call) -> Result<Arc<Staging>> {
        let staging = self.staging()?;
        let own = staging.clone();
        self.volume.look(call, move |view| view.may_go_on(&own).map(drop)).await?;
        Ok(staging)
    }

    /// Takes up the right that publishing needs. It outlives the deadline of the call that brings a
    /// piece.
    async fn lease(&self, call: &Call, staging: &Arc<Staging>) -> Result<Lease> {
        call.caller.live(self.volume.sys.clock().moment())?;
        let own = staging.clone();
        let look = move |view: &View<'_>| {
            let spot = view.may_go_on(&own)?;
            let (node, right) = spot.published_by();
            Lease::take(view, node, &[right])
        };
        self.volume.look_whenever(call, look).await
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        if !(1..=limits::STAGE_PARTS_MAX).contains(&number) {
            return Err(Error::invalid("a part's number is 1 to 10000"));
        }
        call.check(self.volume.sys.clock())?;
        let staging = self.staging()?;
        let mut lease = self.lease(call, &staging).await?;
        let making = self.volume.sys.within(call.until, async { Ok(staging.making.lock().await) }).await?;
        let part = match staging.part(number) {
            Some(part) => part,
            None => {
                let own = staging.clone();
                let make = move |view: &View<'_>| {
                    let dir = view.node_held(own.dir, &own.held)?;
                    view.stage_file(&dir, own.staged_as(&number.to_string()))
                };
                staging.add(number, self.volume.look(call, make).await?)
            }
        };
        drop(making);
        let mut part = self.volume.sys.within(call.until, async { Ok(part.lock_owned().await) }).await?;
        if offset == 0 && part.bytes > 0 {
            // Whoever gives it up leaves the part to it: a cut that comes late finds nothing published.
            let empty = move || {
                part.file.set_length(0).map_err(Error::unplaced)?;
                (part.bytes, part.on_its_way, part.hasher) = (0, 0, blake3::Hasher::new());
                Ok(part)
            };
            part = self.volume.apart(call.until, empty).await?;
        }
        if offset != part.bytes {
            return Err(Error::invalid(format!("the part goes on at byte {}", part.bytes)));
        }
        let mut next = data.next(limits::PIECE_BYTES_MAX).await?;
        while let Some(piece) = next {
            if !lease.is_good() {
                // Refused as the next request would be: `Revoked` would say that the credential has ended.
                lease = self.lease(call, &staging).await?;
            }
            let bytes = Piece::into_bytes(piece)?;
            check_size(part.bytes.checked_add(bytes.len() as u64).ok_or_else(too_large)?)?;
            // While one piece lands the next is pulled.
            let landing = self.volume.put_piece(part, bytes, lease.stalls);
            (part, next) = try_join(landing, data.next(limits::PIECE_BYTES_MAX)).await?;
        }
        Ok(shown(number, &part))
    }

    /// Checks that the parts are those that were asked for, and brings them together in one file.
    async fn joined(
        &self,
        call: &Call,
        staging: &Arc<Staging>,
        asked: &[Part],
    ) -> Result<tokio::sync::OwnedMutexGuard<StagedPart>> {
        let mut parts = Vec::new();
        for (number, part) in staging.parts(0) {
            let part = self.volume.sys.within(call.until, async { Ok(part.lock_owned().await) }).await?;
            parts.push((number, part));
        }
        let there: Vec<Part> = parts.iter().map(|(number, part)| shown(*number, part)).collect();
        if !asked.is_empty() && asked != there {
            return Err(Error::invalid("the parts are not those that are staged"));
        }
        if parts.len() == 1
            && let Some((_, part)) = parts.pop()
        {
            return Ok(part);
        }
        let own = staging.clone();
        let make = move |view: &View<'_>| {
            view.stage_file(&view.node_held(own.dir, &own.held)?, own.staged_as("joined"))
        };
        let mut whole = self.volume.look(call, make).await?;
        let until = self.volume.deadline_to_end(call);
        let join = move || {
            for (_, part) in parts {
                let copied =
                    whole.file.copy_from(&*part.file, 0, whole.bytes, part.bytes).map_err(Error::unplaced)?;
                if copied != part.bytes {
                    return Err(Error::corrupt("staged bytes were cut by somebody else"));
                }
                whole.bytes += copied;
            }
            Ok(whole)
        };
        let whole = self.volume.apart(until, join).await?;
        Ok(Arc::new(tokio::sync::Mutex::new(whole)).lock_owned().await)
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let (volume, staging) = (&self.volume, self.may_go_on(call).await?);
        let part = self.joined(call, &staging, parts).await?;
        let file = part.file.clone();
        let until = volume.deadline_to_end(call);
        volume.apart(until, move || RealFile::flush(&file).map_err(Error::unplaced)).await?;
        let (own, set, guard) = (staging, set.clone(), *guard);
        let act = move |view: &View<'_>| {
            let mut part = part;
            view.publish(&own, &mut part, &set, &guard)
        };
        let in_time = call.renewed(volume.sys.clock(), limits::CALL_DEADLINE);
        let turn = volume.in_turn(&in_time).await?;
        let (mut changed, node, deed) = volume.look_to_act(&in_time, act).await?;
        drop(turn);
        volume.stages.end(self.id);
        volume.leave(&Call { ack: Ack::Durable, ..call.clone() }, deed).await?;
        let attr = match changed.value.attr.filter(|attr| lasts(attr.version)) {
            Some(attr) => attr,
            None => self.lasting(call, node).await?,
        };
        (changed.value.attr, changed.file.after) = (Some(attr), Some(attr));
        Ok(changed)
    }

    /// Returns what a published file looks like once its version is one that lasts.
    async fn lasting(&self, call: &Call, node: Node) -> Result<Attr> {
        for _ in 0..GROWTHS_AWAITED {
            if !is_of_this_tick(&node.facts) {
                break;
            }
            self.volume.sys.real_sleep(until_grown()).await;
        }
        self.volume.look_whenever(call, move |view| Ok(view.attr(&node))).await
    }
}

impl Volume {
    /// Adds bytes to a part: few of them here, unless that may wait for a network or another program.
    async fn put_piece(
        &self,
        mut part: tokio::sync::OwnedMutexGuard<StagedPart>,
        bytes: bytes::Bytes,
        stalls: bool,
    ) -> Result<tokio::sync::OwnedMutexGuard<StagedPart>> {
        let is_quick = !stalls && bytes.len() as u64 <= limits::STORE_INLINE_BYTES;
        let write = move || {
            let at = part.bytes;
            part.file.write_at(&bytes, at).map_err(Error::unplaced)?;
            part.hasher.update(&bytes);
            part.bytes += bytes.len() as u64;
            part.send_on_its_way();
            Ok(part)
        };
        if is_quick { write() } else { self.apart(self.sys_deadline(), write).await }
    }
}

fn shown(number: u32, part: &StagedPart) -> Part {
    Part { number, bytes: part.bytes, digest: *part.hasher.finalize().as_bytes() }
}

#[async_trait]
impl Stage for ExportStage {
    fn id(&self) -> StageId {
        self.id
    }

    async fn put(&self, call: &Call, number: u32, offset: u64, data: &mut dyn Source) -> Result<Part> {
        self.put(call, number, offset, data).await.map_err(|e| e.op("stage"))
    }

    async fn parts(&self, call: &Call, from: u32) -> Result<PartPage> {
        let staging = self.may_go_on(call).await.map_err(|e| e.op("list parts"))?;
        let (mut parts, mut next) = (Vec::new(), None);
        for (number, part) in staging.parts(from) {
            if parts.len() == limits::PAGE_ENTRIES_MAX as usize {
                next = Some(number);
                break;
            }
            let part = self.volume.sys.within(call.until, async { Ok(part.lock().await) }).await?;
            parts.push(shown(number, &part));
        }
        Ok(PartPage { parts, next })
    }

    async fn publish(
        &self,
        call: &Call,
        parts: &[Part],
        set: &SetAttr,
        guard: &Guard,
    ) -> Result<Changed<Entry>> {
        let request = ("publish", self.id, parts, set, guard);
        let (own, again) = (Self { volume: self.volume.clone(), id: self.id }, call.clone());
        let (parts, set, guard) = (parts.to_vec(), set.clone(), *guard);
        let act = async move { own.publish(&again, &parts, &set, &guard).await };
        self.volume.once(call, &request, act).await.map_err(|e| e.op("publish"))
    }

    async fn discard(&self, call: &Call) -> Result<()> {
        let discard = async {
            let staging = self.staging()?;
            self.volume.look(call, move |view| view.may_discard(&staging)).await?;
            let staging = self.volume.stages.end(self.id);
            drop(self.volume.sys.blocking(move || drop(staging)));
            Ok(())
        };
        discard.await.map_err(|e: Error| e.op("discard"))
    }
}
