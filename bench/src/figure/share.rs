//! `share.list`: a directory of the machine that is served in place, listed whole.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Size;
use crate::Result;
use crate::machine::Missing;
use crate::node::{Node, binary, share};
use crate::place::Place;
use crate::report::{Better, Report};
use crate::rounds::{Series, alternate, repeat};

/// `share.list`: every entry with its size and time, through a node, beside `find` that prints the same;
/// the first page of it; and the most memory that the node took.
pub fn list(report: &mut Report, size: Size) -> Result<()> {
    let count = size.pick(500, 100_000, 1_000_000);
    let place = Place::new()?;
    let folder = place.folder("shared")?;
    for n in 0..count {
        File::create(folder.join(format!("entry-{n:07}")))?;
    }
    let node = Node::start(place.path())?;
    share(node.folder(), &folder, "/bench/shared")?;
    let ours = || {
        let mut list = Command::new(binary()?);
        list.args(["ls", "-l", "/bench/shared"]).env("WEFT_NODE", node.folder());
        rate(list, count)
    };
    let theirs = || {
        let mut find = Command::new("find");
        find.arg(&folder).args(["-mindepth", "1", "-printf", "%M %u %s %t %f\\n"]);
        rate(find, count)
    };
    let sides = alternate(size.rounds(), ours, theirs)?;
    report.compare(&format!("share.list.{count}"), "entries/s", Better::More, "find", &sides);
    let first = repeat(size.rounds(), || first_line(node.folder()))?;
    report.alone("share.list.first", "ms", &first);
    report.alone("share.list.memory", "MiB", &Series::of(vec![most_memory(node.pid())?]));
    Ok(())
}

/// Runs a command that prints a line an entry. Returns entries a second.
fn rate(mut command: Command, count: u64) -> Result<f64> {
    let begun = Instant::now();
    let mut running = command.stdout(Stdio::piped()).spawn()?;
    let out = running.stdout.take().ok_or("it prints")?;
    let lines = BufReader::with_capacity(1 << 20, out).split(b'\n').count() as u64;
    if !running.wait()?.success() || lines != count {
        return Err(format!("{lines} of {count} entries were listed").into());
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Returns after how many milliseconds the first entry is there.
fn first_line(folder: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut list = Command::new(binary()?);
    let list = list.args(["ls", "/bench/shared"]).env("WEFT_NODE", folder);
    let mut running = list.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    BufReader::new(running.stdout.take().ok_or("it prints")?).read_line(&mut line)?;
    let first = begun.elapsed().as_secs_f64() * 1e3;
    running.wait()?;
    if line.is_empty() { Err("nothing was listed".into()) } else { Ok(first) }
}

/// Returns the most memory that a process ever had, in MiB.
pub(super) fn most_memory(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let line = line.ok_or_else(|| Missing("the machine does not tell peaks of memory".into()))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
