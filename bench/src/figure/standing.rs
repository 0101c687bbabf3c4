//! `idle` and `start`: what a node costs while nobody asks, and how soon it answers
//! after it was killed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Size;
use super::kv::{arguments, rate};
use crate::Result;
use crate::count::{count, family};
use crate::load::{http, tls};
use crate::node::{Node, certificate, https_port, up};
use crate::peer::nginx;
use crate::place::{Place, noise};
use crate::report::{Better, Report};
use crate::rounds::Series;

/// Bytes of the files that fill a store before a start: they live in the metadata.
const TINY: usize = 64;
/// Connections and callers that fill it.
const FILLERS: usize = 64;
/// How long a server at rest is watched.
const REST: Duration = Duration::from_secs(3);
/// Files made before a kill whose rows are not all in the tree: about what is folded at once.
const UNFINISHED: usize = 6000;
/// Files that make ten million rows: each has its inode, its bytes, its entry by name and by cookie,
/// and the way back to its directory.
const FILLED: u64 = 2_000_000;

/// What a server that was just started costs while nobody asks.
struct AtRest {
    /// MiB of all its processes.
    memory: f64,
    threads: f64,
    /// KiB for each connection that says nothing.
    connection: f64,
    /// The same of one that is secured.
    secured: f64,
}

/// `idle`: memory and threads at rest, and memory for each idle connection, beside nginx. Each
/// sample is of a server that was started for it: memory that was taken once is seldom given back.
pub fn idle(report: &mut Report, size: Size) -> Result<()> {
    let place = Place::new()?;
    let root = place.folder("www")?;
    std::fs::write(root.join("tiny"), noise(TINY))?;
    let node = Node::start(place.path())?;
    let (header, folder) = (format!("{}\r\n", node.header()), node.folder().to_owned());
    http::put_rate(node.port(), &header, "/bench/tiny", &noise(TINY), TINY as u64)?;
    drop(node.into_server());
    let (certificate, key) = certificate(&folder);
    let client = tls::trusting(&certificate)?;
    let connections = size.pick(50, 10_000, 10_000);
    allow_files(connections as u64 + 1000)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds() {
        let node = up(&folder)?;
        let mut rest = at_rest(&[node.pid()], node.port, &header, "/bench/tiny", connections)?;
        drop(node);
        // In a process of its own: what plain connections took would be taken again.
        let node = up(&folder)?;
        let ask = || tls::asked(&client, https_port(&folder)?, &header, "/bench/tiny");
        rest.secured = per_connection(&[node.pid()], connections, ask)?;
        drop(node);
        ours.push(rest);
        let server = nginx::start(place.path(), &root, false)?;
        let mut rest = at_rest(&family(server.pid()), server.port, "", "/tiny", connections)?;
        drop(server);
        let server = nginx::start_secured(place.path(), &root, (&certificate, &key), tls::SUITE)?;
        let ask = || tls::asked(&client, server.port, "", "/tiny");
        rest.secured = per_connection(&family(server.pid()), connections, ask)?;
        theirs.push(rest);
    }
    let series = |side: &[AtRest], what: fn(&AtRest) -> f64| Series::of(side.iter().map(what).collect());
    report.alone("idle.memory.weft", "MiB", &series(&ours, |rest| rest.memory));
    report.alone("idle.memory.nginx", "MiB", &series(&theirs, |rest| rest.memory));
    report.alone("idle.threads.weft", "threads", &series(&ours, |rest| rest.threads));
    let sides = (series(&ours, |rest| rest.connection), series(&theirs, |rest| rest.connection));
    report.compare(&format!("idle.connection.{connections}"), "KiB", Better::Less, "nginx", &sides);
    let sides = (series(&ours, |rest| rest.secured), series(&theirs, |rest| rest.secured));
    report.compare(&format!("idle.connection.tls.{connections}"), "KiB", Better::Less, "nginx", &sides);
    // What is done in a second in which nobody asks for anything.
    let rest = || {
        std::thread::sleep(REST);
        Ok(())
    };
    let node = up(&folder)?;
    report.counts("idle.second", "weft", count(&[node.pid()], place.path(), REST.as_secs(), rest))?;
    let server = nginx::start(place.path(), &root, false)?;
    report.counts("idle.second", "nginx", count(&family(server.pid()), place.path(), REST.as_secs(), rest))
}

/// Measures a server at rest, after one request to it.
fn at_rest(pids: &[u32], port: u16, headers: &str, path: &str, connections: usize) -> Result<AtRest> {
    drop(http::asked(port, headers, path)?);
    let mut threads = 0;
    for pid in pids {
        threads += std::fs::read_dir(format!("/proc/{pid}/task"))?.count();
    }
    let (memory, threads) = (kib(pids, "Rss")? / 1024.0, threads as f64);
    let connection = per_connection(pids, connections, || http::asked(port, headers, path))?;
    Ok(AtRest { memory, threads, connection, secured: 0.0 })
}

/// `start`: from `weft up` after kill -9 to the first answered request, with an almost
/// empty store and with a filled one.
pub fn start(report: &mut Report, size: Size) -> Result<()> {
    let most = size.pick(FILLERS, UNFINISHED, UNFINISHED);
    for (name, files, unfinished) in [("small", 0, FILLERS), ("filled", size.pick(640, FILLED, FILLED), most)]
    {
        let place = Place::new()?;
        let node = Node::start(place.path())?;
        let (header, folder) = (format!("{}\r\n", node.header()), node.folder().to_owned());
        http::put_many(node.port(), &header, "/bench/f", &noise(TINY), 10, 1)?;
        let mut running = node.into_server();
        if files > 0 {
            drop(running);
            fill(&folder, files)?;
            running = up(&folder)?;
        }
        let mut times = Vec::new();
        for _ in 0..=size.rounds() {
            // Something unfinished to recover from.
            http::put_many(running.port, &header, "/bench/g", &noise(TINY), unfinished, FILLERS)?;
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

/// Makes files in a node that is not running, without its doors: they would take an hour.
fn fill(folder: &Path, files: u64) -> Result<()> {
    let mut side = Command::new(std::env::current_exe()?);
    side.args(["side", "form"]).arg(folder);
    rate(&mut arguments(side, "create", FILLERS as u64, files, FILLERS as u64)).map(drop)
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

/// Opens connections that each made one request and then say nothing; returns KiB each. The first
/// is no part of it: it takes what all of them share.
fn per_connection<C>(pids: &[u32], count: usize, ask: impl Fn() -> Result<C>) -> Result<f64> {
    drop(ask()?);
    let before = kib(pids, "Pss")?;
    let open = (0..count).map(|_| ask()).collect::<Result<Vec<_>>>()?;
    let after = kib(pids, "Pss")?;
    drop(open);
    Ok((after - before).max(0.0) / count as f64)
}

/// A connection with one answered request, without the load maker's own buffers.
fn allow_files(count: u64) -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < count) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: now.maximum })?;
    }
    Ok(())
}
