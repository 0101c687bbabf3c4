//! Each structure of the store, damaged in each way: what `check` finds, and what it mends.

use std::ops::ControlFlow;

use weft_conformance::object_store::bench::{BLOCK, Bench, HERE, OBJECT, pattern};
use weft_core::form::Ack;
use weft_core::service::Severity;
use weft_core::{ObjectId, Result};
use weft_kv::{Order, Read, Space, SpaceTxn, Txn, prefix_end};
use weft_store::{Check, Options, SCHEMA, SPACE};
use weft_sys::{Disk, Open, SimDisk};

use crate::faults::FILE;
use crate::node::{self, Node};

/// One way to damage one structure.
struct Damage {
    name: &'static str,
    disk: fn(&SimDisk) -> Result<()>,
    records: fn(&mut SpaceTxn<'_>) -> Result<()>,
    severity: Severity,
    structure: &'static str,
}

const NO_RECORDS: fn(&mut SpaceTxn<'_>) -> Result<()> = |_| Ok(());
const NO_DISK: fn(&SimDisk) -> Result<()> = |_| Ok(());

/// The row of a table that concerns the object, whatever its key.
fn row(txn: &SpaceTxn<'_>, table: u8) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut rows = txn.scan(&[table], &prefix_end(&[table]), Order::Rising);
    let (key, value) = rows.next().expect("the table has a row")?;
    Ok((key.to_vec(), value.to_vec()))
}

fn remove_row(txn: &mut SpaceTxn<'_>, table: u8) -> Result<()> {
    let (key, _) = row(txn, table)?;
    txn.delete(&key)
}

fn change_row(txn: &mut SpaceTxn<'_>, table: u8, change: impl Fn(&mut Vec<u8>)) -> Result<()> {
    let (key, mut value) = row(txn, table)?;
    change(&mut value);
    txn.put(&key, &value)
}

fn extra_row(txn: &mut SpaceTxn<'_>, table: u8, key: &[u8], value: &[u8]) -> Result<()> {
    txn.put(&[&[table], key].concat(), value)
}

const GHOST: [u8; 16] = [0xee; 16];

fn damages() -> Vec<Damage> {
    let loss = Severity::Loss;
    let mendable = Severity::Repairable;
    let on_disk =
        |name, disk, severity, structure| Damage { name, disk, records: NO_RECORDS, severity, structure };
    let in_records =
        |name, records, severity, structure| Damage { name, disk: NO_DISK, records, severity, structure };
    vec![
        on_disk("object file missing", |disk| disk.remove(FILE), loss, "object file"),
        on_disk("object file cut", |disk| disk.open(FILE, Open::Write)?.set_len(BLOCK), loss, "object file"),
        on_disk(
            "object file longer",
            |disk| disk.open(FILE, Open::Write)?.set_len(9 * BLOCK),
            mendable,
            "object file",
        ),
        on_disk("object file flipped", |disk| disk.flip_bit(FILE, 70, 2), loss, "object block"),
        on_disk(
            "object file flipped in a hole",
            |disk| disk.flip_bit(FILE, BLOCK + 70, 2),
            loss,
            "object block",
        ),
        on_disk(
            "a file nobody knows",
            |disk| disk.open("store/objects/000000/strange.tmp", Open::MakeNew).map(drop),
            mendable,
            "object file",
        ),
        in_records("object record missing", |txn| remove_row(txn, b'o'), mendable, "container list"),
        in_records(
            "object record cut",
            |txn| change_row(txn, b'o', |value| value.truncate(20)),
            loss,
            "object record",
        ),
        in_records("container list entry missing", |txn| remove_row(txn, b'c'), mendable, "container list"),
        in_records(
            "container list entry extra",
            |txn| extra_row(txn, b'c', &[&HERE.0.to_be_bytes()[..], &GHOST].concat(), &[]),
            mendable,
            "container list",
        ),
        in_records("file owner missing", |txn| remove_row(txn, b'f'), mendable, "file owner"),
        in_records("file owner extra", |txn| extra_row(txn, b'f', &[9; 8], &GHOST), mendable, "file owner"),
        in_records(
            "file owner changed",
            |txn| change_row(txn, b'f', |value| value[3] ^= 1),
            mendable,
            "file owner",
        ),
        in_records("seals missing", |txn| remove_row(txn, b'b'), loss, "object block"),
        in_records("seals cut", |txn| change_row(txn, b'b', |value| value.truncate(30)), loss, "seals"),
        in_records(
            "seals flipped",
            |txn| change_row(txn, b'b', |value| value[20] ^= 1),
            loss,
            "object block",
        ),
        in_records(
            "seals extra",
            |txn| extra_row(txn, b'b', &[&GHOST[..], &[0; 8]].concat(), &[0; 16]),
            mendable,
            "seals",
        ),
        in_records(
            "seals beyond the end",
            |txn| extra_row(txn, b'b', &[&OBJECT.0.to_be_bytes()[..], &[1; 8]].concat(), &[0; 16]),
            mendable,
            "seals",
        ),
        in_records("write mark extra", |txn| extra_row(txn, b'w', &GHOST, &[]), mendable, "write mark"),
    ]
}

async fn intact(node: &Node) {
    let bench = Bench::with_object(node).await;
    bench.write(0, pattern(1, 5000)).await;
    bench.write(2 * BLOCK, pattern(2, 5000)).await;
    bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
    bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
}

async fn look(node: &Node, repair: bool) -> Vec<(Severity, String, String)> {
    let report = node.directory().check(Check { repair, blocks: true }).await.expect("it can look");
    report.findings.into_iter().map(|found| (found.severity, found.structure, found.detail)).collect()
}

#[test]
fn every_damage_is_found_and_what_can_be_mended_is() {
    for damage in damages() {
        node::simulated(1, Options::default(), async |node, disk| {
            intact(&node).await;
            assert_eq!(look(&node, false).await, [], "before");
            node.stop().await;
            (damage.disk)(&disk).expect("it can be damaged");
            node.start_again().await;
            let space = Space::open(node.engine(), SPACE, &SCHEMA).await.expect("it is there");
            let records = damage.records;
            space.write(Ack::Durable, records).await.expect("it can be damaged");
            let found = look(&node, false).await;
            let expected = (damage.severity, damage.structure);
            let hit = found.iter().any(|(severity, structure, _)| (*severity, &**structure) == expected);
            assert!(hit, "{}: {found:?}", damage.name);
            assert_eq!(look(&node, false).await, found, "{}: looking changes nothing", damage.name);
            look(&node, true).await;
            let left: Vec<_> =
                look(&node, false).await.into_iter().filter(|found| found.0 != Severity::Note).collect();
            assert!(
                left.iter().all(|found| found.0 == Severity::Loss),
                "{}: mended, yet {left:?}",
                damage.name
            );
            assert_eq!(left.is_empty(), damage.severity != Severity::Loss, "{}: {left:?}", damage.name);
        });
    }
}

#[test]
fn a_repair_moves_orphans_aside_and_removes_none() {
    node::simulated(1, Options::default(), async |node, disk| {
        intact(&node).await;
        let stray = disk.open("store/objects/000000/stray", Open::MakeNew).expect("it can be made");
        stray.write_at(b"precious", 0).expect("room");
        look(&node, true).await;
        let mut names = Vec::new();
        let collect = &mut |name: &str, _| {
            names.push(name.to_owned());
            ControlFlow::Continue(())
        };
        disk.list("store/orphans", collect).expect("it is there");
        assert_eq!(names, ["000000-stray"]);
        let notes = look(&node, false).await;
        assert_eq!((notes.len(), notes[0].0), (1, Severity::Note));
        let bench = Bench::of(&node);
        bench.store.make(&bench.all, ObjectId(3), None).await.expect("work goes on");
    });
}
