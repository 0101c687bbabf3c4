//! The rights matrix: caller × right × kind × door, with the right and without it.
//!
//! What is expected stands in `rights.txt`, by hand. The run asks a real node for every
//! cell, through HTTP, the native protocol and mounts with real system calls; what came is
//! compared with what is written, and differences are named one by one. The skew that clocks
//! are granted keeps a credential alive for a minute: what is asked with one that has run out
//! is asked last.

mod http;
mod mount;
mod native;
mod table;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use weft_conformance::run::have;
use weft_core::Rights;
use weft_core::rights::RIGHTS_COUNT;

use table::Table;
use world::World;

const CALLERS: [&str; 13] = [
    "administrator",
    "owner",
    "member",
    "domain",
    "anyone",
    "negative",
    "narrowed-rights",
    "narrowed-path",
    "narrowed-host",
    "token",
    "stranger",
    "revoked",
    "expired",
];
const RIGHTS: [&str; RIGHTS_COUNT] = [
    "read",
    "write",
    "append",
    "list",
    "traverse",
    "insert",
    "remove",
    "rename",
    "lock",
    "attr-read",
    "attr-write",
    "acl-read",
    "acl-write",
    "execute",
    "migrate",
    "audit-read",
    "lot",
    "maintain",
];
/// A `small` is a file whose bytes lie beside its inode; a `file`'s and so a link's are an object's.
const KINDS: [&str; 5] = ["file", "small", "directory", "symlink", "fifo"];
const DOORS: [&str; 3] = ["http", "native", "mount"];
const SIDES: [&str; 2] = ["with", "without"];
const ANSWERS: [&str; 7] =
    ["allowed", "denied", "not-found", "unauthenticated", "revoked", "expired", "not-offered"];

/// Bytes that lie in an object of their own, so that it takes a capability to touch them.
const LARGE: &[u8] = &[7; 256 << 10];
/// Bytes that lie beside their inode.
const SMALL: &[u8] = &[7; 256];

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    caller: &'static str,
    right: &'static str,
    kind: &'static str,
    door: &'static str,
    side: &'static str,
}

/// What came, or is to come, for each question.
type Answers = BTreeMap<Cell, String>;

impl Cell {
    fn all() -> impl Iterator<Item = Self> {
        let cell = |caller, right, kind, door, side| Self { caller, right, kind, door, side };
        CALLERS.iter().flat_map(move |caller| {
            RIGHTS.iter().flat_map(move |right| {
                KINDS.iter().flat_map(move |kind| {
                    DOORS.iter().flat_map(move |door| {
                        SIDES.iter().map(move |side| cell(*caller, *right, *kind, *door, *side))
                    })
                })
            })
        })
    }

    /// Returns the values of the columns that a rule speaks of, in their order.
    fn columns(&self) -> [&'static str; 5] {
        [self.caller, self.right, self.kind, self.door, self.side]
    }

    /// Returns whether what the question is about is, or leads to, a file.
    fn has_bytes(&self) -> bool {
        matches!(self.kind, "file" | "small" | "symlink")
    }

    /// Returns the directory that the question is about.
    fn dir(&self) -> String {
        format!("/{}/{}.{}", self.caller, self.right, self.side)
    }

    /// Returns the path of the thing that the question is about.
    fn thing(&self) -> String {
        format!("{}/{}", self.dir(), self.kind)
    }

    /// Returns the path of a thing that this door alone removes or renames.
    fn spare(&self) -> String {
        format!("{}/{}.{}", self.dir(), self.door, self.kind)
    }

    /// Returns a path where this door makes something.
    fn new_thing(&self) -> String {
        format!("{}.new", self.spare())
    }
}

/// Returns the bytes that a thing of a kind is made of.
fn bytes_of(kind: &str) -> &'static [u8] {
    if kind == "small" { SMALL } else { LARGE }
}

/// Returns a right by its name.
fn right(name: &str) -> Rights {
    Rights::parse(&format!("={name}")).expect("a right")
}

/// Says where what came is not what is written.
fn compare(expected: &Answers, came: &Answers) -> Vec<String> {
    let line = |(cell, came): (&Cell, &String)| {
        let expected = &expected[cell];
        let columns = cell.columns().join(" ");
        (expected != came).then(|| format!("{columns}: {expected} is written, {came} came"))
    };
    came.iter().filter_map(line).collect()
}

fn table() -> Table {
    Table::parse(include_str!("../rights.txt"))
}

/// One test, as all of it takes one run: a second one would only wait for the first.
#[test]
fn who_may_do_what_is_as_written_down_by_hand_and_one_wrong_line_or_decision_is_found() {
    if !have("rights matrix", &["fusermount3"]) {
        return;
    }
    let world = World::new();
    let came = world.ask();
    assert_eq!(came.len(), Cell::all().count(), "every question is asked");
    let differences = compare(&table().expand(), &came);
    let offered = came.values().filter(|answer| *answer != "not-offered").count();
    println!("{} cells, {offered} of them offered", came.len());
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), came.len(), differences.join("\n"));
    one_wrong_line_is_found(&came);
    one_wrong_decision_is_found(&world, &came);
}

/// For each value of each column, both ways round: one question is decided wrongly, for real, and
/// one door's answer is taken for another. Each shows, and nowhere else.
fn one_wrong_decision_is_found(world: &World, came: &Answers) {
    let right = table().expand();
    let mut planted = BTreeSet::new();
    for (column, values) in [&CALLERS[..], &RIGHTS, &KINDS, &DOORS].into_iter().enumerate() {
        for (value, lets_through) in values.iter().flat_map(|value| [(value, true), (value, false)]) {
            let is_wrong = |cell: &&Cell| {
                let answer = right[*cell].as_str();
                let decided = if lets_through { answer != "allowed" } else { answer == "allowed" };
                // Mounting takes a moment, so that its own column tries it; and each is asked once.
                decided && answer != "not-offered" && (cell.door != "mount" || *value == "mount")
            };
            let of_value =
                || came.keys().filter(|cell| cell.columns()[column] == *value && mount::can_be(cell));
            let Some(cell) = of_value().filter(is_wrong).find(|cell| !planted.contains(*cell)) else {
                // Nobody is ever allowed what a stranger, or one whose credential has ended, asks for;
                // and some rights no door asks for.
                let never = of_value().filter(is_wrong).count() == 0;
                assert!(never, "{value}: every question of it was asked");
                continue;
            };
            planted.insert(*cell);
            let answer = world.ask_wrongly(cell, lets_through);
            let wrongly: Answers =
                came.iter().map(|(one, came)| (*one, came.clone())).chain([(*cell, answer)]).collect();
            let found = compare(&right, &wrongly);
            let expected = format!("{}: {} is written", cell.columns().join(" "), right[cell]);
            assert!(
                found.len() == 1 && found[0].starts_with(&expected),
                "{value}, {lets_through}: {found:?}"
            );
        }
    }
    for door in DOORS {
        let mapped = |(cell, answer): (&Cell, &String)| {
            let other = if cell.door == door && answer == "denied" { "not-found" } else { answer };
            (*cell, other.to_owned())
        };
        let found = compare(&right, &came.iter().map(mapped).collect());
        assert!(!found.is_empty() && found.iter().all(|line| line.contains(&format!(" {door} "))), "{door}");
    }
    println!("{} questions decided wrongly are found", planted.len());
    assert!(planted.len() > CALLERS.len() + RIGHTS.len() + KINDS.len() + DOORS.len());
}

/// For each value of each column: one rule that says something else of one cell.
fn one_wrong_line_is_found(came: &Answers) {
    let right = table().expand();
    let mut planted = BTreeSet::new();
    for (column, values) in [&CALLERS[..], &RIGHTS, &KINDS, &DOORS].into_iter().enumerate() {
        for value in values {
            let of_value = || came.keys().filter(|cell| cell.columns()[column] == *value);
            let offered = || of_value().find(|c| !planted.contains(*c) && right[*c] != "not-offered");
            let cell = *offered().or_else(|| of_value().next()).expect("every value has cells");
            planted.insert(cell);
            let wrong = if right[&cell] == "allowed" { "denied" } else { "allowed" };
            let line = format!("{} {wrong}\n", cell.columns().join(" "));
            let flipped = Table::parse(&format!("{}{line}", include_str!("../rights.txt"))).expand();
            let expected = format!("{}: {wrong} is written, {} came", cell.columns().join(" "), right[&cell]);
            assert_eq!(compare(&flipped, came), [expected], "{value}");
        }
    }
    assert_eq!(planted.len(), CALLERS.len() + RIGHTS.len() + KINDS.len() + DOORS.len());
}

#[test]
fn the_columns_are_those_of_the_model_and_every_rule_speaks() {
    let mut all = Rights::NONE;
    for name in RIGHTS {
        all |= right(name);
    }
    assert_eq!(all, Rights::ALL);
    assert_eq!(Cell::all().count(), CALLERS.len() * RIGHTS.len() * KINDS.len() * DOORS.len() * SIDES.len());
    let table = table();
    let silent = table.silent();
    assert!(silent.is_empty(), "rules that decide no cell:\n{}", silent.join("\n"));
}
