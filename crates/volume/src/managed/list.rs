//! Looking up and listing. A page reads as many rows as it returns, and one more.

use weft_core::form::{At, Cursor, Entry, Page, PageMax, Walked, Want};
use weft_core::{FileId, Name, Result, Rights};

use super::locate::not_directory;
use super::table::entries::{self, Link};
use super::table::inodes;
use super::view::{View, hidden};

impl View<'_> {
    pub(super) fn walk(&self, at: &At, want: Want) -> Result<Walked> {
        let place = self.locate(at)?;
        let node = place.node.ok_or_else(hidden)?;
        self.must_be_here(&node)?;
        let rights = self.rights(&node)?;
        if rights.is_empty() {
            return Err(self.refusal(&node, Rights::ALL));
        }
        Ok(Walked {
            attr: self.attr(&node)?,
            rights: want.rights.then_some(rights),
            parent: place.above.map(|(dir, _)| dir.id),
        })
    }

    pub(super) fn list(&self, at: &At, from: &Cursor, max: PageMax, want: Want) -> Result<Page> {
        let dir = self.existing(at)?;
        if !dir.inode.is_directory() {
            self.need_any(&dir)?;
            return Err(not_directory());
        }
        self.need(&dir, Rights::LIST)?;
        let serial = dir.serial();
        let (entries, more) = match from {
            Cursor::Start => self.page(entries::after_cookie(self.read, serial, 0), max, want)?,
            Cursor::Cookie(u64::MAX) => (Vec::new(), false),
            Cursor::Cookie(cookie) => {
                self.page(entries::after_cookie(self.read, serial, *cookie), max, want)?
            }
            Cursor::ByName => self.page(entries::after_name(self.read, serial, None), max, want)?,
            Cursor::After(name) => {
                self.page(entries::after_name(self.read, serial, Some(name)), max, want)?
            }
        };
        let next = entries.last().filter(|_| more).map(|last| match from {
            Cursor::Start | Cursor::Cookie(_) => Cursor::Cookie(last.cookie),
            Cursor::ByName | Cursor::After(_) => Cursor::After(last.name.clone()),
        });
        Ok(Page { entries, next, dir: self.attr(&dir)?, parent: self.parent(&dir)?.id })
    }

    fn page(
        &self,
        mut rows: impl Iterator<Item = Result<(Name, Link)>>,
        max: PageMax,
        want: Want,
    ) -> Result<(Vec<Entry>, bool)> {
        let mut page = Vec::new();
        let mut inodes = inodes::Sweep::over(self.read);
        for row in rows.by_ref().take(max.entries()) {
            let (name, link) = row?;
            let id = FileId::new(self.volume.id, link.inode, link.generation);
            let mut entry = Entry { name, id, kind: link.kind, cookie: link.cookie, attr: None };
            if want.attr {
                let inode = inodes.load(link.inode)?;
                let node = self.node_of(link.inode, inode);
                if self.has(&node, Rights::ATTR_READ)? {
                    entry.attr = Some(self.attr(&node)?);
                }
            }
            page.push(entry);
        }
        let more = rows.next().transpose()?.is_some();
        Ok((page, more))
    }
}
