//! Power cuts at every boundary of a random workload: what was acknowledged as durable
//! is there, what is there is what some prefix of the workload made, and a check finds
//! nothing wrong.

use std::sync::{Arc, Mutex};

use weft_conformance::file_system::Subject;
use weft_conformance::file_system::history;
use weft_conformance::file_system::site::{Dice, Site, pattern};
use weft_conformance::file_system::workload::{Counts, Hand, Step, domain, found_among, model, work};
use weft_conformance::{boundaries, seeds};
use weft_core::form::BytesSource;
use weft_core::{Deadline, limits};
use weft_sys::disk::Boundary;
use weft_sys::{Disk, FlushSite, SimDisk, Sys, simulate};
use weft_volume::managed::Managed;

use super::disk_store::DiskStore;
use super::full::{acknowledged, gone_on_with};
use super::site::Volume;

pub async fn volume_on(sys: &Sys, disk: &SimDisk, boot: u64, make: bool) -> (Volume, Arc<DiskStore>) {
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let store = DiskStore::open(disk, clock.clone(), boot);
    let below = disk.beneath("kv").expect("a directory can be made");
    let _ = disk.sync_dir("", FlushSite::StoreObject);
    let volume = Volume::on_disk(sys.clone(), domain(clock), below, store.clone(), make).await;
    (volume, store)
}

/// What a power cut left.
struct Left {
    /// The steps that were made.
    worked: Counts,
    /// How many of them survived.
    survived: usize,
    /// At what the power went off in their midst.
    cut_at: Option<Boundary>,
}

/// Workloads that are cut at each of their changes in a plain run.
const WORKLOADS: u64 = 24;

/// One seed, with the power going off at a change: at one that the seed picks, if none is given.
fn power_cut(seed: u64, change: Option<u64>) -> Left {
    simulate(seed, |sys| async move {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::new();
        let (volume, _) = volume_on(&sys, &disk, 1, true).await;
        let mut hand = Hand::new(volume.fs(), volume.domain.clone());
        hand.rests = Some(sys.clone());
        let mut plain = model(&volume.domain);
        let picked = 1 + dice.roll(40);
        disk.set_faults(|faults| faults.halt = Some(change.unwrap_or(picked)));
        let cut = work(&mut hand, &mut plain, &mut dice, &disk).await;
        let cut_at = disk.cut_at();
        drop((hand, volume));
        let disk = disk.crash(seed);
        let (volume, store) = volume_on(&sys, &disk, 2, false).await;
        let managed = volume.running().managed;
        clean(&managed, &volume, seed, "after the crash").await;
        let hand = Hand::new(volume.fs(), volume.domain.clone());
        let survived = found_among(&hand, &cut, seed).await;
        swept(&volume, &managed, &store, seed).await;
        Left { worked: cut.worked, survived, cut_at }
    })
}

async fn clean(managed: &Managed, volume: &Volume, seed: u64, when: &str) {
    let call = volume.domain.call(&volume.domain.caller("node:n1"), 0);
    let report = managed.check(&call).await.expect("a check runs");
    assert!(report.findings.is_empty(), "seed {seed}, {when}: {:#?}", report.findings);
}

/// After the grace and a sweep, the store holds exactly what files refer to.
async fn swept(volume: &Volume, managed: &Managed, store: &DiskStore, seed: u64) {
    volume.sys.sleep(limits::STAGE_LIFE + limits::SESSION_GRACE * 2).await;
    let node = volume.domain.caller("node:n1");
    let mut call = volume.domain.call(&node, 0);
    call.until = Deadline(weft_core::Tick(u64::MAX));
    managed.sweep(&call).await.expect("a sweep runs");
    let report = managed.check(&call).await.expect("a check runs");
    assert!(report.findings.is_empty(), "seed {seed}, after the sweep: {:#?}", report.findings);
    assert_eq!(
        store.labelled() as u64,
        report.objects,
        "seed {seed}: objects are left that nothing refers to"
    );
}

#[test]
fn power_cuts_leave_a_prefix_and_nothing_to_mend() {
    let total = Mutex::new((Counts::new(), 0, 0_u64));
    seeds::each(&[], 600, |seed| {
        let left = power_cut(seed, None);
        let mut total = total.lock().expect("no holder panics");
        total.1 += left.survived;
        total.2 += u64::from(left.cut_at.is_some());
        for (kind, count) in left.worked {
            *total.0.entry(kind).or_default() += count;
        }
    });
    let (worked, survived, cuts) = total.into_inner().expect("no holder panics");
    println!("steps that worked before the cut: {worked:?}; {survived} survived, refused ones among them");
    println!("the power went in the midst of {cuts} seeds");
    assert!(std::env::var_os("WEFT_SEED").is_some() || cuts > 180, "few seeds were cut: {cuts}");
    for kind in Step::KINDS {
        assert!(
            std::env::var_os("WEFT_SEED").is_some() || worked.get(kind).is_some_and(|count| *count > 0),
            "no power cut met anything {kind}"
        );
    }
}

#[test]
fn a_power_cut_at_each_change_of_a_workload_leaves_a_prefix_and_nothing_to_mend() {
    let met = boundaries::each(WORKLOADS, |workload, change| power_cut(workload, Some(change)).cut_at);
    let kinds = [
        Boundary::Change("write"),
        Boundary::Flush(FlushSite::KvLogAppend),
        Boundary::Flush(FlushSite::StoreObject),
    ];
    for kind in kinds {
        assert!(std::env::var_os("WEFT_SEED").is_some() || met.contains_key(&kind), "never at {kind:?}");
    }
}

/// A part that leaves its row for an object, with the power going off at a change of that.
fn outgrown(seed: u64, change: u64) -> Option<Boundary> {
    simulate(seed, |sys| async move {
        let disk = SimDisk::new();
        let (volume, _) = volume_on(&sys, &disk, 1, true).await;
        let (bytes, mut kept) = (pattern(100_000, 1), 1 + Dice::new(seed).roll(limits::INLINE_BYTES_MAX));
        let site = Site::of(&volume);
        let stage = acknowledged(&site, &bytes[..kept as usize]).await;
        disk.set_faults(|faults| faults.halt = Some(change));
        for end in [50_000, 100_000] {
            let mut more = BytesSource::new(bytes[kept as usize..end].to_vec());
            match stage.put(&site.call().durable(), 1, kept, &mut more).await {
                Ok(part) => kept = part.bytes,
                Err(_) => break,
            }
        }
        let (cut_at, id) = (disk.cut_at(), stage.id());
        drop((stage, site));
        drop(volume);
        let (volume, store) = volume_on(&sys, &disk.crash(seed << 16 | change), 2, false).await;
        let managed = volume.running().managed;
        clean(&managed, &volume, seed, "after the crash").await;
        gone_on_with(&volume, id, &bytes, kept).await;
        swept(&volume, &managed, &store, seed).await;
        cut_at
    })
}

#[test]
fn a_power_cut_while_a_part_outgrows_its_row_loses_nothing_that_was_acknowledged() {
    let met = boundaries::each(4, outgrown);
    for kind in [Boundary::Change("write"), Boundary::Flush(FlushSite::StoreObject)] {
        assert!(std::env::var_os("WEFT_SEED").is_some() || met.contains_key(&kind), "never at {kind:?}");
    }
}

/// Changes by 64 callers, all durable, with a power cut in their middle: the answers
/// before and the looks after can be put into one order.
#[test]
fn histories_with_a_power_cut_in_them_can_be_put_into_an_order() {
    seeds::each(&[], 24, |seed| {
        simulate(seed, |sys| async move {
            let disk = SimDisk::new();
            let (volume, _) = volume_on(&sys, &disk, 1, true).await;
            let recorder = {
                let site = Site::of(&volume);
                Arc::new(history::Recorder::begin(&site, "h", 16).await)
            };
            volume.running().engine.flush().await.expect("the disk is on");
            let halt = 20 + seed % 60;
            let off_at = disk.counts().changes + halt;
            disk.set_faults(|faults| faults.halt = Some(halt));
            let mut callers = Vec::new();
            for caller in 0..64 {
                let site = Site::of(&volume);
                let call = site.call_of(&site.admin, 1000 + caller).durable();
                let (recorder, disk) = (recorder.clone(), disk.clone());
                let mut dice = Dice::new(seed << 16 | caller as u64);
                callers.push(sys.spawn(async move {
                    // Nobody asks anything more of a machine that is off.
                    while disk.counts().changes < off_at {
                        recorder.act(&call, recorder.roll(&mut dice)).await;
                    }
                }));
            }
            for caller in callers {
                caller.await.expect("no caller panics");
            }
            drop(volume);
            let (volume, _) = volume_on(&sys, &disk.crash(seed), 2, false).await;
            let before = recorder.histories();
            recorder.go_on_with(volume.fs());
            let site = Site::of(&volume);
            recorder.look_everywhere(&site.call()).await;
            for (group, (before, all)) in before.into_iter().zip(recorder.histories()).enumerate() {
                // What was only seen may have been taken back by the cut; what was
                // acknowledged as durable may not.
                let looks = &all[before.len()..];
                let binding: Vec<_> =
                    before.iter().filter(|event| is_acknowledged(event)).chain(looks).copied().collect();
                for (events, what) in [(before, "before the cut"), (binding, "across the cut")] {
                    if let Err(furthest) = history::check(&events, &history::Contents::default()) {
                        panic!("seed {seed}: group {group} has no order {what}\n{furthest}");
                    }
                }
            }
        });
    });
}

/// Whether an event says that something was done, or may have been.
fn is_acknowledged(event: &history::Event) -> bool {
    !matches!(event.act, history::Act::Walk(_)) && !matches!(event.answer, Some(history::Answer::Refused(_)))
}
