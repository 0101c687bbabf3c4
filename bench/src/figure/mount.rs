//! `mount`: a mount beside libfuse's own example over the same disk, which is what FUSE itself can do,
//! beside what people would take, and beside the bare directory.
//!
//! Each side works in a directory of its own on one disk: ours in the tree of a node, a peer's in the
//! directory that it shows. What a program reads is resident below the mount, and forgotten by it, so
//! that it crosses FUSE; what it writes is flushed.

mod scene;

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
use crate::place::fill;
use crate::report::Report;
use crate::rounds::{Series, repeat};
use scene::{CHOICES, Peer, Scene, all, by_files};

/// Bytes that a program reads or writes at once.
const PIECE: usize = 1 << 20;

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
    // Not beside the bare directory, of which the machine would have to forget all.
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
    let scene = Scene::new()?;
    for (count, peers) in by_files(size.pick(100, 5_000, 5_000)) {
        report.note(&format!("mount.create of {count} files"));
        let create = |dir: &Path| {
            let target = dir.join(scene.fresh());
            let rate = create(&target, count)?;
            fs::remove_dir_all(&target)?;
            Ok(rate)
        };
        scene.compare(report, size, ("mount.create", "files/s"), &peers, |_| Ok(()), create)?;
    }
    let looks = size.pick(1_000, 200_000, 200_000);
    let prepare = |dir: &Path| -> Result<()> {
        if dir.join("looked-at").exists() { Ok(()) } else { create(&dir.join("looked-at"), 1_000).map(drop) }
    };
    let stat = |dir: &Path| look_at(&dir.join("looked-at"), 1_000, looks);
    scene.compare(report, size, ("mount.stat", "stats/s"), &[Peer::Passthrough, Peer::Bare], prepare, stat)
}

/// `mount.untar`: a source tree taken out of an archive.
pub fn tree(report: &mut Report, size: Size) -> Result<()> {
    let scene = Scene::new()?;
    for (count, peers) in by_files(size.pick(200, 3_000, 50_000)) {
        report.note(&format!("mount.untar of {count} files"));
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
        scene.compare(report, size, ("mount.untar", "files/s"), &peers, |_| Ok(()), untar)?;
    }
    Ok(())
}

/// Files of one directory of a tree that is walked.
const FILES_OF_DIRECTORY: u64 = 100;

/// `mount.find` and `mount.du`: a tree of empty files walked, again and again; `mount.find.warm` and `mount.du.warm`: right after
/// it was walked, beside what FUSE itself can do and the directory itself.
pub fn walk(report: &mut Report, size: Size) -> Result<()> {
    let scene = Scene::new()?;
    for (count, peers) in by_files(size.pick(200, 10_000, 100_000)) {
        let count = count - count % FILES_OF_DIRECTORY;
        report.note(&format!("mount.find and mount.du of {count} files"));
        let tree = format!("tree-{count}");
        let prepare = |dir: &Path| -> Result<()> {
            let target = dir.join(&tree);
            if target.exists() {
                return Ok(());
            }
            fs::create_dir(&target)?;
            (0..count / FILES_OF_DIRECTORY)
                .try_for_each(|n| create(&target.join(format!("d{n}")), FILES_OF_DIRECTORY).map(drop))
        };
        let walk = |program: &'static str, words: &'static [&str]| {
            let tree = &tree;
            move |dir: &Path| {
                let begun = Instant::now();
                run(Command::new(program).arg(dir.join(tree)).args(words))?;
                Ok(count as f64 / begun.elapsed().as_secs_f64())
            }
        };
        let walks =
            [("mount.find", walk("find", &["-printf", "%s %t\\n"])), ("mount.du", walk("du", &["-s"]))];
        for (name, walk) in walks {
            scene.compare(report, size, (name, "files/s"), &peers, prepare, walk)?;
            if peers.contains(&Peer::Bare) {
                let (name, peers) = (format!("{name}.warm"), [Peer::Passthrough, Peer::Bare]);
                let twice = |dir: &Path| walk(dir).and_then(|_| walk(dir));
                scene.compare(report, size, (&name, "files/s"), &peers, prepare, twice)?;
            }
        }
    }
    Ok(())
}

/// `mount.clone`: this repository cloned by git, from this machine's disk.
pub fn clone(report: &mut Report, size: Size) -> Result<()> {
    let scene = Scene::new()?;
    let source = scene.place.path().join("source.git");
    // The checkout may be another user's, and what git starts to read it heeds no option of its command line.
    let config = scene.place.path().join("gitconfig");
    fs::write(&config, "[safe]\n\tdirectory = *\n")?;
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.env("GIT_CONFIG_GLOBAL", &config).args(words);
        git
    };
    run(git(&["clone", "--quiet", "--bare", "--no-hardlinks"]).arg(crate::machine::root()).arg(&source))?;
    let work = |dir: &Path| {
        let target = dir.join(scene.fresh());
        let begun = Instant::now();
        run(git(&["clone", "--quiet", "--no-hardlinks"]).arg(&source).arg(&target))?;
        Ok(1.0 / begun.elapsed().as_secs_f64())
    };
    let peers = [&[Peer::Bare, Peer::Passthrough][..], &CHOICES[..4]].concat();
    scene.compare(report, size, ("mount.clone", "clones/s"), &peers, |_| Ok(()), work)
}

/// `mount.memory`: the most that the mount's two processes took, who serves and who keeps it for the next one, while a file
/// without bytes was read.
pub fn memory(report: &mut Report, size: Size) -> Result<()> {
    let bytes: u64 = size.pick(64 << 20, 10 << 30, 100 << 30);
    let scene = Scene::new()?;
    let file = scene.ours.at().join("sparse");
    File::create(&file)?.set_len(bytes)?;
    let rate = repeat(1, || read_whole(&file, bytes))?;
    report.alone("mount.sparse", "MB/s", &rate);
    let keeper = scene.ours.pid();
    let processes = [
        ("mount.memory", served_by(keeper)?),
        ("mount.memory.keeper", keeper),
        ("mount.memory.node", scene.node.pid()),
    ];
    for (name, process) in processes {
        report.alone(name, "MiB", &Series::of(vec![most_memory(process)?]));
    }
    Ok(())
}

/// Returns the process that serves a mount for its keeper.
fn served_by(keeper: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    Ok(children.split_whitespace().last().ok_or("the mount's keeper has nobody serve it")?.parse()?)
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
    let (source, archive) =
        (place.join(format!("source-{count}")), place.join(format!("source-{count}.tar")));
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
