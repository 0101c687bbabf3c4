//! Looking at every structure of the store, and mending what can be mended.
//!
//! | Structure | Missing | Extra | Cut or changed |
//! |---|---|---|---|
//! | object file | loss | moved to `orphans` | size mended if longer, else loss; block: loss |
//! | object record | (its file is extra) | – | loss |
//! | entry in the container's list | made again | removed | – |
//! | owner of a file | made again | removed | made again |
//! | seals | (block does not match) | removed | loss |
//!
//! Bytes that do not match their seal stay as they are and stay refused: nothing is sealed anew
//! to make a finding go away.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_core::form::Ack;
use weft_core::service::{CheckReport, Finding, Severity};
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result, limits};
use weft_kv::{Order, Read, SpaceSnapshot, SpaceTxn, Txn, prefix_end};
use weft_sys::disk::Entry;

use super::Inner;
use super::files::{OBJECTS_DIR, ORPHANS_DIR, number_of, path};
use super::live::{Known, Phase};
use super::rows::{
    FILES, FileNumber, MEMBERS, NEXT_FILE, OBJECTS, ObjectRow, REMOVED, SEALS, SPARES, WRITING, member_key,
    number_at, object_at, object_key,
};
use super::seals::{GROUP_BLOCKS, Group, Seal, blocks_in, extent};

/// How to check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Check {
    /// Mend what can be mended without loss.
    pub repair: bool,
    /// Read every sealed block and compare it with its seal.
    pub blocks: bool,
}

/// Rows looked at before others get their turn.
const ROWS_AT_ONCE: usize = 1024;

/// Looks at everything. Objects that change meanwhile are left out of what their change explains.
pub(super) async fn check(inner: &Arc<Inner>, how: Check) -> Result<CheckReport> {
    let mut checking = Checking { inner, how, report: CheckReport::default(), beyond: 0 };
    checking.objects().await?;
    checking.members().await?;
    checking.owners().await?;
    checking.stray_seals().await?;
    checking.files().await?;
    Ok(checking.done())
}

struct Checking<'a> {
    inner: &'a Arc<Inner>,
    how: Check,
    report: CheckReport,
    beyond: u64,
}

/// A change of records that mends something.
type Mend = fn(&mut SpaceTxn<'_>, &[u8]) -> Result<()>;

impl Checking<'_> {
    fn find(&mut self, severity: Severity, structure: &str, detail: String, repair: &str) {
        self.add(None, severity, structure, detail, repair);
    }

    fn find_in(&mut self, object: ObjectId, severity: Severity, structure: &str, what: &str, repair: &str) {
        self.add(Some(object), severity, structure, format!("{object}: {what}"), repair);
    }

    fn add(
        &mut self,
        object: Option<ObjectId>,
        severity: Severity,
        structure: &str,
        detail: String,
        repair: &str,
    ) {
        if self.report.findings.len() >= limits::STORE_FINDINGS_MAX {
            self.beyond += 1;
            return;
        }
        let repair = match (severity, self.how.repair) {
            (Severity::Repairable, false) => format!("would be: {repair}"),
            _ => repair.to_owned(),
        };
        let structure = structure.to_owned();
        self.report.findings.push(Finding { severity, structure, detail, repair, object });
    }

    fn done(mut self) -> CheckReport {
        if self.beyond > 0 {
            let detail = format!("{} more findings are not listed", self.beyond);
            let (severity, structure) = (Severity::Note, "store".to_owned());
            self.report.findings.push(Finding {
                severity,
                structure,
                detail,
                repair: String::new(),
                object: None,
            });
        }
        self.report
    }

    fn records(&self) -> Result<SpaceSnapshot> {
        self.inner.space.snapshot()
    }

    /// Returns the next rows of a table after `after`.
    fn rows(&self, table: u8, after: &[u8]) -> Result<Vec<weft_kv::Row>> {
        let from = if after.is_empty() { vec![table] } else { [after, &[0]].concat() };
        let records = self.records()?;
        records.scan(&from, &prefix_end(&[table]), Order::Rising).take(ROWS_AT_ONCE).collect()
    }

    /// Changes records, if repairs are wanted.
    async fn mend(&self, key: &[u8], mend: Mend) -> Result<()> {
        if !self.how.repair {
            return Ok(());
        }
        let key = key.to_vec();
        self.inner.space.write(Ack::Durable, move |txn| mend(txn, &key)).await.map(|_| ())
    }

    async fn objects(&mut self) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows(OBJECTS, &after)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after = last.to_vec();
            for (key, value) in &rows {
                self.report.objects += 1;
                let object = object_at(key, 1)?;
                match ObjectRow::decode(value) {
                    Ok(row) => self.object(object, &row).await?,
                    Err(error) => {
                        let repair = "none: restore it from a backup";
                        self.find_in(object, Severity::Loss, "object record", &error.to_string(), repair);
                    }
                }
            }
        }
    }

    async fn object(&mut self, object: ObjectId, row: &ObjectRow) -> Result<()> {
        let member = member_key(row.container, object);
        if self.records()?.get(&member)?.is_none() && self.still(object, row)? {
            let detail = format!("{object} is not in the list of container {}", row.container);
            self.find(Severity::Repairable, "container list", detail, "entered");
            self.mend(&member, |txn, key| txn.put(key, &[])).await?;
        }
        if row.unverified > 0 {
            let what = format!("{} blocks were sealed after a crash, as they were found", row.unverified);
            self.find_in(object, Severity::Note, "seals", &what, "");
        }
        let live = match self.inner.take_up(object).await {
            Ok(live) => live,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let repair = "none: restore the object from a backup";
                self.find_in(object, Severity::Loss, "object file", error.detail(), repair);
                return Ok(());
            }
        };
        if live.state().phase != Phase::Sealed {
            return Ok(());
        }
        let (found, size) = (live.file.len()?, live.state().size);
        if found != size && live.state().phase == Phase::Sealed {
            self.wrong_size(&live, found, size)?;
        }
        if self.how.blocks { self.blocks(&live).await } else { Ok(()) }
    }

    /// Returns whether the object is still as `row` says.
    fn still(&self, object: ObjectId, row: &ObjectRow) -> Result<bool> {
        Ok(ObjectRow::read(&self.records()?, object)?.as_ref() == Some(row))
    }

    fn wrong_size(&mut self, live: &super::Live, found: u64, size: u64) -> Result<()> {
        let what = format!("the file has {found} bytes, the record says {size}");
        if found < size {
            let repair = "none: restore the object from a backup";
            self.find_in(live.id, Severity::Loss, "object file", &what, repair);
            return Ok(());
        }
        self.find_in(live.id, Severity::Repairable, "object file", &what, "cut to its recorded size");
        if self.how.repair { live.file.set_len(size) } else { Ok(()) }
    }

    /// Compares every sealed block with what is on the disk, holes too.
    async fn blocks(&mut self, live: &Arc<super::Live>) -> Result<()> {
        let blocks = blocks_in(live.state().size);
        for block in 0..blocks {
            let seal = match self.inner.seal_now(live, block) {
                Ok(Some(seal)) => seal,
                Ok(None) => continue,
                // A record that cannot be read is found by itself.
                Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                Err(error) => return Err(error),
            };
            let reading = live.clone();
            let read = move || {
                let (at, length) = extent(block, reading.state().size);
                let mut bytes = vec![0; length as usize];
                let read = reading.file.read(&mut bytes, at)?;
                Ok::<_, Error>(read as u64 == length && seal.matches(&bytes))
            };
            let matches = self.inner.sys.blocking(read).await?;
            // Somebody may be writing it: then its seal is no longer that.
            if !matches.as_ref().is_ok_and(|matches| *matches)
                && self.inner.seal_now(live, block)? == Some(seal)
            {
                let at = extent(block, 0).0;
                let what = match matches {
                    Ok(_) => format!("the bytes from {at} on do not match their checksum"),
                    Err(error) => format!("the bytes from {at} on cannot be read: {error}"),
                };
                let repair = "none: it is refused; restore the object from a backup";
                self.find_in(live.id, Severity::Loss, "object block", &what, repair);
            }
        }
        Ok(())
    }

    async fn members(&mut self) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows(MEMBERS, &after)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after = last.to_vec();
            for (key, _) in &rows {
                let (container, object) = (ContainerId(number_at(key, 1)?), object_at(key, 9)?);
                let row = ObjectRow::read(&self.records()?, object).unwrap_or_default();
                if row.is_some_and(|row| row.container == container) {
                    continue;
                }
                if self.records()?.get(key)?.is_some() {
                    let detail = format!("container {container} lists {object}, which is not in it");
                    self.find(Severity::Repairable, "container list", detail, "removed");
                    self.mend(key, |txn, key| txn.delete(key)).await?;
                }
            }
        }
    }

    async fn owners(&mut self) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows(FILES, &after)?;
            let Some((last, _)) = rows.last() else { return self.unowned().await };
            after = last.to_vec();
            for (key, value) in &rows {
                let (number, object) = (FileNumber::from_key(key)?, object_at(value, 0)?);
                let row = ObjectRow::read(&self.records()?, object).unwrap_or_default();
                if row.is_some_and(|row| row.file == number) || self.records()?.get(key)?.is_none() {
                    continue;
                }
                let detail = format!("file {} is entered for {object}, which has another", path(number));
                self.find(Severity::Repairable, "file owner", detail, "removed");
                self.mend(key, |txn, key| txn.delete(key)).await?;
            }
        }
    }

    /// Looks for objects whose files are not entered as theirs.
    async fn unowned(&mut self) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows(OBJECTS, &after)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after = last.to_vec();
            for (key, value) in &rows {
                let (object, Ok(row)) = (object_at(key, 1)?, ObjectRow::decode(value)) else { continue };
                let owner = row.file.key(FILES);
                if self.records()?.get(&owner)?.is_some_and(|owner| *owner == object.0.to_be_bytes()) {
                    continue;
                }
                if self.still(object, &row)? {
                    let detail = format!("file {} is not entered for {object}", path(row.file));
                    self.find(Severity::Repairable, "file owner", detail, "entered");
                    self.mend(key, |txn, key| {
                        let object = object_at(key, 1)?;
                        let row = ObjectRow::read(txn, object)?;
                        row.map_or(Ok(()), |row| txn.put(&row.file.key(FILES), &object.0.to_be_bytes()))
                    })
                    .await?;
                }
            }
        }
    }

    /// Looks for seals of blocks beyond an object's end or of no object, and marks of no object.
    async fn stray_seals(&mut self) -> Result<()> {
        for table in [SEALS, WRITING] {
            let mut after = Vec::new();
            loop {
                let rows = self.rows(table, &after)?;
                let Some((last, _)) = rows.last() else { break };
                after = last.to_vec();
                for (key, value) in &rows {
                    self.stray(table, key, value).await?;
                }
            }
        }
        Ok(())
    }

    async fn stray(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<()> {
        let object = object_at(key, 1)?;
        let records = self.records()?;
        if records.get(key)?.is_none() {
            return Ok(());
        }
        let row = ObjectRow::read(&records, object).unwrap_or_default();
        let writing = records.get(&object_key(WRITING, object))?.is_some();
        let (structure, detail) = match row {
            None if table == WRITING => {
                ("write mark", format!("{object} is marked as open and is not there"))
            }
            None => ("seals", format!("seals of {object}, which is not there")),
            Some(_) if table == WRITING || writing => return Ok(()),
            Some(row) => {
                let first = number_at(key, 17)?.saturating_mul(GROUP_BLOCKS);
                match Group::decode(value) {
                    Err(error) => {
                        let repair = "none: its blocks are refused";
                        self.find_in(object, Severity::Loss, "seals", error.detail(), repair);
                        return Ok(());
                    }
                    Ok(_) if first < blocks_in(row.size) => return Ok(()),
                    Ok(_) => ("seals", format!("seals of {object} beyond its end")),
                }
            }
        };
        self.find(Severity::Repairable, structure, detail, "removed");
        self.mend(key, |txn, key| txn.delete(key)).await
    }

    /// Looks at what lies in the directories.
    async fn files(&mut self) -> Result<()> {
        for dir in self.names(OBJECTS_DIR)? {
            for name in self.names(&format!("{OBJECTS_DIR}/{dir}"))? {
                match number_of(&dir, &name) {
                    Some(number) => self.file(number)?,
                    None => {
                        self.orphan(&format!("{OBJECTS_DIR}/{dir}/{name}"), "is no name of the store's")?
                    }
                }
            }
        }
        for name in self.names(ORPHANS_DIR)? {
            let detail = format!("{ORPHANS_DIR}/{name} was found without an owner");
            self.find(Severity::Note, "orphans", detail, "kept until somebody removes it");
        }
        Ok(())
    }

    fn names(&self, dir: &str) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        self.inner.files.disk().list(dir, &mut |name, kind| {
            if kind != Entry::Other {
                names.insert(name.to_owned());
            }
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    fn file(&mut self, number: FileNumber) -> Result<()> {
        let records = self.records()?;
        for table in [FILES, SPARES, REMOVED] {
            if records.get(&number.key(table))?.is_some() {
                return Ok(());
            }
        }
        // Names beyond the last number recorded are of spares that are being made, or were when
        // the node stopped: they are made again.
        let next = records.get(NEXT_FILE)?.map_or(Ok(0), |next| number_at(&next, 0))?;
        if number.0 >= next {
            return Ok(());
        }
        self.orphan(&path(number), "belongs to no object")
    }

    fn orphan(&mut self, path: &str, why: &str) -> Result<()> {
        self.find(Severity::Repairable, "object file", format!("{path} {why}"), "moved to orphans");
        if !self.how.repair {
            return Ok(());
        }
        let name = path.trim_start_matches(OBJECTS_DIR).trim_matches('/').replace('/', "-");
        match self.inner.files.disk().rename(path, &format!("{ORPHANS_DIR}/{name}")) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            moved => moved,
        }
    }
}

impl Inner {
    /// Returns the seal a block has now; `None` if it has none.
    fn seal_now(&self, live: &super::Live, block: u64) -> Result<Option<Seal>> {
        match self.look_up(live, block)?.0 {
            Known::Sealed { seal, .. } => Ok(Some(seal)),
            Known::Unsealed | Known::Elsewhere => Ok(None),
        }
    }
}
