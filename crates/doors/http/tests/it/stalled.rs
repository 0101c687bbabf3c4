//! Readers that stop, rights that go, and thousands who only sit there.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft_conformance::run::{have, not_run};
use weft_core::form::{At, Expect, FileSystem, Guard, Want};
use weft_core::limits;
use weft_core::service::Revoke;
use weft_doors_listener::Bounds;
use weft_sys::{SimClock, Sys};

use crate::beside::Beside;
use crate::house::{House, PASSWORD, at};
use crate::raw::{Raw, basic};

const LARGE: usize = 32 << 20;

/// Asks for a large file and reads none of it.
async fn stall(house: &House, field: &str) -> Raw {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(8 << 10).expect("a small buffer");
    let stream = socket.connect(house.address).await.expect("it connects");
    let mut raw = Raw::over(stream).await;
    raw.send(format!("GET /large HTTP/1.1\r\nHost: localhost\r\n{field}\r\n")).await;
    raw
}

async fn transfers(house: &House, count: usize) {
    let all_there = async {
        while house.mover.transfers().len() != count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all_there).await.expect("they come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stopped_is_reset_when_its_right_goes() {
    let house = House::open().await;
    house.put("large", vec![7; LARGE]).await;
    let claims = house.domain.claims("alice");
    let token = house.domain.credential(&claims).to_token();
    let mut raw = stall(&house, &format!("Authorization: Bearer {token}\r\n")).await;
    transfers(&house, 1).await;
    let revoked = std::time::Instant::now();
    house.authority_revoke(&Revoke::Credential(claims.id)).await;
    transfers(&house, 0).await;
    assert!(revoked.elapsed() < Duration::from_secs(1), "{:?}", revoked.elapsed());
    let mut all = Vec::new();
    let error = raw.stream.read_to_end(&mut all).await.expect_err("never a clean end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(all.len() < LARGE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_stalls_ends_when_its_right_goes() {
    let house = House::open().await;
    let claims = house.domain.claims("alice");
    let token = house.domain.credential(&claims).to_token();
    let mut raw = Raw::connect(house.address).await;
    raw.send(format!(
        "PUT /f HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\nabc"
    ))
    .await;
    transfers(&house, 1).await;
    house.authority_revoke(&Revoke::Credential(claims.id)).await;
    assert_eq!(raw.answer(false).await.status, 401);
    assert_eq!(house.read("f").await, None);
}

/// Bytes that were moved of the one transfer there is.
async fn moved(house: &House, bytes: u64) {
    let there = async {
        while house.mover.transfers().first().map(|transfer| transfer.bytes) != Some(bytes) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), there).await.expect("it is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_fast_sender_brings_before_it_pauses_is_taken_and_so_is_the_rest() {
    const FAST: usize = 12 << 20;
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let (auth, length) = (basic("alice", PASSWORD), 2 * FAST + 7);
    raw.send(format!("PUT /f HTTP/1.1\r\nHost: localhost\r\n{auth}Content-Length: {length}\r\n\r\n")).await;
    let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
    raw.send(&bytes[..FAST + 100]).await;
    moved(&house, FAST as u64 + 100).await;
    raw.send(&bytes[FAST + 100..FAST + 101]).await;
    moved(&house, FAST as u64 + 101).await;
    raw.send(&bytes[FAST + 101..]).await;
    assert_eq!(raw.answer(false).await.status, 201);
    assert!(house.read("f").await.expect("it is there") == bytes);
    assert_eq!(raw.alice("PUT /small", "", b"x").await.status, 201, "the next request is woken for");
}

/// A house whose clock is moved by hand, with room for one guest.
async fn narrow_house() -> (House, Arc<SimClock>) {
    let sys = Sys::simulated(1);
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let house = House::on(sys, Bounds { connections_loopback: 1, ..Bounds::default() }).await;
    (house, clock)
}

#[tokio::test]
async fn ranges_that_take_longer_than_a_call_may_are_sent_to_their_end() {
    let sys = Sys::simulated(1);
    let clock = sys.sim_clock().expect("it is simulated").clone();
    let house = House::on(sys, Bounds::default()).await;
    house.put("large", vec![7; LARGE]).await;
    let fields = format!("{}Range: bytes=0-16777215,16777217-33554431\r\n", basic("alice", PASSWORD));
    let mut raw = stall(&house, &fields).await;
    transfers(&house, 1).await;
    let (mut all, mut got, step) = (vec![0; 4 << 20], 0, limits::TRANSFER_IDLE / 2);
    let sent = || house.mover.transfers().first().map(|transfer| (transfer.id, transfer.bytes));
    // Each wait is a short one; together they are longer than a call.
    for _ in 0..=limits::CALL_DEADLINE.as_secs() / step.as_secs() {
        let before = sent();
        let goes_on = async {
            // What is read was sent long ago: only room for more has more sent.
            while sent() == before {
                got += raw.stream.read(&mut all[..64 << 10]).await.expect("it goes on");
            }
        };
        tokio::time::timeout(Duration::from_secs(20), goes_on).await.expect("there is more");
        clock.step(step);
    }
    let end = async {
        loop {
            let read = raw.stream.read(&mut all).await.expect("it is not reset");
            got += read;
            if all[..read].ends_with(b"--\r\n") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), end).await.expect("it comes to its end");
    assert!(got >= LARGE - 1, "{got}");
}

/// Sends a byte of the text before each step of the clock, until an answer comes. Returns how
/// far the clock had to go, and the status of the answer.
async fn dribble(raw: &mut Raw, clock: &SimClock, step: Duration, text: &[u8]) -> (Duration, u16) {
    let mut gone = Duration::ZERO;
    for byte in text {
        // The other end may have closed by now.
        let _ = raw.stream.write_all(&[*byte]).await;
        // What is on its way arrives before the time passes; a moment too early does no harm.
        if raw.hears(Duration::from_millis(20)).await {
            return (gone, raw.answer(false).await.status);
        }
        clock.step(step);
        gone += step;
    }
    panic!("it is never given up");
}

/// Waits until a new guest is served, where there is room for one. Returns that guest.
async fn there_is_room(house: &House) -> Raw {
    let served = async {
        loop {
            let mut guest = Raw::connect(house.address).await;
            if guest.ask("OPTIONS *", "", b"").await.status != 429 {
                return guest;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("its place is given back")
}

#[tokio::test]
async fn a_head_that_comes_by_the_byte_is_given_up_at_its_deadline_and_its_place_given_back() {
    let (house, clock) = narrow_house().await;
    let mut raw = Raw::connect(house.address).await;
    let head = b"GET /public/ HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaa";
    let (gone, status) = dribble(&mut raw, &clock, limits::HEAD_DEADLINE / 5, head).await;
    assert_eq!(status, 408);
    assert!(gone >= limits::HEAD_DEADLINE, "{gone:?}");
    clock.step(limits::HTTP_LINGER);
    drop(there_is_room(&house).await);
}

#[tokio::test]
async fn a_body_that_comes_by_the_byte_is_given_up_and_leaves_no_stage_and_no_place_behind() {
    let (length, chunked) = ("Content-Length: 1000", "Transfer-Encoding: chunked");
    for (framing, body) in [
        (length, vec![b'x'; 200]),
        (chunked, b"1\r\na\r\n".repeat(40)),
        (chunked, [&b"1;"[..], &[b'x'; 200]].concat()),
    ] {
        let (house, clock) = narrow_house().await;
        let mut raw = Raw::connect(house.address).await;
        let auth = basic("alice", PASSWORD);
        raw.send(format!("PUT /f HTTP/1.1\r\nHost: localhost\r\n{auth}{framing}\r\n\r\n")).await;
        transfers(&house, 1).await;
        assert_eq!(house.stages().await, 1);
        let (gone, status) = dribble(&mut raw, &clock, limits::TRANSFER_IDLE / 6, &body).await;
        assert_eq!(status, 408, "{framing}");
        assert!(gone >= limits::TRANSFER_IDLE, "{framing}: {gone:?}");
        assert_eq!((house.mover.transfers().len(), house.stages().await), (0, 0), "{framing}");
        assert_eq!(house.read("f").await, None);
        clock.step(limits::HTTP_LINGER);
        drop(there_is_room(&house).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_guest_who_vanished_had_open_is_closed() {
    let house = House::with(Bounds { connections_loopback: 1, ..Bounds::default() }).await;
    house.put("large", vec![7; LARGE]).await;
    let call = house.call("alice");
    let id = house.fs.walk(&call, &at("large"), Want::default()).await.expect("it is there").attr.id;
    let reader = stall(&house, &basic("alice", PASSWORD)).await;
    transfers(&house, 1).await;
    house.fs.remove(&call, &at("large"), Expect::Any, &Guard::NONE).await.expect("it is removed");
    house.fs.walk(&call, &At::id(id), Want::default()).await.expect("the reader keeps it");
    drop(reader);
    let closed = async {
        while house.fs.walk(&call, &At::id(id), Want::default()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), closed).await.expect("nobody reads it any more");
    transfers(&house, 0).await;
    // The same of one who writes.
    let mut writer = there_is_room(&house).await;
    let auth = basic("alice", PASSWORD);
    writer.send(format!("PUT /f HTTP/1.1\r\nHost: localhost\r\n{auth}Content-Length: 9\r\n\r\nabc")).await;
    transfers(&house, 1).await;
    drop(writer);
    drop(there_is_room(&house).await);
    assert_eq!((house.mover.transfers().len(), house.stages().await), (0, 0));
    let left = async {
        while house.sessions.alive() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), left).await.expect("their sessions ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_more_stalled_readers_than_slots_everything_else_goes_on() {
    let house = House::open().await;
    house.put("large", vec![7; LARGE]).await;
    let count = limits::TRANSFER_SLOTS + 36;
    let mut stalled = Vec::new();
    for _ in 0..count {
        stalled.push(stall(&house, &basic("alice", PASSWORD)).await);
    }
    transfers(&house, count).await;
    let mut raw = Raw::connect(house.address).await;
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(raw.alice("HEAD /large", "", b"").await.status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "metadata waits for nobody: {:?}", begun.elapsed());
    assert_eq!(raw.alice("PUT /small", "", b"x").await.status, 201);
    assert_eq!(raw.alice("GET /large", "", b"").await.body.len(), LARGE, "bytes move as well");
}

/// Opens connections from a process of its own (each needs a descriptor at both ends) and holds
/// them until its input ends.
const SITTERS: &str = "
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for n in range(int(sys.argv[2])):
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    s.sendall(b'OPTIONS * HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
    held.append(s)
for s in held:
    assert s.recv(4096).startswith(b'HTTP/1.1 204')
print('sitting', flush=True)
sys.stdin.read()
";

#[tokio::test]
async fn ten_thousand_idle_connections_are_cheap() {
    const COUNT: usize = 10_000;
    if !have("stalled::idle", &["python3"]) {
        return;
    }
    if weft_sys::net::raise_descriptor_limit() < COUNT as u64 + 1_000 {
        return not_run("stalled::idle", "a process may not have 11 000 files open (ulimit -n)");
    }
    let beside = Beside::start(&[]);
    let address = beside.address.parse().expect("an address");
    let mut raw = Raw::connect(address).await;
    assert_eq!(raw.ask("OPTIONS *", "", b"").await.status, 204);
    let before = beside.resident_bytes();
    let port = beside.address.rsplit(':').next().expect("a port");
    let mut sitters = std::process::Command::new("python3")
        .args(["-c", SITTERS, port, &COUNT.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut heard = sitters.stdout.take().expect("piped");
    let all_sit = tokio::task::spawn_blocking(move || heard.read_exact(&mut [0; 8]));
    tokio::time::timeout(Duration::from_secs(60), all_sit)
        .await
        .expect("in time")
        .expect("it runs")
        .expect("they sit");
    let each = beside.resident_bytes().saturating_sub(before) / COUNT;
    println!("{each} bytes for each idle connection");
    assert!(each <= 6 << 10, "{each} bytes for each idle connection");
    assert_eq!(raw.ask("OPTIONS *", "", b"").await.status, 204, "others are served meanwhile");
    drop(sitters.stdin.take());
    sitters.wait().expect("they left");
    beside.stop();
}
