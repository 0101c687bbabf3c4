//! Rows of every table that are not as they were written.

use serde::de::DeserializeOwned;
use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::{fuzz, fuzz_within, mutated};
use weft_core::ErrorKind;

use super::row::{self, Row};
use super::{containers, entries, inodes, once, splits, stages, unnamed, volume};

const KEY: &[u8] = b"a key";

/// What reading may take of memory: a list may be begun as if it were as long as it says, up to a
/// mebibyte, and lists may hold lists.
const MEMORY_MAX: (usize, usize) = (4 << 20, 64);

/// One table's rows: how one is made, and what must hold of what is read.
struct Kind {
    what: &'static str,
    make: fn(&mut Dice) -> Vec<u8>,
    check: fn(&[u8]),
}

const KINDS: &[Kind] = &[
    kind::<unnamed::Present>(),
    kind::<unnamed::Labelled>(),
    kind::<entries::Link>(),
    kind::<entries::Listed>(),
    kind::<inodes::Inode>(),
    kind::<inodes::Times>(),
    kind::<inodes::Target>(),
    kind::<volume::Volume>(),
    kind::<stages::StageRow>(),
    kind::<stages::PartRow>(),
    kind::<stages::Mark>(),
    kind::<splits::Split>(),
    kind::<splits::Moved>(),
    kind::<once::Ring>(),
    kind::<once::Slot>(),
    kind::<once::Given>(),
    kind::<containers::Head>(),
    kind::<containers::Rules>(),
];

const fn kind<R: Row>() -> Kind {
    Kind { what: R::WHAT, make: content::<R>, check: reads_back::<R> }
}

/// Returns what some row of this kind is written as: whatever is read of bytes that chance made.
fn content<R: DeserializeOwned + serde::Serialize>(dice: &mut Dice) -> Vec<u8> {
    loop {
        // Few distinct bytes make small numbers, short lists and known variants likely.
        let sides = *dice.pick(&[2, 4, 256]);
        let bytes: Vec<u8> = (0..300).map(|_| dice.roll(sides) as u8).collect();
        if let Ok((row, _)) = postcard::take_from_bytes::<R>(&bytes) {
            return postcard::to_stdvec(&row).expect("it was just read");
        }
    }
}

/// Reads a row whose checksum holds, whatever it holds.
fn reads_back<R: Row>(content: &[u8]) {
    let value = row::encode_bytes(KEY, content);
    // A version of its own is part of what is looked at.
    let value = [&[R::VERSION], &value[1..]].concat();
    match row::decode::<R>(KEY, &value) {
        Ok(read) => {
            let again = row::encode(KEY, &read).expect("it was just read");
            let second = row::decode::<R>(KEY, &again).expect("it was just written");
            assert_eq!(row::encode(KEY, &second).expect("it was just read"), again);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
    }
}

#[test]
fn every_row_of_the_tables_is_among_those_that_are_mutated() {
    const SOURCES: [&str; 8] = [
        include_str!("containers.rs"),
        include_str!("entries.rs"),
        include_str!("inodes.rs"),
        include_str!("once.rs"),
        include_str!("splits.rs"),
        include_str!("stages.rs"),
        include_str!("unnamed.rs"),
        include_str!("volume.rs"),
    ];
    let rows: usize = SOURCES.iter().map(|source| source.matches("impl Row for ").count()).sum();
    assert_eq!(KINDS.len(), rows);
}

#[test]
fn a_mutated_row_whose_checksum_holds_is_refused_or_reads_back() {
    let make = |dice: &mut Dice| {
        let number = dice.roll(KINDS.len() as u64) as u8;
        [vec![number], (KINDS[usize::from(number)].make)(dice)].concat()
    };
    fuzz_within(MEMORY_MAX, "row of the volume", make, |bytes| {
        if let Some((number, content)) = bytes.split_first() {
            (KINDS[usize::from(*number) % KINDS.len()].check)(content);
        }
    });
}

#[test]
fn a_mutated_row_is_not_taken_for_another() {
    let make = |dice: &mut Dice| {
        let content = (dice.pick(KINDS).make)(dice);
        row::encode_bytes(KEY, &content)
    };
    let valid = std::cell::RefCell::new(Vec::new());
    let make = |dice: &mut Dice| {
        let bytes = make(dice);
        valid.replace(bytes.clone());
        mutated(&bytes, &mut |sides| dice.roll(sides))
    };
    fuzz("sealed row of the volume", make, |bytes| {
        if row::decode_bytes(KEY, &bytes::Bytes::copy_from_slice(bytes), "a test").is_ok() {
            assert_eq!(bytes, *valid.borrow(), "the checksum holds over something else");
        }
    });
}

#[test]
fn every_kind_of_row_can_be_made_and_reads_back() {
    for Kind { what, make, check } in KINDS {
        for seed in 0..20 {
            let content = make(&mut Dice::new(seed));
            assert!(content.len() < 4096, "{what}");
            check(&content);
        }
    }
}
