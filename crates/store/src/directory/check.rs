//! Looking at every structure of the store, and mending what can be mended.
//!
//! | Structure | Missing | Extra | Cut or changed |
//! |---|---|---|---|
//! | object file | loss | moved to `orphans` | cut if longer and sealed so, else loss; block: loss |
//! | object record | (its file is extra) | loss | container, file, end: as the others say; else loss |
//! | entry in the container's list | made again | removed | – |
//! | owner of a file | made again | removed | made again |
//! | spare, removed file | (the file is extra, or goes on being there) | removed | removed |
//! | number of the next file | moved on | – | moved on |
//! | write mark | marked, if nothing was sealed yet | removed | – |
//! | seals | (block does not match) | removed | loss |
//!
//! Bytes that do not match their seal stay as they are and stay refused: nothing is sealed anew
//! to make a finding go away.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_core::form::{Ack, Seek};
use weft_core::service::{CheckReport, Finding, Severity};
use weft_core::{ContainerId, Error, ErrorKind, ObjectId, Result, limits};
use weft_kv::{Order, Read, SpaceSnapshot, SpaceTxn, Txn, prefix_end};
use weft_sys::disk::Entry;

use super::Inner;
use super::files::{OBJECTS_DIR, ORPHANS_DIR, least_next, number_of, path, recorded_next, spoken_for};
use super::live::{Aside, Known, Phase};
use super::rows::{
    FILES, FileNumber, MEMBERS, NEXT_FILE, OBJECTS, ObjectRow, REMOVED, SEALS, SPARES, WRITING, member_key,
    number_at, object_at, object_key,
};
use super::seals::{GROUP_BLOCKS, Group, Seal, block_of, blocks_in, extent, next_recorded};

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
    let mut checking = Checking {
        inner,
        how,
        report: CheckReport::default(),
        beyond: 0,
        entered: BTreeSet::new(),
        corrected: BTreeMap::new(),
        listers: None,
        dropped: BTreeSet::new(),
        put_aside: BTreeSet::new(),
    };
    checking.objects().await?;
    checking.members().await?;
    checking.owners().await?;
    checking.stray_seals().await?;
    checking.numbers().await?;
    checking.files().await?;
    Ok(checking.done())
}

struct Checking<'a> {
    inner: &'a Arc<Inner>,
    how: Check,
    report: CheckReport,
    beyond: u64,
    /// Files that were, or would be, entered for an object.
    entered: BTreeSet<FileNumber>,
    /// Objects whose records were, or would be, given another file or container.
    corrected: BTreeMap<ObjectId, ContainerId>,
    /// Which container lists an object, once that was asked.
    listers: Option<HashMap<ObjectId, ContainerId>>,
    /// Rows that speak of files and were, or would be, removed.
    dropped: BTreeSet<[u8; 9]>,
    /// Names taken among the files that no object owns.
    put_aside: BTreeSet<String>,
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
                        let repair = "restore it from a backup";
                        self.find_in(object, Severity::Loss, "object record", &error.to_string(), repair);
                    }
                }
            }
        }
    }

    async fn object(&mut self, object: ObjectId, row: &ObjectRow) -> Result<()> {
        let member = member_key(row.container, object);
        if self.records()?.get(&member)?.is_none() && self.still(object, row)? {
            self.unlisted(object, row, &member).await?;
        }
        if row.unverified > 0 {
            let what = format!("{} blocks were sealed after a crash, as they were found", row.unverified);
            self.find_in(object, Severity::Note, "seals", &what, "");
        }
        let live = match self.inner.take_up(object).await {
            Ok(live) => live,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let repair = "restore the object from a backup";
                self.find_in(object, Severity::Loss, "object file", error.detail(), repair);
                return Ok(());
            }
        };
        if live.state().phase != Phase::Sealed {
            return Ok(());
        }
        let (found, size) = (live.file.len()?, live.state().size);
        if found != size && live.state().phase == Phase::Sealed && self.wrong_size(&live, row, found).await? {
            return Ok(());
        }
        if self.how.blocks { self.blocks(&live).await } else { Ok(()) }
    }

    /// Returns whether the object is still as `row` says.
    fn still(&self, object: ObjectId, row: &ObjectRow) -> Result<bool> {
        Ok(ObjectRow::read(&self.records()?, object)?.as_ref() == Some(row))
    }

    /// An object that its container does not list: what it says of its container was changed, if
    /// another lists it.
    async fn unlisted(&mut self, object: ObjectId, row: &ObjectRow, member: &[u8]) -> Result<()> {
        let Some(lister) = self.lister(object)? else {
            let detail = format!("{object} is not in the list of container {}", row.container);
            self.find(Severity::Repairable, "container list", detail, "entered");
            return self.mend(member, |txn, key| txn.put(key, &[])).await;
        };
        let what = format!("it says container {}, and container {lister} lists it", row.container);
        self.find_in(object, Severity::Repairable, "object record", &what, "corrected");
        self.corrected.insert(object, lister);
        self.rewrite(object, ObjectRow { container: lister, ..*row }).await
    }

    /// Returns the container whose list an object is in. All lists are read once, for the first
    /// object that its own container does not list.
    fn lister(&mut self, object: ObjectId) -> Result<Option<ContainerId>> {
        if self.listers.is_none() {
            let mut listers = HashMap::new();
            for row in self.records()?.scan(&[MEMBERS], &prefix_end(&[MEMBERS]), Order::Rising) {
                let (key, _) = row?;
                if let (Ok(listed), Ok(container)) = (object_at(&key, 9), number_at(&key, 1)) {
                    listers.entry(listed).or_insert(ContainerId(container));
                }
            }
            self.listers = Some(listers);
        }
        Ok(self.listers.as_ref().and_then(|listers| listers.get(&object).copied()))
    }

    /// Writes an object's record, if repairs are wanted, and has it read anew.
    async fn rewrite(&self, object: ObjectId, row: ObjectRow) -> Result<()> {
        if !self.how.repair {
            return Ok(());
        }
        let act = move |txn: &mut SpaceTxn<'_>| txn.put(&object_key(OBJECTS, object), &row.encode());
        self.inner.space.write(Ack::Durable, act).await?;
        self.inner.let_go(object).await;
        Ok(())
    }

    /// Says what is wrong if a file is not as long as its record says. Returns whether nothing
    /// can be said of its blocks.
    async fn wrong_size(&mut self, live: &Arc<super::Live>, row: &ObjectRow, found: u64) -> Result<bool> {
        let _aside = Aside::new(live.clone());
        let size = live.state().size;
        let what = format!("the file has {found} bytes, the record says {size}");
        let (mendable, object) = (Severity::Repairable, live.id);
        if size == 0 && row.writes == 0 {
            // It was never sealed, so somebody was writing it: the mark is what was lost. (One that
            // was cut to nothing and sealed counts its writes.)
            self.find_in(object, mendable, "write mark", &what, "marked, to be sealed as it is found");
            self.mend(&object_key(WRITING, object), |txn, key| txn.put(key, &[])).await?;
            if self.how.repair {
                self.inner.let_go(object).await;
            }
            return Ok(true);
        }
        if found > size && self.ends_as_sealed(live, size)? {
            self.find_in(object, mendable, "object file", &what, "cut to its recorded size");
            if self.how.repair {
                live.file.set_len(size)?;
            }
            return Ok(false);
        }
        if found > size && self.ends_as_sealed(live, found)? {
            self.find_in(object, mendable, "object record", &what, "the record follows the file");
            if let Some(row) = ObjectRow::read(&self.records()?, object)? {
                self.rewrite(object, ObjectRow { size: found, ..row }).await?;
            }
            return Ok(true);
        }
        let repair = "restore the object from a backup";
        self.find_in(object, Severity::Loss, "object file", &what, repair);
        Ok(false)
    }

    /// Whether the last block of so many bytes matches its seal.
    fn ends_as_sealed(&self, live: &super::Live, size: u64) -> Result<bool> {
        let Some(last) = blocks_in(size).checked_sub(1) else { return Ok(true) };
        let Some(seal) = self.inner.seal_now(live, last)? else { return Ok(false) };
        let (at, length) = extent(last, size);
        let mut bytes = vec![0; length as usize];
        Ok(live.file.read(&mut bytes, at)? as u64 == length && seal.matches(&bytes))
    }

    /// Compares every sealed block with what is on the disk, holes too. Blocks beyond the end of
    /// the file are one finding, made before.
    async fn blocks(&mut self, live: &Arc<super::Live>) -> Result<()> {
        let _aside = Aside::new(live.clone());
        let blocks = blocks_in(live.state().size.min(live.file.len()?));
        let mut next = 0;
        loop {
            let block = self.inner.next_block(live, next).await?;
            if block >= blocks {
                return Ok(());
            }
            next = block + 1;
            // What is being cut off or made zeros is sealed as if it were by now.
            let _unshaped = live.gate.read().await;
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
                let repair = "it is refused; restore the object from a backup";
                self.find_in(live.id, Severity::Loss, "object block", &what, repair);
            }
        }
    }

    async fn members(&mut self) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows(MEMBERS, &after)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after = last.to_vec();
            for (key, _) in &rows {
                let (Ok(container), Ok(object)) = (number_at(key, 1).map(ContainerId), object_at(key, 9))
                else {
                    self.malformed("container list", key).await?;
                    continue;
                };
                let row = ObjectRow::read(&self.records()?, object).unwrap_or_default();
                let corrected = self.corrected.get(&object) == Some(&container);
                if corrected || row.is_some_and(|row| row.container == container) {
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
                let (Ok(number), Ok(object)) = (FileNumber::from_key(key), object_at(value, 0)) else {
                    self.malformed("file owner", key).await?;
                    continue;
                };
                let row = ObjectRow::read(&self.records()?, object).unwrap_or_default();
                if row.is_some_and(|row| row.file == number) || self.records()?.get(key)?.is_none() {
                    continue;
                }
                if let Some(row) = row.filter(|row| self.is_owner(row.file, object).is_ok_and(|is| !is)) {
                    let what =
                        format!("it says file {}, and {} is entered for it", path(row.file), path(number));
                    self.find_in(object, Severity::Repairable, "object record", &what, "corrected");
                    self.corrected.insert(object, row.container);
                    self.rewrite(object, ObjectRow { file: number, ..row }).await?;
                    continue;
                }
                let detail = format!("file {} is entered for {object}, which has another", path(number));
                self.find(Severity::Repairable, "file owner", detail, "removed");
                self.dropped.insert(number.key(FILES));
                self.mend(key, |txn, key| txn.delete(key)).await?;
            }
        }
    }

    /// Removes a row whose key or value is of no length it could have.
    async fn malformed(&mut self, structure: &str, key: &[u8]) -> Result<()> {
        let shown: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.find(Severity::Repairable, structure, format!("row {shown} is malformed"), "removed");
        self.mend(key, |txn, key| txn.delete(key)).await
    }

    /// Looks at spares, at files to be removed, and at the number of the next file: the store
    /// empties and removes files because of them.
    async fn numbers(&mut self) -> Result<()> {
        for (table, what) in [(SPARES, "spare"), (REMOVED, "removed file")] {
            let mut after = Vec::new();
            loop {
                let rows = self.rows(table, &after)?;
                let Some((last, _)) = rows.last() else { break };
                after = last.to_vec();
                for (key, _) in &rows {
                    self.number(table, what, key).await?;
                }
            }
        }
        let records = self.records()?;
        let counts = |key: &[u8]| !self.dropped.iter().any(|dropped| dropped == key);
        let (next, least) = (recorded_next(&records)?, least_next(&records, counts)?);
        if next.unwrap_or(0) < least {
            let detail = match next {
                Some(next) => {
                    format!("file {next} would be made next, {least} is the first that is not there")
                }
                None => format!("it is not recorded, {least} is the first that is not there"),
            };
            self.find(Severity::Repairable, "next file", detail, "moved on");
            let moved_on: Mend = |txn, key| {
                let least = least_next(txn, |_| true)?;
                txn.put(key, &least.to_be_bytes())
            };
            self.mend(NEXT_FILE, moved_on).await?;
        }
        Ok(())
    }

    async fn number(&mut self, table: u8, what: &str, key: &[u8]) -> Result<()> {
        let Ok(number) = FileNumber::from_key(key) else { return self.malformed(what, key).await };
        let records = self.records()?;
        if records.get(key)?.is_none() {
            return Ok(());
        }
        let Some(is) = spoken_for(&records, table, number)? else { return Ok(()) };
        self.find(Severity::Repairable, what, format!("file {} {is}", path(number)), "removed");
        self.dropped.insert(number.key(table));
        self.mend(key, |txn, key| txn.delete(key)).await
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
                if self.corrected.contains_key(&object) {
                    continue;
                }
                if self.is_owner(row.file, object)? {
                    continue;
                }
                if let Some(other) = self.other_owner(object, &row)? {
                    let what = format!("its file {} is {other}'s too", path(row.file));
                    let repair = "restore the object from a backup";
                    self.find_in(object, Severity::Loss, "object record", &what, repair);
                } else if self.still(object, &row)? {
                    let detail = format!("file {} is not entered for {object}", path(row.file));
                    self.find(Severity::Repairable, "file owner", detail, "entered");
                    self.entered.insert(row.file);
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

    /// Returns whether a file is entered for an object.
    fn is_owner(&self, file: FileNumber, object: ObjectId) -> Result<bool> {
        let owner = self.records()?.get(&file.key(FILES))?;
        Ok(owner.is_some_and(|owner| *owner == object.0.to_be_bytes()))
    }

    /// Returns the object that an object's file is entered for, if its record says the same.
    fn other_owner(&self, object: ObjectId, row: &ObjectRow) -> Result<Option<ObjectId>> {
        let records = self.records()?;
        let Some(owner) = records.get(&row.file.key(FILES))? else { return Ok(None) };
        let Ok(owner) = object_at(&owner, 0) else { return Ok(None) };
        let theirs = ObjectRow::read(&records, owner).unwrap_or_default();
        Ok((owner != object && theirs.is_some_and(|theirs| theirs.file == row.file)).then_some(owner))
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
        let Ok(object) = object_at(key, 1) else {
            let what = if table == WRITING { "write mark" } else { "seals" };
            return self.malformed(what, key).await;
        };
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
                        let repair = "its blocks are refused";
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
        // Those that were there, not those that are moved there now.
        let put_aside = self.entries(ORPHANS_DIR)?;
        for (name, _) in put_aside.iter().filter(|(_, kind)| **kind != Entry::Other) {
            let detail = format!("{ORPHANS_DIR}/{name} was found without an owner");
            self.find(Severity::Note, "orphans", detail, "kept until somebody removes it");
        }
        self.put_aside = put_aside.into_keys().collect();
        // Nobody makes spares meanwhile: what has a number beyond the last recorded was left there.
        let _none_made = self.inner.files.make_no_spares().await;
        for dir in self.names(OBJECTS_DIR)? {
            for name in self.names(&format!("{OBJECTS_DIR}/{dir}"))? {
                match number_of(&dir, &name) {
                    Some(number) => self.file(number)?,
                    None => {
                        let path = format!("{OBJECTS_DIR}/{dir}/{name}");
                        self.orphan(Severity::Repairable, &path, "is no name of the store's")?
                    }
                }
            }
        }
        Ok(())
    }

    fn names(&self, dir: &str) -> Result<Vec<String>> {
        let entries = self.entries(dir)?.into_iter();
        Ok(entries.filter(|(_, kind)| *kind != Entry::Other).map(|(name, _)| name).collect())
    }

    /// Returns what lies in a directory, by name.
    fn entries(&self, dir: &str) -> Result<BTreeMap<String, Entry>> {
        let mut entries = BTreeMap::new();
        self.inner.files.disk().list(dir, &mut |name, kind| {
            entries.insert(name.to_owned(), kind);
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    fn file(&mut self, number: FileNumber) -> Result<()> {
        let records = self.records()?;
        for table in [FILES, SPARES, REMOVED] {
            let key = number.key(table);
            if !self.dropped.contains(&key) && records.get(&key)?.is_some() {
                return Ok(());
            }
        }
        if self.entered.contains(&number) {
            return Ok(());
        }
        let next = recorded_next(&records)?.unwrap_or(0).max(least_next(&records, |_| true)?);
        if number.0 >= next {
            return self.beyond(number);
        }
        self.orphan(Severity::Repairable, &path(number), "belongs to no object")
    }

    /// A file whose number is not recorded as given out: a crash may have taken that, which is
    /// nothing wrong. Empty, it is made again as a spare; with bytes it is in nobody's way but
    /// the disk's.
    fn beyond(&mut self, number: FileNumber) -> Result<()> {
        let size = match self.inner.files.measure(number) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            size => size?,
        };
        if size.len == 0 && size.used == 0 {
            return Ok(());
        }
        let why = format!("has {} bytes, and its number is not one that was given out", size.len);
        self.orphan(Severity::Note, &path(number), &why)
    }

    fn orphan(&mut self, severity: Severity, path: &str, why: &str) -> Result<()> {
        let repair = match (severity, self.how.repair) {
            (Severity::Note, false) => "would be: moved to orphans",
            _ => "moved to orphans",
        };
        self.find(severity, "object file", format!("{path} {why}"), repair);
        if !self.how.repair {
            return Ok(());
        }
        let name = self.name_aside(path);
        match self.inner.files.disk().rename(path, &format!("{ORPHANS_DIR}/{name}")) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            moved => moved,
        }
    }

    /// Chooses what a file is called among those put aside: what an earlier check put there, or
    /// this one from another place, keeps its name and its bytes.
    fn name_aside(&mut self, path: &str) -> String {
        let own = path.trim_start_matches(OBJECTS_DIR).trim_matches('/').replace('/', "-");
        let others = (1..).map(|n: u64| format!("{own}.{n}"));
        let name = std::iter::once(own.clone()).chain(others).find(|name| !self.put_aside.contains(name));
        let name = name.expect("fewer names are taken than there are numbers");
        self.put_aside.insert(name.clone());
        name
    }
}

impl Inner {
    /// Has an object taken up anew, by what its record says now.
    async fn let_go(&self, object: ObjectId) {
        let _shard = self.shard(object).lock().await;
        self.leave(object);
        self.unsure_at_start.store(true, std::sync::atomic::Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns the first block from `block` on that holds bytes or may have a seal for some: what
    /// lies between are holes that nothing else is said of.
    pub(super) async fn next_block(&self, live: &Arc<super::Live>, block: u64) -> Result<u64> {
        let reading = live.clone();
        let data = self.sys.blocking(move || reading.file.seek(extent(block, 0).0, Seek::Data)).await??;
        let fresh = live.state().next_fresh(block);
        let records = self.space.snapshot()?;
        let next =
            [data.map(block_of), fresh, next_recorded(&records, live.id, block)?].into_iter().flatten().min();
        Ok(next.unwrap_or(u64::MAX))
    }

    /// Returns the seal a block has now; `None` if it has none.
    fn seal_now(&self, live: &super::Live, block: u64) -> Result<Option<Seal>> {
        match self.look_up(live, block)?.0 {
            Known::Sealed { seal, .. } => Ok(Some(seal)),
            Known::Unsealed | Known::Elsewhere => Ok(None),
        }
    }
}
