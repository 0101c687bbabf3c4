//! What a person reads and what a program keeps.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::Result;
use crate::count::PerOperation;
use crate::machine::{self, Missing};
use crate::rounds::Series;

/// Whether more or less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As for a rate.
    More,
    /// As for a time.
    Less,
}

/// Something that the machine itself can do no better than this.
pub struct Limit {
    /// As in the bench `limits`.
    pub name: &'static str,
    /// What it is counted in.
    pub unit: &'static str,
    /// How much it was.
    pub value: f64,
}

/// Prints what a figure is to be read beside: the machine, its load and its limits.
pub fn introduce(limits: &[Limit]) {
    let machine = machine::describe();
    let told = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
    println!(
        "machine: {} CPUs ({}), {} of memory, Linux {}, load {}, commit {}, run by {}",
        machine["cpus"],
        told("cpu"),
        told("memory"),
        told("kernel"),
        told("load"),
        told("commit"),
        told("run_by")
    );
    let limit = |limit: &Limit| format!("{} {} {}", limit.name, short(limit.value), limit.unit);
    println!("limits: {}", limits.iter().map(limit).collect::<Vec<_>>().join(", "));
}

/// Collects the lines of one bench, prints each as it comes, and writes all at the end.
pub struct Report {
    name: String,
    lines: Vec<Value>,
}

impl Report {
    /// Begins a report.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), lines: Vec::new() }
    }

    /// Adds a comparison.
    pub fn compare(&mut self, name: &str, unit: &str, better: Better, peer: &str, sides: &(Series, Series)) {
        let (ours, theirs) = sides;
        let ratio = ratio(better, ours.median(), theirs.median());
        let rounds = ours.results().iter().zip(theirs.results());
        let rounds = Series::of(rounds.map(|(ours, theirs)| self::ratio(better, *ours, *theirs)).collect());
        println!(
            "{name}  weft={} {unit}  {peer}={} {unit}  ratio={ratio:.2}  ({:.2}–{:.2})",
            short(ours.median()),
            short(theirs.median()),
            rounds.min(),
            rounds.max()
        );
        self.lines.push(json!({
            "name": name, "unit": unit, "better": if better == Better::More { "more" } else { "less" },
            "weft": ours.results(), "peer": theirs.results(), "peer_name": peer, "ratio": ratio,
        }));
    }

    /// Adds a figure that has no peer.
    pub fn alone(&mut self, name: &str, unit: &str, series: &Series) {
        println!(
            "{name}  {} {unit}  ({}–{})",
            short(series.median()),
            short(series.min()),
            short(series.max())
        );
        self.lines.push(json!({ "name": name, "unit": unit, "results": series.results() }));
    }

    /// Adds what `side` did per operation of the figure `name`, or why it was not counted.
    pub fn counts(&mut self, name: &str, side: &str, counts: Result<PerOperation>) -> Result<()> {
        match counts {
            Ok(per) => self.counted(name, side, &per),
            Err(why) if why.is::<Missing>() => {
                self.missing(&format!("{name} of {side}"), &why.to_string())?
            }
            Err(why) => self.note(&format!("{name} of {side} not counted: {why}")),
        }
        Ok(())
    }

    fn counted(&mut self, name: &str, side: &str, per: &PerOperation) {
        println!(
            "  {name} {side}: {:.1} calls, {:.2} flushes, {} bytes copied per operation",
            per.calls,
            per.flushes,
            short(per.copied_bytes)
        );
        self.lines.push(json!({
            "name": name, "side": side, "calls": per.calls, "flushes": per.flushes,
            "copied_bytes": per.copied_bytes, "by_call": per.by_call,
        }));
    }

    /// Adds a remark: what differs between the sides, what could not be had.
    pub fn note(&mut self, text: &str) {
        println!("  note: {text}");
        self.lines.push(json!({ "note": text }));
    }

    /// Returns a peer that has started. Of one that this machine lacks it says so, under the name of
    /// the figure that it is wanted for, and returns none.
    pub fn peer<T>(&mut self, figure: &str, started: Result<T>) -> Result<Option<T>> {
        match started {
            Ok(peer) => Ok(Some(peer)),
            Err(why) if why.is::<Missing>() => self.missing(figure, &why.to_string()).map(|()| None),
            Err(why) => Err(why),
        }
    }

    /// Says that a figure could not be measured here. `./test` counts what it finds in
    /// the file named by `WEFT_NOT_RUN`.
    pub fn missing(&mut self, name: &str, needs: &str) -> Result<()> {
        self.note(&format!("{name} not measured: {needs}"));
        if let Some(list) = std::env::var_os("WEFT_NOT_RUN") {
            let mut file = OpenOptions::new().append(true).create(true).open(list)?;
            writeln!(file, "bench {name}: {}", needs.replace('\n', " "))?;
        }
        Ok(())
    }

    /// Writes the report below `folder`, with the machine, its limits and the commit.
    pub fn write(&self, folder: &Path, limits: &[Limit]) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let file = folder.join(format!("{}-{}.json", self.name, machine::seconds_since_1970()));
        let limits: Vec<Value> = limits
            .iter()
            .map(|limit| json!({ "name": limit.name, "unit": limit.unit, "value": limit.value }))
            .collect();
        let whole = json!({
            "bench": self.name, "machine": machine::describe(), "limits": limits, "lines": self.lines,
        });
        std::fs::write(&file, serde_json::to_string_pretty(&whole)?)?;
        Ok(())
    }
}

fn ratio(better: Better, ours: f64, theirs: f64) -> f64 {
    match better {
        Better::More => ours / theirs,
        Better::Less => theirs / ours,
    }
}

/// Three significant digits are all a noisy machine gives.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_over_one_means_that_weft_is_better() {
        assert_eq!(ratio(Better::More, 200.0, 100.0), 2.0);
        assert_eq!(ratio(Better::Less, 5.0, 10.0), 2.0);
    }

    #[test]
    fn a_report_keeps_every_round_and_names_machine_limits_and_commit() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut report = Report::new("some.bench");
        let sides = (Series::of(vec![2.0, 4.0]), Series::of(vec![1.0, 1.0]));
        report.compare("some.figure", "x/s", Better::More, "peer", &sides);
        let limits = [Limit { name: "memcpy", unit: "MB/s", value: 7000.0 }];
        report.write(folder.path(), &limits).expect("the folder is writable");
        let file =
            std::fs::read_dir(folder.path()).expect("it was made").next().expect("one file was written");
        let text = std::fs::read(file.expect("it can be listed").path()).expect("it can be read");
        let whole: Value = serde_json::from_slice(&text).expect("it is JSON");
        assert_eq!(whole["lines"][0]["weft"], json!([2.0, 4.0]));
        assert_eq!(whole["lines"][0]["ratio"], json!(3.0));
        assert!(whole["machine"]["cpus"].as_u64() > Some(0), "{whole}");
        assert_eq!(whole["limits"][0], json!({ "name": "memcpy", "unit": "MB/s", "value": 7000.0 }));
    }
}
