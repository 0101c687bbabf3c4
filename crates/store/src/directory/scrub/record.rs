//! What the scrubber records: where it is, and what it found.

use weft_core::service::Damage;
use weft_core::{Error, ObjectId, Result, Time};

use super::super::rows::{number_at, object_at};

const VERSION: u8 = 1;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The round in which it was seen last.
    pub(super) round: u64,
    pub(super) since: Time,
    /// Where the first block begins and the last one ends.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) blocks: u64,
    pub(super) unread: bool,
    /// How many writes of the object its record told then, and in which boot.
    pub(super) writes: u64,
    pub(super) boot: u64,
}

impl Found {
    const BYTES: usize = 58;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend([VERSION, u8::from(self.unread)]);
        let since = self.since.nanos().cast_unsigned();
        for number in [self.round, since, self.from, self.to, self.blocks, self.writes, self.boot] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.try_into().expect("these are its fields")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let (true, [VERSION, unread @ (0 | 1), ..]) = (bytes.len() == Self::BYTES, bytes) else {
            return Err(wrong());
        };
        let number = |place: usize| number_at(bytes, 2 + place * 8);
        Ok(Self {
            round: number(0)?,
            since: Time::from_nanos(number(1)?.cast_signed()),
            from: number(2)?,
            to: number(3)?,
            blocks: number(4)?,
            unread: *unread == 1,
            writes: number(5)?,
            boot: number(6)?,
        })
    }

    /// Adds another block of the same object.
    pub(super) fn add(&mut self, other: &Self) {
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.unread |= other.unread;
    }

    pub(super) fn of(&self, object: ObjectId) -> Damage {
        let Self { from, to, blocks, unread, since, .. } = *self;
        Damage { object, from, to, blocks, unread, since, files: Vec::new() }
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
            let since = Time::from_nanos(number().cast_signed());
            let (round, from, to, blocks, writes, boot) =
                (number(), number(), number(), number(), number(), number());
            Found { round, since, from, to, blocks, unread: round % 2 == 0, writes, boot }.encode().to_vec()
        };
        fuzz("finding of the scrubber", found, |bytes| match Found::decode(bytes) {
            Ok(found) => assert_eq!(found.encode(), bytes),
            Err(error) => assert_eq!(error.kind(), weft_core::ErrorKind::Corrupt),
        });
    }
}
