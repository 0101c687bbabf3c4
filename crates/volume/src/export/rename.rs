//! Renaming: within a directory, across directories, over something, in exchange.
//!
//! A policy that is bound to what moves goes along, and guards its new place. What has none of its own
//! is governed from then on by what governs the place.

use weft_core::attr::{Changed, Wcc};
use weft_core::form::{At, Guard, Replace};
use weft_core::{Error, ErrorKind, FileId, Result, Rights};
use weft_sys::beneath::Onto;

use super::audit::{Deed, Flush};
use super::locate::{Spot, not_directory};
use super::names::{must_be_free, taken};
use super::policies::is_within;
use super::user::WRITE;
use super::view::{Node, View, hidden};

/// What has come to lie elsewhere.
pub(super) type Moved = Vec<Move>;

/// Something that was at one path, and is at another.
pub(super) struct Move {
    pub(super) id: FileId,
    /// Whether others lie below it, which have moved along.
    pub(super) is_directory: bool,
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

impl Move {
    fn of(node: &Node, to: Vec<u8>) -> Self {
        Self { id: node.id, is_directory: node.is_directory(), from: node.path.clone(), to }
    }
}

impl View<'_> {
    pub(super) fn rename(
        &self,
        from: &At,
        to: &At,
        how: Replace,
        guard: &Guard,
    ) -> Result<(Changed<()>, Moved, Option<Deed>)> {
        let from = self.spot(from)?;
        let moved = from.held.clone().ok_or_else(hidden)?;
        let to = self.spot(to)?;
        let by = self.may_rename(&moved, &from, &to, how)?;
        self.guard(guard, to.held.as_ref())?;
        must_be_free(&to.name)?;
        match (how, &to.held) {
            (Replace::Never, Some(_)) => return Err(taken()),
            (Replace::Exchange, None) => return Err(hidden()),
            (_, Some(there)) if there.id == moved.id => {
                let file = self.wcc(&moved, Some(self.before(&moved)));
                let before = [self.before(&from.dir), self.before(&to.dir)].map(Some);
                return Ok((self.answer(file, &from, &to, before), Moved::new(), None));
            }
            _ => {}
        }
        self.must_gain_nothing(&moved, &self.below(&to.dir, &to.name))?;
        if let (Replace::Exchange, Some(there)) = (how, &to.held) {
            self.must_gain_nothing(there, &moved.path)?;
        }
        self.must_fit(&moved, &from, &to, how)?;
        let before = self.before(&moved);
        let above = [self.before(&from.dir), self.before(&to.dir)].map(Some);
        let mut deed = Deed::of(self, "rename", &moved, (&from.dir, by)).at(&from.dir, &from.name);
        deed.about.to = Some((to.dir.id, to.name.clone()));
        deed.about.other = to.held.as_ref().map(|there| there.id);
        deed.about.touch(to.dir.bound.container);
        to.held.iter().for_each(|there| deed.about.touch(there.bound.container));
        if to.dir.id != from.dir.id {
            // First where it is now: it must not be nowhere.
            deed.flush.insert(0, Flush::Names(to.dir.id, to.dir.held.clone()));
        }
        let onto = match how {
            Replace::Never => Onto::Nothing,
            Replace::Any => Onto::Anything,
            Replace::Exchange => Onto::Exchange,
        };
        from.dir.held.rename(from.name.as_bytes(), &to.dir.held, to.name.as_bytes(), onto)?;
        let new = self.below(&to.dir, &to.name);
        let mut places = vec![Move::of(&moved, new.clone())];
        match (how, &to.held) {
            (Replace::Exchange, Some(there)) => places.push(Move::of(there, moved.path.clone())),
            (_, Some(there)) => self.gone(there),
            (_, None) => {}
        }
        let moved = Node { path: new, ..moved };
        Ok((self.answer(self.wcc(&moved, Some(before)), &from, &to, above), places, Some(deed)))
    }

    fn answer(
        &self,
        file: Wcc,
        from: &Spot,
        to: &Spot,
        before: [Option<weft_core::attr::Before>; 2],
    ) -> Changed<()> {
        let [first, second] = before;
        let second = (from.dir.id != to.dir.id).then(|| self.wcc(&to.dir, second));
        Changed { value: (), file, parents: [Some(self.wcc(&from.dir, first)), second] }
    }

    /// Checks what the machine would refuse in other words.
    fn must_fit(&self, moved: &Node, from: &Spot, to: &Spot, how: Replace) -> Result<()> {
        if moved.is_directory() && is_within(&to.dir.path, &moved.path) {
            return Err(below_itself());
        }
        let Some(there) = &to.held else { return Ok(()) };
        if how == Replace::Exchange {
            let circle = there.is_directory() && is_within(&from.dir.path, &there.path);
            return if circle { Err(below_itself()) } else { Ok(()) };
        }
        match (moved.is_directory(), there.is_directory()) {
            (true, false) => Err(not_directory()),
            (false, true) => Err(Error::new(ErrorKind::IsDirectory, "a file does not replace a directory")),
            _ => Ok(()),
        }
    }

    /// Within a container `rename` is enough; otherwise, or without it, `remove` there and `insert` here.
    fn may_rename(&self, moved: &Node, from: &Spot, to: &Spot, how: Replace) -> Result<Rights> {
        let same = from.dir.bound.container == to.dir.bound.container;
        let by_rename = same && self.has(&from.dir, Rights::RENAME) && self.has(&to.dir, Rights::RENAME);
        if !by_rename {
            self.need(&from.dir, Rights::REMOVE)?;
            self.need(&to.dir, Rights::INSERT)?;
            if how == Replace::Exchange {
                self.need(&from.dir, Rights::INSERT)?;
            }
        }
        if to.held.is_some() && how != Replace::Never && !(by_rename && how == Replace::Exchange) {
            self.need(&to.dir, Rights::REMOVE)?;
        }
        self.need_unname(&from.dir, moved)?;
        to.held.iter().try_for_each(|there| self.need_unname(&to.dir, there))?;
        // What lies above a directory is written in the directory.
        let apart = from.dir.id != to.dir.id;
        let other = to.held.as_ref().filter(|_| how == Replace::Exchange);
        let turned = [Some(moved), other].into_iter().flatten().filter(|node| apart && node.is_directory());
        turned.into_iter().try_for_each(|dir| self.need_access(dir, WRITE))?;
        Ok(if by_rename { Rights::RENAME } else { Rights::REMOVE })
    }
}

fn below_itself() -> Error {
    Error::new(ErrorKind::Loop, "a directory cannot come to lie below itself")
}
