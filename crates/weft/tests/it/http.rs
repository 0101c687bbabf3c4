//! HTTP as plain as it gets: a socket, a head, a body, a connection for each request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// More than any single answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node's HTTP door, as somebody or as nobody.
#[derive(Clone)]
pub struct Http {
    address: SocketAddr,
    authorization: Option<String>,
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the body was as long as its head said.
    pub whole: bool,
}

impl Http {
    pub fn new(address: SocketAddr, token: Option<&str>) -> Self {
        Self { address, authorization: token.map(|token| format!("Bearer {token}")) }
    }

    /// The same with a password.
    pub fn basic(address: SocketAddr, user: &str, password: &str) -> Self {
        let pair = data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes());
        Self { address, authorization: Some(format!("Basic {pair}")) }
    }

    /// Opens a connection and sends a head; the target is sent as it is.
    pub fn begin(&self, method: &str, target: &str, fields: &[&str]) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).expect("the node listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        socket.set_write_timeout(Some(PATIENCE)).expect("a time");
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if let Some(authorization) = &self.authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        for field in fields {
            head.push_str(&format!("{field}\r\n"));
        }
        head.push_str("\r\n");
        // The answer may come before all of it is read.
        let _ = socket.write_all(head.as_bytes());
        socket
    }

    /// Sends a request and reads the answer.
    pub fn ask(&self, method: &str, target: &str, fields: &[&str], body: &[u8]) -> Answer {
        let length = format!("Content-Length: {}", body.len());
        let mut fields = fields.to_vec();
        if !body.is_empty() || method == "PUT" {
            fields.push(&length);
        }
        let mut socket = self.begin(method, target, &fields);
        let _ = socket.write_all(body);
        answer(socket)
    }

    pub fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, &[], b"")
    }

    pub fn put(&self, target: &str, body: &[u8]) -> Answer {
        self.ask("PUT", target, &[], body)
    }

    pub fn delete(&self, target: &str) -> Answer {
        self.ask("DELETE", target, &[], b"")
    }

    /// Returns the bytes at a path; fails unless there are some.
    #[track_caller]
    pub fn bytes(&self, target: &str) -> Vec<u8> {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert!(answer.whole, "{target}: the answer broke off");
        answer.body
    }

    /// Returns a directory's names.
    #[track_caller]
    pub fn names(&self, target: &str) -> Vec<String> {
        let answer = self.get(&format!("{target}?format=json"));
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        let listing: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        let entries = listing["entries"].as_array().expect("entries");
        entries.iter().map(|e| e["name"].as_str().expect("a name").to_owned()).collect()
    }
}

impl Answer {
    /// Returns the body as text.
    pub fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// Reads an answer to its end.
pub fn answer(mut socket: TcpStream) -> Answer {
    let mut all = Vec::new();
    // A reset after the answer leaves what was read.
    let clean = socket.read_to_end(&mut all).is_ok();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(all.len());
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut body = all.get(end + 4..).unwrap_or_default().to_vec();
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let mut whole = clean;
    if field("transfer-encoding:").is_some() {
        (body, whole) = unchunk(&body);
    } else if let Some(length) = field("content-length:").and_then(|length| length.parse::<usize>().ok()) {
        whole = body.len() == length;
    }
    Answer { status, head, body, whole }
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return (body, false) };
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let Some(size) = size else { return (body, false) };
        if size == 0 {
            return (body, true);
        }
        let (start, stop) = (end + 2, end + 2 + size);
        if rest.len() < stop + 2 {
            return (body, false);
        }
        body.extend_from_slice(&rest[start..stop]);
        rest = &rest[stop + 2..];
    }
}
