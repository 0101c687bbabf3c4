//! Every row by itself: is it as it was written?

use bytes::Bytes;
use weft_core::attr::Kind;
use weft_core::{ContainerId, FileId, Result, limits};
use weft_kv::counter;

use super::super::act::blank;
use super::super::table::containers::{self, Head, Rules};
use super::super::table::drops::DropRow;
use super::super::table::entries;
use super::super::table::inodes::{self, Inode};
use super::super::table::key::{Fields, Key, Table};
use super::super::table::row::{self, Row};
use super::super::table::splits::{self, Split};
use super::super::table::{once, stages, unnamed};
use super::{Checker, Fix, delete, shown};

impl Checker<'_> {
    /// Finds rows that are not as they were written. Those that others can restore are
    /// deleted here and restored in the next round.
    pub(super) fn rows_decode(&mut self) -> Result<()> {
        for table in Table::ALL {
            let rows: Box<dyn Iterator<Item = Result<weft_kv::Row>>> = Box::new(self.rows(table));
            let mut broken = Vec::new();
            for row in rows {
                let (key, value) = row?;
                if !is_whole(table, &key, &value) {
                    broken.push(key);
                }
                if broken.len() > super::FINDINGS_MAX {
                    break;
                }
            }
            for key in broken {
                self.broken(table, &key)?;
            }
        }
        Ok(())
    }

    fn broken(&mut self, table: Table, key: &Bytes) -> Result<()> {
        let detail = format!("row {} is not as it was written", shown(key));
        let what = table.what();
        match table {
            Table::Inode => return self.broken_inode(key, detail),
            Table::Head => {
                let id = ContainerId(Fields::of(key).u64().unwrap_or_default());
                let fix = self.new_head(id)?;
                self.found.mendable(what, detail, "a new epoch is begun", [fix]);
            }
            Table::Policy => {
                let id = ContainerId(Fields::of(key).u64().unwrap_or_default());
                let fix = self.closed_policy(id)?;
                self.found.lost(what, detail, "left to the administrators alone", [fix]);
            }
            Table::Inline => {
                let serial = Fields::of(key).u64().unwrap_or_default();
                let mut fixes = vec![delete(key)];
                if let Ok(Some(mut inode)) = inodes::find(self.read, serial) {
                    (inode.size, inode.used) = (0, 0);
                    inode.layout_serial += 1;
                    inode.changed(self.now);
                    fixes.push(put_inode(serial, &inode)?);
                }
                self.found.lost(what, detail, "the file is emptied", fixes);
            }
            // Nobody drops anything then: what anyone may do there leads nowhere without it.
            Table::DropBox => {
                self.found.lost(what, detail, "removed: it is no drop-box any more", [delete(key)])
            }
            Table::Target | Table::Tag | Table::Stage | Table::Part => {
                self.found.lost(what, detail, "removed", [delete(key)]);
            }
            Table::Split => {
                let fix = self.split_again(key)?;
                self.found.mendable(what, detail, "begun again", fix);
            }
            Table::Volume => self.found.mendable(what, detail, "written anew", []),
            _ => self.found.mendable(what, detail, "removed, then made again of what it says", [delete(key)]),
        }
        Ok(())
    }

    /// What an inode is can be told from its names and from what hangs on it; its
    /// attributes and an object it had cannot.
    fn broken_inode(&mut self, key: &Bytes, detail: String) -> Result<()> {
        let serial = Fields::of(key).u64().unwrap_or_default();
        let fixes = match self.rebuilt(serial)? {
            Some(inode) => vec![put_inode(serial, &inode)?],
            None => vec![delete(key)],
        };
        self.found.lost(Table::Inode.what(), detail, super::names::REBUILT, fixes);
        Ok(())
    }

    /// Returns what can be told of an inode without its row; `None` if it has no names.
    pub(super) fn rebuilt(&self, serial: u64) -> Result<Option<Inode>> {
        let root = serial == FileId::ROOT.serial();
        let (kind, generation, parent) = if root {
            (Kind::Directory, 0, serial)
        } else {
            let Some(back) = entries::names_of(self.read, serial).find_map(|back| back.ok()) else {
                return Ok(None);
            };
            let Ok(Some(link)) = entries::find(self.read, back.parent, &back.name) else { return Ok(None) };
            (link.kind, link.generation, back.parent)
        };
        let own = containers::find_rules_of(self.read, serial)?;
        let above = inodes::find(self.read, parent).ok().flatten().filter(|_| !root);
        let container = own
            .or(above.map(|above| above.container))
            .unwrap_or(ContainerId::new(self.volume, FileId::ROOT.serial()));
        let mut inode = blank(kind, container, self.now);
        inode.generation = generation;
        inode.mode = if kind == Kind::Directory { 0o700 } else { 0o600 };
        (inode.owner, inode.group) = (self.administrators.id(), self.administrators.id());
        inode.parent = if kind == Kind::Directory { parent } else { 0 };
        inode.links = if kind == Kind::Directory {
            1
        } else {
            entries::names_of(self.read, serial).filter(|back| back.is_ok()).count() as u32
        };
        // Its versions must not meet those it had.
        inode.layout_serial = 1 << 31;
        if kind == Kind::File {
            let bytes = inodes::inline(self.read, serial).unwrap_or_default();
            (inode.size, inode.used) = (bytes.len() as u64, bytes.len() as u64);
        }
        Ok(Some(inode))
    }

    pub(super) fn new_head(&self, id: ContainerId) -> Result<Fix> {
        let later = self.now.nanos().unsigned_abs();
        let leaving = !splits::out_of(self.read, id).unwrap_or_default().is_empty();
        // Later than any it has begun, unless it began one each second since 1970.
        let epoch = (later / 1_000_000_000).min(limits::EPOCH_MAX);
        let head = Head { serial: later, epoch, leaving };
        put_row(Key::of(Table::Head).u64(id.0), &head)
    }

    /// Returns a policy that lets nobody but the administrators in.
    pub(super) fn closed_policy(&self, id: ContainerId) -> Result<Fix> {
        use weft_core::acl::{Acl, AclEntry, Who};
        let entry = AclEntry::allow(Who::Caller(self.administrators.clone()), weft_core::Rights::ALL);
        let root = self.root_among_members(id)?;
        let rules = Rules {
            root,
            acl: Acl { version: self.now.nanos().unsigned_abs(), entries: vec![entry] },
            modes: Default::default(),
            bytes_max: None,
            audit_reads: Default::default(),
        };
        put_row(Key::of(Table::Policy).u64(id.0), &rules)
    }

    /// A container's root is the member that lies in another container; what a split has
    /// not come to yet does so too.
    fn root_among_members(&self, id: ContainerId) -> Result<u64> {
        let leaving = splits::out_of(self.read, id)?;
        for row in inodes::all(self.read) {
            // What does not decode is mended by itself, and this is looked at again.
            let Ok((serial, inode)) = row else { continue };
            if inode.container != id || serial == FileId::ROOT.serial() {
                continue;
            }
            for back in entries::names_of(self.read, serial).flatten() {
                let above = inodes::find(self.read, back.parent).ok().flatten().map(|dir| dir.container);
                let is_fetched = |into| leaving.iter().any(|split| split.into == into);
                if above.is_some_and(|above| above != id && !is_fetched(above)) {
                    return Ok(serial);
                }
            }
        }
        Ok(FileId::ROOT.serial())
    }

    /// A split is known by its key alone: the container it leads to knows its root.
    fn split_again(&self, key: &Bytes) -> Result<Vec<Fix>> {
        let mut fields = Fields::of(key);
        let ids = fields.u64().and_then(|from| Some((from, ContainerId(fields.u64()?))));
        let Some((from, into)) = ids else { return Ok(vec![delete(key)]) };
        let Ok(rules) = containers::rules(self.read, into) else { return Ok(vec![delete(key)]) };
        let split = Split { root: rules.root, into };
        let row = put_row(Key::of(Table::Split).u64(from).u64(into.0), &split)?;
        let (queue, first) = splits::queued(&split, rules.root)?;
        Ok(vec![row, Fix::Put(queue, first)])
    }
}

/// Returns the correction that writes a row.
pub(super) fn put_row<R: Row>(key: Key, row: &R) -> Result<Fix> {
    let value = row::encode(&key, row)?;
    Ok(Fix::Put(key.to_vec(), value))
}

pub(super) fn put_inode(serial: u64, inode: &Inode) -> Result<Fix> {
    put_row(Key::of(Table::Inode).u64(serial), inode)
}

fn is_whole(table: Table, key: &Bytes, value: &Bytes) -> bool {
    fn row<R: Row>(key: &Bytes, value: &Bytes) -> bool {
        row::decode::<R>(key, value).is_ok()
    }
    let bytes = || row::decode_bytes(key, value, "").is_ok();
    match table {
        Table::Volume => row::<super::super::table::volume::Volume>(key, value),
        Table::Numbers | Table::Files | Table::Used => counter(value).is_ok(),
        Table::Inode => row::<Inode>(key, value),
        Table::Tally => inodes::is_tally(key, value),
        Table::Inline | Table::Tag | Table::BackLink => bytes(),
        Table::Target => inodes::is_target(key, value),
        Table::Entry => row::<entries::Link>(key, value),
        Table::Cookie => entries::is_listed(key, value),
        Table::Head => row::<Head>(key, value),
        Table::Policy => row::<Rules>(key, value),
        Table::Split => row::<Split>(key, value),
        Table::DropBox => row::<DropRow>(key, value),
        Table::SplitQueue => splits::is_queued(key, value),
        Table::Stage => row::<stages::StageRow>(key, value),
        Table::Part => row::<stages::PartRow>(key, value),
        Table::StageAt => stages::is_mark(key, value),
        Table::Orphan | Table::Relabel | Table::Writing | Table::Locker => unnamed::is_mark(key, value),
        Table::Garbage => unnamed::is_garbage_row(key, value),
        Table::OnceHead | Table::OnceSlot | Table::Once => once::is_whole(table, key, value),
    }
}
