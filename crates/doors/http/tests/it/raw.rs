//! A client that sends exactly what it is told to and reads exactly what comes.

use std::net::SocketAddr;
use std::time::Duration;

use data_encoding::BASE64;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::house::PASSWORD;
use crate::secured;

pub struct Raw {
    pub stream: Box<dyn Stream>,
    held: Vec<u8>,
}

/// What a request is sent on, plain or secured.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// Returns each value of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let found = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.expect("it connects")).await
    }

    /// Speaks on a connection that was made otherwise, secured where all are.
    pub async fn over(stream: TcpStream) -> Self {
        let stream: Box<dyn Stream> = match secured::tls() {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(stream).await.expect("they shake hands")),
        };
        Self { stream, held: Vec::new() }
    }

    /// Returns whether anything comes within a while, the end included. What comes is kept.
    pub async fn hears(&mut self, within: Duration) -> bool {
        let before = self.held.len();
        let read = tokio::time::timeout(within, self.stream.read_buf(&mut self.held)).await;
        self.held.len() > before || read.is_ok()
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("it is sent");
        self.stream.flush().await.expect("it is sent");
    }

    /// Sends a request with a method, target, further field lines and a body, and reads the answer.
    pub async fn ask(&mut self, line: &str, fields: &str, body: &[u8]) -> Answer {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n")).await;
        self.send(body).await;
        self.answer(line.starts_with("HEAD")).await
    }

    /// The same as alice.
    pub async fn alice(&mut self, line: &str, fields: &str, body: &[u8]) -> Answer {
        self.ask(line, &format!("{}{fields}", basic("alice", PASSWORD)), body).await
    }

    /// Reads an answer.
    pub async fn answer(&mut self, to_head: bool) -> Answer {
        tokio::time::timeout(Duration::from_secs(20), self.read_answer(to_head))
            .await
            .expect("it answers in time")
    }

    async fn read_answer(&mut self, to_head: bool) -> Answer {
        let end = loop {
            if let Some(at) = self.held.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more().await,
                "the connection ended before an answer: {:?}",
                self.held.escape_ascii().to_string()
            );
        };
        let head = String::from_utf8(self.held.drain(..end).collect()).expect("a head is text");
        let mut lines = head.trim_end().split("\r\n");
        let status =
            lines.next().expect("a line").split(' ').nth(1).expect("a status").parse().expect("a number");
        let fields: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").expect("a field"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut answer = Answer { status, fields, body: Vec::new() };
        if !to_head && status != 204 && status != 304 && status >= 200 {
            self.read_body(&mut answer).await;
        }
        answer
    }

    async fn read_body(&mut self, answer: &mut Answer) {
        if let Some(length) = answer.field("Content-Length") {
            let length = length.parse().expect("a number");
            while self.held.len() < length {
                assert!(self.more().await, "the body broke off");
            }
            answer.body = self.held.drain(..length).collect();
        } else if answer.field("Transfer-Encoding") == Some("chunked") {
            loop {
                let line = self.line().await;
                let size = usize::from_str_radix(&line, 16).expect("a size");
                while self.held.len() < size + 2 {
                    assert!(self.more().await, "the body broke off");
                }
                answer.body.extend(self.held.drain(..size));
                self.held.drain(..2);
                if size == 0 {
                    return;
                }
            }
        } else {
            while self.more().await {}
            answer.body = std::mem::take(&mut self.held);
        }
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.held.windows(2).position(|window| window == b"\r\n") {
                let line = String::from_utf8(self.held.drain(..at).collect()).expect("text");
                self.held.drain(..2);
                return line;
            }
            assert!(self.more().await, "the body broke off");
        }
    }

    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.held).await.expect("it is not reset") > 0
    }

    /// Returns whether the other end has closed the connection, cleanly or not, with nothing
    /// unread before that.
    pub async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_secs(20), self.stream.read(&mut byte)).await;
        self.held.is_empty() && !matches!(read.expect("it closes in time"), Ok(1))
    }
}

/// Returns the line that proves a user by password.
pub fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64.encode(format!("{user}:{password}").as_bytes()))
}
