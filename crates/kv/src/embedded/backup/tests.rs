//! Backups that are not as they were written.

use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;
use weft_sys::SimDisk;

use super::*;

fn rows(dice: &mut Dice) -> Vec<Row> {
    let part = |dice: &mut Dice, most| Bytes::from(vec![dice.roll(256) as u8; dice.roll(most) as usize]);
    (0..dice.roll(5)).map(|_| (part(dice, 20), part(dice, 60))).collect()
}

fn bytes_of(rows: &[Row]) -> Vec<u8> {
    let mut block = Vec::new();
    rows.iter().for_each(|(key, value)| append(&mut block, key, value));
    block
}

/// Returns the bytes of a backup with these rows in each of its blocks.
fn backup_of(commit: Commit, blocks: &[Vec<Row>]) -> Vec<u8> {
    let disk = SimDisk::new();
    let file = disk.open(NAME, Open::MakeNew).expect("it is new");
    let mut out = Out { file: file.clone(), at: 0, hasher: blake3::Hasher::new() };
    out.write(MAGIC).expect("room");
    for rows in blocks {
        out.block(&bytes_of(rows)).expect("room");
    }
    out.end(commit, blocks.iter().map(|rows| rows.len() as u64).sum()).expect("room");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it was just written");
    bytes
}

#[test]
fn a_mutated_backup_is_refused_or_what_was_written() {
    let make = |dice: &mut Dice| {
        let blocks: Vec<_> = (0..dice.roll(4)).map(|_| rows(dice)).filter(|rows| !rows.is_empty()).collect();
        backup_of(Commit(dice.roll(1 << 40)), &blocks)
    };
    fuzz("backup", make, |bytes| {
        let disk = SimDisk::new();
        disk.open(NAME, Open::MakeNew).and_then(|file| file.write_at(bytes, 0)).expect("room");
        let mut blocks = Vec::new();
        let read = read(&disk, &mut |rows| {
            blocks.push(rows.to_vec());
            Ok(())
        });
        match read {
            Ok(commit) => assert_eq!(backup_of(commit, &blocks), bytes, "something else was read"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{error:?}");
            }
        }
    });
}

/// A check can be right and what it is over wrong all the same: another program wrote it.
#[test]
fn a_mutated_block_is_refused_or_means_what_is_written_in_it() {
    let make = |dice: &mut Dice| bytes_of(&rows(dice));
    fuzz("backup block", make, |bytes| match parse(Bytes::copy_from_slice(bytes), 0) {
        Ok(rows) => assert_eq!(bytes_of(&rows), bytes),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
    });
}
