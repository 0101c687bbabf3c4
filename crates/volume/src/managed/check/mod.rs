//! Checking the tables against each other and against the store, and mending them.
//!
//! Every name is three rows, every size two, every count what can be counted: where one
//! row is wrong, the others say what it was. A check goes over everything once and
//! names what it finds in the lowest layer where anything is wrong; mending writes the
//! corrections and looks again, until nothing more is found: what one correction
//! uncovers, the next round sees.
//!
//! What is lost for good (the bytes of a row that does not match its checksum) is said
//! to be, and never made up.

mod inodes;
mod names;
mod paths;
mod placed;
mod rest;
mod rows;
mod stored;

pub use self::paths::{Junction, PathsOfObjects, junctions_at_rest, paths_at_rest};

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_core::form::{Ack, Call};
use weft_core::service::{CheckReport, Finding, Severity};
use weft_core::{CallerName, ContainerId, Error, Result, Rights, Time, VolumeId};
use weft_kv::{Order, Read, Row, Space, Txn};

use super::restored::Step;
use super::table::key::{Key, Table};
use super::table::volume::{self as volume_row};
use super::view::View;
use super::{Config, Managed, SCHEMA, Volume};

/// Findings that one round names; more are found by the next.
const FINDINGS_MAX: usize = 10_000;
/// Rounds of mending: each uncovers less, and what is left after these is said.
const ROUNDS_MAX: usize = 16;
/// Corrections in one transaction.
const BATCH: usize = 1_000;

impl Managed {
    /// Checks every structure without changing anything. Needs `maintain` at the root,
    /// or to be the node itself.
    pub async fn check(&self, call: &Call) -> Result<CheckReport> {
        let volume = &self.volume;
        volume.look(call, need_maintain)?;
        Ok(volume.checked().await?.report)
    }
}

/// Fails unless the caller may maintain the volume, or is the node itself.
fn need_maintain(view: &View<'_>) -> Result<()> {
    let own = (view.volume.node)();
    let is_node = !own.is_anyone() && own.name() == view.call.caller.name();
    let root = view.node_at(weft_core::FileId::ROOT.serial())?;
    if is_node { Ok(()) } else { view.need(&root, Rights::MAINTAIN) }
}

/// Checks a volume that nobody has open, and changes nothing: says what [`mend`] would find
/// first. What a crash left half-done, and the next start finishes, is nothing wrong.
pub async fn check_at_rest(config: Config) -> Result<CheckReport> {
    let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
    if let Some(finding) = volume_row_wrong(&space.snapshot()?, &config)? {
        return Ok(CheckReport { findings: vec![finding], ..CheckReport::default() });
    }
    Ok(Volume::assemble(config, space)?.checked().await?.report)
}

/// Checks a volume that nobody has open, and mends what it finds. `administrators` are
/// put in charge of what has lost its policy.
pub async fn mend(config: Config, administrators: CallerName) -> Result<CheckReport> {
    let space = Space::open(config.engine.clone(), config.space, &SCHEMA).await?;
    let mut report = CheckReport::default();
    mend_volume_row(&space, &config, &administrators, &mut report).await?;
    let volume = Volume::assemble(config, space)?;
    for _ in 0..ROUNDS_MAX {
        let found = volume.checked().await?;
        report.inodes = found.report.inodes;
        report.objects = found.report.objects;
        let new: Vec<Finding> =
            found.report.findings.into_iter().filter(|finding| !report.findings.contains(finding)).collect();
        let again = !new.is_empty() || !found.fixes.is_empty();
        report.findings.extend(new);
        volume.apply(found.fixes).await?;
        if !again {
            return Ok(report);
        }
    }
    let detail = "mending uncovers more and more: restore a backup".to_owned();
    report.findings.push(Finding {
        severity: Severity::Loss,
        structure: "volume".into(),
        detail,
        repair: String::new(),
        object: None,
    });
    Ok(report)
}

async fn mend_volume_row(
    space: &Space,
    config: &Config,
    administrators: &CallerName,
    report: &mut CheckReport,
) -> Result<()> {
    let Some(finding) = volume_row_wrong(&space.snapshot()?, config)? else { return Ok(()) };
    report.findings.push(finding);
    let row = volume_row::Volume {
        id: config.volume,
        // Ids given so far stay what they are; none can be given again.
        generation: 0,
        administrators: administrators.clone(),
    };
    space.write(Ack::Durable, move |txn| volume_row::put(txn, &row)).await.map(drop)
}

/// Says what is wrong with the row that says which volume this is.
fn volume_row_wrong(read: &(dyn Read + Sync), config: &Config) -> Result<Option<Finding>> {
    let detail = match volume_row::find(read) {
        Ok(Some(row)) if row.id == config.volume => return Ok(None),
        Ok(Some(_)) => "it has another number",
        Ok(None) => "it is not there",
        Err(_) => "it is not as it was written",
    };
    if super::table::inodes::all(read).next().is_none() {
        return Err(Error::not_found("there is no volume here").op("check the volume"));
    }
    Ok(Some(Finding {
        severity: Severity::Repairable,
        structure: "volume".into(),
        detail: detail.into(),
        repair: "written anew".into(),
        object: None,
    }))
}

/// One correction.
#[derive(Clone, Debug)]
pub(super) enum Fix {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Bump(Vec<u8>, i64),
}

/// What one round found, and what to do about it.
#[derive(Default)]
pub(super) struct Found {
    pub(super) report: CheckReport,
    pub(super) fixes: Vec<Fix>,
}

impl Found {
    fn is_full(&self) -> bool {
        self.report.findings.len() >= FINDINGS_MAX
    }

    /// Notes something that is wrong, and how to mend it.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        structure: &str,
        detail: impl Into<String>,
        repair: &str,
        fixes: impl IntoIterator<Item = Fix>,
    ) {
        if self.is_full() {
            return;
        }
        self.report.findings.push(Finding {
            severity,
            structure: structure.to_owned(),
            detail: detail.into(),
            repair: repair.to_owned(),
            object: None,
        });
        self.fixes.extend(fixes);
    }

    /// Notes something that can be mended without loss.
    pub(super) fn mendable(
        &mut self,
        structure: &str,
        detail: impl Into<String>,
        repair: &str,
        fixes: impl IntoIterator<Item = Fix>,
    ) {
        self.add(Severity::Repairable, structure, detail, repair, fixes);
    }

    pub(super) fn lost(
        &mut self,
        structure: &str,
        detail: impl Into<String>,
        repair: &str,
        fixes: impl IntoIterator<Item = Fix>,
    ) {
        self.add(Severity::Loss, structure, detail, repair, fixes);
    }
}

/// A look at all tables at one moment.
pub(super) struct Checker<'a> {
    pub(super) read: &'a (dyn Read + Sync),
    pub(super) volume: VolumeId,
    pub(super) administrators: CallerName,
    pub(super) now: Time,
    /// Past numbers that were given to nobody knows whom.
    pub(super) step: Step,
    pub(super) found: Found,
    /// Bytes of the files of each container.
    pub(super) used: HashMap<ContainerId, u64>,
    /// The largest number that is in use.
    pub(super) number: u64,
}

impl Checker<'_> {
    /// Rows of a table as they are stored.
    pub(super) fn rows(&self, table: Table) -> impl Iterator<Item = Result<Row>> + '_ {
        let prefix = Key::of(table);
        self.read.scan(&prefix, &prefix.end(), Order::Rising)
    }

    /// Everything beside names and inodes.
    fn beside(&mut self) -> Result<()> {
        self.beside_inodes()?;
        self.containers()?;
        self.stages()?;
        self.marks()?;
        self.placed()?;
        self.replays()?;
        self.numbers()
    }

    pub(super) fn saw_number(&mut self, number: u64) {
        self.number = self.number.max(number);
    }
}

impl Volume {
    async fn checked(self: &Arc<Self>) -> Result<Found> {
        let snapshot = self.space.snapshot()?;
        let administrators =
            volume_row::find(&snapshot)?.map_or(CallerName::ANYONE, |row| row.administrators);
        let mut checker = Checker {
            read: &snapshot,
            volume: self.id,
            administrators,
            now: self.sys.clock().now(),
            step: Step::now(&self.sys),
            found: Found::default(),
            used: HashMap::new(),
            number: 0,
        };
        // Layer by layer: what is wrong in one would look wrong in all above it.
        let layers: [fn(&mut Checker<'_>) -> Result<()>; 5] = [
            |checker| checker.rows_decode(),
            |checker| checker.missing_inodes(),
            |checker| checker.names(),
            |checker| checker.inodes(),
            |checker| checker.beside(),
        ];
        for layer in layers {
            if checker.found.report.findings.is_empty() {
                layer(&mut checker)?;
            }
        }
        let mut found = checker.found;
        if found.report.findings.is_empty() {
            self.check_objects(&snapshot, &mut found).await?;
        }
        Ok(found)
    }

    async fn apply(&self, fixes: Vec<Fix>) -> Result<()> {
        for batch in fixes.chunks(BATCH) {
            let batch = batch.to_vec();
            let act = move |txn: &mut weft_kv::SpaceTxn<'_>| {
                batch.iter().try_for_each(|fix| match fix {
                    Fix::Put(key, value) => txn.put(key, value),
                    Fix::Delete(key) => txn.delete(key),
                    Fix::Bump(key, delta) => txn.bump(key, *delta),
                })
            };
            self.space.write(Ack::Durable, act).await?;
        }
        Ok(())
    }
}

pub(super) fn delete(key: &[u8]) -> Fix {
    Fix::Delete(key.to_vec())
}

/// Shows a key as people can look it up.
pub(super) fn shown(key: &Bytes) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
