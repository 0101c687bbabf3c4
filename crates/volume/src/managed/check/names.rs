//! Names: three rows each, of which two outvote the third.

use std::collections::BTreeSet;

use weft_core::attr::Kind;
use weft_core::{FileId, Name, Result};

use super::super::table::entries::{self, BackLink, Link};
use super::super::table::inodes;
use super::super::table::key::{Key, Table};
use super::{Checker, Fix, delete};

/// What becomes of an inode whose row is gone.
pub(super) const REBUILT: &str =
    "its kind, names and few bytes are kept; attributes, and the bytes of a larger file, are not";

impl Checker<'_> {
    /// Inodes that names lead to or lie in and that are not there: those that can be
    /// told from their names are made again first, so that what they hold keeps its place.
    pub(super) fn missing_inodes(&mut self) -> Result<()> {
        let root = FileId::ROOT.serial();
        let mut missing = BTreeSet::new();
        if inodes::find(self.read, root)?.is_none() {
            missing.insert(root);
        }
        for row in entries::all(self.read) {
            let (dir, _, link) = row?;
            for serial in [dir, link.inode] {
                if inodes::find(self.read, serial)?.is_none() {
                    missing.insert(serial);
                }
            }
            if missing.len() > super::FINDINGS_MAX {
                break;
            }
        }
        for serial in missing {
            if let Some(inode) = self.rebuilt(serial)? {
                let detail = format!("inode {serial:x} is not there");
                let fix = super::rows::put_inode(serial, &inode)?;
                self.found.lost("inode", detail, REBUILT, [fix]);
            }
        }
        Ok(())
    }

    pub(super) fn names(&mut self) -> Result<()> {
        let by_name: Vec<_> = self.odd_entries()?;
        for (dir, name, link) in by_name {
            self.odd_entry(dir, &name, &link)?;
        }
        for (dir, name, link) in self.odd_listed()? {
            self.odd_cookie(dir, &name, &link)?;
        }
        for (inode, back) in self.odd_back_links()? {
            self.odd_back_link(inode, &back);
        }
        Ok(())
    }

    /// Entries by name that something else does not agree with.
    fn odd_entries(&mut self) -> Result<Vec<(u64, Name, Link)>> {
        let mut odd = Vec::new();
        let mut largest = 0;
        for row in entries::all(self.read) {
            let (dir, name, link) = row?;
            largest = largest.max(link.cookie);
            if !self.entry_is_right(dir, &name, &link)? {
                odd.push((dir, name, link));
            }
            if odd.len() > super::FINDINGS_MAX {
                break;
            }
        }
        self.saw_number(largest);
        Ok(odd)
    }

    fn entry_is_right(&self, dir: u64, name: &Name, link: &Link) -> Result<bool> {
        let above = inodes::find(self.read, dir)?.is_some_and(|inode| inode.is_directory());
        let below = inodes::find(self.read, link.inode)?
            .is_some_and(|inode| inode.kind == link.kind && inode.generation == link.generation);
        Ok(above
            && below
            && entries::listed(self.read, dir, link.cookie)?.is_some_and(|(n, l)| n == *name && l == *link)
            && entries::back_name(self.read, link.inode, dir, link.cookie)?.is_some_and(|n| n == *name))
    }

    fn odd_entry(&mut self, dir: u64, name: &Name, link: &Link) -> Result<()> {
        let place = format!("`{name}` in {dir:x}");
        let all = || entries::keys(dir, name, link).map(|key| delete(&key));
        if !inodes::find(self.read, dir)?.is_some_and(|inode| inode.is_directory()) {
            self.found.mendable("entry", format!("{place}: the directory is not there"), "removed", all());
            return Ok(());
        }
        let Some(inode) = inodes::find(self.read, link.inode)? else {
            self.found.lost("entry", format!("{place}: what it leads to is not there"), "removed", all());
            return Ok(());
        };
        if (inode.kind, inode.generation) != (link.kind, link.generation) {
            let right = Link { kind: inode.kind, generation: inode.generation, ..*link };
            let fixes = entries::rows(dir, name, &right)?.map(|(key, value)| Fix::Put(key, value));
            self.found.mendable("entry", format!("{place}: it says another kind"), "corrected", fixes);
            return Ok(());
        }
        let listed =
            entries::listed(self.read, dir, link.cookie)?.is_some_and(|(n, l)| n == *name && l == *link);
        let back = entries::back_name(self.read, link.inode, dir, link.cookie)?.is_some_and(|n| n == *name);
        if !listed && !back {
            self.found.mendable(
                "entry",
                format!("{place}: nothing else knows of it"),
                "removed",
                [delete(&Key::of(Table::Entry).u64(dir).bytes(name.as_bytes()))],
            );
            return Ok(());
        }
        let what = if listed { "back link" } else { "entry by cookie" };
        let fixes = entries::rows(dir, name, link)?.map(|(key, value)| Fix::Put(key, value));
        self.found.mendable(what, format!("{place}: it is not there, or another's"), "made again", fixes);
        Ok(())
    }

    /// Entries by cookie whose name leads elsewhere or nowhere.
    fn odd_listed(&self) -> Result<Vec<(u64, Name, Link)>> {
        let mut odd = Vec::new();
        for row in entries::all_listed(self.read) {
            let (dir, name, link) = row?;
            if entries::find(self.read, dir, &name)? != Some(link) {
                odd.push((dir, name, link));
            }
            if odd.len() > super::FINDINGS_MAX {
                break;
            }
        }
        Ok(odd)
    }

    fn odd_cookie(&mut self, dir: u64, name: &Name, link: &Link) -> Result<()> {
        let place = format!("`{name}` in {dir:x}");
        let back = entries::back_name(self.read, link.inode, dir, link.cookie)?.is_some_and(|n| n == *name);
        let free = entries::find(self.read, dir, name)?.is_none();
        let there = inodes::find(self.read, link.inode)?.is_some();
        if back && free && there {
            let fixes = entries::rows(dir, name, link)?.map(|(key, value)| Fix::Put(key, value));
            self.found.mendable("entry", format!("{place}: it is not there"), "made again", fixes);
        } else if free || !back {
            let fix = delete(&Key::of(Table::Cookie).u64(dir).u64(link.cookie));
            self.found.mendable(
                "entry by cookie",
                format!("{place}: there is no such name"),
                "removed",
                [fix],
            );
        }
        Ok(())
    }

    fn odd_back_links(&self) -> Result<Vec<(u64, BackLink)>> {
        let mut odd = Vec::new();
        for row in entries::all_back_links(self.read) {
            let (inode, back) = row?;
            let link = entries::find(self.read, back.parent, &back.name)?;
            let listed = entries::listed(self.read, back.parent, back.cookie)?;
            let known = |link: &Link| link.inode == inode && link.cookie == back.cookie;
            // Of a name that both others know, or that the cookie's row will restore.
            let right = link.as_ref().is_some_and(known)
                || listed.is_some_and(|(name, link)| name == back.name && known(&link));
            if !right {
                odd.push((inode, back));
            }
            if odd.len() > super::FINDINGS_MAX {
                break;
            }
        }
        Ok(odd)
    }

    fn odd_back_link(&mut self, inode: u64, back: &BackLink) {
        let fix = delete(&Key::of(Table::BackLink).u64(inode).u64(back.parent).u64(back.cookie));
        let detail = format!("`{}` of {inode:x} in {:x}: there is no such name", back.name, back.parent);
        self.found.mendable("back link", detail, "removed", [fix]);
    }

    /// Gives an inode that has lost all its names one in the root.
    pub(super) fn found_again(&mut self, serial: u64, kind: Kind, generation: u32) -> Result<()> {
        let name = Name::try_from(format!("lost-{serial:x}").as_str())?;
        self.number += 1;
        let cookie = self.number.max(super::super::table::volume::leased(self.read)?) + serial;
        let link = Link { inode: serial, generation, kind, cookie };
        let fixes =
            entries::rows(FileId::ROOT.serial(), &name, &link)?.map(|(key, value)| Fix::Put(key, value));
        let detail = format!("inode {serial:x} has no name left");
        self.found.mendable("inode", detail, "found again in the root", fixes);
        Ok(())
    }
}
