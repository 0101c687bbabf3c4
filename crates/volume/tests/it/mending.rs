//! Every structure on disk × {missing, extra, cut, bit flipped}: what a check finds, what
//! mending does about it, what is there afterwards, and that then nothing is found.
//!
//! `mending.txt` is what is expected, cell by cell. A run writes what it found beside the
//! tests' other files and says where; whoever changes the table answers for each line of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bytes::Bytes;
use weft_conformance::file_system::site::{Outcome, Site, at, free, how, new_file, pattern};
use weft_conformance::file_system::{ADMINISTRATOR, Subject};
use weft_conformance::tables;
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{Ack, At, BytesSource, Expect, Replace, StageHint, SyncScope, Want};
use weft_core::service::{Finding, Severity};
use weft_core::{ErrorKind, Rights};
use weft_kv::{Order, Read, Space, SpaceId, Txn};
use weft_sys::{Disk, SimDisk, Sys, simulate};
use weft_volume::managed::{check_at_rest, mend};

use super::disk_store::DiskStore;
use super::in_place::unsteady_on;
use super::site::Volume;
use super::unsteady_store::Op;
use weft_conformance::file_system::workload::{Hand, domain};

const EXPECTED: &str = include_str!("mending.txt");

/// More of a small tree than this is not changed by one row.
const LINES_MAX: usize = 40;

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Missing,
    Extra,
    Cut,
    Flipped,
}

/// Tables that any volume has rows in, by the first byte of their keys, and what their rows
/// are called.
const TABLES: &[(u8, &str)] = &[
    (0x01, "volume"),
    (0x02, "counter of numbers"),
    (0x03, "counter of files"),
    (0x10, "inode"),
    (0x11, "directory tally"),
    (0x12, "inline bytes"),
    (0x13, "link target"),
    (0x14, "user attribute"),
    (0x20, "entry"),
    (0x21, "entry by cookie"),
    (0x22, "back link"),
    (0x30, "container"),
    (0x31, "container policy"),
    (0x32, "bytes used"),
    (0x40, "stage"),
    (0x41, "part of a stage"),
    (0x42, "stage by directory"),
    (0x50, "orphan"),
    (0x51, "object to remove"),
    (0x52, "label"),
    (0x53, "written file"),
    (0x60, "replay ring"),
    (0x61, "replay slot"),
    (0x62, "kept answer"),
    (0x63, "lock holder"),
];

/// Tables with rows while a large subtree leaves its container.
const SPLITTING: &[(u8, &str)] = &[(0x30, "container"), (0x33, "split"), (0x34, "split queue")];

async fn put(site: &Site<'_>, path: &str, bytes: &[u8]) -> weft_core::FileId {
    let stage = site.fs.stage(&site.call(), &at(path), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(bytes.to_vec())).await.works();
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works().value.id
}

/// Makes a volume with rows in every table of [`TABLES`]. Nothing is wrong with it; a stop
/// would take some of them away, a crash does not.
async fn furnished(sys: &Sys, disk: &SimDisk) -> Volume {
    let (volume, store) = unsteady_on(sys, disk).await;
    {
        let site = Site::of(&volume);
        site.dir("d").await;
        site.dir("d/sub").await;
        site.file("d/small", b"few bytes").await;
        put(&site, "d/large", &pattern(50_000, 3)).await;
        site.symlink("d/link", "small").await;
        site.fs.link(&site.call(), &at("d/small"), &at("d/other")).await.works();
        let edit = TagEdit::Put {
            name: TagName::new("t").works(),
            value: Bytes::from_static(b"value"),
            must: TagMust::Any,
        };
        site.fs.tag(&site.call(), &at("d/small"), &[edit], &free()).await.works();
        site.allow("d/sub", &site.user("alice"), Rights::READING).await;
        site.fs.make(&site.once(9), &at("once"), new_file(), &SetAttr::default()).await.works();
        let stage = site.fs.stage(&site.call(), &at("later"), &StageHint::default()).await.works();
        stage.put(&site.call().durable(), 1, 0, &mut BytesSource::new(pattern(20_000, 1))).await.works();
        let lock = weft_core::form::Lock {
            scope: weft_core::form::LockScope::Whole,
            kind: weft_core::form::LockKind::Shared,
            owner: weft_core::form::LockOwner(Bytes::new()),
        };
        site.fs.lock(&site.call(), &at("d/small"), &lock, weft_core::form::Wait::No).await.works();
        // An orphan, and an object that a pinned reader keeps.
        put(&site, "d/replaced", &pattern(30_000, 4)).await;
        let pinned = weft_conformance::file_system::site::pinned();
        let reader = site.fs.open(&site.call(), &at("d/replaced"), &pinned).await.works();
        put(&site, "d/replaced", &pattern(30_000, 5)).await;
        site.file("d/unnamed", b"kept").await;
        let open = site.fs.open(&site.call(), &at("d/unnamed"), &how(Rights::READ)).await.works();
        site.fs.remove(&site.call(), &at("d/unnamed"), Expect::Any, &free()).await.works();
        // A file in another container than its object says, and one that is being written.
        put(&site, "d/moved", &pattern(20_000, 6)).await;
        store.fail(Op::Relabel, store.last(Op::Sync));
        let (from, to) = (at("d/moved"), at("d/sub/moved"));
        site.fs.rename(&site.call(), &from, &to, Replace::Never, &free()).await.works();
        let written = put(&site, "d/written", &pattern(20_000, 7)).await;
        site.write(written, 10_000, &pattern(20_000, 8)).await;
        site.fs.sync(&site.call(), &at("d/written"), SyncScope::File).await.works();
        // Their closing is lost with the process.
        std::mem::forget((reader, open));
    }
    volume.running().engine.flush().await.works();
    volume
}

/// The disk of such a volume after a crash, and how its tree looks when nothing is damaged.
struct Crashed {
    disk: SimDisk,
    look: String,
}

impl Crashed {
    fn furnished() -> Self {
        Self::of(simulate(7, |sys| async move {
            let disk = SimDisk::new();
            let volume = furnished(&sys, &disk).await;
            let crashed = disk.crash(7);
            drop(volume);
            crashed
        }))
    }

    /// A large subtree is leaving its container.
    fn splitting() -> Self {
        Self::of(simulate(7, |sys| async move {
            let own = sys.clone();
            // A task among others: it goes on before the split does.
            let task = sys.spawn(async move {
                let disk = SimDisk::new();
                let (volume, _) = super::crash::volume_on(&own, &disk, 1, true).await;
                let site = Site::of(&volume);
                super::splits::begun(&site).await;
                disk.crash(7)
            });
            task.await.works()
        }))
    }

    fn of(disk: SimDisk) -> Self {
        let mut crashed = Self { disk, look: String::new() };
        let (found, look) = crashed.mended(None).expect("nothing is to be damaged");
        assert!(found.is_empty(), "before any damage: {found:#?}");
        crashed.look = look;
        crashed
    }

    /// Damages a row and mends; returns what was found and how the tree looks afterwards, once
    /// it has passed what must hold whatever was damaged. `None` if there is no such row.
    fn mended(&self, damage: Option<(u8, Damage, usize)>) -> Option<(Vec<Finding>, String)> {
        let disk = self.disk.crashed_copy(7);
        simulate(8, |sys| async move {
            let clock = sys.sim_clock().expect("simulated").clone();
            let store = DiskStore::open(&disk, clock.clone(), 2);
            let below = disk.beneath("kv").works();
            let volume = Volume::at_rest(sys.clone(), domain(clock), below, store);
            let found = mended_at_rest(&volume, damage).await?;
            volume.begin(false).await;
            // What the crash interrupted is gone on with.
            sys.sleep(std::time::Duration::from_secs(60)).await;
            let look = Hand::new(volume.fs(), volume.domain.clone()).look(None).await;
            Some((found, look))
        })
    }
}

async fn mended_at_rest(volume: &Volume, what: Option<(u8, Damage, usize)>) -> Option<Vec<Finding>> {
    let engine = volume.engine();
    let space = Space::open(engine.clone(), SpaceId(1), &weft_volume::managed::SCHEMA).await.works();
    if let Some((table, how, which)) = what
        && !damage(&space, table, how, which).await
    {
        return None;
    }
    let config = volume.config(engine.clone());
    let damaged = all_rows(&space);
    let dry = check_at_rest(config.clone()).await.works().findings;
    assert_eq!(
        check_at_rest(config.clone()).await.works().findings,
        dry,
        "{what:?}: looking changes nothing"
    );
    assert!(all_rows(&space) == damaged, "{what:?}: looking changes rows");
    let admin = volume.domain.name(ADMINISTRATOR);
    let found = mend(config.clone(), admin.clone()).await.works().findings;
    // What was announced is done, and what that uncovers.
    assert!(found.starts_with(&dry) && dry.is_empty() == found.is_empty(), "{what:?}: {dry:#?}\n{found:#?}");
    let again = mend(config, admin).await.works().findings;
    assert!(again.is_empty(), "{what:?}: still found {again:#?}");
    engine.close().await.works();
    Some(found)
}

fn all_rows(space: &Space) -> BTreeMap<Bytes, Bytes> {
    rows(space, 0, u8::MAX)
}

fn rows(space: &Space, from: u8, to: u8) -> BTreeMap<Bytes, Bytes> {
    let snapshot = space.snapshot().works();
    snapshot.scan(&[from], &[to], Order::Rising).collect::<weft_core::Result<_>>().works()
}

/// Damages the first, the middle or the last row of a table, behind everybody's back.
/// Returns whether that is a row of its own.
async fn damage(space: &Space, table: u8, how: Damage, which: usize) -> bool {
    let rows = rows(space, table, table + 1);
    let place = [0, rows.len() / 2, rows.len().saturating_sub(1)][which];
    if place >= rows.len() || which > 0 && place == 0 || which == 2 && rows.len() == 2 {
        return false;
    }
    let (key, value) = rows.iter().nth(place).expect("there are more");
    let (key, value) = (key.to_vec(), value.to_vec());
    space
        .write(Ack::Durable, move |txn| match how {
            Damage::Missing => txn.delete(&key),
            Damage::Extra => {
                // The same row once more, under a key that nothing leads to.
                let mut other = key.clone();
                let place = other.len().min(9) - 1;
                if place == 0 {
                    return txn.put(&key, &[0xff; 8]);
                }
                other[place] ^= 0x55;
                txn.put(&other, &value)
            }
            Damage::Cut => txn.put(&key, &value[..value.len() / 2]),
            Damage::Flipped => {
                let mut value = value.clone();
                let place = value.len() - 1;
                value[place] ^= 4;
                txn.put(&key, &value)
            }
        })
        .await
        .expect("the engine runs");
    true
}

/// One cell as the table has it: what is found, and what of the tree is not as before.
fn cell(crashed: &Crashed, what: (u8, Damage, usize)) -> Option<String> {
    let (found, look) = crashed.mended(Some(what))?;
    let mut text = String::new();
    for Finding { severity, structure, detail, repair, .. } in &found {
        writeln!(text, "  {severity:?}: {structure}: {}; {repair}", steady(detail)).expect("memory");
    }
    // Files are numbered as they are met: one that is gone would renumber all after it.
    let unnumbered = |look: &str| -> Vec<String> {
        let one =
            |line: &str| line.split(' ').filter(|word| !word.starts_with('#')).collect::<Vec<_>>().join(" ");
        look.lines().map(one).collect()
    };
    let (before, after) = (unnumbered(&crashed.look), unnumbered(&look));
    let sets: [BTreeSet<&String>; 2] = [before.iter().collect(), after.iter().collect()];
    let gone = before.iter().filter(|line| !sets[1].contains(line)).map(|line| ("-", line));
    let new = after.iter().filter(|line| !sets[0].contains(line)).map(|line| ("+", line));
    let changed: Vec<_> = gone.chain(new).collect();
    assert!(changed.len() <= LINES_MAX, "{what:?}: {} lines of the tree changed:\n{text}", changed.len());
    for (sign, line) in changed {
        writeln!(text, "  {sign} {}", steady(line)).expect("memory");
    }
    Some(if text.is_empty() { "  nothing\n".to_owned() } else { text })
}

/// A text without what differs from run to run or from one build to the next: long numbers.
fn steady(text: &str) -> String {
    let is_number = |word: &str| word.len() > 11 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut steady = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let (bare, end) = word.split_at(bare.len());
        let (first, number) = bare.split_at(usize::from(bare.starts_with('v')));
        steady += &if is_number(number) { format!("{first}#{end}") } else { word.to_owned() };
    }
    steady
}

fn every_cell(crashed: &Crashed, tables: &[(u8, &str)], when: &str) -> String {
    let mut text = String::new();
    for (number, name) in tables {
        for how in [Damage::Missing, Damage::Extra, Damage::Cut, Damage::Flipped] {
            // Rows that come to the same stand in one cell.
            let mut cells: Vec<(Vec<&str>, String)> = Vec::new();
            for (which, said) in ["first", "middle", "last"].iter().enumerate() {
                let Some(cell) = cell(crashed, (*number, how, which)) else { continue };
                match cells.iter_mut().find(|known| known.1 == cell) {
                    Some(known) => known.0.push(said),
                    None => cells.push((vec![said], cell)),
                }
            }
            assert!(!cells.is_empty(), "there is no {name} to damage");
            for (which, cell) in cells {
                write!(text, "{name}{when}, {how:?}, {}\n{cell}", which.join(" ")).expect("memory");
            }
        }
    }
    text
}

#[test]
fn every_damaged_row_is_found_and_mended_as_the_table_says() {
    let mut found = every_cell(&Crashed::furnished(), TABLES, "");
    found += &every_cell(&Crashed::splitting(), SPLITTING, " while splitting");
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/mending.txt");
    tables::keep(&found, file);
    tables::must_be(EXPECTED, &found, file);
}

#[test]
fn lost_and_cut_objects_are_found_and_what_is_left_is_served() {
    for (how, severity) in [("lost", Severity::Loss), ("cut", Severity::Loss)] {
        simulate(8, |sys| async move {
            let disk = SimDisk::new();
            let volume = furnished(&sys, &disk).await;
            let store = DiskStore::open(&disk, sys.sim_clock().expect("simulated").clone(), 2);
            let site = Site::of(&volume);
            let large = site.find("d/large").await.works();
            drop(site);
            let object = store.largest();
            if how == "lost" {
                store.lose(object)
            } else {
                store.cut(object, 10)
            }
            let call = volume.domain.call(&volume.domain.caller("node:n1"), 0);
            let dry = volume.running().managed.check(&call).await.works();
            assert!(dry.findings.iter().any(|f| f.structure == "object" && f.severity == severity));
            volume.stop().await;
            let engine = volume.engine();
            let config = volume.config(engine.clone());
            let admin = volume.domain.name(ADMINISTRATOR);
            let report = mend(config.clone(), admin.clone()).await.works();
            // What was announced is done, and what that leads to.
            assert!(report.findings.starts_with(&dry.findings), "{:#?}", report.findings);
            assert!(mend(config, admin).await.works().findings.is_empty());
            engine.close().await.works();
            drop(engine);
            let clock = sys.sim_clock().expect("simulated").clone();
            let volume = Volume::on_disk(sys.clone(), domain(clock), volume.disk.clone(), store, false).await;
            let site = Site::of(&volume);
            let size = site.attr(large).await.size;
            assert_eq!(size, if how == "lost" { 0 } else { 10 });
            assert_eq!(site.read(large).await.len() as u64, size);
        });
    }
}

/// Ids that clients still hold of files that are gone name no file that is made later, though the
/// row that counts numbers was lost.
#[test]
fn no_id_of_a_removed_file_is_given_again_after_the_numbers_were_lost() {
    for how in [Damage::Missing, Damage::Extra, Damage::Cut] {
        simulate(9, |sys| async move {
            let disk = SimDisk::new();
            let (volume, _) = super::crash::volume_on(&sys, &disk, 1, true).await;
            let site = Site::of(&volume);
            site.file("kept", b"").await;
            let mut gone = BTreeSet::new();
            for number in 0..20 {
                let name = format!("gone-{number}");
                gone.insert(site.file(&name, b"").await);
                site.fs.remove(&site.call(), &at(&name), Expect::Any, &free()).await.works();
            }
            drop(site);
            volume.stop().await;
            let found = mended_at_rest(&volume, Some((0x02, how, 0))).await.expect("there is one");
            assert!(found.iter().all(|finding| finding.severity == Severity::Repairable), "{found:#?}");
            volume.begin(false).await;
            let site = Site::of(&volume);
            for number in 0..40 {
                let made = site.file(&format!("made-{number}"), b"").await;
                assert!(!gone.contains(&made), "{how:?}: {made:?} was given again");
            }
            for id in gone {
                let old = site.fs.walk(&site.call(), &At::id(id), Want::default()).await;
                assert_eq!(old.fails(), ErrorKind::Stale, "{how:?}");
            }
        });
    }
}
