//! Containers, stages, marks, kept answers and numbers.

use std::collections::HashSet;

use weft_core::attr::Kind;
use weft_core::{ContainerId, FileId, Result};

use super::super::table::containers;
use super::super::table::inodes::{self, Layout};
use super::super::table::key::{Fields, Key, Table};
use super::super::table::stages::{self, PartBytes};
use super::super::table::{once, splits, unnamed, volume};
use super::rows::put_row;
use super::{Checker, Fix, delete, shown};

impl Checker<'_> {
    pub(super) fn containers(&mut self) -> Result<()> {
        for stage in stages::all(self.read, None) {
            let (id, row) = stage?;
            *self.used.entry(row.container).or_default() += stages::bytes(self.read, id)?;
        }
        let mut known: HashSet<ContainerId> = self.used.keys().copied().collect();
        for table in [Table::Head, Table::Policy] {
            for row in self.rows(table) {
                known.insert(ContainerId(Fields::of(&row?.0).u64().unwrap_or_default()));
            }
        }
        let mut known: Vec<ContainerId> = known.into_iter().collect();
        known.sort_unstable();
        for id in known {
            self.saw_number(id.0 & FileId::SERIAL_MAX);
            self.container(id)?;
        }
        for row in self.rows(Table::DropBox).collect::<Vec<_>>() {
            let (key, _) = row?;
            let id = ContainerId(Fields::of(&key).u64().unwrap_or_default());
            if containers::find_head(self.read, id)?.is_none() {
                let detail = format!("of {id}: there is no such container");
                self.found.mendable("drop-box", detail, "removed", [delete(&key)]);
            }
        }
        for row in self.rows(Table::Used).collect::<Vec<_>>() {
            let (key, _) = row?;
            let id = ContainerId(Fields::of(&key).u64().unwrap_or_default());
            if containers::find_head(self.read, id)?.is_none() {
                let detail = format!("of {id}: there is no such container");
                self.found.mendable("bytes used", detail, "removed", [delete(&key)]);
            }
        }
        Ok(())
    }

    fn container(&mut self, id: ContainerId) -> Result<()> {
        let head = containers::find_head(self.read, id)?;
        let rules = containers::find_rules(self.read, id)?;
        let members = self.used.contains_key(&id);
        match (head, rules) {
            (None, Some(_)) if !members => {
                let fix = delete(&Key::of(Table::Policy).u64(id.0));
                self.found.mendable(
                    "container policy",
                    format!("of {id}: there is no such container"),
                    "removed",
                    [fix],
                );
            }
            (None, Some(_)) => {
                let fix = self.new_head(id)?;
                self.found.mendable(
                    "container",
                    format!("{id} is not there"),
                    "made again, a new epoch is begun",
                    [fix],
                );
            }
            (Some(_), None) if !members => {
                let fix = delete(&Key::of(Table::Head).u64(id.0));
                self.found.mendable(
                    "container",
                    format!("{id} has no policy and no members"),
                    "removed",
                    [fix],
                );
            }
            (Some(_), None) => {
                let fix = self.closed_policy(id)?;
                self.found.lost(
                    "container policy",
                    format!("of {id}: not there"),
                    "left to the administrators alone",
                    [fix],
                );
            }
            (Some(head), Some(_)) => {
                let says = containers::used(self.read, id)?;
                let is = self.used.get(&id).copied().unwrap_or(0);
                if says != is {
                    let raw = inodes::count_at(self.read, &Key::of(Table::Used).u64(id.0))?;
                    let fix = Fix::Bump(Key::of(Table::Used).u64(id.0).to_vec(), is as i64 - raw);
                    self.found.mendable(
                        "bytes used",
                        format!("of {id}: {says}, its files and stages take {is}"),
                        "corrected",
                        [fix],
                    );
                }
                let leaving = !splits::out_of(self.read, id)?.is_empty();
                if leaving != head.leaving {
                    let head = containers::Head { leaving, serial: head.serial + 1, ..head };
                    let fix = put_row(Key::of(Table::Head).u64(id.0), &head)?;
                    self.found.mendable(
                        "container",
                        format!("{id}: a split is under way, or not"),
                        "corrected",
                        [fix],
                    );
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    pub(super) fn stages(&mut self) -> Result<()> {
        for row in self.rows(Table::StageAt).collect::<Vec<_>>() {
            let (key, _) = row?;
            let id = stages::id_of_mark(&key);
            let row = id.map(|id| stages::find(self.read, id)).transpose()?.flatten();
            let right = row.zip(id).is_some_and(|(row, id)| *stages::mark_key(&row, id) == key[..]);
            if !right {
                let detail = format!("row {} leads to no stage", shown(&key));
                self.found.mendable("stage by directory", detail, "removed", [delete(&key)]);
            }
        }
        for stage in stages::all(self.read, None).collect::<Vec<_>>() {
            let (id, row) = stage?;
            if self.read.get(&stages::mark_key(&row, id))?.is_none() {
                let (key, value) = stages::mark_row(&row, id)?;
                self.found.mendable(
                    "stage by directory",
                    format!("of {id}: not there"),
                    "made again",
                    [Fix::Put(key, value)],
                );
            }
        }
        for row in self.rows(Table::Part).collect::<Vec<_>>() {
            let (key, _) = row?;
            let id = Fields::of(&key).u128().map(weft_core::StageId);
            if id.map(|id| stages::find(self.read, id)).transpose()?.flatten().is_none() {
                let detail = format!("row {} is of no stage", shown(&key));
                // Its object, if it had one, is for the sweep, which finds it unreferenced.
                self.found.mendable("part of a stage", detail, "removed", [delete(&key)]);
            }
        }
        Ok(())
    }

    pub(super) fn marks(&mut self) -> Result<()> {
        for (table, what) in
            [(Table::Orphan, "orphan"), (Table::Relabel, "label"), (Table::Writing, "written file")]
        {
            for row in self.rows(table).collect::<Vec<_>>() {
                let (key, _) = row?;
                let serial = Fields::of(&key).u64().unwrap_or_default();
                let inode = inodes::find(self.read, serial)?;
                let right = inode.is_some_and(|inode| match table {
                    Table::Orphan => inode.links == 0,
                    // It may have been emptied since, and is settled later all the same.
                    Table::Writing => inode.kind == Kind::File,
                    _ => matches!(inode.layout, Layout::Whole { .. }),
                });
                if !right {
                    self.found.mendable(
                        what,
                        format!("{serial:x} is no such inode"),
                        "the mark is removed",
                        [delete(&key)],
                    );
                }
            }
        }
        self.split_queue()?;
        self.labels()?;
        self.garbage()
    }

    /// Every place in a split's queue is of a split under way.
    fn split_queue(&mut self) -> Result<()> {
        let under_way: HashSet<u64> = splits::all(self.read)?.iter().map(|(_, split)| split.into.0).collect();
        for row in self.rows(Table::SplitQueue).collect::<Vec<_>>() {
            let (key, _) = row?;
            if !under_way.contains(&Fields::of(&key).u64().unwrap_or_default()) {
                let detail = format!("row {} is of no split", shown(&key));
                self.found.mendable("split queue", detail, "removed", [delete(&key)]);
            }
        }
        for (from, split) in splits::all(self.read)? {
            let gone = inodes::find(self.read, split.root)?.is_none();
            // A head alone is made again.
            let nowhere = containers::find_rules(self.read, split.into)?.is_none();
            if gone || nowhere {
                let fix = delete(&Key::of(Table::Split).u64(from.0).u64(split.into.0));
                self.found.mendable("split", format!("out of {from}: it leads nowhere"), "removed", [fix]);
            }
        }
        Ok(())
    }

    /// Every object whose label lags behind has a mark.
    fn labels(&mut self) -> Result<()> {
        let mut lacking = Vec::new();
        for row in inodes::all(self.read) {
            let (serial, inode) = row?;
            if let Layout::Whole { label, .. } = inode.layout
                && label != inode.container
                && !unnamed::RELABELS.has(self.read, serial)?
            {
                lacking.push(serial);
            }
        }
        for serial in lacking {
            let (key, value) = unnamed::RELABELS.row(serial)?;
            self.found.mendable(
                "label",
                format!("{serial:x} has another container's"),
                "marked",
                [Fix::Put(key, value)],
            );
        }
        Ok(())
    }

    /// Nothing that is referred to is to be removed.
    fn garbage(&mut self) -> Result<()> {
        let mut garbage = HashSet::new();
        for row in self.rows(Table::Garbage) {
            garbage.extend(Fields::of(&row?.0).u128());
        }
        if garbage.is_empty() {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for row in inodes::all(self.read) {
            if let Layout::Whole { object, .. } = row?.1.layout
                && garbage.contains(&object.0)
            {
                wanted.push(object);
            }
        }
        for stage in stages::all(self.read, None) {
            for part in stages::parts(self.read, stage?.0, 0) {
                if let PartBytes::Object { object, .. } = part?.1.held
                    && garbage.contains(&object.0)
                {
                    wanted.push(object);
                }
            }
        }
        for object in wanted {
            let fix = delete(&Key::of(Table::Garbage).u128(object.0));
            self.found.mendable("object to remove", format!("{object} is in use"), "kept", [fix]);
        }
        Ok(())
    }

    /// Kept answers: each in a place of its session's ring, each place with its answer.
    pub(super) fn replays(&mut self) -> Result<()> {
        for (key, what) in once::odd_rows(self.read)? {
            self.found.mendable(
                what,
                format!("row {} has no counterpart", shown(&key)),
                "removed",
                [delete(&key)],
            );
        }
        Ok(())
    }

    /// No number that was given may be given again. Where the counter is not what it was, nobody
    /// knows which were: files that are gone had some above all that are in use, and clients still
    /// hold their ids. So a step is made as after a restore.
    pub(super) fn numbers(&mut self) -> Result<()> {
        // A counter below zero is none.
        let leased = volume::leased(self.read).unwrap_or(0);
        if leased > self.number {
            return Ok(());
        }
        let detail = format!("{} is in use and {leased} would be given next", self.number);
        let what = Table::Numbers.what();
        // Its row was mended before anything else was looked at.
        let Some(row) = volume::find(self.read)? else { return Ok(()) };
        let Ok((row, end)) = self.step.from(row, self.number + 1) else {
            self.found.lost(what, detail, "restore a backup: there are no more numbers", []);
            return Ok(());
        };
        let raw = inodes::count_at(self.read, &Key::of(Table::Numbers)).unwrap_or(0);
        let on = Fix::Bump(Key::of(Table::Numbers).to_vec(), end as i64 - raw);
        let generation = put_row(Key::of(Table::Volume), &row)?;
        let repair = "moved far on, as after a restore: what is gone had numbers too";
        self.found.mendable(what, detail, repair, [on, generation]);
        Ok(())
    }
}
