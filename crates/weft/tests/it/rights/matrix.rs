//! The rights matrix: caller × right × kind × door, with the right and without it.
//!
//! What is expected stands in `rights.txt`, by hand. The run asks a real node for every
//! cell, through HTTP, WebDAV, HTTP/2 over TLS, the native protocol and mounts with real system
//! calls; what came is compared with what is written, and differences are named one by one. The skew that clocks
//! are granted keeps a credential alive for a minute: what is asked with one that has run out
//! is asked last.

mod http;
mod mount;
mod native;
mod secured;
mod table;
mod vouched;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use weft_conformance::run::have;
use weft_core::Rights;
use weft_core::rights::RIGHTS_COUNT;

use table::Table;
use world::World;

const CALLERS: [&str; 16] = [
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
    "link",
    "issuer",
    "certificate",
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

/// What is asked about, and by whom.
pub struct Ground {
    callers: &'static [&'static str],
    kinds: &'static [&'static str],
    rules: &'static str,
    /// Whether it is directories of the machine that are served in place.
    is_shared: bool,
}

/// Files that Weft keeps itself.
const MANAGED: Ground =
    Ground { callers: &CALLERS, kinds: &KINDS, rules: include_str!("../rights.txt"), is_shared: false };
/// Of a share, whose rights are decided by other code, those who differ in how the entries name them.
const SHARED: Ground = Ground {
    callers: &["administrator", "owner", "member", "anyone", "stranger"],
    kinds: &["file", "directory"],
    rules: include_str!("shared.txt"),
    is_shared: true,
};

/// A `small` is a file whose bytes lie beside its inode; a `file`'s and so a link's are an object's.
const KINDS: [&str; 5] = ["file", "small", "directory", "symlink", "fifo"];
/// `http` and `webdav` are methods of one door in the clear; `https2` is all of them by HTTP/2 over TLS.
const DOORS: [&str; 5] = ["http", "webdav", "https2", "native", "mount"];
const SIDES: [&str; 2] = ["with", "without"];
const ANSWERS: [&str; 7] =
    ["allowed", "denied", "not-found", "unauthenticated", "revoked", "expired", "not-offered"];

/// Places beside those of the rights. Some methods of WebDAV need more than the right they are asked for; given
/// where the other doors ask, that would hide what those need.
const DAV_PLACES: [&str; 5] = ["dav-read", "dav-insert", "dav-rename", "dav-lock", "dav-attr-write"];

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
    fn all(ground: &'static Ground) -> impl Iterator<Item = Self> {
        let cell = |caller, right, kind, door, side| Self { caller, right, kind, door, side };
        ground.callers.iter().flat_map(move |caller| {
            RIGHTS.iter().flat_map(move |right| {
                ground.kinds.iter().flat_map(move |kind| {
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

    /// Returns whether who asks can come by this door at all: a link is an address of HTTP, and a
    /// certificate is shown while TLS begins.
    fn can_come(&self) -> bool {
        match self.caller {
            "link" => !matches!(self.door, "native" | "mount"),
            "certificate" => self.door == "https2",
            _ => true,
        }
    }

    /// Returns where among a caller's containers the question is asked.
    fn place(&self) -> Place {
        let own = |place: &&str| http::is_webdav(self) && right_at(place) == self.right;
        (self.caller, DAV_PLACES.into_iter().find(own).unwrap_or(self.right), self.side)
    }

    /// Returns the directory that the question is about.
    fn dir(&self) -> String {
        dir_of(self.place())
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

/// One container: whose it is, what for, and on which side.
type Place = (&'static str, &'static str, &'static str);

/// Returns the places of a caller.
fn places(caller: &'static str) -> impl Iterator<Item = Place> {
    let names = RIGHTS.into_iter().chain(DAV_PLACES);
    names.flat_map(move |name| SIDES.map(|side| (caller, name, side)))
}

fn dir_of((caller, name, side): Place) -> String {
    format!("/{caller}/{name}.{side}")
}

/// Returns the right that a place is for.
fn right_at(place: &str) -> &str {
    place.strip_prefix("dav-").unwrap_or(place)
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

impl Ground {
    fn table(&'static self) -> Table {
        Table::parse(self, self.rules)
    }

    /// Returns the columns whose values each show by themselves.
    fn columns(&self) -> [&[&'static str]; 4] {
        [self.callers, &RIGHTS, self.kinds, &DOORS]
    }

    fn values(&self) -> usize {
        self.columns().iter().map(|values| values.len()).sum()
    }
}

/// One test, as all of it takes one run: a second one would only wait for the first.
#[test]
fn who_may_do_what_is_as_written_down_by_hand_and_one_wrong_line_or_decision_is_found() {
    is_as_written(&MANAGED);
}

#[test]
fn in_a_shared_directory_too_it_is_as_written_down_by_hand_and_one_wrong_line_or_decision_is_found() {
    is_as_written(&SHARED);
}

fn is_as_written(ground: &'static Ground) {
    if !have("rights matrix", &["fusermount3", "curl"]) || !have("rights matrix", &vouched::programs()) {
        return;
    }
    let world = World::new(ground);
    let came = world.ask();
    assert_eq!(came.len(), Cell::all(ground).count(), "every question is asked");
    let differences = compare(&ground.table().expand(), &came);
    let offered = came.values().filter(|answer| *answer != "not-offered").count();
    println!("{} cells, {offered} of them offered", came.len());
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), came.len(), differences.join("\n"));
    one_wrong_line_is_found(ground, &came);
    one_wrong_decision_is_found(ground, &world, &came);
}

/// For each value of each column, both ways round: one question is decided wrongly, for real, and
/// one door's answer is taken for another. Each shows, and nowhere else.
fn one_wrong_decision_is_found(ground: &'static Ground, world: &World, came: &Answers) {
    let right = ground.table().expand();
    let mut planted = BTreeSet::new();
    for (column, values) in ground.columns().into_iter().enumerate() {
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
    assert!(planted.len() > ground.values());
}

/// For each value of each column: one rule that says something else of one cell.
fn one_wrong_line_is_found(ground: &'static Ground, came: &Answers) {
    let right = ground.table().expand();
    let mut planted = BTreeSet::new();
    for (column, values) in ground.columns().into_iter().enumerate() {
        for value in values {
            let of_value = || came.keys().filter(|cell| cell.columns()[column] == *value);
            let offered = || of_value().find(|c| !planted.contains(*c) && right[*c] != "not-offered");
            let cell = *offered().or_else(|| of_value().next()).expect("every value has cells");
            planted.insert(cell);
            let wrong = if right[&cell] == "allowed" { "denied" } else { "allowed" };
            let line = format!("{} {wrong}\n", cell.columns().join(" "));
            let flipped = Table::parse(ground, &format!("{}{line}", ground.rules)).expand();
            let expected = format!("{}: {wrong} is written, {} came", cell.columns().join(" "), right[&cell]);
            assert_eq!(compare(&flipped, came), [expected], "{value}");
        }
    }
    assert_eq!(planted.len(), ground.values());
}

#[test]
fn the_columns_are_those_of_the_model_and_every_rule_speaks() {
    let mut all = Rights::NONE;
    for name in RIGHTS {
        all |= right(name);
    }
    assert_eq!(all, Rights::ALL);
    for ground in [&MANAGED, &SHARED] {
        let cells: usize = ground.columns().iter().map(|values| values.len()).product();
        assert_eq!(Cell::all(ground).count(), cells * SIDES.len());
        let table = ground.table();
        let silent = table.silent();
        assert!(silent.is_empty(), "rules that decide no cell:\n{}", silent.join("\n"));
    }
}
