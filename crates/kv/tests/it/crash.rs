//! Power cuts, dying processes and failing disks at every boundary of a random workload.
//!
//! Each transaction carries its number, in a row and in a note, so that what is found after a
//! restart says how far it goes; then all of it must be exactly what the first so many
//! transactions made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_conformance::{ShownBy, boundaries, seeds};
use weft_core::Result;
use weft_core::form::Ack;
use weft_kv::{Commit, Embedded, Engine, NoteKind, NotePosition, Options, Order, Snapshot, Txn, WriteFn};
use weft_sys::disk::Boundary;
use weft_sys::{FlushSite, Random, SeededRandom, SimDisk, Sys, simulate};

const TINY: Options = Options {
    segment_bytes: 4 << 10,
    fold_bytes: 4 << 10,
    overlay_bytes_max: 32 << 10,
    cache_bytes: 1 << 20,
    company_wait: weft_core::limits::KV_COMPANY_WAIT,
    flush_at_once: weft_core::limits::KV_FLUSH_AT_ONCE,
    flush_aside: 2,
    flush_aside_from: weft_core::limits::KV_FLUSH_ASIDE_FROM,
};
const KIND: NoteKind = NoteKind(3);
const NUMBER: &[u8] = b"0";
/// Seeds tried in a plain test run, half of them the same each time.
const SEEDS: u64 = 1000;

/// Workloads that are cut at each of their changes in a plain run, and how long each is.
const WORKLOADS: u64 = 3;
const BURSTS: u64 = 20;

/// What the rows hold.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether everything held, or what did not.
type Verdict<T = ()> = std::result::Result<T, String>;

/// What one transaction does.
#[derive(Clone)]
struct Step {
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What the outside world knows.
#[derive(Default)]
struct Known {
    /// Everything that may have happened, in order; number n is at n - 1.
    steps: Vec<Step>,
    /// Numbers up to here were answered as applied, durable; were told as notes; acknowledged.
    applied: u64,
    durable: u64,
    told: u64,
    acked: u64,
}

/// Counts over all runs, printed so that one sees what was covered.
#[derive(Default, Debug)]
struct Covered {
    restarts: u64,
    lost: u64,
    transactions: u64,
    failed_writes: u64,
    notes: u64,
}

struct Run {
    sys: Sys,
    options: Options,
    random: SeededRandom,
    disk: SimDisk,
    known: Known,
    covered: Covered,
}

fn step(random: &SeededRandom) -> Step {
    let change = |_| {
        let key = vec![b'a' + random.below(20) as u8];
        let size = if random.below(20) == 0 { 3000 } else { random.below(120) };
        let value = vec![random.below(256) as u8; size as usize];
        (key, (random.below(4) > 0).then_some(value))
    };
    Step { changes: (0..1 + random.below(4)).map(change).collect() }
}

fn state(steps: &[Step]) -> State {
    let mut state = BTreeMap::new();
    for (key, value) in steps.iter().flat_map(|step| &step.changes) {
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

fn transaction(step: Step, number: u64) -> WriteFn {
    Box::new(move |txn: &mut dyn Txn| {
        for (key, value) in &step.changes {
            match value {
                Some(value) => txn.put(key, value)?,
                None => txn.delete(key)?,
            }
        }
        txn.put(NUMBER, &number.to_be_bytes())?;
        txn.note(KIND, &number.to_be_bytes())
    })
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Fails the run with a reason.
fn expect(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

impl Run {
    fn open(&self) -> Result<Embedded> {
        Embedded::open(self.sys.clone(), Arc::new(self.disk.clone()), self.options)
    }

    /// Lives several lives, each ended by a power cut, a dead process or a failing disk.
    async fn all(&mut self) -> Verdict {
        for _ in 0..4 {
            self.plan_fault();
            let bursts = self.random.below(25);
            if let Ok(engine) = self.open() {
                self.live(&engine, bursts).await?;
            }
            let cut = self.random.below(4) > 0;
            self.disk = if cut { self.disk.crash(self.random.u64()) } else { self.disk.kill() };
            let clear = |faults: &mut weft_sys::disk::Faults| {
                (faults.fail_read, faults.fail_write, faults.fail_flush) = (None, None, None);
            };
            self.disk.set_faults(clear);
            self.check_after(cut).await?;
        }
        Ok(())
    }

    /// Lives until its end or the nth change, where the power goes off; then compares. Returns at what
    /// it went off.
    async fn cut_at(&mut self, change: Option<u64>, seed: u64) -> Verdict<Option<Boundary>> {
        self.disk.set_faults(|faults| faults.halt = change);
        if let Ok(engine) = self.open() {
            self.live(&engine, BURSTS).await?;
        }
        let met = self.disk.cut_at();
        self.disk = self.disk.crash(seed);
        self.check_after(true).await?;
        Ok(met)
    }

    fn plan_fault(&self) {
        let nth = |most| Some(1 + self.random.below(most));
        self.disk.set_faults(|faults| match self.random.below(8) {
            0 => faults.fail_write = nth(40),
            1 => faults.fail_flush = nth(20),
            2 => faults.fail_read = nth(60),
            3 => {}
            _ => faults.halt = nth(150),
        });
    }

    async fn live(&mut self, engine: &Embedded, bursts: u64) -> Verdict {
        let mut notes = engine.notes(KIND).map_err(|error| format!("no subscription: {error:?}"))?;
        for _ in 0..bursts {
            let burst = 1 + self.random.below(8);
            if !self.burst(engine, burst).await {
                return Ok(());
            }
            if self.random.below(4) == 0 {
                let soon = self.sys.clock().tick().plus(Duration::from_millis(1));
                let told = tokio::select! {
                    biased;
                    told = notes.next() => told,
                    () = self.sys.sleep_until(soon) => continue,
                };
                let Ok(told) = told else { return Ok(()) };
                self.hear(&told)?;
                if self.random.below(2) == 0 && notes.ack(NotePosition(self.known.told)).await.is_ok() {
                    self.known.acked = self.known.told;
                }
            }
            if self.random.below(10) == 0 {
                // Long enough for the flush of applied commits, or for a failed fold to rest.
                self.sys.sleep(Duration::from_secs(1 + self.random.below(6))).await;
            }
        }
        if self.random.below(3) == 0 && engine.close().await.is_ok() {
            self.known.durable = self.known.steps.len() as u64;
        }
        Ok(())
    }

    fn hear(&mut self, told: &[weft_kv::Note]) -> Verdict {
        self.covered.notes += told.len() as u64;
        for note in told {
            let (position, about) = (note.position.0, number(&note.bytes));
            expect(position == about, || format!("note {position} is about transaction {about}"))?;
            expect(position <= self.known.told + 1, || format!("note {position} after {}", self.known.told))?;
            self.known.told = self.known.told.max(position);
        }
        Ok(())
    }

    /// Writes a few transactions at once. Returns whether to go on.
    async fn burst(&mut self, engine: &Embedded, count: u64) -> bool {
        let mut writes = Vec::new();
        for _ in 0..count {
            let ack = if self.random.below(3) == 0 { Ack::Durable } else { Ack::Applied };
            let step = step(&self.random);
            self.known.steps.push(step.clone());
            let number = self.known.steps.len() as u64;
            writes.push((number, ack, engine.write(ack, transaction(step, number))));
        }
        self.covered.transactions += count;
        // Done at once, or queued in order before the writer runs, so that they share a batch; or one comes while others
        // are flushed.
        let mut begun = Vec::new();
        let spread = self.random.below(2) == 0;
        for (number, ack, write) in writes {
            let mut write = Box::pin(write);
            let done = tokio::select! { biased; done = &mut write => Some(done), () = std::future::ready(()) => None };
            begun.push((number, ack, write, done));
            if spread {
                self.sys.sleep(Duration::from_micros(self.random.below(200))).await;
            }
        }
        let mut goes_on = true;
        for (number, ack, write, done) in begun {
            let done = match done {
                Some(done) => done,
                None => write.await,
            };
            match done {
                // What is promised behind one that failed holds as well.
                Ok(Commit(_)) if ack == Ack::Durable => self.known.durable = number,
                Ok(Commit(_)) => {}
                Err(_) => {
                    self.covered.failed_writes += 1;
                    goes_on = false;
                    continue;
                }
            }
            self.known.applied = number;
        }
        goes_on
    }

    /// Opens what is left and compares it with what the world was told.
    async fn check_after(&mut self, cut: bool) -> Verdict {
        let engine = self.open().map_err(|error| format!("it does not open: {error:?}"))?;
        let snapshot = engine.snapshot().map_err(|error| format!("no snapshot: {error:?}"))?;
        let (found, rows) = read_all(&*snapshot).map_err(|error| format!("it cannot be read: {error:?}"))?;
        let known = &mut self.known;
        let must = if cut { known.durable } else { known.applied.max(known.durable) };
        expect(found >= must, || format!("{found} transactions are left of {must} that were promised"))?;
        expect(found >= known.told, || format!("note {} was told and its transaction is lost", known.told))?;
        let made = known.steps.len() as u64;
        expect(found <= made, || format!("{found} transactions are there of {made}"))?;
        expect(rows == state(&known.steps[..found as usize]), || {
            format!("{found} transactions are there in part")
        })?;
        self.covered.restarts += 1;
        self.covered.lost += made - found;
        known.steps.truncate(found as usize);
        // What was found after a start is on the disk for good.
        (known.applied, known.durable) = (found, found);
        self.check_notes(&engine, found).await
    }

    async fn check_notes(&mut self, engine: &Embedded, found: u64) -> Verdict {
        let mut notes = engine.notes(KIND).map_err(|error| format!("no subscription: {error:?}"))?;
        let mut next = None;
        while next.unwrap_or(self.known.acked) < found {
            let soon = self.sys.clock().tick().plus(Duration::from_millis(1));
            let told = tokio::select! {
                biased;
                told = notes.next() => told.map_err(|error| format!("no notes: {error:?}"))?,
                () = self.sys.sleep_until(soon) => return Err(format!("note {} is lost", next.unwrap_or(0) + 1)),
            };
            for note in told {
                let position = note.position.0;
                let first = position <= self.known.acked + 1;
                expect(next.map_or(first, |next| position == next + 1), || {
                    format!("note {position} after {next:?}")
                })?;
                expect(position == number(&note.bytes), || format!("note {position} is another's"))?;
                next = Some(position);
            }
        }
        self.known.told = self.known.told.max(found);
        engine.close().await.map_err(|error| format!("it does not close: {error:?}"))
    }
}

fn read_all(snapshot: &dyn Snapshot) -> Result<(u64, State)> {
    let found = snapshot.get(NUMBER)?.map_or(0, |bytes| number(&bytes));
    let mut rows = BTreeMap::new();
    for row in snapshot.scan(b"a", b"", Order::Rising) {
        let (key, value) = row?;
        rows.insert(key.to_vec(), value.to_vec());
    }
    Ok((found, rows))
}

/// Seeds that once failed, and what they found.
const REGRESSIONS: [u64; 2] = [
    // A segment made just before a crash was taken for the log's end at a later start.
    3_053_912_855_843_866_963,
    // The same segment, rightly continued, lost its unflushed name.
    2_763_799_073_922_788_835,
];

impl Run {
    fn new(sys: Sys, seed: u64) -> Self {
        let options = match seed % 4 {
            0 | 2 => TINY,
            // Everything goes through the queue, and each flush is made aside.
            1 => Options { flush_at_once: Duration::ZERO, flush_aside_from: Duration::ZERO, ..TINY },
            // Through the queue alone, as when the regressions above were found.
            _ => Options { flush_at_once: Duration::ZERO, ..TINY },
        };
        let (random, disk) = (SeededRandom::new(seed), SimDisk::new());
        Self { sys, options, random, disk, known: Known::default(), covered: Covered::default() }
    }
}

/// Runs one seed with some flushes ignored.
fn run(seed: u64, ignore: Option<FlushSite>) -> (Verdict, Covered) {
    simulate(seed, |sys| async move {
        let mut run = Run::new(sys, seed);
        run.disk.set_faults(|faults| faults.ignore.extend(ignore));
        (run.all().await, run.covered)
    })
}

impl Covered {
    fn add(&mut self, other: &Self) {
        self.restarts += other.restarts;
        self.lost += other.lost;
        self.transactions += other.transactions;
        self.failed_writes += other.failed_writes;
        self.notes += other.notes;
    }
}

#[test]
fn after_a_crash_there_is_a_whole_prefix_with_everything_that_was_promised() {
    let total = Mutex::new(Covered::default());
    seeds::each(&REGRESSIONS, SEEDS, |seed| {
        let (done, covered) = run(seed, None);
        done.unwrap_or_else(|why| panic!("{why}"));
        total.lock().expect("no holder panics").add(&covered);
    });
    println!("covered {:?}", total.into_inner().expect("no holder panics"));
}

/// Lives before the one that is cut off: of an empty disk, of one that lost its power, and again.
const LIVES: u64 = 3;

#[test]
fn a_power_cut_at_each_change_of_a_workload_leaves_what_was_promised() {
    let met = boundaries::each(WORKLOADS, |workload, change| {
        let outcome = simulate(workload, |sys| async move {
            let mut run = Run::new(sys, workload);
            for life in 0..workload % LIVES {
                run.cut_at(None, life).await?;
            }
            run.cut_at(Some(change), change).await
        });
        outcome.unwrap_or_else(|why| panic!("{why}"))
    });
    let flushes = ShownBy::KvCrashes.sites().map(Boundary::Flush);
    for kind in flushes.chain([Boundary::Change("write"), Boundary::Change("make")]) {
        assert!(std::env::var_os("WEFT_SEED").is_some() || met.contains_key(&kind), "never at {kind:?}");
    }
}

#[test]
fn every_flush_is_needed() {
    for site in ShownBy::KvCrashes.sites() {
        let caught = (0..3000).find_map(|seed| run(seed, Some(site)).0.err().map(|why| (seed, why)));
        let (seed, why) = caught.unwrap_or_else(|| panic!("nothing is lost without {site:?}"));
        println!("{site:?}: seed {seed}: {why}");
    }
}

/// Backs up, cuts the power there, restores, cuts the power there. Returns whether all is well.
async fn kept_by_a_backup(sys: Sys, seed: u64, ignored: Option<FlushSite>) -> Result<()> {
    let engine = Embedded::open(sys.clone(), Arc::new(SimDisk::new()), TINY)?;
    let act = |txn: &mut dyn Txn| txn.put(b"a", &[7; 900]);
    engine.write(Ack::Applied, Box::new(act)).await?;
    let (kept, restored) = (SimDisk::new(), SimDisk::new());
    for disk in [&kept, &restored] {
        disk.set_faults(|faults| faults.ignore.extend(ignored));
    }
    engine.backup(Arc::new(kept.clone())).await?;
    Embedded::restore(
        &sys,
        &kept.crash(seed),
        &(Arc::new(restored.clone()) as Arc<dyn weft_sys::Disk>),
        TINY,
    )?;
    let again = Embedded::open(sys, Arc::new(restored.crash(seed)), TINY)?;
    let found = again.snapshot()?.get(b"a")?;
    found.map(drop).ok_or_else(|| weft_core::Error::not_found("the row is gone"))
}

#[test]
fn a_backup_and_its_restoration_survive_a_crash_because_of_their_flushes() {
    for ignored in ShownBy::KvBackup.sites().map(Some).chain([None]) {
        let lost = (0..200).any(|seed| simulate(seed, |sys| kept_by_a_backup(sys, seed, ignored)).is_err());
        assert_eq!(lost, ignored.is_some(), "ignoring {ignored:?}");
    }
}
