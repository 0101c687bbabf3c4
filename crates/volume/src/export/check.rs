//! Checking, and mending, the rows of what is shared. The shared directories are not looked at: their files
//! are not the node's to mend.
//!
//! A policy that cannot be read might have closed a place that is open without it. So what is left of that
//! share's policies counts no more either: one that lets in administrators, or the owner who made it, takes their place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_core::acl::{Acl, AclEntry, Who};
use weft_core::form::Ack;
use weft_core::policy::AuditReads;
use weft_core::service::{Finding, Severity};
use weft_core::{CallerName, FileId, Result, Rights, Time, VolumeId, limits};
use weft_kv::{Engine, Order, Read, Space, SpaceId, Txn};

use super::policies::Policies;
use super::shares::SCHEMA;
use super::table::{self, BoundRow, Key, ShareRow};
use crate::managed::Junction;
use crate::managed::row::decode;

/// What is known beside the shares' own rows.
pub struct Beside<'a> {
    /// The entries of the tree that lead to other volumes.
    pub junctions: &'a [Junction],
    /// Who is let in where nothing else is known.
    pub administrators: &'a CallerName,
    /// What time it is.
    pub now: Time,
}

/// One correction.
enum Fix {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    fixes: Vec<Fix>,
}

/// Checks the rows of what a node shares, and with `repair` mends what is wrong with them. While the node
/// runs, it is asked without.
pub async fn check(
    engine: Arc<dyn Engine>,
    space: SpaceId,
    beside: &Beside<'_>,
    repair: bool,
) -> Result<Vec<Finding>> {
    let space = Space::open(engine, space, &SCHEMA).await?;
    let Found { findings, fixes } = look(&space.snapshot()?, beside)?;
    if repair && !fixes.is_empty() {
        let mend = move |txn: &mut weft_kv::SpaceTxn<'_>| {
            fixes.iter().try_for_each(|fix| match fix {
                Fix::Put(key, value) => txn.put(key, value),
                Fix::Delete(key) => txn.delete(key),
            })
        };
        space.write(Ack::Durable, mend).await?;
    }
    Ok(findings)
}

/// What the rows say of one volume, as far as they can be read.
#[derive(Default)]
struct Rows {
    share: Option<ShareRow>,
    share_lost: bool,
    bounds: Vec<Vec<u8>>,
    has_root: bool,
    bound_lost: bool,
}

fn look(read: &dyn Read, beside: &Beside<'_>) -> Result<Found> {
    let mut found = Found::default();
    let mut volumes = BTreeMap::<VolumeId, Rows>::new();
    let mut last = None;
    for row in read.scan(&[], &[], Order::Rising) {
        let (key, value) = row?;
        match table::key_of(&key) {
            Some(Key::Share(volume)) => {
                let rows = volumes.entry(volume).or_default();
                rows.share = decode(&key, &value).ok();
                rows.share_lost = rows.share.is_none();
            }
            Some(Key::Bound(container)) => {
                let rows = volumes.entry(container.volume()).or_default();
                rows.bound_lost |= decode::<BoundRow>(&key, &value).is_err();
                rows.has_root |= container == Policies::root_of(container.volume());
                rows.bounds.push(key.to_vec());
            }
            Some(Key::LastVolume) => last = Some(value.as_ref().try_into().map(u16::from_be_bytes).ok()),
            None => {
                let fix = Fix::Delete(key.to_vec());
                found.add(Severity::Repairable, "a row is none of any table", "removed", [fix]);
            }
        }
    }
    for (volume, rows) in &volumes {
        found.check(*volume, rows, beside)?;
    }
    found.check_last(volumes.keys().next_back().copied(), last);
    let served: BTreeSet<FileId> =
        volumes.values().filter_map(|rows| rows.share.as_ref()?.junction).collect();
    for junction in beside.junctions.iter().filter(|junction| !served.contains(&junction.id)) {
        let (volume, at) = (junction.volume.0, &junction.at);
        let detail = format!("/{at} leads to share {volume}, which is not there");
        found.add(Severity::Note, &detail, "weft unshare it once the node runs", []);
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, severity: Severity, detail: &str, repair: &str, fixes: impl IntoIterator<Item = Fix>) {
        self.findings.push(Finding {
            severity,
            structure: "shares".to_owned(),
            detail: detail.to_owned(),
            repair: repair.to_owned(),
            object: None,
        });
        self.fixes.extend(fixes);
    }

    fn check(&mut self, volume: VolumeId, rows: &Rows, beside: &Beside<'_>) -> Result<()> {
        let policies = || rows.bounds.iter().map(|key| Fix::Delete(key.clone()));
        let number = volume.0;
        let Some(share) = &rows.share else {
            if rows.share_lost {
                let fixes = policies().chain([Fix::Delete(table::share_key(volume))]);
                let at = at(beside, volume);
                let detail = format!("which directory share {number}{at} is cannot be read");
                self.add(Severity::Loss, &detail, "it ends: share the directory again", fixes);
            } else {
                let detail = format!("there are policies of share {number}, which is not there");
                self.add(Severity::Repairable, &detail, "removed", policies());
            }
            return Ok(());
        };
        let hangs = |junction| beside.junctions.iter().any(|known| known.id == junction);
        if share.junction.is_some_and(|junction| !hangs(junction)) {
            let detail = format!("the place in the tree of {} is gone", shown(share));
            self.add(Severity::Note, &detail, "the next start ends the share", []);
        }
        if rows.bound_lost || !rows.has_root {
            let row = closed(volume, share, beside);
            let key = table::bound_key(Policies::root_of(volume));
            let put = Fix::Put(key.clone(), crate::managed::row::encode(&key, &row)?);
            let detail = format!("a policy of the share of {} cannot be read", shown(share));
            let repair = "all of its policies give way to one for whom it is: grant anew";
            self.add(Severity::Loss, &detail, repair, policies().chain([put]));
        }
        Ok(())
    }

    /// Checks the number of the last volume that was given. `last` is what is written, if it is one.
    fn check_last(&mut self, highest: Option<VolumeId>, last: Option<Option<u16>>) {
        let least = highest.map_or(0, |volume| volume.0);
        let detail = match last {
            None if highest.is_none() => return,
            Some(Some(last)) if last >= least => return,
            Some(None) => "the number of the last share cannot be read",
            _ => "the number of the last share is one that was given before",
        };
        let fix = table::last_volume(VolumeId(least));
        self.add(Severity::Repairable, detail, "counted anew", [Fix::Put(fix.0, fix.1)]);
    }
}

/// The policy of a share of whose policies some are lost.
fn closed(volume: VolumeId, share: &ShareRow, beside: &Beside<'_>) -> BoundRow {
    let who = if share.limited_to.is_some() { &share.by } else { beside.administrators };
    BoundRow {
        path: Vec::new(),
        guards: true,
        inode: FileId::root_of(volume),
        serial: 0,
        // Later than any it has begun, unless it began one each second since 1970.
        epoch: beside.now.seconds().unsigned_abs().min(limits::EPOCH_MAX),
        acl: Acl::new(vec![AclEntry::allow(Who::Caller(who.clone()), Rights::ALL)]),
        audit_reads: AuditReads::default(),
    }
}

fn shown(share: &ShareRow) -> String {
    String::from_utf8_lossy(&share.directory).into_owned()
}

/// Says where in the tree a volume is, if it is anywhere.
fn at(beside: &Beside<'_>, volume: VolumeId) -> String {
    let junction = beside.junctions.iter().find(|junction| junction.volume == volume);
    junction.map(|junction| format!(" at /{}", junction.at)).unwrap_or_default()
}
