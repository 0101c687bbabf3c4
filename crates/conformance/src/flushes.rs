//! Which test shows that a flush is needed.
//!
//! Each flush of the product is switched off in one test, which fails unless something is lost
//! then. Here is which: a new flush does not compile until it stands here, the test that it is
//! given to goes over all that it has, and that each of these tests is there is looked up.

use weft_sys::FlushSite;

/// A test that switches flushes off, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBy {
    /// Crash seeds of the metadata engine.
    KvCrashes,
    /// A backup of the metadata, and its restoration.
    KvBackup,
    /// The first start, which makes keys.
    AuthKeys,
    /// A key that is replaced by another.
    AuthKeyGone,
    /// Records of the audit.
    AuthAudit,
    /// Crash seeds of the object store.
    StoreCrashes,
    /// A backup of objects, and its restoration.
    StoreBackup,
    /// A node's backup of what is neither metadata nor objects.
    NodeBackup,
    /// The file that says in which format a node's directory is.
    NodeFormat,
    /// The node's own certificate.
    NodeCertificate,
}

impl ShownBy {
    /// Every test, by the file that it stands in.
    pub const ALL: [(Self, &str); 10] = [
        (Self::KvCrashes, "kv/tests/it/crash.rs"),
        (Self::KvBackup, "kv/tests/it/crash.rs"),
        (Self::AuthKeys, "auth/tests/it/keys.rs"),
        (Self::AuthKeyGone, "auth/tests/it/keys.rs"),
        (Self::AuthAudit, "auth/tests/it/audit.rs"),
        (Self::StoreCrashes, "store/tests/it/crash.rs"),
        (Self::StoreBackup, "store/tests/it/backup.rs"),
        (Self::NodeBackup, "weft/src/node/backup/tests.rs"),
        (Self::NodeFormat, "weft/src/node/format/tests.rs"),
        (Self::NodeCertificate, "weft/src/node/https/tests.rs"),
    ];

    /// Returns the flushes that this test is to switch off.
    pub fn sites(self) -> impl Iterator<Item = FlushSite> {
        FlushSite::ALL.iter().copied().filter(move |site| shown_by(*site) == self)
    }
}

/// Returns the test that fails without a flush.
fn shown_by(site: FlushSite) -> ShownBy {
    match site {
        FlushSite::KvLogAppend
        | FlushSite::KvLogMake
        | FlushSite::KvLogDir
        | FlushSite::KvLogSeal
        | FlushSite::KvLogRecover
        | FlushSite::KvTree => ShownBy::KvCrashes,
        FlushSite::KvTreeDir | FlushSite::KvBackup | FlushSite::KvBackupDir => ShownBy::KvBackup,
        FlushSite::AuthKey | FlushSite::AuthKeyDir => ShownBy::AuthKeys,
        FlushSite::AuthKeyRemove => ShownBy::AuthKeyGone,
        FlushSite::AuditBatch | FlushSite::AuditDir => ShownBy::AuthAudit,
        FlushSite::StoreObject
        | FlushSite::StoreSpareDir
        | FlushSite::StoreFanDir
        | FlushSite::StoreRemoveDir => ShownBy::StoreCrashes,
        FlushSite::StoreBackup | FlushSite::StoreBackupDir => ShownBy::StoreBackup,
        FlushSite::BackupFile | FlushSite::BackupDir => ShownBy::NodeBackup,
        FlushSite::NodeFormat | FlushSite::NodeFormatDir => ShownBy::NodeFormat,
        FlushSite::NodeCertificate | FlushSite::NodeCertificateDir => ShownBy::NodeCertificate,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_flush_is_switched_off_in_a_test_that_is_there() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut switched_off = 0;
        for (test, file) in ShownBy::ALL {
            let source = fs::read_to_string(crates.join(file)).expect("it can be read");
            assert!(
                source.contains(&format!("ShownBy::{test:?}.sites()")),
                "{file} does not go over {test:?}"
            );
            switched_off += test.sites().count();
        }
        assert_eq!(switched_off, FlushSite::ALL.len(), "a flush belongs to a test that is not listed");
    }
}
