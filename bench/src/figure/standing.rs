//! `idle` and `start`: what a node costs while nobody asks, and how soon it answers
//! after it was killed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Size;
use crate::Result;
use crate::count::family;
use crate::load::http;
use crate::node::{Node, up};
use crate::peer::nginx;
use crate::place::{Place, noise};
use crate::report::{Better, Report};
use crate::rounds::Series;

/// Bytes of the files that fill a store before a start: they live in the metadata.
const TINY: usize = 64;
/// Connections that fill it.
const FILLERS: usize = 64;

/// `idle`: memory and threads at rest, and memory for each idle connection, beside nginx.
pub fn idle(report: &mut Report, size: Size) -> Result<()> {
    let place = Place::new()?;
    let root = place.folder("www")?;
    std::fs::write(root.join("tiny"), noise(TINY))?;
    let node = Node::start(place.path())?;
    let header = format!("{}\r\n", node.header());
    http::put_rate(node.port(), &header, "/bench/tiny", &noise(TINY), TINY as u64)?;
    let server = nginx::start(place.path(), &root, false)?;
    report.alone("idle.memory.weft", "MiB", &one(kib(&[node.pid()], "Rss")? / 1024.0));
    report.alone("idle.memory.nginx", "MiB", &one(kib(&family(server.pid()), "Rss")? / 1024.0));
    let threads = std::fs::read_dir(format!("/proc/{}/task", node.pid()))?.count();
    report.alone("idle.threads.weft", "threads", &one(threads as f64));

    let connections = size.pick(50, 10_000, 10_000);
    allow_files(connections as u64 * 2 + 1000)?;
    let ours = per_connection(&[node.pid()], node.port(), &header, "/bench/tiny", connections)?;
    let theirs = per_connection(&family(server.pid()), server.port, "", "/tiny", connections)?;
    let sides = (one(ours), one(theirs));
    report.compare(&format!("idle.connection.{connections}"), "KiB", Better::Less, "nginx", &sides);
    Ok(())
}

/// `start`: from `weft up` after kill -9 to the first answered request, with an almost
/// empty store and with a filled one.
pub fn start(report: &mut Report, size: Size) -> Result<()> {
    for (name, files) in [("small", 10), ("filled", size.pick(200, 50_000, 1_250_000))] {
        let place = Place::new()?;
        let node = Node::start(place.path())?;
        let header = format!("{}\r\n", node.header());
        http::put_many(node.port(), &header, "/bench/f", &noise(TINY), files, FILLERS)?;
        let folder = node.folder().to_owned();
        let mut running = node.into_server();
        let mut times = Vec::new();
        for _ in 0..=size.rounds() {
            // Something unfinished to recover from.
            http::put_many(running.port, &header, "/bench/g", &noise(TINY), FILLERS, FILLERS)?;
            running.kill()?;
            let begun = Instant::now();
            running = up(&folder)?;
            http::Connection::open(running.port, &header)?.get("/bench/f0")?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        report.alone(&format!("start.{name}.{files}_files"), "ms", &Series::of(times.split_off(1)));
    }
    Ok(())
}

fn one(value: f64) -> Series {
    Series::of(vec![value])
}

/// Returns what the processes hold, in KiB: `Rss` counts shared pages in full, `Pss` by
/// share.
fn kib(pids: &[u32], what: &str) -> Result<f64> {
    let mut sum = 0.0;
    for pid in pids {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        let number =
            line.and_then(|line| line.split_whitespace().next()).ok_or("no such line in smaps_rollup")?;
        sum += number.parse::<f64>()?;
    }
    Ok(sum)
}

/// Opens connections that each made one request and then say nothing; returns KiB each.
fn per_connection(pids: &[u32], port: u16, headers: &str, path: &str, count: usize) -> Result<f64> {
    let before = kib(pids, "Pss")?;
    let open = (0..count).map(|_| asked(port, headers, path)).collect::<Result<Vec<_>>>()?;
    let after = kib(pids, "Pss")?;
    drop(open);
    Ok((after - before).max(0.0) / count as f64)
}

/// A connection with one answered request, without the load maker's own buffers.
fn asked(port: u16, headers: &str, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")?;
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer)?;
    match answer[..read].starts_with(b"HTTP/1.1 200") {
        true => Ok(stream),
        false => Err(format!("GET {path}: {}", String::from_utf8_lossy(&answer[..read.min(200)])).into()),
    }
}

fn allow_files(count: u64) -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < count) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: now.maximum })?;
    }
    Ok(())
}
