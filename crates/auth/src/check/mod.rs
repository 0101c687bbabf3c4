//! Looking at everything auth keeps, and mending what can be: the tables, row by row and against each
//! other, the files of keys, and the audit log's chain.
//!
//! Whatever is lost, nobody may do more than before. So what can be told from other rows is made
//! again, and the rest is closed:
//!
//! | Not there, or not as it was written | Made again of | What is lost with it is closed |
//! |---|---|---|
//! | domain | the certificates, and the one group of administrators | its mark: whatever anybody holds is ended. With two groups of that name nobody is made an administrator, and no node starts |
//! | count of starts | the clock | it is past every number given: nothing of an earlier start is believed |
//! | signing key | its file and the root key, which certifies it again | without them nothing that it signed is believed |
//! | user | its name, its uid | no password, may not log in, whatever they hold is ended. Only who must have been the last administrator that may log in, still may |
//! | uid | its user | a uid of nobody is anyone's |
//! | group | its name, which says who made it | its members, if no name of it is left |
//! | member, membership, count of members | two of the three that agree | else only who stands in both is in; credentials with the old groups are made afresh |
//! | name | users, groups, members | those of strangers are learned when they come back |
//! | line | – | when anything was withdrawn: so whatever its caller holds is ended now |
//! | withdrawal | its key | until when: it stays as long as any. Whose it was, or that it is there: whatever anybody holds is ended |
//! | link, or the count of its uses | – | the other with it: nobody reads by it any more |
//! | token, or when it was used | – | the other with it: nobody gets in by it any more |
//! | audit head | the log's next batch | a cut of the log until then is not noticed |

mod accounts;
mod files;
mod links;
mod rows;
mod tokens;

use std::sync::Arc;

use weft_core::proof::Trust;
use weft_core::service::{Finding, Severity};
use weft_core::{CallerId, DomainId, Error, Result, Time, VolumeId};
use weft_kv::{Ack, Engine, Order, Read, Space, SpaceId, SpaceSnapshot, SpaceTxn, Txn, prefix_end};
use weft_sys::{Disk, Sys};

pub(crate) use self::files::{of_audit, of_keys};
use crate::audit;
use crate::auth::{AUDIT, KEYS};
use crate::keys;
use crate::tables::{self, Domain, Line, SCHEMA};

/// Findings that one round names; more are found by the next.
const FINDINGS_MAX: usize = 10_000;
/// Rounds of mending: each layer is looked at once those below it are right.
const ROUNDS_MAX: usize = 16;
/// Corrections in one transaction.
const BATCH: usize = 1_000;

/// Checks what auth keeps of a node that does not run, and changes nothing: where the tables are
/// wrong, says what [`mend`] would find first. `disk` is auth's own directory.
pub async fn check(
    sys: &Sys,
    engine: Arc<dyn Engine>,
    space: SpaceId,
    disk: &dyn Disk,
) -> Result<Vec<Finding>> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    let found = looked(sys, &space.snapshot()?, Some((&*disk.beneath(KEYS)?, &[])))?;
    if found.findings.is_empty() { of_files(&space, disk) } else { Ok(found.findings) }
}

/// Checks it, and mends what can be mended. `volumes` are those that the node issues capabilities for.
pub async fn mend(
    sys: &Sys,
    engine: Arc<dyn Engine>,
    space: SpaceId,
    disk: &dyn Disk,
    volumes: &[VolumeId],
) -> Result<Vec<Finding>> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    let keys_disk = disk.beneath(KEYS)?;
    let mut findings = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = looked(sys, &space.snapshot()?, Some((&*keys_disk, volumes)))?;
        if found.findings.is_empty() {
            findings.extend(of_files(&space, disk)?);
            return Ok(findings);
        }
        let new: Vec<_> = found.findings.into_iter().filter(|finding| !findings.contains(finding)).collect();
        findings.extend(new);
        if found.fixes.is_empty() {
            return Ok(findings);
        }
        apply(&space, found.fixes).await?;
    }
    let detail = "mending uncovers more and more".to_owned();
    findings.push(finding(Severity::Loss, "identities", detail, "restore a backup"));
    Ok(findings)
}

/// Says what is wrong with the tables.
pub(crate) fn of_tables(sys: &Sys, rows: &SpaceSnapshot) -> Result<Vec<Finding>> {
    Ok(looked(sys, rows, None)?.findings)
}

/// Looks at what lies beside tables that are right. None of it can be mended.
fn of_files(space: &Space, disk: &dyn Disk) -> Result<Vec<Finding>> {
    let snapshot = space.snapshot()?;
    let gone = || Error::corrupt("the tables name no domain").op("check the keys");
    let domain: Domain = tables::read(&snapshot, &tables::domain_key())?.ok_or_else(gone)?;
    let rows = keys::key_rows(&snapshot)?;
    let mut findings = of_keys(&*disk.beneath(KEYS)?, domain.id, &rows)?;
    let trust: Trust = keys::trust_of(domain.id, &rows)?;
    let known = tables::read(&snapshot, &tables::audit_head_key())?;
    let verdict = audit::verify_at_rest(&*disk.beneath(AUDIT)?, known, &trust, domain.id)?;
    findings.extend(of_audit(verdict));
    Ok(findings)
}

/// One correction.
#[derive(Clone)]
enum Fix {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Bump(Vec<u8>, i64),
}

impl Fix {
    fn put<T: serde::Serialize>(key: Vec<u8>, value: &T) -> Result<Self> {
        let value = tables::sealed(&key, &tables::encode(value)?);
        Ok(Self::Put(key, value))
    }
}

/// What one look found, and what to do about it.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    fixes: Vec<Fix>,
}

impl Found {
    fn add(
        &mut self,
        severity: Severity,
        structure: &str,
        detail: String,
        repair: &str,
        fixes: impl IntoIterator<Item = Fix>,
    ) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding(severity, structure, detail, repair));
            self.fixes.extend(fixes);
        }
    }

    fn mendable(
        &mut self,
        structure: &str,
        detail: String,
        repair: &str,
        fixes: impl IntoIterator<Item = Fix>,
    ) {
        self.add(Severity::Repairable, structure, detail, repair, fixes);
    }

    fn lost(&mut self, structure: &str, detail: String, repair: &str, fixes: impl IntoIterator<Item = Fix>) {
        self.add(Severity::Loss, structure, detail, repair, fixes);
    }
}

fn finding(severity: Severity, structure: &str, detail: String, repair: &str) -> Finding {
    Finding { severity, structure: structure.to_owned(), detail, repair: repair.to_owned(), object: None }
}

/// A look at all tables at one moment.
struct Looker<'a> {
    sys: &'a Sys,
    now: Time,
    /// No credential was made later, as far as the tables tell and the clock was not set back since.
    latest: Time,
    rows: &'a SpaceSnapshot,
    /// Where keys lie, and what they are to speak for, if keys may be certified again.
    keys: Option<(&'a dyn Disk, &'a [VolumeId])>,
    found: Found,
}

fn looked(sys: &Sys, rows: &SpaceSnapshot, keys: Option<(&dyn Disk, &[VolumeId])>) -> Result<Found> {
    let now = sys.clock().now();
    let mut looker = Looker { sys, now, latest: now, rows, keys, found: Found::default() };
    looker.latest = looker.lines()?.into_iter().filter_map(|(_, line)| line.revoked).fold(now, Time::max);
    looker.rows()?;
    // Layer by layer: what is wrong in one would look wrong in all above it.
    if looker.found.findings.is_empty()
        && let Some(domain) = looker.domain()?
    {
        looker.starts()?;
        looker.signing_keys(domain.id)?;
        looker.accounts(domain)?;
    }
    Ok(looker.found)
}

impl Looker<'_> {
    /// Returns the correction that ends whatever a caller holds.
    fn ended(&self, id: CallerId, line: Line) -> Result<Fix> {
        let line = Line { revoked: Some(self.latest), ..line };
        Fix::put(tables::line_key(id), &line)
    }

    /// Returns the corrections that end whatever anybody holds who has a line: who has none gets
    /// one that does so.
    fn everybody_ended(&self) -> Result<Vec<Fix>> {
        self.lines()?.into_iter().map(|(id, line)| self.ended(id, line)).collect()
    }

    /// Returns whose lines there are; what cannot be read says nothing.
    fn lines(&self) -> Result<Vec<(CallerId, Line)>> {
        let mut lines = Vec::new();
        for row in self.rows.scan(b"l", &prefix_end(b"l"), Order::Rising) {
            let (key, value) = row?;
            let line = tables::opened(&key, &value).unwrap_or_default();
            lines.extend(tables::id_of(&key[1..]).map(|id| (CallerId(id), line)));
        }
        Ok(lines)
    }

    fn starts(&mut self) -> Result<()> {
        if self.rows.get(&tables::starts_key())?.is_none() {
            let fix = self.starts_moved_on()?;
            self.found.mendable(rows::STARTS, "not there".to_owned(), rows::MOVED_ON, [fix]);
        }
        Ok(())
    }

    fn signing_keys(&mut self, domain: DomainId) -> Result<()> {
        let Some((disk, volumes)) = self.keys else { return Ok(()) };
        let known = keys::key_rows(self.rows)?;
        for keys::Certified { id, row } in keys::certify_again(self.sys, disk, domain, &known, volumes)? {
            let detail = format!("{id}, for {:?}: not there, and its file is", row.purpose);
            let fix = Fix::put(tables::key_key(id), &row)?;
            self.found.mendable(rows::SIGNING_KEY, detail, rows::CERTIFIED, [fix]);
        }
        Ok(())
    }
}

async fn apply(space: &Space, fixes: Vec<Fix>) -> Result<()> {
    for batch in fixes.chunks(BATCH) {
        let batch = batch.to_vec();
        let act = move |txn: &mut SpaceTxn<'_>| {
            batch.iter().try_for_each(|fix| match fix {
                Fix::Put(key, value) => txn.put(key, value),
                Fix::Delete(key) => txn.delete(key),
                Fix::Bump(key, delta) => txn.bump(key, *delta),
            })
        };
        space.write(Ack::Durable, act).await?;
    }
    Ok(())
}
