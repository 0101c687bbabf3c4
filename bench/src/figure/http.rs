//! `http.*`: the HTTP door beside servers of one protocol, over files that Weft manages and, as
//! `http.export.*`, over a directory that it serves in place: the peer's own, or one like it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::Size;
use crate::Result;
use crate::count::{count, family, flushes};
use crate::load::{http, tls, wrk};
use crate::node::{Node, certificate, share};
use crate::peer::{Server, iperf, nginx, program, xrootd};
use crate::place::{Place, fill, noise};
use crate::report::{Better, Report};
use crate::rounds::{Series, alternate, repeat};

/// Bytes of one write by the load maker.
const BLOCK: usize = 1 << 20;
/// Bytes of a small upload.
const SMALL: usize = 4096;
/// Connections of the small uploads, as wrk's of the small downloads.
const CONNECTIONS: usize = 16;

/// Who keeps the files that we serve.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Weft itself.
    Managed,
    /// A directory of the machine.
    Shared,
}

impl Kept {
    /// Returns what figures of it begin with.
    fn figure(self, verb: &str) -> String {
        match self {
            Self::Managed => format!("http.{verb}"),
            Self::Shared => format!("http.export.{verb}"),
        }
    }

    /// Returns the path under which the node has a file of a peer's folder: put there, or shared with it.
    fn file(self, node: &Node, root: &Path, name: &str, bytes: u64) -> Result<String> {
        fill(&root.join(name), bytes)?;
        match self {
            Self::Managed => {
                let (path, block) = (format!("/bench/{name}"), noise(BLOCK.min(bytes as usize)));
                http::put_rate(node.port(), &line(node), &path, &block, bytes)?;
                Ok(path)
            }
            Self::Shared => {
                share(node.folder(), root, "/bench/www")?;
                Ok(format!("/bench/www/{name}"))
            }
        }
    }

    /// Returns the folder in which the bytes of such a file lie.
    fn bytes(self, node: &Node, root: &Path) -> PathBuf {
        if self == Self::Managed { node.folder().join("objects") } else { root.to_owned() }
    }

    /// Returns the path of a directory that files are put into, with its last slash.
    fn directory(self, node: &Node, place: &Place) -> Result<&'static str> {
        if self == Self::Managed {
            return Ok("/bench/");
        }
        share(node.folder(), &place.folder("shared")?, "/bench/shared")?;
        Ok("/bench/shared/")
    }
}

/// A large file, in a folder for a peer and in a node, where it has this path.
struct Large {
    place: Place,
    root: PathBuf,
    node: Node,
    bytes: u64,
    path: String,
}

impl Large {
    fn made(size: Size, kept: Kept) -> Result<Self> {
        let place = Place::new()?;
        let bytes: u64 = size.pick(4 << 20, 1 << 30, 1 << 30);
        let root = place.folder("www")?;
        let node = Node::start(place.path())?;
        let path = kept.file(&node, &root, "large", bytes)?;
        Ok(Self { place, root, node, bytes, path })
    }
}

/// `http.get.1g`: a resident file of 1 GiB over 1 and 4 connections, against nginx and XRootD,
/// and what loopback carries at most.
pub fn get_large(report: &mut Report, size: Size) -> Result<()> {
    large(report, size, Kept::Managed)
}

/// `http.export.get.1g`: the same of one file, which the peers serve as well.
pub fn get_large_shared(report: &mut Report, size: Size) -> Result<()> {
    large(report, size, Kept::Shared)
}

fn large(report: &mut Report, size: Size, kept: Kept) -> Result<()> {
    let Large { place, root, node, bytes, path: own } = Large::made(size, kept)?;
    let figure = kept.figure("get.1g");
    let peers = [("nginx", "/large".to_owned(), nginx::start(place.path(), &root, false))]
        .into_iter()
        .chain([("xrootd", root.join("large").display().to_string(), xrootd::start(place.path(), &root))]);
    let first = repeat(size.rounds(), || {
        forget(&kept.bytes(&node, &root))?;
        http::get_rate(node.port(), &line(&node), &own, 1)
    })?;
    report.alone(&format!("{figure}.first_touch"), "MB/s", &first);
    for (peer, path, server) in peers {
        let Some(server) = report.peer(&format!("{figure}.4.{peer}"), server)? else { continue };
        for connections in [1, 4] {
            let sides = alternate(
                size.rounds(),
                || http::get_rate(node.port(), &line(&node), &own, connections),
                || http::get_rate(server.port, "", &path, connections),
            )?;
            report.compare(&format!("{figure}.{connections}.{peer}"), "MB/s", Better::More, peer, &sides);
        }
        let theirs = count(&family(server.pid()), place.path(), 1, || {
            http::get_rate(server.port, "", &path, 1).map(drop)
        });
        report.counts(&figure, peer, theirs)?;
    }
    let ours = count(&[node.pid()], place.path(), 1, || {
        http::get_rate(node.port(), &line(&node), &own, 1).map(drop)
    });
    report.counts(&figure, "weft", ours)?;
    if let Some(server) = report.peer(&format!("{figure}.1.iperf3"), iperf::start())? {
        let sides = alternate(
            size.rounds(),
            || http::get_rate(node.port(), &line(&node), &own, 1),
            || iperf::rate(&server, bytes),
        )?;
        report.compare(&format!("{figure}.1.iperf3"), "MB/s", Better::More, "iperf3", &sides);
    }
    Ok(())
}

/// `http.get.1g.tls`: the same over TLS 1.3, both with one suite, one certificate, and curl; over HTTP/1.1, and over
/// HTTP/2, which curl prefers.
pub fn get_large_secured(report: &mut Report, size: Size) -> Result<()> {
    let Large { place, root, node, bytes, path } = Large::made(size, Kept::Managed)?;
    let (certificate, key) = certificate(node.folder());
    let server = nginx::start_secured(place.path(), &root, (&certificate, &key), tls::SUITE)?;
    let (port, header) = (node.https_port()?, node.header());
    let versions = [("1.1", "http.get.1g.tls"), ("2", "http.get.1g.tls.h2")];
    let ours =
        |version, connections| tls::get_rate(version, port, &certificate, &header, &path, bytes, connections);
    let theirs = |version, connections| {
        tls::get_rate(version, server.port, &certificate, "", "/large", bytes, connections)
    };
    for (version, figure) in versions {
        for connections in [1, 4] {
            let sides =
                alternate(size.rounds(), || ours(version, connections), || theirs(version, connections))?;
            report.compare(&format!("{figure}.{connections}"), "MB/s", Better::More, "nginx", &sides);
        }
    }
    // What is counted is traced, and slow for a while: after all that is timed.
    for (version, figure) in versions {
        let counts = count(&[node.pid()], place.path(), 1, || ours(version, 1).map(drop));
        report.counts(figure, "weft", counts)?;
        let counts = count(&family(server.pid()), place.path(), 1, || theirs(version, 1).map(drop));
        report.counts(figure, "nginx", counts)?;
    }
    Ok(())
}

/// Makes the machine forget the pages of every file below a folder, so that they are read from the
/// disk, and verified, again.
fn forget(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else {
            fadvise(&File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// `http.get.170k`.
pub fn get_middling(report: &mut Report, size: Size) -> Result<()> {
    get_small(report, size, Kept::Managed, ("170k", 170 << 10))
}

/// `http.get.1k`.
pub fn get_tiny(report: &mut Report, size: Size) -> Result<()> {
    get_small(report, size, Kept::Managed, ("1k", 1 << 10))
}

/// `http.export.get.170k`.
pub fn get_middling_shared(report: &mut Report, size: Size) -> Result<()> {
    get_small(report, size, Kept::Shared, ("170k", 170 << 10))
}

/// `http.export.get.1k`.
pub fn get_tiny_shared(report: &mut Report, size: Size) -> Result<()> {
    get_small(report, size, Kept::Shared, ("1k", 1 << 10))
}

/// A small resident file over 16 kept connections, ours authenticated, checked and audited,
/// nginx's open to all.
fn get_small(report: &mut Report, size: Size, kept: Kept, (name, bytes): (&str, usize)) -> Result<()> {
    let place = Place::new()?;
    let root = place.folder("www")?;
    let node = Node::start(place.path())?;
    let server = nginx::start(place.path(), &root, false)?;
    let (ours, theirs) = (kept.file(&node, &root, name, bytes as u64)?, format!("/{name}"));
    let (figure, seconds) = (kept.figure(&format!("get.{name}")), size.pick(1, 3, 10));
    let sides = alternate(
        size.rounds(),
        || wrk::rate(node.port(), &ours, Some(&node.header()), seconds),
        || wrk::rate(server.port, &theirs, None, seconds),
    )?;
    report.compare(&figure, "req/s", Better::More, "nginx", &sides);
    let fetches = 200;
    let many = |port: u16, header: String, path: &str| {
        let mut one = http::Connection::open(port, &header)?;
        (0..fetches).try_for_each(|_| one.get(path).map(drop))
    };
    let counts = count(&[node.pid()], place.path(), fetches, || many(node.port(), line(&node), &ours));
    report.counts(&figure, "weft", counts)?;
    let counts =
        count(&family(server.pid()), place.path(), fetches, || many(server.port, String::new(), &theirs));
    report.counts(&figure, "nginx", counts)
}

/// `http.put.1g`: one large upload, durable at the answer.
pub fn put_large(report: &mut Report, size: Size) -> Result<()> {
    put_one(report, size, Kept::Managed)
}

/// `http.export.put.1g`: the same into a directory that is served in place.
pub fn put_large_shared(report: &mut Report, size: Size) -> Result<()> {
    put_one(report, size, Kept::Shared)
}

fn put_one(report: &mut Report, size: Size, kept: Kept) -> Result<()> {
    let place = Place::new()?;
    let bytes: u64 = size.pick(4 << 20, 1 << 30, 1 << 30);
    let block = noise(BLOCK);
    let node = Node::start(place.path())?;
    let (figure, own) = (kept.figure("put.1g"), format!("{}large", kept.directory(&node, &place)?));
    for (peer, server) in put_peers(place.path())? {
        let sides = alternate(
            size.rounds(),
            || http::put_rate(node.port(), &line(&node), &own, &block, bytes),
            || http::put_rate(server.port, "", "/large", &block, bytes),
        )?;
        report.compare(&format!("{figure}.{peer}"), "MB/s", Better::More, peer, &sides);
        let theirs = count(&family(server.pid()), place.path(), 1, || {
            http::put_rate(server.port, "", "/large", &block, bytes).map(drop)
        });
        report.counts(&figure, peer, theirs)?;
    }
    let ours = count(&[node.pid()], place.path(), 1, || {
        http::put_rate(node.port(), &line(&node), &own, &block, bytes).map(drop)
    });
    report.counts(&figure, "weft", ours)?;
    Ok(())
}

/// `http.put.small`: 4 KiB uploads over 16 connections, each durable at its answer.
pub fn put_small(report: &mut Report, size: Size) -> Result<()> {
    put_many(report, size, Kept::Managed)
}

/// `http.export.put.small`: the same into a directory that is served in place.
pub fn put_small_shared(report: &mut Report, size: Size) -> Result<()> {
    put_many(report, size, Kept::Shared)
}

fn put_many(report: &mut Report, size: Size, kept: Kept) -> Result<()> {
    let place = Place::new()?;
    let files = size.pick(64, 10_000, 10_000);
    let block = noise(SMALL);
    let node = Node::start(place.path())?;
    let (figure, above) = (kept.figure("put.small"), kept.directory(&node, &place)?);
    let round = std::cell::Cell::new(0);
    // New names each time: a create and a replacement are different work.
    let fresh = |above: &str| {
        round.set(round.get() + 1);
        format!("{above}r{}-", round.get())
    };
    for (peer, server) in put_peers(place.path())? {
        let sides = alternate(
            size.rounds(),
            || http::put_many(node.port(), &line(&node), &fresh(above), &block, files, CONNECTIONS),
            || http::put_many(server.port, "", &fresh("/"), &block, files, CONNECTIONS),
        )?;
        report.compare(&format!("{figure}.{peer}"), "files/s", Better::More, peer, &sides);
        let some = files.min(1000);
        let counts = count(&family(server.pid()), place.path(), some as u64, || {
            http::put_many(server.port, "", &fresh("/"), &block, some, CONNECTIONS).map(drop)
        });
        report.counts(&figure, peer, counts)?;
    }
    let some = files.min(1000);
    let counts = count(&[node.pid()], place.path(), some as u64, || {
        http::put_many(node.port(), &line(&node), &fresh(above), &block, some, CONNECTIONS).map(drop)
    });
    report.counts(&figure, "weft", counts)?;
    let flushes = flushes(&[node.pid()], place.path(), files as u64, || {
        http::put_many(node.port(), &line(&node), &fresh(above), &block, files, CONNECTIONS).map(drop)
    });
    match flushes {
        Ok(per) => report.alone(&format!("{figure}.flushes"), "per PUT, untraced", &Series::of(vec![per])),
        Err(why) => report.note(&format!("flushes at full speed not there: {why}")),
    }
    Ok(())
}

/// `http.peers`: the peers alone, so that a report can be read without Weft.
pub fn peers(report: &mut Report, size: Size) -> Result<()> {
    let place = Place::new()?;
    let bytes: u64 = size.pick(4 << 20, 1 << 30, 1 << 30);
    let (block, small) = (noise(BLOCK), noise(SMALL));
    let root = place.folder("www")?;
    fill(&root.join("large"), bytes)?;
    let server = nginx::start(place.path(), &root, false)?;
    for connections in [1, 4] {
        let series = repeat(size.rounds(), || http::get_rate(server.port, "", "/large", connections))?;
        report.alone(&format!("http.peers.get.1g.{connections}.nginx"), "MB/s", &series);
    }
    if let Some(server) = report.peer("http.peers.get.1g.1.xrootd", xrootd::start(place.path(), &root))? {
        let path = root.join("large").display().to_string();
        let series = repeat(size.rounds(), || http::get_rate(server.port, "", &path, 1))?;
        report.alone("http.peers.get.1g.1.xrootd", "MB/s", &series);
    }
    for (peer, server) in put_peers(place.path())? {
        let series = repeat(size.rounds(), || http::put_rate(server.port, "", "/large", &block, bytes))?;
        report.alone(&format!("http.peers.put.1g.{peer}"), "MB/s", &series);
        let files = size.pick(64, 10_000, 10_000);
        let series =
            repeat(size.rounds(), || http::put_many(server.port, "", "/small-", &small, files, CONNECTIONS))?;
        report.alone(&format!("http.peers.put.small.{peer}"), "files/s", &series);
        let counts = count(&family(server.pid()), place.path(), 64, || {
            http::put_many(server.port, "", "/counted-", &small, 64, CONNECTIONS).map(drop)
        });
        report.counts("http.peers.put.small", peer, counts)?;
    }
    Ok(())
}

/// The servers an upload is compared with: both durable at the answer.
fn put_peers(place: &Path) -> Result<Vec<(&'static str, Server)>> {
    let folder = place.join("put-c");
    std::fs::create_dir_all(&folder)?;
    let port = crate::machine::free_port()?;
    let mut command = std::process::Command::new(program::program("put", &[])?);
    let least = Server::start(command.arg(port.to_string()).arg(&folder), port)?;
    let root = place.join("put-nginx");
    std::fs::create_dir_all(&root)?;
    Ok(vec![("put.c", least), ("nginx-synced", nginx::start(place, &root, true)?)])
}

fn line(node: &Node) -> String {
    format!("{}\r\n", node.header())
}
