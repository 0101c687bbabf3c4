//! `limits`: what the machine can do at all, so that each figure can be read as a share.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::Size;
use crate::Result;
use crate::machine;
use crate::peer::program;
use crate::place::{Place, fill};
use crate::report::{Limit, Report};
use crate::rounds::repeat;

/// Bytes sent or copied at once.
const PIECE: usize = 1 << 20;
/// What one appended record holds.
const RECORD: usize = 4096;

/// How much is done to find each limit.
struct Amounts {
    /// Bytes sent, and bytes copied.
    bytes: u64,
    /// Bytes of the file that is sent.
    file: u64,
    flushes: u64,
    round_trips: u64,
}

/// The limit that needs more than a kernel: some machines lack it.
const FUSE: &str = "fuse.round_trip";

/// One limit and how it is measured, once.
type Probe<'a> = (&'static str, &'static str, Box<dyn Fn() -> Result<f64> + 'a>);

/// Measures every limit that can be had here.
pub fn measure(report: &mut Report, size: Size) -> Result<()> {
    let amounts = Amounts {
        bytes: size.pick(16 << 20, 1 << 30, 4 << 30),
        file: size.pick(16 << 20, 1 << 30, 1 << 30),
        flushes: size.pick(10, 500, 2000),
        round_trips: size.pick(200, 20_000, 100_000),
    };
    let place = Place::new()?;
    for (name, unit, once) in probes(place.path(), &amounts)? {
        let name = format!("limits.{name}");
        match repeat(size.rounds(), once) {
            Ok(series) => report.alone(&name, unit, &series),
            Err(why) if name.ends_with(FUSE) => report.missing(&name, &why.to_string())?,
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Measures the same in a second or two, to stand beside every report.
pub fn quick(size: Size) -> Result<Vec<Limit>> {
    let amounts = Amounts {
        bytes: size.pick(16 << 20, 256 << 20, 256 << 20),
        file: size.pick(16 << 20, 128 << 20, 128 << 20),
        flushes: size.pick(10, 50, 50),
        round_trips: size.pick(200, 2000, 2000),
    };
    let place = Place::new()?;
    let mut limits = Vec::new();
    for (name, unit, once) in probes(place.path(), &amounts)? {
        match repeat(size.pick(1, 3, 3), once) {
            Ok(series) => limits.push(Limit { name, unit, value: series.median() }),
            Err(_) if name == FUSE => {}
            Err(why) => return Err(why),
        }
    }
    Ok(limits)
}

fn probes<'a>(place: &'a Path, amounts: &'a Amounts) -> Result<Vec<Probe<'a>>> {
    let file = place.join("resident");
    fill(&file, amounts.file)?;
    Ok(vec![
        ("loopback.1", "MB/s", Box::new(|| loopback(1, amounts.bytes))),
        ("loopback.4", "MB/s", Box::new(|| loopback(4, amounts.bytes))),
        ("memcpy", "MB/s", Box::new(|| Ok(memcpy(amounts.bytes)))),
        ("sendfile", "MB/s", Box::new(move || sendfile(&file))),
        ("flush.append", "us", Box::new(|| append(place, amounts.flushes))),
        ("flush.new_file", "us", Box::new(|| new_file(place, amounts.flushes))),
        (FUSE, "us", Box::new(|| fuse(place, amounts.round_trips))),
    ])
}

/// MB/s over loopback TCP, each stream with a thread at either end.
fn loopback(streams: usize, bytes: u64) -> Result<f64> {
    let share = bytes / streams as u64;
    let start = Instant::now();
    let pairs = (0..streams).map(|_| pair()).collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let mut sides = Vec::new();
        for (mut from, mut to) in pairs {
            sides.push(scope.spawn(move || send(&mut from, share)));
            sides.push(scope.spawn(move || drain(&mut to, share)));
        }
        sides.into_iter().try_for_each(|side| side.join().expect("a stream's side does not panic"))
    })?;
    Ok((share * streams as u64) as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let from = TcpStream::connect(listener.local_addr()?)?;
    Ok((from, listener.accept()?.0))
}

fn send(to: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let block = vec![7; PIECE];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        to.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

fn drain(from: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let mut block = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        match from.read(&mut block)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left -= read as u64,
        }
    }
    Ok(())
}

/// MB/s of copying memory that no cache holds.
fn memcpy(bytes: u64) -> f64 {
    let from = vec![7_u8; 64 << 20];
    let mut to = vec![0_u8; 64 << 20];
    let times = (bytes / from.len() as u64).max(1);
    let start = Instant::now();
    for _ in 0..times {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
    }
    (times * from.len() as u64) as f64 / 1e6 / start.elapsed().as_secs_f64()
}

/// MB/s of a resident file into a socket that somebody drains.
fn sendfile(file: &Path) -> Result<f64> {
    let file = File::open(file)?;
    let bytes = file.metadata()?.len();
    let (to, mut from) = pair()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || drain(&mut from, bytes));
        let mut at = 0;
        while at < bytes {
            at += rustix::fs::sendfile(&to, &file, Some(&mut at.clone()), PIECE)? as u64;
        }
        reader.join().expect("the reader does not panic")
    })?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// Microseconds of one record appended to a preallocated log and flushed.
fn append(place: &Path, count: u64) -> Result<f64> {
    let log = OpenOptions::new().create(true).truncate(false).write(true).open(place.join("log"))?;
    let record = [7; RECORD];
    log.write_all_at(&vec![0; RECORD * usize::try_from(count)?], 0)?;
    log.sync_all()?;
    let start = Instant::now();
    for at in 0..count {
        log.write_all_at(&record, at * RECORD as u64)?;
        log.sync_data()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// Microseconds of a new file: written, flushed, renamed into place, the directory flushed.
fn new_file(place: &Path, count: u64) -> Result<f64> {
    let folder = place.join("files");
    std::fs::create_dir_all(&folder)?;
    let directory = File::open(&folder)?;
    let start = Instant::now();
    for _ in 0..count {
        let part = folder.join("part");
        let mut file = File::create(&part)?;
        file.write_all(&[7; RECORD])?;
        file.sync_all()?;
        std::fs::rename(&part, folder.join("whole"))?;
        directory.sync_all()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// Microseconds of a lookup answered by the least file system there can be.
fn fuse(place: &Path, count: u64) -> Result<f64> {
    let mount = place.join("mount");
    std::fs::create_dir_all(&mount)?;
    machine::program("fusermount3", "fuse3")?;
    let done =
        Command::new(program::program("fuse_null", &[])?).arg(&mount).arg(count.to_string()).output()?;
    if !done.status.success() {
        return Err(format!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim()).into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().parse()?)
}
