//! One change under way: the transaction, and what every change leaves behind besides
//! itself: a note for watchers, a record for the audit, an answer for replay.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_core::acl::{Because, Settled};
use weft_core::attr::{Attr, Before, Wcc};
use weft_core::form::{Call, Change, ChangeKind, ChangeSeq};
use weft_core::service::{AuditOutcome, AuditRecord, AuditSubject};
use weft_core::{ContainerId, Error, FileId, Moment, Name, Result, Rights, Time, limits};
use weft_kv::{Read, SpaceTxn, Txn};

use super::feed::Noted;
use super::table::containers;
use super::table::inodes::{self, Inode, Layout};
use super::table::{once, unnamed};
use super::view::{Node, View};
use super::{AUDITS, CHANGES, Volume};

/// A name in a directory.
type Spotted<'a> = (&'a Node, &'a Name);

/// A change under way. Everything it decides, it decides inside its transaction.
pub(super) struct Act<'a, 't> {
    pub(super) volume: &'a Arc<Volume>,
    pub(super) call: &'a Call,
    /// What rights are judged by.
    pub(super) now: Moment,
    /// What is shown: it follows a wall clock that is set back.
    pub(super) wall: Time,
    pub(super) txn: &'a mut SpaceTxn<'t>,
}

/// What a change did, for those who watch and for the audit.
pub(super) struct Deed<'a> {
    pub(super) kind: ChangeKind,
    /// What the audit calls it.
    pub(super) operation: &'static str,
    pub(super) node: &'a Node,
    /// Where: for a rename, from.
    pub(super) place: Option<Spotted<'a>>,
    /// For a rename, to.
    pub(super) to: Option<Spotted<'a>>,
    /// What was under the name that something else has now.
    pub(super) other: Option<&'a Node>,
    /// Containers beyond those of all these whose policy changed with it.
    pub(super) also: Vec<ContainerId>,
    /// The inode whose container allowed it, and the right that was needed.
    pub(super) by: (&'a Node, Rights),
    pub(super) bytes: u64,
    /// What decided, where it was no entry.
    pub(super) because: Option<&'static str>,
}

impl<'a> Deed<'a> {
    /// Returns what was done to an inode, at none of its names in particular.
    pub(super) fn of(
        kind: ChangeKind,
        operation: &'static str,
        node: &'a Node,
        by: (&'a Node, Rights),
    ) -> Self {
        let (place, to, other, also, because) = (None, None, None, Vec::new(), None);
        Self { kind, operation, node, place, to, other, also, by, bytes: 0, because }
    }

    /// Returns what its record is about. `told` is what watchers are told.
    fn subject(&self, told: &Change) -> AuditSubject {
        let mut subject = AuditSubject {
            object: Some(self.node.id),
            other: self.other.map(|node| node.id),
            container: Some(self.by.0.inode.container),
            place: told.place.clone(),
            to: told.to.clone(),
            also: Vec::new(),
        };
        let dirs = [self.place, self.to].into_iter().flatten().map(|(dir, _)| dir);
        // Of bytes and attributes, whoever has the directory need not know.
        let dirs = dirs.filter(|_| self.kind.is_of_names());
        for node in dirs.chain([self.node]).chain(self.other) {
            subject.touch(node.inode.container);
        }
        self.also.iter().for_each(|container| subject.touch(*container));
        subject
    }
}

impl Act<'_, '_> {
    pub(super) fn view(&self) -> View<'_> {
        View::under_way(self.volume, &*self.txn, self.call, self.now)
    }

    /// Writes an inode back.
    pub(super) fn put(&mut self, node: &Node) -> Result<()> {
        inodes::put(self.txn, node.serial(), &node.inode)
    }

    /// Marks that something of an inode changed, and writes it.
    pub(super) fn touch(&mut self, node: &mut Node) -> Result<()> {
        if node.inode.is_directory() {
            let mut tally = inodes::tally(self.txn, node.serial())?;
            tally.ctime = self.wall;
            inodes::touch_attributes(self.txn, node.serial(), &tally)?;
        } else {
            node.inode.changed(self.wall);
        }
        self.put(node)
    }

    /// Marks that a directory has so many more entries, so many of them directories.
    pub(super) fn touch_names(&mut self, dir: &Node, entries: i64, directories: i64) -> Result<()> {
        let boot = self.volume.boot();
        inodes::touch(self.txn, dir.serial(), (entries, directories), self.wall, boot)
    }

    pub(super) fn before(&self, node: &Node) -> Result<Option<Before>> {
        self.view().before(node).map(Some)
    }

    pub(super) fn wcc(&self, id: FileId, before: Option<Before>) -> Result<Wcc> {
        self.view().wcc(id, before)
    }

    pub(super) fn attr(&self, node: &Node) -> Result<Attr> {
        self.view().attr(node)
    }

    /// Lets go of an inode that has lost its last name: at once, or, if somebody has it
    /// open, when it is closed (the orphan's row says so across a restart).
    pub(super) fn release(&mut self, node: &mut Node) -> Result<()> {
        if self.volume.opens.end(node.id) {
            self.end(node)
        } else {
            unnamed::ORPHANS.add(self.txn, node.serial())?;
            self.touch(node)
        }
    }

    /// Removes an inode and everything it alone holds.
    pub(super) fn end(&mut self, node: &Node) -> Result<()> {
        let inode = &node.inode;
        if let Layout::Whole { object, label } = inode.layout {
            unnamed::add_garbage(self.txn, object, label)?;
            unnamed::RELABELS.remove(self.txn, node.serial())?;
        }
        // One that was emptied since it was written has the mark still.
        if inode.layout_serial > 0 || matches!(inode.layout, Layout::Whole { .. }) {
            unnamed::WRITING.remove(self.txn, node.serial())?;
        }
        self.use_bytes(inode.container, inode.used, 0)?;
        unnamed::ORPHANS.remove(self.txn, node.serial())?;
        inodes::erase(self.txn, node.serial(), inode)
    }

    /// Counts that a container's bytes went from `was` to `is`.
    pub(super) fn use_bytes(&mut self, container: ContainerId, was: u64, is: u64) -> Result<()> {
        containers::use_bytes(self.txn, container, is as i64 - was as i64)
    }

    /// Moves an inode to another container, with its bytes.
    pub(super) fn rehome(&mut self, node: &mut Node, to: ContainerId) -> Result<()> {
        let from = std::mem::replace(&mut node.inode.container, to);
        self.use_bytes(from, node.inode.used, 0)?;
        self.use_bytes(to, 0, node.inode.used)?;
        if matches!(node.inode.layout, Layout::Whole { label, .. } if label != to) {
            unnamed::RELABELS.add(self.txn, node.serial())?;
        }
        self.put(node)
    }

    /// Ends the capabilities issued for a container so far. Whoever still has the right
    /// is given a new one when it next asks. Returns what the issuer must be told once
    /// this is on disk.
    pub(super) fn begin_epoch(&mut self, container: ContainerId) -> Result<(ContainerId, u64)> {
        let mut head = containers::head(self.txn, container)?;
        head.epoch += 1;
        head.serial += 1;
        let rules = containers::rules(self.txn, container)?;
        containers::put(self.txn, container, head, &rules)?;
        Ok((container, head.epoch))
    }

    /// Leaves what watchers and the audit are told, in this same commit.
    pub(super) fn record(&mut self, deed: &Deed<'_>) -> Result<()> {
        let noted = self.noted(deed.kind, deed.node, [deed.place, deed.to])?;
        self.txn.note(CHANGES, &encode(&noted)?)?;
        if self.volume.audited {
            let record = self.audit(deed, &noted.change)?;
            self.txn.note(AUDITS, &encode(&record)?)?;
        }
        Ok(())
    }

    /// Leaves what watchers, and only they, are told.
    pub(super) fn tell(
        &mut self,
        kind: ChangeKind,
        node: &Node,
        [place, to]: [Option<Spotted<'_>>; 2],
    ) -> Result<()> {
        let noted = self.noted(kind, node, [place, to])?;
        self.txn.note(CHANGES, &encode(&noted)?)
    }

    /// Returns what watchers are told: those of all its names, since something of the inode itself
    /// changes with each.
    fn noted(&self, kind: ChangeKind, node: &Node, [place, to]: [Option<Spotted<'_>>; 2]) -> Result<Noted> {
        let view = self.view();
        let names = match place {
            Some(_) if node.inode.links < 2 => Vec::new(),
            _ => view.names_told(node)?,
        };
        let place = place.or(names.first().map(|(dir, name)| (dir, name)));
        let mut within = BTreeSet::from([node.id]);
        for (dir, _) in place.iter().chain(&to) {
            within.extend(view.lineage(dir)?.iter().map(|above| above.id));
        }
        for (dir, _) in &names {
            if within.contains(&dir.id) {
                continue;
            }
            let line = view.lineage(dir)?;
            let more: Vec<FileId> = line.iter().map(|d| d.id).filter(|id| !within.contains(id)).collect();
            if within.len() + more.len() <= limits::CHANGE_WITHIN_MAX {
                within.extend(more);
            }
        }
        let spot = |spot: Option<Spotted<'_>>| spot.map(|(dir, name)| (dir.id, name.clone()));
        let change = Change {
            seq: ChangeSeq(0),
            kind,
            file: node.id,
            place: spot(place),
            to: spot(to),
            caller: self.call.caller.name().id(),
            session: self.call.session,
        };
        Ok(Noted { change, within: within.into_iter().collect(), container: node.inode.container })
    }

    fn audit(&self, deed: &Deed<'_>, told: &Change) -> Result<AuditRecord> {
        let view = self.view();
        let (node, right) = deed.by;
        let governing = view.governing(node.inode.container)?;
        let settled = || view.settled_by(&governing, right);
        let because = deed.because.map_or_else(settled, str::to_owned);
        let caller = &self.call.caller;
        Ok(AuditRecord {
            at: self.wall,
            caller: caller.name().clone(),
            credential: caller.credential(),
            delegates: caller.claims().delegates.clone(),
            from: self.call.from,
            trace: self.call.trace,
            operation: deed.operation.to_owned(),
            about: deed.subject(told),
            outcome: AuditOutcome::Done,
            because,
            bytes: deed.bytes,
        })
    }

    /// Acts, or replays the answer to the same request of the same session. The same id
    /// with another request is `Invalid`. Failures change nothing and are not kept.
    pub(super) fn once<T: Serialize + DeserializeOwned>(
        &mut self,
        fingerprint: &[u8; 32],
        act: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let Some(id) = self.call.once else { return act(self) };
        if let Some(answer) = answered(self.txn, self.call, fingerprint)? {
            return Ok(answer);
        }
        let session = self.call.session;
        let value = act(self)?;
        let given = once::Given { fingerprint: *fingerprint, answer: encode(&value)? };
        once::keep(self.txn, session, id, &given, self.wall)?;
        Ok(value)
    }
}

/// Returns the answer that this request was given before, if it was.
pub(super) fn answered<T: DeserializeOwned>(
    read: &dyn Read,
    call: &Call,
    fingerprint: &[u8; 32],
) -> Result<Option<T>> {
    let Some(id) = call.once else { return Ok(None) };
    let Some(given) = once::find(read, call.session, id)? else { return Ok(None) };
    if given.fingerprint != *fingerprint {
        return Err(Error::invalid("the request id was used for another request of this session"));
    }
    postcard::from_bytes(&given.answer)
        .map(Some)
        .map_err(|e| Error::corrupt("a kept answer does not decode").caused_by(e))
}

/// Returns what a replay is recognised by: the caller, the method and its arguments.
pub(super) fn fingerprint(call: &Call, request: &impl Serialize) -> Result<[u8; 32]> {
    if call.once.is_none() {
        return Ok([0; 32]);
    }
    Ok(*blake3::hash(&encode(&(call.caller.name().id(), request))?).as_bytes())
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::internal("a value does not encode").caused_by(e))
}

/// Says in words what settled a right.
pub(crate) fn words(settled: &Settled, right: Rights) -> String {
    match settled.because(right) {
        Because::NoEntry => format!("no entry gives {right}"),
        Because::Allowed(entry) => format!("entry {entry} gives {right}"),
        Because::Withheld(entry) => format!("entry {entry} withholds {right}"),
        Because::Narrowed => format!("the credential does not carry {right}"),
        Because::Mode => format!("mode bits or paths withhold {right}"),
    }
}

/// Returns an inode that is new: everything that its maker does not say.
pub(super) fn blank(kind: weft_core::attr::Kind, container: ContainerId, now: Time) -> Inode {
    Inode {
        generation: 0,
        kind,
        mode: 0,
        links: 1,
        owner: weft_core::CallerId::ANYONE,
        group: weft_core::CallerId::ANYONE,
        size: 0,
        used: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: 1,
        container,
        layout: Layout::Inline,
        layout_serial: 0,
        stamp: inodes::Stamp::default(),
        verifier: None,
        parent: 0,
    }
}
