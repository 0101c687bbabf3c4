//! Each structure of the store, damaged in each way: what `check` finds, what it mends,
//! what is left, and which objects are read afterwards.
//!
//! `check.txt` is what is expected, cell by cell. A run writes what it found beside the
//! tests' other files and says where; whoever changes the table answers for each line of it.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_conformance::object_store::bench::{BLOCK, Bench, HERE, OBJECT, pattern};
use weft_conformance::tables;
use weft_core::form::{Ack, BytesSource, Range, Shape, WriteAt, collect};
use weft_core::service::Severity;
use weft_core::{ObjectId, Result};
use weft_kv::{Embedded, Engine, Order, Read, Space, SpaceTxn, Txn, prefix_end};
use weft_store::{Check, Options, SCHEMA, SPACE};
use weft_sys::{Disk, Open, SimDisk, Sys, simulate};

use crate::faults::FILE;
use crate::node::{self, Node, kv_options};

const EXPECTED: &str = include_str!("check.txt");

/// An object that is sealed is [`OBJECT`]. This one is sealed too, of a few bytes.
const SMALL: ObjectId = ObjectId(0x5eed1);
/// This one was being written when the power went.
const WRITTEN: ObjectId = ObjectId(0x5eed2);
/// This one was removed, and its file is still there.
const GONE: ObjectId = ObjectId(0x5eed3);
/// An object that never was.
const GHOST: [u8; 16] = [0xee; 16];

type OnDisk = fn(&SimDisk) -> Result<()>;
type InRecords = fn(&mut SpaceTxn<'_>) -> Result<()>;

/// One way to damage one structure.
enum Damage {
    Disk(OnDisk),
    Records(InRecords),
}

/// The first row of a table.
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

/// The file that a number leads to.
fn file_of(number: u64) -> String {
    format!("store/objects/000000/{number:03x}")
}

/// Numbers of files: of the objects in the order they were made, then spares.
const OF_OBJECT: [u8; 8] = 0_u64.to_be_bytes();
const OF_GONE: u64 = 3;
const SPARE: u64 = 4;
const FAR: [u8; 8] = 500_u64.to_be_bytes();

fn in_files() -> Vec<(&'static str, Damage)> {
    use Damage::Disk as D;
    let all: Vec<(&'static str, OnDisk)> = vec![
        ("object file, missing", |disk| disk.remove(FILE)),
        ("object file, cut", |disk| disk.open(FILE, Open::Write)?.set_len(BLOCK)),
        ("object file, emptied", |disk| disk.open(FILE, Open::Write)?.set_len(0)),
        ("object file, longer", |disk| disk.open(FILE, Open::Write)?.set_len(9 * BLOCK)),
        ("object file, flipped", |disk| disk.flip_bit(FILE, 70, 2)),
        ("object file, flipped in a hole", |disk| disk.flip_bit(FILE, BLOCK + 70, 2)),
        ("object file, extra", |disk| disk.open(&file_of(0xfff), Open::MakeNew).map(drop)),
        ("object file, extra with bytes", |disk| disk.open(&file_of(0xfff), Open::MakeNew)?.set_len(BLOCK)),
        ("object file, extra of another name", |disk| {
            disk.open("store/objects/000000/strange.tmp", Open::MakeNew).map(drop)
        }),
        ("file being written, missing", |disk| disk.remove(&file_of(2))),
        ("file being written, cut", |disk| disk.open(&file_of(2), Open::Write)?.set_len(100)),
        ("file being written, flipped", |disk| disk.flip_bit(&file_of(2), 70, 2)),
        ("spare file, missing", |disk| disk.remove(&file_of(SPARE))),
        ("spare file, longer", |disk| disk.open(&file_of(SPARE), Open::Write)?.write_at(b"dregs", 0)),
        ("removed file, missing", |disk| disk.remove(&file_of(OF_GONE))),
        ("removed file, flipped", |disk| disk.flip_bit(&file_of(OF_GONE), 7, 2)),
        ("directory of objects, missing", |disk| disk.rename("store/objects", "elsewhere")),
    ];
    all.into_iter().map(|(name, damage)| (name, D(damage))).collect()
}

fn in_records() -> Vec<(&'static str, Damage)> {
    use Damage::Records as R;
    let all: Vec<(&'static str, InRecords)> = vec![
        ("object record, missing", |txn| remove_row(txn, b'o')),
        ("object record, cut", |txn| change_row(txn, b'o', |value| value.truncate(20))),
        ("object record, extra", |txn| {
            let (_, value) = row(txn, b'o')?;
            extra_row(txn, b'o', &GHOST, &value)
        }),
        ("object record, another version", |txn| change_row(txn, b'o', |value| value[0] ^= 4)),
        ("object record, another container", |txn| change_row(txn, b'o', |value| value[8] ^= 4)),
        ("object record, another file", |txn| change_row(txn, b'o', |value| value[16] ^= 1)),
        ("object record, a file that is not there", |txn| change_row(txn, b'o', |value| value[11] ^= 1)),
        ("object record, shorter", |txn| change_row(txn, b'o', |value| value[23] ^= 1)),
        ("object record, longer", |txn| change_row(txn, b'o', |value| value[20] ^= 1)),
        ("container list, missing", |txn| remove_row(txn, b'c')),
        ("container list, extra", |txn| {
            extra_row(txn, b'c', &[&HERE.0.to_be_bytes()[..], &GHOST].concat(), &[])
        }),
        ("container list, cut", |txn| extra_row(txn, b'c', &HERE.0.to_be_bytes()[..5], &[])),
        ("file owner, missing", |txn| remove_row(txn, b'f')),
        ("file owner, extra", |txn| extra_row(txn, b'f', &FAR, &GHOST)),
        ("file owner, cut", |txn| change_row(txn, b'f', |value| value.truncate(7))),
        ("file owner, another object", |txn| change_row(txn, b'f', |value| value[3] ^= 1)),
        ("spare, missing", |txn| remove_row(txn, b's')),
        ("spare, extra", |txn| extra_row(txn, b's', &FAR, &[])),
        ("spare, extra of an object's file", |txn| extra_row(txn, b's', &OF_OBJECT, &[])),
        ("spare, cut", |txn| extra_row(txn, b's', &FAR[..5], &[])),
        ("removed, missing", |txn| remove_row(txn, b'd')),
        ("removed, extra", |txn| extra_row(txn, b'd', &FAR, &[])),
        ("removed, extra of an object's file", |txn| extra_row(txn, b'd', &OF_OBJECT, &[])),
        ("removed, extra of a spare", |txn| extra_row(txn, b'd', &SPARE.to_be_bytes(), &[])),
        ("removed, cut", |txn| extra_row(txn, b'd', &FAR[..5], &[])),
        ("write mark, missing", |txn| remove_row(txn, b'w')),
        ("write mark, extra", |txn| extra_row(txn, b'w', &GHOST, &[])),
        ("write mark, extra of a sealed object", |txn| extra_row(txn, b'w', &OBJECT.0.to_be_bytes(), &[])),
        ("write mark, cut", |txn| extra_row(txn, b'w', &GHOST[..5], &[])),
        ("seals, missing", |txn| remove_row(txn, b'b')),
        ("seals, cut", |txn| change_row(txn, b'b', |value| value.truncate(30))),
        ("seals, flipped", |txn| change_row(txn, b'b', |value| value[20] ^= 1)),
        ("seals, extra", |txn| extra_row(txn, b'b', &[&GHOST[..], &[0; 8]].concat(), &[0; 16])),
        ("seals, extra beyond the end", |txn| {
            extra_row(txn, b'b', &[&OBJECT.0.to_be_bytes()[..], &[1; 8]].concat(), &[0; 16])
        }),
        ("next file, missing", |txn| txn.delete(b"n")),
        ("next file, lower", |txn| txn.put(b"n", &1_u64.to_be_bytes())),
        ("next file, higher", |txn| txn.put(b"n", &999_u64.to_be_bytes())),
        ("next file, cut", |txn| txn.put(b"n", &[0; 3])),
    ];
    all.into_iter().map(|(name, damage)| (name, R(damage))).collect()
}

/// What each object holds.
fn contents() -> [(ObjectId, Vec<u8>); 3] {
    let mut large = pattern(1, 5000);
    large.resize(2 * BLOCK as usize, 0);
    large.extend(pattern(2, 5000));
    [(OBJECT, large), (SMALL, pattern(3, 700)), (WRITTEN, pattern(4, 9000))]
}

/// The disk of a store whose machine lost power at work: with an object in each state.
fn crashed() -> SimDisk {
    node::simulated(1, Options::default(), async |node, disk| {
        let bench = Bench::of(&node);
        for (object, bytes) in contents() {
            bench.store.make(&bench.all, object, None).await.expect("a fresh id");
            let last = bytes.len() - bytes.len().min(5000);
            for start in [0, last] {
                let mut source = BytesSource::new(bytes[start..(start + 5000).min(bytes.len())].to_vec());
                let at = WriteAt::Offset(start as u64);
                bench.store.write(&bench.all, object, at, &mut source).await.expect("room");
            }
            if object != WRITTEN {
                bench.store.seal(&bench.all, object).await.expect("it can be sealed");
            }
            bench.store.sync(&bench.all, object).await.expect("it can be synced");
        }
        bench.store.make(&bench.all, GONE, None).await.expect("a fresh id");
        let mut source = BytesSource::new(pattern(5, 900));
        bench.store.write(&bench.all, GONE, WriteAt::Offset(0), &mut source).await.expect("room");
        bench.store.sync(&bench.all, GONE).await.expect("it can be synced");
        bench.store.remove(&bench.all, GONE).await.expect("it is there");
        node.engine().flush().await.expect("the disk is on");
        disk.crash(1)
    })
}

async fn damage(sys: &Sys, disk: &SimDisk, damage: &Damage) -> Result<()> {
    match damage {
        Damage::Disk(damage) => damage(disk),
        Damage::Records(damage) => {
            let engine = Embedded::open(sys.clone(), disk.beneath("kv")?, kv_options(sys))?;
            let engine: Arc<dyn Engine> = Arc::new(engine);
            let space = Space::open(engine.clone(), SPACE, &SCHEMA).await?;
            space.write(Ack::Durable, *damage).await?;
            drop(space);
            engine.close().await
        }
    }
}

type Found = (Severity, String, String, String);

async fn look(node: &Node, repair: bool) -> Result<Vec<Found>> {
    let report = node.directory().check(Check { repair, blocks: true }).await?;
    let found = report.findings.into_iter();
    Ok(found.map(|found| (found.severity, found.structure, found.detail, found.repair)).collect())
}

/// How an object is read: as it was, or not at all; never anything else.
async fn read(node: &Node, object: ObjectId, bytes: &[u8]) -> String {
    let bench = Bench::of(node);
    let read = async {
        let mut source = bench.store.read(&bench.all, object, Range::ALL).await?;
        collect(&mut *source, 1 << 30).await
    };
    match read.await {
        Ok(read) if read[..] == *bytes => "as before".to_owned(),
        Ok(read) => format!("OTHER BYTES ({} of {})", read.len(), bytes.len()),
        Err(error) => format!("refused: {:?}", error.kind()),
    }
}

/// One cell as the table has it.
async fn cell(sys: Sys, crashed: &SimDisk, how: &Damage) -> String {
    let disk = crashed.crashed_copy(1);
    damage(&sys, &disk, how).await.expect("it can be damaged");
    let node = match Node::start(&sys, Arc::new(disk.clone()), Options::default()).await {
        Ok(node) => node,
        Err(error) => return format!("  does not open: {error}\n"),
    };
    let found = match look(&node, false).await {
        Ok(found) => found,
        Err(error) => return format!("  cannot be checked: {error}\n"),
    };
    let mut text = String::new();
    for more in look(&node, false).await.expect("it did before").iter().filter(|more| !found.contains(more)) {
        writeln!(text, "  LOOKING CHANGED: {more:?}").expect("memory");
    }
    for (severity, structure, detail, repair) in found.iter().take(8) {
        writeln!(text, "  {severity:?}: {structure}: {detail}; {repair}").expect("memory");
    }
    let done = look(&node, true).await.expect("it did before");
    let as_done =
        |found: &Found| (found.0, found.1.clone(), found.2.clone(), found.3.replace("would be: ", ""));
    let announced: Vec<_> = found.iter().map(as_done).collect();
    for (name, here, there) in [("not done", &announced, &done), ("not announced", &done, &announced)] {
        for found in here.iter().filter(|found| !there.contains(found)) {
            writeln!(text, "  {}: {found:?}", name.to_uppercase()).expect("memory");
        }
    }
    // What was moved aside, and what was found, is said each time; nothing else is.
    let left = look(&node, false).await.expect("it did before");
    for left in left.iter().filter(|left| !found.contains(left)) {
        writeln!(text, "  then: {:?}: {}: {}", left.0, left.1, left.2).expect("memory");
    }
    for left in left.iter().filter(|left| left.0 == Severity::Repairable) {
        writeln!(text, "  NOT MENDED: {}: {}", left.1, left.2).expect("memory");
    }
    // Whatever the store does by itself later changes nothing of it.
    sys.sleep(weft_core::limits::STORE_REAP_DELAY * 3).await;
    let bench = Bench::of(&node);
    for n in 0..100_u128 {
        // New objects take files, and none that another has.
        if let Err(error) = bench.store.make(&bench.all, ObjectId(n + 1), None).await {
            writeln!(text, "  NO MORE OBJECTS: {error}").expect("memory");
            break;
        }
    }
    node.stop().await;
    node.start_again().await;
    for (object, bytes) in contents() {
        let mut read = read(&node, object, &bytes).await;
        if object == WRITTEN {
            // Nothing vouches for it yet: it is what is found, and said to be.
            read = read.replace("OTHER BYTES", "what is found");
        }
        if read != "as before" {
            writeln!(text, "  {object:x?} is {read}").expect("memory");
        }
    }
    text
}

#[test]
fn every_damage_is_found_and_mended_as_the_table_says() {
    let crashed = crashed();
    let mut found = String::new();
    for (name, how) in in_files().into_iter().chain(in_records()) {
        let cell = simulate(2, |sys| cell(sys, &crashed, &how));
        let cell = if cell.is_empty() { "  nothing\n".to_owned() } else { cell };
        write!(found, "{name}\n{cell}").expect("memory");
    }
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/check.txt");
    tables::keep(&found, file);
    for never in [
        "NOT MENDED",
        "NOT DONE",
        "NOT ANNOUNCED",
        "NO MORE",
        "LOOKING CHANGED",
        "OTHER BYTES",
        "does not open",
        "cannot be checked",
    ] {
        assert!(!found.contains(never), "{never}; all that was found: {file}");
    }
    tables::must_be(EXPECTED, &found, file);
}

#[test]
fn what_strays_into_an_object_cut_to_nothing_is_cut_again() {
    node::simulated(1, Options::default(), async |node, disk| {
        let bench = Bench::with_object(&node).await;
        bench.write(0, pattern(1, 5000)).await;
        bench.store.shape(&bench.all, OBJECT, Shape::Truncate(0)).await.expect("it can be cut");
        bench.store.sync(&bench.all, OBJECT).await.expect("it can be synced");
        bench.store.seal(&bench.all, OBJECT).await.expect("it can be sealed");
        node.stop().await;
        disk.open(FILE, Open::Write).and_then(|file| file.write_at(b"stray", 0)).expect("room");
        node.start_again().await;
        let found = look(&node, true).await.expect("it can look");
        assert_eq!((found.len(), &*found[0].1), (1, "object file"), "{found:?}");
        assert_eq!(read(&node, OBJECT, b"").await, "as before");
    });
}

#[test]
fn a_repair_moves_orphans_aside_and_removes_none() {
    node::simulated(1, Options::default(), async |node, disk| {
        let bench = Bench::with_object(&node).await;
        bench.write(0, pattern(1, 5000)).await;
        let stray = disk.open("store/objects/000000/stray", Open::MakeNew).expect("it can be made");
        stray.write_at(b"precious", 0).expect("room");
        look(&node, true).await.expect("it can look");
        let mut names = Vec::new();
        let collect = &mut |name: &str, _| {
            names.push(name.to_owned());
            ControlFlow::Continue(())
        };
        disk.list("store/orphans", collect).expect("it is there");
        assert_eq!(names, ["000000-stray"]);
        let notes = look(&node, false).await.expect("it can look");
        assert_eq!((notes.len(), notes[0].0), (1, Severity::Note));
        let bench = Bench::of(&node);
        bench.store.make(&bench.all, ObjectId(3), None).await.expect("work goes on");
    });
}

#[test]
fn what_is_put_aside_takes_no_name_of_what_was_put_aside_before() {
    node::simulated(1, Options::default(), async |node, disk| {
        for dir in ["000000", "000000-b"] {
            disk.make_dir(&format!("store/objects/{dir}")).expect("made");
        }
        let strays =
            [("000000/a", "first"), ("000000/a", "second"), ("000000/b-c", "1"), ("000000-b/c", "2")];
        for checked_with in [&strays[..1], &strays[1..2], &strays[2..]] {
            for (path, bytes) in checked_with {
                let file = disk.open(&format!("store/objects/{path}"), Open::MakeNew).expect("made");
                file.write_at(bytes.as_bytes(), 0).expect("room");
            }
            look(&node, true).await.expect("it can look");
        }
        let mut kept = Vec::new();
        for name in listed(&disk, "store/orphans") {
            let file = disk.open(&format!("store/orphans/{name}"), Open::Read).expect("there");
            let mut bytes = vec![0; file.len().expect("measured") as usize];
            file.read_exact_at(&mut bytes, 0).expect("read");
            kept.push(String::from_utf8(bytes).expect("text"));
        }
        kept.sort();
        assert_eq!(kept, ["1", "2", "first", "second"]);
    });
}

fn listed(disk: &SimDisk, dir: &str) -> Vec<String> {
    let mut names = Vec::new();
    let note = &mut |name: &str, _| {
        names.push(name.to_owned());
        ControlFlow::Continue(())
    };
    disk.list(dir, note).expect("listed");
    names
}
