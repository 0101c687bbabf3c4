//! `mount`: a mount beside libfuse's own example over the same disk, which is what FUSE itself can do,
//! beside what people would take, and beside the bare directory.
//!
//! Each side works in a directory of its own on one disk: ours in the tree of a node, a peer's in the
//! directory that it shows. What a program reads is resident below the mount, and forgotten by it, so
//! that it crosses FUSE; what it writes is flushed.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::Advice;

use super::Size;
use super::moving::{Dice, run, small, write_atoms};
use super::share::most_memory;
use crate::Result;
use crate::node::Node;
use crate::peer::mounts::{self, Mounted};
use crate::place::{Place, fill};
use crate::report::{Better, Report};
use crate::rounds::{Series, alternate, repeat};

/// Bytes that a program reads or writes at once.
const PIECE: usize = 1 << 20;

/// What a mount is compared with.
#[derive(Clone, Copy)]
enum Peer {
    /// libfuse's `passthrough_hp`.
    Passthrough,
    Bindfs,
    Rclone,
    Mergerfs,
    Sshfs,
    /// Of Apache.
    Davfs2,
    /// Of MinIO.
    S3fs,
    /// The directory itself, without a mount.
    Bare,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough_hp",
            Self::Bindfs => "bindfs",
            Self::Rclone => "rclone",
            Self::Mergerfs => "mergerfs",
            Self::Sshfs => "sshfs",
            Self::Davfs2 => "davfs2",
            Self::S3fs => "s3fs",
            Self::Bare => "bare",
        }
    }
}

/// What people would take instead.
const CHOICES: [Peer; 6] =
    [Peer::Bindfs, Peer::Mergerfs, Peer::Rclone, Peer::Sshfs, Peer::Davfs2, Peer::S3fs];

/// Returns all that files are made and walked beside: what FUSE can do, the choices, the directory itself.
fn all() -> Vec<Peer> {
    [&[Peer::Passthrough][..], &CHOICES, &[Peer::Bare]].concat()
}

/// A directory to work in.
enum Side {
    Mounted(Mounted),
    Bare(PathBuf),
}

impl Side {
    fn at(&self) -> &Path {
        match self {
            Self::Mounted(mounted) => mounted.at(),
            Self::Bare(directory) => directory,
        }
    }
}

/// A node with a mount, and where peers work.
struct Scene {
    ours: Mounted,
    node: Node,
    place: Place,
    round: Cell<u32>,
}

impl Scene {
    fn new() -> Result<Self> {
        let place = Place::new()?;
        let node = Node::start(place.path())?;
        let ours = mounts::weft(node.folder(), place.path().join("weft"))?;
        Ok(Self { ours, node, place, round: Cell::new(0) })
    }

    fn peer(&self, peer: Peer) -> Result<Side> {
        let shown = self.place.folder(&format!("below-{}", peer.name()))?;
        let at = self.place.path().join(peer.name());
        Ok(Side::Mounted(match peer {
            Peer::Passthrough => mounts::passthrough(&shown, at)?,
            Peer::Bindfs => mounts::bindfs(&shown, at)?,
            Peer::Rclone => mounts::rclone(&shown, at, &self.place.folder("rclone-cache")?)?,
            Peer::Mergerfs => mounts::mergerfs(&shown, at)?,
            Peer::Sshfs => mounts::sshfs(&shown, at, self.place.path())?,
            Peer::Davfs2 => mounts::davfs2(&shown, at, self.place.path())?,
            Peer::S3fs => mounts::s3fs(&shown, at, self.place.path())?,
            Peer::Bare => return Ok(Side::Bare(shown)),
        }))
    }

    /// Returns a name that no round has had.
    fn fresh(&self) -> String {
        let round = self.round.replace(self.round.get() + 1);
        format!("round-{round}")
    }

    /// Has ours and each peer do the same, in turn. `prepare` is done once on each side.
    fn compare(
        &self,
        report: &mut Report,
        size: Size,
        (name, unit): (&str, &str),
        peers: &[Peer],
        prepare: impl Fn(&Path) -> Result<()>,
        work: impl Fn(&Path) -> Result<f64>,
    ) -> Result<()> {
        prepare(self.ours.at())?;
        // In small, for tests: libfuse's example and MinIO take the network and a compiler's minutes to build.
        let built = |peer: &&Peer| matches!(peer, Peer::Passthrough | Peer::S3fs);
        let peers = peers.iter().filter(|peer| size != Size::Small || !built(peer));
        for peer in peers {
            let name = format!("{name}.{}", peer.name());
            let Some(side) = report.peer(&name, self.peer(*peer))? else { continue };
            prepare(side.at())?;
            let work = |at: &Path| work(at).map_err(|error| format!("at {}: {error}", at.display()).into());
            let sides = alternate(size.rounds(), || work(self.ours.at()), || work(side.at()))?;
            report.compare(&name, unit, Better::More, peer.name(), &sides);
        }
        Ok(())
    }
}

/// `mount.read` and `mount.random`: one file of 1 GiB from end to end, and 4 KiB of it at a time once
/// the machine has it all.
pub fn read(report: &mut Report, size: Size) -> Result<()> {
    let bytes = size.pick(8 << 20, 1 << 30, 1 << 30);
    let scene = Scene::new()?;
    let prepare = |dir: &Path| -> Result<()> {
        let file = dir.join("large");
        if file.exists() { Ok(()) } else { fill(&file, bytes) }
    };
    let whole = |dir: &Path| read_whole(&dir.join("large"), bytes);
    let peers = [&[Peer::Passthrough][..], &CHOICES].concat();
    scene.compare(report, size, ("mount.read", "MB/s"), &peers, prepare, whole)?;
    let count = size.pick(100, 200_000, 200_000);
    let random = |dir: &Path| read_anywhere(&dir.join("large"), bytes, count);
    scene.compare(
        report,
        size,
        ("mount.random", "reads/s"),
        &[Peer::Passthrough, Peer::Bare],
        prepare,
        random,
    )
}

/// `mount.write`: a new file of 1 GiB, flushed.
pub fn write(report: &mut Report, size: Size) -> Result<()> {
    let bytes = size.pick(8 << 20, 1 << 30, 1 << 30);
    let scene = Scene::new()?;
    let work = |dir: &Path| write_whole(&dir.join(scene.fresh()), bytes);
    scene.compare(report, size, ("mount.write", "MB/s"), &all(), |_| Ok(()), work)
}

/// `mount.create` and `mount.stat`: empty files made in one directory, and looked at again.
pub fn names(report: &mut Report, size: Size) -> Result<()> {
    let count = size.pick(100, 5_000, 5_000);
    let scene = Scene::new()?;
    let create = |dir: &Path| {
        let target = dir.join(scene.fresh());
        let rate = create(&target, count)?;
        fs::remove_dir_all(&target)?;
        Ok(rate)
    };
    scene.compare(report, size, ("mount.create", "files/s"), &all(), |_| Ok(()), create)?;
    let looks = size.pick(1_000, 200_000, 200_000);
    let prepare = |dir: &Path| -> Result<()> {
        if dir.join("looked-at").exists() {
            Ok(())
        } else {
            self::create(&dir.join("looked-at"), 1_000).map(drop)
        }
    };
    let stat = |dir: &Path| look_at(&dir.join("looked-at"), 1_000, looks);
    scene.compare(report, size, ("mount.stat", "stats/s"), &[Peer::Passthrough, Peer::Bare], prepare, stat)
}

/// `mount.untar` and `mount.find`: a source tree taken out of an archive, and walked.
pub fn tree(report: &mut Report, size: Size) -> Result<()> {
    let count = size.pick(200, 3_000, 50_000).min(mounts::files_max());
    report.note(&format!("mount.untar and mount.find are of {count} files"));
    let scene = Scene::new()?;
    let archive = archive(scene.place.path(), count)?;
    let untar = |dir: &Path| {
        let target = dir.join(scene.fresh());
        fs::create_dir(&target)?;
        let begun = Instant::now();
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&target))?;
        let taken = begun.elapsed().as_secs_f64();
        fs::remove_dir_all(&target)?;
        Ok(count as f64 / taken)
    };
    scene.compare(report, size, ("mount.untar", "files/s"), &all(), |_| Ok(()), untar)?;
    let prepare = |dir: &Path| -> Result<()> {
        let target = dir.join("walked");
        if target.exists() {
            return Ok(());
        }
        fs::create_dir(&target)?;
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&target))
    };
    let find = |dir: &Path| {
        let begun = Instant::now();
        run(Command::new("find").arg(dir.join("walked")).args(["-printf", "%s %t\\n"]))?;
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    };
    scene.compare(report, size, ("mount.find", "files/s"), &all(), prepare, find)
}

/// `mount.clone`: this repository cloned by git, from this machine's disk.
pub fn clone(report: &mut Report, size: Size) -> Result<()> {
    let scene = Scene::new()?;
    let source = scene.place.path().join("source.git");
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*"]).args(words);
        git
    };
    run(git(&["clone", "--quiet", "--bare", "--no-hardlinks"]).arg(crate::machine::root()).arg(&source))?;
    let work = |dir: &Path| {
        let target = dir.join(scene.fresh());
        let begun = Instant::now();
        run(git(&["clone", "--quiet", "--no-hardlinks"]).arg(&source).arg(&target))?;
        Ok(1.0 / begun.elapsed().as_secs_f64())
    };
    let peers = [Peer::Bare, Peer::Passthrough];
    scene.compare(report, size, ("mount.clone", "clones/s"), &peers, |_| Ok(()), work)
}

/// `mount.memory`: the most that the mount's process took while a file without bytes was read.
pub fn memory(report: &mut Report, size: Size) -> Result<()> {
    let bytes: u64 = size.pick(64 << 20, 10 << 30, 100 << 30);
    let scene = Scene::new()?;
    let file = scene.ours.at().join("sparse");
    File::create(&file)?.set_len(bytes)?;
    let rate = repeat(1, || read_whole(&file, bytes))?;
    report.alone("mount.sparse", "MB/s", &rate);
    report.alone("mount.memory", "MiB", &Series::of(vec![most_memory(scene.ours.pid())?]));
    report.alone("mount.memory.node", "MiB", &Series::of(vec![most_memory(scene.node.pid())?]));
    Ok(())
}

/// MB/s of a file that the mount has to bring: the machine has forgotten the mount's pages of it.
fn read_whole(file: &Path, bytes: u64) -> Result<f64> {
    let mut file = File::open(file)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut piece = vec![0; PIECE];
    let (begun, mut left) = (Instant::now(), bytes);
    while left > 0 {
        match file.read(&mut piece)? {
            0 => return Err("the file ends too early".into()),
            read => left -= read as u64,
        }
    }
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// Returns how many times a second 4 KiB are read, anywhere in a file that the machine has all of.
fn read_anywhere(file: &Path, bytes: u64, count: u64) -> Result<f64> {
    let mut all = File::open(file)?;
    std::io::copy(&mut all, &mut std::io::sink())?;
    let (mut piece, mut dice) = ([0; 4096], Dice::new());
    let begun = Instant::now();
    for _ in 0..count {
        let at = (dice.part() * (bytes / 4096) as f64) as u64 * 4096;
        all.read_exact_at(&mut piece, at)?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn write_whole(file: &Path, bytes: u64) -> Result<f64> {
    let piece = crate::place::noise(PIECE);
    let begun = Instant::now();
    let mut out = File::create_new(file)?;
    for _ in 0..bytes / PIECE as u64 {
        out.write_all(&piece)?;
    }
    out.sync_all()?;
    let taken = begun.elapsed().as_secs_f64();
    fs::remove_file(file)?;
    Ok(bytes as f64 / 1e6 / taken)
}

fn create(dir: &Path, count: u64) -> Result<f64> {
    fs::create_dir(dir)?;
    let begun = Instant::now();
    for n in 0..count {
        File::create_new(dir.join(format!("f{n}")))?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn look_at(dir: &Path, files: u64, count: u64) -> Result<f64> {
    let paths: Vec<PathBuf> = (0..files).map(|n| dir.join(format!("f{n}"))).collect();
    let begun = Instant::now();
    for n in 0..count {
        fs::metadata(&paths[(n % files) as usize])?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Makes an archive of a source tree.
fn archive(place: &Path, count: u64) -> Result<PathBuf> {
    let (source, archive) = (place.join("source"), place.join("source.tar"));
    let mut dice = Dice::new();
    for n in 0..count {
        let path = source.join(format!("{:03x}/{:02x}/f{n}.c", n % 700, n % 4));
        fs::create_dir_all(path.parent().ok_or("a file is in a directory")?)?;
        let bytes = small(&mut dice);
        write_atoms(&path, bytes, &mut dice)?;
    }
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg(".").stdout(Stdio::null()))?;
    Ok(archive)
}
