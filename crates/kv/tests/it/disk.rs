//! The engine on a real disk, with real threads and a real kill -9.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_core::form::Ack;
use weft_kv::{Embedded, Engine, Options, Order, Read, Schema, Space, SpaceId, Txn, counter};
use weft_sys::{RealDisk, Sys};

use crate::contract::SMALL;

const SCHEMA: Schema = Schema { version: 1, migrations: &[] };
/// Set in the process that is to be killed: where it writes.
const CHILD: &str = "WEFT_KV_CHILD";

fn opened(home: &Path, options: Options) -> Arc<dyn Engine> {
    let disk = RealDisk::open(home).expect("the directory is there");
    Arc::new(Embedded::open(Sys::real(), Arc::new(disk), options).expect("it opens"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_write_and_read_and_nothing_is_lost_or_seen_in_part() {
    let home = tempfile::tempdir().expect("a directory");
    let space = Space::open(opened(home.path(), SMALL), SpaceId(1), &SCHEMA).await.expect("it opens");
    let running = Arc::new(AtomicBool::new(true));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (space, running) = (space.clone(), running.clone());
            std::thread::spawn(move || {
                let mut last = 0;
                while running.load(Ordering::Relaxed) {
                    let read = space.snapshot().expect("a snapshot");
                    let sum =
                        read.get(b"sum").expect("a read").map_or(0, |sum| counter(&sum).expect("a counter"));
                    let rows = read.scan(b"w", b"x", Order::Rising).filter(|row| row.is_ok()).count();
                    assert_eq!(rows as i64, sum, "a snapshot shows one moment");
                    assert!(sum >= last, "and never an earlier one");
                    last = sum;
                }
            })
        })
        .collect();
    let writers: Vec<_> = (0..8_u8)
        .map(|writer| {
            let space = space.clone();
            tokio::spawn(async move {
                for act in 0..150_u8 {
                    let write = move |txn: &mut weft_kv::SpaceTxn<'_>| {
                        txn.put(&[b'w', writer, act], &[act; 200])?;
                        txn.bump(b"sum", 1)
                    };
                    let ack = if act % 3 == 0 { Ack::Durable } else { Ack::Applied };
                    space.write(ack, write).await.expect("it commits");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("it ends");
    }
    running.store(false, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().expect("it saw nothing wrong"));
    space.engine().close().await.expect("it closes");
    drop(space);

    let again = Space::open(opened(home.path(), SMALL), SpaceId(1), &SCHEMA).await.expect("it opens");
    let sum = again.snapshot().and_then(|read| read.get(b"sum")).expect("a read").expect("a value");
    assert_eq!(counter(&sum).expect("a counter"), 8 * 150);
}

/// What the killed process does: it says each number once that is durable. In an ordinary run it
/// has nothing to do.
#[tokio::test]
async fn child_that_is_killed() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    let engine = opened(Path::new(&home), SMALL);
    let found = engine.snapshot().and_then(|read| read.get(b"n")).expect("a read");
    let mut number = found.map_or(0, |found| counter(&found).expect("a counter"));
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        let act = move |txn: &mut dyn Txn| {
            txn.bump(b"n", 1)?;
            txn.put(format!("row {number:08}").as_bytes(), &[7; 300])
        };
        engine.write(Ack::Durable, Box::new(act)).await.expect("it commits");
        writeln!(out, "durable {number}").and_then(|()| out.flush()).expect("the parent listens");
    }
}

#[tokio::test]
async fn a_killed_process_has_kept_what_it_said() {
    let home = tempfile::tempdir().expect("a directory");
    let rounds = if weft_conformance::full() { 100 } else { 5 };
    let mut before = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "disk::child_that_is_killed", "--nocapture"])
            .env(CHILD, home.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let mut said = before;
        let mut left = 20 + round * 37 % 200;
        for line in lines {
            let line = line.expect("text");
            let Some(number) = line.strip_prefix("durable ") else { continue };
            said = number.parse().expect("a number");
            left -= 1;
            if left == 0 {
                // What it says between here and its death counts as well.
                child.kill().expect("it runs");
            }
        }
        child.wait().expect("it ended");
        let engine = opened(home.path(), SMALL);
        let read = engine.snapshot().expect("a snapshot");
        let found = counter(&read.get(b"n").expect("a read").expect("a value")).expect("a counter");
        assert!(found >= said, "round {round}: {found} of {said}");
        assert_eq!(read.scan(b"row", b"rox", Order::Rising).filter(|row| row.is_ok()).count() as i64, found);
        before = found;
        drop(read);
        engine.close().await.expect("it closes");
    }
    assert!(before > 100);
}
