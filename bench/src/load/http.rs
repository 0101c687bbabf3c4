//! A bare HTTP/1.1 client over a kept connection: enough to time GET and PUT.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::Result;

/// How long a server may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes read or written at once.
const PIECE: usize = 1 << 20;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// One connection. `headers` go with each request, each ended by `\r\n`.
pub struct Connection {
    stream: TcpStream,
    headers: String,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to the loopback `port`.
    pub fn open(port: u16, headers: &str) -> Result<Self> {
        let stream = connected(port)?;
        Ok(Self { stream, headers: headers.to_owned(), buffer: vec![0; PIECE] })
    }

    /// Fetches `path` and throws its bytes away. Returns how many there were.
    pub fn get(&mut self, path: &str) -> Result<u64> {
        self.stream.write_all(head("GET", path, &self.headers).as_bytes())?;
        let (status, length, mut had) = self.answer()?;
        if status != 200 {
            return Err(format!("GET {path}: {status}").into());
        }
        while had < length {
            match self.stream.read(&mut self.buffer)? {
                0 => return Err(format!("GET {path}: cut off after {had} of {length} bytes").into()),
                read => had += read as u64,
            }
        }
        Ok(length)
    }

    /// Asks for something that takes no body and may answer with one, which is thrown
    /// away. An answer that is no success is an error.
    pub fn ask(&mut self, method: &str, path: &str) -> Result<()> {
        self.stream.write_all(head(method, path, &self.headers).as_bytes())?;
        match self.answer()? {
            (200..=299, ..) if method == "HEAD" => Ok(()),
            (200..=299, length, had) => self.skip(length.saturating_sub(had)),
            (status, ..) => Err(format!("{method} {path}: {status}").into()),
        }
    }

    /// Stores `length` bytes, `block` again and again, under `path`; returns when the
    /// server has answered.
    pub fn put(&mut self, path: &str, block: &[u8], length: u64) -> Result<()> {
        let head = head("PUT", path, &format!("Content-Length: {length}\r\n{}", self.headers));
        let first = block.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        if length <= block.len() as u64 {
            // One packet for a small file, as clients send it.
            self.stream.write_all(&[head.as_bytes(), &block[..first]].concat())?;
        } else {
            self.stream.write_all(head.as_bytes())?;
            self.send(block, length)?;
        }
        match self.answer()? {
            (200 | 201 | 204, 0, _) => Ok(()),
            (200 | 201 | 204, length, had) => self.skip(length.saturating_sub(had)),
            (status, ..) => Err(format!("PUT {path}: {status}").into()),
        }
    }

    fn send(&mut self, block: &[u8], length: u64) -> Result<()> {
        let mut left = length;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            self.stream.write_all(&block[..part])?;
            left -= part as u64;
        }
        Ok(())
    }

    fn skip(&mut self, mut left: u64) -> Result<()> {
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            self.stream.read_exact(&mut self.buffer[..part])?;
            left -= part as u64;
        }
        Ok(())
    }

    /// Reads an answer's head. Returns status, length of the body, and how much of the
    /// body came with the head.
    fn answer(&mut self) -> Result<(u16, u64, u64)> {
        let mut have = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[have..])?;
            have += read;
            if let Some(end) = self.buffer[..have].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
                let (status, length) = read_head(&head).ok_or_else(|| format!("no HTTP answer: {head}"))?;
                return Ok((status, length, (have - end - 4) as u64));
            }
            if read == 0 || have > HEAD_BYTES_MAX {
                return Err("no whole HTTP answer".into());
            }
        }
    }
}

/// Returns a request's head as one text: written in pieces, each would leave in a packet of its
/// own, and XRootD, which tells protocols apart by the first packet, hangs up on half a line.
pub fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

/// Connects to the loopback `port`.
pub fn connected(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

/// A connection with one answered request.
pub fn asked(port: u16, headers: &str, path: &str) -> Result<TcpStream> {
    answered(connected(port)?, headers, path)
}

/// Asks for a small file over a connection, and returns it once that has come.
pub fn answered<S: Read + Write>(mut stream: S, headers: &str, path: &str) -> Result<S> {
    stream.write_all(head("GET", path, headers).as_bytes())?;
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer)?;
    match answer[..read].starts_with(b"HTTP/1.1 200") {
        true => Ok(stream),
        false => Err(format!("GET {path}: {}", String::from_utf8_lossy(&answer[..read.min(200)])).into()),
    }
}

/// Asks what is known of a directory with all that is in it, and counts what is told: entries and itself. Returns
/// entries a second.
pub fn propfind_rate(port: u16, headers: &str, path: &str, body: &str, entries: usize) -> Result<f64> {
    let length = body.len();
    let headers = format!("Depth: 1\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}");
    let begun = Instant::now();
    let mut stream = connected(port)?;
    stream.write_all((head("PROPFIND", path, &headers) + body).as_bytes())?;
    let mut answer = Vec::with_capacity(8 << 20);
    stream.read_to_end(&mut answer)?;
    let took = begun.elapsed().as_secs_f64();
    const RESPONSE: &[u8] = b"</D:response>";
    let told =
        unchunked(&answer).map(|body| body.windows(RESPONSE.len()).filter(|at| *at == RESPONSE).count());
    match answer.starts_with(b"HTTP/1.1 207") && told == Some(entries + 1) {
        true => Ok(entries as f64 / took),
        false => Err(format!("PROPFIND {path}: {told:?} of {entries} entries were told").into()),
    }
}

/// Returns the body of a whole answer that came in chunks; `None` if it is none.
fn unchunked(answer: &[u8]) -> Option<Vec<u8>> {
    let line_of = |rest: &[u8]| rest.windows(2).position(|two| two == b"\r\n");
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (mut rest, mut body) = (&answer[head + 4..], Vec::with_capacity(answer.len()));
    loop {
        let end = line_of(rest)?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?.trim(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + length)?);
        rest = rest.get(end + length + 4..)?;
    }
}

fn read_head(head: &str) -> Option<(u16, u64)> {
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    Some((status, length.map_or(Some(0), |length| length.trim().parse().ok())?))
}

/// Fetches `path` once on each of `connections` connections at once; returns MB/s (10⁶
/// bytes) of all together.
pub fn get_rate(port: u16, headers: &str, path: &str, connections: usize) -> Result<f64> {
    let mut open: Vec<Connection> =
        (0..connections).map(|_| Connection::open(port, headers)).collect::<Result<_>>()?;
    let start = Instant::now();
    let bytes = std::thread::scope(|scope| {
        let fetches: Vec<_> = open
            .iter_mut()
            .map(|one| scope.spawn(move || one.get(path).map_err(|why| why.to_string())))
            .collect();
        fetches
            .into_iter()
            .map(|fetch| fetch.join().expect("a fetch does not panic"))
            .sum::<std::result::Result<u64, _>>()
    })?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// Stores `length` bytes once under `path`; returns MB/s.
pub fn put_rate(port: u16, headers: &str, path: &str, block: &[u8], length: u64) -> Result<f64> {
    let mut connection = Connection::open(port, headers)?;
    let start = Instant::now();
    connection.put(path, block, length)?;
    Ok(length as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// Stores `count` files of `block`'s size under `prefix` and a number, over
/// `connections` kept connections; returns files per second.
pub fn put_many(
    port: u16,
    headers: &str,
    prefix: &str,
    block: &[u8],
    count: usize,
    connections: usize,
) -> Result<f64> {
    let mut open: Vec<Connection> =
        (0..connections).map(|_| Connection::open(port, headers)).collect::<Result<_>>()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let stores: Vec<_> = open
            .iter_mut()
            .enumerate()
            .map(|(which, one)| {
                scope.spawn(move || {
                    (which..count).step_by(connections).try_for_each(|number| {
                        one.put(&format!("{prefix}{number}"), block, block.len() as u64)
                            .map_err(|why| why.to_string())
                    })
                })
            })
            .collect();
        stores.into_iter().try_for_each(|store| store.join().expect("a store does not panic"))
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_length_has_no_body_and_nonsense_is_no_answer() {
        assert_eq!(read_head("http/1.1 201 created"), Some((201, 0)));
        assert_eq!(read_head("http/1.1 200 ok\r\ncontent-length: 17"), Some((200, 17)));
        assert_eq!(read_head("http/1.1 200 ok\r\ncontent-length: x"), None);
        assert_eq!(read_head("hello"), None);
    }
}
