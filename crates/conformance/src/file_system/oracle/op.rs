//! One random operation, without anything that is one side's own.

use weft_core::Rights;
use weft_core::form::{Expect, LockKind, Replace, Scope, Supports};

use crate::file_system::site::Dice;

/// Where an operation acts: a known inode, by its number, and a path below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) base: usize,
    pub(super) path: String,
    pub(super) follow: bool,
}

/// What a guard says, resolved on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    None,
    Absent,
    Present,
    IsNow,
    IsNotNow,
}

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    File(Option<u8>),
    Directory,
    Symlink(String),
    Fifo,
}

/// Who asks: the number of a user, and of the user's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct By {
    pub(super) user: usize,
    pub(super) once: Option<u64>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Walk(Place),
    List(Place, u32),
    Make(Place, Thing, u16),
    Link(Place, Place),
    Rename(Place, Place, Replace, Check),
    Remove(Place, Expect, Check),
    Target(Place),
    Mode(Place, u16, Check),
    Size(Place, u64, Check),
    Times(Place, i64),
    Tag(Place, u8, Option<u8>),
    Tags(Place),
    Policy(Place),
    Protect(Place, Scope, Vec<(usize, Rights, bool)>, Option<bool>),
    Why(Place, Rights),
    Open(Place, Rights, Option<bool>, bool, bool),
    Read(usize),
    Write(usize, Option<u64>, u8, usize),
    Punch(usize, u64, u64),
    Attr(usize),
    Close(usize),
    Copy(Place, Place, u64),
    Publish(Place, Vec<(u8, usize)>, Check),
    Lock(Place, bool, u64, u64, LockKind),
    Unlock(Place, bool, u64, u64),
    Test(Place, bool, u64, u64, LockKind),
    Again,
}

/// An operation and who makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) by: By,
    pub(super) act: Act,
}

/// How much there is to choose from.
pub(super) struct Counts {
    pub(super) ids: usize,
    pub(super) opens: usize,
    pub(super) users: usize,
}

const NAMES: &[&str] = &["a", "b", "c", "d"];
const TARGETS: &[&str] = &["a", "b/c", "../a", "/a/b", "/d", "none", "c/.", "..", "/"];
const GRANTS: &[Rights] = &[
    Rights::READING,
    Rights::WRITING,
    Rights::ALL,
    Rights::TRAVERSE,
    Rights::READ,
    Rights::from_bits(Rights::LIST.bits() | Rights::TRAVERSE.bits()),
    Rights::from_bits(Rights::READING.bits() | Rights::WRITE.bits() | Rights::APPEND.bits()),
];
const MODES: &[u16] = &[0o777, 0o755, 0o700, 0o644, 0o600, 0o444, 0o000, 0o111];
const NEEDS: &[Rights] = &[
    Rights::READ,
    Rights::WRITE,
    Rights::APPEND,
    Rights::EXECUTE,
    Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits()),
];

impl Op {
    pub(super) fn roll(dice: &mut Dice, supports: &Supports, counts: &Counts) -> Self {
        loop {
            let act = Act::roll(dice, counts);
            if act.is_supported(supports) {
                // A guard on a version is another request once the version has changed,
                // and when it changes is each side's own affair.
                let once = (dice.roll(6) == 0 && !act.speaks_of_versions()).then(|| dice.roll(12));
                // The administrator is at work more often, so that something gets done.
                let user = if dice.roll(2) == 0 { 0 } else { dice.roll(counts.users as u64) as usize };
                return Self { by: By { user, once }, act };
            }
        }
    }

    /// A pinned read may answer `Conflict` where the model keeps the old bytes.
    pub(super) fn may_differ(&self, expected: &str, got: &str) -> bool {
        matches!(self.act, Act::Read(_)) && got == "conflict" && expected.starts_with("bytes")
    }
}

impl Act {
    fn speaks_of_versions(&self) -> bool {
        use Check::{IsNotNow, IsNow};
        match self {
            Self::Rename(_, _, _, check)
            | Self::Remove(_, _, check)
            | Self::Mode(_, _, check)
            | Self::Size(_, _, check) => matches!(check, IsNow | IsNotNow),
            _ => false,
        }
    }

    fn is_supported(&self, supports: &Supports) -> bool {
        match self {
            Self::Link(..) => supports.links,
            Self::Rename(_, _, Replace::Exchange, _) => supports.exchange,
            Self::Tag(..) | Self::Tags(_) => supports.tags,
            Self::Lock(..) | Self::Unlock(..) | Self::Test(..) => supports.locks,
            Self::Punch(..) => supports.holes,
            _ => true,
        }
    }

    fn roll(dice: &mut Dice, counts: &Counts) -> Self {
        let size = |dice: &mut Dice| [0, 1, 100, 5_000, 70_000, 200_000][dice.roll(6) as usize];
        let open = |dice: &mut Dice| dice.roll(counts.opens.max(1) as u64) as usize;
        let kind = |dice: &mut Dice| *dice.pick(&[LockKind::Shared, LockKind::Exclusive]);
        match dice.roll(100) {
            0..3 => Self::Walk(place(dice, counts)),
            3..6 => Self::List(place(dice, counts), 1 + dice.roll(4) as u32),
            6..26 => Self::Make(place(dice, counts), Thing::roll(dice), *dice.pick(MODES)),
            26..31 => Self::Link(place(dice, counts), place(dice, counts)),
            31..41 => {
                let how = *dice.pick(&[Replace::Never, Replace::Any, Replace::Any, Replace::Exchange]);
                Self::Rename(place(dice, counts), place(dice, counts), how, Check::roll(dice))
            }
            41..47 => {
                let expect = *dice.pick(&[Expect::Any, Expect::Directory, Expect::NotDirectory]);
                Self::Remove(place(dice, counts), expect, Check::roll(dice))
            }
            47..49 => Self::Target(place(dice, counts)),
            49..53 => Self::Mode(place(dice, counts), *dice.pick(MODES), Check::roll(dice)),
            53..55 => Self::Size(place(dice, counts), size(dice), Check::roll(dice)),
            55..57 => Self::Times(place(dice, counts), dice.roll(9_000) as i64),
            57..60 => {
                let value = (dice.roll(3) > 0).then(|| dice.roll(256) as u8);
                Self::Tag(place(dice, counts), dice.roll(4) as u8, value)
            }
            60..61 => Self::Tags(place(dice, counts)),
            61..62 => Self::Policy(place(dice, counts)),
            62..67 => Self::roll_protect(dice, counts),
            67..69 => Self::Why(place(dice, counts), *dice.pick(NEEDS)),
            69..76 => {
                let make = (dice.roll(3) == 0).then(|| dice.roll(2) == 0);
                let (truncate, pin) = (dice.roll(6) == 0, dice.roll(4) == 0);
                let need = if pin { Rights::READ } else { *dice.pick(NEEDS) };
                Self::Open(place(dice, counts), need, make, truncate, pin)
            }
            76..79 => Self::Read(open(dice)),
            79..84 => {
                let at = (dice.roll(3) > 0).then(|| size(dice));
                Self::Write(open(dice), at, dice.roll(256) as u8, 1 + size(dice) as usize)
            }
            84..85 => Self::Punch(open(dice), size(dice), 1 + size(dice)),
            85..86 => Self::Attr(open(dice)),
            86..88 => Self::Close(open(dice)),
            88..89 => Self::Copy(place(dice, counts), place(dice, counts), size(dice)),
            89..92 => {
                let parts = (0..dice.roll(3)).map(|_| (dice.roll(256) as u8, size(dice) as usize)).collect();
                Self::Publish(place(dice, counts), parts, Check::roll(dice))
            }
            92..95 => {
                let (whole, at, length) = (dice.roll(4) == 0, dice.roll(10), dice.roll(5));
                Self::Lock(place(dice, counts), whole, at, length, kind(dice))
            }
            95..96 => Self::Unlock(place(dice, counts), dice.roll(4) == 0, dice.roll(10), dice.roll(5)),
            96..97 => {
                let (whole, at, length) = (dice.roll(4) == 0, dice.roll(10), dice.roll(5));
                Self::Test(place(dice, counts), whole, at, length, kind(dice))
            }
            _ => Self::Again,
        }
    }

    fn roll_protect(dice: &mut Dice, counts: &Counts) -> Self {
        let scope = *dice.pick(&[Scope::Subtree, Scope::Subtree, Scope::Container]);
        let entries = (0..dice.roll(3))
            .map(|_| {
                let user = 1 + dice.roll(counts.users as u64 - 1) as usize;
                (user, *dice.pick(GRANTS), dice.roll(5) > 0)
            })
            .collect();
        let classes = (dice.roll(4) == 0).then(|| dice.roll(2) == 0);
        Self::Protect(place(dice, counts), scope, entries, classes)
    }
}

impl Thing {
    fn roll(dice: &mut Dice) -> Self {
        match dice.roll(10) {
            0..4 => Self::Directory,
            4..7 => Self::File(None),
            7 => Self::File(Some(dice.roll(2) as u8)),
            8 => Self::Symlink((*dice.pick(TARGETS)).to_owned()),
            _ => Self::Fifo,
        }
    }
}

impl Check {
    fn roll(dice: &mut Dice) -> Self {
        match dice.roll(12) {
            0 => Self::Absent,
            1 => Self::Present,
            2 => Self::IsNow,
            3 => Self::IsNotNow,
            _ => Self::None,
        }
    }
}

fn place(dice: &mut Dice, counts: &Counts) -> Place {
    let base = if dice.roll(3) > 0 { 0 } else { dice.roll(counts.ids as u64) as usize };
    let depth = dice.roll(4);
    let names: Vec<&str> = (0..depth).map(|_| *dice.pick(NAMES)).collect();
    Place { base, path: names.join("/"), follow: dice.roll(4) == 0 }
}
