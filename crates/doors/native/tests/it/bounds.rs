//! What one client may make the node hold, and what still reaches it once its right has ended, on
//! a simulated clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use weft_conformance::TestSessions;
use weft_core::attr::SetAttr;
use weft_core::form::{
    Ack, At, BytesSource, FileSystem, Guard, Lock, LockKind, LockOwner, LockScope, New, Range, Request, Want,
    Whole, Wire, WriteAt,
};
use weft_core::proof::{Caller, Signed};
use weft_core::service::Sessions;
use weft_core::{Error, ErrorKind, FileId, KeyId, Name, Rights, SessionId, TraceId, limits};
use weft_rpc::{
    AuthorityAsk, CallBody, CallHeader, FileAsk, FileRef, Frame, FrameReader, Put, ToClient, ToServer, encode,
};
use weft_sys::{Sys, simulate};

use crate::{ADMINISTRATOR, World};

const MOMENT: Duration = Duration::from_secs(1);
/// What a line in memory holds, as a socket does.
const LINE_BYTES: usize = 256 << 10;

/// A client that says what it likes.
struct Raw {
    to: WriteHalf<DuplexStream>,
    frames: FrameReader<ReadHalf<DuplexStream>>,
}

impl Raw {
    async fn greeted(world: &World, uid: u32) -> Self {
        let (from, to) = tokio::io::split(world.line_of(uid));
        let mut raw = Self { to, frames: FrameReader::new(from) };
        raw.say(&ToServer::Hello { oldest: 1, newest: 1 }).await;
        assert!(matches!(raw.hear().await, Some((ToClient::Welcome(_), _))));
        raw
    }

    async fn say(&mut self, message: &ToServer) {
        self.say_on(0, message, Bytes::new()).await;
    }

    async fn say_on(&mut self, stream: u32, message: &ToServer, payload: Bytes) {
        // The node may have hung up: what it said last shows that.
        let _ = self.to.write_all(&encode(&Frame::new(stream, message, payload))).await;
    }

    /// Returns the next message and the count of bytes behind it, or nothing once the line ends.
    async fn hear(&mut self) -> Option<(ToClient, usize)> {
        let frame = self.frames.next().await.ok()??;
        Some((frame.message().expect("the server speaks the protocol"), frame.payload.len()))
    }

    /// Whether a small call is answered.
    async fn is_served(&mut self, stream: u32) -> bool {
        let body = CallBody::Authority(AuthorityAsk::WhoAmI);
        self.say_on(stream, &ToServer::Call { header: header(1, 0), body }, Bytes::new()).await;
        matches!(self.hear().await, Some((ToClient::Reply(reply), _)) if reply.is_ok())
    }

    /// Presents a caller as 2 and begins session 1 as it.
    async fn enter(&mut self, caller: &Caller) {
        let credential = caller.signed().expect("it was verified").clone();
        self.say(&ToServer::Present { number: 2, credential }).await;
        self.say(&ToServer::Begin { session: 1, credential: 2, resume: None }).await;
        assert!(matches!(self.hear().await, Some((ToClient::Begun { outcome: Ok(_), .. }, _))));
    }
}

fn header(credential: u32, session: u32) -> CallHeader {
    let (ack, wire) = (Ack::Applied, Wire::Private);
    CallHeader { credential, session, once: None, ack, wire, trace: TraceId(1), left_ms: 30_000 }
}

/// Makes a file of so many bytes.
async fn file_of(world: &World, bytes: usize) -> FileId {
    let (remote, admin) = (world.remote().await, world.domain.caller(ADMINISTRATOR));
    let call = world.domain.call(&admin, 1);
    let at = At::name(FileId::ROOT, Name::try_from("f").expect("good"));
    let new = New::File { verifier: None };
    let id = remote.make(&call, &at, new, &SetAttr::default()).await.expect("it is made").value.id;
    let file = remote.file(&call, id, Rights::WRITE).await.expect("it is there");
    let mut data = BytesSource::new(vec![7; bytes]);
    file.write(&call, WriteAt::Offset(0), &mut data).await.expect("it is written");
    id
}

#[test]
fn what_is_too_large_for_a_credential_is_not_kept() {
    simulate(1, |sys| async move {
        let world = World::on(sys);
        let mut raw = Raw::greeted(&world, 1000).await;
        let credential = Signed::assemble(vec![7; 1 << 20], KeyId(1), [0; 64]);
        raw.say(&ToServer::Present { number: 2, credential }).await;
        assert!(!raw.is_served(1).await, "nobody has such a credential");
    });
}

#[test]
fn the_credentials_one_connection_presents_are_bounded_in_bytes() {
    simulate(2, |sys| async move {
        let world = World::on(sys);
        let mut raw = Raw::greeted(&world, 1000).await;
        let large = |n: u8| Signed::assemble(vec![n; 16 << 10], KeyId(1), [0; 64]);
        // Under one number, or forgotten again: the bytes are given back.
        for number in 0..200_u32 {
            raw.say(&ToServer::Present { number: 2, credential: large(number as u8) }).await;
            raw.say(&ToServer::Present { number: 3 + number, credential: large(0) }).await;
            raw.say(&ToServer::Forget { number: 3 + number }).await;
        }
        assert!(raw.is_served(1).await, "it holds one at a time");
        for number in 1000..1200_u32 {
            raw.say(&ToServer::Present { number, credential: large(0) }).await;
        }
        assert!(!raw.is_served(2).await, "it made the node hold 3 MiB");
    });
}

#[test]
fn a_client_forgets_credentials_before_they_are_more_than_one_connection_may_present() {
    simulate(3, |sys| async move {
        let world = World::on(sys);
        let remote = world.remote().await;
        for _ in 0..120 {
            let mut claims = world.domain.claims("alice");
            claims.groups = vec![world.domain.name("some").id(); limits::CALLER_GROUPS_MAX / 2];
            let caller = world.domain.caller_with(&claims);
            remote.who_am_i(&caller).await.expect("each is presented");
        }
    });
}

#[test]
fn a_batch_of_too_many_requests_is_refused_once_and_before_it_is_read() {
    simulate(4, |sys| async move {
        let world = World::on(sys);
        let walk = || Request::Walk { at: At::id(FileId::ROOT), want: Want::default() };
        let most = limits::BATCH_REQUESTS_MAX;
        let (remote, call) =
            (world.remote().await, world.domain.call(&world.domain.caller(ADMINISTRATOR), 1));
        let replies = remote.batch(&call, (0..most).map(|_| walk()).collect()).await;
        assert!(replies.len() == most && replies.iter().all(Result::is_ok));
        let replies = remote.batch(&call, (0..=most).map(|_| walk()).collect()).await;
        assert!(replies.iter().all(|reply| reply.as_ref().is_err_and(|e| e.kind() == ErrorKind::TooLarge)));
        remote.who_am_i(&call.caller).await.expect("a client of ours asks for no such thing");
        let mut raw = Raw::greeted(&world, 1000).await;
        raw.enter(&call.caller).await;
        let body = CallBody::Batch((0..=most).map(|_| walk()).collect());
        raw.say_on(1, &ToServer::Call { header: header(2, 1), body }, Bytes::new()).await;
        assert!(matches!(raw.hear().await, Some((ToClient::Refused(_), _))));
    });
}

/// What is said of the bytes of one must not reach beyond them.
#[test]
fn files_whose_bytes_are_not_those_that_came_are_refused_and_too_many_end_the_line() {
    simulate(6, |sys| async move {
        let world = World::on(sys);
        let call = world.domain.call(&world.domain.caller(ADMINISTRATOR), 1);
        let none = world.remote().await.put_all(&call, Vec::new()).await.expect("nothing of nothing");
        assert!(none.is_empty());
        let mut raw = Raw::greeted(&world, 1000).await;
        raw.enter(&call.caller).await;
        let at = || At::root("f".try_into().expect("a name"));
        let whole = || Whole { digest: [7; 32], set: SetAttr::default(), guard: Guard::NONE };
        let put = |bytes| Put { at: at(), bytes, whole: whole() };
        let sizes = [&[4][..], &[2], &[u32::MAX, 4], &[]];
        for (stream, sizes) in (1..).zip(sizes) {
            let body = CallBody::PutAll(sizes.iter().map(|bytes| put(*bytes)).collect());
            let call = ToServer::Call { header: header(2, 1), body };
            raw.say_on(stream, &call, Bytes::from_static(b"abc")).await;
            let Some((ToClient::Reply(reply), _)) = raw.hear().await else { panic!("it answers") };
            assert_eq!(Error::from(reply.expect_err("refused")).kind(), ErrorKind::Invalid, "{sizes:?}");
        }
        let body = CallBody::PutAll((0..=limits::PUTS_TOGETHER_MAX).map(|_| put(0)).collect());
        raw.say_on(5, &ToServer::Call { header: header(2, 1), body }, Bytes::new()).await;
        assert!(matches!(raw.hear().await, Some((ToClient::Refused(_), _))));
    });
}

#[test]
fn a_frame_that_has_begun_comes_within_its_time_and_between_frames_there_is_no_hurry() {
    simulate(5, |sys| async move {
        let world = World::on(sys.clone());
        let mut raw = Raw::greeted(&world, 1000).await;
        sys.sleep(3600 * MOMENT).await;
        let frame = encode(&Frame::new(9, &ToServer::Cancel, vec![7; 1 << 20].into()));
        for part in frame.chunks(frame.len() / 50) {
            sys.sleep(MOMENT).await;
            raw.to.write_all(part).await.expect("it is read");
        }
        sys.sleep(3600 * MOMENT).await;
        assert!(raw.is_served(1).await, "it was only slow");
        raw.to.write_all(&frame[..frame.len() / 2]).await.expect("it is read");
        let begun = sys.clock().tick();
        let until = weft_core::Deadline::within(sys.clock(), 600 * MOMENT);
        let heard = sys.within(until, async { Ok(raw.hear().await) }).await.expect("it is cut off");
        let Some((ToClient::Refused(report), _)) = heard else { panic!("{heard:?}") };
        assert_eq!(report.kind, ErrorKind::Deadline);
        assert_eq!(sys.clock().tick().since(begun).as_secs(), 60);
    });
}

/// Brings half a frame as large as one may be; counts what the node takes of it.
async fn bring_half(sys: Sys, line: DuplexStream, taken: Arc<AtomicUsize>) {
    let (from, mut to) = tokio::io::split(line);
    let hello = encode(&Frame::new(0, &ToServer::Hello { oldest: 1, newest: 1 }, Bytes::new()));
    to.write_all(&hello).await.expect("it is read");
    let body = Bytes::from(vec![7; limits::RPC_BODY_BYTES_MAX]);
    let frame = encode(&Frame { stream: 1, body, payload: Bytes::new() });
    for part in frame[..frame.len() - 1].chunks(64 << 10) {
        if to.write_all(part).await.is_err() {
            return;
        }
        taken.fetch_add(part.len(), Ordering::Relaxed);
    }
    sys.sleep(600 * MOMENT).await;
    drop(from);
}

#[test]
fn what_all_connections_of_one_uid_have_brought_and_not_finished_is_bounded() {
    simulate(6, |sys| async move {
        let world = World::on(sys.clone());
        let taken = Arc::<AtomicUsize>::default();
        for _ in 0..40 {
            drop(sys.spawn(bring_half(sys.clone(), world.line_of(7), taken.clone())));
        }
        sys.sleep(10 * MOMENT).await;
        let held = taken.load(Ordering::Relaxed).saturating_sub(40 * LINE_BYTES);
        assert!(held <= 32 << 20, "{held} bytes");
        assert!(Raw::greeted(&world, 8).await.is_served(1).await, "others go on");
        sys.sleep(130 * MOMENT).await;
        assert!(Raw::greeted(&world, 7).await.is_served(1).await, "what it held was given back");
    });
}

/// Reads in a way, stops reading from the line, loses its right and reads on: returns the bytes
/// that still came.
fn bytes_after_the_end(seed: u64, reads: impl Fn(usize) -> Vec<Range> + Send + 'static) -> usize {
    simulate(seed, |sys| async move {
        let world = World::on(sys.clone());
        let size = 32 << 20;
        let id = file_of(&world, size).await;
        let reader = world.domain.caller(ADMINISTRATOR);
        let mut raw = Raw::greeted(&world, 1000).await;
        raw.enter(&reader).await;
        for (range, stream) in reads(size).into_iter().zip(1..) {
            let body = CallBody::File(FileRef::Id(id, Rights::READ), FileAsk::Read(range));
            raw.say_on(stream, &ToServer::Call { header: header(2, 1), body }, Bytes::new()).await;
            for _ in 0..16 {
                raw.say_on(stream, &ToServer::Credit(u32::MAX), Bytes::new()).await;
            }
        }
        sys.sleep(MOMENT).await;
        world.domain.revocations().end_credential(reader.credential(), sys.clock().now().plus(3600 * MOMENT));
        sys.sleep(MOMENT).await;
        let mut came = 0;
        loop {
            let soon = weft_core::Deadline::within(sys.clock(), MOMENT);
            let heard = sys.within(soon, async { Ok(raw.hear().await) }).await;
            let Ok(Some((_, bytes))) = heard else { return came };
            came += bytes;
        }
    })
}

#[test]
fn once_a_right_is_withdrawn_at_most_one_piece_leaves_whatever_credit_was_given() {
    let came = bytes_after_the_end(7, |_| vec![Range::ALL]);
    assert!((1..=LINE_BYTES + limits::PIECE_BYTES_MAX).contains(&came), "{came} bytes");
}

#[test]
fn once_a_right_is_withdrawn_at_most_one_piece_leaves_of_many_reads_that_wait() {
    let pieces = |size: usize| {
        let piece = limits::PIECE_BYTES_MAX as u64;
        (0..size as u64 / piece).map(|n| Range { at: n * piece, length: Some(piece) }).collect()
    };
    let came = bytes_after_the_end(8, pieces);
    assert!((1..=LINE_BYTES + limits::PIECE_BYTES_MAX).contains(&came), "{came} bytes");
}

#[test]
fn a_client_that_does_not_take_what_it_asked_for_is_cut_off() {
    simulate(9, |sys| async move {
        let world = World::on(sys.clone());
        let id = file_of(&world, 4 << 20).await;
        let mut raw = Raw::greeted(&world, 1000).await;
        raw.enter(&world.domain.caller(ADMINISTRATOR)).await;
        let body = CallBody::File(FileRef::Id(id, Rights::READ), FileAsk::Read(Range::ALL));
        raw.say_on(1, &ToServer::Call { header: header(2, 1), body }, Bytes::new()).await;
        sys.sleep(50 * MOMENT).await;
        raw.to.write_all(&[0]).await.expect("it still has time");
        sys.sleep(20 * MOMENT).await;
        raw.to.write_all(&[0]).await.expect_err("nobody is there any more");
    });
}

#[test]
fn a_session_number_that_is_used_again_ends_the_session_it_named() {
    simulate(10, |sys| async move {
        let world = World::on(sys.clone());
        let mut raw = Raw::greeted(&world, 1000).await;
        let mut first = None;
        for _ in 0..5 {
            raw.say(&ToServer::Begin { session: 1, credential: 1, resume: None }).await;
            let Some((ToClient::Begun { outcome: Ok(grant), .. }, _)) = raw.hear().await else {
                panic!("it begins")
            };
            first.get_or_insert(grant);
        }
        assert_eq!(world.sessions.alive(), 1);
        // The same session under the same number is the same session.
        raw.say(&ToServer::Begin { session: 2, credential: 1, resume: None }).await;
        let Some((ToClient::Begun { outcome: Ok(grant), .. }, _)) = raw.hear().await else {
            panic!("it begins")
        };
        raw.say(&ToServer::Begin { session: 2, credential: 1, resume: Some(grant) }).await;
        assert!(matches!(raw.hear().await, Some((ToClient::Begun { outcome: Ok(_), .. }, _))));
        assert_eq!(world.sessions.alive(), 2);
    });
}

#[test]
fn no_call_is_made_in_a_session_that_has_ended_whoever_else_remembers_that() {
    simulate(11, |sys| async move {
        let mut world = World::on(sys.clone());
        // Nobody is told of the end of these.
        let sessions = Arc::<TestSessions>::default();
        Arc::get_mut(&mut world.services).expect("nobody else has them yet").sessions = sessions.clone();
        let (remote, admin) = (world.remote().await, world.domain.caller(ADMINISTRATOR));
        let grant = remote.begin(&admin, SessionId(1)).await.expect("it begins");
        let call = world.domain.call(&admin, 1);
        let at = At::name(FileId::ROOT, Name::try_from("f").expect("good"));
        let new = New::File { verifier: None };
        remote.make(&call, &at, new, &SetAttr::default()).await.expect("it lives");
        sessions.end(grant.id);
        let lock = Lock {
            scope: LockScope::Whole,
            kind: LockKind::Exclusive,
            owner: LockOwner(Bytes::from_static(b"me")),
        };
        let outcome = remote.lock(&call, &at, &lock, weft_core::form::Wait::No).await;
        assert_eq!(outcome.expect_err("it has ended").kind(), ErrorKind::Stale);
        remote.who_am_i(&admin).await.expect("who may leave nothing in a session goes on");
    });
}
