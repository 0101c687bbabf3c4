//! Inodes: their names counted, their directories counted, their bytes measured.

use weft_core::attr::Kind;
use weft_core::{ContainerId, FileId, Result};

use super::super::table::containers;
use super::super::table::entries;
use super::super::table::inodes::{self, Inode, Layout};
use super::super::table::key::{Fields, Key, Table};
use super::super::table::unnamed;
use super::rows::put_inode;
use super::{Checker, Fix, delete, shown};

/// What a directory's names come to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    entries: i64,
    directories: i64,
}

impl Checker<'_> {
    pub(super) fn inodes(&mut self) -> Result<()> {
        let mut inodes_there = 0;
        let rows: Box<dyn Iterator<Item = Result<(u64, Inode)>>> = Box::new(inodes::all(self.read));
        for row in rows {
            let (serial, inode) = row?;
            inodes_there += 1;
            self.saw_number(serial);
            *self.used.entry(inode.container).or_default() += inode.used;
            self.inode(serial, &inode)?;
            if self.found.is_full() {
                break;
            }
        }
        self.found.report.inodes = inodes_there;
        let says = inodes::count(self.read)?;
        if says != inodes_there {
            let fix = Fix::Bump(Key::of(Table::Files).to_vec(), inodes_there as i64 - says as i64);
            self.found.mendable(
                "counter of files",
                format!("it says {says}, there are {inodes_there}"),
                "corrected",
                [fix],
            );
        }
        Ok(())
    }

    fn inode(&mut self, serial: u64, inode: &Inode) -> Result<()> {
        let mut right = inode.clone();
        self.check_names(serial, inode, &mut right)?;
        if containers::find_head(self.read, inode.container)?.is_none()
            && containers::rules(self.read, inode.container).is_err()
        {
            right.container = self.container_above(serial, inode)?;
        }
        if inode.is_directory() {
            self.check_tally(serial)?;
        }
        if inode.kind == Kind::File {
            self.check_inline(serial, inode, &mut right)?;
        }
        let has_target = matches!(inode.kind, Kind::Symlink | Kind::Reference);
        if has_target && inodes::target(self.read, serial).is_err() {
            self.remove_with_names(serial, inode)?;
            return Ok(());
        }
        if right != *inode {
            let fix = put_inode(serial, &right)?;
            let detail = format!("inode {serial:x} does not fit what belongs to it");
            self.found.mendable("inode", detail, "corrected", [fix]);
        }
        Ok(())
    }

    fn check_names(&mut self, serial: u64, inode: &Inode, right: &mut Inode) -> Result<()> {
        if serial == FileId::ROOT.serial() {
            right.links = 1;
            right.parent = serial;
            return Ok(());
        }
        let mut names = 0;
        let mut parent = 0;
        for back in entries::names_of(self.read, serial) {
            parent = back?.parent;
            names += 1;
        }
        if names > 0 {
            right.links = if inode.is_directory() { 1 } else { names };
            right.parent = if inode.is_directory() { parent } else { 0 };
            return Ok(());
        }
        let orphan = unnamed::ORPHANS.has(self.read, serial)?;
        match (inode.links, orphan) {
            (0, true) => {}
            (0, false) => {
                let fix = unnamed::ORPHANS.row(serial)?;
                let detail = format!("inode {serial:x} has no names and no mark");
                self.found.mendable("orphan", detail, "marked, for the sweep", [Fix::Put(fix.0, fix.1)]);
            }
            _ => self.found_again(serial, inode.kind, inode.generation)?,
        }
        Ok(())
    }

    /// Returns the container that governs the place that an inode is in.
    fn container_above(&self, serial: u64, inode: &Inode) -> Result<ContainerId> {
        let parent = match entries::name_of(self.read, serial)? {
            Some(back) => back.parent,
            None => FileId::ROOT.serial(),
        };
        let above = inodes::find(self.read, parent)?.filter(|_| parent != serial);
        Ok(above.map_or(inode.container, |above| above.container))
    }

    fn check_tally(&mut self, dir: u64) -> Result<()> {
        let count = self.count(dir)?;
        if !inodes::has_times(self.read, dir) {
            let (key, value) = inodes::times_row(dir, self.now)?;
            self.found.mendable(
                "directory times",
                format!("of {dir:x}: not there"),
                "set to now",
                [Fix::Put(key, value)],
            );
            return Ok(());
        }
        let tally = inodes::tally(self.read, dir)?;
        let says = Count { entries: tally.entries as i64, directories: i64::from(tally.directories) };
        if says != count {
            let detail = format!(
                "of {dir:x}: {} entries, {} of them directories; there are {} and {}",
                says.entries, says.directories, count.entries, count.directories
            );
            let (entries, directories) = inodes::raw_counts(self.read, dir)?;
            let (entries, directories) = (count.entries - entries, count.directories - directories);
            let fixes =
                inodes::tally_bumps(dir, entries, directories).map(|(key, delta)| Fix::Bump(key, delta));
            self.found.mendable("directory counts", detail, "corrected", fixes);
        }
        Ok(())
    }

    fn count(&self, dir: u64) -> Result<Count> {
        let mut count = Count::default();
        for entry in entries::after_name(self.read, dir, None) {
            let (_, link) = entry?;
            count.entries += 1;
            count.directories += i64::from(link.kind == Kind::Directory);
        }
        Ok(count)
    }

    fn check_inline(&mut self, serial: u64, inode: &Inode, right: &mut Inode) -> Result<()> {
        let bytes = inodes::inline(self.read, serial)?;
        match inode.layout {
            Layout::Inline if bytes.is_empty() && inode.used > 0 => {
                let mut empty = inode.clone();
                (empty.size, empty.used) = (0, 0);
                empty.layout_serial += 1;
                empty.changed(self.now);
                let detail = format!("of {serial:x}: not there");
                let fix = put_inode(serial, &empty)?;
                self.found.lost("inline bytes", detail, "the file is emptied", [fix]);
                // Nothing else is said of it in this round.
                *right = inode.clone();
            }
            Layout::Inline => {
                right.used = bytes.len() as u64;
                right.size = right.size.max(right.used);
            }
            Layout::Whole { .. } if !bytes.is_empty() => {
                let fix = delete(&Key::of(Table::Inline).u64(serial));
                self.found.mendable(
                    "inline bytes",
                    format!("of {serial:x}: it has an object"),
                    "removed",
                    [fix],
                );
            }
            Layout::Whole { .. } => {}
        }
        Ok(())
    }

    fn remove_with_names(&mut self, serial: u64, inode: &Inode) -> Result<()> {
        let mut fixes = vec![delete(&Key::of(Table::Inode).u64(serial))];
        for back in entries::names_of(self.read, serial) {
            let back = back?;
            if let Some(link) = entries::find(self.read, back.parent, &back.name)? {
                fixes.extend(entries::keys(back.parent, &back.name, &link).map(|key| delete(&key)));
            }
        }
        let detail = format!("of {serial:x} ({:?}): not there", inode.kind);
        self.found.lost("link target", detail, "the link is removed", fixes);
        Ok(())
    }

    /// Rows that hang on an inode which is not there, or not of that kind.
    pub(super) fn beside_inodes(&mut self) -> Result<()> {
        for (table, kinds) in [
            (Table::Tally, &[Kind::Directory][..]),
            (Table::Inline, &[Kind::File]),
            (Table::Target, &[Kind::Symlink, Kind::Reference]),
            (Table::Tag, &[Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Reference]),
        ] {
            let mut extra = Vec::new();
            let mut last = None;
            for row in self.rows(table) {
                let (key, _) = row?;
                let serial = Fields::of(&key).u64().unwrap_or_default();
                let fits = match last {
                    Some((same, fits)) if same == serial => fits,
                    _ => inodes::find(self.read, serial)?.is_some_and(|inode| kinds.contains(&inode.kind)),
                };
                last = Some((serial, fits));
                if !fits {
                    extra.push(key);
                }
                if extra.len() > super::FINDINGS_MAX {
                    break;
                }
            }
            for key in extra {
                let detail = format!("row {} belongs to nothing", shown(&key));
                self.found.mendable(table.what(), detail, "removed", [delete(&key)]);
            }
        }
        Ok(())
    }
}
