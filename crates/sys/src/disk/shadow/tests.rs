//! A shadow behaves as the disk it lies over, and leaves that alone.

use super::*;
use crate::disk::SimDisk;
use crate::random::{Random, SeededRandom};

const NAMES: [&str; 5] = ["a", "b", "d/a", "d/b", "e/a"];
const SITE: FlushSite = FlushSite::KvTree;

/// Everything on a disk: each path with its bytes.
fn all(disk: &dyn Disk) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![String::new()]);
    while let Some(dir) = dirs.pop() {
        let mut files = Vec::new();
        disk.list(&dir, &mut |name, entry| {
            let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
            if entry == Entry::Directory {
                dirs.push(path)
            } else {
                files.push(path)
            }
            ControlFlow::Continue(())
        })
        .expect("it is there");
        for path in files {
            let file = disk.open(&path, Open::Read).expect("it was listed");
            let mut bytes = vec![0; file.len().expect("it is there") as usize];
            file.read_exact_at(&mut bytes, 0).expect("it is there");
            assert_eq!(disk.measure(&path).expect("it was listed").len, bytes.len() as u64);
            holes_are_zeros(&*file, &bytes);
            found.insert(path, bytes);
        }
    }
    found
}

fn holes_are_zeros(file: &dyn DiskFile, bytes: &[u8]) {
    let (mut at, end) = (0, bytes.len() as u64);
    while at < end {
        let data = file.seek(at, Seek::Data).expect("it can").unwrap_or(end);
        assert!(bytes[at as usize..data as usize].iter().all(|byte| *byte == 0), "{at}..{data}");
        at = data;
        if at < end {
            at = file.seek(at, Seek::Hole).expect("it can").expect("the end is one");
            assert!(at > data, "data is data");
        }
    }
}

/// Does one thing, by chance. Returns how it ended.
fn step(
    disk: &dyn Disk,
    held: &mut Vec<Arc<dyn DiskFile>>,
    dice: &SeededRandom,
    links: bool,
) -> Option<ErrorKind> {
    let name = |dice: &SeededRandom| NAMES[dice.below(NAMES.len() as u64) as usize];
    let (one, other) = (name(dice), name(dice));
    let (at, length, byte) = (dice.below(20_000), dice.below(9000), dice.below(255) as u8 + 1);
    let mut open = |how| disk.open(one, how).map(|file| held.push(file));
    let done = match dice.below(12) {
        0 => open(Open::Make),
        1 => open(Open::MakeNew),
        2 | 3 => open(Open::Write),
        4 if one != other => disk.rename(one, other),
        5 => disk.remove(one),
        6 if links => disk.link(one, other),
        7 => disk.make_dir("e"),
        8 => disk.remove_dir("e"),
        act => {
            let file = held.get(dice.below(held.len().max(1) as u64) as usize)?;
            match act {
                9 => file.set_len(at),
                10 => file.punch(at, length),
                _ => file.write_at(&vec![byte; length as usize], at),
            }
        }
    };
    done.err().map(|error| error.kind())
}

#[test]
fn a_shadow_does_what_its_disk_would_and_leaves_it_alone() {
    for seed in 0..300 {
        let (below, same) = (SimDisk::new(), SimDisk::new());
        for disk in [&below, &same] {
            let dice = SeededRandom::new(seed);
            disk.make_dir("d").expect("it is new");
            (0..20).for_each(|_| {
                // What fails here fails on both.
                let _ = step(disk, &mut Vec::new(), &dice, false);
            });
            let file = disk.open("d/a", Open::Make).expect("room");
            file.write_at(&[7; 5000], dice.below(10_000)).expect("room");
            file.sync(SITE).expect("no fault");
        }
        let (before, changes) = (all(&below), below.counts().changes);
        let shadow = ShadowDisk::new(Arc::new(below.clone()));
        let (left, right) = (SeededRandom::new(!seed), SeededRandom::new(!seed));
        let (mut held, mut held_same) = (Vec::new(), Vec::new());
        for number in 0..60 {
            let done = step(&shadow, &mut held, &left, true);
            let expected = step(&same, &mut held_same, &right, true);
            assert_eq!(done.is_some(), expected.is_some(), "{seed}, {number}: {done:?} {expected:?}");
        }
        assert!(all(&shadow) == all(&same), "{seed}");
        for (file, same) in held.iter().zip(&held_same) {
            assert_eq!(file.len().expect("it is open"), same.len().expect("it is open"), "{seed}");
        }
        assert!(all(&below) == before && below.counts().changes == changes, "{seed}");
    }
}

#[test]
fn parts_of_a_shadow_share_what_was_changed_and_its_lock_is_the_disks() {
    let below = SimDisk::new();
    below.make_dir("kv").expect("it is new");
    let shadow = ShadowDisk::new(Arc::new(below.clone()));
    let part = shadow.beneath("kv").and_then(|kv| kv.beneath("new")).expect("it can be made");
    part.open("a", Open::MakeNew).and_then(|file| file.write_at(b"hello", 0)).expect("room");
    assert_eq!(shadow.measure("kv/new/a").expect("it is there").len, 5);
    assert!(part.is_private("a").expect("it is there"));
    let _held = shadow.lock("kv/lock").expect("it is free");
    assert_eq!(below.lock("kv/lock").err().map(|error| error.kind()), Some(ErrorKind::Busy));
    assert!(below.measure("kv/new").is_err());
}
