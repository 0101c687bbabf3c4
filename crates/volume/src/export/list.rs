//! Listing: a page reads as much of a directory as it returns, or, by name, keeps as much of it.

use std::ops::ControlFlow;

use weft_core::form::{At, Cursor, Entry, Page, PageMax, Walked, Want};
use weft_core::{Name, Result, Rights};
use weft_sys::beneath::{Facts, Listed};

use super::known::join;
use super::locate::not_directory;
use super::stages::is_reserved;
use super::view::{Node, View, shown_kind};

impl View<'_> {
    pub(super) fn walk(&self, at: &At, want: Want) -> Result<Walked> {
        let node = self.existing(at)?;
        let mut rights = self.rights(&node);
        if rights.is_empty() {
            return Err(self.refusal(&node, Rights::ALL));
        }
        if want.rights {
            rights = rights & self.left_by_machine(&node);
        }
        let parent = match at.path.is_empty() || node.is_root() {
            true => None,
            false => Some(self.parent(&node)?.id),
        };
        Ok(Walked { attr: self.attr(&node), rights: want.rights.then_some(rights), parent })
    }

    pub(super) fn list(&self, at: &At, from: &Cursor, max: PageMax, want: Want) -> Result<Page> {
        let dir = self.existing(at)?;
        if !dir.is_directory() {
            self.need_any(&dir)?;
            return Err(not_directory());
        }
        self.need(&dir, Rights::LIST)?;
        let shower = Shower::of(self, &dir, want);
        let (entries, next) = match from {
            Cursor::Start => shower.stored(0, max)?,
            Cursor::Cookie(cookie) => shower.stored(*cookie, max)?,
            Cursor::ByName => shower.by_name(None, max)?,
            Cursor::After(name) => shower.by_name(Some(name), max)?,
        };
        Ok(Page { entries, next, dir: self.attr(&dir), parent: self.parent(&dir)?.id })
    }
}

/// Makes entries of one directory's names.
struct Shower<'a> {
    view: &'a View<'a>,
    dir: &'a Node,
    want: Want,
    /// Whether attributes may be seen of what the directory's own policy governs.
    attr_read: bool,
}

impl<'a> Shower<'a> {
    fn of(view: &'a View<'a>, dir: &'a Node, want: Want) -> Self {
        let may = view.rights_of(dir, Rights::ATTR_READ).contains(Rights::ATTR_READ);
        Self { view, dir, want, attr_read: want.attr && may }
    }

    /// In the kernel's order, by its cookies.
    fn stored(&self, from: u64, max: PageMax) -> Result<(Vec<Entry>, Option<Cursor>)> {
        let (mut entries, mut more) = (Vec::<Entry>::new(), false);
        // The kernel would take it for a place before the start.
        let Ok(_) = i64::try_from(from) else { return Ok((entries, None)) };
        self.dir.held.list(from, |listed| {
            let Some(facts) = self.facts(&listed)? else { return Ok(ControlFlow::Continue(())) };
            if entries.len() == max.entries() {
                more = true;
                return Ok(ControlFlow::Break(()));
            }
            entries.extend(self.entry(listed.name(), listed.next, &facts)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let next = entries.last().filter(|_| more).map(|last| Cursor::Cookie(last.cookie));
        Ok((entries, next))
    }

    /// In the order of names.
    fn by_name(&self, after: Option<&Name>, max: PageMax) -> Result<(Vec<Entry>, Option<Cursor>)> {
        let (page, more) = self.view.volume.ahead.page(self.dir, after, max)?;
        let next = page.last().filter(|_| more).map(|(name, _)| Name::new(name.clone()).map(Cursor::After));
        let mut entries = Vec::with_capacity(page.len());
        for (name, cookie) in &page {
            if let Some(facts) = self.dir.held.look(name, self.view.root.stalls)? {
                entries.extend(self.entry(name, *cookie, &facts)?);
            }
        }
        Ok((entries, next.transpose()?))
    }

    /// Returns what is known of a name; nothing for what a share does not show.
    fn facts(&self, listed: &Listed<'_>) -> Result<Option<Facts>> {
        if listed.sort.is_some_and(|sort| shown_kind(sort).is_none()) {
            return Ok(None);
        }
        listed.facts(self.view.root.stalls)
    }

    fn entry(&self, name: &[u8], cookie: u64, facts: &Facts) -> Result<Option<Entry>> {
        let Some(kind) = shown_kind(facts.sort).filter(|_| !facts.is_mount) else { return Ok(None) };
        let name = Name::new(name.to_vec())?;
        if is_reserved(&name) {
            let volume = self.view.volume;
            if volume.stages.is_left_behind(name.as_bytes(), volume.stage_owner) {
                // Nobody hears of it if it stays: then the next listing tries again.
                let _ = self.dir.held.remove(name.as_bytes(), false);
            }
            return Ok(None);
        }
        let path = join(&self.dir.path, name.as_bytes());
        let id = self.view.id_at(&path, facts);
        let own = if self.view.policies.is_one() { None } else { self.view.policies.at(&path, Some(id)) };
        let bound = own.unwrap_or(&self.dir.bound);
        let shown = match own.is_some() || self.view.call.caller.is_confined() {
            true => self.want.attr && !self.view.rights_at(&path, bound, Rights::ATTR_READ).is_empty(),
            false => self.attr_read,
        };
        let attr = shown.then(|| self.view.attr_of(id, kind, facts, bound));
        self.view.volume.known.see(id, &path, facts);
        Ok(Some(Entry { name, id, kind, cookie: cookie.max(1), attr }))
    }
}
