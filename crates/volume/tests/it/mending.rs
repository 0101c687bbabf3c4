//! Every structure on disk × {missing, extra, cut, bit flipped}: what a check finds, what
//! mending does about it, and that nothing is found afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_conformance::file_system::site::{Outcome, Site, at, free, how, new_file, pattern};
use weft_conformance::file_system::{ADMINISTRATOR, Subject};
use weft_core::Rights;
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{Ack, BytesSource, Expect, StageHint};
use weft_core::service::{Finding, Severity};
use weft_kv::{Order, Read, Space, SpaceId, Txn};
use weft_sys::{SimDisk, simulate};
use weft_volume::managed::mend;

use super::disk_store::DiskStore;
use super::site::Volume;
use super::workload::{Hand, domain};

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Missing,
    Extra,
    Cut,
    Flipped,
}

/// Every table by the first byte of its keys, with what its rows are called in findings,
/// and what may be lost for good when a row of it is.
const TABLES: &[(u8, &str)] = &[
    (0x01, "volume"),
    (0x02, "counter of numbers"),
    (0x03, "counter of files"),
    (0x10, "inode"),
    (0x11, "directory"),
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
    (0x60, "replay ring"),
    (0x61, "replay slot"),
    (0x62, "kept answer"),
    (0x63, "lock holder"),
];

async fn put(site: &Site<'_>, path: &str, bytes: &[u8]) -> weft_core::FileId {
    let stage = site.fs.stage(&site.call(), &at(path), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(bytes.to_vec())).await.works();
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works().value.id
}

/// Makes a volume with rows in every table, and stops it. Nothing is wrong with it.
async fn furnished(sys: &weft_sys::Sys, disk: &SimDisk) -> (Volume, Arc<DiskStore>) {
    let (volume, store) = super::crash::volume_on(sys, disk, 1, true).await;
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
        // Their closing is lost with the process.
        std::mem::forget((reader, open));
    }
    volume.running().engine.flush().await.expect("the disk is on");
    (volume, store)
}

async fn rows(space: &Space, table: u8) -> BTreeMap<Bytes, Bytes> {
    let snapshot = space.snapshot().expect("the engine runs");
    snapshot.scan(&[table], &[table + 1], Order::Rising).collect::<weft_core::Result<_>>().expect("rows")
}

/// Damages one row of a table, behind everybody's back. Returns whether there was one.
async fn damage(space: &Space, table: u8, how: Damage, which: usize) -> bool {
    let rows = rows(space, table).await;
    let Some((key, value)) = rows.iter().nth(which % rows.len().max(1)) else { return false };
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

/// Stops the volume, damages a row, mends, and returns the findings after the checks
/// that must hold whatever was damaged.
fn mended(table: u8, how: Damage, which: usize) -> Option<Vec<Finding>> {
    simulate(7, |sys| async move {
        let disk = SimDisk::new();
        let (volume, store) = furnished(&sys, &disk).await;
        volume.stop().await;
        let engine = volume.engine();
        let space = Space::open(engine.clone(), SpaceId(1), &weft_volume::managed::SCHEMA).await.works();
        if !damage(&space, table, how, which).await {
            return None;
        }
        let config = volume.config(engine.clone());
        let admin = volume.domain.name(ADMINISTRATOR);
        let report = mend(config.clone(), admin.clone()).await.works();
        let again = mend(config, admin).await.works();
        assert!(again.findings.is_empty(), "{table:x} {how:?}: still found {:#?}", again.findings);
        engine.close().await.works();
        drop((space, engine));
        // It opens, and the whole of it can be looked at.
        let volume = Volume::on_disk(
            sys.clone(),
            domain(sys.sim_clock().expect("simulated").clone()),
            volume.disk.clone(),
            store,
            false,
        )
        .await;
        let hand = Hand::new(volume.fs(), volume.domain.clone());
        hand.look(None).await;
        Some(report.findings)
    })
}

#[test]
fn every_damaged_row_is_found_and_mended() {
    let mut table = String::new();
    for (number, name) in TABLES {
        for how in [Damage::Missing, Damage::Extra, Damage::Cut, Damage::Flipped] {
            for which in 0..3 {
                let found = mended(*number, how, which);
                let found = found.unwrap_or_else(|| panic!("there is no {name} to damage"));
                let silent = may_be_silent(*number, how);
                assert!(!found.is_empty() || silent, "{name} {how:?} ({which}): nothing was found");
                for finding in found {
                    table += &format!(
                        "{name:20} {how:8?} {:?} {}: {} -> {}\n",
                        finding.severity, finding.structure, finding.detail, finding.repair
                    );
                }
            }
        }
    }
    println!("{table}");
}

/// Damage that leaves something as right as it was before.
fn may_be_silent(table: u8, how: Damage) -> bool {
    match (table, how) {
        // Nothing but the row itself knew of it.
        (0x14 | 0x41 | 0x51 | 0x60 | 0x63, Damage::Missing) => true,
        (0x14 | 0x41 | 0x60 | 0x63, Damage::Extra) => true,
        // A counter of changes has nothing to be compared with; a larger end of numbers
        // wastes some.
        (0x11, Damage::Flipped | Damage::Missing | Damage::Extra) => true,
        (0x02, Damage::Flipped | Damage::Extra) => true,
        // A container without members, or a second mark for a session, does no harm.
        (0x32, Damage::Missing) => true,
        _ => false,
    }
}

#[test]
fn lost_and_cut_objects_are_found_and_what_is_left_is_served() {
    for (how, severity) in [("lost", Severity::Loss), ("cut", Severity::Loss)] {
        simulate(8, |sys| async move {
            let disk = SimDisk::new();
            let (volume, store) = furnished(&sys, &disk).await;
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
