//! Files on their way to and from servers: several at once, and until Ctrl-C.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// A WebDAV server of one directory.
struct Crowded {
    /// What it tells of that, each time the next; the last again and again.
    listings: Vec<String>,
    told: AtomicUsize,
    /// No request for a file is answered before so many of them are under way.
    barrier: Barrier,
}

impl Crowded {
    async fn open(listings: Vec<String>, at_once: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let server = Arc::new(Self { listings, told: AtomicUsize::new(0), barrier: Barrier::new(at_once) });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, server.clone()));
            }
        });
        address
    }

    fn listing(&self) -> String {
        let number = self.told.fetch_add(1, Ordering::SeqCst).min(self.listings.len() - 1);
        listing(&self.listings[number], 0)
    }
}

async fn answer(mut stream: TcpStream, server: Arc<Crowded>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let answer = if head.starts_with(b"PROPFIND ") {
        server.listing()
    } else if head.starts_with(b"HEAD ") {
        "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned()
    } else if tokio::time::timeout(Duration::from_secs(20), server.barrier.wait()).await.is_err() {
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
    let address = runtime.block_on(Crowded::open(vec![format!("{OWN}{members}")], AT_ONCE));
    node.run(&["import", &format!("http://{address}/in/"), "/d"]).ok();
    for name in &names {
        assert_eq!(node.run(&["cat", &format!("/d/{name}")]).ok(), "x");
    }
    let address = runtime.block_on(Crowded::open(vec![OWN.to_owned()], AT_ONCE));
    let said = node.run(&["export", "--json", "/d", &format!("http://{address}/in/")]).json();
    assert_eq!(said.last().expect("a summary")["copied"], AT_ONCE);
}

#[test]
fn two_names_that_a_server_takes_for_one_are_not_taken_for_copied() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    node.sh("mkdir from; printf 1 > from/README; printf 2 > from/readme");
    node.run(&["import", "from", "/d"]).ok();
    let listings = vec![OWN.to_owned(), format!("{OWN}{}", member("README"))];
    let address = runtime.block_on(Crowded::open(listings, 2));
    node.run(&["sync", "--delete", "weft:/d", &format!("http://{address}/in/")])
        .fails(1, &["by another name", "`A` and `a`"]);
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
    let file = listing(&format!("{OWN}{}", member("x")), 0);
    let begun = vec![say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), Step::Stall];
    let out = |url: &str| words(["export", "/d", url]);
    node.run(&["mkdir", "-p", "/e/x"]).ok();
    let replacing = |url: &str| ["sync", "--delete", "weft:/e", url].map(str::to_owned).to_vec();
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
    // In the middle of a long listing.
    const MANY: usize = 3000;
    let many: String = (0..MANY).map(|number| OWN.replace("/in/", &format!("/in/{number}/"))).collect();
    let runtime = Runtime::new().expect("a runtime");
    let long = [listing(OWN, 0), listing(&format!("{OWN}{many}"), 0)].map(|answer| vec![say(answer)]);
    let server = runtime.block_on(Scripted::open(long.to_vec()));
    let mut copy = node.command();
    let mut copy = copy.args(into(&server.url::<String>("/in/"))).spawn().expect("it starts");
    let made = || node.run(&["ls", "/new"]).ok().lines().count();
    soon("it makes directories", || made() > 0);
    signal(&copy, Signal::INT);
    assert_eq!(wait(&mut copy).code(), Some(4));
    assert!(made() < MANY);
    // While what stands in the way is looked at once more.
    both(&replacing, vec![vec![say(&file)], vec![Step::Stall]]);
}
