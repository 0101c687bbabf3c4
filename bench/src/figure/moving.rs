//! `import.src` and `import.pdb`: whole trees brought into a node, beside what copies them on this machine.
//!
//! What `weft import` reports is on disk: so the peers are followed by a flush of their file system. Of
//! `rsync`, which is measured without as well, nothing is on disk then.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Size;
use crate::Result;
use crate::machine::Missing;
use crate::node::{Node, binary};
use crate::place::Place;
use crate::report::{Better, Report};
use crate::rounds::alternate;

/// Bytes in the files of the Protein Data Bank: mean and standard deviation, as the papers tell them.
const PDB_MEAN: f64 = 171e3;
const PDB_DEVIATION: f64 = 272e3;

/// `import.src`: many small files in many directories, beside `rsync -a`.
pub fn source_tree(report: &mut Report, size: Size) -> Result<()> {
    let count = size.pick(300, 50_000, 50_000);
    let scene = Scene::make(count, |dice, n| (format!("{:03x}/{:02x}/f{n}.c", n % 700, n % 4), small(dice)))?;
    let rsync = |flushed| scene.theirs("rsync", &["-a"], flushed);
    let sides = alternate(size.rounds(), || scene.ours(), || rsync(true))?;
    report.compare("import.src", "files/s", Better::More, "rsync -a, flushed", &sides);
    let sides = alternate(size.rounds(), || scene.ours(), || rsync(false))?;
    report.compare("import.src.unflushed", "files/s", Better::More, "rsync -a", &sides);
    Ok(())
}

/// `import.pdb`: files of the sizes of the Protein Data Bank, beside `cp -r` and a flush.
pub fn protein_data(report: &mut Report, size: Size) -> Result<()> {
    let count = size.pick(40, 12_000, 12_000);
    let scene = Scene::make(count, |dice, n| (format!("{:02x}/pdb{n}.ent", n % 256), pdb_size(dice)))?;
    let sides = alternate(size.rounds(), || scene.ours(), || scene.theirs("cp", &["-r"], true))?;
    report.compare("import.pdb", "files/s", Better::More, "cp -r, flushed", &sides);
    Ok(())
}

/// A tree, a node to bring it into, and a directory to copy it to.
struct Scene {
    source: PathBuf,
    copies: PathBuf,
    count: u64,
    node: Node,
    round: Cell<u32>,
    copied: Cell<u32>,
    _place: Place,
}

impl Scene {
    fn make(count: u64, file: impl Fn(&mut Dice, u64) -> (String, u64)) -> Result<Self> {
        let place = Place::new()?;
        let (source, copies) = (place.folder("source")?, place.folder("copies")?);
        let mut dice = Dice::new();
        for n in 0..count {
            let (path, bytes) = file(&mut dice, n);
            let path = source.join(path);
            fs::create_dir_all(path.parent().ok_or("a file is in a directory")?)?;
            write_atoms(&path, bytes, &mut dice)?;
        }
        flush(&source)?;
        let node = Node::start(place.path())?;
        Ok(Self { source, copies, count, node, round: Cell::new(0), copied: Cell::new(0), _place: place })
    }

    /// Returns files a second, each round to a new place.
    fn ours(&self) -> Result<f64> {
        let round = self.round.replace(self.round.get() + 1);
        let begun = Instant::now();
        let mut import = Command::new(binary()?);
        import.arg("import").arg(&self.source).arg(format!("/bench/round-{round}"));
        run(import.env("WEFT_NODE", self.node.folder()))?;
        Ok(self.count as f64 / begun.elapsed().as_secs_f64())
    }

    /// Returns files a second, each round to a new place, as ours: for half a minute after files are
    /// removed, ext4 without a journal looks through what they had for each file that is made.
    fn theirs(&self, program: &str, options: &[&str], flushed: bool) -> Result<f64> {
        let target = self.copies.join(format!("copy-{}", self.copied.replace(self.copied.get() + 1)));
        let begun = Instant::now();
        let mut copy = Command::new(program);
        // A slash makes rsync copy what is in it; cp makes the target of a name that is new.
        copy.args(options).arg(self.source.join("")).arg(&target);
        run(&mut copy)?;
        if flushed {
            flush(&self.copies)?;
        }
        Ok(self.count as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Runs a program whose output nobody wants; fails unless it succeeds.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let done = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status();
    let name = command.get_program().to_string_lossy().into_owned();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}").into()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Missing(name).into()),
        Err(e) => Err(e.into()),
    }
}

/// Brings everything of the file system that a directory lies in to disk.
fn flush(directory: &Path) -> Result<()> {
    run(Command::new("sync").arg("-f").arg(directory))
}

/// Sizes of a source tree: half of them below 3 KiB, few above 12.
pub(super) fn small(dice: &mut Dice) -> u64 {
    let (one, other) = (dice.part(), dice.part());
    (one * other * 12_288.0) as u64
}

/// A size of the Protein Data Bank: its logarithm is normal.
fn pdb_size(dice: &mut Dice) -> u64 {
    let variance = (1.0 + (PDB_DEVIATION / PDB_MEAN).powi(2)).ln();
    let middle = PDB_MEAN.ln() - variance / 2.0;
    let normal = (-2.0 * dice.part().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * dice.part()).cos();
    (middle + variance.sqrt() * normal).exp() as u64
}

/// Writes so many bytes of lines as a file of coordinates has them.
pub(super) fn write_atoms(path: &Path, bytes: u64, dice: &mut Dice) -> Result<()> {
    let (mut out, mut left, mut serial) = (BufWriter::new(File::create(path)?), bytes as usize, 0_u64);
    while left > 0 {
        serial += 1;
        let [x, y, z] = [(); 3].map(|()| dice.part() * 200.0 - 100.0);
        let line = format!(
            "ATOM  {serial:>5}  CA  ALA A{:>4}    {x:>8.3}{y:>8.3}{z:>8.3}  1.00 20.00           C  \n",
            serial % 10_000
        );
        let part = &line.as_bytes()[..line.len().min(left)];
        out.write_all(part)?;
        left -= part.len();
    }
    out.flush()?;
    Ok(())
}

/// Xorshift, always the same.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a number from 0 to below 1.
    pub(super) fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
