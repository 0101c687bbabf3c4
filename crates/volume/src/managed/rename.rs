//! Renaming: within a directory, across directories, over something, in exchange, and
//! from one container into another.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use weft_core::attr::{Before, Changed, Wcc};
use weft_core::form::{At, ChangeKind, Guard, Replace};
use weft_core::{ContainerId, Error, ErrorKind, Result, Rights, limits};

use super::act::{Act, Deed};
use super::locate::{Spot, not_directory};
use super::names::taken;
use super::table::entries::{self, Link};
use super::table::inodes;
use super::table::splits;
use super::view::{Node, View, hidden};

/// What a change of policy or place must tell the issuer once it is on disk.
pub(super) type Epochs = Vec<(ContainerId, u64)>;

/// Members that change container, and where they come to.
type Moves = Option<(Vec<Node>, ContainerId)>;

impl Act<'_, '_> {
    pub(super) fn rename(
        &mut self,
        from: &At,
        to: &At,
        (how, cookie): (Replace, u64),
        guard: &Guard,
    ) -> Result<(Changed<()>, Epochs)> {
        let view = self.view();
        let from = view.spot(from)?;
        let (mut moved, link) = from.held.clone().ok_or_else(hidden)?;
        let mut to = view.spot(to)?;
        let by = view.may_rename(&from, &to, how)?;
        view.guard(guard, to.held.as_ref().map(|(node, _)| node))?;
        match (how, &to.held) {
            (Replace::Never, Some(_)) => return Err(taken()),
            (Replace::Exchange, None) => return Err(hidden()),
            (_, Some((there, _))) if there.id == moved.id => {
                let file = self.wcc(moved.id, self.before(&moved)?)?;
                let parents = self.parents(&from, &to, [self.before(&from.dir)?, self.before(&to.dir)?])?;
                return Ok((Changed { value: (), file, parents }, Epochs::new()));
            }
            _ => {}
        }
        if let (Replace::Any, Some((there, _))) = (how, &to.held) {
            view.must_not_end(there)?;
        }
        view.must_gain_nothing(&moved, (&to.dir, &to.name))?;
        if let (Replace::Exchange, Some((there, _))) = (how, &to.held) {
            view.must_gain_nothing(there, (&from.dir, &from.name))?;
        }
        view.must_fit_in(&moved, &to.dir)?;
        let may_tie = |node: &Node| node.inode.is_directory() || node.inode.links > 1;
        if may_tie(&moved) || to.held.as_ref().is_some_and(|(there, _)| may_tie(there)) {
            self.volume.ties.fetch_add(1, Ordering::AcqRel);
        }
        let before = self.before(&moved)?;
        let above = [self.before(&from.dir)?, self.before(&to.dir)?];
        self.catch_up(&mut moved)?;
        if let Some((there, _)) = &mut to.held {
            self.catch_up(there)?;
        }
        self.record(&Deed {
            place: Some((&from.dir, &from.name)),
            to: Some((&to.dir, &to.name)),
            other: to.held.as_ref().map(|(there, _)| there),
            ..Deed::of(ChangeKind::Rename, "rename", &moved, (&from.dir, by))
        })?;
        let epochs = match (how, &to.held) {
            (Replace::Exchange, Some((there, other))) => {
                self.exchange(&from, (&moved, &link), &to, (there, other))?
            }
            _ => self.move_over(&from, (&moved, &link), &to, cookie)?,
        };
        let file = self.wcc(moved.id, before)?;
        Ok((Changed { value: (), file, parents: self.parents(&from, &to, above)? }, epochs))
    }

    fn parents(&self, from: &Spot, to: &Spot, above: [Option<Before>; 2]) -> Result<[Option<Wcc>; 2]> {
        let second = if from.dir.id == to.dir.id { None } else { Some(self.wcc(to.dir.id, above[1])?) };
        Ok([Some(self.wcc(from.dir.id, above[0])?), second])
    }

    fn move_over(
        &mut self,
        from: &Spot,
        (moved, link): (&Node, &Link),
        to: &Spot,
        cookie: u64,
    ) -> Result<Epochs> {
        let view = self.view();
        if let Some((there, _)) = &to.held {
            match (moved.inode.is_directory(), there.inode.is_directory()) {
                (true, false) => return Err(not_directory()),
                (false, true) => {
                    return Err(Error::new(ErrorKind::IsDirectory, "a file does not replace a directory"));
                }
                _ => view.must_be_empty(there)?,
            }
        }
        let moves = view.moves(moved, &from.dir, &to.dir)?;
        let directories = i64::from(moved.inode.is_directory());
        entries::remove(self.txn, from.dir.serial(), &from.name, link)?;
        self.touch_names(&from.dir, -1, -directories)?;
        match to.held.clone() {
            Some((mut there, old)) => {
                entries::redirect(self.txn, to.dir.serial(), &to.name, &old, link)?;
                self.touch_names(&to.dir, 0, directories - i64::from(there.inode.is_directory()))?;
                self.lose_name(&mut there)?;
                if there.inode.links > 0 {
                    self.tell(ChangeKind::Attr, &there, [None, None])?;
                }
            }
            None => {
                entries::add(self.txn, to.dir.serial(), &to.name, &Link { cookie, ..*link })?;
                self.touch_names(&to.dir, 1, directories)?;
            }
        }
        self.settle(moved, &to.dir)?;
        self.take_along(moves)
    }

    fn exchange(
        &mut self,
        from: &Spot,
        (moved, link): (&Node, &Link),
        to: &Spot,
        (there, other): (&Node, &Link),
    ) -> Result<Epochs> {
        let view = self.view();
        view.must_fit_in(there, &from.dir)?;
        let moves = view.moves(moved, &from.dir, &to.dir)?;
        let back = view.moves(there, &to.dir, &from.dir)?;
        // Both old rows go before either new one comes: the two may be of one directory.
        entries::redirect(self.txn, from.dir.serial(), &from.name, link, other)?;
        entries::redirect(self.txn, to.dir.serial(), &to.name, other, link)?;
        let gained = i64::from(there.inode.is_directory()) - i64::from(moved.inode.is_directory());
        self.touch_names(&from.dir, 0, gained)?;
        self.touch_names(&to.dir, 0, -gained)?;
        self.settle(moved, &to.dir)?;
        self.settle(there, &from.dir)?;
        self.tell(ChangeKind::Attr, there, [None, None])?;
        let mut epochs = self.take_along(moves)?;
        epochs.extend(self.take_along(back)?);
        Ok(epochs)
    }

    /// Marks that an inode has come to lie in a directory.
    fn settle(&mut self, moved: &Node, dir: &Node) -> Result<()> {
        let mut node = moved.clone();
        if node.inode.is_directory() {
            node.inode.parent = dir.serial();
        }
        self.touch(&mut node)
    }

    fn take_along(&mut self, moves: Moves) -> Result<Epochs> {
        let Some((members, to)) = moves else { return Ok(Epochs::new()) };
        let from = members.first().map(|member| member.inode.container);
        for member in members {
            // Read again: what moved has been touched since.
            let inode = inodes::load(self.txn, member.serial())?;
            self.rehome(&mut Node { id: member.id, inode }, to)?;
        }
        from.map(|from| self.begin_epoch(from)).into_iter().collect()
    }
}

impl View<'_> {
    /// Within a container `rename` is enough; otherwise, or without it, `remove` there
    /// and `insert` here. What is replaced is removed from where it was. Returns the
    /// right by which the source may go.
    fn may_rename(&self, from: &Spot, to: &Spot, how: Replace) -> Result<Rights> {
        let same = self.home(&from.dir)? == self.home(&to.dir)?;
        let by_rename = same && self.has(&from.dir, Rights::RENAME)? && self.has(&to.dir, Rights::RENAME)?;
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
        Ok(if by_rename { Rights::RENAME } else { Rights::REMOVE })
    }

    fn must_fit_in(&self, moved: &Node, into: &Node) -> Result<()> {
        if !moved.inode.is_directory() {
            return Ok(());
        }
        if self.lineage(into)?.iter().any(|above| above.id == moved.id) {
            return Err(Error::new(ErrorKind::Loop, "a directory cannot come to lie below itself"));
        }
        // How deep it is itself is not looked at: that would be a walk through all below it.
        if moved.inode.parent == into.serial() { Ok(()) } else { self.must_not_be_too_deep(into) }
    }

    /// Returns the members that change container when something moves between
    /// directories. `CrossVolume` if they are too many for one transaction or a hard
    /// link would be torn.
    fn moves(&self, moved: &Node, from: &Node, to: &Node) -> Result<Moves> {
        let (old, new) = (self.home(from)?, self.home(to)?);
        if old == new || moved.inode.container != old {
            return Ok(None);
        }
        let Some(members) = self.members_below(moved, limits::SPLIT_MEMBERS_MAX)? else {
            return Err(Error::new(ErrorKind::CrossVolume, "too much to move between containers at once")
                .hint("copy it and remove the original"));
        };
        self.room(new, members.iter().map(|member| member.inode.used).sum())?;
        Ok(Some((members, new)))
    }

    /// Returns the inode and everything below it of the same container, what lags behind
    /// on its way there included, or `None` if they are more than `max`. `CrossVolume` if one of them has a name elsewhere,
    /// with the names.
    pub(super) fn members_below(&self, top: &Node, max: usize) -> Result<Option<Vec<Node>>> {
        let own = splits::with_lagging(self.read, top.inode.container)?;
        let mut known = BTreeSet::from([top.serial()]);
        let mut members = vec![top.clone()];
        let mut todo = vec![top.serial()];
        while let Some(dir) = todo.pop() {
            for entry in entries::after_cookie(self.read, dir, 0) {
                let (_, link) = entry?;
                let node = self.node_at(link.inode)?;
                if !own.contains(&node.inode.container) || !known.insert(link.inode) {
                    continue;
                }
                if members.len() == max {
                    return Ok(None);
                }
                if node.inode.is_directory() {
                    todo.push(link.inode);
                }
                members.push(node);
            }
        }
        self.no_links_outside(top, &members, &known)?;
        Ok(Some(members))
    }

    fn no_links_outside(&self, top: &Node, members: &[Node], known: &BTreeSet<u64>) -> Result<()> {
        let mut outside = Vec::new();
        for node in members {
            let own = usize::from(node.id == top.id);
            if node.inode.is_directory() || (own == 1 && node.inode.links < 2) {
                continue;
            }
            let mut away = Vec::new();
            for name in entries::names_of(self.read, node.serial()) {
                let back = name?;
                if !known.contains(&back.parent) {
                    away.push(back.name.to_string());
                }
            }
            // The top's own name may lie outside: it is the one that moves.
            outside.extend(away.into_iter().skip(own));
            if outside.len() >= limits::REFUSAL_NAMES_MAX {
                break;
            }
        }
        torn(outside)
    }
}

/// Refuses to tear hard links apart, with the names that stand in the way.
pub(super) fn torn(mut outside: Vec<String>) -> Result<()> {
    if outside.is_empty() {
        return Ok(());
    }
    outside.truncate(limits::REFUSAL_NAMES_MAX);
    let detail = format!("files have names outside what would be moved: {}", outside.join(", "));
    Err(Error::new(ErrorKind::CrossVolume, detail))
}
