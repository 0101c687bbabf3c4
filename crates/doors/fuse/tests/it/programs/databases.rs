//! A database with several writers.

use super::{have, script};
use crate::bed::Bed;

/// Writers of a hundred rows each.
fn write_rows(mode: &str) {
    if have("sqlite3", &["sqlite3"]) {
        let settings = [("MODE", mode.as_ref()), ("ROWS", "100".as_ref())];
        script(&Bed::new(), include_str!("sqlite.sh"), &settings);
    }
}

#[test]
fn sqlite_with_four_writers_in_wal_mode_loses_no_row() {
    write_rows("wal");
}

#[test]
fn sqlite_with_four_writers_on_two_mounts_and_a_rollback_journal_loses_no_row() {
    write_rows("delete");
}
