//! Drop-boxes: files come in, and whoever brings them learns nothing of what is there.
//!
//! A drop is a publish into the box's own directory by somebody who may `insert` there and neither list
//! nor traverse. It needs no name to be free: the name that it gets is made here, and told to nobody. What
//! the box takes is judged in the transaction that makes the file, where all drops meet.

use std::sync::atomic::Ordering;

use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::attr::{Attr, Changed, Kind, Version};
use weft_core::drop_box::{DropLimits, Fill, check_for_anyone, is_for_anyone, stored_name};
use weft_core::form::{At, Call, Entry, Scope};
use weft_core::policy::PolicyEdit;
use weft_core::service::DropBoxRecord;
use weft_core::{ContainerId, Error, ErrorKind, Name, Result, Rights, StageId, Tick, limits};

use super::Managed;
use super::act::Act;
use super::locate::Spot;
use super::table::containers;
use super::table::drops::{self, DropRow};
use super::table::inodes;
use super::view::{Node, View};

/// What an edit of policy does about a container's being a drop-box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) enum Boxing {
    Keep,
    Begin(DropLimits),
    End,
}

impl View<'_> {
    fn has_boxes(&self) -> bool {
        self.volume.has_boxes.load(Ordering::Acquire)
    }

    /// Returns the drop-box that a directory is, if it is one: what lies below it is not.
    pub(super) fn box_of(&self, dir: &Node) -> Result<Option<(ContainerId, DropRow)>> {
        if !dir.inode.is_directory() || !self.has_boxes() {
            return Ok(None);
        }
        let container = self.home(dir)?;
        if self.governing(container)?.rules.root != dir.serial() {
            return Ok(None);
        }
        Ok(drops::find(self.read, container)?.map(|row| (container, row)))
    }

    /// Returns whether something lies in a drop-box, and is not the box.
    pub(super) fn is_in_box(&self, node: &Node) -> Result<bool> {
        if !self.has_boxes() {
            return Ok(false);
        }
        let container = self.home(node)?;
        let is_box = drops::find(self.read, container)?.is_some();
        Ok(is_box && self.governing(container)?.rules.root != node.serial())
    }

    /// Returns whether the caller drops what it puts into a directory: it is a box, and they may do no
    /// more there.
    pub(super) fn drops_into(&self, dir: &Node) -> Result<bool> {
        let asked = Rights::INSERT | Rights::LIST | Rights::TRAVERSE;
        Ok(self.box_of(dir)?.is_some() && self.rights_of(dir, asked)? == Rights::INSERT)
    }

    /// Returns where a file that is to be dropped goes; none if it is no drop.
    pub(super) fn drop_spot(&self, target: &At, id: StageId) -> Result<Option<Spot>> {
        let Some((above, name)) = target.path.split_last() else { return Ok(None) };
        let dir = At { path: above, ..target.clone() }.following();
        // Why it cannot be found the usual way says, by the same steps.
        let Ok(place) = self.locate(&dir) else { return Ok(None) };
        let Some(dir) = place.node.filter(|dir| dir.inode.is_directory()) else { return Ok(None) };
        if self.joined(&dir)?.is_some() || !self.drops_into(&dir)? {
            return Ok(None);
        }
        Ok(Some(Spot { dir, name: stored_name(&name, id)?, held: None }))
    }

    /// Checks that a box takes a file more. `NoSpace` if it does not.
    pub(super) fn takes_a_file(&self, dir: &Node) -> Result<()> {
        match self.box_of(dir)? {
            Some((_, row)) if inodes::tally(self.read, dir.serial())?.entries >= row.limits.files => {
                Err(is_full())
            }
            _ => Ok(()),
        }
    }

    /// Checks that a box takes so many bytes now, beside what came lately. `NoQuota` if it does not.
    pub(super) fn takes_bytes(&self, dir: &Node, bytes: u64) -> Result<()> {
        let Some((_, row)) = self.box_of(dir)? else { return Ok(()) };
        row.fill.with(&row.limits, self.now.wall, bytes).map(drop).ok_or_else(is_too_much)
    }

    /// Checks that a box could ever take so many bytes at once, and takes any now.
    pub(super) fn could_take(&self, dir: &Node, length: u64) -> Result<()> {
        let Some((container, row)) = self.box_of(dir)? else { return Ok(()) };
        if self.governing(container)?.rules.bytes_max.is_some_and(|max| length > max) {
            return Err(is_full());
        }
        if length > row.limits.rate_bytes {
            return Err(is_too_much());
        }
        self.takes_bytes(dir, length.min(1))
    }

    fn record_of(&self, dir: &Node, container: ContainerId, row: &DropRow) -> Result<DropBoxRecord> {
        let limits = row.limits;
        let level = row.fill.now(&limits, self.now.wall).level;
        let path = self.paths_of(dir)?.into_iter().next().unwrap_or_default();
        Ok(DropBoxRecord {
            path: path.iter().try_fold(weft_core::RelPath::EMPTY, |path, name| path.join(name))?,
            file: dir.id,
            limits: DropLimits { bytes: self.governing(container)?.rules.bytes_max.unwrap_or(0), ..limits },
            bytes: containers::used(self.read, container)?,
            files: inodes::tally(self.read, dir.serial())?.entries,
            rate_left: limits.rate_bytes.saturating_sub(level),
        })
    }
}

impl Act<'_, '_> {
    /// Counts bytes that were sent to a box among what came lately, whatever becomes of them. What was looked
    /// at as it came is only counted; the rest must fit.
    pub(super) fn count_sent(&mut self, dir: &Node, bytes: u64, looked_at: bool) -> Result<()> {
        let view = self.view();
        if !view.drops_into(dir)? {
            return Ok(());
        }
        let Some((container, row)) = view.box_of(dir)? else { return Ok(()) };
        if !looked_at {
            view.takes_bytes(dir, bytes)?;
        }
        let fill = row.fill.and(&row.limits, self.now.wall, bytes);
        drops::put(self.txn, container, &DropRow { fill, ..row })
    }

    /// Makes a container a drop-box, or ends that.
    pub(super) fn box_up(&mut self, root: &Node, container: ContainerId, boxing: Boxing) -> Result<()> {
        match boxing {
            Boxing::Keep => Ok(()),
            Boxing::End => drops::erase(self.txn, container),
            Boxing::Begin(limits) => {
                if root.inode.kind != Kind::Directory {
                    return Err(Error::new(ErrorKind::NotDirectory, "only a directory is a drop-box"));
                }
                let known = drops::find(self.txn, container)?;
                if known.is_none() && drops::all(self.txn).count() >= limits::DROP_BOXES_MAX {
                    return Err(Error::new(ErrorKind::TooLarge, "a node has at most 1000 drop-boxes"));
                }
                // Before anybody can see it.
                self.volume.has_boxes.store(true, Ordering::Release);
                let fill = known.map_or(Fill::empty(self.now.wall), |row| row.fill);
                drops::put(self.txn, container, &DropRow { limits, fill })
            }
        }
    }
}

/// Says that a box takes no more, and neither how much it holds nor what it is to its owner.
pub(super) fn full(error: Error) -> Error {
    if error.kind() == ErrorKind::NoSpace { is_full() } else { error }
}

fn is_full() -> Error {
    Error::new(ErrorKind::NoSpace, "the drop-box is full")
}

fn is_too_much() -> Error {
    Error::new(ErrorKind::NoQuota, "the drop-box takes no more for now").hint("try again later")
}

/// Returns a box's attributes as whoever may only insert sees them: the same whatever was dropped.
pub(super) fn as_when_made(attr: Attr) -> Attr {
    Attr {
        links: 2,
        size: 0,
        used: 0,
        atime: attr.btime,
        mtime: attr.btime,
        ctime: attr.btime,
        version: Version(0),
        change: 0,
        ..attr
    }
}

/// How fast a drop comes: who stands still must not keep the room that others need.
pub(super) struct Pace {
    since: Tick,
    bytes: u64,
}

impl Pace {
    pub(super) fn begin(now: Tick) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// Counts bytes that came. `Deadline` if they were too few for the time they took.
    pub(super) fn step(&mut self, now: Tick, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if now.since(self.since) < limits::DROP_PACE_WITHIN {
            return Ok(());
        }
        let came = std::mem::replace(self, Self::begin(now)).bytes;
        if came >= limits::DROP_PACE_BYTES {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Deadline, "what is dropped must come at 256 KiB a minute at least"))
    }
}

/// Returns the answer to a drop: that it was taken, and nothing of what it is there.
pub(super) fn veiled(dir: &Node, name: Name) -> Changed<Entry> {
    let value = Entry { name, id: dir.id, kind: Kind::File, cookie: 0, attr: None };
    let file = weft_core::attr::Wcc { before: None, after: None };
    Changed { value, file, parents: [None, None] }
}

impl Managed {
    /// Makes a directory a drop-box, a container of its own, or changes what one takes; durably. Needs
    /// `acl-write`, as any edit of its policy.
    pub async fn make_drop_box(&self, call: &Call, at: &At, limits: &DropLimits) -> Result<DropBoxRecord> {
        limits.check()?;
        let begun = |acl: &mut Acl| {
            acl.entries.retain(|entry| !is_for_anyone(entry));
            acl.entries.push(AclEntry::allow(Who::Anyone, Rights::INSERT));
        };
        let edit = PolicyEdit { bytes_max: Some(Some(limits.bytes)), ..PolicyEdit::default() };
        self.edit_box(call, at, Boxing::Begin(*limits), edit, begun).await?;
        self.volume.look_whenever(call, |view| {
            let dir = view.existing(at)?;
            let (container, row) = view.box_of(&dir)?.ok_or_else(no_box)?;
            view.record_of(&dir, container, &row)
        })
    }

    /// Ends a drop-box: what is in it stays, nobody puts in more. Returns what it was.
    pub async fn end_drop_box(&self, call: &Call, at: &At) -> Result<DropBoxRecord> {
        let was = self.volume.look(call, |view| {
            let dir = view.existing(at)?;
            view.need(&dir, Rights::ACL_WRITE)?;
            let (container, row) = view.box_of(&dir)?.ok_or_else(no_box)?;
            view.record_of(&dir, container, &row)
        })?;
        let edit = PolicyEdit { bytes_max: Some(None), ..PolicyEdit::default() };
        self.edit_box(call, at, Boxing::End, edit, |acl| acl.entries.retain(|e| !is_for_anyone(e))).await?;
        Ok(was)
    }

    /// Returns the drop-boxes whose policy the caller may see.
    pub fn drop_boxes(&self, call: &Call) -> Result<Vec<DropBoxRecord>> {
        self.volume.look(call, |view| {
            let mut boxes = Vec::new();
            for container in drops::all(view.read) {
                let container = container?;
                let root = containers::rules(view.read, container)?.root;
                let Ok(dir) = view.node_at(root) else { continue };
                let Some((_, row)) = view.box_of(&dir)? else { continue };
                if view.has(&dir, Rights::ACL_READ)? {
                    boxes.push(view.record_of(&dir, container, &row)?);
                }
            }
            Ok(boxes)
        })
    }

    /// Returns whether an edit of policy, so far as it reaches, is one of a drop-box.
    pub fn edits_drop_box(&self, call: &Call, at: &At, scope: Scope) -> Result<bool> {
        self.volume.look(call, |view| {
            let node = view.existing(at)?;
            Ok(match scope {
                Scope::Subtree => view.box_of(&node)?.is_some(),
                Scope::Container => drops::find(view.read, view.home(&node)?)?.is_some(),
            })
        })
    }

    async fn edit_box(
        &self,
        call: &Call,
        at: &At,
        boxing: Boxing,
        edit: PolicyEdit,
        change: impl Fn(&mut Acl),
    ) -> Result<()> {
        for _ in 0..limits::SPLIT_SURVEYS_MAX {
            let mut acl = self.volume.look_whenever(call, |view| view.policy(at))?.acl;
            change(&mut acl);
            check_for_anyone(&acl, matches!(boxing, Boxing::Begin(_)))?;
            let edit = PolicyEdit { acl: Some(acl), ..edit.clone() };
            match self.volume.protect(call, at, Scope::Subtree, &edit, boxing).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                done => return done.map(drop),
            }
        }
        Err(Error::new(ErrorKind::Busy, "others change the policy all the time").hint("try again"))
    }
}

fn no_box() -> Error {
    Error::invalid("it is no drop-box").hint("weft dropbox ls")
}
