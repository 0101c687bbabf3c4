//! What the simulated disk may and may not lose.

use super::*;

const SITE: FlushSite = FlushSite::KvLogAppend;

fn made(disk: &SimDisk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(path, Open::Make).expect("a file can be made")
}

fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(path, Open::Read).ok()?;
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    Some(bytes)
}

#[test]
fn what_was_flushed_survives_every_crash() {
    for seed in 0..200 {
        let disk = SimDisk::new();
        let file = made(&disk, "a");
        file.write_at(&[7; 2000], 100).expect("room");
        file.sync(SITE).expect("no fault");
        disk.sync_dir("", SITE).expect("no fault");
        file.write_at(&[8; 600], 3000).expect("room");
        let bytes = content(&disk.crash(seed), "a").expect("the name was flushed");
        assert_eq!(bytes[100..2100], [7; 2000], "seed {seed}");
    }
}

#[test]
fn unflushed_bytes_are_lost_kept_and_torn_over_the_seeds() {
    let mut found = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new();
        let file = made(&disk, "a");
        file.write_at(&[1; 1024], 0).expect("room");
        file.sync(SITE).expect("no fault");
        disk.sync_dir("", SITE).expect("no fault");
        file.write_at(&[2; 1024], 0).expect("room");
        let bytes = content(&disk.crash(seed), "a").expect("the name was flushed");
        found.insert((bytes[0], bytes[1023]));
    }
    assert_eq!(found, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
}

#[test]
fn an_unflushed_rename_leaves_the_old_file_or_the_new_one() {
    let mut found = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new();
        for (name, byte) in [("a", 1), ("b", 2)] {
            let file = made(&disk, name);
            file.write_at(&[byte], 0).expect("room");
            file.sync(SITE).expect("no fault");
        }
        disk.sync_dir("", SITE).expect("no fault");
        disk.rename("b", "a").expect("both are there");
        let disk = disk.crash(seed);
        found.insert((content(&disk, "a"), content(&disk, "b")));
    }
    let (old, new) = ((Some(vec![1]), Some(vec![2])), (Some(vec![2]), None));
    assert_eq!(found, BTreeSet::from([old, new]));
}

#[test]
fn a_failed_flush_is_not_mended_by_the_next_one() {
    let lost = (0..100).any(|seed| {
        let disk = SimDisk::new();
        let file = made(&disk, "a");
        file.write_at(&[1; 512], 0).expect("room");
        file.sync(SITE).expect("no fault");
        disk.sync_dir("", SITE).expect("no fault");
        file.write_at(&[2; 512], 0).expect("room");
        disk.set_faults(|faults| faults.fail_flush = Some(1));
        assert_eq!(file.sync(SITE).map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
        file.sync(SITE).expect("only one fails");
        assert_eq!(content(&disk, "a"), Some(vec![2; 512]));
        content(&disk.crash(seed), "a") == Some(vec![1; 512])
    });
    assert!(lost);
}

#[test]
fn an_ignored_flush_flushes_nothing() {
    let lost = (0..50).any(|seed| {
        let disk = SimDisk::new();
        disk.set_faults(|faults| faults.ignore.extend([SITE]));
        made(&disk, "a");
        disk.sync_dir("", SITE).expect("it claims to");
        content(&disk.crash(seed), "a").is_none()
    });
    assert!(lost);
}

#[test]
fn a_full_disk_takes_what_fits_and_more_once_there_is_room() {
    let disk = SimDisk::new();
    disk.set_faults(|faults| faults.capacity = Some(2048));
    let file = made(&disk, "a");
    file.write_at(&[1; 1500], 0).expect("it fits");
    let refused = made(&disk, "b").write_at(&[2; 1500], 0);
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    assert_eq!(content(&disk, "b"), Some(vec![2; 512]));
    file.write_at(&[3; 1536], 0).expect("it has its space already");
    disk.remove("a").expect("it is there");
    made(&disk, "b").write_at(&[2; 1500], 0).expect("there is room again");
}

#[test]
fn a_process_that_dies_leaves_every_byte_and_no_lock() {
    let disk = SimDisk::new();
    let lock = disk.lock("lock").expect("free");
    assert_eq!(disk.lock("lock").map(drop).map_err(|error| error.kind()), Err(ErrorKind::Busy));
    let file = made(&disk, "a");
    file.write_at(&[1, 2, 3], 0).expect("room");
    let after = disk.kill();
    assert_eq!(content(&after, "a"), Some(vec![1, 2, 3]));
    assert!(file.write_at(&[4], 0).is_err(), "the dead process writes no more");
    after.lock("lock").expect("the lock died with its holder");
    drop(lock);
}

#[test]
fn the_power_goes_off_at_the_change_that_was_named() {
    let disk = SimDisk::new();
    let file = made(&disk, "a");
    disk.set_faults(|faults| faults.halt = Some(2));
    file.write_at(&[1], 0).expect("the first change passes");
    assert_eq!(disk.cut_at(), None);
    assert!(file.write_at(&[2], 0).is_err() && file.sync(SITE).is_err());
    assert_eq!(disk.cut_at(), Some(Boundary::Change("write")));
    let again = disk.crash(1);
    assert_eq!(again.cut_at(), None);
    again.set_faults(|faults| faults.halt = Some(1));
    assert!(again.sync_dir("", SITE).is_err());
    assert_eq!(again.cut_at(), Some(Boundary::Flush(SITE)));
}

#[test]
fn cutting_a_file_and_growing_it_again_shows_zeroes() {
    let disk = SimDisk::new();
    let file = made(&disk, "a");
    file.write_at(&[9; 1500], 0).expect("room");
    file.set_len(700).expect("no fault");
    file.set_len(1500).expect("no fault");
    file.punch(10, 20).expect("no fault");
    let bytes = content(&disk, "a").expect("it is there");
    assert!(bytes[..10] == [9; 10] && bytes[10..30] == [0; 20] && bytes[30..700] == [9; 670]);
    assert_eq!(bytes[700..], [0; 800]);
}

#[test]
fn the_same_seed_leaves_the_same_disk() {
    let left = |seed| {
        let disk = SimDisk::new();
        let file = made(&disk, "a");
        for at in 0..20 {
            file.write_at(&[at as u8; 700], at * 300).expect("room");
        }
        disk.sync_dir("", SITE).expect("no fault");
        content(&disk.crash(seed), "a")
    };
    assert_eq!(left(5), left(5));
    assert!((0..50).any(|seed| left(seed) != left(5)));
}
