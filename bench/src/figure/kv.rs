//! `kv.*` and `meta.*`: the metadata engine, and the request form over it, beside SQLite
//! (WAL, synchronous=FULL) and PostgreSQL, rows of the same shape, each side a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Size;
use crate::Result;
use crate::count::{PerOperation, count_beside, count_program};
use crate::peer::{postgres::Postgres, program};
use crate::place::Place;
use crate::report::{Better, Report};
use crate::rounds::alternate;

/// What of ours is measured.
#[derive(Clone, Copy)]
struct Layer {
    /// How the figures' names begin.
    name: &'static str,
    /// How the side is called.
    side: &'static str,
}

/// The engine alone, with a volume's rows.
const ROWS: Layer = Layer { name: "kv", side: "rows" };
/// The request form: rights, feed and audit on.
const FORM: Layer = Layer { name: "meta", side: "form" };

/// Two programs with the same five arguments: where, what, callers, count, directories.
struct Sides {
    layer: Layer,
    ours: PathBuf,
    theirs: PathBuf,
    place: Place,
}

impl Sides {
    fn new(layer: Layer) -> Result<Self> {
        let theirs = program::program("sqlite_meta", &["-lsqlite3"])?;
        Ok(Self { layer, ours: std::env::current_exe()?, theirs, place: Place::new()? })
    }

    fn ours(&self, what: &str, callers: u64, count: u64, dirs: u64) -> Command {
        let mut command = Command::new(&self.ours);
        command.arg("side").arg(self.layer.side).arg(self.place.path().join("kv"));
        arguments(command, what, callers, count, dirs)
    }

    fn theirs(&self, what: &str, callers: u64, count: u64, dirs: u64) -> Command {
        let mut command = Command::new(&self.theirs);
        command.arg(self.place.path().join("sqlite"));
        arguments(command, what, callers, count, dirs)
    }

    /// Compares `what`; SQLite does `peer_does`.
    fn compare(&self, report: &mut Report, size: Size, one: &One<'_>) -> Result<()> {
        let One { name, what, peer_does, callers, count, dirs, .. } = *one;
        let sides = alternate(
            size.rounds(),
            || rate(&mut self.ours(what, callers, count, dirs)),
            || rate(&mut self.theirs(peer_does, callers, count, dirs)),
        )?;
        report.compare(name, "/s", Better::More, "sqlite", &sides);
        let ours = self.counted(one, what, |what, count| self.ours(what, callers, count, dirs));
        let theirs = self.counted(one, peer_does, |what, count| self.theirs(what, callers, count, dirs));
        report.counts(name, "weft", ours)?;
        report.counts(name, "sqlite", theirs)?;
        Ok(())
    }

    /// Counts what `side` does for each operation, without what it does before them.
    fn counted(
        &self,
        one: &One<'_>,
        what: &str,
        side: impl Fn(&str, u64) -> Command,
    ) -> Result<PerOperation> {
        // Each caller does its share of whole operations.
        let (few, many) = (one.callers, one.callers * (one.count.min(2000) / one.callers).max(2));
        match one.before {
            None => count_program(self.folder(), (few, many), |count| Ok(side(what, count))),
            Some(before) => count_beside(self.folder(), many, &side(before, many), &side(what, many)),
        }
    }

    /// Compares the same with PostgreSQL, if that is here.
    fn compare_postgres(&self, report: &mut Report, size: Size, one: &One<'_>, files: u64) -> Result<()> {
        let One { name, what, callers, count, dirs, .. } = *one;
        let started = Postgres::start(self.place.path());
        let Some(postgres) = report.peer(&format!("{name}.postgres"), started)? else { return Ok(()) };
        let theirs =
            |what: &str, callers, count| rate(&mut arguments(postgres.measure(), what, callers, count, dirs));
        if files > 0 {
            theirs("fill", 1, files)?;
        }
        let sides = alternate(
            size.rounds(),
            || rate(&mut self.ours(what, callers, count, dirs)),
            || theirs(what, callers, count),
        )?;
        report.compare(&format!("{name}.postgres"), "/s", Better::More, "postgres", &sides);
        Ok(())
    }

    /// Makes the same files on both sides, so that something is there.
    fn populate(&self, count: u64, dirs: u64) -> Result<()> {
        rate(&mut self.ours("create", 64, count, dirs))?;
        rate(&mut self.theirs("grouped", 64, count, dirs))?;
        Ok(())
    }

    fn folder(&self) -> &Path {
        self.place.path()
    }
}

/// One comparison.
struct One<'a> {
    name: &'a str,
    what: &'a str,
    peer_does: &'a str,
    callers: u64,
    count: u64,
    dirs: u64,
    /// What each side calls that which a run does before, as often.
    before: Option<&'a str>,
}

/// Adds what every side is told.
pub(super) fn arguments(mut command: Command, what: &str, callers: u64, count: u64, dirs: u64) -> Command {
    command.arg(what).args([callers, count, dirs].map(|number| number.to_string()));
    command
}

/// Runs a side and reads the one number it prints.
pub(super) fn rate(side: &mut Command) -> Result<f64> {
    let done = side.output()?;
    if !done.status.success() {
        return Err(format!("{side:?}: {}", String::from_utf8_lossy(&done.stderr).trim()).into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().parse()?)
}

/// `create`: durable creates in one directory and in many; SQLite with a transaction
/// for each create, and with one for all that wait.
fn create_of(layer: Layer, report: &mut Report, size: Size) -> Result<()> {
    for (place, dirs) in [("one", 1), ("many", 64)] {
        let sides = Sides::new(layer)?;
        for (callers, peer_does, name) in [
            (1_u64, "create", "1"),
            (16, "create", "16"),
            (64, "create", "64"),
            (16, "grouped", "16.grouped"),
            (64, "grouped", "64.grouped"),
        ] {
            let count = callers * size.pick(4, 4000 / callers.isqrt(), 10_000);
            let name = format!("{}.create.{place}.{name}", layer.name);
            sides.compare(
                report,
                size,
                &One { name: &name, what: "create", peer_does, callers, count, dirs, before: None },
            )?;
        }
    }
    Ok(())
}

/// How many files are there, and in how many directories: in one, in many, and in one that is
/// as large as a directory gets here, so that a cliff would be seen.
fn shelves(size: Size) -> [(String, u64, u64); 3] {
    let (some, most) = (size.pick(640, 100_032, 100_032), size.pick(1280, 1_000_000, 1_000_000));
    [("one".to_owned(), some, 1), ("many".to_owned(), some, 64), (format!("one.{most}"), most, 1)]
}

/// `lookup`: by 1 and 2 readers.
fn lookup_of(layer: Layer, report: &mut Report, size: Size) -> Result<()> {
    for (place, files, dirs) in shelves(size) {
        let sides = Sides::new(layer)?;
        sides.populate(files, dirs)?;
        for callers in [1, 2] {
            let (name, count) =
                (format!("{}.lookup.{place}.{callers}", layer.name), size.pick(1000, 200_000, 1_000_000));
            let one =
                One { name: &name, what: "lookup", peer_does: "lookup", callers, count, dirs, before: None };
            sides.compare(report, size, &one)?;
            if callers == 1 {
                sides.compare_postgres(report, size, &one, files)?;
            }
        }
    }
    Ok(())
}

/// `list`: in pages with attributes.
fn list_of(layer: Layer, report: &mut Report, size: Size) -> Result<()> {
    for (place, files, dirs) in shelves(size) {
        let sides = Sides::new(layer)?;
        sides.populate(files, dirs)?;
        let name = format!("{}.list.{place}", layer.name);
        let count = files / dirs * size.pick(1, 4, 4);
        let one = One { name: &name, what: "list", peer_does: "list", callers: 1, count, dirs, before: None };
        sides.compare(report, size, &one)?;
        sides.compare_postgres(report, size, &one, files)?;
    }
    Ok(())
}

/// `rename`: durable renames by 1 and 16 callers; each run makes its files first.
fn rename_of(layer: Layer, report: &mut Report, size: Size) -> Result<()> {
    for callers in [1, 16] {
        let sides = Sides::new(layer)?;
        let (name, count) = (format!("{}.rename.{callers}", layer.name), callers * size.pick(4, 500, 2000));
        let before = Some("files");
        let one = One { name: &name, what: "rename", peer_does: "rename", callers, count, dirs: 1, before };
        sides.compare(report, size, &one)?;
        sides.compare_postgres(report, size, &one, 0)?;
    }
    Ok(())
}

/// `kv.create`.
pub fn create(report: &mut Report, size: Size) -> Result<()> {
    create_of(ROWS, report, size)
}

/// `meta.create`.
pub fn form_create(report: &mut Report, size: Size) -> Result<()> {
    create_of(FORM, report, size)
}

/// `kv.lookup`.
pub fn lookup(report: &mut Report, size: Size) -> Result<()> {
    lookup_of(ROWS, report, size)
}

/// `meta.lookup`.
pub fn form_lookup(report: &mut Report, size: Size) -> Result<()> {
    lookup_of(FORM, report, size)
}

/// `kv.list`.
pub fn list(report: &mut Report, size: Size) -> Result<()> {
    list_of(ROWS, report, size)
}

/// `meta.list`.
pub fn form_list(report: &mut Report, size: Size) -> Result<()> {
    list_of(FORM, report, size)
}

/// `kv.rename`.
pub fn rename(report: &mut Report, size: Size) -> Result<()> {
    rename_of(ROWS, report, size)
}

/// `meta.rename`.
pub fn form_rename(report: &mut Report, size: Size) -> Result<()> {
    rename_of(FORM, report, size)
}
