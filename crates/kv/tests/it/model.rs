//! Random work against a plain map: after every act, everything that can be read is the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::Error;
use weft_core::form::Ack;
use weft_kv::{Embedded, Engine, Order, Read, Snapshot, Txn, WriteFn};
use weft_sys::{Random, SeededRandom, SimDisk, Sys, simulate};

use crate::contract::SMALL;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change that a transaction makes.
#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

fn key(random: &SeededRandom) -> Vec<u8> {
    let mut key = vec![b'a' + random.below(4) as u8; 1 + random.below(3) as usize];
    key.push(b'a' + random.below(12) as u8);
    key
}

fn changes(random: &SeededRandom) -> Vec<Change> {
    let one = |_| match random.below(3) {
        0 => Change::Delete(key(random)),
        _ => Change::Put(key(random), vec![random.below(256) as u8; random.below(200) as usize]),
    };
    (0..1 + random.below(6)).map(one).collect()
}

fn apply(model: &mut Model, changes: &[Change]) {
    for change in changes {
        match change.clone() {
            Change::Put(key, value) => drop(model.insert(key, value)),
            Change::Delete(key) => drop(model.remove(&key)),
        }
    }
}

/// Makes the transaction; it checks inside that it reads what it wrote over what was there.
fn transaction(changes: Vec<Change>, mut expected: Model, fails: bool) -> WriteFn {
    apply(&mut expected, &changes);
    Box::new(move |txn: &mut dyn Txn| {
        for change in &changes {
            match change {
                Change::Put(key, value) => txn.put(key, value)?,
                Change::Delete(key) => txn.delete(key)?,
            }
        }
        let seen: Model = rows(txn, b"a", b"", Order::Rising);
        assert_eq!(seen, expected);
        if fails { Err(Error::exists("on purpose")) } else { Ok(()) }
    })
}

fn rows<R: Read + ?Sized>(read: &R, from: &[u8], to: &[u8], order: Order) -> Model {
    read.scan(from, to, order)
        .map(|row| row.expect("a row"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

fn compare(read: &dyn Snapshot, model: &Model, random: &SeededRandom) {
    let probe = key(random);
    assert_eq!(read.get(&probe).expect("a read").as_deref(), model.get(&probe).map(Vec::as_slice));
    let (from, to) = (key(random), key(random));
    if from < to {
        let expected: Vec<_> = model.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
        let scan = |order| -> Vec<Vec<u8>> {
            read.scan(&from, &to, order).map(|row| row.expect("a row").0.to_vec()).collect()
        };
        assert_eq!(scan(Order::Rising), expected);
        assert!(scan(Order::Falling).iter().eq(expected.iter().rev()));
    }
    assert_eq!(&rows(read, b"a", b"", Order::Falling), model);
}

async fn run(sys: Sys, seed: u64) {
    let random = SeededRandom::new(seed);
    let mut disk = SimDisk::new();
    let open = |disk: &SimDisk| Embedded::open(sys.clone(), Arc::new(disk.clone()), SMALL).expect("it opens");
    let mut engine = open(&disk);
    let mut model = Model::new();
    let mut kept: Vec<(Box<dyn Snapshot>, Model)> = Vec::new();
    for _ in 0..150 {
        match random.below(24) {
            0 => {
                kept.clear();
                engine.close().await.expect("it closes");
                engine = open(&disk);
            }
            1 => {
                kept.clear();
                disk = disk.kill();
                engine = open(&disk);
            }
            2 => kept.push((engine.snapshot().expect("a snapshot"), model.clone())),
            3 if !kept.is_empty() => drop(kept.remove(random.below(kept.len() as u64) as usize)),
            act => {
                let (changes, fails) = (changes(&random), act == 4);
                let ack = if act < 12 { Ack::Durable } else { Ack::Applied };
                let done = engine.write(ack, transaction(changes.clone(), model.clone(), fails)).await;
                assert_eq!(done.is_err(), fails, "{done:?}");
                if !fails {
                    apply(&mut model, &changes);
                }
            }
        }
        compare(&*engine.snapshot().expect("a snapshot"), &model, &random);
        kept.iter().for_each(|(snapshot, model)| compare(&**snapshot, model, &random));
    }
}

#[test]
fn the_engine_reads_as_a_plain_map_does() {
    for seed in 0..60 {
        println!("seed {seed}");
        simulate(seed, |sys| run(sys, seed));
    }
}
