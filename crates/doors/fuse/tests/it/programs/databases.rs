//! A database with several writers.

use std::process::Command;

use super::{have, succeed};
use crate::bed::Bed;

#[test]
fn sqlite_with_four_writers_in_wal_mode_loses_no_row() {
    if !have("sqlite3", &["sqlite3"]) {
        return;
    }
    const WRITERS: usize = 4;
    const ROWS: usize = 100;
    let bed = Bed::new();
    let database = bed.join("rows.db");
    let sqlite = |sql: &str| {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "-batch", "-cmd", ".timeout 60000"]).arg(&database).arg(sql);
        command
    };
    let mode = succeed(&mut sqlite("pragma journal_mode=wal; create table t (writer, row, text);"));
    assert_eq!(String::from_utf8_lossy(&mode.stdout).trim(), "wal");
    let insert = |writer: usize| {
        let one = |row| format!("insert into t values ({writer}, {row}, hex(randomblob(200)));");
        (0..ROWS).map(one).collect::<String>() + "pragma wal_checkpoint;"
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || succeed(&mut sqlite(&insert(writer))));
        }
    });
    let check = succeed(&mut sqlite(
        "pragma integrity_check; select count(*), count(distinct writer * 1000 + row) from t;",
    ));
    let all = WRITERS * ROWS;
    assert_eq!(String::from_utf8_lossy(&check.stdout).trim(), format!("ok\n{all}|{all}"));
}
