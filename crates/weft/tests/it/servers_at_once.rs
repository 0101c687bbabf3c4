//! Files on their way to and from servers: several at once, and until Ctrl-C.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use weft_conformance::scripted::{Scripted, Step, say};

use crate::interrupts::unfinished;
use crate::node::{Node, Said, signal, soon, wait};
use crate::servers::{OWN, listing};

/// Files that are copied at once.
const AT_ONCE: usize = 8;

/// Opens a WebDAV server of one directory that holds `members`, and answers none of so many requests for files
/// before all of them are under way.
async fn crowded(members: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (members, barrier) = (Arc::new(members), Arc::new(Barrier::new(AT_ONCE)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, members.clone(), barrier.clone()));
        }
    });
    address
}

async fn answer(mut stream: TcpStream, members: Arc<String>, barrier: Arc<Barrier>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let answer = if head.starts_with(b"PROPFIND ") {
        listing(&members, 0)
    } else if head.starts_with(b"HEAD ") {
        "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned()
    } else if tokio::time::timeout(Duration::from_secs(20), barrier.wait()).await.is_err() {
        "HTTP/1.1 500 Alone\r\nContent-Length: 0\r\n\r\n".to_owned()
    } else if head.starts_with(b"PUT ") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        stream.read_u8().await?;
        "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n".to_owned()
    } else {
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_owned()
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// What a server tells of a file.
fn member(name: &str) -> String {
    OWN.replace("/in/", &format!("/in/{name}")).replace("<collection/>", "")
}

#[test]
fn files_go_to_a_server_and_come_from_one_several_at_once() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    let names: Vec<String> = (0..AT_ONCE).map(|number| format!("f{number}")).collect();
    let members: String = names.iter().map(|name| member(name)).collect();
    let address = runtime.block_on(crowded(format!("{OWN}{members}")));
    node.run(&["import", &format!("http://{address}/in/"), "/d"]).ok();
    for name in &names {
        assert_eq!(node.run(&["cat", &format!("/d/{name}")]).ok(), "x");
    }
    let address = runtime.block_on(crowded(OWN.to_owned()));
    let said = node.run(&["export", "--json", "/d", &format!("http://{address}/in/")]).json();
    assert_eq!(said.last().expect("a summary")["copied"], AT_ONCE);
}

/// Copies to or from a server that stalls at its last script, and ends that with Ctrl-C once so many have come.
fn interrupted(node: &Node, copy: impl FnOnce(&str) -> Vec<String>, scripts: Vec<Vec<Step>>) -> Said {
    let runtime = Runtime::new().expect("a runtime");
    let last = scripts.len();
    let server = runtime.block_on(Scripted::open(scripts));
    let command = &mut node.command();
    let command = command.args(copy(&server.url::<String>("/in/")));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    soon("the server is asked", || server.heads().len() >= last);
    signal(&child, Signal::INT);
    let code = wait(&mut child).code().unwrap_or(-1);
    let mut err = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
    Said { code, err, out: String::new() }
}

#[test]
fn an_interrupt_is_heard_while_a_server_says_nothing() {
    let node = Node::start();
    node.sh("mkdir from; echo 1 > from/one; echo 2 > from/two");
    node.run(&["import", "from", "/d"]).ok();
    let words = |words: [&str; 3]| words.map(str::to_owned).to_vec();
    let (empty, full) = (listing(OWN, 0), listing(&format!("{OWN}{}{}", member("one"), member("two")), 0));
    let (stalls, empty, full) = (vec![Step::Stall], vec![say(&empty)], vec![say(&full)]);
    let begun = vec![say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), Step::Stall];
    let out = |url: &str| words(["export", "/d", url]);
    let into = |url: &str| words(["import", url, "/new"]);
    let both = |which: &dyn Fn(&str) -> Vec<String>, scripts| {
        let said = interrupted(&node, which, scripts).fails(4, &["interrupted"]);
        assert_eq!(said.err.matches("error:").count(), 1, "{}", said.err);
        assert_eq!(unfinished(&node), 0, "nobody can go on with it");
    };
    // While it is asked what it has, before it takes or gives a file, and in the middle of one.
    both(&out, vec![stalls.clone()]);
    both(&out, vec![empty.clone(), stalls.clone()]);
    both(&out, vec![empty, vec![say("HTTP/1.1 100 Continue\r\n\r\n"), Step::Stall]]);
    both(&into, vec![full.clone(), stalls.clone()]);
    both(&into, vec![full.clone(), full.clone(), stalls]);
    both(&into, vec![full.clone(), full, begun]);
    assert_eq!(node.run(&["find", "/new"]).ok(), "/new\n");
}
