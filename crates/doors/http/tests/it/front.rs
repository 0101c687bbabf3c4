//! nginx in front, with kept connections behind it: what it lets through means the same here, so
//! that nobody's request is ever answered with another's.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weft_conformance::run::have;

use crate::house::House;

struct Nginx {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

/// A request as nginx understood and answered it.
#[derive(Debug)]
struct Understood {
    /// Its first line.
    line: String,
    /// A later one's is higher.
    connection: u64,
    /// 499 if whoever asked had gone: then there was no answer.
    status: String,
    /// What the door said to it; `-` if it was not asked.
    of_door: String,
}

impl Nginx {
    async fn before(house: &House) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("it has one")
            .port();
        let config = dir.path().join("nginx.conf");
        std::fs::write(&config, configuration(dir.path(), port, house)).expect("it is written");
        let child = Command::new("nginx")
            .arg("-c")
            .arg(&config)
            .arg("-p")
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let nginx = Self { child, port, dir };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return nginx;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nginx does not answer");
    }

    /// Returns what it understood on the connections since `last`, up to that of the request whose first line is
    /// `next`, and sets `last` to that. Each is written down when its connection is done with, which may be
    /// after the next one's: so it waits for as many answers as were seen.
    async fn understood(&self, last: &mut u64, next: &str, answers: usize) -> Vec<Understood> {
        let written = async {
            loop {
                let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                let all: Vec<_> = whole.map(Understood::read).collect();
                if let Some(after) = all.iter().find(|one| one.line == next).map(|one| one.connection) {
                    let between = |one: &Understood| *last < one.connection && one.connection < after;
                    let these: Vec<_> = all.into_iter().filter(between).collect();
                    if these.iter().filter(|one| one.answered()).count() >= answers {
                        *last = after;
                        return these;
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), written).await.expect("it is written down")
    }
}

impl Understood {
    fn read(line: &str) -> Self {
        let mut parts = line.trim_end().rsplitn(4, '|').map(str::to_owned);
        let mut part = || parts.next().expect("four parts");
        let (of_door, status, connection, line) = (part(), part(), part(), part());
        Self { line, connection: connection.parse().expect("a number"), status, of_door }
    }

    fn answered(&self) -> bool {
        self.status != "499"
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its worker when it is told to stop; killed, it would leave it behind.
        let _ = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

fn configuration(dir: &Path, port: u16, house: &House) -> String {
    let dir = dir.display();
    format!(
        "daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/errors; events {{ worker_connections 256; }}
         http {{ log_format understood '$request|$connection|$status|$upstream_status'; access_log {dir}/log understood; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
           uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
           upstream door {{ server {}; keepalive 1; }}
           server {{ listen 127.0.0.1:{port}; proxy_http_version 1.1; proxy_set_header Connection '';
             proxy_set_header Host localhost; proxy_request_buffering off;
             location / {{ proxy_pass http://door; }} }} }}",
        house.address
    )
}

/// Sends bytes and reads until the other end closes or falls silent.
async fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it connects");
    let _ = stream.write_all(bytes).await;
    let mut all = Vec::new();
    loop {
        let read = tokio::time::timeout(Duration::from_millis(400), stream.read_buf(&mut all)).await;
        match read {
            Ok(Ok(read)) if read > 0 => {}
            _ => return String::from_utf8_lossy(&all).into_owned(),
        }
    }
}

/// What could make two servers disagree on where a request ends. Each hides a request in what one
/// of them might take for a body; `50` stands for the length of all of that.
fn corpus(hidden: &str) -> Vec<String> {
    let framings = [
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "Content-Length: 0\r\nContent-Length: 50",
        "Content-Length: 0, 50",
        "Content-Length: +0",
        "Content-Length: 0x0",
        "Content-Length:\r\n 50",
        "Content-Length : 50",
        "Content-Length\t: 50",
        "Content-Length: 50\r\nX: y",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\x0bchunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer_Encoding: chunked",
        "Content_Length: 50",
    ];
    let bodies = [
        hidden.to_owned(),
        format!("0\r\n\r\n{hidden}"),
        format!("0\r\n{hidden}"),
        format!("0 \r\n\r\n{hidden}"),
        format!("0;\n\r\n{hidden}"),
        format!("0x0\r\n\r\n{hidden}"),
        format!("00000000000000000\r\n\r\n{hidden}"),
        format!("10000000000000000\r\n\r\n{hidden}"),
        format!("1\r\nxx0\r\n\r\n{hidden}"),
        format!("1\nx\n0\n\n{hidden}"),
        format!("-0\r\n\r\n{hidden}"),
        format!("0\r\nX: y\r\n\r\n{hidden}"),
    ];
    let request = |framing: &str, body: &String| {
        let framing = framing.replace("50", &body.len().to_string());
        format!("PUT /public/x HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n{body}")
    };
    framings.iter().flat_map(|framing| bodies.iter().map(|body| request(framing, body))).collect()
}

/// Counts answers: a status line follows the end of another answer or starts the text.
fn answers(text: &str) -> usize {
    text.matches("HTTP/1.1 ").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_and_the_door_agree_where_each_request_ends() {
    if !have("front::nginx", &["nginx"]) {
        return;
    }
    let house = House::open().await;
    house.put("public/mine", "MINE").await;
    let nginx = Nginx::before(&house).await;
    let (mut last, mut hidden_ones) = (0, 0);
    let count = corpus("").len();
    for number in 0..count {
        // Anybody may make it, so it is there if the door ever took it for a request.
        let hidden = format!("PUT /drop/{number} HTTP/1.1");
        let text = format!("{hidden}\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        let request = corpus(&text).swap_remove(number);
        let through = exchange(nginx.port, request.as_bytes()).await;
        // The next guest of nginx shares the connection behind it: he gets his own answer only.
        let mine = format!("GET /public/mine?{number} HTTP/1.1");
        let asked = format!("{mine}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let next = exchange(nginx.port, asked.as_bytes()).await;
        assert!(next.ends_with("MINE") && answers(&next) == 1, "after {request:?}: {next}");
        // One answer for each request that nginx understood, and what it did not understand as a
        // request was none for the door.
        let understood = nginx.understood(&mut last, &mine, answers(&through)).await;
        let answered = understood.iter().filter(|one| one.answered()).count();
        assert_eq!(answers(&through), answered, "{request:?}: {through}\n{understood:?}");
        let passed_on = understood.iter().any(|one| one.line == hidden && one.of_door == "201");
        let done = house.read(&format!("drop/{number}")).await.is_some();
        assert_eq!(done, passed_on, "{request:?}: {through}\n{understood:?}");
        hidden_ones += usize::from(done);
    }
    println!("{count} requests, {hidden_ones} of them two for both");
    assert!(hidden_ones > 0 && hidden_ones < count / 4, "the corpus is of both sorts: {hidden_ones}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_front_the_door_answers_a_hidden_request_never_as_part_of_another() {
    const HIDDEN: &str = "GET /public/evil HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let house = House::open().await;
    house.put("public/evil", "EVIL").await;
    for request in corpus(HIDDEN) {
        let text = exchange(house.address.port(), request.as_bytes()).await;
        let evil = text.contains("EVIL");
        // The hidden request is seen exactly where the first one's body plainly ends before it: an
        // empty one in chunks, and none at all under fields that mean nothing.
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        let before = body.strip_suffix(HIDDEN).expect("it is hidden at the end");
        let plain = match head.contains("Transfer-Encoding:\tchunked") {
            true => ["0\r\n\r\n", "0\r\nX: y\r\n\r\n"].contains(&before),
            false => head.contains('_') && before.is_empty(),
        };
        assert_eq!(evil, plain, "{request:?}: {text}");
    }
}
