//! `acl`: the ACL of a container of many objects is changed, beside that of a container of ten.
//! Rights live in the container and in nothing below it, so both should cost the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Size;
use super::kv::{arguments, rate};
use crate::Result;
use crate::count::count_program;
use crate::place::Place;
use crate::report::{Better, Report};
use crate::rounds::alternate;

/// Objects in the container beside it.
const FEW: u64 = 10;
/// Callers that fill a container.
const FILLERS: u64 = 64;

/// One container, alone in a volume of its own.
struct Container {
    ours: PathBuf,
    folder: PathBuf,
}

impl Container {
    fn filled(place: &Path, name: &str, fillers: u64, objects: u64) -> Result<Self> {
        let made = Self { ours: std::env::current_exe()?, folder: place.join(name) };
        rate(&mut made.side("own", fillers, objects))?;
        Ok(made)
    }

    fn side(&self, what: &str, callers: u64, count: u64) -> Command {
        let mut command = Command::new(&self.ours);
        command.args(["side", "form"]).arg(&self.folder);
        arguments(command, what, callers, count, 1)
    }

    fn edits(&self, count: u64) -> Result<f64> {
        rate(&mut self.side("acl", 1, count))
    }
}

/// Durable changes of an ACL per second, and what each asks of the kernel.
pub fn measure(report: &mut Report, size: Size) -> Result<()> {
    let place = Place::new()?;
    let objects = size.pick(640, 1_000_000, 1_000_000);
    let many = Container::filled(place.path(), "many", FILLERS, objects)?;
    let few = Container::filled(place.path(), "few", 1, FEW)?;
    let edits = size.pick(20, 2000, 5000);
    let sides = alternate(size.rounds(), || many.edits(edits), || few.edits(edits))?;
    let name = format!("acl.{objects}_objects");
    report.compare(&name, "/s", Better::More, "ten", &sides);
    let runs = (2, edits.min(500));
    for (side, container) in [("weft", &many), ("ten", &few)] {
        let counts = count_program(place.path(), runs, |count| Ok(container.side("acl", 1, count)));
        report.counts(&name, side, counts)?;
    }
    Ok(())
}
