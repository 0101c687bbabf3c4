//! `meta.stalled`: what metadata calls take while readers that have stopped hold everything a
//! transfer can hold, beside the same calls on the same node when nobody else is there.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use weft_core::limits::TRANSFER_SLOTS;

use super::Size;
use crate::Result;
use crate::count::count;
use crate::load::http::{self, Connection};
use crate::node::Node;
use crate::place::{Place, noise};
use crate::report::{Better, Report};
use crate::rounds::alternate;

/// Readers for each slot there is: the slots cannot be enough.
const READERS_PER_SLOT: usize = 2;
/// Bytes of what they read: far more than the kernel keeps for one connection.
const LARGE: u64 = 32 << 20;
/// Bytes a reader's end may hold, so that it is full soon.
const HELD: usize = 16 << 10;
/// Files in the directory that is listed.
const LISTED: usize = 100;
/// How long the readers may take until no more bytes come to them.
const STALL_MAX: Duration = Duration::from_secs(20);
/// How long nothing may have come to any of them.
const STILL: Duration = Duration::from_millis(100);

/// Connections that make a round's calls, one after the other: which cores a connection's two
/// ends run on doubles the time of a call or halves it.
const CONNECTIONS: usize = 10;

/// A metadata call, made `calls` times on each connection of a round.
struct Kind {
    name: &'static str,
    calls: usize,
    ask: fn(&mut Connection, u64) -> Result<()>,
}

/// `meta.stalled`: the time of one call with every slot's worth of stopped readers, and without.
pub fn measure(report: &mut Report, size: Size) -> Result<()> {
    let place = Place::new()?;
    let node = Node::start(place.path())?;
    let header = format!("{}\r\n", node.header());
    http::put_rate(node.port(), &header, "/bench/large", &noise(1 << 20), LARGE)?;
    Connection::open(node.port(), &header)?.ask("MKCOL", "/bench/d")?;
    http::put_many(node.port(), &header, "/bench/d/f", &noise(64), LISTED, 8)?;
    let calls = size.pick(2, 100, 500);
    let kinds = [
        Kind { name: "stat", calls, ask: |to, _| to.ask("HEAD", "/bench/d/f0") },
        // The page is made and not sent: what is sent is no metadata.
        Kind { name: "list", calls, ask: |to, _| to.ask("HEAD", "/bench/d/") },
        Kind { name: "create", calls, ask: |to, number| to.ask("MKCOL", &format!("/bench/n{number}")) },
    ];
    let readers = TRANSFER_SLOTS * READERS_PER_SLOT;
    report.note(&format!("{readers} readers of {LARGE} bytes have stopped; a ratio of 0.5 is to be reached"));
    let number = Cell::new(0_u64);
    for Kind { name, calls, ask } in kinds {
        let round = || -> Result<f64> {
            let mut taken = Duration::ZERO;
            for _ in 0..CONNECTIONS {
                let mut connection = Connection::open(node.port(), &header)?;
                let begun = Instant::now();
                for _ in 0..calls {
                    number.set(number.get() + 1);
                    ask(&mut connection, number.get())?;
                }
                taken += begun.elapsed();
            }
            Ok(taken.as_secs_f64() * 1e6 / (calls * CONNECTIONS) as f64)
        };
        let sides = alternate(
            size.rounds(),
            || {
                let stopped = Stopped::readers(node.port(), &header, "/bench/large", readers)?;
                let time = round();
                stopped.are_still()?;
                time
            },
            round,
        )?;
        let name = format!("meta.stalled.{name}");
        report.compare(&name, "us", Better::Less, "idle", &sides);
        let stopped = Stopped::readers(node.port(), &header, "/bench/large", readers)?;
        let counts = count(&[node.pid()], place.path(), (calls * CONNECTIONS) as u64, || round().map(drop));
        drop(stopped);
        report.counts(&name, "weft", counts)?;
        let counts = count(&[node.pid()], place.path(), (calls * CONNECTIONS) as u64, || round().map(drop));
        report.counts(&name, "idle", counts)?;
    }
    Ok(())
}

/// Readers that have stopped: each began to fetch a file and takes no more of it.
struct Stopped(Vec<TcpStream>);

impl Stopped {
    /// Makes `count` of them and waits until no more bytes come to any.
    fn readers(port: u16, headers: &str, path: &str, count: usize) -> Result<Self> {
        let stopped = Self((0..count).map(|_| begin(port, headers, path)).collect::<Result<_>>()?);
        let until = Instant::now() + STALL_MAX;
        loop {
            let before = stopped.waiting()?;
            std::thread::sleep(STILL);
            if stopped.waiting()? == before {
                return Ok(stopped);
            }
            if Instant::now() > until {
                return Err("bytes go on coming to readers that take none".into());
            }
        }
    }

    /// Fails if one was cut off: then it held nothing.
    fn are_still(&self) -> Result<()> {
        match self.waiting()?.contains(&0) {
            true => Err("a reader that had stopped was cut off meanwhile".into()),
            false => Ok(()),
        }
    }

    /// Bytes that each has not taken.
    fn waiting(&self) -> Result<Vec<u64>> {
        self.0.iter().map(|reader| Ok(ioctl_fionread(reader)?)).collect()
    }
}

fn begin(port: u16, headers: &str, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    set_socket_recv_buffer_size(&stream, HELD)?;
    stream.set_read_timeout(Some(STALL_MAX))?;
    stream.write_all(http::head("GET", path, headers).as_bytes())?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    match status == *b"HTTP/1.1 200" {
        true => Ok(stream),
        false => Err(format!("GET {path}: {}", String::from_utf8_lossy(&status)).into()),
    }
}
