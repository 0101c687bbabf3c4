//! Power cuts at every boundary of a random workload: what was acknowledged as durable
//! is there, what is there is what some prefix of the workload made, and a check finds
//! nothing wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weft_conformance::file_system::Subject;
use weft_conformance::file_system::history;
use weft_conformance::file_system::site::{Dice, Site};
use weft_conformance::seeds;
use weft_core::form::Ack;
use weft_core::{Deadline, ErrorKind, limits};
use weft_sys::{Disk, SimDisk, Sys, simulate};
use weft_volume::managed::Managed;

use super::disk_store::DiskStore;
use super::site::Volume;
use super::workload::{Hand, Step, domain, model};

const STEPS: usize = 40;

pub async fn volume_on(sys: &Sys, disk: &SimDisk, boot: u64, make: bool) -> (Volume, Arc<DiskStore>) {
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let store = DiskStore::open(disk, clock.clone(), boot);
    let below = disk.beneath("kv").expect("a directory can be made");
    let _ = disk.sync_dir("", weft_sys::FlushSite::StoreObject);
    let volume = Volume::on_disk(sys.clone(), domain(clock), below, store.clone(), make).await;
    (volume, store)
}

/// What the workload had done when the power went.
struct Cut {
    /// How the tree looked after each step, the first before any.
    looks: Vec<String>,
    /// The last step that was durable.
    durable: usize,
    /// The step that was under way.
    last: Option<Step>,
    /// How many steps of each kind worked.
    worked: Counts,
}

/// Steps by kind.
type Counts = BTreeMap<&'static str, u64>;

/// Makes random steps on both sides until the disk goes off.
async fn work(hand: &mut Hand, plain: &mut Hand, dice: &mut Dice) -> Cut {
    let mut cut = Cut { looks: vec![plain.look(None).await], durable: 0, last: None, worked: Counts::new() };
    for _ in 0..STEPS {
        let step = Step::roll(dice);
        // What could tear is made durable; so only the step under way can have torn.
        // Nobody is told how resting went.
        let durable = step.may_tear() || dice.roll(4) == 0 && !matches!(step, Step::Rest);
        let ack = if durable { Ack::Durable } else { Ack::Applied };
        let over = plain.is_over(&step).await;
        let got = hand.make(&step, ack).await;
        if got == Err(ErrorKind::Unavailable) || got == Err(ErrorKind::Internal) {
            let _ = plain.make(&step, ack).await;
            cut.looks.push(plain.look(None).await);
            cut.last = Some(step);
            return cut;
        }
        let expected = plain.make(&step, ack).await;
        assert_eq!(got, expected, "{step:?}");
        cut.looks.push(plain.look(None).await);
        if got.is_ok() {
            *cut.worked.entry(step.kind(over)).or_default() += 1;
        }
        let published = matches!(step, Step::Publish(..) | Step::Protect(..));
        if got.is_ok() && (durable || published) {
            cut.durable = cut.looks.len() - 1;
        }
    }
    cut
}

/// One seed: returns the steps that were made, and how many survived.
fn power_cut(seed: u64) -> (Counts, usize) {
    simulate(seed, |sys| async move {
        let mut dice = Dice::new(seed);
        let disk = SimDisk::new();
        let (volume, _) = volume_on(&sys, &disk, 1, true).await;
        let mut hand = Hand::new(volume.fs(), volume.domain.clone());
        hand.rests = Some(sys.clone());
        let mut plain = model(&volume.domain);
        let halt = 1 + dice.roll(400);
        disk.set_faults(|faults| faults.halt = Some(halt));
        let cut = work(&mut hand, &mut plain, &mut dice).await;
        drop((hand, volume));
        let disk = disk.crash(seed);
        let (volume, store) = volume_on(&sys, &disk, 2, false).await;
        let managed = volume.running().managed;
        clean(&managed, &volume, seed, "after the crash").await;
        let hand = Hand::new(volume.fs(), volume.domain.clone());
        let survived = found_among(&hand, &cut, seed).await;
        swept(&volume, &managed, &store, seed).await;
        (cut.worked, survived)
    })
}

/// Checks that a volume shows what some step had left, not before the last durable one.
async fn found_among(hand: &Hand, cut: &Cut, seed: u64) -> usize {
    let look = hand.look(None).await;
    if let Some(place) = cut.looks.iter().rposition(|known| *known == look) {
        assert!(
            place >= cut.durable,
            "seed {seed}: step {} was durable, what is there is of step {place}",
            cut.durable
        );
        return place;
    }
    let torn = cut.last.as_ref().is_some_and(Step::may_tear);
    let plain = |look: &str| -> Vec<String> {
        // Without contents: what was written in place when the power went may be torn.
        look.lines().map(|line| line.split(" bytes ").next().unwrap_or(line).to_owned()).collect()
    };
    let names = |look: &str| -> Vec<String> {
        plain(look)
            .iter()
            .map(|line| line.rsplit_once(' ').map_or(line.clone(), |(a, _)| a.to_owned()))
            .collect()
    };
    let last = cut.looks.last().expect("there is a first");
    let before = &cut.looks[cut.looks.len().saturating_sub(2)];
    let similar = torn && [last, before].iter().any(|known| names(known) == names(&look));
    assert!(
        similar,
        "seed {seed}: what is there is of no step; last {:?}\nthere:\n{look}\nlast:\n{last}\nbefore:\n{before}",
        cut.last
    );
    cut.looks.len() - 1
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
    let total = Mutex::new((Counts::new(), 0));
    seeds::each(&[], 600, |seed| {
        let (worked, survived) = power_cut(seed);
        let mut total = total.lock().expect("no holder panics");
        total.1 += survived;
        for (kind, count) in worked {
            *total.0.entry(kind).or_default() += count;
        }
    });
    let (worked, survived) = total.into_inner().expect("no holder panics");
    println!("steps that worked before the cut: {worked:?}; {survived} survived, refused ones among them");
    for kind in Step::KINDS {
        assert!(
            std::env::var_os("WEFT_SEED").is_some() || worked.get(kind).is_some_and(|count| *count > 0),
            "no power cut met anything {kind}"
        );
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
