//! What a look at the volume tells of stages: who may begin, go on with, publish or drop one, and
//! how many bytes may come.

use weft_core::acl::Circumstance;
use weft_core::form::{At, Part, StageEntry, StagePage};
use weft_core::{ContainerId, Error, ErrorKind, Result, Rights, StageId, limits};

use super::no_stage;
use super::put::Putting;
use crate::managed::attributes::must_have_bytes;
use crate::managed::drop_box::full;
use crate::managed::locate::{Spot, not_directory};
use crate::managed::names::check_size;
use crate::managed::source::no_room;
use crate::managed::table::stages::{self, PartRow, StageRow};
use crate::managed::table::{containers, entries};
use crate::managed::view::View;

impl View<'_> {
    /// Publishing needs `write` on what is there, or else `insert`.
    pub(super) fn may_publish(&self, spot: &Spot) -> Result<()> {
        let (node, right) = spot.published_by();
        self.need(node, right)?;
        let Some((node, _)) = &spot.held else { return Ok(()) };
        match self.joined(node)? {
            Some(_) => Err(Error::new(ErrorKind::IsDirectory, "it is a share")),
            None => must_have_bytes(node),
        }
    }

    /// Says what a new stage for a name is to be.
    pub(super) fn to_stage(&self, id: StageId, target: &At, length: u64) -> Result<StageRow> {
        check_size(length)?;
        let dropped = self.drop_spot(target, id)?;
        let drops = dropped.is_some();
        let spot = match dropped {
            Some(spot) => {
                self.takes_a_file(&spot.dir)?;
                self.could_take(&spot.dir, length)?;
                spot
            }
            None => self.spot(target)?,
        };
        self.may_publish(&spot)?;
        let (container, frees) = self.published_into(&spot)?;
        // Of a drop only whether there is any room: a length that is announced costs nothing, and would
        // measure what is left.
        let more = if drops { length.min(1) } else { length.saturating_sub(frees) };
        let room = self.room(container, more);
        room.map_err(|error| if drops { full(error) } else { error })?;
        Ok(StageRow {
            caller: self.call.caller.name().id(),
            dir: spot.dir.serial(),
            generation: spot.dir.inode.generation,
            name: spot.name,
            begun: self.volume.sys.clock().now(),
            container,
            joined: None,
        })
    }

    /// Finds a stage that the caller may still publish, and where.
    pub(super) fn may_go_on(&self, id: StageId) -> Result<(StageRow, Spot)> {
        let row = self.staged_of(id)?;
        let spot = self.may_go_on_with(&row)?;
        Ok((row, spot))
    }

    /// Returns where the caller may still publish a stage.
    pub(super) fn may_go_on_with(&self, row: &StageRow) -> Result<Spot> {
        self.must_own(row)?;
        let spot = self.target_of(row)?;
        self.may_publish(&spot)?;
        Ok(spot)
    }

    /// Checks that a stage is the caller's own, and of this age. Those who proved nothing are not
    /// one caller: each finds what it has the id of.
    pub(super) fn must_own(&self, row: &StageRow) -> Result<()> {
        let own = row.caller == self.call.caller.name().id();
        if own && !row.is_over(self.volume.sys.clock().now()) { Ok(()) } else { Err(no_stage()) }
    }

    /// Checks that the caller may drop a stage of its own. What the ACL gave for it may be gone,
    /// but the credential must carry what it takes, here.
    pub(super) fn may_discard(&self, row: &StageRow) -> Result<()> {
        let caller = &self.call.caller;
        let mut carried = caller.rights_at(&Circumstance { now: self.now, peer: self.call.from.peer });
        if caller.is_confined() {
            let spot = self.target_of(row)?;
            carried = carried & self.within_paths(spot.published_by().0)?;
        }
        if carried.intersects(Rights::INSERT | Rights::WRITE) {
            return Ok(());
        }
        Err(Error::denied("the credential does not reach what is staged there").caller(caller.name()))
    }

    /// Returns the container that what is published at a spot is governed by, and the
    /// bytes that it frees there.
    pub(super) fn published_into(&self, spot: &Spot) -> Result<(ContainerId, u64)> {
        match &spot.held {
            Some((node, _)) => Ok((node.inode.container, node.inode.used)),
            None => Ok((self.home(&spot.dir)?, 0)),
        }
    }

    /// Finds a stage of the caller's own; anyone else's is not there.
    pub(super) fn staged_of(&self, id: StageId) -> Result<StageRow> {
        let row = stages::find(self.read, id)?.ok_or_else(no_stage).map_err(|e| e.about(id))?;
        self.must_own(&row).map_err(|e| e.about(id))?;
        Ok(row)
    }

    /// Returns the name that a stage is meant for as it is now.
    pub(super) fn target_of(&self, row: &StageRow) -> Result<Spot> {
        let dir = self.node(weft_core::FileId::new(self.volume.id, row.dir, row.generation))?;
        let link = entries::find(self.read, row.dir, &row.name)?;
        let node = link.map(|link| self.node_at(link.inode)).transpose()?;
        Ok(Spot { dir, name: row.name.clone(), held: node.zip(link) })
    }

    /// Returns the name that a stage is meant for, whosever it is: for records only.
    pub(in crate::managed) fn meant_for(&self, id: StageId) -> Result<Option<At>> {
        let row = stages::find(self.read, id)?;
        let dir = |row: &StageRow| weft_core::FileId::new(self.volume.id, row.dir, row.generation);
        Ok(row.map(|row| At::name(dir(&row), row.name)))
    }

    /// Returns a part as it can still be relied on: unflushed bytes of an earlier boot
    /// may be lost.
    pub(super) fn part(&self, id: StageId, number: u32) -> Result<Option<PartRow>> {
        let part = stages::part(self.read, id, number)?;
        Ok(part.filter(|part| self.volume.is_held(part)))
    }

    pub(super) fn parts_of(&self, id: StageId, from: u32) -> impl Iterator<Item = Result<(u32, PartRow)>> {
        stages::parts(self.read, id, from)
            .filter(|part| part.as_ref().map_or(true, |(_, part)| self.volume.is_held(part)))
    }

    /// Fails with `Conflict` if a part that is asked for, all if none is named, was put and may be
    /// lost by now. A file that lacks it would be another.
    pub(super) fn must_be_held(&self, id: StageId, asked: &[Part]) -> Result<()> {
        for part in stages::parts(self.read, id, 0) {
            let (number, part) = part?;
            let is_asked = asked.is_empty() || asked.iter().any(|asked| asked.number == number);
            if is_asked && !self.volume.is_held(&part) {
                let lost = "what was put may be lost since: put it again";
                return Err(Error::new(ErrorKind::Conflict, lost).about(format!("part {number}")));
            }
        }
        Ok(())
    }

    /// Returns how many bytes a part may have, as far as space is limited.
    pub(super) fn room_for_part(&self, id: StageId, row: &StageRow, number: u32) -> Result<u64> {
        let spot = self.target_of(row)?;
        let (container, frees) = self.published_into(&spot)?;
        let Some(max) = self.governing(container)?.rules.bytes_max else {
            return Ok(limits::FILE_BYTES_MAX);
        };
        let own = stages::part(self.read, id, number)?.map_or(0, |part| part.bytes);
        let mut taken = containers::used(self.read, container)?;
        if row.container == container {
            taken = taken.saturating_sub(own);
        } else {
            // What is staged is charged where the target was.
            taken = taken.saturating_add(stages::bytes(self.read, id)?.saturating_sub(own));
        }
        Ok(max.saturating_add(frees).saturating_sub(taken))
    }

    /// Checks, as the bytes of a part come, that the container they are charged to has
    /// room for all that is coming, and takes it now if it is a drop-box.
    pub(super) fn room_as_they_come(&self, id: StageId, putting: &Putting, coming: u64) -> Result<()> {
        let container = putting.row.container;
        let Some(max) = self.governing(container)?.rules.bytes_max else { return Ok(()) };
        let spot = self.target_of(&putting.row)?;
        if putting.drops {
            self.takes_bytes(&spot.dir, coming)?;
        }
        let (into, frees) = self.published_into(&spot)?;
        // Of a part that is begun again, or leaves its row for an object, what it had goes.
        let had = stages::part(self.read, id, putting.number)?.map_or(0, |part| part.bytes);
        let goes = if putting.goes_on_in_place() { 0 } else { had };
        let frees = if into == container { frees } else { 0 };
        let taken = containers::used(self.read, container)?.saturating_add(coming);
        if taken <= max.saturating_add(frees).saturating_add(goes) {
            return Ok(());
        }
        Err(no_room().about(container))
    }

    pub(in crate::managed) fn stages(&self, dir: &At, from: Option<StageId>) -> Result<StagePage> {
        let dir = self.existing(dir)?;
        self.need_any(&dir)?;
        if !dir.inode.is_directory() {
            return Err(not_directory());
        }
        if self.call.caller.is_anyone() {
            return Ok(StagePage { stages: Vec::new(), next: None });
        }
        let own = self.call.caller.name().id();
        let mut rest = stages::of_caller(self.read, dir.serial(), own, from);
        let (mut page, mut last) = (Vec::new(), None);
        for id in rest.by_ref().take(limits::PAGE_ENTRIES_MAX as usize) {
            let id = id?;
            // Whether it is shown or not: a page may be empty, and others follow.
            last = Some(id);
            let Ok((row, _)) = self.may_go_on(id) else { continue };
            let mut bytes = 0;
            for part in self.parts_of(id, 0) {
                bytes += part?.1.bytes;
            }
            page.push(StageEntry { id, name: row.name, begun: row.begun, bytes });
        }
        let more = rest.next().transpose()?.is_some();
        Ok(StagePage { stages: page, next: last.filter(|_| more) })
    }
}
