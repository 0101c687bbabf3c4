//! Our side of `kv.*`: what `peers/sqlite_meta.c` does in SQLite, in the embedded engine.
//! The rows are those of a managed volume: inode, entry by name, entry by cookie, back
//! link, two counters of the directory, a note for the feed and one for the audit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_kv::{
    Ack, Embedded, Engine, NoteKind, Options, Order, Read, Schema, Space, SpaceId, SpaceTxn, Txn, prefix_end,
};
use weft_sys::{RealDisk, Sys};

use crate::Result;

/// As in `sqlite_meta.c`.
const INODE_BYTES: usize = 96;
const NOTE_BYTES: usize = 120;
const PAGE: usize = 1000;
/// Feeds that somebody reads.
const FEEDS: [NoteKind; 2] = [NoteKind(1), NoteKind(2)];
/// First bytes of the tables' keys.
const INODE: u8 = 1;
const ENTRY: u8 = 2;
const COOKIE: u8 = 3;
const BACK: u8 = 4;
const ENTRIES: u8 = 5;
const CHANGED: u8 = 6;

/// What one run is to do.
#[derive(Clone, Copy)]
pub struct Work {
    pub callers: u64,
    pub count: u64,
    pub dirs: u64,
}

impl Work {
    /// What each caller is to do.
    pub fn share(self) -> u64 {
        self.count / self.callers
    }

    /// Operations per second since `start`.
    pub fn rate(self, start: Instant) -> f64 {
        (self.share() * self.callers) as f64 / start.elapsed().as_secs_f64()
    }
}

/// Does one side's work.
pub async fn run(folder: &Path, what: &str, work: Work) -> Result<f64> {
    let sys = Sys::real();
    let engine = Arc::new(Embedded::open(sys, Arc::new(RealDisk::open(folder)?), Options::of_machine())?);
    let space = Space::open(engine.clone(), SpaceId(1), &Schema { version: 1, migrations: &[] }).await?;
    let readers: Vec<_> = FEEDS.into_iter().map(|kind| tokio::spawn(follow(space.clone(), kind))).collect();
    let base = files(&space)?;
    let rate = match what {
        // `files`: what `rename` does before its clock starts.
        "create" | "files" => create(&space, work, base).await,
        "rename" => {
            create(&space, work, base).await?;
            rename(&space, work, base).await
        }
        "lookup" => look_up(&space, work, base),
        "list" => list(&space, work, base),
        _ => Err(format!("unknown work: {what}").into()),
    };
    engine.close().await?;
    for reader in readers {
        reader.abort();
    }
    rate
}

/// Reads a feed and lets go of what was read, as the change feed and the audit do.
async fn follow(space: Space, kind: NoteKind) -> weft_core::Result<()> {
    let mut notes = space.notes(kind)?;
    loop {
        if let Some(last) = notes.next().await?.last() {
            notes.ack(last.position).await?;
        }
    }
}

/// Returns how many files there are: the serial after the last.
fn files(space: &Space) -> Result<u64> {
    let last = space.snapshot()?.scan(&[INODE], &prefix_end(&[INODE]), Order::Falling).next().transpose()?;
    Ok(match last {
        Some((key, _)) => u64::from_be_bytes(key[1..9].try_into()?) + 1,
        None => 0,
    })
}

async fn create(space: &Space, work: Work, base: u64) -> Result<f64> {
    let next = Arc::new(AtomicU64::new(base));
    let start = Instant::now();
    let callers: Vec<_> = (0..work.callers)
        .map(|_| {
            let (space, next) = (space.clone(), next.clone());
            tokio::spawn(async move {
                for _ in 0..work.share() {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    space.write(Ack::Durable, move |txn| create_one(txn, id, id % work.dirs)).await?;
                }
                weft_core::Result::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(work.rate(start))
}

async fn rename(space: &Space, work: Work, base: u64) -> Result<f64> {
    let start = Instant::now();
    let callers: Vec<_> = (0..work.callers)
        .map(|caller| {
            let space = space.clone();
            tokio::spawn(async move {
                for at in 0..work.share() {
                    let id = base + caller * work.share() + at;
                    space.write(Ack::Durable, move |txn| rename_one(txn, id, id % work.dirs)).await?;
                }
                weft_core::Result::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(work.rate(start))
}

fn create_one(txn: &mut SpaceTxn<'_>, id: u64, dir: u64) -> weft_core::Result<()> {
    let name = name("file", id);
    let entry = entry(dir, &name);
    if txn.get(&entry)?.is_some() {
        return Err(weft_core::Error::exists("the name is taken"));
    }
    txn.put(&key(INODE, &[id]), &[0; INODE_BYTES])?;
    txn.put(&entry, &[id, id].map(u64::to_be_bytes).concat())?;
    txn.put(&key(COOKIE, &[dir, id]), &name)?;
    txn.put(&key(BACK, &[id, dir, id]), &name)?;
    txn.bump(&key(ENTRIES, &[dir]), 1)?;
    txn.bump(&key(CHANGED, &[dir]), 1)?;
    tell(txn)
}

fn rename_one(txn: &mut SpaceTxn<'_>, id: u64, dir: u64) -> weft_core::Result<()> {
    let (from, to) = (entry(dir, &name("file", id)), name("renamed", id));
    let old = txn.get(&from)?.ok_or_else(|| weft_core::Error::not_found("no such name"))?;
    let place = [&old[..8], &(id | 1 << 63).to_be_bytes()].concat();
    txn.delete(&key(COOKIE, &[dir, id]))?;
    txn.delete(&key(BACK, &[id, dir, id]))?;
    txn.delete(&from)?;
    txn.put(&entry(dir, &to), &place)?;
    txn.put(&key(COOKIE, &[dir, id | 1 << 63]), &to)?;
    txn.put(&key(BACK, &[id, dir, id | 1 << 63]), &to)?;
    txn.bump(&key(CHANGED, &[dir]), 1)?;
    tell(txn)
}

fn tell(txn: &mut SpaceTxn<'_>) -> weft_core::Result<()> {
    FEEDS.into_iter().try_for_each(|kind| txn.note(kind, &[0; NOTE_BYTES]))
}

fn look_up(space: &Space, work: Work, base: u64) -> Result<f64> {
    // What is measured is resident.
    (0..base).try_for_each(|id| look_up_one(space, work, id))?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..work.callers)
            .map(|caller| scope.spawn(move || look_up_alone(space, work, base, caller)))
            .collect();
        callers.into_iter().try_for_each(|caller| caller.join().expect("a reader does not panic"))
    })?;
    Ok(work.rate(start))
}

fn look_up_alone(space: &Space, work: Work, base: u64, caller: u64) -> weft_core::Result<()> {
    let mut state = 88_172_645_463_325_252_u64 + caller;
    for _ in 0..work.share() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        look_up_one(space, work, state % base)?;
    }
    Ok(())
}

fn look_up_one(space: &Space, work: Work, id: u64) -> weft_core::Result<()> {
    let snapshot = space.snapshot()?;
    let found = snapshot.get(&entry(id % work.dirs, &name("file", id)))?;
    let inode = found.map(|value| snapshot.get(&[&[INODE], &value[..8]].concat())).transpose()?.flatten();
    match inode {
        Some(inode) if inode.len() == INODE_BYTES => Ok(()),
        _ => Err(weft_core::Error::corrupt(format!("file {id} is not there"))),
    }
}

fn list(space: &Space, work: Work, base: u64) -> Result<f64> {
    // What is measured is resident.
    list_some(space, base / work.dirs)?;
    let start = Instant::now();
    list_some(space, work.share())?;
    Ok(work.rate(start))
}

/// Lists directory 0 in pages by cookie, each entry with its inode, until so many were seen.
fn list_some(space: &Space, count: u64) -> Result<()> {
    let (whole, end) = (key(COOKIE, &[0]), prefix_end(&key(COOKIE, &[0])));
    let (mut from, mut seen) = (whole.clone(), 0);
    while seen < count {
        let snapshot = space.snapshot()?;
        let mut last = None;
        for row in snapshot.scan(&from, &end, Order::Rising).take(PAGE) {
            let (cookie, name) = row?;
            let found = snapshot.get(&entry(0, &name))?.ok_or("an entry is missing")?;
            let inode = snapshot.get(&[&[INODE], &found[..8]].concat())?.ok_or("an inode is missing")?;
            seen += u64::from(inode.len() == INODE_BYTES);
            last = Some(cookie);
        }
        from = last.map_or_else(|| whole.clone(), |cookie| [&cookie[..], &[0]].concat());
    }
    Ok(())
}

fn name(kind: &str, id: u64) -> Vec<u8> {
    format!("{kind}-{id:010}.dat").into_bytes()
}

fn key(table: u8, numbers: &[u64]) -> Vec<u8> {
    let mut key = vec![table];
    key.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    key
}

fn entry(dir: u64, name: &[u8]) -> Vec<u8> {
    [&key(ENTRY, &[dir])[..], name].concat()
}
