//! What the scrubber records: where it is, and what it found.

use std::collections::BTreeMap;

use weft_core::service::Damage;
use weft_core::{Error, ObjectId, Result, Time, limits};

use super::super::rows::{number_at, object_at};
use super::super::seals::extent;

const VERSION: u8 = 1;
const FOUND_VERSION: u8 = 2;

/// Where in the store the scrubber goes on: at a block of an object, or of the next one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) object: ObjectId,
    pub(super) block: u64,
}

impl Place {
    pub(super) const FIRST: Self = Self { object: ObjectId(0), block: 0 };
    /// Beyond every object.
    pub(super) const LAST: Self = Self { object: ObjectId(u128::MAX), block: u64::MAX };
}

/// A round over all objects, or the last one if none is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Its number, from 1; 0 if there was none.
    pub(super) number: u64,
    pub(super) began: Time,
    /// Where it goes on, if it is under way.
    pub(super) at: Option<Place>,
    /// When a round last came to its end.
    pub(super) ended: Option<Time>,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// Damaged objects of this round that are beyond those that are remembered.
    pub(super) beyond: u64,
}

impl Round {
    const BYTES: usize = 75;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let place = self.at.unwrap_or(Place::FIRST);
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend([VERSION, u8::from(self.at.is_some()), u8::from(self.ended.is_some())]);
        bytes.extend(place.object.0.to_be_bytes());
        let ended = self.ended.unwrap_or_default().nanos().cast_unsigned();
        let began = self.began.nanos().cast_unsigned();
        for number in [place.block, self.number, began, ended, self.objects, self.bytes, self.beyond] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.try_into().expect("these are its fields")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let (true, [VERSION, under_way @ (0 | 1), has_ended @ (0 | 1), ..]) =
            (bytes.len() == Self::BYTES, bytes)
        else {
            return Err(wrong());
        };
        let number = |place: usize| number_at(bytes, 19 + place * 8);
        let time = |place| number(place).map(|nanos| Time::from_nanos(nanos.cast_signed()));
        let place = Place { object: object_at(bytes, 3)?, block: number(0)? };
        let (at, ended) = ((*under_way == 1).then_some(place), Some(time(3)?).filter(|_| *has_ended == 1));
        let (objects, bytes, beyond) = (number(4)?, number(5)?, number(6)?);
        Ok(Self { number: number(1)?, began: time(2)?, at, ended, objects, bytes, beyond })
    }
}

/// What was found wrong with an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) since: Time,
    /// It cannot be taken up: its record or its file is not there to be read.
    pub(super) lost: bool,
    /// Blocks of it, as many as are remembered by number.
    pub(super) blocks: BTreeMap<u64, Bad>,
    /// Blocks beyond those, as the last look over all of the object counted them.
    pub(super) more: Beyond,
    /// The same, of the look that is under way.
    pub(super) counting: Beyond,
}

/// A block that is not as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) length: u32,
    /// The disk does not give it.
    pub(super) unread: bool,
    /// How far the object was written when it was looked at.
    pub(super) written: Written,
}

/// How many writes of an object its record tells, and of which boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) writes: u64,
    pub(super) boot: u64,
}

/// Blocks that are counted only, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beyond {
    pub(super) blocks: u64,
    /// Where the last one ends.
    pub(super) end: u64,
}

impl Found {
    const HEAD_BYTES: usize = 44;
    const BLOCK_BYTES: usize = 29;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES + self.blocks.len() * Self::BLOCK_BYTES);
        bytes.extend([FOUND_VERSION, u8::from(self.lost)]);
        bytes.extend(u16::try_from(self.blocks.len()).expect("they are bounded").to_be_bytes());
        let since = self.since.nanos().cast_unsigned();
        for number in [since, self.more.blocks, self.more.end, self.counting.blocks, self.counting.end] {
            bytes.extend(number.to_be_bytes());
        }
        for (block, Bad { length, unread, written }) in &self.blocks {
            bytes.extend(block.to_be_bytes());
            bytes.extend(length.to_be_bytes());
            bytes.push(u8::from(*unread));
            bytes.extend(written.writes.to_be_bytes());
            bytes.extend(written.boot.to_be_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let [FOUND_VERSION, lost @ (0 | 1), high, low, ..] = bytes else { return Err(wrong()) };
        let count = usize::from(u16::from_be_bytes([*high, *low]));
        let is_whole = bytes.len() == Self::HEAD_BYTES + count * Self::BLOCK_BYTES;
        if count > limits::SCRUB_BLOCKS_MAX || !is_whole {
            return Err(wrong());
        }
        let number = |place: usize| number_at(bytes, 4 + place * 8);
        let mut blocks = BTreeMap::new();
        for row in bytes[Self::HEAD_BYTES..].chunks_exact(Self::BLOCK_BYTES) {
            let (block, unread @ (0 | 1)) = (number_at(row, 0)?, row[12]) else { return Err(wrong()) };
            if blocks.last_key_value().is_some_and(|(last, _)| *last >= block) {
                return Err(wrong());
            }
            let length = row[8..12].try_into().map(u32::from_be_bytes).map_err(|_| wrong())?;
            let written = Written { writes: number_at(row, 13)?, boot: number_at(row, 21)? };
            blocks.insert(block, Bad { length, unread: unread == 1, written });
        }
        Ok(Self {
            since: Time::from_nanos(number(0)?.cast_signed()),
            lost: *lost == 1,
            blocks,
            more: Beyond { blocks: number(1)?, end: number(2)? },
            counting: Beyond { blocks: number(3)?, end: number(4)? },
        })
    }

    /// Returns whether nothing is wrong any more.
    pub(super) fn is_over(&self) -> bool {
        !self.lost && self.blocks.is_empty() && self.more.blocks == 0 && self.counting.blocks == 0
    }

    /// Adds a block, which is counted only if there are too many. Those that are so counted come in their order, and
    /// again in it after a crash.
    pub(super) fn add(&mut self, block: u64, at: u64, bad: Bad) {
        if self.blocks.len() < limits::SCRUB_BLOCKS_MAX || self.blocks.contains_key(&block) {
            self.blocks.insert(block, bad);
        } else if self.counting.end <= at {
            let end = at.saturating_add(bad.length.into());
            self.counting = Beyond { blocks: self.counting.blocks.saturating_add(1), end };
        }
    }

    /// Begins a look over all of the object.
    pub(super) fn begin_look(&mut self) {
        self.counting = Beyond::default();
    }

    /// Ends it: the object has so many blocks. If some were left out, those that were counted before may be there
    /// still.
    pub(super) fn end_look(&mut self, blocks: u64, left_out: bool) {
        self.blocks.retain(|block, _| *block < blocks);
        let counted = std::mem::take(&mut self.counting);
        if !left_out || counted.blocks > self.more.blocks {
            self.more = counted;
        }
    }

    pub(super) fn of(&self, object: ObjectId) -> Damage {
        let (since, files) = (self.since, Vec::new());
        if self.lost {
            return Damage { object, from: 0, to: 0, blocks: 1, unread: true, since, files };
        }
        let beyond = if self.more.blocks > self.counting.blocks { self.more } else { self.counting };
        let from = self.blocks.first_key_value().map_or(0, |(block, _)| extent(*block, 0).0);
        let end = |(block, bad): (&u64, &Bad)| extent(*block, 0).0.saturating_add(bad.length.into());
        let to = self.blocks.last_key_value().map_or(0, end).max(beyond.end);
        let blocks = (self.blocks.len() as u64).saturating_add(beyond.blocks);
        let unread = self.blocks.values().any(|bad| bad.unread);
        Damage { object, from, to, blocks, unread, since, files }
    }
}

fn wrong() -> Error {
    Error::corrupt("a record of the scrubber is not as it is written")
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    fn bad(length: u32) -> Bad {
        Bad { length, unread: false, written: Written::default() }
    }

    #[test]
    fn what_is_beyond_those_remembered_is_counted_once_and_known_until_the_next_look_has_passed_it() {
        const BLOCK: u64 = limits::SEAL_BLOCK_BYTES;
        let (max, mut found) = (limits::SCRUB_BLOCKS_MAX as u64, Found::default());
        let look = |found: &mut Found, blocks: std::ops::Range<u64>| {
            blocks.for_each(|block| found.add(block, block * BLOCK, bad(BLOCK as u32)));
        };
        let told = |found: &Found| (found.of(ObjectId(1)).blocks, found.of(ObjectId(1)).to / BLOCK);
        look(&mut found, 0..max + 5);
        // After a crash some are looked at again.
        look(&mut found, max - 7..max + 9);
        assert_eq!(told(&found), (max + 9, max + 9));
        found.end_look(1000, false);
        assert_eq!(told(&found), (max + 9, max + 9));
        found.begin_look();
        look(&mut found, 0..max + 2);
        assert_eq!(told(&found), (max + 9, max + 9), "the rest is not known to be whole");
        let mut cut_short = found.clone();
        cut_short.end_look(1000, true);
        assert_eq!(told(&cut_short), (max + 9, max + 9), "nor where something was left out");
        found.end_look(1000, false);
        assert_eq!(told(&found), (max + 2, max + 2));
        found.begin_look();
        found.end_look(1, false);
        assert_eq!((told(&found), found.is_over()), ((1, 1), false));
        found.blocks.clear();
        assert!(found.is_over());
    }

    #[test]
    fn mutated_records_are_refused_or_mean_what_is_written_in_them() {
        let round = |dice: &mut Dice| {
            let mut number = || dice.roll(1 << 40);
            let place = Place { object: ObjectId(number().into()), block: number() };
            let time = Time::from_nanos(number().cast_signed());
            let (number, objects, bytes, beyond) = (number(), number(), number(), number());
            let (at, ended) = ((number % 2 == 0).then_some(place), (objects % 2 == 0).then_some(time));
            Round { number, began: time, at, ended, objects, bytes, beyond }.encode().to_vec()
        };
        fuzz("round of the scrubber", round, |bytes| {
            if let Ok(round) = Round::decode(bytes) {
                assert_eq!(Round::decode(&round.encode()).expect("it is its own"), round);
            }
        });
        let found = |dice: &mut Dice| {
            let mut number = || dice.roll(1 << 40);
            let mut found = Found { since: Time::from_nanos(number().cast_signed()), ..Found::default() };
            (found.lost, found.more) = (number() % 2 == 0, Beyond { blocks: number(), end: number() });
            found.counting = Beyond { blocks: number(), end: number() };
            for _ in 0..number() % 5 {
                let written = Written { writes: number(), boot: number() };
                let bad = Bad { length: number() as u32, unread: number() % 2 == 0, written };
                found.blocks.insert(number(), bad);
            }
            found.encode()
        };
        fuzz("finding of the scrubber", found, |bytes| match Found::decode(bytes) {
            Ok(found) => assert_eq!(found.encode(), bytes),
            Err(error) => assert_eq!(error.kind(), weft_core::ErrorKind::Corrupt),
        });
    }
}
