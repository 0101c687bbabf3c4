//! Sockets here are real ones of this process; time is the simulator's and moves by hand, so a
//! minute without progress takes no minute.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use weft_conformance::TestTls;
use weft_core::form::{BytesSource, Door, OpenedFile, Piece, Source, Stopped, collect};
use weft_core::{CallerId, Error, ErrorKind, Result, limits};
use weft_sys::Sys;
use weft_sys::net::{More, Socket};

use super::*;

const CLASS: Class = Class { domain: None, caller: CallerId(7), door: Door::Http };
/// More than any socket buffer of a local pair takes.
const LARGE: usize = 8 << 20;

struct Stored {
    file: std::fs::File,
    descriptor: bool,
}

impl OpenedFile for Stored {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        FileExt::read_at(&self.file, buffer, at)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.then(|| self.file.as_fd())
    }
}

/// Pieces of a file, up to `length` whatever the file holds.
struct FileSource {
    file: Arc<Stored>,
    at: u64,
    length: u64,
}

#[async_trait]
impl Source for FileSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let length = (self.length - self.at).min(max as u64) as usize;
        let piece = Piece::File { file: self.file.clone(), at: self.at, length };
        self.at += length as u64;
        Ok((length > 0).then_some(piece))
    }
    fn length(&self) -> Option<u64> {
        Some(self.length - self.at)
    }
    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

fn revoked() -> Error {
    Error::new(ErrorKind::Revoked, "the right was withdrawn")
}

/// Endless bytes whose right is withdrawn when the test says so.
struct Stoppable(Arc<tokio::sync::Semaphore>);

#[async_trait]
impl Source for Stoppable {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        Ok(Some(Piece::Bytes(vec![1; max].into())))
    }
    fn length(&self) -> Option<u64> {
        None
    }
    fn stopped(&self) -> Stopped {
        let told = self.0.clone();
        Box::pin(async move {
            let _permit = told.acquire().await;
            revoked()
        })
    }
}

fn content() -> Bytes {
    (0..LARGE).map(|n| (n % 253) as u8).collect::<Vec<_>>().into()
}

fn mover(slots: usize) -> (Sys, Arc<Mover>) {
    let sys = Sys::simulated(1);
    (sys.clone(), Arc::new(Mover::with_slots(sys, slots, 4)))
}

async fn read_all(mut socket: Socket) -> Vec<u8> {
    let mut all = Vec::new();
    socket.read_to_end(&mut all).await.expect("it reads to the end");
    all
}

/// Sends to a socket whose other end is `reader`'s business. Returns the outcome.
fn send_on(
    mover: &Arc<Mover>,
    here: Socket,
    mut source: impl Source + 'static,
) -> tokio::task::JoinHandle<Result<()>> {
    let mover = mover.clone();
    tokio::spawn(async move {
        let length = source.length();
        mover.outbound(CLASS, &here, length).send(b"head", &mut source, More::Ends).await
    })
}

/// Waits until one transfer is listed and no longer moves: it waits for its reader.
async fn stuck(mover: &Mover, transfers: usize) {
    let mut last = Vec::new();
    loop {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let now: Vec<u64> = mover.transfers().iter().map(|one| one.bytes).collect();
        if now.len() == transfers && now == last && now.iter().all(|bytes| *bytes > 0) {
            return;
        }
        last = now;
    }
}

/// The same bytes in memory, in a file that can be sent from, and in one that must be read.
fn sources(bytes: &Bytes) -> [Box<dyn Source>; 3] {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("it is written");
    let stored =
        |descriptor| Arc::new(Stored { file: file.try_clone().expect("a second descriptor"), descriptor });
    let from_file = |descriptor| FileSource { file: stored(descriptor), at: 0, length: LARGE as u64 };
    [Box::new(BytesSource::new(bytes.clone())), Box::new(from_file(true)), Box::new(from_file(false))]
}

#[tokio::test]
async fn what_a_source_holds_arrives_after_its_head_from_memory_and_from_files() {
    let bytes = content();
    for mut source in sources(&bytes) {
        let (_, mover) = mover(1);
        let (here, there) = Socket::pair().expect("a pair");
        let reader = tokio::spawn(read_all(there));
        let mut outbound = mover.outbound(CLASS, &here, Some(LARGE as u64));
        outbound.send(b"head", &mut *source, More::Ends).await.expect("it is sent");
        assert_eq!(outbound.sent(), 4 + LARGE as u64);
        drop(outbound);
        drop(here);
        let got = reader.await.expect("it ends");
        assert!(got[..4] == *b"head" && got[4..] == bytes);
        assert!(mover.transfers().is_empty(), "what has ended is not listed");
    }
}

#[tokio::test]
async fn a_secured_socket_takes_the_same() {
    let tls = TestTls::new();
    let bytes = content();
    for mut source in sources(&bytes) {
        let (_, mover) = mover(1);
        let (here, mut there) = tls.pair().await;
        let reader = tokio::spawn(async move {
            let mut got = vec![0; 4 + LARGE];
            // Exactly so much, and no end: what was sent has left, whoever holds the socket.
            let reading = there.read_exact(&mut got);
            tokio::time::timeout(Duration::from_secs(20), reading)
                .await
                .expect("in time")
                .expect("all comes");
            got
        });
        let mut outbound = mover.outbound(CLASS, &here, Some(LARGE as u64));
        outbound.send(b"head", &mut *source, More::Ends).await.expect("it is sent");
        assert_eq!(outbound.sent(), 4 + LARGE as u64);
        let got = reader.await.expect("it ends");
        assert!(got[..4] == *b"head" && got[4..] == bytes);
    }
}

#[tokio::test]
async fn a_right_that_is_withdrawn_in_mid_transfer_leaves_nothing_that_looks_whole() {
    let (_, mover) = mover(1);
    let (here, mut there) = TestTls::new().pair().await;
    let tell = Arc::new(tokio::sync::Semaphore::new(0));
    let sending = send_on(&mover, here, Stoppable(tell.clone()));
    stuck(&mover, 1).await;
    let moved = mover.transfers()[0].bytes;
    tell.add_permits(1);
    assert_eq!(sending.await.expect("it ends").expect_err("revoked").kind(), ErrorKind::Revoked);
    let mut got = Vec::new();
    let error = there.read_to_end(&mut got).await.expect_err("no end was said");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(got.len() as u64 <= 4 + moved, "{} bytes came of {moved}", got.len());
}

#[tokio::test]
async fn a_file_that_shrank_is_an_error_and_not_a_shorter_file() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"short").expect("it is written");
    for descriptor in [true, false] {
        let file = Arc::new(Stored { file: file.try_clone().expect("a descriptor"), descriptor });
        let mut source = FileSource { file, at: 0, length: 9 };
        let (here, _there) = Socket::pair().expect("a pair");
        let (_, mover) = mover(1);
        let error = mover.outbound(CLASS, &here, None).send(b"", &mut source, More::Ends).await;
        assert_eq!(error.expect_err("bytes are missing").kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_source_that_ends_before_its_promise_is_an_error() {
    struct Liar(bool);
    #[async_trait]
    impl Source for Liar {
        async fn next(&mut self, _: usize) -> Result<Option<Piece>> {
            Ok(std::mem::take(&mut self.0).then(|| Piece::Bytes(Bytes::from_static(b"abc"))))
        }
        fn length(&self) -> Option<u64> {
            Some(5)
        }
        fn stopped(&self) -> Stopped {
            Box::pin(std::future::pending())
        }
    }
    let (here, _there) = Socket::pair().expect("a pair");
    let (_, mover) = mover(1);
    let error = mover.outbound(CLASS, &here, Some(5)).send(b"", &mut Liar(true), More::Ends).await;
    assert_eq!(error.expect_err("two bytes are missing").kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_reader_that_stops_is_given_up_after_the_idle_time_and_not_before() {
    let (sys, mover) = mover(1);
    let (here, _there) = Socket::pair().expect("a pair");
    let sending = send_on(&mover, here, BytesSource::new(content()));
    stuck(&mover, 1).await;
    let clock = sys.sim_clock().expect("it is simulated");
    clock.step(limits::TRANSFER_IDLE - Duration::from_secs(1));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!sending.is_finished());
    clock.step(Duration::from_secs(2));
    let error = sending.await.expect("it ends").expect_err("it must not wait for ever");
    assert_eq!(error.kind(), ErrorKind::Deadline);
}

#[tokio::test]
async fn a_withdrawn_right_ends_a_transfer_that_waits_for_its_reader() {
    let (_, mover) = mover(1);
    let (here, _there) = Socket::pair().expect("a pair");
    let tell = Arc::new(tokio::sync::Semaphore::new(0));
    let sending = send_on(&mover, here, Stoppable(tell.clone()));
    stuck(&mover, 1).await;
    tell.add_permits(1);
    assert_eq!(sending.await.expect("it ends").expect_err("revoked").kind(), ErrorKind::Revoked);
}

#[tokio::test]
async fn a_transfer_can_be_listed_and_cancelled() {
    let (_, mover) = mover(1);
    let (here, _there) = Socket::pair().expect("a pair");
    let sending = send_on(&mover, here, BytesSource::new(content()));
    stuck(&mover, 1).await;
    let status = mover.transfers()[0];
    assert_eq!((status.direction, status.length), (Direction::Outbound, Some(LARGE as u64)));
    mover.cancel(status.id).expect("it is under way");
    assert_eq!(sending.await.expect("it ends").expect_err("cancelled").kind(), ErrorKind::Unavailable);
    assert_eq!(mover.cancel(status.id).expect_err("it has ended").kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn readers_that_have_stopped_hold_no_slot() {
    let (_, mover) = mover(2);
    let tell = Arc::new(tokio::sync::Semaphore::new(0));
    let mut others = Vec::new();
    for _ in 0..8 {
        let (here, there) = Socket::pair().expect("a pair");
        others.push((send_on(&mover, here, Stoppable(tell.clone())), there));
    }
    stuck(&mover, 8).await;
    let (here, there) = Socket::pair().expect("a pair");
    let reader = tokio::spawn(read_all(there));
    let sending = send_on(&mover, here, BytesSource::new(content()));
    sending.await.expect("it ends").expect("eight stalled readers on two slots hold nobody up");
    assert_eq!(reader.await.expect("it ends").len(), 4 + LARGE);
}

#[tokio::test]
async fn inline_permits_are_bounded_by_size_and_number() {
    let (_, mover) = mover(1);
    assert!(mover.admit(limits::TRANSFER_INLINE_BYTES + 1).is_none());
    let held: Vec<_> = (0..4).map(|_| mover.admit(10).expect("four are allowed")).collect();
    assert!(mover.admit(10).is_none());
    drop(held);
    assert!(mover.admit(10).is_some());
}

/// Receives from a channel; a closed one is a sender that broke off.
struct FromChannel {
    receiver: tokio::sync::mpsc::Receiver<Option<Bytes>>,
    left: Option<u64>,
}

#[async_trait]
impl Incoming for FromChannel {
    async fn receive(&mut self, _: usize) -> Result<Option<Bytes>> {
        match self.receiver.recv().await {
            Some(bytes) => Ok(bytes),
            None => Err(Error::new(ErrorKind::Unavailable, "the sender broke off")),
        }
    }
    fn left(&self) -> Option<u64> {
        self.left
    }
}

fn never() -> Stopped {
    Box::pin(std::future::pending())
}

fn channel() -> (tokio::sync::mpsc::Sender<Option<Bytes>>, FromChannel) {
    let (send, receiver) = tokio::sync::mpsc::channel(16);
    (send, FromChannel { receiver, left: None })
}

#[tokio::test]
async fn an_upload_is_pulled_whole_or_fails() {
    let (_, mover) = mover(1);
    let (send, mut incoming) = channel();
    for bytes in [Some(Bytes::from_static(b"ab")), Some(Bytes::from_static(b"c")), None] {
        send.send(bytes).await.expect("there is room");
    }
    let mut inbound = mover.inbound(CLASS, &mut incoming, never()).expect("it begins");
    assert_eq!(collect(&mut inbound, 10).await.expect("it is whole"), "abc");
    drop(inbound);
    let (send, mut incoming) = channel();
    send.send(Some(Bytes::from_static(b"half"))).await.expect("there is room");
    drop(send);
    let mut inbound = mover.inbound(CLASS, &mut incoming, never()).expect("it begins");
    assert_eq!(collect(&mut inbound, 10).await.expect_err("half of it").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn what_was_received_is_kept_while_its_turn_is_waited_for_though_the_wait_is_given_up() {
    let (_, mover) = mover(1);
    let (send, mut incoming) = channel();
    for bytes in [Some(Bytes::from_static(b"first")), Some(Bytes::from_static(b"second")), None] {
        send.send(bytes).await.expect("there is room");
    }
    incoming.left = Some(limits::TRANSFER_INLINE_BYTES + 1);
    let mut inbound = mover.inbound(CLASS, &mut incoming, never()).expect("it begins");
    let held = mover.turns.slot().await;
    for _ in 0..2 {
        tokio::select! {
            biased;
            _ = inbound.next(10) => panic!("the only slot is taken"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(inbound.length(), Some(limits::TRANSFER_INLINE_BYTES + 1 + 5), "five of them wait here");
    assert_eq!(mover.transfers()[0].bytes, 0, "nothing has moved");
    drop(held);
    let mut got = Vec::new();
    // Whoever asks again may ask for less.
    while let Some(piece) = inbound.next(3).await.expect("it is whole") {
        let piece = piece.into_bytes().expect("it is in memory");
        assert!(piece.len() <= 3, "{piece:?} is more than was asked for");
        got.extend_from_slice(&piece);
    }
    assert_eq!(got, b"firstsecond");
    assert_eq!(mover.transfers()[0].bytes, 11, "each is counted once");
}

#[tokio::test]
async fn an_upload_whose_receiver_waits_for_something_else_holds_no_slot() {
    let (_, mover) = mover(1);
    let ((send, mut one), (send_other, mut other)) = (channel(), channel());
    for send in [&send, &send_other] {
        send.send(Some(Bytes::from_static(b"bytes"))).await.expect("there is room");
    }
    (one.left, other.left) = (Some(1 << 30), Some(1 << 30));
    let mut waits = mover.inbound(CLASS, &mut one, never()).expect("it begins");
    let mut goes_on = mover.inbound(CLASS, &mut other, never()).expect("it begins");
    waits.next(10).await.expect("it comes").expect("a piece");
    tokio::select! {
        biased;
        _ = goes_on.next(10) => panic!("the only slot is taken"),
        () = std::future::ready(()) => {}
    }
    waits.yield_turn();
    goes_on.next(10).await.expect("it comes").expect("a piece");
}

#[tokio::test]
async fn an_upload_that_stalls_or_is_withdrawn_or_cancelled_ends() {
    let (sys, mover) = mover(1);
    let pull = |stopped: Stopped| {
        let mover = mover.clone();
        let (send, mut incoming) = channel();
        let task = tokio::spawn(async move {
            let mut inbound = mover.inbound(CLASS, &mut incoming, stopped).expect("it begins");
            inbound.next(10).await.map(|_| ())
        });
        (send, task)
    };
    let listed = async || {
        while mover.transfers().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        mover.transfers()[0].id
    };
    let (_open, stalls) = pull(never());
    listed().await;
    sys.sim_clock().expect("it is simulated").step(limits::TRANSFER_IDLE + Duration::from_secs(1));
    assert_eq!(stalls.await.expect("it ends").expect_err("stalled").kind(), ErrorKind::Deadline);
    let (_open, withdrawn) = pull(Box::pin(async { revoked() }));
    assert_eq!(withdrawn.await.expect("it ends").expect_err("revoked").kind(), ErrorKind::Revoked);
    let (_open, cancelled) = pull(never());
    mover.cancel(listed().await).expect("it is under way");
    assert_eq!(cancelled.await.expect("it ends").expect_err("cancelled").kind(), ErrorKind::Unavailable);
}

/// Sends so many bytes at a time, with a pause after each, up to `times`. Returns how the upload
/// ended and how often it was sent to.
async fn upload_in_drops(bytes: usize, pause: Duration, times: u64) -> (Result<u64>, u64) {
    let (sys, mover) = mover(1);
    let (send, mut incoming) = channel();
    let pulled = {
        let mover = mover.clone();
        tokio::spawn(async move {
            let mut inbound = mover.inbound(CLASS, &mut incoming, never()).expect("it begins");
            let mut pulled = 0;
            while let Some(piece) = inbound.next(1 << 20).await? {
                pulled += piece.into_bytes()?.len() as u64;
            }
            Ok(pulled)
        })
    };
    let taken = async |bytes: u64| {
        while mover.transfers().first().is_some_and(|one| one.bytes < bytes) {
            tokio::task::yield_now().await;
        }
    };
    while mover.transfers().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut sent = 0;
    while sent < times && send.send(Some(vec![7; bytes].into())).await.is_ok() {
        sent += 1;
        taken(sent * bytes as u64).await;
        // The receiver waits again before the clock moves.
        tokio::task::yield_now().await;
        sys.sim_clock().expect("it is simulated").step(pause);
        tokio::task::yield_now().await;
    }
    let _ = send.send(None).await;
    (pulled.await.expect("it ends"), sent)
}

#[tokio::test]
async fn an_upload_that_comes_by_the_byte_ends_and_one_that_is_only_slow_does_not() {
    let pause = limits::TRANSFER_IDLE / 4;
    let (ended, sent) = upload_in_drops(1, pause, 1000).await;
    assert_eq!(ended.expect_err("it is no progress").kind(), ErrorKind::Deadline);
    assert!((4..=5).contains(&sent), "after {sent} bytes");
    let least = limits::TRANSFER_PROGRESS_BYTES as usize / 2;
    let (ended, sent) = upload_in_drops(least, pause, 100).await;
    assert_eq!((ended.expect("it is slow"), sent), (100 * least as u64, 100));
}

#[tokio::test]
async fn slots_go_round_in_order_of_asking() {
    let turns = Arc::new(Turns::new(1, 0));
    let held = turns.slot().await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..5 {
        let (turns, order) = (turns.clone(), order.clone());
        waiting.push(tokio::spawn(async move {
            let _slot = turns.slot().await;
            order.lock().expect("nobody panics").push(number);
        }));
        tokio::task::yield_now().await;
    }
    drop(held);
    for one in waiting {
        one.await.expect("it had its turn");
    }
    assert_eq!(*order.lock().expect("nobody panics"), [0, 1, 2, 3, 4]);
}
