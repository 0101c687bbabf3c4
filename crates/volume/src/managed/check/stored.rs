//! The store against the tables: every object that a file refers to is there, as long
//! as it should be, with its container's label.

use std::sync::Arc;

use weft_core::proof::Objects;
use weft_core::service::{ObjectStat, Severity};
use weft_core::{ContainerId, ErrorKind, ObjectId, Result, Rights};
use weft_kv::SpaceSnapshot;

use super::super::Volume;
use super::super::bytes::used_of;
use super::super::table::inodes::{self, Inode, Layout};
use super::super::table::stages::{self, PartBytes};
use super::super::table::unnamed;
use super::rows::put_inode;
use super::{Fix, Found};

/// Files whose objects are looked at between two looks at the tables.
const BATCH: usize = 1_000;

impl Volume {
    pub(super) async fn check_objects(
        self: &Arc<Self>,
        snapshot: &SpaceSnapshot,
        found: &mut Found,
    ) -> Result<()> {
        let mut after = None;
        loop {
            let mut batch = Vec::new();
            for row in inodes::after(snapshot, after).take(BATCH) {
                let (serial, inode) = row?;
                after = Some(serial);
                batch.push((serial, inode));
            }
            if batch.is_empty() {
                break;
            }
            for (serial, inode) in batch {
                self.check_object(snapshot, serial, &inode, found).await?;
            }
        }
        self.check_parts(snapshot, found).await
    }

    /// Returns what the store knows of an object, by its label or by one it may have
    /// got since. `Corrupt` if it has the object and cannot open it: that is its own to say.
    async fn stat(
        &self,
        snapshot: &SpaceSnapshot,
        object: ObjectId,
        labels: [ContainerId; 2],
    ) -> Result<Option<(ObjectStat, ContainerId)>> {
        for label in labels {
            let granted = self.upkeep(snapshot, label, Objects::Only(vec![object]), Rights::READ)?;
            match self.store.stat(&granted, object).await {
                Ok(stat) => return Ok(Some((stat, label))),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn check_object(
        &self,
        snapshot: &SpaceSnapshot,
        serial: u64,
        inode: &Inode,
        found: &mut Found,
    ) -> Result<()> {
        let Layout::Whole { object, label } = inode.layout else { return Ok(()) };
        found.report.objects += 1;
        let mut right = inode.clone();
        let there = match self.stat(snapshot, object, [label, inode.container]).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            there => there?,
        };
        if self.is_another_by_now(snapshot, serial, inode)? {
            return Ok(());
        }
        let Some((stat, carried)) = there else {
            right.layout = Layout::Inline;
            right.layout_serial += 1;
            (right.size, right.used) = (0, 0);
            let fix = put_inode(serial, &right)?;
            let detail = format!("{object} of inode {serial:x} is not there");
            found.lost("object", detail, "the file is emptied", [fix]);
            return Ok(());
        };
        right.layout = Layout::Whole { object, label: carried };
        if !unnamed::WRITING.has(snapshot, serial)? {
            (right.size, right.used) = (stat.size, used_of(&stat));
        }
        if stat.size != right.size || right.layout != inode.layout || right.size != inode.size {
            let severity = if stat.size < inode.size { Severity::Loss } else { Severity::Repairable };
            let fix = put_inode(serial, &right)?;
            let detail = format!(
                "{object} of inode {serial:x} has {} bytes under {carried}; {} under {label} are expected",
                stat.size, inode.size
            );
            found.add(severity, "object", detail, "the inode follows the object", [fix]);
        }
        Ok(())
    }

    /// Returns whether a file was changed since the tables were looked at: the store, which was
    /// asked later, answered for another state of it. Only in a node that runs.
    fn is_another_by_now(&self, then: &SpaceSnapshot, serial: u64, inode: &Inode) -> Result<bool> {
        let now = self.space.snapshot()?;
        let is_written = |read: &SpaceSnapshot| unnamed::WRITING.has(read, serial);
        Ok(inodes::find(&now, serial)?.as_ref() != Some(inode) || is_written(&now)? != is_written(then)?)
    }

    async fn check_parts(&self, snapshot: &SpaceSnapshot, found: &mut Found) -> Result<()> {
        let staged: Vec<_> = stages::all(snapshot, None).collect::<Result<_>>()?;
        for (id, row) in staged {
            let parts: Vec<_> = stages::parts(snapshot, id, 0).collect::<Result<_>>()?;
            for (number, part) in parts {
                // What was not flushed counts for nothing after a crash anyway.
                let PartBytes::Object { object, unsynced: None } = part.held else { continue };
                found.report.objects += 1;
                let stat = match self.stat(snapshot, object, [row.container; 2]).await {
                    Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                    stat => stat?,
                };
                // Published or put again meanwhile, it is where it was no more.
                let still = stages::part(&self.space.snapshot()?, id, number)?.as_ref() == Some(&part);
                if still && stat.is_none_or(|(stat, _)| stat.size < part.bytes) {
                    let key = stages::part_key(id, number).to_vec();
                    let detail = format!("{object} of part {number} of stage {id} is cut or not there");
                    found.lost("part of a stage", detail, "the part is dropped", [Fix::Delete(key)]);
                }
            }
        }
        Ok(())
    }
}
