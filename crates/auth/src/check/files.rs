//! What auth keeps beside its tables: the files of keys, and the audit log's chain. Neither can be
//! mended from what else there is, so nothing is changed here.

use std::ops::ControlFlow;

use weft_core::proof::Purpose;
use weft_core::service::{AuditVerdict, Finding, Severity};
use weft_core::{DomainId, ErrorKind, KeyId, Result};
use weft_sys::Disk;
use weft_sys::disk::Entry;

use super::finding;
use crate::auth::{AUDIT, KEYS};
use crate::keys::{self, Root, file};
use crate::tables::KeyRow;

/// Says what is wrong with the audit log, if anything is.
pub(crate) fn of_audit(verdict: AuditVerdict) -> Option<Finding> {
    let AuditVerdict::Broken { file, offset, detail } = verdict else { return None };
    let detail = format!("auth/{AUDIT}/{file}: from byte {offset} on: {detail}");
    Some(lost("audit log", detail, "what is before it holds; look for who could write there"))
}

/// Looks at the file of each key that the tables know, and at what else lies there.
pub(crate) fn of_keys(disk: &dyn Disk, domain: DomainId, rows: &[(KeyId, KeyRow)]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let root = of_root(disk, domain, &mut findings);
    for purpose in keys::lacking(rows) {
        let detail = format!("for {purpose:?}: there is none");
        findings.push(match root {
            true => note(detail, "the next start makes a new one"),
            false => lost("key", detail, "put root.key back, to make a new one"),
        });
    }
    let mut known = vec![file::ROOT.to_owned()];
    for (id, row) in rows {
        let name = file::name_of(row.purpose, *id);
        if row.current {
            findings.extend(of_current(disk, &name, *id, row.purpose, root));
        } else if disk.measure(&name).is_ok() {
            let detail = format!("{}: the key was replaced, and its secret is still there", shown(&name));
            findings.push(note(detail, "remove the file"));
        }
        known.push(name);
    }
    disk.list("", &mut |name, entry| {
        if entry != Entry::File || !known.iter().any(|known| known == name) {
            findings.push(note(format!("{}: no key of the domain's", shown(name)), "it is not used"));
        }
        ControlFlow::Continue(())
    })?;
    Ok(findings)
}

/// Returns whether the root key is there and the domain's. It may be kept elsewhere.
fn of_root(disk: &dyn Disk, domain: DomainId, findings: &mut Vec<Finding>) -> bool {
    let repair = "put a copy of it back, or take it away until a key is to be made";
    match Root::read(disk) {
        Ok(Some(root)) if root.domain() == domain => return true,
        Ok(None) => {}
        Ok(Some(_)) => findings.push(lost("key", format!("{}: another domain's", shown(file::ROOT)), repair)),
        Err(error) => {
            findings.push(lost("key", format!("{}: {}", shown(file::ROOT), error.detail()), repair))
        }
    }
    false
}

fn of_current(disk: &dyn Disk, name: &str, id: KeyId, purpose: Purpose, root: bool) -> Option<Finding> {
    let with_root = "put a copy of it back, or take it away: the next start makes a new one";
    let without = "put a copy of it back, or root.key, to make a new one";
    let repair = if root { with_root } else { without };
    match file::read(disk, purpose, name) {
        Ok(Some(key)) if file::id_of(&key) == id => None,
        Ok(Some(_)) => Some(lost("key", format!("{}: another key", shown(name)), repair)),
        Ok(None) if root => {
            Some(note(format!("{}: not there", shown(name)), "the next start makes a new one"))
        }
        Ok(None) => Some(lost("key", format!("{}: not there", shown(name)), repair)),
        Err(error) if error.kind() == ErrorKind::NotPermitted => {
            Some(lost("key", format!("{}: {}", shown(name), error.detail()), "close it to others"))
        }
        Err(error) => Some(lost("key", format!("{}: {}", shown(name), error.detail()), repair)),
    }
}

fn shown(name: &str) -> String {
    format!("auth/{KEYS}/{name}")
}

fn lost(structure: &str, detail: String, repair: &str) -> Finding {
    finding(Severity::Loss, structure, detail, repair)
}

fn note(detail: String, repair: &str) -> Finding {
    finding(Severity::Note, "key", detail, repair)
}
