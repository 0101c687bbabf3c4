//! Power cuts and dying processes at every boundary of a random workload.
//!
//! Goal: what was synced is there; what was not is there in part or not at all, and never
//! anything else; nothing is called corrupt that was only cut off; `check` finds no damage.
//! Method: a ledger of what each object may hold, kept beside the store, byte by byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_conformance::object_store::bench::{HERE, THERE, pattern, read};
use weft_conformance::{ShownBy, boundaries, seeds};
use weft_core::form::{BytesSource, Range, Shape, WriteAt};
use weft_core::proof::Granted;
use weft_core::service::{ObjectStore, Severity};
use weft_core::{ContainerId, ErrorKind, ObjectId, Rights};
use weft_kv::Engine;
use weft_store::{Check, Directory, Options};
use weft_sys::disk::Boundary;
use weft_sys::{FlushSite, Random, SeededRandom, SimDisk, Sys, simulate};

use crate::node::{self, Node};

/// Seeds tried in a plain test run, half of them the same each time.
const SEEDS: u64 = 1000;
/// Seeds tried until an ignored flush must have shown.
const SEEDS_TO_SHOW: u64 = 400;
/// Workloads that are cut at each of their changes in a plain run, and how many generations lie
/// before the one that is cut: none or one.
const WORKLOADS: u64 = 4;
const LIVES: u64 = 2;
const GENERATIONS: usize = 3;
const STEPS: u64 = 40;
/// Sizes stay below this: two blocks and a bit.
const REACH: u64 = (2 << 20) + 5000;

/// What an object may be after a crash.
#[derive(Default)]
struct Ledger {
    /// As the store shows it now.
    now: Vec<u8>,
    /// As it was at the last answered sync.
    base: Vec<u8>,
    /// Writes since.
    writes: Vec<(u64, Vec<u8>)>,
    /// Whether its extent was changed since.
    shaped: bool,
    /// Smallest and largest size since.
    sizes: (u64, u64),
    synced: bool,
    labels: Vec<ContainerId>,
    remove_asked: bool,
    /// Its removal is on disk.
    gone: bool,
}

impl Ledger {
    fn settle(&mut self, found: Vec<u8>, label: ContainerId) {
        let size = found.len() as u64;
        *self = Self {
            base: found.clone(),
            now: found,
            sizes: (size, size),
            synced: true,
            labels: vec![label],
            ..Self::default()
        };
    }

    fn synced(&mut self) {
        let label = *self.labels.last().expect("it has one");
        let now = std::mem::take(&mut self.now);
        let labels = std::mem::take(&mut self.labels);
        self.settle(now, label);
        // The label is a record: only a flush of those settles it.
        self.labels = labels;
    }

    fn write(&mut self, at: u64, bytes: Vec<u8>) {
        let end = at as usize + bytes.len();
        self.now.resize(self.now.len().max(end), 0);
        self.now[at as usize..end].copy_from_slice(&bytes);
        self.writes.push((at, bytes));
        self.sized();
    }

    fn sized(&mut self) {
        let size = self.now.len() as u64;
        self.sizes = (self.sizes.0.min(size), self.sizes.1.max(size));
    }

    /// Says what is wrong with what was found after a crash.
    fn judge(&self, found: &[u8]) -> Result<(), String> {
        let size = found.len() as u64;
        if !(self.sizes.0..=self.sizes.1).contains(&size) {
            return Err(format!("{size} bytes, expected {:?}", self.sizes));
        }
        let mut good: Vec<bool> = found
            .iter()
            .enumerate()
            .map(|(at, byte)| match self.base.get(at) {
                Some(base) => byte == base || (self.shaped && *byte == 0),
                None => *byte == 0,
            })
            .collect();
        for (at, bytes) in &self.writes {
            for (byte, place) in bytes.iter().zip(*at as usize..) {
                if let (Some(good), Some(found)) = (good.get_mut(place), found.get(place)) {
                    *good |= byte == found;
                }
            }
        }
        match good.iter().position(|good| !good) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} is {:#x}, which was never there", found[at])),
        }
    }
}

/// Counts over all seeds, printed so that one sees what was covered.
#[derive(Debug, Default)]
struct Covered {
    crashes: u64,
    kills: u64,
    halted: u64,
    syncs: u64,
    seals: u64,
    resealed: u64,
    removes: u64,
    vanished: u64,
    notes: u64,
}

struct Run {
    sys: Sys,
    random: SeededRandom,
    disk: SimDisk,
    node: Node,
    store: Arc<Directory>,
    proofs: BTreeMap<ContainerId, Granted>,
    ledgers: BTreeMap<ObjectId, Ledger>,
    next: u128,
    covered: Covered,
    options: Options,
}

type Verdict<T = ()> = Result<T, String>;

impl Run {
    async fn begin(sys: Sys, seed: u64, ignore: Option<FlushSite>) -> Verdict<Self> {
        let random = SeededRandom::new(seed);
        let disk = SimDisk::new();
        disk.set_faults(|faults| faults.ignore.extend(ignore));
        let options = Options {
            verify_always: random.below(2) == 0,
            records_flushed_by_caller: random.below(4) == 0,
            ..Options::default()
        };
        let node = Node::start(&sys, Arc::new(disk.clone()), options).await.map_err(said)?;
        let proof = |container| {
            (container, weft_conformance::object_store::bench::proof(&node, container, Rights::ALL))
        };
        let proofs = BTreeMap::from([proof(HERE), proof(THERE)]);
        let (store, ledgers, covered) = (node.directory(), BTreeMap::new(), Covered::default());
        Ok(Self { sys, random, disk, node, store, proofs, ledgers, next: 1, covered, options })
    }

    async fn generation(&mut self) -> Verdict {
        let changes = self.random.below(120) + 1;
        self.disk.set_faults(|faults| faults.halt = Some(changes));
        for _ in 0..self.random.below(STEPS) + 5 {
            match self.step().await {
                Ok(()) => {}
                Err(Stop::Halted) => {
                    self.covered.halted += 1;
                    break;
                }
                Err(Stop::Wrong(wrong)) => return Err(wrong),
            }
        }
        self.disk = if self.random.below(4) == 0 {
            self.covered.kills += 1;
            self.disk.kill()
        } else {
            self.covered.crashes += 1;
            self.disk.crash(self.random.u64())
        };
        self.restart().await?;
        self.look().await
    }

    /// Works until its end or the nth change, where the power goes off; then compares. Returns at
    /// what it went off.
    async fn cut_at(&mut self, change: Option<u64>, seed: u64) -> Verdict<Option<Boundary>> {
        self.disk.set_faults(|faults| faults.halt = change);
        for _ in 0..STEPS {
            match self.step().await {
                Ok(()) => {}
                Err(Stop::Halted) => break,
                Err(Stop::Wrong(wrong)) => return Err(wrong),
            }
        }
        let met = self.disk.cut_at();
        self.disk = self.disk.crash(seed);
        self.restart().await?;
        self.look().await?;
        Ok(met)
    }

    async fn restart(&mut self) -> Verdict {
        let node = Node::start(&self.sys, Arc::new(self.disk.clone()), self.options).await;
        self.node = node.map_err(|error| format!("it does not start again: {error:?}"))?;
        self.store = self.node.directory();
        let proof = |container| {
            (container, weft_conformance::object_store::bench::proof(&self.node, container, Rights::ALL))
        };
        self.proofs = BTreeMap::from([proof(HERE), proof(THERE)]);
        Ok(())
    }

    /// Compares everything with the ledgers.
    async fn look(&mut self) -> Verdict {
        if self.random.below(2) == 0 {
            self.store.settle().await.map_err(said)?;
        }
        let mut found = BTreeMap::new();
        for (container, proof) in &self.proofs {
            for stat in self.store.list(proof, None).await.map_err(said)?.objects {
                if found.insert(stat.id, *container).is_some() {
                    return Err(format!("{} is in two containers", stat.id));
                }
            }
        }
        if let Some(unknown) = found.keys().find(|id| !self.ledgers.contains_key(id)) {
            return Err(format!("{unknown} was never made"));
        }
        let ids: Vec<_> = self.ledgers.keys().copied().collect();
        for id in ids {
            self.look_at(id, found.get(&id).copied()).await.map_err(|wrong| format!("{id}: {wrong}"))?;
        }
        self.check().await
    }

    async fn look_at(&mut self, id: ObjectId, label: Option<ContainerId>) -> Verdict {
        let ledger = self.ledgers.get_mut(&id).expect("it is one of them");
        let Some(label) = label else {
            if ledger.synced && !ledger.remove_asked {
                return Err("it was synced and is gone".into());
            }
            self.covered.vanished += 1;
            self.ledgers.remove(&id);
            return Ok(());
        };
        if ledger.gone {
            return Err("it was removed for good and is there".into());
        }
        if !ledger.labels.contains(&label) {
            return Err(format!("it is in container {label}"));
        }
        let proof = &self.proofs[&label];
        let bytes = read(&*self.store, proof, id, Range::ALL).await.map_err(said)?;
        ledger.judge(&bytes)?;
        self.store.sync(proof, id).await.map_err(said)?;
        self.node.engine().flush().await.map_err(said)?;
        ledger.settle(bytes.to_vec(), label);
        Ok(())
    }

    async fn check(&mut self) -> Verdict {
        let report = self.store.check(Check { repair: false, blocks: true }).await.map_err(said)?;
        self.covered.notes += report.findings.len() as u64;
        self.covered.resealed +=
            report.findings.iter().filter(|finding| finding.structure == "seals").count() as u64;
        match report.findings.iter().find(|finding| finding.severity != Severity::Note) {
            None => Ok(()),
            Some(finding) => Err(format!("check: {finding:?}")),
        }
    }

    async fn step(&mut self) -> Result<(), Stop> {
        let known: Vec<_> =
            self.ledgers.iter().filter(|(_, ledger)| !ledger.remove_asked).map(|(id, _)| *id).collect();
        let what = if known.is_empty() { 0 } else { self.random.below(16) };
        if what < 2 && known.len() < 6 {
            return self.make().await;
        }
        if what == 2 {
            self.sys.sleep(Duration::from_millis(self.random.below(7000))).await;
            return Ok(());
        }
        if what == 3 {
            return self.flush().await;
        }
        let Some(id) = known.get(self.random.below(known.len() as u64) as usize) else { return Ok(()) };
        self.act(what, *id).await
    }

    async fn make(&mut self) -> Result<(), Stop> {
        let (id, container) = (ObjectId(self.next), if self.random.below(2) == 0 { HERE } else { THERE });
        self.next += 1;
        let ledger = self.ledgers.entry(id).or_default();
        ledger.labels.push(container);
        heard(self.store.make(&self.proofs[&container], id, None).await)
    }

    async fn flush(&mut self) -> Result<(), Stop> {
        heard(self.node.engine().flush().await.map(drop))?;
        for ledger in self.ledgers.values_mut() {
            ledger.gone |= ledger.remove_asked;
            ledger.labels = ledger.labels.last().copied().into_iter().collect();
        }
        Ok(())
    }

    async fn act(&mut self, what: u64, id: ObjectId) -> Result<(), Stop> {
        let place = [0, 4096, (1 << 20) - 700, 1 << 20, (2 << 20) - 100][self.random.below(5) as usize];
        let at = place + self.random.below(1000);
        let length = 1 + self.random.below(2500);
        let ledger = self.ledgers.get_mut(&id).expect("it is one of them");
        let proof = &self.proofs[ledger.labels.last().expect("it has one")];
        let store = &self.store;
        match what {
            4..=7 => {
                let bytes = pattern(self.random.u64(), length as usize);
                ledger.write(at, bytes.clone());
                heard(
                    store.write(proof, id, WriteAt::Offset(at), &mut BytesSource::new(bytes)).await.map(drop),
                )
            }
            8 if ledger.now.len() as u64 + length < REACH => {
                let bytes = pattern(self.random.u64(), length as usize);
                ledger.write(ledger.now.len() as u64, bytes.clone());
                heard(store.write(proof, id, WriteAt::End, &mut BytesSource::new(bytes)).await.map(drop))
            }
            9 => {
                let size = at.min(REACH);
                ledger.shaped = true;
                ledger.now.resize(size as usize, 0);
                ledger.sized();
                heard(store.shape(proof, id, Shape::Truncate(size)).await.map(drop))
            }
            10 => {
                ledger.shaped = true;
                let end = (at + length).min(ledger.now.len() as u64);
                ledger.now[at.min(end) as usize..end as usize].fill(0);
                heard(store.shape(proof, id, Shape::Punch { at, length }).await.map(drop))
            }
            11 => {
                self.covered.seals += 1;
                heard(store.seal(proof, id).await.map(drop))
            }
            12 | 13 => {
                heard(store.sync(proof, id).await.map(drop))?;
                if self.options.records_flushed_by_caller {
                    heard(self.node.engine().flush().await.map(drop))?;
                }
                self.covered.syncs += 1;
                ledger.synced();
                Ok(())
            }
            14 => {
                self.covered.removes += 1;
                ledger.remove_asked = true;
                heard(store.remove(proof, id).await)
            }
            15 => {
                let old = *ledger.labels.last().expect("it has one");
                let new = if old == HERE { THERE } else { HERE };
                ledger.labels.push(new);
                let moved = store.relabel(&self.proofs[&old], &self.proofs[&new], id).await;
                heard(moved)
            }
            _ => {
                let found = read(&**store, proof, id, Range::ALL).await;
                let found = heard(found)?;
                if found != ledger.now {
                    return Err(Stop::Wrong(format!("{id} does not read as written")));
                }
                Ok(())
            }
        }
    }
}

/// Why a workload ends.
enum Stop {
    /// The power is off.
    Halted,
    /// The store did something it must not.
    Wrong(String),
}

/// With the power off everything may fail, but nothing may be called corrupt.
fn heard<T>(answer: weft_core::Result<T>) -> Result<T, Stop> {
    answer.map_err(|error| match error.kind() {
        ErrorKind::Unavailable => Stop::Halted,
        _ => Stop::Wrong(format!("{error:?}")),
    })
}

fn said(error: weft_core::Error) -> String {
    format!("{error:?}")
}

fn run(seed: u64, ignore: Option<FlushSite>) -> Verdict<Covered> {
    simulate(seed, |sys| async move {
        let mut run = Run::begin(sys, seed, ignore).await?;
        for _ in 0..GENERATIONS {
            run.generation().await?;
        }
        Ok(run.covered)
    })
}

impl Covered {
    fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.halted += other.halted;
        self.syncs += other.syncs;
        self.seals += other.seals;
        self.resealed += other.resealed;
        self.removes += other.removes;
        self.vanished += other.vanished;
        self.notes += other.notes;
    }
}

#[test]
fn what_was_synced_survives_and_nothing_else_is_ever_seen() {
    let total = Mutex::new(Covered::default());
    // Records behind a torn one came back once the torn one was written again.
    seeds::each(&[23_775_133_761_991_468, 23_775_133_761_992_005], SEEDS, |seed| {
        let covered = run(seed, None).unwrap_or_else(|wrong| panic!("{wrong}"));
        total.lock().expect("no holder panics").add(&covered);
    });
    let total = total.into_inner().expect("no holder panics");
    println!("{total:?}");
    assert!(total.halted > 0 && total.resealed > 0 && total.vanished > 0 && total.kills > 0);
}

#[test]
fn a_power_cut_at_each_change_of_a_workload_leaves_what_was_synced() {
    let met = boundaries::each(WORKLOADS, |workload, change| {
        let outcome = simulate(workload, |sys| async move {
            let mut run = Run::begin(sys, workload, None).await?;
            for life in 0..workload % LIVES {
                run.cut_at(None, life).await?;
            }
            run.cut_at(Some(change), change).await
        });
        outcome.unwrap_or_else(|wrong| panic!("{wrong}"))
    });
    let flushes = ShownBy::StoreCrashes.sites().map(Boundary::Flush);
    for kind in flushes.chain(["write", "make", "resize", "punch", "remove"].map(Boundary::Change)) {
        assert!(std::env::var_os("WEFT_SEED").is_some() || met.contains_key(&kind), "never at {kind:?}");
    }
}

#[test]
fn every_flush_that_is_ignored_shows() {
    let _ = node::domain;
    // The store leans on the log's flushes as well.
    for site in ShownBy::StoreCrashes.sites().chain([FlushSite::KvLogAppend]) {
        let shown =
            (0..SEEDS_TO_SHOW).find_map(|seed| run(seed, Some(site)).err().map(|wrong| (seed, wrong)));
        let (seed, wrong) = shown.unwrap_or_else(|| panic!("{site:?} is superstition"));
        println!("{site:?}, seed {seed}: {wrong}");
    }
}
