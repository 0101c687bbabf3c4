//! An engine that ends on a full disk, however it ends, opens there again.

use std::sync::Arc;
use std::time::Duration;

use weft_core::form::Ack;
use weft_core::limits::{KV_LOG_RESERVE_SHARE, KV_OPENING_BYTES};
use weft_core::{ErrorKind, Result};
use weft_kv::{Embedded, Engine, Options, Order, Txn, WriteFn, counter};
use weft_sys::{Disk, SimDisk, Sys, simulate};

use crate::contract::SMALL;

const OPTIONS: Options = Options { segment_bytes: 64 << 10, fold_bytes: 16 << 10, ..SMALL };
/// Openings on the full disk that each have a small thing to say, at least.
const OPENINGS: u64 = OPTIONS.segment_bytes / KV_LOG_RESERVE_SHARE / KV_OPENING_BYTES;

/// How an engine ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    Killed,
    PowerCut,
}

const STARTS: &[u8] = b"starts";

/// The engine over one disk, and what it holds if it keeps its promises.
struct World {
    sys: Sys,
    disk: SimDisk,
    made: u32,
    starts: u64,
    what: String,
}

fn row(key: u32) -> Vec<u8> {
    // Sizes that meet every boundary.
    vec![key as u8; 100 + (key as usize * 37) % 500]
}

fn put(key: u32) -> WriteFn {
    Box::new(move |txn: &mut dyn Txn| txn.put(&[&b"r"[..], &key.to_be_bytes()].concat(), &row(key)))
}

impl World {
    fn open(&self) -> Embedded {
        Embedded::open(self.sys.clone(), Arc::new(self.disk.clone()), OPTIONS)
            .unwrap_or_else(|error| panic!("{}: it does not open: {error:?}", self.what))
    }

    /// Leaves `left` bytes free on the disk.
    fn fill(&self, left: u64) {
        let space = self.disk.space().expect("a simulated disk knows");
        self.disk.set_faults(|faults| faults.capacity = Some(space.total - space.free + left));
    }

    /// Writes until the disk is too full.
    async fn write_until_refused(&mut self, engine: &Embedded) {
        for _ in 0..5000 {
            match engine.write(Ack::Durable, put(self.made)).await {
                Ok(_) => self.made += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}: {error:?}", self.what);
                    return;
                }
            }
        }
        panic!("{}: the disk never filled", self.what);
    }

    fn check(&self, engine: &Embedded) {
        let snapshot = engine.snapshot().expect("a snapshot");
        let found: Result<Vec<_>> = snapshot.scan(b"r", b"s", Order::Rising).collect();
        let found = found.unwrap_or_else(|error| panic!("{}: {error:?}", self.what));
        assert_eq!(found.len(), self.made as usize, "{}", self.what);
        for (key, (_, value)) in found.iter().enumerate() {
            assert_eq!(*value, row(key as u32), "{}: row {key}", self.what);
        }
        let starts = snapshot.get(STARTS).expect("a read").map_or(0, |value| counter(&value).expect("eight"));
        assert_eq!(starts as u64, self.starts, "{}", self.what);
    }

    async fn end(&mut self, engine: Embedded, end: End) {
        match end {
            End::Closed => {
                engine.close().await.expect("it closes");
                drop(engine);
            }
            End::Killed => self.disk = self.disk.kill(),
            End::PowerCut => self.disk = self.disk.crash(u64::from(self.made)),
        }
    }
}

/// Fills the disk after `before` commits up to `left` bytes, and goes on until nothing goes any
/// more; then ends, opens, says that it did, and tries to write, several times over.
async fn restarted_on_a_full_disk(sys: Sys, before: u32, left: u64, end: End) {
    let what = format!("{before} commits, {left} bytes left, {end:?}");
    let mut world = World { sys, disk: SimDisk::new(), made: 0, starts: 0, what };
    let engine = world.open();
    for _ in 0..before {
        engine.write(Ack::Durable, put(world.made)).await.expect("there is room");
        world.made += 1;
    }
    world.fill(left);
    world.write_until_refused(&engine).await;
    world.check(&engine);
    world.end(engine, end).await;
    for _ in 0..OPENINGS {
        let engine = world.open();
        world.check(&engine);
        let said = engine.write(Ack::Durable, Box::new(|txn: &mut dyn Txn| txn.bump(STARTS, 1))).await;
        said.unwrap_or_else(|error| panic!("{}: an opening cannot be noted: {error:?}", world.what));
        world.starts += 1;
        world.write_until_refused(&engine).await;
        world.check(&engine);
        world.end(engine, end).await;
    }
    let engine = world.open();
    world.disk.set_faults(|faults| faults.capacity = None);
    // A fold that was refused rests first.
    world.sys.sleep(Duration::from_secs(2)).await;
    for _ in 0..100 {
        engine.write(Ack::Durable, put(world.made)).await.expect("there is room again");
        world.made += 1;
    }
    world.end(engine, end).await;
    world.check(&world.open());
}

#[test]
fn an_engine_that_ends_on_a_full_disk_opens_there_again_says_so_and_goes_on_once_there_is_space() {
    let step = if weft_conformance::full() { 1 } else { 7 };
    for end in [End::Closed, End::Killed, End::PowerCut] {
        for before in (0..70).step_by(step) {
            for left in [0, 512, 5_000, 9_000, 40_000, 200_000, 1_200_000] {
                simulate(1, |sys| restarted_on_a_full_disk(sys, before, left, end));
            }
        }
    }
}
