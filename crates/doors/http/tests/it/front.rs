//! nginx in front, with kept connections behind it: what it lets through means the same here, so
//! that nobody's request is ever answered with another's.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::house::House;

struct Nginx {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
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
            .expect("nginx is installed (./test installs it)");
        let nginx = Self { child, port, _dir: dir };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return nginx;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nginx does not answer");
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
         http {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
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

/// What could make two servers disagree on where a request ends. Each hides a request for `/evil`
/// in what one of them might take for a body.
fn corpus() -> Vec<String> {
    const HIDDEN: &str = "GET /public/evil HTTP/1.1\r\nHost: localhost\r\n\r\n";
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
        HIDDEN.to_owned(),
        format!("0\r\n\r\n{HIDDEN}"),
        format!("0\r\n{HIDDEN}"),
        format!("0 \r\n\r\n{HIDDEN}"),
        format!("0;\n\r\n{HIDDEN}"),
        format!("0x0\r\n\r\n{HIDDEN}"),
        format!("00000000000000000\r\n\r\n{HIDDEN}"),
        format!("10000000000000000\r\n\r\n{HIDDEN}"),
        format!("1\r\nxx0\r\n\r\n{HIDDEN}"),
        format!("1\nx\n0\n\n{HIDDEN}"),
        format!("-0\r\n\r\n{HIDDEN}"),
        format!("0\r\nX: y\r\n\r\n{HIDDEN}"),
    ];
    let requests = framings.iter().flat_map(|framing| {
        bodies
            .iter()
            .map(move |body| format!("PUT /public/x HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n{body}"))
    });
    requests.collect()
}

/// Counts answers: a status line follows the end of another answer or starts the text.
fn answers(text: &str) -> usize {
    text.matches("HTTP/1.1 ").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_and_the_door_agree_where_each_request_ends() {
    let house = House::open().await;
    house.put("public/evil", "EVIL").await;
    house.put("public/mine", "MINE").await;
    let nginx = Nginx::before(&house).await;
    let mine = b"GET /public/mine HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for request in corpus() {
        let through = exchange(nginx.port, request.as_bytes()).await;
        // The next guest of nginx shares the connection behind it: he gets his own answer only.
        let next = exchange(nginx.port, mine).await;
        assert!(next.ends_with("MINE") && answers(&next) == 1, "after {request:?}: {next}");
        // What nginx understood as two requests is two; never does the door answer one more.
        let asked = 1 + usize::from(through.contains("EVIL"));
        assert!(answers(&through) <= asked + 1, "{request:?}: {through}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_front_the_door_answers_a_hidden_request_never_as_part_of_another() {
    let house = House::open().await;
    house.put("public/evil", "EVIL").await;
    for request in corpus() {
        let text = exchange(house.address.port(), request.as_bytes()).await;
        let evil = text.contains("EVIL");
        // The hidden request is seen only where the first one's body plainly ended before it, and
        // then the first was answered on its own and the connection was still in step.
        let clean = request.contains("Transfer-Encoding:\tchunked")
            || request.contains("_Length: 50")
            || request.contains("_Encoding: chunked");
        assert!(!evil || clean, "{request:?}: {text}");
    }
}
